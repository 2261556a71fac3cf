//! Tests of runs that are killed after each of their calls: the next run succeeds, whatever they left.

use std::time::Duration;

use image_run::killed_when;
use openstack::Proxy;
use serde_json::{Value, json};

use crate::run::{ONE, Printed, Run, TWO, cinder};

/// Begins a run and kills it when Cinder has answered the call of this number. Returns false if the run ended before.
fn killed_at(proxy: &Proxy, run: &Run, operation: &str, number: usize) -> bool {
    proxy.hold_answer(Some(number));
    let killed = killed_when(run.begin(operation), || proxy.held_answer(Duration::from_millis(20)));
    proxy.hold_answer(None);
    killed
}

/// Kills an operation after each of its calls in turn, with `before` run before each time, and checks the result of the
/// next complete run. The number of calls follows from the operation's end.
fn after_each_call(operation: &str, proxy: &Proxy, run: &Run, before: impl Fn(), after: impl Fn(usize)) -> usize {
    for number in 1.. {
        before();
        let killed = killed_at(proxy, run, operation, number);
        let ended = run.run(operation);
        assert_eq!(ended.code, 0, "{operation} after a death at call {number}: {ended:?}");
        after(number);
        if !killed {
            return number - 1;
        }
    }
    unreachable!("the numbers do not end")
}

#[test]
fn provision_and_delete_can_die_after_any_call() {
    let project = cinder().project("killed");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE);
    let provisions = after_each_call(
        "provision",
        &proxy,
        &run,
        || {},
        |number| {
            let all = project.volumes();
            assert_eq!(all.len(), 1, "call {number}: {all:?}");
            assert_eq!(all[0]["status"], "attaching", "call {number}");
            run.delete().well();
            assert_eq!(project.volumes(), Vec::<Value>::new(), "call {number}");
        },
    );
    let provision = || {
        run.provision().well();
    };
    let deletes = after_each_call("delete", &proxy, &run, provision, |number| {
        assert_eq!(project.volumes(), Vec::<Value>::new(), "call {number}");
    });
    println!("killed after {provisions} calls of a provision run and {deletes} of a delete run");
    // Three calls that change something, and a read before each that does not follow another read.
    assert!(provisions >= 6 && deletes >= 5, "{provisions} {deletes}");
}

#[test]
fn snapshots_can_die_after_any_call() {
    let project = cinder().project("killed-snapshots");
    let proxy = Proxy::start(cinder().port());
    let volume = Run::at(proxy.port(), &project.id, ONE);
    volume.provision().well();
    let snapshot = volume.clone().with("SNAPSHOT_ID", "5a9c0000-0000-4000-8000-000000000002");
    let made = |number: usize| {
        assert_eq!(project.snapshots().len(), 1, "call {number}");
        assert_eq!(project.volume_of(ONE)["status"], "attaching", "call {number}: the volume is reserved again");
    };
    let gone = || assert_eq!(project.snapshots(), Vec::<Value>::new());
    let snapshots = after_each_call(
        "snapshot",
        &proxy,
        &snapshot,
        || {},
        |number| {
            made(number);
            snapshot.run("delete-snapshot").well();
            gone();
        },
    );
    let make = || {
        snapshot.run("snapshot").well();
    };
    let deletes = after_each_call("delete-snapshot", &proxy, &snapshot, make, |_| gone());
    println!("killed after {snapshots} calls of a snapshot run and {deletes} of a delete-snapshot run");
    assert!(snapshots >= 6 && deletes >= 4, "{snapshots} {deletes}");
    volume.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn copies_and_expansions_can_die_after_any_call() {
    let project = cinder().project("killed-copies");
    let proxy = Proxy::start(cinder().port());
    let source_run = Run::at(proxy.port(), &project.id, ONE).with("VOLUME_MODE", "Block");
    let spec = source_run.provision().well().spec();
    let copy = Run::at(proxy.port(), &project.id, TWO).with("SMARTCLONE", "true").with("CLONE_OF", ONE);
    let copies = after_each_call(
        "provision",
        &proxy,
        &copy,
        || {},
        |number| {
            assert_eq!(project.volumes().len(), 2, "call {number}");
            assert_eq!(project.volume_of(ONE)["status"], "attaching", "call {number}: the source is reserved again");
            copy.delete().well();
        },
    );
    let source = json!({ "iscsi": spec["iscsi"] }).to_string();
    let size = std::cell::Cell::new(1_u64);
    let mut calls = 0;
    for number in 1.. {
        size.set(size.get() + 1);
        let grow =
            source_run.clone().with("VOLUME_SOURCE", &source).with("SIZE_BYTES", &(size.get() << 30).to_string());
        let killed = killed_at(&proxy, &grow, "expand", number);
        grow.run("expand").well();
        let volume = project.volume_of(ONE);
        assert_eq!((&volume["size"], &volume["status"]), (&json!(size.get()), &json!("attaching")), "call {number}");
        if !killed {
            break;
        }
        calls = number;
    }
    println!("killed after {copies} calls of a run for a copy and {calls} of an expand run");
    assert!(copies >= 8 && calls >= 6, "{copies} {calls}");
    source_run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
