//! Tests of restarts, replicas, and many claims at once.

use std::time::{Duration, Instant};

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;

use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, OWN, Ring, USER, annotation, uid};
use orchestrator::wait::{unexpected, until};

#[tokio::test]
async fn an_orchestrator_killed_at_any_time_continues_its_work() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[]).await;

    // Killed after the Job was created; the volume appears while no orchestrator runs.
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.kill().await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.pod_ends(&job, 0, "").await;
    ring.run().await;
    ring.bound("a").await;

    // The claim is deleted while no orchestrator runs.
    ring.kill().await;
    ring.delete_claim("a").await;
    ring.run().await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    // Killed during the delete run, which ends meanwhile.
    ring.kill().await;
    ring.pod_ends(&job, 0, "").await;
    ring.run().await;
    ring.volume_gone(&names::pv_name(&id)).await;

    // The claim is deleted during its attempt, while no orchestrator runs.
    ring.claim("b", "c").await;
    let id = uid(&ring.stamped("b").await);
    ring.job(ADMIN, "provision", &id, 1).await;
    ring.kill().await;
    ring.delete_claim("b").await;
    ring.run().await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.claim_gone("b").await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_job_deleted_by_hand_is_created_again() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "3s..9s")]).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let name = job.metadata.name.clone().unwrap();
    ring.api::<Job>(ADMIN).delete(&name, &kube::api::DeleteParams::background()).await.unwrap();
    let again = until("another Job", || async {
        let jobs = ring.jobs(ADMIN, "provision", &id).await;
        match jobs.iter().find(|other| other.metadata.uid != job.metadata.uid) {
            Some(job) => Ok(job.clone()),
            None => unexpected(jobs.len()),
        }
    })
    .await;
    // After repeated deletions an event says so, and new Jobs get a delay. It counts from the end of the Job. This one
    // ends after its pod, so that the orchestrator need not wait for the pod.
    ring.api::<Job>(ADMIN).delete(&name, &kube::api::DeleteParams::foreground()).await.unwrap();
    ring.event(USER, "a", reason::PROVISIONING_FAILED, "removed the attempt's Job 2 times").await;
    let again = until("a third Job", || async {
        let jobs = ring.jobs(ADMIN, "provision", &id).await;
        let other = jobs.iter().find(|job| job.metadata.uid != again.metadata.uid);
        other.cloned().ok_or_else(|| jobs.len().to_string())
    })
    .await;
    ring.create_volume(&nfs_volume(&again)).await;
    ring.bound("a").await;
}

#[tokio::test]
async fn a_standby_takes_over_at_once_after_a_graceful_stop() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    ring.stamped("a").await;
    let standby = ring.spawn("two").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let holder = || async {
        let lease = ring.api::<Lease>(OWN).get("flex-provisioner-default").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap_or_default()
    };
    assert_eq!(holder().await, "one");
    let began = Instant::now();
    ring.stop().await;
    until("the standby leads", || async {
        let lease = ring.api::<Lease>(OWN).get("flex-provisioner-default").await.unwrap();
        let holder = lease.spec.unwrap().holder_identity.unwrap_or_default();
        if holder == "two" { Ok(()) } else { unexpected(holder) }
    })
    .await;
    println!("graceful stop → standby leads after {:?}", began.elapsed());
    ring.claim("b", "c").await;
    ring.stamped("b").await;
    drop(standby);
}

#[tokio::test]
async fn runs_in_flight_are_limited_and_all_claims_are_provisioned() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("max-in-flight", "3"), ("placement", "any")]).await;
    for n in 0..12 {
        ring.claim(&format!("c{n}"), "c").await;
    }
    let began = Instant::now();
    loop {
        let jobs = ring.api::<Job>(ADMIN).list(&ListParams::default()).await.unwrap().items;
        let open: Vec<_> = jobs
            .iter()
            .filter(|job| {
                job.status.as_ref().is_none_or(|s| s.completion_time.is_none())
                    && job.metadata.deletion_timestamp.is_none()
            })
            .collect();
        assert!(open.len() <= 3, "{} runs at once", open.len());
        for job in &open {
            let volume = nfs_volume(job);
            if ring.volumes().get_opt(volume.metadata.name.as_deref().unwrap()).await.unwrap().is_none() {
                ring.begins(job).await;
                ring.create_volume(&volume).await;
                ring.pod_ends(job, 0, "").await;
            }
        }
        let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
        if claims.iter().all(|claim| orchestrator::ring::phase(claim) == "Bound") {
            break;
        }
        assert!(began.elapsed() < orchestrator::wait::GUARD, "not all are bound");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("12 claims, 3 at once: {:?}", began.elapsed());
    let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
    assert!(claims.iter().all(|claim| annotation(claim, names::ATTEMPT).as_deref() == Some("1")));
}
