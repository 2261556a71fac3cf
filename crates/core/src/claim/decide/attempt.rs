//! Claims that wait for a volume: their stamp, their attempts, and what follows from each.

use std::time::Duration;

use contract::exit::Failure;
use contract::names::{self, reason};
use contract::request::Operation;

use super::adoption::{adopted, ceded, is_stolen, is_vanishing, taken, vanishing};
use super::copying::{keeps_original, left_to_others, waits_for_original};
use super::idle::{idle_attempts, noted_idle};
use super::place::{
    has_new_node, has_other_node, is_misplaced, is_movable, is_pinned, nodes_from, passed_over, selected_is_unfit,
};
use super::ready::{finished, given, was_given};
use super::{Candidate, Decision, Observed, Serving, Step, lost, recipe, succeeded};
use crate::claim::accept::acceptable;
use crate::claim::{Binding, MOST_TAKEN, UNSURE};
use crate::config::Recipe;
use crate::config::classes::{BindingMode, Class};
use crate::limits;
use crate::run::backoff::{SLOW, just_now, pause, seconds, stand_in_line};
use crate::run::failure::LastFailure;
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;
use crate::volume::Volume;

/// A pod whose image cannot be had is given up after this time; a new attempt asks anew.
const STUCK_IMAGE: Duration = Duration::from_secs(30);
/// A pod that the selected node does not take is given up after this time; another node may take it.
const STUCK_NODE: Duration = Duration::from_secs(15);

/// The image has ended, and a container beside it goes on, as one that a mesh injects. After this time it is stopped.
const LINGER: i64 = 5;
/// Why an attempt failed whose volume does not fit.
const VOLUME_REFUSED: &str = "VolumeRefused";

/// Rows 17 to 34.
pub(super) fn pending(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let Serving::Ours(class) = o.class else {
        return if claim.is_held() { unserved(o) } else { Decision::nothing() };
    };
    if claim.volume_name.is_some() && !claim.is_held() {
        return Decision::nothing();
    }
    match claim.own_stamp() {
        Some(_) => stamped(o, class, now),
        None => unstamped(o, class, now),
    }
}

/// Row 17, of a claim that is held: the attempt that was begun comes to its end, no other follows.
fn unserved(o: &Observed<'_>) -> Decision {
    let waits = || {
        Decision::wait(
            reason::WAITING,
            "this provisioner does not serve the claim's class any more; the attempt waits until it does again, or until the claim is deleted",
        )
    };
    match o.claim.own_stamp() {
        None => waits(),
        Some(_) => found(o).unwrap_or_else(|| match o.run {
            RunState::Running => lost(o).unwrap_or_else(Decision::nothing),
            RunState::Succeeded if is_volume_unsure(o) => Step::ConfirmNoVolume.into(),
            _ => waits(),
        }),
    }
}

/// Whether the class can serve the claim, with the attributes that it asks for.
fn servable(o: &Observed<'_>, recipe: &Recipe) -> Result<(), String> {
    acceptable(o.claim, recipe, o.request)?;
    o.attributes.map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Rows 18 and 19.
fn unstamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(others) = left_to_others(o) {
        return others;
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Decision::wait(reason::WAITING, why.clone()),
    };
    if let Some(volume) = given(o) {
        return was_given(o, volume);
    }
    if let Some(volume) = o.reserved {
        let told = format!(
            "volume {volume} is reserved for this claim, so the provisioner makes no other; Kubernetes binds the two"
        );
        return Decision::nothing().saying(false, reason::WAITING, told);
    }
    if class.binding == BindingMode::WaitForFirstConsumer && claim.selected_node.is_none() {
        return Decision::nothing();
    }
    if let Err(why) = servable(o, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    if let Some(reselect) = selected_is_unfit(o, class) {
        return reselect;
    }
    if let Some(volume) = o.ready {
        return Step::Take { volume: volume.to_owned() }.into();
    }
    if let Some(why) = o.limit {
        let wait = Decision::wait(reason::LIMIT_REACHED, why);
        return if o.promised { wait.until(now + seconds(UNSURE)) } else { wait };
    }
    let nodes = match nodes_from(o, class, recipe) {
        Ok(nodes) => nodes,
        Err(why) => return Decision::wait(reason::WAITING, why),
    };
    if let Some(wait) = served_later(o, &nodes, now) {
        return wait;
    }
    let stamp = Decision::from(Step::Stamp { attempt: 1, nodes, taken: 0 });
    match &claim.stamp {
        Some(_) => stamp.saying(true, reason::STAMP_REPLACED, "the claim had the stamp of another claim, as a copy or a restored backup has; the provisioner has replaced it"),
        None if !class.has_object => stamp.saying(
            false,
            reason::CLASS_WITHOUT_OBJECT,
            format!("class {} is served without a StorageClass object; the warning `storageclass.storage.k8s.io \"{}\" not found` on this claim is harmless", class.name, class.name),
        ),
        None => match passed_over(o, class, recipe) {
            Some(told) => stamp.saying(true, reason::RESCHEDULING, told),
            None => stamp,
        },
    }
}

/// No attempt can begin now: the recipe is not kept yet, or there is no room for a run there.
fn served_later(o: &Observed<'_>, nodes: &[String], now: i64) -> Option<Decision> {
    match (o.kept, o.room) {
        // The revision's event comes.
        (false, _) => Some(Decision::nothing()),
        (true, false) => Some(stand_in_line(Step::StandInLine { nodes: nodes.to_vec() }, o.claim.created, now)),
        (true, true) => None,
    }
}

/// Rows 20 to 23: a volume came, whatever became of the run.
fn found(o: &Observed<'_>) -> Option<Decision> {
    if let Some(done) = finished(o) {
        return Some(done);
    }
    if let Some(right) = o.volumes.iter().find(|candidate| candidate.misfits.is_empty()) {
        if is_vanishing(right.volume) {
            let reserved = right.volume.claim_ref.as_ref().is_some_and(|reference| reference.uid == o.claim.uid);
            // The PV controller has begun to bind it, and Kubernetes keeps what is Bound.
            let half_bound = reserved && right.volume.phase == "Bound" && o.claim.volume_name.is_none();
            return Some(match half_bound {
                true => Step::Name { volume: right.volume.name.clone() }.into(),
                false => vanishing(right.volume),
            });
        }
        return Some(adopted(o, right.volume).unwrap_or_else(|| bound(o, right)));
    }
    // One that was taken from another claim, and given to this one for good. The PV controller binds it, but would not
    // choose one that is going.
    if let Some(volume) = given(o).map(|given| given.volume) {
        return Some(match volume.deleting && o.claim.volume_name.is_none() {
            true => Step::Name { volume: volume.name.clone() }.into(),
            false => Decision::nothing(),
        });
    }
    // What is the other claim's by now is no wrong volume, but none.
    let theirs = ceded(o).map(|volume| &volume.name);
    let stolen = o.volumes.iter().map(|candidate| candidate.volume).find(|volume| is_stolen(o, volume));
    if let Some(volume) = stolen.filter(|_| theirs.is_none()) {
        return Some(taken(o, volume));
    }
    let wrong = o.volumes.iter().find(|candidate| {
        !candidate.misfits.is_empty()
            && candidate.volume.quarantine.as_deref() != Some(&candidate.misfits.join("; "))
            && Some(&candidate.volume.name) != theirs
    });
    wrong.map(|wrong| {
        let why = wrong.misfits.join("; ");
        let told = format!("volume {} does not fit the claim and is not bound: {why}", wrong.volume.name);
        Decision::from(Step::Quarantine { volume: wrong.volume.name.clone(), why }).saying(
            true,
            reason::VOLUME_REFUSED,
            told,
        )
    })
}

/// Row 21. The PV controller calls a claim Lost whose binding is complete before it knows the volume as the claim's, and
/// its caches may lag by any time. That it does know it shows by the volume's phase, which nobody else writes before a
/// [marker](crate::marker) has shown it.
fn bound(o: &Observed<'_>, candidate: &Candidate<'_>) -> Decision {
    let volume = candidate.volume;
    match o.binding {
        Binding::Direct if candidate.is_known() => succeeded(volume, Step::Bind { volume: volume.name.clone() }),
        // It chooses none that is going, and none without the claim's VolumeAttributesClass, which only CSI volumes can
        // have; but it binds what is asked for.
        _ if (volume.deleting || volume.attributes_class != o.claim.attributes_class)
            && o.claim.volume_name.is_none() =>
        {
            Step::Name { volume: volume.name.clone() }.into()
        }
        _ => Decision::nothing(),
    }
}

/// Rows 20 to 34.
fn stamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    if let Some(decision) = found(o) {
        return decision;
    }
    if let Some(theirs) = ceded(o) {
        return afresh(o, class, theirs, now);
    }
    let last = claim.last_failure.as_ref();
    if let Some(failure) = last.filter(|f| f.operation == Operation::Provision && f.attempt == attempt) {
        return failed(o, class, failure, now);
    }
    if let Some(wrong) = o.volumes.iter().find(|candidate| !candidate.misfits.is_empty()) {
        let why = format!("volume {} does not fit: {}", wrong.volume.name, wrong.misfits.join("; "));
        return record(o, class, Cause::new(VOLUME_REFUSED, why), Failure::Never, now);
    }
    if !claim.is_held() {
        return stopping(o).unwrap_or_else(|| after_another(o, anew(o, class, now)));
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
        RunState::Running => lost(o).unwrap_or_else(Decision::nothing),
        RunState::Stuck { cause, since } => stuck(o, class, cause, *since, now),
        RunState::Succeeded if !o.no_volume => Step::ConfirmNoVolume.into(),
        RunState::Succeeded => {
            let tokenless = o.stamped_recipe.is_some_and(|recipe| recipe.service_account.is_none());
            let token = if tokenless { TOKENLESS } else { "" };
            let cause = Cause::new(
                "NoVolume",
                format!(
                    "the image exited 0 without creating the PersistentVolume {} (an image creates it as its last act, for example with `flex-pv create`){token}",
                    names::pv_name(&claim.id())
                ),
            );
            record(o, class, cause, Failure::Retry, now)
        }
        RunState::Failed { cause, kind, at, .. } => record(o, class, cause.clone(), *kind, just_now(*at, now)),
    }
}

/// Beside an image that made no volume: why it may have had nothing to make it with.
const TOKENLESS: &str =
    "; the provisioner config has no `service-account-name`, so that its runs get no token for the Kubernetes API";

/// Row 23: the volume of the attempt is another claim's, so that another must be made, under an id of
/// its own.
fn afresh(o: &Observed<'_>, class: &Class, theirs: &Volume, now: i64) -> Decision {
    if let Some(wait) = stopping(o) {
        return wait;
    }
    let lost = o.claim.own_stamp().map_or(0, |stamp| stamp.taken) + 1;
    if lost > MOST_TAKEN {
        return Decision::wait(
            reason::PROVISIONING_FAILED,
            format!(
                "other claims have taken {MOST_TAKEN} volumes that were made for this claim; the image of its class must reserve each volume for its claim (`flex-pv create`, or the admission policies of this provisioner)"
            ),
        );
    }
    let decision = anew(o, class, now);
    match decision.step {
        // What was left before goes with the volume that was taken.
        Step::Stamp { attempt, nodes, .. } => {
            let node = nodes.last().cloned();
            Decision::from(Step::Stamp { attempt, nodes: node.into_iter().collect(), taken: lost }).saying(
                false,
                reason::PROVISIONING,
                format!("the provisioner makes another volume in place of {}", theirs.name),
            )
        }
        _ => decision,
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
    if let Some(Err(why)) = o.stamped_recipe.map(|recipe| servable(o, recipe)) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    if let Some(reselect) = selected_is_unfit(o, class) {
        return reselect;
    }
    match o.left_out || is_misplaced(o, class) {
        true => after_another(o, anew(o, class, now)),
        false => keeps_original(o).or_else(|| begun_again(o, now)).unwrap_or_else(|| Step::StartRun.into()),
    }
}

/// A Job that somebody removed is created again at once; the next times at the pace of failures.
fn begun_again(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let (removed, recipe) = (o.removed.filter(|removed| removed.times > 1)?, o.stamped_recipe?);
    let due = removed.at.min(now).saturating_add(pause(recipe, removed.times - 1));
    let told = format!(
        "somebody other than the provisioner has removed the attempt's Job {} times while it ran; find out who does that. The Job is created again in {} s",
        removed.times,
        due - now
    );
    (now < due).then(|| Decision::wait(reason::PROVISIONING_FAILED, told).until(due))
}

/// The attempt after the stamped one.
fn anew(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    match &class.recipe {
        Ok(recipe) => next(o, class, recipe, attempt, now),
        Err(why) => Decision::wait(reason::WAITING, why.clone()),
    }
}

/// Row 31.
fn stuck(o: &Observed<'_>, class: &Class, cause: &Cause, since: i64, now: i64) -> Decision {
    if is_newer(o, class) {
        return record(o, class, cause.clone(), Failure::Retry, now);
    }
    let told = Decision::wait(reason::PROVISIONING_FAILED, cause.message.clone());
    let image = cause.reason.contains("Image") || cause.reason.contains("ConfigError");
    // Cordoned, tainted or full since it was selected: another node may take it.
    let unfit = cause.reason == "Unschedulable" && (is_pinned(o, class) || has_other_node(o, class));
    let (patience, kind) = match (image, unfit) {
        (true, _) => (STUCK_IMAGE, Failure::Retry),
        (_, true) => (STUCK_NODE, Failure::NoRoom),
        _ => return told,
    };
    let give_up = since.saturating_add(seconds(patience));
    if now >= give_up { record(o, class, cause.clone(), kind, now) } else { told.until(give_up) }
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
        config: String::new(),
        idle_attempts: idle_attempts(o, o.never_ran),
    };
    let next = match (kind, recipe(o)) {
        (Failure::Never, _) => format!(
            "a retry would fail, too, so the next try is when the provisioner config or the class changes, or in {} min",
            SLOW.as_secs() / 60
        ),
        (Failure::NoRoom, _) if is_movable(o, class) => {
            "the provisioner asks the scheduler for another node".to_owned()
        }
        (Failure::NoRoom, _) if has_new_node(o, class) => "the provisioner tries another node".to_owned(),
        (_, Some(recipe)) => format!("next try in {} s", pause(recipe, attempt)),
        (_, None) => "next try when the class has a provisioner config".to_owned(),
    };
    let told = format!("attempt {attempt} failed: {}; {next}", failure.message);
    Decision::from(Step::RecordFailure { failure }).saying(true, reason::PROVISIONING_FAILED, told)
}

/// Rows 24 to 27.
fn failed(o: &Observed<'_>, class: &Class, failure: &LastFailure, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(failure) = noted_idle(o) {
        return Step::RecordFailure { failure }.into();
    }
    if let Some(wait) = stopping(o) {
        return ended_but_in_part(o, failure, now).unwrap_or(wait);
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Decision::wait(reason::WAITING, why.clone()),
    };
    let delayed = class.binding == BindingMode::WaitForFirstConsumer;
    if is_movable(o, class) && failure.kind == Failure::NoRoom {
        // Whichever node the scheduler selects next, be it the same, gets an attempt.
        let failure = LastFailure { kind: Failure::Retry, ..failure.clone() };
        return match &claim.selected_node {
            Some(node) => Decision::from(Step::Reschedule { failure: Some(failure.clone()) }).saying(
                false,
                reason::RESCHEDULING,
                format!(
                    "no room on node {node}: {}; the provisioner asks the scheduler for another node",
                    failure.message
                ),
            ),
            // Somebody else asked the scheduler.
            None => Step::RecordFailure { failure }.into(),
        };
    }
    if delayed && claim.selected_node.is_none() {
        return Decision::nothing();
    }
    let wait = match failure.kind {
        _ if is_newer(o, class) => 0,
        Failure::NoRoom if has_new_node(o, class) => 0,
        // Somebody has deleted the volume that was refused.
        Failure::Never if failure.reason == VOLUME_REFUSED && o.volumes.is_empty() => 0,
        Failure::Never => seconds(SLOW),
        Failure::Retry | Failure::NoRoom => pause(recipe, failure.attempt),
    };
    if let Some(reselect) = selected_is_unfit(o, class) {
        return reselect;
    }
    let due = failure.at.saturating_add(wait);
    if wait > 0 && now < due {
        return Decision::nothing().until(due);
    }
    after_another(o, next(o, class, recipe, failure.attempt, now))
}

/// The image has ended with a failure, and another container of its pod goes on: the run is over all the same.
fn ended_but_in_part(o: &Observed<'_>, failure: &LastFailure, now: i64) -> Option<Decision> {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let job = o.jobs.iter().find(|job| job.marks.attempt == attempt && !job.over && !job.deleting)?;
    let due = failure.at.saturating_add(LINGER);
    match o.run {
        RunState::Failed { settled: false, .. } if now >= due => Some(Step::RemoveJob { job: job.name.clone() }.into()),
        RunState::Failed { settled: false, .. } => Some(lost(o).unwrap_or_else(Decision::nothing).until(due)),
        _ => None,
    }
}

/// No volume is seen, and nobody has asked the API for one.
fn is_volume_unsure(o: &Observed<'_>) -> bool {
    !o.no_volume && o.volumes.is_empty()
}

/// What an earlier attempt made is the claim's volume: a watch that lags must not have another made on another node.
fn after_another(o: &Observed<'_>, next: Decision) -> Decision {
    match next.step {
        Step::Stamp { .. } if is_volume_unsure(o) => Step::ConfirmNoVolume.into(),
        _ => next,
    }
}

/// What must end before another attempt may begin, if anything.
fn stopping(o: &Observed<'_>) -> Option<Decision> {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let ends =
        |job: &Job| job.marks.attempt == attempt && matches!(o.run, RunState::Failed { .. } | RunState::Succeeded);
    let running = || o.jobs.iter().filter(|job| !job.over);
    // A Job may be seen before the stamp that it was created for.
    if !o.fresh && running().any(|job| job.marks.attempt > attempt) {
        return Some(Step::Refresh.into());
    }
    if let Some(job) = running().find(|job| !job.deleting && !ends(job)) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    let goes_on = matches!(o.run, RunState::Running | RunState::Stuck { .. });
    (o.pods_alive || goes_on || running().next().is_some()).then(|| lost(o).unwrap_or_else(Decision::nothing))
}

fn next(o: &Observed<'_>, class: &Class, recipe: &Recipe, attempt: u32, now: i64) -> Decision {
    if let Err(why) = servable(o, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    // One that has given up holds no part of its class any more.
    if let Some(why) = o.limit {
        return Decision::wait(reason::LIMIT_REACHED, why);
    }
    let nodes = match nodes_from(o, class, recipe) {
        Ok(nodes) => nodes,
        Err(why) => return Decision::wait(reason::WAITING, why),
    };
    if nodes.len() > limits::NODES {
        return Decision::wait(
            reason::PROVISIONING_FAILED,
            format!(
                "attempts of this claim may have left something on {} nodes, so the provisioner tries no further node; find out why they fail, then delete the claim and create it again: its deletion removes what they left",
                limits::NODES
            ),
        );
    }
    let taken = o.claim.own_stamp().map_or(0, |stamp| stamp.taken);
    served_later(o, &nodes, now)
        .unwrap_or_else(|| Step::Stamp { attempt: attempt.saturating_add(1), nodes, taken }.into())
}
