//! Tests of the image `cinder` with a real Cinder by pods.

use std::fs;
use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use kube::api::ListParams;
use openstack::{Cinder, Keystone, Options, Proxy};
use orchestrator::cinder::{cinder, iscsi_source};
use orchestrator::deployed::{clean, kubectl, root, users};
use orchestrator::ring::{OWN, merge, uid};
use orchestrator::snapshots::from;
use orchestrator::wait::{unexpected, until};
use serde_json::{Value, json};

/// Where the shipped configs keep the Secrets of volumes.
const SECRETS: &str = "flex-cinder-secrets";
/// The manifest that makes that namespace.
const SECRETS_MANIFEST: &str = "configmaps/cinder-secrets.yaml";

#[tokio::test]
async fn the_workflows_of_the_old_provisioner_by_pods() {
    let ring = users("examples-cinder").await;
    let server = tokio::task::spawn_blocking(cinder).await.unwrap();
    let project = server.project("kubernetes");
    // Pods reach Cinder by the machine's address; the proxy records its calls in their order.
    let proxy = Proxy::start(server.port());
    let address = ring.cluster().host_address().unwrap().to_string();
    let config = fs::read_to_string(root().join("configmaps/cinder-standalone.yaml")).unwrap();
    let config = config.replace("http://cinder.example:8776", &format!("http://{address}:{}", proxy.port()));
    let claim = fs::read_to_string(root().join("examples/cinder/claim.yaml")).unwrap();
    let claim = claim.replace("storageClassName: cinder", "storageClassName: cinder-standalone");
    let (config, claim) = (ring.file("config.yaml", &config), ring.file("claim.yaml", &claim));
    let (config, claim) = (config.to_str().unwrap(), claim.to_str().unwrap());
    kubectl(ring.cluster(), &["apply", "-f", SECRETS_MANIFEST]);
    kubectl(ring.cluster(), &["apply", "-f", config, "-f", "examples/cinder/storageclass-standalone.yaml"]);

    // Provision.
    let began = Instant::now();
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", claim]);
    let bound = ring.bound("cinder-example").await;
    println!("bound after {:?}", began.elapsed());
    let id = uid(&bound);
    let volume = project.volume_of(&id);
    assert_eq!((&volume["status"], &volume["size"]), (&json!("attaching"), &json!(1)));
    assert_eq!(volume["metadata"]["flex-provisioner.claim"], format!("{}/cinder-example", ring.user));

    // Use, up to the PersistentVolume: nothing here can attach it.
    let pv = ring.volumes().get(&names::pv_name(&id)).await.unwrap();
    let secret_name = format!("flex-cinder-{id}");
    assert_eq!(
        serde_json::to_value(pv.spec.as_ref().unwrap().iscsi.as_ref().unwrap()).unwrap(),
        json!({
            "targetPortal": "10.0.0.1:3260", "portals": ["10.0.0.2:3260"], "lun": 0, "fsType": "ext4",
            "iqn": format!("iqn.2010-10.org.openstack:volume-{}", volume["id"].as_str().unwrap()),
            "initiatorName": "iqn.2026-11.io.flex-provisioner:default", "iscsiInterface": "default", "chapAuthSession": true,
            "secretRef": { "name": secret_name, "namespace": SECRETS },
        })
    );
    let secrets: Api<Secret> = ring.api(SECRETS);
    let secret = until("the Secret belongs to the volume", || async {
        let secret = secrets.get(&secret_name).await.map_err(|error| error.to_string())?;
        let owners = secret.metadata.owner_references.clone().unwrap_or_default();
        if owners.iter().any(|owner| Some(&owner.uid) == pv.metadata.uid.as_ref()) {
            Ok(secret)
        } else {
            unexpected(owners)
        }
    })
    .await;
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/iscsi-chap"));
    assert!(secret.data.unwrap().contains_key("node.session.auth.password"));

    // Delete.
    clean(&ring).await;
    assert_eq!(project.volumes(), Vec::<Value>::new());
    assert!(secrets.get_opt(&secret_name).await.unwrap().is_none(), "the Secret was deleted with it");
    let order =
        ["create", "os-reserve", "os-initialize_connection", "os-terminate_connection", "os-unreserve", "delete"];
    assert_eq!(proxy.changes(), order);
    kubectl(ring.cluster(), &["delete", "-f", config, "-f", "examples/cinder/storageclass-standalone.yaml"]);
}

#[tokio::test]
async fn every_connection_and_operation_by_pods() {
    let ring = users("cinder-all").await;
    let server = tokio::task::spawn_blocking(cinder).await.unwrap();
    let project = server.project("all");
    let proxy = Proxy::start(server.port());
    let address = ring.cluster().host_address().unwrap().to_string();
    let shipped = fs::read_to_string(root().join("configmaps/cinder-standalone.yaml")).unwrap()
        + "\n---\n"
        + &fs::read_to_string(root().join("examples/cinder/storageclass-standalone.yaml")).unwrap();
    let shipped = shipped
        .replace("http://cinder.example:8776", &format!("http://{address}:{}", proxy.port()))
        .replace("OS_TENANT_NAME: kubernetes", "OS_TENANT_NAME: all");
    let kinds = [
        ("iscsi", "type: iscsi"),
        ("fc", "type: fc\n  wwpns: 10000000c9a1b2c3\n  wwnns: 20000000c9a1b2c3"),
        ("rbd", "type: rbd\n  ceph-cluster: the-cluster"),
    ];
    let files = kinds.map(|(kind, more)| {
        let own = shipped.replace("cinder-standalone", &format!("cinder-{kind}")).replace("type: iscsi", more);
        ring.file(&format!("{kind}.yaml"), &own).to_str().unwrap().to_owned()
    });
    kubectl(ring.cluster(), &["apply", "-f", SECRETS_MANIFEST]);
    for file in &files {
        kubectl(ring.cluster(), &["apply", "-f", file]);
    }
    ring.serve_snapshots().await;

    let block = json!({ "spec": { "volumeMode": "Block" } });
    for (kind, _) in kinds {
        ring.claim_with(kind, &format!("cinder-{kind}"), block.clone()).await;
    }
    let mut ids = Vec::new();
    for (kind, _) in kinds {
        ids.push(uid(&ring.bound(kind).await));
    }
    let source = async |id: &str| ring.volumes().get(&names::pv_name(id)).await.unwrap().spec.unwrap();
    let (iscsi, fc, rbd) = (source(&ids[0]).await, source(&ids[1]).await, source(&ids[2]).await);
    let data = &ids[0];
    assert_eq!(serde_json::to_value(iscsi.iscsi).unwrap(), iscsi_source(&project.volume_of(data), data, SECRETS));
    let expected = json!({ "targetWWNs": ["500a0981891b8dc5", "500a0981991b8dc5"], "lun": 7 });
    assert_eq!(serde_json::to_value(fc.fc).unwrap(), expected);
    let rbd = rbd.csi.unwrap();
    assert_eq!(rbd.driver, "rbd.csi.ceph.com");
    assert_eq!(rbd.volume_handle, format!("volume-{}", project.volume_of(&ids[2])["id"].as_str().unwrap()));
    assert_eq!(rbd.node_stage_secret_ref.unwrap().name, Some(format!("flex-cinder-{}", ids[2])));

    ring.ask("iscsi", "2Gi").await.unwrap();
    ring.has_size("iscsi", &names::pv_name(data), "2Gi").await;
    assert_eq!(project.volume_of(data)["size"], 2);
    ring.snapshot("monday", "iscsi").await;
    ring.snapshot_ready("monday").await;
    let mut restored = from("monday", "3Gi");
    merge(&mut restored, block.clone());
    ring.claim_with("restored", "cinder-iscsi", restored).await;
    let mut copy = json!({ "spec": {
        "dataSource": { "kind": "PersistentVolumeClaim", "name": "iscsi" }, "resources": { "requests": { "storage": "2Gi" } },
    } });
    merge(&mut copy, block);
    ring.claim_with("copy", "cinder-iscsi", copy).await;
    let (restored, copy) = (uid(&ring.bound("restored").await), uid(&ring.bound("copy").await));
    let snapshots = project.snapshots();
    assert_eq!(project.volume_of(&restored)["snapshot_id"], snapshots[0]["id"]);
    assert_eq!(project.volume_of(&restored)["size"], 3);
    assert_eq!(project.volume_of(&copy)["source_volid"], project.volume_of(data)["id"]);
    assert_eq!((project.volumes().len(), snapshots.len()), (5, 1), "one volume or snapshot for each object");

    ring.delete_snapshot("monday").await;
    ring.snapshot_gone("monday").await;
    clean(&ring).await;
    assert_eq!((project.volumes(), project.snapshots()), (vec![], vec![]));
    for file in &files {
        kubectl(ring.cluster(), &["delete", "-f", file]);
    }
}

#[tokio::test]
async fn the_shipped_config_with_a_keystone_by_pods() {
    let ring = users("examples-keystone").await;
    let started = tokio::task::spawn_blocking(|| {
        let keystone = Keystone::start();
        let cinder = Cinder::start(Options { keystone: Some(&keystone), port: Some(keystone.cinder_port()) });
        (keystone, cinder)
    });
    let (keystone, server) = started.await.unwrap();
    kubectl(ring.cluster(), &["apply", "-f", SECRETS_MANIFEST]);
    let project = server.project("demo");
    // Pods reach both by the machine's address.
    let (login, proxy) = (Proxy::start(keystone.port()), Proxy::start(server.port()));
    let address = ring.cluster().host_address().unwrap().to_string();
    let shipped = fs::read_to_string(root().join("configmaps/cinder.yaml")).unwrap();
    let endpoint = format!("region=RegionOne\n    cinder-endpoint=http://{address}:{}/v3\n", proxy.port());
    let with_password = |password: &str| {
        let own = shipped
            .replace("https://keystone.example:5000/v3", &format!("http://{address}:{}/v3", login.port()))
            .replace("username=kubernetes", "username=demo")
            .replace("tenant-name=kubernetes", "tenant-name=demo")
            .replace("CHANGE-ME", password)
            .replace("region=RegionOne\n", &endpoint);
        ring.file("config.yaml", &own).to_str().unwrap().to_owned()
    };
    let wrong = with_password("not-the-Passw0rd");
    let class = "examples/cinder/storageclass.yaml";
    kubectl(ring.cluster(), &["apply", "-f", &wrong, "-f", class]);
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", "examples/cinder/claim.yaml"]);

    // The failure is in an event on the claim, and the run is repeated: nothing notifies the orchestrator when the
    // Secret is fixed.
    let reason = reason::PROVISIONING_FAILED;
    let message = ring.event(&ring.user, "cinder-example", reason, "does not let us in").await;
    assert!(message.contains("[Global] of /etc/flex-secrets/cinder-cloud/cloud.conf"), "{message}");
    assert_eq!(project.volumes(), Vec::<Value>::new());
    let right = with_password(Keystone::PASSWORD);
    kubectl(ring.cluster(), &["apply", "-f", &right]);
    let id = uid(&ring.bound("cinder-example").await);
    let volume = project.volume_of(&id);
    assert_eq!((&volume["status"], project.volumes().len()), (&json!("attaching"), 1));
    let pv = ring.volumes().get(&names::pv_name(&id)).await.unwrap();
    let mut source = iscsi_source(&volume, &id, SECRETS);
    source["fsType"] = json!("ext4");
    assert_eq!(serde_json::to_value(pv.spec.unwrap().iscsi).unwrap(), source);
    let secret = ring.api::<Secret>(SECRETS).get(&format!("flex-cinder-{id}")).await.unwrap();
    let chap = secret.data.unwrap()["node.session.auth.password"].clone();
    let chap = String::from_utf8(chap.0).unwrap();

    clean(&ring).await;
    assert_eq!(project.volumes(), Vec::<Value>::new());
    // No event has a secret in it.
    let mut message = String::new();
    for namespace in [ring.user.as_str(), OWN] {
        let events = ring.api::<Event>(namespace).list(&ListParams::default()).await.unwrap().items;
        message += &serde_json::to_string(&events).unwrap();
    }
    assert!(message.contains("cinder-example"), "there are events");
    for secret in [Keystone::PASSWORD, "not-the-Passw0rd", chap.as_str()] {
        assert!(!message.contains(secret), "{secret} is in an event");
    }
    kubectl(ring.cluster(), &["delete", "-f", &right, "-f", class]);
}
