//! The opening of pods: a pod starts only by the word of the process that has created its Job, and under a record of the
//! claims for which it makes volumes.

use std::collections::BTreeSet;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::Value;

use super::{Guarantee, Violation, batches};
use crate::actors::is_restored;
use crate::records;
use crate::store::{Change, Kind, Store, annotation, document, has_finalizer, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{World, has_start_gate, owner_uid};

/// The Jobs whose creation was answered to a process: the number of the process, and the UID of the Job.
pub type Answered = BTreeSet<(usize, String)>;

/// Returns the pod with a gate that a request opens.
fn opened<'r>(store: &'r Store, request: &'r Request) -> Option<(&'r ObjectName, &'r Value)> {
    let Request { verb: Verb::Patch, kind: Kind::Pod, name, body, .. } = request else { return None };
    let pod = store.get(Kind::Pod, name).filter(|pod| body.is_array() && has_start_gate(&pod["spec"]))?;
    Some((name, &**pod))
}

/// Checks that no delete run is opened for an adopted volume that was set to Retain, and has lost its finalizer since. Runs on
/// other nodes delete what earlier attempts left.
pub fn retained(store: &Store, world: &World, request: &Request) -> Option<Violation> {
    let (name, pod) = opened(store, request)?;
    if is_deleting(pod) || label(pod, names::LABEL_OPERATION) != "delete" {
        return None;
    }
    let volume_name = names::pv_name(label(pod, names::LABEL_VOLUME_ID));
    let changes = || store.log(Kind::Volume).iter().rev().map(|change| &*change.object);
    let last = changes().find(|volume| text(volume, "/metadata/name") == volume_name)?;
    let retains = |volume: &Value| text(volume, "/spec/persistentVolumeReclaimPolicy") == "Retain";
    let is_held = |volume: &Value| has_finalizer(volume, names::VOLUME_FINALIZER);
    let is_adopted = !annotation(last, names::PROVENANCE).is_empty() && !is_restored(last);
    let (_, node) = world.made.get(uid(last))?;
    let is_there = node.is_empty() || text(pod, "/spec/wants") == node;
    let was_held = || changes().any(|volume| uid(volume) == uid(last) && retains(volume) && is_held(volume));
    let is_wrong = is_adopted && is_there && retains(last) && !is_held(last) && was_held();
    let what = || format!("pod {name} is opened to delete volume {volume_name}, which is retained and was let go");
    is_wrong.then(|| Violation { guarantee: Guarantee::Duplicate, what: what() })
}

/// Checks a request before it is carried out. A process opens only pods of Jobs whose creation was answered to it, and
/// no second pod of a Job unless the first has ended.
pub fn request(store: &Store, answered: &Answered, from: usize, request: &Request) -> Option<Violation> {
    let (name, pod) = opened(store, request)?;
    let (id, job) = (uid(pod), owner_uid(pod));
    let wrong = |what: String| Some(Violation { guarantee: Guarantee::Duplicate, what });
    if !answered.contains(&(from, job.to_owned())) {
        return wrong(format!("{from} opens pod {name}, and has no answer to the creation of Job {job}"));
    }
    if let Some(member) = unrecorded(store, pod) {
        return wrong(format!("pod {name} is opened, and no armed record names the claim of volume {member}"));
    }
    let mut others = store.opened.iter().filter(|(other, of)| of.as_str() == job && other.as_str() != id);
    let (other, _) = others.find(|(other, _)| !has_ended(store, other))?;
    wrong(format!("pod {name} is opened, and pod {other} of its Job was opened and has not ended"))
}

/// Checks that no pod is opened for an attempt while that of another Job for it was opened and may run.
pub fn second_run(store: &Store, request: &Request) -> Option<Violation> {
    let (name, pod) = opened(store, request)?;
    let members = |pod: &Value| {
        let job = store.log(Kind::Job).iter().rev().find(|change| uid(&change.object) == owner_uid(pod));
        let job = job.filter(|change| batches::provisions(&change.object));
        job.map(|change| batches::members(&change.object)).unwrap_or_default()
    };
    let wanted = members(pod);
    let may_run = |other: &Value| {
        let is_opened = store.opened.contains_key(uid(other)) && !has_ended(store, uid(other));
        is_opened && owner_uid(other) != owner_uid(pod)
    };
    let others = store.all(Kind::Pod).filter(|(_, other)| may_run(other));
    let both = |other: &Value| members(other).into_iter().find(|member| wanted.contains(member));
    let (other, member) = others.filter_map(|(of, other)| Some((of, both(other)?))).next()?;
    let what = format!("pod {name} is opened for attempt {} of {}, and pod {other} runs it", member.attempt, member.id);
    Some(Violation { guarantee: Guarantee::Duplicate, what })
}

/// Returns a volume that the run of a pod would make, and for whose claim no armed record stands. A terminating pod
/// without a node never runs.
fn unrecorded(store: &Store, pod: &Value) -> Option<String> {
    let job = store.log(Kind::Job).iter().rev().find(|change| uid(&change.object) == owner_uid(pod))?;
    if is_deleting(pod) || !batches::provisions(&job.object) {
        return None;
    }
    let recorded: BTreeSet<&str> = records::all(store)
        .filter(|(_, record)| records::is_armed(record))
        .flat_map(|(_, r)| records::claims(r))
        .map(uid)
        .collect();
    let is_recorded = |id: &str| recorded.contains(id);
    batches::members(&job.object).into_iter().map(|member| member.id).find(|id| !is_recorded(id))
}

/// Checks a record that an image did not end in time, before it is written. A pod of that attempt was opened.
pub fn failure(store: &Store, request: &Request) -> Option<Violation> {
    let Request { verb: Verb::Patch, kind: Kind::Claim, name, body, .. } = request else { return None };
    let failure = document(body, names::FAILURE);
    let (claim, said) = (uid(store.get(Kind::Claim, name)?), text(&failure, "/message"));
    // Another claim has the name now, and the API server refuses the patch.
    if text(body, "/metadata/uid") != claim {
        return None;
    }
    let is_of_attempt = |job: &Value| {
        let is_single = label(job, names::LABEL_VOLUME_ID) == claim
            && label(job, names::LABEL_ATTEMPT).parse().ok() == failure["attempt"].as_u64();
        let is_batch = annotation(&job["spec"]["template"], names::BATCH).contains(claim);
        (is_single || is_batch) && label(job, names::LABEL_OPERATION) == text(&failure, "/operation")
    };
    let is_opened = |job: &Value| store.opened.values().any(|of| of == uid(job));
    let has_begun =
        || store.log(Kind::Job).iter().any(|change| is_of_attempt(&change.object) && is_opened(&change.object));
    let is_false = said.contains("the image did not end") && !has_begun();
    let what = || format!("claim {name} tells of an image that was never started: {said}");
    is_false.then(|| Violation { guarantee: Guarantee::Duplicate, what: what() })
}

/// Returns whether a pod had ended when it was last seen, or was being deleted and had no node: it never gets one then.
fn has_ended(store: &Store, pod: &str) -> bool {
    let last = store.log(Kind::Pod).iter().rev().find(|change| uid(&change.object) == pod);
    last.is_some_and(|Change { object, .. }| {
        let is_over = matches!(text(object, "/status/phase"), "Succeeded" | "Failed");
        is_over || is_deleting(object) && text(object, "/spec/nodeName").is_empty()
    })
}
