//! Writes and reads of VolumeSnapshots and their contents.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::quantity::quantity;
use flex_core::model::snapshot::api::{self, VolumeSnapshot, VolumeSnapshotContent};
use flex_core::model::snapshot::{Content, Snapshot, SnapshotProvenance, Status};
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, deleted, guarded, params, patch, post};
use crate::api::discard_reply::DiscardReply;

fn error(message: &str, now: &str) -> Value {
    json!({ "message": message, "time": now })
}

/// The volume of which a snapshot is taken.
pub struct SnapshotVolume<'a> {
    /// The handle by which Kubernetes names it.
    pub handle: &'a str,
    /// Its volume mode.
    pub mode: &'a str,
}

impl Writes {
    fn snapshots(&self, namespace: &str) -> Api<VolumeSnapshot> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn contents(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client.clone())
    }

    /// Reads the VolumeSnapshot from the API; `None` if it is gone, or if the cluster lacks the kind.
    pub async fn read_snapshot(&self, name: &ObjectName) -> Result<Option<Snapshot>> {
        let found = self.snapshots(&name.namespace).get_opt(&name.name).await;
        Ok(found.map_err(WriteError::of(format!("VolumeSnapshot {name}")))?.as_ref().map(Snapshot::from))
    }

    /// Reads the content from the API; `None` if it is gone, or if the cluster lacks the kind.
    pub async fn read_content(&self, name: &str) -> Result<Option<Content>> {
        let found = self.contents().get_opt(name).await;
        Ok(found.map_err(WriteError::of(format!("VolumeSnapshotContent {name}")))?.as_ref().map(Content::from))
    }

    async fn patch_snapshot(&self, snapshot: &Snapshot, metadata: Value, rest: Value) -> Result<Snapshot> {
        let body = patch(&snapshot.uid, &snapshot.resource_version, metadata, rest);
        let api = self.snapshots(&snapshot.name.namespace);
        let patched = api.patch(&snapshot.name.name, &params(), &Patch::Merge(body)).await;
        patched.map(|s| Snapshot::from(&s)).map_err(WriteError::of(format!("VolumeSnapshot {}", snapshot.name)))
    }

    async fn snapshot_status(&self, snapshot: &Snapshot, status: Value) -> Result<Snapshot> {
        let body = patch(&snapshot.uid, &snapshot.resource_version, json!({}), json!({ "status": status }));
        let api = self.snapshots(&snapshot.name.namespace);
        let patched = api.patch_status(&snapshot.name.name, &params(), &Patch::Merge(body)).await;
        patched.map(|s| Snapshot::from(&s)).map_err(WriteError::of(format!("VolumeSnapshot {}", snapshot.name)))
    }

    /// Returns all finalizers of a VolumeSnapshot. If there are very many, the cache does not have all.
    async fn all_finalizers_of_snapshot(&self, snapshot: &Snapshot) -> Result<Vec<String>> {
        if snapshot.finalizers_whole {
            return Ok(snapshot.finalizers.clone());
        }
        let what = || format!("VolumeSnapshot {}", snapshot.name);
        let api = self.snapshots(&snapshot.name.namespace);
        let fresh = api.get(&snapshot.name.name).await.map_err(WriteError::of(what()))?.metadata.clone();
        let same = fresh.uid.as_ref() == Some(&snapshot.uid)
            && fresh.resource_version.as_ref() == Some(&snapshot.resource_version);
        if same { Ok(fresh.finalizers.unwrap_or_default()) } else { Err(WriteError::Conflict(what())) }
    }

    /// Adds the orchestrator's finalizer to a VolumeSnapshot.
    pub async fn add_snapshot_finalizer(&self, snapshot: &Snapshot) -> Result<Snapshot> {
        let mut finalizers = self.all_finalizers_of_snapshot(snapshot).await?;
        finalizers.push(names::SNAPSHOT_FINALIZER.into());
        self.patch_snapshot(snapshot, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Removes the orchestrator's finalizer from a VolumeSnapshot.
    pub async fn remove_snapshot_finalizer(&self, snapshot: &Snapshot) -> Result<()> {
        let ours = |finalizer: &&String| *finalizer != names::SNAPSHOT_FINALIZER;
        let finalizers = match self.all_finalizers_of_snapshot(snapshot).await {
            Err(WriteError::NotFound { .. }) => return Ok(()),
            finalizers => finalizers?,
        };
        let rest: Vec<_> = finalizers.iter().filter(ours).collect();
        match self.patch_snapshot(snapshot, json!({ "finalizers": rest }), json!({})).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Writes the class of a VolumeSnapshot.
    pub async fn set_snapshot_class(&self, snapshot: &Snapshot, class: &str) -> Result<Snapshot> {
        let spec = json!({ "spec": { "volumeSnapshotClassName": class } });
        self.patch_snapshot(snapshot, json!({}), spec).await
    }

    /// Writes into a VolumeSnapshot's status why it has no content.
    pub async fn refuse_snapshot(&self, snapshot: &Snapshot, why: &str, now: &str) -> Result<Snapshot> {
        self.snapshot_status(snapshot, json!({ "readyToUse": false, "error": error(why, now) })).await
    }

    /// Writes the state of the content into a VolumeSnapshot's status.
    pub async fn mirror(&self, snapshot: &Snapshot, status: &Status, now: &str) -> Result<Snapshot> {
        let made_at = status.made_at.and_then(|at| jiff::Timestamp::from_second(at).ok());
        let status = json!({
            "boundVolumeSnapshotContentName": status.content,
            "readyToUse": status.ready,
            "creationTime": made_at.map(|at| at.to_string()),
            "restoreSize": status.size.map(|size| quantity(size).0),
            "error": status.error.as_deref().map(|message| error(message, now)),
        });
        self.snapshot_status(snapshot, status).await
    }

    /// Creates the content of a VolumeSnapshot of a claim, with the name that the snapshot-controller would use. An
    /// existing content must belong to this VolumeSnapshot.
    pub async fn create_content(
        &self,
        snapshot: &Snapshot,
        policy: &ReclaimPolicy,
        volume: &SnapshotVolume<'_>,
    ) -> Result<Content> {
        let name = names::content_name(&snapshot.uid);
        let what = || format!("VolumeSnapshotContent {name}");
        let content = json!({
            "apiVersion": api::API_VERSION,
            "kind": "VolumeSnapshotContent",
            "metadata": {
                "name": name,
                "labels": { names::LABEL_INSTANCE: self.identity.instance },
                // The finalizer is there from the creation on. Where the snapshot-controller has seen no finalizer, it
                // writes its own over all others.
                "finalizers": [names::SNAPSHOT_FINALIZER],
            },
            "spec": {
                "deletionPolicy": policy.as_str(),
                "driver": self.identity.provisioner,
                "source": { "volumeHandle": volume.handle },
                "sourceVolumeMode": volume.mode,
                "volumeSnapshotClassName": snapshot.class,
                "volumeSnapshotRef": {
                    "apiVersion": api::API_VERSION,
                    "kind": "VolumeSnapshot",
                    "namespace": snapshot.name.namespace,
                    "name": snapshot.name.name,
                    "uid": snapshot.uid,
                },
            },
        });
        let contents: Api<VolumeSnapshotContent> = self.contents();
        let content = serde_json::from_value(content).expect("the content is of its type");
        match contents.create(&post(), &content).await {
            Ok(made) => Ok(Content::from(&made)),
            Err(kube::Error::Api(status)) if status.code == 409 => match self.read_content(&name).await? {
                Some(there) if there.snapshot_uid.as_ref() == Some(&snapshot.uid) => Ok(there),
                Some(_) => Err(WriteError::Foreign(what())),
                None => Err(WriteError::Conflict(what())),
            },
            Err(error) => Err(WriteError::of(what())(error)),
        }
    }

    async fn patch_content(&self, content: &Content, metadata: Value, rest: Value) -> Result<Content> {
        let body = patch(&content.uid, &content.resource_version, metadata, rest);
        let patched = self.contents().patch(&content.name, &params(), &Patch::Merge(body)).await;
        patched.map(|c| Content::from(&c)).map_err(WriteError::of(format!("VolumeSnapshotContent {}", content.name)))
    }

    async fn content_status(&self, content: &Content, status: Value) -> Result<Content> {
        let body = patch(&content.uid, &content.resource_version, json!({}), json!({ "status": status }));
        let patched = self.contents().patch_status(&content.name, &params(), &Patch::Merge(body)).await;
        patched.map(|c| Content::from(&c)).map_err(WriteError::of(format!("VolumeSnapshotContent {}", content.name)))
    }

    async fn content_finalizers(&self, content: &Content, finalizers: Vec<String>) -> Result<Content> {
        self.patch_content(content, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Adds the orchestrator's finalizer to a content.
    pub async fn add_content_finalizer(&self, content: &Content) -> Result<Content> {
        self.content_finalizers(content, with(content, names::SNAPSHOT_FINALIZER.to_owned())).await
    }

    /// Binds a content to the VolumeSnapshot that it names.
    pub async fn bind_content(&self, content: &Content, snapshot: &Snapshot) -> Result<Content> {
        let reference = json!({ "uid": snapshot.uid });
        let mut spec = json!({ "volumeSnapshotRef": reference });
        if let Some(class) = &snapshot.class {
            spec["volumeSnapshotClassName"] = json!(class);
        }
        self.patch_content(content, json!({}), json!({ "spec": spec })).await
    }

    /// Writes finalizer, provenance and number of an attempt, all at once.
    pub async fn stamp_content(
        &self,
        content: &Content,
        attempt: u32,
        provenance: &SnapshotProvenance,
    ) -> Result<Content> {
        let metadata = json!({
            "labels": { names::LABEL_INSTANCE: self.identity.instance },
            "annotations": {
                names::ATTEMPT: attempt.to_string(),
                names::PROVENANCE: json!(provenance).to_string(),
            },
            "finalizers": with(content, names::SNAPSHOT_FINALIZER.to_owned()),
        });
        self.patch_content(content, metadata, json!({})).await
    }

    /// Records the last failed run.
    pub async fn record_content_failure(&self, content: &Content, failure: &LastFailure) -> Result<Content> {
        let annotations = json!({ names::FAILURE: json!(failure).to_string(), names::RETRY: null });
        self.patch_content(content, json!({ "annotations": annotations }), json!({})).await
    }

    /// Writes an error into a content's status.
    pub async fn report_content(&self, content: &Content, message: &str, now: &str) -> Result<Content> {
        self.content_status(content, json!({ "readyToUse": false, "error": error(message, now) })).await
    }

    /// Writes into a content's status that the snapshot is ready to be restored, since a time, and the handle that its
    /// run handed back.
    pub async fn mark_content_ready(
        &self,
        content: &Content,
        size: Option<u64>,
        handle: Option<&str>,
        at: jiff::Timestamp,
    ) -> Result<Content> {
        let status = json!({
            "snapshotHandle": handle.unwrap_or(content.id()),
            "creationTime": at.as_second().saturating_mul(1_000_000_000),
            "restoreSize": size,
            "readyToUse": true,
            "error": null,
        });
        self.content_status(content, status).await
    }

    /// Adds a finalizer to a content while a claim is restored from it.
    pub async fn protect_content(&self, content: &Content, claim: &str) -> Result<Content> {
        self.content_finalizers(content, with(content, names::clone_finalizer(claim))).await
    }

    /// Removes the finalizers of these claims from a content.
    pub async fn unprotect_content(&self, content: &Content, claims: &[String]) -> Result<Content> {
        let gone: Vec<_> = claims.iter().map(|claim| names::clone_finalizer(claim)).collect();
        let rest = content.finalizers.iter().filter(|finalizer| !gone.contains(finalizer)).cloned().collect();
        self.content_finalizers(content, rest).await
    }

    /// Removes all finalizers for which the orchestrator is responsible.
    pub async fn remove_content_finalizer(&self, content: &Content) -> Result<()> {
        let ours = [names::SNAPSHOT_FINALIZER, names::CONTENT_FINALIZER];
        let rest = content.finalizers.iter().filter(|finalizer| !ours.contains(&finalizer.as_str())).cloned().collect();
        match self.content_finalizers(content, rest).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a content. Its stored snapshot is deleted first.
    pub async fn delete_content(&self, content: &Content) -> Result<()> {
        let answer = DiscardReply(self.contents())
            .delete(&content.name, &guarded(&content.uid, &content.resource_version))
            .await;
        deleted(answer, format!("VolumeSnapshotContent {}", content.name))
    }
}

/// Returns the finalizers of a content, with one more.
fn with(content: &Content, finalizer: String) -> Vec<String> {
    let mut finalizers = content.finalizers.clone();
    if !finalizers.contains(&finalizer) {
        finalizers.push(finalizer);
    }
    finalizers
}
