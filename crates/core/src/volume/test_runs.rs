//! Fixtures that the tests of expansions and of modifications share: runs, and what must hold for their Jobs.

use std::ops::Range;

use flex_contract::exit::Reaction;
use proptest::prelude::*;
use proptest::sample::select;

use crate::object::ObjectName;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// The present time, in seconds since 1970.
pub const NOW: i64 = 1_000_000;

/// Returns the state of a run whose image cannot be pulled.
pub fn stuck() -> RunState {
    RunState::Stuck { cause: Cause::new("ImagePullBackOff", "no such image"), since: NOW }
}

/// Generates runs with these attempts and targets. `job` and `failed` make the Job of a run and a failure.
pub fn runs<T: std::fmt::Debug + Clone>(
    attempts: Range<u32>,
    targets: impl Strategy<Value = T>,
    job: fn(u32, T) -> Job,
    failed: fn(Reaction, bool) -> RunState,
) -> impl Strategy<Value = (Job, RunState)> {
    let reactions = select(vec![Reaction::Retry, Reaction::Never, Reaction::NoCapacity]);
    let states = prop_oneof![
        select(vec![RunState::MayBeRunning, stuck(), RunState::Succeeded]),
        (reactions, any::<bool>()).prop_map(move |(reaction, pods_ended)| failed(reaction, pods_ended))
    ];
    (attempts, targets, states, prop::bool::weighted(0.3)).prop_map(move |(attempt, target, state, terminating)| {
        let is_over = matches!(state, RunState::Succeeded | RunState::Failed { pods_ended: true, .. });
        (Job { terminating, is_over, ..job(attempt, target) }, state)
    })
}

/// Checks whether a run is in progress, stuck or not.
pub fn is_any_in_progress(runs: &[(Job, RunState)]) -> bool {
    let in_progress = |state: &RunState| matches!(state, RunState::MayBeRunning | RunState::Stuck { .. });
    runs.iter().any(|(job, state)| !job.is_over && in_progress(state))
}

/// Checks whether a Job will change by itself.
pub fn is_any_awaited(runs: &[(Job, RunState)]) -> bool {
    runs.iter().any(|(job, _)| job.terminating || !job.is_over)
}

/// Checks whether a Job may be removed: it exists, and its run is over or stuck.
pub fn may_remove(runs: &[(Job, RunState)], job: &ObjectName) -> bool {
    let mut named = runs.iter().filter(|(candidate, _)| candidate.name == *job && !candidate.terminating);
    named.any(|(job, state)| job.is_over || matches!(state, RunState::Stuck { .. }))
}
