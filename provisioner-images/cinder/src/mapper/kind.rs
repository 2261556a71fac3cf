//! A kind of connection: the mapper that it needs, and the data of the mapper.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{PersistentVolumeSpec, SecretReference};
use serde_json::Value;

use crate::parameters::Parameters;

/// The data of a mapper beside the connection.
pub struct Target<'a> {
    /// The parameters of the config.
    pub parameters: &'a Parameters,
    /// The file system that the kubelet makes; its default if empty.
    pub fs_type: &'a str,
    /// The name of the volume's Secret, if it needs one.
    pub secret: SecretReference,
}

/// The way in which nodes attach a volume.
#[derive(Debug, Default)]
pub struct Mapped {
    /// A spec of which only the volume source counts.
    pub source: PersistentVolumeSpec,
    /// The content of the volume's Secret, if it needs one.
    pub secret: Option<Credentials>,
}

/// The content of a volume's Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The type of the Secret.
    pub kind: &'static str,
    /// The data of the Secret.
    pub data: BTreeMap<String, String>,
}

// This is not derived, so that the output contains no passwords.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, {:?})", self.kind, self.data.keys())
    }
}

/// A kind of connection.
pub trait Mapper {
    /// Returns Cinder's name of the kind (`driver_volume_type`).
    fn kind(&self) -> &'static str;

    /// Returns who resizes the file system after such a volume was extended in Cinder.
    fn grows(&self, parameters: &Parameters) -> Growth;

    /// Returns the source of the PersistentVolume, and the Secret that it needs.
    ///
    /// # Errors
    /// If Cinder's data make no source. The message says what to do.
    fn map(&self, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure>;
}

/// The party that resizes the file system after an expansion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The driver on the node.
    OnTheNode,
    /// Nobody: only volumes without a file system of Kubernetes can be expanded.
    BlockOnly,
}

pub(super) fn lacking(kind: &str, what: &str) -> Failure {
    Failure::retry(format!("Cinder's {kind} connection has no {what}: the storage backend's log says more"))
}

pub(super) fn text(data: &Value, key: &str) -> Option<String> {
    data[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

pub(super) fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn is_read_only(data: &Value) -> Option<bool> {
    (data["access_mode"] == "ro").then_some(true)
}

#[cfg(test)]
pub(super) fn target<'a>(parameters: &'a Parameters, fs_type: &'a str) -> Target<'a> {
    let secret = SecretReference { name: Some("flex-cinder-1".into()), namespace: Some("flex".into()) };
    Target { parameters, fs_type, secret }
}
