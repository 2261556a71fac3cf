//! The mapping from Cinder's connection to the source of a PersistentVolume. It is pure.
//!
//! Each kind of connection has a file here with a [`Mapper`], and a line in [`mapper`].

mod fibre_channel;
mod iscsi;
mod kind;
mod rbd;

use flex_image_kit::Failure;
use serde_json::Value;

pub use kind::{Credentials, Growth, Mapped, Mapper, Target};

use crate::api::Connection;
use crate::parameters::Parameters;

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
