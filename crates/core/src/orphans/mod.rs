//! What is left over, and what does not get on: a pure function from a [`Snapshot`] of the cluster to
//! [`Finding`]s ([`find`]), and from it and lists of what backends have to further ones ([`backend`]).
//!
//! [`Kind`] says when each kind is found.

pub mod backend;
mod claims;
mod kind;
mod runs;
mod sightings;
mod snapshots;
mod volumes;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use contract::names;

use crate::claim::Claim;
use crate::config::classes::{Classes, Identity};
use crate::node::Node;
use crate::object::ObjectName;
use crate::policies::{INSTALL, Policy, State};
use crate::run::view::{Job, Pod};
use crate::snapshot;
use crate::volume::Volume;

pub use self::kind::{Kind, Severity};
pub use self::sightings::{Sighting, Sightings};

/// What is younger may be under way, and not yet seen everywhere. In seconds.
pub const YOUNG: i64 = 20;
/// What has been under way for longer does not get on. In seconds.
pub const SLOW: i64 = 600;

/// What a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Object {
    /// Its kind in the API; `Backend` for what is in none.
    pub kind: &'static str,
    /// Its name. On a backend the namespace is the node, if it is a node's own.
    #[serde(flatten)]
    pub name: ObjectName,
    /// Its UID, if it has one.
    pub uid: String,
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name.name),
            _ => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// How something is removed that is provably ours, and that nothing can need any more; or is mended without harm.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// A Job with its pods, if the API says so too: no claim has this id, or it is bound and settled; and no
    /// volume has this name.
    Job {
        /// The claim that must be gone, or done with.
        claim: String,
        /// The volume that must be gone; none for runs of a claim.
        volume: Option<String>,
    },
    /// A finished pod, if the API says so too: no claim has this id.
    Pod {
        /// The claim that must be gone.
        claim: String,
    },
    /// A finished Job, past the time that it is kept for.
    OldJob,
    /// A Job that does not get on: whoever asked for the run begins it again.
    StalledJob,
    /// A restored volume gets its mark again. Only on an admin's word.
    Vouch,
    /// A revision.
    Revision {
        /// Its hash.
        hash: String,
    },
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub object: Object,
    /// Since when, in seconds since 1970, as far as that is known.
    pub since: Option<i64>,
    /// What is the matter.
    pub detail: String,
    /// What to do: a command, or what to look at.
    pub remedy: String,
    /// How it is removed, if that is safe.
    pub removal: Option<Removal>,
}

impl Finding {
    fn new(kind: Kind, object: Object, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (detail, remedy) = (detail.into(), remedy.into());
        Finding { kind, severity: kind.severity(), object, since: None, detail, remedy, removal: None }
    }

    /// No orchestrator holds the Lease; `idle` says for how many seconds nobody has renewed it.
    pub fn no_leader(lease: ObjectName, idle: Option<i64>) -> Self {
        let detail = match idle {
            Some(idle) => format!("nobody has renewed the Lease for {idle} s"),
            None => "there is no Lease: no orchestrator of this instance has ever led".to_owned(),
        };
        let remedy = format!("kubectl -n {} get pods,lease", lease.namespace);
        Finding::new(Kind::NoLeader, Object { kind: "Lease", name: lease, uid: String::new() }, detail, remedy)
    }

    /// A config names a ServiceAccount that its namespace has not.
    pub fn without_account(config: ObjectName, account: &str) -> Self {
        let namespace = &config.namespace;
        let detail =
            format!("its `service-account-name` is `{account}`, and the namespace {namespace} has no such account");
        let remedy = format!(
            "correct the key, or kubectl -n {namespace} create serviceaccount {account}, and bind it to the ClusterRole flex-provisioner-image"
        );
        Finding::new(
            Kind::AccountMissing,
            Object { kind: "ConfigMap", name: config, uid: String::new() },
            detail,
            remedy,
        )
    }

    /// How an admission policy stands; none if it does what it was shipped for.
    pub fn of_policy(policy: &Policy, state: &State) -> Option<Self> {
        let kind = match state {
            State::Installed | State::Limited => return None,
            State::Missing => Kind::PolicyMissing,
            State::Unbound | State::Differs(_) => Kind::PolicyOutdated,
        };
        let object = Object { kind: policy.kind.policy(), name: ObjectName::new("", policy.name), uid: String::new() };
        Some(Finding::new(kind, object, format!("it is {}: {}", state.words(), policy.without), INSTALL))
    }

    fn since(self, since: i64) -> Self {
        Finding { since: Some(since), ..self }
    }

    fn removed_by(self, removal: Removal) -> Self {
        Finding { removal: Some(removal), ..self }
    }
}

/// All that findings rest on.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Who we are.
    pub identity: Identity,
    /// All classes.
    pub classes: Arc<Classes>,
    /// All claims of the cluster.
    pub claims: Vec<Arc<Claim>>,
    /// All volumes of the cluster.
    pub volumes: Vec<Arc<Volume>>,
    /// Our Jobs.
    pub jobs: Vec<Arc<Job>>,
    /// Our pods.
    pub pods: Vec<Arc<Pod>>,
    /// All VolumeSnapshots of the cluster.
    pub snapshots: Vec<Arc<snapshot::Snapshot>>,
    /// All VolumeSnapshotContents of the cluster.
    pub contents: Vec<Arc<snapshot::Content>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Hashes of the recipes that are kept.
    pub recipes: HashSet<String>,
    /// Hashes of revisions that nothing refers to.
    pub unused: Vec<String>,
    /// Look also into what every volume records, and at each finalizer. Takes time with thousands.
    pub deep: bool,
}

/// A snapshot with the relations that the checks ask for.
struct World<'a> {
    s: &'a Snapshot,
    now: i64,
    /// By every id that a run for them may bear.
    claims: HashMap<String, &'a Claim>,
    volumes: HashMap<&'a str, &'a Volume>,
    snapshots: HashMap<&'a ObjectName, &'a snapshot::Snapshot>,
    contents: HashMap<&'a str, &'a snapshot::Content>,
    jobs: HashSet<&'a ObjectName>,
    jobs_by_id: HashMap<&'a str, Vec<&'a Job>>,
    /// When the last container of a Job's pods ended.
    ended: HashMap<(&'a str, &'a str), i64>,
    /// By id: a volume of that id or name that nobody has adopted.
    unadopted: HashSet<&'a str>,
}

impl<'a> World<'a> {
    fn new(s: &'a Snapshot, now: i64) -> Self {
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
        World {
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

/// What is left over in the cluster, or does not get on. `now` is in seconds since 1970.
pub fn find(snapshot: &Snapshot, now: i64) -> Vec<Finding> {
    let world = World::new(snapshot, now);
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

/// The gravest first, and always in the same order.
pub fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| {
        (Reverse(a.severity), a.kind, &a.object, &a.detail).cmp(&(Reverse(b.severity), b.kind, &b.object, &b.detail))
    });
}

/// What lets go of an object that cannot be deleted.
fn let_go(what: &str, namespace: &str, name: &str) -> String {
    let namespace = if namespace.is_empty() { String::new() } else { format!("-n {namespace} ") };
    format!(
        "clean up by hand, then: kubectl {namespace}annotate {what} {name} {}={}",
        names::ABANDON,
        names::ABANDON_YES
    )
}

#[cfg(test)]
mod tests;
