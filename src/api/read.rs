//! Reads objects from JSON text as the watches do, for callers that get them elsewhere. The functions are not generic,
//! so that the code of each kind is compiled here only.

use flex_core::config::classes::{ClassObject, Config};
use flex_core::model::claim::Claim;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotContent};
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::stored::Stored;
use flex_core::model::volume::Volume;
use flex_core::run::node::Node;
use flex_core::run::view::{Job, Pod};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{self as core, ConfigMap, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::Result;

fn read<K: DeserializeOwned, V: for<'a> From<&'a K>>(json: &str) -> Result<V> {
    serde_json::from_str(json).map(|object: K| V::from(&object))
}

/// Reads a PersistentVolumeClaim.
pub fn claim(json: &str) -> Result<Claim> {
    read::<PersistentVolumeClaim, _>(json)
}

/// Reads a PersistentVolume.
pub fn volume(json: &str) -> Result<Volume> {
    read::<PersistentVolume, _>(json)
}

/// Reads a Job.
pub fn job(json: &str) -> Result<Job> {
    read::<batch::Job, _>(json)
}

/// Reads a pod.
pub fn pod(json: &str) -> Result<Pod> {
    read::<core::Pod, _>(json)
}

/// Reads a ConfigMap.
pub fn config(json: &str) -> Result<Config> {
    read::<ConfigMap, _>(json)
}

/// Reads a StorageClass.
pub fn class(json: &str) -> Result<ClassObject> {
    read::<StorageClass, _>(json)
}

/// Reads a node.
pub fn node(json: &str) -> Result<Node> {
    read::<core::Node, _>(json)
}

/// Reads a VolumeSnapshot.
pub fn snapshot(json: &str) -> Result<Snapshot> {
    read::<VolumeSnapshot, _>(json)
}

/// Reads a VolumeSnapshotContent.
pub fn content(json: &str) -> Result<Content> {
    read::<VolumeSnapshotContent, _>(json)
}

/// Reads what a ControllerRevision stores. Returns `None` if it is not the orchestrator's.
pub fn stored(json: &str) -> Result<Option<Stored>> {
    serde_json::from_str::<ControllerRevision>(json).map(super::watch::stored)
}
