//! What is kept of the cluster, with the relations that decisions need. Every change says which
//! keys must be decided anew.

mod capacity;
mod configs;
mod line;
mod share;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use contract::names;

use crate::capacity::{Driver, Published};
use crate::claim::Claim;
use crate::claim::decide::Removed;
use crate::claim::origin::DataSource;
use crate::clock::Clock;
use crate::config::Recipe;
use crate::config::classes::{ClassObject, Classes, Config, Identity, Revision};
use crate::config::record::hash_of;
use crate::node::{Node, NodeState, Places};
use crate::object::ObjectName;
use crate::run::view::{Complaint, Job, Pod};
use crate::volume::Volume;

/// A watch that shows a created Job later than this is broken, and a quorum read decides.
pub const EXPECTED: Duration = Duration::from_secs(10);

/// For so long a version of a config is kept after an attempt began with it: its stamp may be on its way.
pub const UNUSED: Duration = Duration::from_secs(60);

/// Who stands in line asks again within this time.
const IN_LINE: Duration = Duration::from_secs(25);

/// For so long a class whose StorageClass was deleted is not served by its label alone.
pub const REPLACED: Duration = Duration::from_secs(30);

/// A Job that the watch does not show yet.
#[derive(Debug)]
struct Expected {
    since: Duration,
    class: String,
    claim: ObjectName,
    created: bool,
}

/// A claim that found no place for a run.
#[derive(Debug)]
struct Waiting {
    claim: ObjectName,
    class: String,
    /// When it last asked.
    asked: Duration,
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
    /// A VolumeSnapshot.
    Snapshot(ObjectName),
    /// A VolumeSnapshotContent.
    Content(String),
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
    jobs: BTreeMap<ObjectName, Arc<Job>>,
    jobs_by_id: HashMap<String, BTreeSet<ObjectName>>,
    expected: BTreeMap<String, Expected>,
    /// Provision Jobs that somebody removed while they were under way, by their volume ids.
    removed: HashMap<String, (ObjectName, Removed)>,
    line: BTreeMap<u64, Waiting>,
    pods: BTreeMap<ObjectName, Arc<Pod>>,
    pods_by_id: HashMap<String, BTreeSet<ObjectName>>,
    complaints: HashMap<String, Arc<Complaint>>,
    nodes: BTreeMap<String, Arc<Node>>,
    configs: BTreeMap<ObjectName, Config>,
    objects: BTreeMap<String, ClassObject>,
    objects_gone: BTreeMap<String, Duration>,
    revisions: BTreeMap<String, Revision>,
    /// When a version was first seen, or an attempt began with it.
    revisions_used: HashMap<String, Duration>,
    recipes: HashMap<String, Arc<Recipe>>,
    classes: Arc<Classes>,
    capacities: BTreeMap<String, Arc<Published>>,
    driver: Option<Arc<Driver>>,
    /// A class tells how much room it has.
    reports: bool,
    /// What was given away of a class and is not seen yet, by the claim's UID, and by the volume that grows.
    promised: BTreeMap<String, share::Promise>,
    growing: HashMap<String, u64>,
    /// Who hit a limit, of which class, in the order of their coming.
    waits_for_room: Vec<(Key, String)>,
    snapshots: snapshots::Snapshots,
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
            jobs: BTreeMap::new(),
            jobs_by_id: HashMap::new(),
            expected: BTreeMap::new(),
            removed: HashMap::new(),
            line: BTreeMap::new(),
            pods: BTreeMap::new(),
            pods_by_id: HashMap::new(),
            complaints: HashMap::new(),
            nodes: BTreeMap::new(),
            configs: BTreeMap::new(),
            objects: BTreeMap::new(),
            objects_gone: BTreeMap::new(),
            revisions: BTreeMap::new(),
            revisions_used: HashMap::new(),
            recipes: HashMap::new(),
            classes: Arc::default(),
            capacities: BTreeMap::new(),
            driver: None,
            reports: false,
            promised: BTreeMap::new(),
            growing: HashMap::new(),
            waits_for_room: Vec::new(),
            snapshots: snapshots::Snapshots::default(),
        }
    }

    /// A claim by its name.
    pub fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.claims.get(name).cloned()
    }

    /// A claim by its UID, or by a volume id of its runs.
    pub fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.claim(self.claim_by_id.get(id)?)
    }

    /// All claims.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<Claim>> {
        self.claims.values()
    }

    /// A volume by its name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(name).cloned()
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.volumes.values()
    }

    /// All Jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// Volumes that name a claim, by annotation, claimRef or their own name.
    pub fn volumes_of(&self, uid: &str) -> Vec<Arc<Volume>> {
        self.volumes_by_claim.get(uid).into_iter().flatten().filter_map(|name| self.volume(name)).collect()
    }

    /// Jobs of a volume id.
    pub fn jobs_of(&self, id: &str) -> Vec<Arc<Job>> {
        self.jobs_by_id.get(id).into_iter().flatten().filter_map(|name| self.jobs.get(name).cloned()).collect()
    }

    /// Jobs of the runs for a claim by its name, which may be gone.
    pub fn jobs_of_claim(&self, name: &ObjectName) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.is_of_claim() && job.claim.as_ref() == Some(name)).cloned().collect()
    }

    /// The volume ids of provision runs that are no claim's, and whose recipes are kept.
    pub fn ids_without_claim(&self) -> BTreeSet<String> {
        let provisions =
            self.jobs.values().filter(|job| job.is_of_claim() && job.marks.operation == "provision" && !job.deleting);
        let provisions =
            provisions.filter(|job| hash_of(&job.config).is_some_and(|hash| self.recipes.contains_key(hash)));
        let ids = provisions.map(|job| &job.marks.id).filter(|id| !self.claim_by_id.contains_key(*id));
        ids.cloned().collect()
    }

    /// Jobs of the delete and expand runs of a volume by its name, which may be gone.
    pub fn jobs_of_volume(&self, name: &str) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.volume.as_deref() == Some(name)).cloned().collect()
    }

    /// Pods of a volume id.
    pub fn pods_of(&self, id: &str) -> Vec<Arc<Pod>> {
        self.pods_by_id.get(id).into_iter().flatten().filter_map(|name| self.pods.get(name).cloned()).collect()
    }

    /// What Kubernetes complains about of these objects.
    pub fn complaints_about<'a>(&'a self, uids: impl Iterator<Item = &'a str>) -> Vec<Arc<Complaint>> {
        uids.filter_map(|uid| self.complaints.get(uid).cloned()).collect()
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name).cloned()
    }

    /// The state of nodes, by the cache.
    pub fn places<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> Places {
        let state = |name: &String| match self.nodes.get(name) {
            Some(node) if node.reachable => NodeState::Ready,
            Some(_) => NodeState::Unreachable,
            None => NodeState::Missing,
        };
        Places(nodes.filter(|name| !name.is_empty()).map(|name| (name.clone(), state(name))).collect())
    }

    fn claim_keys(&self, id: &str) -> Option<Key> {
        self.claim_by_id.get(id).cloned().map(Key::Claim)
    }

    /// A claim changed.
    pub fn change_claim(&mut self, change: Change<Claim>) -> Vec<Key> {
        match change {
            Change::Apply(claim) => {
                let name = claim.name.clone();
                let before = self.claims.get(&name).cloned();
                let room = self.capacity_keys_of_claim(before.as_deref(), &claim);
                if let Some(before) = before {
                    self.forget_claim(&before);
                }
                if claim.own_stamp().is_some() {
                    self.kept_promise(&claim.uid);
                }
                if claim.deleting || claim.is_bound() || claim.own_stamp().is_some() {
                    self.no_longer_waits(&Key::Claim(name.clone()));
                }
                if claim.deleting || claim.is_bound() {
                    self.leave_line(&name);
                    claim.ids().for_each(|id| drop(self.removed.remove(&id)));
                }
                let ids: Vec<_> = claim.ids().collect();
                let volumes: Vec<_> = ids.iter().flat_map(|id| self.volume_keys(id)).collect();
                self.claim_by_id.extend(ids.into_iter().map(|id| (id, name.clone())));
                // A bound claim that we do not hold concerns its volume only when it goes, or wants more.
                let was_held = self.claims.get(&name).is_some_and(|before| before.is_held());
                let quiet = claim.is_bound() && !claim.is_held() && !claim.deleting && !was_held;
                let grows = self.wants_more(&claim);
                let mut keys = self.copy_keys(&name);
                keys.extend(room);
                keys.extend(claim.original().cloned().map(Key::Claim));
                if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
                    self.copies.entry(source.clone()).or_default().insert(name.clone());
                }
                self.claims.insert(name.clone(), Arc::new(claim));
                keys.extend(self.snapshots.concerned_by_claim(&self.claims[&name]));
                keys.push(Key::Claim(name));
                if !quiet || grows {
                    keys.extend(volumes);
                }
                keys
            }
            Change::Delete(name) => {
                let Some(claim) = self.claims.remove(&name) else { return Vec::new() };
                self.forget_claim(&claim);
                self.leave_line(&name);
                claim.ids().for_each(|id| drop(self.removed.remove(&id)));
                let mut keys: Vec<_> = claim.ids().flat_map(|id| self.volume_keys(&id)).collect();
                keys.extend(self.copy_keys(&name));
                self.kept_promise(&claim.uid);
                self.no_longer_waits(&Key::Claim(name.clone()));
                keys.extend(claim.class.as_deref().map(|class| self.room_in(class)).unwrap_or_default());
                keys.extend(self.snapshots.concerned_by_claim(&claim));
                keys.extend(claim.original().cloned().map(Key::Claim));
                if let Some(source) = claim.data_source.as_ref().and_then(DataSource::named) {
                    self.forget_copy(source, &name);
                }
                keys.push(Key::Claim(name));
                keys
            }
            Change::Retain(all) => {
                self.retain(all, |index| index.claims.keys().cloned().collect(), Index::change_claim)
            }
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.claims.keys(), &namespace), Index::change_claim)
            }
        }
    }

    /// The size of a claim's volume is something to decide about.
    fn wants_more(&self, claim: &Claim) -> bool {
        let volume = claim.volume_name.as_ref().and_then(|name| self.volumes.get(name));
        volume.is_some_and(|volume| crate::volume::expand::concerns(volume, claim))
    }

    fn forget_claim(&mut self, claim: &Claim) {
        for id in claim.ids() {
            self.claim_by_id.remove(&id);
        }
    }

    /// Claims that are to be made from a claim or VolumeSnapshot of this name, and wait for it.
    fn copy_keys(&self, original: &ObjectName) -> Vec<Key> {
        let copies = self.copies.get(original).into_iter().flatten();
        let waits = |copy: &&ObjectName| self.claims.get(*copy).is_some_and(|copy| !copy.is_bound());
        copies.filter(waits).cloned().map(Key::Claim).collect()
    }

    fn forget_copy(&mut self, original: &ObjectName, copy: &ObjectName) {
        if let Some(copies) = self.copies.get_mut(original) {
            copies.remove(copy);
            if copies.is_empty() {
                self.copies.remove(original);
            }
        }
    }

    fn volume_keys(&self, claim_uid: &str) -> Vec<Key> {
        self.volumes_by_claim.get(claim_uid).into_iter().flatten().cloned().map(Key::Volume).collect()
    }

    /// A volume changed.
    pub fn change_volume(&mut self, change: Change<Volume>) -> Vec<Key> {
        match change {
            Change::Apply(volume) => {
                let name = volume.name.clone();
                let mut keys: Vec<Key> = vec![Key::Volume(name.clone())];
                let before = self.volumes.get(&name).cloned();
                if before
                    .as_ref()
                    .is_none_or(|before| (&before.size, &before.affinity) != (&volume.size, &volume.affinity))
                {
                    keys.extend(self.capacity_keys());
                }
                if let Some(before) = &before {
                    self.forget_volume(before);
                }
                for uid in claims_of(&volume) {
                    let claim = self.claim_by_id.get(&uid);
                    keys.extend(claim.map(|claim| self.copy_keys(claim)).unwrap_or_default());
                    keys.extend(self.claim_keys(&uid));
                    self.volumes_by_claim.entry(uid).or_default().insert(name.clone());
                }
                let volume = Arc::new(volume);
                self.volumes.insert(name, volume.clone());
                keys.extend(self.see_share_of(&volume, before.as_deref()));
                keys
            }
            Change::Delete(name) => {
                let Some(volume) = self.volumes.remove(&name.name) else { return Vec::new() };
                self.forget_volume(&volume);
                self.growing.remove(&volume.name);
                self.no_longer_waits(&Key::Volume(volume.name.clone()));
                let mut keys: Vec<Key> = claims_of(&volume).iter().filter_map(|uid| self.claim_keys(uid)).collect();
                keys.extend(self.room_in(&volume.class));
                keys.extend(self.capacity_keys());
                keys.push(Key::Volume(name.name));
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.volumes.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_volume,
            ),
            // In no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    fn forget_volume(&mut self, volume: &Volume) {
        for uid in claims_of(volume) {
            if let Some(names) = self.volumes_by_claim.get_mut(&uid) {
                names.remove(&volume.name);
                if names.is_empty() {
                    self.volumes_by_claim.remove(&uid);
                }
            }
        }
    }

    /// A Job changed.
    pub fn change_job(&mut self, change: Change<Job>) -> Vec<Key> {
        match change {
            Change::Apply(job) => {
                let mut keys = vec![job_key(&job)];
                self.expected.remove(&job.name.name);
                self.jobs_by_id.entry(job.marks.id.clone()).or_default().insert(job.name.clone());
                let job = Arc::new(job);
                let before = self.jobs.insert(job.name.clone(), job.clone());
                if job.over && before.is_none_or(|before| !before.over) {
                    keys.extend(self.next_in_line(&job));
                }
                keys.extend(self.see_growth(&job, false));
                keys
            }
            Change::Delete(name) => {
                let Some(job) = self.jobs.remove(&name) else { return Vec::new() };
                self.complaints.remove(&job.uid);
                drop_from(&mut self.jobs_by_id, &job.marks.id, &name);
                self.note_removed(&job);
                let mut keys = vec![job_key(&job)];
                keys.extend(self.see_growth(&job, true));
                if !job.over {
                    keys.extend(self.next_in_line(&job));
                }
                keys
            }
            Change::Retain(all) => self.retain(all, |index| index.jobs.keys().cloned().collect(), Index::change_job),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.jobs.keys(), &namespace), Index::change_job)
            }
        }
    }

    /// A pod changed.
    pub fn change_pod(&mut self, change: Change<Pod>) -> Vec<Key> {
        match change {
            Change::Apply(pod) => {
                let keys = self.pod_keys(&pod);
                self.pods_by_id.entry(pod.marks.id.clone()).or_default().insert(pod.name.clone());
                self.pods.insert(pod.name.clone(), Arc::new(pod));
                keys
            }
            Change::Delete(name) => {
                let Some(pod) = self.pods.remove(&name) else { return Vec::new() };
                self.complaints.remove(&pod.uid);
                drop_from(&mut self.pods_by_id, &pod.marks.id, &name);
                self.pod_keys(&pod)
            }
            Change::Retain(all) => self.retain(all, |index| index.pods.keys().cloned().collect(), Index::change_pod),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.pods.keys(), &namespace), Index::change_pod)
            }
        }
    }

    fn pod_keys(&self, pod: &Pod) -> Vec<Key> {
        if pod.marks.operation == CAPACITY {
            return vec![Key::Capacity];
        }
        let job = self.jobs.get(&ObjectName::new(&pod.name.namespace, &pod.job));
        let mut keys: Vec<Key> = job.map(|job| job_key(job)).into_iter().collect();
        keys.extend(self.claim_keys(&pod.marks.id));
        keys.extend(self.volume_keys(&pod.marks.id));
        keys.sort();
        keys.dedup();
        keys
    }

    /// Kubernetes complains about a Job or pod.
    pub fn complain(&mut self, complaint: Complaint) -> Vec<Key> {
        let job = self.jobs.values().find(|job| job.uid == complaint.about);
        let keys = match job {
            Some(job) => vec![job_key(job)],
            None => match self.pods.values().find(|pod| pod.uid == complaint.about) {
                Some(pod) => self.pod_keys(pod),
                // About an object that is gone, or not seen yet: its next event decides.
                None => Vec::new(),
            },
        };
        // The newest word on an object counts; objects that are not ours are few here and short-lived.
        if self.complaints.len() > 10_000 {
            self.complaints.clear();
        }
        self.complaints.insert(complaint.about.clone(), Arc::new(complaint));
        keys
    }

    /// A node changed. That it came, went, began or ceased to answer or to take pods, or is somewhere else now concerns
    /// what depends on it.
    pub fn change_node(&mut self, change: Change<Node>) -> Vec<Key> {
        match change {
            Change::Apply(node) => {
                let node = Arc::new(node);
                let before = self.nodes.insert(node.name.clone(), node.clone());
                if before.as_ref() == Some(&node) {
                    return Vec::new();
                }
                let mut keys = self.dependents(&node.name, true);
                keys.extend(self.capacity_keys());
                keys
            }
            Change::Delete(name) => {
                self.nodes.remove(&name.name);
                let mut keys = self.dependents(&name.name, false);
                keys.extend(self.capacity_keys());
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.nodes.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_node,
            ),
            // In no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// What is under way and depends on a node, or may wait for one like it. Nodes come and go seldom.
    fn dependents(&self, node: &str, is_there: bool) -> Vec<Key> {
        let on_it = |name: &String| name == node;
        let waits = |claim: &Claim| is_there && (claim.selected_node.is_none() || claim.original().is_some());
        let claims = self.claims.values().filter(|claim| match claim.is_bound() {
            true => claim.is_held() && claim.nodes.iter().chain(&claim.selected_node).any(on_it),
            false => waits(claim) || claim.nodes.iter().chain(&claim.selected_node).any(on_it),
        });
        let volumes = self.volumes.values().filter(|volume| volume.nodes.iter().any(on_it));
        let contents = self.snapshots.going();
        let pods = self.pods.values().filter(|pod| !pod.is_over() && pod.node.iter().any(on_it));
        let mut keys: Vec<Key> = claims.map(|claim| Key::Claim(claim.name.clone())).collect();
        keys.extend(volumes.map(|volume| Key::Volume(volume.name.clone())));
        keys.extend(contents);
        keys.extend(pods.flat_map(|pod| self.pod_keys(pod)));
        keys.sort();
        keys.dedup();
        keys
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

    /// Every key: after becoming the leader all is decided anew.
    pub fn all_keys(&self) -> Vec<Key> {
        let claims = self.claims.keys().cloned().map(Key::Claim);
        let volumes = self.volumes.keys().cloned().map(Key::Volume);
        let jobs = self.jobs.values().map(|job| job_key(job));
        let keys = claims.chain(volumes).chain(jobs).chain(self.snapshots.keys());
        keys.chain([Key::Configs, Key::Orphans, Key::Capacity]).collect()
    }
}

/// Those of these names that are in a namespace.
fn within<'a>(names: impl Iterator<Item = &'a ObjectName>, namespace: &str) -> Vec<ObjectName> {
    names.filter(|name| name.namespace == namespace).cloned().collect()
}

fn job_key(job: &Job) -> Key {
    match (&job.content, &job.volume) {
        (None, None) if job.marks.operation == CAPACITY => Key::Capacity,
        (Some(content), _) => Key::Content(content.clone()),
        (None, Some(volume)) => Key::Volume(volume.clone()),
        (None, None) => Key::Claim(job.claim.clone().unwrap_or_default()),
    }
}

fn drop_from(map: &mut HashMap<String, BTreeSet<ObjectName>>, id: &str, name: &ObjectName) {
    if let Some(names) = map.get_mut(id) {
        names.remove(name);
        if names.is_empty() {
            map.remove(id);
        }
    }
}

/// The UIDs of the claims that a volume names in any way.
fn claims_of(volume: &Volume) -> BTreeSet<String> {
    let by_name = volume.name.strip_prefix(names::PV_PREFIX).map(str::to_owned);
    let by_ref = volume.claim_ref.as_ref().map(|reference| reference.uid.clone());
    [volume.claim_uuid.clone(), by_name, by_ref].into_iter().flatten().filter(|uid| !uid.is_empty()).collect()
}

#[cfg(test)]
mod tests;
