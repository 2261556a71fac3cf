//! What is done next for a volume: a pure function of what was observed and of the time.
//!
//! The first row that holds is taken.
//!
//! | # | the volume | and | step |
//! |---|---|---|---|
//! | 1 | is not ours | | nothing |
//! | 1a | has lost its claim by somebody's will, and is being deleted | its policy is not Delete, or an admin lets go of it | [`Step::Unhold`]; else nothing, and told |
//! | 2 | belongs to a claim that lives | is adopted, but not held, and to be deleted once or left on other nodes | [`Step::Hold`] |
//! | 2a | belongs to a claim that lives | is adopted, not held, to be deleted, and being deleted already | nothing, and told: its storage stays |
//! | 3 | belongs to a claim that lives, or is kept ready for one | is adopted, and attempts may have left something on other nodes | as from row 11, there; its size may change meanwhile, as by row 5 |
//! | 4 | belongs to a claim that lives | its policy is not Delete, and it is held, and not going: else it would vanish under its claim | [`Step::Unhold`] |
//! | 5 | belongs to a claim that lives | | its size and its attributes may change, by the tables in [`expand`] and [`modify`], else the claim decides; [`Step::Unhold`] where an admin deletes a quarantined one |
//! | 5a | was restored without the mark of its adoption | its claim does not just adopt it | [`Step::Reserve`] if nobody has it; else nothing, and told ([`restored`]) |
//! | 5b | has provenance, and is reserved by name for a claim that says it was bound to it before | [`Step::Reserve`], with the claim's UID |
//! | 6 | says that its claim is gone, by the cache alone | | [`Step::ConfirmClaimGone`] |
//! | 7 | is released | an admin lets go of it | [`Step::Remove`] if its policy is Delete, else [`Step::Unhold`] |
//! | 8 | is released, or its claim is bound elsewhere | an expand or modify run is left | [`expand::Step::RemoveJob`], and wait for its end |
//! | 9 | is released, policy not Delete | nothing is left on other nodes | [`Step::Unhold`] if it is held |
//! | 10 | is released | has an id that no run can have, is not named after its id, how it was made is not known, or it was never adopted and no run is known to have made it | nothing, and told |
//! | 11 | | a provision pod of its claim may still run | wait for its end |
//! | 12 | is not held | no delete run is under way | [`Step::Hold`] |
//! | 13 | | the next node is not in the cache | [`Step::ConfirmNode`] |
//! | 14 | | the next node is gone | by `node-gone`: nothing, and told; [`Step::SettleNode`]; or as the next row, elsewhere |
//! | 15 | | by the state of the delete run: absent, unable to go on by a config that has changed, failed, done | [`Step::StartDelete`], [`Step::RemoveJob`], [`Step::RecordFailure`], [`Step::SettleNode`], after the last of them [`Step::Remove`] |
//! | 16 | is to be removed | is terminating, and not held by us any more | nothing: others still hold it |
//!
//! Where something is to be deleted is [`todo`]: while the claim lives, on nodes where attempts
//! before the one that made the volume may have left something; afterwards also where it is itself.

use contract::names::{self, reason};
use contract::request::Operation;

use super::{Volume, expand, is_run_id, modify, restored};
use crate::config::{NodeGone, Recipe};
use crate::node::{NodeState, Places, lost_words, without};
use crate::object::ObjectName;
use crate::run::backoff::{just_now, pause};
use crate::run::failure::LastFailure;
use crate::run::state::RunState;
use crate::run::view::Job;

/// The end of a pod concerns its claim; a volume whose claim is gone looks again, in seconds.
const POD_ENDS: i64 = 5;

/// What is known of the claim that a volume refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// It refers to none, or is only reserved.
    None,
    /// It is there, with the UID that the volume knows.
    Alive,
    /// It may come at any time: the volume is kept ready.
    Awaited,
    /// It is there, and bound to another volume.
    Elsewhere,
    /// The cache does not have it.
    Missing,
    /// The API does not have it.
    Gone,
}

impl ClaimState {
    /// The volume is in use, or will be.
    fn needs_it(self) -> bool {
        matches!(self, ClaimState::Alive | ClaimState::Awaited)
    }
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// It is of this orchestrator.
    pub ours: bool,
    /// Its claim.
    pub claim: ClaimState,
    /// The claim that it is reserved for by name says that it was bound to it before, as one does that was restored.
    pub namesake: bool,
    /// How it was made, from its provenance, with the program of its class; or why that cannot be read.
    pub recipe: Result<&'a Recipe, String>,
    /// A provision run of its id is known.
    pub run_known: bool,
    /// A pod of a provision run for it may still be running.
    pub pods_alive: bool,
    /// Where pods are placed that may still be running, of whatever run.
    pub alive_on: &'a [String],
    /// The nodes that the volume and its pods depend on.
    pub places: &'a Places,
    /// Where it was made, if that matters.
    pub home: &'a str,
    /// What the class says now about nodes that are gone.
    pub node_gone: NodeGone,
    /// The delete run on the node of [`next_node`].
    pub run: RunState,
    /// Its Job.
    pub delete_job: Option<&'a Job>,
    /// What concerns its size.
    pub expansion: expand::Observed<'a>,
    /// What concerns its attributes.
    pub modification: modify::Observed<'a>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Nothing; the next event decides again.
    #[default]
    Nothing,
    /// Put the finalizer on.
    Hold,
    /// Take the finalizer off; the storage stays.
    Unhold,
    /// Reserve it for the claim that it had, so that no other gets it.
    Reserve,
    /// Ask the API, not the cache, whether the claim is gone, and decide again.
    ConfirmClaimGone,
    /// Ask the API, not the cache, whether a node exists, and decide again.
    ConfirmNode {
        /// The node.
        node: String,
    },
    /// Create the Job of a delete run.
    StartDelete {
        /// Its number, from 1.
        attempt: u32,
        /// The node whose storage it deletes; empty for none in particular.
        node: String,
        /// It need not run there: the node is gone.
        elsewhere: bool,
    },
    /// Remove the Job of a delete run that cannot go on, with its pods: the config has changed since.
    RemoveJob {
        /// The Job.
        job: ObjectName,
    },
    /// A node is done with: these remain.
    SettleNode {
        /// The nodes that remain.
        nodes: Vec<String>,
    },
    /// Remember that a delete run failed, and tell.
    RecordFailure(LastFailure),
    /// Change its size, tell of it, or clear up after it.
    Expand(expand::Step),
    /// Change its attributes, tell of it, or clear up after it.
    Modify(modify::Step),
    /// Delete the volume and take the finalizer off: its storage is gone.
    Remove,
}

/// A decision about a volume.
pub type Decision = crate::decision::Decision<Step>;

fn by_hand(why: &str) -> Decision {
    let message = format!(
        "the storage cannot be deleted: {why}; clean up by hand, then annotate the volume with {}={}",
        names::ABANDON,
        names::ABANDON_YES
    );
    Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, message)
}

/// The number of the delete run that is due or under way.
pub fn attempt(volume: &Volume) -> u32 {
    volume
        .last_failure
        .as_ref()
        .filter(|failure| failure.operation == Operation::Delete)
        .map_or(1, |failure| failure.attempt.saturating_add(1))
}

/// The next step for a volume. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    if !o.ours {
        return Step::Nothing.into();
    }
    let deletes = volume.reclaim_policy == "Delete";
    if o.namesake && !volume.deleting && volume.provenance.is_some() {
        return Step::Reserve.into();
    }
    if let Some(restored) = restored::decide(o) {
        return restored;
    }
    let elsewhere = !volume.abandoned && !todo(volume, ClaimState::Alive, o.home).is_empty();
    match o.claim {
        ClaimState::None if volume.deleting && volume.is_held() && volume.is_adopted() => {
            return taken_off(volume, elsewhere);
        }
        ClaimState::None => return Step::Nothing.into(),
        ClaimState::Awaited if elsewhere => return clearing(o, now),
        ClaimState::Awaited => return Step::Nothing.into(),
        ClaimState::Alive if (deletes || elsewhere) && !volume.is_held() && volume.is_adopted() && !volume.deleting => {
            return Step::Hold.into();
        }
        ClaimState::Alive if deletes && !volume.is_held() && volume.is_adopted() => {
            let message = format!(
                "policy Delete came too late: somebody deleted the volume under another policy, so Kubernetes removes it with its claim, and its storage (id {}) stays; note where it is, and clean up by hand",
                volume.id().unwrap_or_default()
            );
            return Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, message);
        }
        // What is left on other nodes does not keep it from growing.
        ClaimState::Alive if elsewhere => {
            let clearing = clearing(o, now);
            return if clearing.step == Step::Nothing { clearing.or(sizing(o, now)) } else { clearing };
        }
        ClaimState::Alive if !deletes && volume.is_held() && !volume.deleting => return Step::Unhold.into(),
        // A quarantined volume that an admin deletes. Its claim still answers for the storage.
        ClaimState::Alive
            if volume.deleting && volume.is_held() && volume.quarantine.is_some() && !volume.is_adopted() =>
        {
            return Step::Unhold.into();
        }
        ClaimState::Alive => return sizing(o, now),
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
        return if wait.step == Step::Nothing { lost(o).or(wait) } else { wait };
    }
    if !deletes && !elsewhere {
        return if volume.is_held() { Step::Unhold.into() } else { Step::Nothing.into() };
    }
    clearing(o, now)
}

/// Row 1a. Nobody released it, so that its storage is not deleted.
fn taken_off(volume: &Volume, elsewhere: bool) -> Decision {
    if volume.abandoned || (volume.reclaim_policy != "Delete" && !elsewhere) {
        let message = "somebody removed its claimRef before it was deleted; the provisioner did not delete its storage";
        return Decision::warning(Step::Unhold, reason::VOLUME_FAILED_DELETE, message);
    }
    by_hand("it was deleted while it had no claimRef, so no claim has released it")
}

/// What its size and its attributes ask for: one after the other, because no two runs for a volume go on at one time.
fn sizing(o: &Observed<'_>, now: i64) -> Decision {
    let attributes = || modify::decide(o.volume, &o.modification, now).as_part_of(Step::Modify);
    if o.modification.runs.is_under_way() {
        return attributes();
    }
    let size = expand::decide(o.volume, &o.expansion, now).as_part_of(Step::Expand);
    let acts = !matches!(size.step, Step::Nothing | Step::Expand(expand::Step::Nothing));
    if acts || o.expansion.runs.is_under_way() { size } else { attributes().or(size) }
}

/// The nodes on which something is to be deleted: `home` is where the volume was made. Of a volume
/// that lives or is to stay, nothing is ever deleted at home.
pub fn todo(volume: &Volume, claim: ClaimState, home: &str) -> Vec<String> {
    let noted = if volume.is_adopted() { volume.nodes.clone() } else { Vec::new() };
    let released = matches!(claim, ClaimState::Gone | ClaimState::Elsewhere) && volume.reclaim_policy == "Delete";
    match (released, noted.is_empty()) {
        (true, true) => vec![home.to_owned()],
        (true, false) => noted,
        // Without a home of its own, what other nodes hold cannot be told apart from it.
        (false, _) if home.is_empty() => Vec::new(),
        (false, _) => without(&noted, home),
    }
}

/// The node on which something is deleted next; empty for any.
pub fn next_node(volume: &Volume, claim: ClaimState, home: &str, places: &Places) -> String {
    places.first(&todo(volume, claim, home)).cloned().unwrap_or_default()
}

/// Rows 10 to 16.
fn clearing(o: &Observed<'_>, now: i64) -> Decision {
    let volume = o.volume;
    // Deleting by its id would delete what the volume stands for that bears the id's name, which may
    // be in use or retained.
    match volume.id() {
        None => return by_hand("it has no volume id"),
        Some(id) if !is_run_id(id) => return by_hand("its volume id is not one that a run can have"),
        Some(id) if volume.name != names::pv_name(id) => {
            return by_hand(&format!("it is not named {}, as the volume with the id {id} is", names::pv_name(id)));
        }
        Some(_) => {}
    }
    if !volume.is_adopted() && !volume.is_half_made(o.run_known) {
        return by_hand("it was never adopted, and no run is known to have made it");
    }
    let recipe = match &o.recipe {
        Ok(recipe) => *recipe,
        Err(why) => return by_hand(why),
    };
    // Pods of a living claim concern its own node, and those before it have ended.
    if o.pods_alive && !o.claim.needs_it() {
        return lost(o).until(now + POD_ENDS);
    }
    deleting(o, recipe, now)
}

/// Nothing is to be done; told where a pod is on a node that does not answer.
fn lost(o: &Observed<'_>) -> Decision {
    match o.places.lost(o.alive_on) {
        Some(node) => Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, lost_words(node)),
        None => Step::Nothing.into(),
    }
}

/// Rows 12 to 16.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let volume = o.volume;
    let node = next_node(volume, o.claim, o.home, o.places);
    let last = volume.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = attempt(volume);
    match &o.run {
        RunState::Absent => {
            let waits = last.filter(|failure| !failure.is_of_other(recipe));
            let due = waits.map_or(now, |failure| failure.at.saturating_add(pause(recipe, failure.attempt)));
            if now < due {
                return Decision::from(Step::Nothing).until(due);
            }
            // It must not vanish while its storage is being deleted.
            if !volume.is_held() && !volume.deleting {
                return Step::Hold.into();
            }
            start(o, attempt, node)
        }
        RunState::Running => lost(o),
        RunState::Stuck { .. } if o.delete_job.is_some_and(|job| job.deleting) => Step::Nothing.into(),
        RunState::Stuck { cause, .. } => {
            let outdated = o.delete_job.filter(|job| job.batch.is_none() && job.config != recipe.version());
            if let Some(job) = outdated {
                return Step::RemoveJob { job: job.name.clone() }.into();
            }
            Decision::warning(Step::Nothing, reason::VOLUME_FAILED_DELETE, format!("delete run: {}", cause.message))
        }
        RunState::Succeeded => settled(o, &node),
        RunState::Failed { settled: false, .. } => lost(o),
        RunState::Failed { cause, at, .. } => {
            let failure = LastFailure::of_delete(attempt, just_now(*at, now), cause, last).by(recipe);
            let message =
                format!("delete run {attempt} failed: {}; next try in {} s", cause.message, pause(recipe, attempt));
            Decision::warning(Step::RecordFailure(failure), reason::VOLUME_FAILED_DELETE, message)
        }
    }
}

/// A node is done with.
fn settled(o: &Observed<'_>, node: &str) -> Decision {
    match todo(o.volume, o.claim, o.home).iter().any(|other| other != node) || o.claim.needs_it() {
        true => Step::SettleNode { nodes: without(&o.volume.nodes, node) }.into(),
        false => last(o),
    }
}

/// The last node is done with: what is to stay stays.
fn last(o: &Observed<'_>) -> Decision {
    match o.volume.reclaim_policy.as_str() {
        "Delete" => removal(o.volume).into(),
        _ => Step::SettleNode { nodes: Vec::new() }.into(),
    }
}

/// Row 16. A volume that is removed once is not removed again while the finalizers of others hold it.
fn removal(volume: &Volume) -> Step {
    if volume.deleting && !volume.is_held() { Step::Nothing } else { Step::Remove }
}

/// A delete run begins on its node; where that is gone, by what the class says.
fn start(o: &Observed<'_>, attempt: u32, node: String) -> Decision {
    match (o.places.state(&node), o.node_gone) {
        (NodeState::Ready | NodeState::Unreachable, _) => Step::StartDelete { attempt, node, elsewhere: false }.into(),
        (NodeState::Missing, _) => Step::ConfirmNode { node }.into(),
        // Elsewhere may be where the volume is, which lives.
        (NodeState::Gone, NodeGone::RunElsewhere) if o.claim.needs_it() => Step::Nothing.into(),
        (NodeState::Gone, NodeGone::RunElsewhere) => Step::StartDelete { attempt, node, elsewhere: true }.into(),
        (NodeState::Gone, NodeGone::Forget) => {
            let message = format!("node {node} is gone, and with it the storage there (node-gone: forget)");
            let step = settled(o, &node).step;
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
