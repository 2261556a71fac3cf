//! The check before a volume that has moved in moves out again, and the data with which its run works.
//!
//! Only provenance with the mark was confirmed by an admin. Everybody who can create a volume can write other
//! provenance. So the run for a volume without the mark uses the chosen config as it is now, and the volume's own
//! source.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;

use crate::claim::verify::verify_moved_in_source;
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::model::claim::Claim;
use crate::model::data_source::{snapshots_using, source_users_of};
use crate::model::moved_in::MovedIn;
use crate::model::snapshot::Content;
use crate::model::volume::{Provenance, Volume, is_run_id};
use crate::object::ObjectName;
use crate::run::node::Node;
use crate::run::view::Job;
use crate::volume::move_in::{FORMER_FINALIZER, origin_node};
use crate::volume::place::Place;

/// All that depends on a volume, and that its run may need.
#[derive(Clone, Copy, Debug)]
pub struct Dependents<'a> {
    /// The claim that the volume's claimRef names.
    pub claim: Option<&'a Claim>,
    /// The snapshots of this orchestrator.
    pub contents: &'a [&'a Content],
    /// The runs with the volume's id.
    pub jobs: &'a [&'a Job],
    /// The place of the volume's storage.
    pub place: Option<&'a Place>,
    /// The recipe of the volume's class, if the chosen config serves the class now.
    pub recipe: Option<&'a Recipe>,
    /// All nodes.
    pub nodes: &'a [Arc<Node>],
    /// The chosen config.
    pub config: &'a ObjectName,
}

/// A volume that can move out.
#[derive(Clone, Debug, PartialEq)]
pub struct MovingOut {
    /// The id that the run gets.
    pub id: String,
    /// The data by which the run works, with the former provisioner and its finalizer.
    pub provenance: Provenance,
    /// The volume has the mark.
    pub is_confirmed: bool,
}

impl MovingOut {
    /// Returns what is known of the storage.
    pub fn moved_in(&self) -> MovedIn {
        self.provenance.moved_in.clone().unwrap_or_default()
    }
}

/// Checks whether a volume can go back to the provisioner with the name `from`.
///
/// # Errors
/// If it cannot. The text is for the admin.
pub fn check_move_out(
    volume: &Volume,
    from: &str,
    of: &Dependents<'_>,
    identity: &Identity,
) -> Result<MovingOut, String> {
    let record = read_provenance(volume, of, identity)?;
    let moved_in = &record.moved_in;
    let Some(former) = &moved_in.from else {
        return Err("it was imported, so there is no former provisioner: use import --undo".to_owned());
    };
    if former != from {
        return Err(format!("its record names the provisioner {former}, not {from}: see --provisioner"));
    }
    if volume.terminating {
        return Err("it is being deleted: wait for the end".to_owned());
    }
    // Nobody else does anything with a volume without the mark, so that it may move out in any state.
    if volume.is_adopted() {
        verify_in_use(volume, of.claim)?;
    }
    if volume.size != Ok(moved_in.size) {
        return Err(format!(
            "it was expanded since it moved in, from {} bytes, and the former provisioner knows nothing of that: copy the data into a new volume of that provisioner",
            moved_in.size
        ));
    }
    if volume.applied.is_some() || volume.pending_modification.is_some() {
        return Err("it has a VolumeAttributesClass, which the former provisioner does not know".to_owned());
    }
    verify_unused(volume, of)?;
    moving_out(volume, record, of)
}

/// Checks whether an import can be taken back.
///
/// # Errors
/// If it cannot. The text is for the admin.
pub fn check_undo_import(volume: &Volume, of: &Dependents<'_>, identity: &Identity) -> Result<MovingOut, String> {
    let record = read_provenance(volume, of, identity)?;
    let moved_in = &record.moved_in;
    if moved_in.from.is_some() {
        return Err("it was not imported: use adopt --undo".to_owned());
    }
    if volume.reclaim_policy != ReclaimPolicy::Retain {
        return Err(format!("its policy is {}: write Retain, and its data stay", volume.reclaim_policy));
    }
    if let Some(claim) = of.claim.filter(|claim| claim.volume_name.as_ref() == Some(&volume.name)) {
        return Err(format!("its claim {} exists: delete the claim first, the data stay", claim.name));
    }
    verify_unused(volume, of)?;
    moving_out(volume, record, of)
}

/// The provenance of a volume that has moved in.
struct MoveRecord {
    provenance: Provenance,
    /// The part of the provenance that says where the storage is.
    moved_in: MovedIn,
}

/// Returns the provenance of a volume that the chosen config serves.
fn read_provenance(volume: &Volume, of: &Dependents<'_>, identity: &Identity) -> Result<MoveRecord, String> {
    if !volume.belongs_to(identity) {
        return Err("it has not moved in, or belongs to another orchestrator".to_owned());
    }
    let provenance = volume.provenance.as_deref().and_then(|text| serde_json::from_str::<Provenance>(text).ok());
    let moved_in = provenance.as_ref().and_then(|provenance| provenance.moved_in.clone());
    let (Some(provenance), Some(moved_in)) = (provenance, moved_in) else {
        return Err("it has not moved in: the image of its class made it".to_owned());
    };
    let named = &provenance.effective_config.config;
    match named == of.config && identity.config_namespaces.contains(&named.namespace) {
        true => Ok(MoveRecord { provenance, moved_in }),
        false => Err(format!("its record names the config {named}, not {}: see --config", of.config)),
    }
}

fn verify_in_use(volume: &Volume, claim: Option<&Claim>) -> Result<(), String> {
    if volume.phase.is_claim_gone() {
        return Err("it is released: wait until the orchestrator has deleted or kept it, as its policy says".to_owned());
    }
    match claim.filter(|claim| claim.volume_name.as_ref() == Some(&volume.name)) {
        None => Err("its claim is gone: wait for the deletion".to_owned()),
        Some(claim) if claim.terminating => Err(format!("its claim {} is being deleted: wait for the end", claim.name)),
        Some(_) => Ok(()),
    }
}

/// Checks that nothing of the orchestrator needs the storage.
fn verify_unused(volume: &Volume, of: &Dependents<'_>) -> Result<(), String> {
    let id = volume.volume_id().unwrap_or_default();
    let is_its = |content: &&&Content| content.made_by().is_some_and(|made_by| made_by.volume_id == id);
    if let Some(content) = of.contents.iter().find(is_its) {
        return Err(format!(
            "its snapshot {} exists: delete the VolumeSnapshot {} first",
            content.name, content.snapshot
        ));
    }
    let copied =
        |claim: &&Claim| source_users_of(&claim.finalizers).chain(snapshots_using(&claim.finalizers)).next().is_some();
    if let Some(claim) = of.claim.filter(copied) {
        return Err(format!("its claim {} is being copied: wait for the end", claim.name));
    }
    match of.jobs.iter().find(|job| !job.is_over) {
        Some(job) => Err(format!("the run {} is in progress: wait for the end", job.name)),
        None => Ok(()),
    }
}

/// Returns the data of the run. Provenance that nobody has confirmed chooses neither image nor node nor path.
fn moving_out(
    volume: &Volume,
    MoveRecord { provenance, moved_in }: MoveRecord,
    of: &Dependents<'_>,
) -> Result<MovingOut, String> {
    let id = volume.volume_id().filter(|id| is_run_id(id) && volume.name == names::pv_name(id));
    let id = id.ok_or("its volume id does not fit its name")?.to_owned();
    if volume.is_adopted() {
        return Ok(MovingOut { id, provenance, is_confirmed: true });
    }
    let recipe = of.recipe.ok_or_else(|| {
        format!("its record has no mark, and the config {} does not serve its class {} now", of.config, volume.class)
    })?;
    if provenance.effective_config.class != volume.class {
        let class = &provenance.effective_config.class;
        return Err(format!("its record names class {class}, but the volume has class {}", volume.class));
    }
    let place = of.place.ok_or("it is no directory on a node or on an NFS server")?;
    if place.path != moved_in.path {
        return Err(format!("its record names the storage at {}, but the volume leads to {place}", moved_in.path));
    }
    verify_moved_in_source(volume, recipe, &place.path)?;
    let node = origin_node(volume, recipe, of.nodes).map_err(|refusal| refusal.to_string())?;
    let finalizers = moved_in.finalizers.into_iter().filter(|finalizer| finalizer == FORMER_FINALIZER).collect();
    let moved_in = Some(MovedIn { path: moved_in.path, from: moved_in.from, size: moved_in.size, finalizers });
    let provenance = Provenance {
        effective_config: recipe.effective_config.clone(),
        origin_node: node,
        moved_in,
        cluster: None,
        others: Vec::new(),
    };
    Ok(MovingOut { id, provenance, is_confirmed: false })
}

#[cfg(test)]
#[path = "move_out_tests.rs"]
mod tests;
