//! Tests of outages: a class whose runs all fail starts them one at a time, and delays no other class.

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::ListParams;

use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{Ring, USER, WHILE, phase};
use orchestrator::wait::{GUARD, pause, stays, unexpected, until};

use crate::metrics::{scraped, value};

/// The series of the outage.
const OUTAGE: &str = r#"flex_outages{orchestrator="default",class="down",operation="provision"}"#;

/// Returns the runs of the class that are in progress.
async fn in_progress(ring: &Ring) -> Vec<Job> {
    let is_of_class = |job: &Job| job.labels().get(names::LABEL_CLASS).is_some_and(|class| class == "down");
    let is_over = |job: &Job| {
        let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|of| matches!(of.type_.as_str(), "Complete" | "Failed") && of.status == "True")
    };
    ring.all_jobs().await.into_iter().filter(|job| is_of_class(job) && !is_over(job)).collect()
}

/// Waits until a run of the class begins. No other may be in progress.
async fn single_run(ring: &Ring) -> Job {
    let begun = until("a run begins", || async {
        let jobs = in_progress(ring).await;
        let names: Vec<_> = jobs.iter().map(ResourceExt::name_any).collect();
        assert!(jobs.len() <= 1, "several begin at one time: {names:?}");
        jobs.into_iter().next().ok_or_else(|| "no run".to_owned())
    });
    let job = ring.explained(begun).await;
    assert!(ring.begins(&job).await);
    job
}

/// Lets runs fail, and waits until they are over. A leader closes those that its predecessor has not opened.
async fn fail(ring: &Ring, jobs: &[Job]) {
    for job in jobs {
        if ring.begins(job).await {
            ring.pod_ends_or_is_deleted(job, 75, "the array does not answer").await;
        }
    }
    let over = until("the runs are over", || async {
        let left: Vec<_> = in_progress(ring).await.iter().map(ResourceExt::name_any).collect();
        if jobs.iter().any(|job| left.contains(&job.name_any())) { unexpected(left) } else { Ok(()) }
    });
    ring.explained(over).await;
}

/// Lets each run of the class fail, until the orchestrator knows of the outage.
async fn begin_outage(ring: &Ring) {
    let (mut ended, began) = (BTreeSet::new(), Instant::now());
    while !scraped(ring).await.contains(OUTAGE) {
        for job in in_progress(ring).await {
            if ended.insert(job.name_any()) && ring.begins(&job).await {
                ring.pod_ends_or_is_deleted(&job, 75, "the array does not answer").await;
            }
        }
        assert!(began.elapsed() < GUARD, "no outage is known after {ended:?}");
        tokio::time::sleep(pause(began.elapsed())).await;
    }
}

/// Waits until a claim that waits for its turn says so.
async fn claim_that_waits(ring: &Ring) {
    let told = until("a claim says that it waits for the end of the outage", || async {
        let events = ring.api::<Event>(USER).list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let says = |event: &&Event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason::LIMIT_REACHED.name) && message.contains("starts one at a time")
        };
        events.iter().find(says).map(drop).ok_or_else(|| format!("{} events", events.items.len()))
    });
    ring.explained(told).await;
}

#[tokio::test]
async fn a_class_whose_backend_is_down_starts_one_run_at_a_time_and_delays_no_other() {
    let mut ring = Ring::start().await;
    let keys = [("placement", "any"), ("backoff", "1s..1s")];
    for class in ["down", "up"] {
        ring.config(class, class, &keys).await;
    }
    let claims: Vec<String> = (0..7).map(|n| format!("claim-{n}")).collect();
    for claim in &claims {
        ring.claim(claim, "down").await;
    }
    begin_outage(&ring).await;
    // The next leader learns it from the records of the claims. Runs that had their slots before go on.
    ring.kill().await;
    let left = in_progress(&ring).await;
    ring.run().await;
    fail(&ring, &left).await;
    value(&ring, OUTAGE, |value| value == 1.0).await;

    let probe = single_run(&ring).await;
    stays("no other run begins", WHILE, || async {
        let jobs: Vec<_> = in_progress(&ring).await.iter().map(ResourceExt::name_any).collect();
        if jobs == [probe.name_any()] { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.claim("other", "up").await;
    ring.provision("other").await;
    claim_that_waits(&ring).await;
    fail(&ring, &in_progress(&ring).await).await;

    // The backend is back, and all others follow together.
    let probe = single_run(&ring).await;
    ring.create_volume(&nfs_volume(&probe)).await;
    ring.pod_ends(&probe, 0, "").await;
    let together = until("several runs begin", || async {
        let jobs: Vec<_> = in_progress(&ring).await.iter().map(ResourceExt::name_any).collect();
        if jobs.len() > 1 { Ok(()) } else { unexpected(jobs) }
    });
    ring.explained(together).await;
    assert!(!scraped(&ring).await.contains(OUTAGE), "the outage is over");
    let (mut ended, began) = (BTreeSet::new(), Instant::now());
    loop {
        for job in in_progress(&ring).await {
            if ended.insert(job.name_any()) && ring.begins(&job).await {
                ring.create_volume(&nfs_volume(&job)).await;
                ring.pod_ends(&job, 0, "").await;
            }
        }
        let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
        if claims.iter().all(|claim| phase(claim) == "Bound") {
            break;
        }
        assert!(began.elapsed() < GUARD, "not all claims are bound");
        tokio::time::sleep(pause(began.elapsed())).await;
    }
}
