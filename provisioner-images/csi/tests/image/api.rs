//! The Kubernetes objects that the image reads and writes, served over HTTP. Tests of the whole orchestrator use a real
//! API server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// The objects by their paths.
type Objects = Arc<Mutex<BTreeMap<String, Value>>>;

/// The server, which ends when it is dropped.
pub struct Api {
    objects: Objects,
    port: u16,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Api {
    /// Starts a server without objects.
    pub fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let objects = Objects::default();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().fallback(answer).with_state(objects.clone());
        runtime.spawn(async move { axum::serve(listener, router).await });
        Api { objects, port, runtime: Some(runtime) }
    }

    /// Returns a kubeconfig for the server.
    pub fn kubeconfig(&self) -> String {
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{}", self.port) } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        })
        .to_string()
    }

    /// Stores an object.
    pub fn put(&self, path: &str, object: Value) {
        self.objects.lock().unwrap().insert(path.to_owned(), object);
    }

    /// Stores a Secret with values in base64.
    pub fn put_secret(&self, namespace: &str, name: &str, data: Value) {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        self.put(&path, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "data": data }));
    }

    /// Stores a node, with the topology that a driver reported.
    pub fn put_node(&self, name: &str, labels: Value, driver: &str, keys: Value) {
        let metadata = json!({ "name": name, "labels": labels });
        self.put(&format!("/api/v1/nodes/{name}"), json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }));
        let drivers = json!([{ "name": driver, "nodeID": name, "topologyKeys": keys }]);
        self.put(
            &format!("/apis/storage.k8s.io/v1/csinodes/{name}"),
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name }, "spec": { "drivers": drivers } }),
        );
    }

    /// Returns the object at a path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().get(path).cloned()
    }

    /// Returns the PersistentVolume of an id.
    pub fn volume(&self, id: &str) -> Option<Value> {
        self.get(&format!("/api/v1/persistentvolumes/pvc-{id}"))
    }

    /// Returns the names of all PersistentVolumes, in their order.
    pub fn volumes(&self) -> Vec<String> {
        let objects = self.objects.lock().unwrap();
        objects.keys().filter_map(|path| path.strip_prefix("/api/v1/persistentvolumes/")).map(str::to_owned).collect()
    }

    /// Removes the PersistentVolume of an id.
    pub fn remove_volume(&self, id: &str) {
        self.objects.lock().unwrap().remove(&format!("/api/v1/persistentvolumes/pvc-{id}"));
    }
}

fn json_of(code: StatusCode, object: &Value) -> Response {
    (code, [("content-type", "application/json")], object.to_string()).into_response()
}

fn failed(code: StatusCode, reason: &str, message: &str) -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code.as_u16(), "message": message,
    });
    json_of(code, &status)
}

async fn answer(State(objects): State<Objects>, method: Method, uri: Uri, body: Bytes) -> Response {
    let mut objects = objects.lock().unwrap();
    let path = uri.path();
    if method == Method::POST {
        let object: Value = serde_json::from_slice(&body).unwrap();
        let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap());
        if objects.contains_key(&path) {
            return failed(StatusCode::CONFLICT, "AlreadyExists", "it is there");
        }
        objects.insert(path, object.clone());
        return json_of(StatusCode::CREATED, &object);
    }
    match objects.get(path) {
        // The request lacks a right.
        Some(Value::Null) => failed(StatusCode::FORBIDDEN, "Forbidden", "cannot get it"),
        Some(object) => json_of(StatusCode::OK, object),
        None if path.ends_with('s') => {
            let within = format!("{path}/");
            let items: Vec<&Value> =
                objects.iter().filter(|(at, _)| at.starts_with(&within)).map(|(_, it)| it).collect();
            json_of(StatusCode::OK, &json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }))
        }
        None => failed(StatusCode::NOT_FOUND, "NotFound", "it is not there"),
    }
}
