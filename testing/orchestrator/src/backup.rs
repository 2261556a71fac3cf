//! A claim and its volume that are saved, lost and restored as backup tools do it, and Jobs that are created again.

use std::process::Output;
use std::time::Duration;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::Value;

use crate::deployed::kubectl;
use crate::programs::tool;
use crate::ring::{OWN, Ring, uid};

/// A claim and its volume as a backup tool saves them.
pub struct Backup {
    pub claim: Value,
    pub volume: Value,
}

/// Returns the parameters of a request that the orchestrator sends. A Job of any other client counts as created again.
pub fn own_request() -> PostParams {
    PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() }
}

/// Returns a Job as somebody creates it again.
pub fn created_again(job: &Job) -> Job {
    let mut again = job.clone();
    again.metadata = ObjectMeta {
        name: job.metadata.name.clone(),
        namespace: job.metadata.namespace.clone(),
        labels: job.metadata.labels.clone(),
        annotations: job.metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    again.status = None;
    let spec = again.spec.as_mut().unwrap();
    spec.selector = None;
    let labels = spec.template.metadata.as_mut().unwrap().labels.as_mut().unwrap();
    labels.retain(|key, _| !key.contains("controller-uid") && !key.contains("job-name"));
    again
}

/// Removes the gates from a Job, as Jobs of versions before the gate have none: Kubernetes runs it at once.
pub fn without_gate(mut job: Job) -> Job {
    job.spec.as_mut().unwrap().template.spec.as_mut().unwrap().scheduling_gates = None;
    job
}

/// Returns an object as a backup tool saves it.
pub fn saved(ring: &Ring, what: &[&str]) -> Value {
    let text = kubectl(ring.cluster(), &[&["get", "-o", "json"], what].concat());
    let mut object: Value = serde_json::from_str(&text).unwrap();
    object.as_object_mut().unwrap().remove("status");
    for key in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        object["metadata"].as_object_mut().unwrap().remove(key);
    }
    if let Some(reference) = object.pointer_mut("/spec/claimRef").and_then(Value::as_object_mut) {
        reference.remove("uid");
        reference.remove("resourceVersion");
    }
    object
}

impl Backup {
    pub async fn of(ring: &Ring, claim: &str) -> Self {
        let volume = names::pv_name(&uid(&ring.bound(claim).await));
        // The PV controller may bind a claim while the orchestrator still holds it.
        let is_free = |claim: &PersistentVolumeClaim| !claim.annotations().contains_key(names::HELD);
        ring.claim_when(claim, "is no longer held", is_free).await;
        Backup { claim: saved(ring, &["-n", &ring.user, "pvc", claim]), volume: saved(ring, &["pv", &volume]) }
    }

    pub fn volume_name(&self) -> &str {
        self.volume["metadata"]["name"].as_str().unwrap()
    }

    pub fn claim_name(&self) -> &str {
        self.claim["metadata"]["name"].as_str().unwrap()
    }

    /// Deletes both objects and keeps the storage.
    pub async fn lose(&self, ring: &Ring) {
        let keep = ["patch", "pv", self.volume_name(), "-p", r#"{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}"#];
        kubectl(ring.cluster(), &keep);
        ring.delete_claim(self.claim_name()).await;
        ring.claim_gone(self.claim_name()).await;
        kubectl(ring.cluster(), &["delete", "pv", self.volume_name()]);
        ring.volume_gone(self.volume_name()).await;
    }

    pub fn create(ring: &Ring, object: &Value) {
        let file = ring.file("restored.json", &object.to_string());
        kubectl(ring.cluster(), &["create", "-f", file.to_str().unwrap()]);
    }

    /// Saves, loses and restores a bound claim and its volume, the volume first. Checks that the storage stays and the
    /// claim is bound.
    pub async fn restored(ring: &Ring, claim: &str, is_there: impl Fn() -> bool) -> Self {
        let backup = Backup::of(ring, claim).await;
        backup.lose(ring).await;
        assert!(is_there(), "its policy keeps it");
        Backup::create(ring, &backup.volume);
        // Long enough for the orchestrator to begin a delete run.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(is_there(), "the storage of a restored volume stays");
        Backup::create(ring, &backup.claim);
        ring.bound(claim).await;
        assert!(is_there());
        backup
    }

    /// Vouches for the restored volume, deletes its claim, and checks that the volume's own record deletes the storage.
    pub async fn vouched_for_and_deleted(&self, ring: &Ring, is_there: impl Fn() -> bool) {
        let vouched = flex(ring, &["vouch", self.volume_name()]);
        assert!(vouched.status.success(), "{vouched:?}");
        ring.delete_claim(self.claim_name()).await;
        ring.volume_gone(self.volume_name()).await;
        assert!(!is_there(), "the storage is deleted");
    }
}

/// Runs a command of the program for admins.
pub fn flex(ring: &Ring, arguments: &[&str]) -> Output {
    let kubeconfig = ring.cluster().kubeconfig();
    let namespace = ["--config-namespace", OWN, "--config-namespace", &ring.admin];
    std::process::Command::new(tool())
        .args(arguments)
        .args(namespace)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .expect("the program runs")
}
