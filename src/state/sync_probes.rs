//! Volumes that the PV controller has seen, as sync probes have shown ([`flex_core::sync_probe`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flex_contract::names;
use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::Volume;
use flex_core::sync_probe::{MIN_VOLUMES, Observed};

use crate::state::facts::Facts;
use crate::state::watch_change::Changed;

/// The number of consecutive sync probes that cover a volume. When the first probe gets its phase, the controller may
/// be working on an older state of the volume. It takes the volume up again after that probe, and before the next.
const PROBES_NEEDED: u8 = 2;

/// The number of waits that are kept until somebody counts them. A replica that does not lead counts none.
const MAX_WAITED: usize = 10_000;

/// The state of sync probes. It can be lost without harm, because new probes rebuild it.
#[derive(Debug, Default)]
pub struct SyncProbes {
    /// Probes that exist and are not terminating: their UIDs by name.
    probes: BTreeMap<String, String>,
    /// The current probe.
    current: Option<CurrentProbe>,
    /// Volumes that existed before the current probe was created.
    before: BTreeSet<String>,
    /// Volumes that the PV controller has not shown to have seen with their claims.
    waiting: BTreeMap<String, Waiting>,
    /// Volumes that the PV controller has seen with their claims.
    synced: BTreeSet<String>,
    /// How long each volume waited, until its claim is counted as bound.
    waited: BTreeMap<String, Duration>,
}

/// The probe that is waited for.
#[derive(Clone, Debug)]
struct CurrentProbe {
    name: String,
    /// The time since when it is waited for.
    since: Duration,
}

/// A volume that waits for the PV controller.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// The time since when it waits.
    since: Duration,
    /// The number of probes that have covered it.
    probes: u8,
}

/// Checks whether the volume is a sync probe of this orchestrator.
pub fn is_probe(volume: &Volume, facts: &Facts) -> bool {
    volume.name.starts_with(names::PROBE_PREFIX) && volume.instance.as_ref() == Some(&facts.identity.instance)
}

impl SyncProbes {
    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    pub fn is_synced(&self, volume: &str) -> bool {
        self.synced.contains(volume)
    }

    /// Returns the names of all probes that are not terminating.
    pub fn probes(&self) -> impl Iterator<Item = &String> {
        self.probes.keys()
    }

    /// Returns the UID of a probe.
    pub fn uid_of(&self, probe: &str) -> Option<&String> {
        self.probes.get(probe)
    }

    /// Observes the sync probes.
    pub fn observe(&self, now: Duration) -> Observed<'_> {
        let current = self.current.as_ref();
        let old = self.probes.keys().find(|probe| current.is_none_or(|current| current.name != **probe));
        Observed {
            old: old.map(String::as_str),
            current: current.map(|current| now.saturating_sub(current.since)),
            many: self.is_probe_worthwhile(),
        }
    }

    /// Checks whether a probe will be worthwhile when one more volume waits.
    pub fn many_wait(&self) -> bool {
        self.current.is_some() || self.waiting.len() + 1 >= MIN_VOLUMES
    }

    /// Checks whether enough volumes wait for a probe.
    fn is_probe_worthwhile(&self) -> bool {
        self.waiting.len() >= MIN_VOLUMES || self.waiting.values().any(|waiting| waiting.probes > 0)
    }

    /// Records that a probe with this name is about to be created. It is the current one.
    pub fn begin(&mut self, name: &str, now: Duration) {
        self.current = Some(CurrentProbe { name: name.to_owned(), since: now });
        self.before = self.waiting.keys().cloned().collect();
    }

    /// Gives up the current probe: it was not created, has no phase in time, or another replica leads now.
    pub fn give_up(&mut self) {
        self.current = None;
        self.before.clear();
    }

    /// Applies a change of a probe. Returns the volumes that are synced by that.
    pub fn on_probe(&mut self, probe: &Volume, now: Duration) -> Vec<String> {
        match probe.terminating {
            true => self.probes.remove(&probe.name),
            false => self.probes.insert(probe.name.clone(), probe.uid.clone()),
        };
        let is_current = self.current.as_ref().is_some_and(|current| current.name == probe.name);
        // The PV controller has written the phase.
        let answers = is_current && !matches!(probe.phase, VolumePhase::Unset | VolumePhase::Pending);
        if answers { self.on_answer(now) } else { Vec::new() }
    }

    /// Records that the current probe has its phase. Returns the volumes that are synced by that.
    fn on_answer(&mut self, now: Duration) -> Vec<String> {
        self.current = None;
        let mut synced = Vec::new();
        for volume in std::mem::take(&mut self.before) {
            let Some(waiting) = self.waiting.get_mut(&volume) else { continue };
            waiting.probes += 1;
            if waiting.probes >= PROBES_NEEDED {
                self.end_wait(&volume, now);
                self.synced.insert(volume.clone());
                synced.push(volume);
            }
        }
        synced
    }

    /// Forgets a probe that is gone, or that this process has deleted. The name may be that of another volume.
    pub fn forget_probe(&mut self, name: &str) {
        self.probes.remove(name);
    }

    /// Applies a change of a volume. A volume with a claim waits for probes, until its phase shows that the controller
    /// has seen it. Returns whether a probe is due.
    pub fn on_volume(&mut self, changed: &Changed<Volume>, now: Duration) -> bool {
        let Some(volume) = &changed.now else {
            self.forget(&changed.last().name);
            return false;
        };
        let claimed = |volume: &Volume| {
            let uid = volume.claim_ref_uid().filter(|uid| volume.claim_uid.as_deref() == Some(uid));
            uid.map(str::to_owned)
        };
        let (claim, bound) = (claimed(volume), volume.phase == VolumePhase::Bound || volume.phase.is_claim_gone());
        let before = changed.before.as_ref();
        let same = before.is_some_and(|before| before.uid == volume.uid && claimed(before) == claim);
        if bound && same {
            self.end_wait(&volume.name, now);
            self.synced.remove(&volume.name);
        } else if bound || !same {
            self.forget(&volume.name);
        }
        if bound || same || claim.is_none() {
            return false;
        }
        self.waiting.insert(volume.name.clone(), Waiting { since: now, probes: 0 });
        self.current.is_none() && self.is_probe_worthwhile()
    }

    /// Returns how long the volume waited for the PV controller.
    pub fn waited(&self, volume: &str) -> Option<Duration> {
        self.waited.get(volume).copied()
    }

    /// Returns how long the volume waited for the PV controller, once.
    pub fn take_waited(&mut self, volume: &str) -> Option<Duration> {
        self.waited.remove(volume)
    }

    fn end_wait(&mut self, volume: &str, now: Duration) {
        self.before.remove(volume);
        if let Some(waiting) = self.waiting.remove(volume) {
            self.waited.insert(volume.to_owned(), now.saturating_sub(waiting.since));
            if self.waited.len() > MAX_WAITED {
                self.waited.pop_first();
            }
        }
    }

    fn forget(&mut self, volume: &str) {
        self.before.remove(volume);
        self.waiting.remove(volume);
        self.synced.remove(volume);
        self.waited.remove(volume);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flex_core::model::volume::Reference;
    use flex_core::object::ObjectName;
    use proptest::prelude::*;

    use super::*;

    fn empty(name: &str) -> Volume {
        let volume = Volume::from(&k8s_openapi::api::core::v1::PersistentVolume::default());
        Volume { name: name.to_owned(), ..volume }
    }

    fn added(uid: &str) -> Changed<Volume> {
        let reference = Reference { name: ObjectName::new("team", uid), uid: Some(uid.into()) };
        let volume = Volume { claim_uid: Some(uid.into()), claim_ref: Some(reference), ..empty(uid) };
        Changed { before: None, now: Some(Arc::new(volume)) }
    }

    #[test]
    fn a_volume_needs_two_probes_that_were_created_after_it() {
        let mut sync = SyncProbes::default();
        let dues: Vec<bool> =
            (1..=MIN_VOLUMES).map(|number| sync.on_volume(&added(&format!("pv-{number}")), Duration::ZERO)).collect();
        assert!(dues.iter().take(MIN_VOLUMES - 1).all(|due| !due) && dues[MIN_VOLUMES - 1]);
        for probe in ["first", "second"] {
            assert!(sync.observe(Duration::ZERO).many && !sync.is_synced("pv-1"));
            sync.begin(probe, Duration::ZERO);
            assert!(
                sync.on_probe(&empty(probe), Duration::ZERO).is_empty(),
                "the controller has not written its phase"
            );
            let synced = sync.on_probe(&Volume { phase: "Available".into(), ..empty(probe) }, Duration::ZERO);
            assert_eq!(synced.len(), if probe == "second" { MIN_VOLUMES } else { 0 });
            assert_eq!(sync.observe(Duration::ZERO).old, Some(probe), "it has served its purpose");
            sync.forget_probe(probe);
        }
        assert!(sync.is_synced("pv-1") && !sync.observe(Duration::ZERO).many);
        sync.on_volume(&Changed::gone(Arc::new(empty("pv-1"))), Duration::ZERO);
        assert!(!sync.is_synced("pv-1"));
    }

    #[test]
    fn a_change_of_a_waiting_volume_is_counted_once() {
        let mut sync = SyncProbes::default();
        let (first, added) = (added("pv-1"), added("pv-2"));
        let volume = first.now.clone().unwrap();
        sync.on_volume(&first, Duration::ZERO);
        sync.on_volume(&added, Duration::ZERO);
        sync.begin("probe", Duration::ZERO);
        sync.on_probe(&Volume { phase: "Available".into(), ..empty("probe") }, Duration::ZERO);
        let same = || Changed { before: Some(volume.clone()), now: Some(volume.clone()) };
        assert!(!sync.on_volume(&same(), Duration::ZERO), "the volume keeps its first probe");
        sync.begin("probe-2", Duration::ZERO);
        let answer = Volume { phase: "Available".into(), ..empty("probe-2") };
        assert_eq!(sync.on_probe(&answer, Duration::ZERO), ["pv-1", "pv-2"]);
        assert_eq!(sync.on_probe(&answer, Duration::ZERO), [""; 0], "a probe answers once");
        let bound = Volume { phase: "Bound".into(), ..(*volume).clone() };
        sync.on_volume(&Changed { before: Some(volume.clone()), now: Some(Arc::new(bound)) }, Duration::ZERO);
        assert!(!sync.is_synced("pv-1") && sync.is_synced("pv-2"), "the phase says it");
    }

    #[test]
    fn the_time_of_a_wait_ends_with_what_the_controller_shows_first() {
        let (mut sync, seconds) = (SyncProbes::default(), Duration::from_secs);
        let bound = |added: &Changed<Volume>| {
            let before = added.now.clone();
            let now = before.as_deref().map(|volume| Volume { phase: VolumePhase::Bound, ..volume.clone() });
            Changed { before, now: now.map(Arc::new) }
        };
        for (name, at) in [("pv-1", 1), ("pv-2", 2), ("pv-3", 3), ("pv-4", 4)] {
            sync.on_volume(&added(name), seconds(at));
        }
        sync.on_volume(&bound(&added("pv-1")), seconds(6));
        for (probe, at) in [("first", 7), ("second", 8)] {
            sync.begin(probe, seconds(at));
            sync.on_probe(&Volume { phase: "Available".into(), ..empty(probe) }, seconds(at));
        }
        sync.on_volume(&bound(&added("pv-2")), seconds(9));
        sync.on_volume(&Changed::gone(added("pv-4").now.unwrap()), seconds(9));
        let waited = ["pv-1", "pv-2", "pv-3", "pv-4"].map(|name| sync.take_waited(name));
        assert_eq!(waited, [Some(seconds(5)), Some(seconds(6)), Some(seconds(5)), None], "pv-4 is gone");
        assert_eq!(sync.take_waited("pv-1"), None, "each time is returned once");
    }

    #[test]
    fn the_waits_that_nobody_counts_take_bounded_memory() {
        let mut sync = SyncProbes::default();
        for number in 0..=MAX_WAITED {
            let name = format!("pv-{number:06}");
            sync.on_volume(&added(&name), Duration::ZERO);
            sync.end_wait(&name, Duration::ZERO);
        }
        assert_eq!(sync.waited.len(), MAX_WAITED);
    }

    #[test]
    fn a_probe_does_not_cover_a_volume_that_was_created_again() {
        let mut sync = SyncProbes::default();
        let answer = |probe: &str| Volume { phase: "Available".into(), ..empty(probe) };
        for probe in ["probe-1", "probe-2"] {
            sync.on_volume(&added("pv-1"), Duration::ZERO);
            sync.begin(probe, Duration::ZERO);
            sync.on_volume(&Changed::gone(added("pv-1").now.unwrap()), Duration::ZERO);
            sync.on_volume(&added("pv-1"), Duration::ZERO);
            assert_eq!(sync.on_probe(&answer(probe), Duration::ZERO), [""; 0], "the volume is younger than {probe}");
        }
        for (probe, is_synced) in [("probe-3", false), ("probe-4", true)] {
            sync.begin(probe, Duration::ZERO);
            sync.on_probe(&answer(probe), Duration::ZERO);
            assert_eq!(sync.is_synced("pv-1"), is_synced, "{probe}");
        }
    }

    proptest! {
        /// A volume is synced exactly if it has existed during two probes from their creation to their answer.
        #[test]
        fn a_volume_is_synced_after_two_whole_probes(operations in prop::collection::vec((0..2_usize, 0..5_u8), 0..80)) {
            let mut sync = SyncProbes::default();
            // The number of whole probes of each volume, and whether the current probe covers the volume.
            let mut volumes = [None::<(u8, bool)>; 2];
            let (mut current, mut probes) = (None::<String>, 0);
            for (number, operation) in operations {
                let change = added(&format!("pv-{number}"));
                match operation {
                    0 => {
                        let before = volumes[number].and(change.now.clone());
                        sync.on_volume(&Changed { before, ..change }, Duration::ZERO);
                        volumes[number].get_or_insert((0, false));
                    }
                    1 => {
                        sync.on_volume(&Changed::gone(change.now.unwrap()), Duration::ZERO);
                        volumes[number] = None;
                    }
                    2 => {
                        probes += 1;
                        let probe = format!("probe-{probes}");
                        sync.begin(&probe, Duration::ZERO);
                        current = Some(probe);
                        volumes.iter_mut().flatten().for_each(|volume| volume.1 = true);
                    }
                    3 => {
                        if let Some(probe) = current.take() {
                            sync.on_probe(&Volume { phase: "Available".into(), ..empty(&probe) }, Duration::ZERO);
                            volumes.iter_mut().flatten().for_each(|volume| volume.0 += u8::from(volume.1));
                        }
                    }
                    _ => {
                        sync.give_up();
                        current = None;
                    }
                }
                for (number, volume) in volumes.iter_mut().enumerate() {
                    if let Some(volume) = volume.as_mut().filter(|_| current.is_none()) {
                        volume.1 = false;
                    }
                    let expected = volume.is_some_and(|(whole, _)| whole >= 2);
                    prop_assert_eq!(sync.is_synced(&format!("pv-{number}")), expected, "volume {}", number);
                }
            }
        }
    }
}
