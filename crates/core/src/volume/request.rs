//! The request to an image that deletes, expands or modifies a volume.

use flex_contract::operation::Operation;
use flex_contract::request::{ClaimRef, RunRequest};

use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::config::modify::Attributes;
use crate::model::volume::Volume;
use crate::run::request::{AttemptStart, of_class, with_attributes};

/// Builds the request of a delete run from the data on the volume. `source` is the volume's spec as JSON; `node` is
/// where storage is deleted, if that matters.
pub fn request(
    volume: &Volume,
    node: Option<&str>,
    recipe: &Recipe,
    identity: &Identity,
    kube_api: &str,
    start: AttemptStart,
    source: String,
) -> RunRequest {
    let reference = volume.claim_ref.clone().unwrap_or_default();
    RunRequest {
        volume_id: volume.volume_id().unwrap_or_default().to_owned(),
        pv_name: volume.name.clone(),
        claim: ClaimRef {
            namespace: env_text(reference.name.namespace),
            name: env_text(reference.name.name),
            uid: env_text(reference.uid.unwrap_or_default()),
        },
        storage_class: env_text(volume.class.clone()),
        size_bytes: volume.size.clone().unwrap_or_default(),
        access_modes: volume.access_modes.iter().cloned().map(env_text).collect(),
        volume_mode: env_text(volume.volume_mode.to_string()).as_str().into(),
        reclaim_policy: env_text(volume.reclaim_policy.to_string()).as_str().into(),
        node_name: node.unwrap_or_default().to_owned(),
        moved_in_path: if source.is_empty() { String::new() } else { volume.moved_in_path() },
        volume_source: source,
        ..with_attributes(of_class(Operation::Delete, recipe, identity, kube_api, start), volume.attributes(), recipe)
    }
}

/// Turns the request into that of an expand run, to a size in bytes.
pub fn expand(request: RunRequest, size: u64) -> RunRequest {
    RunRequest { operation: Operation::Expand, old_size_bytes: Some(request.size_bytes), size_bytes: size, ..request }
}

/// Turns the request into that of a modify run, to other attributes than the volume has.
pub fn modify(request: RunRequest, volume: &Volume, recipe: &Recipe, attributes: &Attributes) -> RunRequest {
    let old = volume.attributes();
    let (old_attributes_class, old_attributes) = (old.class.clone().unwrap_or_default(), old.parameters.clone());
    RunRequest {
        operation: Operation::Modify,
        old_attributes_class,
        old_attributes,
        ..with_attributes(request, attributes, recipe)
    }
}

/// Returns a text that somebody wrote on a volume, or an empty text if no environment variable can hold it. The
/// deletion continues without it.
fn env_text(text: String) -> String {
    if text.contains('\0') { String::new() } else { text }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    use super::*;
    use crate::run::job::tests::recipe;

    /// The API accepts a zero byte in a claimRef, and the pod of such a run would never start.
    #[test]
    fn a_deletion_continues_without_a_text_that_no_variable_can_hold() {
        let spec = json!({
            "storageClassName": "s\0", "accessModes": ["a\0b"], "volumeMode": "\0",
            "persistentVolumeReclaimPolicy": "\0",
            "claimRef": { "namespace": "te\0am", "name": "data", "uid": "0d\0" },
        });
        let volume: PersistentVolume =
            serde_json::from_value(json!({ "metadata": { "name": "pvc-1" }, "spec": spec })).unwrap();
        let start = AttemptStart { attempt: 1, ts: String::new() };
        let (volume, recipe, identity) = (Volume::from(&volume), recipe(&[("image", "x")]), Identity::of_tests());
        let request = request(&volume, None, &recipe, &identity, "https://api", start, String::new());
        assert_eq!((request.claim.namespace.as_str(), request.claim.name.as_str()), ("", "data"));
        assert!(request.properties().iter().all(|property| !property.value.contains('\0')));
    }
}
