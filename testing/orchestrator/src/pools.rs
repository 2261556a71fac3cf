//! Pool requests, pooled volumes and Jobs.

use std::collections::BTreeSet;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::ListParams;

use crate::ring::{ADMIN, OWN, Ring, uid};
use crate::wait::{unexpected, until};

impl Ring {
    /// Lists the Jobs of all runs.
    pub async fn all_jobs(&self) -> Vec<Job> {
        self.api::<Job>(ADMIN).list(&ListParams::default()).await.unwrap().items
    }

    /// Lists the pool requests.
    pub async fn requests(&self) -> Vec<PersistentVolumeClaim> {
        let asked = ListParams::default().labels(&format!("{}={}", names::LABEL_POOL, names::POOL_REQUEST));
        self.api::<PersistentVolumeClaim>(OWN).list(&asked).await.unwrap().items
    }

    /// Lists the volumes of claims and of pools.
    pub async fn all_volumes(&self) -> Vec<PersistentVolume> {
        let all = self.volumes().list(&ListParams::default()).await.unwrap().items;
        all.into_iter().filter(|volume| !volume.name_any().starts_with(names::PROBE_PREFIX)).collect()
    }

    /// Returns the names of the pooled volumes of a class that are finished: only a claim changes them any more.
    pub async fn ready(&self, class: &str) -> BTreeSet<String> {
        let ids: BTreeSet<_> = self.requests().await.iter().map(uid).collect();
        let ready = self.volumes().list(&ListParams::default().labels(names::LABEL_POOL)).await.unwrap().items;
        let is_one = |volume: &PersistentVolume| {
            let spec = volume.spec.as_ref().unwrap();
            let reserved = spec.claim_ref.as_ref().is_none_or(|reference| reference.uid.is_none());
            let has_request = ids.iter().any(|id| names::pv_name(id) == volume.name_any());
            let of_class = spec.storage_class_name.as_deref() == Some(class);
            of_class && reserved && !has_request && volume.metadata.deletion_timestamp.is_none()
        };
        ready.iter().filter(|volume| is_one(volume)).map(ResourceExt::name_any).collect()
    }

    /// Waits until the PV controller has seen a volume that no claim has, and writes on it no more.
    pub async fn available(&self, name: &str) -> PersistentVolume {
        until(format!("volume {name} is Available"), || async {
            let volume = self.volumes().get(name).await.map_err(|error| error.to_string())?;
            let phase = volume.status.as_ref().and_then(|status| status.phase.clone());
            if phase.as_deref() == Some("Available") { Ok(volume) } else { unexpected(phase) }
        })
        .await
    }

    /// Returns the volume of a bound claim.
    pub async fn volume_of(&self, claim: &str) -> PersistentVolume {
        let name = self.bound(claim).await.spec.unwrap().volume_name.unwrap();
        self.volumes().get(&name).await.unwrap()
    }
}
