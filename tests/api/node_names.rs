//! Tests of nodes whose host name labels differ from their names, change, or move.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use orchestrator::backup::{Backup, flex};
use orchestrator::commands::doctor;
use orchestrator::nodes::{ON_NODE, local_volume, pinned_to};
use orchestrator::ring::{ADMIN, Ring, WHILE, phase, uid};
use orchestrator::wait::{stays, until};

const KEYS: &[(&str, &str)] = &[("volume-sources", "local:/data"), ("backoff", "1s"), ("reclaim-policy", "Delete")];

fn nodes(ring: &Ring) -> Api<Node> {
    Api::all(ring.client.clone())
}

async fn node(ring: &Ring, name: &str, host: &str) {
    let node = json!({ "metadata": { "name": name, "labels": { names::HOSTNAME: host, names::OS: names::OS_LINUX } } });
    nodes(ring).create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
}

async fn label(ring: &Ring, name: &str, host: &str) {
    let labels = json!({ "metadata": { "labels": { names::HOSTNAME: host } } });
    nodes(ring).patch(name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
}

/// Binds a claim to a volume on a node with this host name. Returns the id.
async fn bound_on(ring: &Ring, claim: &str, name: &str, host: &str) -> String {
    ring.claim(claim, "c").await;
    ring.select(claim, name).await;
    let id = uid(&ring.stamped(claim).await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.create_volume(&local_volume(&job, host)).await;
    ring.bound(claim).await;
    ring.pod_ends(&job, 0, "").await;
    id
}

/// Waits until the doctor says something about the volume of an id.
async fn doctor_says(ring: &Ring, id: &str, says: &str) -> Value {
    let found = until(format!("the doctor says {says}"), || async {
        let (_, report) = doctor(ring, ADMIN, &[]);
        let findings = report["findings"].as_array().cloned().unwrap_or_default();
        let about = |finding: &&Value| finding.to_string().contains(id) && finding.to_string().contains(says);
        findings.iter().find(about).cloned().ok_or_else(|| report.to_string())
    });
    ring.explained(found).await
}

async fn deleted_on(ring: &Ring, id: &str, name: &str) -> Job {
    let job = ring.job_on("delete", id, name).await;
    assert_eq!(pinned_to(&job).as_deref(), Some(name));
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&names::pv_name(id)).await;
    job
}

#[tokio::test]
async fn the_record_of_a_volume_decides_about_its_node_and_no_label_does() {
    let mut ring = Ring::start().await;
    node(&ring, "n1", "n1.example.org").await;
    node(&ring, "n2", "n2").await;
    ring.delayed_class("c", KEYS).await;
    let id = bound_on(&ring, "a", "n1", "n1.example.org").await;
    let record = ring.volume_of("a").await.annotations()[names::PROVENANCE].clone();
    assert_eq!(serde_json::from_str::<Value>(&record).unwrap()["node"], json!("n1"), "the name, and not the label");

    label(&ring, "n1", "n1").await;
    let finding = doctor_says(&ring, &id, "node-labels").await;
    let remedy = finding["remedy"].as_str().unwrap();
    assert!(remedy.contains("kubectl label node n1 kubernetes.io/hostname=n1.example.org"), "{finding}");
    assert!(!remedy.contains("delete"), "{finding}");

    // While another node has the label, a delete run on either could be on the wrong one.
    label(&ring, "n2", "n1.example.org").await;
    doctor_says(&ring, &id, "node n2 has them now").await;
    ring.catch_up().await;
    let name = names::pv_name(&id);
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    ring.event("", &name, reason::VOLUME_FAILED_DELETE, "its node affinity leads to node n2").await;
    stays("nothing is deleted", WHILE, || async {
        match ring.jobs(ADMIN, "delete", &id).await.len() {
            0 => Ok(()),
            count => Err(format!("{count} delete runs")),
        }
    })
    .await;
    label(&ring, "n2", "n2").await;
    deleted_on(&ring, &id, "n1").await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_volume_that_was_carried_to_another_node_is_deleted_there() {
    let ring = Ring::start().await;
    node(&ring, "n1", "n1").await;
    node(&ring, "n2", "n2").await;
    ring.delayed_class("c", KEYS).await;
    let id = bound_on(&ring, "a", "n1", "n1").await;
    let name = names::pv_name(&id);
    let mut backup = Backup::of(&ring, "a").await;
    backup.lose(&ring).await;
    let hosts = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    *backup.volume.pointer_mut(hosts).unwrap() = json!(["n2"]);
    Backup::create(&ring, &backup.volume);
    Backup::create(&ring, &backup.claim);
    ring.bound("a").await;
    let said = |arguments: &[&str]| {
        let output = flex(&ring, arguments);
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (done, why) = said(&["vouch", &name]);
    assert!(!done && why.contains("if the storage is on node n2, add --node n2"), "{why}");
    let (done, why) = said(&["vouch", "--node", "n1", &name]);
    assert!(!done && why.contains("node n1 has not the labels"), "{why}");
    let (done, why) = said(&["vouch", "--node", "n2", &name]);
    assert!(done, "{why}");
    let volume = ring.volumes().get(&name).await.unwrap();
    let record: Value = serde_json::from_str(&volume.annotations()[names::PROVENANCE]).unwrap();
    assert_eq!((&record["node"], volume.annotations()[names::NODES].as_str()), (&json!("n2"), "n2"));
    ring.delete_claim("a").await;
    deleted_on(&ring, &id, "n2").await;
}

/// A node has a new name, and its disk and its label.
#[tokio::test]
async fn a_volume_of_a_renamed_node_gets_the_new_name_by_vouch() {
    let mut ring = Ring::start().await;
    node(&ring, "n1", "n1").await;
    ring.delayed_class("c", &[KEYS, &[("node-gone", "forget")]].concat()).await;
    let id = bound_on(&ring, "a", "n1", "n1").await;
    let name = names::pv_name(&id);
    nodes(&ring).delete("n1", &DeleteParams::default()).await.unwrap();
    node(&ring, "n1-new", "n1").await;
    doctor_says(&ring, &id, "--node n1-new").await;
    ring.catch_up().await;
    ring.delete_claim("a").await;
    ring.event("", &name, reason::VOLUME_FAILED_DELETE, "its node affinity leads to node n1-new").await;
    let output = flex(&ring, &["vouch", "--also-released", "--node", "n1-new", &name]);
    assert!(output.status.success(), "{output:?}");
    deleted_on(&ring, &id, "n1-new").await;
}

/// Begins a run on a node, kills the orchestrator, and deletes the claim. Returns the Job and its id.
async fn run_without_claim(ring: &mut Ring, claim: &str, name: &str) -> (Job, String) {
    ring.claim(claim, "c").await;
    ring.select(claim, name).await;
    let id = uid(&ring.stamped(claim).await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    ring.kill().await;
    ring.delete_claim(claim).await;
    ring.claim_vanished(claim).await;
    (job, id)
}

/// Makes the volume of a run, as an image that writes no finalizer.
async fn makes_volume(ring: &Ring, job: &Job, host: &str) {
    let mut volume = local_volume(job, host);
    volume.metadata.finalizers = None;
    ring.create_volume(&volume).await;
    ring.pod_ends(job, 0, "").await;
}

#[tokio::test]
async fn a_volume_whose_claim_is_gone_before_its_adoption_is_deleted_on_the_node_of_its_run() {
    let mut ring = Ring::start().await;
    node(&ring, "n1", "x").await;
    node(&ring, "n2", "n2").await;
    ring.delayed_class("c", KEYS).await;
    // The label moves to another node before the volume appears.
    let (job, id) = run_without_claim(&mut ring, "moved", "n1").await;
    label(&ring, "n1", "n1").await;
    label(&ring, "n2", "x").await;
    makes_volume(&ring, &job, "x").await;
    ring.run().await;
    // The stand-in for the claim adopts the volume, whose record names the node of the run.
    let says = "its node affinity leads to node n2";
    ring.event("", &names::pv_name(&id), reason::VOLUME_FAILED_DELETE, says).await;
    label(&ring, "n2", "n2").await;
    deleted_on(&ring, &id, "n1").await;

    // The node is away when the volume appears, and comes back.
    let (job, id) = run_without_claim(&mut ring, "away", "n1").await;
    nodes(&ring).delete("n1", &DeleteParams::default()).await.unwrap();
    makes_volume(&ring, &job, "n1").await;
    ring.run().await;
    let says = "node n1 is gone, and storage on it must be deleted";
    ring.event("", &names::pv_name(&id), reason::VOLUME_FAILED_DELETE, says).await;
    node(&ring, "n1", "n1").await;
    deleted_on(&ring, &id, "n1").await;
}

/// The image writes the orchestrator's finalizer, as `flex-pv create` does.
#[tokio::test]
async fn a_volume_that_excludes_the_node_of_its_run_is_refused() {
    let ring = Ring::start().await;
    for name in ["n1", "n2"] {
        node(&ring, name, name).await;
    }
    ring.delayed_class("c", KEYS).await;
    ring.config("now", "now", &[&[ON_NODE], KEYS].concat()).await;
    for (claim, class) in [("delayed", "c"), ("immediate", "now")] {
        ring.claim(claim, class).await;
        if class == "c" {
            ring.select(claim, "n1").await;
        }
        let id = uid(&ring.stamped(claim).await);
        let job = ring.job(ADMIN, "provision", &id, 1).await;
        let own = pinned_to(&job).expect("the class makes volumes on nodes");
        let other = if own == "n1" { "n2" } else { "n1" };
        let volume = local_volume(&job, other);
        assert!(volume.metadata.finalizers.is_some());
        ring.create_volume(&volume).await;
        let says = format!("its node affinity excludes the selected node {own}");
        ring.event(&ring.user, claim, reason::VOLUME_REFUSED, &says).await;
        assert_eq!(phase(&ring.get_claim(claim).await), "Pending");
    }
}
