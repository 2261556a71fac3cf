//! Tests of provision and delete runs that succeed, for each kind of connection.

use openstack::Proxy;
use serde_json::{Value, json};

use crate::run::{ONE, Printed, Run, TWO, cinder};

#[test]
fn an_iscsi_volume_has_chap_and_two_portals() {
    let project = cinder().project("iscsi");
    let run = Run::new(&project, ONE).with("FS_TYPE", "xfs").with("SIZE_BYTES", "1073741825");
    let ended = run.provision().well();
    let volume = project.volume_of(ONE);
    assert_eq!((&volume["status"], &volume["size"]), (&json!("attaching"), &json!(2)), "rounded up to GiB");
    let spec = ended.spec();
    assert_eq!(spec["capacity"]["storage"], "2Gi", "the real size");
    let id = volume["id"].as_str().unwrap();
    assert_eq!(
        spec["iscsi"],
        json!({
            "targetPortal": "10.0.0.1:3260", "portals": ["10.0.0.2:3260"],
            "iqn": format!("iqn.2010-10.org.openstack:volume-{id}"), "lun": 0, "fsType": "xfs",
            "initiatorName": "iqn.2026-11.io.flex-provisioner:default", "chapAuthSession": true,
            "secretRef": { "name": format!("flex-cinder-{ONE}"), "namespace": "flex-cinder-secrets" },
        })
    );
    assert!(ended.out.contains(&format!("cinder.flex-provisioner.io/volume-id: {id}")), "{}", ended.out);
    let secret = ended.secret();
    assert_eq!(
        (&secret["type"], &secret["metadata"]["namespace"]),
        (&json!("kubernetes.io/iscsi-chap"), &json!("flex-cinder-secrets"))
    );
    let password = secret["stringData"]["node.session.auth.password"].as_str().unwrap();
    assert!(!password.is_empty() && !ended.log.contains(password), "the log contains no password");

    // A repeated run returns the same volume and the same credentials.
    let again = run.provision().well();
    assert_eq!((again.spec(), again.secret()), (spec.clone(), secret));
    let deleted = run.clone().with("VOLUME_SOURCE", &json!({ "iscsi": spec["iscsi"] }).to_string()).delete().well();
    assert!(deleted.out.contains(&format!("Secret flex-cinder-secrets/flex-cinder-{ONE} is deleted")), "{deleted:?}");
    assert_eq!(project.volumes(), Vec::<Value>::new());
    run.delete().well();
}

#[test]
fn a_ceph_volume_is_for_its_csi_driver_or_for_an_old_kubelet() {
    let project = cinder().project("rbd");
    let run = Run::new(&project, ONE).with("TYPE", "rbd").with("CEPH_CLUSTER", "the-cluster").with("FS_TYPE", "ext4");
    let ended = run.provision().well();
    let image = format!("volume-{}", project.volume_of(ONE)["id"].as_str().unwrap());
    let secret = json!({ "name": format!("flex-cinder-{ONE}"), "namespace": "flex-cinder-secrets" });
    assert_eq!(
        ended.spec()["csi"],
        json!({
            "driver": "rbd.csi.ceph.com", "volumeHandle": image, "fsType": "ext4",
            "nodeStageSecretRef": secret, "nodeExpandSecretRef": secret,
            "volumeAttributes": {
                "clusterID": "the-cluster", "pool": "volumes", "staticVolume": "true", "imageFeatures": "layering",
            },
        })
    );
    assert_eq!(ended.secret()["stringData"]["userID"], "lab");
    let old = run.clone().with("RBD_FORM", "in-tree").provision().well();
    assert_eq!(
        old.spec()["rbd"],
        json!({
            "monitors": ["192.0.2.1:6789", "192.0.2.2:6789"], "image": image, "pool": "volumes", "user": "lab",
            "fsType": "ext4", "secretRef": secret,
        })
    );
    assert_eq!(old.secret()["type"], "kubernetes.io/rbd");
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn fibre_channel_gets_the_nodes_from_the_config() {
    let project = cinder().project("fc");
    let run = Run::new(&project, ONE).with("TYPE", "fc");
    run.provision().failed(78, "wwpns");
    let run = run.with("WWPNS", "10000000c9a1b2c3, 10000000c9a1b2c4").with("WWNNS", "20000000c9a1b2c3");
    let ended = run.provision().well();
    let expected = json!({ "targetWWNs": ["500a0981891b8dc5", "500a0981991b8dc5"], "lun": 7 });
    assert_eq!(ended.spec()["fc"], expected);
    assert!(!ended.out.contains("kind: Secret") && !ended.out.contains("stringData"), "{}", ended.out);
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn the_settings_of_the_config_arrive_in_cinder() {
    let project = cinder().project("parameters");
    let run = Run::new(&project, ONE)
        .with("METADATA", r#"{"team": "storage", "flex-provisioner.claim-uuid": "forged"}"#)
        .with("AVAILABILITY", "nova")
        .with("HINTS", r#"{"different_host": []}"#)
        .with("TYPE", "")
        .with("VOLUME_MODE", "Block")
        .with("FS_TYPE", "ext4");
    let ended = run.provision().well();
    let volume = project.volume_of(ONE);
    assert_eq!(
        volume["metadata"],
        json!({
            "team": "storage", "flex-provisioner.claim-uuid": ONE, "flex-provisioner.instance": "default",
            "flex-provisioner.claim": "team/data", "flex-provisioner.storage-class": "cinder",
        })
    );
    assert_eq!((&volume["volume_type"], &volume["availability_zone"]), (&json!("iscsi"), &json!("nova")));
    assert_eq!(volume["name"], format!("pvc-{ONE}"));
    assert_eq!(ended.spec()["iscsi"].get("fsType"), None, "a block volume has no file system");
    run.delete().well();

    // The zone is that of the selected node, and the volume's nodes are those of the zone.
    let run = Run::new(&project, TWO).with("ZONE_FROM_TOPOLOGY", "true");
    run.provision().failed(78, "WaitForFirstConsumer");
    let run = run.with("TOPOLOGY", r#"{"topology.kubernetes.io/zone": "nova"}"#);
    let affinity = run.provision().well().spec()["nodeAffinity"].to_string();
    assert!(affinity.contains("topology.kubernetes.io/zone") && affinity.contains("nova"), "{affinity}");
    let elsewhere = run.clone().with("TOPOLOGY", r#"{"topology.kubernetes.io/zone": "mars"}"#).with("CLAIM_UUID", ONE);
    elsewhere.provision().failed(78, "availability");
    run.delete().well();
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[test]
fn cinder_gets_the_calls_of_the_workflows_in_their_order() {
    let project = cinder().project("order");
    let proxy = Proxy::start(cinder().port());
    let run = Run::at(proxy.port(), &project.id, ONE);
    run.provision().well();
    assert_eq!(proxy.changes(), ["create", "os-reserve", "os-initialize_connection"]);
    proxy.forget();
    run.delete().well();
    assert_eq!(proxy.changes(), ["os-terminate_connection", "os-unreserve", "delete"]);
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
