//! The check whether a container of a claim's attempt has run, by the observed Job and pods.

use std::sync::Arc;

use super::names::provision_job_name;
use super::observe::Observation;
use crate::model::claim::{Claim, Stamp};
use crate::reconcile::context::Context;
use crate::run::state::never_started;
use crate::run::view::Pod;

/// The largest age of a stamp when its first Job is created, in seconds, unless something delays the Job.
const FIRST_JOB_MAX_AGE: i64 = 2;

/// Checks that no container of the stamped attempt has run. Somebody may have deleted a Job that had run, and a process
/// that is gone may have created it again with the same name. Such a Job is younger than the stamp.
pub(super) fn has_never_started(context: &Context, claim: &Claim, observation: &Observation) -> bool {
    let Some(stamped) = claim.own_stamp().and_then(Stamp::began) else { return false };
    let is_first = |created: i64| created.saturating_sub(stamped.as_second()) <= FIRST_JOB_MAX_AGE;
    let name = provision_job_name(claim);
    let job = observation.runs.jobs.iter().find(|job| job.name.name == name).map(Arc::as_ref);
    let pods: Vec<&Pod> = observation.runs.pods.iter().map(Arc::as_ref).filter(|pod| pod.job == name).collect();
    let is_over = job.is_none_or(|job| job.terminating || job.is_over);
    let remembered =
        || context.cluster.index().unstarted_since(&claim.volume_id(), &name).filter(|_| pods.is_empty() && is_over);
    if never_started(job, &pods) {
        // The Job controller may create the pod later.
        let created = |pod: &&Pod| job.filter(|job| job.uid == pod.job_uid).map_or(pod.created, |job| job.created);
        return pods.iter().map(created).chain(job.map(|job| job.created)).all(is_first);
    }
    remembered().is_some_and(is_first)
}
