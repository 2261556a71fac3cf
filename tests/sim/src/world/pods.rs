//! More than one pod of a Job, pods with scheduling gates, and pods that somebody removes while their processes run.

use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{TRACKING, World, annotations_for_checks, ended, owner_uid, wanted_node};
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store, is_deleting, text, uid};
use crate::trace::line;

/// The label with which the Job controller names the UID of a pod's Job.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// Returns whether a pod spec has the gate that only the orchestrator removes.
pub fn has_start_gate(spec: &Value) -> bool {
    spec["schedulingGates"].as_array().into_iter().flatten().any(|gate| gate["name"] == names::START_GATE)
}

/// Returns whether the scheduler leaves a pod alone.
pub(super) fn is_gated(spec: &Value) -> bool {
    spec["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty())
}

/// Makes a pod of a Job, as the Job controller does. The API server says of a pod with gates that it is not scheduled.
pub(super) fn make(store: &mut Store, name: &ObjectName, job: &Value) {
    let template = &job["spec"]["template"];
    let pod_name = format!("{}-{}", name.name, store.new_uid("r"));
    let mut labels = template["metadata"]["labels"].clone();
    labels[JOB_UID] = json!(uid(job));
    let mut pod = json!({
        "metadata": {
            "name": pod_name, "namespace": name.namespace,
            "labels": labels,
            "annotations": annotations_for_checks(template),
            "finalizers": [TRACKING],
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": name.name, "uid": uid(job), "controller": true, "blockOwnerDeletion": true }],
        },
        "spec": { "wants": wanted_node(job) },
        "status": { "phase": "Pending" },
    });
    if is_gated(&template["spec"]) {
        pod["spec"]["schedulingGates"] = template["spec"]["schedulingGates"].clone();
        pod["status"]["conditions"] = json!([{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates" }]);
    }
    store.create(Kind::Pod, pod);
}

/// Returns the pod that the Job controller deletes because its Job has another: first one without a node, and the newer
/// of two.
pub(super) fn surplus(pods: &[(ObjectName, Rc<Value>)]) -> Option<ObjectName> {
    let active: Vec<_> = pods.iter().filter(|(_, pod)| !ended(pod) && !is_deleting(pod)).collect();
    let (name, _) = active.iter().max_by_key(|(_, pod)| text(pod, "/spec/nodeName").is_empty())?;
    (active.len() > 1).then(|| name.clone())
}

/// Deletes the pods that have not ended when the end of their Job is decided. Returns whether there was one to delete,
/// or `None` if all have ended.
pub(super) fn end_others(store: &mut Store, pods: &[(ObjectName, Rc<Value>)]) -> Option<bool> {
    let others: Vec<_> = pods.iter().filter(|(_, pod)| !ended(pod)).collect();
    let Some((name, _)) = others.iter().find(|(_, pod)| !is_deleting(pod)) else {
        return (!others.is_empty()).then_some(false);
    };
    store.delete(Kind::Pod, name);
    Some(true)
}

impl World {
    /// Returns whether the process of a pod runs.
    pub fn has_process(&self, pod: &Value) -> bool {
        self.containers.contains_key(uid(pod))
    }

    /// Removes a pod at once, as somebody does who takes its node for dead and removes its finalizers, too. Its process
    /// continues for a while. It changes nothing any more, because nobody could answer for that.
    pub fn remove_by_force(&mut self, store: &mut Store, name: &ObjectName) {
        let Some(pod) = store.get(Kind::Pod, name).cloned() else { return };
        if self.containers.remove(uid(&pod)).is_some() {
            self.ghosts.insert(name.clone(), owner_uid(&pod).to_owned());
        }
        store.remove(Kind::Pod, name);
    }

    /// Takes the next step of a process whose pod was removed by force. Returns whether it still runs.
    pub(super) fn ghost(&mut self, rng: &mut Rng, profile: &Profile, name: &ObjectName) -> bool {
        if self.ghosts.contains_key(name) && rng.permille(profile.dying) {
            line(|| format!("kubelet: the process of {name} ends, whose pod was removed by force"));
            self.ghosts.remove(name);
        }
        self.ghosts.contains_key(name)
    }

    /// Checks, when the process of a pod is about to start, that it may.
    pub(super) fn check_start(&mut self, store: &Store, name: &ObjectName, pod: &Value, job: &Value) {
        let (id, of) = (uid(pod), uid(job));
        if self.copies.contains(of) {
            self.wrong.push(format!("a process starts in pod {name}, and its Job is a copy"));
        }
        if has_start_gate(store.pod_spec(of)) && !store.opened.contains_key(id) {
            self.wrong.push(format!("a process starts in pod {name}, which the orchestrator has not opened"));
        }
        let runs = |other: &Value| owner_uid(other) == of && uid(other) != id && self.has_process(other);
        let is_second = store.all(Kind::Pod).any(|(_, other)| runs(other));
        if is_second || self.ghosts.values().any(|ghost| ghost == of) {
            self.wrong.push(format!("a process starts in pod {name}, and another one of its Job runs"));
        }
    }
}
