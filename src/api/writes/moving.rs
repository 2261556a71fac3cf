//! Writes for volumes that another provisioner made.

use flex_contract::names;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use serde_json::json;

use super::{Result, WriteError, Writes, guarded, post};
use crate::model::moved_in::MovedIn;
use crate::model::volume::Volume;
use crate::volume::import::Imported;
use crate::volume::moving_in::Mapping;

impl Writes {
    /// Makes a volume of another provisioner the orchestrator's. Only the mark, which comes last, makes that count: the
    /// orchestrator does nothing with a volume that has a record and no mark.
    pub async fn move_in(&self, volume: &Volume, mapping: &Mapping) -> Result<Volume> {
        let provenance = &mapping.provenance;
        let metadata = json!({
            "labels": { names::LABEL_INSTANCE: self.identity.instance },
            "annotations": {
                names::CLAIM_UID: mapping.claim_uid,
                names::VOLUME_ID: mapping.id,
                names::JOB_CLAIM: mapping.claim.to_string(),
                names::PROVENANCE: json!(provenance).to_string(),
                names::PROVISIONED_BY: provenance.record.provisioner(&self.identity.provisioner),
            },
            "finalizers": mapping.finalizers,
        });
        let recorded = self.patch_volume(volume, metadata, json!({})).await?;
        self.write_adoption_mark(&recorded).await
    }

    /// Creates the claim of imported data, and then their volume with the mark.
    ///
    /// The claim names the volume, so that the orchestrator makes none for it. If the volume cannot be created, the
    /// claim is deleted again.
    pub async fn import(&self, imported: &Imported) -> Result<Volume> {
        let namespace = imported.claim.metadata.namespace.clone().unwrap_or_default();
        let name = imported.claim.metadata.name.clone().unwrap_or_default();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let created = claims.create(&post(), &imported.claim).await;
        let claim = created.map_err(WriteError::of(format!("claim {namespace}/{name}")))?;
        let uid = claim.metadata.uid.unwrap_or_default();
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = imported.volume(&uid);
        let what = format!("volume {}", object.metadata.name.clone().unwrap_or_default());
        let volume = match volumes.create(&post(), &object).await {
            Ok(volume) => Volume::from(&volume),
            Err(error) => {
                let deleted = claims.delete(&name, &guarded(&uid, "")).await;
                deleted.map(drop).map_err(WriteError::of(format!("claim {namespace}/{name}")))?;
                return Err(WriteError::of(what)(error));
            }
        };
        // The PV controller writes the same volume at this moment. The mark rests on the record alone, which only this
        // command has written.
        let unversioned = Volume { resource_version: String::new(), ..volume };
        self.write_adoption_mark(&unversioned).await
    }

    /// Removes the mark of a volume, so that the orchestrator does nothing more with it.
    pub async fn remove_adoption_mark(&self, volume: &Volume) -> Result<Volume> {
        self.patch_volume_status(volume, json!({ "reason": null })).await
    }

    /// Takes back what [`Writes::move_in`] has written on a volume. The mark must be gone.
    pub async fn move_out(&self, volume: &Volume, moved_in: &MovedIn) -> Result<Volume> {
        let others = volume.finalizers.iter().filter(|finalizer| *finalizer != names::VOLUME_FINALIZER);
        let former = moved_in.finalizers.iter().filter(|finalizer| !volume.finalizers.contains(finalizer));
        let metadata = json!({
            "labels": { names::LABEL_INSTANCE: null },
            "annotations": {
                names::CLAIM_UID: null,
                names::VOLUME_ID: null,
                names::JOB_CLAIM: null,
                names::PROVENANCE: null,
                names::EXPANSION: null,
                names::FAILURE: null,
                names::PROVISIONED_BY: moved_in.from,
            },
            "finalizers": others.chain(former).collect::<Vec<_>>(),
        });
        self.patch_volume(volume, metadata, json!({})).await
    }
}
