//! Planted bugs, between the orchestrator and the API server. Each removes one of the properties on which the design
//! relies. The simulation must find all of them.

mod worlds;

use std::sync::Arc;

use clap::ValueEnum;
use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use crate::actors::is_restored;
use crate::api::{FOREGROUND, list};
use crate::check::Guarantee;
use crate::check::batches::members;
use crate::records;
use crate::store::{KINDS, Kind, Store};
use crate::wire::{Answer, Request, Verb};
use crate::world::{has_condition, has_start_gate, owner_uid};

/// So many seconds that a Job ends in no history.
const NO_DEADLINE: i64 = 10_000_000;

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bug {
    /// Records of runs are never armed, and the orchestrator does not know it.
    RecordNotArmed,
    /// A copy of a record counts as the record itself.
    CopiedRecordCounts,
    /// A record is deleted as soon as one of its claims is gone.
    RecordGoneEarly,
    /// The deletion of a record arrives again, and deletes another one of its name.
    UnguardedRecordEnd,
    /// The finalizer on volumes is never written.
    NoVolumeFinalizer,
    /// Patches apply to any version, and to any object of the name.
    UnguardedWrites,
    /// Reads from the API, also of lists, return the state of the cache.
    StaleReads,
    /// The list of all claims is empty.
    EmptyLists,
    /// Each try to create a Job makes another Job.
    NewJobNames,
    /// Jobs are deleted before their pods, and nothing shows a pod whose Job is deleted. One of the two alone would not
    /// make two runs meet: the orchestrator has seen each pod that it has opened, and asks for the pods of a Job that is
    /// gone.
    BackgroundDeletion,
    /// Only the last of the nodes where storage may be left is recorded.
    NoNodes,
    /// A claim is held no more, and its record is deleted, when its delete run begins.
    EarlyRelease,
    /// A volume is deleted when its delete run begins. (To take a terminating Job for the new one is no bug to be
    /// found: nobody waits long for a Job that is not visible, and it is created again.)
    EarlyRemoval,
    /// A process that does not lead any more still writes.
    NoFence,
    /// An attempt uses the present config, not the version in the claim's stamp.
    NewestVersion,
    /// A delete run gets the id of another claim.
    WrongVolumeId,
    /// Runs are not bound to nodes.
    NoAffinity,
    /// Volumes are bound without the claim's UID in them.
    NoClaimUid,
    /// Delete runs exit 0 and remove nothing. This is a bug of the image, which must show as a leak.
    IdleDelete,
    /// No event is emitted.
    Silence,
    /// The source claim of a snapshot loses its finalizer when the run begins.
    SourceLetGo,
    /// A content loses its finalizer when its delete-snapshot run begins.
    EarlyContentRelease,
    /// A claim that is restored from a snapshot gets an empty volume.
    EmptyRestore,
    /// A second Job contains the claims of a batch too.
    TwoJobs,
    /// A restored volume counts as one that a run has just made.
    RestoredAsHalfMade,
    /// Each attempt counts as one of which no container has run.
    AllAttemptsIdle,
    /// A batch is deleted as soon as one of its claims leaves it.
    RemovedForOne,
    /// A second adoption gives a volume the policy of its class, although an admin has set it to Retain.
    RetainLost,
    /// All pods are opened, whoever has created their Jobs.
    OpenedUnanswered,
    /// All pods of a Job are opened once one of them was opened.
    OpenedTwice,
    /// A leader does not close the Jobs that it inherits, and Jobs have no deadline. The deadline alone would end them.
    InheritedNotClosed,
    /// Each failure is recorded as one of a full backend, so that no outage is known.
    OutageUnknown,
    /// A volume that is set to Retain loses its finalizer before the Job of its delete run is closed.
    RetainedLetGo,
    /// The mark of an adoption is lost when the claim is held no more: the volume counted as adopted without it.
    SettledUnmarked,
}

impl Bug {
    /// Checks whether this failure shows the bug. A bug that makes the orchestrator try forever also shows in a history
    /// that does not come to rest. For other bugs such a history proves nothing.
    ///
    /// Stale reads alone keep no history from its rest: at its end no watch is paused, so each read is true once the watch
    /// has caught up. Only an orchestrator that acts on them repeats what they undo, such as a run whose Job it does not see.
    pub fn is_shown_by(self, broken: Guarantee) -> bool {
        match self {
            Bug::NoVolumeFinalizer | Bug::NewJobNames | Bug::Silence | Bug::InheritedNotClosed | Bug::StaleReads => {
                true
            }
            _ => broken != Guarantee::Stuck,
        }
    }

    /// Changes a request as the bug would.
    pub fn distort(self, store: &mut Store, request: &mut Request) {
        let Request { verb, kind, body, name, .. } = request;
        let body = Arc::make_mut(body);
        let drop = |body: &mut Value, finalizer: &str| {
            if let Some(finalizers) = body["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|kept| kept != finalizer);
            }
        };
        match (self, *verb, *kind) {
            (Bug::NoVolumeFinalizer, Verb::Patch, Kind::Volume) => drop(body, names::VOLUME_FINALIZER),
            (Bug::UnguardedWrites, Verb::Patch, _) => {
                if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("resourceVersion");
                    metadata.remove("uid");
                }
            }
            (Bug::UnguardedWrites, Verb::Delete, _) => body["preconditions"] = Value::Null,
            (Bug::NewJobNames, Verb::Create, Kind::Job) => {
                let new = format!("{}-{}", name.name, store.new_uid("n"));
                body["metadata"]["name"] = json!(new);
                name.name = new;
            }
            (Bug::BackgroundDeletion, Verb::Delete, Kind::Job) => {
                body["propagationPolicy"] = json!("Background");
                hide_pods(store, name);
            }
            (Bug::NoNodes, Verb::Patch, Kind::Claim) if body["metadata"]["annotations"].is_object() => {
                if let Some(nodes) = body["metadata"]["annotations"].get_mut(names::NODES)
                    && let Some(last) = nodes.as_str().and_then(|nodes| nodes.rsplit(',').next()).map(str::to_owned)
                {
                    *nodes = json!(last);
                }
            }
            (Bug::EarlyRelease, Verb::Create, Kind::Job) if is_delete(body) => {
                let id = crate::store::label(body, names::LABEL_VOLUME_ID).to_owned();
                if let Some(name) = records::claim(store, &id).map(|(name, _)| name.clone()) {
                    store.update(Kind::Claim, &name, |claim| {
                        claim["metadata"]["annotations"].as_object_mut().map(|all| all.remove(names::HELD));
                    });
                }
                if let Some(name) = records::needed_by(store, &id) {
                    store.remove(Kind::Revision, &name);
                }
            }
            (Bug::CopiedRecordCounts, ..) => {
                let is_copy = |record: &Value| {
                    !crate::store::annotation(record, names::ARMED).is_empty() && !records::is_armed(record)
                };
                let found = records::all(store).find(|(_, record)| is_copy(record));
                if let Some(name) = found.map(|(name, _)| name.clone()) {
                    store.update(Kind::Revision, &name, |record| {
                        let own = crate::store::uid(record).to_owned();
                        record["metadata"]["annotations"][names::ARMED] = json!(own);
                    });
                }
            }
            (Bug::RecordGoneEarly, ..) => {
                if let Some(name) = records::without_claim(store) {
                    store.remove(Kind::Revision, &name);
                }
            }
            (Bug::UnguardedRecordEnd, ..) => {
                if let Some(name) = records::armed_in_place_of_another(store) {
                    store.remove(Kind::Revision, &name);
                }
            }
            (Bug::EarlyRemoval, Verb::Create, Kind::Job) if is_delete(body) => {
                let volume = ObjectName::new("", names::pv_name(crate::store::label(body, names::LABEL_VOLUME_ID)));
                store.update(Kind::Volume, &volume, |volume| {
                    crate::store::drop_finalizer(volume, names::VOLUME_FINALIZER);
                });
                store.delete(Kind::Volume, &volume);
            }
            (Bug::AllAttemptsIdle, Verb::Patch, Kind::Claim) => {
                change_failure(body, |failure| failure["unstarted_attempts"] = failure["attempt"].clone());
            }
            (Bug::OutageUnknown, Verb::Patch, Kind::Claim) => {
                change_failure(body, |failure| failure["kind"] = json!("no-capacity"));
            }
            (Bug::RetainedLetGo, ..) => {
                if let Some(name) = retained_with_delete_job(store) {
                    store.update(Kind::Volume, &name, |volume| {
                        crate::store::drop_finalizer(volume, names::VOLUME_FINALIZER);
                    });
                }
            }
            (Bug::SettledUnmarked, Verb::Patch, Kind::Claim)
                if body["metadata"]["annotations"].get(names::HELD).is_some_and(Value::is_null) =>
            {
                if let Some(claim) = store.get(Kind::Claim, name) {
                    let volume = ObjectName::new("", names::pv_name(crate::store::uid(claim)));
                    store.update(Kind::Volume, &volume, |volume| volume["status"]["reason"] = Value::Null);
                }
            }
            (Bug::NewestVersion, Verb::Create, Kind::Job) if !is_delete(body) => {
                let class = crate::store::label(body, names::LABEL_CLASS).to_owned();
                let config = ObjectName::new(crate::SYSTEM, class);
                if let Some(config) = store.get(Kind::Config, &config)
                    && let Some(image) = body.pointer_mut("/spec/template/spec/containers/0/image")
                {
                    *image = config["data"]["image"].clone();
                }
            }
            (Bug::WrongVolumeId, Verb::Create, Kind::Job) if is_delete(body) => {
                let own = crate::store::label(body, names::LABEL_VOLUME_ID).to_owned();
                let mut others = store.all(Kind::Claim).map(|(_, claim)| crate::store::uid(claim).to_owned());
                if let Some(other) = others.find(|other| *other != own)
                    && let Some(env) =
                        body.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut)
                    && let Some(var) = env.iter_mut().find(|var| var["name"] == "CLAIM_UUID")
                {
                    var["value"] = json!(other);
                }
            }
            (Bug::SourceLetGo, Verb::Create, Kind::Job) if operation(body) == "snapshot" => {
                let of = names::source_finalizer(crate::store::label(body, names::LABEL_VOLUME_ID));
                let claim = store.all(Kind::Claim).find(|(_, claim)| crate::store::has_finalizer(claim, &of));
                if let Some(name) = claim.map(|(name, _)| name.clone()) {
                    store.update(Kind::Claim, &name, |claim| crate::store::drop_finalizer(claim, &of));
                }
            }
            (Bug::EarlyContentRelease, Verb::Create, Kind::Job) if operation(body) == "delete-snapshot" => {
                let of = crate::store::annotation(body, names::JOB_CONTENT).to_owned();
                store.update(Kind::Content, &ObjectName::new("", of), |content| {
                    crate::store::drop_finalizer(content, names::SNAPSHOT_FINALIZER);
                });
            }
            (Bug::EmptyRestore, Verb::Create, Kind::Job) if operation(body) == "provision" => {
                let env = body.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
                if let Some(var) = env.and_then(|env| env.iter_mut().find(|var| var["name"] == "SNAPSHOT_ID")) {
                    var["value"] = json!("");
                }
            }
            (Bug::TwoJobs, Verb::Create, Kind::Job) if is_batch(body) => {
                let mut other = body.clone();
                other["metadata"]["name"] = json!(format!("{}-two", name.name));
                // Nobody would open its pod.
                if let Some(spec) = other.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) {
                    spec.remove("schedulingGates");
                }
                store.create(Kind::Job, other);
            }
            (Bug::RestoredAsHalfMade, ..) => {
                let restored = |volume: &Value| is_restored(volume) && volume["spec"]["claimRef"]["uid"].is_null();
                let found = store.all(Kind::Volume).find(|(_, volume)| restored(volume));
                if let Some(name) = found.map(|(name, _)| name.clone()) {
                    store.update(Kind::Volume, &name, |volume| {
                        let id = crate::store::annotation(volume, names::VOLUME_ID).to_owned();
                        volume["metadata"]["annotations"].as_object_mut().map(|all| all.remove(names::PROVENANCE));
                        volume["spec"]["claimRef"] = json!({ "namespace": crate::SYSTEM, "name": id });
                    });
                }
            }
            (Bug::RemovedForOne, ..) => {
                if let Some(name) = job_left_by_one_member(store) {
                    // The Job is deleted after its pods, as the orchestrator does it.
                    store.update(Kind::Job, &name, |job| crate::api::add_finalizer(job, FOREGROUND));
                    store.delete(Kind::Job, &name);
                }
            }
            (Bug::NoAffinity, Verb::Create, Kind::Job) => body["spec"]["template"]["spec"]["affinity"] = Value::Null,
            (Bug::NoClaimUid, Verb::Patch, Kind::Volume) if body["spec"]["claimRef"].is_object() => {
                body["spec"]["claimRef"]["uid"] = Value::Null;
            }
            (Bug::RetainLost, Verb::Patch, Kind::Volume)
                if body["metadata"]["annotations"][names::PROVENANCE].is_string() =>
            {
                body["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
            }
            (Bug::OpenedUnanswered, ..) => open_pod(store, |_, _| true),
            (Bug::OpenedTwice, ..) => {
                open_pod(store, |store, pod| store.opened.values().any(|job| job == owner_uid(pod)));
            }
            (Bug::InheritedNotClosed, Verb::Create, Kind::Job) => {
                body["spec"]["activeDeadlineSeconds"] = json!(NO_DEADLINE);
            }
            (Bug::IdleDelete, Verb::Create, Kind::Job) if is_delete(body) => {
                body["metadata"]["annotations"]["idle"] = json!("yes");
            }
            _ => {}
        }
    }

    /// Returns the bug's answer in place of the API server's, if any. `observed` is the progress of the sender's watch
    /// of the kind; `is_own` says that the request is for a Job whose creation was answered to the sender.
    pub fn answer(self, store: &Store, request: &Request, observed: usize, is_own: bool) -> Option<Answer> {
        match (self, request.verb, request.kind) {
            (Bug::StaleReads, Verb::Get | Verb::List, kind) if KINDS.contains(&kind) => {
                let cached = store.after(kind, observed);
                let gone = || Answer::error(404, "NotFound", "not in the cache");
                Some(match request.verb {
                    Verb::List => list(store, cached.into_iter(), request),
                    _ => cached.get(&request.name).map_or_else(gone, |object| Answer::ok(object)),
                })
            }
            (Bug::EmptyLists, Verb::List, _) | (Bug::BackgroundDeletion, Verb::List, Kind::Pod) => {
                Some(Answer::ok(&json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [],
                })))
            }
            (Bug::InheritedNotClosed, Verb::Delete, Kind::Job) if !is_own => {
                let job = store.get(Kind::Job, &request.name)?;
                let is_opened = store.opened.values().any(|of| of == crate::store::uid(job));
                let is_over = has_condition(job, "Complete") || has_condition(job, "Failed");
                (!is_opened && !is_over).then(|| Answer::ok(job))
            }
            (Bug::RecordNotArmed, Verb::Patch, Kind::Revision)
                if !crate::store::annotation(&request.body, names::ARMED).is_empty() =>
            {
                let mut armed = (**store.get(Kind::Revision, &request.name)?).clone();
                let mut annotations = request.body["metadata"]["annotations"].clone();
                annotations.as_object_mut()?.retain(|_, value| !value.is_null());
                armed["metadata"]["annotations"] = annotations;
                Some(Answer::ok(&armed))
            }
            (Bug::Silence, Verb::Create, Kind::Event) => Some(Answer::created(&request.body)),
            _ => None,
        }
    }
}

/// Changes the record of a failure that a patch writes on a claim.
fn change_failure(body: &mut Value, change: impl Fn(&mut Value)) {
    let failure = body.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(names::FAILURE));
    let noted = failure.as_ref().and_then(|text| serde_json::from_str::<Value>(text.as_str()?).ok());
    if let (Some(failure), Some(mut noted)) = (failure, noted) {
        change(&mut noted);
        *failure = json!(noted.to_string());
    }
}

/// Returns a batch that one of its claims has left.
fn job_left_by_one_member(store: &Store) -> Option<ObjectName> {
    let has_left = |id: &str| {
        let claim = store.all(Kind::Claim).find(|(_, claim)| crate::store::uid(claim) == id);
        claim.is_none_or(|(_, claim)| crate::store::is_deleting(claim))
    };
    let mut jobs = store.all(Kind::Job).filter(|(_, job)| is_batch(job) && !crate::store::is_deleting(job));
    jobs.find(|(_, job)| members(job).iter().any(|member| has_left(&member.id))).map(|(name, _)| name.clone())
}

/// Returns a volume that is released, set to Retain, and has a delete run that is not closed.
fn retained_with_delete_job(store: &Store) -> Option<ObjectName> {
    let has_job = |volume: &Value| {
        let id = crate::store::annotation(volume, names::VOLUME_ID);
        let is_of_it = |job: &Value| is_delete(job) && crate::store::label(job, names::LABEL_VOLUME_ID) == id;
        store.all(Kind::Job).any(|(_, job)| is_of_it(job) && !crate::store::is_deleting(job))
    };
    let is_retained = |volume: &Value| {
        volume["status"]["phase"] == "Released" && volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    };
    let mut volumes = store.all(Kind::Volume);
    volumes.find(|(_, volume)| is_retained(volume) && has_job(volume)).map(|(name, _)| name.clone())
}

/// Hides the pods of a Job.
fn hide_pods(store: &mut Store, job: &ObjectName) {
    let Some(job) = store.get(Kind::Job, job).cloned() else { return };
    let is_of_job = |pod: &Value| owner_uid(pod) == crate::store::uid(&job);
    let pods = store.all(Kind::Pod).filter(|(_, pod)| is_of_job(pod));
    for name in pods.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
        store.hide(Kind::Pod, &name);
    }
}

/// Opens a pod for which this holds, as the orchestrator does it.
fn open_pod(store: &mut Store, is_wanted: impl Fn(&Store, &Value) -> bool) {
    let found = store.all(Kind::Pod).find(|(_, pod)| has_start_gate(&pod["spec"]) && is_wanted(store, pod));
    let Some((name, pod)) = found.map(|(name, pod)| (name.clone(), pod.clone())) else { return };
    store.opened.insert(crate::store::uid(&pod).to_owned(), owner_uid(&pod).to_owned());
    store.update(Kind::Pod, &name, |pod| {
        if let Some(gates) = pod["spec"]["schedulingGates"].as_array_mut() {
            gates.retain(|gate| gate["name"] != names::START_GATE);
        }
    });
}

fn is_batch(job: &Value) -> bool {
    !crate::store::annotation(&job["spec"]["template"], names::BATCH).is_empty()
}

fn operation(job: &Value) -> &str {
    crate::store::label(job, names::LABEL_OPERATION)
}

fn is_delete(job: &Value) -> bool {
    operation(job) == "delete"
}
