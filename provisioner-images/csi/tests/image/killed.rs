//! Tests of runs that are killed after each of their calls: the next run succeeds, whatever they left.

use scripted_csi::Options;
use serde_json::json;

use crate::run::{HandedBack, ONE, Run, Stage, TWO, killed_at};

/// Kills an operation after each of its calls in turn, with `before` run before each time, and checks the result of the
/// next complete run. The number of calls follows from the operation's end.
fn after_each_call<'a>(stage: &Stage, operation: &str, before: impl Fn() -> Run<'a>, after: impl Fn(usize)) -> usize {
    for number in 1.. {
        let run = &before();
        let killed = killed_at(&stage.driver, || run.begin(operation), number);
        run.run(operation).well();
        after(number);
        if !killed {
            return number - 1;
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn provision_and_delete_can_die_after_any_call() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE);
    let gone = |number: usize| {
        assert_eq!(stage.driver.volumes().len(), 0, "call {number}");
        stage.api.remove_volume(ONE);
    };
    let made = |number: usize| {
        assert_eq!(stage.driver.volumes().len(), 1, "call {number}");
        run.clone().of_volume().run("delete").well();
        gone(number);
    };
    let provisions = after_each_call(&stage, "provision", || run.clone(), made);
    // A claim that is deleted after the death: no later run knows the volume.
    for number in 1..=provisions {
        assert!(killed_at(&stage.driver, || run.begin("provision"), number), "call {number}");
        assert!(stage.api.volume(ONE).is_none());
        run.run("delete").well();
        gone(number);
    }
    let begun = || {
        assert!(killed_at(&stage.driver, || run.begin("provision"), provisions));
        assert_eq!(stage.driver.volumes().len(), 1, "its last call makes the volume");
        run.clone()
    };
    let half_way = after_each_call(&stage, "delete", begun, gone);
    let whole = || {
        run.provision().well();
        run.clone().of_volume()
    };
    let deletes = after_each_call(&stage, "delete", whole, gone);
    println!("killed after {provisions} calls of a provision run, {deletes} and {half_way} of delete runs");
    assert!(provisions >= 5 && deletes >= 5 && half_way > deletes, "{provisions} {deletes} {half_way}");
}

#[test]
fn clones_snapshots_and_changes_can_die_after_any_call() {
    let stage = Stage::new(Options::default());
    let source_run = stage.run(ONE);
    source_run.provision().well();
    let source = json!({ "csi": stage.pv(ONE)["spec"]["csi"] }).to_string();
    let copy = stage.run(TWO).with("CLONE_OF", ONE).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    let copied = |number: usize| {
        assert_eq!(stage.driver.volumes().len(), 2, "call {number}");
        copy.clone().of_volume().run("delete").well();
        stage.api.remove_volume(TWO);
    };
    let copies = after_each_call(&stage, "provision", || copy.clone(), copied);
    let of_volume = source_run.of_volume();
    let snapshot = of_volume.clone().with("SNAPSHOT_ID", TWO).with("SNAPSHOT_OF", ONE);
    let gone = |number: usize| assert_eq!(stage.driver.snapshots().len(), 0, "call {number}");
    let made = |number: usize| {
        assert_eq!(stage.driver.snapshots().len(), 1, "call {number}");
        // Nobody knows the handle of a snapshot whose VolumeSnapshot was deleted before its run ended.
        snapshot.run("delete-snapshot").well();
        gone(number);
    };
    let snapshots = after_each_call(&stage, "snapshot", || snapshot.clone(), made);
    let make = || {
        let handle = snapshot.run("snapshot").well().handle();
        snapshot.clone().with("SNAPSHOT_HANDLE", &handle)
    };
    let deletions = after_each_call(&stage, "delete-snapshot", make, gone);
    let grow = of_volume.clone().with("SIZE_BYTES", "2147483648");
    let grown = |_| assert_eq!(stage.made(ONE).volume.capacity_bytes, 2 << 30);
    let expansions = after_each_call(&stage, "expand", || grow.clone(), grown);
    println!("killed after {copies}, {snapshots}, {deletions} and {expansions} calls");
    assert!(copies >= 5 && snapshots >= 5 && deletions >= 5 && expansions >= 5);
    of_volume.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
}

/// A driver that forgets the data source of a volume takes a repeated call for another request.
#[test]
fn copies_of_a_forgetful_driver_can_die_after_any_call() {
    let stage = Stage::new(Options::default());
    stage.driver.forgets_sources();
    let source_run = stage.run(ONE);
    source_run.provision().well();
    let of_volume = source_run.of_volume();
    let source = json!({ "csi": stage.pv(ONE)["spec"]["csi"] }).to_string();
    let handle = of_volume.with("SNAPSHOT_ID", TWO).with("SNAPSHOT_OF", ONE).run("snapshot").well().handle();
    let clone = stage.run(TWO).with("CLONE_OF", ONE).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    let restored = stage.run(TWO).with("SNAPSHOT_ID", TWO).with("SNAPSHOT_OF", ONE).with("SNAPSHOT_HANDLE", &handle);
    for copy in [clone, restored] {
        let copied = |number: usize| {
            assert_eq!(stage.driver.volumes().len(), 2, "call {number}");
            assert!(stage.made(TWO).volume.content_source.is_some(), "call {number}: the volume is a copy");
            stage.nothing_is_orphaned();
            copy.clone().of_volume().run("delete").well();
            stage.api.remove_volume(TWO);
        };
        let copies = after_each_call(&stage, "provision", || copy.clone(), copied);
        for number in 1..=copies {
            assert!(killed_at(&stage.driver, || copy.begin("provision"), number), "call {number}");
            copy.run("delete").well();
            assert_eq!(stage.driver.volumes().len(), 1, "call {number}: the source alone");
        }
        assert!(copies >= 5, "{copies}");
    }
}
