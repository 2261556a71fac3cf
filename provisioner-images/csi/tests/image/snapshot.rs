//! Tests of snapshots that this project makes, and of copies that a driver makes slowly or says to have made already.

use csi_spec::csi::controller_service_capability::rpc::Type;
use flex_contract::snapshot_handle::LONGEST;
use scripted_csi::{Act, Options};
use serde_json::json;
use std::time::Duration;
use tonic::Code;

use crate::run::{HandedBack, ONE, Run, Stage, TWO};

const DAY: &str = "5a9c0000-0000-4000-8000-000000000003";

/// Makes a volume with a snapshot. Returns the runs for the snapshot and for a claim that is restored from it.
fn snapshotted(stage: &Stage) -> (Run<'_>, Run<'_>) {
    stage.run(ONE).provision().well();
    let snapshot = stage.run(ONE).of_volume().with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    let handle = snapshot.run("snapshot").well().handle();
    // A delete-snapshot run gets no source.
    let snapshot = snapshot.with("SNAPSHOT_HANDLE", &handle).with("VOLUME_SOURCE", "");
    let restored = stage.run(TWO).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE).with("SNAPSHOT_HANDLE", &handle);
    (snapshot, restored)
}

/// Returns how many calls the driver has got since the last question.
fn calls(stage: &Stage, of: &str) -> usize {
    stage.driver.calls().into_iter().filter(|(call, _)| *call == of).count()
}

#[test]
fn a_lost_snapshot_is_never_made_again() {
    let stage = Stage::new(Options::default());
    let (snapshot, restored) = snapshotted(&stage);
    stage.driver.loses_snapshots();
    calls(&stage, "");
    restored.provision().failed(65, "the driver has lost the snapshot");
    assert_eq!((stage.driver.volumes().len(), stage.driver.snapshots().len()), (1, 0));
    assert!(stage.api.volume(TWO).is_none());
    // Another data source or none at all fills no claim that is for this snapshot.
    restored.clone().with("SNAPSHOT_HANDLE", "").provision().failed(65, "has not said how the driver calls it");
    for restored in [restored.clone(), restored.with("SNAPSHOT_HANDLE", "")] {
        restored.run("delete").well();
        assert_eq!(stage.driver.volumes().len(), 1, "the source alone");
    }
    snapshot.run("delete-snapshot").well();
    assert_eq!(calls(&stage, "CreateSnapshot"), 0);
}

#[test]
fn a_snapshot_outlives_its_volume() {
    let stage = Stage::new(Options::default());
    let (snapshot, restored) = snapshotted(&stage);
    stage.run(ONE).of_volume().run("delete").well();
    stage.api.remove_volume(ONE);
    assert_eq!(stage.driver.volumes().len(), 0);
    restored.provision().well();
    assert!(stage.made(TWO).volume.content_source.is_some());
    // An attempt without a report is found, too.
    stage.api.remove_volume(TWO);
    restored.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
    snapshot.run("delete-snapshot").well();
    snapshot.run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
    // A claim that was refused because of its snapshot has nothing to delete.
    restored.provision().failed(65, "the driver has lost the snapshot");
    restored.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
}

/// The VolumeSnapshot is deleted before its run has ended.
#[test]
fn an_unfinished_snapshot_is_deleted_as_long_as_its_volume_exists() {
    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    let snapshot = stage.run(ONE).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    stage.driver.acts("CreateSnapshot", [Act::Lose(Code::Internal)]);
    snapshot.clone().of_volume().run("snapshot").failed(75, "INTERNAL");
    assert_eq!(stage.driver.snapshots().len(), 1);
    snapshot.run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
    stage.api.remove_volume(ONE);
    snapshot.run("delete-snapshot").failed(75, "abandon");
    assert_eq!(stage.driver.snapshots().len(), 0);
}

#[test]
fn a_handle_that_cannot_be_handed_back_makes_no_snapshot_ready() {
    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    let snapshot = stage.run(ONE).of_volume().with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    stage.driver.calls_snapshots("a\nb");
    snapshot.run("snapshot").failed(65, "cannot be handed back");
}

#[test]
fn the_longest_id_reaches_later_runs_and_a_longer_one_fails_the_run() {
    let stage = Stage::new(Options::default());
    stage.driver.calls_snapshots(&"x".repeat(LONGEST));
    let (snapshot, restored) = snapshotted(&stage);
    restored.provision().well();
    snapshot.run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
    stage.driver.calls_snapshots(&"x".repeat(LONGEST + 1));
    let snapshot = snapshot.with("SNAPSHOT_HANDLE", "");
    snapshot.clone().of_volume().run("snapshot").failed(65, "has 2049 bytes, and no run can get one of more than 2048");
    assert_eq!(stage.driver.snapshots().len(), 1);
    snapshot.run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
}

/// No attempt has made the snapshot, and the VolumeSnapshot is deleted.
#[test]
fn a_snapshot_that_the_driver_refused_each_time_has_nothing_to_delete() {
    let stage = Stage::new(Options::default().without(Type::CreateDeleteSnapshot));
    stage.run(ONE).provision().well();
    let snapshot = stage.run(ONE).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    snapshot.clone().of_volume().run("snapshot").failed(78, "cannot make snapshots");
    snapshot.run("delete-snapshot").well();
    snapshot.with("SNAPSHOT_HANDLE", "snap-1").run("delete-snapshot").failed(78, "cannot delete snapshots");

    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    let snapshot = stage.run(ONE).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    for (code, exit) in [(Code::InvalidArgument, 65), (Code::OutOfRange, 65), (Code::NotFound, 75)] {
        stage.driver.acts("CreateSnapshot", vec![Act::Fail(code); 2]);
        snapshot.clone().of_volume().run("snapshot").failed(exit, "as scripted");
        snapshot.run("delete-snapshot").well();
    }
    // An unknown state does not count as no snapshot.
    for (code, exit) in
        [(Code::Internal, 75), (Code::AlreadyExists, 65), (Code::PermissionDenied, 77), (Code::ResourceExhausted, 75)]
    {
        stage.driver.acts("CreateSnapshot", [Act::Fail(code)]);
        snapshot.run("delete-snapshot").failed(exit, "as scripted");
    }
    // The first call may still make a snapshot.
    stage.driver.acts("CreateSnapshot", [Act::Fail(Code::Unavailable), Act::Fail(Code::InvalidArgument)]);
    snapshot.run("delete-snapshot").failed(75, "as scripted");
    assert_eq!(calls(&stage, "DeleteSnapshot"), 0);
}

/// Drivers refuse a request without the Secret that they need, whether they have the snapshot or not.
#[test]
fn a_refusal_without_the_secret_of_the_attempts_proves_nothing() {
    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    let snapshot = stage
        .run(ONE)
        .with("SNAPSHOT_ID", DAY)
        .with("SNAPSHOT_OF", ONE)
        .parameter("csi.storage.k8s.io/secret-name", "key")
        .parameter("csi.storage.k8s.io/secret-namespace", "team");
    stage.driver.acts("CreateSnapshot", [Act::Fail(Code::InvalidArgument)]);
    snapshot.run("delete-snapshot").failed(75, "the Secret for the driver is gone");
    stage.api.put_secret("team", "key", json!({ "a": "Yg==" }));
    stage.driver.acts("CreateSnapshot", [Act::Fail(Code::InvalidArgument)]);
    snapshot.run("delete-snapshot").well();
}

/// A content that is created again with the driver's own id has the record of the snapshot, too.
#[test]
fn a_snapshot_is_known_by_the_id_of_the_driver_whoever_has_written_it() {
    let stage = Stage::new(Options::default());
    snapshotted(&stage);
    let id = stage.driver.snapshots()[&format!("snapshot-{DAY}")].snapshot_id.clone();
    let again = |of: &str| stage.run(of).with("SNAPSHOT_ID", &id).with("SNAPSHOT_OF", ONE).with("SNAPSHOT_HANDLE", &id);
    calls(&stage, "");
    again(TWO).provision().well();
    assert!(stage.made(TWO).volume.content_source.is_some());
    again(ONE).run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
    assert_eq!(calls(&stage, "CreateSnapshot"), 0);
}

#[test]
fn a_slow_copy_is_one_call() {
    let stage = Stage::new(Options::default());
    stage.run(ONE).provision().well();
    let source = json!({ "csi": stage.pv(ONE)["spec"]["csi"] }).to_string();
    let copy = stage.run(TWO).with("CLONE_OF", ONE).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    let copy = copy.parameter("csi-timeout", "1s");
    calls(&stage, "");
    stage.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(3))]);
    copy.provision().well();
    assert_eq!(calls(&stage, "CreateVolume"), 1);
    // An empty volume is asked for again.
    stage.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(3))]);
    stage.run(DAY).parameter("csi-timeout", "1s").provision().well();
    assert!(calls(&stage, "CreateVolume") >= 2);
}

#[test]
fn a_copy_that_another_request_has_made_is_replaced_unless_somebody_has_it() {
    let stage = Stage::new(Options::default());
    stage.driver.forgets_sources();
    let (_, restored) = snapshotted(&stage);
    stage.driver.acts("CreateVolume", [Act::Lose(Code::Internal)]);
    restored.provision().failed(75, "INTERNAL");
    let first = stage.made(TWO).volume.volume_id;
    restored.provision().well();
    assert_ne!(stage.made(TWO).volume.volume_id, first, "nobody knows whether the first is whole");
    stage.nothing_is_orphaned();
    let second = stage.made(TWO).volume.volume_id;
    restored.provision().well();
    assert_eq!(stage.made(TWO).volume.volume_id, second, "its PersistentVolume exists");
    stage.nothing_is_orphaned();
}
