//! The check before a volume that has moved in moves out again: its former provisioner must be able to serve it.

use crate::config::classes::Identity;
use crate::model::claim::Claim;
use crate::model::data_source::{snapshots_using, source_users_of};
use crate::model::moved_in::MovedIn;
use crate::model::snapshot::Content;
use crate::model::volume::Volume;
use crate::run::view::Job;
use crate::volume::moving_in::moved_in;

/// All that depends on a volume.
#[derive(Clone, Copy, Debug)]
pub struct Dependents<'a> {
    /// The claim that is bound to the volume.
    pub claim: Option<&'a Claim>,
    /// The snapshots of this orchestrator.
    pub contents: &'a [&'a Content],
    /// The runs with the volume's id.
    pub jobs: &'a [&'a Job],
}

/// Checks whether a volume can move out, and returns what its record says of its storage.
///
/// # Errors
/// If it cannot. The text is for the admin.
pub fn move_out(volume: &Volume, of: &Dependents<'_>, identity: &Identity) -> Result<MovedIn, String> {
    if !volume.belongs_to(identity) {
        return Err("it has not moved in, or belongs to another orchestrator".to_owned());
    }
    let moved_in = moved_in(volume).ok_or("it has not moved in: the image of its class made it")?;
    if moved_in.from.is_empty() {
        return Err("it was imported, so that there is no former provisioner: delete its claim, and its data stay with the policy Retain".to_owned());
    }
    if volume.deleting || volume.phase.is_released() {
        return Err("it is being deleted or released: wait for the end".to_owned());
    }
    let Some(claim) = of.claim.filter(|claim| claim.volume_name.as_ref() == Some(&volume.name)) else {
        return Err("its claim is gone: wait for the deletion".to_owned());
    };
    if claim.deleting {
        return Err(format!("its claim {} is being deleted: wait for the end", claim.name));
    }
    if volume.size != Ok(moved_in.size) {
        return Err(format!(
            "it was expanded since it moved in, from {} bytes, and the former provisioner knows nothing of that: copy the data into a new volume of that provisioner",
            moved_in.size
        ));
    }
    if volume.applied.is_some() || volume.modification.is_some() {
        return Err("it has a VolumeAttributesClass, which the former provisioner does not know".to_owned());
    }
    let id = volume.volume_id().unwrap_or_default();
    let is_its = |content: &&&Content| content.made_by().is_some_and(|made_by| made_by.volume_id == id);
    if let Some(content) = of.contents.iter().find(is_its) {
        return Err(format!(
            "its snapshot {} exists: delete the VolumeSnapshot {} first",
            content.name, content.snapshot
        ));
    }
    let copied = source_users_of(&claim.finalizers).chain(snapshots_using(&claim.finalizers)).next().is_some();
    if copied {
        return Err(format!("its claim {} is being copied: wait for the end", claim.name));
    }
    match of.jobs.iter().find(|job| !job.is_over) {
        Some(job) => Err(format!("the run {} is in progress: wait for the end", job.name)),
        None => Ok(moved_in),
    }
}

#[cfg(test)]
#[path = "moving_out_tests.rs"]
mod tests;
