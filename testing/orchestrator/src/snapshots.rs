//! VolumeSnapshots and their contents.

use cluster::{Cluster, Snapshotter};
use flex_contract::names;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::process::Child;

use crate::kubelet::{nfs_volume, request};
use crate::ring::{ADMIN, Ring, WHILE, uid};
use crate::wait::{unexpected, until};

pub const CLASS: &str = "snaps";

impl Ring {
    pub fn snapshots(&self) -> Api<VolumeSnapshot> {
        self.api(&self.user)
    }

    pub fn contents(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client.clone())
    }

    /// Installs the custom resources, and creates a class. Tests that share a cluster share both.
    pub async fn serve_snapshots(&self) {
        Snapshotter::ensure().unwrap().install(self.cluster()).unwrap();
        self.snapshot_class(CLASS, "Delete", json!({})).await;
    }

    /// Starts a ring that has the custom resources and a class from the beginning.
    pub async fn with_snapshots() -> Ring {
        let mut ring = Ring::with_snapshots_alone().await;
        ring.run().await;
        ring
    }

    /// Does the same without the orchestrator.
    pub async fn with_snapshots_alone() -> Ring {
        let cluster = Cluster::lent_with_snapshots().await.expect("the control plane starts");
        let ring = Ring::on(cluster, &[]).await;
        ring.snapshot_class(CLASS, "Delete", json!({})).await;
        ring
    }

    pub async fn snapshot_class(&self, name: &str, policy: &str, more: Value) {
        let mut class = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass", "metadata": { "name": name },
            "driver": names::DEFAULT_PROVISIONER, "deletionPolicy": policy,
        });
        crate::ring::merge(&mut class, more);
        let classes: Api<VolumeSnapshotClass> = Api::all(self.client.clone());
        classes.patch(name, &PatchParams::apply("admin").force(), &Patch::Apply(class)).await.unwrap();
    }

    /// Starts the snapshot-controller of kubernetes-csi.
    pub fn snapshot_controller(&self) -> Child {
        let log = self.file("snapshot-controller.log", "");
        Snapshotter::ensure().unwrap().start(&self.cluster().kubeconfig(), &log).unwrap()
    }

    /// Creates a VolumeSnapshot of a claim; returns its UID.
    pub async fn snapshot(&self, name: &str, claim: &str) -> String {
        self.snapshot_from(name, json!(CLASS), json!({ "persistentVolumeClaimName": claim })).await
    }

    pub async fn snapshot_from(&self, name: &str, class: Value, source: Value) -> String {
        let snapshot =
            json!({ "metadata": { "name": name }, "spec": { "volumeSnapshotClassName": class, "source": source } });
        let made = self.snapshots().create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await;
        made.unwrap().metadata.uid.unwrap()
    }

    pub async fn snapshot_when(&self, name: &str, what: &str, is: impl Fn(&VolumeSnapshot) -> bool) -> VolumeSnapshot {
        until(format!("VolumeSnapshot {name} {what}"), || async {
            let snapshot = self.snapshots().get(name).await.map_err(|error| error.to_string())?;
            let content = snapshot.metadata.uid.as_deref().map(names::content_name).unwrap_or_default();
            let content = self.contents().get_opt(&content).await.map_err(|error| error.to_string())?;
            if is(&snapshot) {
                Ok(snapshot)
            } else {
                unexpected((snapshot.metadata.finalizers, snapshot.status, content))
            }
        })
        .await
    }

    pub async fn snapshot_ready(&self, name: &str) -> VolumeSnapshot {
        let ready = |snapshot: &VolumeSnapshot| {
            snapshot.status.as_ref().is_some_and(|status| status.ready_to_use == Some(true) && status.error.is_none())
        };
        self.snapshot_when(name, "is ready, without an error", ready).await
    }

    pub async fn snapshot_says(&self, name: &str, texts: &str) {
        self.snapshot_when(name, &format!("says `{texts}`"), |snapshot| error(snapshot).contains(texts)).await;
    }

    pub async fn delete_snapshot(&self, name: &str) {
        self.snapshots().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn snapshot_gone(&self, name: &str) {
        until(format!("VolumeSnapshot {name} is gone"), || async {
            match self.snapshots().get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(snapshot) => unexpected((snapshot.metadata, snapshot.status)),
            }
        })
        .await;
    }

    pub async fn content(&self, uid: &str) -> VolumeSnapshotContent {
        self.contents().get(&names::content_name(uid)).await.unwrap()
    }

    pub async fn content_gone(&self, name: &str) {
        until(format!("VolumeSnapshotContent {name} is gone"), || async {
            match self.contents().get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(content) => unexpected((content.metadata, content.status)),
            }
        })
        .await;
    }

    /// Waits until a claim is protected for these snapshots, and no others.
    pub async fn source_protected_for(&self, claim: &str, uids: &[&str]) {
        let kept = |claim: &k8s_openapi::api::core::v1::PersistentVolumeClaim| {
            let finalizers = claim.metadata.finalizers.iter().flatten();
            finalizers.filter_map(|f| f.strip_prefix(names::SOURCE_FINALIZER)).map(str::to_owned).collect::<Vec<_>>()
        };
        self.claim_when(claim, &format!("is protected for {uids:?}"), |claim| kept(claim) == uids).await;
    }

    /// Waits for the delete-snapshot run of a snapshot, and ends it well.
    pub async fn snapshot_deleted(&self, id: &str) {
        let job = self.job(ADMIN, "delete-snapshot", id, 1).await;
        assert_eq!(request(&job).snapshot.unwrap().id, id);
        self.pod_ends(&job, 0, "").await;
    }

    pub async fn deleted_with_volume(&self, claim: &str) {
        let id = uid(&self.get_claim(claim).await);
        self.delete_claim(claim).await;
        let job = self.job(ADMIN, "delete", &id, 1).await;
        self.pod_ends(&job, 0, "").await;
        self.volume_gone(&names::pv_name(&id)).await;
    }
}

pub fn error(snapshot: &VolumeSnapshot) -> String {
    let error = snapshot.status.as_ref().and_then(|status| status.error.clone());
    error.and_then(|error| error.message).unwrap_or_default()
}

/// Returns the spec of a claim from a VolumeSnapshot, with a size.
pub fn from(snapshot: &str, size: &str) -> Value {
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot });
    json!({ "spec": { "dataSource": source, "resources": { "requests": { "storage": size } } } })
}

/// Waits until nothing writes on VolumeSnapshots any more.
pub async fn at_rest(ring: &Ring, names: &[&str]) {
    let versions = || async {
        let mut versions = Vec::new();
        for name in names {
            versions.push(ring.snapshots().get(name).await.unwrap().metadata.resource_version);
        }
        versions
    };
    until(format!("VolumeSnapshots {names:?} are at rest"), || async {
        let before = versions().await;
        tokio::time::sleep(WHILE).await;
        let now = versions().await;
        if now == before { Ok(()) } else { unexpected(now) }
    })
    .await;
}

/// Builds the volume that the image of a CSI driver makes.
pub fn csi_volume(job: &Job) -> PersistentVolume {
    let mut volume = nfs_volume(job);
    let spec = volume.spec.as_mut().unwrap();
    let handle = format!("vol/{}", request(job).volume_id);
    spec.nfs = None;
    spec.csi = Some(CSIPersistentVolumeSource {
        driver: names::DEFAULT_PROVISIONER.into(),
        volume_handle: handle,
        ..CSIPersistentVolumeSource::default()
    });
    volume
}

/// Writes the content as the csi-snapshotter of a driver does when it has made a snapshot.
pub async fn snapshotter_reports(ring: &Ring, name: &str, driver: &str, (volume, handle, bytes): (&str, &str, u64)) {
    let uid = ring.snapshots().get(name).await.unwrap().metadata.uid.unwrap();
    let content = names::content_name(&uid);
    let made = json!({
        "metadata": { "name": content },
        "spec": {
            "deletionPolicy": "Delete", "driver": driver, "source": { "volumeHandle": volume },
            "sourceVolumeMode": "Filesystem",
            "volumeSnapshotRef": { "namespace": ring.user, "name": name, "uid": uid },
        },
    });
    ring.contents().create(&PostParams::default(), &serde_json::from_value(made).unwrap()).await.unwrap();
    let merge = PatchParams::default();
    let status = json!({ "status": { "snapshotHandle": handle, "restoreSize": bytes, "readyToUse": true } });
    ring.contents().patch_status(&content, &merge, &Patch::Merge(status)).await.unwrap();
    let status = json!({ "status": { "boundVolumeSnapshotContentName": content, "readyToUse": true } });
    ring.snapshots().patch_status(name, &merge, &Patch::Merge(status)).await.unwrap();
}

/// Deletes the snapshot, once nothing protects its content any more, and its class.
pub async fn snapshotter_deletes(ring: &Ring, name: &str) {
    let snapshot = ring.snapshots().get(name).await.unwrap();
    let content = names::content_name(snapshot.metadata.uid.as_deref().unwrap());
    ring.contents().delete(&content, &DeleteParams::default()).await.unwrap();
    ring.content_gone(&content).await;
    ring.delete_snapshot(name).await;
    ring.snapshot_gone(name).await;
    let classes: Api<VolumeSnapshotClass> = Api::all(ring.client.clone());
    classes.delete(&snapshot.spec.volume_snapshot_class_name.unwrap(), &DeleteParams::default()).await.unwrap();
}
