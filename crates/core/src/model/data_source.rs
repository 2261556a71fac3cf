//! The data source that a claim names ([`DataSource`]), and who uses an object as one ([`Copying`]).

use std::fmt;

use contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;

use super::claim::Claim;
use super::snapshot::api;
use crate::limits;
use crate::object::ObjectName;
use crate::text::cut;

/// What a claim names as its data source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A claim, of whose volume it is to be a copy.
    Claim(ObjectName),
    /// A VolumeSnapshot, which it is to be made from.
    Snapshot(ObjectName),
    /// Something that only the provisioner of the class could fill it from.
    Unknown(String),
    /// Something that a populator fills it from.
    Populated(String),
    /// Something that its manifest names, and that the API server has dropped.
    Dropped,
}

impl DataSource {
    /// That of a claim in a namespace.
    pub fn of(spec: &PersistentVolumeClaimSpec, namespace: &str) -> Option<Self> {
        let new = spec.data_source_ref.as_ref();
        let new = new.map(|s| (s.api_group.clone(), s.kind.clone(), s.namespace.clone(), s.name.clone()));
        let old = spec.data_source.as_ref().map(|s| (s.api_group.clone(), s.kind.clone(), None, s.name.clone()));
        let (group, kind, other, name) = new.or(old)?;
        let name = cut(&name, limits::NAME).into_owned();
        let namespace = other.filter(|other| !other.is_empty()).unwrap_or_else(|| namespace.to_owned());
        Some(match (group.unwrap_or_default().as_str(), kind.as_str()) {
            ("", "PersistentVolumeClaim") => DataSource::Claim(ObjectName::new(namespace, name)),
            (api::GROUP, "VolumeSnapshot") => DataSource::Snapshot(ObjectName::new(namespace, name)),
            ("" | api::GROUP, kind) => DataSource::Unknown(format!("{} {name}", cut(kind, limits::NAME))),
            (group, kind) => {
                DataSource::Populated(format!("{}.{} {name}", cut(kind, limits::NAME), cut(group, limits::NAME)))
            }
        })
    }

    /// The claim whose volume is copied.
    pub fn claim(&self) -> Option<&ObjectName> {
        match self {
            DataSource::Claim(name) => Some(name),
            DataSource::Snapshot(_) | DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped => None,
        }
    }

    /// The claim or VolumeSnapshot that must be there first.
    pub fn named(&self) -> Option<&ObjectName> {
        match self {
            DataSource::Claim(name) | DataSource::Snapshot(name) => Some(name),
            DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped => None,
        }
    }
}

impl fmt::Display for DataSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataSource::Claim(name) => write!(f, "claim {name}"),
            DataSource::Snapshot(name) => write!(f, "VolumeSnapshot {name}"),
            DataSource::Unknown(what) | DataSource::Populated(what) => f.write_str(what),
            DataSource::Dropped => f.write_str("a data source that the API server has dropped"),
        }
    }
}

/// In words for the claim, what its namespace must be granted.
pub fn not_granted(claim: &Claim) -> String {
    let namespace = &claim.name.namespace;
    format!(
        "is in another namespace, where no ReferenceGrant (gateway.networking.k8s.io/v1beta1) lets claims of namespace {namespace} use it; who owns it can create one"
    )
}

/// A claim or VolumeSnapshot for which our finalizer stands on what it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copying {
    /// Its UID.
    pub uid: String,
    /// Its name, while something may be under way for it.
    pub under_way: Option<ObjectName>,
}

/// The UIDs of the claims for whose sake something is kept, by the finalizers on it.
pub fn kept_for(finalizers: &[String]) -> impl Iterator<Item = &str> {
    finalizers.iter().filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER))
}

/// The UIDs of the VolumeSnapshots for whose sake a claim is kept.
pub fn snapshot_of(claim: &Claim) -> impl Iterator<Item = &str> {
    claim.finalizers.iter().filter_map(|finalizer| finalizer.strip_prefix(names::SOURCE_FINALIZER))
}

#[cfg(test)]
#[path = "data_source_tests.rs"]
mod tests;
