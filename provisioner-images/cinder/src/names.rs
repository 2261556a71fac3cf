//! Names and metadata of volumes and snapshots in Cinder, by which the image finds them again.

use std::collections::BTreeMap;

use flex_contract::request::RunRequest;

use crate::parameters::Parameters;

/// In a volume's metadata: the volume id, which all its runs get as `CLAIM_UUID`. Older Cinders refuse a slash in the
/// name.
pub const METADATA_VOLUME_ID: &str = "flex-provisioner.claim-uuid";
const INSTANCE: &str = "flex-provisioner.instance";
const CLAIM: &str = "flex-provisioner.claim";
const CLASS: &str = "flex-provisioner.storage-class";

/// On a PersistentVolume: Cinder's id of the volume.
pub const CINDER_VOLUME_ID: &str = "cinder.flex-provisioner.io/volume-id";
/// On a claim, written by its user: the claim to copy, as `namespace/name`.
pub const CLONE_REQUEST: &str = "k8s.io/CloneRequest";
/// On a claim: the claim of which it is a copy, as `namespace/name`.
pub const CLONE_OF: &str = "k8s.io/CloneOf";

/// The label with the zone of a node.
pub const ZONE: &str = "topology.kubernetes.io/zone";

/// The largest length of a metadata value.
const LONGEST: usize = 255;

/// Returns the name of a volume, which people see in Cinder.
pub fn volume(request: &RunRequest) -> String {
    format!("pvc-{}", request.volume_id)
}

/// Returns the name of a snapshot, by which it is found again: not all Cinders filter snapshots by their metadata.
pub fn snapshot(id: &str) -> String {
    format!("flex-snapshot-{id}")
}

/// Returns the name of the Secret of a volume.
pub fn secret(request: &RunRequest) -> String {
    format!("flex-cinder-{}", request.volume_id)
}

/// Returns the metadata of a volume. The config's metadata never replace the entries by which the image finds a volume.
pub fn metadata(request: &RunRequest, parameters: &Parameters) -> BTreeMap<String, String> {
    let own = [
        (METADATA_VOLUME_ID, request.volume_id.clone()),
        (INSTANCE, request.instance.clone()),
        (CLAIM, format!("{}/{}", request.claim.namespace, request.claim.name)),
        (CLASS, request.storage_class.clone()),
    ];
    let mut all = parameters.metadata.clone();
    all.extend(own.map(|(key, value)| (key.to_owned(), value)));
    all.retain(|_, value| !value.is_empty());
    all.values_mut().for_each(|value| *value = flex_contract::text::cut(value, LONGEST).to_owned());
    all
}

/// Checks that a text can be an id. An id becomes a part of names and addresses, and must not lead elsewhere.
pub fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}
