//! Tests of claims from snapshots: they wake when the cluster serves snapshots.

use flex_core::model::data_source::DataSource;

use super::*;

#[test]
fn claims_from_snapshots_wake_when_the_cluster_begins_to_serve_snapshots() {
    let mut index = index();
    let restored = |name: &str| {
        let source = Some(DataSource::Snapshot(super::name("monday")));
        Claim { data_source: source, ..shared_claim("team", name, false) }
    };
    let done = Claim { bind_completed: true, volume_name: Some("pvc-done".into()), ..restored("done") };
    for claim in [restored("waits"), done, shared_claim("team", "plain", false)] {
        index.change_claim(WatchChange::Apply(claim));
    }
    let woken = [WorkItem::Claim(name("waits"))];
    let snapshots = ["VolumeSnapshot", "VolumeSnapshotContent"];
    assert!(index.serves_snapshots(), "nothing else is known");
    assert_eq!(index.note_snapshot_kind(snapshots[0], true), []);
    for kind in snapshots {
        assert_eq!(index.note_snapshot_kind(kind, false), woken);
        assert_eq!(index.note_snapshot_kind(kind, false), [], "nothing changed");
    }
    assert_eq!(index.note_snapshot_kind(snapshots[0], true), woken);
    assert!(!index.serves_snapshots(), "without their contents nothing is restored");
    assert_eq!(index.note_snapshot_kind(snapshots[1], true), woken);
    assert!(index.serves_snapshots());
}
