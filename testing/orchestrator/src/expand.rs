//! A larger request on a bound claim.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::conditions::conditions;
use crate::ring::Ring;

impl Ring {
    /// Requests another size, as a user does.
    pub async fn ask(&self, claim: &str, size: &str) -> Result<PersistentVolumeClaim, kube::Error> {
        let requested = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(requested)).await
    }

    /// Waits until volume and claim have a size, and no trace of the expansion.
    pub async fn has_size(&self, claim: &str, volume: &str, size: &str) -> PersistentVolumeClaim {
        let settled = |claim: &PersistentVolumeClaim| {
            let status = claim.status.clone().unwrap();
            let states = status.allocated_resource_statuses.unwrap_or_default();
            status.capacity.is_some_and(|capacity| capacity["storage"].0 == size)
                && states.is_empty()
                && conditions(claim).is_empty()
        };
        let claim = self.claim_when(claim, &format!("has {size}"), settled).await;
        let volume = self.volumes().get(volume).await.unwrap();
        assert_eq!(volume.spec.unwrap().capacity.unwrap()["storage"].0, size);
        claim
    }

    /// Waits until the claim's status shows this state of an expansion.
    pub async fn state(&self, claim: &str, state: &str) -> PersistentVolumeClaim {
        let is = |claim: &PersistentVolumeClaim| {
            let states = claim.status.as_ref().and_then(|status| status.allocated_resource_statuses.clone());
            states.is_some_and(|states| states.get("storage").is_some_and(|now| now == state))
        };
        self.claim_when(claim, &format!("is {state}"), is).await
    }
}
