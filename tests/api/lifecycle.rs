//! Tests of replicas, and of Jobs that somebody deletes.

use std::time::Instant;

use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;

use orchestrator::kubelet::nfs_volume;
use orchestrator::page::{SERVED, WITH_PAGE, asked, json_of, served_at};
use orchestrator::ring::{ADMIN, OWN, Ring, USER, uid};
use orchestrator::wait::{unexpected, until};

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
    let mut ring = Ring::start_with(&WITH_PAGE).await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    ring.stamped("a").await;
    let standby = ring.spawn("two").await;
    let page = until("the standby serves its page", || async {
        let log = ring.log_of_replica("two");
        log.lines().find(|line| line.contains(SERVED)).map(served_at).ok_or(log)
    })
    .await;
    until("the page of the standby names the leader", || async {
        let (json, html) = (json_of(page, "/").await, asked(page, "GET", "/", "localhost").await);
        let head = &json["head"];
        let knows = head["leads"] == false && head["leader"] == "one" && head["replica"] == "two";
        let shows = html.contains("The Lease names <bdi>one</bdi>") && html.contains("This replica does not lead");
        if knows && shows { Ok(()) } else { unexpected((json, html)) }
    })
    .await;
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
