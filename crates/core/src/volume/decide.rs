//! Decides the next step for a volume: a pure function of the observation and the time. The [rules](Rule) say when it
//! takes which step.
//!
//! [`nodes_to_clean`] returns the nodes on which storage is deleted. These are the nodes where attempts before the one
//! that made the volume may have left storage. If the volume is released and its policy is Delete, its own node is
//! among them.

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use crate::config::{NodeGone, Recipe};
use crate::limits;
use crate::model::foreign_metadata::PV_PROTECTION;
use crate::model::volume::Volume;
use crate::rules::Rule as _;
use crate::run;
use crate::run::backoff::delay;
use crate::run::decide::{Goal, Next, NodeOfRun, Outcome, Seen, SeenRun, What, decide_next};
use crate::run::failure::LastFailure;
use crate::run::node::{NodeState, NodeStates, unreachable_message, without};
use crate::run::rule::Target;
use crate::run::state::RunState;
use crate::text::line;
use crate::volume::in_place_run::POD_END_POLL;
use crate::volume::observed::{ClaimState, LeftByOther, Observed};
use crate::volume::rule::{Decision, Rule, Step, StorageOutcome};
use crate::volume::undeletable::{Undeletable, deletable};
use crate::volume::{expand, modify, restored};

/// The time within which the PV controller may still bind a claim to a terminating volume, in seconds: it may have an old
/// copy of the volume.
const BINDING_PATIENCE: i64 = 60;

/// The time that the finalizers of others have before an event names them, in seconds.
const OTHERS_PATIENCE: i64 = 60;

/// Decides the next step for a volume. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    if o.claim_was_bound && !volume.terminating && volume.provenance.is_some() {
        return Rule::ReserveForBoundClaim.step(Step::Reserve);
    }
    // Whatever else is decided, the run would delete what somebody keeps.
    let end = o.unwanted_job.and_then(|_| end_deletion(o, now));
    if let Some(end) = end.filter(|end| end.step != Step::Nothing) {
        return end;
    }
    if let Some(restored) = restored::decide(o) {
        return restored;
    }
    let has_leftovers_on_other_nodes =
        !volume.abandoned && !nodes_to_clean(volume, ClaimState::Alive, o.origin_node).is_empty();
    match o.claim_state {
        // An adoption in progress may have written the record and the finalizer, and no mark yet.
        ClaimState::NoReference if volume.terminating && volume.has_finalizer() => {
            claim_ref_removed(o, has_leftovers_on_other_nodes, now)
        }
        ClaimState::NoReference => Rule::NoClaim.nothing(),
        ClaimState::Awaited if has_leftovers_on_other_nodes => delete_storage(o, now),
        ClaimState::Awaited => Rule::Pooled.nothing(),
        ClaimState::Alive => while_in_use(o, has_leftovers_on_other_nodes, now),
        ClaimState::NotCached => Rule::ConfirmClaimGone.step(Step::ConfirmClaimGone),
        ClaimState::NotFound | ClaimState::BoundToOtherVolume => released(o, has_leftovers_on_other_nodes, now),
    }
}

/// Decides about a terminating volume whose claimRef was removed. No claim released it, and its storage is not
/// deleted.
fn claim_ref_removed(o: &Observed<'_>, has_leftovers_on_other_nodes: bool, now: i64) -> Decision {
    let volume = o.volume;
    if volume.abandoned || (volume.reclaim_policy != ReclaimPolicy::Delete && !has_leftovers_on_other_nodes) {
        if let Some(end) = end_deletion(o, now) {
            return end;
        }
        let message = "the claimRef was removed from this volume before the volume was deleted; its storage is kept";
        let decision = Rule::ClaimRefRemovedRetained.step(Step::RemoveFinalizer);
        return decision.with_warning(reason::STORAGE_ABANDONED, message);
    }
    Undeletable::without_claim_ref(volume).decision()
}

/// Decides about a volume whose claim exists. Attempts before the one that made the volume may have left storage on
/// other nodes.
fn while_in_use(o: &Observed<'_>, has_leftovers_on_other_nodes: bool, now: i64) -> Decision {
    let volume = o.volume;
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    if let Some(end) = o.unwanted_job.and_then(|_| end_deletion(o, now)) {
        return end;
    }
    let is_unprotected = !volume.has_finalizer() && volume.is_adopted();
    if (deletes || has_leftovers_on_other_nodes) && is_unprotected && !volume.terminating {
        return Rule::ProtectVolume.step(Step::AddFinalizer);
    }
    if deletes && is_unprotected {
        let message = format!(
            "the volume was deleted before its reclaim policy was set to Delete: Kubernetes removes the volume together with its claim, and nobody deletes its storage (id {}); write down where the storage is, and delete it by hand when the claim is gone",
            volume.volume_id().unwrap_or_default()
        );
        return Rule::DeletePolicyTooLate.warn(reason::VOLUME_FAILED_DELETE, message);
    }
    if has_leftovers_on_other_nodes {
        let cleaning = delete_storage(o, now);
        return match cleaning.step {
            // Storage on other nodes does not prevent an expansion.
            Step::Nothing => {
                let change = change_in_place(o, now);
                if change.is_idle() {
                    at_the_earlier_time(cleaning, &change)
                } else {
                    at_the_earlier_time(change, &cleaning)
                }
            }
            _ => cleaning,
        };
    }
    if !deletes && volume.has_finalizer() && !volume.terminating {
        return Rule::UnneededFinalizer.step(Step::RemoveFinalizer);
    }
    if volume.terminating && volume.has_finalizer() && volume.quarantine.is_some() && !volume.is_adopted() {
        return Rule::QuarantinedTerminating.step(Step::RemoveFinalizer);
    }
    if is_half_bound_refusal(o) {
        let due = volume.unneeded_since.unwrap_or(now).saturating_add(BINDING_PATIENCE);
        return match now < due {
            true => Rule::QuarantinedHalfBound.nothing().requeue_at(due),
            false => Rule::QuarantinedHalfBound.step(Step::RemoveClaimUid),
        };
    }
    change_in_place(o, now)
}

/// Checks whether an admin deleted a quarantined volume between the two halves of its binding: the PV controller has
/// written the claim's UID on the volume, and not yet the volume's name on the claim. It never binds a terminating
/// volume, and Kubernetes keeps each volume in phase Bound.
fn is_half_bound_refusal(o: &Observed<'_>) -> bool {
    let volume = o.volume;
    volume.terminating
        && volume.quarantine.is_some()
        && !volume.is_adopted()
        && volume.claim_ref_uid().is_some()
        && o.expand.claim.is_some_and(|claim| claim.volume_name.is_none() && !claim.terminating)
}

/// Decides about a volume whose claim is gone, or bound to another volume.
fn released(o: &Observed<'_>, has_leftovers_on_other_nodes: bool, now: i64) -> Decision {
    let volume = o.volume;
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    let keeps = volume.abandoned || !deletes && (!has_leftovers_on_other_nodes || o.unwanted_job.is_some());
    if let Some(end) = end_deletion(o, now).filter(|_| keeps) {
        return end;
    }
    if volume.abandoned && deletes {
        let message = "abandoned by annotation: the provisioner removes the volume and does not delete its storage";
        return removal_without_storage(volume, Rule::Abandoned, message, now);
    }
    if let Some(end) = end_changes(o, now) {
        return end;
    }
    match volume.has_finalizer() {
        _ if deletes || has_leftovers_on_other_nodes => delete_storage(o, now),
        true => Rule::RetainedWithFinalizer.step(Step::RemoveFinalizer),
        false => Rule::Retained.nothing(),
    }
}

/// Ends the delete run of what an admin keeps; `None` if none is left. An abandoned volume waits for no pod on a node, which
/// may be lost.
fn end_deletion(o: &Observed<'_>, now: i64) -> Option<Decision> {
    if o.unwanted_job.is_none() && o.delete_run_state == RunState::NotCached {
        return None;
    }
    let runs = [SeenRun::of_deletion(o.unwanted_job, &o.delete_run_state)];
    let outcome = run::decide::decide(&Goal::End, &Seen::of(&runs, not_reachable(o)), now)?;
    let rule = Rule::Run(Target::Storage, outcome.rule);
    let is_let_go = o.volume.abandoned && (o.unwanted_job.is_some() || !o.nodes_with_pods.is_empty());
    match outcome.what {
        // The Job may be that of a claim, and its end no event of the volume.
        What::Remove(job) => Some(rule.step(Step::RemoveJob { job: job.name.clone() }).requeue_at(now + POD_END_POLL)),
        _ if is_let_go => None,
        _ => Some(waiting(rule, not_reachable(o)).requeue_at(now + POD_END_POLL)),
    }
}

/// Ends the runs that change a volume; `None` if none is left.
fn end_changes(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let (rule, remove) = match o.expand.runs.end(now) {
        Some((rule, job)) => {
            let remove = job.map(|job| Step::Expand(expand::Step::RemoveJob { job }));
            (Rule::Expand(expand::Rule::Run(Target::Size, rule)), remove)
        }
        None => {
            let (rule, job) = o.modify.runs.end(now)?;
            let remove = job.map(|job| Step::Modify(modify::Step::RemoveJob { job }));
            (Rule::Modify(modify::Rule::Run(Target::Attributes, rule)), remove)
        }
    };
    Some(match remove {
        Some(step) => rule.step(step),
        None => waiting(rule, not_reachable(o)).requeue_at(now + POD_END_POLL),
    })
}

/// Returns a decision with the earlier of its time and that of another.
fn at_the_earlier_time(decision: Decision, other: &Decision) -> Decision {
    Decision { requeue_at: decision.requeue_at.into_iter().chain(other.requeue_at).min(), ..decision }
}

/// Decides about size and attributes, one after the other, because a volume has only one run at a time. Nothing changes a
/// volume before its claim has adopted it.
fn change_in_place(o: &Observed<'_>, now: i64) -> Decision {
    let unchanged = || Rule::InUse.nothing();
    if !o.volume.is_adopted() {
        return unchanged();
    }
    let attributes = || modify::decide(o.volume, &o.modify, now).map(Decision::from);
    if o.modify.runs.is_in_progress() {
        return attributes().unwrap_or_else(unchanged);
    }
    let size = expand::decide(o.volume, &o.expand, now).map(Decision::from);
    let is_busy = |size: &Decision| !matches!(size.step, Step::Nothing | Step::Expand(expand::Step::Nothing));
    if size.as_ref().is_some_and(is_busy) || o.expand.runs.is_in_progress() {
        return size.unwrap_or_else(unchanged);
    }
    match (size, attributes()) {
        (None, None) => unchanged(),
        (Some(decision), None) | (None, Some(decision)) => decision,
        (Some(size), Some(attributes)) if attributes.is_idle() => at_the_earlier_time(size, &attributes),
        (Some(size), Some(attributes)) => at_the_earlier_time(attributes, &size),
    }
}

/// Returns the nodes on which storage must be deleted. The volume was made on `origin_node`. If the volume is in use or
/// must stay, its own storage is never deleted. Storage on no particular node is not in the list.
pub fn nodes_to_clean(volume: &Volume, claim: ClaimState, origin_node: Option<&str>) -> Vec<String> {
    let nodes_with_storage = if volume.is_adopted() { volume.nodes_with_storage.clone() } else { Vec::new() };
    let deletes_own_storage = matches!(claim, ClaimState::NotFound | ClaimState::BoundToOtherVolume)
        && volume.reclaim_policy == ReclaimPolicy::Delete;
    match (deletes_own_storage, origin_node) {
        (true, _) if nodes_with_storage.is_empty() => origin_node.map(str::to_owned).into_iter().collect(),
        (true, _) => nodes_with_storage,
        // If the volume has no node of its own, its storage cannot be distinguished from that of earlier attempts.
        (false, None) => Vec::new(),
        (false, Some(origin_node)) => without(&nodes_with_storage, origin_node),
    }
}

/// Returns the node on which storage is deleted next; `None` for any.
pub fn next_node(
    volume: &Volume,
    claim: ClaimState,
    origin_node: Option<&str>,
    node_states: &NodeStates,
) -> Option<String> {
    node_states.first(&nodes_to_clean(volume, claim, origin_node)).cloned()
}

/// Deletes storage, on one node after the other.
fn delete_storage(o: &Observed<'_>, now: i64) -> Decision {
    let recipe = match deletable(o.volume, o.recipe.as_ref().copied(), o.claim_state.is_in_use()) {
        Ok(recipe) => recipe,
        Err(undeletable) => return undeletable.decision(),
    };
    // While a claim uses the volume, only storage on other nodes is deleted. A provision pod that may still run is on
    // the volume's own node, because the pods of earlier attempts have ended.
    if o.has_running_provision_pods && !o.claim_state.is_in_use() {
        return waiting(Rule::ProvisionPodRunning, not_reachable(o)).requeue_at(now + POD_END_POLL);
    }
    match o.left_by_other {
        Some(LeftByOther { recipe, node }) => delete_run(o, recipe, node, now),
        None => {
            let node = next_node(o.volume, o.claim_state, o.origin_node, o.node_states);
            delete_run(o, recipe, node.as_deref(), now)
        }
    }
}

/// Returns the node of a pod, if it does not answer.
fn not_reachable<'a>(o: &Observed<'a>) -> Option<&'a str> {
    o.node_states.first_not_reachable(o.nodes_with_pods).map(String::as_str)
}

/// Waits. Emits an event if a pod is on a node that does not answer.
fn waiting(rule: Rule, unreachable: Option<&str>) -> Decision {
    match unreachable {
        Some(node) => rule.warn(reason::VOLUME_FAILED_DELETE, unreachable_message(node)),
        None => rule.nothing(),
    }
}

/// Decides about the delete run on a node.
fn delete_run(o: &Observed<'_>, recipe: &Recipe, node: Option<&str>, now: i64) -> Decision {
    let volume = o.volume;
    if let Some((origin, other)) = o.origin_node.zip(o.other_node)
        && may_delete_on_wrong_node(o, node)
        && !matches!(o.delete_run_state, RunState::MayBeRunning)
    {
        let is_gone = o.node_states.state(origin) == NodeState::NotFound;
        return Undeletable::on_other_node(volume, origin, other, is_gone, o.claim_state.is_in_use()).decision();
    }
    let node_of_run = |name| NodeOfRun { name, state: o.node_states.state(name), gone: o.node_gone_policy };
    let next = Next {
        due: last_failure(volume).map_or(now, |failure| failure.next_deletion(recipe, volume.retry, now)),
        poll: None,
        has_slot: true,
        is_prepared: preparation(volume).is_none(),
        node: node.map(node_of_run),
    };
    let is_outdated = o.delete_job.is_some_and(|job| job.batch.is_none() && job.recipe_version != recipe.version());
    let runs = [SeenRun { is_outdated, ..SeenRun::of_deletion(o.delete_job, &o.delete_run_state) }];
    let seen = Seen::of(&runs, not_reachable(o));
    of_run(o, recipe, node, decide_next(&next, &seen, now), now)
}

/// Returns the failure of the last delete run.
fn last_failure(volume: &Volume) -> Option<&LastFailure> {
    volume.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete)
}

/// Decides what must be done before a delete run begins; `None` if nothing must.
fn preparation(volume: &Volume) -> Option<Decision> {
    // The volume must not vanish while its storage is being deleted.
    (!volume.has_finalizer() && !volume.terminating).then(|| Rule::ProtectReleasedVolume.step(Step::AddFinalizer))
}

/// Decides what follows from a decision about the delete run on a node.
fn of_run(o: &Observed<'_>, recipe: &Recipe, node: Option<&str>, outcome: Outcome<'_>, now: i64) -> Decision {
    let attempt = o.volume.delete_attempt();
    let of_run = Rule::Run(Target::Storage, outcome.rule);
    let decision = match outcome.what {
        // A run that is being stopped because it was stuck waits for no node.
        What::Wait { run: Some(run), unreachable } if !matches!(run.state, RunState::Stuck { .. }) => {
            waiting(of_run, unreachable)
        }
        What::Stuck { cause, .. } => {
            let why = o.node_states.why_stuck(node, &cause.message);
            of_run.warn(reason::VOLUME_FAILED_DELETE, format!("delete run: {why}"))
        }
        What::Remove(job) => of_run.step(Step::RemoveJob { job: job.name.clone() }),
        What::Succeeded(_) if o.left_by_other.is_none() => after_node(o, node, StorageOutcome::Deleted, now),
        What::Failed { cause, at, .. } => {
            let failure = LastFailure::of_delete_run(attempt, at, cause, last_failure(o.volume)).with_recipe(recipe);
            // The volume's own storage is deleted already, so an admin who abandons the volume gives up only that of earlier configs.
            let of = if o.left_by_other.is_some() { " for what an earlier config may have left" } else { "" };
            let message =
                format!("delete run {attempt}{of} failed: {}; next try in {} s", cause.message, delay(recipe, attempt));
            of_run.step(Step::RecordFailure(failure)).with_warning(reason::VOLUME_FAILED_DELETE, message)
        }
        What::Prepare => preparation(o.volume).unwrap_or_else(|| of_run.nothing()),
        What::ConfirmNode(node) => of_run.step(Step::ConfirmNode { node: node.to_owned() }),
        What::NodeGone(node) => node_gone(o, of_run, node, now),
        // A run on another node could delete the volume's own storage, which is in use.
        What::Start { on_any_node: true } if o.claim_state.is_in_use() => Rule::NodeGoneWhileInUse.nothing(),
        What::Start { on_any_node } => {
            of_run.step(Step::StartDelete { attempt, node: node.map(str::to_owned), on_any_node })
        }
        What::Succeeded(_) | What::Wait { .. } | What::WaitForSlot => of_run.nothing(),
    };
    Decision { requeue_at: decision.requeue_at.or(outcome.requeue_at), ..decision }
}

/// Decides what follows after the node of a delete run is gone: forgets it, or waits for it.
fn node_gone(o: &Observed<'_>, rule: Rule, node: &str, now: i64) -> Decision {
    if o.node_gone_policy == NodeGone::Forget {
        let message = format!("node {node} is gone, and with it the storage there (node-gone: forget)");
        let step = after_node(o, Some(node), StorageOutcome::LeftBehind, now).step;
        return rule.step(step).with_warning(reason::STORAGE_ABANDONED, message);
    }
    Undeletable::on_gone_node(o.volume, node).decision()
}

/// Checks whether a delete run on a node may be on a wrong one, because record and node affinity of the volume disagree.
/// While the volume is in use, that is any node: what seems to be left of an attempt may be the volume itself.
fn may_delete_on_wrong_node(o: &Observed<'_>, node: Option<&str>) -> bool {
    node.is_some() && (o.claim_state.is_in_use() || node == o.origin_node && !is_reached_from_elsewhere(o))
}

/// Checks whether the node of the volume may be gone, and runs on other nodes may delete its storage.
fn is_reached_from_elsewhere(o: &Observed<'_>) -> bool {
    let may_be_gone = |node| matches!(o.node_states.state(node), NodeState::NotCached | NodeState::NotFound);
    o.node_gone_policy == NodeGone::RunElsewhere && o.origin_node.is_some_and(may_be_gone)
}

/// Decides what follows after the storage on a node is gone: marks the node as clean. After the last node, the volume is
/// deleted if its policy says so. `storage` says whether a run deleted the storage.
fn after_node(o: &Observed<'_>, node: Option<&str>, storage: StorageOutcome, now: i64) -> Decision {
    let nodes = nodes_to_clean(o.volume, o.claim_state, o.origin_node);
    if nodes.iter().any(|other| Some(other.as_str()) != node) || o.claim_state.is_in_use() {
        let with_storage = &o.volume.nodes_with_storage;
        let nodes_left = node.map_or_else(|| with_storage.clone(), |node| without(with_storage, node));
        return Rule::NodeCleaned.step(Step::MarkNodeClean { nodes_left });
    }
    match o.volume.reclaim_policy {
        ReclaimPolicy::Delete => removal(o.volume, Rule::StorageDeleted, storage, now),
        _ => Rule::RetainedCleaned.step(Step::MarkNodeClean { nodes_left: Vec::new() }),
    }
}

/// Deletes a volume by a rule. A terminating volume is not deleted again while finalizers of others keep it.
fn removal(volume: &Volume, rule: Rule, storage: StorageOutcome, now: i64) -> Decision {
    match volume.terminating && !volume.has_finalizer() {
        true => kept_by_others(volume, now),
        false => rule.step(Step::DeleteVolume { storage }),
    }
}

/// Waits for the finalizers of others. Says after a while which of them keep the volume: their programs may be gone.
fn kept_by_others(volume: &Volume, now: i64) -> Decision {
    let others: Vec<&str> =
        volume.finalizers.iter().map(String::as_str).filter(|finalizer| *finalizer != PV_PROTECTION).collect();
    let since = volume.unneeded_since.filter(|_| !others.is_empty());
    match since.map(|since| since.saturating_add(OTHERS_PATIENCE)) {
        None => Rule::KeptByOtherFinalizers.nothing(),
        Some(due) if now < due => Rule::KeptByOtherFinalizers.nothing().requeue_at(due),
        Some(_) => Rule::KeptByOtherFinalizers.warn(
            reason::VOLUME_FAILED_DELETE,
            format!(
                "the provisioner is done with this volume, but finalizers of others keep it: {}; their programs remove them, or an admin does once these programs are gone",
                line(&others.join(", "), limits::MISMATCH)
            ),
        ),
    }
}

/// Deletes a volume by a rule, but not its storage, and says so in an event.
fn removal_without_storage(volume: &Volume, rule: Rule, message: &str, now: i64) -> Decision {
    match removal(volume, rule, StorageOutcome::LeftBehind, now) {
        kept if kept.step == Step::Nothing => kept,
        removed => removed.with_warning(reason::STORAGE_ABANDONED, message),
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
