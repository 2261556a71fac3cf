//! A proxy between an orchestrator and the API server. It counts the writes, and cuts the orchestrator off at one of
//! them.
//!
//! It uses the HTTP server that the project has anyway, and the client of Kubernetes: [`Client::send`] knows address,
//! certificates and connections.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The orchestrator sends no larger request.
const LARGEST: usize = 4 << 20;

/// A kind of request: the method (`LIST` for a GET of many), and the resource with its subresource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub method: String,
    pub resource: String,
}

/// The name of a write in a sequence: the first, second, … successful write of its kind. Independent writes may change
/// their order from run to run, and some are refused now and then and repeated; this name stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Write {
    pub kind: Kind,
    pub number: u32,
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.kind.method, self.kind.resource, self.number)
    }
}

/// A recorded write.
#[derive(Clone, Debug)]
pub struct Written {
    pub write: Write,
    /// Whether all earlier writes had been answered when it arrived.
    pub alone: bool,
    /// Whether it was refused.
    pub refused: bool,
    /// The last revision of the store in the object that it wrote, if the answer contains one.
    pub revision: Option<u64>,
}

/// The fault at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The write never reaches the API server, and neither does anything after it: the process is cut off.
    CutBefore,
    /// The write is carried out, its answer is lost, and nothing after it gets through: the process is cut off.
    CutAfter,
    /// The write is carried out and its answer is lost; everything after it gets through.
    AnswerLost,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::CutBefore => "before",
            Fault::CutAfter => "after",
            Fault::AnswerLost => "answer lost of",
        })
    }
}

/// A write and its fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub fault: Fault,
    pub write: Write,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.fault, self.write)
    }
}

/// The proxy's decision about a request.
enum Fate {
    Passes,
    /// The request passes. It is the write with this number among all, and has this fault if it succeeds.
    IsRecorded(usize, Option<Fault>),
    Held,
    Refused,
}

/// The writes of a kind.
#[derive(Default)]
struct KindCounts {
    carried_out: u32,
    under_way: u32,
}

#[derive(Default)]
struct Record {
    /// Whether writes are counted, and the fault is awaited.
    armed: bool,
    counts: BTreeMap<Kind, KindCounts>,
    writes: Vec<Written>,
    point: Option<Point>,
    /// Whether the write before the fault is in progress: nothing else gets through.
    undecided: bool,
    /// Whether nothing gets through any more.
    cut: bool,
    /// The kinds of requests that are refused.
    refused: Vec<Kind>,
    /// The kinds of requests whose answers are delayed until the proxy is healed.
    delayed: Vec<Kind>,
    /// The number of answers that are delayed now.
    waiting: usize,
    /// The delay of watches, by resource.
    late: BTreeMap<String, Duration>,
}

struct Wire {
    client: Client,
    record: Mutex<Record>,
    /// Whether the fault has happened.
    happened: watch::Sender<bool>,
    /// Changes whenever a delayed answer may be sent.
    released: watch::Sender<()>,
}

/// A proxy for one process.
pub struct Proxy {
    address: SocketAddr,
    wire: Arc<Wire>,
    server: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Proxy {
    /// Starts a proxy. It counts nothing and causes no fault until [`Proxy::arm`].
    pub async fn start(client: Client, point: Option<Point>) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a local port");
        let address = listener.local_addr().expect("the port is bound");
        let wire = Arc::new(Wire {
            client,
            record: Mutex::new(Record { point, ..Record::default() }),
            happened: watch::Sender::new(false),
            released: watch::Sender::new(()),
        });
        let router = Router::new().fallback(handle).with_state(wire.clone());
        let server = tokio::spawn(async move {
            axum::serve(listener, router).await.expect("the proxy serves");
        });
        Proxy { address, wire, server }
    }

    /// Writes a kubeconfig that leads through the proxy, with `user` as its user.
    pub fn kubeconfig(&self, path: &Path, user: Value) -> PathBuf {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
            "clusters": [{ "name": "proxy", "cluster": { "server": format!("http://{}", self.address) } }],
            "users": [{ "name": "proxy", "user": user }],
        });
        std::fs::write(path, config.to_string()).expect("the kubeconfig is written");
        path.to_owned()
    }

    fn record<T>(&self, with: impl FnOnce(&mut Record) -> T) -> T {
        let done = with(&mut self.wire.record.lock().expect("no code panics while it holds the record"));
        self.wire.released.send_replace(());
        done
    }

    /// Begins to count writes.
    pub fn arm(&self) {
        self.record(|record| record.armed = true);
    }

    /// Returns the writes since [`Proxy::arm`].
    pub fn writes(&self) -> Vec<Written> {
        self.record(|record| record.writes.clone())
    }

    /// Refuses requests of a kind, as a broken connection does, until [`Proxy::heal`].
    pub fn refuse(&self, method: &str, resource: &str) {
        self.record(|record| record.refused.push(Kind { method: method.into(), resource: resource.into() }));
    }

    /// Carries out requests of a kind, and delays their answers until [`Proxy::heal`].
    pub fn delay_answers(&self, method: &str, resource: &str) {
        self.record(|record| record.delayed.push(Kind { method: method.into(), resource: resource.into() }));
    }

    /// Delays the events of watches of a resource from now on, in their order.
    pub fn delay(&self, resource: &str, by: Duration) {
        self.record(|record| record.late.insert(resource.into(), by));
    }

    /// Returns the number of delayed answers.
    pub fn waiting(&self) -> usize {
        self.record(|record| record.waiting)
    }

    /// Ends all refusals and delays.
    pub fn heal(&self) {
        self.record(|record| {
            record.refused.clear();
            record.delayed.clear();
        });
    }

    /// Returns whether the fault has happened.
    pub fn has_happened(&self) -> bool {
        *self.wire.happened.borrow()
    }

    /// Waits until the fault has happened.
    pub async fn happened(&self) {
        let _ = self.wire.happened.subscribe().wait_for(|happened| *happened).await;
    }
}

async fn handle(State(wire): State<Arc<Wire>>, request: Request) -> Response {
    let kind = kind(request.method(), request.uri().path());
    let watches =
        request.method() == Method::GET && request.uri().query().is_some_and(|query| query.contains("watch="));
    match wire.decision(&kind, request.method()).await {
        Fate::Passes => {
            let answer = wire.forward(request).await;
            wire.wait_while_delayed(&kind).await;
            if watches { late(wire, kind.resource, answer) } else { answer }
        }
        Fate::IsRecorded(location, fault) => {
            let (mut parts, body) = wire.forward(request).await.into_parts();
            parts.headers.remove(header::TRANSFER_ENCODING);
            // Reads the whole answer, so that the write is carried out.
            let Ok(body) = to_bytes(body, LARGEST).await else { return StatusCode::BAD_GATEWAY.into_response() };
            match wire.is_answered(location, fault, parts.status, &body) {
                None => {
                    wire.wait_while_delayed(&kind).await;
                    Response::from_parts(parts, Body::from(body))
                }
                Some(Fault::AnswerLost) => StatusCode::BAD_GATEWAY.into_response(),
                Some(Fault::CutBefore | Fault::CutAfter) => std::future::pending().await,
            }
        }
        Fate::Refused => StatusCode::BAD_GATEWAY.into_response(),
        Fate::Held => {
            wire.happened.send_replace(true);
            std::future::pending().await
        }
    }
}

/// Delays each part of the answer to a watch by the delay at its arrival.
fn late(wire: Arc<Wire>, resource: String, answer: Response) -> Response {
    answer.map(|body| {
        let (sender, receiver) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut parts = body.into_data_stream();
            while let Some(part) = parts.next().await {
                let by = wire.record().late.get(&resource).copied().unwrap_or_default();
                if sender.send((Instant::now() + by, part)).is_err() {
                    break;
                }
            }
        });
        Body::from_stream(stream::unfold(receiver, |mut receiver| async {
            let (at, part) = receiver.recv().await?;
            tokio::time::sleep_until(at).await;
            Some((part, receiver))
        }))
    })
}

impl Wire {
    fn record(&self) -> std::sync::MutexGuard<'_, Record> {
        self.record.lock().expect("no code panics while it holds the record")
    }

    /// Waits while answers of this kind are delayed.
    async fn wait_while_delayed(&self, kind: &Kind) {
        let mut released = self.released.subscribe();
        let mut counted = false;
        loop {
            {
                let mut record = self.record();
                let delayed = record.delayed.contains(kind);
                match (delayed, counted) {
                    (true, false) => record.waiting += 1,
                    (false, true) => record.waiting -= 1,
                    _ => {}
                }
                counted = delayed;
            }
            if !counted {
                return;
            }
            let _ = released.changed().await;
        }
    }

    async fn decision(&self, kind: &Kind, method: &Method) -> Fate {
        let mut released = self.released.subscribe();
        loop {
            match self.fate(kind, method) {
                Some(fate) => return fate,
                None => drop(released.changed().await),
            }
        }
    }

    /// Returns the decision, or `None` while another write must be answered first.
    fn fate(&self, kind: &Kind, method: &Method) -> Option<Fate> {
        let mut record = self.record();
        if record.cut {
            return Some(Fate::Held);
        }
        if record.undecided {
            return None;
        }
        if record.refused.contains(kind) {
            return Some(Fate::Refused);
        }
        if method == Method::GET || !record.armed {
            return Some(Fate::Passes);
        }
        let alone = record.counts.values().all(|count| count.under_way == 0);
        let count = record.counts.entry(kind.clone()).or_default();
        count.under_way += 1;
        let write = Write { kind: kind.clone(), number: count.carried_out + count.under_way };
        let fault = record.point.as_ref().filter(|point| point.write == write).map(|point| point.fault);
        let location = record.writes.len();
        record.writes.push(Written { write, alone, refused: false, revision: None });
        record.cut = fault == Some(Fault::CutBefore);
        record.undecided = fault.is_some() && !record.cut;
        Some(if record.cut { Fate::Held } else { Fate::IsRecorded(location, fault) })
    }

    /// Records the answer to a write, and returns the fault that happens now.
    fn is_answered(&self, location: usize, fault: Option<Fault>, status: StatusCode, answer: &[u8]) -> Option<Fault> {
        let object: Value = serde_json::from_slice(answer).unwrap_or_default();
        let revision = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let mut record = self.record();
        let written = &mut record.writes[location];
        written.revision = revision.and_then(|revision| revision.parse().ok());
        written.refused = status.is_client_error();
        let (kind, refused) = (written.write.kind.clone(), written.refused);
        let count = record.counts.entry(kind).or_default();
        count.under_way -= 1;
        count.carried_out += u32::from(!refused);
        let fault = fault.filter(|_| !refused);
        if fault.is_some() {
            record.point = None;
            record.cut = fault == Some(Fault::CutAfter);
            self.happened.send_replace(true);
        }
        record.undecided = false;
        drop(record);
        self.released.send_replace(());
        fault
    }

    async fn forward(&self, request: Request) -> Response {
        let (mut parts, body) = request.into_parts();
        for of_this_hop in [header::HOST, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING] {
            parts.headers.remove(of_this_hop);
        }
        let Ok(body) = to_bytes(body, LARGEST).await else { return StatusCode::BAD_REQUEST.into_response() };
        match self.client.send(Request::from_parts(parts, kube::client::Body::from(body))).await {
            Ok(response) => response.map(Body::new),
            Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
        }
    }
}

/// `/api/v1/namespaces/a/pods/b/status` → `pods/status`.
fn kind(method: &Method, path: &str) -> Kind {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // `api/VERSION` or `apis/GROUP/VERSION`.
    let groups = if parts.next() == Some("api") { 1 } else { 2 };
    let rest: Vec<_> = parts.skip(groups).collect();
    let rest = match rest.as_slice() {
        ["namespaces", _, namespaced @ ..] if !namespaced.is_empty() => namespaced,
        all => all,
    };
    let resource = match rest {
        [resource, _, subresource] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_owned(),
        [] => path.to_owned(),
    };
    let many = method == Method::GET && rest.len() == 1;
    Kind { method: if many { "LIST".into() } else { method.to_string() }, resource }
}

#[test]
fn requests_are_distinguished_by_resource() {
    let of = |path| kind(&Method::PATCH, path).resource;
    assert_eq!(of("/api/v1/namespaces/a/persistentvolumeclaims/b"), "persistentvolumeclaims");
    assert_eq!(of("/api/v1/namespaces/a/persistentvolumeclaims/b/status"), "persistentvolumeclaims/status");
    assert_eq!(of("/api/v1/persistentvolumes/b/status"), "persistentvolumes/status");
    assert_eq!(of("/apis/batch/v1/namespaces/a/jobs"), "jobs");
    assert_eq!(of("/api/v1/namespaces/a/pods/b"), "pods");
    assert_eq!(of("/api/v1/namespaces/a"), "namespaces");
    let method = |path| kind(&Method::GET, path).method;
    assert_eq!((method("/api/v1/pods").as_str(), method("/api/v1/namespaces/a/pods/b").as_str()), ("LIST", "GET"));
}
