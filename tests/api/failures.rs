//! Tests of failures: the claim has an event with the cause within seconds, and another attempt follows.

use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use orchestrator::kubelet::gates;
use orchestrator::ring::{ADMIN, OWN, Ring, USER, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Waits until a quota refuses an object: the API server learns of it a moment after its creation.
pub async fn refuses<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(object).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    until("the quota is in force", || async {
        match api.create(&dry, &object).await {
            Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
}

/// Waits for an attempt, or a later one.
async fn attempt(ring: &Ring, claim: &str, number: u32) {
    ring.claim_when(claim, &format!("has attempt {number}"), |claim| {
        annotation(claim, names::ATTEMPT).is_some_and(|now| now.parse::<u32>().unwrap() >= number)
    })
    .await;
}

/// Builds the status of a pod whose image cannot be pulled.
fn waits(reason: &str, message: &str) -> Value {
    let state = json!({ "waiting": { "reason": reason, "message": message } });
    let container = json!({
        "name": "provisioner", "image": "example/image", "imageID": "", "ready": false, "restartCount": 0, "state": state,
    });
    json!({ "phase": "Pending", "containerStatuses": [container] })
}

/// Writes a status on the pod of each attempt for a volume id, as the kubelet does once the pod has no gate, until `reached`
/// ends. The deadline may end an attempt before the test has seen its pod.
async fn with_pods<T>(ring: &Ring, id: &str, status: Value, reached: impl Future<Output = T>) -> T {
    let pods = ring.api::<Pod>(ADMIN);
    let labels = format!("{}=provision,{}={id}", names::LABEL_OPERATION, names::LABEL_VOLUME_ID);
    let pending = ListParams::default().labels(&labels).fields("status.phase=Pending");
    let kubelet = async {
        loop {
            let all = pods.list(&pending).await.unwrap().items;
            for pod in all.iter().filter(|pod| gates(pod.spec.as_ref()).is_empty()) {
                ring.pod_status_if_there(pod, status.clone()).await;
            }
            tokio::time::sleep(WHILE / 20).await;
        }
    };
    tokio::select! {
        reached = reached => reached,
        () = kubelet => unreachable!("the kubelet never ends"),
    }
}

#[tokio::test]
async fn exit_codes_and_termination_messages_reach_the_claim_and_decide_the_next_attempt() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;

    ring.claim("retry", "c").await;
    let claim = ring.stamped("retry").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    let began = Instant::now();
    ring.pod_ends(&job, 75, "the array\nis busy").await;
    let message = ring.event(USER, "retry", reason::PROVISIONING_FAILED, "the array is busy").await;
    println!("failure → event after {:?}", began.elapsed());
    assert!(message.contains("attempt 1 failed") && message.contains("next try in"), "{message}");
    attempt(&ring, "retry", 2).await;
    let second = ring.job(ADMIN, "provision", &uid(&claim), 2).await;
    assert_eq!(ring.jobs(ADMIN, "provision", &uid(&claim)).await.len(), 2, "the failed Job is kept for its log");
    ring.create_volume(&orchestrator::kubelet::nfs_volume(&second)).await;
    ring.bound("retry").await;
    ring.claim_when("retry", "has no record of the failure", |claim| annotation(claim, names::FAILURE).is_none()).await;

    ring.claim("never", "c").await;
    let claim = ring.stamped("never").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_ends(&job, 65, "no such zone").await;
    ring.event(USER, "never", reason::PROVISIONING_FAILED, "a retry would fail, too").await;
    stays("no second attempt", WHILE, || async {
        let claim = ring.get_claim("never").await;
        if annotation(&claim, names::ATTEMPT).as_deref() == Some("1") { Ok(()) } else { Err("a second attempt".into()) }
    })
    .await;
    // The admin fixes the config: the next attempt follows at once, with the new version.
    ring.config("c", "c", &[("backoff", "1s"), ("zone", "right")]).await;
    attempt(&ring, "never", 2).await;
}

#[tokio::test]
async fn an_event_says_at_once_why_a_pod_does_not_start() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s"), ("timeout", "3s")]).await;
    ring.claim("pull", "c").await;
    let id = uid(&ring.stamped("pull").await);
    let told = async {
        ring.event(USER, "pull", reason::PROVISIONING_FAILED, "not found: example/image").await;
        ring.event(USER, "pull", reason::PROVISIONING_FAILED, "(`timeout`): ErrImagePull").await;
    };
    with_pods(&ring, &id, waits("ErrImagePull", "not found: example/image"), told).await;
    attempt(&ring, "pull", 2).await;
}

#[tokio::test]
async fn a_fixed_image_is_used_at_once() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("image", "wrong/image")]).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let image = |job: Job| job.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap();
    let fixed = async {
        ring.event(USER, "a", reason::PROVISIONING_FAILED, "no such image").await;
        ring.config("c", "c", &[("image", "right/image")]).await;
        until("an attempt has the right image", || async {
            let images: Vec<_> = ring.jobs(ADMIN, "provision", &id).await.into_iter().map(image).collect();
            if images.iter().any(|image| image == "right/image") { Ok(()) } else { unexpected(images) }
        })
        .await;
    };
    with_pods(&ring, &id, waits("ImagePullBackOff", "no such image"), fixed).await;
}

#[tokio::test]
async fn refusals_by_quota_and_admission_reach_the_claim_and_are_retried() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s"), ("timeout", "3s")]).await;
    let quota: ResourceQuota =
        serde_json::from_value(json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } })).unwrap();
    let quotas = ring.api::<ResourceQuota>(ADMIN);
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    refuses::<Pod>(&ring.api(ADMIN), json!({ "metadata": { "name": "probe" }, "spec": pod })).await;
    ring.claim("a", "c").await;
    let began = Instant::now();
    ring.event(USER, "a", reason::PROVISIONING_FAILED, "exceeded quota").await;
    println!("quota → event after {:?}", began.elapsed());
    quotas.delete("none", &DeleteParams::default()).await.unwrap();

    // A quota of Jobs refuses the Job itself, and with it the attempt.
    let quota: ResourceQuota = serde_json::from_value(
        json!({ "metadata": { "name": "jobs" }, "spec": { "hard": { "count/jobs.batch": "0" } } }),
    )
    .unwrap();
    quotas.create(&PostParams::default(), &quota).await.unwrap();
    refuses::<Job>(
        &ring.api(ADMIN),
        json!({ "metadata": { "name": "probe" }, "spec": { "template": { "spec": pod } } }),
    )
    .await;
    ring.claim("b", "c").await;
    ring.event(USER, "b", reason::PROVISIONING_FAILED, "Kubernetes refuses the provisioner's Job").await;
    quotas.delete("jobs", &DeleteParams::default()).await.unwrap();
    attempt(&ring, "b", 2).await;
}

/// Without its record no run begins, because nobody would undo it.
#[tokio::test]
async fn a_quota_that_refuses_the_record_of_a_run_is_told_and_nothing_is_kept() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("backoff", "1s")]).await;
    // The quota comes when the recipe of the class is stored, which is a revision, too.
    ring.claim("first", "c").await;
    ring.provision("first").await;
    let quota =
        json!({ "metadata": { "name": "none" }, "spec": { "hard": { "count/controllerrevisions.apps": "0" } } });
    let quotas = ring.api::<ResourceQuota>(OWN);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let probe = json!({ "metadata": { "name": "probe" }, "data": {}, "revision": 1 });
    refuses::<ControllerRevision>(&ring.api(OWN), probe).await;
    let id = uid(&ring.claim("a", "c").await);
    let told = ring.event(USER, "a", reason::PROVISIONING_FAILED, "exceeded quota").await;
    assert!(told.contains("flex-record-"), "{told}");
    attempt(&ring, "a", 2).await;
    let pods = ring.api::<Pod>(ADMIN).list(&ListParams::default()).await.unwrap();
    let open =
        pods.iter().filter(|pod| gates(pod.spec.as_ref()).is_empty() && pod.labels()[names::LABEL_VOLUME_ID] == id);
    assert_eq!(open.count(), 0, "a run has begun");
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.deleted_with_volume("first").await;
    ring.nothing_left().await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty(), "there is nothing to delete");
}

/// A Job that the API server calls malformed never existed. Nothing is left, and no delete run is needed; it would be
/// refused for the same reason.
#[tokio::test]
async fn a_claim_whose_job_can_never_be_created_is_deleted_at_once() {
    let ring = Ring::start().await;
    let template = "spec: {volumes: [{name: a, hostPath: {path: /a, type: Directroy}}]}";
    ring.config("c", "c", &[("pod-template", template)]).await;
    ring.claim("a", "c").await;
    ring.event(USER, "a", reason::PROVISIONING_FAILED, "Directroy").await;
    // The record follows the event.
    ring.claim_when("a", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn pods_pass_the_restricted_level_unless_the_config_asks_for_more() {
    let ring = Ring::start().await;
    let enforce = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
    let namespaces: kube::Api<k8s_openapi::api::core::v1::Namespace> = kube::Api::all(ring.client.clone());
    namespaces.patch(ADMIN, &Default::default(), &kube::api::Patch::Merge(enforce)).await.unwrap();
    ring.config("plain", "plain", &[("secret-env", "s"), ("secret-volume", "s")]).await;
    ring.claim("a", "plain").await;
    let claim = ring.stamped("a").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    ring.pod_of(&job).await;
    ring.config("root", "root", &[("run-as-user", "0")]).await;
    ring.claim("b", "root").await;
    ring.event(USER, "b", reason::PROVISIONING_FAILED, "violates PodSecurity \"restricted").await;
}
