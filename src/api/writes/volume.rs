//! Writes and reads of volumes.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::volume::volume_source;
use flex_core::config::keys;
use flex_core::config::modify::Attributes;
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Provenance, Volume, adoption_mark};
use flex_core::model::volume_notes::{AppliedAttributes, FailedExpansion, PendingModification};
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use k8s_openapi::api::core::v1::{
    CSIPersistentVolumeSource, NodeSelector, ObjectReference, PersistentVolume, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, deleted, guarded, params, patch, post};
use crate::api::discard_reply::DiscardReply;
use crate::api::trimmed::Trimmed;
use crate::state::index::WorkItem;

/// Returns a volume's reference to its claim.
fn reference(claim: &Claim) -> Value {
    let name = claim.api_name();
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": name.namespace,
        "name": name.name,
        "uid": claim.uid,
        "resourceVersion": null,
    })
}

/// Checks whether somebody has set the policy of a volume to Retain since an earlier adoption. The PV controller may bind
/// the claim between the two writes of an adoption. The second is then refused, and the volume is adopted again, after an
/// admin may have seen the bound claim.
fn was_retained(volume: &Volume) -> bool {
    volume.provenance.is_some() && volume.reclaim_policy == ReclaimPolicy::Retain
}

impl Writes {
    fn volumes(&self) -> Api<Trimmed<PersistentVolume>> {
        Api::all(self.client.clone())
    }

    pub(super) async fn patch_volume(&self, volume: &Volume, metadata: Value, rest: Value) -> Result<Volume> {
        let body = patch(&volume.uid, &volume.resource_version, metadata, rest);
        let patched = self.volumes().patch(&volume.name, &params(), &Patch::Merge(body)).await;
        self.written_volume(volume, patched)
    }

    pub(super) async fn patch_volume_status(&self, volume: &Volume, status: Value) -> Result<Volume> {
        let body = patch(&volume.uid, &volume.resource_version, json!({}), json!({ "status": status }));
        let patched = self.volumes().patch_status(&volume.name, &params(), &Patch::Merge(body)).await;
        self.written_volume(volume, patched)
    }

    fn written_volume(&self, volume: &Volume, answer: kube::Result<Trimmed<PersistentVolume>>) -> Result<Volume> {
        self.written(WorkItem::Volume(volume.name.clone()), format!("volume {}", volume.name), answer)
    }

    /// Reads the volume from the API; `None` if it is gone.
    pub async fn read_volume(&self, name: &str) -> Result<Option<Volume>> {
        let volume = self.volumes().get_opt(name).await.map_err(WriteError::of(format!("volume {name}")))?;
        Ok(volume.map(|volume| Volume::from(&volume.0)))
    }

    /// Reads the volume source as JSON, for a run that changes or copies the volume. Returns a conflict if the volume has
    /// changed since the decision.
    pub async fn volume_source(&self, decided_on: &Volume) -> Result<String> {
        self.source_while(decided_on, |fresh| fresh.is_unchanged_since(decided_on)).await
    }

    /// Reads the volume source as JSON, for a delete run. Storage must not be deleted on the word of a cache. Returns a conflict
    /// if the volume may be in use again.
    pub async fn source_to_delete(&self, decided_on: &Volume) -> Result<String> {
        self.source_while(decided_on, |fresh| fresh.may_be_deleted_as(decided_on)).await
    }

    /// Reads the volume source as JSON, if this holds for the volume.
    async fn source_while(&self, decided_on: &Volume, holds: impl Fn(&Volume) -> bool) -> Result<String> {
        let what = || format!("volume {}", decided_on.name);
        let Trimmed(volume) = self.volumes().get(&decided_on.name).await.map_err(WriteError::of(what()))?;
        match holds(&Volume::from(&volume)) {
            true => Ok(volume_source(&volume)),
            false => Err(WriteError::Conflict(what())),
        }
    }

    /// Creates a sync probe: it is reserved for a claim that cannot exist.
    pub async fn create_probe(&self, name: &str) -> Result<()> {
        let probe = PersistentVolume {
            metadata: ObjectMeta {
                name: Some(name.into()),
                labels: Some([(names::LABEL_INSTANCE.into(), self.identity.instance.clone())].into()),
                ..Default::default()
            },
            spec: Some(PersistentVolumeSpec {
                capacity: Some([("storage".into(), Quantity("1".into()))].into()),
                access_modes: Some(vec!["ReadWriteOnce".into()]),
                persistent_volume_reclaim_policy: Some("Retain".into()),
                storage_class_name: Some(name.into()),
                claim_ref: Some(ObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("PersistentVolumeClaim".into()),
                    namespace: Some(self.identity.namespace.clone()),
                    name: Some(name.into()),
                    ..Default::default()
                }),
                csi: Some(CSIPersistentVolumeSource {
                    driver: self.identity.provisioner.clone(),
                    volume_handle: name.into(),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let created = DiscardReply(self.volumes()).create(&post(), &Trimmed(probe)).await;
        created.map_err(WriteError::of(format!("volume {name}")))
    }

    /// Deletes a sync probe.
    pub async fn delete_probe(&self, name: &str, uid: &str) -> Result<()> {
        deleted(DiscardReply(self.volumes()).delete(name, &guarded(uid, "")).await, format!("volume {name}"))
    }

    /// Writes on an adopted volume that it is bound, as the PV controller knows, and its adoption mark.
    pub async fn complete_volume(&self, volume: &Volume) -> Result<()> {
        let mark = volume.adoption_mark.as_ref().filter(|_| volume.is_adopted());
        let mut status = json!({ "phase": "Bound" });
        if let Some(mark) = mark {
            status["reason"] = json!(mark);
        }
        self.patch_volume_status(volume, status).await.map(drop)
    }

    /// Makes a volume the orchestrator's and the claim's. Only [its mark](Self::write_adoption_mark) makes that count.
    pub async fn adopt(
        &self,
        volume: &Volume,
        claim: &Claim,
        provenance: &Provenance,
        nodes: &[String],
        affinity: Option<&NodeSelector>,
        attributes: &Attributes,
    ) -> Result<Volume> {
        let for_pool = claim.is_pool_request(&self.identity.namespace);
        let reference = if for_pool { self.nobody(&claim.uid, None) } else { reference(claim) };
        let mut spec = json!({ "claimRef": reference });
        if let Some(affinity) = affinity {
            spec["nodeAffinity"] = json!({ "required": affinity });
        }
        // The API refuses the field for volumes of other kinds.
        if let Some(class) = attributes.class.as_ref().filter(|_| volume.source_kind == Some("csi")) {
            spec["volumeAttributesClassName"] = json!(class);
        }
        let size = claim.size.as_ref().ok().filter(|_| for_pool).map(u64::to_string);
        let uid = size.is_none().then_some(&claim.uid);
        // A volume that nobody has used yet is deleted, whatever the class says of claims.
        let says = provenance.effective_config.data.get(keys::RECLAIM_POLICY.name).filter(|_| uid.is_some());
        let policy: ReclaimPolicy = says.map_or(ReclaimPolicy::Delete, |says| says.as_str().into());
        let mut finalizers = volume.finalizers.clone();
        // Storage on other nodes is deleted, whatever becomes of the volume.
        if (policy == ReclaimPolicy::Delete || (nodes.len() > 1 && !volume.terminating)) && !volume.has_finalizer() {
            finalizers.push(names::VOLUME_FINALIZER.into());
        }
        let metadata = json!({
            "labels": {
                names::LABEL_INSTANCE: self.identity.instance,
                names::LABEL_POOL: size.is_some().then(|| provenance.effective_config.pool_hash()),
            },
            "annotations": {
                names::CLAIM_UID: uid,
                names::POOL_SIZE: size,
                // A backup may lose the claimRef.
                names::JOB_CLAIM: uid.map(|_| claim.api_name().to_string()),
                names::VOLUME_ID: claim.uid,
                names::PROVENANCE: json!(provenance.of_cluster(&self.identity)).to_string(),
                names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
                names::PROVISIONED_BY: provenance.effective_config.provisioned_by(&self.identity.provisioner, volume.source_kind),
                names::BOUND_BY_CONTROLLER: "yes",
                names::QUARANTINE: null,
                names::ATTRIBUTES: attributes.class.is_some()
                    .then(|| json!(AppliedAttributes { attributes: attributes.clone(), run: 0 }).to_string()),
                names::MODIFICATION: null,
            },
            "finalizers": finalizers,
            // One empty entry ends the record of who manages which field. The API server then keeps none with later
            // writes, each of which would compare all fields. Nobody applies volumes, and nothing here reads the record.
            "managedFields": [{}],
        });
        if !was_retained(volume) {
            spec["persistentVolumeReclaimPolicy"] = json!(policy.as_str());
        }
        self.patch_volume(volume, metadata, json!({ "spec": spec })).await
    }

    /// Assigns a pooled volume to the claim.
    pub async fn assign(&self, volume: &Volume, claim: &Claim, reclaim_policy: &ReclaimPolicy) -> Result<Volume> {
        let metadata = json!({
            "labels": { names::LABEL_POOL: null },
            "annotations": { names::CLAIM_UID: claim.uid, names::JOB_CLAIM: claim.name.to_string() },
        });
        let spec = json!({ "claimRef": reference(claim), "persistentVolumeReclaimPolicy": reclaim_policy.as_str() });
        self.patch_volume(volume, metadata, json!({ "spec": spec })).await
    }

    /// Drains a pooled volume, so that it is deleted like a released one.
    pub async fn drain(&self, volume: &Volume) -> Result<Volume> {
        let metadata = json!({
            "labels": { names::LABEL_POOL: null },
            "annotations": { names::POOL_SIZE: null },
        });
        let reference = self.nobody(volume.volume_id().unwrap_or_default(), Some(names::NO_CLAIM_UID));
        self.patch_volume(volume, metadata, json!({ "spec": { "claimRef": reference } })).await
    }

    /// Returns a reference to a claim that cannot exist.
    fn nobody(&self, id: &str, uid: Option<&str>) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": self.identity.namespace,
            "name": id,
            "uid": uid,
            "resourceVersion": null,
        })
    }

    /// Writes the adoption mark into the status, where no image can write. Never writes the phase: it shows that the PV
    /// controller has seen the volume.
    pub async fn write_adoption_mark(&self, volume: &Volume) -> Result<Volume> {
        let adoption_mark = adoption_mark(volume.provenance.as_deref().unwrap_or_default(), &volume.uid);
        self.patch_volume_status(volume, json!({ "reason": adoption_mark })).await
    }

    /// Writes on a volume why it is not bound.
    pub async fn quarantine(&self, volume: &Volume, why: &str) -> Result<Volume> {
        self.patch_volume(volume, json!({ "annotations": { names::QUARANTINE: why } }), json!({})).await
    }

    /// Adds the orchestrator's finalizer to a volume.
    pub async fn add_volume_finalizer(&self, volume: &Volume) -> Result<Volume> {
        let mut finalizers = volume.finalizers.clone();
        finalizers.push(names::VOLUME_FINALIZER.into());
        self.patch_volume(volume, json!({ "finalizers": finalizers }), json!({})).await
    }

    /// Removes the orchestrator's finalizer from a volume.
    pub async fn remove_volume_finalizer(&self, volume: &Volume) -> Result<Volume> {
        let rest: Vec<_> = volume.finalizers.iter().filter(|finalizer| *finalizer != names::VOLUME_FINALIZER).collect();
        self.patch_volume(volume, json!({ "finalizers": rest }), json!({})).await
    }

    /// Reserves a volume for any claim of this name, or for the one with this UID.
    pub async fn reserve(&self, volume: &Volume, claim: &ObjectName, uid: Option<&str>) -> Result<Volume> {
        let reference = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim.namespace,
            "name": claim.name,
            "uid": uid,
        });
        self.patch_volume(volume, json!({}), json!({ "spec": { "claimRef": reference } })).await
    }

    /// Records the remaining nodes after a delete run on one of the volume's nodes.
    pub async fn set_volume_nodes(&self, volume: &Volume, nodes: &[String]) -> Result<Volume> {
        let annotations = json!({
            names::NODES: (!nodes.is_empty()).then(|| nodes.join(",")),
            names::FAILURE: null,
            names::RETRY: null,
        });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// Records the last failed delete run.
    pub async fn record_volume_failure(&self, volume: &Volume, failure: &LastFailure) -> Result<Volume> {
        let annotations = json!({ names::FAILURE: json!(failure).to_string(), names::RETRY: null });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// Records the last failed expand run; `None` removes the record.
    pub async fn note_expand(&self, volume: &Volume, failed: Option<&FailedExpansion>) -> Result<Volume> {
        let failed = failed.map(|failed| json!(failed).to_string());
        let annotations = json!({ names::EXPANSION: failed, names::RETRY: null });
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// Writes a new size on a volume, in bytes.
    pub async fn write_capacity(&self, volume: &Volume, size: u64) -> Result<Volume> {
        let capacity = json!({ "storage": flex_contract::quantity::quantity(size) });
        self.patch_volume(volume, json!({}), json!({ "spec": { "capacity": capacity } })).await
    }

    /// Records the modify runs; `None` removes the record.
    pub async fn note_modify(&self, volume: &Volume, note: Option<&PendingModification>) -> Result<Volume> {
        let mut annotations = json!({ names::MODIFICATION: note.map(|note| json!(note).to_string()) });
        // A request for an attempt holds until that attempt has ended.
        if note.is_none_or(|note| note.begun_attempt <= note.failed_attempt) {
            annotations[names::RETRY] = Value::Null;
        }
        self.patch_volume(volume, json!({ "annotations": annotations }), json!({})).await
    }

    /// Writes other attributes on a volume.
    pub async fn write_attributes(&self, volume: &Volume, applied: &AppliedAttributes) -> Result<Volume> {
        let annotations = json!({ names::ATTRIBUTES: json!(applied).to_string(), names::MODIFICATION: null });
        // The API refuses the field for volumes of other kinds.
        let spec = match applied.attributes.class.as_ref().filter(|_| volume.source_kind == Some("csi")) {
            Some(class) => json!({ "spec": { "volumeAttributesClassName": class } }),
            None => json!({}),
        };
        self.patch_volume(volume, json!({ "annotations": annotations }), spec).await
    }

    /// Deletes a volume whose storage is deleted: first the object, then its finalizer.
    pub async fn remove_volume(&self, volume: &Volume) -> Result<()> {
        let deleted = if volume.terminating { Some(volume.clone()) } else { self.delete_volume(volume).await? };
        let Some(held) = deleted.filter(Volume::has_finalizer) else { return Ok(()) };
        match self.remove_own_finalizer(&held).await {
            Err(WriteError::NotFound { .. }) => self.ended(WorkItem::Volume(volume.name.clone())),
            unheld => drop(unheld?),
        }
        Ok(())
    }

    /// Removes the orchestrator's finalizer from a terminating volume, whatever its version. Kubernetes removes its own
    /// finalizer at the same moment, so that a write that rests on a version would often be refused.
    async fn remove_own_finalizer(&self, volume: &Volume) -> Result<Volume> {
        let body = json!({
            "metadata": { "uid": volume.uid, "$deleteFromPrimitiveList/finalizers": [names::VOLUME_FINALIZER] },
        });
        let patched = self.volumes().patch(&volume.name, &params(), &Patch::Strategic(body)).await;
        self.written_volume(volume, patched)
    }

    /// Deletes a volume. Returns the object that a finalizer may still keep.
    async fn delete_volume(&self, volume: &Volume) -> Result<Option<Volume>> {
        let left = match self.volumes().delete(&volume.name, &guarded(&volume.uid, &volume.resource_version)).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            deleted => deleted.map_err(WriteError::of(format!("volume {}", volume.name)))?.left(),
        };
        match left.filter(|left| left.0.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty())) {
            Some(left) => self.written_volume(volume, Ok(left)).map(Some),
            None => {
                self.ended(WorkItem::Volume(volume.name.clone()));
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
