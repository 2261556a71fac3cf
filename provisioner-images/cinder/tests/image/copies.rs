//! Tests of clones and snapshots.

use std::time::{Duration, Instant};

use openstack::Proxy;
use serde_json::{Value, json};

use crate::run::{ONE, Printed, Run, TWO, cinder};

#[test]
fn a_clone_is_made_where_the_class_allows_it() {
    let project = cinder().project("copies");
    let source_run = Run::new(&project, ONE);
    source_run.provision().well();
    let copy = Run::new(&project, TWO).with("CLONE_OF", ONE).with("CLONE_OF_SIZE_BYTES", "1073741824");
    copy.provision().failed(78, "smartclone");
    assert_eq!(project.volumes().len(), 1, "and no empty volume instead");
    let copy = copy.with("SMARTCLONE", "true");
    copy.provision().well();
    let source = project.volume_of(ONE);
    assert_eq!(project.volume_of(TWO)["source_volid"], source["id"]);
    assert_eq!(source["status"], "attaching", "the source is reserved again");
    copy.delete().well();

    // Larger is possible, smaller is not.
    let larger = copy.clone().with("SIZE_BYTES", "3221225472");
    assert_eq!(larger.provision().well().spec()["capacity"]["storage"], "3Gi");
    larger.delete().well();
    let large = Run::new(&project, "c0ffee00-0000-4000-8000-000000000003").with("SIZE_BYTES", "2147483648");
    large.provision().well();
    copy.clone().with("CLONE_OF", &large.0["CLAIM_UUID"]).provision().failed(65, "has 2Gi");
    // Sources that do not exist, or belong to another claim.
    copy.clone().with("CLONE_OF", "c0ffee00-0000-4000-8000-00000000ffff").provision().failed(65, "no volume of the id");
    copy.clone().with("CLONE_OF", "../../x").provision().failed(65, "no volume of the id");
    for run in [&large, &source_run] {
        run.delete().well();
    }
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_source_is_reserved_again_whatever_happens_to_its_clone() {
    let project = cinder().project("lent");
    let source = Run::new(&project, ONE).with("TYPE", "slow");
    source.provision().well();
    let proxy = Proxy::start(cinder().port());
    let copy = Run::at(proxy.port(), &project.id, TWO).with("TYPE", "slow");
    let copy = copy.with("SMARTCLONE", "true").with("CLONE_OF", ONE);
    let reserved = |when: &str| assert_eq!(project.volume_of(ONE)["status"], "attaching", "{when}");
    // The quota allows neither a clone nor a snapshot.
    project.set_quota(1, 1);
    copy.provision().failed(75, "quota");
    reserved("after a refused copy");
    source.clone().with("SNAPSHOT_ID", "refused").run("snapshot").failed(75, "quota");
    reserved("after a refused snapshot");
    project.set_quota(-1, -1);
    // The run is stopped while Cinder copies, and its claim is then deleted: no other run cares for the source. It does
    // not get the answer to its question for the copy, and cannot end before.
    proxy.hold_answer(Some(5));
    let mut process = copy.begin("provision");
    let began = Instant::now();
    while project.volumes().len() < 2 || project.volume_of(ONE)["status"] != "attaching" {
        assert!(process.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    proxy.hold_answer(None);
    copy.delete().well();
    reserved("after a copy that was given up");
    source.delete().well();
    assert_eq!((project.volumes(), project.snapshots()), (Vec::new(), Vec::new()));
}

#[test]
fn a_snapshot_is_made_restored_and_deleted() {
    let project = cinder().project("snapshots");
    let run = Run::new(&project, ONE);
    run.provision().well();
    let id = "5a9c0000-0000-4000-8000-000000000001";
    let snapshot =
        run.clone().with("SNAPSHOT_ID", id).with("SNAPSHOT_NAMESPACE", "team").with("SNAPSHOT_NAME", "monday");
    for _ in 0..2 {
        snapshot.run("snapshot").well();
        let all = project.snapshots();
        assert_eq!((all.len(), &all[0]["status"]), (1, &json!("available")), "{all:?}");
        assert_eq!(all[0]["name"], format!("flex-snapshot-{id}"));
    }
    assert_eq!(project.volume_of(ONE)["status"], "attaching", "the volume is reserved again");
    // The snapshot is restored by its volume id or by Cinder's id.
    let cinders = project.snapshots()[0]["id"].as_str().unwrap().to_owned();
    for id in [id, cinders.as_str()] {
        let restored = Run::new(&project, TWO).with("SNAPSHOT_ID", id);
        restored.provision().well();
        assert_eq!(project.volume_of(TWO)["snapshot_id"], cinders.as_str());
        restored.delete().well();
    }
    Run::new(&project, TWO)
        .with("SNAPSHOT_ID", "5a9c0000-0000-4000-8000-00000000ffff")
        .provision()
        .failed(65, "no snapshot");
    // Cinder keeps a volume that has snapshots. A run that died has left one, too.
    run.delete().failed(75, "have snapshots");
    let all = project.snapshots();
    let twin = json!({ "snapshot": { "volume_id": all[0]["volume_id"], "name": all[0]["name"], "force": true } });
    assert_eq!(project.ask("POST", "/snapshots", Some(&twin)).status, 202);
    for _ in 0..2 {
        snapshot.run("delete-snapshot").well();
        assert_eq!(project.snapshots(), Vec::<Value>::new());
    }
    snapshot.with("SNAPSHOT_ID", "../volumes/x").run("delete-snapshot").failed(65, "SNAPSHOT_ID");
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
