//! Writes of pool requests.

use flex_contract::volume_mode::VolumeMode;
use flex_contract::{names, quantity};
use flex_core::config::Recipe;
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::{Result, WriteError, Writes, deleted, guarded, post};
use crate::api::discard_reply::DiscardReply;
use crate::api::trimmed::Trimmed;

/// Returns the wanted one of several modes, or else the first.
fn preferred<M: Clone + PartialEq>(wanted: &M, of: &[M]) -> M {
    of.iter().find(|mode| *mode == wanted).or(of.first()).unwrap_or(wanted).clone()
}

impl Writes {
    /// Creates a pool request for a volume of a class with this size in bytes. A request of this name may already
    /// exist.
    pub async fn create_pool_request(&self, name: &ObjectName, recipe: &Recipe, size: u64) -> Result<()> {
        let read_write_once = "ReadWriteOnce".to_owned();
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let of_pools = label(names::LABEL_POOL, names::POOL_REQUEST);
        let request = PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name.name.clone()),
                labels: Some([of_pools.clone(), label(names::LABEL_INSTANCE, &self.identity.instance)].into()),
                ..Default::default()
            },
            spec: Some(PersistentVolumeClaimSpec {
                storage_class_name: Some(recipe.class.clone()),
                access_modes: Some(vec![preferred(&read_write_once, &recipe.access_modes)]),
                volume_mode: Some(preferred(&VolumeMode::Filesystem, &recipe.volume_modes).to_string()),
                resources: Some(VolumeResourceRequirements {
                    requests: Some([("storage".into(), quantity::quantity(size))].into()),
                    ..Default::default()
                }),
                // No volume has this label, so that the PV controller never binds one to the request by itself.
                selector: Some(LabelSelector { match_labels: Some([of_pools].into()), ..Default::default() }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let created = DiscardReply(self.claims(&name.namespace)).create(&post(), &Trimmed(request)).await;
        match created.map_err(WriteError::of(format!("claim {name}"))) {
            Ok(()) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes a pool request. Its reconciler undoes the attempt before the request is gone.
    pub async fn delete_pool_request(&self, name: &ObjectName, uid: &str) -> Result<()> {
        let deletion = DiscardReply(self.claims(&name.namespace)).delete(&name.name, &guarded(uid, "")).await;
        deleted(deletion, format!("claim {name}"))
    }
}
