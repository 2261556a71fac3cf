//! The rest of the cluster: the Job controller, the garbage collector, the scheduler, the kubelets with the images'
//! processes ([`image`]), and the storage backend. Each reconciles one object at a time and takes one step.

mod image;
mod pods;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use crate::api::FOREGROUND;
use crate::check::outages::Outage;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{self, Kind, Store, annotation, is_deleting, text, uid};
use crate::trace::{count, line};

/// The finalizer of the Job controller on pods that it has not counted yet.
const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The finalizer on a claim while a pod uses it.
pub const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer on a volume while it is bound.
pub const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

pub use image::{Container, Process};
pub use pods::has_start_gate;

/// The key of storage: the id that the image got, and the node; empty for storage in the network.
pub type StorageKey = (String, String);

/// The rest of the cluster.
#[derive(Debug, Default)]
pub struct World {
    /// The existing storage.
    pub backend: BTreeSet<StorageKey>,
    /// The stored snapshots, and whether they are complete.
    pub snapshots: BTreeMap<StorageKey, bool>,
    /// The VolumeAttributesClass of each modified volume, by its id; `None` for a half-modified volume.
    pub attributes: BTreeMap<String, Option<String>>,
    /// The storage of each volume, by its UID.
    pub made: BTreeMap<String, StorageKey>,
    /// The storage of each restored volume, by its UID.
    pub restored: BTreeMap<String, StorageKey>,
    /// The stored snapshots of each restored content that no admin has let go, by its UID.
    pub restored_snapshots: BTreeMap<String, Vec<StorageKey>>,
    /// The running containers, by the pod's UID.
    pub containers: BTreeMap<String, Container>,
    /// The objects to reconcile.
    pub has_leftovers: BTreeSet<(Kind, ObjectName)>,
    /// The objects to reconcile later, by milliseconds.
    pub timers: BTreeSet<(u64, Kind, ObjectName)>,
    /// The claims that a pod uses.
    pub consumed: BTreeSet<ObjectName>,
    /// The nodes that are gone and do not come back.
    pub lost: BTreeSet<String>,
    /// The nodes that were gone once.
    pub went: BTreeSet<String>,
    /// The objects with the finalizer of another controller: kind, name and UID.
    pub marked: BTreeSet<(Kind, ObjectName, String)>,
    /// The UIDs of volumes in use that an admin has set to Retain.
    pub retained: BTreeSet<String>,
    /// The storage of volumes that somebody keeps, by the UID of the volume: the claim was bound and is gone, and the
    /// volume had the policy Retain all the time, or since the claim was there.
    pub kept: BTreeMap<String, StorageKey>,
    /// The UIDs of claims whose end a process has not seen.
    pub missed: BTreeSet<String>,
    /// The ids of snapshots whose contents looked restored, and that an admin has let go.
    pub let_go: BTreeSet<String>,
    /// The Jobs that somebody has made as copies of the orchestrator's, by UID.
    pub copies: BTreeSet<String>,
    /// The Jobs that have had their pod, by UID.
    created: BTreeSet<String>,
    /// The processes whose pods were removed by force, by the names of the pods, with the UIDs of their Jobs.
    ghosts: BTreeMap<ObjectName, String>,
    /// The violations found.
    pub wrong: Vec<String>,
    /// Whether storage was made or removed.
    pub changed: bool,
    /// The most volumes that a class may have at one time; `None` for no quota.
    pub share: Option<usize>,
    /// The most claims of one namespace and class that are gone while first attempts begin there.
    pub left: Option<usize>,
    /// The size of each class's pool.
    pub pools: BTreeMap<String, usize>,
    /// Whether the backend is down, so that each run fails.
    pub is_down: bool,
    /// The provision runs of each class while the backend is down.
    pub outages: BTreeMap<String, Outage>,
}

/// Returns the node on which the pod of a Job must run; empty for any.
pub fn wanted_node(job: &Value) -> &str {
    const NODE: &str = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    text(job, NODE)
}

fn ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether a Job has a true condition.
pub fn has_condition(job: &Value, kind: &str) -> bool {
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
    /// Builds an empty world, with the quota of a class and its pools.
    pub fn new(profile: &Profile, pools: BTreeMap<String, usize>) -> Self {
        World { share: profile.share, left: profile.left, pools, is_down: profile.outages, ..World::default() }
    }

    /// Reconciles an object in the role of its controller.
    pub fn reconcile(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, kind: Kind, name: &ObjectName) {
        let again = match kind {
            Kind::Job => self.job(store, rng, profile, name),
            Kind::Pod => self.pod(store, rng, profile, name),
            Kind::Claim => self.claim(store, rng, profile, name),
            Kind::Volume => volume(store, name),
            Kind::Node => self.node(store, name),
            Kind::Namespace => self.namespace(store, name),
            Kind::Snapshot if profile.snapshot_controller => snapshots::refuse(store, name),
            _ => false,
        };
        if again {
            self.has_leftovers.insert((kind, name.clone()));
        }
    }

    /// Queues the changed objects.
    pub fn notice(&mut self, store: &mut Store) {
        for (kind, name) in std::mem::take(&mut store.touched) {
            match kind {
                Kind::Job => {
                    let pods = store.all(Kind::Pod).filter(|(_, pod)| owner(pod) == name.name);
                    self.has_leftovers.extend(pods.map(|(name, _)| (Kind::Pod, name.clone())));
                }
                Kind::Pod => {
                    let job = store.log(Kind::Pod).iter().rev().find(|change| change.name == name);
                    let job = job.map(|change| owner(&change.object).to_owned()).unwrap_or_default();
                    self.has_leftovers.insert((Kind::Job, ObjectName::new(&name.namespace, job)));
                }
                Kind::Claim | Kind::Volume | Kind::Namespace | Kind::Snapshot => {}
                Kind::Node => {
                    self.has_leftovers.extend(store.all(Kind::Pod).map(|(name, _)| (Kind::Pod, name.clone())));
                    self.has_leftovers.extend(store.all(Kind::Claim).map(|(name, _)| (Kind::Claim, name.clone())));
                }
                _ => continue,
            }
            self.has_leftovers.insert((kind, name));
        }
    }

    /// Deletes all objects of a terminating namespace, and removes it when it is empty.
    fn namespace(&mut self, store: &mut Store, of: &ObjectName) -> bool {
        if !store.get(Kind::Namespace, of).is_some_and(|namespace| is_deleting(namespace)) {
            return false;
        }
        let leftovers: Vec<(Kind, ObjectName)> = [Kind::Config, Kind::Job, Kind::Pod]
            .into_iter()
            .flat_map(|kind| store.all(kind).map(move |(name, _)| (kind, name.clone())))
            .filter(|(_, name)| name.namespace == of.name)
            .collect();
        if leftovers.is_empty() {
            line(|| format!("the namespace {} is gone", of.name));
            store.update(Kind::Namespace, of, |namespace| store::drop_finalizer(namespace, "kubernetes"));
            return false;
        }
        for (kind, name) in leftovers {
            store.delete(kind, &name);
        }
        true
    }

    fn job(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, name: &ObjectName) -> bool {
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
        if has_condition(&job, "Complete") || has_condition(&job, "Failed") {
            // Counted pods lose their finalizer.
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
        if !self.created.contains(uid(&job)) && !store.is_closed(&name.namespace) {
            self.created.insert(uid(&job).to_owned());
            let deadline =
                store.time.millis() + 1000 * store::number(&job, "/spec/activeDeadlineSeconds").unsigned_abs();
            self.timers.insert((deadline, Kind::Job, name.clone()));
            store.update(Kind::Job, name, |job| job["status"]["deadline"] = json!(deadline));
            pods::make(store, name, &job);
            // A Job controller that takes over may not know of the pod that its predecessor has just made.
            if profile.second_pods && rng.permille(150) {
                count("pods made twice");
                pods::make(store, name, &job);
            }
            return true;
        }
        // A terminating pod that somebody removed by force had been counted.
        let uncounted = usize::from(pods.is_empty() && self.created.contains(uid(&job)));
        let over = |store: &mut Store, kind: &str, reason: &str| {
            let millis = store.time.millis();
            let counted = pods.iter().filter(|(_, pod)| ended(pod)).count() + uncounted;
            store.update(Kind::Job, name, |job| {
                condition(job, kind, reason, &now);
                if counted > 0 {
                    job["status"]["failed"] = json!(counted);
                }
                if let Some(last) = job["status"]["conditions"].as_array_mut().and_then(|c| c.last_mut()) {
                    last["at"] = json!(millis);
                }
            });
        };
        let target = has_condition(&job, "FailureTarget");
        if pods.iter().any(|(_, pod)| ended(pod)) {
            let met = has_condition(&job, "SuccessCriteriaMet");
            if (target || met)
                && let Some(again) = pods::end_others(store, &pods)
            {
                return again;
            }
            let has_failed = pods.iter().any(|(_, pod)| text(pod, "/status/phase") == "Failed");
            let failed = target || (has_failed && !met);
            let reason = if target { "DeadlineExceeded" } else { "BackoffLimitExceeded" };
            match (failed, target, met) {
                (true, true, _) => over(store, "Failed", reason),
                (true, false, _) => over(store, "FailureTarget", reason),
                (false, _, false) => over(store, "SuccessCriteriaMet", "CompletionsReached"),
                (false, _, true) => over(store, "Complete", "CompletionsReached"),
            }
            return true;
        }
        if pods.is_empty() && !target && !store.is_closed(&name.namespace) {
            count("second pods of a Job");
            pods::make(store, name, &job);
            return true;
        }
        if pods.is_empty() {
            over(store, "Failed", "BackoffLimitExceeded");
            return true;
        }
        if let Some(surplus) = pods::surplus(&pods) {
            store.delete(Kind::Pod, &surplus);
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
        let Some(pod) = store.get(Kind::Pod, name).cloned() else { return self.ghost(rng, profile, name) };
        let job = store.get(Kind::Job, &ObjectName::new(&name.namespace, owner(&pod)));
        let job = job.filter(|job| uid(job) == owner_uid(&pod)).cloned();
        if job.is_none() && !is_deleting(&pod) {
            store.delete(Kind::Pod, name);
            return true;
        }
        let node = text(&pod, "/spec/nodeName").to_owned();
        let lost = !node.is_empty() && store.get(Kind::Node, &ObjectName::new("", &node)).is_none();
        if lost && !ended(&pod) {
            self.containers.remove(uid(&pod));
            end_pod(store, name, 137, "the node is gone");
            store.delete(Kind::Pod, name);
            return true;
        }
        if ended(&pod) {
            if is_deleting(&pod) {
                let counted = job.as_ref().is_none_or(|job| {
                    is_deleting(job) || has_condition(job, "Failed") || has_condition(job, "Complete")
                });
                if counted {
                    store.remove(Kind::Pod, name);
                }
            }
            return false;
        }
        if node.is_empty() {
            if is_deleting(&pod) {
                end_unstarted(store, name);
                return true;
            }
            return !pods::is_gated(&pod["spec"]) && self.schedule(store, rng, name, &pod);
        }
        if text(&pod, "/status/phase") == "Pending" {
            if is_deleting(&pod) {
                end_unstarted(store, name);
                return true;
            }
            let Some(job) = job else { return true };
            let image = text(&store.pod_spec(uid(&job))["containers"][0], "/image");
            if image.ends_with(":typo") {
                count("missing images");
                let waiting = json!([{ "name": "provisioner", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } } }]);
                store.update(Kind::Pod, name, |pod| pod["status"]["containerStatuses"] = waiting);
                return false;
            }
            self.check_start(store, name, &pod, &job);
            self.start(store, rng, profile, name, &pod, &job);
            return true;
        }
        let killed = if is_deleting(&pod) { rng.permille(profile.dying) } else { rng.permille(profile.kill) };
        if killed {
            count("killed processes");
            line(|| format!("kubelet: {name} is killed"));
            let container = self.containers.remove(uid(&pod)).unwrap_or_default();
            if let Some(job) = job.filter(|job| is_deleting(job) && profile.leaves_runs()) {
                self.wrong.extend(container.ended_for_others(store, &job));
            }
            end_pod(store, name, 137, &container.outcome_when_killed(rng, "killed"));
            return true;
        }
        self.run(store, rng, name, &pod)
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

    /// Plays the scheduler, and the protection of claims in use.
    fn claim(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile, name: &ObjectName) -> bool {
        let Some(claim) = store.get(Kind::Claim, name).cloned() else { return false };
        if is_deleting(&claim) {
            if store::has_finalizer(&claim, CLAIM_PROTECTION) && (profile.is_calm || rng.permille(300)) {
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
        if delayed && pending && !exists && (profile.is_calm || self.consumed.contains(name)) {
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

    /// Lists all running processes.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.containers.values().flat_map(|container| &container.processes)
    }

    /// Returns whether a process works on a volume id.
    pub fn is_running(&self, id: &str) -> bool {
        self.processes().any(|process| process.request.volume_id == id)
    }
}

/// Plays the protection of bound volumes.
fn volume(store: &mut Store, name: &ObjectName) -> bool {
    let Some(volume) = store.get(Kind::Volume, name).cloned() else { return false };
    if is_deleting(&volume) && text(&volume, "/status/phase") != "Bound" {
        store.update(Kind::Volume, name, |volume| store::drop_finalizer(volume, VOLUME_PROTECTION));
    }
    false
}

/// Returns the pod annotations that checks read.
fn annotations_for_checks(template: &Value) -> Value {
    match annotation(template, names::BATCH) {
        "" => Value::Null,
        members => json!({ names::BATCH: members }),
    }
}

fn owner(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/name")
}

/// Returns the UID of a pod's Job.
pub fn owner_uid(pod: &Value) -> &str {
    text(pod, "/metadata/ownerReferences/0/uid")
}

/// Ends a pod that never had a container, as Kubernetes reports it.
fn end_unstarted(store: &mut Store, name: &ObjectName) {
    store.update(Kind::Pod, name, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"] = json!([{
            "name": "provisioner", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located when the pod was terminated" } },
        }]);
    });
}

fn end_pod(store: &mut Store, name: &ObjectName, code: i32, texts: &str) {
    let now = store.time.text();
    store.update(Kind::Pod, name, |pod| {
        pod["status"]["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
        pod["status"]["containerStatuses"] = json!([{
            "name": "provisioner", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": "Error", "message": texts, "finishedAt": now } },
        }]);
    });
}
