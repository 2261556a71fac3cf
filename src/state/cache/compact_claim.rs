//! Claims as the cache keeps them: a claim that is bound and settled shares all but a few fields with others.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use flex_contract::names;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::object::ObjectName;

use crate::state::compact::{CLAIM, Compact, version};
use crate::state::id::Id;

/// The part of a claim that no other claim has.
#[derive(Debug)]
pub struct OwnClaim {
    uid: Id,
    version: u64,
    created: i64,
    /// The time in the stamp.
    stamped: Box<str>,
    foreign_metadata_bytes: usize,
}

impl Compact for Claim {
    type Key = Arc<ObjectName>;
    type Own = OwnClaim;

    fn split(&self) -> Option<(OwnClaim, Self)> {
        let version = version(&self.resource_version)?;
        if !self.is_bound() || is_special(self) {
            return None;
        }
        let own = OwnClaim {
            uid: self.uid.as_str().into(),
            version,
            created: self.created,
            stamped: self.stamp.as_ref().map(|stamp| stamp.ts.as_str()).unwrap_or_default().into(),
            foreign_metadata_bytes: self.foreign_metadata_bytes,
        };
        let stamp = |stamp: &Stamp| Stamp {
            claim_uid: if stamp.claim_uid == self.uid { CLAIM.to_owned() } else { stamp.claim_uid.clone() },
            ts: String::new(),
            ..stamp.clone()
        };
        let volume = |volume: &String| match *volume == names::pv_name(&self.uid) {
            true => names::pv_name(CLAIM),
            false => volume.clone(),
        };
        let template = Claim {
            name: ObjectName::default(),
            uid: String::new(),
            resource_version: String::new(),
            created: 0,
            foreign_metadata_bytes: 0,
            stamp: self.stamp.as_ref().map(stamp),
            volume_name: self.volume_name.as_ref().map(volume),
            ..self.clone()
        };
        Some((own, template))
    }

    fn join(name: &Arc<ObjectName>, own: &OwnClaim, template: &Self) -> Self {
        let uid = own.uid.to_string();
        let stamp = |stamp: &Stamp| Stamp {
            claim_uid: if stamp.claim_uid == CLAIM { uid.clone() } else { stamp.claim_uid.clone() },
            ts: own.stamped.to_string(),
            ..stamp.clone()
        };
        let volume = |volume: &String| match *volume == names::pv_name(CLAIM) {
            true => names::pv_name(&uid),
            false => volume.clone(),
        };
        Claim {
            name: ObjectName::clone(name),
            resource_version: own.version.to_string(),
            created: own.created,
            foreign_metadata_bytes: own.foreign_metadata_bytes,
            stamp: template.stamp.as_ref().map(stamp),
            volume_name: template.volume_name.as_ref().map(volume),
            uid,
            ..template.clone()
        }
    }

    fn shape(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.class, &self.size, self.capacity, &self.selected_node, &self.created_by).hash(&mut hasher);
        (self.stamp.as_ref().map(|stamp| &stamp.recipe_version), &self.volume_name).hash(&mut hasher);
        hasher.finish()
    }
}

/// Checks whether the claim is seldom like others, or a decision about it is due.
fn is_special(claim: &Claim) -> bool {
    claim.terminating
        || claim.is_held()
        || claim.last_failure.is_some()
        || claim.expand_status.is_some()
        || claim.modify_status.is_some()
        || claim.data_source.is_some()
        || !claim.metadata.is_empty()
        || claim.stamp.as_ref().is_some_and(|stamp| stamp.claim_uid == CLAIM)
        || claim.volume_name.as_deref() == Some(&names::pv_name(CLAIM))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::state::testing;

    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    /// Returns a bound claim.
    fn bound(name: &str, uid: &str) -> Claim {
        let claim = testing::claim("team", name, true);
        let stamp = claim.stamp.map(|stamp| Stamp { claim_uid: uid.to_owned(), ..stamp });
        let volume_name = Some(names::pv_name(uid));
        Claim {
            uid: uid.into(),
            resource_version: "12".into(),
            stamp,
            volume_name,
            bind_completed: true,
            metadata: std::collections::BTreeMap::new(),
            phase: flex_core::model::phase::ClaimPhase::Bound,
            ..claim
        }
    }

    fn text() -> impl Strategy<Value = String> {
        prop::sample::select(vec![UID, "", CLAIM, "x", "pvc-=", "pvc-0f8fad5b-d9cb-469f-a165-70867728950e"])
            .prop_map(str::to_owned)
    }

    proptest! {
        #[test]
        fn a_claim_comes_back_as_it_was(
            texts in prop::collection::vec(prop::option::of(text()), 4),
            version in prop::sample::select(vec!["12", "012", "", "x", "18446744073709551615"]),
            bytes in 0..3usize,
            has_stamp in any::<bool>(),
        ) {
            let mut claim = bound("a", UID);
            let text = |at: usize| texts[at].clone().unwrap_or_default();
            let stamp = claim.stamp.clone().map(|stamp| Stamp { claim_uid: text(0), ts: text(1), ..stamp });
            claim.stamp = stamp.filter(|_| has_stamp);
            claim.volume_name = texts[2].clone();
            claim.uid = text(3);
            claim.resource_version = version.into();
            claim.foreign_metadata_bytes = bytes;
            if let Some((own, template)) = claim.split() {
                prop_assert_eq!(Claim::join(&Arc::new(claim.name.clone()), &own, &template), claim);
            }
        }
    }

    #[test]
    fn bound_claims_of_a_class_share_a_template() {
        let claim = bound("a", UID);
        let other = Claim {
            resource_version: "13".into(),
            created: 7,
            foreign_metadata_bytes: 99,
            ..bound("b", "22222222-d9cb-469f-a165-70867728950e")
        };
        let templates = [&claim, &other].map(|claim| claim.split().unwrap().1);
        assert_eq!(templates[0], templates[1]);
        assert_eq!(templates[0].shape(), templates[1].shape());
        for busy in [
            Claim { terminating: true, ..claim.clone() },
            Claim { held: true, ..claim.clone() },
            Claim { volume_name: None, ..claim },
        ] {
            assert!(busy.split().is_none(), "{busy:?} is about to change");
        }
    }
}
