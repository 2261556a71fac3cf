//! Tests of one run for many claims.

use std::time::{Duration, Instant};

use scripted_csi::{Act, Options};
use serde_json::json;
use tonic::Code;

use crate::run::{Run, Stage, killed_at};

/// Returns the id of a member, by its number from 1.
fn id(number: usize) -> String {
    format!("c0ffee00-0000-4000-8000-{number:012}")
}

/// Returns the driver's name of its volume.
fn volume(number: usize) -> String {
    format!("pvc-{}", id(number))
}

/// Returns the single runs of this many claims.
fn members(stage: &Stage, count: usize) -> Vec<Run<'_>> {
    (1..=count).map(|number| stage.run(&id(number)).with("PVC_NAME", &format!("data-{number}"))).collect()
}

/// Returns the delete runs of members with a PersistentVolume.
fn of_volumes<'a>(stage: &'a Stage, members: &[Run<'a>]) -> Vec<Run<'a>> {
    let made = (1..).zip(members).filter(|(number, _)| stage.api.volume(&id(*number)).is_some());
    made.map(|(_, member)| member.clone().of_volume()).collect()
}

/// Removes the PersistentVolumes, as the orchestrator does after their deletion.
fn forget_volumes(stage: &Stage, count: usize) {
    (1..=count).for_each(|number| stage.api.remove_volume(&id(number)));
}

#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the failures of one call: each script, and its outcome.
fn troubles() -> Vec<Vec<Act>> {
    let fail = |code: Code| vec![Act::Fail(code)];
    vec![
        Vec::new(),
        fail(Code::InvalidArgument),
        fail(Code::Internal),
        fail(Code::PermissionDenied),
        fail(Code::Unimplemented),
        fail(Code::ResourceExhausted),
        // These failures pass.
        vec![Act::Fail(Code::Aborted), Act::Lose(Code::Unavailable)],
    ]
}

#[test]
fn each_claim_succeeds_or_fails_as_in_a_single_run() {
    let stage = Stage::new(Options::default());
    let troubles = troubles();
    let members = members(&stage, troubles.len());
    let mut alone = std::collections::BTreeMap::new();
    let act = |call: &'static str, about: &dyn Fn(usize) -> String| {
        let each = (1..).zip(&troubles);
        each.for_each(|(number, acts)| stage.driver.acts_on(call, &about(number), acts.clone()));
    };
    act("CreateVolume", &volume);
    for (number, member) in (1..).zip(&members) {
        let ended = member.provision();
        if ended.code != 0 {
            alone.insert(number, (ended.code, ended.termination_message));
        }
    }
    assert_eq!(alone.values().map(|(code, _)| *code).collect::<Vec<_>>(), [65, 75, 77, 78, 75]);
    of_volumes(&stage, &members).iter().for_each(|member| drop(member.run("delete").well()));
    forget_volumes(&stage, members.len());

    act("CreateVolume", &volume);
    assert_eq!(stage.batch("provision", &members).run().outcomes(), alone);
    assert_eq!(stage.driver.volumes().into_keys().collect::<Vec<_>>(), [volume(1), volume(7)]);
    stage.nothing_is_orphaned();

    // The same holds for deletions.
    assert_eq!(stage.batch("provision", &members).run().outcomes(), [].into());
    stage.nothing_is_orphaned();
    act("DeleteVolume", &|number| stage.made(&id(number)).volume.volume_id);
    let deletes = of_volumes(&stage, &members);
    assert_eq!(deletes.len(), members.len());
    let failed = stage.batch("delete", &deletes).run().outcomes();
    let codes: Vec<_> = failed.iter().map(|(number, (code, _))| (*number, *code)).collect();
    assert_eq!(codes, [(2, 65), (3, 75), (4, 77), (5, 78), (6, 75)]);
    assert_eq!(stage.driver.volumes().len(), failed.len());
    // Volumes that some attempts made by now, and others never began, are deleted as well.
    forget_volumes(&stage, members.len());
    assert_eq!(stage.batch("delete", &members).run().outcomes(), [].into());
    assert_eq!(stage.driver.volumes().len(), 0);
}

#[test]
fn each_claim_has_its_own_secret() {
    let stage = Stage::new(Options::default());
    let members: Vec<_> = members(&stage, 4)
        .into_iter()
        .map(|member| {
            member
                .parameter("csi.storage.k8s.io/provisioner-secret-name", "${pvc.name}-${pvc.annotations['key']}")
                .parameter("csi.storage.k8s.io/provisioner-secret-namespace", "vault")
        })
        .zip(["a", "b", "c", "../d"])
        .map(|(member, key)| member.with("CLAIM_METADATA", &json!({ "key": key }).to_string()))
        .collect();
    stage.api.put_secret("vault", "data-1-a", json!({ "key": "b25l" }));
    stage.api.put("/api/v1/namespaces/vault/secrets/data-2-b", json!(null));
    let failed = stage.batch("provision", &members).run().outcomes();
    let codes: Vec<_> = failed.iter().map(|(number, (code, _))| (*number, *code)).collect();
    assert_eq!(codes, [(2, 77), (3, 75), (4, 65)], "{failed:?}");
    assert_eq!(stage.driver.secrets(), [("CreateVolume", [("key".to_owned(), "one".to_owned())].into())]);
    stage.nothing_is_orphaned();

    stage.api.put_secret("vault", "data-2-b", json!({ "key": "dHdv" }));
    assert_eq!(stage.batch("provision", &members[..2]).run().outcomes(), [].into());
    stage.driver.secrets();
    assert_eq!(stage.batch("delete", &of_volumes(&stage, &members)).run().outcomes(), [].into());
    let mut with: Vec<_> =
        stage.driver.secrets().into_iter().map(|(call, secret)| (call, secret["key"].clone())).collect();
    with.sort();
    assert_eq!(with, [("DeleteVolume", "one".to_owned()), ("DeleteVolume", "two".to_owned())]);
    assert_eq!(stage.driver.volumes().len(), 0);
}

#[test]
fn one_connection_serves_all_claims_within_the_limit() {
    const CLAIMS: usize = 30;
    let stage = Stage::new(Options::default());
    stage.run(&id(0)).provision().well();
    let (connections, calls) = (stage.driver.connections(), stage.driver.calls().len());
    for (threads, most) in [(None, 10), (Some("4"), 4), (Some("1"), 1), (Some("250"), CLAIMS)] {
        let members: Vec<_> = members(&stage, CLAIMS)
            .into_iter()
            .map(|member| member.parameter("csi-timeout", "2m"))
            .map(|member| {
                threads.iter().fold(member, |member, threads| member.parameter("csi-worker-threads", threads))
            })
            .collect();
        stage.driver.most_at_once();
        stage.driver.gathers(most);
        for call in ["CreateVolume", "DeleteVolume"] {
            stage.driver.acts(call, vec![Act::Slow(Duration::from_millis(if most == 1 { 5 } else { 150 })); CLAIMS]);
        }
        let before = stage.driver.connections();
        assert_eq!(stage.batch("provision", &members).run().outcomes(), [].into());
        assert_eq!(stage.driver.connections() - before, connections, "as a run for one claim");
        assert_eq!(stage.driver.most_at_once(), most, "{threads:?}");
        assert_eq!(stage.driver.calls().len(), calls - 1 + CLAIMS, "the driver is identified once");
        assert_eq!(stage.driver.volumes().len(), 1 + CLAIMS);
        stage.nothing_is_orphaned();
        assert_eq!(stage.batch("delete", &of_volumes(&stage, &members)).run().outcomes(), [].into());
        assert_eq!(stage.driver.most_at_once(), most, "{threads:?}");
        assert_eq!(stage.driver.volumes().len(), 1);
        forget_volumes(&stage, CLAIMS);
        stage.driver.calls();
    }
}

#[test]
fn a_hanging_claim_delays_no_other_and_is_reported_at_the_end_of_the_run() {
    let stage = Stage::new(Options::default());
    let members: Vec<_> = members(&stage, 5)
        .into_iter()
        .map(|member| member.parameter("csi-worker-threads", "1").parameter("csi-timeout", "1s"))
        .collect();
    stage.driver.acts_on("CreateVolume", &volume(1), vec![Act::Slow(Duration::from_secs(600)); 100]);
    stage.driver.acts_on("CreateVolume", &volume(3), vec![Act::Fail(Code::OutOfRange); 100]);
    let batch = stage.batch("provision", &members);
    let mut begun = batch.begin();
    until("the others are made", || [2, 4, 5].iter().all(|number| stage.api.volume(&id(*number)).is_some()));
    assert!(begun.try_wait().unwrap().is_none(), "the first still runs");
    let pid = begun.id().to_string();
    assert!(std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(begun.wait().unwrap().code(), Some(0), "the outcomes of all are reported");
    let message = batch.termination_message();
    let mut failed = flex_contract::batch::read_outcomes(&message).unwrap();
    // The signal may come before the run knows that the last volume is stored.
    failed.retain(|failed| [1, 3].contains(&failed.member));
    failed.sort_by_key(|failed| failed.member);
    let codes: Vec<_> = failed.iter().map(|failed| (failed.member, failed.code)).collect();
    // After an answer that comes too late, the driver may have made the third.
    assert!(matches!(codes[..], [(1, 75), (3, 65 | 75)]), "{message}");
    assert!(failed[0].message.contains("had not ended CreateVolume at the end of the config's `timeout`"), "{message}");
    // The driver has made the volume, and its next attempt finds it.
    stage.driver.forget_acts();
    members[0].provision().well();
    assert_eq!(stage.driver.volumes().len(), 4);
    stage.nothing_is_orphaned();
}

#[test]
fn an_impossible_request_fails_alone() {
    let stage = Stage::new(Options::default());
    let members = members(&stage, 6);
    let mut batch = stage.batch("provision", &members);
    let change = |line: &mut String, name: &str, value: &str| {
        let mut member: serde_json::Value = serde_json::from_str(line).unwrap();
        member[name] = json!(value);
        *line = member.to_string();
    };
    for (line, (name, value)) in batch.lines.iter_mut().skip(1).zip([
        ("SIZE_BYTES", "much"),
        ("OPERATION", "capacity"),
        ("CSI_CONNECT_TIMEOUT", "never"),
        ("CSI_ENDPOINT", "unix:///another.sock"),
    ]) {
        change(line, name, value);
    }
    let failed = batch.run().outcomes();
    let codes: Vec<_> = failed.iter().map(|(number, (code, _))| (*number, *code)).collect();
    assert_eq!(codes, [(2, 64), (3, 64), (4, 78), (5, 75)], "{failed:?}");
    assert!(failed[&5].1.contains("another CSI driver"), "{failed:?}");
    assert_eq!(stage.driver.volumes().into_keys().collect::<Vec<_>>(), [volume(1), volume(6)]);
    stage.nothing_is_orphaned();

    // If no member can be read, the run reports that without a driver.
    stage.driver.calls();
    batch.lines.iter_mut().for_each(|line| change(line, "SIZE_BYTES", "much"));
    assert_eq!(batch.run().outcomes().into_keys().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(stage.driver.calls(), []);
}

#[test]
fn a_batch_that_cannot_begin_fails_for_all() {
    let stage = Stage::new(Options::default());
    let runs: Vec<_> = members(&stage, 3)
        .into_iter()
        .map(|member| member.parameter("csi-endpoint", "unix:///no/such.sock").parameter("csi-connect-timeout", "1s"))
        .collect();
    let ended = stage.batch("provision", &runs).run().failed(75, "there is no such socket");
    assert_eq!(
        flex_contract::batch::read_outcomes(&ended.termination_message),
        None,
        "no line: each has ended as the run has"
    );
    let other: Vec<_> =
        members(&stage, 3).into_iter().map(|member| member.parameter("csi-driver", "csi.other")).collect();
    stage.batch("provision", &other).run().failed(78, "the config says csi-driver: csi.other");
    let mut batch = stage.batch("provision", &members(&stage, 2));
    batch.lines.pop();
    batch.lines.push("{}".into());
    batch.run().failed(64, "line 2 of the list");
    assert_eq!(stage.driver.volumes().len(), 0);
}

#[test]
fn a_batch_can_die_after_any_call() {
    let stage = Stage::new(Options::default());
    // One member at work, so that no other call is in progress when the run dies.
    let members: Vec<_> =
        members(&stage, 4).into_iter().map(|member| member.parameter("csi-worker-threads", "1")).collect();
    let provision = stage.batch("provision", &members);
    let mut killed = (0, 0);
    while killed_at(&stage.driver, || provision.begin(), killed.0 + 1) {
        killed.0 += 1;
        // Some members are begun again by single runs, the others are deleted half-way.
        members[..2].iter().for_each(|member| drop(member.provision().well()));
        for (number, member) in (1..).zip(&members).skip(2) {
            let there = stage.api.volume(&id(number)).is_some();
            let member = if there { member.clone().of_volume() } else { member.clone() };
            member.run("delete").well();
            stage.api.remove_volume(&id(number));
        }
        stage.nothing_is_orphaned();
        assert_eq!(stage.driver.volumes().len(), 2, "call {}", killed.0);
        stage.batch("delete", &of_volumes(&stage, &members)).run().well();
        forget_volumes(&stage, members.len());
    }
    loop {
        provision.run().well();
        let delete = stage.batch("delete", &of_volumes(&stage, &members));
        if !killed_at(&stage.driver, || delete.begin(), killed.1 + 1) {
            break;
        }
        killed.1 += 1;
        of_volumes(&stage, &members).iter().for_each(|member| drop(member.run("delete").well()));
        assert_eq!(stage.driver.volumes().len(), 0, "call {}", killed.1);
        forget_volumes(&stage, members.len());
    }
    assert_eq!(stage.driver.volumes().len(), 0);
    println!("killed after {} calls of a batch that makes volumes, {} of one that deletes them", killed.0, killed.1);
    assert!(killed.0 >= 8 && killed.1 >= 8, "{killed:?}");
}
