//! The volume ids of a claim. Each volume that another claim takes leads to a new one.

use std::collections::BTreeMap;

use flex_contract::names;

/// The largest volume generation. If other claims take more volumes, somebody has to find out why.
pub const MAX_VOLUME_GENERATIONS: u32 = 16;

/// Returns the volume id of a claim's runs after other claims have taken so many volumes. The first id is the claim's
/// UID. The others are UUIDs derived from it, so that nobody can make a claim's runs name the volume of another claim.
pub fn volume_id(uid: &str, generation: u32) -> String {
    use sha2::Digest;
    if generation == 0 {
        return uid.to_owned();
    }
    let digest = sha2::Sha256::digest(format!("{uid}/{generation}"));
    let bytes = digest.as_slice().first_chunk::<16>().expect("SHA-256 has 32 bytes");
    uuid::Uuid::new_v8(*bytes).to_string()
}

/// Returns all volume ids of a claim, the current one last.
pub fn volume_ids(uid: &str, generation: u32) -> impl DoubleEndedIterator<Item = String> {
    (0..=generation.min(MAX_VOLUME_GENERATIONS)).map(move |generation| volume_id(uid, generation))
}

/// Reads the volume generation from a claim's annotations.
pub fn volume_generation(annotations: Option<&BTreeMap<String, String>>) -> u32 {
    let number = annotations.and_then(|all| all.get(names::VOLUME_GENERATION)?.parse().ok());
    number.unwrap_or(0).min(MAX_VOLUME_GENERATIONS)
}
