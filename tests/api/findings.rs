//! Tests of findings: each kind is made by hand, reported by `doctor` and the sweep, and fixed where that is safe.

use std::collections::{BTreeMap, BTreeSet};

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use serde_json::{Value, json};

use orchestrator::backup::own_request;
use orchestrator::commands::{doctor, found};
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, USER, WHILE, merge, uid};
use orchestrator::wait::{stays, unexpected, until};

/// UIDs of claims that never existed.
const GONE: &str = "c0ffee00-0000-4000-8000-000000000001";
const LOST: &str = "c0ffee00-0000-4000-8000-000000000002";
const LISTED: &str = "c0ffee00-0000-4000-8000-000000000003";

fn labels(instance: &str, operation: &str, id: &str) -> Value {
    json!({
        names::LABEL_INSTANCE: instance, names::LABEL_OPERATION: operation, names::LABEL_VOLUME_ID: id,
        names::LABEL_ATTEMPT: "1",
    })
}

fn pod_spec() -> Value {
    json!({ "restartPolicy": "Never", "containers": [{ "name": "provisioner", "image": "example/image" }] })
}

async fn job(ring: &Ring, name: &str, labels: Value) {
    let job = json!({ "metadata": { "name": name, "labels": labels }, "spec": { "template": { "spec": pod_spec() } } });
    ring.api::<Job>(ADMIN).create(&own_request(), &serde_json::from_value(job).unwrap()).await.unwrap();
}

async fn pod(ring: &Ring, name: &str, labels: Value, phase: &str) {
    let pod = json!({ "metadata": { "name": name, "labels": labels }, "spec": pod_spec() });
    let pods = ring.api::<Pod>(ADMIN);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let status = json!({ "status": { "phase": phase } });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn volume(ring: &Ring, name: &str, instance: &str, more: Value) {
    let mut volume = json!({
        "metadata": {
            "name": name, "labels": { names::LABEL_INSTANCE: instance },
            "annotations": { names::CLAIM_UID: GONE, names::PROVISIONED_BY: names::DEFAULT_PROVISIONER },
        },
        "spec": {
            "storageClassName": "c", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "nfs": { "server": "10.0.0.1", "path": "/x" },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": USER, "name": "was", "uid": GONE },
        },
    });
    merge(&mut volume, more);
    ring.create_volume(&serde_json::from_value(volume).unwrap()).await;
}

/// Returns the versions once Kubernetes' controllers have finished with the objects: each Job has counted its pod, each
/// volume has a phase, and nothing changes any more.
async fn versions_at_rest(ring: &Ring) -> BTreeMap<String, String> {
    until("the controllers have seen all objects", || async {
        let list = ListParams::default();
        let jobs = ring.api::<Job>(ADMIN).list(&list).await.map_err(|error| error.to_string())?.items;
        let counted = |job: &Job| job.status.as_ref().is_some_and(|status| status.active == Some(1));
        let volumes = ring.volumes().list(&list).await.map_err(|error| error.to_string())?.items;
        let phase = |volume: &PersistentVolume| volume.status.as_ref().and_then(|status| status.phase.clone());
        let late: Vec<_> = jobs.iter().filter(|job| !counted(job)).map(|job| job.name_any()).collect();
        let pending: Vec<_> = volumes.iter().map(phase).filter(|phase| phase.as_deref() == Some("Pending")).collect();
        if late.is_empty() && pending.is_empty() { Ok(()) } else { unexpected((late, pending)) }
    })
    .await;
    let mut last = versions(ring).await;
    loop {
        tokio::time::sleep(WHILE).await;
        let now = versions(ring).await;
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Returns each object that a finding could be about, with its version.
async fn versions(ring: &Ring) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut add = |kind: &str, metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        all.insert(format!("{kind} {}", metadata.name.unwrap()), metadata.resource_version.unwrap());
    };
    let list = ListParams::default();
    let all_in = |namespace| ring.api::<Pod>(namespace);
    all_in(ADMIN).list(&list).await.unwrap().items.into_iter().for_each(|o| add("Pod", o.metadata));
    ring.api::<Job>(ADMIN).list(&list).await.unwrap().items.into_iter().for_each(|o| add("Job", o.metadata));
    ring.volumes().list(&list).await.unwrap().items.into_iter().for_each(|o| add("PV", o.metadata));
    ring.claims().list(&list).await.unwrap().items.into_iter().for_each(|o| add("PVC", o.metadata));
    all
}

#[tokio::test]
async fn orphans_are_reported_and_only_own_ones_are_removed_where_that_is_safe() {
    let mut ring = Ring::without_orchestrator(&["--sweep-interval", "1s"]).await;
    ring.with_shipped_rights();
    ring.config("c", "c", &[]).await;
    job(&ring, "orphan-1", labels("default", "provision", GONE)).await;
    job(&ring, "orphan-2", labels("default", "provision", GONE)).await;
    job(&ring, "foreign", labels("other", "provision", GONE)).await;
    job(&ring, "unmarked", json!({ names::LABEL_INSTANCE: "default" })).await;
    pod(&ring, "ended-1", labels("default", "provision", GONE), "Succeeded").await;
    pod(&ring, "ended-2", labels("default", "delete", GONE), "Failed").await;
    pod(&ring, "running", labels("default", "provision", GONE), "Running").await;
    pod(&ring, "foreign", labels("other", "provision", GONE), "Succeeded").await;
    let kept = json!({
        "metadata": { "annotations": { names::CLAIM_UID: LISTED } },
        "spec": { "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "uid": LISTED } },
    });
    volume(&ring, "kept", "default", kept).await;
    let deletes = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    volume(&ring, &names::pv_name(GONE), "default", deletes.clone()).await;
    let misnamed = json!({
        "metadata": { "annotations": { names::CLAIM_UID: LOST } },
        "spec": { "persistentVolumeReclaimPolicy": "Delete", "claimRef": { "uid": LOST } },
    });
    volume(&ring, "misnamed", "default", misnamed).await;
    let lost =
        json!({ "metadata": { "annotations": { names::CLAIM_UID: LOST } }, "spec": { "claimRef": { "uid": LOST } } });
    volume(&ring, &names::pv_name(LOST), "default", lost).await;
    let kept_by_finalizer = json!({
        "metadata": { "finalizers": [names::VOLUME_FINALIZER], "annotations": { names::CLAIM_UID: LISTED } },
        "spec": { "claimRef": { "uid": LISTED } },
    });
    volume(&ring, "other", "other", kept_by_finalizer.clone()).await;
    // Released long ago. The other orchestrator works on the second one, which was deleted just now.
    let released = json!({ "status": { "phase": "Released", "lastPhaseTransitionTime": "2026-01-01T00:00:00Z" } });
    ring.volumes().patch_status("other", &PatchParams::default(), &Patch::Merge(released)).await.unwrap();
    volume(&ring, "others", "other", kept_by_finalizer).await;
    ring.volumes().delete("others", &DeleteParams::default()).await.unwrap();
    // A claim whose attempt began with a class that does not exist any more, and a claim with a pod without a Job.
    let claim = ring.claim("held", "gone").await;
    let stamp = json!({ "metadata": {
        "annotations": {
            names::CLAIM_UID: uid(&claim), names::ATTEMPT: "1", names::HELD: uid(&claim),
            names::RECIPE_VERSION: format!("{ADMIN}/c@0123456789abcdef"),
        },
    } });
    ring.claims().patch("held", &PatchParams::default(), &Patch::Merge(stamp)).await.unwrap();
    let living = uid(&ring.claim("living", "nobody-s").await);
    pod(&ring, "of-living", labels("default", "provision", &living), "Failed").await;

    let expected = |removed: &[&str]| -> BTreeSet<(String, String)> {
        let pv = names::pv_name(GONE);
        let lost = names::pv_name(LOST);
        [
            ("job-without-owner", "orphan-1"),
            ("job-without-owner", "orphan-2"),
            ("pod-without-job", "ended-1"),
            ("pod-without-job", "ended-2"),
            ("pod-without-job", "running"),
            ("pod-without-job", "of-living"),
            ("volume-retained", "kept"),
            ("volume-retained", &lost),
            ("volume-not-adopted", &pv),
            ("volume-misnamed", "misnamed"),
            ("volume-foreign", "other"),
            ("claim-held", "held"),
        ]
        .into_iter()
        .filter(|(_, name)| !removed.contains(name))
        .map(|(kind, name)| (kind.to_owned(), name.to_owned()))
        .collect()
    };
    let leaderless = |mut all: BTreeSet<_>| {
        all.insert(("no-leader".to_owned(), "flex-provisioner-default".to_owned()));
        all
    };
    let before = versions_at_rest(&ring).await;
    until("the doctor finds all of them", || async {
        match found(&doctor(&ring, ADMIN, &[]).1) {
            all if all == leaderless(expected(&[])) => Ok(()),
            all => unexpected(all),
        }
    })
    .await;
    let (code, message) = doctor(&ring, ADMIN, &[]);
    assert_eq!(code, 3, "{message}");
    let creators =
        message["findings"].as_array().unwrap().iter().find(|finding| finding["object"]["name"] == "creators");
    let off = creators.map(|finding| (&finding["kind"], finding["detail"].as_str().unwrap()));
    assert!(off.is_some_and(|(kind, off)| kind == "policy-missing" && off.contains("USERNAME")), "{off:?}");
    for finding in message["findings"].as_array().unwrap() {
        let text = |key: &str| !finding[key].as_str().unwrap_or_default().is_empty();
        assert!(text("meaning") && text("remedy") && text("detail"), "{finding}");
    }
    assert_eq!(versions(&ring).await, before, "the doctor only reads");

    // With `--fix` it removes what is safe, and nothing else.
    ring.volumes().delete(&names::pv_name(GONE), &DeleteParams::default()).await.unwrap();
    ring.volume_gone(&names::pv_name(GONE)).await;
    let mut before = versions_at_rest(&ring).await;
    let (_, message) = doctor(&ring, ADMIN, &["--fix"]);
    let removed: BTreeSet<_> = message["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["removed"] == true)
        .collect::<Vec<_>>()
        .into_iter()
        .map(|f| f["object"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(removed, ["ended-1", "ended-2", "orphan-1", "orphan-2"].into(), "{message}");
    let removed = |name: &str| {
        name.contains("orphan-1") || name.contains("orphan-2") || name.contains("ended-1") || name.contains("ended-2")
    };
    before.retain(|name, _| !removed(name));
    let mut now = versions(&ring).await;
    now.retain(|name, _| !removed(name));
    assert_eq!(now, before, "nothing else was touched");

    // The sweep removes what appeared meanwhile.
    job(&ring, "orphan-3", labels("default", "provision", GONE)).await;
    pod(&ring, "ended-3", labels("default", "provision", GONE), "Succeeded").await;
    ring.run().await;
    for gone in ["orphan-3", "ended-3"] {
        ring.event(ADMIN, gone, reason::ORPHAN_REMOVED, "nothing needed it").await;
    }
    let leftovers = |name: &str| name.contains("orphan-") || name.contains("ended-");
    until("the orphans are deleted, with the Job's pod", || async {
        match versions(&ring).await.keys().filter(|name| leftovers(name)).cloned().collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => unexpected(some),
        }
    })
    .await;
    ring.event(ADMIN, "running", reason::FINDING_REPORTED, "kubectl -n admin delete pod running").await;
    ring.event("default", "kept", reason::FINDING_REPORTED, "its policy is Retain").await;
    ring.event("default", "misnamed", reason::FINDING_REPORTED, "the name of the volume with the id").await;
    ring.event("default", "other", reason::FINDING_REPORTED, "the instance other").await;
    ring.event(USER, "held", reason::FINDING_REPORTED, "does not exist any more").await;
    before.retain(|name, _| !leftovers(name));
    assert_eq!(versions(&ring).await, before, "nothing else was touched");
    let (code, message) = doctor(&ring, ADMIN, &[]);
    let gone = [names::pv_name(GONE)];
    let gone: Vec<&str> =
        gone.iter().map(String::as_str).chain(["orphan-1", "orphan-2", "ended-1", "ended-2"]).collect();
    assert_eq!((code, found(&message)), (2, expected(&gone)), "an orchestrator leads now");
}

#[tokio::test]
async fn work_in_progress_is_never_a_finding() {
    let ring = Ring::start_with(&["--sweep-interval", "1s"]).await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    for name in ["a", "b"] {
        ring.claim(name, "c").await;
    }
    let (_, volume) = ring.provision("a").await;
    let id = uid(&ring.stamped("b").await);
    let running = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_status(&running, json!({ "phase": "Running" })).await;
    ring.delete_claim("a").await;
    let deleting = ring.job(ADMIN, "delete", &volume.metadata.name.unwrap()["pvc-".len()..], 1).await;
    // A pod that nobody needs is younger than the runs, and is found when all are old enough for a finding.
    pod(&ring, "unneeded", labels("default", "provision", GONE), "Running").await;
    ring.event(ADMIN, "unneeded", reason::FINDING_REPORTED, "kubectl -n admin delete pod unneeded").await;
    let (_, message) = doctor(&ring, ADMIN, &[]);
    let unneeded = ("pod-without-job".to_owned(), "unneeded".to_owned());
    assert_eq!(found(&message), [unneeded].into(), "a run and a delete run are no findings: {message}");
    for namespace in [ADMIN, USER, "default"] {
        let events = ring.api::<Event>(namespace).list(&ListParams::default()).await.unwrap().items;
        let emitted = events.iter().filter(|event| event.reason.as_deref().is_some_and(|r| r.starts_with("Orphan")));
        assert_eq!(emitted.map(|event| event.message.clone()).collect::<Vec<_>>(), Vec::<Option<String>>::new());
    }
    ring.create_volume(&nfs_volume(&running)).await;
    ring.bound("b").await;
    ring.pod_ends(&deleting, 0, "").await;
}

#[tokio::test]
async fn a_delete_run_whose_job_is_gone_is_waited_for() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    ring.provision("a").await;
    let id = uid(&ring.get_claim("a").await);
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_status(&job, json!({ "phase": "Running" })).await;
    let pod = ring.pod_of(&job).await.metadata.name.unwrap();
    let alone = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    ring.api::<Job>(ADMIN).delete(job.metadata.name.as_deref().unwrap(), &alone).await.unwrap();
    until("the pod has no Job", || async {
        let owners = ring.api::<Pod>(ADMIN).get(&pod).await.unwrap().metadata.owner_references;
        let jobs = ring.jobs(ADMIN, "delete", &id).await.len();
        if owners.is_none() && jobs == 0 { Ok(()) } else { unexpected((owners, jobs)) }
    })
    .await;
    stays("no second run beside it", WHILE, || async {
        match ring.jobs(ADMIN, "delete", &id).await.len() {
            0 => Ok(()),
            _ => Err("a second delete Job".into()),
        }
    })
    .await;
    let ended = json!({ "status": { "phase": "Succeeded" } });
    ring.api::<Pod>(ADMIN).patch_status(&pod, &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&names::pv_name(&id)).await;
}
