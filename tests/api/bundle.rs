//! Tests of support bundles: they have no secrets, and commands work from them without the cluster.

use std::io::Read;
use std::path::Path;
use std::process::Command;

use flex_contract::names;
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, Ring, USER, annotation, uid};
use orchestrator::wait::until;
use serde_json::{Value, json};

/// Runs a command on a bundle, without access to any cluster.
fn offline(bundle: &Path, arguments: &[&str]) -> (i32, String) {
    let ended = Command::new(tool())
        .args(arguments)
        .arg("--bundle")
        .arg(bundle)
        .env("KUBECONFIG", "/nonexistent")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (ended.status.code().unwrap(), text)
}

/// Returns the text of all files of an archive.
fn unpacked(bundle: &Path) -> String {
    let mut unpacked = Command::new("tar");
    let unpacked = unpacked.arg("-xzOf").arg(bundle).output().unwrap();
    assert!(unpacked.status.success());
    String::from_utf8_lossy(&unpacked.stdout).into_owned()
}

#[tokio::test]
async fn a_bundle_tells_what_would_be_decided_without_the_cluster() {
    let ring = Ring::start().await;
    let token = "eyJhbGciOi-the-token";
    ring.config("c", "c", &[("backoff", "1h..2h"), ("service-token", token), ("zone", "west")]).await;
    ring.config("busy", "busy", &[("max-in-flight", "1")]).await;
    let login = json!({ "metadata": { "name": "login" }, "stringData": { "password": "the-password" } });
    let secrets = ring.api::<Secret>(ADMIN);
    secrets.create(&PostParams::default(), &serde_json::from_value(login).unwrap()).await.unwrap();
    ring.claim("fails", "c").await;
    let claim = uid(&ring.stamped("fails").await);
    let job = ring.job(ADMIN, "provision", &claim, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    ring.claim_when("fails", "has failed", |claim: &_| annotation(claim, names::FAILURE).is_some()).await;
    until("the next attempt is not due", || async {
        let (_, replayed) = ring.command(&["replay", &format!("{USER}/fails")]).await;
        if replayed.contains("RunNotDue") { Ok(()) } else { Err(replayed) }
    })
    .await;
    ring.claim("first", "busy").await;
    // In a bundle only the Job shows that the slot is taken.
    let first = uid(&ring.stamped("first").await);
    ring.job(ADMIN, "provision", &first, 1).await;
    ring.claim("second", "busy").await;

    let directory = tempfile::tempdir().unwrap();
    let bundle = directory.path().join("bundle.tar.gz");
    let (code, printed) = ring.command(&["support-bundle", "-o", &bundle.display().to_string()]).await;
    assert!(code == 0 && printed.contains("is written"), "{printed}");
    let text = unpacked(&bundle);
    for secret in [token, "the-password"] {
        assert!(!text.contains(secret), "the bundle has {secret}");
    }
    assert!(text.contains("status.txt") && text.contains("west"), "{text}");
    let mut whole = Vec::new();
    std::fs::File::open(&bundle).unwrap().read_to_end(&mut whole).unwrap();
    assert!(whole.starts_with(&[0x1f, 0x8b]), "the archive is compressed");

    // What follows reads no cluster.
    let (code, replayed) = offline(&bundle, &["replay", "-o", "json"]);
    assert_eq!(code, 0, "{replayed}");
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    let rule = |about: &str| {
        let decisions = replayed["decisions"].as_array().unwrap();
        let found = decisions.iter().find(|decision| decision["about"].as_str().unwrap().ends_with(about));
        found.unwrap_or_else(|| panic!("{about} is not in {replayed}")).clone()
    };
    let fails = rule(&format!("{USER}/fails"));
    assert_eq!((&fails["rule"], &fails["step"]), (&json!("RunNotDue"), &Value::Null), "{fails}");
    assert!(fails["againAt"].as_i64().is_some(), "{fails}");
    assert_eq!(rule(&format!("{USER}/second"))["rule"], "NoFreeSlot");
    let (code, told) = offline(&bundle, &["replay", "fails"]);
    assert!(code == 0 && told.contains("RunNotDue") && told.contains("rule: The last run failed"), "{told}");
    let (code, state) = offline(&bundle, &["status"]);
    assert!(code == 0 && state.contains("failing: 1 claim, last team/fails"), "{state}");
    let (code, trace) = offline(&bundle, &["trace", &format!("{USER}/fails")]);
    assert!(code == 2 && trace.contains("attempt 1 failed"), "{trace}");
    let (code, explained) = offline(&bundle, &["explain", "c"]);
    assert!(code == 0 && explained.contains("zone (parameter)"), "{explained}");
    let (code, refused) = offline(&bundle, &["retry", &format!("{USER}/fails")]);
    assert!(code == 1 && refused.contains("a bundle can only be read"), "{refused}");
    let (code, again) = ring.command(&["support-bundle", "-o", &bundle.display().to_string()]).await;
    assert!(code == 1 && again.contains("name another file with --output"), "{again}");
}
