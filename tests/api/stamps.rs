//! Tests of the stamp: the claim has it before anything else is created, and only the orchestrator's counts.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use orchestrator::ring::{ADMIN, Ring, USER, annotation, uid};

#[tokio::test]
async fn the_stamp_is_written_first_and_changes_with_each_attempt() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    assert_eq!(annotation(&claim, names::CLAIM_UID), claim.metadata.uid);
    assert_eq!(annotation(&claim, names::ATTEMPT).as_deref(), Some("1"));
    assert!(annotation(&claim, names::RECIPE_VERSION).unwrap().starts_with("admin/c@"));
    assert_eq!(annotation(&claim, names::HELD), claim.metadata.uid);
    let own = |finalizer: &String| finalizer.starts_with("flex-provisioner.io/");
    assert!(!claim.metadata.finalizers.iter().flatten().any(own), "the claim can be deleted at any time");
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    assert_eq!(job.metadata.name.as_deref(), Some(format!("provision-{}-1", uid(&claim)).as_str()));
    let first = annotation(&claim, names::PROVISION_TS).unwrap();
    assert_eq!(orchestrator::kubelet::request(&job).provision_ts, first, "the pod gets the stamp's timestamp");
    let stamped_at: jiff::Timestamp = first.parse().unwrap();
    assert!(job.metadata.creation_timestamp.unwrap().0.as_second() >= stamped_at.as_second());
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    let again = ring
        .claim_when("a", "has a second attempt", |claim| annotation(claim, names::ATTEMPT).as_deref() == Some("2"))
        .await;
    assert_ne!(annotation(&again, names::PROVISION_TS).unwrap(), first);
    ring.job(ADMIN, "provision", &uid(&claim), 2).await;
}

#[tokio::test]
async fn a_copied_or_forged_stamp_is_replaced() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("original", "c").await;
    ring.provision("original").await;
    let original = ring.get_claim("original").await;
    let mut annotations = original.metadata.annotations.clone().unwrap();
    annotations.retain(|key, _| key.starts_with("flex-provisioner.io/"));
    ring.claim_with("copy", "c", json!({ "metadata": { "annotations": annotations } })).await;
    let copy = ring
        .claim_when("copy", "has its own stamp", |claim| annotation(claim, names::CLAIM_UID) == claim.metadata.uid)
        .await;
    ring.event(USER, "copy", reason::STALE_STAMP_REPLACED, "stamp of another claim").await;
    assert_ne!(uid(&copy), uid(&original));
    ring.provision("copy").await;
    let bound = ring.bound("copy").await;
    assert_eq!(bound.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&copy)), "a volume of its own");
}

/// The creator of a claim cannot say that the attempts of the claim never started. The storage of these attempts is deleted.
#[tokio::test]
async fn a_claim_that_was_made_with_a_failure_leaves_no_storage() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    let forged = json!({
        "operation": "provision", "attempt": 7, "at": 0, "kind": "retry", "reason": "x", "message": "y",
        "unstarted_attempts": 9,
    });
    let forged = json!({ "metadata": { "annotations": { names::FAILURE: forged.to_string() } } });
    ring.claim_with("a", "c", forged).await;
    let claim = ring.stamped("a").await;
    assert_eq!(annotation(&claim, names::FAILURE), None);
    // The run leaves storage without a volume.
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 75, "the storage is busy").await;
    ring.claim_when("a", "has a failed attempt", |claim| annotation(claim, names::FAILURE).is_some()).await;
    ring.delete_claim("a").await;
    let deletion = ring.job(ADMIN, "delete", &uid(&claim), 1).await;
    ring.pod_ends(&deletion, 0, "").await;
    ring.claim_gone("a").await;
}

#[tokio::test]
async fn a_lost_stamp_does_not_make_a_second_volume() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    let claim = ring.stamped("a").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    // A user removes this project's annotations.
    let off = json!({ "metadata": { "annotations": { names::CLAIM_UID: null, names::ATTEMPT: null, names::PROVISION_TS: null, names::RECIPE_VERSION: null } } });
    ring.claims().patch("a", &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
    ring.stamped("a").await;
    ring.create_volume(&orchestrator::kubelet::nfs_volume(&job)).await;
    ring.bound("a").await;
    let jobs = ring.api::<Job>(ADMIN).list(&ListParams::default()).await.unwrap();
    assert!(jobs.items.len() <= 1, "the same attempt has the same Job");
    assert_eq!(ring.volumes().list(&ListParams::default()).await.unwrap().items.len(), 1);
}
