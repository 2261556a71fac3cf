//! A kubelet's port-forward, for a pod whose program is a process of this machine.
//!
//! A control plane without nodes has no kubelet, so its API server could forward no port. [`PortForward`] is the part of a
//! kubelet that the API server then asks. The API server passes a client's WebSocket on as it is: each frame begins with
//! the number of its channel.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, StatusCode};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

use crate::authority::Authority;
use crate::cluster::Cluster;

/// The protocol of a WebSocket that forwards ports.
const PROTOCOL: &str = "v4.channel.k8s.io";
/// The channel of a port's data.
const DATA: u8 = 0;
/// The channel of a port's error.
const ERROR: u8 = 1;
/// The largest number of bytes in a frame.
const CHUNK: usize = 32 << 10;
/// The time in which a client answers the end of a connection.
const CLOSES_WITHIN: Duration = Duration::from_secs(5);

/// Forwards a port of one pod, until this value is dropped. The objects of the pod and of its node stay.
#[derive(Debug)]
pub struct PortForward {
    serving: JoinHandle<()>,
    connections: Arc<AtomicUsize>,
}

/// The pod, as the kubelet knows it.
#[derive(Debug)]
struct Target {
    /// The path of requests for the pod.
    path: String,
    pod: String,
    /// The address on this machine of the pod's one open port.
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl PortForward {
    /// The only open port of the pod. A connection to another port is refused.
    pub const PORT: u16 = 8081;

    /// Makes the pod, which appears to run on an unschedulable node of its own, and connects its port with `target`. A pod
    /// that was made so before may be forwarded to another target. The namespace has its default ServiceAccount already.
    ///
    /// # Errors
    /// The API server refuses the node or the pod.
    pub async fn start(cluster: &Cluster, namespace: &str, pod: &str, target: SocketAddr) -> Result<Self> {
        let acceptor = acceptor(&Authority::open(&cluster.state()?.pki())?)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("listen as a kubelet")?;
        announce(&cluster.client().await?, namespace, pod, listener.local_addr()?).await?;
        let connections = Arc::new(AtomicUsize::new(0));
        let target = Target {
            path: format!("/portForward/{namespace}/{pod}"),
            pod: pod.to_owned(),
            address: target,
            connections: connections.clone(),
        };
        Ok(Self { serving: tokio::spawn(serve(listener, acceptor, Arc::new(target))), connections })
    }

    /// Returns the number of connections that have reached the target.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for PortForward {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Writes the node, with the address of its kubelet, and the pod.
async fn announce(client: &Client, namespace: &str, pod: &str, kubelet: SocketAddr) -> Result<()> {
    let apply = PatchParams::apply("port-forward").force();
    let merge = PatchParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let node = format!("node-of-{pod}");
    let object = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": node }, "spec": { "unschedulable": true },
    });
    nodes.patch(&node, &apply, &Patch::Apply(object)).await.with_context(|| format!("node {node}"))?;
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Simulated", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = json!({ "status": {
        "addresses": [{ "type": "InternalIP", "address": kubelet.ip() }],
        "daemonEndpoints": { "kubeletEndpoint": { "Port": kubelet.port() } },
        "conditions": [ready],
    } });
    nodes.patch_status(&node, &merge, &Patch::Merge(status)).await.with_context(|| format!("status of node {node}"))?;
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let container = json!({ "name": "process", "image": "example/image" });
    let object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod },
        "spec": { "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container] },
    });
    pods.patch(pod, &apply, &Patch::Apply(object)).await.with_context(|| format!("pod {namespace}/{pod}"))?;
    let status = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    pods.patch_status(pod, &merge, &status).await.with_context(|| format!("status of pod {namespace}/{pod}"))?;
    Ok(())
}

/// Returns the TLS of a kubelet, with a certificate that the API server of the authority's cluster accepts.
fn acceptor(authority: &Authority) -> Result<TlsAcceptor> {
    let credential = authority.server("port-forward", &[], &[IpAddr::V4(Ipv4Addr::LOCALHOST)])?;
    let certificate = CertificateDer::from_pem_slice(credential.certificate.as_bytes())?;
    let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves connections of the API server. They end with this function.
async fn serve(listener: TcpListener, acceptor: TlsAcceptor, target: Arc<Target>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        while connections.try_join_next().is_some() {}
        let (acceptor, target) = (acceptor.clone(), target.clone());
        connections.spawn(async move {
            if let Err(error) = target.forward(&acceptor, stream).await {
                eprintln!("port-forward to pod {}: {error:#}", target.pod);
            }
        });
    }
}

impl Target {
    /// Serves one request of the API server.
    async fn forward(&self, acceptor: &TlsAcceptor, stream: TcpStream) -> Result<()> {
        let stream = acceptor.accept(stream).await.context("TLS with the API server")?;
        let mut port = 0;
        #[allow(clippy::result_large_err, reason = "the library declares the type of the callback")]
        let choose = |request: &Request, mut response: Response| {
            port = port_of(request, &self.path).map_err(|(status, why)| {
                let mut refusal = ErrorResponse::new(Some(why));
                *refusal.status_mut() = status;
                refusal
            })?;
            response.headers_mut().insert(http::header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, choose).await.context("handshake")?;
        let [low, high] = port.to_le_bytes();
        for channel in [DATA, ERROR] {
            socket.send(Message::binary(vec![channel, low, high])).await?;
        }
        let connected = if port == PortForward::PORT {
            TcpStream::connect(self.address).await.map_err(|error| error.to_string())
        } else {
            Err("Connection refused: the pod listens on another port".to_owned())
        };
        match connected {
            Ok(process) => {
                self.connections.fetch_add(1, Ordering::Relaxed);
                copy(socket, process).await
            }
            Err(why) => {
                let why = format!("error forwarding port {port} to pod {}: {why}", self.pod);
                socket.send(Message::binary([&[ERROR], why.as_bytes()].concat())).await?;
                close(socket).await;
                Ok(())
            }
        }
    }
}

/// Returns the port for which a request to this path asks, or the status and the reason of a refusal.
fn port_of(request: &Request, path: &str) -> Result<u16, (StatusCode, String)> {
    if request.uri().path() != path {
        return Err((StatusCode::NOT_FOUND, format!("{} is not served, only {path}", request.uri().path())));
    }
    let protocols = request.headers().get_all(http::header::SEC_WEBSOCKET_PROTOCOL).iter();
    let mut protocols = protocols.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    if !protocols.any(|protocol| protocol.trim() == PROTOCOL) {
        return Err((StatusCode::BAD_REQUEST, format!("the protocol must be {PROTOCOL}")));
    }
    let query = request.uri().query().unwrap_or_default();
    let ports: Vec<_> = query.split('&').filter_map(|pair| pair.strip_prefix("port=")).collect();
    let port = match ports[..] {
        [port] => port.parse().ok().filter(|port| *port > 0),
        _ => None,
    };
    port.ok_or_else(|| (StatusCode::BAD_REQUEST, format!("`{query}` does not name one port, as port=8081 does")))
}

/// Copies data both ways until one side ends. Clients and processes end connections whenever they like.
async fn copy(socket: WebSocketStream<TlsStream<TcpStream>>, process: TcpStream) -> Result<()> {
    let (mut to_client, mut from_client) = socket.split();
    let (mut from_process, mut to_process) = process.into_split();
    let requests = async {
        while let Some(Ok(message)) = from_client.next().await {
            let done = match &message {
                Message::Binary(frame) if frame.first() == Some(&DATA) => {
                    to_process.write_all(&frame[1..]).await.is_err()
                }
                other => other.is_close(),
            };
            if done {
                return;
            }
        }
    };
    let answers = async {
        let mut frame = vec![DATA; 1 + CHUNK];
        while let Ok(read @ 1..) = from_process.read(&mut frame[1..]).await {
            if to_client.send(Message::binary(frame[..=read].to_vec())).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = requests => {}
        () = answers => {}
    }
    close(to_client.reunite(from_client)?).await;
    Ok(())
}

/// Ends a connection. The last frames would be lost if its socket were closed before the client has read them.
async fn close(mut socket: WebSocketStream<TlsStream<TcpStream>>) {
    // The client may have ended it first.
    let _ = socket.close(None).await;
    let ends = async { while let Some(Ok(_)) = socket.next().await {} };
    let _ = tokio::time::timeout(CLOSES_WITHIN, ends).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/portForward/own/flex-1";

    fn asked(uri: &str, protocol: &str) -> Result<u16, (StatusCode, String)> {
        let request = Request::builder().uri(uri).header("sec-websocket-protocol", protocol).body(()).unwrap();
        port_of(&request, PATH)
    }

    #[test]
    fn a_request_names_one_port_of_the_pod() {
        assert_eq!(asked("/portForward/own/flex-1?port=8081", PROTOCOL), Ok(8081));
        assert_eq!(asked("/portForward/own/flex-1?port=1", "v5.channel.k8s.io, v4.channel.k8s.io"), Ok(1));
        for (uri, protocol, status, text) in [
            ("/portForward/own/flex-2?port=8081", PROTOCOL, 404, "only /portForward/own/flex-1"),
            ("/portForward/own/flex-1?port=8081", "SPDY/3.1+portforward.k8s.io", 400, PROTOCOL),
            ("/portForward/own/flex-1", PROTOCOL, 400, "`` does not name one port"),
            ("/portForward/own/flex-1?port=0", PROTOCOL, 400, "`port=0`"),
            ("/portForward/own/flex-1?port=80%2C81", PROTOCOL, 400, "`port=80%2C81`"),
            ("/portForward/own/flex-1?port=80&port=81", PROTOCOL, 400, "`port=80&port=81`"),
        ] {
            let (code, why) = asked(uri, protocol).unwrap_err();
            assert_eq!((code.as_u16(), why.contains(text)), (status, true), "{uri} by {protocol}: {why}");
        }
    }
}
