//! The sweep: searches the cache for findings every few minutes.
//!
//! It asks the API only before it deletes an object. It deletes only objects that are provably the orchestrator's, and
//! that nothing can need any more.

use std::collections::HashSet;
use std::time::Duration;

use flex_contract::reason;
use flex_core::findings::{Finding, Removal, Searched, Severity, find};
use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::Volume;
use flex_core::rules::NewEvent;
use flex_core::volume::vouch::{ReferredClaim, is_deleted_at_once};

use crate::api::writes::{WriteError, Writes};
use crate::reconcile::claim::gone;
use crate::reconcile::context::{Context, Requeue};

/// The delay before a new finding is checked again.
const CONFIRM_AFTER: Duration = Duration::from_secs(30);

/// Searches the whole cache once.
pub async fn reconcile(context: &Context) -> Result<Requeue, WriteError> {
    let Some(interval) = context.sweep.interval() else { return Ok(Requeue::Done) };
    let now = context.clock.now();
    let again = CONFIRM_AFTER.min(interval);
    let others = context.cluster.index().observe(&context.identity, now, false);
    let found = find(Searched { objects: &context.cluster, others: &others }, now);
    let sightings = {
        let mut sightings = context.sweep.findings.lock().expect("no code panics while it holds the sightings");
        sightings.track(found, context.clock.passed(), again)
    };
    context.metrics.findings(sightings.iter().filter(|s| s.confirmed).map(|s| &s.finding.kind));
    context.sweep.set_report(now, sightings.iter().filter(|s| s.confirmed).map(|s| &s.finding));
    tracing::debug!(found = sightings.len(), "sweep finished");
    let mut claims = None;
    for sighting in sightings.iter().filter(|sighting| sighting.confirmed) {
        let finding = &sighting.finding;
        if sighting.new {
            emit_finding(context, finding);
        }
        // The reconciler of configs deletes revisions, because it knows which attempts begin with them. Only an admin
        // can vouch for a volume.
        if matches!(finding.removal, None | Some(Removal::Revision { .. } | Removal::Vouch)) {
            continue;
        }
        if claims.is_none() {
            claims = Some(context.writes.claim_ids().await?);
        }
        if remove(&context.writes, finding, claims.as_ref().unwrap_or(&HashSet::new())).await? {
            context.metrics.orphan_removed(finding.kind);
            let why = match finding.removal {
                Some(Removal::StalledJob) => "the provisioner has removed it, so the run starts again",
                Some(Removal::CopiedJob) => "the provisioner has removed it, and deletes nothing because of it",
                _ => "it was the provisioner's and nothing needed it, so the provisioner has removed it",
            };
            let message = format!("{}; {why}", finding.detail);
            let event = NewEvent { warning: false, reason: reason::ORPHAN_REMOVED, message };
            context.emit(finding.object.clone(), event);
        }
    }
    // If another claim has the name now, the run is not found by the name of its claim.
    let strays = context.cluster.index().ids_without_claim();
    let mut waits = false;
    for id in strays {
        if claims.is_none() {
            claims = Some(context.writes.claim_ids().await?);
        }
        if claims.as_ref().is_some_and(|claims| !claims.contains(&id)) {
            waits |= matches!(gone::remove_jobs(context, &id).await?, Requeue::After(_));
        }
    }
    let unsettled = waits || sightings.iter().any(|sighting| !sighting.confirmed);
    Ok(Requeue::After(if unsettled { again } else { interval }))
}

fn emit_finding(context: &Context, finding: &Finding) {
    let Finding { kind, severity, meaning, object, detail, remedy, .. } = finding;
    if kind.is_emitted_by_steps() || object.uid.is_empty() {
        tracing::warn!(%kind, %object, detail, remedy, "found an orphaned or stuck object");
        return;
    }
    let message = format!("{kind}: {meaning}: {detail}. What to do: {remedy}");
    let event = NewEvent { warning: *severity > Severity::Info, reason: reason::FINDING_REPORTED, message };
    context.emit(finding.object.clone(), event);
}

/// Deletes the object of a finding, if the API confirms that nothing needs it. `claims` are the ids of all claims, read
/// after the finding was made. Returns whether the object was deleted.
pub async fn remove(writes: &Writes, finding: &Finding, claims: &HashSet<String>) -> Result<bool, WriteError> {
    let (name, uid) = (&finding.object.name, &finding.object.uid);
    match &finding.removal {
        None => return Ok(false),
        Some(Removal::Job { claim, volume: Some(volume) }) => {
            // The reconciler of an existing claim deletes the claim's Job.
            if claims.contains(claim) || writes.read_volume(volume).await?.is_some() {
                return Ok(false);
            }
            writes.remove_job(name, uid).await?;
        }
        Some(Removal::Job { claim, volume: None }) => {
            if claims.contains(claim) && !is_settled(writes, claim).await? {
                return Ok(false);
            }
            writes.remove_job(name, uid).await?;
        }
        Some(Removal::Pod { claim }) => {
            if claims.contains(claim) {
                return Ok(false);
            }
            writes.remove_pod(name, uid).await?;
        }
        Some(Removal::Vouch) => match writes.read_volume(&name.name).await? {
            // The PV controller may have bound the volume meanwhile, and its claim may be gone since the search.
            Some(volume) if volume.uid == *uid && volume.is_restored() && !would_delete(&volume, claims) => {
                writes.vouch(&volume, None).await?;
            }
            _ => return Ok(false),
        },
        Some(Removal::OldJob | Removal::StalledJob | Removal::CopiedJob) => writes.remove_job(name, uid).await?,
        Some(Removal::Revision { hash }) => {
            if writes.is_stamped_with(hash).await? {
                return Ok(false);
            }
            match writes.delete_revision(hash).await {
                Ok(()) | Err(WriteError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(true)
}

/// Checks whether the storage of a volume would be deleted at once if somebody vouched for it.
fn would_delete(volume: &Volume, claims: &HashSet<String>) -> bool {
    is_deleted_at_once(volume, ReferredClaim::of(volume, |uid| claims.contains(uid)))
}

/// Checks whether a claim is settled and bound to the volume of its id. Nobody needs its finished runs then.
async fn is_settled(writes: &Writes, claim: &str) -> Result<bool, WriteError> {
    let volume = writes.read_volume(&flex_contract::names::pv_name(claim)).await?;
    let is_its = |volume: &Volume| volume.is_adopted() && volume.volume_id() == Some(claim);
    Ok(volume.is_some_and(|volume| volume.phase == VolumePhase::Bound && is_its(&volume)))
}
