//! Tests of classes that a driver's external provisioner may serve, with the image `csi` and a scripted driver.

use std::time::Duration;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use orchestrator::ring::{Ring, USER, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};
use scripted_csi::{Act, Code, Options};
use serde_json::json;

use crate::configs::verdict;
use crate::csi::Scene;

/// An external provisioner, as others see it: it renews its Lease until it is dropped.
struct Sidecar(tokio::task::JoinHandle<()>);

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Sidecar {
    fn start(ring: &Ring, holder: &'static str) -> Self {
        let leases = ring.api(USER);
        Self(tokio::spawn(async move {
            loop {
                hold(&leases, holder).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }))
    }
}

/// Writes who holds the Lease of the driver's external provisioner.
async fn hold(leases: &Api<Lease>, holder: &str) {
    let now = MicroTime(jiff::Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "csi-test" },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now },
    });
    leases.patch("csi-test", &PatchParams::apply("sidecar").force(), &Patch::Apply(lease)).await.unwrap();
}

/// The external provisioner returns while attempts are in progress. One attempt ends. Another has failed when its
/// volume was made, and the driver returns the same volume to each request by its name.
#[tokio::test]
async fn each_claim_has_one_volume_when_the_external_provisioner_returns_during_attempts() {
    let scene = Scene::start(Options::default()).await;
    let ring = &scene.ring;
    ring.class("gold", "csi.test", json!({})).await;
    let endpoint = &scene.endpoint;
    let data = [
        ("volume-sources", "csi"),
        ("csi-endpoint", endpoint),
        ("backoff", "1s..2s"),
        ("replaces-provisioner", "csi.test"),
        ("replaces-provisioner-namespace", USER),
    ];
    ring.config("gold", "gold", &data).await;
    verdict(ring, "gold", "ok").await;
    scene.driver.acts("CreateVolume", [Act::Slow(Duration::from_secs(5))]);
    ring.claim("slow", "gold").await;
    until("the driver gets the request", || async {
        let calls = scene.driver.calls();
        if calls.iter().any(|(call, _)| *call == "CreateVolume") { Ok(()) } else { unexpected(calls.len()) }
    })
    .await;
    scene.driver.acts("CreateVolume", vec![Act::Lose(Code::Internal); 100]);
    ring.claim("lost", "gold").await;
    ring.event(USER, "lost", reason::PROVISIONING_FAILED, "INTERNAL").await;
    let _sidecar = Sidecar::start(ring, "sidecar-0");
    verdict(ring, "gold", "sidecar-0 holds the Lease").await;
    let slow = names::pv_name(&uid(&ring.bound("slow").await));

    let claim = ring.get_claim("lost").await;
    let lost = names::pv_name(&uid(&claim));
    let handle = scene.driver.volumes()[&lost].volume.volume_id.clone();
    let pv = json!({
        "metadata": { "name": lost, "annotations": { names::PROVISIONED_BY: "csi.test" } },
        "spec": {
            "storageClassName": "gold", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": "csi.test", "volumeHandle": handle },
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": USER, "name": "lost", "uid": uid(&claim) },
        },
    });
    ring.volumes().create(&PostParams::default(), &serde_json::from_value(pv).unwrap()).await.unwrap();
    ring.bound("lost").await;
    ring.claim_when("lost", "is no longer held", |claim| annotation(claim, names::HELD).is_none()).await;
    assert_eq!(scene.driver.volumes().len(), 2, "one volume for each claim");
    for (claim, volume) in [("slow", &slow), ("lost", &lost)] {
        ring.delete_claim(claim).await;
        ring.volume_gone(volume).await;
    }
    scene.no_volumes().await;
    scene.end().await;
}

/// A StorageClass was written for the driver's external provisioner, which starts and stops twice.
#[tokio::test]
async fn the_class_of_a_driver_is_served_while_its_external_provisioner_is_stopped() {
    let scene = Scene::start(Options::default()).await;
    let ring = &scene.ring;
    let sidecar = Sidecar::start(ring, "sidecar-0");
    let parameters = json!({ "type": "pd-ssd", "pool": "rbd", "fsType": "xfs" });
    ring.class("gold", "csi.test", json!({ "parameters": parameters })).await;
    ring.class("delayed", "csi.test", json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    // No label: it serves all classes of the driver.
    let data = [
        ("volume-sources", "csi"),
        ("csi-endpoint", &scene.endpoint),
        ("backoff", "1s..2s"),
        ("replaces-provisioner", "csi.test"),
        ("replaces-provisioner-namespace", USER),
        ("capabilities", "capacity"),
        ("capacity-interval", "1s..2s"),
    ];
    ring.config("csi", "", &data).await;
    verdict(ring, "csi", "(delayed, gold) to the external provisioner, which is at work: sidecar-0 holds").await;
    ring.claim("first", "gold").await;
    ring.claim_when("first", "belongs to the external provisioner", |claim| {
        annotation(claim, names::STORAGE_PROVISIONER).as_deref() == Some("csi.test")
    })
    .await;
    let untouched = async |name: &str| {
        stays("the claim is left to the external provisioner", WHILE, || async {
            let claim = ring.get_claim(name).await;
            if annotation(&claim, names::CLAIM_UID).is_none() { Ok(()) } else { unexpected(claim) }
        })
        .await;
    };
    untouched("first").await;

    drop(sidecar);
    let first = uid(&ring.bound("first").await);
    verdict(ring, "csi", "ok").await;
    let pv = ring.volumes().get(&names::pv_name(&first)).await.unwrap();
    assert_eq!(pv.metadata.annotations.unwrap()[names::PROVISIONED_BY], "csi.test");
    let source = pv.spec.unwrap().csi.unwrap();
    assert_eq!((source.driver.as_str(), source.fs_type.as_deref()), ("csi.test", Some("xfs")));
    let request = &scene.driver.volumes()[&names::pv_name(&first)].request;
    assert_eq!(json!(request.parameters), parameters, "the driver gets each parameter, whatever its name");

    // The scheduler uses these figures where the driver's CSIDriver says so.
    ring.publishes(&[("delayed@", "107374182400")]).await;

    // Volumes that this provisioner made are still deleted by it.
    let sidecar = Sidecar::start(ring, "sidecar-1");
    verdict(ring, "csi", "sidecar-1 holds the Lease team/csi-test").await;
    ring.claim("second", "gold").await;
    ring.publishes(&[]).await;
    ring.delete_claim("first").await;
    ring.volume_gone(&names::pv_name(&first)).await;
    scene.no_volumes().await;
    untouched("second").await;

    // An external provisioner that stops in order releases its Lease.
    drop(sidecar);
    hold(&ring.api(USER), "").await;
    let second = uid(&ring.bound("second").await);
    ring.delete_claim("second").await;
    ring.volume_gone(&names::pv_name(&second)).await;
    Api::<StorageClass>::all(ring.client.clone()).delete("delayed", &DeleteParams::default()).await.unwrap();
    scene.no_volumes().await;
    scene.end().await;
}

/// A tenant holds a Lease with the name of the external provisioner's Lease, in a namespace of its own.
#[tokio::test]
async fn a_lease_in_the_namespace_of_a_tenant_stops_no_class_and_is_reported() {
    let scene = Scene::start(Options::default()).await;
    let ring = &scene.ring;
    let _lease = Sidecar::start(ring, "tom");
    ring.class("gold", "csi.test", json!({})).await;
    let endpoint = &scene.endpoint;
    ring.config("csi", "", &[("csi-endpoint", endpoint), ("backoff", "1s..2s"), ("replaces-provisioner", "csi.test")])
        .await;
    verdict(ring, "csi", "somebody holds the Lease team/csi-test, which does not count").await;
    ring.claim("served", "gold").await;
    ring.bound("served").await;

    // Where the admin declares that namespace, the Lease counts: the claim waits, and gets an event.
    let key = ("replaces-provisioner-namespace", USER);
    ring.config("csi", "", &[("csi-endpoint", endpoint), ("replaces-provisioner", "csi.test"), key]).await;
    verdict(ring, "csi", "tom holds the Lease team/csi-test").await;
    ring.claim("waits", "gold").await;
    ring.event(USER, "waits", reason::WAITING_FOR_PROVISIONER, "tom holds the Lease team/csi-test").await;
    let status = std::process::Command::new(orchestrator::programs::tool())
        .args(["status", "--flex-namespace", orchestrator::ring::OWN, "--config-namespace", orchestrator::ring::ADMIN])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("leaves StorageClass gold to another") && status.contains("tom holds"), "{status}");
    ring.delete_claim("waits").await;
    ring.delete_claim("served").await;
    scene.no_volumes().await;
    scene.end().await;
}
