//! Findings: objects that are orphaned or stuck.
//!
//! [`find`] is a pure function from a cluster to [`Finding`]s. [`backend`] compares the
//! cluster with lists of its backends.
//!
//! [`FindingKind`] says when each kind is found.

pub mod backend;
mod claims;
mod finding;
mod kept;
mod kind;
mod nodes;
mod observation;
mod runs;
mod snapshots;
mod tracker;
mod volumes;

use std::cmp::Reverse;

pub use self::finding::{Finding, MIN_AGE, Removal, STUCK_AFTER};
pub use self::kind::{FindingKind, Severity};
use self::observation::Lookups;
pub use self::observation::{ClaimsAndVolumes, ClusterObservation, Searched};
pub use self::tracker::{FindingTracker, TrackedFinding};

/// Finds all orphaned and stuck objects of the cluster. `now` is in seconds since 1970.
pub fn find(searched: Searched<'_>, now: i64) -> Vec<Finding> {
    let world = Lookups::new(searched, now);
    let Searched { objects, others: snapshot } = searched;
    let revisions = snapshot.unused.iter().map(|hash| runs::revision(&world, hash));
    let mut findings: Vec<Finding> = revisions.collect();
    findings.extend(snapshot.jobs.iter().filter_map(|job| runs::job(&world, job)));
    findings.extend(snapshot.copied_jobs.iter().filter_map(|job| runs::copied_job(job)));
    findings.extend(snapshot.pods.iter().filter_map(|pod| runs::pod(&world, pod)));
    findings.extend(objects.volumes().filter_map(|volume| volumes::volume(&world, &volume)));
    findings.extend(objects.claims().filter_map(|claim| claims::claim(&world, &claim)));
    findings.extend(snapshot.contents.iter().filter_map(|content| snapshots::content(&world, content)));
    findings.extend(snapshots::finalizers(&world));
    findings.extend(snapshot.kept.iter().filter_map(|record| kept::kept(record)));
    sort(&mut findings);
    findings
}

/// Sorts findings by severity, and always in the same order.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        (Reverse(a.severity), a.kind, &a.object, &a.detail).cmp(&(Reverse(b.severity), b.kind, &b.object, &b.detail))
    });
}

#[cfg(test)]
mod tests;
