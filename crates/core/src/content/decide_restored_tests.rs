//! Contents that a backup tool may have created again, and the ids of their snapshots.

use super::*;

/// Returns a content as a backup tool creates it again: the record names the content that was saved.
fn copied(mut world: World) -> World {
    world.content.uid = "copy".into();
    world
}

/// Returns a content with a record of an earlier version, which names no content.
fn of_earlier_version(mut world: World) -> World {
    let record = SnapshotProvenance { content_uid: None, ..provenance() };
    world.content.provenance = Some(serde_json::json!(record).to_string());
    world
}

/// A backup has the annotations of a content. Its VolumeSnapshot has another UID, or is gone, and some tools lose the
/// reference to it.
#[test]
fn what_a_restored_content_stores_stays_until_an_admin_decides() {
    let not_found = |w: &mut World| w.snapshot = SnapshotState::NotFound;
    let unbound = |w: &mut World| (w.snapshot, w.content.snapshot_uid) = (SnapshotState::Unbound, None);
    let failures = [
        None,
        Some(failure(Operation::Snapshot, 0, Reaction::Retry)),
        Some(failure(Operation::Snapshot, 1, Reaction::Retry)),
        Some(failure(Operation::DeleteSnapshot, 1, Reaction::Retry)),
    ];
    let lost: [fn(&mut World); 2] = [not_found, unbound];
    let policies = ["Delete", "Retain"].into_iter();
    let cases = lost.into_iter().flat_map(|lost| policies.clone().map(move |policy| (lost, policy)));
    let cases = cases.flat_map(|(lost, policy)| failures.iter().map(move |failure| (lost, policy, failure)));
    for (lost, policy, failure) in cases {
        for world in [begun(), begun().with(|w| w.content.finalizers.clear()), terminating(begun())] {
            for restored in [copied(world.clone()), of_earlier_version(world)] {
                let world = restored.with(lost).with(|w| w.content.policy = policy.into());
                let world = world.with(|w| w.content.last_failure = failure.clone());
                assert_eq!(world.step(Rule::Restored), Step::Nothing, "{world:?}");
                world.says(&format!("`snapshotHandle: {UID}`"));
            }
        }
        // A tool may restore the status, too.
        for world in [ready(), terminating(ready())] {
            let world = copied(world).with(lost).with(|w| w.content.policy = policy.into());
            assert_eq!(world.step(Rule::Restored), Step::Nothing, "{world:?}");
        }
    }
    let abandoned = copied(terminating(begun())).with(not_found).with(|w| w.content.abandoned = true);
    assert_eq!(abandoned.step(Rule::Abandoned), Step::RemoveFinalizer);
    let asked = copied(ready()).with(|w| w.snapshot = SnapshotState::NotCached);
    assert_eq!(asked.step(Rule::ConfirmSnapshotGone), Step::ConfirmSnapshot);
    copied(ready()).waits(Rule::Ready);
}

/// An admin may remove the finalizer of a VolumeSnapshot. The record shows that this content began the snapshot.
#[test]
fn what_a_content_of_this_cluster_stores_is_deleted_although_its_snapshot_was_forced_away() {
    let gone = terminating(begun()).with(|w| w.snapshot = SnapshotState::NotFound);
    assert_eq!(gone.step(stored(RunRule::RunDue)), Step::StartDelete { attempt: 1, on_any_node: false });
    let unbound = gone.clone().with(|w| (w.snapshot, w.content.snapshot_uid) = (SnapshotState::Unbound, None));
    assert_eq!(unbound.step(stored(RunRule::RunDue)), Step::StartDelete { attempt: 1, on_any_node: false });
    assert_eq!((unbound.content.id(), unbound.content.run_id()), (UID, UID));
    let running = gone.clone().with(|w| (w.jobs, w.run) = (vec![job(1, false)], RunState::MayBeRunning));
    assert_eq!(running.step(snapshot(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1, false).name });
    // A record of an earlier version proves nothing once its run is gone.
    let old = of_earlier_version(gone);
    let running = old.clone().with(|w| (w.jobs, w.run) = (vec![job(1, false)], RunState::MayBeRunning));
    assert_eq!(running.step(snapshot(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1, false).name });
    assert_eq!(old.step(Rule::Restored), Step::Nothing);
    let retried = old.clone().with(|w| w.delete_run = RunState::MayBeRunning);
    retried.waits(stored(RunRule::RunInProgress));
    assert_eq!(old.with(|w| w.snapshot = SnapshotState::Terminating).decide(NOW).rule, stored(RunRule::RunDue));
}

/// `rm -rf "/snapshots/$SNAPSHOT_ID"` with an empty id deletes all snapshots.
#[test]
fn no_run_gets_an_empty_id() {
    let unnamed = |w: &mut World| {
        (w.snapshot, w.content.snapshot_uid, w.content.name) = (SnapshotState::Unbound, None, "saved".into());
    };
    let world = terminating(begun()).with(unnamed);
    assert_eq!(world.step(Rule::ProvenanceUnknown), Step::Nothing);
    world.says("nothing names the id of the stored snapshot; clean up by hand");
    let restored = copied(terminating(begun())).with(unnamed);
    assert_eq!(restored.step(Rule::Restored), Step::Nothing);
    restored.says("`snapshotHandle: the id by which the storage knows it`");
    let handle = terminating(ready()).with(|w| w.content.handle = Some(String::new()));
    assert_eq!(handle.step(Rule::ProvenanceUnknown), Step::Nothing);
    let dotted = content();
    let dotted = Content { name: "snapcontent-..".into(), snapshot_uid: None, ..dotted };
    assert_eq!(dotted.id(), "");
}

/// A cut id would name no snapshot, and its deletion would succeed.
#[test]
fn no_run_gets_an_id_that_is_too_long_for_it() {
    let long = || "x".repeat(limits::HANDLE + 1);
    let existing = new().with(|w| {
        w.content.finalizers = vec![names::SNAPSHOT_FINALIZER.into()];
        w.content.handle = Some(long());
    });
    let step = existing.step(Rule::NotPossible);
    assert!(matches!(&step, Step::WriteStatus { error } if error.contains("longer than 2048 bytes")), "{step:?}");
    for world in [existing, ready().with(|w| w.content.status_handle = Some(long()))] {
        let world = terminating(world);
        assert_eq!(world.step(Rule::ProvenanceUnknown), Step::Nothing);
        world.says("its id in the storage is longer than 2048 bytes, and no run can get it; clean up by hand");
        let abandoned = world.clone().with(|w| w.content.abandoned = true);
        assert_eq!(abandoned.step(Rule::Abandoned), Step::RemoveFinalizer);
        let retained = world.with(|w| w.content.policy = "Retain".into());
        assert_eq!(retained.step(Rule::DeletedButRetained), Step::RemoveFinalizer);
    }
}

/// The content may be deleted before the orchestrator has marked it as ready.
#[test]
fn an_existing_snapshot_is_retained_before_its_content_is_ready() {
    let existing = new().with(|w| {
        w.content.finalizers = vec![names::SNAPSHOT_FINALIZER.into()];
        (w.content.handle, w.content.policy) = (Some("h".into()), "Retain".into());
    });
    assert_eq!(terminating(existing).step(Rule::DeletedButRetained), Step::RemoveFinalizer);
}
