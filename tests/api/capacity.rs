//! Tests of capacity: images report it, and the orchestrator publishes it to the scheduler.

use cluster::SimulatedNode;
use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::failures::refuses;
use orchestrator::kubelet::{gates, request};
use orchestrator::nodes::local_volume;
use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Capacity is reported at once after a change, and otherwise not within the time of a test. The control plane keeps
/// nodes without a kubelet tainted.
const KEYS: &[(&str, &str)] = &[
    ("capabilities", "capacity"),
    ("capacity-interval", "1s..1h"),
    ("volume-sources", "local:/data"),
    ("placement", "selected-node"),
    ("tolerations", "[{operator: Exists}]"),
];
const UNLIMITED: &str = "9223372036854775807";

/// Adds a node that renews its heartbeat.
async fn living_node(ring: &Ring, name: &str, zone: &str) -> SimulatedNode {
    let labels = [("topology.kubernetes.io/zone", zone)];
    SimulatedNode::start(ring.client.clone(), name, &labels).await.expect("the node joins")
}

fn drivers(ring: &Ring) -> Api<CSIDriver> {
    Api::all(ring.client.clone())
}

/// Waits until the CSIDriver makes the scheduler check capacity or not; `None` is for no CSIDriver.
async fn scheduler_checks(ring: &Ring, expected: Option<bool>) {
    until(format!("the scheduler checks capacity: {expected:?}"), || async {
        let driver = drivers(ring).get_opt(names::DEFAULT_PROVISIONER).await.map_err(|error| error.to_string())?;
        let scheduler_checks = driver.map(|driver| driver.spec.storage_capacity.unwrap_or_default());
        if scheduler_checks == expected { Ok(()) } else { unexpected(scheduler_checks) }
    })
    .await;
}

async fn capacity_jobs(ring: &Ring) -> Vec<Job> {
    let list = ListParams::default().labels(&format!("{}=capacity", names::LABEL_OPERATION));
    ring.api::<Job>(ADMIN).list(&list).await.unwrap().items
}

/// Waits for an unanswered capacity run on a node, or anywhere, until it has begun.
async fn capacity_run(ring: &Ring, class: &str, node: &str) -> Job {
    let job = until(format!("class {class} has a capacity run on {node:?}"), || async {
        let jobs = capacity_jobs(ring).await;
        let list = ListParams::default().labels(&format!("{}=capacity", names::LABEL_OPERATION));
        let pods = ring.api::<Pod>(ADMIN).list(&list).await.map_err(|error| error.to_string())?.items;
        let waits = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            phase == Some("Pending") && gates(pod.spec.as_ref()).is_empty()
        };
        let owners = |pod: &Pod| pod.metadata.owner_references.clone().unwrap_or_default();
        let waiting: Vec<_> = pods.iter().filter(waits).flat_map(owners).map(|owner| owner.uid).collect();
        let open = |job: &&Job| {
            let run_request = request(job);
            job.metadata.uid.as_ref().is_some_and(|uid| waiting.contains(uid))
                && (run_request.storage_class.as_str(), run_request.node_name.as_str()) == (class, node)
        };
        jobs.iter()
            .find(open)
            .cloned()
            .ok_or_else(|| format!("{:?}", jobs.iter().map(Job::name_any).collect::<Vec<_>>()))
    });
    ring.explained(job).await
}

/// Plays the image's answer on a node.
async fn image_answers(ring: &Ring, class: &str, node: &str, texts: &str) -> Job {
    let job = capacity_run(ring, class, node).await;
    ring.pod_ends(&job, 0, texts).await;
    job
}

async fn no_runs(ring: &Ring) {
    until("no capacity run is left", || async {
        let jobs = capacity_jobs(ring).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs.iter().map(Job::name_any).collect::<Vec<_>>()) }
    })
    .await;
}

/// Checks that no capacity run begins for a while.
async fn nothing_runs(ring: &Ring) {
    stays("no capacity run begins", WHILE, || async {
        let jobs = capacity_jobs(ring).await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs.iter().map(Job::name_any).collect::<Vec<_>>()) }
    })
    .await;
}

/// Returns what `flex-provisioner status` prints.
fn status(ring: &Ring) -> serde_json::Value {
    let output = std::process::Command::new(tool())
        .args(["status", "-o", "json", "--flex-namespace", OWN, "--config-namespace", ADMIN])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test]
async fn capacity_is_published_and_updated_after_each_change() {
    let mut ring = Ring::start().await;
    let (_n1, _n2) = (living_node(&ring, "n1", "west").await, living_node(&ring, "n2", "west").await);
    ring.delayed_class("plain", &[]).await;
    let class =
        ring.class("c", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    ring.config("c", "c", KEYS).await;

    // Nothing is published before all nodes have answered.
    let job = image_answers(&ring, "c", "n1", "flex-capacity 1 5000000001 2000000001\n").await;
    let run_request = request(&job);
    assert_eq!((run_request.volume_id.as_str(), run_request.topology[names::HOSTNAME].as_str()), ("", "n1"));
    ring.publishes(&[("c@n1", "5000000001/2000000001"), ("plain@", UNLIMITED)]).await;
    assert!(drivers(&ring).get_opt(names::DEFAULT_PROVISIONER).await.unwrap().is_none(), "n2 has not answered");
    image_answers(&ring, "c", "n2", "df: no warning\nflex-capacity 1 0").await;
    ring.publishes(&[("c@n1", "5000000001/2000000001"), ("c@n2", "0"), ("plain@", UNLIMITED)]).await;
    scheduler_checks(&ring, Some(true)).await;
    for object in ring.capacities().list(&ListParams::default()).await.unwrap() {
        let owner = &object.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), &owner.name), ("StorageClass", &object.storage_class_name));
        assert_eq!(object.labels()[names::LABEL_INSTANCE], names::DEFAULT_INSTANCE);
    }
    let message = status(&ring);
    let rows = message["capacities"].as_array().unwrap().iter();
    let rows: Vec<_> = rows.map(|one| (&one["topology"][names::HOSTNAME], &one["bytes"], &one["largest"])).collect();
    let (n1, n2) =
        ((json!("n1"), json!(5_000_000_001u64), json!(2_000_000_001u64)), (json!("n2"), json!(0), json!(null)));
    assert_eq!(rows.len(), 2, "{message}");
    assert!(rows.contains(&(&n1.0, &n1.1, &n1.2)) && rows.contains(&(&n2.0, &n2.1, &n2.2)), "{message}");
    for one in message["capacities"].as_array().unwrap() {
        assert_eq!(
            (&one["lastFailure"], &one["unlimited"]),
            (&json!(""), &json!(false)),
            "no run has failed: {message}"
        );
    }
    no_runs(&ring).await;

    // A provision run and a delete run are each followed by a capacity run, on that node only.
    ring.claim("data", "c").await;
    ring.select("data", "n1").await;
    let stamped = ring.stamped("data").await;
    let job = ring.job(ADMIN, "provision", &uid(&stamped), 1).await;
    ring.create_volume(&local_volume(&job, "n1")).await;
    let volume = ring.bound("data").await.spec.unwrap().volume_name.unwrap();
    ring.pod_ends(&job, 0, "").await;
    image_answers(&ring, "c", "n1", "flex-capacity 1 4000000001").await;
    ring.publishes(&[("c@n1", "4000000001"), ("c@n2", "0"), ("plain@", UNLIMITED)]).await;
    no_runs(&ring).await;
    ring.delete_claim("data").await;
    let job = ring.job_on("delete", &uid(&stamped), "n1").await;
    ring.pod_of(&job).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&volume).await;

    // The orchestrator is killed during a run: the next leader takes its answer, and starts no other run.
    let job = capacity_run(&ring, "c", "n1").await;
    ring.kill().await;
    ring.pod_ends(&job, 0, "flex-capacity 1 5000000001").await;
    ring.run().await;
    ring.publishes(&[("c@n1", "5000000001"), ("c@n2", "0"), ("plain@", UNLIMITED)]).await;
    no_runs(&ring).await;
    nothing_runs(&ring).await;

    // A node is removed, and a class.
    Api::<Node>::all(ring.client.clone()).delete("n2", &DeleteParams::default()).await.unwrap();
    ring.publishes(&[("c@n1", "5000000001"), ("plain@", UNLIMITED)]).await;
    let classes: Api<StorageClass> = Api::all(ring.client.clone());
    classes.delete("plain", &DeleteParams::default()).await.unwrap();
    ring.publishes(&[("c@n1", "5000000001")]).await;

    // The config declares no capacity any more: the scheduler stops checking, and nothing is left.
    ring.config("c", "c", &[("capabilities", "-"), ("capacity-interval", "-")]).await;
    scheduler_checks(&ring, None).await;
    ring.publishes(&[]).await;
    ring.config("c", "c", KEYS).await;
    image_answers(&ring, "c", "n1", "flex-capacity 1 7").await;
    scheduler_checks(&ring, Some(true)).await;
    assert_eq!(classes.get("c").await.unwrap().uid(), class.uid());
    classes.delete("c", &DeleteParams::default()).await.unwrap();
    scheduler_checks(&ring, None).await;
    ring.publishes(&[]).await;
    no_runs(&ring).await;
}

#[tokio::test]
async fn a_foreign_csidriver_is_left_alone() {
    let ring = Ring::without_orchestrator(&[]).await;
    let foreign = json!({
        "metadata": { "name": names::DEFAULT_PROVISIONER, "labels": { names::LABEL_INSTANCE: "another" } },
        "spec": { "attachRequired": false, "storageCapacity": false },
    });
    let before =
        drivers(&ring).create(&PostParams::default(), &serde_json::from_value(foreign).unwrap()).await.unwrap();
    let mut ring = ring;
    ring.run().await;
    ring.delayed_class("c", &[("placement", "any"), ("capabilities", "capacity"), ("capacity-interval", "1s..1h")])
        .await;
    image_answers(&ring, "c", "", "flex-capacity 1 10").await;
    ring.publishes(&[("c@", "10")]).await;
    ring.event(ADMIN, "c", reason::CAPACITY_UNUSED, names::DEFAULT_PROVISIONER).await;
    // Its owner makes the scheduler check capacity: classes that cannot report it must be published, too.
    ring.delayed_class("plain", &[]).await;
    ring.publishes(&[("c@", "10"), ("plain@", UNLIMITED)]).await;
    ring.api::<ConfigMap>(ADMIN).delete("c", &DeleteParams::default()).await.unwrap();
    ring.publishes(&[]).await;
    let on = Patch::Merge(json!({ "spec": { "storageCapacity": true } }));
    let on = drivers(&ring).patch(names::DEFAULT_PROVISIONER, &PatchParams::default(), &on).await.unwrap();
    ring.publishes(&[("c@", UNLIMITED), ("plain@", UNLIMITED)]).await;
    let after = drivers(&ring).get(names::DEFAULT_PROVISIONER).await.unwrap();
    assert_eq!(after.resource_version(), on.resource_version(), "the orchestrator has not written it");
    assert_eq!((after.uid(), after.labels()), (before.uid(), before.labels()));
}

#[tokio::test]
async fn a_failed_capacity_run_keeps_no_pod_from_the_nodes() {
    let ring = Ring::start().await;
    ring.delayed_class("c", &[("placement", "any"), ("capabilities", "capacity"), ("capacity-interval", "1s..1h")])
        .await;
    let job = capacity_run(&ring, "c", "").await;
    ring.pod_ends(&job, 64, "OPERATION is `capacity`: this image can provision").await;
    let message = ring.event(ADMIN, "c", reason::CAPACITY_FAILED, "this image can provision").await;
    assert!(message.contains("class c") && message.contains("assumes that there is capacity"), "{message}");
    ring.publishes(&[("c@", UNLIMITED)]).await;
    scheduler_checks(&ring, Some(true)).await;
    // The run succeeds without reporting anything.
    let job = capacity_run(&ring, "c", "").await;
    assert_eq!(request(&job).attempt, 2);
    ring.pod_ends(&job, 0, "all is well").await;
    ring.event(ADMIN, "c", reason::CAPACITY_FAILED, "/dev/termination-log").await;
    // The image is fixed.
    image_answers(&ring, "c", "", "flex-capacity 1 12").await;
    ring.publishes(&[("c@", "12")]).await;
    no_runs(&ring).await;
    // The orchestrator publishes deleted objects again.
    ring.capacities().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    image_answers(&ring, "c", "", "flex-capacity 1 13").await;
    ring.publishes(&[("c@", "13")]).await;
    // A Job that Kubernetes refuses counts as a failed run.
    let quota: Value = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "count/jobs.batch": "0" } } });
    let quotas = ring.api::<k8s_openapi::api::core::v1::ResourceQuota>(ADMIN);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/other" }] });
    let probe = json!({ "metadata": { "name": "probe" }, "spec": { "template": { "spec": pod } } });
    refuses::<Job>(&ring.api(ADMIN), probe).await;
    ring.config("c", "c", &[("placement", "any"), ("capabilities", "capacity"), ("zone", "another")]).await;
    ring.event(ADMIN, "c", reason::CAPACITY_FAILED, "exceeded quota").await;
    assert_eq!(ring.shown_bytes().await["c@"], "13", "the last answer counts");
}
