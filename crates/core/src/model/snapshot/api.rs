//! The objects of `snapshot.storage.k8s.io/v1`, as far as they matter. They are custom resources, which a cluster may
//! not have.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

/// Their API group.
pub const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "v1";
/// Group and version, as they stand in objects.
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

/// A user's wish for a snapshot of a claim, or for one that exists.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshot {
    /// Group and version.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Its kind.
    #[serde(default = "snapshot_kind")]
    pub kind: String,
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What is wished.
    #[serde(default)]
    pub spec: SnapshotSpec,
    /// What has become of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SnapshotStatus>,
}

/// What a VolumeSnapshot asks for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotSpec {
    /// Of what.
    pub source: SnapshotSource,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

/// One of the two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotSource {
    /// The claim whose volume it is to be of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    /// The content that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

/// How a VolumeSnapshot stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// Its content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<String>,
    /// It can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What a claim must ask for at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<String>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotError {
    /// In words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

/// A snapshot that is stored somewhere, or is to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotContent {
    /// Group and version.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Its kind.
    #[serde(default = "content_kind")]
    pub kind: String,
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is.
    #[serde(default)]
    pub spec: ContentSpec,
    /// How it stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<ContentStatus>,
}

/// What a VolumeSnapshotContent is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentSpec {
    /// `Delete` or `Retain`.
    pub deletion_policy: String,
    /// Whose it is.
    pub driver: String,
    /// Of what.
    pub source: ContentSource,
    /// The mode of the volume that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_volume_mode: Option<String>,
    /// Its class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
    /// The VolumeSnapshot that it is for.
    pub volume_snapshot_ref: SnapshotRef,
}

/// One of the two.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentSource {
    /// The snapshot that exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// The volume to make a snapshot of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_handle: Option<String>,
}

/// The VolumeSnapshot of a content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; none until it is bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// How a content stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContentStatus {
    /// By what name it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_handle: Option<String>,
    /// When it was made, in nanoseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<i64>,
    /// In bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<i64>,
    /// It can be restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<SnapshotError>,
}

/// What VolumeSnapshots of a kind have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeSnapshotClass {
    /// Group and version.
    #[serde(default = "api_version")]
    pub api_version: String,
    /// Its kind.
    #[serde(default = "class_kind")]
    pub kind: String,
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Whose it is.
    #[serde(default)]
    pub driver: String,
    /// `Delete` or `Retain`.
    #[serde(default)]
    pub deletion_policy: String,
    /// What its driver is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
}
