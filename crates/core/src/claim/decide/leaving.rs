//! Decisions about claims that are terminating or have another volume: the orchestrator undoes their attempts.

use flex_contract::names::{self, reason};
use flex_contract::request::Operation;

use super::adoption::{
    adopted, claimed_by_other, is_claimed_by_other, is_terminating_without_finalizer, transferred, wait_for_end,
};
use super::pooled::complete_pool_request;
use super::unstarted::{has_no_leftovers, unrecorded};
use super::{
    Decision, Observed, ServedClass, Step, cleanup_node, finalizer_refused, recipe, unknown, unreachable_node,
};
use crate::config::{NodeGone, Recipe};
use crate::node::{NodeState, without};
use crate::run::backoff::{clamp_to_recent, delay};
use crate::run::failure::LastFailure;
use crate::run::state::RunState;

/// Decides rows 7 to 16 for a claim that is terminating or has another volume.
pub(super) fn leaving(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    if claim.abandoned {
        return Decision::from(Step::RemoveFinalizer).with_warning(
            reason::VOLUME_FAILED_DELETE,
            "released by annotation; the provisioner did not delete what an attempt left behind",
        );
    }
    // A pooled volume does not depend on its request, whatever the run that made it does now.
    if let Some(done) = complete_pool_request(o).filter(|done| done.step == Step::RemoveFinalizer) {
        return done;
    }
    if let Some(failure) = unrecorded(o, now) {
        return Step::RecordFailure { failure }.into();
    }
    if let Some(wait) = wait_for_processes(o) {
        return wait;
    }
    let volumes = || o.volumes.iter().map(|candidate| candidate.volume);
    if transferred(o).is_some() {
        return Step::RemoveFinalizer.into();
    }
    if let Some(volume) = volumes().find(|volume| is_claimed_by_other(o, volume)) {
        return claimed_by_other(o, volume);
    }
    // A volume with another name is not the claim's: nothing could tell its delete run from that of the right volume.
    if let Some(volume) = volumes().find(|volume| volume.name == names::pv_name(&claim.id())) {
        if !claim.is_named_by(volume) {
            return Decision::wait(
                reason::VOLUME_FAILED_DELETE,
                format!(
                    "volume {} has the name of this claim's volume, but its annotation {} names another; delete that volume, then the provisioner deletes what an attempt left behind",
                    volume.name,
                    names::CLAIM_UUID
                ),
            );
        }
        if is_terminating_without_finalizer(volume) && volume.phase == "Bound" && claim.deleting {
            // Kubernetes keeps the volume as long as its claim exists. One of the two must be released first.
            return match recipe(o) {
                Some(recipe) if recipe.reclaim_policy != "Delete" => Step::RemoveFinalizer.into(),
                _ => finalizer_refused(o, now),
            };
        }
        if is_terminating_without_finalizer(volume) {
            return wait_for_end(volume);
        }
        return adopted(o, volume).unwrap_or_else(|| Step::RemoveFinalizer.into());
    }
    if !o.no_volume {
        return Step::ConfirmNoVolume.into();
    }
    if has_no_leftovers(o) {
        return Step::RemoveFinalizer.into();
    }
    match o.delete_recipe {
        Some(recipe) => deleting(o, recipe, now),
        None => unknown(),
    }
}

/// Decides rows 8 to 10: no process of a provision run may be left before its storage is deleted.
pub(super) fn wait_for_processes(o: &Observed<'_>) -> Option<Decision> {
    if let Some(job) = o.jobs.iter().find(|job| !job.deleting) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    // The watch may not show a new Job yet.
    let goes_on = matches!(o.run, RunState::Running | RunState::Stuck { .. });
    (o.has_running_pods || goes_on || !o.jobs.is_empty()).then(|| unreachable_node(o).unwrap_or_else(Decision::nothing))
}

/// Decides row 16.
pub(super) fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let claim = o.claim;
    let last = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = last.map_or(1, |failure| failure.attempt.saturating_add(1));
    let node = cleanup_node(claim, o.node_states);
    match &o.delete_run {
        RunState::Absent => {
            let waits = last.filter(|failure| !failure.is_from_other_config(recipe));
            let due = waits.map_or(now, |failure| failure.at.saturating_add(delay(recipe, failure.attempt)));
            if now < due {
                return Decision::nothing().requeue_at(due);
            }
            start(o, recipe, attempt, node)
        }
        RunState::Running => unreachable_node(o).unwrap_or_else(Decision::nothing),
        RunState::Stuck { .. } if o.delete_job.is_some_and(|job| job.deleting) => Decision::nothing(),
        RunState::Stuck { .. } if o.delete_job.is_some_and(|job| job.config != recipe.version()) => {
            let job = o.delete_job.map(|job| job.name.clone()).unwrap_or_default();
            Step::RemoveJob { job }.into()
        }
        RunState::Stuck { cause, .. } => Decision::wait(
            reason::VOLUME_FAILED_DELETE,
            format!("deleting what an attempt left behind: {}", cause.message),
        ),
        RunState::Succeeded => match o.delete_job.filter(|job| !job.deleting) {
            Some(_) => Step::MarkNodeClean { nodes: without(&claim.nodes, node) }.into(),
            None => Decision::nothing(),
        },
        RunState::Failed { cause, at, pods_ended, .. } => {
            if !pods_ended {
                return unreachable_node(o).unwrap_or_else(Decision::nothing);
            }
            let unstarted_attempts = claim.last_failure.as_ref().map_or(0, |failure| failure.unstarted_attempts);
            let failure = LastFailure::of_delete(attempt, clamp_to_recent(*at, now), cause, last).by(recipe);
            let failure = LastFailure { unstarted_attempts, ..failure };
            let next = delay(recipe, attempt);
            Decision::from(Step::RecordFailure { failure }).with_warning(
                reason::VOLUME_FAILED_DELETE,
                format!(
                    "deleting what an attempt left behind failed (attempt {attempt}): {}; next try in {next} s",
                    cause.message
                ),
            )
        }
    }
}

/// Starts a delete run on its node. If that node is gone, follows the class's `node-gone`.
fn start(o: &Observed<'_>, recipe: &Recipe, attempt: u32, node: &str) -> Decision {
    let begin = |on_any_node| Decision::from(Step::StartDelete { attempt, node: node.to_owned(), on_any_node });
    // The admin decides now about nodes that are gone, not when the attempt began.
    let policy = match o.class {
        ServedClass::Ours(class) => class.recipe.as_ref().map_or(recipe.node_gone, |recipe| recipe.node_gone),
        ServedClass::NotOurs => recipe.node_gone,
    };
    match (o.node_states.state(node), policy) {
        (NodeState::Ready | NodeState::Unreachable, _) => begin(false),
        (NodeState::Missing, _) => Step::ConfirmNode { node: node.to_owned() }.into(),
        (NodeState::Gone, NodeGone::RunElsewhere) => begin(true),
        (NodeState::Gone, NodeGone::Forget) => {
            Decision::from(Step::MarkNodeClean { nodes: without(&o.claim.nodes, node) }).with_warning(
                reason::VOLUME_FAILED_DELETE,
                format!("node {node} is gone, and with it what an attempt may have left there (node-gone: forget)"),
            )
        }
        (NodeState::Gone, NodeGone::Hold) => Decision::wait(
            reason::VOLUME_FAILED_DELETE,
            format!(
                "an attempt may have left something on node {node}, which is gone; the provisioner deletes it when the node is back. If the node does not come back, set `node-gone` in the provisioner config, or annotate the claim with {}={}",
                names::ABANDON,
                names::ABANDON_YES
            ),
        ),
    }
}
