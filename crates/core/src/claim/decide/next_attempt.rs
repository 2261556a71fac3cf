//! The attempt after the stamped one.

use std::sync::Arc;

use super::observed::Observed;
use super::preconditions::{Attempt, Beginning};
use super::rule::{Decision, Rule};
use super::step::Step;
use super::waits::end_runs;
use crate::config::classes::Class;
use crate::rules::Rule as _;
use crate::run::state::RunState;
use crate::run::view::Job;

/// Ends the processes that must end before an attempt may begin. Returns `None` if none is left. The Job of the stamped
/// attempt stays if its run has ended.
pub(super) fn end_older_runs(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let attempt = o.attempt();
    let has_ended = matches!(o.runs.state, RunState::Failed { .. } | RunState::Succeeded);
    let is_to_end = |job: &&Job| !job.is_over && (!has_ended || job.run_labels.attempt != attempt);
    let jobs: Vec<&Job> = o.runs.jobs.iter().map(Arc::as_ref).filter(is_to_end).collect();
    // The watch may show a Job before it shows the stamp for which the Job was created.
    if !o.confirmed.fresh && jobs.iter().any(|job| job.run_labels.attempt > attempt) {
        return Some(Rule::ReadClaimBeforeStop.step(Step::Refresh));
    }
    end_runs(o, jobs, now)
}

/// Asks the API first if an earlier attempt may have made the volume. A lagging watch must not cause a second volume on
/// another node.
pub(super) fn confirm_then(o: &Observed<'_>, next: Decision) -> Decision {
    match next.step {
        Step::Stamp { .. } if o.is_volume_unsure() => Rule::ConfirmNoVolumeBeforeAttempt.step(Step::ConfirmNoVolume),
        _ => next,
    }
}

/// Begins by a rule the attempt after the stamped one. Other rules hold if it cannot begin.
pub(super) fn restamp(o: &Observed<'_>, class: &Class, rule: Rule, now: i64) -> Decision {
    let attempt = o.attempt().saturating_add(1);
    let stamp = |nodes| rule.step(Step::Stamp { attempt, nodes });
    Attempt::of(Beginning::Next, o, class, now).begin(stamp)
}
