//! The mapping from Cinder's connection to the source of a PersistentVolume. It is pure.
//!
//! Each kind of connection has a file here with a [`Mapper`], and a line in [`mapper`].

mod fibre_channel;
mod iscsi;
mod rbd;

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{PersistentVolumeSpec, SecretReference};
use serde_json::Value;

use crate::api::Connection;
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

/// Returns the mapper for a kind of connection.
///
/// # Errors
/// If there is none.
pub fn mapper(kind: &str) -> Result<&'static dyn Mapper, Failure> {
    let all: [&'static dyn Mapper; 3] = [&iscsi::Iscsi, &rbd::Rbd, &fibre_channel::FibreChannel];
    all.into_iter().find(|mapper| mapper.kind() == kind).ok_or_else(|| {
        let known: Vec<_> = all.iter().map(|mapper| mapper.kind()).collect();
        Failure::config(format!(
            "Cinder's volume type gives connections of the kind `{kind}`, and this image can map {}: choose another `type`; or \
             add a file for `{kind}` beside those in provisioner-images/cinder/src/mapper and a line in its mod.rs, if the \
             kubelet or a CSI driver can attach such volumes",
            known.join(", ")
        ))
    })
}

/// Returns the source of the PersistentVolume for a connection.
///
/// # Errors
/// If the kind is not known, or Cinder's data make no source.
pub fn map(connection: &Connection, target: &Target<'_>) -> Result<Mapped, Failure> {
    mapper(&connection.kind)?.map(&connection.data, target)
}

/// Returns the mapper that made a source, by the source in a PersistentVolume.
pub fn of_source(source: &Value, parameters: &Parameters) -> Option<&'static dyn Mapper> {
    let is_ceph = source["csi"]["driver"] == parameters.ceph_driver.as_str();
    match source {
        source if source.get("iscsi").is_some() => Some(&iscsi::Iscsi),
        source if source.get("fc").is_some() => Some(&fibre_channel::FibreChannel),
        source if source.get("rbd").is_some() || is_ceph => Some(&rbd::Rbd),
        _ => None,
    }
}

fn lacking(kind: &str, what: &str) -> Failure {
    Failure::retry(format!("Cinder's {kind} connection has no {what}: the storage backend's log says more"))
}

fn text(data: &Value, key: &str) -> Option<String> {
    data[key].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn is_read_only(data: &Value) -> Option<bool> {
    (data["access_mode"] == "ro").then_some(true)
}

#[cfg(test)]
fn target<'a>(parameters: &'a Parameters, fs_type: &'a str) -> Target<'a> {
    let secret = SecretReference { name: Some("flex-cinder-1".into()), namespace: Some("flex".into()) };
    Target { parameters, fs_type, secret }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_kind_is_refused_with_a_way_to_add_it() {
        let Err(failure) = mapper("nvmeof") else { panic!() };
        assert_eq!(failure.code, 78);
        for says in ["`nvmeof`", "iscsi, rbd, fibre_channel", "src/mapper", "another `type`"] {
            assert!(failure.message.contains(says), "{says} in {failure}");
        }
    }
}
