//! `ui`: shows the status page of the leader in the browser of this machine.

use std::net::Ipv4Addr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use flex_core::config::classes::Identity;
use flex_core::text::line;
use flex_provisioner::api::client::Connection;
use flex_provisioner::api::says;
use kube::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

use crate::cluster::Cluster;
use crate::forward::{StatusPort, forward, leading_pod};
use crate::name::name;
use crate::out::{remark, say};

/// The exit code if there is no page to show.
const NO_PAGE: u8 = 2;
/// The time for the first answer of the page.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Args)]
pub(super) struct UiArgs {
    #[command(flatten)]
    cluster: Cluster,
    /// The port on this machine; 0 for any free one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    #[command(flatten)]
    status_port: StatusPort,
    /// Print the address of the page, and open no browser.
    #[arg(long)]
    no_browser: bool,
}

pub(super) fn ui(args: UiArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&args))
}

async fn work(args: &UiArgs) -> anyhow::Result<ExitCode> {
    let (Connection { client, .. }, identity) = args.cluster.open().await?;
    let Some(pod) = leading_pod(&client, &identity).await? else {
        remark!("No orchestrator leads in namespace {}: {} check says more.", identity.namespace, name());
        return Ok(ExitCode::from(NO_PAGE));
    };
    let tunnel = Arc::new(Tunnel { client, identity, port: args.status_port.status_port, pod: Mutex::new(pod) });
    if let Err(why) = tunnel.check().await {
        remark!("{}", says::causes(&why));
        return Ok(ExitCode::from(NO_PAGE));
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener.with_context(|| format!("cannot listen on port {}: choose another --port", args.port))?;
    let address = format!("http://{}/", listener.local_addr()?);
    say!("{address}");
    remark!("This is the status page of pod {}. Ctrl-C ends it.", tunnel.pod.lock().await);
    if !args.no_browser && !opens(&address) {
        remark!("No browser could be started: open the address above.");
    }
    tokio::select! {
        ended = tunnel.serve(&listener) => ended,
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted.map(|()| ExitCode::SUCCESS)?),
    }
}

/// Starts the browser. Returns whether there is a program that does it.
fn opens(address: &str) -> bool {
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().is_ok()
}

/// The way to the page in the leader's pod, through the API server.
struct Tunnel {
    client: Client,
    identity: Identity,
    /// The port in the pod.
    port: u16,
    /// The pod that led when it was last looked up.
    pod: Mutex<String>,
}

impl Tunnel {
    /// Asks for the page once.
    ///
    /// # Errors
    /// If the pod does not answer. The message says what to do.
    async fn check(&self) -> anyhow::Result<()> {
        let pod = self.pod.lock().await.clone();
        let mut forwarder = forward(&self.client, &self.identity, &pod, self.port).await?;
        let error = forwarder.take_error(self.port);
        let mut stream = forwarder.take_stream(self.port).context("the API server forwards no port")?;
        let answer = async {
            stream.write_all(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
            let mut begin = [0; 12];
            stream.read_exact(&mut begin).await?;
            std::io::Result::Ok(begin)
        };
        match tokio::time::timeout(ANSWERS_WITHIN, answer).await {
            Ok(Ok(begin)) if begin == *b"HTTP/1.1 200" => return Ok(()),
            Ok(Ok(begin)) => bail!("port {} of pod {pod} is no status page: {}", self.port, begin.escape_ascii()),
            Ok(Err(_)) => {}
            Err(_) => bail!("pod {pod} does not answer on port {}", self.port),
        }
        let why = match error {
            Some(error) => tokio::time::timeout(ANSWERS_WITHIN, error).await.ok().flatten().unwrap_or_default(),
            None => String::new(),
        };
        bail!(
            "pod {pod} serves no status page on port {}: the orchestrator has ended or just starts, or it serves the page \
             elsewhere. See the orchestrator's --status-address, and name another port with --status-port. {}",
            self.port,
            line(why.trim(), 500)
        )
    }

    /// Connects each connection of the browser with the page, until the listener fails.
    async fn serve(self: &Arc<Self>, listener: &TcpListener) -> anyhow::Result<ExitCode> {
        loop {
            let (stream, _) = listener.accept().await?;
            let tunnel = self.clone();
            tokio::spawn(async move {
                if let Err(error) = tunnel.join(stream).await {
                    remark!("{}", says::causes(&error));
                }
            });
        }
    }

    /// Connects one connection. If the pod is gone, another one may lead.
    async fn join(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        let pod = self.pod.lock().await.clone();
        let mut forwarder = match forward(&self.client, &self.identity, &pod, self.port).await {
            Ok(forwarder) => forwarder,
            Err(error) => {
                let Some(now) = leading_pod(&self.client, &self.identity).await?.filter(|now| *now != pod) else {
                    return Err(error);
                };
                self.pod.lock().await.clone_from(&now);
                forward(&self.client, &self.identity, &now, self.port).await?
            }
        };
        let mut page = forwarder.take_stream(self.port).context("the API server forwards no port")?;
        // A browser closes connections whenever it likes.
        let _ = copy_bidirectional(&mut stream, &mut page).await;
        forwarder.abort();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use flex_provisioner::state::testing::identity;
    use futures::{SinkExt, StreamExt};
    use http::HeaderValue;
    use tokio_tungstenite::accept_hdr_async;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

    use super::*;

    const PORT: u16 = 8081;
    const PAGE: &str = "HTTP/1.1 200 OK\r\n\r\nthe page";

    /// Returns a tunnel through an API server whose pod sends a text on a channel for each request: 0 is that of answers,
    /// and 1 that of errors.
    async fn tunnel(channel: u8, text: &'static str) -> Tunnel {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(forwarded(stream, channel, text));
            }
        });
        let client = Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap();
        Tunnel { client, identity: identity(), port: PORT, pod: Mutex::new("flex-1".into()) }
    }

    async fn forwarded(stream: TcpStream, channel: u8, text: &str) {
        #[allow(clippy::result_large_err, reason = "the library declares the type of the callback")]
        let choose = |request: &Request, mut response: Response| {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/own/pods/flex-1/portforward");
            let protocol = HeaderValue::from_static("v4.channel.k8s.io");
            response.headers_mut().insert("sec-websocket-protocol", protocol);
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, choose).await.unwrap();
        for channel in [0, 1] {
            let [low, high] = PORT.to_le_bytes();
            socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
        }
        let asked = socket.next().await.unwrap().unwrap().into_data();
        assert!(asked.starts_with(b"\0HEAD / HTTP/1.1\r\n") || asked.starts_with(b"\0GET / "), "{asked:?}");
        socket.send(Message::binary([&[channel], text.as_bytes()].concat())).await.unwrap();
        let _ = socket.close(None).await;
    }

    #[tokio::test]
    async fn a_page_is_checked_before_its_address_is_printed() {
        tunnel(0, PAGE).await.check().await.unwrap();
        let other = tunnel(0, "HTTP/1.1 404 Not Found\r\n\r\n").await.check().await.unwrap_err().to_string();
        assert!(other.contains("port 8081 of pod flex-1 is no status page: HTTP/1.1 404"), "{other}");
        let closed = tunnel(1, "connection refused\n").await.check().await.unwrap_err().to_string();
        assert!(closed.contains("serves no status page") && closed.ends_with("connection refused"), "{closed}");
    }

    #[tokio::test]
    async fn a_connection_of_the_browser_reaches_the_page() {
        let tunnel = Arc::new(tunnel(0, PAGE).await);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut browser = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move { tunnel.serve(&listener).await });
        browser.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = vec![0; PAGE.len()];
        browser.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, PAGE.as_bytes());
    }
}
