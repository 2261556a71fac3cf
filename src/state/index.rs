//! The cache of the cluster, with the relations that decisions need. Each change returns the work items to requeue.

mod account;
mod attributes;
mod batch;
mod capacity;
mod claim;
mod config;
mod fair_queue;
mod grant;
mod members;
mod node;
mod pool;
mod pv_sync;
mod quota;
mod quota_waiters;
mod run;
mod slots;
mod snapshot;
mod unseen_writes;
mod unstarted;
mod volume;
mod whole;

pub use self::batch::BatchEntry;
pub use self::pool::PoolObservation;
pub use self::unseen_writes::CACHE_LAG_MAX;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::request::Operation;

use crate::capacity::{Driver, Published};
use crate::claim::decide::{RemovedJob, run_node};
use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::accounts::Accounts;
use crate::config::classes::{ClassObject, Classes, Config, Identity, Revision};
use crate::config::external_provisioner::ExternalProvisioners;
use crate::model::claim::Claim;
use crate::model::grant::Grant;
use crate::model::volume::Reference;
use crate::model::volume::Volume;
use crate::node::Node;
use crate::object::ObjectName;
use crate::run::view::{Job, Pod, WarningEvent};

/// The time within which a watch shows a new Job. Later the watch counts as broken, and a quorum read decides.
pub const EXPECTATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a version of a config is kept after an attempt began with it. Its stamp may not be visible yet.
pub const REVISION_TTL: Duration = Duration::from_secs(60);

/// The time for which a class whose StorageClass was deleted is not served by its label alone.
pub const CLASS_REPLACE_GRACE: Duration = Duration::from_secs(30);

/// An expectation: a Job that the watch does not show yet.
#[derive(Debug, Default)]
struct Expectation {
    since: Duration,
    class: String,
    namespace: String,
    created: bool,
    /// The operation of the Job; `None` while only its name is known.
    operation: Option<Operation>,
    /// The Job makes a pooled volume.
    for_pool: bool,
    /// The node to which the pod is bound.
    node: Option<String>,
    /// The batch that exists in place of the Job, and the work item of the member.
    batch: Option<(String, WorkItem)>,
}

/// A request for a slot, for a run of a work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// The work item: a claim, a volume, or a VolumeSnapshotContent.
    pub key: WorkItem,
    /// The operation of the run.
    pub operation: Operation,
    /// The namespace of the user.
    pub namespace: String,
    /// The node on which the run must be.
    pub node: Option<String>,
}

impl SlotRequest {
    /// Describes a provision run of a claim.
    pub fn claim(name: &ObjectName) -> Self {
        let (key, operation) = (WorkItem::Claim(name.clone()), Operation::Provision);
        SlotRequest { key, operation, namespace: name.namespace.clone(), node: None }
    }

    /// Describes the attempt of a claim whose stamp records these nodes.
    pub fn attempt(claim: &ObjectName, recipe: &Recipe, nodes: &[String]) -> Self {
        SlotRequest { node: run_node(nodes, recipe).map(str::to_owned), ..SlotRequest::claim(claim) }
    }

    /// Describes a run that deletes, expands or modifies a volume. Its namespace is that of the claim to which the
    /// volume is or was bound.
    pub fn volume(volume: &Volume, operation: Operation) -> Self {
        let (key, namespace) = (WorkItem::Volume(volume.name.clone()), volume.user_namespace().to_owned());
        SlotRequest { key, operation, namespace, node: None }
    }

    /// Describes a snapshot run of a content, for a VolumeSnapshot in this namespace.
    pub fn content(name: &str, namespace: &str) -> Self {
        let (key, operation) = (WorkItem::Content(name.to_owned()), Operation::Snapshot);
        SlotRequest { key, operation, namespace: namespace.to_owned(), node: None }
    }

    /// Changes the operation.
    pub fn to(self, operation: Operation) -> Self {
        SlotRequest { operation, ..self }
    }

    /// Changes the node.
    pub fn on(self, node: Option<&str>) -> Self {
        SlotRequest { node: node.map(str::to_owned), ..self }
    }
}

/// The operation of the orchestrator's runs that are for no claim or volume.
const CAPACITY: &str = crate::capacity::CAPABILITY;

/// A work item: an object or a task that is reconciled on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkItem {
    /// All provisioner configs.
    Configs,
    /// A claim.
    Claim(ObjectName),
    /// A volume.
    Volume(String),
    /// The Job of a batch that is about to begin, by the name of the Job.
    Batch(String),
    /// A VolumeSnapshot.
    Snapshot(ObjectName),
    /// A VolumeSnapshotContent.
    Content(String),
    /// All sync probes.
    SyncProbe,
    /// The pool of a class.
    Pool(String),
    /// The search for findings.
    Findings,
    /// The capacity of all segments.
    Capacity,
}

/// A change in a watch whose objects are stored as `V`.
#[derive(Debug)]
pub enum Change<V> {
    /// An object is new, or has a new state.
    Apply(V),
    /// An object is gone.
    Delete(ObjectName),
    /// A new list: all objects that exist.
    Retain(HashSet<ObjectName>),
    /// A new list of one namespace: all objects that exist in it. Objects elsewhere are unchanged.
    RetainIn(String, HashSet<ObjectName>),
}

/// The cache. All collections that are iterated are ordered, so that the same changes lead to the same decisions in the
/// same order.
#[derive(Debug)]
pub struct Index {
    identity: Identity,
    clock: Clock,
    claims: BTreeMap<ObjectName, Arc<Claim>>,
    claim_by_id: HashMap<String, ObjectName>,
    copies: HashMap<ObjectName, BTreeSet<ObjectName>>,
    volumes: BTreeMap<String, Arc<Volume>>,
    volumes_by_claim: HashMap<String, BTreeSet<String>>,
    /// Volumes that are reserved for a claim by its name, except for those with the placeholder of a run.
    reserved: HashMap<ObjectName, BTreeSet<String>>,
    /// Claims that are gone by the API, by the names of the volumes that refer to them.
    gone_claims: HashMap<String, Reference>,
    jobs: BTreeMap<ObjectName, Arc<Job>>,
    jobs_by_id: HashMap<String, BTreeSet<ObjectName>>,
    expected: BTreeMap<String, Expectation>,
    /// Provision Jobs that somebody deleted while they were in progress, by their volume ids.
    removed: HashMap<String, (ObjectName, RemovedJob)>,
    unstarted: unstarted::UnstartedRuns,
    fair_queue: fair_queue::FairQueue,
    pods: BTreeMap<ObjectName, Arc<Pod>>,
    pods_by_id: HashMap<String, BTreeSet<ObjectName>>,
    warning_events: HashMap<String, Arc<WarningEvent>>,
    nodes: BTreeMap<String, Arc<Node>>,
    configs: BTreeMap<ObjectName, Config>,
    accounts: Accounts,
    objects: BTreeMap<String, ClassObject>,
    objects_gone: BTreeMap<String, Duration>,
    revisions: BTreeMap<String, Revision>,
    /// Revisions that are about to be deleted.
    revisions_being_deleted: BTreeMap<String, Revision>,
    /// The time when a version was first seen, or when an attempt began with it.
    revisions_used: HashMap<String, Duration>,
    recipes: HashMap<String, Arc<Recipe>>,
    classes: Arc<Classes>,
    /// The present change is a part of a list, and whether a part of this list concerns the classes.
    listing: bool,
    unclassified: bool,
    capacities: BTreeMap<String, Arc<Published>>,
    driver: Option<Arc<Driver>>,
    /// An image reports the capacity of a class.
    has_capacity_class: bool,
    /// Reserved quota that is not yet visible, by the UID of a claim, or by the name of an expanding volume.
    pending_charges: BTreeMap<String, quota::PendingCharge>,
    growing: HashMap<String, u64>,
    ledger: quota::QuotaLedger,
    /// The items that reached a quota, by class, in the order of their arrival.
    quota_waiters: quota_waiters::QuotaWaiters,
    snapshots: snapshot::Snapshots,
    grants: BTreeMap<ObjectName, Grant>,
    attributes: BTreeMap<String, crate::attributes::Class>,
    external_provisioners: ExternalProvisioners,
    batches: batch::Batches,
    members: members::Members,
    pv_sync: pv_sync::PvSync,
    pools: pool::Pools,
    unseen_writes: unseen_writes::UnseenWrites,
}

impl Index {
    /// Makes an empty cache.
    pub fn new(identity: Identity, clock: Clock) -> Self {
        Index {
            identity,
            clock,
            claims: BTreeMap::new(),
            claim_by_id: HashMap::new(),
            copies: HashMap::new(),
            volumes: BTreeMap::new(),
            volumes_by_claim: HashMap::new(),
            reserved: HashMap::new(),
            gone_claims: HashMap::new(),
            jobs: BTreeMap::new(),
            jobs_by_id: HashMap::new(),
            expected: BTreeMap::new(),
            removed: HashMap::new(),
            unstarted: unstarted::UnstartedRuns::default(),
            fair_queue: fair_queue::FairQueue::default(),
            pods: BTreeMap::new(),
            pods_by_id: HashMap::new(),
            warning_events: HashMap::new(),
            nodes: BTreeMap::new(),
            configs: BTreeMap::new(),
            accounts: Accounts::default(),
            objects: BTreeMap::new(),
            objects_gone: BTreeMap::new(),
            revisions: BTreeMap::new(),
            revisions_being_deleted: BTreeMap::new(),
            revisions_used: HashMap::new(),
            recipes: HashMap::new(),
            classes: Arc::default(),
            listing: false,
            unclassified: false,
            capacities: BTreeMap::new(),
            driver: None,
            has_capacity_class: false,
            pending_charges: BTreeMap::new(),
            growing: HashMap::new(),
            ledger: quota::QuotaLedger::default(),
            quota_waiters: quota_waiters::QuotaWaiters::default(),
            snapshots: snapshot::Snapshots::default(),
            grants: BTreeMap::new(),
            attributes: BTreeMap::new(),
            external_provisioners: ExternalProvisioners::default(),
            batches: batch::Batches::default(),
            members: members::Members::default(),
            pv_sync: pv_sync::PvSync::default(),
            pools: pool::Pools::default(),
            unseen_writes: unseen_writes::UnseenWrites::default(),
        }
    }

    /// Applies a new list: removes the objects that are not in it.
    fn retain<V>(
        &mut self,
        all: HashSet<ObjectName>,
        kept: impl Fn(&Index) -> Vec<ObjectName>,
        change: impl Fn(&mut Index, Change<V>) -> Vec<WorkItem>,
    ) -> Vec<WorkItem> {
        let gone: Vec<_> = kept(self).into_iter().filter(|name| !all.contains(name)).collect();
        gone.into_iter().flat_map(|name| change(self, Change::Delete(name))).collect()
    }

    /// Begins a term as leader, and returns all work items. Forgets the state of an earlier term: open batches,
    /// the current sync probe, and assignments that are not yet visible.
    pub fn begin_term(&mut self) -> Vec<WorkItem> {
        self.forget_open_batches();
        self.forget_current_probe();
        self.forget_assigned();
        self.unseen_writes.clear();
        let claims = self.claims.keys().cloned().map(WorkItem::Claim);
        let volumes = self.volumes.keys().cloned().map(WorkItem::Volume);
        let jobs = self.jobs.values().flat_map(|job| run::job_keys(job));
        let keys = claims.chain(volumes).chain(jobs).chain(self.snapshots.keys()).chain(self.pool_keys());
        keys.chain([WorkItem::Configs, WorkItem::SyncProbe, WorkItem::Findings, WorkItem::Capacity]).collect()
    }
}

/// Selects the names in a namespace.
fn within<'a>(names: impl Iterator<Item = &'a ObjectName>, namespace: &str) -> Vec<ObjectName> {
    names.filter(|name| name.namespace == namespace).cloned().collect()
}

/// Removes one name from the set of a key, and the key with its last name.
fn drop_from<K, N, Q>(map: &mut HashMap<K, BTreeSet<N>>, key: &Q, name: &N)
where
    K: Borrow<Q> + Eq + Hash,
    N: Ord,
    Q: Eq + Hash + ?Sized,
{
    if let Some(names) = map.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
