//! Tests of which volumes the PV controller has seen.

use flex_contract::names;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::sync_probe::{PROBE_TIMEOUT, Step, decide};

use super::{ManualClock, timed};
use crate::state::index::{Index, Listed, WatchChange, WorkItem};

const PROBE: &str = "flex-sync-probe-1";

fn empty() -> Volume {
    Volume::from(&k8s_openapi::api::core::v1::PersistentVolume::default())
}

fn volume(uid: &str) -> Volume {
    let reference = flex_core::model::volume::Reference { name: ObjectName::new("team", uid), uid: Some(uid.into()) };
    Volume {
        name: names::pv_name(uid),
        uid: format!("v-{uid}"),
        claim_uid: Some(uid.into()),
        claim_ref: Some(reference),
        phase: "Pending".into(),
        ..empty()
    }
}

fn sync_probe(index: &Index, phase: &str) -> Volume {
    let instance = Some(index.facts.identity.instance.clone());
    Volume { name: PROBE.into(), uid: "m".into(), phase: phase.into(), instance, ..empty() }
}

/// Decides and records the next step, as the reconciler does.
fn next_probe(index: &mut Index, name: &str) -> Step {
    let step = decide(&index.observe_probes()).step;
    match step {
        Step::Create => index.begin_probe(name),
        Step::GiveUpProbe => index.give_up_probe(),
        Step::Nothing | Step::Wait(_) | Step::DeleteProbe(_) => {}
    }
    step
}

/// Returns three volumes, and the sync probe that was created after them.
fn asked() -> (ManualClock, Index) {
    let (hands, mut index) = timed();
    for uid in ["a", "b"] {
        assert!(!index.change_volume(WatchChange::Apply(volume(uid))).contains(&WorkItem::SyncProbe));
    }
    assert!(index.change_volume(WatchChange::Apply(volume("c"))).contains(&WorkItem::SyncProbe), "three are many");
    assert_eq!(next_probe(&mut index, PROBE), Step::Create);
    (hands, index)
}

/// The PV controller writes the phase of the current probe, and the orchestrator deletes the probe.
fn answered(index: &mut Index) -> Vec<WorkItem> {
    let keys = index.change_volume(WatchChange::Apply(sync_probe(index, "Available")));
    assert_eq!(next_probe(index, "flex-sync-probe-other"), Step::DeleteProbe(PROBE.into()));
    index.change_volume(WatchChange::Delete(ObjectName::new("", PROBE)));
    keys
}

fn synced(index: &Index) -> Vec<&'static str> {
    ["a", "b", "c", "d"].into_iter().filter(|uid| index.is_synced(&names::pv_name(uid))).collect()
}

#[test]
fn a_volume_is_synced_when_two_later_probes_have_their_phases() {
    let (_, mut index) = asked();
    index.change_volume(WatchChange::Apply(volume("d")));
    index.change_volume(WatchChange::Apply(sync_probe(&index, "Pending")));
    assert!(synced(&index).is_empty(), "the controller has not taken it up");
    assert!(answered(&mut index).contains(&WorkItem::SyncProbe));
    assert!(synced(&index).is_empty(), "one of them may have been in its hands");
    assert!(index.volume(PROBE).is_none(), "it is no volume of anybody");
    assert_eq!(next_probe(&mut index, PROBE), Step::Create);
    answered(&mut index);
    assert_eq!(synced(&index), ["a", "b", "c"], "of the last one, only the second one tells");
    assert_eq!(next_probe(&mut index, PROBE), Step::Create, "once more for that");
    answered(&mut index);
    assert_eq!(synced(&index), ["a", "b", "c", "d"]);
    assert_eq!(next_probe(&mut index, PROBE), Step::Nothing);
}

#[test]
fn a_volume_that_gets_another_claim_waits_again() {
    let (_, mut index) = asked();
    answered(&mut index);
    next_probe(&mut index, PROBE);
    let taken = Volume { claim_ref: volume("d").claim_ref, ..volume("a") };
    index.change_volume(WatchChange::Apply(taken));
    index.change_volume(WatchChange::Apply(Volume { uid: "new".into(), ..volume("b") }));
    let of_nobody = Volume { claim_ref: None, ..volume("d") };
    index.change_volume(WatchChange::Apply(of_nobody));
    answered(&mut index);
    assert_eq!(synced(&index), ["c"], "the others have changed");
    index.change_volume(WatchChange::Apply(Volume { phase: "Bound".into(), ..volume("c") }));
    assert!(synced(&index).is_empty(), "its phase says it");
}

#[test]
fn a_probe_without_phase_is_given_up_and_proves_nothing_later() {
    let (hands, mut index) = asked();
    hands.pass(PROBE_TIMEOUT);
    assert_eq!(next_probe(&mut index, "flex-sync-probe-2"), Step::GiveUpProbe);
    assert_eq!(next_probe(&mut index, "flex-sync-probe-2"), Step::Create, "they wait still");
    index.change_volume(WatchChange::Apply(sync_probe(&index, "Available")));
    assert_eq!(next_probe(&mut index, "flex-sync-probe-3"), Step::DeleteProbe(PROBE.into()));
    index.change_volume(WatchChange::Delete(ObjectName::new("", PROBE)));
    let second = |index: &Index| Volume { name: "flex-sync-probe-2".into(), ..sync_probe(index, "Available") };
    index.change_volume(WatchChange::Apply(second(&index)));
    assert!(synced(&index).is_empty(), "one has told, not two");
}

#[test]
fn a_new_term_begins_with_a_new_probe() {
    let (_, mut index) = asked();
    assert!(index.begin_term().items.contains(&WorkItem::SyncProbe));
    index.change_volume(WatchChange::Apply(sync_probe(&index, "Available")));
    let other = Volume { instance: Some("other".into()), ..sync_probe(&index, "Available") };
    index.change_volume(WatchChange::Apply(Volume { name: "flex-sync-probe-of-another".into(), ..other }));
    assert_eq!(next_probe(&mut index, "flex-sync-probe-2"), Step::DeleteProbe(PROBE.into()), "and not that of another");
    index.change_volume(WatchChange::Delete(ObjectName::new("", "pvc-c")));
    index.change_volume(WatchChange::Retain(Listed::none()));
    assert_eq!(next_probe(&mut index, "flex-sync-probe-2"), Step::Nothing, "nothing waits, and no marker is there");
}
