//! Tests of a larger request on a bound claim: the volume is expanded, or the claim says why not.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use orchestrator::conditions::conditions;
use orchestrator::kubelet::request;
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, uid};
use orchestrator::wait::{stays, unexpected, until};

const GI: u64 = 1 << 30;

/// Creates a class whose claims may grow, whether or not its image can.
async fn growing_class(ring: &Ring, name: &str, data: &[(&str, &str)]) {
    ring.class(name, names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    ring.config(name, name, data).await;
}

/// Creates a bound claim of 1 GiB, and returns its id and volume.
async fn grown_from(ring: &Ring, claim: &str, class: &str) -> (String, String) {
    ring.claim(claim, class).await;
    let (_, volume) = ring.provision(claim).await;
    (uid(&ring.get_claim(claim).await), volume.metadata.name.unwrap())
}

async fn no_expand_jobs(ring: &Ring, id: &str) {
    until("no expand Job is left", || async {
        let remaining = ring.jobs(ADMIN, "expand", id).await.len();
        if remaining == 0 { Ok(()) } else { unexpected(remaining) }
    })
    .await;
}

fn env(job: &Job, name: &str) -> Option<String> {
    let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
    container.env.iter().flatten().find(|variable| variable.name == name)?.value.clone()
}

fn allocated(claim: &PersistentVolumeClaim) -> Option<String> {
    Some(claim.status.as_ref()?.allocated_resources.as_ref()?.get("storage")?.0.clone())
}

#[tokio::test]
async fn a_larger_request_expands_the_volume_twice_in_a_row() {
    let ring = Ring::start().await;
    let data = [("capabilities", "expand"), ("zone", "west"), ("reclaim-policy", "Delete")];
    growing_class(&ring, "c", &data).await;
    let (id, volume) = grown_from(&ring, "a", "c").await;

    ring.ask("a", "3Gi").await.unwrap();
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    let asked = request(&job);
    assert_eq!((asked.size_bytes, asked.old_size_bytes), (3 * GI, Some(GI)));
    assert_eq!((asked.volume_id.as_str(), asked.pv_name.as_str()), (id.as_str(), volume.as_str()));
    assert!(asked.volume_source.contains(&format!("\"path\":\"/{id}\"")), "{}", asked.volume_source);
    assert_eq!(env(&job, "ZONE").as_deref(), Some("west"));
    let in_progress = ring.state("a", "ControllerResizeInProgress").await;
    assert_eq!(
        (allocated(&in_progress).as_deref(), conditions(&in_progress)),
        (Some("3Gi"), vec!["Resizing".to_owned()])
    );
    ring.event(&ring.user, "a", reason::RESIZING, "expand run 1 to 3Gi: image example/image").await;
    // The second request arrives during the first run.
    ring.ask("a", "5Gi").await.unwrap();
    ring.pod_ends(&job, 0, "").await;
    let job = until("the run for the second request", || async {
        let jobs = ring.jobs(ADMIN, "expand", &id).await;
        jobs.into_iter().find(|job| request(job).size_bytes == 5 * GI).ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(request(&job).old_size_bytes, Some(3 * GI));
    ring.pod_ends(&job, 0, "").await;
    let grown = ring.has_size("a", &volume, "5Gi").await;
    assert_eq!(allocated(&grown).as_deref(), Some("5Gi"));
    ring.event(&ring.user, "a", reason::VOLUME_RESIZE_SUCCESSFUL, "the volume has 5Gi").await;
    no_expand_jobs(&ring, &id).await;

    // The API server refuses a smaller size.
    let refused = ring.ask("a", "4Gi").await.unwrap_err().to_string();
    assert!(refused.contains("field can not be less than status.capacity"), "{refused}");
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!(request(&job).size_bytes, 5 * GI);
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_failed_expansion_is_repeated_and_ended_by_a_smaller_request() {
    let ring = Ring::start().await;
    growing_class(&ring, "c", &[("capabilities", "expand"), ("backoff", "1s")]).await;
    let (id, volume) = grown_from(&ring, "a", "c").await;
    ring.ask("a", "9Gi").await.unwrap();
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    ring.pod_ends(&job, 69, "the pool has 5Gi").await;
    ring.event(
        &ring.user,
        "a",
        reason::VOLUME_RESIZE_FAILED,
        "run 1 to 9Gi failed: exit code 69: no room here: the pool has 5Gi",
    )
    .await;
    // A full backend may get free space: the run is repeated.
    let job = ring.job(ADMIN, "expand", &id, 2).await;
    let waiting = ring.state("a", "ControllerResizeInProgress").await;
    assert_eq!(conditions(&waiting), ["Resizing", "ControllerResizeError"]);
    ring.pod_ends(&job, 65, "9Gi is too much").await;
    ring.event(&ring.user, "a", reason::VOLUME_RESIZE_FAILED, "9Gi is too much").await;
    let given_up = ring.state("a", "ControllerResizeInfeasible").await;
    assert_eq!(allocated(&given_up).as_deref(), Some("9Gi"));
    stays("a permanent failure is not retried", WHILE, || async {
        let jobs = ring.jobs(ADMIN, "expand", &id).await.len();
        if jobs <= 2 { Ok(()) } else { unexpected(jobs) }
    })
    .await;

    ring.ask("a", "4Gi").await.unwrap();
    let job = ring.job(ADMIN, "expand", &id, 3).await;
    assert_eq!(request(&job).size_bytes, 4 * GI);
    let in_progress = ring.state("a", "ControllerResizeInProgress").await;
    assert_eq!(
        (allocated(&in_progress).as_deref(), conditions(&in_progress)),
        (Some("4Gi"), vec!["Resizing".to_owned()])
    );
    ring.pod_ends(&job, 0, "").await;
    ring.has_size("a", &volume, "4Gi").await;
    no_expand_jobs(&ring, &id).await;
    until("the failure is forgotten", || async {
        let annotations = ring.volumes().get(&volume).await.unwrap().metadata.annotations.unwrap_or_default();
        if annotations.contains_key(names::EXPANSION) { unexpected(annotations) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_image_cannot_expand_gets_an_event_and_grows_with_a_version_that_can() {
    let ring = Ring::start().await;
    growing_class(&ring, "c", &[("zone", "west"), ("max-size", "8Gi")]).await;
    let (id, volume) = grown_from(&ring, "a", "c").await;
    ring.ask("a", "3Gi").await.unwrap();
    let message = ring.event(&ring.user, "a", reason::VOLUME_RESIZE_FAILED, "the volume cannot grow").await;
    assert!(message.contains("admin/c does not declare") && message.contains("`capabilities: expand`"), "{message}");
    assert!(ring.jobs(ADMIN, "expand", &id).await.is_empty());
    // The class can expand now: the run has the class's image and the volume's own location.
    let data = [("image", "example/better"), ("capabilities", "expand"), ("zone", "east"), ("max-size", "8Gi")];
    ring.config("c", "c", &data).await;
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    let image = job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].image.clone();
    assert_eq!((image.as_deref(), env(&job, "ZONE").as_deref()), (Some("example/better"), Some("west")));
    ring.pod_ends(&job, 0, "").await;
    ring.has_size("a", &volume, "3Gi").await;
    ring.ask("a", "9Gi").await.unwrap();
    ring.event(
        &ring.user,
        "a",
        reason::VOLUME_RESIZE_FAILED,
        "the claim asks for 9Gi, and class c provides at most 8Gi; ask for less",
    )
    .await;

    // Without a StorageClass object the API server refuses.
    ring.config("pure", "pure", &[("capabilities", "expand")]).await;
    grown_from(&ring, "b", "pure").await;
    let refused = ring.ask("b", "3Gi").await.unwrap_err().to_string();
    assert!(refused.contains("only dynamically provisioned pvc can be resized"), "{refused}");
}

#[tokio::test]
async fn a_claim_deleted_during_an_expansion_leaves_nothing() {
    let ring = Ring::start().await;
    growing_class(&ring, "c", &[("capabilities", "expand")]).await;
    let (id, volume) = grown_from(&ring, "a", "c").await;
    ring.ask("a", "3Gi").await.unwrap();
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    let pod = ring.pod_on_node(&job, "n1").await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    until("the run is being stopped", || async {
        let job = ring.jobs(ADMIN, "expand", &id).await;
        let stopped = job.iter().all(|job| job.metadata.deletion_timestamp.is_some());
        if stopped && !job.is_empty() { Ok(()) } else { unexpected(job.len()) }
    })
    .await;
    stays("no delete run beside the expand run", WHILE, || async {
        let deletes = ring.jobs(ADMIN, "delete", &id).await.len();
        if deletes == 0 { Ok(()) } else { unexpected(deletes) }
    })
    .await;
    ring.pod_is_over(ADMIN, &pod).await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    assert!(ring.jobs(ADMIN, "expand", &id).await.is_empty());
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn retained_volumes_are_expanded_and_csi_volumes_finish_on_the_node() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    let retained = json!({ "allowVolumeExpansion": true, "reclaimPolicy": "Retain" });
    ring.class("keep", names::DEFAULT_PROVISIONER, retained).await;
    ring.config("keep", "keep", &[("capabilities", "expand"), ("volume-sources", "csi:csi.example")]).await;
    ring.claim("a", "keep").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let mut made: PersistentVolume = orchestrator::kubelet::nfs_volume(&job);
    let spec = made.spec.as_mut().unwrap();
    spec.nfs = None;
    spec.csi = serde_json::from_value(json!({ "driver": "csi.example", "volumeHandle": id })).unwrap();
    ring.create_volume(&made).await;
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let volume = names::pv_name(&id);
    ring.ask("a", "3Gi").await.unwrap();
    let job = ring.job(ADMIN, "expand", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    let pending = ring.state("a", "NodeResizePending").await;
    assert_eq!(conditions(&pending), ["FileSystemResizePending"]);
    assert_eq!(
        pending.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0,
        "1Gi",
        "the kubelet does that"
    );
    ring.event(&ring.user, "a", reason::FILE_SYSTEM_RESIZE_REQUIRED, "the storage has 3Gi").await;
    assert_eq!(ring.volumes().get(&volume).await.unwrap().spec.unwrap().capacity.unwrap()["storage"].0, "3Gi");
    no_expand_jobs(&ring, &id).await;

    // The claim is deleted during an expansion: the volume and its storage stay.
    ring.ask("a", "4Gi").await.unwrap();
    ring.job(ADMIN, "expand", &id, 1).await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    no_expand_jobs(&ring, &id).await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty() && ring.jobs(OWN, "delete", &id).await.is_empty());
    ring.volumes().get(&volume).await.unwrap();
}
