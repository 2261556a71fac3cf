//! Bugs that are put in on purpose, on the way between the orchestrator and the API server: each takes
//! away one of the things that the design rests on. The simulation must find every one.

use std::sync::Arc;

use clap::ValueEnum;
use contract::names;
use flex_provisioner::object::ObjectName;
use serde_json::{Value, json};

use crate::api::FOREGROUND;
use crate::check::Broken;
use crate::check::batches::members;
use crate::history::Part;
use crate::people::is_restored;
use crate::profile::{PARTS, Profile};
use crate::store::{KINDS, Kind, Store};
use crate::wire::{Answer, Request, Verb};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bug {
    /// The finalizer on claims is never written.
    NoClaimFinalizer,
    /// The finalizer on volumes is never written.
    NoVolumeFinalizer,
    /// Patches hold for any version, and for any object of the name.
    UnguardedWrites,
    /// What is read from the API is as old as the cache.
    StaleReads,
    /// The list of all claims does not show any.
    EmptyLists,
    /// Each try to create a Job makes another one.
    NewJobNames,
    /// Jobs are deleted before their pods, and no list of the API shows a pod: with either of the two, no run meets
    /// another, because what a Job that is gone may have left is asked for.
    BackgroundDeletion,
    /// Of the nodes where something may be left only the last is noted.
    NoNodes,
    /// A claim is let go of when its delete run begins.
    EarlyRelease,
    /// A volume goes when its delete run begins. (That a Job which is still going away is taken for the new one is no
    /// bug to be found: nobody waits for a Job that is not seen for longer than a moment, and then it is created anew.)
    EarlyRemoval,
    /// A process that does not lead any more goes on writing.
    NoFence,
    /// An attempt works by the config as it is now, not by the version that its claim has noted.
    NewestVersion,
    /// A delete run gets the id of another claim.
    WrongVolumeId,
    /// Runs are not bound to nodes.
    NoAffinity,
    /// Volumes are bound without the claim's UID in them.
    NoClaimUid,
    /// Delete runs exit 0 and remove nothing: the image's bug, which must show as a leak.
    IdleDelete,
    /// What happens is told to nobody.
    Silence,
    /// The claim that a snapshot is of is let go of when the run begins.
    SourceLetGo,
    /// A content is let go of when its delete-snapshot run begins.
    EarlyContentRelease,
    /// A claim that is to be made from a snapshot gets an empty volume.
    EmptyRestore,
    /// The claims of a batch are in a second Job, too.
    TwoJobs,
    /// A volume that came back from a backup is taken for one that a run has just made.
    RestoredAsHalfMade,
    /// Of every attempt it is noted that no container of it has run.
    AllAttemptsIdle,
    /// A batch is removed as soon as one of its claims goes.
    RemovedForOne,
}

impl Bug {
    /// Makes the world one in which the bug can do its harm: the situation that it needs is there in many
    /// histories, and no other fault hides it.
    pub fn suit(self, profile: &mut Profile) {
        let Profile { classes, claims, deeds, pool, .. } = profile;
        (*claims, *deeds, *pool) = (3, 12, None);
        match self {
            Bug::UnguardedWrites => {
                *classes = vec!["script", "shared"];
                (profile.others, profile.policies) = (true, false);
            }
            Bug::StaleReads | Bug::EmptyLists => {
                *classes = vec!["shared"];
                (profile.replicas, profile.stalls, profile.handovers) = (2, 6, 3);
                (profile.bad_image, profile.kill) = (500, 0);
            }
            // Pods outlive their Jobs, and nobody is told of them soon.
            Bug::BackgroundDeletion => {
                *classes = vec!["shared"];
                (profile.replicas, profile.bad_image, profile.kill, profile.dying) = (1, 500, 0, 30);
                profile.watches = [10; KINDS.len()];
                profile.watches[Kind::Pod as usize] = 1;
                profile.speed = [10; PARTS];
                profile.speed[Part::Watch as usize] = 3;
            }
            Bug::NoNodes | Bug::NoAffinity => {
                *classes = vec!["local"];
                profile.bad_image = 500;
            }
            Bug::NoVolumeFinalizer | Bug::EarlyRelease | Bug::EarlyRemoval => profile.bad_image = 500,
            Bug::NoFence => {
                *classes = vec!["shared", "script"];
                (profile.replicas, profile.unaware) = (2, true);
                (profile.stalls, profile.handovers, profile.bad_image) = (6, 4, 300);
            }
            Bug::NewestVersion => {
                (profile.configs, profile.bad_image) = (true, 300);
            }
            Bug::SourceLetGo | Bug::EarlyContentRelease | Bug::EmptyRestore => {
                *classes = vec!["shared"];
                profile.make_snapshots();
                profile.bad_image = if self == Bug::EmptyRestore { 0 } else { 300 };
            }
            Bug::TwoJobs | Bug::RemovedForOne => {
                *classes = vec!["shared"];
                profile.make_batches(3);
                (profile.by_hand, profile.nodes, profile.swaps, profile.vendor) = (false, false, false, false);
                (profile.configs, profile.volumes, profile.share, profile.dying) = (false, false, None, 500);
            }
            Bug::RestoredAsHalfMade => {
                *classes = vec!["shared"];
                (profile.restores, profile.share, profile.bad_image, profile.kill) = (true, None, 0, 0);
            }
            Bug::AllAttemptsIdle => {
                *classes = vec!["shared"];
                profile.bad_image = 500;
            }
            Bug::NoClaimUid => profile.policies = false,
            Bug::Silence => (profile.crashes, profile.refused, profile.lost_answer, profile.late) = (0, 0, 0, 0),
            _ => {}
        }
    }

    /// The bug can be known by this. Those that make the orchestrator try for ever are known by that as well; of the others a
    /// history that does not come to rest says nothing.
    pub fn shows_as(self, broken: Broken) -> bool {
        match self {
            Bug::NoClaimFinalizer | Bug::NoVolumeFinalizer | Bug::NewJobNames | Bug::Silence => true,
            _ => broken != Broken::Stuck,
        }
    }

    /// What the bug makes of a request.
    pub fn distort(self, store: &mut Store, request: &mut Request) {
        let Request { verb, kind, body, name, .. } = request;
        let body = Arc::make_mut(body);
        let drop = |body: &mut Value, finalizer: &str| {
            if let Some(finalizers) = body["metadata"]["finalizers"].as_array_mut() {
                finalizers.retain(|kept| kept != finalizer);
            }
        };
        match (self, *verb, *kind) {
            (Bug::NoClaimFinalizer, Verb::Patch, Kind::Claim) => drop(body, names::CLAIM_FINALIZER),
            (Bug::NoVolumeFinalizer, Verb::Patch, Kind::Volume) => drop(body, names::VOLUME_FINALIZER),
            (Bug::UnguardedWrites, Verb::Patch, _) => {
                if let Some(metadata) = body["metadata"].as_object_mut() {
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
            (Bug::BackgroundDeletion, Verb::Delete, Kind::Job) => body["propagationPolicy"] = json!("Background"),
            (Bug::NoNodes, Verb::Patch, Kind::Claim) if body["metadata"]["annotations"].is_object() => {
                let nodes = &mut body["metadata"]["annotations"][names::NODES];
                if let Some(last) = nodes.as_str().and_then(|nodes| nodes.rsplit(',').next()).map(str::to_owned) {
                    *nodes = json!(last);
                }
            }
            (Bug::EarlyRelease, Verb::Create, Kind::Job) if is_delete(body) => {
                let id = crate::store::label(body, names::LABEL_CLAIM_UUID).to_owned();
                let claim = store.all(Kind::Claim).find(|(_, claim)| crate::store::uid(claim) == id);
                if let Some(name) = claim.map(|(name, _)| name.clone()) {
                    store.update(Kind::Claim, &name, |claim| {
                        crate::store::drop_finalizer(claim, names::CLAIM_FINALIZER)
                    });
                }
            }
            (Bug::EarlyRemoval, Verb::Create, Kind::Job) if is_delete(body) => {
                let volume = ObjectName::new("", names::pv_name(crate::store::label(body, names::LABEL_CLAIM_UUID)));
                store.update(Kind::Volume, &volume, |volume| {
                    crate::store::drop_finalizer(volume, names::VOLUME_FINALIZER);
                });
                store.delete(Kind::Volume, &volume);
            }
            (Bug::AllAttemptsIdle, Verb::Patch, Kind::Claim) => {
                let failure = body.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(names::FAILURE));
                let noted = failure.as_ref().and_then(|text| serde_json::from_str::<Value>(text.as_str()?).ok());
                if let (Some(failure), Some(mut noted)) = (failure, noted) {
                    noted["idle_attempts"] = noted["attempt"].clone();
                    *failure = json!(noted.to_string());
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
                let own = crate::store::label(body, names::LABEL_CLAIM_UUID).to_owned();
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
                let of = names::source_finalizer(crate::store::label(body, names::LABEL_CLAIM_UUID));
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
                if let Some(name) = left_by_one(store) {
                    // As the orchestrator would: after the pods.
                    store.update(Kind::Job, &name, |job| crate::api::add_finalizer(job, FOREGROUND));
                    store.delete(Kind::Job, &name);
                }
            }
            (Bug::NoAffinity, Verb::Create, Kind::Job) => body["spec"]["template"]["spec"]["affinity"] = Value::Null,
            (Bug::NoClaimUid, Verb::Patch, Kind::Volume) if body["spec"]["claimRef"].is_object() => {
                body["spec"]["claimRef"]["uid"] = Value::Null;
            }
            (Bug::IdleDelete, Verb::Create, Kind::Job) if is_delete(body) => {
                body["metadata"]["annotations"]["idle"] = json!("yes");
            }
            _ => {}
        }
    }

    /// What the bug answers in place of the API server, if anything. `seen` is how far the asker's watch
    /// of the kind has come.
    pub fn answer(self, store: &Store, request: &Request, seen: usize) -> Option<Answer> {
        match (self, request.verb, request.kind) {
            (Bug::StaleReads, Verb::Get, kind) if KINDS.contains(&kind) => {
                let known = store.log(kind)[..seen].iter().rev().find(|change| change.name == request.name);
                Some(match known.filter(|change| !change.gone) {
                    Some(change) => Answer::ok(&change.object),
                    None => Answer::error(404, "NotFound", "not in the cache"),
                })
            }
            (Bug::EmptyLists, Verb::List, _) | (Bug::BackgroundDeletion, Verb::List, Kind::Pod) => {
                Some(Answer::ok(&json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [],
                })))
            }
            (Bug::Silence, Verb::Create, Kind::Event) => Some(Answer::created(&request.body)),
            _ => None,
        }
    }
}

/// A batch of which a claim goes.
fn left_by_one(store: &Store) -> Option<ObjectName> {
    let goes = |id: &str| {
        let claim = store.all(Kind::Claim).find(|(_, claim)| crate::store::uid(claim) == id);
        claim.is_none_or(|(_, claim)| crate::store::is_deleting(claim))
    };
    let mut jobs = store.all(Kind::Job).filter(|(_, job)| is_batch(job) && !crate::store::is_deleting(job));
    jobs.find(|(_, job)| members(job).iter().any(|member| goes(&member.id))).map(|(name, _)| name.clone())
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
