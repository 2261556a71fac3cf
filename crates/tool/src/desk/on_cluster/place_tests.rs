//! The clean-up against an API server that fails one request.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use flex_contract::names::{self, pv_name};
use flex_core::config::classes::Identity;
use flex_desk::order::{Content, Order};
use flex_desk::setting::Inputs;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use super::*;

const CONFIG: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: nas\n  namespace: admin\n  labels: {type: \
     provisioner-config, storage-class: nas}\ndata: {plugin-name: kubernetes.io/flex-provisioner, image: i, capabilities: snapshot}\n";

/// An API server with a controller of Jobs. Its image finds the storage of a volume by VOLUME_SOURCE alone, and takes a
/// volume without one for deleted.
#[derive(Default)]
struct Server {
    jobs: BTreeMap<String, Value>,
    volumes: BTreeMap<String, Value>,
    storage: BTreeSet<String>,
    /// Mount pods and their claims, by resource and name.
    mounts: BTreeMap<String, Value>,
    requests: usize,
    /// A mount whose creations the server carries out after the first removal of its objects.
    late: Option<String>,
    /// The number of the request that fails, and the code of the answer.
    fails: Option<(usize, u16)>,
    /// The volume whose delete runs fail.
    broken: Option<String>,
}

impl Server {
    /// Runs the image of a Job, and returns whether it succeeds.
    fn run(&mut self, job: &Value) -> bool {
        let env = job.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array).unwrap();
        let text = |name: &str| {
            let variable = env.iter().find(|variable| variable["name"] == name);
            variable.and_then(|variable| variable["value"].as_str()).unwrap_or_default().to_owned()
        };
        if self.broken.as_ref().is_some_and(|id| *id == text("CLAIM_UUID")) {
            return false;
        }
        match text("OPERATION").as_str() {
            "delete" if text("VOLUME_SOURCE").contains("nas.example") => drop(self.storage.remove(&text("CLAIM_UUID"))),
            "delete" => {}
            "delete-snapshot" => drop(self.storage.remove(&text("SNAPSHOT_ID"))),
            other => panic!("{other}"),
        }
        true
    }

    fn answer(&mut self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let number = self.requests;
        self.requests += 1;
        if let Some((_, code)) = self.fails.filter(|(fails, _)| *fails == number) {
            return (code, status(code));
        }
        let (parent, name) = path.rsplit_once('/').unwrap();
        let list = |items: Vec<Value>| json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items });
        let is_volume = parent.ends_with("/persistentvolumes");
        let of_mounts = ["pods", "persistentvolumeclaims"].map(|kind| (kind, parent.ends_with(&format!("/{kind}"))));
        let is_mount = of_mounts.iter().find(|(_, is)| *is).map(|(kind, _)| format!("{kind}/{name}"));
        match (method.as_str(), name) {
            ("GET", "events") => (200, list(Vec::new())),
            ("GET", kind @ "pods") => {
                let found = self.mounts.iter().filter(|(key, _)| key.starts_with(kind));
                (200, list(found.map(|(_, object)| object.clone()).collect()))
            }
            ("GET", "jobs") => (200, list(self.jobs.values().cloned().collect())),
            ("GET", "persistentvolumes") => (200, list(self.volumes.values().cloned().collect())),
            ("POST", "jobs") => {
                let mut job: Value = serde_json::from_slice(body).unwrap();
                let condition = if self.run(&job) { "Complete" } else { "Failed" };
                job["status"] = json!({ "conditions": [{ "type": condition, "status": "True" }] });
                self.jobs.insert(job["metadata"]["name"].as_str().unwrap().to_owned(), job.clone());
                (201, job)
            }
            ("PATCH", name) if is_volume => match self.volumes.get_mut(name) {
                Some(volume) => {
                    let patch: Value = serde_json::from_slice(body).unwrap();
                    volume["metadata"]["finalizers"] = patch["metadata"]["finalizers"].clone();
                    (200, volume.clone())
                }
                None => (404, status(404)),
            },
            (verb, name) => {
                let (objects, name) = match &is_mount {
                    Some(key) => (&mut self.mounts, key.as_str()),
                    None if is_volume => (&mut self.volumes, name),
                    None => (&mut self.jobs, name),
                };
                let is_late = is_volume && verb == "GET" && self.late.as_deref() == Some(name);
                let found = if verb == "DELETE" { objects.remove(name) } else { objects.get(name).cloned() };
                let answer = found.map_or((404, status(404)), |object| (200, object));
                if let Some(name) = self.late.take_if(|_| is_late) {
                    let object = |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "labels": { LABEL_MOUNT: "x" } } });
                    self.mounts.insert(format!("persistentvolumeclaims/{name}"), object("PersistentVolumeClaim"));
                    self.volumes.insert(name.clone(), object("PersistentVolume"));
                }
                answer
            }
        }
    }
}

fn status(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Planted" };
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "planted" })
}

fn client(server: &Arc<Mutex<Server>>) -> Client {
    let server = server.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let server = server.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let (code, answer) = server.lock().unwrap().answer(&head.method, head.uri.path(), &body);
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    Client::new(service, "admin")
}

fn setting() -> Setting {
    let identity = Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: "conformance-12345678".into(),
        config_namespaces: vec!["admin".into()],
        namespace: "admin".into(),
        shell_image: None,
        cluster: String::new(),
    };
    Setting::read(&identity, Inputs { config: Some(CONFIG.into()), ..Inputs::default() }).unwrap()
}

/// A call whose runs have made three volumes and a snapshot. A case has removed the PersistentVolume of the last one.
async fn call() -> (Arc<Mutex<Server>>, OnCluster) {
    let server = Arc::new(Mutex::new(Server::default()));
    let setting = setting();
    let pods = MountPods::new(&setting, "shell".into(), None, 60);
    let place = OnCluster::new(client(&server), "https://api".into(), setting.clone(), "12345678".into(), Some(pods));
    for id in ids() {
        let claim = setting.claim_with_id(&id);
        place.begins(&Order::Provision { claim: claim.clone(), content: Content::Empty });
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": { "name": pv_name(&id), "finalizers": [VOLUME_FINALIZER] },
            "spec": { "nfs": { "server": "nas.example", "path": format!("/{id}") }, "capacity": { "storage": "1Gi" } },
        });
        if id == ids()[0] {
            let made = serde_json::from_value(volume.clone()).unwrap();
            place.begins(&Order::Snapshot(setting.adopted(&claim, made), snapshot()));
        }
        let mut server = server.lock().unwrap();
        server.volumes.insert(pv_name(&id), volume);
        server.storage.extend([id, snapshot()]);
    }
    place.forget(&pv_name(&ids()[2])).await.unwrap();
    server.lock().unwrap().requests = 0;
    (server, place)
}

fn ids() -> [String; 3] {
    [1, 2, 3].map(|n| format!("12345678-0001-4000-8000-00000000000{n}"))
}

fn snapshot() -> String {
    "12345678-0001-4000-8000-00000000000e".into()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_and_each_storage_is_deleted_by_its_place() {
    let (server, place) = call().await;
    assert_eq!(place.clean().await, [""; 0]);
    let server = server.lock().unwrap();
    assert!(server.storage.is_empty() && server.volumes.is_empty() && server.jobs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again() {
    let requests = {
        let (server, place) = call().await;
        place.clean().await;
        server.lock().unwrap().requests
    };
    for number in 0..requests {
        let (server, place) = call().await;
        server.lock().unwrap().fails = Some((number, 429));
        assert_eq!(place.clean().await, [""; 0], "request {number}");
        let server = server.lock().unwrap();
        assert!(server.storage.is_empty() && server.volumes.is_empty() && server.jobs.is_empty(), "request {number}");
    }
    assert!(requests > 20, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_stops_nothing_else_and_all_that_is_left_is_named() {
    let (mut number, mut with_storage) = (0, 0);
    loop {
        let (server, place) = call().await;
        server.lock().unwrap().fails = Some((number, 403));
        let left = place.clean().await.join("\n");
        let server = server.lock().unwrap();
        if server.requests <= number {
            break;
        }
        assert!(server.storage.len() <= 1, "request {number} stops one deletion at most: {:?}", server.storage);
        for id in server.storage.iter().chain(server.volumes.keys()).chain(server.jobs.keys()) {
            assert!(left.contains(id), "request {number}: {id} is left: {left}");
        }
        let removed = [snapshot(), ids()[2].clone()];
        for id in server.storage.iter().filter(|id| !removed.contains(id)) {
            assert!(server.volumes.contains_key(&pv_name(id)), "request {number}: nothing says where {id} is: {left}");
        }
        with_storage += server.storage.len();
        number += 1;
    }
    assert!(number > 20 && with_storage >= 4, "{number} requests, {with_storage} deletions that were stopped");
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_fails_between_cases_keeps_the_volume_for_the_last_try() {
    let (server, place) = call().await;
    let place = Rc::new(place);
    let [one, two, _] = ids();
    server.lock().unwrap().broken = Some(two.clone());
    place.clear().await.unwrap();
    {
        let server = server.lock().unwrap();
        assert_eq!((server.storage.clone(), server.volumes.len()), ([two.clone()].into(), 1), "{one} is deleted");
        assert!(server.volumes.contains_key(&pv_name(&two)));
    }
    let left = place.clean().await.join("\n");
    assert!(left.contains(&format!("the volume {two} on the storage")) && left.contains("kubectl delete"), "{left}");
    server.lock().unwrap().broken = None;
    assert_eq!(place.clean().await, [""; 0], "its delete run gets the place of the storage");
    assert!(server.lock().unwrap().storage.is_empty());
}

/// A call that a signal has stopped while a pod had mounted a volume.
async fn call_with_a_mount() -> (Arc<Mutex<Server>>, OnCluster) {
    let (server, place) = call().await;
    {
        let mut server = server.lock().unwrap();
        let name = format!("mount-{}-1", ids()[0]);
        place.mounter.as_ref().unwrap().begins(&name);
        let labels = json!({ LABEL_MOUNT: ids()[0] });
        let object =
            |kind: &str| json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "labels": labels } });
        server.mounts.insert(format!("pods/{name}"), object("Pod"));
        server.mounts.insert(format!("persistentvolumeclaims/{name}"), object("PersistentVolumeClaim"));
        server.volumes.insert(name.clone(), object("PersistentVolume"));
    }
    (server, place)
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_mount_are_removed_and_the_storage_is_deleted() {
    let (server, place) = call_with_a_mount().await;
    assert_eq!(place.clean().await, [""; 0]);
    let server = server.lock().unwrap();
    assert!(server.storage.is_empty() && server.volumes.is_empty() && server.mounts.is_empty());
}

#[tokio::test(start_paused = true)]
async fn storage_that_a_pod_may_use_is_not_deleted_and_all_that_is_left_is_named() {
    let (mut number, mut with_mounts) = (0, 0);
    loop {
        let (server, place) = call_with_a_mount().await;
        server.lock().unwrap().fails = Some((number, 403));
        let left = place.clean().await.join("\n");
        let server = server.lock().unwrap();
        if server.requests <= number {
            break;
        }
        let mounts: Vec<&str> = server.mounts.keys().filter_map(|key| Some(key.split_once('/')?.1)).collect();
        let volumes = server.volumes.keys().map(String::as_str);
        for name in mounts.iter().copied().chain(volumes).chain(server.jobs.keys().map(String::as_str)) {
            assert!(left.contains(name), "request {number}: {name} is left: {left}");
        }
        if !mounts.is_empty() {
            assert_eq!(server.storage.len(), 4, "request {number}: {left}");
            assert!(left.contains("no delete run was started"), "request {number}: {left}");
            with_mounts += 1;
        }
        number += 1;
    }
    assert!(number > 25 && with_mounts >= 1, "{number} requests, {with_mounts} with mounts that are left");
}

#[tokio::test(start_paused = true)]
async fn objects_that_appear_after_the_first_removal_of_a_mount_are_removed() {
    let (server, place) = call().await;
    let name = format!("mount-{}-1", ids()[0]);
    place.mounter.as_ref().unwrap().begins(&name);
    server.lock().unwrap().late = Some(name);
    assert_eq!(place.clean().await, [""; 0]);
    let server = server.lock().unwrap();
    assert_eq!(server.late, None, "the server has carried out the creations");
    assert!(server.volumes.is_empty() && server.mounts.is_empty(), "{:?} {:?}", server.volumes, server.mounts);
}

#[tokio::test(start_paused = true)]
async fn a_case_whose_pods_have_no_image_is_not_possible() {
    use flex_desk::conformance::{Case, Outcome, run_on_cluster};
    let (server, setting) = (Arc::new(Mutex::new(Server::default())), setting());
    let place = OnCluster::new(client(&server), "https://api".into(), setting.clone(), "12345678".into(), None);
    let done = run_on_cluster(&setting, &Rc::new(place), "12345678", &[Case::SnapshotRestore], |_| {}).await.unwrap();
    assert!(matches!(&done[0].outcome, Outcome::NotPossible(why) if why.contains("--mount-image")), "{done:?}");
    assert_eq!(server.lock().unwrap().requests, 0, "no run was started");
}
