//! VolumeAttributesClasses, and claims that request them.

use flex_core::config::modify::VolumeAttributesClass;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use orchestrator::conditions::conditions;
use serde_json::json;

use crate::site::{Site, provisioner};
use crate::world::Finding;

impl Site<'_> {
    /// Creates a VolumeAttributesClass for this site's volumes.
    pub async fn attributes_class(&self, name: &str, (key, value): (&str, &str)) {
        let name = format!("{}-{name}", self.name);
        let class = json!({
            "metadata": { "name": name }, "driverName": provisioner(&self.name), "parameters": { key: value },
        });
        let classes: Api<VolumeAttributesClass> = Api::all(self.world.client.clone());
        let class = serde_json::from_value(class).unwrap();
        classes.create(&PostParams::default(), &class).await.expect("the VolumeAttributesClass is created");
    }

    /// A user changes the VolumeAttributesClass of a claim.
    pub async fn ask_for_attributes(&self, claim: &str, name: &str) {
        let requested = json!({ "spec": { "volumeAttributesClassName": format!("{}-{name}", self.name) } });
        let claims = self.api::<PersistentVolumeClaim>();
        claims
            .patch(claim, &PatchParams::default(), &Patch::Merge(requested))
            .await
            .expect("the API server accepts the request");
    }

    /// Waits until a claim has attributes, and no trace of the modification.
    pub async fn has_attributes(&self, claim: &str, name: &str) -> Result<PersistentVolumeClaim, Finding> {
        let class = format!("{}-{name}", self.name);
        let has = |claim: &PersistentVolumeClaim| {
            let status = claim.status.clone().unwrap_or_default();
            status.current_volume_attributes_class_name.as_ref() == Some(&class)
                && status.modify_volume_status.is_none()
                && conditions(claim).is_empty()
        };
        self.claim_when(claim, &format!("has the attributes of {name}"), has).await
    }
}
