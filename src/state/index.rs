//! What is kept of the cluster, with the relations that decisions need. Every change says which
//! keys must be decided anew.

mod accounts;
mod attributes;
mod batches;
mod capacity;
mod claims;
mod configs;
mod grants;
mod idle;
mod known;
mod line;
mod members;
mod nodes;
mod places;
mod pools;
mod runs;
mod share;
mod snapshots;
mod volumes;
mod waits;
mod whole;
mod written;

pub use self::batches::Arrival;
pub use self::written::BEHIND;

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use contract::request::Operation;

use crate::capacity::{Driver, Published};
use crate::claim::Claim;
use crate::claim::decide::{Removed, run_node};
use crate::claim::grant::Grant;
use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::accounts::Accounts;
use crate::config::classes::{ClassObject, Classes, Config, Identity, Revision};
use crate::config::sidecar::Sidecars;
use crate::node::Node;
use crate::object::ObjectName;
use crate::run::view::{Complaint, Job, Pod};
use crate::volume::{Reference, Volume};

/// A watch that shows a created Job later than this is broken, and a quorum read decides.
pub const EXPECTED: Duration = Duration::from_secs(10);

/// For so long a version of a config is kept after an attempt began with it: its stamp may be on its way.
pub const UNUSED: Duration = Duration::from_secs(60);

/// For so long a class whose StorageClass was deleted is not served by its label alone.
pub const REPLACED: Duration = Duration::from_secs(30);

/// A Job that the watch does not show yet.
#[derive(Debug, Default)]
struct Expected {
    since: Duration,
    class: String,
    namespace: String,
    created: bool,
    /// What it does; none while only its name is known.
    operation: Option<Operation>,
    /// It makes a volume that is to be kept ready.
    for_pool: bool,
    /// The node that its pod must run on.
    node: Option<String>,
    /// The batch that there is in its place, and whom its run is for.
    batch: Option<(String, Key)>,
}

/// Whom a run would be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// A claim, a volume, or a VolumeSnapshotContent.
    pub key: Key,
    /// What the run does.
    pub operation: Operation,
    /// The namespace of its user.
    pub namespace: String,
    /// The node that the run must be on.
    pub node: Option<String>,
}

impl Asker {
    /// For a provision run of a claim.
    pub fn claim(name: &ObjectName) -> Self {
        let (key, operation) = (Key::Claim(name.clone()), Operation::Provision);
        Asker { key, operation, namespace: name.namespace.clone(), node: None }
    }

    /// For the attempt of a claim that is stamped with these nodes.
    pub fn attempt(claim: &ObjectName, recipe: &Recipe, nodes: &[String]) -> Self {
        Asker { node: run_node(nodes, recipe).map(str::to_owned), ..Asker::claim(claim) }
    }

    /// For a run that deletes, expands or modifies a volume. Its namespace is that of the claim that it is, or was, bound to.
    pub fn volume(volume: &Volume, operation: Operation) -> Self {
        let (key, namespace) = (Key::Volume(volume.name.clone()), volume.user_namespace().to_owned());
        Asker { key, operation, namespace, node: None }
    }

    /// For a snapshot run of a content, of a VolumeSnapshot in this namespace.
    pub fn content(name: &str, namespace: &str) -> Self {
        let (key, operation) = (Key::Content(name.to_owned()), Operation::Snapshot);
        Asker { key, operation, namespace: namespace.to_owned(), node: None }
    }

    /// The same for a run that does something else.
    pub fn to(self, operation: Operation) -> Self {
        Asker { operation, ..self }
    }

    /// The same for a run that must be on this node.
    pub fn on(self, node: Option<&str>) -> Self {
        Asker { node: node.map(str::to_owned), ..self }
    }
}

/// The operation of runs that are for no claim or volume, and of ours all the same.
const CAPACITY: &str = crate::capacity::CAPABILITY;

/// Something that is decided on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// All provisioner configs.
    Configs,
    /// A claim.
    Claim(ObjectName),
    /// A volume.
    Volume(String),
    /// A run for several claims or volumes that is about to begin, by the name of its Job.
    Batch(String),
    /// A VolumeSnapshot.
    Snapshot(ObjectName),
    /// A VolumeSnapshotContent.
    Content(String),
    /// All markers.
    Markers,
    /// What a class keeps ready.
    Pool(String),
    /// What is left over, all of it.
    Orphans,
    /// How much room there is, everywhere.
    Capacity,
}

/// One change in a watch of objects that are kept as `V`.
#[derive(Debug)]
pub enum Change<V> {
    /// There is a new state of an object.
    Apply(V),
    /// An object is gone.
    Delete(ObjectName),
    /// After a new list: these are all there are.
    Retain(HashSet<ObjectName>),
    /// After a new list in one namespace: these are all there are in it. Of others it says nothing.
    RetainIn(String, HashSet<ObjectName>),
}

/// What is kept. Everything that is ever gone through has an order of its own, so that the same changes
/// lead to the same decisions in the same order.
#[derive(Debug)]
pub struct Index {
    identity: Identity,
    clock: Clock,
    claims: BTreeMap<ObjectName, Arc<Claim>>,
    claim_by_id: HashMap<String, ObjectName>,
    copies: HashMap<ObjectName, BTreeSet<ObjectName>>,
    volumes: BTreeMap<String, Arc<Volume>>,
    volumes_by_claim: HashMap<String, BTreeSet<String>>,
    /// Volumes that are reserved for a claim by its name, other than by the placeholder of a run.
    reserved: HashMap<ObjectName, BTreeSet<String>>,
    /// Claims that are gone, as the API has said, by the names of the volumes that refer to them.
    gone_claims: HashMap<String, Reference>,
    jobs: BTreeMap<ObjectName, Arc<Job>>,
    jobs_by_id: HashMap<String, BTreeSet<ObjectName>>,
    expected: BTreeMap<String, Expected>,
    /// Provision Jobs that somebody removed while they were under way, by their volume ids.
    removed: HashMap<String, (ObjectName, Removed)>,
    idle: idle::Idle,
    line: line::Line,
    pods: BTreeMap<ObjectName, Arc<Pod>>,
    pods_by_id: HashMap<String, BTreeSet<ObjectName>>,
    complaints: HashMap<String, Arc<Complaint>>,
    nodes: BTreeMap<String, Arc<Node>>,
    configs: BTreeMap<ObjectName, Config>,
    accounts: Accounts,
    objects: BTreeMap<String, ClassObject>,
    objects_gone: BTreeMap<String, Duration>,
    revisions: BTreeMap<String, Revision>,
    /// Those that are about to be deleted.
    taken_revisions: BTreeMap<String, Revision>,
    /// When a version was first seen, or an attempt began with it.
    revisions_used: HashMap<String, Duration>,
    recipes: HashMap<String, Arc<Recipe>>,
    classes: Arc<Classes>,
    /// What changes now is a part of a list, and whether such a part concerns the classes.
    listing: bool,
    unclassified: bool,
    capacities: BTreeMap<String, Arc<Published>>,
    driver: Option<Arc<Driver>>,
    /// A class tells how much room it has.
    reports: bool,
    /// What was given away of a class and is not seen yet, by the claim's UID, and by the volume that grows.
    promised: BTreeMap<String, share::Promise>,
    growing: HashMap<String, u64>,
    tally: share::Tally,
    /// Who hit a limit, of which class, in the order of their coming.
    waits_for_room: waits::Waits,
    snapshots: snapshots::Snapshots,
    grants: BTreeMap<ObjectName, Grant>,
    attributes: BTreeMap<String, crate::attributes::Class>,
    sidecars: Sidecars,
    batches: batches::Batches,
    members: members::Members,
    known: known::Known,
    pools: pools::Pools,
    written: written::Written,
}

impl Index {
    /// Nothing kept yet.
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
            idle: idle::Idle::default(),
            line: line::Line::default(),
            pods: BTreeMap::new(),
            pods_by_id: HashMap::new(),
            complaints: HashMap::new(),
            nodes: BTreeMap::new(),
            configs: BTreeMap::new(),
            accounts: Accounts::default(),
            objects: BTreeMap::new(),
            objects_gone: BTreeMap::new(),
            revisions: BTreeMap::new(),
            taken_revisions: BTreeMap::new(),
            revisions_used: HashMap::new(),
            recipes: HashMap::new(),
            classes: Arc::default(),
            listing: false,
            unclassified: false,
            capacities: BTreeMap::new(),
            driver: None,
            reports: false,
            promised: BTreeMap::new(),
            growing: HashMap::new(),
            tally: share::Tally::default(),
            waits_for_room: waits::Waits::default(),
            snapshots: snapshots::Snapshots::default(),
            grants: BTreeMap::new(),
            attributes: BTreeMap::new(),
            sidecars: Sidecars::default(),
            batches: batches::Batches::default(),
            members: members::Members::default(),
            known: known::Known::default(),
            pools: pools::Pools::default(),
            written: written::Written::default(),
        }
    }

    /// After a new list: what is not in it is gone.
    fn retain<V>(
        &mut self,
        all: HashSet<ObjectName>,
        kept: impl Fn(&Index) -> Vec<ObjectName>,
        change: impl Fn(&mut Index, Change<V>) -> Vec<Key>,
    ) -> Vec<Key> {
        let gone: Vec<_> = kept(self).into_iter().filter(|name| !all.contains(name)).collect();
        gone.into_iter().flat_map(|name| change(self, Change::Delete(name))).collect()
    }

    /// A term as leader begins: every key, since all is decided anew. What gathered in a term before is forgotten, and which
    /// marker was waited for, and what was given away and is not seen.
    pub fn begin_term(&mut self) -> Vec<Key> {
        self.forget_gathering();
        self.forget_current_marker();
        self.forget_given();
        self.written.clear();
        let claims = self.claims.keys().cloned().map(Key::Claim);
        let volumes = self.volumes.keys().cloned().map(Key::Volume);
        let jobs = self.jobs.values().flat_map(|job| runs::job_keys(job));
        let keys = claims.chain(volumes).chain(jobs).chain(self.snapshots.keys()).chain(self.pool_keys());
        keys.chain([Key::Configs, Key::Markers, Key::Orphans, Key::Capacity]).collect()
    }
}

/// Those of these names that are in a namespace.
fn within<'a>(names: impl Iterator<Item = &'a ObjectName>, namespace: &str) -> Vec<ObjectName> {
    names.filter(|name| name.namespace == namespace).cloned().collect()
}

/// Takes one name from those that are kept under a key, and the key with the last of them.
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
