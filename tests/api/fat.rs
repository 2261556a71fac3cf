//! Tests of claims on which users write as much as the API accepts.

use std::collections::BTreeMap;

use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use orchestrator::ring::{Ring, claim_of};

/// All these claims together are several times larger than the memory that the process may take.
const CLAIMS: usize = 60;
/// Less than half of the memory limit in `deploy/`, in KiB. Without any claim the process takes about 20 MiB.
const BOUND: u64 = 96 << 10;

/// Returns the most memory that a process has had so far, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Builds a claim with as many labels as the API accepts.
fn fat(name: &str, class: &str) -> PersistentVolumeClaim {
    let labels: BTreeMap<_, _> = (0..16_000).map(|n| (format!("example.com/l-{n:05}"), format!("value-{n}"))).collect();
    claim_of(class, name, json!({ "metadata": { "labels": labels } }))
}

#[tokio::test]
async fn claims_with_a_megabyte_of_labels_take_no_memory() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.config("silver", "silver", &[("claim-metadata", "example.com/owner")]).await;
    let claims: Api<PersistentVolumeClaim> = ring.claims();
    let classes = ["silver", "nobody"];
    let created = stream::iter(0..CLAIMS).map(|n| {
        let claims = claims.clone();
        async move { claims.create(&PostParams::default(), &fat(&format!("fat-{n:03}"), classes[n % 2])).await.unwrap() }
    });
    created.buffer_unordered(8).for_each(|_| async {}).await;

    // While all claims are listed.
    ring.run().await;
    ring.event(&ring.user, "fat-000", "ProvisioningFailed", "labels, annotations and finalizers").await;
    let listed = peak(ring.pid());
    // Other claims are served meanwhile, and their runs get the metadata that the config names.
    let own = json!({ "metadata": { "labels": { "example.com/owner": "tom", "other": "x" } } });
    let claim = ring.claim_with("slim", "silver", own).await;
    let job = ring.job(&ring.admin, "provision", &claim.metadata.uid.unwrap(), 1).await;
    let env = serde_json::to_string(&job.spec).unwrap();
    assert!(env.contains("example.com/owner") && !env.contains("\"other\""), "{env}");

    // While the claims change, one after the other.
    for n in 0..CLAIMS / 4 {
        let patch = json!({ "metadata": { "annotations": { "example.com/changed": n.to_string() } } });
        let patch = kube::api::Patch::Merge(patch);
        claims.patch(&format!("fat-{n:03}"), &Default::default(), &patch).await.unwrap();
    }
    ring.event(&ring.user, "fat-000", "ProvisioningFailed", "labels, annotations and finalizers").await;
    let changed = peak(ring.pid());
    eprintln!("{CLAIMS} fat claims: {listed} KiB when they were listed, {changed} KiB after changes");
    assert!(listed < BOUND && changed < BOUND, "{listed} and {changed} KiB");
    assert_eq!(
        ring.get_claim("fat-000").await.metadata.finalizers.unwrap_or_default(),
        ["kubernetes.io/pvc-protection"]
    );
}

#[tokio::test]
async fn a_claim_older_than_its_config_reaches_the_image_with_its_long_metadata() {
    let ring = Ring::start().await;
    let metadata = json!({ "metadata": {
        "labels": { "example.com/owner": "tom" },
        "annotations": { "example.com/long": "x".repeat(20_000), "example.com/other": "none" },
    } });
    let claim = ring.claim_with("early", "late-class", metadata).await;
    ring.config("late", "late-class", &[("claim-metadata", "example.com/owner, example.com/long")]).await;
    let job = ring.job(&ring.admin, "provision", &claim.metadata.uid.unwrap(), 1).await;
    let env = serde_json::to_string(&job.spec).unwrap();
    assert!(env.contains("example.com/owner") && env.contains(&"x".repeat(20_000)), "{env}");
    assert!(!env.contains("example.com/other"), "{env}");
}
