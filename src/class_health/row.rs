//! A claim as `status` shows it, and what the claims of a class say of the class.

use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::claim::progress::Progress;
use flex_core::claim::standing::Standing;
use flex_core::config::classes::{ClassLookup, Classes};
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::namespace::Namespaces;
use flex_core::model::volume::Volume;
use flex_core::run::failure::LastFailure;
use flex_core::text::line;
use serde::{Deserialize, Serialize};

/// The length of a failure's message beside its class. The claim has the whole message.
pub const MAX_FAILURE_TEXT: usize = 200;

/// A claim as `status` shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `namespace/name`.
    pub claim: String,
    /// The name of its class.
    pub class: String,
    /// What happens with it.
    pub state: Progress,
    /// The number of its last attempt; 0 before the first.
    pub attempt: u32,
    /// The seconds since its creation.
    pub age: i64,
    /// Its creation, in seconds since 1970.
    pub created: i64,
    /// The seconds since the attempt in progress began.
    pub running: Option<i64>,
    /// Its last failed run.
    pub failure: Option<LastFailure>,
    /// The seconds until the next attempt after a failed one. `None` if it depends on more than the time.
    pub next_try: Option<i64>,
    /// What keeps the next attempt from beginning, if claim and class show it.
    pub waits_for: Option<String>,
}

impl Row {
    /// Returns the last words of the image, or the reason why there are none.
    pub fn describe(&self) -> String {
        self.failure.as_ref().map(|failure| format!("{}: {}", failure.reason, failure.message)).unwrap_or_default()
    }

    /// Says what the claim waits for, or why its last run failed.
    pub fn reason(&self) -> String {
        match (&self.waits_for, self.state) {
            (Some(why), Progress::Waiting | Progress::Running | Progress::Refused) => why.clone(),
            (None, Progress::Waiting) => "waits for its turn".to_owned(),
            _ => self.describe(),
        }
    }

    /// Returns the time at which this claim showed that the class fails. An attempt that can never succeed counts only
    /// for its own claim, from the time of the claim's creation.
    pub(crate) fn failed_at(&self) -> Option<i64> {
        let provisions = |failure: &&LastFailure| failure.operation == Operation::Provision;
        let tries = matches!(self.state, Progress::Failed | Progress::Running);
        let failure = self.failure.as_ref().filter(provisions).filter(|_| tries)?;
        Some(if failure.reaction == Reaction::Never { self.created } else { failure.at })
    }
}

/// The claims of a class whose attempts fail, if no attempt has succeeded since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// Their number.
    pub claims: usize,
    /// The one that failed last, with the cause.
    pub last: String,
}

/// Returns the row of a claim, if the orchestrator serves its class. `now` is in seconds since 1970.
pub(crate) fn row(table: &Classes, namespaces: &Namespaces, claim: &Claim, now: i64) -> Option<Row> {
    let ClassLookup::Ours(class) = table.lookup(claim.class.as_deref()?) else { return None };
    let stamp = claim.own_stamp();
    let standing = Standing::of(claim, class, Some(namespaces), claim.for_pool, now);
    let state = standing.progress;
    let began = stamp.filter(|_| state == Progress::Running).and_then(Stamp::began);
    Some(Row {
        claim: claim.name.to_string(),
        class: class.name.clone(),
        state,
        attempt: stamp.map_or(0, |stamp| stamp.attempt),
        age: now - claim.created,
        created: claim.created,
        running: began.map(|began| now - began.as_second()),
        next_try: standing.next_try.map(|at| (at - now).max(0)),
        failure: claim.last_failure.clone(),
        waits_for: standing.obstacle.map(|obstacle| obstacle.why),
    })
}

/// Checks whether a class fails: the latest result of its attempts is a failure, and not a volume.
pub(crate) fn failing(class: &str, rows: &[Row], volumes: &[Arc<Volume>]) -> Option<Failing> {
    let made = volumes.iter().filter(|volume| volume.class == class && volume.is_adopted());
    let made = made.map(|volume| volume.created).max();
    let failed = rows.iter().filter(|row| row.class == class);
    let failed: Vec<_> = failed.filter_map(|row| Some((row.failed_at().filter(|at| Some(*at) > made)?, row))).collect();
    let (_, last) = failed.iter().max_by_key(|(_, row)| row.failure.as_ref().map(|failure| failure.at))?;
    let last = line(&format!("{}: {}", last.claim, last.describe()), MAX_FAILURE_TEXT);
    Some(Failing { claims: failed.len(), last })
}

#[cfg(test)]
#[path = "row_tests.rs"]
mod tests;
