//! Findings: objects that are orphaned or stuck.
//!
//! [`find`] is a pure function from a [`ClusterObservation`] of the cluster to [`Finding`]s. [`backend`] compares the
//! cluster with lists of its backends.
//!
//! [`FindingKind`] says when each kind is found.

pub mod backend;
mod claims;
mod kind;
mod runs;
mod snapshots;
mod tracker;
mod volumes;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flex_contract::names;

use crate::config::classes::{Classes, Identity};
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::volume::Volume;
use crate::node::Node;
use crate::object::ObjectName;
use crate::policies::{INSTALL, Policy, PolicyState};
use crate::run::view::{Job, Pod};

pub use self::kind::{FindingKind, Severity};
pub use self::tracker::{FindingTracker, TrackedFinding};

/// The age below which an object may be in progress and not yet in each cache, in seconds.
pub const MIN_AGE: i64 = 20;
/// The duration after which work in progress counts as stuck, in seconds.
pub const STUCK_AFTER: i64 = 600;

/// A safe way to fix a finding. It deletes an object of the orchestrator that nothing can need any more, or repairs
/// without harm.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// Deletes a Job with its pods, after the API has confirmed that nothing needs them. No claim has this id, or the
    /// claim is bound and settled; and no volume has this name.
    Job {
        /// The claim that must be gone, or settled.
        claim: String,
        /// The volume that must be gone; `None` for runs of a claim.
        volume: Option<String>,
    },
    /// Deletes a finished pod, if the API confirms that no claim has this id.
    Pod {
        /// The claim that must be gone.
        claim: String,
    },
    /// Deletes a finished Job that is older than its time to live.
    OldJob,
    /// Deletes a stuck Job. The reconciler that created the run begins it again.
    StalledJob,
    /// Gives a restored volume its adoption mark again. Only at the request of an admin.
    Vouch,
    /// Deletes a revision.
    Revision {
        /// The hash of the revision.
        hash: String,
    },
}

/// An orphaned or stuck object.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The kind of the finding.
    pub kind: FindingKind,
    /// The severity of the finding.
    pub severity: Severity,
    /// The object of the finding.
    pub object: ObjectRef,
    /// The time since when, in seconds since 1970, where it is known.
    pub since: Option<i64>,
    /// The problem.
    pub detail: String,
    /// The remedy: a command, or where to look.
    pub remedy: String,
    /// The safe way to fix the finding, if there is one.
    pub removal: Option<Removal>,
}

impl Finding {
    fn new(kind: FindingKind, object: ObjectRef, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (detail, remedy) = (detail.into(), remedy.into());
        Finding { kind, severity: kind.severity(), object, since: None, detail, remedy, removal: None }
    }

    /// Makes the finding that no orchestrator holds the Lease; `idle` is the number of seconds since its last renewal.
    pub fn no_leader(lease: ObjectName, idle: Option<i64>) -> Self {
        let detail = match idle {
            Some(idle) => format!("nobody has renewed the Lease for {idle} s"),
            None => "there is no Lease: no orchestrator of this instance has ever led".to_owned(),
        };
        let remedy = format!("kubectl -n {} get pods,lease", lease.namespace);
        Finding::new(
            FindingKind::NoLeader,
            ObjectRef { kind: "Lease", name: lease, uid: String::new() },
            detail,
            remedy,
        )
    }

    /// Makes the finding that a config names a ServiceAccount that does not exist in its namespace.
    pub fn without_account(config: ObjectName, account: &str) -> Self {
        let namespace = &config.namespace;
        let detail =
            format!("its `service-account-name` is `{account}`, and the namespace {namespace} has no such account");
        let remedy = format!(
            "correct the key, or kubectl -n {namespace} create serviceaccount {account}, and bind it to the ClusterRole flex-provisioner-image"
        );
        Finding::new(
            FindingKind::AccountMissing,
            ObjectRef { kind: "ConfigMap", name: config, uid: String::new() },
            detail,
            remedy,
        )
    }

    /// Makes the finding about the state of an admission policy; `None` if the policy works as shipped.
    pub fn of_policy(policy: &Policy, state: &PolicyState) -> Option<Self> {
        let kind = match state {
            PolicyState::Installed | PolicyState::Limited => return None,
            PolicyState::Missing => FindingKind::PolicyMissing,
            PolicyState::Unbound | PolicyState::Differs(_) => FindingKind::PolicyOutdated,
        };
        let object =
            ObjectRef { kind: policy.kind.policy(), name: ObjectName::new("", policy.name), uid: String::new() };
        Some(Finding::new(kind, object, format!("it is {}: {}", state.describe(), policy.without), INSTALL))
    }

    fn since(self, since: i64) -> Self {
        Finding { since: Some(since), ..self }
    }

    fn removed_by(self, removal: Removal) -> Self {
        Finding { removal: Some(removal), ..self }
    }
}

/// All data on which findings rest.
#[derive(Clone, Debug)]
pub struct ClusterObservation {
    /// The names of this orchestrator.
    pub identity: Identity,
    /// All classes.
    pub classes: Arc<Classes>,
    /// All claims of the cluster.
    pub claims: Vec<Arc<Claim>>,
    /// All volumes of the cluster.
    pub volumes: Vec<Arc<Volume>>,
    /// The Jobs of this orchestrator.
    pub jobs: Vec<Arc<Job>>,
    /// The pods of this orchestrator.
    pub pods: Vec<Arc<Pod>>,
    /// All VolumeSnapshots of the cluster.
    pub snapshots: Vec<Arc<crate::model::snapshot::Snapshot>>,
    /// All VolumeSnapshotContents of the cluster.
    pub contents: Vec<Arc<crate::model::snapshot::Content>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// The hashes of the stored recipes.
    pub recipes: HashSet<String>,
    /// The hashes of revisions to which no object refers.
    pub unused: Vec<String>,
    /// Checks also the provenance of each volume and each finalizer. Takes long with thousands of objects.
    pub deep: bool,
}

/// An observation of the cluster, indexed for the checks.
struct Lookups<'a> {
    s: &'a ClusterObservation,
    now: i64,
    /// The claims, by each id that a run for them may have.
    claims: HashMap<String, &'a Claim>,
    volumes: HashMap<&'a str, &'a Volume>,
    snapshots: HashMap<&'a ObjectName, &'a crate::model::snapshot::Snapshot>,
    contents: HashMap<&'a str, &'a crate::model::snapshot::Content>,
    jobs: HashSet<&'a ObjectName>,
    jobs_by_id: HashMap<&'a str, Vec<&'a Job>>,
    /// The time at which the last container of a Job's pods ended.
    ended: HashMap<(&'a str, &'a str), i64>,
    /// The ids for which a volume with that id or name exists and is not adopted.
    unadopted: HashSet<&'a str>,
}

impl<'a> Lookups<'a> {
    fn new(s: &'a ClusterObservation, now: i64) -> Self {
        let mut jobs_by_id: HashMap<&str, Vec<&Job>> = HashMap::new();
        for job in &s.jobs {
            job.ids().for_each(|id| jobs_by_id.entry(id.as_str()).or_default().push(job));
        }
        let mut ended: HashMap<(&str, &str), i64> = HashMap::new();
        for pod in &s.pods {
            let at = pod.terminated.as_ref().map_or(pod.created, |end| end.at);
            let last = ended.entry((pod.name.namespace.as_str(), pod.job.as_str())).or_default();
            *last = (*last).max(at);
        }
        let unadopted = s.volumes.iter().filter(|volume| !volume.is_adopted());
        let ids = |volume: &'a Arc<Volume>| {
            [volume.claim_uuid.as_deref(), volume.name.strip_prefix(names::PV_PREFIX)].into_iter().flatten()
        };
        Lookups {
            s,
            now,
            claims: s.claims.iter().flat_map(|claim| claim.ids().map(move |id| (id, claim.as_ref()))).collect(),
            volumes: s.volumes.iter().map(|volume| (volume.name.as_str(), volume.as_ref())).collect(),
            snapshots: s.snapshots.iter().map(|snapshot| (&snapshot.name, snapshot.as_ref())).collect(),
            contents: s.contents.iter().map(|content| (content.name.as_str(), content.as_ref())).collect(),
            jobs: s.jobs.iter().map(|job| &job.name).collect(),
            jobs_by_id,
            ended,
            unadopted: unadopted.flat_map(ids).collect(),
        }
    }
}

/// Finds all orphaned and stuck objects of the cluster. `now` is in seconds since 1970.
pub fn find(snapshot: &ClusterObservation, now: i64) -> Vec<Finding> {
    let world = Lookups::new(snapshot, now);
    let revisions = snapshot.unused.iter().map(|hash| runs::revision(&world, hash));
    let mut findings: Vec<Finding> = revisions.collect();
    findings.extend(snapshot.jobs.iter().filter_map(|job| runs::job(&world, job)));
    findings.extend(snapshot.pods.iter().filter_map(|pod| runs::pod(&world, pod)));
    findings.extend(snapshot.volumes.iter().filter_map(|volume| volumes::volume(&world, volume)));
    findings.extend(snapshot.claims.iter().filter_map(|claim| claims::claim(&world, claim)));
    findings.extend(snapshot.contents.iter().filter_map(|content| snapshots::content(&world, content)));
    findings.extend(snapshots::finalizers(&world));
    sort(&mut findings);
    findings
}

/// Sorts findings by severity, and always in the same order.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        (Reverse(a.severity), a.kind, &a.object, &a.detail).cmp(&(Reverse(b.severity), b.kind, &b.object, &b.detail))
    });
}

/// Writes the command that abandons an object after the admin has cleaned up by hand.
fn without_protection(what: &str, namespace: &str, name: &str) -> String {
    let_go_at("", what, namespace, name)
}

/// Writes the command that abandons an object after the admin has cleaned up by hand at a place.
fn let_go_at(location: &str, what: &str, namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    format!(
        "clean up by hand{location}, then: kubectl {namespace}annotate {what} {name} {}={}",
        names::ABANDON,
        names::ABANDON_YES
    )
}

#[cfg(test)]
mod tests;
