//! Decides the next step for a volume: a pure function of the observation and the time.
//!
//! The first row that holds applies. "Held" means that the volume has the orchestrator's finalizer.
//!
//! | # | the volume | and | step |
//! |---|---|---|---|
//! | 1 | does not belong to the orchestrator | | nothing |
//! | 1a | is terminating, and somebody removed its claimRef | its policy is not Delete, or an admin has set the abandon annotation | [`Step::RemoveFinalizer`]; else an event |
//! | 2 | belongs to a claim that exists | is adopted and not held, and must be deleted later or was left on other nodes | [`Step::AddFinalizer`] |
//! | 2a | belongs to a claim that exists | is adopted and not held, must be deleted later, and is already terminating | an event: its storage stays |
//! | 3 | belongs to a claim that exists, or is pooled | is adopted, and attempts may have left storage on other nodes | as from row 11, there; its size may change meanwhile, as in row 5 |
//! | 4 | belongs to a claim that exists | its policy is not Delete, and it is held and not terminating: held, it would vanish under its claim | [`Step::RemoveFinalizer`] |
//! | 5 | belongs to a claim that exists | | its size and attributes may change, by the tables in [`expand`] and [`modify`], else the claim decides; [`Step::RemoveFinalizer`] if an admin deletes a quarantined volume |
//! | 5a | was restored without its adoption mark | its claim is not adopting it now | [`Step::Reserve`] if no claim has it; else an event ([`restored`]) |
//! | 5b | has provenance | is reserved by name for a claim that was bound to it before | [`Step::Reserve`], with the claim's UID |
//! | 6 | has lost its claim, by the cache alone | | [`Step::ConfirmClaimGone`] |
//! | 7 | is released | an admin has set the abandon annotation | [`Step::DeleteVolume`] if its policy is Delete, else [`Step::RemoveFinalizer`] |
//! | 8 | is released, or its claim is bound to another volume | an expand or modify run is left | [`expand::Step::RemoveJob`], and wait for its end |
//! | 9 | is released, policy not Delete | no storage is left on other nodes | [`Step::RemoveFinalizer`] if it is held |
//! | 10 | is released | has an id that no run can have, is not named after its id, has no readable provenance, or was never adopted and no known run made it | an event |
//! | 11 | | a provision pod of its claim may still run | wait for its end |
//! | 12 | is not held | no delete run is in progress | [`Step::AddFinalizer`] |
//! | 13 | | the next node is not in the cache | [`Step::ConfirmNode`] |
//! | 14 | | the next node is gone | by `node-gone`: an event; [`Step::MarkNodeClean`]; or as the next row, on another node |
//! | 15 | | the delete run is absent, stuck by a config that has changed, failed, or done | [`Step::StartDelete`], [`Step::RemoveJob`], [`Step::RecordFailure`], or [`Step::MarkNodeClean`]; after the last node [`Step::DeleteVolume`] |
//! | 16 | must be deleted | is terminating and not held any more | nothing: finalizers of others keep it |
//!
//! [`nodes_to_clean`] returns the nodes on which storage is deleted. While the claim exists, these are the nodes where
//! attempts before the one that made the volume may have left storage. Afterwards the volume's own node is among them.

use flex_contract::names::{self, reason};
use flex_contract::request::Operation;

use crate::config::{NodeGone, Recipe};
use crate::model::volume::Volume;
use crate::model::volume::is_run_id;
use crate::node::{NodeState, NodeStates, unreachable_message, without};
use crate::object::ObjectName;
use crate::run::backoff::{clamp_to_recent, delay};
use crate::run::failure::LastFailure;
use crate::run::state::RunState;
use crate::run::view::Job;
use crate::volume::{expand, modify, restored};

/// The delay after which a volume without a claim checks again for the end of a pod, in seconds. The event of the pod
/// requeues only the claim.
const POD_END_POLL: i64 = 5;

/// The claim to which a volume refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The volume refers to no claim, or is only reserved.
    None,
    /// The claim exists, with the UID that the volume knows.
    Alive,
    /// The volume is pooled, so that a claim may get it at any time.
    Awaited,
    /// The claim exists, and is bound to another volume.
    Elsewhere,
    /// The cache does not have the claim.
    Missing,
    /// The API does not have the claim.
    Gone,
}

impl ClaimState {
    /// Checks whether a claim uses the volume, or will.
    fn is_in_use(self) -> bool {
        matches!(self, ClaimState::Alive | ClaimState::Awaited)
    }
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// The volume belongs to this orchestrator.
    pub ours: bool,
    /// The claim of the volume.
    pub claim: ClaimState,
    /// The claim for which the volume is reserved by name was bound to it before, as after a restore.
    pub claim_was_bound: bool,
    /// The recipe in the volume's provenance, with the program of its class; or the reason why it cannot be read.
    pub recipe: Result<&'a Recipe, String>,
    /// A provision run with the volume's id is known.
    pub run_known: bool,
    /// A pod of a provision run for the volume may still be running.
    pub has_running_pods: bool,
    /// The nodes of all pods that may still be running, whatever their run.
    pub nodes_with_pods: &'a [String],
    /// The states of the nodes that the volume and its pods depend on.
    pub node_states: &'a NodeStates,
    /// The node where the volume was made, if that matters.
    pub home_node: &'a str,
    /// The class's present treatment of nodes that are gone.
    pub node_gone: NodeGone,
    /// The delete run on the node of [`next_node`].
    pub run: RunState,
    /// The Job of that delete run.
    pub delete_job: Option<&'a Job>,
    /// The observation about the volume's size.
    pub expansion: expand::Observed<'a>,
    /// The observation about the volume's attributes.
    pub modification: modify::Observed<'a>,
}

/// The next step for a volume.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Adds the finalizer.
    AddFinalizer,
    /// Removes the finalizer. The storage stays.
    RemoveFinalizer,
    /// Reserves the volume for the claim that it had, so that no other claim gets it.
    Reserve,
    /// Asks the API, not the cache, whether the claim is gone, and decides again.
    ConfirmClaimGone,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Creates the Job of a delete run.
    StartDelete {
        /// The number of the delete run, from 1.
        attempt: u32,
        /// The node whose storage the run deletes; empty for no particular node.
        node: String,
        /// The run need not be on that node, because the node is gone.
        on_any_node: bool,
    },
    /// Deletes the Job of a stuck delete run with its pods, because the config has changed since.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
    /// Removes a clean node from the volume's list.
    MarkNodeClean {
        /// The names of the nodes that remain.
        nodes: Vec<String>,
    },
    /// Records that a delete run failed, and emits an event.
    RecordFailure(LastFailure),
    /// A step of the expansion: a run, a report, or a clean-up.
    Expand(expand::Step),
    /// A step of the modification: a run, a report, or a clean-up.
    Modify(modify::Step),
    /// Deletes the volume and removes the finalizer, because its storage is deleted.
    DeleteVolume,
}

/// A decision about a volume: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

fn needs_manual_cleanup(why: &str) -> Decision {
    let message = format!(
        "the storage cannot be deleted: {why}; clean up by hand, then annotate the volume with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, message)
}

/// Decides the next step for a volume. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    if !o.ours {
        return Step::Nothing.into();
    }
    let deletes = volume.reclaim_policy == "Delete";
    if o.claim_was_bound && !volume.deleting && volume.provenance.is_some() {
        return Step::Reserve.into();
    }
    if let Some(restored) = restored::decide(o) {
        return restored;
    }
    let elsewhere = !volume.abandoned && !nodes_to_clean(volume, ClaimState::Alive, o.home_node).is_empty();
    match o.claim {
        ClaimState::None if volume.deleting && volume.has_finalizer() && volume.is_adopted() => {
            return lost_claim_ref(volume, elsewhere);
        }
        ClaimState::None => return Step::Nothing.into(),
        ClaimState::Awaited if elsewhere => return clean_nodes(o, now),
        ClaimState::Awaited => return Step::Nothing.into(),
        ClaimState::Alive
            if (deletes || elsewhere) && !volume.has_finalizer() && volume.is_adopted() && !volume.deleting =>
        {
            return Step::AddFinalizer.into();
        }
        ClaimState::Alive if deletes && !volume.has_finalizer() && volume.is_adopted() => {
            let message = format!(
                "policy Delete came too late: somebody deleted the volume under another policy, so Kubernetes removes it with its claim, and its storage (id {}) stays; note where it is, and clean up by hand",
                volume.id().unwrap_or_default()
            );
            return Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, message);
        }
        // Storage on other nodes does not prevent an expansion.
        ClaimState::Alive if elsewhere => {
            let clean_nodes = clean_nodes(o, now);
            return if clean_nodes.step == Step::Nothing {
                clean_nodes.or(change_size_or_attributes(o, now))
            } else {
                clean_nodes
            };
        }
        ClaimState::Alive if !deletes && volume.has_finalizer() && !volume.deleting => {
            return Step::RemoveFinalizer.into();
        }
        // An admin deletes a quarantined volume. Its claim is still responsible for the storage.
        ClaimState::Alive
            if volume.deleting && volume.has_finalizer() && volume.quarantine.is_some() && !volume.is_adopted() =>
        {
            return Step::RemoveFinalizer.into();
        }
        ClaimState::Alive => return change_size_or_attributes(o, now),
        ClaimState::Missing => return Step::ConfirmClaimGone.into(),
        ClaimState::Gone | ClaimState::Elsewhere => {}
    }
    if volume.abandoned && deletes {
        let message = "released by annotation; the provisioner did not delete its storage";
        return match removal(volume) {
            Step::Nothing => Step::Nothing.into(),
            step => Decision::warning(step, reason::VOLUME_FAILED_DELETE, message),
        };
    }
    let of_size = o.expansion.runs.stopping(|job| expand::Step::RemoveJob { job }, now);
    let of_attributes = || o.modification.runs.stopping(|job| modify::Step::RemoveJob { job }, now);
    let stopping = of_size.map(|stop| stop.as_part_of(Step::Expand));
    if let Some(wait) = stopping.or_else(|| of_attributes().map(|stop| stop.as_part_of(Step::Modify))) {
        return if wait.step == Step::Nothing { unreachable_node(o).or(wait) } else { wait };
    }
    if !deletes && !elsewhere {
        return if volume.has_finalizer() { Step::RemoveFinalizer.into() } else { Step::Nothing.into() };
    }
    clean_nodes(o, now)
}

/// Decides row 1a. No claim released the volume, so that its storage is not deleted.
fn lost_claim_ref(volume: &Volume, elsewhere: bool) -> Decision {
    if volume.abandoned || (volume.reclaim_policy != "Delete" && !elsewhere) {
        let message = "somebody removed its claimRef before it was deleted; the provisioner did not delete its storage";
        return Decision::warning(Step::RemoveFinalizer, reason::VOLUME_FAILED_DELETE, message);
    }
    needs_manual_cleanup("it was deleted while it had no claimRef, so no claim has released it")
}

/// Decides about size and attributes, one after the other, because a volume has only one run at a time.
fn change_size_or_attributes(o: &Observed<'_>, now: i64) -> Decision {
    let attributes = || modify::decide(o.volume, &o.modification, now).as_part_of(Step::Modify);
    if o.modification.runs.is_in_progress() {
        return attributes();
    }
    let size = expand::decide(o.volume, &o.expansion, now).as_part_of(Step::Expand);
    let acts = !matches!(size.step, Step::Nothing | Step::Expand(expand::Step::Nothing));
    if acts || o.expansion.runs.is_in_progress() { size } else { attributes().or(size) }
}

/// Returns the nodes on which storage must be deleted; `home` is where the volume was made. If the volume is in use or
/// must stay, its own storage is never deleted.
pub fn nodes_to_clean(volume: &Volume, claim: ClaimState, home: &str) -> Vec<String> {
    let noted = if volume.is_adopted() { volume.nodes.clone() } else { Vec::new() };
    let released = matches!(claim, ClaimState::Gone | ClaimState::Elsewhere) && volume.reclaim_policy == "Delete";
    match (released, noted.is_empty()) {
        (true, true) => vec![home.to_owned()],
        (true, false) => noted,
        // Without a node of its own, the volume's storage cannot be distinguished from that on other nodes.
        (false, _) if home.is_empty() => Vec::new(),
        (false, _) => without(&noted, home),
    }
}

/// Returns the node on which storage is deleted next; empty for any.
pub fn next_node(volume: &Volume, claim: ClaimState, home: &str, node_states: &NodeStates) -> String {
    node_states.first(&nodes_to_clean(volume, claim, home)).cloned().unwrap_or_default()
}

/// Decides rows 10 to 16.
fn clean_nodes(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    // A deletion by this id would delete the storage of the volume that is named after the id. That volume may be in
    // use or retained.
    match volume.id() {
        None => return needs_manual_cleanup("it has no volume id"),
        Some(id) if !is_run_id(id) => return needs_manual_cleanup("its volume id is not one that a run can have"),
        Some(id) if volume.name != names::pv_name(id) => {
            return needs_manual_cleanup(&format!(
                "its name is not {}, which is the name of the volume with the id {id}",
                names::pv_name(id)
            ));
        }
        Some(_) => {}
    }
    if !volume.is_adopted() && !volume.was_made_by_known_run(o.run_known) {
        return needs_manual_cleanup("it was never adopted, and no run is known to have made it");
    }
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return needs_manual_cleanup(why),
    };
    // Pods of an existing claim concern its own node, and earlier ones have ended.
    if o.has_running_pods && !o.claim.is_in_use() {
        return unreachable_node(o).requeue_at(now + POD_END_POLL);
    }
    deleting(o, recipe, now)
}

/// Waits. Emits an event if a pod is on a node that does not answer.
fn unreachable_node(o: &Observed<'_>) -> Decision {
    match o.node_states.unreachable_node(o.nodes_with_pods) {
        Some(node) => Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, unreachable_message(node)),
        None => Step::Nothing.into(),
    }
}

/// Decides rows 12 to 16.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let volume = o.volume;
    let node = next_node(volume, o.claim, o.home_node, o.node_states);
    let last = volume.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = volume.delete_attempt();
    match &o.run {
        RunState::Absent => {
            let waits = last.filter(|failure| !failure.is_from_other_config(recipe));
            let due = waits.map_or(now, |failure| failure.at.saturating_add(delay(recipe, failure.attempt)));
            if now < due {
                return Decision::from(Step::Nothing).requeue_at(due);
            }
            // The volume must not vanish while its storage is being deleted.
            if !volume.has_finalizer() && !volume.deleting {
                return Step::AddFinalizer.into();
            }
            start(o, attempt, node)
        }
        RunState::Running => unreachable_node(o),
        RunState::Stuck { .. } if o.delete_job.is_some_and(|job| job.deleting) => Step::Nothing.into(),
        RunState::Stuck { cause, .. } => {
            let outdated = o.delete_job.filter(|job| job.batch.is_none() && job.config != recipe.version());
            if let Some(job) = outdated {
                return Step::RemoveJob { job: job.name.clone() }.into();
            }
            Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, format!("delete run: {}", cause.message))
        }
        RunState::Succeeded => node_clean(o, &node),
        RunState::Failed { pods_ended: false, .. } => unreachable_node(o),
        RunState::Failed { cause, at, .. } => {
            let failure = LastFailure::of_delete(attempt, clamp_to_recent(*at, now), cause, last).by(recipe);
            let message =
                format!("delete run {attempt} failed: {}; next try in {} s", cause.message, delay(recipe, attempt));
            Decision::warning(Step::RecordFailure(failure), reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

/// Marks a node as clean.
fn node_clean(o: &Observed<'_>, node: &str) -> Decision {
    match nodes_to_clean(o.volume, o.claim, o.home_node).iter().any(|other| other != node) || o.claim.is_in_use() {
        true => Step::MarkNodeClean { nodes: without(&o.volume.nodes, node) }.into(),
        false => last(o),
    }
}

/// Decides the end of the last node: a volume that must stay stays.
fn last(o: &Observed<'_>) -> Decision {
    match o.volume.reclaim_policy.as_str() {
        "Delete" => removal(o.volume).into(),
        _ => Step::MarkNodeClean { nodes: Vec::new() }.into(),
    }
}

/// Decides row 16. A terminating volume is not deleted again while finalizers of others keep it.
fn removal(volume: &Volume) -> Step {
    if volume.deleting && !volume.has_finalizer() { Step::Nothing } else { Step::DeleteVolume }
}

/// Starts a delete run on its node. If that node is gone, follows the class's `node-gone`.
fn start(o: &Observed<'_>, attempt: u32, node: String) -> Decision {
    match (o.node_states.state(&node), o.node_gone) {
        (NodeState::Ready | NodeState::Unreachable, _) => {
            Step::StartDelete { attempt, node, on_any_node: false }.into()
        }
        (NodeState::Missing, _) => Step::ConfirmNode { node }.into(),
        // The other node may be that of the volume, which is in use.
        (NodeState::Gone, NodeGone::RunElsewhere) if o.claim.is_in_use() => Step::Nothing.into(),
        (NodeState::Gone, NodeGone::RunElsewhere) => Step::StartDelete { attempt, node, on_any_node: true }.into(),
        (NodeState::Gone, NodeGone::Forget) => {
            let message = format!("node {node} is gone, and with it the storage there (node-gone: forget)");
            let step = node_clean(o, &node).step;
            Decision::warning(step, reason::VOLUME_FAILED_DELETE, message)
        }
        (NodeState::Gone, NodeGone::Hold) => {
            let message = format!(
                "node {node}, where something must be deleted, is gone; the provisioner deletes it when the node is back. If the node does not come back, set `node-gone` in the provisioner config, or annotate the volume with {}={}",
                names::ABANDON,
                names::ABANDON_YES
            );
            Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
