//! An API server that knows the answers of a test, and a kubeconfig for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::Answer;

/// The status and the text of an answer, for paths that begin with a text.
type Known = (&'static str, u16, String);

/// A server that answers until the test ends.
pub struct Server {
    address: String,
    folder: tempfile::TempDir,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts a server. The first known path that fits answers; all others do not exist.
    pub fn start(known: Vec<Known>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = format!("http://{}", listener.local_addr().expect("it is bound"));
        let folder = tempfile::tempdir().expect("a folder can be made");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (known, seen) = (Arc::new(known), heads.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (known, seen) = (known.clone(), seen.clone());
                std::thread::spawn(move || serve(&stream, &known, &seen));
            }
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
        let output = Command::new(program).args(args).env_clear().env("KUBECONFIG", file).output();
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

/// Answers the requests of a connection until its client leaves.
fn serve(mut stream: &TcpStream, known: &[Known], seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or_default() == 0 {
                return;
            }
            if let Some(bytes) = line.to_lowercase().strip_prefix("content-length:") {
                length = bytes.trim().parse().unwrap_or_default();
            }
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        seen.lock().expect("no server has failed").push(head);
        let missing = status(404, "NotFound");
        let found = known.iter().find(|(start, ..)| path.starts_with(start));
        let (code, text) = found.map_or((404, &missing), |(_, code, text)| (*code, text));
        let kind = if text.starts_with('{') { "application/json" } else { "text/plain" };
        let answer =
            format!("HTTP/1.1 {code} X\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{text}", text.len());
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
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
    let args: Vec<&str> = ["run"].iter().chain(arguments).copied().collect();
    let container = json!({ "name": "flex-provisioner", "args": args, "env": [own] });
    json!({
        "metadata": { "name": "flex-provisioner", "namespace": namespace },
        "spec": { "selector": {}, "template": { "spec": { "containers": [container] } } },
    })
}
