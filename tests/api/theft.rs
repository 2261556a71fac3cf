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

/// Deletes a claim half-way until nothing of it is left. Returns its id and its former Job.
async fn gone(ring: &Ring, claim: &str) -> (String, Job) {
    let id = uid(&ring.claim(claim, "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    ring.delete_claim(claim).await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.claim_gone(claim).await;
    (id, job)
}

/// Waits until a Job is removed.
async fn removed(ring: &Ring, job: &Job) {
    let (jobs, name) = (ring.api::<Job>(ADMIN), job.name_any());
    until(format!("{name} is removed, because no record says that it may have begun"), || async {
        let there = jobs.get_opt(&name).await.unwrap().filter(|job| job.metadata.deletion_timestamp.is_none());
        if there.is_none() { Ok(()) } else { Err("it is there".to_owned()) }
    })
    .await;
}

/// Expects that the orchestrator deletes no storage of these ids, and only speaks of a volume, until an admin lets go of it.
async fn stays_until_let_go(ring: &Ring, volume: &str, ids: &[String]) {
    ring.event("default", volume, reason::VOLUME_FAILED_DELETE, "no run is known to have made it").await;
    stays("no delete run begins", WHILE, || async {
        let mut deletes = Vec::new();
        for id in ids {
            deletes.extend(ring.jobs(ADMIN, "delete", id).await);
        }
        let there = ring.volumes().get_opt(volume).await.map_err(|error| error.to_string())?.is_some();
        if deletes.is_empty() && there { Ok(()) } else { unexpected(deletes) }
    })
    .await;
    let abandon = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.volumes().patch(volume, &PatchParams::default(), &Patch::Merge(abandon)).await.unwrap();
    ring.volume_gone(volume).await;
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

/// Nothing names these runs any more, and somebody may keep storage of their ids.
#[tokio::test]
async fn runs_and_volumes_that_come_late_or_are_copied_delete_nothing() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s..2s")]).await;
    let (mut ids, mut jobs) = (Vec::new(), Vec::new());
    for claim in ["late-run", "late-volume", "restored", "copied"] {
        let (id, job) = gone(&ring, claim).await;
        ids.push(id);
        jobs.push(job);
    }
    ring.nothing_left().await;
    let [late_run, late_volume, restored, copied]: [Job; 4] = jobs.try_into().unwrap();

    // The request of a process that was killed reaches the API server late.
    let late = ring.api::<Job>(ADMIN).create(&own_request(), &created_again(&late_run)).await.unwrap();
    removed(&ring, &late).await;
    ring.nothing_left().await;

    // A volume appears after the record of its run is gone.
    let late = nfs_volume(&late_volume);
    ring.create_volume(&late).await;
    stays_until_let_go(&ring, late.metadata.name.as_deref().unwrap(), &ids).await;
    ring.nothing_left().await;

    // A backup tool copies Jobs, too, and Kubernetes runs a Job that has no gate.
    let volume = makes_its_volume_unobserved(&mut ring, &without_gate(created_again(&restored))).await;
    stays_until_let_go(&ring, &volume, &ids).await;
    // No record names the run, so its Job goes.
    ring.nothing_left().await;

    // The objects of another cluster, with their records and runs, are copied into this one.
    let mut copy = without_gate(created_again(&copied));
    let annotations = copy.metadata.annotations.as_mut().unwrap();
    let own = annotations.insert(names::CLUSTER.into(), "another-cluster".into());
    assert!(own.is_some(), "each Job names its cluster");
    let volume = makes_its_volume_unobserved(&mut ring, &copy).await;
    let (_, message) = doctor(&ring, ADMIN, &["--fix"]);
    let text = message.to_string();
    assert!(text.contains("job-copied") && text.contains("another-cluster"), "{message}");
    removed(&ring, &copy).await;
    stays_until_let_go(&ring, &volume, &ids).await;
    ring.nothing_left().await;
}
