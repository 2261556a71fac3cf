//! People who meddle with runs: they remove pods by force, and copy Jobs.

use std::collections::BTreeMap;
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{Actors, is_local};
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, label, name_of, text, uid};
use crate::trace::{count, line};
use crate::world::{World, has_start_gate};

/// The age up to which a Job is copied, in seconds. An older copy of a snapshot run counts as restored from a backup, and the
/// orchestrator keeps what may be stored for it.
const FRESH: i64 = 300;

impl Actors {
    /// Removes a pod that has not ended from the API, by force, as somebody does who takes its node for dead.
    pub(super) fn remove_by_force(store: &mut Store, world: &mut World, rng: &mut Rng) {
        // Only the pod says where a run is that may be on any node.
        let is_found = |pod: &Value| !is_local(label(pod, names::LABEL_CLASS)) || !text(pod, "/spec/wants").is_empty();
        let has_ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let mut pods: Vec<(ObjectName, bool)> = store
            .all(Kind::Pod)
            .filter(|(_, pod)| is_found(pod) && !has_ended(pod))
            .map(|(name, pod)| (name.clone(), world.has_process(pod)))
            .collect();
        // Most people remove pods that run.
        if pods.iter().any(|(_, runs)| *runs) {
            pods.retain(|(_, runs)| *runs);
        }
        if pods.is_empty() {
            return;
        }
        let (name, _) = rng.pick(&pods);
        line(|| format!("admin: removes pod {name} by force"));
        count("pods removed by force");
        world.remove_by_force(store, name);
    }

    /// Makes a copy of a Job of the orchestrator, which is over, in progress or gone: under another name, or under its
    /// own if that is free.
    pub(super) fn copy_job(store: &mut Store, world: &mut World, rng: &mut Rng) {
        let mut last: BTreeMap<&str, &Rc<Value>> = BTreeMap::new();
        for change in store.log(Kind::Job) {
            last.insert(uid(&change.object), &change.object);
        }
        let is_fresh = |job: &Value| {
            let requested = annotation(job, names::JOB_REQUESTED).parse::<jiff::Timestamp>();
            requested.is_ok_and(|at| store.time.now() - at.as_second() <= FRESH)
        };
        let is_original = |id: &str| has_start_gate(store.pod_spec(id)) && !world.copies.contains(id);
        let jobs: Vec<Rc<Value>> =
            last.into_iter().filter(|(id, job)| is_original(id) && is_fresh(job)).map(|(_, job)| job.clone()).collect();
        if jobs.is_empty() {
            return;
        }
        let job = rng.pick(&jobs).clone();
        let ObjectName { namespace, name } = name_of(&job);
        let is_taken = store.get(Kind::Job, &ObjectName::new(&namespace, &name)).is_some();
        if store.is_closed(&namespace) {
            return;
        }
        let new = match is_taken || rng.permille(300) {
            true => format!("{name}-{}", store.new_uid("copy")),
            false => name.clone(),
        };
        let mut copy = (*job).clone();
        copy["metadata"] = json!({
            "name": new, "namespace": namespace,
            "labels": job["metadata"]["labels"], "annotations": job["metadata"]["annotations"],
        });
        copy["spec"]["template"]["spec"] = store.pod_spec(uid(&job)).clone();
        copy["status"] = json!({});
        if let Some(created) = store.create(Kind::Job, copy) {
            line(|| format!("user: copies Job {name} as {new}, UID {}", uid(&created)));
            count("Jobs copied");
            world.copies.insert(uid(&created).to_owned());
        }
    }
}
