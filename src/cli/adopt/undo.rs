//! `adopt --undo`: takes back what `adopt` has written, for the former provisioner.

use flex_contract::request::Operation;

use super::work::Work;
use crate::cli::out::say;
use crate::model::volume::{Provenance, Volume};
use crate::volume::moving_out::{Dependents, move_out};

/// Takes back what was written on volumes. Returns the number of volumes that stay.
pub(super) async fn undo(work: &Work, volumes: &[Volume], dry_run: bool) -> usize {
    let mut refused = 0;
    for volume in volumes {
        match one(work, volume, dry_run).await {
            Ok(()) if dry_run => say!("{}: would move out", volume.name),
            Ok(()) => say!("{}: moved out; its former provisioner serves it again", volume.name),
            Err(why) => {
                say!("{}: refused: {why}", volume.name);
                refused += 1;
            }
        }
    }
    refused
}

async fn one(work: &Work, volume: &Volume, dry_run: bool) -> Result<(), String> {
    let claim = volume.claim_ref.as_ref().and_then(|reference| work.index.claim(&reference.name));
    let contents: Vec<_> = work.index.contents().map(AsRef::as_ref).collect();
    let jobs = work.index.jobs_of(volume.volume_id().unwrap_or_default());
    let jobs: Vec<_> = jobs.iter().map(AsRef::as_ref).collect();
    let dependents = Dependents { claim: claim.as_deref(), contents: &contents, jobs: &jobs };
    let moved_in = move_out(volume, &dependents, &work.identity)?;
    if dry_run {
        return Ok(());
    }
    let record = volume.provenance.as_deref().unwrap_or_default();
    let provenance: Provenance = serde_json::from_str(record).map_err(|error| error.to_string())?;
    let id = volume.volume_id().unwrap_or_default().to_owned();
    // From here on, the orchestrator does nothing with the volume. If a later step fails, the command is repeated.
    let unmarked = work.writes.remove_adoption_mark(volume).await.map_err(|error| error.to_string())?;
    work.run(Operation::MoveOut, &unmarked, &id, &provenance).await?;
    work.writes.move_out(&unmarked, &moved_in).await.map(drop).map_err(|error| error.to_string())
}
