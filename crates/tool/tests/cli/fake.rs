//! An API server that knows the answers of a test, and a kubeconfig for it.

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use serde_json::{Value, json};

use super::Answer;

/// The status and the text of an answer, for paths that begin with a text.
type Known = (&'static str, u16, String);

/// The path of questions about the rights of accounts.
pub const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// A server that answers until the test ends.
pub struct Server {
    address: String,
    folder: tempfile::TempDir,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server. The first known path that fits answers; all others do not exist. Unless the test knows better,
    /// each account has each right.
    pub fn start(mut known: Vec<Known>) -> Self {
        known.push((REVIEWS, 201, review(true)));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("a listener can be polled");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let folder = tempfile::tempdir().expect("a folder can be made");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        let answer = async move |method: Method, uri: Uri, headers: HeaderMap| {
            seen.lock().expect("no request has failed").push(head(&method, &uri, &headers));
            let path = uri.to_string();
            let found = known.iter().find(|(start, ..)| path.starts_with(start));
            let (code, text) = found.map_or((404, status(404, "NotFound")), |(_, code, text)| (*code, text.clone()));
            let kind = if text.starts_with('{') { "application/json" } else { "text/plain" };
            (StatusCode::from_u16(code).expect("a status"), [(header::CONTENT_TYPE, kind)], text)
        };
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it can be polled");
                axum::serve(listener, Router::new().fallback(answer)).await
            })
        });
        Server { address, folder, heads }
    }

    /// Runs the program as a user of this cluster.
    pub fn run(&self, args: &[&str]) -> Answer {
        self.run_as(Path::new(env!("CARGO_BIN_EXE_flex-provisioner")), args)
    }

    /// Runs a copy of the program as a user of this cluster.
    pub fn run_as(&self, program: &Path, args: &[&str]) -> Answer {
        let file = self.folder.path().join("config");
        std::fs::write(&file, self.kubeconfig().to_string()).expect("the folder can be written");
        let output =
            Command::new(program).args(args).env_clear().env("KUBECONFIG", file).current_dir(super::ROOT).output();
        super::answer(output.expect("the program can be started"))
    }

    fn kubeconfig(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": self.address } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": "team" } }],
        })
    }

    /// Returns the heads of all requests so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no server has failed").clone()
    }
}

/// Returns the first line and the headers of a request.
fn head(method: &Method, uri: &Uri, headers: &HeaderMap) -> String {
    let lines = headers.iter().map(|(name, value)| format!("\r\n{name}: {}", value.to_str().unwrap_or_default()));
    format!("{method} {uri}{}", lines.collect::<String>())
}

/// The answer to a question about the rights of an account.
pub fn review(allowed: bool) -> String {
    json!({ "spec": {}, "status": { "allowed": allowed } }).to_string()
}

/// The answer of the API server to a request that it refuses.
pub fn status(code: u16, reason: &str) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code })
        .to_string()
}

/// A list of objects.
pub fn list(items: &[Value]) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }).to_string()
}

/// The Deployment of an orchestrator.
pub fn deployment(namespace: &str, arguments: &[&str]) -> Value {
    let own = json!({ "name": "POD_NAMESPACE", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } });
    let container =
        json!({ "name": "flex-provisioner", "command": ["/flex-orchestrator"], "args": arguments, "env": [own] });
    json!({
        "metadata": { "name": "flex-provisioner", "namespace": namespace },
        "spec": { "selector": {}, "template": { "spec": { "containers": [container] } } },
    })
}
