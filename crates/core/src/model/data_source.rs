//! The data source that a claim names ([`DataSource`]), and who uses an object as one ([`SourceUser`]).

use std::fmt;

use flex_contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;

use super::snapshot::api;
use crate::object::ObjectName;
use crate::text;

/// The data source that a claim names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// A claim whose volume is copied.
    Claim(ObjectName),
    /// A VolumeSnapshot that is restored.
    Snapshot(ObjectName),
    /// An object from which only the provisioner of the class could fill the volume.
    Unknown(String),
    /// An object from which a volume populator fills the volume.
    Populated(String),
    /// A data source in the manifest that the API server has dropped.
    Dropped,
}

impl DataSource {
    /// Reads the data source of a claim in a namespace.
    pub fn of(spec: &PersistentVolumeClaimSpec, namespace: &str) -> Option<Self> {
        let new = spec.data_source_ref.as_ref();
        let new = new.map(|s| (s.api_group.clone(), s.kind.clone(), s.namespace.clone(), s.name.clone()));
        let old = spec.data_source.as_ref().map(|s| (s.api_group.clone(), s.kind.clone(), None, s.name.clone()));
        let (group, kind, other, name) = new.or(old)?;
        let name = text::name(&name);
        let namespace = other.as_deref().filter(|other| !other.is_empty()).unwrap_or(namespace);
        let namespace = text::name(namespace);
        Some(match (group.unwrap_or_default().as_str(), kind.as_str()) {
            ("", "PersistentVolumeClaim") => DataSource::Claim(ObjectName::new(namespace, name)),
            (api::GROUP, "VolumeSnapshot") => DataSource::Snapshot(ObjectName::new(namespace, name)),
            ("" | api::GROUP, kind) => DataSource::Unknown(format!("{} {name}", text::name(kind))),
            (group, kind) => DataSource::Populated(format!("{}.{} {name}", text::name(kind), text::name(group))),
        })
    }

    /// Returns the kind of the object for metrics. Users choose the other kinds, so these have one name in common.
    pub fn kind(&self) -> &'static str {
        match self {
            DataSource::Claim(_) => "PersistentVolumeClaim",
            DataSource::Snapshot(_) => "VolumeSnapshot",
            DataSource::Unknown(_) | DataSource::Populated(_) => "other",
            DataSource::Dropped => "",
        }
    }

    /// Returns the claim whose volume is copied.
    pub fn claim(&self) -> Option<&ObjectName> {
        match self {
            DataSource::Claim(name) => Some(name),
            DataSource::Snapshot(_) | DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped => None,
        }
    }

    /// Returns the claim or VolumeSnapshot that must exist first.
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

/// A claim or VolumeSnapshot for which the orchestrator protects a data source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUser {
    /// The UID of the copy.
    pub uid: String,
    /// The name of the copy, while it may be in progress.
    pub in_progress: Option<ObjectName>,
}

/// Returns the UIDs of the claims for which these finalizers protect an object.
pub fn source_users_of(finalizers: &[String]) -> impl Iterator<Item = &str> {
    finalizers.iter().filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER))
}

/// Returns the UIDs of the VolumeSnapshots for which these finalizers protect a claim.
pub fn snapshots_using(finalizers: &[String]) -> impl Iterator<Item = &str> {
    finalizers.iter().filter_map(|finalizer| finalizer.strip_prefix(names::SOURCE_FINALIZER))
}

#[cfg(test)]
#[path = "data_source_tests.rs"]
mod tests;
