//! Tests of volumes that another claim takes, and of volumes that appear too late.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;

use orchestrator::backup::{created_again, own_request, without_gate};
use orchestrator::commands::doctor;
use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::ring::{ADMIN, Ring, WHILE, annotation, uid};
use orchestrator::wait::{stays, until};

#[tokio::test]
async fn a_claim_whose_volume_was_stolen_gets_another() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    let (robbed, thief) = (ring.claim("robbed", "c").await, ring.claim("thief", "c").await);
    let job = ring.job(ADMIN, "provision", &uid(&robbed), 1).await;
    let own = ring.job(ADMIN, "provision", &uid(&thief), 1).await;
    // The PV controller gives a volume without claimRef to whichever claim it reconciles first.
    let mut volume = nfs_volume(&job);
    volume.spec.as_mut().unwrap().claim_ref = Some(ObjectReference {
        namespace: Some(ring.user.clone()),
        name: Some("thief".into()),
        uid: thief.metadata.uid.clone(),
        ..ObjectReference::default()
    });
    // The orchestrator stops this run as soon as it sees whose the volume is.
    ring.pod_of(&job).await;
    ring.create_volume(&volume).await;
    ring.pod_ends_or_is_deleted(&job, 0, "").await;
    let taken = volume.metadata.name.clone().unwrap();
    let bound = ring.bound("thief").await;
    assert_eq!(bound.spec.unwrap().volume_name.as_deref(), Some(taken.as_str()));
    ring.event(&ring.user, "robbed", reason::VOLUME_REFUSED, "but claim team/thief has taken it").await;

    // The robbed claim gets a volume of its own, under a fresh id.
    let again =
        ring.claim_when("robbed", "begins again", |claim| annotation(claim, names::VOLUME_GENERATION).is_some()).await;
    let id = flex_core::model::claim::volume_id(&uid(&again), 1);
    let job = ring.job(ADMIN, "provision", &id, 2).await;
    let asked = request(&job);
    assert_eq!((asked.volume_id.as_str(), asked.pv_name), (id.as_str(), names::pv_name(&id)));
    assert_eq!(asked.claim.uid, uid(&robbed));
    let fresh = nfs_volume(&job);
    ring.create_volume(&fresh).await;
    let bound = ring.bound("robbed").await;
    assert_eq!(bound.spec.unwrap().volume_name, fresh.metadata.name);
    ring.pod_ends(&job, 0, "").await;

    // The attempt of the thief is cancelled, and each volume is deleted with the claim that has it.
    let back = ring.job(ADMIN, "delete", &uid(&thief), 1).await;
    assert!(own.metadata.name.is_some());
    ring.pod_ends(&back, 0, "").await;
    for (claim, id, volume) in [("thief", uid(&robbed), taken), ("robbed", id, fresh.metadata.name.unwrap())] {
        ring.delete_claim(claim).await;
        let job = ring.job(ADMIN, "delete", &id, 1).await;
        assert_eq!(request(&job).pv_name, volume);
        ring.pod_ends(&job, 0, "").await;
        ring.volume_gone(&volume).await;
        ring.claim_gone(claim).await;
    }
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
