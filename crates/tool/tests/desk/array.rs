//! A storage array with an API of HTTP, in memory: volumes, snapshots, copies and their content. It takes a moment to make
//! something, does not mind two volumes of one name, and knows its users by a token.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The time in which the array makes a volume or a snapshot.
const MAKING: Duration = Duration::from_millis(300);
/// The largest body of a request.
const LARGEST: usize = 1 << 20;

/// A volume or a snapshot.
struct Object {
    id: u64,
    name: String,
    bytes: u64,
    content: Vec<u8>,
    made: Instant,
}

impl Object {
    fn state(&self) -> &'static str {
        if self.made.elapsed() < MAKING { "creating" } else { "ready" }
    }

    fn json(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "bytes": self.bytes, "state": self.state() })
    }
}

/// All objects.
#[derive(Default)]
struct Store {
    volumes: Vec<Object>,
    snapshots: Vec<Object>,
    made: u64,
}

/// A running array. It serves until the process ends.
pub struct Array {
    port: u16,
    store: Arc<Mutex<Store>>,
}

/// A request.
struct Asked {
    method: String,
    path: String,
    name: Option<String>,
    body: Vec<u8>,
}

/// An answer: its status, the header `Location`, and its body.
struct Told(u16, Option<String>, Vec<u8>);

impl Told {
    fn status(code: u16) -> Self {
        Told(code, None, Vec::new())
    }

    fn json(value: &Value) -> Self {
        Told(200, None, value.to_string().into_bytes())
    }
}

impl Array {
    /// The token of its users.
    pub const TOKEN: &str = "sesame-4711";

    /// Starts an array on a free port.
    pub fn start() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket of this process");
        let port = listener.local_addr().expect("a bound socket").port();
        let store = Arc::<Mutex<Store>>::default();
        let app = Router::new().fallback(serve).with_state(store.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a socket of this process");
                axum::serve(listener, app).await.expect("it serves without end");
            });
        });
        Array { port, store }
    }

    /// Returns its address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the names of all volumes and snapshots.
    pub fn names(&self) -> Vec<String> {
        let store = locked(&self.store);
        store.volumes.iter().chain(&store.snapshots).map(|object| object.name.clone()).collect()
    }
}

fn locked(store: &Mutex<Store>) -> MutexGuard<'_, Store> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

async fn serve(State(store): State<Arc<Mutex<Store>>>, request: Request) -> Response {
    let is_user = header(request.headers(), "authorization") == format!("Bearer {}", Array::TOKEN);
    let is_plain = header(request.headers(), "accept") == "text/plain";
    let query = request.uri().query().unwrap_or_default();
    let name = query.split('&').find_map(|pair| pair.strip_prefix("name=")).map(str::to_owned);
    let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
    let Ok(body) = axum::body::to_bytes(request.into_body(), LARGEST).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let asked = Asked { method, path, name, body: body.to_vec() };
    let Told(code, location, body) = match is_user {
        true => answer(&mut locked(&store), &asked, is_plain),
        false => Told::status(401),
    };
    let code = StatusCode::from_u16(code).expect("a status of HTTP");
    match location {
        Some(location) => (code, [("Location", location)], body).into_response(),
        None => (code, body).into_response(),
    }
}

/// Answers a request.
fn answer(store: &mut Store, asked: &Asked, is_plain: bool) -> Told {
    let parts: Vec<&str> = asked.path.trim_matches('/').split('/').collect();
    let (kind, rest) = parts.split_first().expect("a path has a part");
    let of_kind = match *kind {
        "volumes" => &store.volumes,
        "snapshots" => &store.snapshots,
        _ => return Told::status(404),
    };
    match (asked.method.as_str(), rest) {
        ("GET", []) => list(of_kind, asked, is_plain),
        ("POST", []) => make(store, kind, &asked.body),
        (_, [id, of_it @ ..]) => {
            let found = of_kind.iter().position(|object| object.id.to_string() == **id);
            let Some(at) = found else { return Told::status(404) };
            let of_kind = if *kind == "volumes" { &mut store.volumes } else { &mut store.snapshots };
            one(of_kind, at, asked, of_it)
        }
        _ => Told::status(405),
    }
}

fn list(objects: &[Object], asked: &Asked, is_plain: bool) -> Told {
    let has_name = |object: &&Object| asked.name.as_ref().is_none_or(|name| object.name == *name);
    let found = objects.iter().filter(has_name);
    if is_plain {
        let line = |object: &Object| format!("{} {} {} {}\n", object.id, object.state(), object.bytes, object.name);
        return Told(200, None, found.map(line).collect::<String>().into_bytes());
    }
    Told::json(&found.map(Object::json).collect())
}

fn make(store: &mut Store, kind: &str, body: &[u8]) -> Told {
    let Ok(wanted) = serde_json::from_slice::<Value>(body) else { return Told::status(400) };
    let Some(name) = wanted["name"].as_str() else { return Told::status(400) };
    let sources = [("volume", &store.volumes), ("snapshot", &store.snapshots)];
    let mut content = Vec::new();
    for (key, objects) in sources {
        let Some(id) = wanted[key].as_u64() else { continue };
        let Some(source) = objects.iter().find(|object| object.id == id) else { return Told::status(404) };
        if source.state() != "ready" {
            return Told::status(409);
        }
        content.clone_from(&source.content);
    }
    let objects = if kind == "volumes" { &mut store.volumes } else { &mut store.snapshots };
    if wanted["unique"] == true && objects.iter().any(|object| object.name == name) {
        return Told::status(409);
    }
    store.made += 1;
    let bytes = wanted["bytes"].as_u64().unwrap_or_default();
    let object = Object { id: store.made, name: name.to_owned(), bytes, content, made: Instant::now() };
    let told = Told(201, Some(format!("/{kind}/{}", object.id)), object.json().to_string().into_bytes());
    objects.push(object);
    told
}

/// Answers a request about an object, or about its content.
fn one(objects: &mut Vec<Object>, at: usize, asked: &Asked, of_it: &[&str]) -> Told {
    let object = &mut objects[at];
    match (asked.method.as_str(), of_it) {
        (_, ["content"]) if object.state() != "ready" => Told::status(409),
        ("GET", ["content"]) => Told(200, None, object.content.clone()),
        ("PUT", ["content"]) => {
            object.content.clone_from(&asked.body);
            Told::status(204)
        }
        ("GET", []) => Told::json(&object.json()),
        ("DELETE", []) => {
            objects.remove(at);
            Told::status(204)
        }
        ("PATCH", []) => {
            let Ok(wanted) = serde_json::from_slice::<Value>(&asked.body) else { return Told::status(400) };
            if let Some(name) = wanted["name"].as_str() {
                name.clone_into(&mut object.name);
            }
            object.bytes = wanted["bytes"].as_u64().unwrap_or(object.bytes);
            Told::json(&object.json())
        }
        _ => Told::status(405),
    }
}
