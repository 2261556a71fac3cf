//! Tests of failures, with the termination message and the exit code of each run.

use std::time::{Duration, Instant};

use openstack::Proxy;
use serde_json::{Value, json};

use crate::run::{ONE, Run, TWO, cinder};

#[test]
fn impossible_requests_are_refused() {
    let project = cinder().project("refusals");
    for (name, value, code, says) in [
        ("TYPE", "platinum", 78, "platinum"),
        ("TYPE", "other", 78, "`lab`"),
        ("AVAILABILITY_ZONE", "mars", 78, "availability-zone"),
        ("ACCESS_MODES", "ReadWriteMany", 65, "volumeMode Block alone"),
        ("CLAIM_UUID", "../../etc", 65, "not the UUID"),
        ("SIZE_BYTES", "", 64, "SIZE_BYTES"),
        ("HINTS", "[]", 78, "JSON object"),
        ("CLAIM_METADATA", r#"{"k8s.io/CloneRequest": "other/data"}"#, 78, "smartclone"),
        ("OS_TENANT_NAME", "", 77, "OS_PROJECT_NAME is missing"),
        ("OS_CINDER_ENDPOINT", "cinder:8776", 77, "OS_CINDER_ENDPOINT is wrong"),
        ("CLOUD_CONFIG", "/etc/flex-secrets/none/cloud.conf", 77, "/etc/flex-secrets/none/cloud.conf cannot be read"),
    ] {
        let ended = Run::new(&project, ONE).with(name, value).provision().failed(code, says);
        assert!(!ended.out.contains("kind: PersistentVolume"), "{name}={value}: {ended:?}");
        Run::new(&project, ONE).delete().well();
        assert_eq!(project.volumes(), Vec::<Value>::new(), "{name}={value}: nothing is left");
    }
}

#[test]
fn a_misspelt_parameter_is_refused_before_a_volume_begins_and_noted_afterwards() {
    let project = cinder().project("misspelt");
    let run = Run::new(&project, ONE);
    for (name, meant) in [("AVAILABILITY_ZONES", "availability-zone"), ("TYP", "type"), ("OS_REGION", "OS_REGION_NAME")]
    {
        let ended = run.clone().with(name, "x").provision().failed(78, &format!("did you mean `{meant}`?"));
        assert!(ended.out.is_empty(), "{ended:?}");
    }
    assert_eq!(project.volumes(), Vec::<Value>::new(), "nothing is made");
    run.provision().well();
    let ended = run.with("TYP", "gold").delete().well();
    assert!(ended.log.contains("does not know the parameter `typ`"), "{ended:?}");
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_volume_beyond_the_quota_waits() {
    let project = cinder().project("quota");
    project.set_quota(1, 10);
    let (one, two) = (Run::new(&project, ONE), Run::new(&project, TWO));
    one.provision().well();
    two.provision().failed(75, "VolumeLimitExceeded");
    one.delete().well();
    one.clone().with("SIZE_BYTES", "99999999999").provision().failed(75, "quota");
    two.provision().well();
    two.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_volume_that_cinder_cannot_make_is_reported_and_deleted() {
    let project = cinder().project("no-room");
    let run = Run::new(&project, ONE).with("SIZE_BYTES", &(5000_u64 << 30).to_string());
    run.provision().failed(75, "Could not find any available weighted backend");
    assert_eq!(project.volumes(), Vec::<Value>::new());
    // With the zone of a selected node, another node may be able to.
    let zoned = run.with("ZONE_FROM_TOPOLOGY", "true").with("TOPOLOGY", r#"{"topology.kubernetes.io/zone": "nova"}"#);
    zoned.provision().failed(69, "weighted backend");
    // The driver fails.
    let fails = Run::new(&project, "this-fails");
    let ended = fails.provision().failed(75, "Driver failed to create the volume");
    assert_eq!(made(&ended.log), 3, "{ended:?}");
    assert_eq!(project.volumes(), Vec::<Value>::new());
    // A failure of the driver is no lack of room that another zone could end.
    let zoned = fails.with("ZONE_FROM_TOPOLOGY", "true").with("TOPOLOGY", r#"{"topology.kubernetes.io/zone": "nova"}"#);
    zoned.provision().failed(75, "Driver failed to create the volume");
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

/// Returns how many volumes or snapshots a run has asked for.
fn made(log: &str) -> usize {
    log.lines()
        .filter(|line| line.starts_with("cinder: POST /volumes volume") || line.contains(" /snapshots snapshot"))
        .count()
}

/// A busy Cinder fails now and then, and reports no reason.
#[test]
fn a_volume_that_fails_once_is_made_by_the_same_run() {
    let project = cinder().project("once");
    let run = Run::new(&project, "this-fails-once");
    let ended = run.provision().well();
    assert_eq!(made(&ended.log), 2, "{ended:?}");
    assert!(ended.log.contains("could not make the volume"), "{ended:?}");
    assert_eq!(project.volumes().len(), 1);
    let snapshot = run.clone().with("SNAPSHOT_ID", "this-fails-once");
    let ended = snapshot.run("snapshot").well();
    assert_eq!(made(&ended.log), 2, "{ended:?}");
    assert_eq!(
        (project.snapshots().len(), project.volume_of("this-fails-once")["status"].clone()),
        (1, json!("attaching"))
    );
    snapshot.run("delete-snapshot").well();
    run.delete().well();
    assert_eq!((project.volumes(), project.snapshots()), (vec![], vec![]));
    // Without a reason from Cinder, the words say where to look.
    let proxy = Proxy::start(cinder().port());
    proxy.answer("GET messages", json!({ "messages": [] }));
    let ended = Run::at(proxy.port(), &project.id, "this-fails").provision().failed(75, "the logs of cinder-scheduler");
    assert_eq!(made(&ended.log), 3, "{ended:?}");
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_run_handles_every_state_of_a_volume_or_names_who_can() {
    let project = cinder().project("states");
    let run = Run::new(&project, ONE);
    run.provision().well();
    let status = |status: &str| project.set_status(&project.volume_of(ONE), status);
    // A volume of an earlier run is made again, or continued.
    for (state, same) in [("available", true), ("error", false), ("error_deleting", false)] {
        let before = project.volume_of(ONE)["id"].clone();
        status(state);
        run.provision().well();
        assert_eq!(project.volume_of(ONE)["id"] == before, same, "{state}");
    }
    status("error_backing-up");
    run.provision().failed(75, "an admin must look at it");
    run.delete().failed(75, "an admin must look at it");
    // A volume that another client uses stays.
    status("available");
    let to_a_server = json!({ "host_name": "somewhere", "mountpoint": "/dev/vdb" });
    let attached = project.act(&project.volume_of(ONE), "os-attach", to_a_server);
    assert_eq!(attached.status, 202, "{attached:?}");
    assert_eq!(project.volume_of(ONE)["status"], "in-use");
    run.provision().failed(75, "somebody attached it");
    run.delete().failed(75, "somebody attached it");
    assert_eq!(project.act(&project.volume_of(ONE), "os-detach", json!({})).status, 202);
    // In all other states the volume is deleted.
    for state in ["available", "error", "error_deleting", "error_extending", "attaching"] {
        status("available");
        run.provision().well();
        status(state);
        run.delete().well();
        assert_eq!(project.volumes(), Vec::<Value>::new(), "{state}");
        run.provision().well();
    }
    // Cinder cannot delete this volume.
    let stays = Run::new(&project, "this-stays");
    stays.provision().well();
    stays.delete().failed(75, "could not delete volume");
    assert_eq!(project.volume_of("this-stays")["status"], "error_deleting");
    // A name without metadata does not count.
    let volume = project.volume_of(ONE);
    let path = format!("/volumes/{}/metadata/flex-provisioner.claim-uuid", volume["id"].as_str().unwrap());
    assert_eq!(project.ask("DELETE", &path, None).status, 200);
    run.delete().failed(65, "nothing is deleted");
    assert_eq!(project.volumes().len(), 2);
}

#[test]
fn a_second_volume_of_a_lost_answer_is_deleted() {
    let project = cinder().project("twice");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE);
    run.provision().well();
    let first = project.volume_of(ONE);
    let twin = json!({ "volume": {
        "size": 1, "name": first["name"], "metadata": first["metadata"], "volume_type": "iscsi",
    } });
    assert_eq!(project.ask("POST", "/volumes", Some(&twin)).status, 202);
    run.provision().well();
    assert_eq!(project.volume_of(ONE)["id"], first["id"], "the volume that nodes may know");
    // A run died, and Cinder shows its volume only after the next run has asked for another. Cinder has made both.
    proxy.answer_once("GET detail", &json!({ "volumes": [] }));
    let ended = run.provision().well();
    assert_eq!(project.volume_of(ONE)["id"], first["id"]);
    assert!(made(&ended.log) == 1 && !ended.log.contains("could not make"), "{ended:?}");
    assert_eq!(project.ask("POST", "/volumes", Some(&twin)).status, 202);
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn a_run_waits_for_passing_trouble() {
    let project = cinder().project("passing");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE);
    proxy.refuse("create", &[503, 500]);
    proxy.refuse("os-reserve", &[409]);
    proxy.refuse("os-initialize_connection", &[502]);
    proxy.refuse("GET detail", &[429]);
    run.provision().well();
    assert_eq!(project.volumes().len(), 1);
    proxy.refuse("delete", &[503]);
    proxy.refuse("os-terminate_connection", &[500]);
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
    // The wait has a limit.
    let began = Instant::now();
    run.with("OS_CINDER_ENDPOINT", "http://127.0.0.1:1/v3").provision().failed(75, "cannot be reached");
    assert!(began.elapsed() < Duration::from_secs(120));
}

#[test]
fn a_run_that_is_stopped_says_what_it_waited_for() {
    let project = cinder().project("slow");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE).with("TYPE", "slow");
    // The run does not get the answer to its reservation, and cannot end before the signal.
    proxy.hold_answer(Some(4));
    let mut process = run.begin("provision");
    let began = Instant::now();
    while project.volumes().is_empty() {
        assert!(process.try_wait().unwrap().is_none() && began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(std::process::Command::new("kill").arg(process.id().to_string()).status().unwrap().success());
    assert_eq!(process.wait().unwrap().code(), Some(75));
    let texts = run.termination_message();
    assert!(texts.contains("is still `creating`") || texts.contains("did not answer"), "{texts}");
    proxy.hold_answer(None);
    // A volume in creation is not deleted before it is made: Cinder would forget it, and the backend would not.
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn an_answer_that_is_not_from_a_cinder_is_refused() {
    let project = cinder().project("wrong");
    let run = Run::new(&project, ONE);
    // An impossible project, and an unknown path.
    let ended =
        run.clone().with("OS_CINDER_ENDPOINT", &format!("http://127.0.0.1:{}/cinder", cinder().port())).provision();
    ended.failed(78, "check the endpoint");
    // A proxy before it loses half of the requests: no request is repeated forever.
    let proxy = Proxy::start(cinder().port());
    let volume = json!({ "id": "a", "status": "available", "size": 1, "metadata": {} });
    proxy.answer("GET detail", json!({ "volumes": [volume], "volumes_links": [{ "rel": "next", "href": "x" }] }));
    Run::at(proxy.port(), &project.id, ONE).provision().failed(78, "the same page again and again");
    // Invalid numbers, and unknown forms.
    let volume = json!({ "id": "a", "status": "attaching", "size": u64::MAX, "metadata": { "flex-provisioner.claim-uuid": ONE } });
    proxy.answer("GET detail", json!({ "volumes": [volume] }));
    let ended = Run::at(proxy.port(), &project.id, ONE).provision();
    assert!(![0, 101].contains(&ended.code), "{ended:?}");
    for odd in [json!({ "volumes": [{ "size": "x" }] }), json!({ "volumes": "none" }), json!([]), json!(null)] {
        proxy.answer("GET detail", odd);
        Run::at(proxy.port(), &project.id, ONE).provision().failed(78, "form");
    }
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
