//! The check whether a container of a claim's attempt has run, by the observed Job and pods.

use std::sync::Arc;

use flex_core::model::claim::Claim;
use flex_core::run::state::never_started;
use flex_core::run::view::Pod;

use super::names::provision_job_name;
use crate::reconcile::context::RunObjects;
use crate::state::index::Index;

/// Checks that no container of the stamped attempt has run. Somebody may have deleted a Job that had run, so that the
/// orchestrator created it again with the same name. Only the first Job of an attempt proves something.
pub(super) fn has_never_started(claim: &Claim, run: RunObjects<'_>, index: &Index) -> bool {
    let (id, name) = (claim.volume_id(), provision_job_name(claim));
    let job = run.jobs.iter().find(|job| job.name.name == name).map(Arc::as_ref);
    let pods: Vec<&Pod> = run.pods.iter().map(Arc::as_ref).filter(|pod| pod.job == name).collect();
    let is_first = job.is_none_or(|job| job.is_first) && pods.iter().all(|pod| pod.is_first);
    let is_over = job.is_none_or(|job| job.terminating || job.is_over);
    let remembered = || pods.is_empty() && is_over && index.has_ended_unstarted(&id, &name);
    is_first && !index.is_repeated(&id, &name) && (never_started(job, &pods) || remembered())
}
