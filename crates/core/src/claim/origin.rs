//! What a claim is to be filled from: the volume of another claim, of which it becomes a copy, a snapshot, or something
//! that others fill it from.

use std::fmt;

use contract::names;
use contract::quantity::quantity;
use k8s_openapi::api::core::v1::PersistentVolumeClaimSpec;

use super::Claim;
use crate::config::Recipe;
use crate::limits;
use crate::object::ObjectName;
use crate::snapshot::restore::Stored;
use crate::snapshot::{self, api};
use crate::text::cut;
use crate::volume::Volume;

/// The capability that a config declares.
pub const CAPABILITY: &str = "clone";

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

/// Said of a claim whose data source was dropped: it cannot be given one, since the API keeps the source of a claim as it is.
const DROPPED: &str = "the manifest of the claim (annotation kubectl.kubernetes.io/last-applied-configuration) names a data source, or a namespace of one, that the API server has dropped; the provisioner makes no empty volume instead. Delete the claim, and create it again with a source that the API server keeps: in `dataSource` a PersistentVolumeClaim without an apiGroup, or a VolumeSnapshot of the apiGroup snapshot.storage.k8s.io; others in `dataSourceRef`; with a namespace only where the gate CrossNamespaceVolumeDataSource is on. If you want an empty volume, remove that annotation";

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

/// Whether a class can fill a claim from its data source at all.
///
/// # Errors
/// Why not, in words for the claim.
pub fn fillable(claim: &Claim, recipe: &Recipe) -> Result<(), String> {
    let capability = match &claim.data_source {
        None => return Ok(()),
        Some(DataSource::Claim(_)) => CAPABILITY,
        Some(DataSource::Snapshot(_)) => snapshot::CAPABILITY,
        Some(DataSource::Dropped) => return Err(DROPPED.into()),
        Some(other) => {
            return Err(format!(
                "the claim's data source is {other}, from which no image of this version can fill a volume; remove the data source, or ask for another class"
            ));
        }
    };
    let what = claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
    if !recipe.can(capability) {
        return Err(format!(
            "the claim's data source is {what}, but the provisioner config {} of class {} does not declare that its image can copy it (`capabilities: {capability}`); the provisioner makes no empty volume instead",
            recipe.config, recipe.class
        ));
    }
    if claim.original() == Some(&claim.name) {
        return Err("the claim names itself as its data source; name the claim to copy".into());
    }
    Ok(())
}

/// In words for the claim, what its namespace must be granted.
pub fn not_granted(claim: &Claim) -> String {
    let namespace = &claim.name.namespace;
    format!(
        "is in another namespace, where no ReferenceGrant (gateway.networking.k8s.io/v1beta1) lets claims of namespace {namespace} use it; its owner can create one"
    )
}

/// What is seen of what a claim is to be filled from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A claim.
    Claim(Copied<'a>),
    /// A VolumeSnapshot.
    Snapshot(Stored<'a>),
}

impl<'a> Origin<'a> {
    /// The node where it is, if that matters.
    pub fn node(&self) -> &'a str {
        match self {
            Origin::Claim(copied) => copied.node,
            Origin::Snapshot(stored) => stored.node,
        }
    }

    /// The node where a copy must be made: what one node has can be read there alone.
    pub fn tie(&self, recipe: &Recipe) -> Option<&'a str> {
        recipe.pin(self.node())
    }

    /// It is there, and not kept from deletion for the sake of this copy.
    pub fn is_to_be_kept(&self, copy: &Claim) -> bool {
        match self {
            Origin::Claim(copied) => copied.granted && copied.claim.is_some() && !copied.is_kept_for(copy),
            Origin::Snapshot(stored) => stored.granted && stored.content.is_some() && !stored.is_kept_for(copy),
        }
    }

    /// Whether it can be copied now.
    ///
    /// # Errors
    /// What it waits for, or what the user must change, in words for the copy.
    pub fn check(&self, copy: &Claim) -> Result<(), String> {
        match self {
            Origin::Claim(copied) => copied.check(copy),
            Origin::Snapshot(stored) => stored.check(copy),
        }
    }
}

/// What is seen of the claim that another is to be a copy of.
#[derive(Clone, Copy, Debug)]
pub struct Copied<'a> {
    /// The claim; none if it is not there.
    pub claim: Option<&'a Claim>,
    /// The volume that it is bound to, once it is seen.
    pub volume: Option<&'a Volume>,
    /// The volume was made by this orchestrator, which knows how.
    pub ours: bool,
    /// The node where the volume was made, if that matters.
    pub node: &'a str,
    /// It is in the copy's namespace, or that is granted.
    pub granted: bool,
}

impl Copied<'_> {
    /// It is kept from deletion for the sake of this copy.
    pub fn is_kept_for(&self, copy: &Claim) -> bool {
        let finalizer = names::clone_finalizer(&copy.uid);
        self.claim.is_some_and(|claim| claim.finalizers.contains(&finalizer))
    }

    /// Whether the claim can be copied now.
    ///
    /// # Errors
    /// What it waits for, or what the user must change, in words for the copy.
    pub fn check(&self, copy: &Claim) -> Result<(), String> {
        let source = copy.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
        let waits = |why: &str| Err(format!("{source}, the data source of this claim, {why}"));
        // Nothing is said of what may not be seen. What was begun is not broken off.
        if !self.granted && !self.is_kept_for(copy) {
            return waits(&not_granted(copy));
        }
        let Some(original) = self.claim else { return waits("does not exist; the provisioner waits for it") };
        if original.class != copy.class {
            let class = original.class.as_deref().unwrap_or("none");
            return waits(&format!("is of another class, {class}: a clone must have the class of its source"));
        }
        if original.deleting && !self.is_kept_for(copy) {
            return waits("is being deleted");
        }
        if !original.is_bound() || original.phase != "Bound" {
            return waits("is not bound; the provisioner waits for it");
        }
        let Some(volume) = self.volume else {
            return waits("has a volume that the provisioner does not see yet, and waits for");
        };
        if volume.claim_ref.as_ref().is_none_or(|reference| reference.uid != original.uid) {
            return waits("has a volume whose claimRef names another claim");
        }
        if !self.ours || Some(&volume.class) != copy.class.as_ref() {
            return waits(&format!(
                "has the volume {}, which was not made by the provisioner of its class",
                volume.name
            ));
        }
        if volume.deleting {
            return waits(&format!("has the volume {}, which is being deleted", volume.name));
        }
        if volume.volume_mode != copy.volume_mode {
            return waits(&format!(
                "has the volume mode {}, this claim has {}: they must be the same",
                volume.volume_mode, copy.volume_mode
            ));
        }
        match (&volume.size, &copy.size) {
            (Ok(has), Ok(wants)) if wants < has => waits(&format!(
                "has {}, this claim asks for {}: a clone cannot be smaller than its source",
                quantity(*has).0,
                quantity(*wants).0
            )),
            (Err(error), _) => waits(error),
            _ => Ok(()),
        }
    }
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
#[path = "origin_tests.rs"]
mod tests;
