//! Decisions about attempts that cannot start or have failed. They say when an attempt counts as failed, and when the
//! next one begins.

use std::time::Duration;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_contract::reason;

use super::next_attempt::{confirm_then, end_older_runs, restamp};
use super::observed::Observed;
use super::placement::{
    can_reschedule, has_new_node, has_other_node, is_bound_to_selected_node, reschedule_from_unfit,
};
use super::rule::{Decision, Rule, run};
use super::step::Step;
use super::unstarted::{empty_attempts, failure_with_new_count, unstarted_attempts};
use super::waits::wait_for_run;
use crate::config::Recipe;
use crate::config::classes::Class;
use crate::rules::Rule as _;
use crate::run::backoff::{delay, delay_after, due_after, not_before, seconds, shortened};
use crate::run::failure::LastFailure;
use crate::run::rule::Rule as RunRule;
use crate::run::state::{Cause, JobRefusal, RunState};
use crate::run::stuck::StuckReason;

/// The time after which a pod whose image cannot be pulled is given up. A new attempt pulls again.
const IMAGE_PULL_TIMEOUT: Duration = Duration::from_secs(30);
/// The time after which a pod that the selected node does not admit is given up. Another node may admit it.
const NODE_TIMEOUT: Duration = Duration::from_secs(15);

/// The time after which a container beside the image is stopped, in seconds. A service mesh may have injected it, and
/// it still runs when the image has ended.
const SIDECAR_GRACE: i64 = 5;

/// Decides about a run that cannot progress.
pub(super) fn stuck(o: &Observed<'_>, class: &Class, cause: &Cause, since: i64, now: i64) -> Decision {
    if is_newer_config(o, class) {
        return record_failure(o, class, run(RunRule::RunOutdated), cause.clone(), Reaction::Retry, now);
    }
    let decision = run(RunRule::RunStuck).warn(reason::PROVISIONING_FAILED, cause.message.clone());
    let why = StuckReason::of(&cause.reason, &cause.message);
    // The node was cordoned, tainted or filled after it was selected. Another node may take the run.
    let unfit = why == StuckReason::Unschedulable && (is_bound_to_selected_node(o, class) || has_other_node(o, class));
    let (limit, rule, reaction) = match (why.is_of_image(), unfit) {
        (true, _) => (IMAGE_PULL_TIMEOUT, Rule::ImagePullTimeout, Reaction::Retry),
        (_, true) => (NODE_TIMEOUT, Rule::NodeAdmissionTimeout, Reaction::NoCapacity),
        _ => return decision,
    };
    let give_up = since.saturating_add(seconds(limit));
    match now >= give_up {
        true => record_failure(o, class, rule, cause.clone(), reaction, now),
        false => decision.requeue_at(give_up),
    }
}

/// Checks whether the class has a recipe that differs from that of the attempt.
fn is_newer_config(o: &Observed<'_>, class: &Class) -> bool {
    let current = class.recipe.as_ref().ok().map(|recipe| recipe.version());
    o.preconditions.has_revision
        && current.is_some()
        && current.as_deref() != o.claim.own_stamp().map(|stamp| stamp.recipe_version.as_str())
}

/// Records a failed attempt, because its Job could not be created. A Job that the API server calls malformed never
/// existed, so that the attempt has left nothing if the Job is its first.
pub fn failed_start(o: &Observed<'_>, class: &Class, refusal: JobRefusal, is_first: bool, now: i64) -> Decision {
    let JobRefusal { cause, reaction } = refusal;
    let never_started = is_first && reaction == Reaction::Never;
    record(o, class, run(RunRule::RunRefused), Failure { cause, reaction, at: now }, never_started)
}

/// Records by a rule that the attempt has failed, and says what follows.
pub(super) fn record_failure(
    o: &Observed<'_>,
    class: &Class,
    rule: Rule,
    cause: Cause,
    reaction: Reaction,
    at: i64,
) -> Decision {
    record(o, class, rule, Failure { cause, reaction, at }, o.runs.never_started)
}

/// The end of an attempt that has failed.
struct Failure {
    cause: Cause,
    reaction: Reaction,
    /// The time, in seconds since 1970.
    at: i64,
}

fn record(
    o: &Observed<'_>,
    class: &Class,
    rule: Rule,
    Failure { cause, reaction, at }: Failure,
    never_started: bool,
) -> Decision {
    let attempt = o.attempt();
    // The image has said that there is no room. A pod that a node does not admit may still start.
    let no_room = reaction == Reaction::NoCapacity && rule == run(RunRule::RunFailed);
    let failure = LastFailure {
        unstarted_attempts: unstarted_attempts(o, never_started),
        empty_attempts: empty_attempts(o, never_started || no_room),
        ..LastFailure::new(Operation::Provision, attempt, at, &cause, reaction)
    };
    let elsewhere = match reaction {
        Reaction::NoCapacity if can_reschedule(o, class) => Some(ASK_SCHEDULER),
        Reaction::NoCapacity if has_new_node(o, class) => Some("the provisioner tries another node"),
        _ => None,
    };
    let message = failure_text(&failure, elsewhere, o.recipe_of_attempt());
    rule.step(Step::RecordFailure { failure }).with_warning(reason::PROVISIONING_FAILED, message)
}

/// The consequence of a node without capacity, where the class waits for its first consumer.
pub const ASK_SCHEDULER: &str = "the provisioner asks the scheduler for another node";

/// Returns the text of the event about a failed attempt. `elsewhere` says that another node is tried.
pub fn failure_text(failure: &LastFailure, elsewhere: Option<&str>, recipe: Option<&Recipe>) -> String {
    let LastFailure { attempt, message, reaction, .. } = failure;
    let next = match (reaction, elsewhere, recipe) {
        (Reaction::Never, ..) => not_before("the provisioner config or the class changes"),
        (Reaction::NoCapacity, Some(elsewhere), _) => elsewhere.to_owned(),
        (_, _, Some(recipe)) => format!("next try in {} s", delay(recipe, *attempt)),
        (_, _, None) => "next try when the class has a provisioner config".to_owned(),
    };
    format!("attempt {attempt} failed: {message}; {next}")
}

/// Decides about an attempt that failed: ends its processes, and begins the next when that is due.
pub(super) fn failed(o: &Observed<'_>, class: &Class, failure: &LastFailure, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(failure) = failure_with_new_count(o) {
        return Rule::RecordUnstartedFailure.step(Step::RecordFailure { failure });
    }
    if let Some(wait) = end_older_runs(o, now) {
        return sidecars_running(o, failure, now).unwrap_or(wait);
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Rule::ConfigUnusable.warn(reason::WAITING_FOR_PROVISIONER, why.clone()),
    };
    if can_reschedule(o, class) && failure.reaction == Reaction::NoCapacity {
        return no_capacity(o, failure);
    }
    if class.awaits_node(claim.selected_node.as_deref()) {
        return Rule::WaitForReschedule.nothing();
    }
    let wait = match failure.reaction {
        _ if is_newer_config(o, class) => 0,
        Reaction::NoCapacity if has_new_node(o, class) => 0,
        // Somebody has deleted the volume that did not fit.
        Reaction::Never if failure.reason == reason::VOLUME_REFUSED.name && o.volumes.all.is_empty() => 0,
        reaction => shortened(delay_after(reaction, recipe, failure.attempt), claim.retry),
    };
    if let Some(reselect) = reschedule_from_unfit(o, class) {
        return reselect;
    }
    let due = due_after(failure.at, wait, now);
    if wait > 0 && now < due {
        return run(RunRule::RunNotDue).nothing().requeue_at(due);
    }
    confirm_then(o, restamp(o, class, run(RunRule::AttemptDue), now))
}

/// Decides about an attempt that the selected node had no capacity for.
fn no_capacity(o: &Observed<'_>, failure: &LastFailure) -> Decision {
    // The next selected node gets an attempt, even if the scheduler selects the same again.
    let failure = LastFailure { reaction: Reaction::Retry, ..failure.clone() };
    let Some(node) = &o.claim.selected_node else {
        // Somebody else has removed the selected node.
        return Rule::NoRoomOnRemovedNode.step(Step::RecordFailure { failure });
    };
    let message =
        format!("no room on node {node}: {}; the provisioner asks the scheduler for another node", failure.message);
    Rule::NoRoomOnNode.step(Step::Reschedule { failure: Some(failure) }).with_event(reason::RESCHEDULING, message)
}

/// Ends an attempt whose image has failed while another container of its pod still runs.
fn sidecars_running(o: &Observed<'_>, failure: &LastFailure, now: i64) -> Option<Decision> {
    let attempt = o.attempt();
    let job = o.runs.jobs.iter().find(|job| job.run_labels.attempt == attempt && !job.is_over && !job.terminating)?;
    let due = due_after(failure.at, SIDECAR_GRACE, now);
    match o.runs.state {
        RunState::Failed { pods_ended: false, .. } if now >= due => {
            Some(Rule::StopSidecars.step(Step::RemoveJob { job: job.name.clone() }))
        }
        RunState::Failed { pods_ended: false, .. } => Some(wait_for_run(o, Rule::SidecarsRunning).requeue_at(due)),
        _ => None,
    }
}
