//! The mapping of a volume that another provisioner made: what the orchestrator would write on it to serve it.
//!
//! Volumes of two provisioners can move in: those of the local-path provisioner and those of the NFS subdir external
//! provisioner. Both name a volume `pvc-UID`, after the UID of its claim. The orchestrator does the same, and this
//! UID becomes the volume id.
//!
//! [`map`] says which config will serve a volume, and what its provenance will be, or why the volume cannot move in. It
//! neither reads nor writes anything.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;

use crate::claim::verify::verify_moved_in_source;
use crate::config::classes::Identity;
use crate::config::{Placement, Recipe};
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::moved_in::MovedIn;
use crate::model::phase::VolumePhase;
use crate::model::volume::{Provenance, Volume, is_run_id};
use crate::object::ObjectName;
use crate::run::node::Node;
pub use crate::volume::move_in_refusal::Refusal;
use crate::volume::place::{Neighbour, Overlap, Place};

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
    /// Returns the name that the former provisioner writes on its volumes, if nobody has configured another.
    pub fn usual_name(self) -> &'static str {
        match self {
            Former::LocalPath => "rancher.io/local-path",
            Former::NfsSubdir => "cluster.local/nfs-subdir-external-provisioner",
        }
    }

    /// Returns the kinds of volume sources that the former provisioner makes.
    fn source_kinds(self) -> &'static [&'static str] {
        match self {
            Former::LocalPath => &["hostPath", "local"],
            Former::NfsSubdir => &["nfs"],
        }
    }
}

/// A former provisioner in a cluster.
#[derive(Clone, Copy, Debug)]
pub struct FormerProvisioner<'a> {
    /// The kind of the provisioner.
    pub kind: Former,
    /// The name that it writes on its volumes.
    pub name: &'a str,
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
    /// The other volume that most certainly has files in common with it.
    pub neighbour: Option<Neighbour<'a>>,
    /// The admin says that different names of servers lead to different servers.
    pub servers_differ: bool,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
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
    /// The provenance that deletion, expansion and snapshots will go by.
    pub provenance: Provenance,
    /// The finalizers that the volume will have. [`FORMER_FINALIZER`] is not among them. The orchestrator's is, if the
    /// volume's reclaim policy is Delete.
    pub finalizers: Vec<String>,
}

/// Maps a volume to the provenance under which the orchestrator will serve it. `former` is the provisioner that
/// made it.
///
/// A volume that has provenance without the mark is mapped again, so that a repeated command finishes the work. Nobody
/// has confirmed that provenance: nothing in it counts except that the former finalizer was there.
///
/// # Errors
/// If the volume cannot move in.
pub fn map(of: &Candidate<'_>, former: &FormerProvisioner<'_>, identity: &Identity) -> Result<Mapping, Refusal> {
    let (volume, name) = (of.volume, former.name);
    let begun = begun(volume, name, identity)?;
    if begun.is_none() && !volume.is_provisioned_by(name) {
        return Err(Refusal::OtherProvisioner(volume.provisioned_by.clone()));
    }
    if volume.terminating {
        return Err(Refusal::Terminating);
    }
    let id = volume.name.strip_prefix(names::PV_PREFIX).filter(|id| is_run_id(id)).ok_or(Refusal::Name)?;
    let claim = bound_claim(volume, of.claim)?;
    let class = || Refusal::Class { class: volume.class.clone(), config: of.config.clone() };
    let recipe = of.recipe.ok_or_else(class)?;
    if !volume.source_kind.is_some_and(|kind| former.kind.source_kinds().contains(&kind)) {
        return Err(Refusal::SourceKind(volume.source_kind));
    }
    let place = of.place.ok_or(Refusal::SourceKind(volume.source_kind))?;
    verify_moved_in_source(volume, recipe, &place.path).map_err(Refusal::Source)?;
    let node = origin_node(volume, recipe, of.nodes)?;
    if former.kind == Former::NfsSubdir {
        same_deletion(recipe).map_err(Refusal::OnDelete)?;
    }
    match of.neighbour {
        Some(Neighbour { volume, overlap: Overlap::Same }) => return Err(Refusal::Overlaps(volume.to_owned())),
        Some(Neighbour { volume, overlap: Overlap::OtherServer }) if !of.servers_differ => {
            return Err(Refusal::OtherServer(volume.to_owned()));
        }
        _ => {}
    }
    let size = volume.size.clone().map_err(Refusal::Size)?;
    let is_former = |finalizer: &str| finalizer == FORMER_FINALIZER;
    let lost = volume.finalizers.iter().chain(begun.iter().flat_map(|record| &record.finalizers));
    let lost = lost.filter(|finalizer| is_former(finalizer)).take(1).cloned().collect();
    let kept = |finalizer: &&String| !is_former(finalizer) && finalizer.as_str() != names::VOLUME_FINALIZER;
    let added = (volume.reclaim_policy == ReclaimPolicy::Delete).then(|| names::VOLUME_FINALIZER.to_owned());
    let moved_in = Some(MovedIn { path: place.path.clone(), from: Some(name.to_owned()), size, finalizers: lost });
    Ok(Mapping {
        volume: volume.name.clone(),
        id: id.to_owned(),
        claim: claim.name.clone(),
        claim_uid: claim.uid.clone(),
        provenance: Provenance {
            effective_config: recipe.effective_config.clone(),
            origin_node: node,
            moved_in,
            cluster: None,
            others: Vec::new(),
        },
        finalizers: volume.finalizers.iter().filter(kept).cloned().chain(added).collect(),
    })
}

/// Returns the place in the provenance of a volume that has begun to move in, and lacks the mark.
fn begun(volume: &Volume, name: &str, identity: &Identity) -> Result<Option<MovedIn>, Refusal> {
    if let Some(instance) = volume.instance.as_ref().filter(|instance| **instance != identity.instance) {
        return Err(Refusal::OtherOrchestrator(instance.clone()));
    }
    match moved_in(volume) {
        Some(_) if volume.is_adopted() => Err(Refusal::Moved),
        Some(record) if record.from.as_deref() == Some(name) => Ok(Some(record)),
        Some(record) => Err(Refusal::OtherRecord(record.from)),
        None if is_own(volume, name, identity) => Err(Refusal::Own),
        None => Ok(None),
    }
}

/// Checks whether an image of this orchestrator made a volume.
fn is_own(volume: &Volume, name: &str, identity: &Identity) -> bool {
    let is_known = volume.instance.is_some() || volume.provenance.is_some();
    is_known || (volume.belongs_to(identity) && name != identity.provisioner)
}

/// Checks whether the former provisioner with this name made a volume, or the volume's record says so. The
/// orchestrator's images may have made other volumes for the same class.
pub fn is_of_provisioner(volume: &Volume, name: &str, identity: &Identity) -> bool {
    match moved_in(volume) {
        Some(record) => record.from.as_deref() == Some(name),
        None => volume.is_provisioned_by(name) && !is_own(volume, name, identity),
    }
}

/// Returns the name of the node of a volume; `None` if the config does not make volumes on nodes.
pub(super) fn origin_node(volume: &Volume, recipe: &Recipe, nodes: &[Arc<Node>]) -> Result<Option<String>, Refusal> {
    let host = volume.affinity.as_deref().and_then(affinity::only_host);
    let is_on_node = matches!(volume.source_kind, Some("hostPath" | "local"));
    let host = match (recipe.placement, host) {
        (Placement::Any, Some(host)) if is_on_node => return Err(Refusal::OnOneNode(host.to_owned())),
        (Placement::Any, _) => return Ok(None),
        (Placement::SelectedNode, host) => host.ok_or(Refusal::Node)?,
    };
    // The host name in the label may differ from the name of the node, which runs and findings go by.
    let is_it = |node: &&Arc<Node>| node.labels.get(names::HOSTNAME).unwrap_or(&node.name) == host;
    let mut named = nodes.iter().filter(is_it);
    match (named.next(), named.next()) {
        (Some(node), None) => Ok(Some(node.name.clone())),
        _ => Err(Refusal::NoNode(host.to_owned())),
    }
}

/// Checks that the config does the same with the storage of a deleted volume as its class says. The parameters are those
/// of the NFS subdir external provisioner, which archives by default.
fn same_deletion(recipe: &Recipe) -> Result<(), String> {
    let effective_config = &recipe.effective_config;
    let of_class =
        |key: &str| effective_config.parameters.get(key).or_else(|| effective_config.data.get(key)).map(String::as_str);
    let (wanted, because) = match (of_class("onDelete"), of_class("archiveOnDelete")) {
        (Some("delete"), _) => ("delete", "onDelete: delete"),
        (Some("retain"), _) => ("keep", "onDelete: retain"),
        (_, Some("0" | "f" | "F" | "false" | "False" | "FALSE")) => ("delete", "archiveOnDelete: \"false\""),
        (_, Some(_)) => ("archive", "archiveOnDelete: \"true\""),
        (_, None) => ("archive", "no archiveOnDelete, which means true"),
    };
    let by_config = match effective_config.data.get(ON_DELETE).map_or("", |value| value.trim()) {
        "" => "delete",
        "retain" => "keep",
        other => other,
    };
    match by_config == wanted {
        true => Ok(()),
        false => Err(format!(
            "its class {} has {because}, but the config would {by_config} the directory of a deleted volume: write `{ON_DELETE}: {wanted}` into the config {}, or change the class",
            recipe.class, effective_config.config
        )),
    }
}

/// The parameter of the image `nfs` that says what becomes of the directory of a deleted volume.
const ON_DELETE: &str = "on-delete";

/// Returns what the provenance of a volume says of its storage, whether it has the mark or not.
pub fn moved_in(volume: &Volume) -> Option<MovedIn> {
    serde_json::from_str::<Provenance>(volume.provenance.as_deref()?).ok()?.moved_in
}

/// Returns the claim that is bound to the volume, if volume and claim name each other.
fn bound_claim<'a>(volume: &Volume, claim: Option<&'a Claim>) -> Result<&'a Claim, Refusal> {
    let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_some()).ok_or(Refusal::NoClaim)?;
    let claim = claim.ok_or(Refusal::NoClaim)?;
    let is_its = claim.name == reference.name && reference.uid.as_ref() == Some(&claim.uid);
    if !is_its || claim.volume_name.as_ref() != Some(&volume.name) || !claim.is_bound() {
        return Err(Refusal::OtherClaim(reference.name.clone()));
    }
    if claim.terminating {
        return Err(Refusal::ClaimTerminating(claim.name.clone()));
    }
    if claim.is_held() {
        return Err(Refusal::ClaimBusy(claim.name.clone()));
    }
    match &volume.phase {
        VolumePhase::Bound => Ok(claim),
        phase => Err(Refusal::Phase(phase.as_str().to_owned())),
    }
}

#[cfg(test)]
#[path = "move_in_tests.rs"]
mod tests;
