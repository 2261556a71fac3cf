//! Volumes that the PV controller has seen, as sync probes have shown ([`crate::sync_probe`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flex_contract::names;

use super::{Index, WorkItem};
use crate::model::volume::Volume;
use crate::sync_probe::{MIN_VOLUMES, Observed};

/// The number of consecutive sync probes that cover a volume. When the first probe gets its phase, the controller may
/// be working on an older state of the volume. It takes the volume up again after that probe, and before the next.
const PROBES_NEEDED: u8 = 2;

/// The state of sync probes. It can be lost without harm, because new probes rebuild it.
#[derive(Debug, Default)]
pub(super) struct PvSync {
    /// Probes that exist and are not terminating: their UIDs by name.
    probes: BTreeMap<String, String>,
    /// The name of the current probe, and the time since when it is waited for.
    current: Option<(String, Duration)>,
    /// Volumes that existed before the current probe was created.
    before: BTreeSet<String>,
    /// Volumes that wait for probes, and the number of probes that have covered each.
    waiting: BTreeMap<String, u8>,
    /// Volumes that the PV controller has seen with their claims.
    synced: BTreeSet<String>,
}

impl PvSync {
    fn forget(&mut self, volume: &str) {
        self.before.remove(volume);
        self.waiting.remove(volume);
        self.synced.remove(volume);
    }

    /// Gives up the current probe.
    fn give_up(&mut self) {
        self.current = None;
        self.before.clear();
    }

    /// Checks whether enough volumes wait for a probe.
    fn is_probe_worthwhile(&self) -> bool {
        self.waiting.len() >= MIN_VOLUMES || self.waiting.values().any(|count| *count > 0)
    }

    /// Records that the current probe has its phase. Returns the volumes that are known by that.
    fn on_answer(&mut self) -> Vec<String> {
        self.current = None;
        let mut synced = Vec::new();
        for volume in std::mem::take(&mut self.before) {
            let Some(count) = self.waiting.get_mut(&volume) else { continue };
            *count += 1;
            if *count >= PROBES_NEEDED {
                self.waiting.remove(&volume);
                self.synced.insert(volume.clone());
                synced.push(volume);
            }
        }
        synced
    }
}

impl Index {
    /// Checks whether the volume is a sync probe of this orchestrator.
    pub(super) fn is_probe(&self, volume: &Volume) -> bool {
        volume.name.starts_with(names::PROBE_PREFIX) && volume.instance.as_ref() == Some(&self.identity.instance)
    }

    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    pub fn is_synced(&self, volume: &str) -> bool {
        self.pv_sync.synced.contains(volume)
    }

    /// Returns the names of all probes that are not terminating.
    pub(super) fn probes(&self) -> impl Iterator<Item = &String> {
        self.pv_sync.probes.keys()
    }

    /// Applies a change of a probe.
    pub(super) fn on_probe(&mut self, probe: &Volume) -> Vec<WorkItem> {
        let mut keys = vec![WorkItem::SyncProbe];
        match probe.deleting {
            true => self.pv_sync.probes.remove(&probe.name),
            false => self.pv_sync.probes.insert(probe.name.clone(), probe.uid.clone()),
        };
        let is_current = self.pv_sync.current.as_ref().is_some_and(|(name, _)| *name == probe.name);
        // The PV controller has written the phase.
        if is_current && !matches!(probe.phase.as_str(), "" | "Pending") {
            let synced = self.pv_sync.on_answer();
            let volumes = synced.iter().filter_map(|name| self.volumes.get(name));
            keys.extend(volumes.filter_map(|volume| self.claim_keys(volume.claim_uuid.as_deref()?)));
        }
        keys
    }

    /// Forgets a probe that is gone. The name may be that of another volume.
    pub(super) fn forget_probe(&mut self, name: &str) {
        self.pv_sync.probes.remove(name);
    }

    /// Applies a change of a volume. A volume with a claim waits for probes, until its phase shows that the controller
    /// has seen it.
    pub(super) fn on_volume_sync(&mut self, volume: &Volume, before: Option<&Volume>) -> Option<WorkItem> {
        let claimed = |volume: &Volume| {
            let reference = volume.claim_ref.as_ref().map(|reference| reference.uid.clone());
            reference.filter(|uid| volume.claim_uuid.as_ref() == Some(uid))
        };
        let (claim, bound) = (claimed(volume), matches!(volume.phase.as_str(), "Bound" | "Released" | "Failed"));
        let same = before.is_some_and(|before| before.uid == volume.uid && claimed(before) == claim);
        if bound || !same {
            self.pv_sync.forget(&volume.name);
        }
        if bound || same || claim.is_none() {
            return None;
        }
        self.pv_sync.waiting.insert(volume.name.clone(), 0);
        (self.pv_sync.current.is_none() && self.pv_sync.is_probe_worthwhile()).then_some(WorkItem::SyncProbe)
    }

    pub(super) fn forget_synced(&mut self, volume: &str) {
        self.pv_sync.forget(volume);
    }

    /// Forgets the current probe, because another replica leads and makes its own.
    pub(super) fn forget_current_probe(&mut self) {
        self.pv_sync.give_up();
    }

    /// Observes the sync probes.
    pub fn observe_probes(&self) -> Observed<'_> {
        let synced = &self.pv_sync;
        let current = synced.current.as_ref();
        Observed {
            old: synced.probes.keys().find(|probe| current.is_none_or(|(name, _)| name != *probe)).map(String::as_str),
            current: current.map(|(_, since)| self.clock.since(*since)),
            many: synced.is_probe_worthwhile(),
        }
    }

    /// Records that a probe with this name is about to be created. It is the current one.
    pub fn begin_probe(&mut self, name: &str) {
        self.pv_sync.current = Some((name.to_owned(), self.clock.passed()));
        self.pv_sync.before = self.pv_sync.waiting.keys().cloned().collect();
    }

    /// Gives up the current probe, because it was not created, or has no phase in time.
    pub fn give_up_probe(&mut self) {
        self.pv_sync.give_up();
    }

    /// Returns the UID of a probe.
    pub fn sync_probe(&self, name: &str) -> Option<String> {
        self.pv_sync.probes.get(name).cloned()
    }

    /// Records that a probe was deleted, before its event arrives.
    pub fn probe_deleted(&mut self, name: &str) {
        self.pv_sync.probes.remove(name);
    }
}

#[cfg(test)]
#[path = "pv_sync_tests.rs"]
mod tests;
