//! Which volumes the PV controller knows, as markers have shown ([`crate::marker`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::names;

use super::{Index, Key};
use crate::marker::{MANY, Observed, Step, decide};
use crate::volume::Volume;

/// So many markers, one after the other, tell of a volume. The controller may have it in hand as it was before when the first
/// one comes, and takes it up anew behind that, but before the next one.
const MARKERS: u8 = 2;

/// What is known of it. Nothing is lost with it: markers tell it anew.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Markers that are there, and not going: their UIDs by their names.
    markers: BTreeMap<String, String>,
    /// The name of the one that is waited for, and since when.
    current: Option<(String, Duration)>,
    /// Volumes that were there before the current marker was created.
    before: BTreeSet<String>,
    /// Volumes that wait to be known, and how many markers have told of them.
    waiting: BTreeMap<String, u8>,
    /// Volumes that the PV controller knows as their claims'.
    known: BTreeSet<String>,
}

impl Known {
    fn forget(&mut self, volume: &str) {
        self.before.remove(volume);
        self.waiting.remove(volume);
        self.known.remove(volume);
    }

    /// The current marker tells nothing any more.
    fn give_up(&mut self) {
        self.current = None;
        self.before.clear();
    }

    /// So many volumes are worth a marker.
    fn are_many(&self) -> bool {
        self.waiting.len() >= MANY || self.waiting.values().any(|told| *told > 0)
    }

    /// The current marker has told. Returns the volumes that are known by that.
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
    /// The volume is a marker of this orchestrator.
    pub(super) fn is_marker(&self, volume: &Volume) -> bool {
        volume.name.starts_with(names::MARKER_PREFIX) && volume.instance.as_ref() == Some(&self.identity.instance)
    }

    /// The PV controller knows the volume as that of the claim in its claimRef.
    pub fn is_known(&self, volume: &str) -> bool {
        self.known.known.contains(volume)
    }

    /// The names of all markers that are not going.
    pub(super) fn markers(&self) -> impl Iterator<Item = &String> {
        self.known.markers.keys()
    }

    /// A marker has changed.
    pub(super) fn see_marker(&mut self, marker: &Volume) -> Vec<Key> {
        let mut keys = vec![Key::Markers];
        match marker.deleting {
            true => self.known.markers.remove(&marker.name),
            false => self.known.markers.insert(marker.name.clone(), marker.uid.clone()),
        };
        let is_current = self.known.current.as_ref().is_some_and(|(name, _)| *name == marker.name);
        // The PV controller writes it.
        if is_current && !matches!(marker.phase.as_str(), "" | "Pending") {
            let known = self.known.tell();
            let volumes = known.iter().filter_map(|name| self.volumes.get(name));
            keys.extend(volumes.filter_map(|volume| self.claim_keys(volume.claim_uuid.as_deref()?)));
        }
        keys
    }

    /// What may have been a marker is gone.
    pub(super) fn forget_marker(&mut self, name: &str) {
        self.known.markers.remove(name);
    }

    /// A volume has changed. From when it is a claim's it waits to be known as such, until its phase says it.
    pub(super) fn see_known(&mut self, volume: &Volume, before: Option<&Volume>) -> Option<Key> {
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
        (self.known.current.is_none() && self.known.are_many()).then_some(Key::Markers)
    }

    pub(super) fn forget_known(&mut self, volume: &str) {
        self.known.forget(volume);
    }

    /// Another leads from now on: its markers are its own.
    pub(super) fn forget_current_marker(&mut self) {
        self.known.give_up();
    }

    /// What is to be done about markers. `name` would be that of the next one.
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
            Step::Nothing | Step::Wait(_) | Step::Remove(_) => {}
        }
        step
    }

    /// The UID of a marker.
    pub fn marker(&self, name: &str) -> Option<String> {
        self.known.markers.get(name).cloned()
    }

    /// It was told to go; its event comes.
    pub fn marker_goes(&mut self, name: &str) {
        self.known.markers.remove(name);
    }

    /// It was not created.
    pub fn marker_refused(&mut self) {
        self.known.give_up();
    }
}

#[cfg(test)]
#[path = "known_tests.rs"]
mod tests;
