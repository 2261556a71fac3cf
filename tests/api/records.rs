//! Tests of the records of runs: a deleted claim is gone at once, also while no orchestrator runs, and what its runs have made
//! is undone by their records.

use std::time::{Duration, Instant};

use flex_contract::names;
use flex_contract::reason;
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use scripted_csi::{Act, Options};
use serde_json::{Value, json};

use crate::csi::Scene;
use orchestrator::backup::{Backup, saved};
use orchestrator::commands::{doctor, found};
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, OWN, Ring, USER, WHILE, annotation, phase, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Returns the beginning of the name of the record of a run, by the name of its Job.
fn prefix(job: &str) -> String {
    format!("flex-record-{job}-")
}

/// Deletes a claim, and waits until it is gone.
async fn deleted_at_once(ring: &Ring, claim: &str) {
    let began = Instant::now();
    ring.delete_claim(claim).await;
    ring.claim_vanished(claim).await;
    println!("claim {claim} is gone after {:?}", began.elapsed());
}

/// Deletes a claim and the object of its volume while no orchestrator runs, as an admin does who keeps the storage alone.
pub async fn storage_alone_is_kept(ring: &Ring, claim: &str, volume: &str) {
    let (volumes, merge) = (ring.volumes(), PatchParams::default());
    let retains = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    volumes.patch(volume, &merge, &Patch::Merge(retains)).await.unwrap();
    deleted_at_once(ring, claim).await;
    volumes.delete(volume, &DeleteParams::default()).await.unwrap();
    let by_force = json!({ "metadata": { "finalizers": null } });
    match volumes.patch(volume, &merge, &Patch::Merge(by_force)).await {
        // Nothing held it.
        Err(kube::Error::Api(status)) if status.is_not_found() => (),
        patched => drop(patched.unwrap()),
    }
    ring.volume_gone(volume).await;
}

#[tokio::test]
async fn a_claim_deleted_during_its_run_is_gone_at_once_and_its_run_is_undone_later() {
    let mut scene = Scene::start(Options::default()).await;
    scene.config(&[]).await;
    scene.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(3))]);
    let id = uid(&scene.ring.claim("a", "csi").await);
    let job = scene.ring.job(ADMIN, "provision", &id, 1).await;
    let record = scene.ring.recorded("a").await;
    assert!(record.name_any().starts_with(&prefix(&job.name_any())), "{}", record.name_any());
    scene.ring.kill().await;
    deleted_at_once(&scene.ring, "a").await;
    // The run goes on, and stores its volume.
    until("the volume is stored", || async {
        let volumes = scene.driver.volumes();
        if volumes.len() == 1 { Ok(()) } else { unexpected(volumes) }
    })
    .await;
    let left = scene.ring.records_of("a").await.unwrap();
    assert_eq!(left.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [record.name_any()]);

    scene.ring.run().await;
    scene.ring.unrecorded("a").await;
    scene.no_volumes().await;
    scene.end().await;
}

/// A namespace cannot be deleted while something in it waits for somebody who is away.
#[tokio::test]
async fn a_namespace_with_claims_is_deleted_while_no_orchestrator_runs() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1h..2h")]).await;
    ring.delayed_class("delayed", &[]).await;
    ring.claim("pending", "delayed").await;
    let (running, failing) = (uid(&ring.claim("running", "c").await), uid(&ring.claim("failing", "c").await));
    ring.job(ADMIN, "provision", &running, 1).await;
    let job = ring.job(ADMIN, "provision", &failing, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    ring.claim_when("failing", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    for claim in ["running", "failing"] {
        ring.recorded(claim).await;
    }
    ring.kill().await;

    let began = Instant::now();
    let namespaces: Api<Namespace> = Api::all(ring.client.clone());
    namespaces.delete(USER, &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", || async {
        match namespaces.get_opt(USER).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(namespace) => unexpected(namespace.status),
        }
    })
    .await;
    println!("the namespace is gone after {:?}", began.elapsed());

    ring.run().await;
    for id in [running, failing] {
        let delete = ring.job(ADMIN, "delete", &id, 1).await;
        assert!(ring.jobs(ADMIN, "provision", &id).await.iter().all(is_over), "no run is in progress beside it");
        ring.pod_ends(&delete, 0, "").await;
    }
    ring.no_records().await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

fn is_over(job: &Job) -> bool {
    let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Failed" && condition.status == "True")
}

/// A backup tool restores the record of a run whose volume somebody keeps.
#[tokio::test]
async fn a_record_that_is_created_again_deletes_nothing() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Retain")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let name = ring.recorded("a").await.name_any();
    let copy = saved(&ring, &["-n", OWN, "controllerrevision", &name]);
    assert!(copy["metadata"]["annotations"][names::ARMED].is_string(), "the run may have begun: {copy}");
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    ring.unrecorded("a").await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    // Only the storage is left, and nothing in the cluster says that somebody keeps it.
    let volume = names::pv_name(&id);
    ring.volumes().delete(&volume, &DeleteParams::default()).await.unwrap();
    ring.volume_gone(&volume).await;

    for restarts in [false, true] {
        if restarts {
            ring.kill().await;
        }
        Backup::create(&ring, &copy);
        if restarts {
            assert_eq!(ring.records().await.len(), 1);
            ring.run().await;
        }
        ring.no_records().await;
        stays("no delete run begins", WHILE, || async {
            let jobs = ring.jobs(ADMIN, "delete", &id).await;
            if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
        })
        .await;
    }
    ring.nothing_left().await;
}

/// Its leader has died between the binding and the end of the record. An admin keeps the storage without its object.
#[tokio::test]
async fn the_data_of_a_retained_volume_stay_if_its_record_outlives_it() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Retain")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let name = ring.recorded("a").await.name_any();
    let copy = saved(&ring, &["-n", OWN, "controllerrevision", &name]);
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    ring.unrecorded("a").await;
    ring.kill().await;
    Backup::create(&ring, &copy);
    let own = ring.revisions().get(&name).await.unwrap().uid().unwrap();
    let armed = json!({ "metadata": { "annotations": { names::ARMED: own } } });
    ring.revisions().patch(&name, &PatchParams::default(), &Patch::Merge(armed)).await.unwrap();
    storage_alone_is_kept(&ring, "a", &names::pv_name(&id)).await;

    ring.run().await;
    ring.event(OWN, &name, reason::STORAGE_ABANDONED, "class c keeps storage").await;
    stays("no delete run begins", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "delete", &id).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.abandon("a").await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_claim_of_the_same_name_gets_its_volume_while_the_first_one_is_undone() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Delete"), ("backoff", "1s..2s")]).await;
    let first = uid(&ring.claim("a", "c").await);
    ring.job(ADMIN, "provision", &first, 1).await;
    let record = ring.recorded("a").await.name_any();
    deleted_at_once(&ring, "a").await;
    let second = uid(&ring.claim("a", "c").await);
    assert_ne!(first, second);
    let delete = ring.job(ADMIN, "delete", &first, 1).await;
    // A path may come from the name, but nobody waits for what fails.
    ring.event(USER, "a", reason::WAITING_FOR_PROVISIONER, "for an earlier claim of this name").await;
    assert!(ring.jobs(ADMIN, "provision", &second).await.is_empty());
    ring.pod_ends(&delete, 75, "busy").await;
    let job = ring.job(ADMIN, "provision", &second, 1).await;
    ring.create_volume(&nfs_volume(&job)).await;
    let bound = ring.bound("a").await;
    assert_eq!(bound.spec.unwrap().volume_name, Some(names::pv_name(&second)));
    ring.pod_ends(&job, 0, "").await;

    let records: Vec<_> = ring.records().await.iter().map(ResourceExt::name_any).collect();
    assert!(records.contains(&record), "the first claim is still being undone: {records:?}");
    let delete = ring.job(ADMIN, "delete", &first, 2).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.unrecorded("a").await;
    let claim = ring.get_claim("a").await;
    assert_eq!((uid(&claim), phase(&claim).as_str()), (second, "Bound"), "the second claim stays bound");
    ring.deleted_with_volume("a").await;
    ring.nothing_left().await;
}

/// Returns all changes of objects of a kind after a version.
async fn changes<K>(api: &Api<K>, since: &str) -> Vec<WatchEvent<K>>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    // Without other events the watch ends after this many seconds.
    let watch = api.watch(&WatchParams::default().timeout(3), since).await.unwrap();
    watch.try_collect().await.unwrap()
}

fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

/// Before its mark, only the record tells what becomes of a volume. Once a claim is bound, somebody may delete it and the
/// volume's object, and keep the storage. A record would delete it then.
#[tokio::test]
async fn the_record_of_a_retained_volume_is_gone_before_its_claim_is_bound() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Retain")]).await;
    let since = ring.revisions().list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    ring.claim("a", "c").await;
    let (job, _) = ring.provision("a").await;
    assert_eq!(ring.records().await.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), Vec::<String>::new());

    let of_run = prefix(&job.name_any());
    let deleted =
        changes::<ControllerRevision>(&ring.revisions(), &since).await.into_iter().find_map(|event| match event {
            WatchEvent::Deleted(record) if record.name_any().starts_with(&of_run) => Some(version(&record)),
            _ => None,
        });
    let bound =
        changes::<PersistentVolumeClaim>(&ring.claims(), &since).await.into_iter().find_map(|event| match event {
            WatchEvent::Modified(now)
                if now.annotations().contains_key(names::ATTEMPT) && !now.annotations().contains_key(names::HELD) =>
            {
                Some(version(&now))
            }
            _ => None,
        });
    let marked = changes::<PersistentVolume>(&ring.volumes(), &since).await.into_iter().find_map(|event| match event {
        WatchEvent::Modified(now) if now.status.as_ref().is_some_and(|status| status.reason.is_some()) => {
            Some(version(&now))
        }
        _ => None,
    });
    let versions =
        [marked.expect("it has its mark"), deleted.expect("there was a record"), bound.expect("it is bound")];
    assert!(versions.is_sorted(), "marked, without a record, and bound: {versions:?}");
}

/// Only the record tells what a deleted claim has left.
#[tokio::test]
async fn a_live_claim_gets_the_record_again_that_somebody_has_deleted() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1h..2h")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    for _ in 0..2 {
        let record = ring.recorded("a").await;
        ring.revisions().delete(&record.name_any(), &DeleteParams::default()).await.unwrap();
        until("there is another record", || async {
            let again = ring.recorded("a").await;
            if again.metadata.uid == record.metadata.uid { unexpected(again) } else { Ok(()) }
        })
        .await;
    }
    deleted_at_once(&ring, "a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.unrecorded("a").await;
    ring.nothing_left().await;
}

/// The next leader would begin another run.
#[tokio::test]
async fn the_record_of_an_abandoned_claim_stays_while_its_run_is_in_progress() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1h..2h")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let record = ring.recorded("a").await.name_any();
    let abandons = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.claims().patch("a", &PatchParams::default(), &Patch::Merge(abandons)).await.unwrap();
    stays("the record is there", WHILE, || async {
        let records = ring.records_of("a").await?;
        if records.iter().any(|now| now.name_any() == record) { Ok(()) } else { unexpected(records) }
    })
    .await;
    ring.pod_ends(&job, 75, "busy").await;
    ring.unrecorded("a").await;
}

/// Nobody can have cleaned up after a later attempt.
#[tokio::test]
async fn what_an_abandoned_claim_leaves_afterwards_is_deleted() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s..2s")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let abandons = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    ring.claims().patch("a", &PatchParams::default(), &Patch::Merge(abandons)).await.unwrap();
    ring.pod_ends(&job, 75, "busy").await;
    ring.job(ADMIN, "provision", &id, 2).await;
    assert_eq!(annotation(&ring.get_claim("a").await, names::ABANDON), None);
    deleted_at_once(&ring, "a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.unrecorded("a").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn an_admin_can_abandon_what_a_claim_that_is_gone_has_left() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1h..2h")]).await;
    let id = uid(&ring.claim("a", "c").await);
    ring.job(ADMIN, "provision", &id, 1).await;
    let record = ring.recorded("a").await.name_any();
    deleted_at_once(&ring, "a").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&delete, 75, "the array is on fire").await;
    let noted = until("the failure is noted", || async {
        let failure = ring.noted(&id, names::FAILURE).await.unwrap_or_default();
        if failure.contains("on fire") { Ok(()) } else { unexpected(failure) }
    });
    ring.explained(noted).await;
    let says = format!("claim {USER}/a, which is gone: deleting what an attempt left behind failed");
    ring.event(OWN, &record, reason::VOLUME_FAILED_DELETE, &says).await;
    let (code, printed) = ring.command(&["retry", &format!("{USER}/a")]).await;
    assert!(code == 0 && printed.contains(&record), "{printed}");
    let delete = ring.job(ADMIN, "delete", &id, 2).await;
    ring.pod_ends(&delete, 75, "the array is on fire").await;
    until("the second failure is noted", || async {
        let failure = ring.noted(&id, names::FAILURE).await.unwrap_or_default();
        if failure.contains("\"attempt\":2") { Ok(()) } else { unexpected(failure) }
    })
    .await;

    let (_, report) = doctor(&ring, ADMIN, &[]);
    assert!(found(&report).contains(&("claim-undeleted".to_owned(), record.clone())), "{report}");
    let findings = report["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["object"]["name"] == record.as_str()).unwrap();
    let text = |key: &str| finding[key].as_str().map(str::to_owned).unwrap_or_else(|| Value::Null.to_string());
    assert!(text("detail").contains(&format!("left by the deleted claim {USER}/a")), "{finding}");
    let command = format!("kubectl -n {OWN} annotate controllerrevision {record} {}", names::ABANDON);
    assert!(text("remedy").contains(&command), "{finding}");

    ring.abandon("a").await;
    stays("no further delete run begins", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "delete", &id).await;
        if jobs.iter().all(is_over) { Ok(()) } else { unexpected(jobs) }
    })
    .await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

/// Somebody may have had the volume meanwhile, and keeps its storage without an object.
#[tokio::test]
async fn what_a_claim_that_was_deleted_unseen_may_have_left_is_a_finding_if_its_class_keeps_storage() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("reclaim-policy", "Retain")]).await;
    let id = uid(&ring.claim("a", "c").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let record = ring.recorded("a").await.name_any();
    ring.kill().await;
    deleted_at_once(&ring, "a").await;
    ring.pod_ends(&job, 75, "busy").await;
    ring.run().await;
    ring.event(OWN, &record, reason::STORAGE_ABANDONED, &format!("look on the backend for storage of the id {id}"))
        .await;
    until("a finding names the record", || async {
        let (_, report) = doctor(&ring, ADMIN, &[]);
        let is_found = found(&report).contains(&("storage-kept".to_owned(), record.clone()));
        if is_found { Ok(()) } else { unexpected(report) }
    })
    .await;
    let (_, left) = ring.command(&["uninstall"]).await;
    assert!(left.contains(&record) && left.contains("storage of deleted claims may be left"), "{left}");
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty());
    ring.abandon("a").await;
    ring.no_records().await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}
