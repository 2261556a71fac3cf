//! Bugs that are put in on purpose, on the way between the orchestrator and the API server: each takes
//! away one of the things that the design rests on. The simulation must find every one.

use clap::ValueEnum;
use contract::names;
use serde_json::{Value, json};

use crate::store::{Kind, Store};
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
    /// Jobs are deleted before their pods.
    BackgroundDeletion,
    /// Nodes where something may be left are not noted.
    NoNodes,
    /// A claim is let go of when its delete run begins.
    EarlyRelease,
    /// A Job that is still going away is taken for the new one.
    DyingJobAdopted,
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
}

impl Bug {
    /// What the bug makes of a request.
    pub fn distort(self, store: &mut Store, request: &mut Request) {
        let Request { verb, kind, body, name, .. } = request;
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
                body["metadata"]["annotations"][names::NODES] = Value::Null;
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
            (Bug::StaleReads, Verb::Get, kind) => {
                let known = store.log(kind)[..seen].iter().rev().find(|change| change.name == request.name);
                Some(match known.filter(|change| !change.gone) {
                    Some(change) => Answer::ok((*change.object).clone()),
                    None => Answer::error(404, "NotFound", "not in the cache"),
                })
            }
            (Bug::EmptyLists, Verb::List, _) => Some(Answer::ok(json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [],
            }))),
            (Bug::DyingJobAdopted, Verb::Create, Kind::Job) if store.get(Kind::Job, &request.name).is_some() => {
                Some(Answer { code: 201, body: request.body.clone() })
            }
            (Bug::Silence, Verb::Create, Kind::Event) => Some(Answer { code: 201, body: request.body.clone() }),
            _ => None,
        }
    }
}

fn is_delete(job: &Value) -> bool {
    crate::store::label(job, names::LABEL_OPERATION) == "delete"
}
