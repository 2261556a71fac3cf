//! What is done next for a claim: a pure function of what was observed and of the time.
//!
//! The first row that holds is taken. "Held" means that our finalizer is on the claim, "stamped"
//! that it bears a stamp that was written for this very claim.
//!
//! | # | the claim is | and | step |
//! |---|---|---|---|
//! | 1 | bound, held | to a volume of ours that is not adopted yet | [`Step::Adopt`]; where it does not fit, [`Step::Quarantine`], and told |
//! | 2 | bound, held | to a volume of ours that is adopted | [`Step::Release`] |
//! | 3 | bound, held | to another volume, or going and its volume is gone | as from row 7: what was begun is taken back |
//! | 4 | bound, held | to a volume that is going, so that it cannot be adopted | wait for the claim's end, then as row 16 |
//! | 5 | bound, not held | a Job of it is over | [`Step::RemoveJob`] |
//! | 5a | bound, not held, not stamped | by the PV controller, to a volume that it was given | [`Step::Note`] |
//! | 6 | going, not held | | nothing, or [`Step::RemoveJob`] |
//! | 7 | going, held | an admin lets go of it | [`Step::Release`] |
//! | 7a | going, held | no container of the attempt has run, which is not noted | [`Step::RecordFailure`] |
//! | 8 | going, held | a provision Job is left | [`Step::RemoveJob`], which stops its pod |
//! | 9 | going, held | a provision Job is being removed | wait for its end |
//! | 10 | going, held | a pod may still run | wait for its end |
//! | 11 | going, held | another claim has its volume | [`Step::Cede`], then [`Step::Release`]; nothing, and told, where the volume's name is not that of the claim's |
//! | 12 | going, held | a volume of it is going by itself | wait for its end; where it is Bound it waits for the claim's, so that its storage goes first, as row 16, or [`Step::Release`] where that is to stay |
//! | 13 | going, held | a volume of it exists, not adopted | [`Step::Adopt`] |
//! | 14 | going, held | a volume of it exists, adopted | [`Step::Release`]: the volume is deleted as a volume |
//! | 15 | going, held | that no volume exists is not sure | [`Step::ConfirmNoVolume`] |
//! | 15a | going, held | no container of any attempt has run | [`Step::Release`]: nothing can be left |
//! | 16 | going, held | by the state of the delete run: absent, failed, done | [`Step::StartDelete`], [`Step::RecordFailure`], [`Step::SettleNode`]; where its node is gone, as `node-gone` says |
//! | 17 | pending | of a class that is not ours, or names a volume itself | nothing; of what was begun, as rows 20 to 23 and 32 |
//! | 17a | pending, not stamped | a volume is reserved for it by name, as one that was restored | wait for its binding, and told |
//! | 18 | pending, not stamped | cannot be served, or not yet: is to be made from what is not there or with attributes that cannot be had, hits a limit of its class, or from what is on a node that is gone; or no node takes a run | nothing, and its reason is told; [`Step::StandInLine`] for want of room |
//! | 19 | pending, not stamped | can be served | [`Step::Stamp`]; where the selected node is gone or not allowed, [`Step::Reschedule`]; for want of room, [`Step::StandInLine`] |
//! | 19a | pending, not stamped | its class has a volume ready that suits it | [`Step::Take`], whatever limits and places say |
//! | 19b | pending, not stamped | was given a volume that was ready | [`Step::Bind`] as in row 21 |
//! | 20 | stamped | a volume fits, not adopted | [`Step::Adopt`] |
//! | 21 | stamped | a volume fits, adopted; or one was taken from another claim, and made this one's | [`Step::Bind`], where the PV controller knows the volume and is not to do it alone; [`Step::Name`] where it would not choose the volume; else wait for its binding |
//! | 22 | stamped | a volume fits, but is going by itself | wait for its end; where it is Bound that does not come, and it is the claim's: [`Step::Name`] |
//! | 23 | stamped | a volume does not fit | [`Step::Quarantine`], then [`Step::RecordFailure`]; where another claim has taken it, [`Step::Cede`], then [`Step::Stamp`] under a fresh id |
//! | 24 | stamped, attempt failed | a process of it may still run | [`Step::RemoveJob`], of a later attempt only for a claim that was just read; or wait |
//! | 25 | stamped, attempt failed | no room on the selected node | [`Step::Reschedule`], from when on it is a failure like others |
//! | 26 | stamped, attempt failed | the next attempt is due: at once where there was no room on a node, and there is one without an attempt; after it was given up it waits for the limits of its class as in row 18 | [`Step::ConfirmNoVolume`], then [`Step::Stamp`]; where the selected node is gone or not allowed, [`Step::Reschedule`] |
//! | 27 | stamped, attempt failed | the next attempt is not due | wait |
//! | 28 | stamped, not held | | [`Step::RemoveJob`], wait for its end, [`Step::ConfirmNoVolume`], then [`Step::Stamp`] |
//! | 29 | stamped | no Job, and another node is selected than is noted, or the one that was chosen takes no runs any more; or its batch is begun without it | [`Step::ConfirmNoVolume`], then [`Step::Stamp`] |
//! | 30 | stamped | no Job | for a copy [`Step::KeepOriginal`]; [`Step::StartRun`], on a claim that was just read; at the pace of failures where somebody removes it again and again; where the selected node is gone, [`Step::Reschedule`] |
//! | 31 | stamped | the run cannot go on | told; [`Step::RecordFailure`] after a while, or when the config has changed; as *no room* where only its node keeps it |
//! | 32 | stamped | the image says that it is done | [`Step::ConfirmNoVolume`], then [`Step::RecordFailure`] |
//! | 33 | stamped | the run failed | [`Step::RecordFailure`] |
//! | 34 | stamped | the run goes on | wait; told where its node does not answer |
//! | 34a | a request of a pool | its volume is ready, or was already given away | [`Step::Finish`]; where it is going, [`Step::Release`] |
//! | 35 | with nothing else to do | it is kept for copies or snapshots that are made, or given up | [`Step::LetOriginalGo`] |
//! | 36 | going, with nothing else to do | it is kept for copies or snapshots | told |
//!
//! With `placement: selected-node` a run has a node before its Job exists, which is noted with the stamp: the one that
//! the scheduler selected, or, where the class binds immediately and nobody selects one, the one that
//! [`choose`](crate::claim::nodes::choose) finds. What an attempt may leave on a node is known so even if nobody ever saw its pod.
//!
//! A copy of storage that one node has is made on that node, whatever node is selected: the scheduler follows the volume.
//!
//! Before a step rests on a node's being gone, [`Step::ConfirmNode`] asks the API.

mod adoption;
mod attempt;
mod copying;
mod idle;
mod leaving;
mod place;
mod ready;

use contract::names::{self, reason};

use self::adoption::{adopted, is_taken, is_unholdable, not_deleted_here};
pub use self::attempt::failed_start;
use self::attempt::pending;
use self::leaving::{deleting, leaving, process};
pub use self::place::{cleanup_node, last_node, run_node};
use self::ready::{finished, noted};
use super::origin::{Copying, Origin};
use super::{Binding, Claim};
use crate::claim::nodes::Choice;
use crate::config::Recipe;
use crate::config::classes::Class;
pub use crate::decision::Tell;
use crate::node::{Places, lost_words};
use crate::object::ObjectName;
use crate::run::failure::LastFailure;
use crate::run::state::RunState;
use crate::run::view::Job;
use crate::volume::{Provenance, Volume};

/// What the claim's class is to us.
#[derive(Clone, Copy, Debug)]
pub enum Serving<'a> {
    /// Somebody else's, or nobody's.
    NotOurs,
    /// Ours.
    Ours(&'a Class),
}

/// A volume that says it is the claim's.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The volume.
    pub volume: &'a Volume,
    /// What keeps it from being bound.
    pub misfits: &'a [String],
    /// Markers have shown that the PV controller knows it as that of the claim in its claimRef.
    pub known: bool,
}

impl Candidate<'_> {
    /// The PV controller knows it as that of the claim in its claimRef.
    fn is_known(&self) -> bool {
        self.volume.phase == "Bound" || self.known
    }
}

/// How often a Job was removed by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// So many times.
    pub times: u32,
    /// The last time, in seconds since 1970.
    pub at: i64,
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// It was read or written a moment ago, not taken from the cache.
    pub fresh: bool,
    /// It asks for a volume to be kept ready, and gets none itself.
    pub request: bool,
    /// A volume that its class has ready for it.
    pub ready: Option<&'a str>,
    /// A volume that is reserved for it by name, and suits it.
    pub reserved: Option<&'a str>,
    /// Its class.
    pub class: Serving<'a>,
    /// A revision of the class's recipe is kept.
    pub kept: bool,
    /// The recipe that the stamp names.
    pub stamped_recipe: Option<&'a Recipe>,
    /// All provision Jobs of the claim.
    pub jobs: &'a [&'a Job],
    /// The run of the stamped attempt.
    pub run: RunState,
    /// A pod of a provision run may still be running.
    pub pods_alive: bool,
    /// Where the next attempt may be, if nobody selects a node for the claim.
    pub choice: &'a Choice,
    /// Where pods are placed that may still be running, of whatever run.
    pub alive_on: &'a [String],
    /// The nodes that the claim and its pods depend on.
    pub places: &'a Places,
    /// Volumes that name the claim.
    pub volumes: &'a [Candidate<'a>],
    /// A quorum read found no volume.
    pub no_volume: bool,
    /// The delete run on the node of [`cleanup_node`].
    pub delete_run: RunState,
    /// Its Job.
    pub delete_job: Option<&'a Job>,
    /// What a delete run works by now: the recipe of the stamp, with the program of the class.
    pub cleanup: Option<&'a Recipe>,
    /// No container of the stamped attempt has run, and none will.
    pub never_ran: bool,
    /// The class has room for another run.
    pub room: bool,
    /// Why its class has no room for another volume; none for a claim that has its place.
    pub limit: Option<&'a str>,
    /// It was promised its place by a stamp of which nobody knows whether it stands, and others wait for that place.
    pub promised: bool,
    /// Why it cannot have the attributes that it asks for.
    pub attributes: Option<&'a str>,
    /// Who binds.
    pub binding: Binding,
    /// The selected node is none that the class allows.
    pub outside: bool,
    /// What it is to be a copy of, if it is to be one.
    pub origin: Option<Origin<'a>>,
    /// The claims and VolumeSnapshots for whose sake it is kept.
    pub copying: &'a [Copying],
    /// Somebody removed the Job of the stamped attempt while it was under way.
    pub removed: Option<Removed>,
    /// The batch that it was stamped for is begun without it, or cannot be begun.
    pub left_out: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Nothing; the next event decides again.
    Nothing,
    /// Write stamp and finalizer for an attempt.
    Stamp {
        /// Its number.
        attempt: u32,
        /// Where something may be left behind from now on.
        nodes: Vec<String>,
        /// How many volumes of the claim were taken before.
        taken: u32,
    },
    /// Wait for one of the class's places for runs.
    StandInLine {
        /// As in [`Step::Stamp`]: the place is for a run on the last of them, if nodes matter.
        nodes: Vec<String>,
    },
    /// Make a volume that is ready the claim's.
    Take {
        /// The volume.
        volume: String,
    },
    /// Write the stamp that a claim would have from the one who bound it.
    Note {
        /// The volume that it is bound to.
        volume: String,
    },
    /// Delete the claim: what it asked for is ready.
    Finish,
    /// Read the claim anew and decide again.
    Refresh,
    /// Put a finalizer on the claim that this one is to be a copy of, or on the content of the VolumeSnapshot.
    KeepOriginal,
    /// Create the Job of the stamped attempt; of one in a batch, be there for it.
    StartRun,
    /// Make the volume ours and the claim's: claimRef, finalizer, provenance.
    Adopt {
        /// The volume.
        volume: String,
        /// What is written as its provenance.
        provenance: Box<Provenance>,
        /// Where something of it is, or may have been left: its own node last. Empty where nodes do
        /// not matter.
        nodes: Vec<String>,
    },
    /// Another claim has taken the volume: make it ours, and that claim's.
    Cede {
        /// The volume.
        volume: String,
        /// What is written as its provenance.
        provenance: Box<Provenance>,
        /// As in [`Step::Adopt`].
        nodes: Vec<String>,
    },
    /// Complete the binding of the claim to the volume, and take the finalizer off.
    Bind {
        /// The volume.
        volume: String,
    },
    /// Write the volume's name on the claim, so that the PV controller binds the two.
    Name {
        /// The volume.
        volume: String,
    },
    /// Write on the volume why it is not bound.
    Quarantine {
        /// The volume.
        volume: String,
        /// Why.
        why: String,
    },
    /// Remember that a run failed, and tell.
    RecordFailure {
        /// What is remembered.
        failure: LastFailure,
    },
    /// Take the selected node off the claim, so that the scheduler selects another.
    Reschedule {
        /// What is remembered of the attempt there, in the same write: the scheduler may be fast, and its
        /// next node has had no attempt yet.
        failure: Option<LastFailure>,
    },
    /// Ask the API, not the cache, whether a volume exists, and decide again.
    ConfirmNoVolume,
    /// Ask the API, not the cache, whether a node exists, and decide again.
    ConfirmNode {
        /// The node.
        node: String,
    },
    /// Remove a Job with its pods.
    RemoveJob {
        /// The Job.
        job: ObjectName,
    },
    /// Create the Job of a delete run.
    StartDelete {
        /// Its number, from 1.
        attempt: u32,
        /// The node whose traces it removes; empty for none in particular.
        node: String,
        /// It need not run there: the node is gone.
        elsewhere: bool,
    },
    /// A node is done with: take it off the list, and the finalizer with the last one.
    SettleNode {
        /// The nodes that remain.
        nodes: Vec<String>,
    },
    /// Take the finalizer off.
    Release,
    /// Take off the finalizers that kept it for copies, when the API says that nothing is under way for them.
    LetOriginalGo {
        /// Their UIDs.
        copies: Vec<String>,
    },
}

/// A decision about a claim.
pub type Decision = crate::decision::Decision<Step>;

impl Decision {
    fn nothing() -> Self {
        Step::Nothing.into()
    }

    fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Decision::nothing().saying(true, reason, message)
    }
}

/// The next step for a claim. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    copying::copied(o, alone(o, now))
}

/// That, but for its copies.
fn alone(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let wanted = names::pv_name(&claim.id());
    let elsewhere = claim.volume_name.as_ref().is_some_and(|name| *name != wanted);
    if claim.is_held() && (elsewhere || (claim.deleting && !claim.is_bound())) {
        return leaving(o, now);
    }
    if claim.is_bound() || claim.deleting {
        return settled(o, now);
    }
    pending(o, now)
}

/// Rows 1 to 6: nothing is owed to the claim any more, or only its finalizer.
fn settled(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    if claim.is_held() {
        if let Some(done) = finished(o) {
            return done;
        }
        let bound_to = o.volumes.iter().find(|c| Some(&c.volume.name) == claim.volume_name.as_ref());
        if let Some(unfit) = bound_to.filter(|c| !c.misfits.is_empty() && !c.volume.is_adopted() && !claim.deleting) {
            return bound_unchecked(unfit);
        }
        if let Some(volume) = bound_to.map(|c| c.volume).filter(|volume| is_taken(o, volume)) {
            return if claim.deleting { leaving(o, now) } else { not_deleted_here(volume) };
        }
        let missing = bound_to.map(|candidate| adopted(o, candidate.volume));
        return match missing {
            None if claim.deleting => leaving(o, now),
            // Its volume is not in the cache yet, and its event comes; or it is lost, and nothing
            // is to be done before the claim goes.
            None => Decision::nothing(),
            // The PV controller was faster to bind it.
            Some(None) => Decision::from(Step::Release).saying(
                false,
                reason::PROVISIONING_SUCCEEDED,
                format!("bound to volume {}", claim.volume_name.as_deref().unwrap_or_default()),
            ),
            Some(Some(hindered)) if hindered.step == Step::Nothing && claim.deleting && claim.abandoned => {
                leaving(o, now)
            }
            Some(Some(adopt))
                if adopt.step != Step::Nothing && bound_to.is_some_and(|c| is_unholdable(o, c.volume)) =>
            {
                if claim.deleting && claim.abandoned { leaving(o, now) } else { unholdable(o, now) }
            }
            Some(Some(adopt)) => adopt,
        };
    }
    match o.jobs.iter().find(|job| job.over && !job.deleting) {
        Some(job) => Step::RemoveJob { job: job.name.clone() }.into(),
        None => noted(o),
    }
}

/// A step after which the claim has its volume.
fn succeeded(volume: &Volume, step: Step) -> Decision {
    Decision::from(step).saying(false, reason::PROVISIONING_SUCCEEDED, format!("bound to volume {}", volume.name))
}

/// The PV controller was faster than the check: whoever made the volume wrote the claim's UID on it.
fn bound_unchecked(unfit: &Candidate<'_>) -> Decision {
    let (volume, why) = (unfit.volume.name.clone(), unfit.misfits.join("; "));
    let told = format!(
        "the claim is bound to volume {volume}, which does not fit it: {why}. Somebody made the volume with the claim's UID in its claimRef; delete the claim, and find out who made the volume"
    );
    let known = unfit.volume.quarantine.as_ref() == Some(&why);
    let step = if known { Step::Nothing } else { Step::Quarantine { volume, why } };
    Decision::from(step).saying(true, reason::VOLUME_REFUSED, told)
}

/// Row 4. The volume vanishes with the claim, so its storage goes first, once no pod uses it.
fn unholdable(o: &Observed<'_>, now: i64) -> Decision {
    let others = o.claim.finalizers.iter().any(|finalizer| finalizer != names::CLAIM_FINALIZER);
    match recipe(o) {
        // The claim's deletion and the end of its use are events.
        _ if !o.claim.deleting || others => Decision::nothing(),
        Some(recipe) => process(o).unwrap_or_else(|| deleting(o, recipe, now)),
        None => unknown(),
    }
}

/// The recipe of the attempt; where it is lost, that of the class.
fn recipe<'a>(o: &Observed<'a>) -> Option<&'a Recipe> {
    o.stamped_recipe.or(match o.class {
        Serving::Ours(class) => class.recipe.as_deref().ok(),
        Serving::NotOurs => None,
    })
}

/// A pod of the claim is on a node that does not answer: its end is waited for, and told.
fn lost(o: &Observed<'_>) -> Option<Decision> {
    o.places.lost(o.alive_on).map(|node| Decision::wait(reason::WAITING, lost_words(node)))
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
