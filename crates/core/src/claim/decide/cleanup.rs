//! Decisions about the delete runs for storage that attempts of a claim left.

use flex_contract::operation::Operation;
use flex_contract::reason;

use super::observed::{Observed, ServedClass};
use super::placement::cleanup_node;
use super::rule::{Decision, Rule};
use super::step::Step;
use crate::config::{NodeGone, Recipe};
use crate::model::claim::Claim;
use crate::rules::Rule as _;
use crate::run::backoff::delay;
use crate::run::decide::{Next, NodeOfRun, Outcome, Seen, SeenRun, What, decide_next};
use crate::run::failure::LastFailure;
use crate::run::node::{unreachable_message, without};
use crate::run::rule::{Rule as RunRule, Target};
use crate::run::state::{Cause, RunState};

/// Decides about the delete run that is due on one of the claim's nodes.
pub(super) fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let claim = o.claim;
    let last = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = last.map_or(1, |failure| failure.attempt.saturating_add(1));
    let node = cleanup_node(claim, &o.nodes.states);
    // The admin decides now about nodes that are gone, not when the attempt began.
    let gone = match o.class {
        ServedClass::Ours(class) => class.recipe.as_ref().map_or(recipe.node_gone, |recipe| recipe.node_gone),
        ServedClass::NotOurs => recipe.node_gone,
    };
    let next = Next {
        due: last.map_or(now, |failure| failure.next_deletion(recipe, claim.retry, now)),
        poll: None,
        has_slot: true,
        is_prepared: true,
        node: node.map(|name| NodeOfRun { name, state: o.nodes.states.state(name), gone }),
    };
    let job = o.deletion.job.as_deref();
    let is_outdated = job.is_some_and(|job| job.recipe_version != recipe.version());
    let run = SeenRun { is_outdated, ..SeenRun::of_deletion(job, &o.deletion.state) };
    // It has undone what another record of the claim names.
    if let Some(job) = run.job.filter(|job| claim.is_stand_in() && is_outdated && run.is_over && !job.terminating) {
        return Rule::Run(Target::Leftover, RunRule::RunOutdated).step(Step::RemoveJob { job: job.name.clone() });
    }
    let runs = [run];
    let unreachable = o.nodes.states.first_not_reachable(&o.nodes.with_pods).map(String::as_str);
    let Outcome { rule, what, requeue_at } = decide_next(&next, &Seen::of(&runs, unreachable), now);
    let rule = Rule::Run(Target::Leftover, rule);
    match what {
        What::Wait { run: Some(run), unreachable: Some(node) } if !matches!(run.state, RunState::Stuck { .. }) => {
            rule.warn(reason::WAITING_FOR_PROVISIONER, unreachable_message(node))
        }
        What::Wait { .. } => Decision { requeue_at, ..rule.nothing() },
        What::Stuck { cause, .. } => {
            let why = o.nodes.states.why_stuck(node, &cause.message);
            rule.warn(reason::VOLUME_FAILED_DELETE, format!("deleting what an attempt left behind: {why}"))
        }
        What::Remove(job) => rule.step(Step::RemoveJob { job: job.name.clone() }),
        What::Succeeded(run) if run.job.is_none_or(|job| job.terminating) => {
            Rule::Run(Target::Leftover, RunRule::RunStopping).nothing()
        }
        What::Succeeded(_) => {
            let nodes_left = node.map(|node| without(&claim.nodes_with_storage, node)).unwrap_or_default();
            rule.step(Step::MarkNodeClean { nodes_left })
        }
        What::Failed { cause, at, .. } => {
            let failure = failed_cleanup(claim, recipe, attempt, at, cause);
            let message = format!(
                "deleting what an attempt left behind failed (attempt {attempt}): {}; next try in {} s",
                cause.message,
                delay(recipe, attempt)
            );
            rule.step(Step::RecordFailure { failure }).with_warning(reason::VOLUME_FAILED_DELETE, message)
        }
        What::ConfirmNode(node) => rule.step(Step::ConfirmNode { node: node.to_owned() }),
        What::NodeGone(node) => node_gone(claim, rule, node, gone),
        What::Start { on_any_node } => {
            rule.step(Step::StartDelete { attempt, node: node.map(str::to_owned), on_any_node })
        }
        What::WaitForSlot | What::Prepare => rule.nothing(),
    }
}

/// Ends the delete run of an abandoned claim; `None` if none is left. Waits for no pod on a node, which may be lost.
pub(super) fn end_deletion(o: &Observed<'_>) -> Option<Decision> {
    let rule = |rule| Rule::Run(Target::Leftover, rule);
    match (&o.deletion.job, &o.deletion.state) {
        (Some(job), _) if !job.terminating => {
            Some(rule(RunRule::RunNotWanted).step(Step::RemoveJob { job: job.name.clone() }))
        }
        // The watch may not show a new Job yet.
        (None, RunState::MayBeRunning) if o.nodes.with_pods.is_empty() => Some(rule(RunRule::RunEnding).nothing()),
        _ => None,
    }
}

/// Makes the record of a clean-up that failed, or whose Job was refused. The counts of attempts stay.
pub fn failed_cleanup(claim: &Claim, recipe: &Recipe, attempt: u32, at: i64, cause: &Cause) -> LastFailure {
    LastFailure::of_delete_run(attempt, at, cause, claim.last_failure.as_ref()).with_recipe(recipe)
}

/// Follows the class's `node-gone` about a node that is gone.
fn node_gone(claim: &Claim, rule: Rule, node: &str, policy: NodeGone) -> Decision {
    if policy == NodeGone::Forget {
        let nodes_left = without(&claim.nodes_with_storage, node);
        let message =
            format!("node {node} is gone, and with it what an attempt may have left there (node-gone: forget)");
        return rule.step(Step::MarkNodeClean { nodes_left }).with_warning(reason::STORAGE_ABANDONED, message);
    }
    let message = format!(
        "an attempt may have left something on node {node}, which is gone; the provisioner deletes it when the node is back. If the node does not come back, set `node-gone` in the provisioner config, or {}",
        claim.how_to_abandon()
    );
    rule.warn(reason::VOLUME_FAILED_DELETE, message)
}
