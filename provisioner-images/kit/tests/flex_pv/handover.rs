//! Tests of the connection that the members of a batch share.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::api::{Api, Reply, error, kubeconfig_folder, path_text};
use super::batch::{Batch, failed, outcomes};
use super::tool::{ENVIRONMENT, Ended, GUARD, flex_pv, until_quick};

const WARNING: &str = "does not create the volume, so this one connects itself";

/// Runs a script for each member, with an API server.
fn run(batch: &Batch, kubeconfig: &str, options: &[&str], script: &str) -> Ended {
    run_with(batch, &[("KUBECONFIG", kubeconfig)], options, script)
}

fn run_with(batch: &Batch, extra: &[(&str, &str)], options: &[&str], script: &str) -> Ended {
    let environment = batch.environment();
    let environment: Vec<_> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).chain(extra.iter().copied()).collect();
    flex_pv(&[&["each"], options, &["--", "/bin/sh", "-c", script]].concat(), &environment, "")
}

fn echoes(count: usize) -> Vec<Reply> {
    (0..count).map(|_| Reply::Echo).collect()
}

#[test]
fn fifty_members_share_one_connection() {
    let (batch, api) = (Batch::of(50), Api::start(echoes(50)));
    let script = r#"exec "$FLEX_PV" create --local "/data/$CLAIM_UUID""#;
    let ended = run(&batch, &api.kubeconfig(), &["--jobs", "8"], script);
    assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
    assert!(!ended.err.contains(WARNING), "{ended:?}");
    assert_eq!(ended.err.matches("created PersistentVolume pvc-c0ffee00").count(), 50, "{ended:?}");
    let volumes = api.all_posted();
    let names: BTreeSet<_> = volumes.iter().map(|volume| volume["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!((names.len(), volumes.len()), (50, 50));
    // A request that finds no free connection opens another one. So there are at most as many as members at one time.
    assert!(api.connections() <= 8, "{} connections", api.connections());
    for volume in &volumes {
        let id = volume["spec"]["claimRef"]["name"].as_str().unwrap();
        assert_eq!(volume["metadata"]["name"], format!("pvc-{id}"));
        assert_eq!(volume["spec"]["local"]["path"], format!("/data/{id}"));
    }
}

#[test]
fn a_batch_that_creates_nothing_connects_nowhere() {
    let (batch, api) = (Batch::of(2), Api::start(vec![]));
    let ended = run(&batch, &api.kubeconfig(), &[], r#"exec "$FLEX_PV" fail never no"#);
    assert_eq!(outcomes(&ended.termination_message), [failed(1, 65, "no"), failed(2, 65, "no")]);
    assert_eq!(api.connections(), 0);
}

/// The same command of a member, over the shared connection and by itself, with the same replies.
#[test]
fn volumes_codes_and_messages_are_those_of_a_member_that_connects_itself() {
    type Replies = fn() -> Vec<Reply>;
    let account = "User \"system:serviceaccount:flex:maker\" cannot create resource \"persistentvolumes\"";
    let nfs = "--nfs nas:/a --timeout 60";
    let impatient = "--nfs nas:/a --timeout 1";
    let cases: [(&str, Replies, i32); 12] = [
        (nfs, || echoes(1), 0),
        ("--local /a --annotation team=b --affinity rack=1", || echoes(1), 0),
        ("--iscsi 10.0.0.5:3260,iqn.2026-01.example:disk,7 --size 4Gi --read-only", || echoes(1), 0),
        ("--csi csi.example.com,vol-1 --fs-type xfs", || echoes(1), 0),
        (nfs, || vec![error(503, "ServiceUnavailable", "starting"), Reply::Echo], 0),
        (nfs, || vec![error(409, "AlreadyExists", "a"), existing("c0ffee00-0000-4000-8000-000000000001", "/a")], 0),
        (nfs, || vec![error(409, "AlreadyExists", "a"), existing("c0ffee00-0000-4000-8000-000000000001", "/b")], 65),
        (nfs, || vec![error(409, "AlreadyExists", "a"), existing("another", "/a")], 65),
        (nfs, || vec![error(422, "Invalid", "spec.capacity: \"x\"\nis wrong")], 65),
        (nfs, || vec![error(401, "Unauthorized", "Unauthorized")], 77),
        (impatient, || (0..40).map(|_| error(503, "ServiceUnavailable", "starting")).collect(), 75),
        ("--nfs nas", Vec::new, 64),
    ];
    for (arguments, replies, code) in cases {
        same_both_ways(arguments, replies, code);
    }
    same_both_ways(nfs, move || vec![error(403, "Forbidden", account)], 77);
}

fn existing(claim: &str, path: &str) -> Reply {
    let annotations = json!({"flex-provisioner.io/claim-uuid": claim});
    let spec = json!({"nfs": {"server": "nas", "path": path}});
    Reply::Object(200, json!({"metadata": {"name": "pvc-x", "annotations": annotations}, "spec": spec}))
}

/// Checks whether a run with little time has had an answer of the API.
fn is_answered(message: &str) -> bool {
    !message.contains(": no answer")
}

fn same_both_ways(arguments: &str, replies: impl Fn() -> Vec<Reply>, code: i32) {
    let both = ["", "unset FLEX_PV_SOCKET;"];
    let way = |before: &str| {
        let (batch, api) = (Batch::of(1), Api::start(replies()));
        let script = format!(r#"{before} exec "$FLEX_PV" create {arguments}"#);
        let ended = run(&batch, &api.kubeconfig(), &[], &script);
        let expected: Vec<i32> = Some(code).into_iter().filter(|code| *code != 0).collect();
        let codes: Vec<i32> = match ended.termination_message.as_str() {
            "" => vec![],
            message => outcomes(message).into_iter().map(|(_, code, _)| code).collect(),
        };
        assert_eq!(codes, expected, "{script}: {ended:?}");
        let asked: BTreeSet<_> = api.asked().into_iter().collect();
        (ended.termination_message, ended.out, ended.err, asked, api.posted())
    };
    let [shared, alone] =
        until_quick(|| both.map(&way), |ended| ended.iter().all(|(message, ..)| is_answered(message)));
    assert_eq!(shared, alone, "{arguments}");
}

#[test]
fn an_api_that_cannot_be_reached_is_reported_in_the_same_way() {
    let closed = kubeconfig_folder(([127, 0, 0, 1], 1).into());
    let closed = path_text(closed.path().join("config"));
    for (environment, code) in [
        (vec![("KUBECONFIG", closed.as_str())], 75),
        (vec![("KUBECONFIG", "/nonexistent")], 64),
        (vec![("KUBERNETES_SERVICE_HOST", "10.96.0.1"), ("SERVICE_ACCOUNT", "maker")], 78),
    ] {
        let both = ["", "unset FLEX_PV_SOCKET;"];
        let way = |before: &str| {
            let script = format!(r#"{before} exec "$FLEX_PV" create --nfs nas:/a --timeout 1"#);
            let ended = run_with(&Batch::of(1), &environment, &[], &script);
            (ended.termination_message, ended.err)
        };
        let [shared, alone] =
            until_quick(|| both.map(&way), |ended| ended.iter().all(|(message, _)| is_answered(message)));
        assert_eq!(shared, alone);
        assert_eq!(outcomes(&shared.0)[0].1, code, "{shared:?}");
    }
}

#[test]
fn a_member_cannot_create_the_volume_of_another() {
    let (batch, api) = (Batch::of(2), Api::start(echoes(1)));
    // The first member takes the variables of the second for its own.
    let script = r#"
        [ "$PVC_NAME" = data-2 ] || export CLAIM_UUID=c0ffee00-0000-4000-8000-000000000002
        [ "$PVC_NAME" = data-2 ] || export PV_NAME="pvc-$CLAIM_UUID"
        exec "$FLEX_PV" create --local "/data/$PVC_NAME""#;
    let ended = run(&batch, &api.kubeconfig(), &["--jobs", "1"], script);
    let failed = outcomes(&ended.termination_message);
    assert_eq!(failed.iter().map(|(member, code, _)| (*member, *code)).collect::<Vec<_>>(), [(1, 64)], "{ended:?}");
    for says in
        ["pvc-c0ffee00-0000-4000-8000-000000000002", "claimRef", "CLAIM_UUID c0ffee00-0000-4000-8000-000000000001"]
    {
        assert!(failed[0].2.contains(says), "{says}: {failed:?}");
    }
    assert_eq!(api.all_posted().len(), 1);
    assert_eq!(api.posted()["spec"]["local"]["path"], "/data/data-2");
}

#[test]
fn the_address_of_a_member_ends_with_it() {
    let (batch, api) = (Batch::of(2), Api::start(echoes(2)));
    let script = r#"
        [ "$PVC_NAME" != data-1 ] || echo "$FLEX_PV_SOCKET" >"$HOME/address"
        export FLEX_PV_SOCKET=$(cat "$HOME/address")
        exec "$FLEX_PV" create --local /a"#;
    let ended = run(&batch, &api.kubeconfig(), &["--jobs", "1"], script);
    assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
    let warned: Vec<_> = ended.err.lines().filter(|line| line.contains(WARNING)).collect();
    assert!(warned.len() == 1 && warned[0].starts_with("[2] "), "{ended:?}");
    assert_eq!(api.connections(), 2, "the second member made one of its own");
}

#[test]
fn a_member_without_the_socket_connects_by_itself() {
    for (before, warnings) in [
        ("unset FLEX_PV_SOCKET", 0),
        ("export FLEX_PV_SOCKET=", 0),
        ("export FLEX_PV_SOCKET=flex-pv-nobody:key", 1),
        ("export FLEX_PV_SOCKET=/not/an/address", 1),
        ("FLEX_PV_SOCKET=${FLEX_PV_SOCKET%:*}:another-key", 1),
    ] {
        let (batch, api) = (Batch::of(1), Api::start(echoes(1)));
        let ended = run(&batch, &api.kubeconfig(), &[], &format!(r#"{before}; exec "$FLEX_PV" create --nfs nas:/a"#));
        assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{before}: {ended:?}");
        assert_eq!(ended.err.matches(WARNING).count(), warnings, "{before}: {ended:?}");
        assert_eq!(api.asked().len(), 1, "{before}");
    }
    // Outside a batch, too.
    let api = Api::start(echoes(1));
    let environment = [("KUBECONFIG", api.kubeconfig()), ("FLEX_PV_SOCKET", "flex-pv-nobody:key".to_owned())];
    let environment = environment.each_ref().map(|(name, value)| (*name, value.as_str()));
    let ended = flex_pv(&["create", "--nfs", "nas:/a"], &environment, "");
    assert!(ended.code == 0 && ended.err.contains(WARNING), "{ended:?}");
}

#[test]
fn an_answer_that_does_not_arrive_delays_no_other_member() {
    let script = r#"exec "$FLEX_PV" create --local "/data/$CLAIM_UUID""#;
    let story = || {
        let (batch, begun) = (Batch::of(3), Instant::now());
        let api = Api::start(vec![Reply::Never, Reply::Echo, Reply::Echo]);
        // Less than the time after which a request without an answer is repeated.
        let ended = run(&batch, &api.kubeconfig(), &["--jobs", "3", "--timeout", "8"], script);
        assert!(begun.elapsed() < GUARD);
        (api, ended)
    };
    let (api, ended) = until_quick(story, |(_, ended)| ended.is_alone_in_its_delay());
    assert_eq!(ended.code, 0, "{ended:?}");
    let outcomes = outcomes(&ended.termination_message);
    assert_eq!(outcomes.len(), 1, "{outcomes:?}");
    assert!(outcomes[0].1 == 75 && outcomes[0].2.contains("it took longer than 8 s"), "{outcomes:?}");
    assert_eq!(api.asked().len(), 3, "the request of the stopped member is not repeated");
}

/// A script that leaves its address, and creates its volume when it may go on.
const WAITS: &str = r#"
    echo "$FLEX_PV_SOCKET" >"$HOME/new"; mv "$HOME/new" "$HOME/address"
    while [ ! -e "$HOME/go" ]; do sleep 0.02; done
    exec "$FLEX_PV" create --local /a"#;

/// Waits for the address that [`WAITS`] leaves.
fn address(home: &Path) -> String {
    let begun = Instant::now();
    while !home.join("address").exists() {
        assert!(begun.elapsed() < GUARD, "the member begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::fs::read_to_string(home.join("address")).unwrap().trim().to_owned()
}

/// Sends bytes to a socket. Returns the answer until the end of the connection.
fn send(name: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    stream.set_read_timeout(Some(GUARD)).unwrap();
    // The other end closes the connection as soon as it has read enough.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("not closed: {error}"),
        _ => answer,
    }
}

#[test]
fn a_request_without_a_key_or_an_end_gets_no_answer() {
    let (batch, api) = (Batch::of(1), Api::start(echoes(1)));
    let home = batch.folder.path().to_owned();
    let kubeconfig = api.kubeconfig();
    std::thread::scope(|threads| {
        let ended = threads.spawn(|| run(&batch, &kubeconfig, &["--timeout", "300"], WAITS));
        let address = address(&home);
        let (name, key) = address.split_once(':').unwrap();
        let volume = json!({"metadata": {"name": "pvc-x"}, "spec": {}});
        let stranger = format!("{}\n", json!({"key": "x", "patience": 1, "volume": volume}));
        let whole = json!({"key": key, "patience": 1, "volume": volume}).to_string();
        let endless = vec![b' '; 3 << 20];
        for bytes in [b"GET / HTTP/1.1\r\n\r\n", stranger.as_bytes(), b"{}\n", whole.as_bytes(), &endless] {
            assert_eq!(send(name, bytes), b"", "{}", String::from_utf8_lossy(&bytes[..20.min(bytes.len())]));
        }
        std::fs::write(home.join("go"), "").unwrap();
        let ended = ended.join().unwrap();
        assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
        assert!(!ended.err.contains(WARNING), "{ended:?}");
    });
    assert_eq!((api.asked().len(), api.connections()), (1, 1));
}

/// This test needs root, to become another user.
#[test]
fn another_user_with_the_address_gets_no_answer() {
    let (batch, api) = (Batch::of(1), Api::start(echoes(3)));
    let home = batch.folder.path().to_owned();
    let kubeconfig = api.kubeconfig();
    // The other user may not reach the folder of the build. No child that a parallel test forks holds the copy open.
    let open = tempfile::tempdir().unwrap();
    std::fs::set_permissions(open.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, config) = (open.path().join("flex-pv"), open.path().join("config"));
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_flex-pv")).arg(&program).status().unwrap().success());
    std::fs::copy(&kubeconfig, &config).unwrap();
    for (file, mode) in [(&program, 0o755), (&config, 0o644)] {
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    std::thread::scope(|threads| {
        let ended = threads.spawn(|| run(&batch, &kubeconfig, &["--timeout", "300"], WAITS));
        let address = address(&home);
        let create = |user: u32| {
            let mut command = Command::new(&program);
            command.args(["create", "--local", "/a"]).env_clear().envs(ENVIRONMENT.iter().copied());
            command.env("KUBECONFIG", &config).env("FLEX_PV_SOCKET", &address).uid(user);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(create(0), "", "this user gets an answer");
        assert!(create(65534).contains(WARNING));
        assert_eq!(api.connections(), 2);
        std::fs::write(home.join("go"), "").unwrap();
        assert_eq!(ended.join().unwrap().code, 0);
    });
}
