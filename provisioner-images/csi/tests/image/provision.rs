//! Tests of volumes and their PersistentVolumes.

use csi_spec::csi::controller_service_capability::rpc::Type;
use csi_spec::csi::volume_capability::access_mode::Mode;
use csi_spec::csi::volume_capability::{AccessType, MountVolume};
use csi_spec::csi::volume_content_source::Type as Origin;
use scripted_csi::{Act, Options};
use serde_json::json;
use tonic::Code;

use crate::run::{HandedBack, ONE, SIZE, Stage, TWO};

#[test]
fn a_volume_is_made_once_with_a_complete_persistent_volume() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE).parameter("type", "pd-ssd").with("FS_TYPE", "ext4").with("MOUNT_OPTIONS", "noatime");
    run.provision().well();
    run.provision().well();
    assert_eq!(stage.driver.volumes().len(), 1);
    let request = stage.made(ONE).request;
    assert_eq!(request.parameters, [("type".to_owned(), "pd-ssd".to_owned())].into());
    assert_eq!(request.capacity_range.unwrap().required_bytes, SIZE);
    let capability = &request.volume_capabilities[0];
    assert_eq!(capability.access_mode.unwrap().mode(), Mode::SingleNodeWriter);
    let mount = MountVolume { fs_type: "ext4".into(), mount_flags: vec!["noatime".into()], ..Default::default() };
    assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
    assert!(request.accessibility_requirements.is_none() && request.secrets.is_empty());

    let pv = stage.pv(ONE);
    assert_eq!(
        pv["spec"]["csi"],
        json!({
            "driver": "csi.test", "volumeHandle": "vol-1", "fsType": "ext4",
            "volumeAttributes": {
                "of": format!("pvc-{ONE}"), "storage.kubernetes.io/csiProvisionerIdentity": "flex-provisioner-default",
            },
        })
    );
    assert_eq!(pv["spec"]["capacity"]["storage"], "1Gi");
    assert_eq!(pv["spec"]["mountOptions"], json!(["noatime"]));
    assert_eq!(pv["spec"]["nodeAffinity"], json!(null));
    assert_eq!(pv["metadata"]["annotations"]["volume.kubernetes.io/provisioner-deletion-secret-name"], json!(null));
    run.of_volume().run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
}

/// The second example of the first README, word for word, from the class to the deletion of the volume.
#[test]
fn the_example_of_the_first_readme_works() {
    let stage = Stage::new(Options::default());
    stage.api.put_secret("pd-ssd-credentials", "fast-storage-provision-key", json!({ "key": "c2VjcmV0" }));
    let run = stage
        .run(ONE)
        .parameter("type", "pd-ssd")
        .parameter("csiProvisionerSecretName", "fast-storage-provision-key")
        .parameter("csiProvisionerSecretNamespace", "pd-ssd-credentials")
        .parameter("csiControllerPublishSecretName", "${pv.name}-publish")
        .parameter("csiControllerPublishSecretNamespace", "pd-ssd-credentials")
        .parameter("csiNodeStageSecretName", "${pv.name}-stage")
        .parameter("csiNodeStageSecretNamespace", "pd-ssd-credentials")
        .parameter("csiNodePublishSecretName", "${pvc.annotations['com.example.team/key']}")
        .parameter("csiNodePublishSecretNamespace", "${pvc.namespace}")
        .with("CLAIM_METADATA", r#"{"com.example.team/key":"my-key"}"#);
    run.provision().well();
    let secret = || [("key".to_owned(), "secret".to_owned())].into();
    assert_eq!(stage.driver.secrets(), [("CreateVolume", secret())]);
    assert_eq!(stage.made(ONE).request.parameters, [("type".to_owned(), "pd-ssd".to_owned())].into());
    let pv = stage.pv(ONE);
    let refer = |name: &str| json!({ "name": name, "namespace": "pd-ssd-credentials" });
    assert_eq!(pv["spec"]["csi"]["controllerPublishSecretRef"], refer(&format!("pvc-{ONE}-publish")));
    assert_eq!(pv["spec"]["csi"]["nodeStageSecretRef"], refer(&format!("pvc-{ONE}-stage")));
    assert_eq!(pv["spec"]["csi"]["nodePublishSecretRef"], json!({ "name": "my-key", "namespace": "team" }));
    let annotations = &pv["metadata"]["annotations"];
    assert_eq!(annotations["volume.kubernetes.io/provisioner-deletion-secret-name"], "fast-storage-provision-key");
    assert_eq!(annotations["volume.kubernetes.io/provisioner-deletion-secret-namespace"], "pd-ssd-credentials");
    run.of_volume().with("CLAIM_METADATA", "").run("delete").well();
    assert_eq!(stage.driver.secrets(), [("DeleteVolume", secret())]);
}

#[test]
fn missing_and_forbidden_secrets_are_reported() {
    let stage = Stage::new(Options::default());
    let run = stage
        .run(ONE)
        .parameter("csi.storage.k8s.io/provisioner-secret-name", "key")
        .parameter("csi.storage.k8s.io/provisioner-secret-namespace", "vault");
    run.provision().failed(75, "there is no Secret vault/key");
    stage.api.put("/api/v1/namespaces/vault/secrets/key", json!(null));
    let ended = run.clone().with("SERVICE_ACCOUNT", "csi-provisioner").with("POD_NAMESPACE", "flex").provision();
    ended
        .failed(77, "kubectl -n vault create role csi-key --verb=get --resource=secrets --resource-name=key && ")
        .failed(77, "kubectl -n vault create rolebinding csi-key --role=csi-key --serviceaccount=flex:csi-provisioner");
    stage.api.put_secret("vault", "key", json!({ "raw": "//79" }));
    run.provision().failed(78, "has a key raw that is no text");
    run.clone().parameter("csiProvisionerSecretName", "key").provision().failed(78, "are needed together");
    assert_eq!(stage.driver.volumes().len(), 0, "no volume was made");
}

#[test]
fn the_parameters_of_a_class_reach_the_driver() {
    let stage = Stage::new(Options {
        calls: [Options::default().calls, vec![Type::SingleNodeMultiWriter]].concat(),
        ..Options::default()
    });
    let run = stage
        .run(ONE)
        .parameter("csi-extra-create-metadata", "true")
        .parameter("csi-controller-publish-readonly", "true")
        .parameter("csi-volume-name-prefix", "k8s")
        .parameter("csi-limit", "2Gi")
        .parameter("csi.storage.k8s.io/fstype", "xfs")
        .with("FS_TYPE", "ext4")
        .with("ACCESS_MODES", "ReadOnlyMany");
    run.provision().well();
    let made = &stage.driver.volumes()[&format!("k8s-{ONE}")].request;
    let extra = |what: &str| made.parameters[&format!("csi.storage.k8s.io/{what}")].clone();
    assert_eq!(
        (extra("pvc/name"), extra("pvc/namespace"), extra("pv/name")),
        ("data".into(), "team".into(), format!("pvc-{ONE}"))
    );
    assert_eq!((made.parameters.len(), made.capacity_range.unwrap().limit_bytes), (3, 2 << 30));
    let csi = &stage.pv(ONE)["spec"]["csi"];
    assert_eq!((&csi["readOnly"], &csi["fsType"]), (&json!(true), &json!("xfs")));
    run.clone().with("SIZE_BYTES", "3221225472").provision().failed(65, "csi-limit");

    // Neither two writers on one node, nor a file system on a block volume.
    let two = stage
        .run(TWO)
        .with("ACCESS_MODES", "ReadWriteOnce,ReadWriteOncePod")
        .with("VOLUME_MODE", "Block")
        .with("FS_TYPE", "ext4");
    two.provision().well();
    let capabilities = stage.made(TWO).request.volume_capabilities;
    let modes: Vec<_> = capabilities.iter().map(|it| it.access_mode.unwrap().mode()).collect();
    assert_eq!(modes, [Mode::SingleNodeMultiWriter, Mode::SingleNodeSingleWriter]);
    assert!(matches!(capabilities[0].access_type, Some(AccessType::Block(_))));
    assert_eq!(stage.pv(TWO)["spec"]["csi"]["fsType"], json!(null));
}

#[test]
fn clones_and_restored_snapshots_are_made() {
    let stage = Stage::new(Options::default());
    let source_run = stage.run(ONE);
    source_run.provision().well();
    let source = json!({ "csi": stage.pv(ONE)["spec"]["csi"] }).to_string();
    let copy = stage.run(TWO).with("CLONE_OF", ONE).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    copy.provision().well();
    let origin = |id: &str| stage.made(id).request.volume_content_source.unwrap().r#type.unwrap();
    assert!(matches!(origin(TWO), Origin::Volume(it) if it.volume_id == "vol-1"));
    // The volume of an attempt without a report is found by the same request, and deleted.
    stage.api.remove_volume(TWO);
    copy.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 1);

    const DAY: &str = "5a9c0000-0000-4000-8000-000000000003";
    let snapshot = source_run.clone().of_volume().with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE);
    snapshot.run("snapshot").well();
    let handle = snapshot.run("snapshot").well().handle();
    let snapshots = stage.driver.snapshots();
    assert_eq!(snapshots.len(), 1);
    let snapshot = snapshot.with("SNAPSHOT_HANDLE", &handle);
    let restored = stage.run(TWO).with("SNAPSHOT_ID", DAY).with("SNAPSHOT_OF", ONE).with("SNAPSHOT_HANDLE", &handle);
    restored.provision().well();
    let id = snapshots[&format!("snapshot-{DAY}")].snapshot_id.clone();
    assert!(matches!(origin(TWO), Origin::Snapshot(it) if it.snapshot_id == id));
    restored.of_volume().run("delete").well();
    // A snapshot that was made otherwise has the driver's own id.
    let by_hand = stage.run(TWO).with("SNAPSHOT_ID", &id);
    stage.api.remove_volume(TWO);
    by_hand.provision().well();
    assert!(matches!(origin(TWO), Origin::Snapshot(it) if it.snapshot_id == id));
    stage.run(TWO).of_volume().run("delete").well();
    snapshot.run("delete-snapshot").well();
    snapshot.run("delete-snapshot").well();
    assert_eq!(stage.driver.snapshots().len(), 0);
    source_run.of_volume().run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);
}

#[test]
fn a_wrong_volume_is_deleted_again() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE);
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.capacity_bytes = 5)]);
    run.provision().failed(75, "it has 5 bytes, and 1073741824 were asked for. It was deleted again");
    assert_eq!(stage.driver.volumes().len(), 0);
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.capacity_bytes = 5)]);
    stage.driver.acts("DeleteVolume", [Act::Fail(Code::Internal), Act::Fail(Code::Aborted)]);
    run.provision().failed(75, "It was deleted again");
    assert_eq!(stage.driver.volumes().len(), 0, "a deletion that fails is repeated");
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.capacity_bytes = 5)]);
    stage.driver.acts("DeleteVolume", vec![Act::Fail(Code::Internal); 5]);
    run.provision().failed(75, "could not be deleted again: the CSI driver answers DeleteVolume with INTERNAL");
    assert_eq!(stage.driver.volumes().len(), 1);
    // The volume is found by its name, and deleted with the claim.
    run.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 0);

    stage.run(TWO).provision().well();
    let source = json!({ "csi": stage.pv(TWO)["spec"]["csi"] }).to_string();
    let copy = run.with("CLONE_OF", TWO).with("CLONE_OF_SOURCE", &source).with("CLONE_OF_SIZE_BYTES", "1");
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.content_source = None)]);
    copy.provision().failed(75, "may be empty");
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.volume_id.clear())]);
    copy.provision().failed(75, "without a volume");
    copy.run("delete").well();
    assert_eq!(stage.driver.volumes().len(), 1, "the source");
    assert!(stage.api.volume(ONE).is_none(), "none of them got a PersistentVolume");
    // A size of zero means that the size is not known.
    stage.driver.acts("CreateVolume", [Act::Twist(|volume| volume.capacity_bytes = 0)]);
    copy.provision().well();
    assert_eq!(stage.pv(ONE)["spec"]["capacity"]["storage"], "1Gi");
}

#[test]
fn each_code_has_its_exit_code_and_leaves_no_volume() {
    let stage = Stage::new(Options::default());
    let run = stage.run(ONE);
    for (code, exit) in [
        (Code::InvalidArgument, 65),
        (Code::OutOfRange, 65),
        (Code::Unimplemented, 78),
        (Code::PermissionDenied, 77),
        (Code::Unauthenticated, 77),
        (Code::ResourceExhausted, 75),
        (Code::NotFound, 75),
        (Code::Internal, 75),
        (Code::Unknown, 75),
        (Code::FailedPrecondition, 75),
        (Code::DataLoss, 75),
    ] {
        stage.driver.acts("CreateVolume", [Act::Fail(code)]);
        run.provision().failed(exit, "as scripted for CreateVolume");
        assert_eq!(stage.driver.volumes().len(), 0, "{code:?}");
    }
    // A call that may be in progress is repeated by the same run, and makes one volume.
    stage.driver.calls();
    let in_progress = [Code::Aborted, Code::Unavailable, Code::DeadlineExceeded, Code::Cancelled];
    stage.driver.acts("CreateVolume", in_progress.map(Act::Lose));
    run.provision().well();
    let calls = stage.driver.calls().into_iter().filter(|(call, _)| *call == "CreateVolume").count();
    assert_eq!((calls, stage.driver.volumes().len()), (5, 1));
    // Another volume has the name.
    run.clone().with("SIZE_BYTES", "2147483648").provision().failed(65, "ALREADY_EXISTS");
}

#[test]
fn a_missing_capability_of_the_driver_is_reported_before_anything_is_made() {
    let source = json!({ "csi": { "driver": "csi.test", "volumeHandle": "vol-9" } }).to_string();
    for (without, operation, variables, says) in [
        (Type::CreateDeleteVolume, "provision", vec![], "CREATE_DELETE_VOLUME"),
        (Type::CreateDeleteVolume, "delete", vec![("VOLUME_SOURCE", source.as_str())], "CREATE_DELETE_VOLUME"),
        (Type::CloneVolume, "provision", vec![("CLONE_OF", TWO), ("CLONE_OF_SIZE_BYTES", "1")], "CLONE_VOLUME"),
        (Type::CreateDeleteSnapshot, "provision", vec![("SNAPSHOT_ID", "s")], "CREATE_DELETE_SNAPSHOT"),
        (Type::CreateDeleteSnapshot, "snapshot", vec![("SNAPSHOT_ID", "s")], "CREATE_DELETE_SNAPSHOT"),
        (Type::CreateDeleteSnapshot, "delete-snapshot", vec![("SNAPSHOT_ID", "s")], "CREATE_DELETE_SNAPSHOT"),
        (Type::ModifyVolume, "provision", vec![("ATTRIBUTES", r#"{"iops":"1"}"#)], "MODIFY_VOLUME"),
        (Type::ModifyVolume, "modify", vec![("VOLUME_SOURCE", source.as_str())], "MODIFY_VOLUME"),
        (Type::GetCapacity, "capacity", vec![], "GET_CAPACITY"),
        (Type::ListVolumes, "list", vec![], "LIST_VOLUMES"),
    ] {
        let stage = Stage::new(Options::default().without(without));
        let run = variables.into_iter().fold(stage.run(ONE), |run, (name, value)| run.with(name, value));
        run.run(operation).failed(78, says);
        let calls = stage.driver.calls();
        assert!(calls.iter().all(|(_, about)| about.is_empty()), "only who it is was asked: {calls:?}");
    }
}
