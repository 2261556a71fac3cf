//! Tests of the timeline of a claim, and of the command that shows it.

use flex_contract::names;
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, USER, annotation, uid};
use orchestrator::wait::until;
use serde_json::{Value, json};

/// Runs `trace` for a claim until it prints a text. Returns all that it printed then.
async fn traced(ring: &Ring, claim: &str, text: &str) -> String {
    until(format!("trace of {claim} prints `{text}`"), || async {
        let (code, printed) = ring.command(&["trace", &format!("{USER}/{claim}")]).await;
        assert_eq!(code, 2, "{printed}");
        if printed.contains(text) { Ok(printed) } else { Err(printed) }
    })
    .await
}

fn stages(timeline: &str) -> Vec<String> {
    let timeline: Value = serde_json::from_str(timeline).unwrap();
    timeline["ms"].as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn a_bound_claim_keeps_the_timeline_of_its_attempt() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    let failed = |claim: &_| annotation(claim, names::TIMELINE).is_some();
    let failed = ring.claim_when("a", "has the timeline of its failed attempt", failed).await;
    let timeline = annotation(&failed, names::TIMELINE).unwrap();
    assert!(stages(&timeline).contains(&"failed".to_owned()) && timeline.contains(r#""attempt":1"#), "{timeline}");
    let job = ring.job(ADMIN, "provision", &uid(&claim), 2).await;
    let printed = traced(&ring, "a", "Waits for ").await;
    let first = |printed: &str| {
        let line = printed.lines().find(|line| line.starts_with("Attempt 1 failed after "));
        line.is_some_and(|line| line.ends_with(": ExitCode: exit code 75: try again later: busy"))
    };
    assert!(first(&printed), "{printed}");
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    // The PV controller may bind the claim before the orchestrator does.
    let second =
        |claim: &_| annotation(claim, names::TIMELINE).is_some_and(|timeline| timeline.contains(r#""attempt":2"#));
    let bound = ring.claim_when("a", "has the timeline of its second attempt", second).await;
    let timeline = annotation(&bound, names::TIMELINE).unwrap();
    for stage in ["stamped", "job-created", "volume-created", "bound"] {
        assert!(stages(&timeline).contains(&stage.to_owned()), "{stage}: {timeline}");
    }
    assert!(!timeline.contains("failed"), "{timeline}");
    ring.logged("claim bound").await;

    let (code, printed) = ring.command(&["trace", "-n", USER, "a"]).await;
    assert!(code == 0 && printed.contains("is bound to volume pvc-") && printed.contains("ATTEMPT 2"), "{printed}");
    // The first attempt is shown when the claim has been bound for long, too.
    assert!(first(&printed), "{printed}");
    let (code, printed) = ring.command(&["trace", "-n", USER, "a", "-o", "json", "--watch"]).await;
    let report: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_eq!((code, &report["bound"], &report["attempt"]), (0, &json!(true), &json!(2)));
    let failed = &report["failedAttempts"];
    assert_eq!(
        (&failed[0]["attempt"], &failed[0]["reason"], &failed[1]),
        (&json!(1), &json!("ExitCode"), &json!(null))
    );
    assert_eq!(failed[0]["stages"].as_array().unwrap().last().unwrap()["stage"], "failed");
    let named: Vec<_> = report["stages"].as_array().unwrap().iter().map(|stage| &stage["stage"]).collect();
    assert_eq!(named.last(), Some(&&json!("bound")));
    let (code, printed) = ring.command(&["trace", "-n", USER, "absent"]).await;
    assert!(code == 1 && printed.contains("claim team/absent does not exist"), "{printed}");
}

#[tokio::test]
async fn a_pending_claim_is_told_for_whom_it_waits_and_what_to_do() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.node("node-1").await;
    let quick = ("backoff", "1s");
    ring.config("c", "c", &[quick]).await;
    ring.claim("early", "c").await;
    traced(&ring, "early", "Nobody works on it: ").await;
    ring.run().await;
    ring.config("small", "small", &[("max-size", "1Mi")]).await;
    ring.config("busy", "busy", &[("max-in-flight", "1")]).await;
    ring.config("full", "full", &[("max-volumes", "0")]).await;
    ring.config("late", "late", &[("placement", "selected-node")]).await;
    ring.class("late", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    ring.class("strangers", "stranger.example", json!({})).await;
    ring.class("unconfigured", names::DEFAULT_PROVISIONER, json!({})).await;

    // Nobody works on these claims.
    ring.claim_with("classless", "", json!({})).await;
    traced(&ring, "classless", "the claim has no class: name one in spec.storageClassName").await;
    ring.claim("lost", "gone").await;
    traced(&ring, "lost", "class gone does not exist: there is no StorageClass of that name").await;
    ring.claim("theirs", "strangers").await;
    traced(&ring, "theirs", "class strangers belongs to another provisioner than flex-provisioner.io").await;
    ring.claim("unconfigured", "unconfigured").await;
    traced(&ring, "unconfigured", "has no volume yet: no provisioner config serves the class").await;

    // These wait for a person.
    ring.claim("large", "small").await;
    traced(&ring, "large", "class small provides at most 1Mi; ask for less").await;
    ring.claim("late", "late").await;
    traced(&ring, "late", "To do: Create a pod that uses the claim.").await;
    ring.claim("full", "full").await;
    let full = traced(&ring, "full", "LimitReached").await;
    assert!(full.contains("To do: Wait, or raise the limit (https://") && full.contains("#limitreached)."), "{full}");

    // These wait for others.
    ring.claim("first", "busy").await;
    ring.stamped("first").await;
    ring.claim("second", "busy").await;
    traced(&ring, "second", "Waits for an attempt to begin").await;
    ring.claim("stuck", "c").await;
    let claim = ring.stamped("stuck").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    let scheduled = json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": jiff::Timestamp::now() });
    ring.pod_status(&job, json!({ "phase": "Pending", "conditions": [scheduled] })).await;
    // The orchestrator gives up no pod for this reason.
    ring.pod_waits(&job, "CreateContainerError", "no such device").await;
    let stuck = traced(&ring, "stuck", "no such device").await;
    assert!(stuck.contains("Waits for the container to start") && stuck.contains("the work of the kubelet"), "{stuck}");
    ring.claim("broken", "c").await;
    let claim = ring.stamped("broken").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 65, "no such zone").await;
    let broken = traced(&ring, "broken", "attempt 1 failed").await;
    assert!(broken.contains("no such zone") && broken.contains("failed  "), "{broken}");
}
