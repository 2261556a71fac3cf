//! The conditions in the status of a claim.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// The condition that Kubernetes since 1.37 sets on claims without a pod.
const UNUSED: &str = "Unused";

/// Returns the types of a claim's conditions about changes of its volume.
pub fn conditions(claim: &PersistentVolumeClaim) -> Vec<String> {
    let all = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
    all.map(|condition| condition.type_.clone()).filter(|kind| kind != UNUSED).collect()
}
