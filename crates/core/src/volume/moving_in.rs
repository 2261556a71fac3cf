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

use crate::claim::verify::verify_volume_source;
use crate::config::classes::Identity;
use crate::config::{Placement, Recipe};
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::volume::{Provenance, Volume, is_run_id};
use crate::object::ObjectName;

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
    /// The volume has another class than the config serves.
    Class {
        /// The class of the volume.
        volume: String,
        /// The class of the config.
        config: String,
    },
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
            Refusal::OtherProvisioner(Some(name)) => write!(f, "provisioner {name} made it"),
            Refusal::OtherProvisioner(None) => write!(f, "it does not say which provisioner made it"),
            Refusal::HasRecord => write!(f, "an orchestrator has written on it already"),
            Refusal::Terminating => write!(f, "it is being deleted: wait for the end, or restore it first"),
            Refusal::NoClaim => write!(f, "no claim is bound to it, so its storage would be deleted at once"),
            Refusal::OtherClaim(claim) => write!(f, "claim {claim} is not the one that it was bound to"),
            Refusal::ClaimTerminating(claim) => write!(f, "claim {claim} is being deleted: wait for the end"),
            Refusal::Name => write!(f, "its name is not {}UID, and a volume cannot be renamed", names::PV_PREFIX),
            Refusal::Class { volume, config } => write!(
                f,
                "it has class {volume}, but the config serves class {config}; a claim cannot change its class, so serve {volume} with the config"
            ),
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
/// as its own name, `claim` is the claim that the volume's claimRef names, and `recipe` is that of the target config.
///
/// # Errors
/// If the volume cannot move in.
pub fn map(
    volume: &Volume,
    claim: Option<&Claim>,
    (former, name): (Former, &str),
    recipe: &Recipe,
    identity: &Identity,
) -> Result<Mapping, Refusal> {
    if volume.instance.is_some() || volume.provenance.is_some() || volume.belongs_to(identity) {
        return Err(Refusal::HasRecord);
    }
    if volume.provisioned_by.as_deref() != Some(name) {
        return Err(Refusal::OtherProvisioner(volume.provisioned_by.clone()));
    }
    if volume.deleting {
        return Err(Refusal::Terminating);
    }
    let id = volume.name.strip_prefix(names::PV_PREFIX).filter(|id| is_run_id(id)).ok_or(Refusal::Name)?;
    let claim = bound_claim(volume, claim)?;
    if volume.class != recipe.class {
        return Err(Refusal::Class { volume: volume.class.clone(), config: recipe.class.clone() });
    }
    if !volume.source_kind.is_some_and(|kind| former.source_kinds().contains(&kind)) {
        return Err(Refusal::SourceKind(volume.source_kind));
    }
    verify_volume_source(volume, recipe).map_err(Refusal::Source)?;
    let node = match recipe.placement {
        Placement::Any => String::new(),
        Placement::SelectedNode => {
            volume.affinity.as_deref().and_then(affinity::only_host).ok_or(Refusal::Node)?.to_owned()
        }
    };
    let own = [FORMER_FINALIZER, names::VOLUME_FINALIZER];
    let others = volume.finalizers.iter().filter(|finalizer| !own.contains(&finalizer.as_str())).cloned();
    let added = (volume.reclaim_policy == ReclaimPolicy::Delete).then(|| names::VOLUME_FINALIZER.to_owned());
    Ok(Mapping {
        volume: volume.name.clone(),
        id: id.to_owned(),
        claim: claim.name.clone(),
        claim_uid: claim.uid.clone(),
        provenance: Provenance { record: recipe.record.clone(), node },
        finalizers: others.chain(added).collect(),
    })
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
