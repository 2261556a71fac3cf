//! Decisions about the delete runs for storage that attempts of a claim left.

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;

use super::observed::{Observed, ServedClass};
use super::placement::cleanup_node;
use super::rule::{Decision, Rule};
use super::step::Step;
use super::waits::wait_for_run;
use crate::config::{NodeGone, Recipe};
use crate::rules::Rule as _;
use crate::run::backoff::{clamp_to_recent, delay};
use crate::run::failure::LastFailure;
use crate::run::node::{NodeState, without};
use crate::run::state::{Cause, RunState};

/// Decides about the delete run that is due on one of the claim's nodes.
pub(super) fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let claim = o.claim;
    let last = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = last.map_or(1, |failure| failure.attempt.saturating_add(1));
    let node = cleanup_node(claim, o.nodes.states);
    match &o.deletion.state {
        RunState::NotCached => {
            let due = last.map_or(now, |failure| failure.next_deletion(recipe, claim.retry, now));
            match now < due {
                true => Rule::DeleteRunNotDue.nothing().requeue_at(due),
                false => start(o, recipe, attempt, node),
            }
        }
        RunState::MayBeRunning => wait_for_run(o, Rule::DeleteRunInProgress),
        RunState::Stuck { cause, .. } => stuck(o, recipe, node, cause),
        RunState::Succeeded => match o.deletion.job.filter(|job| !job.terminating) {
            Some(_) => {
                let nodes_left = node.map(|node| without(&claim.nodes_with_storage, node)).unwrap_or_default();
                Rule::DeleteRunSucceeded.step(Step::MarkNodeClean { nodes_left })
            }
            None => Rule::DeleteRunStopping.nothing(),
        },
        RunState::Failed { pods_ended: false, .. } => wait_for_run(o, Rule::FailedDeleteRunEnding),
        RunState::Failed { cause, at, .. } => {
            let before = claim.last_failure.as_ref();
            let unstarted_attempts = before.map_or(0, |failure| failure.unstarted_attempts);
            let empty_attempts = before.map_or(0, |failure| failure.empty_attempts);
            let failure =
                LastFailure::of_delete_run(attempt, clamp_to_recent(*at, now), cause, last).with_recipe(recipe);
            let failure = LastFailure { unstarted_attempts, empty_attempts, ..failure };
            let message = format!(
                "deleting what an attempt left behind failed (attempt {attempt}): {}; next try in {} s",
                cause.message,
                delay(recipe, attempt)
            );
            Rule::DeleteRunFailed
                .step(Step::RecordFailure { failure })
                .with_warning(reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

/// Decides about a delete run that cannot progress.
fn stuck(o: &Observed<'_>, recipe: &Recipe, node: Option<&str>, cause: &Cause) -> Decision {
    match o.deletion.job {
        Some(job) if job.terminating => Rule::DeleteRunStopping.nothing(),
        Some(job) if job.recipe_version != recipe.version() => {
            Rule::DeleteRunOutdated.step(Step::RemoveJob { job: job.name.clone() })
        }
        _ => {
            let why = o.nodes.states.why_stuck(node, &cause.message);
            let message = format!("deleting what an attempt left behind: {why}");
            Rule::DeleteRunStuck.warn(reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

/// Starts a delete run on its node. If that node is gone, follows the class's `node-gone`.
fn start(o: &Observed<'_>, recipe: &Recipe, attempt: u32, node: Option<&str>) -> Decision {
    let begin = |on_any_node| Step::StartDelete { attempt, node: node.map(str::to_owned), on_any_node };
    let Some(node) = node else { return Rule::DeleteRunDue.step(begin(false)) };
    // The admin decides now about nodes that are gone, not when the attempt began.
    let policy = match o.class {
        ServedClass::Ours(class) => class.recipe.as_ref().map_or(recipe.node_gone, |recipe| recipe.node_gone),
        ServedClass::NotOurs => recipe.node_gone,
    };
    match (o.nodes.states.state(node), policy) {
        (NodeState::Reachable | NodeState::Unreachable, _) => Rule::DeleteRunDue.step(begin(false)),
        (NodeState::NotCached, _) => Rule::ConfirmNodeGone.step(Step::ConfirmNode { node: node.to_owned() }),
        (NodeState::NotFound, NodeGone::RunElsewhere) => Rule::NodeGoneRunElsewhere.step(begin(true)),
        (NodeState::NotFound, NodeGone::Forget) => {
            let message =
                format!("node {node} is gone, and with it what an attempt may have left there (node-gone: forget)");
            Rule::NodeGoneForget
                .step(Step::MarkNodeClean { nodes_left: without(&o.claim.nodes_with_storage, node) })
                .with_warning(reason::STORAGE_ABANDONED, message)
        }
        (NodeState::NotFound, NodeGone::Hold) => Rule::NodeGoneHold.warn(
            reason::VOLUME_FAILED_DELETE,
            format!(
                "an attempt may have left something on node {node}, which is gone; the provisioner deletes it when the node is back. If the node does not come back, set `node-gone` in the provisioner config, or annotate the claim with {}={}",
                names::ABANDON,
                names::ABANDON_YES
            ),
        ),
    }
}
