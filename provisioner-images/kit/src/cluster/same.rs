//! The check whether an existing volume is the one that was to be created. It is pure.

use flex_contract::names::CLAIM_UID;
use flex_contract::volume::{VOLUME_SOURCE_KINDS, volume_source_kind};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};
use serde_json::Value;

use crate::Failure;

/// Succeeds if both volumes are for the same claim and have the same storage.
pub(super) fn check(ours: &PersistentVolume, found: &PersistentVolume) -> Result<(), Failure> {
    let name = ours.metadata.name.as_deref().unwrap_or_default();
    if found.metadata.deletion_timestamp.is_some() {
        return Err(Failure::retry(format!("PersistentVolume {name} of an earlier attempt is still being deleted")));
    }
    let (wanted, other) = (claim(ours), claim(found));
    if wanted != other {
        return Err(Failure::never(format!(
            "PersistentVolume {name} exists already, for another claim: its annotation {CLAIM_UID} is {}, not {}; \
             delete it by hand if nobody needs it",
            other.unwrap_or("absent"),
            wanted.unwrap_or("absent")
        )));
    }
    let (wanted, other) = (source(ours), source(found));
    if !within(&wanted, &other) {
        return Err(Failure::never(format!(
            "PersistentVolume {name} exists already for this claim, but leads to other storage: {other}, not {wanted}; \
             an image must give the same CLAIM_UUID the same storage every time"
        )));
    }
    Ok(())
}

fn claim(volume: &PersistentVolume) -> Option<&str> {
    volume.metadata.annotations.as_ref()?.get(CLAIM_UID).map(String::as_str)
}

/// Returns the volume source as JSON: `{"nfs":{…}}`.
fn source(volume: &PersistentVolume) -> Value {
    let spec = volume.spec.as_ref();
    let kind = spec.and_then(volume_source_kind);
    let mut json = serde_json::to_value(spec.unwrap_or(&PersistentVolumeSpec::default())).unwrap_or_default();
    if let Value::Object(fields) = &mut json {
        fields.retain(|field, _| match kind {
            Some(kind) => field == kind,
            None => VOLUME_SOURCE_KINDS.contains(&field.as_str()),
        });
    }
    json
}

/// Checks whether `theirs` contains all of `ours`. The API server adds defaults, such as the type of a hostPath, so
/// that both need not be equal.
fn within(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            ours.iter().all(|(key, value)| theirs.get(key).is_some_and(|other| within(value, other)))
        }
        (ours, theirs) => ours == theirs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(claim: &str, source: &str) -> PersistentVolume {
        let yaml = format!(
            "metadata: {{name: pvc-1, annotations: {{{CLAIM_UID}: {claim}}}}}\n\
             spec: {{storageClassName: a, {source}}}"
        );
        serde_saphyr::from_str(&yaml).unwrap()
    }

    #[test]
    fn only_the_same_claim_and_storage_is_the_same_volume() {
        let ours = volume("c1", "hostPath: {path: /a}");
        for (claim, source, code) in [
            ("c1", "hostPath: {path: /a}", 0),
            ("c1", "hostPath: {path: /a, type: ''}", 0),
            ("c2", "hostPath: {path: /a}", 65),
            ("c1", "hostPath: {path: /b}", 65),
            ("c1", "local: {path: /a}", 65),
        ] {
            let found = check(&ours, &volume(claim, source));
            assert_eq!(found.map_or_else(|failure| failure.code, |()| 0), code, "{claim} {source}");
        }
    }

    #[test]
    fn a_terminating_volume_is_waited_for() {
        let ours = volume("c1", "hostPath: {path: /a}");
        let mut found = ours.clone();
        found.metadata.deletion_timestamp = serde_saphyr::from_str("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(check(&ours, &found).unwrap_err().code, 75);
    }
}
