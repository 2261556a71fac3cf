//! Tests of expand, list and capacity runs, and of batches.

use flex_contract::capacity::Answer;
use flex_contract::listing;
use openstack::Proxy;
use serde_json::{Value, json};

use crate::run::{ONE, Printed, Run, TWO, cinder};

#[test]
fn a_volume_is_expanded_where_the_node_can_follow() {
    let project = cinder().project("expand");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE).with("VOLUME_MODE", "Block");
    let spec = run.provision().well().spec();
    let source = json!({ "iscsi": spec["iscsi"] }).to_string();
    let larger = run.clone().with("VOLUME_SOURCE", &source).with("SIZE_BYTES", "2147483649");
    proxy.forget();
    larger.run("expand").well();
    let volume = project.volume_of(ONE);
    assert_eq!((&volume["size"], &volume["status"]), (&json!(3), &json!("attaching")));
    assert_eq!(proxy.changes(), ["os-unreserve", "os-extend", "os-reserve", "os-initialize_connection"]);
    // A repeated run, and a run to a smaller size, change nothing.
    proxy.forget();
    for size in ["2147483649", "1073741824"] {
        larger.clone().with("SIZE_BYTES", size).run("expand").well();
    }
    assert_eq!(proxy.changes(), ["os-initialize_connection", "os-initialize_connection"]);
    // Nothing would resize the file system.
    let filesystem = larger.clone().with("VOLUME_MODE", "Filesystem").with("SIZE_BYTES", "8589934592");
    filesystem.run("expand").failed(65, "the kubelet does not make file systems on iscsi volumes larger");
    // An expansion beyond the quota leaves the volume as it was.
    project.set_quota(-1, 5);
    larger.clone().with("SIZE_BYTES", "8589934592").run("expand").failed(75, "quota");
    project.set_quota(-1, -1);
    let volume = project.volume_of(ONE);
    assert_eq!((&volume["size"], &volume["status"]), (&json!(3), &json!("attaching")));
    larger.clone().with("CLAIM_UUID", TWO).run("expand").failed(65, "no volume of the id");
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_list_has_the_volumes_and_the_leftovers_of_deletions() {
    let project = cinder().project("list");
    let (one, two) = (Run::new(&project, ONE), Run::new(&project, TWO));
    let list = || {
        let ended = one.for_no_volume("list").well();
        listing::read(&ended.out).unwrap()
    };
    assert_eq!(list(), []);
    for run in [&one, &two] {
        run.provision().well();
    }
    let foreign = json!({ "volume": { "size": 1, "name": "somebody-s" } });
    assert_eq!(project.ask("POST", "/volumes", Some(&foreign)).status, 202);
    project.set_status(&project.volume_of(TWO), "error_deleting");
    let found: Vec<_> =
        list().into_iter().map(|entry| (entry.state.as_str().to_owned(), entry.id, entry.bytes)).collect();
    let gib = Some(1 << 30);
    assert_eq!(found, [("volume".to_owned(), ONE.to_owned(), gib), ("rubbish".to_owned(), TWO.to_owned(), gib)]);
    for run in [&one, &two] {
        run.delete().well();
    }
    assert_eq!(project.volumes().len(), 1, "a foreign volume stays");
}

#[test]
fn the_capacity_is_that_of_the_pools_within_the_quota() {
    let project = cinder().project("capacity");
    let run = Run::new(&project, ONE).with("TYPE", "fc");
    let capacity = || {
        let ended = run.for_no_volume("capacity").well();
        Answer::read(&ended.termination_message).unwrap()
    };
    let answer = capacity();
    let gib = 1_u64 << 30;
    assert!(answer.bytes > 800 * gib && answer.bytes <= 1000 * gib, "{answer:?}");
    project.set_quota(-1, 7);
    assert_eq!(capacity(), Answer { bytes: 7 * gib, largest: Some(7 * gib) });
    project.set_quota(0, -1);
    assert_eq!(capacity().bytes, 0);
    run.clone().with("TYPE", "platinum").for_no_volume("capacity").failed(78, "no volume type `platinum`");
}

#[test]
fn each_claim_of_a_batch_has_its_own_outcome() {
    let project = cinder().project("batch");
    let members: Vec<Run> =
        (1..=10).map(|number| Run::new(&project, &format!("c0ffee00-0000-4000-8000-{number:012}"))).collect();
    let mut wanted = members.clone();
    wanted[2] = wanted[2].clone().with("CLAIM_UUID", "no id");
    let failed = Run::batch("provision", &wanted).outcomes();
    assert_eq!(failed.keys().collect::<Vec<_>>(), [&3], "{failed:?}");
    assert_eq!(failed[&3], (65, "CLAIM_UUID is not the UUID of a claim".to_owned()));
    assert_eq!(project.volumes().len(), 9);
    assert_eq!(Run::batch("delete", &members).outcomes(), [].into());
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
