//! What is written to the cluster. Every write is idempotent by name or guarded by the
//! resourceVersion of what was decided on; *AlreadyExists* means: read it and see that it is ours.

use std::collections::HashSet;

use std::collections::BTreeMap;

use contract::names;
use contract::request::Operation;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy};
use kube::core::PartialObjectMeta;
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use crate::claim::Binding;
use crate::claim::resize::Report;
use crate::claim::{Claim, LastFailure, Stamp, taken, volume_ids};
use crate::config::classes::Identity;
use crate::config::record::Record;
use crate::object::{ObjectName, hash};
use crate::volume::{self, Provenance, Volume, expand};

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object changed meanwhile; its event decides again.
    #[error("{0} changed meanwhile")]
    Conflict(String),
    /// The object, or its namespace, is not there.
    #[error("{what}: {message}")]
    NotFound {
        /// Which.
        what: String,
        /// The API server's words.
        message: String,
    },
    /// The API server refuses it: quota, admission, or a right that is missing.
    #[error("{what}: {message}")]
    Refused {
        /// Which.
        what: String,
        /// The API server's words.
        message: String,
        /// It will be refused again as it stands.
        invalid: bool,
    },
    /// An object of that name belongs to somebody else.
    #[error("{0} exists already and is not ours; remove it")]
    Foreign(String),
    /// Anything else: tried again.
    #[error("{what}: {source}")]
    Failed {
        /// Which.
        what: String,
        /// The error.
        source: Box<kube::Error>,
    },
}

impl WriteError {
    fn of(what: impl Into<String>) -> impl FnOnce(kube::Error) -> WriteError {
        let what = what.into();
        move |error| match &error {
            kube::Error::Api(status) => {
                let message = status.message.clone();
                match status.code {
                    409 => WriteError::Conflict(what),
                    404 => WriteError::NotFound { what, message },
                    403 => WriteError::Refused { what, message, invalid: false },
                    400 | 422 => WriteError::Refused { what, message, invalid: true },
                    _ => WriteError::Failed { what, source: Box::new(error) },
                }
            }
            _ => WriteError::Failed { what, source: Box::new(error) },
        }
    }

    /// A short category, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            WriteError::Conflict(_) => "conflict",
            WriteError::NotFound { .. } => "not-found",
            WriteError::Refused { .. } => "refused",
            WriteError::Foreign(_) => "foreign",
            WriteError::Failed { .. } => "failed",
        }
    }
}

type Result<T> = std::result::Result<T, WriteError>;

/// The writer.
#[derive(Clone)]
pub struct Writes {
    client: Client,
    identity: Identity,
    binding: Binding,
}

/// The name of a revision.
pub fn revision_name(hash: &str) -> String {
    format!("flex-config-{hash}")
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() }
}

fn guarded(uid: &str, resource_version: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: (!resource_version.is_empty()).then(|| resource_version.to_owned()),
        }),
        ..DeleteParams::default()
    }
}

/// A merge patch that holds only for the version that was seen.
fn patch(uid: &str, resource_version: &str, metadata: Value, rest: Value) -> Value {
    let mut body = json!({ "metadata": { "uid": uid, "resourceVersion": resource_version } });
    let merge = |into: &mut Value, from: Value| {
        if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
            into.extend(from);
        }
    };
    merge(&mut body["metadata"], metadata);
    merge(&mut body, rest);
    body
}

impl Writes {
    /// How claims become bound.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// A writer for one orchestrator.
    pub fn new(client: Client, identity: Identity, binding: Binding) -> Self {
        Writes { client, identity, binding }
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn patch_claim(&self, claim: &Claim, metadata: Value, rest: Value) -> Result<Claim> {
        let body = patch(&claim.uid, &claim.resource_version, metadata, rest);
        let patched = self.claims(&claim.name.namespace).patch(&claim.name.name, &params(), &Patch::Merge(body)).await;
        patched.map(|claim| Claim::from(&claim)).map_err(WriteError::of(format!("claim {}", claim.name)))
    }

    async fn patch_volume(&self, volume: &Volume, metadata: Value, rest: Value) -> Result<Volume> {
        let body = patch(&volume.uid, &volume.resource_version, metadata, rest);
        let patched = self.volumes().patch(&volume.name, &params(), &Patch::Merge(body)).await;
        patched.map(|volume| Volume::from(&volume)).map_err(WriteError::of(format!("volume {}", volume.name)))
    }

    /// The claim as the API has it now; none if it is gone.
    pub async fn read_claim(&self, name: &ObjectName) -> Result<Option<Claim>> {
        let claim =
            self.claims(&name.namespace).get_opt(&name.name).await.map_err(WriteError::of(format!("claim {name}")))?;
        Ok(claim.as_ref().map(Claim::from))
    }

    /// Whether any claim has a UID or volume id, by the API.
    pub async fn has_claim(&self, id: &str) -> Result<bool> {
        Ok(self.claim_ids().await?.contains(id))
    }

    /// The UIDs and volume ids of all claims, by the API.
    pub async fn claim_ids(&self) -> Result<HashSet<String>> {
        let api: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::all(self.client.clone());
        let claims = api.list(&ListParams::default()).await.map_err(WriteError::of("all claims"))?;
        let ids = |meta: &ObjectMeta| {
            let uid = meta.uid.clone().unwrap_or_default();
            volume_ids(&uid, taken(meta.annotations.as_ref())).collect::<Vec<_>>()
        };
        Ok(claims.items.iter().flat_map(|claim| ids(&claim.metadata)).collect())
    }

    /// The volume as the API has it now; none if it is gone.
    pub async fn read_volume(&self, name: &str) -> Result<Option<Volume>> {
        let volume = self.volumes().get_opt(name).await.map_err(WriteError::of(format!("volume {name}")))?;
        Ok(volume.as_ref().map(Volume::from))
    }

    /// The source of a volume as JSON, for a delete or expand run: read anew, and a conflict if what was decided on
    /// is not as it was. Storage must not go by what a cache says.
    pub async fn volume_source(&self, decided_on: &Volume) -> Result<String> {
        let what = || format!("volume {}", decided_on.name);
        let volume = self.volumes().get(&decided_on.name).await.map_err(WriteError::of(what()))?;
        let seen = Volume {
            resource_version: decided_on.resource_version.clone(),
            phase: decided_on.phase.clone(),
            ..Volume::from(&volume)
        };
        if seen != *decided_on {
            return Err(WriteError::Conflict(what()));
        }
        let spec = volume.spec.unwrap_or_default();
        let source = contract::volume::source_kind(&spec).map(|kind| (kind, json!(spec)[kind].take()));
        Ok(source.map(|(kind, source)| json!({ kind: source }).to_string()).unwrap_or_default())
    }

    /// Stamp and finalizer, in one write.
    pub async fn stamp(&self, claim: &Claim, stamp: &Stamp, nodes: &[String]) -> Result<Claim> {
        let mut finalizers = claim.finalizers.clone();
        if !claim.is_held() {
            finalizers.push(names::CLAIM_FINALIZER.into());
        }
        let foreign = claim.own_stamp().is_none() && claim.stamp.is_some();
        let mut annotations = json!({
            names::LABEL_INSTANCE: self.identity.instance,
            names::CLAIM_UUID: stamp.uuid,
            names::PROVISION_TS: stamp.ts,
            names::ATTEMPT: stamp.attempt.to_string(),
            names::CONFIG: stamp.config,
            names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
            names::TAKEN: (stamp.taken > 0).then(|| stamp.taken.to_string()),
        });
        if foreign {
            annotations[names::FAILURE] = Value::Null;
        }
        self.patch_claim(claim, json!({ "annotations": annotations, "finalizers": finalizers }), json!({})).await
    }

    /// What the last failed run said, and where something may be left.
    pub async fn record_claim_failure(&self, claim: &Claim, failure: &LastFailure, nodes: &[String]) -> Result<Claim> {
        let annotations = json!({
            names::FAILURE: json!(failure).to_string(),
            names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
        });
        self.patch_claim(claim, json!({ "annotations": annotations }), json!({})).await
    }

    /// Where something may be left.
    pub async fn note_nodes(&self, claim: &Claim, nodes: &[String]) -> Result<Claim> {
        let nodes = json!({ names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")) });
        self.patch_claim(claim, json!({ "annotations": nodes }), json!({})).await
    }

    /// Takes the selected node off, with what is remembered of the attempt there.
    pub async fn reschedule(&self, claim: &Claim, failure: Option<&LastFailure>) -> Result<Claim> {
        let mut annotations = json!({ names::SELECTED_NODE: null });
        if let Some(failure) = failure {
            annotations[names::FAILURE] = json!(json!(failure).to_string());
        }
        self.patch_claim(claim, json!({ "annotations": annotations }), json!({})).await
    }

    /// Takes our finalizer off the claim.
    pub async fn release(&self, claim: &Claim) -> Result<Claim> {
        let rest: Vec<_> = claim.finalizers.iter().filter(|finalizer| *finalizer != names::CLAIM_FINALIZER).collect();
        let annotations = json!({ names::FAILURE: null, names::NODES: null });
        self.patch_claim(claim, json!({ "finalizers": rest, "annotations": annotations }), json!({})).await
    }

    /// Keeps a claim while another is made as a copy of its volume.
    pub async fn keep_original(&self, original: &Claim, copy: &str) -> Result<Claim> {
        let mut finalizers = original.finalizers.clone();
        finalizers.push(names::clone_finalizer(copy));
        self.patch_claim(original, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Keeps a claim no longer for the sake of these copies.
    pub async fn let_original_go(&self, original: &Claim, copies: &[String]) -> Result<Claim> {
        let gone: Vec<_> = copies.iter().map(|copy| names::clone_finalizer(copy)).collect();
        let rest: Vec<_> = original.finalizers.iter().filter(|finalizer| !gone.contains(finalizer)).collect();
        self.patch_claim(original, json!({ "finalizers": rest }), json!({})).await
    }

    /// The UIDs of all Jobs and pods of the provision runs of a volume id in a namespace, by the API.
    pub async fn provision_runs(&self, namespace: &str, id: &str) -> Result<Vec<String>> {
        let mut found = self.marked::<Job>(namespace, id).await?;
        found.extend(self.marked::<Pod>(namespace, id).await?);
        Ok(found)
    }

    async fn marked<K>(&self, namespace: &str, id: &str) -> Result<Vec<String>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let operation = Operation::Provision.as_str();
        let marks = [
            (names::LABEL_INSTANCE, self.identity.instance.as_str()),
            (names::LABEL_CLAIM_UUID, id),
            (names::LABEL_OPERATION, operation),
        ];
        let selector = marks.map(|(key, value)| format!("{key}={value}")).join(",");
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.client.clone(), namespace);
        let is = |labels: &BTreeMap<String, String>| {
            marks.iter().all(|(key, value)| labels.get(*key).is_some_and(|label| label == value))
        };
        match api.list(&ListParams::default().labels(&selector)).await {
            Ok(all) => Ok(all
                .items
                .into_iter()
                .filter(|object| object.metadata.labels.as_ref().is_some_and(is))
                .filter_map(|object| object.metadata.uid)
                .collect()),
            // With the namespace our rights in it go: then nothing runs there.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) && self.is_gone(namespace).await? => {
                Ok(Vec::new())
            }
            Err(error) => Err(WriteError::of(format!("runs in {namespace}"))(error)),
        }
    }

    async fn is_gone(&self, namespace: &str) -> Result<bool> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = api.get_opt(namespace).await.map_err(WriteError::of(format!("namespace {namespace}")))?;
        Ok(found.is_none())
    }

    /// Whether a node exists, by the API.
    pub async fn has_node(&self, name: &str) -> Result<bool> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.get_metadata_opt(name).await.map_err(WriteError::of(format!("node {name}")))?;
        Ok(node.is_some())
    }

    /// Makes a volume ours and the claim's.
    pub async fn adopt(
        &self,
        volume: &Volume,
        claim: &Claim,
        provenance: &Provenance,
        nodes: &[String],
    ) -> Result<Volume> {
        let reference = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.name.namespace,
            "name": claim.name.name,
            "uid": claim.uid,
            "resourceVersion": null,
        });
        let made_ours = self.make_ours(volume, (&claim.uid, &claim.id()), provenance, nodes, Some(reference)).await?;
        self.mark(&made_ours).await
    }

    /// Makes a volume ours, with an id of the claim that it was made for, and leaves it to the claim that
    /// has taken it.
    pub async fn cede(
        &self,
        volume: &Volume,
        claim: &Claim,
        provenance: &Provenance,
        nodes: &[String],
    ) -> Result<Volume> {
        let by = volume.claim_ref.as_ref().map(|reference| reference.uid.clone()).unwrap_or_default();
        let made_ours = self.make_ours(volume, (&by, &claim.id()), provenance, nodes, None).await?;
        self.mark(&made_ours).await
    }

    async fn make_ours(
        &self,
        volume: &Volume,
        (uid, id): (&str, &str),
        provenance: &Provenance,
        nodes: &[String],
        reference: Option<Value>,
    ) -> Result<Volume> {
        let policy = provenance.record.data.get("reclaim-policy").map_or("Delete", String::as_str);
        let mut finalizers = volume.finalizers.clone();
        // What was left on other nodes is deleted whatever becomes of the volume.
        if (policy == "Delete" || (nodes.len() > 1 && !volume.deleting)) && !volume.is_held() {
            finalizers.push(names::VOLUME_FINALIZER.into());
        }
        let metadata = json!({
            "labels": { names::LABEL_INSTANCE: self.identity.instance },
            "annotations": {
                names::CLAIM_UUID: uid,
                names::VOLUME_ID: id,
                names::PROVENANCE: json!(provenance).to_string(),
                names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
                names::PROVISIONED_BY: self.identity.provisioner,
                names::BOUND_BY_CONTROLLER: "yes",
                names::QUARANTINE: null,
            },
            "finalizers": finalizers,
        });
        let mut spec = json!({ "persistentVolumeReclaimPolicy": policy });
        if let Some(reference) = reference {
            spec["claimRef"] = reference;
        }
        self.patch_volume(volume, metadata, json!({ "spec": spec })).await
    }

    /// Writes into the status, where no image can, that the provenance is ours. Never the phase: what that says is how
    /// the PV controller shows that it knows the volume.
    async fn mark(&self, volume: &Volume) -> Result<Volume> {
        let status = json!({ "reason": volume::mark(volume.provenance.as_deref().unwrap_or_default()) });
        let body = patch(&volume.uid, &volume.resource_version, json!({}), json!({ "status": status }));
        let marked = self.volumes().patch_status(&volume.name, &params(), &Patch::Merge(body)).await;
        marked.map(|volume| Volume::from(&volume)).map_err(WriteError::of(format!("volume {}", volume.name)))
    }

    /// Completes the claim's half of a binding, and takes the finalizer off in the same write. The PV controller must know
    /// the volume as the claim's: it calls a claim Lost that is complete and whose volume it does not know.
    pub async fn bind(&self, claim: &Claim, volume: &Volume) -> Result<Claim> {
        let rest: Vec<_> = claim.finalizers.iter().filter(|finalizer| *finalizer != names::CLAIM_FINALIZER).collect();
        let annotations = json!({
            names::FAILURE: null,
            names::NODES: null,
            names::BIND_COMPLETED: "yes",
            names::BOUND_BY_CONTROLLER: "yes",
        });
        let metadata = json!({ "annotations": annotations, "finalizers": rest });
        let bound = self.patch_claim(claim, metadata, json!({ "spec": { "volumeName": volume.name } })).await?;
        // If it is lost, the PV controller completes it: the binding itself is done.
        if let Err(error) = self.claim_is_bound(&bound, volume).await {
            tracing::debug!(%error, "the PV controller completes the status");
        }
        Ok(bound)
    }

    /// Tells the PV controller which volume it is to bind to a claim, for one that it would not choose by itself.
    pub async fn name_volume(&self, claim: &Claim, volume: &Volume) -> Result<Claim> {
        self.patch_claim(claim, json!({}), json!({ "spec": { "volumeName": volume.name } })).await
    }

    async fn claim_is_bound(&self, claim: &Claim, volume: &Volume) -> Result<()> {
        let size = volume.size.as_ref().copied().unwrap_or_default();
        let status = json!({ "status": {
            "phase": "Bound",
            "accessModes": volume.access_modes,
            "capacity": { "storage": contract::quantity::quantity(size) },
        }});
        let body = patch(&claim.uid, &claim.resource_version, json!({}), status);
        let written =
            self.claims(&claim.name.namespace).patch_status(&claim.name.name, &params(), &Patch::Merge(body)).await;
        written.map(drop).map_err(WriteError::of(format!("claim {}", claim.name)))
    }

    /// Writes on a volume why it is not bound.
    pub async fn quarantine(&self, volume: &Volume, why: &str) -> Result<Volume> {
        self.patch_volume(volume, json!({ "annotations": { names::QUARANTINE: why } }), json!({})).await
    }

    /// Puts our finalizer on a volume.
    pub async fn hold_volume(&self, volume: &Volume) -> Result<Volume> {
        let mut finalizers = volume.finalizers.clone();
        finalizers.push(names::VOLUME_FINALIZER.into());
        self.patch_volume(volume, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Takes our finalizer off a volume.
    pub async fn unhold_volume(&self, volume: &Volume) -> Result<Volume> {
        let rest: Vec<_> = volume.finalizers.iter().filter(|finalizer| *finalizer != names::VOLUME_FINALIZER).collect();
        self.patch_volume(volume, json!({ "finalizers": rest }), json!({})).await
    }

    /// A delete run on one of a volume's nodes is done: these remain.
    pub async fn settle_volume(&self, volume: &Volume, nodes: &[String]) -> Result<Volume> {
        let annotations = json!({
            names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
            names::FAILURE: null,
        });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// What the last failed delete run said.
    pub async fn record_volume_failure(&self, volume: &Volume, failure: &LastFailure) -> Result<Volume> {
        let annotations = json!({ names::FAILURE: json!(failure).to_string() });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// What the last failed expand run said; none to take the note off.
    pub async fn record_expansion(&self, volume: &Volume, failed: Option<&expand::Failed>) -> Result<Volume> {
        let annotations = json!({ names::EXPANSION: failed.map(|failed| json!(failed).to_string()) });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// A volume has a new size, in bytes.
    pub async fn grow_volume(&self, volume: &Volume, size: u64) -> Result<Volume> {
        let capacity = json!({ "storage": contract::quantity::quantity(size) });
        self.patch_volume(volume, json!({}), json!({ "spec": { "capacity": capacity } })).await
    }

    /// Writes into a claim's status how its resize stands.
    pub async fn report_resize(&self, claim: &Claim, report: &Report, now: &str) -> Result<Claim> {
        let body = patch(&claim.uid, &claim.resource_version, json!({}), json!({ "status": report.status(now) }));
        let claims = self.claims(&claim.name.namespace);
        let written = claims.patch_status(&claim.name.name, &params(), &Patch::Strategic(body)).await;
        written.map(|claim| Claim::from(&claim)).map_err(WriteError::of(format!("claim {}", claim.name)))
    }

    /// Deletes a volume whose storage is gone: the object first, then what held it.
    pub async fn remove_volume(&self, volume: &Volume) -> Result<()> {
        let what = || format!("volume {}", volume.name);
        let mut held = Some(volume.clone());
        if !volume.deleting {
            let deleted = self.volumes().delete(&volume.name, &guarded(&volume.uid, &volume.resource_version)).await;
            held = match deleted {
                Ok(answer) => answer.left().as_ref().map(Volume::from),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => return Err(WriteError::of(what())(error)),
            };
        }
        match held {
            Some(volume) if volume.is_held() => match self.unhold_volume(&volume).await {
                Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            _ => Ok(()),
        }
    }

    /// Creates a Job; one of the same name is adopted if it is ours and for the same volume.
    pub async fn create_job(&self, job: &Job) -> Result<()> {
        let name = ObjectName::of(&job.metadata);
        let what = || format!("Job {name}");
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        match jobs.create(&post(), job).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                let there = jobs.get(&name.name).await.map_err(WriteError::of(what()))?;
                let label =
                    |job: &Job, key: &str| job.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
                let same = [names::LABEL_INSTANCE, names::LABEL_CLAIM_UUID, names::LABEL_ATTEMPT]
                    .iter()
                    .all(|key| label(&there, key) == label(job, key));
                match same {
                    true if there.metadata.deletion_timestamp.is_some() => Err(WriteError::Conflict(what())),
                    true => Ok(()),
                    false => Err(WriteError::Foreign(what())),
                }
            }
            Err(error) => Err(WriteError::of(what())(error)),
        }
    }

    /// A Job as the API has it now; none if it is gone.
    pub async fn read_job(&self, name: &ObjectName) -> Result<Option<Job>> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        jobs.get_opt(&name.name).await.map_err(WriteError::of(format!("Job {name}")))
    }

    /// Removes a Job after its pods.
    pub async fn remove_job(&self, name: &ObjectName, uid: &str) -> Result<()> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..guarded(uid, "") };
        match jobs.delete(&name.name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(WriteError::of(format!("Job {name}"))(error)),
        }
    }

    /// Removes a pod that has ended.
    pub async fn remove_pod(&self, name: &ObjectName, uid: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &name.namespace);
        match pods.delete(&name.name, &guarded(uid, "")).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(WriteError::of(format!("pod {name}"))(error)),
        }
    }

    /// Keeps a recipe, as the newest of its config and class.
    pub async fn keep_revision(&self, record: &Record, number: i64) -> Result<()> {
        let name = revision_name(&record.hash());
        let what = format!("revision {name}");
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.identity.namespace);
        let labels = [
            (names::LABEL_INSTANCE.to_owned(), self.identity.instance.clone()),
            (names::LABEL_REVISION.to_owned(), hash(record.config.to_string().as_bytes())),
        ];
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.identity.namespace.clone()),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(json!(record))),
            revision: number,
        };
        match revisions.create(&post(), &revision).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let body = json!({ "revision": number, "metadata": { "labels": revision.metadata.labels } });
                revisions.patch(&name, &params(), &Patch::Merge(body)).await.map(drop).map_err(WriteError::of(what))
            }
            Err(error) => Err(WriteError::of(what)(error)),
        }
    }

    /// Drops a revision that nothing refers to.
    pub async fn drop_revision(&self, hash: &str) -> Result<()> {
        let name = revision_name(hash);
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.identity.namespace);
        revisions
            .delete(&name, &DeleteParams::default())
            .await
            .map(drop)
            .map_err(WriteError::of(format!("revision {name}")))
    }

    /// Writes the verdict on a ConfigMap.
    pub async fn judge(&self, config: &ObjectName, verdict: &str) -> Result<()> {
        self.annotate::<ConfigMap>(config, json!({ names::VERDICT: verdict })).await
    }

    async fn annotate<K>(&self, name: &ObjectName, annotations: Value) -> Result<()>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug,
    {
        let body = json!({ "metadata": { "annotations": annotations } });
        let api: Api<K> = Api::namespaced(self.client.clone(), &name.namespace);
        api.patch(&name.name, &params(), &Patch::Merge(body)).await.map(drop).map_err(WriteError::of(format!("{name}")))
    }
}
