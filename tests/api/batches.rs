//! Tests of batches: one run for several claims, or for the deletion of several volumes.

mod leaders;

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::batch::{self, MemberFailure};
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::gate::no_pods;
use orchestrator::kubelet::{nfs_volume_of, requests};
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, annotation, phase, uid};
use orchestrator::wait::{GUARD, pause, stays, unexpected, until};

/// Runs need no node.
const ANYWHERE: (&str, &str) = ("placement", "any");

fn is_batch(job: &Job) -> bool {
    job.name_any().contains("-batch-")
}

/// Waits for the Job of a batch with this many claims, which is not the former one.
async fn job_of_batch(ring: &Ring, count: usize, former: Option<&Job>) -> Job {
    let found = until(format!("a batch of {count}"), || async {
        let jobs = ring.all_jobs().await;
        let names: Vec<_> = jobs.iter().map(|job| (job.name_any(), requests(job).len())).collect();
        let is_former = |job: &Job| former.is_some_and(|former| former.metadata.uid == job.metadata.uid);
        let wanted = |job: &Job| is_batch(job) && requests(job).len() == count && !is_former(job);
        jobs.into_iter().find(wanted).ok_or_else(|| format!("{names:?}"))
    });
    ring.explained(found).await
}

/// Waits for the run of a batch with this many claims, until it has begun. Returns its Job.
async fn batch_of(ring: &Ring, count: usize) -> Job {
    let job = job_of_batch(ring, count, None).await;
    ring.begins(&job).await;
    job
}

/// Creates a claim whose run does not end, so that the next claims are collected, and returns both Jobs. The
/// orchestrator begins again when all claims exist: a batch is open for a few seconds alone.
async fn collected(ring: &mut Ring, claims: &[&str]) -> (Job, Job) {
    ring.claim("first", "c").await;
    let id = uid(&ring.stamped("first").await);
    let first = ring.job(ADMIN, "provision", &id, 1).await;
    assert!(!is_batch(&first), "a single claim waits for no batch");
    ring.kill().await;
    for claim in claims {
        ring.claim(claim, "c").await;
    }
    ring.run().await;
    (first, batch_of(ring, claims.len()).await)
}

/// Creates claims with the stamp of their first attempt, as an orchestrator that was killed has left them.
async fn stamped(ring: &Ring, claims: &[&str]) {
    let first = ring.get_claim("first").await.metadata;
    for claim in claims {
        let mut stamp = first.annotations.clone().unwrap();
        let id = uid(&ring.claim(claim, "c").await);
        stamp.extend([names::CLAIM_UID, names::HELD].map(|key| (key.to_owned(), id.clone())));
        let stamped = json!({ "metadata": { "annotations": stamp } });
        ring.claims().patch(claim, &PatchParams::default(), &Patch::Merge(stamped)).await.unwrap();
    }
}

/// Makes a volume for each claim, and deletes the claim `first`. Its delete run continues, so that other deletions
/// are collected.
async fn deleting(ring: &Ring, names: &[&str]) -> (Job, Vec<String>) {
    let mut ids = Vec::new();
    for name in ["first"].iter().chain(names) {
        ring.claim(name, "c").await;
        ring.provision(name).await;
        ids.push(uid(&ring.get_claim(name).await));
        no_jobs_left(ring).await;
    }
    ring.delete_claim("first").await;
    let first = ring.job(ADMIN, "delete", &ids[0], 1).await;
    assert!(!is_batch(&first), "a single volume waits for no batch");
    (first, ids)
}

/// Kills the orchestrator, and deletes claims: the next one sees all their volumes at one time.
async fn released_together(ring: &mut Ring, claims: &[&str]) {
    ring.kill().await;
    for claim in claims {
        ring.delete_claim(claim).await;
    }
    all_released(ring).await;
}

async fn all_released(ring: &Ring) {
    until("all volumes are released", || async {
        let phase = |volume: PersistentVolume| volume.status.unwrap_or_default().phase.unwrap_or_default();
        let phases = ring.all_volumes().await.into_iter().map(phase);
        let others: Vec<_> = phases.filter(|phase| phase != "Released").collect();
        if others.is_empty() { Ok(()) } else { unexpected(others) }
    })
    .await;
}

async fn make(ring: &Ring, job: &Job, claim: &str) {
    let wanted = requests(job).into_iter().find(|request| request.claim.name == claim);
    ring.create_volume(&nfs_volume_of(&wanted.expect("the claim is in the batch"))).await;
}

/// Makes Kubernetes refuse the Jobs of batches: each member then gets a run of its own.
async fn no_batches(ring: &Ring) {
    let jobs =
        json!({ "apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"] });
    let refusal = json!({ "expression": "!object.metadata.name.contains('-batch-')", "message": "no batches" });
    let policy = json!({ "metadata": { "name": "no-batches" }, "spec": {
        "failurePolicy": "Fail", "matchConstraints": { "resourceRules": [jobs] }, "validations": [refusal],
    } });
    let binding = json!({
        "metadata": { "name": "no-batches" },
        "spec": { "policyName": "no-batches", "validationActions": ["Deny"] },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(ring.client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(ring.client.clone());
    policies.create(&PostParams::default(), &serde_json::from_value(policy).unwrap()).await.unwrap();
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    let probe = json!({ "metadata": { "name": "a-batch-of" }, "spec": { "template": { "spec": pod } } });
    let probe: Job = serde_json::from_value(probe).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until("the policy is in force", || async {
        match ring.api::<Job>(ADMIN).create(&dry, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains("no batches") => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
}

/// Plays the image for each new Job, until nothing waits any more. Returns the number of members of each Job.
async fn play_until_done(ring: &Ring, waiting: impl AsyncFn() -> usize) -> Vec<usize> {
    let (mut jobs, mut played, mut sizes) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let began = Instant::now();
    let none_waits = async {
        loop {
            for job in ring.all_jobs().await {
                if !jobs.insert(job.name_any()) {
                    continue;
                }
                ring.begins(&job).await;
                let requests = requests(&job);
                sizes.push(requests.len());
                for request in requests {
                    assert!(played.insert((request.volume_id.clone(), request.attempt)), "a member is in two Jobs");
                    if request.operation == Operation::Provision {
                        ring.create_volume(&nfs_volume_of(&request)).await;
                    }
                }
                succeeds(ring, &job).await;
            }
            let waiting = waiting().await;
            if waiting == 0 {
                return;
            }
            assert!(began.elapsed() < GUARD, "{waiting} wait; Jobs for {sizes:?}");
            tokio::time::sleep(pause(began.elapsed())).await;
        }
    };
    ring.explained(none_waits).await;
    sizes
}

async fn succeeds(ring: &Ring, job: &Job) {
    ring.pod_of(job).await;
    ring.pod_ends(job, 0, "").await;
}

async fn no_jobs_left(ring: &Ring) {
    let gone = until("no Job is left", || async {
        let leftovers: Vec<_> = ring.all_jobs().await.iter().map(ResourceExt::name_any).collect();
        if leftovers.is_empty() { Ok(()) } else { unexpected(leftovers) }
    });
    ring.explained(gone).await;
}

/// Returns the line of a claim in the list of a batch, from 1.
fn line(job: &Job, claim: &str) -> usize {
    1 + requests(job).iter().position(|request| request.claim.name == claim).unwrap()
}

#[tokio::test]
async fn few_jobs_provision_and_delete_a_burst_of_claims() {
    const CLAIMS: usize = 30;
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.config("c", "c", &[ANYWHERE, ("batch-size", "15"), ("batch-window", "5s")]).await;
    // A busy machine may stamp few claims within a window.
    let are_few = |sizes: &[usize]| assert!(sizes.len() <= 20 && sizes.iter().max() <= Some(&15), "{sizes:?}");
    for n in 0..CLAIMS {
        ring.claim(&format!("claim-{n}"), "c").await;
    }
    let began = Instant::now();
    ring.run().await;
    let not_bound = async || {
        let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
        claims.iter().filter(|claim| phase(claim) != "Bound").count()
    };
    let sizes = play_until_done(&ring, not_bound).await;
    println!("{CLAIMS} claims bound after {:?} by Jobs for {sizes:?}", began.elapsed());
    are_few(&sizes);
    no_jobs_left(&ring).await;

    ring.kill().await;
    ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    all_released(&ring).await;
    let began = Instant::now();
    ring.run().await;
    let leftovers = async || ring.all_volumes().await.len();
    let sizes = play_until_done(&ring, leftovers).await;
    println!("{CLAIMS} volumes gone after {:?} by Jobs for {sizes:?}", began.elapsed());
    are_few(&sizes);
    assert_eq!(sizes.iter().sum::<usize>(), CLAIMS);
    no_jobs_left(&ring).await;
}

#[tokio::test]
async fn failed_members_delay_no_other_and_share_their_next_run() {
    let mut ring = Ring::start().await;
    let keys = [ANYWHERE, ("batch-size", "4"), ("batch-window", "5s"), ("backoff", "1s..1s")];
    ring.config("c", "c", &keys).await;
    let (first, job) = collected(&mut ring, &["a", "b", "c", "d"]).await;
    for claim in ["a", "c"] {
        make(&ring, &job, claim).await;
        ring.bound(claim).await;
    }
    let failed =
        |claim| MemberFailure { member: line(&job, claim), code: 75, message: format!("no array for {claim}") };
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, &batch::write_outcomes(&[failed("b"), failed("d")])).await;
    for claim in ["b", "d"] {
        ring.event(USER, claim, reason::PROVISIONING_FAILED, &format!("no array for {claim}")).await;
    }
    // Each has its own attempt and its own end. One fails again, in a way that may be the fault of its own request.
    let again = batch_of(&ring, 2).await;
    assert!(requests(&again).iter().all(|request| request.attempt == 2), "{:?}", requests(&again));
    make(&ring, &again, "b").await;
    ring.bound("b").await;
    ring.pod_of(&again).await;
    let crashed = MemberFailure { member: line(&again, "d"), code: 101, message: "panicked".into() };
    ring.pod_ends(&again, 0, &batch::write_outcomes(&[crashed])).await;
    ring.event(USER, "d", reason::PROVISIONING_FAILED, "attempt 2 failed: exit code 101: panicked").await;
    let id = uid(&ring.get_claim("d").await);
    let alone = ring.job(ADMIN, "provision", &id, 3).await;
    assert!(!is_batch(&alone), "it may be the fault of this claim");
    for (job, claim) in [(&alone, "d"), (&first, "first")] {
        make(&ring, job, claim).await;
        ring.bound(claim).await;
        ring.pod_of(job).await;
        ring.pod_ends(job, 0, "").await;
    }
    no_jobs_left(&ring).await;
}

#[tokio::test]
async fn a_batch_that_a_former_leader_has_not_opened_is_made_again_in_its_slots() {
    let mut ring = Ring::start().await;
    let keys = [ANYWHERE, ("batch-size", "2"), ("batch-window", "5s"), ("max-in-flight", "3")];
    ring.config("c", "c", &keys).await;
    ring.claim("first", "c").await;
    let id = uid(&ring.stamped("first").await);
    let first = ring.job(ADMIN, "provision", &id, 1).await;
    ring.kill().await;
    for claim in ["a", "b"] {
        ring.claim(claim, "c").await;
    }
    // The Job gets its pod when its orchestrator is dead.
    let quotas = no_pods(&ring).await;
    ring.run().await;
    let former = job_of_batch(&ring, 2, None).await;
    ring.claim("waiting", "c").await;
    ring.kill().await;
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    until("the Job has a pod", || async {
        let pods = ring.pods_of(&former).await?;
        if pods.is_empty() { unexpected(pods) } else { Ok(()) }
    })
    .await;

    ring.run().await;
    let again = job_of_batch(&ring, 2, Some(&former)).await;
    ring.begins(&again).await;
    assert_eq!(annotation(&ring.get_claim("waiting").await, names::ATTEMPT), None, "it has no slot");
    ring.delete_claim("waiting").await;
    for claim in ["a", "b"] {
        make(&ring, &again, claim).await;
        let bound = ring.bound(claim).await;
        assert_eq!(annotation(&bound, names::ATTEMPT).as_deref(), Some("1"), "nothing has failed");
    }
    succeeds(&ring, &again).await;
    make(&ring, &first, "first").await;
    ring.bound("first").await;
    succeeds(&ring, &first).await;
    no_jobs_left(&ring).await;
}

#[tokio::test]
async fn a_claim_deleted_during_its_batch_does_not_end_the_batch() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("batch-size", "3"), ("batch-window", "5s")]).await;
    let (_, job) = collected(&mut ring, &["a", "b", "c"]).await;
    let id = uid(&ring.get_claim("b").await);
    ring.delete_claim("b").await;
    stays("the batch goes on", WHILE, || async {
        let now = ring.api::<Job>(ADMIN).get(&job.name_any()).await.unwrap();
        let deletes = ring.jobs(ADMIN, "delete", &id).await.len();
        if now.metadata.deletion_timestamp.is_none() && deletes == 0 {
            Ok(())
        } else {
            unexpected((now.metadata, deletes))
        }
    })
    .await;
    for claim in ["a", "c"] {
        make(&ring, &job, claim).await;
        ring.bound(claim).await;
    }
    ring.pod_of(&job).await;
    ring.pod_ends(
        &job,
        0,
        &batch::write_outcomes(&[MemberFailure { member: line(&job, "b"), code: 1, message: String::new() }]),
    )
    .await;
    // The orchestrator deletes what the member may have stored once no process of the batch runs any more.
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_of(&delete).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.claim_gone("b").await;
    let gone = until("the batch's Job is gone", || async {
        let remaining = ring.api::<Job>(ADMIN).get_opt(&job.name_any()).await.unwrap();
        remaining.map_or(Ok(()), |job| unexpected(job.metadata))
    });
    ring.explained(gone).await;
}

#[tokio::test]
async fn a_batch_ends_when_all_its_claims_are_deleted() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("batch-size", "2"), ("batch-window", "5s")]).await;
    let (_, job) = collected(&mut ring, &["a", "b"]).await;
    let ids = [uid(&ring.get_claim("a").await), uid(&ring.get_claim("b").await)];
    ring.pod_of(&job).await;
    for claim in ["a", "b"] {
        ring.delete_claim(claim).await;
    }
    for id in ids {
        let delete = ring.job(ADMIN, "delete", &id, 1).await;
        assert!(ring.api::<Job>(ADMIN).get_opt(&job.name_any()).await.unwrap().is_none(), "its process has ended");
        ring.pod_of(&delete).await;
        ring.pod_ends(&delete, 0, "").await;
    }
    for claim in ["a", "b"] {
        ring.claim_gone(claim).await;
    }
}

#[tokio::test]
async fn an_orchestrator_killed_between_stamps_and_job_collects_the_claims_again() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("batch-size", "9"), ("batch-window", "5s")]).await;
    ring.claim("first", "c").await;
    let id = uid(&ring.stamped("first").await);
    ring.job(ADMIN, "provision", &id, 1).await;
    ring.kill().await;
    stamped(&ring, &["a", "b"]).await;
    ring.run().await;
    let job = batch_of(&ring, 2).await;
    // No claim is in a second batch, even after the orchestrator has lost its memory.
    ring.restart().await;
    for claim in ["a", "b"] {
        make(&ring, &job, claim).await;
        let bound = ring.bound(claim).await;
        assert_eq!(annotation(&bound, names::ATTEMPT).as_deref(), Some("1"));
    }
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, "").await;
    until("the batch's Job is gone", || async {
        let leftovers: Vec<_> =
            ring.all_jobs().await.iter().map(ResourceExt::name_any).filter(|name| *name == job.name_any()).collect();
        if leftovers.is_empty() { Ok(()) } else { unexpected(leftovers) }
    })
    .await;
}

#[tokio::test]
async fn each_member_of_a_batch_that_kubernetes_refuses_gets_its_own_run() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[ANYWHERE, ("batch-size", "2"), ("batch-window", "5s")]).await;
    ring.claim("first", "c").await;
    let mut ids = vec![uid(&ring.stamped("first").await)];
    let first = ring.job(ADMIN, "provision", &ids[0], 1).await;
    no_batches(&ring).await;
    for claim in ["a", "b"] {
        let id = uid(&ring.claim(claim, "c").await);
        let job = ring.job(ADMIN, "provision", &id, 1).await;
        assert!(!is_batch(&job));
        assert_eq!(annotation(&ring.get_claim(claim).await, names::FAILURE), None, "no failure");
        make(&ring, &job, claim).await;
        ring.bound(claim).await;
        succeeds(&ring, &job).await;
        ids.push(id);
    }
    make(&ring, &first, "first").await;
    ring.bound("first").await;
    succeeds(&ring, &first).await;
    no_jobs_left(&ring).await;

    // The deletion of the first continues, so that others are collected.
    ring.delete_claim("first").await;
    ring.job(ADMIN, "delete", &ids[0], 1).await;
    for claim in ["a", "b"] {
        ring.delete_claim(claim).await;
    }
    for id in &ids[1..] {
        let job = ring.job(ADMIN, "delete", id, 1).await;
        assert!(!is_batch(&job));
        let volume = ring.volumes().get(&names::pv_name(id)).await.unwrap();
        assert!(!volume.annotations().contains_key(names::FAILURE), "no failure");
        succeeds(&ring, &job).await;
        ring.volume_gone(&names::pv_name(id)).await;
    }
}

#[tokio::test]
async fn waiting_deletions_share_one_run_after_a_restart_and_a_failed_one_is_retried_alone() {
    let mut ring = Ring::start().await;
    let keys = [ANYWHERE, ("batch-size", "3"), ("batch-window", "5s"), ("backoff", "1s..1s")];
    ring.config("c", "c", &keys).await;
    let (first, ids) = deleting(&ring, &["a", "b", "c"]).await;
    released_together(&mut ring, &["a", "b", "c"]).await;
    ring.run().await;
    let job = batch_of(&ring, 3).await;
    // No volume is in a second batch, even after the orchestrator has lost its memory.
    ring.restart().await;
    let asked: BTreeSet<_> = requests(&job).into_iter().map(|asked| (asked.operation, asked.volume_id)).collect();
    assert_eq!(asked, ids[1..].iter().map(|id| (Operation::Delete, id.clone())).collect());
    let b = 1 + requests(&job).iter().position(|request| request.volume_id == ids[2]).unwrap();
    let failed = MemberFailure { member: b, code: 75, message: "the array is switched off".into() };
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, &batch::write_outcomes(&[failed])).await;
    for id in [&ids[1], &ids[3]] {
        ring.volume_gone(&names::pv_name(id)).await;
    }
    let name = names::pv_name(&ids[2]);
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "the array is switched off").await;
    let again = ring.job(ADMIN, "delete", &ids[2], 2).await;
    assert!(!is_batch(&again), "the failed member delays no other");
    for (job, id) in [(&again, &ids[2]), (&first, &ids[0])] {
        succeeds(&ring, job).await;
        ring.volume_gone(&names::pv_name(id)).await;
    }
    no_jobs_left(&ring).await;
}
