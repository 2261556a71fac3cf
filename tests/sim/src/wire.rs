//! The connection from the orchestrator's client to the simulated API server. Each request waits here until the history
//! lets it pass, and so does each answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use flex_core::object::ObjectName;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::store::{self, Kind};

/// The verb of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// One object.
    Get,
    /// All objects.
    List,
    /// A new object.
    Create,
    /// A merge patch, or a JSON patch, whose body is a list.
    Patch,
    /// A deletion.
    Delete,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The kind of the objects.
    pub kind: Kind,
    /// The name of the object; its name is empty for lists of all objects.
    pub name: ObjectName,
    /// Whether it concerns only the status.
    pub status: bool,
    /// The labels of the objects that a list selects.
    pub labels: Vec<(String, String)>,
    /// Whether a list is of whole objects, and not of their metadata.
    pub is_whole: bool,
    /// The body.
    pub body: Arc<Value>,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = if self.status { "/status" } else { "" };
        write!(f, "{:?} {:?} {}{status}", self.verb, self.kind, self.name)?;
        match (self.verb, self.kind) {
            (Verb::Patch | Verb::Delete, _) => {
                let body: String = self.body.to_string().chars().take(500).collect();
                write!(f, " {body}")
            }
            (Verb::Create, Kind::Event) => write!(f, " {}: {}", self.body["reason"], self.body["message"]),
            _ => Ok(()),
        }
    }
}

/// An answer: a status code and a body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code; 0 for a connection that broke.
    pub code: u16,
    /// The body as it is sent.
    pub body: Vec<u8>,
}

impl Answer {
    /// Success.
    pub fn ok(body: &Value) -> Self {
        Answer::new(200, body)
    }

    /// Success of a creation.
    pub fn created(body: &Value) -> Self {
        Answer::new(201, body)
    }

    fn new(code: u16, body: &Value) -> Self {
        Answer { code, body: serde_json::to_vec(body).expect("all keys are texts") }
    }

    /// Builds an error in the form of the API server.
    pub fn error(code: u16, reason: &str, message: impl Into<String>) -> Self {
        let message = message.into();
        let body = json!({
            "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message,
        });
        Answer::new(code, &body)
    }

    /// Returns the UID of the object in the answer; empty if there is none.
    pub fn uid(&self) -> String {
        let body = serde_json::from_slice::<Value>(&self.body).unwrap_or_default();
        store::uid(&body).to_owned()
    }

    /// Returns the message of an error.
    pub fn message(&self) -> Value {
        serde_json::from_slice::<Value>(&self.body).map(|mut body| body["message"].take()).unwrap_or_default()
    }

    /// Builds the answer of a broken connection: it is unknown whether the request was carried out.
    pub fn broken() -> Self {
        Answer { code: 0, body: Vec::new() }
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Pending {
    /// The number of the replica.
    pub from: usize,
    /// The request.
    pub request: Request,
    /// When it was sent, in milliseconds.
    pub since: u64,
    /// The receiver of the answer, or `None` if the sender does not wait any more.
    pub back: Option<oneshot::Sender<Answer>>,
    /// The answer, once the request has been carried out.
    pub answer: Option<Answer>,
}

impl Pending {
    /// Returns whether the sender waits for the answer.
    pub fn is_awaited(&self) -> bool {
        self.back.as_ref().is_some_and(|back| !back.is_closed())
    }
}

/// All requests on their way, in their order.
#[derive(Clone, Debug, Default)]
pub struct Wire(Arc<Mutex<Waiting>>);

/// The requests on their way.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The requests by number.
    pub requests: BTreeMap<u64, Pending>,
    /// The time, in milliseconds.
    pub now: u64,
    count: u64,
}

impl Wire {
    /// Locks the requests on their way.
    pub fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().expect("nothing panics while it holds the wire")
    }

    /// Returns a client of the orchestrator's kind whose requests arrive here, under the number of a replica.
    pub fn client(&self, from: usize) -> Client {
        let wire = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let wire = wire.clone();
            async move { wire.pass(from, request).await }
        });
        Client::new(service, "default")
    }

    async fn pass(self, from: usize, request: http::Request<Body>) -> Result<http::Response<Body>, tower::BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? };
        let request = parse(&parts, body)?;
        let (back, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            waiting.count += 1;
            let (number, since) = (waiting.count, waiting.now);
            waiting.requests.insert(number, Pending { from, request, since, back: Some(back), answer: None });
        }
        match answer.await {
            Ok(Answer { code: 0, .. }) | Err(_) => Err("connection reset by peer".into()),
            Ok(Answer { code, body }) => Ok(http::Response::builder().status(code).body(Body::from(body))?),
        }
    }
}

/// The selection of one object by its name, as a query has it.
const NAMED: &str = "fieldSelector=metadata.name%3D";
/// The selection by labels, as a query has it.
const LABELLED: &str = "labelSelector=";
/// The form of a JSON patch.
const JSON_PATCH: &str = "application/json-patch+json";
/// The form of a list of metadata.
const METADATA: &str = "as=PartialObjectMetadataList";

fn header<'p>(parts: &'p http::request::Parts, name: &str) -> &'p str {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns the labels that a query selects. The orchestrator selects only by equality.
fn labels(query: &str) -> Vec<(String, String)> {
    let selected = query.split('&').find_map(|part| part.strip_prefix(LABELLED)).unwrap_or_default();
    let pairs = selected.split("%2C").filter_map(|label| label.split_once("%3D"));
    pairs.map(|(key, value)| (key.replace("%2F", "/"), value.to_owned())).collect()
}

fn parse(parts: &http::request::Parts, body: Value) -> Result<Request, String> {
    let path = parts.uri.path();
    let unknown = || format!("the simulation knows nothing of {} {path}", parts.method);
    let mut texts: Vec<&str> = path.split('/').filter(|word| !word.is_empty()).collect();
    texts.drain(..if texts.first() == Some(&"api") { 2 } else { 3 });
    let namespace = match texts.as_slice() {
        ["namespaces", namespace, _, ..] => {
            let namespace = (*namespace).to_owned();
            texts.drain(..2);
            namespace
        }
        _ => String::new(),
    };
    let kind = match texts.first().copied() {
        Some("persistentvolumeclaims") => Kind::Claim,
        Some("persistentvolumes") => Kind::Volume,
        Some("volumesnapshots") => Kind::Snapshot,
        Some("volumesnapshotcontents") => Kind::Content,
        Some("jobs") => Kind::Job,
        Some("pods") => Kind::Pod,
        Some("controllerrevisions") => Kind::Revision,
        Some("configmaps") => Kind::Config,
        Some("events") => Kind::Event,
        Some("nodes") => Kind::Node,
        Some("storageclasses") => Kind::Class,
        Some("namespaces") => Kind::Namespace,
        _ => return Err(unknown()),
    };
    let mut name = texts.get(1).copied().unwrap_or_default().to_owned();
    let verb = match (parts.method.as_str(), name.is_empty()) {
        ("GET", false) => Verb::Get,
        ("GET", true) => Verb::List,
        ("POST", true) => Verb::Create,
        ("PATCH", false) => Verb::Patch,
        ("DELETE", false) => Verb::Delete,
        _ => return Err(unknown()),
    };
    let query = parts.uri.query().unwrap_or_default();
    if verb == Verb::List {
        let named = query.split('&').find_map(|part| part.strip_prefix(NAMED));
        name = named.unwrap_or_default().to_owned();
    }
    if verb == Verb::Patch && body.is_array() != (header(parts, "content-type") == JSON_PATCH) {
        return Err(unknown());
    }
    let labels = labels(query);
    let is_whole = !header(parts, "accept").contains(METADATA);
    if verb == Verb::Create {
        name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    }
    let status = texts.get(2) == Some(&"status");
    Ok(Request { verb, kind, name: ObjectName { namespace, name }, status, labels, is_whole, body: Arc::new(body) })
}
