//! The answers of the API: a pure function of the stored volumes and the request.

use std::collections::BTreeMap;

use flex_contract::quantity;
use flex_contract::volume::volume_source_kind;
use flex_core::object::is_dns_name;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::objects;
use super::reply::{Asked, status};
use crate::rights::Rights;

/// The path of the volumes.
pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";

/// The objects of the API server.
#[derive(Debug, Default)]
pub struct Store {
    /// The volumes, by name.
    pub volumes: BTreeMap<String, PersistentVolume>,
    /// The rights of the image beside those of each image.
    pub rights: Rights,
    /// Other objects, by path.
    objects: BTreeMap<String, Value>,
    /// The number of writes so far.
    writes: u64,
}

/// Answers a request with a code and an object.
pub(super) fn answer(store: &mut Store, asked: Asked<'_>) -> (u16, Value) {
    let name = asked.path.strip_prefix(VOLUMES).and_then(|rest| rest.strip_prefix('/'));
    match (asked.method, asked.path, name) {
        ("POST", VOLUMES, _) => create(store, asked.body),
        ("GET", _, Some(name)) if !name.contains('/') => match store.volumes.get(name) {
            Some(volume) => (200, object(volume)),
            None => status(404, "NotFound", &format!("persistentvolumes \"{name}\" not found")),
        },
        ("GET", "/version", _) => (200, json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.0" })),
        ("GET", "/api", _) => (200, json!({ "kind": "APIVersions", "versions": ["v1"] })),
        ("GET", "/apis", _) => (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] })),
        ("GET", "/api/v1", _) => (200, resources()),
        ("GET", VOLUMES, _) if store.rights.permit("", "persistentvolumes", "list") => {
            let items: Vec<Value> = store.volumes.values().map(object).collect();
            (200, json!({ "kind": "PersistentVolumeList", "apiVersion": "v1", "metadata": {}, "items": items }))
        }
        (_, path, _) if path.starts_with(VOLUMES) => forbidden(asked),
        _ => objects::answer(&mut store.objects, &store.rights, asked).unwrap_or_else(|| forbidden(asked)),
    }
}

fn forbidden(asked: Asked<'_>) -> (u16, Value) {
    let Asked { method, path, .. } = asked;
    let verb = objects::verb(method, objects::target(path).is_some_and(|target| target.name.is_some()));
    let user = "User \"system:serviceaccount:flex-provisioner:desk\"";
    status(
        403,
        "Forbidden",
        &format!(
            "{path} is forbidden: {user} cannot {verb} it: an image may create and get PersistentVolumes; the ClusterRoles and Roles in the file of the config give the other rights"
        ),
    )
}

/// Refuses a volume, as an admission policy does.
pub(super) fn refused(path: &str) -> (u16, Value) {
    status(422, "Invalid", &format!("{path}: the desk refuses this volume, to see what the program says of it"))
}

fn resources() -> Value {
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
        "resources": [{
            "name": "persistentvolumes", "singularName": "persistentvolume", "namespaced": false,
            "kind": "PersistentVolume", "verbs": ["create", "get"], "shortNames": ["pv"],
        }],
    })
}

fn object(volume: &PersistentVolume) -> Value {
    let mut value = json!(volume);
    value["apiVersion"] = "v1".into();
    value["kind"] = "PersistentVolume".into();
    value
}

fn create(store: &mut Store, body: &[u8]) -> (u16, Value) {
    let mut volume: PersistentVolume = match serde_json::from_slice(body) {
        Ok(volume) => volume,
        Err(error) => return status(400, "BadRequest", &format!("the object cannot be read: {error}")),
    };
    let name = volume.metadata.name.clone().unwrap_or_default();
    let invalid = invalid(&name, &volume);
    if !invalid.is_empty() {
        let message = format!("PersistentVolume \"{name}\" is invalid: {}", invalid.join(", "));
        return status(422, "Invalid", &message);
    }
    if store.volumes.contains_key(&name) {
        return status(409, "AlreadyExists", &format!("persistentvolumes \"{name}\" already exists"));
    }
    store.writes += 1;
    volume.metadata.uid = Some(format!("00000000-0000-4000-8000-{:012}", store.writes));
    volume.metadata.resource_version = Some(store.writes.to_string());
    volume.metadata.creation_timestamp = Some(Time(jiff::Timestamp::now()));
    let spec = volume.spec.get_or_insert_default();
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    spec.persistent_volume_reclaim_policy.get_or_insert_with(|| "Retain".into());
    let created = object(&volume);
    store.volumes.insert(name, volume);
    (201, created)
}

/// Returns what the API server refuses in a volume.
fn invalid(name: &str, volume: &PersistentVolume) -> Vec<&'static str> {
    let spec = volume.spec.clone().unwrap_or_default();
    let size = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
    let size = size.and_then(|size| quantity::bytes(&size.0).ok()).unwrap_or(0);
    let needs_node = spec.local.is_some() && spec.node_affinity.is_none();
    [
        (!is_dns_name(name), "metadata.name: must be a DNS name"),
        (size == 0, "spec.capacity: must have `storage`, greater than zero"),
        (spec.access_modes.iter().flatten().next().is_none(), "spec.accessModes: Required value"),
        (volume_source_kind(&spec).is_none(), "spec: must specify exactly one volume type"),
        (needs_node, "spec.nodeAffinity: Required value: Local volume requires node affinity"),
    ]
    .into_iter()
    .filter_map(|(wrong, why)| wrong.then_some(why))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(store: &mut Store, volume: &Value) -> (u16, Value) {
        answer(store, Asked { method: "POST", path: VOLUMES, body: volume.to_string().as_bytes() })
    }

    fn volume() -> Value {
        json!({
            "metadata": { "name": "pvc-1" },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "nfs": { "server": "s", "path": "/p" } },
        })
    }

    #[test]
    fn a_volume_is_created_once_and_read_back() {
        let mut store = Store::default();
        let (code, created) = post(&mut store, &volume());
        assert_eq!((code, &created["spec"]["persistentVolumeReclaimPolicy"]), (201, &"Retain".into()));
        let (code, status) = post(&mut store, &volume());
        assert_eq!((code, &status["reason"]), (409, &"AlreadyExists".into()));
        let path = format!("{VOLUMES}/pvc-1");
        assert_eq!(answer(&mut store, Asked { method: "GET", path: &path, body: b"" }), (200, created));
    }

    #[test]
    fn what_the_api_server_refuses_is_refused() {
        let mut store = Store::default();
        for (pointer, wrong) in [
            ("/metadata/name", json!("../x")),
            ("/spec/capacity", json!({ "storage": "0" })),
            ("/spec/accessModes", json!([])),
            ("/spec/nfs", Value::Null),
        ] {
            let mut volume = volume();
            *volume.pointer_mut(pointer).unwrap() = wrong;
            assert_eq!(post(&mut store, &volume).0, 422, "{pointer}");
        }
        assert_eq!(post(&mut store, &json!("x")).0, 400);
    }

    #[test]
    fn an_image_has_no_other_rights() {
        let mut store = Store::default();
        for (method, path) in [("GET", VOLUMES), ("DELETE", "/api/v1/persistentvolumes/a"), ("GET", "/api/v1/secrets")]
        {
            assert_eq!(answer(&mut store, Asked { method, path, body: b"" }).0, 403, "{method} {path}");
        }
    }

    #[test]
    fn an_image_lists_volumes_if_a_role_lets_it_and_still_changes_none() {
        let role = json!({ "kind": "ClusterRole", "rules": [
            { "apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["*"] },
        ] });
        let mut store = Store { rights: Rights::read(&[role]), ..Store::default() };
        post(&mut store, &volume());
        let (code, listed) = answer(&mut store, Asked { method: "GET", path: VOLUMES, body: b"" });
        assert_eq!((code, &listed["items"][0]["metadata"]["name"]), (200, &"pvc-1".into()));
        let path = format!("{VOLUMES}/pvc-1");
        let (code, status) = answer(&mut store, Asked { method: "DELETE", path: &path, body: b"" });
        assert!(code == 403 && status["message"].as_str().unwrap().contains("cannot delete it"), "{status}");
    }
}
