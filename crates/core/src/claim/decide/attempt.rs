//! Decisions about claims that wait for a volume: the stamp, the attempts, and what follows each attempt.

use flex_contract::cause;
use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;

use super::adoption::{adopt_unless_done, is_claimed_by_this, is_terminating_without_finalizer};
use super::data_source::protect_data_source;
use super::failed::{failed, record_failure, stuck};
use super::next_attempt::{confirm_then, end_older_runs, restamp};
use super::observed::{Candidate, Observed, ServedClass};
use super::placement::{ignored_node_message, is_on_wrong_node};
use super::pooled::{assigned, complete_pool_request};
use super::preconditions::{Attempt, Beginning};
use super::rule::{Decision, Rule, run};
use super::step::Step;
use super::taken::hold;
use super::waits::{record_again, succeeded, wait_for_end, wait_for_run};
use crate::config::Recipe;
use crate::config::classes::Class;
use crate::model::claim::{Binding, Stamp};
use crate::model::phase::VolumePhase;
use crate::rules::Rule as _;
use crate::run::backoff::{clamp_to_recent, delay, due_after};
use crate::run::rule::Rule as RunRule;
use crate::run::state::{Cause, RunState};

/// Decides about a claim that waits for its volume.
pub(super) fn pending(o: &Observed<'_>, now: i64) -> Decision {
    let claim = o.claim;
    let ServedClass::Ours(class) = o.class else {
        return if claim.is_held() { not_served(o) } else { Rule::NotOurs.nothing() };
    };
    if claim.volume_name.is_some() && !claim.is_held() {
        return Rule::VolumeNamedByUser.nothing();
    }
    match claim.own_stamp() {
        Some(_) => stamped(o, class, now),
        None => Attempt::of(Beginning::First, o, class, now).begin(|nodes| first_attempt(o, class, nodes)),
    }
}

/// Decides about a held claim of a class that is not the orchestrator's: the attempt that has begun ends, and no other
/// follows.
fn not_served(o: &Observed<'_>) -> Decision {
    let waits = || {
        Rule::ClassNotServed.warn(
            reason::WAITING_FOR_PROVISIONER,
            "this provisioner does not serve the claim's class any more; the attempt waits until it does again, or until the claim is deleted",
        )
    };
    match o.claim.own_stamp() {
        None => waits(),
        Some(_) => found(o).or_else(|| record_again(o)).unwrap_or_else(|| match o.runs.state {
            RunState::MayBeRunning => wait_for_run(o, run(RunRule::RunInProgress)),
            RunState::Succeeded if o.is_volume_unsure() => Rule::ConfirmNoVolumeMade.step(Step::ConfirmNoVolume),
            _ => waits(),
        }),
    }
}

/// Stamps a claim for its first attempt, on these nodes.
fn first_attempt(o: &Observed<'_>, class: &Class, mut nodes: Vec<String>) -> Decision {
    // Somebody may have removed the stamp of earlier attempts. Their numbers are not used again.
    let recorded = &o.runs.recorded;
    let earlier: Vec<String> = recorded.nodes.iter().filter(|node| !nodes.contains(node)).cloned().collect();
    nodes.splice(0..0, earlier);
    let stamp = Step::Stamp { attempt: recorded.last.saturating_add(1), nodes };
    if o.claim.stamp.is_some() {
        return Rule::ReplaceStaleStamp.step(stamp).with_warning(reason::STALE_STAMP_REPLACED, "the claim had the stamp of another claim, as a copy or a restored backup has; the provisioner has replaced it");
    }
    let decision = Rule::FirstAttemptDue.step(stamp);
    if !class.has_object {
        return decision.with_event(
            reason::CLASS_WITHOUT_OBJECT,
            format!("class {} is served without a StorageClass object; the warning `storageclass.storage.k8s.io \"{}\" not found` on this claim is harmless", class.name, class.name),
        );
    }
    match class.recipe.as_deref().ok().and_then(|recipe| ignored_node_message(o, class, recipe)) {
        Some(message) => decision.with_warning(reason::RESCHEDULING, message),
        None => decision,
    }
}

/// Decides about a volume that exists, however the run ended.
fn found(o: &Observed<'_>) -> Option<Decision> {
    let right = o.volumes.all.iter().find(|candidate| candidate.mismatches.is_empty());
    // A volume with a wrong name blocks no claim that has the right one.
    if let Some(decision) = hold(o).filter(|_| right.is_none()).or_else(|| complete_pool_request(o)) {
        return Some(decision);
    }
    if let Some(right) = right {
        if is_terminating_without_finalizer(&right.volume) {
            let reserved = is_claimed_by_this(o, &right.volume);
            // The PV controller has begun the binding, and Kubernetes keeps a Bound volume.
            let half_bound = reserved && right.volume.phase == VolumePhase::Bound && o.claim.volume_name.is_none();
            return Some(match half_bound {
                true => Rule::NameHalfBoundVolume.step(Step::SetVolumeName { volume: right.volume.name.clone() }),
                false => wait_for_end(&right.volume),
            });
        }
        return Some(adopt_unless_done(o, &right.volume, Rule::AdoptVolume).unwrap_or_else(|| bound(o, right)));
    }
    // The volume was assigned to the claim for good. The PV controller binds it, but would not choose a terminating volume.
    if let Some(volume) = assigned(o).map(|assigned| &assigned.volume) {
        return Some(match volume.terminating && o.claim.volume_name.is_none() {
            true => Rule::NameVolume.step(Step::SetVolumeName { volume: volume.name.clone() }),
            false => Rule::WaitForBinding.nothing(),
        });
    }
    let wrong = o.volumes.all.iter().find(|candidate| {
        !candidate.mismatches.is_empty()
            && candidate.volume.quarantine.as_deref() != Some(&candidate.mismatches.join("; "))
    });
    wrong.map(|wrong| {
        let why = wrong.mismatches.join("; ");
        let message = refusal_text(&wrong.volume.name, &why);
        Rule::QuarantineVolume
            .step(Step::Quarantine { volume: wrong.volume.name.clone(), why })
            .with_warning(reason::VOLUME_REFUSED, message)
    })
}

/// Returns the text of the event about a volume that does not fit its claim.
pub fn refusal_text(volume: &str, why: &str) -> String {
    format!("volume {volume} does not fit the claim and is not bound: {why}")
}

/// Binds an adopted volume, or leaves that to the PV controller. The PV controller calls a claim Lost if the binding is
/// complete before its cache has the volume with the claim, and its caches may lag by any time. The volume's phase
/// shows that the cache has the volume. Nobody else writes the phase before a [sync probe](crate::sync_probe) has shown
/// this.
fn bound(o: &Observed<'_>, candidate: &Candidate) -> Decision {
    let volume = &candidate.volume;
    match o.volumes.binding {
        Binding::Direct if candidate.is_known_to_pv_controller() => {
            succeeded(Rule::BindVolume, volume, Step::Bind { volume: volume.name.clone() })
        }
        // The PV controller does not choose a terminating volume. It also chooses none without the claim's
        // VolumeAttributesClass, which only CSI volumes can have. But it binds a volume that the claim names.
        _ if (volume.terminating || volume.attributes_class != o.claim.attributes_class)
            && o.claim.volume_name.is_none() =>
        {
            Rule::NameVolume.step(Step::SetVolumeName { volume: volume.name.clone() })
        }
        _ => Rule::WaitForBinding.nothing(),
    }
}

/// Decides about a claim with a stamp.
fn stamped(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    let claim = o.claim;
    let attempt = o.attempt();
    if let Some(decision) = found(o).or_else(|| record_again(o)) {
        return decision;
    }
    let last = claim.last_failure.as_ref();
    if let Some(failure) = last.filter(|f| f.operation == Operation::Provision && f.attempt == attempt) {
        return failed(o, class, failure, now);
    }
    if let Some(wrong) = o.volumes.all.iter().find(|candidate| !candidate.mismatches.is_empty()) {
        let why = format!("volume {} does not fit: {}", wrong.volume.name, wrong.mismatches.join("; "));
        return record_failure(
            o,
            class,
            Rule::RecordQuarantine,
            Cause::new(reason::VOLUME_REFUSED.name, why),
            Reaction::Never,
            now,
        );
    }
    if !claim.is_held() {
        return end_older_runs(o, now).unwrap_or_else(|| confirm_then(o, restamp(o, class, Rule::HoldLost, now)));
    }
    match &o.runs.state {
        RunState::NotCached if o.runs.recipe.is_none() => {
            let cause = Cause::new(cause::CONFIG_LOST, "the provisioner config of the attempt is not known any more");
            record_failure(o, class, Rule::RecipeLost, cause, Reaction::Retry, now)
        }
        RunState::NotCached => job_missing(o, class, now),
        RunState::MayBeRunning => in_progress(o, now),
        RunState::Stuck { cause, since } => stuck(o, class, cause, *since, now),
        RunState::Succeeded if !o.confirmed.no_volume => Rule::ConfirmNoVolumeMade.step(Step::ConfirmNoVolume),
        RunState::Succeeded => record_failure(o, class, Rule::NoVolumeMade, no_volume(o), Reaction::Retry, now),
        RunState::Failed { cause, reaction, at, .. } => {
            record_failure(o, class, run(RunRule::RunFailed), cause.clone(), *reaction, clamp_to_recent(*at, now))
        }
    }
}

/// Waits for a run. A claim in a batch gets no event while the batch is fast, because an event for each of many claims
/// costs more than it helps. After [`SLOW_BATCH`] an event says what is in progress.
fn in_progress(o: &Observed<'_>, now: i64) -> Decision {
    let wait = wait_for_run(o, run(RunRule::RunInProgress));
    let began = o.claim.own_stamp().and_then(Stamp::began);
    let job = o.runs.jobs.iter().find(|job| job.run_labels.attempt == o.attempt());
    let batch = job.and_then(|job| job.batch.as_ref());
    let (Some(batch), Some(began), None) = (batch, began, &wait.event) else { return wait };
    let due = clamp_to_recent(began.as_second(), now).saturating_add(SLOW_BATCH);
    match now < due {
        true => wait.requeue_at(due),
        false => {
            let message = format!("run {} is in progress in {}, together with other claims", o.attempt(), batch.name);
            Rule::BatchSlow.nothing().with_event(reason::PROVISIONING, message)
        }
    }
}

/// The time after which a claim in a batch gets an event that its run is in progress, in seconds.
pub(super) const SLOW_BATCH: i64 = 30;

fn no_volume(o: &Observed<'_>) -> Cause {
    no_volume_cause(o.runs.recipe.as_deref(), &names::pv_name(&o.claim.uid))
}

/// Returns the cause of the failure of an image that exited 0 and made no volume. It may have had no token.
pub fn no_volume_cause(recipe: Option<&Recipe>, volume: &str) -> Cause {
    let tokenless = recipe.is_some_and(|recipe| recipe.service_account.is_none());
    let token = if tokenless { TOKENLESS } else { "" };
    let message = format!(
        "the image exited 0 without creating the PersistentVolume {volume} (an image creates it as its last act, for example with `flex-pv create`){token}",
    );
    Cause::new(cause::NO_VOLUME, message)
}

/// A hint in the event of an image that made no volume: it may have had no token.
const TOKENLESS: &str =
    "; the provisioner config has no `service-account-name`, so its runs get no token for the Kubernetes API";

/// Decides about an attempt without a Job.
fn job_missing(o: &Observed<'_>, class: &Class, now: i64) -> Decision {
    if !o.confirmed.fresh {
        return Rule::ReadClaimBeforeRun.step(Step::Refresh);
    }
    // A Job of an earlier attempt can exist if somebody has changed the stamp.
    if let Some(wait) = end_older_runs(o, now) {
        return wait;
    }
    if let Some(unmet) = Attempt::of(Beginning::Run, o, class, now).unmet() {
        return unmet;
    }
    if is_on_wrong_node(o, class) {
        return confirm_then(o, restamp(o, class, Rule::NodeChanged, now));
    }
    // By its record, the attempt may run, perhaps in the Job of a batch that no watch has shown.
    if o.runs.recorded.last >= o.attempt() && o.is_volume_unsure() {
        return Rule::ConfirmNoVolumeBeforeAttempt.step(Step::ConfirmNoVolume);
    }
    let wait = protect_data_source(o).or_else(|| job_removed_repeatedly(o, now));
    wait.unwrap_or_else(|| run(RunRule::RunDue).step(Step::StartRun))
}

/// Waits before a Job that somebody has deleted repeatedly is created again, by the backoff of failures. The first
/// deletion causes no wait.
fn job_removed_repeatedly(o: &Observed<'_>, now: i64) -> Option<Decision> {
    let (removed, recipe) = (o.runs.removed.filter(|removed| removed.times > 1)?, o.runs.recipe.as_deref()?);
    let due = due_after(removed.at, delay(recipe, removed.times - 1), now);
    let message = format!(
        "somebody other than the provisioner has removed the attempt's Job {} times while it ran; find out who does that. The Job is created again in {} s",
        removed.times,
        due - now
    );
    (now < due).then(|| Rule::JobRemovedRepeatedly.warn(reason::PROVISIONING_FAILED, message).requeue_at(due))
}
