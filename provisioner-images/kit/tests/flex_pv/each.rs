//! Tests of `flex-pv each`: a script over the claims of a batch.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::batch::{Batch, failed, outcomes};
use super::tool::{ENVIRONMENT, GUARD, flex_pv, until_quick};

#[test]
fn each_claim_has_its_own_environment_and_outcome() {
    let batch = Batch::of(6);
    let ended = batch.run(
        &[],
        r#"
        echo "$OPERATION $STORAGE_CLASS $PV_NAME ${BATCH-unset}" >"$HOME/made-$CLAIM_UUID"
        case $PVC_NAME in
        data-2) exec "$FLEX_PV" fail never "not
this one" ;;
        data-3) echo "looking around"; echo "the array is off" >&2; exit 75 ;;
        data-4) kill -9 $$ ;;
        data-5) echo "I have $SIZE_BYTES"; exit 0 ;;
        data-6) exit 1 ;;
        esac
        "#,
    );
    assert_eq!(ended.code, 0, "the members' outcomes are reported: {ended:?}");
    let expected = [
        failed(2, 65, "not this one"),
        failed(3, 75, "looking around the array is off"),
        failed(4, 137, ""),
        failed(6, 1, ""),
    ];
    assert_eq!(outcomes(&ended.termination_message), expected);
    for n in 1..=6 {
        let id = format!("c0ffee00-0000-4000-8000-{n:012}");
        let made = std::fs::read_to_string(batch.folder.path().join(format!("made-{id}"))).unwrap();
        assert_eq!(made, format!("provision silver pvc-{id} unset\n"));
    }
    assert!(ended.err.contains("[5] I have 3221225472\n"), "{ended:?}");
}

/// A shell that traces its commands prints them with the values of their variables.
#[test]
fn the_trace_of_a_member_is_reported_without_its_secrets() {
    let batch = Batch::of(3);
    let environment = batch.environment();
    let mut environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    environment.push(("ARRAY_PASSWORD", "hunter22"));
    // The end of the third member's output begins in the middle of the secret.
    let script = r#"set -x
        [ "$PVC_NAME" != data-2 ] || exec "$FLEX_PV" fail never "no login as $ARRAY_PASSWORD"
        [ "$PVC_NAME" != data-3 ] || { printf '%s' "$ARRAY_PASSWORD"; printf '%0595d' 0; exit 75; } 2>/dev/null
        : login "$ARRAY_PASSWORD"; exit 75"#;
    let ended = flex_pv(&["each", "--", "/bin/sh", "-c", script], &environment, "");
    let outcomes = outcomes(&ended.termination_message);
    assert_eq!(outcomes.len(), 3, "{ended:?}");
    assert!(outcomes[0].2.contains(": login ***"), "{outcomes:?}");
    assert_eq!(outcomes[1], failed(2, 65, "no login as ***"));
    for (_, _, texts) in &outcomes {
        assert!(!texts.contains("hunter22") && !texts.contains("ter22"), "{texts}");
    }
}

#[test]
fn a_successful_batch_has_no_message() {
    let ended = Batch::of(3).run(&["--jobs", "1"], "exit 0");
    assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
}

#[test]
fn exactly_the_requested_number_runs_at_one_time() {
    let batch = Batch::of(9);
    // Each script waits until three have begun, which never happens with fewer at one time.
    let ended = batch.run(
        &["--jobs", "3", "--timeout", "120"],
        r#"
        mkdir "$HOME/now-$CLAIM_UUID"; : >"$HOME/begun-$CLAIM_UUID"
        set -- "$HOME"/now-*; [ $# -le 3 ] || exit 9
        while set -- "$HOME"/begun-*; [ $# -lt 3 ]; do sleep 0.02; done
        rmdir "$HOME/now-$CLAIM_UUID"
        "#,
    );
    assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
    assert_eq!((batch.files("begun-"), batch.files("now-")), (9, 0));
}

#[test]
fn a_hanging_member_is_stopped_with_its_child_processes() {
    let story = || {
        let (batch, begun) = (Batch::of(3), Instant::now());
        let ended = batch.run(
            &["--jobs", "1", "--timeout", "10"],
            r#"[ "$PVC_NAME" != data-1 ] || { sleep 1000 & echo $! >"$HOME/left"; echo "waits for the array"; wait; exit 3; }"#,
        );
        assert!(begun.elapsed() < GUARD);
        (batch, ended)
    };
    let (batch, ended) = until_quick(story, |(_, ended)| {
        ended.is_alone_in_its_delay() && ended.termination_message.contains("waits for the array")
    });
    assert_eq!(ended.code, 0, "{ended:?}");
    let texts = "it took longer than 10 s and was stopped; its last words: waits for the array";
    assert_eq!(outcomes(&ended.termination_message), [failed(1, 75, texts)]);
    let leftovers = std::fs::read_to_string(batch.folder.path().join("left")).unwrap();
    // For an ended process that was not waited for, this is empty.
    let runs = std::fs::read(format!("/proc/{}/cmdline", leftovers.trim())).unwrap_or_default();
    assert!(runs.is_empty(), "{}", String::from_utf8_lossy(&runs));
}

#[test]
fn a_process_that_keeps_the_output_open_delays_no_member() {
    let (batch, begun) = (Batch::of(2), Instant::now());
    let ended = batch.run(&["--jobs", "1"], "sleep 1000 & echo $! >>\"$HOME/left\"; exit 0");
    assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""), "{ended:?}");
    assert!(begun.elapsed() < GUARD);
    for process in std::fs::read_to_string(batch.folder.path().join("left")).unwrap().lines() {
        assert!(Command::new("kill").arg(process).status().unwrap().success(), "the process still runs");
    }
}

/// Stops a batch of four while two members wait, and the first has failed. Returns the outcomes.
fn stopped() -> Vec<(usize, i32, String)> {
    let batch = Batch::of(4);
    let log = batch.folder.path().join("log");
    let script = r#"
        [ "$PVC_NAME" != data-1 ] || exec "$FLEX_PV" fail never "too large"
        trap 'echo "asked to stop" >&2; exit 75' TERM
        : >"$HOME/begun-$CLAIM_UUID"; sleep 1000 & wait
    "#;
    let mut run = Command::new(env!("CARGO_BIN_EXE_flex-pv"))
        .args(["each", "--jobs", "2", "--", "/bin/sh", "-c", script])
        .env_clear()
        .envs(ENVIRONMENT.iter().copied())
        .envs(batch.environment())
        .env("FLEX_TERMINATION_LOG", &log)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while batch.files("begun-") < 2 {
        assert!(begun.elapsed() < GUARD, "two members begin");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").arg(run.id().to_string()).status().unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(143), "the other outcomes are not known");
    assert_eq!(batch.files("begun-"), 2, "the fourth member never began");
    outcomes(&std::fs::read_to_string(log).unwrap())
}

#[test]
fn a_stopped_batch_stops_its_members_and_reports_the_known_outcomes() {
    // A member that is still there after its time is killed.
    let outcomes = until_quick(stopped, |outcomes| outcomes.iter().all(|(_, code, _)| *code != 137));
    let expected = [failed(1, 65, "too large"), failed(2, 75, "asked to stop"), failed(3, 75, "asked to stop")];
    assert_eq!(outcomes, expected);
}

#[test]
fn for_a_single_claim_the_tool_becomes_the_program() {
    let flex_pv_path = env!("CARGO_BIN_EXE_flex-pv");
    let ended = flex_pv(&["each", "--jobs", "8", "--", flex_pv_path, "fail", "no-room", "full"], &[], "");
    assert_eq!((ended.code, ended.termination_message.as_str()), (69, "full"), "{ended:?}");
    let ended = flex_pv(&["each", "--", "/nonexistent/provision.sh"], &[], "");
    assert_eq!(ended.code, 127, "{ended:?}");
    assert!(ended.termination_message.contains("/nonexistent/provision.sh cannot be started"), "{ended:?}");
}

#[test]
fn a_batch_that_cannot_begin_reports_the_reason() {
    let batch = Batch::of(2);
    let environment = batch.environment();
    let with = |name: &'static str, value: &'static str| -> Vec<(&str, &str)> {
        let others = environment.iter().filter(|(other, _)| *other != name);
        others.map(|(name, value)| (*name, value.as_str())).chain([(name, value)]).collect()
    };
    for (name, value, code, says) in [
        ("BATCH", "", 64, "BATCH is not set"),
        ("BATCH", "/nonexistent", 75, "/nonexistent"),
        ("BATCH", "/dev/null", 64, "is empty"),
        ("BATCH", "/proc/self/environ", 64, "line 1"),
    ] {
        let ended = flex_pv(&["each", "--", "/bin/sh", "-c", ": >$HOME/begun"], &with(name, value), "");
        assert_eq!(ended.code, code, "{value}: {ended:?}");
        assert!(ended.termination_message.contains(says), "{value}: {ended:?}");
    }
    assert_eq!(batch.files("begun"), 0);
    let ended = flex_pv(&["each", "--", "/nonexistent/x"], &with("UNUSED", "1"), "");
    let texts = "/nonexistent/x cannot be started: No such file or directory (os error 2)";
    assert_eq!(outcomes(&ended.termination_message), [failed(1, 127, texts), failed(2, 127, texts)], "{ended:?}");
    for arguments in [&["each"][..], &["each", "--jobs", "0", "--", "x"], &["each", "--timeout", "0", "--", "x"]] {
        assert_eq!(flex_pv(arguments, &with("UNUSED", "1"), "").code, 64, "{arguments:?}");
    }
}

#[test]
fn a_program_without_batches_makes_no_volume() {
    let batch = Batch::of(2);
    let environment = batch.environment();
    let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ended = flex_pv(&["create", "--nfs", "nas:/a", "--dry-run"], &environment, "");
    assert_eq!((ended.code, ended.out.as_str()), (64, ""), "{ended:?}");
    assert!(ended.termination_message.contains("flex-pv each"), "{ended:?}");
}
