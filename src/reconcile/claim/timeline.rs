//! The timelines of claims, when an attempt ends.

use flex_contract::operation::Operation;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::timeline::{Basis, Stage, Timeline};
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::run::failure::LastFailure;

use super::alike::{attempt_node, request_hash_of};
use super::observe::Observation;
use crate::reconcile::context::Context;

/// Returns the timeline of a claim that is bound now.
pub(super) fn bound_timeline(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    volume: Option<&Volume>,
) -> Timeline {
    let mut timeline = of_attempt(claim, observation, volume);
    let now = context.clock.wall().as_millisecond();
    // A claim is bound as soon as the PV controller has seen its volume.
    if let Some(waited) = volume.and_then(|volume| context.cluster.index().sync_time(&volume.name)) {
        timeline.reach(Stage::Adopted, now.saturating_sub(i64::try_from(waited.as_millis()).unwrap_or(i64::MAX)));
    }
    timeline.reach(Stage::Bound, now);
    timeline
}

/// Returns the attempts of a claim that failed, up to this failure; `None` for a failed deletion.
pub(super) fn failed_attempts(
    claim: &Claim,
    observation: &Observation,
    failure: &LastFailure,
) -> Option<FailedAttempts> {
    (failure.operation == Operation::Provision).then(|| {
        let mut timeline = of_attempt(claim, observation, None);
        timeline.reach(Stage::Failed, failure.at.saturating_mul(1000));
        let request = request_hash_of(claim, observation, attempt_node(claim, observation));
        FailedAttempts::of(claim).with(timeline, failure).with_request(failure, &request)
    })
}

fn of_attempt(claim: &Claim, observation: &Observation, volume: Option<&Volume>) -> Timeline {
    Timeline::of(Basis { claim, jobs: &observation.runs.jobs, pods: &observation.pods, volume })
}

/// Logs and counts the stages of a claim that was bound.
pub(super) fn report_bound(context: &Context, claim: &Claim, volume: &str, timeline: &Timeline) {
    let class = claim.class.as_deref().unwrap_or_default();
    context.metrics.reached(class, timeline);
    let (attempt, stages) = (timeline.attempt, timeline.line());
    tracing::info!(claim = %claim.name, class, volume, attempt, stages, "claim bound");
}
