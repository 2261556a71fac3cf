//! Writes for volumes that another provisioner made.

use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::model::moved_in::MovedIn;
use flex_core::model::volume::Volume;
use flex_core::volume::import::Imported;
use flex_core::volume::move_in::Mapping;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Map, Value, json};

use super::{Result, WriteError, Writes, guarded, post};

/// The API of an imported claim.
struct ClaimApi {
    claims: Api<PersistentVolumeClaim>,
    /// The claim, for error messages.
    what: String,
}

impl Writes {
    /// Writes the provenance of a volume of another provisioner. Only the mark makes that count
    /// ([`Writes::confirm_move`]): the orchestrator does nothing with a volume that has provenance and no mark.
    pub async fn move_in(&self, volume: &Volume, mapping: &Mapping) -> Result<Volume> {
        self.patch_volume(volume, recorded(volume.source_kind, mapping, &self.identity), json!({})).await
    }

    /// Writes the mark of a volume whose provenance this command has written or checked.
    pub async fn confirm_move(&self, recorded: &Volume) -> Result<Volume> {
        // The PV controller and the orchestrator may write the same volume at this moment. The mark rests on the
        // provenance alone: other provenance does not get it.
        let unversioned = Volume { resource_version: String::new(), ..recorded.clone() };
        self.write_adoption_mark(&unversioned).await
    }

    /// Checks that claim and volume of imported data can be created, without creating them.
    pub async fn validate_import(&self, imported: &Imported) -> Result<()> {
        let dry = PostParams { dry_run: true, ..post() };
        let ClaimApi { claims, what } = self.claim_of(imported);
        match claims.create(&dry, &imported.claim).await {
            // A repeated command continues.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(WriteError::of(what))?),
        }
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = imported.volume("");
        match volumes.create(&dry, &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            created => created.map(drop).map_err(WriteError::of("the volume")),
        }
    }

    /// Creates the claim of imported data, and then their volume, which needs the mark. A repeated call finds both.
    ///
    /// The claim names the volume, so that the orchestrator makes none for it. If the volume cannot be created, the
    /// claim is deleted again.
    pub async fn import(&self, imported: &Imported) -> Result<Volume> {
        let ClaimApi { claims, what } = self.claim_of(imported);
        let name = imported.claim.metadata.name.clone().unwrap_or_default();
        let (claim, is_new) = match claims.create(&post(), &imported.claim).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                (claims.get(&name).await.map_err(WriteError::of(what.clone()))?, false)
            }
            created => (created.map_err(WriteError::of(what.clone()))?, true),
        };
        let named = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
        if named(&claim) != named(&imported.claim) {
            return Err(WriteError::Foreign(what));
        }
        let uid = claim.metadata.uid.unwrap_or_default();
        match self.create_imported(imported, &uid).await {
            Err(error) if is_new => {
                claims.delete(&name, &guarded(&uid, "")).await.map(drop).map_err(WriteError::of(what))?;
                Err(error)
            }
            made => made,
        }
    }

    async fn create_imported(&self, imported: &Imported, claim_uid: &str) -> Result<Volume> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = imported.volume(claim_uid);
        let name = object.metadata.name.clone().unwrap_or_default();
        let what = format!("volume {name}");
        let wanted = Volume::from(&object);
        match volumes.create(&post(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = Volume::from(&volumes.get(&name).await.map_err(WriteError::of(what.clone()))?);
                let is_it = found.provenance == wanted.provenance && found.claim_ref == wanted.claim_ref;
                if is_it { Ok(found) } else { Err(WriteError::Foreign(what)) }
            }
            created => created.map(|volume| Volume::from(&volume)).map_err(WriteError::of(what)),
        }
    }

    fn claim_of(&self, imported: &Imported) -> ClaimApi {
        let namespace = imported.claim.metadata.namespace.clone().unwrap_or_default();
        let name = imported.claim.metadata.name.clone().unwrap_or_default();
        let claims = Api::namespaced(self.client.clone(), &namespace);
        ClaimApi { claims, what: format!("claim {namespace}/{name}") }
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
            "annotations": annotations(&[(names::PROVISIONED_BY, moved_in.from.as_deref().unwrap_or_default())]),
            "finalizers": others.chain(former).collect::<Vec<_>>(),
        });
        self.patch_volume(volume, metadata, json!({})).await
    }
}

/// The annotations that the orchestrator reads on volumes and acts upon.
const OWN: &[&str] = &[
    names::CLAIM_UID,
    names::VOLUME_ID,
    names::JOB_CLAIM,
    names::PROVENANCE,
    names::NODES,
    names::ATTRIBUTES,
    names::MODIFICATION,
    names::EXPANSION,
    names::ABANDON,
    names::FAILURE,
    names::QUARANTINE,
    names::POOL_SIZE,
];

/// Returns a patch of the annotations that sets these, and removes all others of the orchestrator. Somebody may have
/// written them while they did not count.
fn annotations(set: &[(&str, &str)]) -> Value {
    let mut annotations: Map<String, Value> = OWN.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    annotations.extend(set.iter().map(|(key, value)| ((*key).to_owned(), json!(value))));
    Value::Object(annotations)
}

/// Returns the metadata of a volume that moves in.
fn recorded(source_kind: Option<&str>, mapping: &Mapping, identity: &Identity) -> Value {
    let provenance = &mapping.provenance.of_cluster(identity);
    json!({
        "labels": { names::LABEL_INSTANCE: identity.instance, names::LABEL_POOL: null },
        "annotations": annotations(&[
            (names::CLAIM_UID, &mapping.claim_uid),
            (names::VOLUME_ID, &mapping.id),
            (names::JOB_CLAIM, &mapping.claim.to_string()),
            (names::PROVENANCE, &json!(provenance).to_string()),
            (names::PROVISIONED_BY, &provenance.effective_config.provisioned_by(&identity.provisioner, source_kind)),
        ]),
        "finalizers": mapping.finalizers,
    })
}

#[cfg(test)]
mod tests {
    use flex_core::model::volume::Provenance;
    use flex_core::object::ObjectName;

    use super::*;
    use crate::state::testing::default_identity;

    /// The orchestrator would delete on the nodes or abandon by them as soon as the volume has the mark.
    #[test]
    fn a_volume_moves_in_without_the_annotations_that_somebody_else_wrote() {
        let effective_config = flex_core::config::effective_config::EffectiveConfig::default();
        let mapping = Mapping {
            volume: "v".into(),
            id: "id".into(),
            claim: ObjectName::new("team", "data"),
            claim_uid: "uid".into(),
            provenance: Provenance {
                effective_config,
                origin_node: Some("n".into()),
                moved_in: Some(MovedIn::default()),
                cluster: None,
                others: Vec::new(),
            },
            finalizers: vec![names::VOLUME_FINALIZER.into()],
        };
        let metadata = recorded(Some("nfs"), &mapping, &default_identity());
        let annotations = metadata["annotations"].as_object().unwrap();
        for key in [
            names::NODES,
            names::ATTRIBUTES,
            names::MODIFICATION,
            names::ABANDON,
            names::FAILURE,
            names::QUARANTINE,
            names::EXPANSION,
            names::POOL_SIZE,
        ] {
            assert_eq!(annotations.get(key), Some(&Value::Null), "{key}");
        }
        assert_eq!(annotations[names::VOLUME_ID], "id");
        assert!(annotations[names::PROVENANCE].as_str().is_some_and(|text| text.contains("moved-in")));
        assert_eq!(annotations[names::PROVISIONED_BY], format!("{}/nfs", names::DEFAULT_PROVISIONER));
        assert_eq!(metadata["labels"][names::LABEL_POOL], Value::Null);
    }
}
