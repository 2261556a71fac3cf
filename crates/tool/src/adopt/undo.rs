//! `adopt --undo`: takes back what `adopt` has written, for the former provisioner.

use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::volume::move_out::{MovingOut, check_move_out};

use super::table::table;
use super::work::{Fresh, Work};
use crate::out::say;

/// Takes back what was written on volumes that came from a provisioner. Returns the number of volumes that stay.
pub(super) async fn undo(work: &Work, volumes: &[Volume], from: &str, dry_run: bool) -> usize {
    let checked: Vec<_> =
        volumes.iter().map(|volume| checked_out(work, volume, work.claim_of(volume).as_deref(), from)).collect();
    let outcome = |checked: &Result<MovingOut, String>| match checked {
        Ok(moving_out) if moving_out.is_confirmed => format!("goes back to {from}"),
        Ok(_) => format!("goes back to {from}; it has no mark"),
        Err(why) => why.clone(),
    };
    table(work, volumes, "OUTCOME, OR WHY IT STAYS", &checked.iter().map(outcome).collect::<Vec<_>>());
    let mut refused = checked.iter().filter(|checked| checked.is_err()).count();
    for (volume, moving_out) in volumes.iter().zip(checked) {
        let Ok(moving_out) = moving_out else { continue };
        let done = if dry_run { Ok(()) } else { one(work, volume, &moving_out, from).await };
        match done {
            Ok(()) if dry_run => say!("{}: would move out", volume.name),
            Ok(()) => say!("{}: moved out; its former provisioner serves it again", volume.name),
            Err(why) => {
                say!("{}: refused: {why}", volume.name);
                refused += 1;
            }
        }
    }
    if volumes.is_empty() {
        say!("no volume of {from} has moved in by the config {}", work.config);
    }
    refused
}

fn checked_out(work: &Work, volume: &Volume, claim: Option<&Claim>, from: &str) -> Result<MovingOut, String> {
    work.moving_out(volume, claim, |of| check_move_out(volume, from, of, &work.identity))
}

async fn one(work: &Work, volume: &Volume, moving_out: &MovingOut, from: &str) -> Result<(), String> {
    let Fresh { volume, claim, .. } = work.fresh(&volume.name).await?;
    if checked_out(work, &volume, claim.as_ref(), from)? != *moving_out {
        return Err("it was changed meanwhile: run the command again".to_owned());
    }
    let unmarked = work.forget(&volume, moving_out).await?;
    let out = work.writes.move_out(&unmarked, &moving_out.moved_in()).await;
    out.map(drop).map_err(|error| format!("{error}; its mark is gone, its record is not: run this command again"))
}
