//! What an image is asked when a volume's storage is to go, or to grow.

use contract::request::{ClaimRef, Operation, Request};

use super::Volume;
use crate::config::Recipe;
use crate::config::classes::Identity;

/// The request of a delete run, from what the volume itself records. `source` is the volume's spec
/// as JSON; `node` is where something is deleted; `run` the attempt and when it began.
pub fn request(
    volume: &Volume,
    node: &str,
    recipe: &Recipe,
    identity: &Identity,
    kube_api: &str,
    run: (u32, String),
    source: String,
) -> Request {
    let reference = volume.claim_ref.clone().unwrap_or_default();
    Request {
        operation: Operation::Delete,
        claim_uuid: volume.id().unwrap_or_default().to_owned(),
        provision_ts: run.1,
        attempt: run.0,
        pv_name: volume.name.clone(),
        claim: ClaimRef {
            namespace: tellable(reference.name.namespace),
            name: tellable(reference.name.name),
            uid: tellable(reference.uid),
        },
        storage_class: tellable(volume.class.clone()),
        size_bytes: volume.size.clone().unwrap_or_default(),
        old_size_bytes: None,
        clone_of: None,
        snapshot: None,
        access_modes: volume.access_modes.iter().cloned().map(tellable).collect(),
        volume_mode: tellable(volume.volume_mode.clone()),
        mount_options: recipe.mount_options.clone(),
        reclaim_policy: tellable(volume.reclaim_policy.clone()),
        fs_type: recipe.fs_type.clone(),
        username: String::new(),
        user_groups: Vec::new(),
        service_account: recipe.service_account.clone().unwrap_or_default(),
        kube_api: kube_api.to_owned(),
        node_name: node.to_owned(),
        topology: Default::default(),
        class_topologies: String::new(),
        provisioner: identity.provisioner.clone(),
        instance: identity.instance.clone(),
        volume_source: source,
        claim_metadata: Default::default(),
        parameters: recipe.parameters.clone(),
        pod_namespace: recipe.config.namespace.clone(),
    }
}

/// The same as the request of an expand run, to a size in bytes.
pub fn expand(request: Request, size: u64) -> Request {
    Request { operation: Operation::Expand, old_size_bytes: Some(request.size_bytes), size_bytes: size, ..request }
}

/// What somebody wrote on a volume, or nothing where no variable of a process can hold it: a deletion goes on without.
fn tellable(text: String) -> String {
    if text.contains('\0') { String::new() } else { text }
}
