//! Volumes that the PV controller has seen, as sync probes have shown ([`crate::marker`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::names;

use super::{Index, WorkItem};
use crate::marker::{MIN_VOLUMES, Observed, Step, decide};
use crate::model::volume::Volume;

/// The number of consecutive sync probes that cover a volume. When the first probe gets its phase, the controller may
/// be working on an older state of the volume. It takes the volume up again after that probe, and before the next.
const MARKERS: u8 = 2;

/// The state of sync probes. It can be lost without harm, because new probes rebuild it.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Probes that exist and are not terminating: their UIDs by name.
    markers: BTreeMap<String, String>,
    /// The name of the current probe, and the time since when it is waited for.
    current: Option<(String, Duration)>,
    /// Volumes that existed before the current probe was created.
    before: BTreeSet<String>,
    /// Volumes that wait for probes, and the number of probes that have covered each.
    waiting: BTreeMap<String, u8>,
    /// Volumes that the PV controller has seen with their claims.
    known: BTreeSet<String>,
}

impl Known {
    fn forget(&mut self, volume: &str) {
        self.before.remove(volume);
        self.waiting.remove(volume);
        self.known.remove(volume);
    }

    /// Gives up the current probe.
    fn give_up(&mut self) {
        self.current = None;
        self.before.clear();
    }

    /// Checks whether enough volumes wait for a probe.
    fn are_many(&self) -> bool {
        self.waiting.len() >= MIN_VOLUMES || self.waiting.values().any(|told| *told > 0)
    }

    /// Records that the current probe has its phase. Returns the volumes that are known by that.
    fn tell(&mut self) -> Vec<String> {
        self.current = None;
        let mut known = Vec::new();
        for volume in std::mem::take(&mut self.before) {
            let Some(told) = self.waiting.get_mut(&volume) else { continue };
            *told += 1;
            if *told >= MARKERS {
                self.waiting.remove(&volume);
                self.known.insert(volume.clone());
                known.push(volume);
            }
        }
        known
    }
}

impl Index {
    /// Checks whether the volume is a sync probe of this orchestrator.
    pub(super) fn is_marker(&self, volume: &Volume) -> bool {
        volume.name.starts_with(names::MARKER_PREFIX) && volume.instance.as_ref() == Some(&self.identity.instance)
    }

    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    pub fn is_known(&self, volume: &str) -> bool {
        self.known.known.contains(volume)
    }

    /// Returns the names of all probes that are not terminating.
    pub(super) fn markers(&self) -> impl Iterator<Item = &String> {
        self.known.markers.keys()
    }

    /// Applies a change of a probe.
    pub(super) fn see_marker(&mut self, marker: &Volume) -> Vec<WorkItem> {
        let mut keys = vec![WorkItem::SyncProbe];
        match marker.deleting {
            true => self.known.markers.remove(&marker.name),
            false => self.known.markers.insert(marker.name.clone(), marker.uid.clone()),
        };
        let is_current = self.known.current.as_ref().is_some_and(|(name, _)| *name == marker.name);
        // The PV controller has written the phase.
        if is_current && !matches!(marker.phase.as_str(), "" | "Pending") {
            let known = self.known.tell();
            let volumes = known.iter().filter_map(|name| self.volumes.get(name));
            keys.extend(volumes.filter_map(|volume| self.claim_keys(volume.claim_uuid.as_deref()?)));
        }
        keys
    }

    /// Forgets a probe that is gone. The name may be that of another volume.
    pub(super) fn forget_marker(&mut self, name: &str) {
        self.known.markers.remove(name);
    }

    /// Applies a change of a volume. A volume with a claim waits for probes, until its phase shows that the controller
    /// has seen it.
    pub(super) fn see_known(&mut self, volume: &Volume, before: Option<&Volume>) -> Option<WorkItem> {
        let claimed = |volume: &Volume| {
            let reference = volume.claim_ref.as_ref().map(|reference| reference.uid.clone());
            reference.filter(|uid| volume.claim_uuid.as_ref() == Some(uid))
        };
        let (claim, bound) = (claimed(volume), matches!(volume.phase.as_str(), "Bound" | "Released" | "Failed"));
        let same = before.is_some_and(|before| before.uid == volume.uid && claimed(before) == claim);
        if bound || !same {
            self.known.forget(&volume.name);
        }
        if bound || same || claim.is_none() {
            return None;
        }
        self.known.waiting.insert(volume.name.clone(), 0);
        (self.known.current.is_none() && self.known.are_many()).then_some(WorkItem::SyncProbe)
    }

    pub(super) fn forget_known(&mut self, volume: &str) {
        self.known.forget(volume);
    }

    /// Forgets the current probe, because another replica leads and makes its own.
    pub(super) fn forget_current_marker(&mut self) {
        self.known.give_up();
    }

    /// Decides the next step of sync probes. A new probe would get this name.
    pub fn next_marker(&mut self, name: &str) -> Step {
        let known = &mut self.known;
        let current = known.current.as_ref();
        let others = || known.markers.keys().find(|marker| current.is_none_or(|(name, _)| name != *marker));
        let step = decide(&Observed {
            old: others().map(String::as_str),
            current: current.map(|(_, since)| self.clock.since(*since)),
            many: known.are_many(),
        });
        match &step {
            Step::Create => {
                known.current = Some((name.to_owned(), self.clock.passed()));
                known.before = known.waiting.keys().cloned().collect();
            }
            Step::GiveUp => known.give_up(),
            Step::Nothing | Step::Wait(_) | Step::DeleteProbe(_) => {}
        }
        step
    }

    /// Returns the UID of a probe.
    pub fn marker(&self, name: &str) -> Option<String> {
        self.known.markers.get(name).cloned()
    }

    /// Records that a probe was deleted, before its event arrives.
    pub fn marker_goes(&mut self, name: &str) {
        self.known.markers.remove(name);
    }

    /// Records that a probe was not created.
    pub fn marker_refused(&mut self) {
        self.known.give_up();
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
