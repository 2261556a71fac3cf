//! Tests of the image `csi` with the whole orchestrator, as a process in place of a pod, and with a scripted driver.

use std::time::Duration;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use scripted_csi::{Act, Code, Driver, Options};
use serde_json::json;

use orchestrator::batches::all_bound;
use orchestrator::processes::Kubelet;
use orchestrator::ring::{Ring, uid};
use orchestrator::wait::{GUARD, unexpected, until, within};

/// The image's program.
const PROGRAM: &str = "csi-provisioner";

/// A control plane, the image, and a driver with scripted answers.
pub struct Scene {
    pub ring: Ring,
    pub driver: Driver,
    pub endpoint: String,
    pub kubelet: Kubelet,
    _directory: tempfile::TempDir,
}

impl Scene {
    pub async fn start(options: Options) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("csi.sock");
        let endpoint = format!("unix://{}", socket.display());
        // A runtime cannot start another one on its own threads.
        let driver = tokio::task::spawn_blocking(move || Driver::start(options, &socket)).await.unwrap();
        let ring = Ring::start().await;
        let kubelet = Kubelet::start(&ring, PROGRAM);
        Scene { ring, driver, endpoint, kubelet, _directory: directory }
    }

    pub async fn config(&self, more: &[(&str, &str)]) {
        let usual = [
            ("volume-sources", "csi"),
            ("csi-endpoint", &self.endpoint),
            ("backoff", "1s..2s"),
            ("reclaim-policy", "Delete"),
        ];
        let data: Vec<_> = usual.into_iter().chain(more.iter().copied()).collect();
        self.ring.config("csi", "csi", &data).await;
    }

    /// Deletes all claims, and waits until no volume is left in the cluster or in the driver.
    async fn delete_all(&self) {
        let all = ListParams::default();
        self.ring.claims().delete_collection(&DeleteParams::default(), &all).await.unwrap();
        within(GUARD * 3, "all volumes are gone", || async {
            let remaining = self.ring.volumes().list(&all).await.map_err(|error| error.to_string())?.items.len();
            if remaining == 0 { Ok(()) } else { unexpected(remaining) }
        })
        .await;
        self.no_volumes().await;
    }

    pub async fn no_volumes(&self) {
        until("the driver has no volumes", || async {
            let volumes = self.driver.volumes();
            if volumes.is_empty() { Ok(()) } else { unexpected(volumes) }
        })
        .await;
    }

    /// Ends the driver. It ends its own runtime, which it must not do on another one.
    pub async fn end(self) {
        let Scene { ring, driver, .. } = self;
        ring.nothing_left().await;
        tokio::task::spawn_blocking(move || drop(driver)).await.unwrap();
    }
}

#[tokio::test]
async fn claims_are_provisioned_and_deleted_within_the_limit_of_the_config() {
    const CLAIMS: usize = 12;
    const IN_FLIGHT: usize = 3;
    let scene = Scene::start(Options::default()).await;
    scene.driver.acts("CreateVolume", vec![Act::Slow(Duration::from_millis(300)); CLAIMS]);
    // The first call waits for a second one.
    scene.driver.gathers(2);
    scene.config(&[("max-in-flight", &IN_FLIGHT.to_string()), ("type", "x"), ("examplePool", "Gold")]).await;
    let ring = &scene.ring;
    for n in 0..CLAIMS {
        ring.claim(&format!("c{n}"), "csi").await;
    }
    all_bound(ring, "csi", CLAIMS).await;
    let volumes = scene.driver.volumes();
    assert_eq!(volumes.len(), CLAIMS, "one volume for each claim");
    let most = scene.driver.most_at_once();
    scene.driver.gathers(0);
    println!("at most {most} were in flight");
    assert!(most <= IN_FLIGHT && most > 1, "{most}");
    // The parameters have the names that the admin wrote.
    let (name, made) = volumes.first_key_value().unwrap();
    let parameters = [("examplePool", "Gold"), ("type", "x")];
    assert!(made.request.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).eq(parameters));
    let pv = ring.volumes().get(name).await.unwrap().spec.unwrap().csi.unwrap();
    assert_eq!((pv.driver.as_str(), &pv.volume_handle), ("csi.test", &made.volume.volume_id));
    scene.delete_all().await;
    scene.end().await;
}

/// The second StorageClass of the external provisioner's first README; the provisioner's name is this project's.
#[tokio::test]
async fn the_class_of_the_first_readme_makes_volumes_with_its_secrets() {
    let scene = Scene::start(Options::default()).await;
    let ring = &scene.ring;
    scene.config(&[("claim-metadata", "com.example.team/key")]).await;
    let class = json!({ "parameters": {
        "provisioner-config": "admin/csi",
        "type": "pd-ssd",
        "csiProvisionerSecretName": "fast-storage-provision-key",
        "csiProvisionerSecretNamespace": "pd-ssd-credentials",
        "csiControllerPublishSecretName": "${pv.name}-publish",
        "csiControllerPublishSecretNamespace": "pd-ssd-credentials",
        "csiNodeStageSecretName": "${pv.name}-stage",
        "csiNodeStageSecretNamespace": "pd-ssd-credentials",
        "csiNodePublishSecretName": "${pvc.annotations['com.example.team/key']}",
        "csiNodePublishSecretNamespace": "${pvc.namespace}",
    } });
    ring.class("fast-storage", names::DEFAULT_PROVISIONER, class).await;
    let more = json!({ "metadata": { "annotations": { "com.example.team/key": "my-key" } } });
    ring.claim_with("data", "fast-storage", more).await;
    ring.event(
        "team",
        "data",
        reason::PROVISIONING_FAILED,
        "there is no Secret pd-ssd-credentials/fast-storage-provision-key",
    )
    .await;
    assert_eq!(scene.driver.volumes().len(), 0);
    ring.namespace("pd-ssd-credentials", &[]).await;
    let secrets: Api<Secret> = ring.api("pd-ssd-credentials");
    let secret = json!({ "metadata": { "name": "fast-storage-provision-key" }, "stringData": { "key": "secret" } });
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let claim = ring.bound("data").await;
    let name = names::pv_name(&uid(&claim));
    let csi = ring.volumes().get(&name).await.unwrap().spec.unwrap().csi.unwrap();
    let refer = |name: String, namespace: &str| json!({ "name": name, "namespace": namespace });
    let csi = serde_json::to_value(csi).unwrap();
    assert_eq!(csi["controllerPublishSecretRef"], refer(format!("{name}-publish"), "pd-ssd-credentials"));
    assert_eq!(csi["nodeStageSecretRef"], refer(format!("{name}-stage"), "pd-ssd-credentials"));
    assert_eq!(csi["nodePublishSecretRef"], refer("my-key".into(), "team"));
    let volume = &scene.driver.volumes()[&name];
    assert_eq!(volume.request.parameters, [("type".to_owned(), "pd-ssd".to_owned())].into());
    scene.driver.secrets();
    ring.delete_claim("data").await;
    ring.volume_gone(&name).await;
    assert_eq!(scene.driver.secrets(), [("DeleteVolume", [("key".to_owned(), "secret".to_owned())].into())]);
    scene.no_volumes().await;
    scene.end().await;
}

/// The driver makes the volumes without answering; then the claims are deleted. Only CreateVolume shows what is to be
/// deleted, and for a clone only with the same request.
#[tokio::test]
async fn a_claim_deleted_while_its_volume_is_made_leaves_no_volume() {
    let scene = Scene::start(Options::default()).await;
    let ring = &scene.ring;
    scene.config(&[("capabilities", "clone")]).await;
    ring.claim("source", "csi").await;
    ring.bound("source").await;
    scene.driver.acts("CreateVolume", vec![Act::Lose(Code::Internal); 100]);
    ring.claim("plain", "csi").await;
    let source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "source" } } });
    ring.claim_with("copy", "csi", source).await;
    until("all volumes are made", || async {
        let volumes = scene.driver.volumes();
        if volumes.len() == 3 { Ok(()) } else { unexpected(volumes) }
    })
    .await;
    for name in ["plain", "copy"] {
        ring.event("team", name, reason::PROVISIONING_FAILED, "INTERNAL").await;
        ring.delete_claim(name).await;
    }
    scene.driver.forget_acts();
    ring.claim_gone("plain").await;
    ring.claim_gone("copy").await;
    assert_eq!(scene.driver.volumes().len(), 1, "the volume of the source");
    ring.delete_claim("source").await;
    scene.no_volumes().await;
    until("no PersistentVolume is left", || async {
        let remaining =
            ring.volumes().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if remaining == 0 { Ok(()) } else { unexpected(remaining) }
    })
    .await;
    scene.end().await;
}
