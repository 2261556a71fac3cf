//! Decides the next step for a claim: a pure function of the observation and the time.
//!
//! The first row that holds applies. "Held" means that the claim has the orchestrator's finalizer. "Stamped" means that
//! the claim has a stamp that was written for this very claim.
//!
//! | # | the claim is | and | step |
//! |---|---|---|---|
//! | 1 | bound, held | its volume is the orchestrator's and not adopted | [`Step::Adopt`]; if the volume does not fit, [`Step::Quarantine`] and an event |
//! | 2 | bound, held | its volume is the orchestrator's and adopted | [`Step::RemoveFinalizer`] |
//! | 3 | bound, held | its volume is another one; or the claim is terminating and its volume is gone | as from row 7: the orchestrator undoes the attempt |
//! | 4 | bound, held | its volume is terminating and cannot be adopted | wait until the claim is terminating and unused, then as row 16 |
//! | 5 | bound, not held | a Job of the claim has ended | [`Step::RemoveJob`] |
//! | 5a | bound, not held, not stamped | the PV controller bound it to the pooled volume that was assigned to it | [`Step::BackfillStamp`] |
//! | 6 | terminating, not held | | nothing, or [`Step::RemoveJob`] |
//! | 7 | terminating, held | an admin has set the abandon annotation | [`Step::RemoveFinalizer`] |
//! | 7a | terminating, held | no container of the attempt has run, and this is not recorded | [`Step::RecordFailure`] |
//! | 8 | terminating, held | a provision Job is left | [`Step::RemoveJob`], which stops its pod |
//! | 9 | terminating, held | a provision Job is terminating | wait for its end |
//! | 10 | terminating, held | a pod may still run | wait for its end |
//! | 11 | terminating, held | another claim has its volume | [`Step::TransferToOtherClaim`], then [`Step::RemoveFinalizer`]; if the volume's name does not follow from the volume id, an event instead |
//! | 12 | terminating, held | its volume is terminating and cannot be adopted | wait for its end. A Bound volume waits for the claim: its storage is deleted first, as row 16, or, if the storage must stay, [`Step::RemoveFinalizer`] |
//! | 13 | terminating, held | its volume exists, not adopted | [`Step::Adopt`] |
//! | 14 | terminating, held | its volume exists, adopted | [`Step::RemoveFinalizer`]: the volume's own reconciler deletes it |
//! | 15 | terminating, held | it is not certain that no volume exists | [`Step::ConfirmNoVolume`] |
//! | 15a | terminating, held | no container of any attempt has run | [`Step::RemoveFinalizer`]: nothing can be left behind |
//! | 16 | terminating, held | the delete run is absent, failed, or done | [`Step::StartDelete`], [`Step::RecordFailure`], or [`Step::MarkNodeClean`]; if its node is gone, as `node-gone` says |
//! | 17 | pending | its class is not the orchestrator's, or it names a volume itself | nothing; an attempt that has begun ends by rows 20 to 23 and 32 |
//! | 17a | pending, not stamped | a volume, such as a restored one, is reserved for it by name | wait for the binding, and emit an event |
//! | 18 | pending, not stamped | it cannot be served, or not yet: its data source or attributes are not available, it reaches a quota, its source is on a node that is gone, or no node takes a run | an event with the reason; [`Step::WaitForSlot`] if there is no free slot |
//! | 19 | pending, not stamped | it can be served | [`Step::Stamp`]; if the selected node is gone or not allowed, [`Step::Reschedule`]; if there is no free slot, [`Step::WaitForSlot`] |
//! | 19a | pending, not stamped | its class has a pooled volume that fits | [`Step::AssignPooledVolume`], regardless of quotas and slots |
//! | 19b | pending, not stamped | a pooled volume was assigned to it | [`Step::Bind`] as in row 21 |
//! | 20 | stamped | a volume fits and is not adopted | [`Step::Adopt`] |
//! | 21 | stamped | a volume fits and is adopted; or a volume was taken from another claim and is adopted for this one | [`Step::Bind`], if the PV controller knows the volume and does not bind alone; [`Step::SetVolumeName`] if the PV controller would not choose the volume; else wait for the binding |
//! | 22 | stamped | a volume fits, but is terminating and cannot be adopted | wait for its end. A Bound volume does not end; if it is the claim's: [`Step::SetVolumeName`] |
//! | 23 | stamped | a volume does not fit | [`Step::Quarantine`], then [`Step::RecordFailure`]; if another claim has taken it, [`Step::TransferToOtherClaim`], then [`Step::Stamp`] with a new volume id |
//! | 24 | stamped, attempt failed | a process of it may still run | [`Step::RemoveJob`], for the Job of a later attempt only if the claim was just read; or wait |
//! | 25 | stamped, attempt failed | the selected node has no room | [`Step::Reschedule`]; from then on a failure like others |
//! | 26 | stamped, attempt failed | the next attempt is due: at once if the node had no room and another node has had no attempt; after the orchestrator has given up, when the quota allows it as in row 18 | [`Step::ConfirmNoVolume`], then [`Step::Stamp`]; if the selected node is gone or not allowed, [`Step::Reschedule`] |
//! | 27 | stamped, attempt failed | the next attempt is not due | wait |
//! | 28 | stamped, not held | | [`Step::RemoveJob`], wait for its end, [`Step::ConfirmNoVolume`], then [`Step::Stamp`] |
//! | 29 | stamped | it has no Job; and another node is selected than is recorded, or the chosen node no longer takes runs, or its batch has begun without it | [`Step::ConfirmNoVolume`], then [`Step::Stamp`] |
//! | 30 | stamped | it has no Job | for a copy [`Step::ProtectSource`]; [`Step::StartRun`], on a claim that was just read; with the backoff of failures if somebody deletes the Job again and again; if the selected node is gone, [`Step::Reschedule`] |
//! | 31 | stamped | the run cannot progress | an event; [`Step::RecordFailure`] after a while, or when the config has changed; as *no room* if only its node prevents it |
//! | 32 | stamped | the image has exited 0 | [`Step::ConfirmNoVolume`], then [`Step::RecordFailure`] |
//! | 33 | stamped | the run failed | [`Step::RecordFailure`] |
//! | 34 | stamped | the run is in progress | wait; an event if its node does not answer |
//! | 34a | a pool request | its volume is ready, or already assigned | [`Step::CompletePoolRequest`]; if the request is terminating, [`Step::RemoveFinalizer`] |
//! | 35 | with nothing else to do | it is kept for clones or snapshots that are made or abandoned | [`Step::UnprotectSource`] |
//! | 36 | terminating, with nothing else to do | it is kept for clones or snapshots | an event |
//!
//! With `placement: selected-node` a run has a node before its Job exists, and the stamp records the node. The
//! scheduler selects the node; or, where the class binds immediately and nobody selects one,
//! [`choose_node`](crate::claim::nodes::choose_node) does. So the orchestrator knows on which nodes an attempt may
//! leave storage, even if it never saw the pod.
//!
//! If the storage of a data source is on one node, the copy is made on that node, whatever node is selected. The
//! scheduler follows the volume.
//!
//! Before a step relies on the fact that a node is gone, [`Step::ConfirmNode`] asks the API.

mod adoption;
mod attempt;
mod data_source;
mod failed;
mod leaving;
mod placement;
mod pooled;
mod unstarted;

use flex_contract::names::{self, reason};
use flex_contract::reason::Reason;

use self::adoption::{adopted, cannot_add_finalizer, is_claimed_by_other, not_deleted_here};
use self::attempt::pending;
pub use self::failed::failed_start;
use self::leaving::{deleting, leaving, wait_for_processes};
pub use self::placement::{cleanup_node, last_node, run_node};
use self::pooled::{backfill_stamp, complete_pool_request};
use crate::claim::data_source::DataSourceState;
use crate::claim::nodes::NodeChoice;
use crate::config::Recipe;
use crate::config::classes::Class;
pub use crate::decision::NewEvent;
use crate::model::claim::Binding;
use crate::model::claim::Claim;
use crate::model::data_source::SourceUser;
use crate::model::volume::Provenance;
use crate::model::volume::Volume;
use crate::node::{NodeStates, unreachable_message};
use crate::object::ObjectName;
use crate::run::failure::LastFailure;
use crate::run::state::RunState;
use crate::run::view::Job;

/// The relation of the claim's class to the orchestrator.
#[derive(Clone, Copy, Debug)]
pub enum ServedClass<'a> {
    /// The class is not the orchestrator's, or does not exist.
    NotOurs,
    /// The class is the orchestrator's.
    Ours(&'a Class),
}

/// A volume that names the claim.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// The reasons why the volume cannot be bound.
    pub mismatches: &'a [String],
    /// A sync probe has shown that the PV controller has seen the volume with the claim in its claimRef.
    pub synced: bool,
}

impl Candidate<'_> {
    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    fn is_synced(&self) -> bool {
        self.volume.phase == "Bound" || self.synced
    }
}

/// The Job deletions by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedJob {
    /// The number of deletions.
    pub times: u32,
    /// The time of the last deletion, in seconds since 1970.
    pub at: i64,
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The claim was just read or written, and does not come from the cache.
    pub fresh: bool,
    /// The claim is a pool request, and gets no volume itself.
    pub is_pool_request: bool,
    /// A pooled volume that fits the claim.
    pub pooled_volume: Option<&'a str>,
    /// A volume that is reserved for the claim by name, and fits.
    pub reserved_volume: Option<&'a str>,
    /// The class of the claim.
    pub class: ServedClass<'a>,
    /// The revision of the class's recipe is stored.
    pub has_revision: bool,
    /// The recipe that the stamp names.
    pub stamped_recipe: Option<&'a Recipe>,
    /// All provision Jobs of the claim.
    pub jobs: &'a [&'a Job],
    /// The run of the stamped attempt.
    pub run: RunState,
    /// A pod of a provision run may still be running.
    pub has_running_pods: bool,
    /// The nodes for the next attempt, if nobody selects a node for the claim.
    pub node_choice: &'a NodeChoice,
    /// The nodes of all pods that may still be running, whatever their run.
    pub nodes_with_pods: &'a [String],
    /// The states of the nodes that the claim and its pods depend on.
    pub node_states: &'a NodeStates,
    /// Volumes that name the claim.
    pub volumes: &'a [Candidate<'a>],
    /// A quorum read has found no volume.
    pub no_volume: bool,
    /// The delete run on the node of [`cleanup_node`].
    pub delete_run: RunState,
    /// The Job of that delete run.
    pub delete_job: Option<&'a Job>,
    /// The recipe of a delete run now: that of the stamp, with the program of the class.
    pub delete_recipe: Option<&'a Recipe>,
    /// No container of the stamped attempt has run, and none will run.
    pub never_started: bool,
    /// The class has a free slot for another run.
    pub has_slot: bool,
    /// The reason why a quota of the class allows no further volume; `None` for a claim that counts already.
    pub quota_error: Option<&'a str>,
    /// A stamp whose write may have failed has reserved quota for the claim, and other claims wait for that quota.
    pub has_pending_charge: bool,
    /// The reason why the claim cannot have the attributes that it requests.
    pub attributes_error: Option<&'a str>,
    /// The party that binds the claim.
    pub binding: Binding,
    /// The class does not allow the selected node.
    pub selected_node_forbidden: bool,
    /// The data source of the claim, if it has one.
    pub data_source: Option<DataSourceState<'a>>,
    /// The claims and VolumeSnapshots for which this claim is kept.
    pub source_users: &'a [SourceUser],
    /// Somebody deleted the Job of the stamped attempt while the attempt was in progress.
    pub removed: Option<RemovedJob>,
    /// The batch of the stamped attempt has begun without the claim, or cannot begin.
    pub missed_batch: bool,
}

/// The next step for a claim.
#[derive(Clone, Debug, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    Nothing,
    /// Writes stamp and finalizer for an attempt.
    Stamp {
        /// The number of the attempt.
        attempt: u32,
        /// The nodes where storage may be left behind from now on.
        nodes: Vec<String>,
        /// The volume generation: the number of volumes that other claims have taken.
        volume_generation: u32,
    },
    /// Waits for a slot of the class.
    WaitForSlot {
        /// The nodes as in [`Step::Stamp`]. If nodes matter, the slot is for a run on the last of them.
        nodes: Vec<String>,
    },
    /// Assigns a pooled volume to the claim.
    AssignPooledVolume {
        /// The name of the volume.
        volume: String,
    },
    /// Writes the stamp that the claim would have if the orchestrator had bound it.
    BackfillStamp {
        /// The volume that the claim is bound to.
        volume: String,
    },
    /// Deletes the pool request, because its volume is ready.
    CompletePoolRequest,
    /// Reads the claim from the API and decides again.
    Refresh,
    /// Adds a finalizer to the data source: to the claim to copy, or to the content of the VolumeSnapshot.
    ProtectSource,
    /// Creates the Job of the stamped attempt. In a batch, records that the claim has arrived.
    StartRun,
    /// Makes the volume the orchestrator's and the claim's: claimRef, finalizer, provenance.
    Adopt {
        /// The name of the volume.
        volume: String,
        /// The provenance to write.
        provenance: Box<Provenance>,
        /// The nodes where the volume's storage is, or may have been left. Its own node comes last. Empty where nodes
        /// do not matter.
        nodes: Vec<String>,
    },
    /// Adopts a volume that another claim has taken, for that claim.
    TransferToOtherClaim {
        /// The name of the volume.
        volume: String,
        /// The provenance to write.
        provenance: Box<Provenance>,
        /// The nodes as in [`Step::Adopt`].
        nodes: Vec<String>,
    },
    /// Completes the binding of the claim to the volume, and removes the finalizer.
    Bind {
        /// The name of the volume.
        volume: String,
    },
    /// Writes the volume's name on the claim, so that the PV controller binds the two.
    SetVolumeName {
        /// The name of the volume.
        volume: String,
    },
    /// Writes on the volume why it is not bound.
    Quarantine {
        /// The name of the volume.
        volume: String,
        /// The reasons.
        why: String,
    },
    /// Records that a run failed, and emits an event.
    RecordFailure {
        /// The failure to record.
        failure: LastFailure,
    },
    /// Removes the selected node from the claim, so that the scheduler selects another.
    Reschedule {
        /// The failure to record for the attempt there, in the same write. The scheduler may be fast, and its next node
        /// has had no attempt yet.
        failure: Option<LastFailure>,
    },
    /// Asks the API, not the cache, whether a volume exists, and decides again.
    ConfirmNoVolume,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
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
    /// Removes a clean node from the claim's list, and with the last node the finalizer.
    MarkNodeClean {
        /// The names of the nodes that remain.
        nodes: Vec<String>,
    },
    /// Removes the finalizer.
    RemoveFinalizer,
    /// Removes the finalizers that protect the claim for its copies. The API must show that none of them is in
    /// progress.
    UnprotectSource {
        /// The UIDs of the copies.
        copies: Vec<String>,
    },
}

/// A decision about a claim: the next step, an event, and a time.
pub type Decision = crate::decision::Decision<Step>;

impl Decision {
    fn nothing() -> Self {
        Step::Nothing.into()
    }

    fn wait(reason: &'static Reason, message: impl Into<String>) -> Self {
        Decision::nothing().with_warning(reason, message)
    }
}

/// Decides the next step for a claim. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    data_source::copied(o, decide_without_source_users(o, now))
}

/// Decides the next step without regard to the claim's copies.
fn decide_without_source_users(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let wanted = names::pv_name(&claim.id());
    let elsewhere = claim.volume_name.as_ref().is_some_and(|name| *name != wanted);
    if claim.has_finalizer() && (elsewhere || (claim.deleting && !claim.is_bound())) {
        return leaving(o, now);
    }
    if claim.is_bound() || claim.deleting {
        return settled(o, now);
    }
    pending(o, now)
}

/// Decides rows 1 to 6: the claim needs nothing more, or only loses its finalizer.
fn settled(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    if claim.has_finalizer() {
        if let Some(done) = complete_pool_request(o) {
            return done;
        }
        let bound_to = o.volumes.iter().find(|c| Some(&c.volume.name) == claim.volume_name.as_ref());
        if let Some(unfit) = bound_to.filter(|c| !c.mismatches.is_empty() && !c.volume.is_adopted() && !claim.deleting)
        {
            return bound_unchecked(unfit);
        }
        if let Some(volume) = bound_to.map(|c| c.volume).filter(|volume| is_claimed_by_other(o, volume)) {
            return if claim.deleting { leaving(o, now) } else { not_deleted_here(volume) };
        }
        let missing = bound_to.map(|candidate| adopted(o, candidate.volume));
        return match missing {
            None if claim.deleting => leaving(o, now),
            // The volume is not in the cache yet, and its event will arrive. Or the volume is lost, and nothing is to
            // be done before the claim is terminating.
            None => Decision::nothing(),
            // The PV controller bound the claim first.
            Some(None) => Decision::from(Step::RemoveFinalizer).with_event(
                reason::PROVISIONING_SUCCEEDED,
                format!("bound to volume {}", claim.volume_name.as_deref().unwrap_or_default()),
            ),
            Some(Some(hindered)) if hindered.step == Step::Nothing && claim.deleting && claim.abandoned => {
                leaving(o, now)
            }
            Some(Some(adopt))
                if adopt.step != Step::Nothing && bound_to.is_some_and(|c| cannot_add_finalizer(o, c.volume)) =>
            {
                if claim.deleting && claim.abandoned {
                    leaving(o, now)
                } else {
                    finalizer_refused(o, now)
                }
            }
            Some(Some(adopt)) => adopt,
        };
    }
    match o.jobs.iter().find(|job| job.is_over && !job.deleting) {
        Some(job) => Step::RemoveJob { job: job.name.clone() }.into(),
        None => backfill_stamp(o),
    }
}

/// Returns a step after which the claim has its volume.
fn succeeded(volume: &Volume, step: Step) -> Decision {
    Decision::from(step).with_event(reason::PROVISIONING_SUCCEEDED, format!("bound to volume {}", volume.name))
}

/// Quarantines a volume that the PV controller bound before the check, because its maker wrote the claim's UID on it.
fn bound_unchecked(unfit: &Candidate<'_>) -> Decision {
    let (volume, why) = (unfit.volume.name.clone(), unfit.mismatches.join("; "));
    let message = format!(
        "the claim is bound to volume {volume}, which does not fit it: {why}. Somebody made the volume with the claim's UID in its claimRef; delete the claim, and find out who made the volume"
    );
    let known = unfit.volume.quarantine.as_ref() == Some(&why);
    let step = if known { Step::Nothing } else { Step::Quarantine { volume, why } };
    Decision::from(step).with_warning(reason::VOLUME_REFUSED, message)
}

/// Decides row 4. The volume vanishes with the claim, so its storage is deleted first, once no pod uses it.
fn finalizer_refused(o: &Observed<'_>, now: i64) -> Decision {
    let others = o.claim.finalizers.iter().any(|finalizer| finalizer != names::CLAIM_FINALIZER);
    match recipe(o) {
        // The claim's deletion and the end of its use arrive as events.
        _ if !o.claim.deleting || others => Decision::nothing(),
        Some(recipe) => wait_for_processes(o).unwrap_or_else(|| deleting(o, recipe, now)),
        None => unknown(),
    }
}

/// Returns the recipe of the attempt, or that of the class if the former is lost.
fn recipe<'a>(o: &Observed<'a>) -> Option<&'a Recipe> {
    o.stamped_recipe.or(match o.class {
        ServedClass::Ours(class) => class.recipe.as_deref().ok(),
        ServedClass::NotOurs => None,
    })
}

/// Waits for the end of a pod on a node that does not answer, and emits an event.
fn unreachable_node(o: &Observed<'_>) -> Option<Decision> {
    o.node_states
        .unreachable_node(o.nodes_with_pods)
        .map(|node| Decision::wait(reason::WAITING, unreachable_message(node)))
}

fn unknown() -> Decision {
    Decision::wait(
        reason::VOLUME_FAILED_DELETE,
        format!(
            "an attempt may have left something behind, but its provisioner config is not known any more; clean up by hand, then annotate the claim with {}={}",
            names::ABANDON,
            names::ABANDON_YES
        ),
    )
}

#[cfg(test)]
mod tests;
