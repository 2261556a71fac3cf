//! Tests of `uninstall`: it names what still needs the orchestrator, and keeps storage where an admin asks for that.

use std::process::Command;

use flex_contract::names;
use serde_json::Value;

use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// Runs `uninstall`, and returns its exit code and its report.
fn uninstall(ring: &Ring, flags: &[&str]) -> (i32, Value) {
    let output = Command::new(tool())
        .args(["uninstall", "-o", "json", "--flex-namespace", OWN, "--config-namespace", ADMIN])
        .args(flags)
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report = serde_json::from_str(&text);
    let report = report.unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), report)
}

/// Returns the kinds of the objects that still need the orchestrator.
fn kinds(report: &Value) -> Vec<&str> {
    report["dependents"].as_array().unwrap().iter().map(|dependent| dependent["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_admin_learns_when_the_orchestrator_can_be_removed() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    assert_eq!(uninstall(&ring, &[]).0, 0, "nothing exists yet");

    ring.claim("a", "c").await;
    let (_, volume) = ring.provision("a").await;
    let settled = until("only the volume needs the orchestrator", || async {
        let (code, report) = uninstall(&ring, &[]);
        if kinds(&report) == ["PersistentVolume"] { Ok((code, report)) } else { unexpected(report) }
    });
    let (code, report) = settled.await;
    assert_eq!((code, &report["safe"]), (2, &Value::Bool(false)));

    ring.claim("b", "c").await;
    let id = uid(&ring.stamped("b").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let (_, report) = uninstall(&ring, &[]);
    assert_eq!(kinds(&report), ["Job", "PersistentVolume", "PersistentVolumeClaim"]);
    ring.delete_claim("b").await;
    ring.pod_ends_or_is_deleted(&job, 1, "").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.claim_gone("b").await;

    let (code, report) = uninstall(&ring, &["--retain", "--wait", "5m"]);
    assert_eq!((code, &report["safe"]), (0, &Value::Bool(true)), "{report}");
    let kept = ring.volumes().get(volume.metadata.name.as_deref().unwrap()).await.unwrap();
    assert_eq!(kept.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Retain"));
    let finalizers = kept.metadata.finalizers.unwrap_or_default();
    assert!(!finalizers.iter().any(|finalizer| finalizer == names::VOLUME_FINALIZER), "{finalizers:?}");

    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.volumes().delete(volume.metadata.name.as_deref().unwrap(), &Default::default()).await.unwrap();
}
