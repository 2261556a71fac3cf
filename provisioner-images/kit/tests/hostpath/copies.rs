//! Tests of snapshots and clones.

use super::*;

#[test]
fn a_snapshot_is_a_copy_that_outlives_its_volume() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    let stored = format!(".snapshot-{SNAPSHOT}");
    let volume = node.base().join(ID);
    fs::create_dir(&volume).unwrap();
    fs::write(volume.join("a file"), "content").unwrap();
    // The leftover of a run that died.
    fs::create_dir(node.base().join(format!(".copying-{SNAPSHOT}"))).unwrap();
    let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(volume.clone()));
    let of = [("SNAPSHOT_ID", SNAPSHOT), ("VOLUME_SOURCE", source.as_str())];
    for _ in 0..2 {
        let ended = node.run("snapshot", "", &of);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(node.names(), [stored.as_str(), ID]);
        // Later writes are not in the snapshot, also when the run is repeated.
        fs::write(volume.join("a file"), "later").unwrap();
    }
    fs::remove_dir_all(&volume).unwrap();
    let ended = node.run("provision", &api.kubeconfig(), &of[..1]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read_to_string(volume.join("a file")).unwrap(), "content");
    for _ in 0..2 {
        let ended = node.run("delete-snapshot", "", &[("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", "")]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(node.names(), [ID]);
    }
    // The run makes no empty volume instead, and nothing with an invalid name.
    fs::remove_dir_all(&volume).unwrap();
    let ended = node.run("provision", "", &of[..1]);
    assert!(ended.code == 75 && ended.termination_message.contains("is not on node"), "{ended:?}");
    for operation in ["snapshot", "delete-snapshot", "provision"] {
        let ended = node.run(operation, "", &[("SNAPSHOT_ID", "../x")]);
        assert!(
            ended.code == 65 && ended.termination_message.contains("not the UUID of a snapshot"),
            "{operation}: {ended:?}"
        );
    }
    assert_eq!(node.names(), [""; 0]);
}

#[test]
fn a_clone_equals_its_source_and_does_not_change_it() {
    let node = Node::new();
    let api = Api::start(vec![Reply::Echo, Reply::Echo]);
    let source_dir = node.base().join(SOURCE_ID);
    fs::create_dir_all(source_dir.join("deep/er")).unwrap();
    fs::write(source_dir.join("deep/er/a file"), "content").unwrap();
    fs::write(source_dir.join("run"), "#!/bin/sh").unwrap();
    fs::set_permissions(source_dir.join("run"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(&source_dir, fs::Permissions::from_mode(0o2770)).unwrap();
    chown(source_dir.join("run"), Some(1234), Some(5678)).unwrap();
    symlink("../outside", source_dir.join("link")).unwrap();
    // The leftover of a copy that died.
    fs::create_dir_all(node.base().join(format!(".copying-{ID}/half"))).unwrap();

    let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(source_dir.clone()));
    let of = [("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())];
    let ended = node.run("provision", &api.kubeconfig(), &of);
    assert_eq!(ended.code, 0, "{ended:?}");
    let copy = node.base().join(ID);
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(copy.clone()));
    assert_eq!(fs::read_to_string(copy.join("deep/er/a file")).unwrap(), "content");
    let run = fs::metadata(copy.join("run")).unwrap();
    assert_eq!((run.permissions().mode() & 0o7777, run.uid(), run.gid()), (0o750, 1234, 5678));
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o7777, 0o2770);
    assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("../outside"));
    assert!(!copy.join("half").exists());
    assert_eq!(node.names(), [ID, SOURCE_ID]);

    // Each volume has its own data from then on, also if the run is repeated without the source.
    fs::write(copy.join("deep/er/a file"), "mine").unwrap();
    assert_eq!(fs::read_to_string(source_dir.join("deep/er/a file")).unwrap(), "content");
    fs::remove_dir_all(&source_dir).unwrap();
    assert_eq!(node.run("provision", &api.kubeconfig(), &of).code, 0);
    assert_eq!(fs::read_to_string(copy.join("deep/er/a file")).unwrap(), "mine");
}

/// The class had `storage-mounts` when the clone or the snapshot was begun, and has none any more.
#[test]
fn an_incomplete_copy_is_made_again_by_a_run_with_other_mounts() {
    let node = Node::new();
    let api = Api::start(vec![Reply::Echo]);
    let source_dir = node.base().join(SOURCE_ID);
    fs::create_dir_all(&source_dir).unwrap();
    fs::write(source_dir.join("file"), "whole").unwrap();
    let stored = format!(".snapshot-{SNAPSHOT}");
    for half in [ID, &stored] {
        fs::create_dir_all(node.base().join(half)).unwrap();
        fs::write(node.base().join(half).join(".flex-partial"), "").unwrap();
        fs::write(node.base().join(half).join("rubbish"), "").unwrap();
    }
    let source = format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(source_dir.clone()));
    let ended =
        node.run("provision", &api.kubeconfig(), &[("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let snapshot = [("CLAIM_UUID", SOURCE_ID), ("SNAPSHOT_ID", SNAPSHOT), ("VOLUME_SOURCE", source.as_str())];
    let ended = node.run("snapshot", "", &snapshot);
    assert_eq!(ended.code, 0, "{ended:?}");
    for whole in [ID, &stored] {
        let names: Vec<_> =
            fs::read_dir(node.base().join(whole)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "{whole}");
    }
}

#[test]
fn an_impossible_clone_makes_no_volume() {
    let node = Node::new();
    let at = |path: &str| format!(r#"{{"local":{{"path":"{path}"}}}}"#);
    let here = at(&path_text(node.base().join(SOURCE_ID)));
    let link = SOURCE_ID.replace("000f", "000e");
    symlink("/etc", node.base().join(&link)).unwrap();
    let linked = at(&path_text(node.base().join(&link)));
    for (of, source, code, says) in [
        (SOURCE_ID, here.as_str(), 75, "the source of the copy, is not on node node-1"),
        (SOURCE_ID, &at("/elsewhere/x"), 65, "made with another base-path"),
        (SOURCE_ID, "", 65, "made with another base-path"),
        (&link, &linked, 75, "is not on node node-1"),
        ("../etc", &at("/etc"), 65, "not the UUID of a volume"),
    ] {
        let ended = node.run("provision", "", &[("CLONE_OF", of), ("CLONE_OF_SOURCE", source)]);
        assert_eq!(ended.code, code, "{of} {source}: {ended:?}");
        assert!(ended.termination_message.contains(says), "{of} {source}: {ended:?}");
        assert_eq!(node.names(), [link.as_str()], "{of} {source}");
    }
}
