//! The mapping of a volume that another provisioner made: what the orchestrator would write on it to serve it.
//!
//! Volumes of two provisioners can move in: those of the local-path provisioner and those of the NFS subdir external
//! provisioner. Both name a volume `pvc-UID`, after the UID of its claim. The orchestrator does the same, so that this
//! UID becomes the volume id.
//!
//! [`map`] says which config will serve a volume, and what its record will be, or why the volume cannot move in. It
//! neither reads nor writes anything.

use std::fmt::{self, Display};

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;

use crate::claim::verify::verify_moved_in_source;
use crate::config::classes::Identity;
use crate::config::{Placement, Recipe};
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::moved_in::MovedIn;
use crate::model::volume::{Provenance, Volume, is_run_id};
use crate::object::ObjectName;

/// The capability with which a config declares that its image serves storage that others made.
pub const CAPABILITY: &str = crate::config::capability::MOVE_IN;

/// The finalizer that some provisioners put on their volumes. Nobody removes it once they are gone.
pub const FORMER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// A provisioner whose volumes can move in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Former {
    /// The local-path provisioner of Rancher: a directory on a node.
    LocalPath,
    /// The NFS subdir external provisioner: a directory on a server.
    NfsSubdir,
}

impl Former {
    /// Returns the name that the provisioner writes on its volumes, if nobody has configured another.
    pub fn usual_name(self) -> &'static str {
        match self {
            Former::LocalPath => "rancher.io/local-path",
            Former::NfsSubdir => "cluster.local/nfs-subdir-external-provisioner",
        }
    }

    /// Returns the kinds of volume sources that the provisioner makes.
    fn source_kinds(self) -> &'static [&'static str] {
        match self {
            Former::LocalPath => &["hostPath", "local"],
            Former::NfsSubdir => &["nfs"],
        }
    }
}

/// The place of a volume's storage, in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The server; empty for storage on a node.
    pub server: String,
    /// The only node that has the storage; empty if several may have it.
    pub node: String,
    /// The path.
    pub path: String,
}

impl Place {
    /// Returns the place of a volume on a node or on an NFS server.
    pub fn of(spec: &PersistentVolumeSpec) -> Option<Place> {
        let required = spec.node_affinity.as_ref().and_then(|affinity| affinity.required.as_ref());
        let node = required.and_then(affinity::only_host).unwrap_or_default().to_owned();
        let on_node = |path: &String| Place { server: String::new(), node: node.clone(), path: path.clone() };
        let host_path = spec.host_path.as_ref().map(|source| on_node(&source.path));
        let local = spec.local.as_ref().map(|source| on_node(&source.path));
        let nfs = spec.nfs.as_ref();
        let nfs = nfs.map(|nfs| Place { server: nfs.server.clone(), node: String::new(), path: nfs.path.clone() });
        host_path.or(local).or(nfs)
    }

    /// Checks whether two volumes may have files in common: one place is the other, or is in it.
    pub fn overlaps(&self, other: &Place) -> bool {
        let parts = |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
        let (one, two) = (parts(&self.path), parts(&other.path));
        let elsewhere = !self.node.is_empty() && !other.node.is_empty() && self.node != other.node;
        self.server == other.server && !elsewhere && (one.starts_with(&two) || two.starts_with(&one))
    }
}

/// A volume of another provisioner, with all that decides about it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// The place of its storage.
    pub place: Option<&'a Place>,
    /// The claim that its claimRef names.
    pub claim: Option<&'a Claim>,
    /// Another volume that may have files in common with it.
    pub overlapping: Option<&'a str>,
    /// The recipe of its class, if the chosen config serves the class.
    pub recipe: Option<&'a Recipe>,
    /// The chosen config.
    pub config: &'a ObjectName,
}

/// A volume that can move in, with what the orchestrator will write on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mapping {
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The id that the volume's runs will get.
    pub id: String,
    /// The claim that is bound to the volume.
    pub claim: ObjectName,
    /// The UID of that claim.
    pub claim_uid: String,
    /// The record that deletion, expansion and snapshots will go by.
    pub provenance: Provenance,
    /// The finalizers that the volume will have. [`FORMER_FINALIZER`] is not among them. The orchestrator's is, if the
    /// volume's reclaim policy is Delete.
    pub finalizers: Vec<String>,
}

/// The reason why a volume cannot move in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another provisioner made the volume, by this annotation.
    OtherProvisioner(Option<String>),
    /// An orchestrator of this project has written on the volume already.
    HasRecord,
    /// The volume has moved in, but lacks the mark.
    HalfWay,
    /// The volume is terminating.
    Terminating,
    /// No claim is bound to the volume, or the claim is gone.
    NoClaim,
    /// The claim in claimRef is a newer one of the same name, or is bound to another volume.
    OtherClaim(ObjectName),
    /// The claim is terminating.
    ClaimTerminating(ObjectName),
    /// The name of the volume is not `pvc-UID`, so that no run could delete it.
    Name,
    /// The config does not serve the class of the volume.
    Class {
        /// The class of the volume.
        class: String,
        /// The config.
        config: ObjectName,
    },
    /// Another volume leads to the same directory, or to one in it or around it.
    Overlaps(String),
    /// The size of the volume cannot be read.
    Size(String),
    /// The provisioner makes no volumes of this kind of source.
    SourceKind(Option<&'static str>),
    /// The config does not allow the volume's source.
    Source(String),
    /// The config makes volumes on nodes, and the volume's node affinity does not name exactly one node.
    Node,
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::OtherProvisioner(Some(name)) => {
                write!(f, "provisioner {name} made it: name that provisioner with --provisioner")
            }
            Refusal::OtherProvisioner(None) => write!(f, "it does not say which provisioner made it: use import"),
            Refusal::HasRecord => write!(f, "an orchestrator has written on it already: nothing is left to do"),
            Refusal::HalfWay => {
                write!(
                    f,
                    "it has moved in but lacks the mark: finish that with vouch --trust-record, or undo it with --undo"
                )
            }
            Refusal::Terminating => write!(f, "it is being deleted: wait for the end"),
            Refusal::NoClaim => write!(
                f,
                "no claim is bound to it, so its storage would be deleted at once: bind it to a claim, or let the former provisioner delete it"
            ),
            Refusal::OtherClaim(claim) => {
                write!(f, "claim {claim} is not the one that it was bound to: correct its claimRef first")
            }
            Refusal::ClaimTerminating(claim) => write!(f, "claim {claim} is being deleted: wait for the end"),
            Refusal::Name => write!(
                f,
                "its name is not {}UID, and a volume cannot be renamed: retain it, delete it, and use import",
                names::PV_PREFIX
            ),
            Refusal::Class { class, config } => write!(
                f,
                "its class {class} is not served by the config {config}: a claim cannot change its class, so let the config serve the class"
            ),
            Refusal::Overlaps(other) => {
                write!(f, "volume {other} may have the same files: keep one of the two volumes, or move the data")
            }
            Refusal::Size(why) => write!(f, "{why}"),
            Refusal::SourceKind(Some(kind)) => write!(f, "that provisioner makes no volumes of the kind {kind}"),
            Refusal::SourceKind(None) => write!(f, "it does not have exactly one volume source"),
            Refusal::Source(why) => write!(f, "the config does not allow it: {why}"),
            Refusal::Node => write!(
                f,
                "the config makes volumes on nodes, but its node affinity does not name exactly one node by {}",
                names::HOSTNAME
            ),
        }
    }
}

/// Maps a volume to the record under which the orchestrator will serve it. `name` is what the former provisioner writes
/// as its own name.
///
/// # Errors
/// If the volume cannot move in.
pub fn map(of: &Candidate<'_>, (former, name): (Former, &str), identity: &Identity) -> Result<Mapping, Refusal> {
    let volume = of.volume;
    if volume.is_restored() && moved_in(volume).is_some() {
        return Err(Refusal::HalfWay);
    }
    let is_known = volume.instance.is_some() || volume.provenance.is_some();
    if is_known || (volume.belongs_to(identity) && name != identity.provisioner) {
        return Err(Refusal::HasRecord);
    }
    if volume.provisioned_by.as_deref() != Some(name) {
        return Err(Refusal::OtherProvisioner(volume.provisioned_by.clone()));
    }
    if volume.deleting {
        return Err(Refusal::Terminating);
    }
    let id = volume.name.strip_prefix(names::PV_PREFIX).filter(|id| is_run_id(id)).ok_or(Refusal::Name)?;
    let claim = bound_claim(volume, of.claim)?;
    let class = || Refusal::Class { class: volume.class.clone(), config: of.config.clone() };
    let recipe = of.recipe.ok_or_else(class)?;
    if !volume.source_kind.is_some_and(|kind| former.source_kinds().contains(&kind)) {
        return Err(Refusal::SourceKind(volume.source_kind));
    }
    let place = of.place.ok_or(Refusal::SourceKind(volume.source_kind))?;
    verify_moved_in_source(volume, recipe, &place.path).map_err(Refusal::Source)?;
    let node = home(volume, recipe)?;
    if let Some(other) = of.overlapping {
        return Err(Refusal::Overlaps(other.to_owned()));
    }
    let size = volume.size.clone().map_err(Refusal::Size)?;
    let is_former = |finalizer: &&String| finalizer.as_str() == FORMER_FINALIZER;
    let (lost, others): (Vec<_>, Vec<_>) = volume.finalizers.iter().partition(is_former);
    let others = others.into_iter().filter(|finalizer| *finalizer != names::VOLUME_FINALIZER).cloned();
    let added = (volume.reclaim_policy == ReclaimPolicy::Delete).then(|| names::VOLUME_FINALIZER.to_owned());
    let path = place.path.clone();
    let finalizers = lost.into_iter().cloned().collect();
    let moved_in = Some(MovedIn { path, from: name.to_owned(), size, finalizers });
    Ok(Mapping {
        volume: volume.name.clone(),
        id: id.to_owned(),
        claim: claim.name.clone(),
        claim_uid: claim.uid.clone(),
        provenance: Provenance { record: recipe.record.clone(), node, moved_in },
        finalizers: others.chain(added).collect(),
    })
}

/// Returns the node of a volume, if the config makes volumes on nodes.
fn home(volume: &Volume, recipe: &Recipe) -> Result<String, Refusal> {
    match recipe.placement {
        Placement::Any => Ok(String::new()),
        Placement::SelectedNode => {
            Ok(volume.affinity.as_deref().and_then(affinity::only_host).ok_or(Refusal::Node)?.to_owned())
        }
    }
}

/// Returns what the record of a volume says of its storage, whether it has the mark or not.
pub fn moved_in(volume: &Volume) -> Option<MovedIn> {
    serde_json::from_str::<Provenance>(volume.provenance.as_deref()?).ok()?.moved_in
}

/// Returns the claim that is bound to the volume, if volume and claim name each other.
fn bound_claim<'a>(volume: &Volume, claim: Option<&'a Claim>) -> Result<&'a Claim, Refusal> {
    let reference = volume.claim_ref.as_ref().filter(|reference| !reference.uid.is_empty()).ok_or(Refusal::NoClaim)?;
    let claim = claim.ok_or(Refusal::NoClaim)?;
    let is_its = claim.name == reference.name && claim.uid == reference.uid;
    if !is_its || claim.volume_name.as_ref() != Some(&volume.name) || !claim.is_bound() {
        return Err(Refusal::OtherClaim(reference.name.clone()));
    }
    match claim.deleting {
        true => Err(Refusal::ClaimTerminating(claim.name.clone())),
        false => Ok(claim),
    }
}

#[cfg(test)]
#[path = "moving_in_tests.rs"]
mod tests;
