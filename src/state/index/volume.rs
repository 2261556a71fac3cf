//! Volumes, and the claims that they name.

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::request::Operation;

use super::{Change, Index, WorkItem, drop_from};
use crate::claim::verify::satisfies_reservation;
use crate::model::claim::Claim;
use crate::model::volume::Reference;
use crate::model::volume::Volume;
use crate::object::ObjectName;

impl Index {
    /// Returns a volume by its name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.volumes.get(name).cloned()
    }

    /// Returns all volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.volumes.values()
    }

    /// Returns the volumes that name a claim, by annotation, claimRef or their own name.
    pub fn volumes_of(&self, uid: &str) -> Vec<Arc<Volume>> {
        self.volumes_by_claim.get(uid).into_iter().flatten().filter_map(|name| self.volume(name)).collect()
    }

    /// Records that the claim of a volume is gone by the API. Its UID never returns, so that nobody has to ask again.
    pub fn note_claim_gone(&mut self, volume: &str, claim: &Reference) {
        if self.volumes.contains_key(volume) && !claim.uid.is_empty() {
            self.gone_claims.insert(volume.to_owned(), claim.clone());
        }
    }

    /// Checks whether the API has said that the claim is gone.
    pub fn is_claim_gone(&self, volume: &str, claim: &Reference) -> bool {
        self.gone_claims.get(volume) == Some(claim)
    }

    /// Returns a volume that the PV controller will bind to a claim. The volume is reserved for the claim by name, and
    /// fits.
    pub fn reserved_for(&self, claim: &Claim) -> Option<Arc<Volume>> {
        let reserved = self.reserved.get(&claim.name)?.iter().filter_map(|name| self.volume(name));
        reserved.into_iter().find(|volume| satisfies_reservation(volume, claim))
    }

    pub(super) fn volume_keys(&self, claim_uid: &str) -> Vec<WorkItem> {
        self.volumes_by_claim.get(claim_uid).into_iter().flatten().cloned().map(WorkItem::Volume).collect()
    }

    /// Applies a change of a volume.
    pub fn change_volume(&mut self, change: Change<Volume>) -> Vec<WorkItem> {
        match change {
            Change::Apply(volume) if self.is_probe(&volume) => self.on_probe(&volume),
            Change::Apply(volume) => {
                let name = volume.name.clone();
                let mut keys: Vec<WorkItem> = vec![WorkItem::Volume(name.clone())];
                self.unseen_writes.shows(&keys[0], &volume.resource_version);
                let before = self.volumes.get(&name).cloned();
                if before
                    .as_ref()
                    .is_none_or(|before| (&before.size, &before.affinity) != (&volume.size, &volume.affinity))
                {
                    keys.extend(self.capacity_keys());
                }
                keys.extend(self.on_volume_sync(&volume, before.as_deref()));
                if let Some(before) = &before {
                    self.forget_volume(before);
                }
                for uid in claims_of(&volume) {
                    let claim = self.claim_by_id.get(&uid);
                    keys.extend(claim.map(|claim| self.copy_keys(claim)).unwrap_or_default());
                    // The watch may have shown the claim as bound before it showed that its volume is the
                    // orchestrator's.
                    keys.extend(claim.map(|claim| self.snapshots.of_claim(claim)).unwrap_or_default());
                    keys.extend(self.claim_keys(&uid));
                    self.volumes_by_claim.entry(uid).or_default().insert(name.clone());
                }
                if let Some(claim) = reserved(&volume) {
                    self.reserved.entry(claim.clone()).or_default().insert(name.clone());
                    keys.push(WorkItem::Claim(claim.clone()));
                }
                let volume = Arc::new(volume);
                self.volumes.insert(name, volume.clone());
                keys.extend(self.on_volume_size(&volume, before.as_deref()));
                keys.extend(self.on_pool_volume(before.as_deref(), Some(&volume)));
                keys
            }
            Change::Delete(name) => {
                let Some(volume) = self.volumes.remove(&name.name) else {
                    self.forget_probe(&name.name);
                    return Vec::new();
                };
                self.unseen_writes.gone(&WorkItem::Volume(volume.name.clone()));
                self.forget_volume(&volume);
                self.forget_synced(&volume.name);
                self.gone_claims.remove(&volume.name);
                volume.id().into_iter().for_each(|id| self.forget_own_run(id));
                self.growing.remove(&volume.name);
                self.count_volume(&volume);
                self.quota_waiters.remove(&WorkItem::Volume(volume.name.clone()));
                let mut keys: Vec<WorkItem> =
                    claims_of(&volume).iter().filter_map(|uid| self.claim_keys(uid)).collect();
                keys.extend(reserved(&volume).cloned().map(WorkItem::Claim));
                keys.extend(volume.id().map(|id| self.leave_batches(Operation::Delete, id)).unwrap_or_default());
                keys.extend(self.dequeue(&WorkItem::Volume(volume.name.clone())));
                keys.extend(self.on_pool_volume(Some(&volume), None));
                keys.extend(self.pool_of(&volume.class));
                keys.extend(self.wake_for_quota(&volume.class));
                keys.extend(self.capacity_keys());
                keys.push(WorkItem::Volume(name.name));
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.volumes.keys().chain(index.probes()).map(|name| ObjectName::new("", name)).collect(),
                Index::change_volume,
            ),
            // The kind has no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    fn forget_volume(&mut self, volume: &Volume) {
        for uid in claims_of(volume) {
            drop_from(&mut self.volumes_by_claim, &uid, &volume.name);
        }
        if let Some(claim) = reserved(volume) {
            drop_from(&mut self.reserved, claim, &volume.name);
        }
    }
}

/// Returns the claim for which a volume is reserved by name alone.
fn reserved(volume: &Volume) -> Option<&ObjectName> {
    let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_empty())?;
    (Some(reference.name.name.as_str()) != volume.id()).then_some(&reference.name)
}

/// Returns the UIDs of the claims that a volume names in any way.
fn claims_of(volume: &Volume) -> BTreeSet<String> {
    let by_name = volume.name.strip_prefix(names::PV_PREFIX).map(str::to_owned);
    let by_ref = volume.claim_ref.as_ref().map(|reference| reference.uid.clone());
    [volume.claim_uuid.clone(), by_name, by_ref].into_iter().flatten().filter(|uid| !uid.is_empty()).collect()
}
