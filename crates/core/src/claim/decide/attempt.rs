//! Decisions about claims that wait for a volume: the stamp, the attempts, and what follows each attempt.

use flex_contract::exit::Failure;
use flex_contract::names::{self, reason};
use flex_contract::request::Operation;

use super::adoption::{
    adopted, claimed_by_other, is_terminating_without_finalizer, transferred, wait_for_end, was_taken_from,
};
use super::data_source::{keeps_original, left_to_populator, waits_for_original};
use super::failed::{failed, record_failure, stuck};
use super::placement::{ignored_node_message, is_on_wrong_node, nodes_from, selected_is_unfit};
use super::pooled::{assigned, complete_pool_request, was_assigned};
use super::{Candidate, Decision, Observed, ServedClass, Step, succeeded, unreachable_node};
use crate::claim::admit::admit;
use crate::config::Recipe;
use crate::config::classes::{BindingMode, Class};
use crate::limits;
use crate::model::claim::Binding;
use crate::model::claim::MAX_VOLUME_GENERATIONS;
use crate::model::claim::WRITE_OUTCOME_AFTER;
use crate::model::volume::Volume;
use crate::run::backoff::{clamp_to_recent, delay, seconds, wait_for_slot};
use crate::run::state::{Cause, RunState};
use crate::run::view::Job;

/// The reason of the failure of an attempt whose volume does not fit.
pub(super) const VOLUME_REFUSED: &str = "VolumeRefused";

/// Decides rows 17 to 34.
pub(super) fn pending(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let ServedClass::Ours(class) = o.class else {
        return if claim.has_finalizer() { not_ours(o) } else { Decision::nothing() };
    };
    if claim.volume_name.is_some() && !claim.has_finalizer() {
        return Decision::nothing();
    }
    match claim.own_stamp() {
        Some(_) => stamped(o, class, now),
        None => unstamped(o, class, now),
    }
}

/// Decides row 17 for a claim that is held: the attempt that has begun ends, and no other follows.
fn not_ours(o: &Observed<'_>) -> Decision {
    let waits = || {
        Decision::wait(
            reason::WAITING,
            "this provisioner does not serve the claim's class any more; the attempt waits until it does again, or until the claim is deleted",
        )
    };
    match o.claim.own_stamp() {
        None => waits(),
        Some(_) => found(o).unwrap_or_else(|| match o.run {
            RunState::Running => unreachable_node(o).unwrap_or_else(Decision::nothing),
            RunState::Succeeded if is_volume_unsure(o) => Step::ConfirmNoVolume.into(),
            _ => waits(),
        }),
    }
}

/// Checks whether the class can serve the claim, with the attributes that it requests.
fn check_servable(o: &Observed<'_>, recipe: &Recipe) -> Result<(), String> {
    admit(o.claim, recipe, o.is_pool_request)?;
    o.attributes_error.map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Decides rows 18 and 19.
fn unstamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    if let Some(others) = left_to_populator(o) {
        return others;
    }
    let recipe = match &class.recipe {
        Ok(recipe) => recipe,
        Err(why) => return Decision::wait(reason::WAITING, why.clone()),
    };
    if let Some(volume) = assigned(o) {
        return was_assigned(o, volume);
    }
    if let Some(volume) = o.reserved_volume {
        let message = format!(
            "volume {volume} is reserved for this claim, so the provisioner makes no other; Kubernetes binds the two"
        );
        return Decision::nothing().with_event(reason::WAITING, message);
    }
    if class.binding == BindingMode::WaitForFirstConsumer && claim.selected_node.is_none() {
        return Decision::nothing();
    }
    if let Err(why) = check_servable(o, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    if let Some(reselect) = selected_is_unfit(o, class) {
        return reselect;
    }
    if let Some(volume) = o.pooled_volume {
        return Step::AssignPooledVolume { volume: volume.to_owned() }.into();
    }
    if let Some(why) = o.quota_error {
        let wait = Decision::wait(reason::LIMIT_REACHED, why);
        return if o.has_pending_charge { wait.requeue_at(now + seconds(WRITE_OUTCOME_AFTER)) } else { wait };
    }
    let nodes = match nodes_from(o, class, recipe) {
        Ok(nodes) => nodes,
        Err(why) => return Decision::wait(reason::WAITING, why),
    };
    if let Some(wait) = wait_to_start(o, &nodes, now) {
        return wait;
    }
    let stamp = Decision::from(Step::Stamp { attempt: 1, nodes, volume_generation: 0 });
    match &claim.stamp {
        Some(_) => stamp.with_warning(reason::STALE_STAMP_REPLACED, "the claim had the stamp of another claim, as a copy or a restored backup has; the provisioner has replaced it"),
        None if !class.has_object => stamp.with_event(
            reason::CLASS_WITHOUT_OBJECT,
            format!("class {} is served without a StorageClass object; the warning `storageclass.storage.k8s.io \"{}\" not found` on this claim is harmless", class.name, class.name),
        ),
        None => match ignored_node_message(o, class, recipe) {
            Some(message) => stamp.with_warning(reason::RESCHEDULING, message),
            None => stamp,
        },
    }
}

/// Waits if no attempt can begin now, because the recipe is not stored yet or there is no free slot.
fn wait_to_start(o: &Observed<'_>, nodes: &[String], now: i64) -> Option<Decision> {
    match (o.has_revision, o.has_slot) {
        // The revision's event will arrive.
        (false, _) => Some(Decision::nothing()),
        (true, false) => Some(wait_for_slot(Step::WaitForSlot { nodes: nodes.to_vec() }, o.claim.created, now)),
        (true, true) => None,
    }
}

/// Decides rows 20 to 23: a volume exists, however the run ended.
fn found(o: &Observed<'_>) -> Option<Decision> {
    if let Some(done) = complete_pool_request(o) {
        return Some(done);
    }
    if let Some(right) = o.volumes.iter().find(|candidate| candidate.mismatches.is_empty()) {
        if is_terminating_without_finalizer(right.volume) {
            let reserved = right.volume.claim_ref.as_ref().is_some_and(|reference| reference.uid == o.claim.uid);
            // The PV controller has begun the binding, and Kubernetes keeps a Bound volume.
            let half_bound = reserved && right.volume.phase == "Bound" && o.claim.volume_name.is_none();
            return Some(match half_bound {
                true => Step::SetVolumeName { volume: right.volume.name.clone() }.into(),
                false => wait_for_end(right.volume),
            });
        }
        return Some(adopted(o, right.volume).unwrap_or_else(|| bound(o, right)));
    }
    // The volume was taken from another claim and is this claim's for good. The PV controller binds it, but would not
    // choose a terminating volume.
    if let Some(volume) = assigned(o).map(|assigned| assigned.volume) {
        return Some(match volume.deleting && o.claim.volume_name.is_none() {
            true => Step::SetVolumeName { volume: volume.name.clone() }.into(),
            false => Decision::nothing(),
        });
    }
    // A volume that already belongs to the other claim does not count as a wrong volume.
    let theirs = transferred(o).map(|volume| &volume.name);
    let stolen = o.volumes.iter().map(|candidate| candidate.volume).find(|volume| was_taken_from(o, volume));
    if let Some(volume) = stolen.filter(|_| theirs.is_none()) {
        return Some(claimed_by_other(o, volume));
    }
    let wrong = o.volumes.iter().find(|candidate| {
        !candidate.mismatches.is_empty()
            && candidate.volume.quarantine.as_deref() != Some(&candidate.mismatches.join("; "))
            && Some(&candidate.volume.name) != theirs
    });
    wrong.map(|wrong| {
        let why = wrong.mismatches.join("; ");
        let message = format!("volume {} does not fit the claim and is not bound: {why}", wrong.volume.name);
        Decision::from(Step::Quarantine { volume: wrong.volume.name.clone(), why })
            .with_warning(reason::VOLUME_REFUSED, message)
    })
}

/// Decides row 21. The PV controller calls a claim Lost if the binding is complete before its cache has the volume with
/// the claim, and its caches may lag by any time. The volume's phase shows that the cache has the volume. Nobody else
/// writes the phase before a [sync probe](crate::sync_probe) has shown this.
fn bound(o: &Observed<'_>, candidate: &Candidate<'_>) -> Decision {
    let volume = candidate.volume;
    match o.binding {
        Binding::Direct if candidate.is_synced() => succeeded(volume, Step::Bind { volume: volume.name.clone() }),
        // The PV controller does not choose a terminating volume. It also chooses none without the claim's
        // VolumeAttributesClass, which only CSI volumes can have. But it binds a volume that the claim names.
        _ if (volume.deleting || volume.attributes_class != o.claim.attributes_class)
            && o.claim.volume_name.is_none() =>
        {
            Step::SetVolumeName { volume: volume.name.clone() }.into()
        }
        _ => Decision::nothing(),
    }
}

/// Decides rows 20 to 34.
fn stamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    if let Some(decision) = found(o) {
        return decision;
    }
    if let Some(theirs) = transferred(o) {
        return restamp_with_next_generation(o, class, theirs, now);
    }
    let last = claim.last_failure.as_ref();
    if let Some(failure) = last.filter(|f| f.operation == Operation::Provision && f.attempt == attempt) {
        return failed(o, class, failure, now);
    }
    if let Some(wrong) = o.volumes.iter().find(|candidate| !candidate.mismatches.is_empty()) {
        let why = format!("volume {} does not fit: {}", wrong.volume.name, wrong.mismatches.join("; "));
        return record_failure(o, class, Cause::new(VOLUME_REFUSED, why), Failure::Never, now);
    }
    if !claim.has_finalizer() {
        return wait_for_older_runs(o).unwrap_or_else(|| confirm_then(o, restamp(o, class, now)));
    }
    match &o.run {
        RunState::Absent if o.stamped_recipe.is_none() => record_failure(
            o,
            class,
            Cause::new("ConfigLost", "the provisioner config of the attempt is not known any more"),
            Failure::Retry,
            now,
        ),
        RunState::Absent => job_missing(o, class, now),
        RunState::Running => unreachable_node(o).unwrap_or_else(Decision::nothing),
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
            record_failure(o, class, cause, Failure::Retry, now)
        }
        RunState::Failed { cause, kind, at, .. } => {
            record_failure(o, class, cause.clone(), *kind, clamp_to_recent(*at, now))
        }
    }
}

/// A hint in the event of an image that made no volume: it may have had no token.
const TOKENLESS: &str =
    "; the provisioner config has no `service-account-name`, so that its runs get no token for the Kubernetes API";

/// Decides row 23 if another claim has taken the volume of the attempt. A new volume is made under a new id.
fn restamp_with_next_generation(o: &Observed<'_>, class: &Class, theirs: &Volume, now: i64) -> Decision {
    if let Some(wait) = wait_for_older_runs(o) {
        return wait;
    }
    let generation = o.claim.own_stamp().map_or(0, |stamp| stamp.volume_generation) + 1;
    if generation > MAX_VOLUME_GENERATIONS {
        return Decision::wait(
            reason::PROVISIONING_FAILED,
            format!(
                "other claims have taken {MAX_VOLUME_GENERATIONS} volumes that were made for this claim; the image of its class must reserve each volume for its claim (`flex-pv create`, or the admission policies of this provisioner)"
            ),
        );
    }
    let decision = restamp(o, class, now);
    match decision.step {
        // The storage that was left before belongs to the volume that was taken, and is deleted with it.
        Step::Stamp { attempt, nodes, .. } => {
            let node = nodes.last().cloned();
            Decision::from(Step::Stamp { attempt, nodes: node.into_iter().collect(), volume_generation: generation })
                .with_event(
                    reason::PROVISIONING,
                    format!("the provisioner makes another volume in place of {}", theirs.name),
                )
        }
        _ => decision,
    }
}

/// Decides rows 29 and 30.
fn job_missing(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    if !o.fresh {
        return Step::Refresh.into();
    }
    // A Job of an earlier attempt can exist if somebody has changed the stamp.
    if let Some(wait) = wait_for_older_runs(o) {
        return wait;
    }
    if class.binding == BindingMode::WaitForFirstConsumer && o.claim.selected_node.is_none() {
        return Decision::nothing();
    }
    // Users can write a stamp too. Such a stamp must not get them past the limits.
    if let Some(Err(why)) = o.stamped_recipe.map(|recipe| check_servable(o, recipe)) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    if let Some(reselect) = selected_is_unfit(o, class) {
        return reselect;
    }
    match o.missed_batch || is_on_wrong_node(o, class) {
        true => confirm_then(o, restamp(o, class, now)),
        false => keeps_original(o).or_else(|| job_removed_repeatedly(o, now)).unwrap_or_else(|| Step::StartRun.into()),
    }
}

/// Creates a Job that somebody deleted again: the first time at once, later with the backoff of failures.
fn job_removed_repeatedly(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let (removed, recipe) = (o.removed.filter(|removed| removed.times > 1)?, o.stamped_recipe?);
    let due = removed.at.min(now).saturating_add(delay(recipe, removed.times - 1));
    let message = format!(
        "somebody other than the provisioner has removed the attempt's Job {} times while it ran; find out who does that. The Job is created again in {} s",
        removed.times,
        due - now
    );
    (now < due).then(|| Decision::wait(reason::PROVISIONING_FAILED, message).requeue_at(due))
}

/// Begins the attempt after the stamped one.
fn restamp(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    match &class.recipe {
        Ok(recipe) => next(o, class, recipe, attempt, now),
        Err(why) => Decision::wait(reason::WAITING, why.clone()),
    }
}

/// Checks whether it is uncertain that no volume exists. The cache has no volume, and nobody has asked the API.
fn is_volume_unsure(o: &Observed<'_>) -> bool {
    !o.no_volume && o.volumes.is_empty()
}

/// Asks the API first if an earlier attempt may have made the volume. A lagging watch must not cause a second volume on
/// another node.
pub(super) fn confirm_then(o: &Observed<'_>, next: Decision) -> Decision {
    match next.step {
        Step::Stamp { .. } if is_volume_unsure(o) => Step::ConfirmNoVolume.into(),
        _ => next,
    }
}

/// Returns the step or the wait that ends the processes of an attempt before the next may begin, if any.
pub(super) fn wait_for_older_runs(o: &Observed<'_>) -> Option<Decision> {
    let attempt = o.claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    let ends =
        |job: &Job| job.run_labels.attempt == attempt && matches!(o.run, RunState::Failed { .. } | RunState::Succeeded);
    let running = || o.jobs.iter().filter(|job| !job.is_over);
    // The watch may show a Job before it shows the stamp for which the Job was created.
    if !o.fresh && running().any(|job| job.run_labels.attempt > attempt) {
        return Some(Step::Refresh.into());
    }
    if let Some(job) = running().find(|job| !job.deleting && !ends(job)) {
        return Some(Step::RemoveJob { job: job.name.clone() }.into());
    }
    let goes_on = matches!(o.run, RunState::Running | RunState::Stuck { .. });
    (o.has_running_pods || goes_on || running().next().is_some())
        .then(|| unreachable_node(o).unwrap_or_else(Decision::nothing))
}

pub(super) fn next(o: &Observed<'_>, class: &Class, recipe: &Recipe, attempt: u32, now: i64) -> Decision {
    if let Err(why) = check_servable(o, recipe) {
        return Decision::wait(reason::PROVISIONING_FAILED, why);
    }
    if let Some(wait) = waits_for_original(o) {
        return wait;
    }
    // An attempt that the orchestrator has given up no longer counts against the quota.
    if let Some(why) = o.quota_error {
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
    let volume_generation = o.claim.own_stamp().map_or(0, |stamp| stamp.volume_generation);
    wait_to_start(o, &nodes, now)
        .unwrap_or_else(|| Step::Stamp { attempt: attempt.saturating_add(1), nodes, volume_generation }.into())
}
