//! Claims that ask for volumes to be kept ready.

use contract::{names, quantity};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::json;

use super::{Result, WriteError, Writes, deleted, guarded, post};
use crate::config::Recipe;
use crate::object::ObjectName;

impl Writes {
    /// Asks for a volume of a class, of this size in bytes. One of this name may be there already.
    pub async fn request_volume(&self, name: &ObjectName, recipe: &Recipe, size: u64) -> Result<()> {
        let first = |wanted: &str, of: &[String]| match of.iter().any(|mode| mode == wanted) {
            true => wanted.to_owned(),
            false => of.first().cloned().unwrap_or_default(),
        };
        let request: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {
                "name": name.name,
                "labels": { names::LABEL_POOL: names::POOL_REQUEST, names::LABEL_INSTANCE: self.identity.instance },
            },
            "spec": {
                "storageClassName": recipe.class,
                "accessModes": [first("ReadWriteOnce", &recipe.access_modes)],
                "volumeMode": first("Filesystem", &recipe.volume_modes),
                "resources": { "requests": { "storage": quantity::quantity(size) } },
                // No volume has this label: the PV controller never binds any to it by itself.
                "selector": { "matchLabels": { names::LABEL_POOL: names::POOL_REQUEST } },
            },
        }))
        .expect("it is written as a claim is");
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &name.namespace);
        match claims.create(&post(), &request).await.map_err(WriteError::of(format!("claim {name}"))) {
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a request. What was begun for it is taken back before it is gone.
    pub async fn withdraw_request(&self, name: &ObjectName, uid: &str) -> Result<()> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &name.namespace);
        deleted(claims.delete(&name.name, &guarded(uid, "")).await, format!("claim {name}"))
    }
}
