//! The objects of `snapshot.storage.k8s.io/v1`, with the fields that the orchestrator uses. They are custom resources,
//! which a cluster may lack.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// The API group of these objects.
pub const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "v1";
/// The group and version, as objects carry them.
pub const API_VERSION: &str = "snapshot.storage.k8s.io/v1";

macro_rules! resource {
    ($kind:ident, $plural:literal, $scope:ty) => {
        impl kube_core::Resource for $kind {
            type DynamicType = ();
            type Scope = $scope;
            fn kind((): &()) -> Cow<'_, str> {
                stringify!($kind).into()
            }
            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }
            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }
            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

fn api_version() -> String {
    API_VERSION.into()
}

fn snapshot_kind() -> String {
    "VolumeSnapshot".into()
}

fn content_kind() -> String {
    "VolumeSnapshotContent".into()
}

fn class_kind() -> String {
    "VolumeSnapshotClass".into()
}

resource!(VolumeSnapshot, "volumesnapshots", k8s_openapi::NamespaceResourceScope);
resource!(VolumeSnapshotContent, "volumesnapshotcontents", k8s_openapi::ClusterResourceScope);
resource!(VolumeSnapshotClass, "volumesnapshotclasses", k8s_openapi::ClusterResourceScope);

/// A user's request for a snapshot of a claim, or for an existing snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshot {
    /// The group and version of the object.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default = "snapshot_kind")]
    pub kind: String,
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The request.
    #[serde(default)]
    pub spec: SnapshotSpec,
    /// The status of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SnapshotStatus>,
}

/// The request of a VolumeSnapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// The source of the snapshot.
    pub source: SnapshotSource,
    /// The VolumeSnapshotClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// The source of a VolumeSnapshot: one of two fields is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotSource {
    /// The claim of whose volume the snapshot is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// The existing content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// The status of a VolumeSnapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// The content of the VolumeSnapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// The time when the snapshot was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// The snapshot is ready to be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The smallest size that a claim must request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<String>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// An error in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotError {
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The time, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// A snapshot that a backend stores, or is to store.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContent {
    /// The group and version of the object.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default = "content_kind")]
    pub kind: String,
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The description of the snapshot.
    #[serde(default)]
    pub spec: ContentSpec,
    /// The status of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ContentStatus>,
}

/// The description of a stored snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentSpec {
    /// The deletion policy: `Delete` or `Retain`.
    pub deletion_policy: String,
    /// The driver of the snapshot.
    pub driver: String,
    /// The source of the snapshot.
    pub source: ContentSource,
    /// The volume mode of the snapshot's volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    /// The VolumeSnapshotClass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// The VolumeSnapshot of the content.
    pub volume_snapshot_ref: SnapshotRef,
}

/// The source of a content: one of two fields is set.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentSource {
    /// The handle of an existing snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The volume of which a snapshot is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

/// A reference to the VolumeSnapshot of a content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRef {
    /// The namespace of the VolumeSnapshot.
    pub namespace: String,
    /// The name of the VolumeSnapshot.
    pub name: String,
    /// The UID of the VolumeSnapshot; `None` until it is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// The status of a content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentStatus {
    /// The handle of the stored snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The time when the snapshot was made, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// The smallest size of a restored volume, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// The snapshot is ready to be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// The last error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// The common settings of VolumeSnapshots of a class.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotClass {
    /// The group and version of the object.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// The kind of the object.
    #[serde(default = "class_kind")]
    pub kind: String,
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The driver of the class.
    #[serde(default)]
    pub driver: String,
    /// The deletion policy: `Delete` or `Retain`.
    #[serde(default)]
    pub deletion_policy: String,
    /// The parameters for the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
}
