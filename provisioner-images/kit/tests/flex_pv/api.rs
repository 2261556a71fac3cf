//! An API server that gives the replies of a test, and remembers its requests.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::serve::ListenerExt;
use serde_json::{Value, json};

/// A reply to the next request.
pub enum Reply {
    /// The body of the last POST, as created.
    Echo,
    /// An object with its status code.
    Object(u16, Value),
    /// Any other text, such as a proxy's page.
    Text(u16, &'static str),
    /// Nothing, for as long as the test takes.
    Never,
}

/// Makes an error in the API's own form.
pub fn error(code: u16, reason: &str, message: &str) -> Reply {
    Reply::Object(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message}),
    )
}

#[derive(Default)]
struct Script {
    replies: VecDeque<Reply>,
    asked: Vec<String>,
    posted: Vec<Value>,
    connections: usize,
}

/// The server, with a kubeconfig that leads to it. It ends with the test.
pub struct Api {
    script: Arc<Mutex<Script>>,
    folder: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

impl Api {
    /// Starts a server that gives these replies in turn.
    pub fn start(replies: Vec<Reply>) -> Self {
        let script = Arc::new(Mutex::new(Script { replies: replies.into(), ..Script::default() }));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let app = Router::new().fallback(serve).with_state(script.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let counted = script.clone();
        let listener = listener.tap_io(move |_| counted.lock().unwrap().connections += 1);
        runtime.spawn(async move { axum::serve(listener, app).await });
        Api { script, folder: kubeconfig_folder(address), _runtime: runtime }
    }

    /// Returns the path of the kubeconfig.
    pub fn kubeconfig(&self) -> String {
        path_text(self.folder.path().join("config"))
    }

    /// Returns the methods and paths of all requests so far.
    pub fn asked(&self) -> Vec<String> {
        self.script.lock().unwrap().asked.clone()
    }

    /// Returns the last object that was posted.
    pub fn posted(&self) -> Value {
        self.script.lock().unwrap().posted.last().cloned().unwrap_or_default()
    }

    /// Returns all objects that were posted, in their order.
    pub fn all_posted(&self) -> Vec<Value> {
        self.script.lock().unwrap().posted.clone()
    }

    /// Returns the number of connections that were accepted so far.
    pub fn connections(&self) -> usize {
        self.script.lock().unwrap().connections
    }
}

/// Makes a folder with a kubeconfig for a server at `address`.
pub fn kubeconfig_folder(address: SocketAddr) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: a, cluster: {{server: 'http://{address}'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
    );
    std::fs::write(folder.path().join("config"), config).unwrap();
    folder
}

/// Returns a path as the text of an environment variable.
pub fn path_text(path: PathBuf) -> String {
    path.into_os_string().into_string().unwrap()
}

async fn serve(State(script): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let asked = format!("{} {}", request.method(), request.uri().path());
    let query = request.uri().query().unwrap_or_default();
    assert_eq!(query.contains("fieldValidation=Ignore"), request.method() == "POST", "{asked}?{query}");
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let reply = {
        let mut script = script.lock().unwrap();
        script.asked.push(asked);
        if !body.is_empty() {
            script.posted.push(serde_json::from_slice(&body).unwrap());
        }
        script.replies.pop_front()
    };
    let (code, text) = match reply {
        Some(Reply::Echo) => (201, String::from_utf8(body.to_vec()).unwrap()),
        Some(Reply::Object(code, value)) => (code, value.to_string()),
        Some(Reply::Text(code, text)) => (code, text.to_owned()),
        Some(Reply::Never) => std::future::pending().await,
        None => (500, "more was asked than the test expected".to_owned()),
    };
    (StatusCode::from_u16(code).unwrap(), [("content-type", "application/json")], text).into_response()
}
