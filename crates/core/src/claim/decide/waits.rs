//! The steps, waits and endings that several groups of rules share.

use flex_contract::reason;

use super::observed::Observed;
use super::rule::{Decision, Rule, run};
use super::step::Step;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::rules::Rule as _;
use crate::run::decide::{Goal, Outcome, Seen, SeenRun, What, decide};
use crate::run::node::unreachable_message;
use crate::run::rule::Rule as RunRule;
use crate::run::view::Job;

/// Deletes these Jobs, and waits for their end and for that of all processes of attempts. Returns `None` if none is left.
pub(super) fn end_runs<'j>(o: &Observed<'_>, jobs: impl IntoIterator<Item = &'j Job>, now: i64) -> Option<Decision> {
    let runs = jobs.into_iter().map(|job| SeenRun::of_deletion(Some(job), &o.runs.state));
    let runs: Vec<_> = runs.map(|run| SeenRun { is_over: false, ..run }).collect();
    // The watch may not show a new Job yet.
    let is_starting = o.runs.is_in_progress();
    let has_pods = o.runs.has_running_pods || o.runs.jobs.iter().any(|job| !job.is_over);
    let seen = Seen { is_starting, has_pods, ..Seen::of(&runs, None) };
    let Outcome { rule, what, .. } = decide(&Goal::End, &seen, now)?;
    Some(match what {
        What::Remove(job) => run(rule).step(Step::RemoveJob { job: job.name.clone() }),
        _ => wait_for_run(o, run(rule)),
    })
}

/// Records an attempt again whose record somebody has deleted. Once the claim is gone, only its record tells what is left.
pub(super) fn record_again(o: &Observed<'_>) -> Option<Decision> {
    let step = match () {
        () if !o.runs.recorded.is_missing || o.claim.abandoned => return None,
        () if !o.confirmed.fresh => Step::Refresh,
        () if o.is_volume_unsure() => Step::ConfirmNoVolume,
        () => Step::Record,
    };
    Some(Rule::RecordLost.step(step))
}

/// Waits by a rule for the end of a run. If its pod is on a node that does not answer, emits an event instead.
pub(super) fn wait_for_run(o: &Observed<'_>, rule: Rule) -> Decision {
    match o.nodes.states.first_not_reachable(&o.nodes.with_pods) {
        Some(node) => run(RunRule::RunUnreachable).warn(reason::WAITING_FOR_PROVISIONER, unreachable_message(node)),
        None => rule.nothing(),
    }
}

/// Waits for the end of a volume that cannot be adopted any more.
pub(super) fn wait_for_end(volume: &Volume) -> Decision {
    let message = format!("volume {} is being deleted; the claim waits until it is gone", volume.name);
    Rule::VolumeTerminating.warn(reason::WAITING_FOR_PROVISIONER, message)
}

/// Waits for an admin, because nobody knows how to delete what an attempt left.
pub(super) fn cleanup_needs_recipe(claim: &Claim) -> Decision {
    let message = format!(
        "an attempt may have left something behind, but its provisioner config is not known any more; clean up by hand, then {}",
        claim.how_to_abandon()
    );
    Rule::CleanupNeedsRecipe.warn(reason::VOLUME_FAILED_DELETE, message)
}

/// Chooses a step after which the claim has its volume.
pub(super) fn succeeded(rule: Rule, volume: &Volume, step: Step) -> Decision {
    rule.step(step).with_event(reason::PROVISIONING_SUCCEEDED, format!("bound to volume {}", volume.name))
}
