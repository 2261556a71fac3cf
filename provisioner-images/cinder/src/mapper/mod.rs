//! From the way that Cinder says a volume is reached to the source of a PersistentVolume. Pure.
//!
//! A kind of connection is a file here with a [`Mapper`], and a line in [`mapper`].

mod fibre_channel;
mod iscsi;
mod rbd;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeSpec, SecretReference};
use kit::Failure;
use serde_json::Value;

use crate::api::Connection;
use crate::parameters::Parameters;

/// What a mapper knows beside the connection.
pub struct Target<'a> {
    /// The parameters of the config.
    pub parameters: &'a Parameters,
    /// The file system that the kubelet makes; its own default where it is empty.
    pub fs_type: &'a str,
    /// The name that the volume's Secret has, if it needs one.
    pub secret: SecretReference,
}

/// How nodes attach a volume.
#[derive(Debug, Default)]
pub struct Mapped {
    /// A spec of which only the source counts.
    pub source: PersistentVolumeSpec,
    /// What stands in the volume's Secret, if it needs one.
    pub secret: Option<Credentials>,
}

/// What stands in the Secret of a volume.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The type of the Secret.
    pub kind: &'static str,
    /// Its data.
    pub data: BTreeMap<String, String>,
}

// No derive: what is printed has no passwords in it.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credentials({}, {:?})", self.kind, self.data.keys())
    }
}

/// A kind of connection.
pub trait Mapper {
    /// What Cinder calls it (`driver_volume_type`).
    fn kind(&self) -> &'static str;

    /// What the kubelet does when such a volume has grown in Cinder: nothing, and why so, or all that is needed.
    fn grows(&self, parameters: &Parameters) -> Growth;

    /// The source of the PersistentVolume, and the Secret that it needs.
    ///
    /// # Errors
    /// What Cinder says makes no source, and what to do about it.
    fn map(&self, data: &Value, target: &Target<'_>) -> Result<Mapped, Failure>;
}

/// Who makes the file system larger when the volume has grown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The driver on the node.
    OnTheNode,
    /// Nobody: only volumes without a file system of Kubernetes can grow.
    BlockOnly,
}

/// The mapper for a kind of connection.
///
/// # Errors
/// There is none.
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

/// The source of the PersistentVolume for a connection.
///
/// # Errors
/// The kind is not known, or what Cinder says makes no source.
pub fn map(connection: &Connection, target: &Target<'_>) -> Result<Mapped, Failure> {
    mapper(&connection.kind)?.map(&connection.data, target)
}

/// The mapper that made a source, by the source as it stands in a PersistentVolume.
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
    fn an_unknown_kind_is_refused_with_the_way_to_add_it() {
        let Err(failure) = mapper("nvmeof") else { panic!() };
        assert_eq!(failure.code, 78);
        for says in ["`nvmeof`", "iscsi, rbd, fibre_channel", "src/mapper", "another `type`"] {
            assert!(failure.message.contains(says), "{says} in {failure}");
        }
    }
}
