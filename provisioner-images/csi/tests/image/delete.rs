//! Tests of delete runs.

use csi_spec::csi::controller_service_capability::rpc::Type;
use scripted_csi::{Act, Options};
use serde_json::json;
use tonic::Code;

use crate::run::{HandedBack, ONE, Stage, TWO};

#[test]
fn a_volume_without_a_persistent_volume_is_found_by_its_name() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE).parameter("type", "x");
    // The driver has no volume: the volume that the search made is deleted again.
    run.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
    stage.driver.acts("CreateVolume", [Act::Lose(Code::Internal)]);
    run.provision().failed(75, "INTERNAL");
    assert_eq!(stage.driver.volumes().len(), 1, "the volume was made, and its answer was lost");
    run.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);

    // The driver refuses it again: there is no volume.
    for code in [Code::InvalidArgument, Code::OutOfRange, Code::ResourceExhausted] {
        stage.driver.acts("CreateVolume", [Act::Fail(code)]);
        run.clone().with("ATTEMPTS_ALIKE", "true").run("delete").well();
        // An earlier attempt asked in another way.
        stage.driver.acts("CreateVolume", [Act::Fail(code)]);
        let found = format!("may have made a volume called pvc-{ONE}");
        run.run("delete").failed(75, &found);
    }
    // An unknown state does not count as no volume.
    for (code, exit) in [(Code::Internal, 75), (Code::NotFound, 75), (Code::PermissionDenied, 77)] {
        stage.driver.acts("CreateVolume", [Act::Fail(code)]);
        run.run("delete").failed(exit, "as scripted");
    }
    run.clone().with("SIZE_BYTES", "5").provision().well();
    stage.api.remove_volume(ONE);
    run.run("delete").failed(75, &format!("has a volume called pvc-{ONE} and does not tell which it is"));
    assert_eq!(stage.driver.volumes().len(), 1, "no volume is deleted by guessing");
}

#[test]
fn a_volume_is_looked_for_in_the_zone_of_the_selected_node() {
    let stage = Stage::new(Options::default().with_topology());
    for (name, zone) in [("n1", "a"), ("n2", "b")] {
        stage.api.put_node(name, json!({ "zone": zone }), "csi.test", json!(["zone"]));
    }
    stage.driver.is_zonal();
    for (node, zone) in [("n1", "a"), ("n2", "b")] {
        let run = stage.run(ONE).with("NODE_NAME", node);
        stage.driver.acts("CreateVolume", [Act::Lose(Code::Internal)]);
        run.provision().failed(75, "INTERNAL");
        let names: Vec<String> = stage.driver.volumes().into_keys().collect();
        assert_eq!(names, [format!("pvc-{ONE} in {:?}", std::collections::BTreeMap::from([("zone", zone)]))]);
        run.run("delete").well();
        assert_eq!(stage.driver.volumes().len(), 0, "the volume in zone {zone} is the one that was deleted");
    }
}

/// The claim waits for no driver on a node when it is deleted.
#[test]
fn a_node_without_the_driver_does_not_stop_a_deletion() {
    let stage = Stage::new(Options::default().with_topology());
    stage.api.put_node("n1", json!({ "zone": "a" }), "csi.test", json!(["zone"]));
    stage.api.put_node("bare", json!({}), "csi.test", json!([]));
    let run = stage.run(ONE).with("NODE_NAME", "bare");
    run.provision().failed(69, "no topology on the selected node bare");
    run.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
    // No attempt asked for any place at all.
    stage.driver.acts("CreateVolume", [Act::Fail(Code::InvalidArgument)]);
    run.with("ATTEMPTS_ALIKE", "true").run("delete").failed(75, "may have made a volume");
}

/// The refused call comes after one that may have made a volume.
#[test]
fn a_run_whose_first_call_may_be_under_way_is_not_refused() {
    let stage = Stage::new(Options::default().with_topology());
    stage.api.put_node("n1", json!({ "zone": "a" }), "csi.test", json!(["zone"]));
    let run = stage.run(ONE).with("NODE_NAME", "n1");
    for (code, exit) in [(Code::ResourceExhausted, 69), (Code::InvalidArgument, 65)] {
        stage.driver.acts("CreateVolume", [Act::Fail(code)]);
        run.provision().failed(exit, "as scripted");
        stage.driver.acts("CreateVolume", [Act::Fail(Code::Unavailable), Act::Fail(code)]);
        run.provision().failed(75, "as scripted");
    }
}

#[test]
fn a_copy_without_a_persistent_volume_is_found_by_its_data_source() {
    let stage = Stage::new(Options::default());
    stage.run(TWO).provision().well();
    let source = json!({ "csi": stage.pv(TWO)["spec"]["csi"] }).to_string();
    let copy = stage.run(ONE).with("CLONE_OF", TWO).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    let copy = copy.with("CLONE_OF_PV_NAME", &format!("pvc-{TWO}"));
    let names = || stage.driver.volumes().into_keys().collect::<Vec<_>>();
    let without = stage.run(ONE);
    let lose = || {
        stage.driver.acts("CreateVolume", [Act::Lose(Code::Internal)]);
        copy.provision().failed(75, "INTERNAL");
        assert_eq!(names().len(), 2);
    };
    lose();
    without.run("delete").failed(75, "does not tell which it is");
    copy.run("delete").well();
    assert_eq!(names(), [format!("pvc-{TWO}")]);

    // The data source is gone, and drivers may look for it before they look for the name.
    lose();
    stage.driver.acts("CreateVolume", [Act::Fail(Code::NotFound)]);
    copy.run("delete").failed(75, "does not tell which it is");
    // The driver refuses another request than that of the attempts.
    stage.driver.acts("CreateVolume", [Act::Fail(Code::NotFound), Act::Fail(Code::InvalidArgument)]);
    copy.clone().with("ATTEMPTS_ALIKE", "true").run("delete").failed(75, "may have made a volume");
    copy.run("delete").well();
    stage.run(TWO).of_volume().run("delete").well();
    copy.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0, "no copy was made, and none can be made any more");
}

/// Some drivers report a lost data source as a failure of their own.
#[test]
fn a_copy_whose_data_source_is_lost_is_deleted_whatever_the_driver_says() {
    const DAY: &str = "5a9c0000-0000-4000-8000-000000000003";
    let stage = Stage::new(Options::default());
    stage.run(TWO).provision().well();
    let source = json!({ "csi": stage.pv(TWO)["spec"]["csi"] }).to_string();
    let clone = stage.run(ONE).with("CLONE_OF", TWO).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    let snapshot = stage.run(TWO).of_volume().with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", TWO);
    let handle = snapshot.run("snapshot").well().handle();
    let restored = stage.run(ONE).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", TWO).with("SNAPSHOT_HANDLE", &handle);
    let names = || stage.driver.volumes().into_keys().collect::<Vec<_>>();
    for copy in [clone, restored] {
        for code in [Code::Internal, Code::Unknown, Code::FailedPrecondition, Code::DataLoss, Code::NotFound] {
            stage.driver.acts("CreateVolume", [Act::Fail(code)]);
            copy.run("delete").well();
            assert_eq!(names(), [format!("pvc-{TWO}")], "{code:?}");
        }
        // The driver refuses another request than that of the attempts.
        stage.driver.acts("CreateVolume", [Act::Fail(Code::Internal), Act::Fail(Code::InvalidArgument)]);
        copy.clone().with("ATTEMPTS_ALIKE", "true").run("delete").failed(75, "may have made a volume");
        // A call that may be in progress may still make the copy.
        stage.driver.acts("CreateVolume", [Act::Fail(Code::Unavailable), Act::Fail(Code::Internal)]);
        copy.run("delete").failed(75, "answers CreateVolume with INTERNAL");
        // The copy exists. The driver finds it when it works again.
        stage.driver.acts("CreateVolume", [Act::Lose(Code::Internal)]);
        copy.provision().failed(75, "INTERNAL");
        stage.driver.acts("CreateVolume", [Act::Fail(Code::Internal)]);
        copy.run("delete").failed(75, "does not tell which it is: it answers INTERNAL");
        assert_eq!(names().len(), 2);
        copy.run("delete").well();
        assert_eq!(names(), [format!("pvc-{TWO}")]);
    }
}

/// Each attempt was refused by the image itself.
#[test]
fn a_claim_that_could_never_be_served_is_deleted() {
    let options = Options::default().without(Type::CloneVolume).without(Type::CreateDeleteSnapshot);
    let stage = Stage::new(options.without(Type::ModifyVolume));
    stage.run(TWO).provision().well();
    let source = json!({ "csi": stage.pv(TWO)["spec"]["csi"] }).to_string();
    let run = || stage.run(ONE).with("ATTEMPTS_ALIKE", "true");
    for (run, exit, says) in [
        (run().with("CLONE_OF", TWO).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1"), 78, "clone"),
        (run().with("SNAPSHOT_ID", "snap-9"), 78, "restore snapshots"),
        (run().with("ATTRIBUTES", r#"{"iops":"1"}"#), 78, "MODIFY_VOLUME"),
        (run().parameter("csi-limit", "1Mi"), 65, "csi-limit"),
    ] {
        run.provision().failed(exit, says);
        run.run("delete").well();
        assert_eq!(stage.driver.volumes().len(), 1, "{says}");
    }
    // The driver may have made a copy before it lost the capability: its refusal proves nothing.
    stage.driver.acts("CreateVolume", [Act::Fail(Code::InvalidArgument)]);
    run().with("SNAPSHOT_ID", "snap-9").run("delete").failed(75, "may have made a volume");
}

#[test]
fn a_driver_that_makes_no_volumes_has_none_to_delete() {
    let stage = Stage::new(Options::default().without(Type::CreateDeleteVolume));
    stage.run(ONE).run("delete").well();
}

#[test]
fn a_missing_volume_is_a_success_and_a_used_one_stays() {
    let calls = [Options::default().calls, vec![Type::PublishUnpublishVolume]].concat();
    let stage = Stage::new(Options { calls, ..Options::default() });
    stage.run(ONE).provision().well();
    let run = stage.run(ONE).of_volume();
    let attached = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "a" },
        "spec": { "attacher": "csi.test", "nodeName": "n1", "source": { "persistentVolumeName": format!("pvc-{ONE}") } },
    });
    const AT: &str = "/apis/storage.k8s.io/v1/volumeattachments/a";
    stage.api.put(AT, attached.clone());
    run.run("delete").failed(75, "still attached to n1");
    assert_eq!(stage.driver.volumes().len(), 1);
    let mut other = attached;
    other["spec"]["source"]["persistentVolumeName"] = json!("pvc-other");
    stage.api.put(AT, other);
    stage.driver.acts("DeleteVolume", [Act::Fail(Code::FailedPrecondition)]);
    run.run("delete").failed(75, "FAILED_PRECONDITION");
    stage.driver.acts("DeleteVolume", [Act::Lose(Code::Unavailable)]);
    run.run("delete").well();
    run.run("delete").well();
    stage.driver.acts("DeleteVolume", [Act::Fail(Code::NotFound)]);
    run.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
}

#[test]
fn a_volume_of_another_driver_is_not_touched() {
    let stage = Stage::new(Options::default());
    let source = json!({ "csi": { "driver": "csi.other", "volumeHandle": "vol-1" } }).to_string();
    for operation in ["delete", "expand", "modify"] {
        stage.run(ONE).with("VOLUME_SOURCE", &source).run(operation).failed(78, "of the CSI driver csi.other");
    }
    stage
        .run(ONE)
        .with("VOLUME_SOURCE", r#"{"nfs":{"server":"s","path":"/p"}}"#)
        .run("delete")
        .failed(65, "none of a CSI driver");
}

#[test]
fn a_volume_is_deleted_without_its_missing_secret() {
    let stage = Stage::new(Options::default());
    let run = stage
        .run(ONE)
        .parameter("csi.storage.k8s.io/secret-name", "key")
        .parameter("csi.storage.k8s.io/secret-namespace", "${pvc.namespace}");
    stage.api.put_secret("team", "key", json!({ "a": "Yg==" }));
    run.provision().well();
    let refer = json!({ "name": "key", "namespace": "team" });
    for kind in ["controllerPublish", "nodeStage", "nodePublish", "controllerExpand", "nodeExpand"] {
        assert_eq!(stage.pv(ONE)["spec"]["csi"][format!("{kind}SecretRef")], refer, "{kind}");
    }
    let annotations = &stage.pv(ONE)["metadata"]["annotations"];
    assert_eq!(annotations["volume.kubernetes.io/controller-modify-secret-name"], "key");
    stage.driver.secrets();
    stage.api.put("/api/v1/namespaces/team/secrets/key", json!(null));
    run.clone().of_volume().run("delete").failed(77, "kubectl -n team create role csi-key");
    let gone = stage
        .run(ONE)
        .parameter("csi.storage.k8s.io/secret-name", "key")
        .parameter("csi.storage.k8s.io/secret-namespace", "other");
    stage.api.put(
        &format!("/api/v1/persistentvolumes/pvc-{ONE}"),
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("pvc-{ONE}") }, "spec": stage.pv(ONE)["spec"] }),
    );
    gone.of_volume().run("delete").well();
    assert_eq!(stage.driver.secrets(), [("DeleteVolume", Default::default())]);
    assert_eq!(stage.driver.volumes().len(), 0);
}
