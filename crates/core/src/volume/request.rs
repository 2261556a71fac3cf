//! What an image is asked when a volume's storage is to go, or to grow.

use contract::request::{ClaimRef, Operation, Request};

use crate::attributes::Attributes;
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::model::volume::Volume;
use crate::run::request::of_class;
use crate::run::request::with_attributes;

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
        claim_uuid: volume.id().unwrap_or_default().to_owned(),
        pv_name: volume.name.clone(),
        claim: ClaimRef {
            namespace: tellable(reference.name.namespace),
            name: tellable(reference.name.name),
            uid: tellable(reference.uid),
        },
        storage_class: tellable(volume.class.clone()),
        size_bytes: volume.size.clone().unwrap_or_default(),
        access_modes: volume.access_modes.iter().cloned().map(tellable).collect(),
        volume_mode: tellable(volume.volume_mode.clone()),
        reclaim_policy: tellable(volume.reclaim_policy.clone()),
        node_name: node.to_owned(),
        volume_source: source,
        ..with_attributes(of_class(Operation::Delete, recipe, identity, kube_api, run), volume.attributes(), recipe)
    }
}

/// The same as the request of an expand run, to a size in bytes.
pub fn expand(request: Request, size: u64) -> Request {
    Request { operation: Operation::Expand, old_size_bytes: Some(request.size_bytes), size_bytes: size, ..request }
}

/// The same as the request of a modify run, to other attributes than the volume has.
pub fn modify(request: Request, volume: &Volume, recipe: &Recipe, attributes: &Attributes) -> Request {
    let old = volume.attributes();
    let (old_attributes_class, old_attributes) = (old.class.clone(), old.parameters.clone());
    Request {
        operation: Operation::Modify,
        old_attributes_class,
        old_attributes,
        ..with_attributes(request, attributes, recipe)
    }
}

/// What somebody wrote on a volume, or nothing where no variable of a process can hold it: a deletion goes on without.
fn tellable(text: String) -> String {
    if text.contains('\0') { String::new() } else { text }
}
