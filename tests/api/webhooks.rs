//! Tests of admission webhooks that are down, or do not answer.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use orchestrator::ring::{ADMIN, Ring, USER, uid};
use orchestrator::wait::{GUARD, unexpected, until};

/// What the API server says of a webhook that is down.
const DOWN: &str = r#"service "policy-engine" not found"#;

/// Makes a webhook refuse or delay a kind of requests.
async fn webhook(
    ring: &Ring,
    name: &str,
    to: Value,
    selector: Value,
    rule: Value,
) -> Api<ValidatingWebhookConfiguration> {
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(ring.client.clone());
    let object = json!({
        "metadata": { "name": name },
        "webhooks": [{
            "name": format!("{name}.policy.example"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "failurePolicy": "Fail", "timeoutSeconds": 10, "clientConfig": to, "objectSelector": selector, "rules": [rule],
        }],
    });
    webhooks.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    webhooks
}

fn away() -> Value {
    json!({ "service": { "namespace": "policy", "name": "policy-engine" } })
}

/// Waits until a webhook that is down refuses a request: the API server learns of it a moment after its creation.
async fn refused<T>(request: impl AsyncFn() -> Result<T, kube::Error>) {
    until("the webhook is in force", || async {
        match request().await {
            Err(kube::Error::Api(status)) if status.message.contains(DOWN) => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
}

/// Makes a webhook that is down refuse the Jobs of class c.
async fn jobs_refused(ring: &Ring) -> Api<ValidatingWebhookConfiguration> {
    let of_class = json!({ names::LABEL_CLASS: "c" });
    let jobs =
        json!({ "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"] });
    let webhooks = webhook(ring, "jobs", away(), json!({ "matchLabels": of_class }), jobs).await;
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    let probe = json!({ "metadata": { "name": "probe", "labels": of_class }, "spec": { "template": { "spec": pod } } });
    let probe: Job = serde_json::from_value(probe).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    refused(async || ring.api::<Job>(ADMIN).create(&dry, &probe).await).await;
    webhooks
}

#[tokio::test]
async fn a_webhook_that_is_down_is_told_on_each_object_whose_run_it_refuses() {
    let ring = Ring::with_snapshots().await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    let keys = [("capabilities", "expand, snapshot"), ("placement", "any"), ("reclaim-policy", "Delete")];
    ring.config("c", "c", &keys).await;
    let webhooks = jobs_refused(&ring).await;
    ring.claim("a", "c").await;
    let message = ring.event(USER, "a", reason::PROVISIONING_FAILED, DOWN).await;
    assert!(message.starts_with("Kubernetes fails a write of the provisioner, which is repeated: Job"), "{message}");
    assert!(!message.contains("Status {") && !message.contains("ErrorResponse"), "the server's words alone: {message}");
    let (_, trace) = ring.command(&["trace", &format!("{USER}/a")]).await;
    assert!(trace.contains(DOWN), "{trace}");
    let (_, status) = ring.command(&["status", "-A", "-o", "wide"]).await;
    assert!(status.contains("Kubernetes fails a write"), "{status}");
    webhooks.delete("jobs", &DeleteParams::default()).await.unwrap();
    let (_, volume) = ring.provision("a").await;
    let volume = volume.metadata.name.unwrap();
    let id = volume.strip_prefix(names::PV_PREFIX).unwrap();
    let snapshot = ring.snapshot("monday", "a").await;
    let job = ring.job(ADMIN, "snapshot", &snapshot, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.snapshot_ready("monday").await;

    // The claim grows, and the snapshot is deleted.
    let webhooks = jobs_refused(&ring).await;
    ring.ask("a", "3Gi").await.unwrap();
    ring.event(USER, "a", reason::VOLUME_RESIZE_FAILED, DOWN).await;
    ring.delete_snapshot("monday").await;
    ring.event(USER, "monday", reason::SNAPSHOT_DELETION_FAILED, DOWN).await;
    webhooks.delete("jobs", &DeleteParams::default()).await.unwrap();
    ring.snapshot_deleted(&snapshot).await;
    ring.content_gone(&names::content_name(&snapshot)).await;
    let expand = until("the expand run", || async {
        ring.jobs(ADMIN, "expand", id).await.pop().ok_or_else(|| "none".to_owned())
    });
    let expand = ring.explained(expand).await;
    ring.pod_ends(&expand, 0, "").await;
    ring.has_size("a", &volume, "3Gi").await;

    let webhooks = jobs_refused(&ring).await;
    ring.delete_claim("a").await;
    ring.event("default", &volume, reason::VOLUME_FAILED_DELETE, DOWN).await;
    webhooks.delete("jobs", &DeleteParams::default()).await.unwrap();
    let delete = ring.job(ADMIN, "delete", id, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&volume).await;

    let claims = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["persistentvolumeclaims"], "operations": ["UPDATE"] });
    let marked = json!({ "matchLabels": { "policy": "strict" } });
    webhook(&ring, "claims", away(), marked, claims).await;
    let strict = json!({ "metadata": { "labels": { "policy": "strict" } } });
    // Nobody serves a claim without a class.
    ring.claim_with("probe", "", strict.clone()).await;
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let change = Patch::Merge(json!({ "metadata": { "annotations": { "changed": "yes" } } }));
    refused(async || ring.claims().patch("probe", &dry, &change).await).await;
    ring.claim_with("b", "c", strict).await;
    ring.event(USER, "b", reason::PROVISIONING_FAILED, DOWN).await;
}

/// Each try is another batch.
#[tokio::test]
async fn a_webhook_that_is_down_is_told_on_the_claims_of_a_batch() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("placement", "any"), ("batch-size", "2"), ("batch-window", "5s")]).await;
    ring.claim("first", "c").await;
    let id = uid(&ring.stamped("first").await);
    ring.job(ADMIN, "provision", &id, 1).await;
    let webhooks = jobs_refused(&ring).await;
    for claim in ["a", "b"] {
        ring.claim(claim, "c").await;
    }
    for claim in ["a", "b"] {
        let message = ring.event(USER, claim, reason::PROVISIONING_FAILED, DOWN).await;
        let says = "Kubernetes fails a write of the provisioner, which is repeated: the Job of a batch";
        assert!(message.starts_with(says), "{message}");
    }
    webhooks.delete("jobs", &DeleteParams::default()).await.unwrap();
    let begun = until("a batch has a Job", || async {
        let names: Vec<_> = ring.all_jobs().await.iter().map(ResourceExt::name_any).collect();
        if names.iter().any(|name| name.contains("-batch-")) { Ok(()) } else { unexpected(names) }
    });
    ring.explained(begun).await;
}

/// Each write to a claim of one tenant waits for ten seconds, and there are more of these claims than workers.
#[tokio::test]
async fn a_webhook_that_does_not_answer_keeps_no_other_claim_waiting() {
    /// The number of items that the orchestrator reconciles at one time if none takes long.
    const WORKERS: usize = 64;
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let (count, mut waiting) = watch::channel(0);
    let count = Arc::new(count);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = silent.accept().await {
            let count = count.clone();
            count.send_modify(|waiting| *waiting += 1);
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                count.send_modify(|waiting| *waiting -= 1);
            });
        }
    });
    let claims = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["persistentvolumeclaims"], "operations": ["UPDATE"] });
    webhook(&ring, "claims", json!({ "url": url }), json!({ "matchLabels": { "policy": "slow" } }), claims).await;
    let slow = json!({ "metadata": { "labels": { "policy": "slow" } } });
    for number in 0..150 {
        ring.claim_with(&format!("slow-{number}"), "c", slow.clone()).await;
    }
    let more = tokio::time::timeout(GUARD, waiting.wait_for(|waiting| *waiting > WORKERS)).await;
    more.expect("the slow claims hold all workers").unwrap();
    ring.claim("fast", "c").await;
    ring.job(ADMIN, "provision", &uid(&ring.stamped("fast").await), 1).await;
}
