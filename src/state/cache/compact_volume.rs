//! Volumes as the cache keeps them: a volume that is bound and settled shares all but a few fields with others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::{Reference, Volume};
use flex_core::object::ObjectName;

use crate::state::compact::{CLAIM, Compact, version};
use crate::state::id::Id;

/// The part of a volume that no other volume has.
#[derive(Debug)]
pub struct OwnVolume {
    uid: Id,
    version: u64,
    created: i64,
    claim: Id,
    claim_name: Box<str>,
    /// The adoption mark, which depends on the UID.
    mark: Option<Box<str>>,
    foreign_metadata_bytes: usize,
}

impl Compact for Volume {
    type Key = Arc<str>;
    type Own = OwnVolume;

    fn split(&self) -> Option<(OwnVolume, Self)> {
        let claim = self.claim_ref.as_ref()?;
        let claim_uid = claim.uid.as_ref()?;
        let version = version(&self.resource_version)?;
        let path = match &self.path {
            Some(path) => Some(with(path, claim_uid, CLAIM)?),
            None => None,
        };
        if self.phase != VolumePhase::Bound || is_special(self) {
            return None;
        }
        let named = |uid: &Option<String>| match uid.as_deref() {
            Some(uid) if uid == claim_uid => Some(CLAIM.to_owned()),
            other => other.map(str::to_owned),
        };
        let own = OwnVolume {
            uid: self.uid.as_str().into(),
            version,
            created: self.created,
            claim: claim_uid.as_str().into(),
            claim_name: claim.name.name.as_str().into(),
            mark: self.adoption_mark.as_deref().map(Into::into),
            foreign_metadata_bytes: self.foreign_metadata_bytes,
        };
        let template = Volume {
            name: String::new(),
            uid: String::new(),
            resource_version: String::new(),
            created: 0,
            adoption_mark: None,
            claim_uid: named(&self.claim_uid),
            volume_id_annotation: named(&self.volume_id_annotation),
            claim_ref: Some(Reference { name: ObjectName::new(&claim.name.namespace, ""), uid: None }),
            path,
            foreign_metadata_bytes: 0,
            ..self.clone()
        };
        Some((own, template))
    }

    fn join(name: &Arc<str>, own: &OwnVolume, template: &Self) -> Self {
        let claim = own.claim.to_string();
        let named = |uid: &Option<String>| match uid.as_deref() {
            Some(CLAIM) => Some(claim.clone()),
            other => other.map(str::to_owned),
        };
        let namespace = template.claim_ref.as_ref().map(|claim| claim.name.namespace.as_str()).unwrap_or_default();
        Volume {
            name: name.to_string(),
            uid: own.uid.to_string(),
            resource_version: own.version.to_string(),
            created: own.created,
            adoption_mark: own.mark.as_deref().map(str::to_owned),
            foreign_metadata_bytes: own.foreign_metadata_bytes,
            claim_uid: named(&template.claim_uid),
            volume_id_annotation: named(&template.volume_id_annotation),
            path: template.path.as_deref().and_then(|path| with(path, CLAIM, &claim)),
            claim_ref: Some(Reference { name: ObjectName::new(namespace, &*own.claim_name), uid: Some(claim) }),
            ..template.clone()
        }
    }

    fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.class, &self.provenance, &self.nodes_with_storage, &self.size, &self.path, &self.pool).hash(&mut hasher);
        self.claim_ref.as_ref().map(|claim| &claim.name.namespace).hash(&mut hasher);
        hasher.finish()
    }
}

/// Checks whether the volume is seldom like others, or a decision about it is due.
fn is_special(volume: &Volume) -> bool {
    let is_marked = |uid: &Option<String>| uid.as_deref() == Some(CLAIM);
    volume.terminating
        || volume.unneeded_since.is_some()
        || volume.quarantine.is_some()
        || volume.last_failure.is_some()
        || volume.last_failed_expansion.is_some()
        || volume.pending_modification.is_some()
        || volume.foreign_metadata.is_some()
        || is_marked(&volume.claim_uid)
        || is_marked(&volume.volume_id_annotation)
}

/// Returns the path with the component `other` in place of its last component, if that is `last`. Returns `None` if the
/// last component is `other` already, because the path could not be restored.
fn with(path: &str, last: &str, other: &str) -> Option<String> {
    match path.rsplit_once('/') {
        Some((directory, name)) if name == last => Some(format!("{directory}/{other}")),
        Some((_, name)) if name == other => None,
        _ => Some(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use proptest::prelude::*;

    use super::*;
    use crate::state::testing;

    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    /// Returns a bound volume of a claim.
    fn bound() -> Volume {
        let claim = flex_core::model::claim::Claim { uid: UID.into(), ..testing::claim("team", "a", true) };
        let volume = testing::volume(&claim, "1Gi");
        Volume {
            uid: "11111111-d9cb-469f-a165-70867728950e".into(),
            resource_version: "12".into(),
            phase: VolumePhase::Bound,
            volume_id_annotation: Some(UID.into()),
            path: Some(format!("/srv/{UID}")),
            provenance: Some("{}".into()),
            adoption_mark: Some("Adopted-of-this".into()),
            nodes_with_storage: vec!["n".into()],
            ..volume
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let whole = format!("/srv/{UID}");
        let texts = [UID, "", CLAIM, "x", "/srv/=", "/=", "/srv/x", "/srv/", whole.as_str()];
        prop::sample::select(texts.map(str::to_owned).to_vec())
    }

    proptest! {
        #[test]
        fn a_volume_comes_back_as_it_was(
            texts in prop::collection::vec(prop::option::of(text()), 8),
            version in prop::sample::select(vec!["12", "012", "", "x", "18446744073709551615"]),
            bytes in 0..3usize,
            other in any::<[bool; 4]>(),
        ) {
            let mut volume = bound();
            let text = |at: usize| texts[at].clone().unwrap_or_default();
            volume.claim_uid = texts[0].clone();
            volume.volume_id_annotation = texts[1].clone();
            volume.path = texts[2].clone();
            volume.uid = text(3);
            volume.resource_version = version.into();
            volume.foreign_metadata_bytes = bytes;
            volume.adoption_mark = texts[0].clone();
            volume.former_claim = other[0].then(|| ObjectName::new("team", "b"));
            volume.abandoned = other[1];
            let reference = Reference { name: ObjectName::new(text(4), text(5)), uid: Some(text(6)).filter(|uid| !uid.is_empty()) };
            volume.claim_ref = other[2].then_some(reference);
            volume.name = if other[3] { names::pv_name(UID) } else { text(7) };
            if let Some((own, template)) = volume.split() {
                prop_assert_eq!(Volume::join(&volume.name.as_str().into(), &own, &template), volume);
            }
        }
    }

    #[test]
    fn bound_volumes_of_a_namespace_share_a_template() {
        let volume = bound();
        let uid = "22222222-d9cb-469f-a165-70867728950e".to_owned();
        let other = Volume {
            name: names::pv_name(&uid),
            uid: "33333333-d9cb-469f-a165-70867728950e".into(),
            resource_version: "13".into(),
            created: 7,
            adoption_mark: Some("Adopted-of-another".into()),
            foreign_metadata_bytes: 99,
            claim_uid: Some(uid.clone()),
            volume_id_annotation: Some(uid.clone()),
            path: Some(format!("/srv/{uid}")),
            claim_ref: Some(Reference { name: ObjectName::new("team", "b"), uid: Some(uid) }),
            ..volume.clone()
        };
        let templates = [&volume, &other].map(|volume| volume.split().unwrap().1);
        assert_eq!(templates[0], templates[1]);
        assert_eq!(templates[0].shape(), templates[1].shape());
        for busy in [
            Volume { phase: VolumePhase::Released, ..volume.clone() },
            Volume { terminating: true, ..volume.clone() },
            Volume { claim_ref: None, ..volume },
        ] {
            assert!(busy.split().is_none(), "{busy:?} is about to change");
        }
    }
}
