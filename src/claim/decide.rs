//! What is done next for a claim: a pure function of what was observed and of the time.
//!
//! The first row that holds is taken. "Held" means that our finalizer is on the claim, "stamped"
//! that it bears a stamp that was written for this very claim.
//!
//! | # | the claim is | and | step |
//! |---|---|---|---|
//! | 1 | bound, held | to a volume of ours that is not adopted yet | [`Step::Adopt`] |
//! | 2 | bound, held | to a volume of ours that is adopted | [`Step::Release`] |
//! | 3 | bound, held | to another volume, or going and its volume is gone | as from row 7: what was begun is taken back |
//! | 4 | bound, held | to a volume that is going, so that it cannot be adopted | wait for the claim's end, then as row 16 |
//! | 5 | bound, not held | a Job of it is over | [`Step::RemoveJob`] |
//! | 6 | going, not held | | nothing, or [`Step::RemoveJob`] |
//! | 7 | going, held | an admin lets go of it | [`Step::Release`] |
//! | 8 | going, held | a pod ran on a node that is not noted | [`Step::NoteNodes`] |
//! | 9 | going, held | a provision Job is left | [`Step::RemoveJob`], which stops its pod |
//! | 10 | going, held | a pod may still run | wait for its end |
//! | 11 | going, held | another claim has its volume, or a volume of its name is another's | nothing, and told |
//! | 12 | going, held | a volume of it is going by itself | wait for its end |
//! | 13 | going, held | a volume of it exists, not adopted | [`Step::Adopt`] |
//! | 14 | going, held | a volume of it exists, adopted | [`Step::Release`]: the volume is deleted as a volume |
//! | 15 | going, held | that no volume exists is not sure | [`Step::ConfirmNoVolume`] |
//! | 16 | going, held | by the state of the delete run: absent, failed, done | [`Step::StartDelete`], [`Step::RecordFailure`], [`Step::SettleNode`] |
//! | 17 | pending | of a class that is not ours, or names a volume itself | nothing |
//! | 18 | pending, not stamped | cannot be served, or not yet | nothing, and its reason is told |
//! | 19 | pending, not stamped | can be served | [`Step::Stamp`] |
//! | 20 | stamped | a volume fits, not adopted | [`Step::Adopt`] |
//! | 21 | stamped | a volume fits, adopted | [`Step::Bind`] |
//! | 22 | stamped | a volume fits, but is going by itself | wait for its end |
//! | 23 | stamped | a volume does not fit | [`Step::Quarantine`], then [`Step::RecordFailure`] |
//! | 24 | stamped, attempt failed | a process of it may still run | [`Step::RemoveJob`], or wait |
//! | 25 | stamped, attempt failed | no room on the selected node | [`Step::Reschedule`], then [`Step::RecordFailure`] of a failure like others |
//! | 26 | stamped, attempt failed | the next attempt is due | [`Step::Stamp`] |
//! | 27 | stamped, attempt failed | the next attempt is not due | wait |
//! | 28 | stamped, not held | | [`Step::RemoveJob`], wait for its end, then [`Step::Stamp`] |
//! | 29 | stamped | no Job, and another node is selected than is noted | [`Step::Stamp`] |
//! | 30 | stamped | no Job | [`Step::StartRun`], on a claim that was just read |
//! | 31 | stamped | the run cannot go on | told; [`Step::RecordFailure`] after a while, or when the config has changed |
//! | 32 | stamped | the image says that it is done | [`Step::ConfirmNoVolume`], then [`Step::RecordFailure`] |
//! | 33 | stamped | the run failed | [`Step::RecordFailure`] |
//! | 34 | stamped | the run goes on | wait |

use std::time::Duration;

use contract::exit::Failure;
use contract::names::{self, reason};
use contract::quantity::quantity;
use contract::request::Operation;

use super::{Claim, LastFailure};
use crate::config::classes::{BindingMode, Class};
use crate::config::{Placement, Recipe};
use crate::object::ObjectName;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;
use crate::volume::{Provenance, Volume};

/// A pod whose image cannot be had is given up after this time; a new attempt asks anew.
const STUCK_IMAGE: Duration = Duration::from_secs(30);
/// The pace for what will hardly ever work.
pub const SLOW: Duration = Duration::from_secs(30 * 60);
/// A claim that waits for room is woken by the end of a run; this is for the case that another
/// claim was woken that cannot use it.
const ROOM: Duration = Duration::from_secs(10);

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
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// It was read or written a moment ago, not taken from the cache.
    pub fresh: bool,
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
    /// Where pods of provision runs were placed.
    pub seen_nodes: &'a [String],
    /// Volumes that name the claim.
    pub volumes: &'a [Candidate<'a>],
    /// A quorum read found no volume.
    pub no_volume: bool,
    /// The delete run on the first noted node.
    pub delete_run: RunState,
    /// Its Job.
    pub delete_job: Option<&'a Job>,
    /// The class has room for another run.
    pub room: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing; the next event decides again.
    Nothing,
    /// Write stamp and finalizer for an attempt.
    Stamp {
        /// Its number.
        attempt: u32,
        /// Where something may be left behind from now on.
        nodes: Vec<String>,
    },
    /// Read the claim anew and decide again.
    Refresh,
    /// Create the Job of the stamped attempt.
    StartRun,
    /// Make the volume ours and the claim's: claimRef, finalizer, provenance.
    Adopt {
        /// The volume.
        volume: String,
        /// What is written as its provenance.
        provenance: Box<Provenance>,
    },
    /// Bind the claim to the volume, and take the finalizer off.
    Bind {
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
        /// Nodes to note in the same write.
        nodes: Vec<String>,
    },
    /// Take the selected node off the claim, so that the scheduler selects another.
    Reschedule,
    /// Ask the API, not the cache, whether a volume exists, and decide again.
    ConfirmNoVolume,
    /// Remember where something may be left behind.
    NoteNodes {
        /// All of them.
        nodes: Vec<String>,
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
        /// Where it must run; empty for anywhere.
        node: String,
    },
    /// A delete run is done: take its node off the list, and the finalizer with the last one.
    SettleNode {
        /// The nodes that remain.
        nodes: Vec<String>,
    },
    /// Take the finalizer off.
    Release,
}

/// Something to say on the claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// It is a warning.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

/// A decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do.
    pub step: Step,
    /// What to say.
    pub tell: Option<Tell>,
    /// When to decide again if nothing happens, in seconds since 1970.
    pub wake_at: Option<i64>,
}

impl From<Step> for Decision {
    fn from(step: Step) -> Self {
        Decision { step, tell: None, wake_at: None }
    }
}

impl Decision {
    fn nothing() -> Self {
        Step::Nothing.into()
    }

    fn wait(reason: &'static str, message: impl Into<String>) -> Self {
        Decision::nothing().saying(true, reason, message)
    }

    fn saying(mut self, warning: bool, reason: &'static str, message: impl Into<String>) -> Self {
        self.tell = Some(Tell { warning, reason, message: message.into() });
        self
    }

    fn until(mut self, at: i64) -> Self {
        self.wake_at = Some(at);
        self
    }
}

/// The next step for a claim. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let wanted = names::pv_name(&claim.uid);
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
        let bound_to = o.volumes.iter().find(|c| Some(&c.volume.name) == claim.volume_name.as_ref());
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
        None => Decision::nothing(),
    }
}

/// Another claim has the volume: its claimRef says so, with a UID.
fn is_taken(o: &Observed<'_>, volume: &Volume) -> bool {
    volume.claim_ref.as_ref().is_some_and(|reference| !reference.uid.is_empty() && reference.uid != o.claim.uid)
}

/// It is being deleted and nothing of ours keeps it: a finalizer cannot be added any more.
fn is_vanishing(volume: &Volume) -> bool {
    volume.deleting && !volume.is_held()
}

/// It would have to be held for its deletion, and cannot be.
fn is_unholdable(o: &Observed<'_>, volume: &Volume) -> bool {
    is_vanishing(volume) && recipe(o).is_some_and(|recipe| recipe.reclaim_policy == "Delete")
}

/// Row 4. The volume vanishes with the claim, so its storage goes first, once no pod uses it.
fn unholdable(o: &Observed<'_>, now: i64) -> Decision {
    let others = o.claim.finalizers.iter().any(|finalizer| finalizer != names::CLAIM_FINALIZER);
    match recipe(o) {
        // The claim's deletion and the end of its use are events.
        _ if !o.claim.deleting || others => Decision::nothing(),
        _ if unnoted(o).is_some() => Step::NoteNodes { nodes: unnoted(o).unwrap_or_default() }.into(),
        Some(recipe) => process(o).unwrap_or_else(|| deleting(o, recipe, now)),
        None => unknown(),
    }
}

/// The step that is missing until a volume is adopted, if any.
fn adopted(o: &Observed<'_>, volume: &Volume) -> Option<Decision> {
    if is_taken(o, volume) {
        return Some(taken(volume));
    }
    let Some(recipe) = recipe(o) else {
        return Some(Decision::wait(
            reason::WAITING,
            format!(
                "volume {} cannot be adopted: the provisioner config of the attempt is not known any more",
                volume.name
            ),
        ));
    };
    let provenance = Provenance { record: recipe.record.clone(), node: made_on(o, recipe) };
    let kept = volume.provenance.as_deref().and_then(|text| serde_json::from_str::<Provenance>(text).ok());
    let same = |kept: &Provenance| {
        kept.record == provenance.record && (kept.node == provenance.node || provenance.node.is_empty())
    };
    let complete = kept.as_ref().is_some_and(same)
        && volume.is_adopted()
        && volume.claim_ref.as_ref().is_some_and(|reference| reference.uid == o.claim.uid)
        && (volume.is_held() || volume.reclaim_policy != "Delete")
        && volume.provisioned_by.is_some()
        && volume.instance.is_some()
        && volume.claim_uuid.as_ref() == Some(&o.claim.uid)
        && volume.volume_id.as_ref() == Some(&o.claim.uid);
    (!complete).then(|| Step::Adopt { volume: volume.name.clone(), provenance: Box::new(provenance) }.into())
}

/// What an image stored under the claim's id is in use by another claim: deleting it would take it
/// from there.
fn taken(volume: &Volume) -> Decision {
    let by = volume.claim_ref.as_ref().map(|reference| reference.name.to_string()).unwrap_or_default();
    Decision::wait(
        reason::VOLUME_REFUSED,
        format!(
            "volume {} was made for this claim, but claim {by} has it, so that it is not deleted with this claim; to let go of it, annotate this claim with {}={}",
            volume.name,
            names::ABANDON,
            names::ABANDON_YES
        ),
    )
}

/// The recipe of the attempt; where it is lost, that of the class.
fn recipe<'a>(o: &Observed<'a>) -> Option<&'a Recipe> {
    o.stamped_recipe.or(match o.class {
        Serving::Ours(class) => class.recipe.as_deref().ok(),
        Serving::NotOurs => None,
    })
}

/// The node that a volume belongs to, where the class makes volumes on nodes.
fn made_on(o: &Observed<'_>, recipe: &Recipe) -> String {
    if recipe.placement == Placement::Any {
        return String::new();
    }
    o.seen_nodes.last().or(o.claim.nodes.last()).or(o.claim.selected_node.as_ref()).cloned().unwrap_or_default()
}

/// Nodes to note beside those that are, if any.
fn unnoted(o: &Observed<'_>) -> Option<Vec<String>> {
    let new: Vec<_> = o.seen_nodes.iter().filter(|node| !o.claim.nodes.contains(node)).cloned().collect();
    let on_nodes = recipe(o).is_none_or(|recipe| recipe.placement == Placement::SelectedNode);
    (on_nodes && !new.is_empty()).then(|| {
        let mut nodes = o.claim.nodes.clone();
        nodes.extend(new);
        nodes.dedup();
        nodes
    })
}

/// Rows 7 to 16: what was begun for a claim that goes, or that found another volume, is taken back.
fn leaving(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    if claim.abandoned {
        return Decision::from(Step::Release).saying(
            true,
            reason::VOLUME_FAILED_DELETE,
            "let go by annotation; what an attempt left behind was not deleted",
        );
    }
    if let Some(nodes) = unnoted(o) {
        return Step::NoteNodes { nodes }.into();
    }
    if let Some(wait) = process(o) {
        return wait;
    }
    let volumes = || o.volumes.iter().map(|candidate| candidate.volume);
    if let Some(volume) = volumes().find(|volume| is_taken(o, volume)) {
        return taken(volume);
    }
    // A volume under any other name is no volume of the claim: its delete run would not be told
    // apart from that of the right one.
    if let Some(volume) = volumes().find(|volume| volume.name == names::pv_name(&claim.uid)) {
        if volume.claim_uuid.as_ref().is_some_and(|uuid| *uuid != claim.uid) {
            return Decision::wait(
                reason::VOLUME_FAILED_DELETE,
                format!(
                    "volume {} has the name of this claim's volume, but its annotation {} names another; delete that volume, then what an attempt left behind is deleted",
                    volume.name,
                    names::CLAIM_UUID
                ),
            );
        }
        if is_vanishing(volume) {
            return vanishing(volume);
        }
        return adopted(o, volume).unwrap_or_else(|| Step::Release.into());
    }
    if !o.no_volume {
        return Step::ConfirmNoVolume.into();
    }
    match recipe(o) {
        Some(recipe) => deleting(o, recipe, now),
        None => unknown(),
    }
}

/// Rows 9 and 10: no process of a provision run may be left before its traces are removed.
fn process(o: &Observed<'_>) -> Option<Decision> {
    if let Some(job) = o.jobs.iter().find(|job| !job.deleting) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    // A Job that was just created may not be seen yet.
    let goes_on = matches!(o.run, RunState::Running | RunState::Stuck { .. });
    (o.pods_alive || goes_on || !o.jobs.is_empty()).then(Decision::nothing)
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

fn vanishing(volume: &Volume) -> Decision {
    Decision::wait(reason::WAITING, format!("volume {} is being deleted; its end is waited for", volume.name))
}

/// Row 16.
fn deleting(o: &Observed<'_>, recipe: &Recipe, now: i64) -> Decision {
    let claim = o.claim;
    let last = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = last.map_or(1, |failure| failure.attempt.saturating_add(1));
    let node = claim.nodes.first().cloned().unwrap_or_default();
    match &o.delete_run {
        RunState::Absent => {
            let due = last.map_or(now, |failure| failure.at.saturating_add(pause(recipe, failure.attempt)));
            if now < due {
                return Decision::nothing().until(due);
            }
            Step::StartDelete { attempt, node }.into()
        }
        RunState::Running => Decision::nothing(),
        RunState::Stuck { cause, .. } => Decision::wait(
            reason::VOLUME_FAILED_DELETE,
            format!("deleting what an attempt left behind: {}", cause.message),
        ),
        RunState::Succeeded => match o.delete_job.filter(|job| !job.deleting) {
            Some(_) => Step::SettleNode { nodes: claim.nodes.iter().skip(1).cloned().collect() }.into(),
            None => Decision::nothing(),
        },
        RunState::Failed { cause, at, settled, .. } => {
            if !settled {
                return Decision::nothing();
            }
            let failure = LastFailure::of_delete(attempt, just_now(*at, now), cause, last);
            let next = pause(recipe, attempt);
            Decision::from(Step::RecordFailure { failure, nodes: claim.nodes.clone() }).saying(
                true,
                reason::VOLUME_FAILED_DELETE,
                format!(
                    "deleting what an attempt left behind failed (attempt {attempt}): {}; next try in {next} s",
                    cause.message
                ),
            )
        }
    }
}

/// Rows 17 to 34.
fn pending(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let Serving::Ours(class) = o.class else {
        return match claim.is_held() {
            true => Decision::wait(
                reason::WAITING,
                "the claim's class is not served by this provisioner any more; what was begun waits for it, or for the claim's deletion",
            ),
            false => Decision::nothing(),
        };
    };
    if claim.volume_name.is_some() && !claim.is_held() {
        return Decision::nothing();
    }
    match claim.own_stamp() {
        Some(_) => stamped(o, class, now),
        None => unstamped(o, class, now),
    }
}

/// Rows 18 and 19.
fn unstamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Decision::wait(reason::WAITING, why.clone()),
    };
    if class.binding == BindingMode::WaitForFirstConsumer && claim.selected_node.is_none() {
        return Decision::nothing();
    }
    if let Err(why) = acceptable(claim, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = served_later(o, now) {
        return wait;
    }
    let stamp = Decision::from(Step::Stamp { attempt: 1, nodes: nodes_from(o, recipe) });
    match &claim.stamp {
        Some(_) => stamp.saying(true, reason::STAMP_REPLACED, "the claim bore the stamp of another claim, as a copy or a restored backup does; it has been replaced"),
        None if !class.has_object => stamp.saying(
            false,
            reason::CLASS_WITHOUT_OBJECT,
            format!("class {} is served without a StorageClass object; the warning `storageclass.storage.k8s.io \"{}\" not found` on this claim is harmless", class.name, class.name),
        ),
        None => stamp,
    }
}

/// No attempt can begin now: the recipe is not kept yet, or there is no room.
fn served_later(o: &Observed<'_>, now: i64) -> Option<Decision> {
    match (o.kept, o.room) {
        // The revision's event comes.
        (false, _) => Some(Decision::nothing()),
        (true, false) => Some(Decision::nothing().until(now + seconds(ROOM))),
        (true, true) => None,
    }
}

/// Where an attempt that begins now may leave something; last, where it is to run.
fn nodes_from(o: &Observed<'_>, recipe: &Recipe) -> Vec<String> {
    let mut nodes = match o.claim.own_stamp() {
        Some(_) => unnoted(o).unwrap_or_else(|| o.claim.nodes.clone()),
        None => Vec::new(),
    };
    if let Some(node) = o.claim.selected_node.as_ref().filter(|_| recipe.placement == Placement::SelectedNode) {
        nodes.retain(|noted| noted != node);
        nodes.push(node.clone());
    }
    nodes
}

/// Whether the class can serve such a claim at all.
pub fn acceptable(claim: &Claim, recipe: &Recipe) -> Result<(), String> {
    let size = claim.size.clone()?;
    if let Some(min) = recipe.min_size.filter(|min| size < *min) {
        return Err(format!(
            "the claim asks for {}, class {} begins at {}; ask for more",
            quantity(size).0,
            recipe.class,
            quantity(min).0
        ));
    }
    if let Some(max) = recipe.max_size.filter(|max| size > *max) {
        return Err(format!(
            "the claim asks for {}, class {} ends at {}; ask for less",
            quantity(size).0,
            recipe.class,
            quantity(max).0
        ));
    }
    if let Some(mode) = claim.access_modes.iter().find(|mode| !recipe.access_modes.contains(mode)) {
        return Err(format!(
            "class {} has no access mode {mode}; it has {}",
            recipe.class,
            recipe.access_modes.join(", ")
        ));
    }
    if !recipe.volume_modes.contains(&claim.volume_mode) {
        return Err(format!(
            "class {} has no volume mode {}; it has {}",
            recipe.class,
            claim.volume_mode,
            recipe.volume_modes.join(", ")
        ));
    }
    if claim.has_selector {
        return Err(
            "the claim selects volumes by labels (spec.selector), which no new volume can satisfy; remove the selector"
                .into(),
        );
    }
    if let Some(source) = &claim.data_source {
        return Err(format!(
            "the claim wants to be filled from {source}, which the image of class {} cannot do",
            recipe.class
        ));
    }
    if let Some(attributes) = &claim.attributes_class {
        return Err(format!(
            "the claim asks for the VolumeAttributesClass {attributes}, which class {} cannot give",
            recipe.class
        ));
    }
    Ok(())
}

/// Rows 20 to 34.
fn stamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    if let Some(right) = o.volumes.iter().find(|candidate| candidate.misfits.is_empty()) {
        if is_vanishing(right.volume) {
            return vanishing(right.volume);
        }
        return adopted(o, right.volume).unwrap_or_else(|| {
            Decision::from(Step::Bind { volume: right.volume.name.clone() }).saying(
                false,
                reason::PROVISIONING_SUCCEEDED,
                format!("bound to volume {}", right.volume.name),
            )
        });
    }
    let wrong = o.volumes.iter().find(|candidate| {
        !candidate.misfits.is_empty() && candidate.volume.quarantine.as_deref() != Some(&candidate.misfits.join("; "))
    });
    if let Some(wrong) = wrong {
        let why = wrong.misfits.join("; ");
        let told = format!("volume {} does not fit the claim and is not bound: {why}", wrong.volume.name);
        return Decision::from(Step::Quarantine { volume: wrong.volume.name.clone(), why }).saying(
            true,
            reason::VOLUME_REFUSED,
            told,
        );
    }
    let last = claim.last_failure.as_ref();
    if let Some(failure) = last.filter(|f| f.operation == Operation::Provision && f.attempt == attempt) {
        return failed(o, class, failure, now);
    }
    if let Some(wrong) = o.volumes.iter().find(|candidate| !candidate.misfits.is_empty()) {
        let why = format!("volume {} does not fit: {}", wrong.volume.name, wrong.misfits.join("; "));
        return record(o, class, Cause::new("VolumeRefused", why), Failure::Never, now);
    }
    if !claim.is_held() {
        return stopping(o).unwrap_or_else(|| anew(o, class, now));
    }
    match &o.run {
        RunState::Absent if o.stamped_recipe.is_none() => record(
            o,
            class,
            Cause::new("ConfigLost", "the provisioner config of the attempt is not known any more"),
            Failure::Retry,
            now,
        ),
        RunState::Absent => absent(o, class, now),
        RunState::Running => Decision::nothing(),
        RunState::Stuck { cause, since } => stuck(o, class, cause, *since, now),
        RunState::Succeeded if !o.no_volume => Step::ConfirmNoVolume.into(),
        RunState::Succeeded => {
            let cause = Cause::new(
                "NoVolume",
                format!(
                    "the image exited 0 without creating the PersistentVolume {} (an image creates it as its last act, for example with `flex-pv create`)",
                    names::pv_name(&claim.uid)
                ),
            );
            record(o, class, cause, Failure::Retry, now)
        }
        RunState::Failed { cause, kind, at, .. } => record(o, class, cause.clone(), *kind, just_now(*at, now)),
    }
}

/// Rows 29 and 30.
fn absent(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    if !o.fresh {
        return Step::Refresh.into();
    }
    // Of an attempt before, as it may be after somebody changed the stamp.
    if let Some(wait) = stopping(o) {
        return wait;
    }
    if class.binding == BindingMode::WaitForFirstConsumer && o.claim.selected_node.is_none() {
        return Decision::nothing();
    }
    // The stamp stands where users can write: one of theirs does not get them past the limits.
    if let Some(Err(why)) = o.stamped_recipe.map(|recipe| acceptable(o.claim, recipe)) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if is_unnoted(o) { anew(o, class, now) } else { Step::StartRun.into() }
}

/// The attempt after the stamped one.
fn anew(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    match &class.recipe {
        Ok(recipe) => next(o, recipe, attempt, now),
        Err(why) => Decision::wait(reason::WAITING, why.clone()),
    }
}

/// The selected node is not the one that the stamp was written for.
fn is_unnoted(o: &Observed<'_>) -> bool {
    let on_nodes = recipe(o).is_some_and(|recipe| recipe.placement == Placement::SelectedNode);
    on_nodes && o.claim.selected_node.as_ref().is_some_and(|node| !o.claim.nodes.contains(node))
}

/// A time that a node's clock says, which may be wrong or missing, as one from which to count a pause.
pub fn just_now(at: i64, now: i64) -> i64 {
    at.clamp(now - 60, now)
}

/// Row 31.
fn stuck(o: &Observed<'_>, class: &Class, cause: &Cause, since: i64, now: i64) -> Decision {
    let image = cause.reason.contains("Image") || cause.reason.contains("ConfigError");
    let give_up = since.saturating_add(seconds(STUCK_IMAGE));
    let changed = is_newer(o, class);
    if changed || (image && now >= give_up) {
        return record(o, class, cause.clone(), Failure::Retry, now);
    }
    let told = Decision::wait(reason::PROVISIONING_FAILED, cause.message.clone());
    if image { told.until(give_up) } else { told }
}

/// The class has a recipe, and it is not the one of the attempt.
fn is_newer(o: &Observed<'_>, class: &Class) -> bool {
    let current = class.recipe.as_ref().ok().map(|recipe| recipe.version());
    o.kept && current.is_some() && current.as_deref() != o.claim.own_stamp().map(|stamp| stamp.config.as_str())
}

/// The Job of an attempt could not be created: the attempt has failed.
pub fn failed_start(o: &Observed<'_>, class: &Class, cause: Cause, kind: Failure, now: i64) -> Decision {
    record(o, class, cause, kind, now)
}

/// Rows 23 and 30 to 33: remember a failed attempt, and say what comes next.
fn record(o: &Observed<'_>, class: &Class, cause: Cause, kind: Failure, at: i64) -> Decision {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let failure = LastFailure {
        operation: Operation::Provision,
        attempt,
        at,
        kind,
        reason: cause.reason,
        message: cause.message,
        without_account: false,
    };
    let next = match (kind, recipe(o)) {
        (Failure::Never, _) => format!(
            "it will not work by trying again, so the next try is when the provisioner config or the class changes, or in {} min",
            SLOW.as_secs() / 60
        ),
        (Failure::NoRoom, _) if class.binding == BindingMode::WaitForFirstConsumer => {
            "the scheduler is asked for another node".to_owned()
        }
        (_, Some(recipe)) => format!("next try in {} s", pause(recipe, attempt)),
        (_, None) => "next try when the class has a provisioner config".to_owned(),
    };
    let told = format!("attempt {attempt} failed: {}; {next}", failure.message);
    let nodes = unnoted(o).unwrap_or_else(|| o.claim.nodes.clone());
    Decision::from(Step::RecordFailure { failure, nodes }).saying(true, reason::PROVISIONING_FAILED, told)
}

/// Rows 24 to 27.
fn failed(o: &Observed<'_>, class: &Class, failure: &LastFailure, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(wait) = stopping(o) {
        return wait;
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Decision::wait(reason::WAITING, why.clone()),
    };
    let delayed = class.binding == BindingMode::WaitForFirstConsumer;
    if delayed && failure.kind == Failure::NoRoom {
        return match &claim.selected_node {
            Some(node) => Decision::from(Step::Reschedule).saying(
                false,
                reason::RESCHEDULING,
                format!("no room on node {node}: {}; the scheduler is asked for another node", failure.message),
            ),
            // The scheduler was asked. Whichever node it selects, be it the same, gets an attempt.
            None => {
                let failure = LastFailure { kind: Failure::Retry, ..failure.clone() };
                Step::RecordFailure { failure, nodes: claim.nodes.clone() }.into()
            }
        };
    }
    if delayed && claim.selected_node.is_none() {
        return Decision::nothing();
    }
    let wait = match failure.kind {
        _ if is_newer(o, class) => 0,
        Failure::Never => seconds(SLOW),
        Failure::Retry | Failure::NoRoom => pause(recipe, failure.attempt),
    };
    let due = failure.at.saturating_add(wait);
    if wait > 0 && now < due {
        return Decision::nothing().until(due);
    }
    next(o, recipe, failure.attempt, now)
}

/// What must end before another attempt may begin, if anything.
fn stopping(o: &Observed<'_>) -> Option<Decision> {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let ends =
        |job: &Job| job.marks.attempt == attempt && matches!(o.run, RunState::Failed { .. } | RunState::Succeeded);
    let running = || o.jobs.iter().filter(|job| !job.over);
    if let Some(job) = running().find(|job| !job.deleting && !ends(job)) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    let goes_on = matches!(o.run, RunState::Running | RunState::Stuck { .. });
    (o.pods_alive || goes_on || running().next().is_some()).then(Decision::nothing)
}

fn next(o: &Observed<'_>, recipe: &Recipe, attempt: u32, now: i64) -> Decision {
    if let Err(why) = acceptable(o.claim, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    served_later(o, now)
        .unwrap_or_else(|| Step::Stamp { attempt: attempt.saturating_add(1), nodes: nodes_from(o, recipe) }.into())
}

/// Seconds between a failed attempt and the next.
pub fn pause(recipe: &Recipe, attempt: u32) -> i64 {
    if attempt > recipe.retries {
        return seconds(SLOW.max(recipe.backoff.max));
    }
    let doubled = recipe.backoff.initial.saturating_mul(1 << attempt.saturating_sub(1).min(20));
    seconds(doubled.min(recipe.backoff.max))
}

fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
