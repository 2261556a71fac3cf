//! Tests of Jobs that a queue or a policy of the cluster suspends.

use flex_contract::names;
use flex_contract::reason::{self, Reason};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, uid};
use orchestrator::wait::{unexpected, until};

/// Suspends or resumes a Job, as a queue does.
async fn write(ring: &Ring, job: &Job, suspended: bool) {
    let queue = PatchParams { field_manager: Some("a-queue".into()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "spec": { "suspend": suspended } }));
    ring.api::<Job>(ADMIN).patch(&job.name_any(), &queue, &patch).await.unwrap();
}

/// Suspends a Job whose pod is on a new node. Kubernetes deletes the pod, and the kubelet ends its process.
async fn suspend(ring: &Ring, job: &Job, node: &str) {
    let pod = ring.pod_on_node(job, node).await;
    write(ring, job, true).await;
    until("the pod is deleted", || async {
        let deleted = ring.api::<Pod>(ADMIN).get(&pod).await.map_err(|error| error.to_string())?;
        if deleted.metadata.deletion_timestamp.is_some() { Ok(()) } else { unexpected(deleted.metadata) }
    })
    .await;
    ring.pod_ends_or_is_deleted(job, 137, "").await;
    // The kubelet still has to unmount the volumes of the pod.
    tokio::time::sleep(WHILE / 4).await;
    ring.pod_is_over(ADMIN, &pod).await;
}

/// An event says by whom the Job is suspended, and how to exempt it.
async fn is_told(ring: &Ring, namespace: &str, about: &str, reason: &Reason, job: &Job) {
    let by = format!("Job {ADMIN}/{} is suspended (`spec.suspend`) by a-queue", job.name_any());
    let message = ring.event(namespace, about, reason.name, &by).await;
    for part in [format!("the namespace {ADMIN}"), format!("{}={}", names::LABEL_MANAGED_BY, names::FIELD_MANAGER)] {
        assert!(message.contains(&part), "{message}");
    }
}

#[tokio::test]
async fn a_suspended_job_is_told_at_once_and_goes_on_when_it_is_resumed() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Delete")]).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    suspend(&ring, &job, "n1").await;
    is_told(&ring, USER, "a", reason::PROVISIONING_FAILED, &job).await;
    let (_, trace) = ring.command(&["trace", &format!("{USER}/a")]).await;
    assert!(trace.contains("the work of whoever suspended the Job"), "{trace}");
    assert!(!trace.contains("the work of the scheduler"), "{trace}");
    // The next pod of the Job waits for its opening, too.
    write(&ring, &job, false).await;
    ring.pod_of(&job).await;
    ring.create_volume(&nfs_volume(&job)).await;
    let volume = ring.bound("a").await.spec.unwrap().volume_name.unwrap();
    ring.pod_ends(&job, 0, "").await;

    ring.delete_claim("a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    suspend(&ring, &delete, "n2").await;
    is_told(&ring, "default", &volume, reason::VOLUME_FAILED_DELETE, &delete).await;
    write(&ring, &delete, false).await;
    until("the pod of the resumed Job", || async {
        ring.pod_ends_or_is_deleted(&delete, 0, "").await;
        let left = ring.volumes().get_opt(&volume).await.map_err(|error| error.to_string())?;
        left.map_or(Ok(()), |volume| Err(format!("{:?}", volume.metadata.annotations)))
    })
    .await;
}
