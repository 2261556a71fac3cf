//! Tests of VolumeAttributesClasses: a claim is created with one, gets another while it is bound, and returns to the
//! first.

use flex_contract::names;
use flex_contract::reason;
use flex_core::config::modify::VolumeAttributesClass;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use orchestrator::conditions::conditions;
use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::ring::{ADMIN, Ring, WHILE, uid};
use orchestrator::wait::{stays, unexpected, until};
use serde_json::json;

async fn attributes_class(ring: &Ring, name: &str, driver: &str, parameters: &[(&str, &str)]) {
    let parameters: serde_json::Map<_, _> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let class = json!({ "metadata": { "name": name }, "driverName": driver, "parameters": parameters });
    let classes: Api<VolumeAttributesClass> = Api::all(ring.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
}

async fn gold_and_silver(ring: &Ring) {
    attributes_class(ring, "gold", names::DEFAULT_PROVISIONER, &[("iops", "900"), ("cache", "on")]).await;
    attributes_class(ring, "silver", names::DEFAULT_PROVISIONER, &[("iops", "300")]).await;
}

/// The user changes the VolumeAttributesClass of a claim.
async fn request_class(ring: &Ring, claim: &str, class: Option<&str>) -> Result<PersistentVolumeClaim, kube::Error> {
    let requested = json!({ "spec": { "volumeAttributesClassName": class } });
    ring.claims().patch(claim, &PatchParams::default(), &Patch::Merge(requested)).await
}

/// Waits until the claim's status shows the class, and no trace of a modification.
async fn has_class(ring: &Ring, claim: &str, class: Option<&str>) -> PersistentVolumeClaim {
    let settled = |claim: &PersistentVolumeClaim| {
        let status = claim.status.clone().unwrap();
        status.current_volume_attributes_class_name.as_deref() == class
            && status.modify_volume_status.is_none()
            && conditions(claim).is_empty()
    };
    ring.claim_when(claim, &format!("has {class:?}"), settled).await
}

/// Waits until the claim's status shows this state of a modification, with these conditions.
async fn modify_status(ring: &Ring, claim: &str, class: &str, state: &str, expected: &[&str]) {
    let is = |claim: &PersistentVolumeClaim| {
        let status = claim.status.clone().unwrap();
        status.modify_volume_status.as_ref().is_some_and(|modify| {
            modify.status == state && modify.target_volume_attributes_class_name.as_deref().unwrap_or("") == class
        }) && conditions(claim) == expected
    };
    ring.claim_when(claim, &format!("is {state} to {class}"), is).await;
}

async fn no_modify_jobs(ring: &Ring, id: &str) {
    until("no modify Job is left", || async {
        let remaining = ring.jobs(ADMIN, "modify", id).await.len();
        if remaining == 0 { Ok(()) } else { unexpected(remaining) }
    })
    .await;
}

/// Waits until nothing about the runs of a modification is noted on a volume.
async fn forgotten(ring: &Ring, volume: &str) {
    until("the failure is forgotten", || async {
        let annotations = ring.volumes().get(volume).await.unwrap().metadata.annotations.unwrap_or_default();
        if annotations.contains_key(names::MODIFICATION) { unexpected(annotations) } else { Ok(()) }
    })
    .await;
}

/// Waits for the modify run of an attempt to a class, until it has begun. The Job of a failed attempt to another class may
/// have the same number.
async fn modify_job(ring: &Ring, id: &str, attempt: u32, class: &str) -> Job {
    let found = until(format!("modify Job {attempt} of {id} to `{class}`"), || async {
        let jobs = ring.jobs(ADMIN, "modify", id).await;
        let is = |job: &&Job| request(job).attempt == attempt && request(job).attributes_class == class;
        jobs.iter().find(is).cloned().ok_or_else(|| format!("{} others", jobs.len()))
    });
    let job = ring.explained(found).await;
    ring.begins(&job).await;
    job
}

/// Builds a CSI volume: the only kind whose spec can name the class.
fn csi_volume(job: &Job) -> PersistentVolume {
    let mut volume = nfs_volume(job);
    let spec = volume.spec.as_mut().unwrap();
    spec.nfs = None;
    spec.csi = Some(CSIPersistentVolumeSource {
        driver: "csi.example".into(),
        volume_handle: request(job).volume_id,
        ..CSIPersistentVolumeSource::default()
    });
    volume
}

fn env(job: &Job, name: &str) -> Option<String> {
    let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
}

fn asked_with(class: &str) -> serde_json::Value {
    json!({ "spec": { "volumeAttributesClassName": class } })
}

#[tokio::test]
async fn a_volume_is_made_modified_and_deleted_with_the_attributes_of_its_claim() {
    let ring = Ring::start().await;
    gold_and_silver(&ring).await;
    let sources = ("volume-sources", "nfs, csi:csi.example");
    ring.config("c", "c", &[("capabilities", "modify"), ("zone", "west"), ("iops", "100"), sources]).await;
    // In a PersistentVolume only CSI volumes have this field; a claim may have it with any volume.
    for (name, make) in [("csi", csi_volume as fn(&Job) -> PersistentVolume), ("nfs", nfs_volume)] {
        ring.claim_with(name, "c", asked_with("silver")).await;
        let id = uid(&ring.stamped(name).await);
        let job = ring.job(ADMIN, "provision", &id, 1).await;
        let values = |job: &Job| ["ATTRIBUTES_CLASS", "IOPS", "ZONE"].map(|name| env(job, name).unwrap_or_default());
        assert_eq!(values(&job), ["silver", "300", "west"]);
        let volume = make(&job);
        ring.create_volume(&volume).await;
        ring.bound(name).await;
        ring.pod_ends(&job, 0, "").await;
        has_class(&ring, name, Some("silver")).await;
        let in_spec = |expected: Option<&'static str>| {
            let volume = volume.metadata.name.clone().unwrap();
            let ring = &ring;
            async move {
                let spec = ring.volumes().get(&volume).await.unwrap().spec.unwrap();
                assert_eq!(spec.volume_attributes_class_name.as_deref(), expected.filter(|_| spec.csi.is_some()));
            }
        };
        in_spec(Some("silver")).await;

        request_class(&ring, name, Some("gold")).await.unwrap();
        let job = ring.job(ADMIN, "modify", &id, 1).await;
        assert_eq!(values(&job), ["gold", "900", "west"]);
        let asked = request(&job);
        assert_eq!(asked.old_attributes_class, "silver");
        assert_eq!(asked.old_attributes, [("iops".to_owned(), "300".to_owned())].into());
        assert_eq!((asked.volume_id.as_str(), env(&job, "CACHE").as_deref()), (id.as_str(), Some("on")));
        assert!(asked.volume_source.contains(&id), "{}", asked.volume_source);
        modify_status(&ring, name, "gold", "InProgress", &["ModifyingVolume"]).await;
        ring.event(&ring.user, name, reason::VOLUME_MODIFY, "run 1 to VolumeAttributesClass gold: image").await;
        // The user changes the class again during the first run.
        request_class(&ring, name, Some("silver")).await.unwrap();
        ring.pod_ends(&job, 0, "").await;
        let job = ring.job(ADMIN, "modify", &id, 2).await;
        assert_eq!((values(&job)[0].as_str(), request(&job).old_attributes_class.as_str()), ("silver", "gold"));
        in_spec(Some("gold")).await;
        ring.pod_ends(&job, 0, "").await;
        has_class(&ring, name, Some("silver")).await;
        ring.event(&ring.user, name, reason::VOLUME_MODIFY_SUCCESSFUL, "attributes of VolumeAttributesClass silver")
            .await;
        in_spec(Some("silver")).await;
        no_modify_jobs(&ring, &id).await;
        // The API server refuses to remove the class.
        let refused = request_class(&ring, name, None).await.unwrap_err().to_string();
        assert!(refused.contains("update to nil is forbidden"), "{refused}");

        ring.delete_claim(name).await;
        let job = ring.job(ADMIN, "delete", &id, 1).await;
        assert_eq!(values(&job), ["silver", "300", "west"], "the attributes at the time of the deletion");
        ring.pod_ends(&job, 0, "").await;
        ring.volume_gone(volume.metadata.name.as_deref().unwrap()).await;
    }
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_failed_modification_is_repeated_until_the_claim_returns_to_its_class() {
    let mut ring = Ring::start().await;
    gold_and_silver(&ring).await;
    ring.config("c", "c", &[("capabilities", "modify"), ("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    let (_, volume) = ring.provision("a").await;
    let (id, volume) = (uid(&ring.get_claim("a").await), volume.metadata.name.unwrap());

    // A permanent failure has changed nothing: the claim returns to its class without a run.
    request_class(&ring, "a", Some("gold")).await.unwrap();
    let job = ring.job(ADMIN, "modify", &id, 1).await;
    ring.pod_ends(&job, 65, "no cache here").await;
    modify_status(&ring, "a", "gold", "Infeasible", &["ModifyVolumeError"]).await;
    ring.event(&ring.user, "a", reason::VOLUME_MODIFY_FAILED, "no cache here; a retry would fail, too").await;
    request_class(&ring, "a", None).await.unwrap();
    has_class(&ring, "a", None).await;
    stays("no run to the attributes that the volume has", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "modify", &id).await;
        if jobs.iter().all(|job| request(job).attempt == 1) { Ok(()) } else { unexpected(jobs.len()) }
    })
    .await;
    // Until then the next run gets number 2.
    forgotten(&ring, &volume).await;

    // After any other failure the volume may be half modified, and a run restores it.
    request_class(&ring, "a", Some("silver")).await.unwrap();
    let job = modify_job(&ring, &id, 1, "silver").await;
    ring.pod_ends(&job, 75, "the array is busy").await;
    ring.event(&ring.user, "a", reason::VOLUME_MODIFY_FAILED, "run 1 to VolumeAttributesClass silver failed").await;
    let job = modify_job(&ring, &id, 2, "silver").await;
    modify_status(&ring, "a", "silver", "InProgress", &["ModifyingVolume", "ModifyVolumeError"]).await;
    request_class(&ring, "a", None).await.unwrap();
    ring.restart().await;
    ring.pod_ends(&job, 75, "the array is still busy").await;
    let job = modify_job(&ring, &id, 3, "").await;
    let asked = request(&job);
    assert_eq!((asked.attributes_class.as_str(), asked.old_attributes_class.as_str()), ("", ""));
    assert_eq!(env(&job, "IOPS"), None);
    modify_status(&ring, "a", "", "InProgress", &["ModifyingVolume"]).await;
    ring.pod_ends(&job, 0, "").await;
    has_class(&ring, "a", None).await;
    no_modify_jobs(&ring, &id).await;
    forgotten(&ring, &volume).await;

    // When a claim is deleted, its modify run is stopped.
    request_class(&ring, "a", Some("gold")).await.unwrap();
    modify_job(&ring, &id, 4, "gold").await;
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert!(ring.jobs(ADMIN, "modify", &id).await.is_empty());
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_claim_with_unusable_attributes_gets_an_event_and_waits() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "modify")]).await;
    ring.config("plain", "plain", &[]).await;
    attributes_class(&ring, "foreign", "csi.example", &[("iops", "1")]).await;
    attributes_class(&ring, "sly", names::DEFAULT_PROVISIONER, &[("image", "evil")]).await;
    for (claim, class, asked, why) in [
        ("missing", "c", "gold", "the VolumeAttributesClass gold, which the claim asks for, does not exist"),
        ("foreign", "c", "foreign", "is for volumes of csi.example; for those of class c it must say"),
        ("sly", "c", "sly", "image is a key of the provisioner config"),
        ("plain", "plain", "gold", "`capabilities: modify`"),
    ] {
        ring.claim_with(claim, class, asked_with(asked)).await;
        ring.event(&ring.user, claim, reason::PROVISIONING_FAILED, why).await;
        assert!(ring.jobs(ADMIN, "provision", &uid(&ring.get_claim(claim).await)).await.is_empty());
    }
    ring.claim("bound", "c").await;
    ring.provision("bound").await;
    let id = uid(&ring.get_claim("bound").await);
    request_class(&ring, "bound", Some("gold")).await.unwrap();
    modify_status(&ring, "bound", "gold", "Pending", &[]).await;
    ring.event(&ring.user, "bound", reason::VOLUME_MODIFY_FAILED, "gold, which the claim asks for, does not exist")
        .await;

    // Once the class exists, both claims continue.
    gold_and_silver(&ring).await;
    let job = ring.job(ADMIN, "modify", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    has_class(&ring, "bound", Some("gold")).await;
    ring.provision("missing").await;
    has_class(&ring, "missing", Some("gold")).await;
    for claim in ["foreign", "sly", "plain"] {
        ring.claims().delete(claim, &DeleteParams::default()).await.unwrap();
        ring.claim_gone(claim).await;
    }
}
