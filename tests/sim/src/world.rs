//! The rest of the cluster: the Job controller, the garbage collector, the scheduler, the kubelets with the
//! images' processes, and the storage backend. Each looks at one object at a time and does one thing.

mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use contract::names;
use contract::request::{Operation, Request};
use contract::volume::{Made, persistent_volume, placeholder};
use flex_provisioner::object::ObjectName;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use serde_json::{Value, json};

use crate::api::FOREGROUND;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{self, Kind, Store, annotation, is_deleting, text, uid};
use crate::trace::{count, line};

/// The Job controller's, on pods that it has not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// Keeps a claim while a pod uses it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume while it is bound.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Where storage is: the id that the image was given, and the node; empty for storage in the network.
pub type Place = (String, String);

/// What an image does next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    /// Reads what a copy or a snapshot is made of.
    Read,
    Make,
    Publish {
        wrong: bool,
    },
    Remove,
    Grow,
    /// Gives the volume its attributes, or leaves it in between.
    Modify {
        whole: bool,
    },
    /// Stores a snapshot, or a part of it.
    Store {
        whole: bool,
    },
    /// Takes a snapshot away.
    Discard,
    Exit(i32),
    Hang,
}

/// The process of a pod.
#[derive(Clone, Debug)]
pub struct Process {
    request: Request,
    place: Place,
    script: bool,
    reserved: bool,
    acts: Vec<Act>,
}

/// The rest of the cluster.
#[derive(Debug, Default)]
pub struct World {
    /// The storage that exists.
    pub backend: BTreeSet<Place>,
    /// The snapshots that are stored, and whether they are whole.
    pub snapshots: BTreeMap<Place, bool>,
    /// The class of attributes of each volume that was modified, by its id; none for one that is in between.
    pub attributes: BTreeMap<String, Option<String>>,
    /// Where the storage of a volume is, by its UID.
    pub made: BTreeMap<String, Place>,
    /// What runs, by the pod's UID.
    pub processes: BTreeMap<String, Process>,
    /// What must be looked at.
    pub dirty: BTreeSet<(Kind, ObjectName)>,
    /// What must be looked at later, by milliseconds.
    pub timers: BTreeSet<(u64, Kind, ObjectName)>,
    /// Claims that a pod asks for.
    pub consumed: BTreeSet<ObjectName>,
    /// Nodes that are gone and do not come back.
    pub lost: BTreeSet<String>,
    /// Nodes that were gone once.
    pub went: BTreeSet<String>,
    /// What another controller keeps by a finalizer of its own: kind, name and UID.
    pub marked: BTreeSet<(Kind, ObjectName, String)>,
    /// Jobs that have had their pod, by UID.
    born: BTreeSet<String>,
    /// What was found to be wrong.
    pub wrong: Vec<String>,
    /// Storage was made or removed.
    pub changed: bool,
    /// Volumes that a class may have at one time; none for no limit.
    pub share: Option<usize>,
}

/// The node on which the pod of a Job must run; empty for any.
pub fn wanted_node(job: &Value) -> &str {
    const NODE: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    text(job, NODE)
}

fn ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// A condition of a Job holds.
fn holds(job: &Value, kind: &str) -> bool {
    job["status"]["conditions"].as_array().into_iter().flatten().any(|condition| condition["type"] == kind)
}

fn condition(job: &mut Value, kind: &str, reason: &str, now: &str) {
    let condition =
        json!({ "type": kind, "status": "True", "reason": reason, "message": reason, "lastTransitionTime": now });
    match job["status"]["conditions"].as_array_mut() {
        Some(conditions) => conditions.push(condition),
        None => job["status"]["conditions"] = json!([condition]),
    }
}

impl World {
    /// With nothing in it; a class may have so many volumes.
    pub fn new(share: Option<usize>) -> Self {
        World { share, ..World::default() }
    }

    /// Somebody looks at an object, and does what is to be done next.
    pub fn look(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, kind: Kind, name: &ObjectName) {
        let again = match kind {
            Kind::Job => self.job(store, name),
            Kind::Pod => self.pod(store, rng, profile, name),
            Kind::Claim => self.claim(store, rng, profile, name),
            Kind::Volume => volume(store, name),
            Kind::Node => self.node(store, name),
            Kind::Namespace => self.namespace(store, name),
            Kind::Snapshot if profile.snapshot_controller => snapshots::refuse(store, name),
            _ => false,
        };
        if again {
            self.dirty.insert((kind, name.clone()));
        }
    }

    /// Takes up what has changed.
    pub fn notice(&mut self, store: &mut Store) {
        for (kind, name) in std::mem::take(&mut store.touched) {
            match kind {
                Kind::Job => {
                    let pods = store.all(Kind::Pod).filter(|(_, pod)| owner(pod) == name.name);
                    self.dirty.extend(pods.map(|(name, _)| (Kind::Pod, name.clone())));
                }
                Kind::Pod => {
                    let job = store.log(Kind::Pod).iter().rev().find(|change| change.name == name);
                    let job = job.map(|change| owner(&change.object).to_owned()).unwrap_or_default();
                    self.dirty.insert((Kind::Job, ObjectName::new(&name.namespace, job)));
                }
                Kind::Claim | Kind::Volume | Kind::Namespace | Kind::Snapshot => {}
                Kind::Node => {
                    self.dirty.extend(store.all(Kind::Pod).map(|(name, _)| (Kind::Pod, name.clone())));
                    self.dirty.extend(store.all(Kind::Claim).map(|(name, _)| (Kind::Claim, name.clone())));
                }
                _ => continue,
            }
            self.dirty.insert((kind, name));
        }
    }

    /// A namespace that is deleted takes everything in it along, and goes when it is empty.
    fn namespace(&mut self, store: &mut Store, of: &ObjectName) -> bool {
        if !store.get(Kind::Namespace, of).is_some_and(|namespace| is_deleting(namespace)) {
            return false;
        }
        let left: Vec<(Kind, ObjectName)> = [Kind::Config, Kind::Job, Kind::Pod]
            .into_iter()
            .flat_map(|kind| store.all(kind).map(move |(name, _)| (kind, name.clone())))
            .filter(|(_, name)| name.namespace == of.name)
            .collect();
        if left.is_empty() {
            line(|| format!("the namespace {} is gone", of.name));
            store.update(Kind::Namespace, of, |namespace| store::drop_finalizer(namespace, "kubernetes"));
            return false;
        }
        for (kind, name) in left {
            store.delete(kind, &name);
        }
        true
    }

    fn job(&mut self, store: &mut Store, name: &ObjectName) -> bool {
        let Some(job) = store.get(Kind::Job, name).cloned() else { return false };
        let now = store.time.text();
        let pods: Vec<(ObjectName, Rc<Value>)> = store
            .all(Kind::Pod)
            .filter(|(_, pod)| owner_uid(pod) == uid(&job))
            .map(|(name, pod)| (name.clone(), pod.clone()))
            .collect();
        if is_deleting(&job) {
            if let Some((pod, _)) = pods.iter().find(|(_, pod)| !is_deleting(pod)) {
                store.delete(Kind::Pod, pod);
                return true;
            }
            if pods.is_empty() {
                store.update(Kind::Job, name, |job| store::drop_finalizer(job, FOREGROUND));
            }
            return false;
        }
        if holds(&job, "Complete") || holds(&job, "Failed") {
            // What has been counted is let go.
            if let Some((pod, _)) = pods.iter().find(|(_, pod)| ended(pod) && store::has_finalizer(pod, TRACKING)) {
                store.update(Kind::Pod, pod, |pod| store::drop_finalizer(pod, TRACKING));
                return true;
            }
            let over =
                job["status"]["conditions"].as_array().and_then(|c| c.last()?["at"].as_u64()).unwrap_or_default();
            let gone = over + 1000 * store::number(&job, "/spec/ttlSecondsAfterFinished").unsigned_abs();
            match store.time.millis() >= gone {
                true => {
                    store.delete(Kind::Job, name);
                }
                false => {
                    self.timers.insert((gone, Kind::Job, name.clone()));
                }
            }
            return false;
        }
        if !self.born.contains(uid(&job)) && !store.is_closed(&name.namespace) {
            self.born.insert(uid(&job).to_owned());
            let deadline =
                store.time.millis() + 1000 * store::number(&job, "/spec/activeDeadlineSeconds").unsigned_abs();
            self.timers.insert((deadline, Kind::Job, name.clone()));
            store.update(Kind::Job, name, |job| job["status"]["deadline"] = json!(deadline));
            let template = &job["spec"]["template"];
            let pod_name = format!("{}-{}", name.name, store.new_uid("r"));
            let pod = json!({
                "metadata": {
                    "name": pod_name, "namespace": name.namespace,
                    "labels": template["metadata"]["labels"],
                    "finalizers": [TRACKING],
                    "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": name.name, "uid": uid(&job), "controller": true, "blockOwnerDeletion": true }],
                },
                "spec": { "wants": wanted_node(&job) },
                "status": { "phase": "Pending" },
            });
            store.create(Kind::Pod, pod);
            return true;
        }
        let over = |store: &mut Store, kind: &str, reason: &str| {
            let millis = store.time.millis();
            store.update(Kind::Job, name, |job| {
                condition(job, kind, reason, &now);
                if let Some(last) = job["status"]["conditions"].as_array_mut().and_then(|c| c.last_mut()) {
                    last["at"] = json!(millis);
                }
            });
        };
        let target = holds(&job, "FailureTarget");
        if let Some((_, pod)) = pods.iter().find(|(_, pod)| ended(pod)) {
            let failed = target || text(pod, "/status/phase") == "Failed";
            let met = holds(&job, "SuccessCriteriaMet");
            let reason = if target { "DeadlineExceeded" } else { "BackoffLimitExceeded" };
            match (failed, target, met) {
                (true, true, _) => over(store, "Failed", reason),
                (true, false, _) => over(store, "FailureTarget", reason),
                (false, _, false) => over(store, "SuccessCriteriaMet", "CompletionsReached"),
                (false, _, true) => over(store, "Complete", "CompletionsReached"),
            }
            return true;
        }
        if pods.is_empty() {
            over(store, "Failed", "BackoffLimitExceeded");
            return true;
        }
        let deadline = job["status"]["deadline"].as_u64().unwrap_or(u64::MAX);
        if store.time.millis() >= deadline {
            count("deadlines");
            if !target {
                over(store, "FailureTarget", "DeadlineExceeded");
            }
            for (pod, _) in pods {
                store.delete(Kind::Pod, &pod);
            }
        }
        false
    }

    fn pod(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, name: &ObjectName) -> bool {
        let Some(pod) = store.get(Kind::Pod, name).cloned() else { return false };
        let job = store.get(Kind::Job, &ObjectName::new(&name.namespace, owner(&pod)));
        let job = job.filter(|job| uid(job) == owner_uid(&pod)).cloned();
        if job.is_none() && !is_deleting(&pod) {
            store.delete(Kind::Pod, name);
            return true;
        }
        let node = text(&pod, "/spec/nodeName").to_owned();
        let lost = !node.is_empty() && store.get(Kind::Node, &ObjectName::new("", &node)).is_none();
        if lost && !ended(&pod) {
            self.processes.remove(uid(&pod));
            end_pod(store, name, 137, "the node is gone");
            store.delete(Kind::Pod, name);
            return true;
        }
        if ended(&pod) {
            if is_deleting(&pod) {
                let counted =
                    job.as_ref().is_none_or(|job| is_deleting(job) || holds(job, "Failed") || holds(job, "Complete"));
                if counted {
                    store.remove(Kind::Pod, name);
                }
            }
            return false;
        }
        if node.is_empty() {
            if is_deleting(&pod) {
                end_pod(store, name, 137, "never started");
                return true;
            }
            return self.schedule(store, rng, name, &pod);
        }
        if text(&pod, "/status/phase") == "Pending" {
            if is_deleting(&pod) {
                end_pod(store, name, 137, "never started");
                return true;
            }
            let Some(job) = job else { return true };
            self.start(store, rng, profile, name, &pod, &job);
            return true;
        }
        let killed = if is_deleting(&pod) { rng.permille(profile.dying) } else { rng.permille(profile.kill) };
        if killed {
            count("killed processes");
            line(|| format!("kubelet: {name} is killed"));
            self.processes.remove(uid(&pod));
            end_pod(store, name, 137, "killed");
            return true;
        }
        self.run(store, name, &pod)
    }

    fn schedule(&mut self, store: &mut Store, rng: &mut Rng, name: &ObjectName, pod: &Value) -> bool {
        let nodes: Vec<String> = store.all(Kind::Node).map(|(name, _)| name.name.clone()).collect();
        let wanted = text(pod, "/spec/wants");
        let node = match wanted {
            "" if nodes.is_empty() => None,
            "" => Some(rng.pick(&nodes).clone()),
            wanted => nodes.into_iter().find(|node| node == wanted),
        };
        match node {
            Some(node) => {
                store.update(Kind::Pod, name, |pod| {
                    pod["spec"]["nodeName"] = json!(node);
                    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "True" }]);
                });
                true
            }
            None => {
                store.update(Kind::Pod, name, |pod| {
                    pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available" }]);
                });
                false
            }
        }
    }

    fn start(
        &mut self,
        store: &mut Store,
        rng: &mut Rng,
        profile: &Profile,
        name: &ObjectName,
        pod: &Value,
        job: &Value,
    ) {
        let env = job.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
        let get = |key: &str| -> Option<String> {
            let var = env?.iter().find(|var| var["name"] == key)?;
            Some(match key {
                "POD_NAMESPACE" => name.namespace.clone(),
                _ => var["value"].as_str()?.replace("$$", "$"),
            })
        };
        let request = Request::from_env(get).expect("a Job gives the contract's environment");
        let local = get("KIND").as_deref() == Some("local");
        // The storage of a node that is gone can be reached from others, where the config says that it can.
        let gone = store.get(Kind::Node, &ObjectName::new("", &request.node_name)).is_none();
        let deletes = matches!(request.operation, Operation::Delete | Operation::DeleteSnapshot);
        let elsewhere = deletes && !request.node_name.is_empty() && gone;
        let node = match (local, elsewhere) {
            (false, _) => String::new(),
            (true, true) => request.node_name.clone(),
            (true, false) => text(pod, "/spec/nodeName").to_owned(),
        };
        let place = (snapshots::stored_as(&request).unwrap_or(&request.claim_uuid).to_owned(), node);
        if snapshots::is_empty(store, &request) {
            self.wrong.push(format!("the run for claim {} is not told what it is made of", request.claim.name));
        }
        let bad = rng.permille(profile.bad_image);
        let code = *rng.pick(&[1, 64, 69, 75, 78]);
        let acts = match (request.operation, bad) {
            (Operation::Delete, false) => vec![Act::Remove, Act::Exit(0)],
            (Operation::Delete, true) => match rng.below(3) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Remove, Act::Exit(1)],
                _ => vec![Act::Hang],
            },
            (Operation::Expand, false) => vec![Act::Grow, Act::Exit(0)],
            (Operation::Expand, true) => match rng.below(3) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Grow, Act::Exit(1)],
                _ => vec![Act::Hang],
            },
            (Operation::Modify, false) => vec![Act::Modify { whole: true }, Act::Exit(0)],
            // What it says can never be done it has not begun.
            (Operation::Modify, true) => match rng.below(5) {
                0 => vec![Act::Exit(64)],
                1 => vec![Act::Modify { whole: false }, Act::Exit(1)],
                2 => vec![Act::Modify { whole: true }, Act::Exit(75)],
                3 => vec![Act::Modify { whole: false }, Act::Hang],
                _ => vec![Act::Hang],
            },
            (Operation::Snapshot | Operation::DeleteSnapshot, _) => {
                snapshots::acts(request.operation, bad.then_some(code), rng)
            }
            (_, false) => vec![Act::Make, Act::Publish { wrong: false }, Act::Exit(0)],
            (_, true) => match rng.below(8) {
                0 => vec![Act::Exit(code)],
                1 => vec![Act::Make, Act::Exit(code)],
                2 => vec![Act::Make, Act::Exit(0)],
                3 => vec![Act::Make, Act::Publish { wrong: false }, Act::Exit(1)],
                4 => vec![Act::Make, Act::Hang],
                5 => vec![Act::Hang],
                6 => vec![Act::Make, Act::Publish { wrong: false }, Act::Hang],
                _ => vec![Act::Make, Act::Publish { wrong: true }, Act::Exit(0)],
            },
        };
        let copies =
            request.clone_of.is_some() || (request.operation == Operation::Provision && request.snapshot.is_some());
        let reads = copies.then_some([Act::Read, Act::Read]).into_iter().flatten();
        let acts = if annotation(job, "idle").is_empty() { reads.chain(acts).collect() } else { vec![Act::Exit(0)] };
        if bad {
            count("bad runs");
        }
        line(|| {
            format!(
                "kubelet: {name} starts on {}: {} {:?} {acts:?}",
                text(pod, "/spec/nodeName"),
                request.operation,
                place
            )
        });
        let meets = |other: &&Process| {
            let of_snapshot = |request: &Request| snapshots::stored_as(request).is_some();
            if of_snapshot(&request) || of_snapshot(&other.request) {
                return of_snapshot(&request) == of_snapshot(&other.request)
                    && other.place == place
                    && !(profile.by_hand && other.request.operation == request.operation);
            }
            let both_make = other.request.operation != Operation::Delete && request.operation != Operation::Delete;
            // Two attempts may meet where a person removed a Job, and two expand runs where a watch is far
            // behind; a delete run must meet nobody at its place.
            let makes = request.operation == Operation::Provision && other.request.operation == Operation::Provision;
            // Who removes a Job removes the record of its attempt: the next may have its number, and then another. To
            // delete twice does no harm.
            let deletes = other.request.operation == Operation::Delete && request.operation == Operation::Delete;
            match both_make {
                false if deletes && profile.by_hand => false,
                true => makes && other.request.claim_uuid == request.claim_uuid && !profile.by_hand,
                false => other.place == place,
            }
        };
        if let Some(other) = self.processes.values().find(meets) {
            self.wrong.push(format!(
                "two processes for volume id {} at one time: {} and {}",
                request.claim_uuid, other.request.operation, request.operation
            ));
        }
        let (script, reserved) = (get("SCRIPT").is_some(), profile.policies);
        self.processes.insert(uid(pod).to_owned(), Process { request, place, script, reserved, acts });
        store.update(Kind::Pod, name, |pod| {
            pod["status"]["phase"] = json!("Running");
            pod["status"]["containerStatuses"] = json!([{ "name": "provisioner", "state": { "running": {} }, "image": "i", "imageID": "i", "ready": true, "restartCount": 0 }]);
        });
    }

    fn run(&mut self, store: &mut Store, name: &ObjectName, pod: &Value) -> bool {
        let id = uid(pod).to_owned();
        let Some(mut process) = self.processes.remove(&id) else {
            end_pod(store, name, 137, "lost");
            return true;
        };
        let act = process.acts.remove(0);
        match act {
            Act::Read => {
                count("reads of an original");
                self.read(&process);
            }
            Act::Make => {
                line(|| format!("backend: {:?} is made", process.place));
                self.changed |= self.backend.insert(process.place.clone());
            }
            Act::Remove => {
                line(|| format!("backend: {:?} is removed", process.place));
                self.changed |= self.backend.remove(&process.place);
            }
            Act::Grow => {
                if !self.backend.contains(&process.place) {
                    process.acts = vec![Act::Exit(65)];
                }
            }
            Act::Modify { whole } => {
                let class = process.request.attributes_class.clone();
                line(|| format!("backend: {:?} gets `{class}`, whole: {whole}", process.place));
                self.attributes.insert(process.place.0.clone(), whole.then_some(class));
            }
            Act::Store { whole } => {
                line(|| format!("backend: snapshot {:?} is stored, whole: {whole}", process.place));
                self.snapshots.insert(process.place.clone(), whole);
                self.changed = true;
            }
            Act::Discard => {
                line(|| format!("backend: snapshot {:?} is removed", process.place));
                self.changed |= self.snapshots.remove(&process.place).is_some();
            }
            Act::Publish { wrong } => {
                if let Err(code) = self.publish(store, &process, wrong) {
                    process.acts = vec![Act::Exit(code)];
                }
            }
            Act::Exit(code) => {
                end_pod(store, name, code, "last words");
                return true;
            }
            Act::Hang => {
                process.acts = vec![Act::Hang];
                self.processes.insert(id, process);
                return is_deleting(pod);
            }
        }
        self.processes.insert(id, process);
        true
    }

    /// What the image does as its last act.
    fn publish(&mut self, store: &mut Store, process: &Process, wrong: bool) -> Result<(), i32> {
        let (id, node) = &process.place;
        let path = format!("/vol/{id}");
        let source = match node.is_empty() {
            true => json!({ "nfs": { "server": "s", "path": path } }),
            false => json!({ "local": { "path": path } }),
        };
        let source: PersistentVolumeSpec = serde_json::from_value(source).expect("a spec");
        let reachable_from = if node.is_empty() {
            BTreeMap::new()
        } else {
            BTreeMap::from([(names::HOSTNAME.to_owned(), node.clone())])
        };
        let size_bytes = wrong.then_some(1 << 20);
        let pv = persistent_volume(&process.request, Made { source, reachable_from, size_bytes, ..Made::default() });
        let mut pv = json!(pv);
        if process.script {
            pv["metadata"] = json!({ "name": process.request.pv_name, "annotations": { names::CLAIM_UUID: process.request.claim.uid } });
            match process.reserved {
                true => pv["spec"]["claimRef"] = json!(placeholder(&process.request)),
                false => pv["spec"]["claimRef"] = Value::Null,
            }
        }
        crate::api::add_finalizer(&mut pv, VOLUME_PROTECTION);
        pv["status"] = json!({ "phase": "Pending" });
        let name = ObjectName::new("", &process.request.pv_name);
        if let Some(there) = store.get(Kind::Volume, &name) {
            if is_deleting(there) {
                return Err(75);
            }
            let same = annotation(there, names::CLAIM_UUID) == process.request.claim.uid
                && self.made.get(uid(there)) == Some(&process.place);
            return if same { Ok(()) } else { Err(65) };
        }
        line(|| format!("image: creates volume {}{}", name.name, if wrong { ", which is too small" } else { "" }));
        if let Some(created) = store.create(Kind::Volume, pv) {
            self.made.insert(uid(&created).to_owned(), process.place.clone());
        }
        Ok(())
    }

    /// The scheduler, and the protection of claims in use.
    fn claim(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, name: &ObjectName) -> bool {
        let Some(claim) = store.get(Kind::Claim, name).cloned() else { return false };
        if is_deleting(&claim) {
            if store::has_finalizer(&claim, CLAIM_PROTECTION) && (profile.calm || rng.permille(300)) {
                store.update(Kind::Claim, name, |claim| store::drop_finalizer(claim, CLAIM_PROTECTION));
            }
            let held = store.get(Kind::Claim, name).is_some_and(|claim| store::has_finalizer(claim, CLAIM_PROTECTION));
            return held;
        }
        let class = store.get(Kind::Class, &ObjectName::new("", text(&claim, "/spec/storageClassName")));
        let delayed = class.is_some_and(|class| class["volumeBindingMode"] == "WaitForFirstConsumer");
        let selected = annotation(&claim, names::SELECTED_NODE);
        let exists = store.get(Kind::Node, &ObjectName::new("", selected)).is_some();
        let pending = text(&claim, "/spec/volumeName").is_empty();
        if delayed && pending && !exists && (profile.calm || self.consumed.contains(name)) {
            let nodes: Vec<String> = store.all(Kind::Node).map(|(name, _)| name.name.clone()).collect();
            if nodes.is_empty() {
                return false;
            }
            let node = rng.pick(&nodes).clone();
            store.update(Kind::Claim, name, |claim| {
                claim["metadata"]["annotations"][names::SELECTED_NODE] = json!(node);
            });
        }
        false
    }

    fn node(&mut self, _: &mut Store, _: &ObjectName) -> bool {
        false
    }

    /// Processes for a volume id.
    pub fn is_running(&self, id: &str) -> bool {
        self.processes.values().any(|process| process.request.claim_uuid == id)
    }
}

/// The protection of volumes that are bound.
fn volume(store: &mut Store, name: &ObjectName) -> bool {
    let Some(volume) = store.get(Kind::Volume, name).cloned() else { return false };
    if is_deleting(&volume) && text(&volume, "/status/phase") != "Bound" {
        store.update(Kind::Volume, name, |volume| store::drop_finalizer(volume, VOLUME_PROTECTION));
    }
    false
}

fn owner(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/name")
}

fn owner_uid(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

fn end_pod(store: &mut Store, name: &ObjectName, code: i32, words: &str) {
    let now = store.time.text();
    store.update(Kind::Pod, name, |pod| {
        pod["status"]["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
        pod["status"]["containerStatuses"] = json!([{
            "name": "provisioner", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": "Error", "message": words, "finishedAt": now } },
        }]);
    });
}
