//! What stands on volumes and snapshots in Cinder, by which they are found again.

use std::collections::BTreeMap;

use contract::request::Request;

use crate::parameters::Parameters;

/// In a volume's metadata: its id here, which all of its runs get as `CLAIM_UUID`. No slash, which older Cinders refuse.
pub const CLAIM_UUID: &str = "flex-provisioner.claim-uuid";
const INSTANCE: &str = "flex-provisioner.instance";
const CLAIM: &str = "flex-provisioner.claim";
const CLASS: &str = "flex-provisioner.storage-class";

/// On a PersistentVolume: Cinder's id of the volume.
pub const VOLUME_ID: &str = "cinder.flex-provisioner.io/volume-id";
/// On a claim, written by its user: the claim that it shall be a copy of, as `namespace/name`.
pub const CLONE_REQUEST: &str = "k8s.io/CloneRequest";
/// On a claim: the claim that it is a copy of, as `namespace/name`.
pub const CLONE_OF: &str = "k8s.io/CloneOf";

/// The label of nodes that says in which zone they are.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The longest value that metadata may have.
const LONGEST: usize = 255;

/// The name of a volume, which people see in Cinder.
pub fn volume(request: &Request) -> String {
    format!("pvc-{}", request.claim_uuid)
}

/// The name of a snapshot, by which it is found again: not all Cinders filter snapshots by their metadata.
pub fn snapshot(id: &str) -> String {
    format!("flex-snapshot-{id}")
}

/// The name of the Secret of a volume.
pub fn secret(request: &Request) -> String {
    format!("flex-cinder-{}", request.claim_uuid)
}

/// The metadata of a volume. What the config adds never replaces what it is found by.
pub fn metadata(request: &Request, parameters: &Parameters) -> BTreeMap<String, String> {
    let own = [
        (CLAIM_UUID, request.claim_uuid.clone()),
        (INSTANCE, request.instance.clone()),
        (CLAIM, format!("{}/{}", request.claim.namespace, request.claim.name)),
        (CLASS, request.storage_class.clone()),
    ];
    let mut all = parameters.metadata.clone();
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all.retain(|_, value| !value.is_empty());
    all.values_mut().for_each(|value| *value = contract::text::cut(value, LONGEST).to_owned());
    all
}

/// The text that an id becomes a part of names and addresses by must not lead elsewhere.
pub fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
