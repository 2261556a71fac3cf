use std::collections::BTreeSet;

use super::*;

pub(crate) fn request() -> RunRequest {
    RunRequest {
        operation: Operation::Provision,
        volume_id: "c0ffee00-0000-4000-8000-000000000001".into(),
        provision_ts: "2026-01-01T00:00:00Z".into(),
        attempt: 3,
        attempts_alike: true,
        pv_name: "pvc-c0ffee00-0000-4000-8000-000000000001".into(),
        claim: ClaimRef {
            namespace: "team".into(),
            name: "data".into(),
            uid: "c0ffee00-0000-4000-8000-000000000001".into(),
        },
        storage_class: "silver".into(),
        size_bytes: 3 << 30,
        old_size_bytes: Some(1 << 30),
        clone_of: Some(CloneSource {
            id: "c0ffee00-0000-4000-8000-000000000002".into(),
            pv_name: "pvc-c0ffee00-0000-4000-8000-000000000002".into(),
            source: r#"{"nfs":{"path":"/a","server":"s"}}"#.into(),
            size_bytes: 2 << 30,
            node: "node-2".into(),
            moved_in_path: "/srv/pvc-2_team_data".into(),
        }),
        snapshot: Some(Snapshot {
            id: "c0ffee00-0000-4000-8000-000000000003".into(),
            handle: "snap-1".into(),
            of: "c0ffee00-0000-4000-8000-000000000004".into(),
            size_bytes: Some(2 << 30),
            node: "node-2".into(),
            namespace: "team".into(),
            name: "monday".into(),
        }),
        attributes_class: "gold".into(),
        attributes: [("iops".to_owned(), "900".to_owned())].into(),
        old_attributes_class: "silver".into(),
        old_attributes: [("iops".to_owned(), "100".to_owned())].into(),
        access_modes: vec!["ReadWriteOnce".into(), "ReadOnlyMany".into()],
        volume_mode: "Filesystem".into(),
        mount_options: vec!["noatime".into()],
        reclaim_policy: "Delete".into(),
        fs_type: "ext4".into(),
        username: "tom".into(),
        user_groups: vec!["a".into(), "b".into()],
        service_account: "foo".into(),
        kube_api: "https://10.10.2.1:443".into(),
        node_name: "node-1".into(),
        topology: [("kubernetes.io/hostname".to_owned(), "node-1".to_owned())].into(),
        class_topologies: r#"[{"zone":["a"]}]"#.into(),
        provisioner: crate::names::DEFAULT_PROVISIONER.into(),
        instance: "default".into(),
        moved_in_path: "/b".into(),
        volume_source: r#"{"nfs":{"path":"/b","server":"s"}}"#.into(),
        claim_metadata: [("team.example/key".to_owned(), "a,b=\"c\"".to_owned())].into(),
        parameters: [("example.com/Pool".to_owned(), "gold".to_owned()), ("iops".to_owned(), "900".to_owned())].into(),
        pod_namespace: crate::names::FIELD_MANAGER.into(),
    }
}

#[test]
fn a_written_request_is_read_back() {
    let env: BTreeMap<_, _> = request().properties().into_iter().map(|p| (p.env(), p.value)).collect();
    assert_eq!(RunRequest::from_env(|name| env.get(name).cloned()), Ok(request()));
}

#[test]
fn a_request_has_the_documented_properties() {
    let mut request = request();
    request.parameters.clear();
    let written: BTreeSet<String> = request.properties().iter().map(Property::env).collect();
    let documented: BTreeSet<String> = variable::properties().map(|variable| variable.name.to_owned()).collect();
    assert_eq!(written, documented);
    assert_eq!(written.len(), request.properties().len(), "a property exists twice");
}

#[test]
fn the_properties_of_the_first_example_have_their_names() {
    let mut request = request();
    request.parameters =
        [("zone".to_owned(), "west".to_owned()), ("use-nfs-server".to_owned(), "10.10.2.4".to_owned())].into();
    let properties = request.properties();
    let value = |name: &str| properties.iter().find(|p| p.name == name).map(|p| p.value.as_str());
    assert_eq!(value("username"), Some("tom"));
    assert_eq!(value("zone"), Some("west"));
    assert_eq!(value("use-nfs-server"), Some("10.10.2.4"));
    assert_eq!(value("service-account"), Some("foo"));
    assert_eq!(value("size"), Some("3Gi"));
    assert!(is_reserved("USERNAME") && is_reserved("SERVICE_TOKEN") && !is_reserved("ZONE"));
}

#[test]
fn some_runs_have_no_volume() {
    for operation in [Operation::List, Operation::Capacity] {
        let env = [("OPERATION", operation.as_str()), ("STORAGE_CLASS", "c")];
        let found = RunRequest::from_env(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()));
        let found = found.unwrap();
        assert_eq!((found.operation, found.volume_id.as_str(), found.size_bytes), (operation, "", 0));
    }
}

#[test]
fn a_snapshot_run_has_the_snapshot_s_id_and_deletes_without_a_volume() {
    let read = |env: &[(&str, &str)]| {
        RunRequest::from_env(|name| env.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    };
    let env = [("OPERATION", "delete-snapshot"), ("STORAGE_CLASS", "c"), ("SNAPSHOT_ID", "s")];
    let found = read(&env).unwrap();
    assert_eq!((found.operation, found.volume_id.as_str()), (Operation::DeleteSnapshot, ""));
    assert_eq!(found.snapshot.unwrap(), Snapshot { id: "s".into(), ..Snapshot::default() });
    assert!(read(&env[..2]).unwrap_err().to_string().contains("SNAPSHOT_ID"));
    let error = read(&[("OPERATION", "snapshot"), ("STORAGE_CLASS", "c")]).unwrap_err().to_string();
    assert!(error.contains("CLAIM_UUID, PV_NAME, SIZE_BYTES, SNAPSHOT_ID"), "{error}");
}

#[test]
fn all_missing_variables_are_named_at_once() {
    let error = RunRequest::from_env(|name| (name == "OPERATION").then(|| "provision".into())).unwrap_err();
    assert!(error.to_string().contains("STORAGE_CLASS, CLAIM_UUID, PV_NAME, SIZE_BYTES"), "{error}");
}
