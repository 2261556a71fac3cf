//! Tests of volumes that another claim takes, and of volumes that appear too late.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use orchestrator::backup::{created_again, own_request, without_gate};
use orchestrator::commands::doctor;
use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, phase, uid};
use orchestrator::wait::{stays, unexpected, until};

/// The volume of the claim `robbed`, which the claim `thief` has.
struct Taken {
    /// The run that has made the volume.
    job: Job,
    /// The id of `robbed`.
    id: String,
    volume: String,
    /// The record of the run.
    record: String,
}

/// Lets a claim take the volume of another one, and waits for the event about it.
async fn theft(ring: &Ring) -> Taken {
    ring.config("c", "c", &[("backoff", "1s")]).await;
    let (robbed, thief) = (ring.claim("robbed", "c").await, ring.claim("thief", "c").await);
    let id = uid(&robbed);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.job(ADMIN, "provision", &uid(&thief), 1).await;
    // The PV controller gives a volume without claimRef to whichever claim it reconciles first.
    let mut volume = nfs_volume(&job);
    volume.spec.as_mut().unwrap().claim_ref = Some(ObjectReference {
        namespace: Some(ring.user.clone()),
        name: Some("thief".into()),
        uid: thief.metadata.uid.clone(),
        ..ObjectReference::default()
    });
    ring.create_volume(&volume).await;
    ring.pod_ends(&job, 0, "").await;
    let volume = volume.metadata.name.unwrap();
    assert_eq!(ring.bound("thief").await.spec.unwrap().volume_name, Some(volume.clone()));
    ring.event(&ring.user, "robbed", reason::VOLUME_REFUSED, "but claim team/thief has taken it").await;
    let record = ring.recorded("robbed").await.name_any();
    // The thief needs no attempt of its own.
    let undone = ring.job(ADMIN, "delete", &uid(&thief), 1).await;
    ring.pod_ends(&undone, 0, "").await;
    Taken { job, id, volume, record }
}

/// Expects that no other run begins for the id of a volume that was taken.
async fn nothing_else_runs(ring: &Ring, taken: &Taken) {
    stays("no other run begins", WHILE, || async {
        let mut others = ring.jobs(ADMIN, "provision", &taken.id).await;
        others.extend(ring.jobs(ADMIN, "delete", &taken.id).await);
        others.retain(|job| job.metadata.name != taken.job.metadata.name);
        if others.is_empty() { Ok(()) } else { unexpected(others) }
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_volume_was_taken_is_held_and_its_storage_is_deleted_after_the_other_claim() {
    let mut ring = Ring::start().await;
    let taken = theft(&ring).await;
    nothing_else_runs(&ring, &taken).await;
    ring.restart().await;
    nothing_else_runs(&ring, &taken).await;
    assert_eq!(phase(&ring.get_claim("robbed").await), "Pending");

    // As the event says: the claim is created again.
    ring.delete_claim("robbed").await;
    ring.claim_vanished("robbed").await;
    ring.event(OWN, &taken.record, reason::VOLUME_REFUSED, "nothing is deleted while that claim may use it").await;
    let again = uid(&ring.claim("robbed", "c").await);
    let (_, fresh) = ring.provision("robbed").await;
    ring.restart().await;
    nothing_else_runs(&ring, &taken).await;
    assert_eq!(phase(&ring.get_claim("thief").await), "Bound");

    for (claim, id, volume) in [("thief", taken.id, taken.volume), ("robbed", again, fresh.metadata.name.unwrap())] {
        ring.delete_claim(claim).await;
        let job = ring.job(ADMIN, "delete", &id, 1).await;
        assert_eq!(request(&job).pv_name, volume);
        ring.pod_ends(&job, 0, "").await;
        ring.volume_gone(&volume).await;
        ring.claim_gone(claim).await;
    }
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_volume_that_was_taken_and_is_retained_keeps_its_storage() {
    let ring = Ring::start().await;
    let taken = theft(&ring).await;
    let retain = Patch::Merge(json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } }));
    ring.volumes().patch(&taken.volume, &PatchParams::default(), &retain).await.unwrap();
    for claim in ["robbed", "thief"] {
        ring.delete_claim(claim).await;
        ring.claim_vanished(claim).await;
    }
    ring.no_records().await;
    nothing_else_runs(&ring, &taken).await;
    ring.volumes().delete(&taken.volume, &DeleteParams::default()).await.unwrap();
    ring.volume_gone(&taken.volume).await;
    ring.nothing_left().await;
}

/// Deletes a claim half-way until nothing of it is left. Returns its ring, its id and its former Job.
async fn all_gone() -> (Ring, String, Job) {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s..2s")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    ring.delete_claim("a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.claim_gone("a").await;
    ring.nothing_left().await;
    (ring, id, job)
}

/// Expects that the orchestrator deletes no storage for a volume, and only says so, until an admin lets go of the volume.
async fn stays_until_let_go(ring: &Ring, volume: &str, id: &str) {
    ring.event("default", volume, reason::VOLUME_FAILED_DELETE, "no run is known to have made it").await;
    stays("no delete run begins", WHILE, || async {
        let deletes = ring.jobs(ADMIN, "delete", id).await;
        let there = ring.volumes().get_opt(volume).await.map_err(|error| error.to_string())?.is_some();
        if deletes.is_empty() && there { Ok(()) } else { Err(format!("{} delete runs", deletes.len())) }
    })
    .await;
    let abandon = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.volumes().patch(volume, &PatchParams::default(), &Patch::Merge(abandon)).await.unwrap();
    ring.volume_gone(volume).await;
}

#[tokio::test]
async fn a_volume_that_appears_after_the_record_of_its_run_is_gone_deletes_nothing() {
    let (ring, id, job) = all_gone().await;
    let late = nfs_volume(&job);
    ring.create_volume(&late).await;
    stays_until_let_go(&ring, late.metadata.name.as_deref().unwrap(), &id).await;
    ring.nothing_left().await;
}

/// Runs a Job that somebody creates again until it has made its volume, while no orchestrator runs. Returns the name of
/// the volume.
async fn makes_its_volume_unobserved(ring: &mut Ring, again: &Job) -> String {
    ring.kill().await;
    let run = ring.api::<Job>(ADMIN).create(&PostParams::default(), again).await.unwrap();
    ring.pod_of(&run).await;
    let volume = nfs_volume(&run);
    ring.create_volume(&volume).await;
    ring.pod_ends(&run, 0, "").await;
    ring.run().await;
    volume.metadata.name.unwrap()
}

/// A backup tool copies Jobs, too. The id of such a Job may be that of storage that somebody keeps. Kubernetes runs the Job if
/// it has no gate.
#[tokio::test]
async fn a_restored_run_deletes_nothing() {
    let (mut ring, id, job) = all_gone().await;
    let volume = makes_its_volume_unobserved(&mut ring, &without_gate(created_again(&job))).await;
    stays_until_let_go(&ring, &volume, &id).await;
    // No record names the run, so its Job goes.
    ring.nothing_left().await;
}

/// The objects of another cluster, with their records and runs, are copied into this one. The runs have no gate.
#[tokio::test]
async fn a_copied_run_of_another_cluster_counts_for_nothing() {
    let (mut ring, id, job) = all_gone().await;
    let mut copy = without_gate(created_again(&job));
    let annotations = copy.metadata.annotations.as_mut().unwrap();
    assert!(
        annotations.insert(names::CLUSTER.into(), "another-cluster".into()).is_some(),
        "each Job names its cluster"
    );
    let name = copy.metadata.name.clone().unwrap();
    let jobs = ring.api::<Job>(ADMIN);
    let volume = makes_its_volume_unobserved(&mut ring, &copy).await;
    let (_, message) = doctor(&ring, ADMIN, &["--fix"]);
    let text = message.to_string();
    assert!(text.contains("job-copied") && text.contains("another-cluster"), "{message}");
    until("the copy is removed", || async {
        let there = jobs.get_opt(&name).await.unwrap().filter(|job| job.metadata.deletion_timestamp.is_none());
        if there.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
    stays_until_let_go(&ring, &volume, &id).await;
    ring.nothing_left().await;
}

/// The request of a process that was killed reaches the API server late.
#[tokio::test]
async fn a_late_run_leaves_nothing() {
    let (ring, id, job) = all_gone().await;
    let jobs = ring.api::<Job>(ADMIN);
    let late = jobs.create(&own_request(), &created_again(&job)).await.unwrap();
    let name = late.metadata.name.unwrap();
    until("the late Job is removed, because no record says that it may have begun", || async {
        let there = jobs.get_opt(&name).await.unwrap().filter(|job| job.metadata.deletion_timestamp.is_none());
        match there {
            None => Ok(()),
            Some(_) => Err("it is there".to_owned()),
        }
    })
    .await;
    stays("no delete run begins", WHILE, || async {
        let deletes = ring.jobs(ADMIN, "delete", &id).await;
        if deletes.is_empty() { Ok(()) } else { Err(format!("{} delete runs", deletes.len())) }
    })
    .await;
    ring.nothing_left().await;
}
