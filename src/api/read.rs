//! Objects from their JSON as text, as the watches see them: for those who have them from elsewhere. Not generic, so that
//! how a kind is read is compiled here alone.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{self as core, ConfigMap, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::Result;

use crate::claim::Claim;
use crate::config::classes::{ClassObject, Config, Revision};
use crate::node::Node;
use crate::run::view::{Job, Pod};
use crate::snapshot::api::{VolumeSnapshot, VolumeSnapshotContent};
use crate::snapshot::{Content, Snapshot};
use crate::volume::Volume;

fn read<K: DeserializeOwned, V: for<'a> From<&'a K>>(json: &str) -> Result<V> {
    serde_json::from_str(json).map(|object: K| V::from(&object))
}

/// A PersistentVolumeClaim.
pub fn claim(json: &str) -> Result<Claim> {
    read::<PersistentVolumeClaim, _>(json)
}

/// A PersistentVolume.
pub fn volume(json: &str) -> Result<Volume> {
    read::<PersistentVolume, _>(json)
}

/// A Job.
pub fn job(json: &str) -> Result<Job> {
    read::<batch::Job, _>(json)
}

/// A pod.
pub fn pod(json: &str) -> Result<Pod> {
    read::<core::Pod, _>(json)
}

/// A ConfigMap.
pub fn config(json: &str) -> Result<Config> {
    read::<ConfigMap, _>(json)
}

/// A StorageClass.
pub fn class(json: &str) -> Result<ClassObject> {
    read::<StorageClass, _>(json)
}

/// A node.
pub fn node(json: &str) -> Result<Node> {
    read::<core::Node, _>(json)
}

/// A VolumeSnapshot.
pub fn snapshot(json: &str) -> Result<Snapshot> {
    read::<VolumeSnapshot, _>(json)
}

/// A VolumeSnapshotContent.
pub fn content(json: &str) -> Result<Content> {
    read::<VolumeSnapshotContent, _>(json)
}

/// A ControllerRevision: the hash of its record, and what is kept of it; none if it is not ours.
pub fn revision(json: &str) -> Result<Option<(String, Revision)>> {
    serde_json::from_str::<ControllerRevision>(json).map(super::watch::revision)
}
