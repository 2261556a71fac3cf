//! Volumes, and the claims that they name.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use flex_contract::names;
use flex_core::claim::verify::satisfies_reservation;
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Reference, Volume};
use flex_core::object::ObjectName;
use smallvec::SmallVec;

use crate::state::compact::CompactMap;
use crate::state::id::Id;
use crate::state::watch_change::{Changed, drop_from};

/// All volumes.
#[derive(Debug, Default)]
pub struct VolumeCache {
    by_name: CompactMap<Volume>,
    /// The names of the volumes that name a claim, in their order. Nearly always it is one.
    by_claim: HashMap<Id, SmallVec<[Arc<str>; 1]>>,
    /// Volumes that are reserved for a claim by its name, except for those with the placeholder of a run.
    reserved: HashMap<ObjectName, BTreeSet<String>>,
    /// Claims that are gone by the API, by the names of the volumes that refer to them.
    gone_claims: HashMap<String, GoneClaim>,
}

/// A claim that is gone by the API.
#[derive(Debug)]
struct GoneClaim {
    claim: Reference,
    /// The resourceVersion that its volume had then.
    version: String,
}

impl VolumeCache {
    /// Returns a volume by its name.
    pub fn get(&self, name: &str) -> Option<Arc<Volume>> {
        self.by_name.get(name)
    }

    /// Returns all volumes.
    pub fn all(&self) -> impl Iterator<Item = Arc<Volume>> {
        self.by_name.values()
    }

    /// Returns all volumes that are not settled, and perhaps others. Each volume that is not Bound or is terminating is among
    /// them.
    pub fn unsettled(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.by_name.whole()
    }

    /// Returns the names of all other volumes, without copies of their texts.
    pub fn settled_names(&self) -> Vec<Arc<str>> {
        self.by_name.settled_keys().cloned().collect()
    }

    /// Returns the names of all volumes.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(AsRef::as_ref)
    }

    /// Returns the names of all volumes, without copies of their texts.
    pub fn shared_names(&self) -> Vec<Arc<str>> {
        self.by_name.keys().cloned().collect()
    }

    /// Returns the names of the volumes that name a claim, by annotation, claimRef or their own name.
    pub fn names_of(&self, claim: &str) -> impl Iterator<Item = &str> {
        self.by_claim.get(&Id::from(claim)).into_iter().flatten().map(AsRef::as_ref)
    }

    /// Returns the volumes that name a claim, by annotation, claimRef or their own name.
    pub fn of_claim(&self, claim: &str) -> impl Iterator<Item = Arc<Volume>> {
        self.names_of(claim).filter_map(|name| self.get(name))
    }

    /// Checks whether a volume names the claim, by annotation, claimRef or its own name.
    pub fn has_any_of(&self, claim: &str) -> bool {
        self.by_claim.contains_key(&Id::from(claim))
    }

    /// Returns a volume that the PV controller will bind to a claim, and that no run made for it. The volume is reserved
    /// for the claim by name, or the PV controller has written the claim's UID already, and it fits.
    pub fn reserved_for(&self, claim: &Claim) -> Option<Arc<Volume>> {
        let by_name = self.reserved.get(&claim.name).into_iter().flatten().filter_map(|name| self.get(name));
        let half_bound = self.of_claim(&claim.uid).filter(|volume| is_half_bound(volume, claim));
        by_name.chain(half_bound).find(|volume| satisfies_reservation(volume, claim))
    }

    /// Records that the claim of a volume is gone by the API, so that nobody has to ask again.
    pub fn note_claim_gone(&mut self, volume: &str, claim: &Reference) {
        if let Some(known) = self.get(volume).filter(|_| claim.uid.is_some()) {
            let version = known.resource_version.clone();
            self.gone_claims.insert(volume.to_owned(), GoneClaim { claim: claim.clone(), version });
        }
    }

    /// Forgets which claims are gone.
    pub fn forget_gone_claims(&mut self) {
        self.gone_claims.clear();
    }

    /// Records that a watch has shown the deletion of a claim. No volume has to ask the API for it any more.
    pub fn note_claim_deleted(&mut self, claim: &Claim) {
        let names = self.names_of(&claim.uid).map(str::to_owned).collect::<Vec<_>>();
        for name in names {
            let reference = self.get(&name).and_then(|volume| volume.claim_ref.clone());
            if let Some(reference) = reference.filter(|reference| reference.uid.as_ref() == Some(&claim.uid)) {
                self.note_claim_gone(&name, &reference);
            }
        }
    }

    /// Checks whether the API has said that the claim of this volume is gone. The answer counts only for the volume as it
    /// was then, or as Kubernetes has released it since. A UID returns if somebody restores etcd, and then the volume is in
    /// use again before a watch has shown its claim.
    pub fn is_claim_gone(&self, volume: &Volume) -> bool {
        self.gone_claims.get(&volume.name).is_some_and(|gone| {
            let is_same = || gone.version == volume.resource_version;
            volume.claim_ref.as_ref() == Some(&gone.claim) && (volume.phase.is_claim_gone() || is_same())
        })
    }

    /// Adds a volume, or its new state.
    pub fn apply(&mut self, volume: Volume) -> Changed<Volume> {
        let volume = Arc::new(volume);
        let (name, before) = self.by_name.insert(volume.name.as_str().into(), &volume);
        if let Some(before) = &before {
            self.forget(before);
            let is_back = before.phase.is_claim_gone() && !volume.phase.is_claim_gone();
            if before.uid != volume.uid || is_back {
                self.gone_claims.remove(&volume.name);
            }
        }
        for uid in claims_of(&volume) {
            let names = self.by_claim.entry(Id::from(uid.as_str())).or_default();
            if let Err(at) = names.binary_search(&name) {
                names.insert(at, name.clone());
            }
        }
        if let Some(claim) = reservation(&volume) {
            self.reserved.entry(claim.clone()).or_default().insert(volume.name.clone());
        }
        Changed { before, now: Some(volume) }
    }

    /// Removes a volume.
    pub fn remove(&mut self, name: &str) -> Option<Changed<Volume>> {
        let volume = self.by_name.remove(name)?;
        self.forget(&volume);
        self.gone_claims.remove(name);
        Some(Changed::gone(volume))
    }

    fn forget(&mut self, volume: &Volume) {
        for uid in claims_of(volume) {
            let id = Id::from(uid.as_str());
            let Some(names) = self.by_claim.get_mut(&id) else { continue };
            names.retain(|name| **name != *volume.name);
            if names.is_empty() {
                self.by_claim.remove(&id);
            }
        }
        if let Some(claim) = reservation(volume) {
            drop_from(&mut self.reserved, claim, &volume.name);
        }
    }
}

/// Returns the claim for which a volume is reserved by name alone.
pub fn reservation(volume: &Volume) -> Option<&ObjectName> {
    let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_none())?;
    (Some(reference.name.name.as_str()) != volume.volume_id()).then_some(&reference.name)
}

/// Checks whether the PV controller has begun to bind a claim to a volume that no run made for it: it has written the
/// claim's UID on the volume, and not yet the volume's name on the claim.
fn is_half_bound(volume: &Volume, claim: &Claim) -> bool {
    let is_made_for_it =
        volume.claim_uid.as_ref() == Some(&claim.uid) || volume.name == names::pv_name(&claim.volume_id());
    volume.claim_ref_uid() == Some(&claim.uid) && !is_made_for_it
}

/// Returns the UIDs of the claims that a volume names in any way.
pub fn claims_of(volume: &Volume) -> BTreeSet<String> {
    let by_name = volume.name.strip_prefix(names::PV_PREFIX).map(str::to_owned);
    let by_ref = volume.claim_ref_uid().map(str::to_owned);
    [volume.claim_uid.clone(), by_name, by_ref].into_iter().flatten().filter(|uid| !uid.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::testing::{claim, volume};

    /// Without the first half a restored claim would get an attempt, and a second volume.
    #[test]
    fn a_volume_is_reserved_for_a_claim_until_both_halves_of_the_binding_are_written() {
        let pending = claim("team", "restored", false);
        let restored =
            Volume { name: "pvc-former".into(), claim_uid: Some("former".into()), ..volume(&pending, "1Gi") };
        let reserved = |change: &dyn Fn(&mut Volume)| {
            let (mut cache, mut volume) = (VolumeCache::default(), restored.clone());
            change(&mut volume);
            cache.apply(volume);
            cache.reserved_for(&pending).is_some()
        };
        let uid = |uid: Option<&str>| {
            let uid = uid.map(str::to_owned);
            move |volume: &mut Volume| volume.claim_ref.as_mut().unwrap().uid = uid.clone()
        };
        assert!(reserved(&uid(None)) && reserved(&uid(Some(&pending.uid))));
        assert!(!reserved(&uid(Some("another"))));
        assert!(!reserved(&|volume| volume.terminating = true));
        assert!(!reserved(&|volume| volume.claim_uid = Some(pending.uid.clone())), "a run made it for the claim");
    }
}
