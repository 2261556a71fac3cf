//! Tests of `try`.

use orchestrator::deployed::root;
use serde_json::Value;

use crate::{Answer, Files, call};

/// A program that makes directories.
const DIRECTORIES: &str = r#"#!/bin/sh
set -eu
volume=/srv/volumes/${CLAIM_UUID:?}
case $OPERATION in
provision) mkdir -p "$volume" && exec flex-pv create --local "$volume" ;;
delete) exec flex-pv remove "$volume" ;;
*) exec flex-pv fail never "it cannot $OPERATION" ;;
esac
"#;

fn attempt(arguments: &[&str]) -> (Answer, Vec<Value>) {
    let answer = call(&[&["try", "-o", "json"], arguments].concat());
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    (answer, document["runs"].as_array().unwrap().clone())
}

#[test]
fn a_run_gets_the_environment_and_the_files_of_its_pod() {
    let files = Files::new();
    let program = files.write(
        "program",
        r#"#!/bin/sh
        id -u
        cat /etc/flex/claim-uuid && echo
        [ "$(cat /etc/flex/zone)" = "$ZONE" ] && echo "$ZONE"
        touch /tmp/mine && echo written
        touch /usr/other || echo refused
        grep NoNewPrivs /proc/self/status
        echo $$
        flex-pv create --nfs "nas.example:/export/$CLAIM_UUID"
        "#,
    );
    let (answer, runs) = attempt(&["--set", "zone=west", &program]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let (output, id) = (runs[0]["output"].as_str().unwrap(), runs[0]["volumeId"].as_str().unwrap());
    for line in ["65532", id, "west", "written", "refused", "NoNewPrivs:\t1", "1"] {
        assert!(output.lines().any(|printed| printed == line), "{line}: {output}");
    }
    assert_eq!(runs[0]["volume"]["spec"]["nfs"]["path"], format!("/export/{id}"));
    assert_eq!(runs[0]["events"][0]["reason"], "ProvisioningSucceeded");
}

#[test]
fn runs_share_the_storage_and_a_config_runs_its_script() {
    let (answer, runs) =
        attempt(&["--config", "configmaps/script.yaml", "--operation", "provision,provision,delete,delete"]);
    assert_eq!((answer.code, runs.len()), (Some(0), 4), "{answer:?}");
    let codes: Vec<_> = runs.iter().map(|run| run["exitCode"].as_i64().unwrap()).collect();
    assert_eq!(codes, [0; 4]);
}

#[test]
fn a_state_is_kept_between_two_commands() {
    let files = Files::new();
    let program = files.write("program", DIRECTORIES);
    let state = files.path("state");
    let common =
        ["--show-env", "--state", &state, "--storage", "/srv/volumes", "--set", "run-as-user=0", "--operation"];
    let run = |operation: &str| attempt(&[&common[..], &[operation, &program]].concat());
    assert_eq!(run("provision").0.code, Some(0));
    let (answer, runs) = run("delete");
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(runs[0]["environment"]["VOLUME_SOURCE"].as_str().unwrap().contains("/srv/volumes/"), "{runs:?}");
}

#[test]
fn a_directory_with_files_of_somebody_else_is_no_state() {
    let files = Files::new();
    let program = files.write("program", DIRECTORIES);
    let state = files.path("mine");
    std::fs::create_dir_all(files.path("mine/runs/0")).unwrap();
    std::fs::write(files.path("mine/volume.json"), "mine").unwrap();
    let answer = call(&["try", "--state", &state, &program]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.err.contains(&state) && answer.err.contains("name an empty directory"), "{answer:?}");
    assert!(std::fs::exists(files.path("mine/runs/0")).unwrap());
    assert_eq!(std::fs::read_to_string(files.path("mine/volume.json")).unwrap(), "mine");
}

#[test]
fn values_of_secrets_are_not_shown() {
    let files = Files::new();
    let config = std::fs::read_to_string(root().join("configmaps/script.yaml")).unwrap();
    let secret = "\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: array}\nstringData: {PASSWORD: hunter2}\n";
    let config = files.write("config.yaml", &(config + secret));
    let common = ["--set", "secret-env=array", "--config", &config];
    let (answer, runs) = attempt(&common);
    assert!(answer.code == Some(0) && runs[0].get("environment").is_none(), "{answer:?}");
    let (answer, runs) = attempt(&[&["--show-env"], &common[..]].concat());
    let environment = &runs[0]["environment"];
    assert_eq!((&environment["PASSWORD"], &environment["OPERATION"]), (&"***".into(), &"provision".into()));
    let printed = call(&[&["try", "--show-env"], &common[..]].concat());
    assert!(printed.out.contains("PASSWORD=***"), "{printed:?}");
    assert!(!answer.out.contains("hunter2") && !printed.out.contains("hunter2"), "{printed:?}");
}

#[test]
fn this_machine_stays_read_only_when_the_root_is_not() {
    let files = Files::new();
    let text = "#!/bin/sh\ntouch /mine && echo written\ntouch /usr/mine /var/mine || echo refused\nexit 1\n";
    let program = files.write("program", text);
    let template =
        "pod-template={spec: {containers: [{name: provisioner, securityContext: {readOnlyRootFilesystem: false}}]}}";
    let (answer, runs) = attempt(&["--set", template, "--set", "run-as-user=0", &program]);
    let output = runs[0]["output"].as_str().unwrap_or_else(|| panic!("{answer:?}"));
    assert!(output.lines().any(|line| line == "refused"), "{output}");
    assert_eq!(output.matches("Read-only file system").count(), 2, "{output}");
    assert!(output.lines().any(|line| line == "written") && !std::fs::exists("/mine").unwrap(), "{output}");
}

#[test]
fn a_run_is_unconfined_only_by_a_flag_and_with_a_warning() {
    let files = Files::new();
    let program = files.write("program", "#!/bin/sh\n[ ! -e /etc/flex/claim-uuid ] && echo unconfined\nexit 1\n");
    let (answer, runs) = attempt(&["--unconfined", &program]);
    assert_eq!(runs[0]["output"], "unconfined\n", "{answer:?}");
    assert!(answer.err.starts_with("warning: --unconfined: the program runs on the real file system"), "{answer:?}");
}

#[test]
fn storage_does_not_lead_out_of_the_desk() {
    let answer = call(&["try", "--storage", "/srv/../../etc", "/bin/true"]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.err.contains("write a path without `..`"), "{answer:?}");
}

#[test]
fn a_failure_is_told_as_the_users_will_read_it() {
    let files = Files::new();
    let fails = files.write("fails", "#!/bin/sh\nexec flex-pv fail no-room 'the array is full'\n");
    let (answer, runs) = attempt(&[&fails]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let message = "attempt 1 failed: exit code 69: no room here: the array is full; next try in 2 s";
    assert_eq!(
        (&runs[0]["events"][0]["message"], &runs[0]["lastWords"]),
        (&message.into(), &"the array is full".into())
    );

    let nothing = files.write("nothing", "#!/bin/sh\nexit 0\n");
    let (answer, runs) = attempt(&[&nothing]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(runs[0]["events"][0]["message"].as_str().unwrap().contains("without creating the PersistentVolume"));

    let (answer, runs) =
        attempt(&["--set", "volume-sources=iscsi", &files.write("nfs", "#!/bin/sh\nexec flex-pv create --nfs a:/b\n")]);
    assert_eq!((answer.code, &runs[0]["events"][0]["reason"]), (Some(2), &"VolumeRefused".into()));
    assert!(runs[0]["mismatches"][0].as_str().unwrap().contains("does not allow nfs"), "{runs:?}");
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let files = Files::new();
    let text = "#!/bin/sh\ntrap 'echo stopped >/dev/termination-log; exit 1' TERM\necho ready\nsleep 60 & wait\n";
    let program = files.write("program", text);
    // On a busy machine, the time may be over before the program is ready for its end.
    let is_ready =
        |(_, runs): &(Answer, Vec<Value>)| runs[0]["output"].as_str().is_some_and(|output| output.contains("ready"));
    let mut attempts = (0..10).map(|_| attempt(&["--set", "timeout=5s", &program]));
    let (answer, runs) = attempts.find(is_ready).expect("the program is ready within its time");
    assert_eq!(answer.code, Some(2), "{answer:?}");
    let message = runs[0]["events"][0]["message"].as_str().unwrap();
    assert!(message.contains("did not end within `timeout`; its last words: stopped"), "{message}");
}

#[test]
fn a_program_that_no_container_can_start_does_not_start_here() {
    let files = Files::new();
    let program = files.write("program", "echo without a first line\n");
    let (answer, runs) = attempt(&[&program]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(runs[0]["events"][0]["message"].as_str().unwrap().contains("exec format error"), "{runs:?}");
}

#[test]
fn a_call_that_cannot_run_anything_says_what_to_do() {
    let missing = call(&["try"]);
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("name a program, or a config with a script"), "{missing:?}");
    let image = call(&["try", "--config", "configmaps/hostpath.yaml"]);
    assert_eq!(image.code, Some(1));
    assert!(image.err.contains("stands in for it"), "{image:?}");
    let capability = call(&["try", "--config", "configmaps/script.yaml", "--operation", "list"]);
    assert!(capability.err.contains("--set capabilities=list"), "{capability:?}");
}

#[test]
fn people_read_the_volume_and_the_verdict() {
    let files = Files::new();
    let program = files.write("program", "#!/bin/sh\nexec flex-pv create --nfs nas.example:/export/a\n");
    let answer = call(&["try", "--show-env", &program]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    for text in ["OPERATION=provision", "/etc/flex: ", "server: nas.example", "verdict     the orchestrator goes on"] {
        assert!(answer.out.contains(text), "{text}: {}", answer.out);
    }
}
