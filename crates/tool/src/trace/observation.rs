//! What the command sees of a claim.

use flex_core::claim::decide::Rule;
use flex_core::claim::failed_attempts::{FailedAttempt, FailedAttempts};
use flex_core::claim::progress::{Progress, progress};
use flex_core::claim::standing::Obstacle;
use flex_core::claim::timeline::Timeline;
use flex_core::model::claim::Claim;
use flex_core::model::phase::ClaimPhase;
use flex_provisioner::api::claim_events::ClaimEvent;

/// All that is known of a claim's way.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) claim: Claim,
    /// The last attempt.
    pub(super) timeline: Timeline,
    /// The attempts that failed, the last one included if it has failed.
    pub(super) failed: FailedAttempts,
    /// The events, the newest first.
    pub(super) events: Vec<ClaimEvent>,
    /// What keeps the next attempt from beginning, if claim and class show it.
    pub(super) obstacle: Option<Obstacle>,
    /// The time of the next attempt after a failure, in seconds since 1970, if it depends on the time alone.
    pub(super) next_try: Option<i64>,
    /// Why nobody works on the claim, if that is so.
    pub(super) idle: Option<String>,
    /// What could not be read, and why.
    pub(super) unseen: Vec<String>,
}

impl Trace {
    /// Returns the failed attempts before the last attempt: the first ones, and those after the ones that are left out.
    pub(super) fn earlier(&self) -> (&[FailedAttempt], &[FailedAttempt]) {
        let (first, last) = self.failed.parts();
        let is_earlier =
            |attempt: &FailedAttempt| self.timeline.attempt == 0 || attempt.number() < self.timeline.attempt;
        (&first[..first.partition_point(is_earlier)], &last[..last.partition_point(is_earlier)])
    }

    /// Returns the time from which the first stage of the last attempt counts, in milliseconds since 1970: the end of the
    /// attempt before, or the creation of the claim.
    pub(super) fn begin(&self) -> i64 {
        let (first, last) = self.earlier();
        last.last().or(first.last()).map_or(self.timeline.created, FailedAttempt::ended)
    }

    /// Returns why the class refuses the claim, if it does.
    pub(super) fn refused(&self) -> Option<&str> {
        let refusal = self.obstacle.as_ref().filter(|obstacle| obstacle.rule == Rule::ClaimRefused)?;
        Some(&refusal.why)
    }

    /// Returns the orchestrator's last warning about a claim for which no attempt has begun: it says what the claim waits
    /// for.
    pub(super) fn warning(&self) -> Option<&ClaimEvent> {
        let is_waiting = progress(&self.claim) == Progress::Waiting && self.timeline.stages().is_empty();
        // The orchestrator may warn of what no pod changes.
        let unused = |obstacle: &Obstacle| obstacle.rule == Rule::WaitForFirstConsumer;
        let is_served = self.idle.is_none() && self.obstacle.as_ref().is_none_or(unused);
        let newest = self.events.iter().find(|event| is_waiting && is_served && event.is_ours);
        newest.filter(|event| event.warning)
    }

    /// Checks whether the claim is bound.
    pub(super) fn is_bound(&self) -> bool {
        self.claim.is_bound() && self.claim.phase == ClaimPhase::Bound
    }
}
