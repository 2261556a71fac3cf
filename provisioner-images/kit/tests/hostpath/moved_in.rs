//! Tests of directories that another provisioner made: the image works on the one that the volume's record names, and on
//! no other.

use super::*;

/// Returns the name that the local-path provisioner gives to the directory of the claim `team/data`.
fn named() -> String {
    format!("pvc-{ID}_team_data")
}

impl Node {
    /// Makes a directory with a file, as another provisioner left it.
    fn left(&self, name: &str) -> PathBuf {
        let folder = self.base().join(name);
        fs::create_dir_all(folder.join("deep")).unwrap();
        fs::write(folder.join("deep/file"), name).unwrap();
        folder
    }

    /// Runs for the volume at a path, whose source and record name that path.
    fn moved(&self, operation: &str, path: &Path, extra: &[(&str, &str)]) -> Ended {
        let path = path_text(path.to_owned());
        let source = format!(r#"{{"hostPath":{{"path":"{path}","type":"DirectoryOrCreate"}}}}"#);
        let own = [("VOLUME_SOURCE", source.as_str()), ("MOVED_IN_PATH", path.as_str())];
        self.run(operation, "", &own.iter().chain(extra).copied().collect::<Vec<_>>())
    }
}

#[test]
fn a_directory_that_moved_in_is_deleted_and_nothing_else() {
    let node = Node::new();
    let (volume, neighbour) = (node.left(&named()), node.left(&format!("pvc-{SOURCE_ID}_team_other")));
    // A directory of the id may be another volume's, which was made after an undo.
    let of_id = node.left(ID);
    symlink(&neighbour, volume.join("link")).unwrap();
    assert_eq!(node.moved("move-in", &volume, &[]).code, 0);
    assert_eq!(node.moved("move-out", &volume, &[]).code, 0);
    assert!(volume.join("deep/file").exists(), "to move in or out changes nothing");
    for _ in 0..2 {
        // The second run finds the directory gone, which is a success.
        let ended = node.moved("delete", &volume, &[]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!volume.exists() && of_id.join("deep/file").exists() && neighbour.join("deep/file").exists());
    }
    assert_eq!(node.names().len(), 2);
    let ended = node.moved("move-in", &volume, &[]);
    assert!(ended.code == 65 && ended.termination_message.contains("nothing that could move in"), "{ended:?}");
}

/// Only the record names the directory: a run without it touches no other directory, and says so.
#[test]
fn without_the_word_of_the_record_no_other_directory_is_touched() {
    let node = Node::new();
    let volume = node.left(&named());
    let source = format!(r#"{{"hostPath":{{"path":"{}"}}}}"#, path_text(volume.clone()));
    let ended = node.run("delete", "", &[("VOLUME_SOURCE", &source)]);
    assert_eq!((ended.code, node.names()), (65, vec![named()]), "{ended:?}");
    assert!(ended.termination_message.contains("nothing is deleted"), "{ended:?}");
    // The record names another directory than the volume.
    let other = path_text(node.left("pvc-other"));
    for operation in ["delete", "expand", "snapshot", "move-in", "move-out"] {
        let ended = node.run(
            operation,
            "",
            &[
                ("VOLUME_SOURCE", &source),
                ("MOVED_IN_PATH", &other),
                ("SNAPSHOT_ID", SNAPSHOT),
                ("OLD_SIZE_BYTES", "1"),
            ],
        );
        assert!(ended.code == 65 && ended.termination_message.contains("elsewhere"), "{operation}: {ended:?}");
    }
    let ended = node.run("move-in", "", &[("VOLUME_SOURCE", &source)]);
    assert!(ended.code == 65 && ended.termination_message.contains("is empty"), "{ended:?}");
    assert_eq!(node.names().len(), 2);
}

#[test]
fn no_path_leads_out_of_the_base_or_to_a_volume_of_the_image() {
    let node = Node::new();
    let outside = node.folder.path().join("outside");
    fs::create_dir_all(outside.join("precious")).unwrap();
    let (own, stored) = (node.left(SOURCE_ID), node.left(&format!(".snapshot-{SNAPSHOT}")));
    symlink(&outside, node.base().join("link")).unwrap();
    node.left("nested/pvc");
    let base = node.base();
    for path in [
        outside.join("precious"),
        base.join("../outside/precious"),
        base.join("nested/pvc"),
        base.join("nested/.."),
        base.join("link"),
        base.join("link/precious"),
        own.clone(),
        stored.clone(),
        base.clone(),
        base.join("."),
        base.join("-rf"),
        base.join("a b"),
        base.join("*"),
        base.join("x\"y"),
        PathBuf::from("/"),
        PathBuf::from("pvc"),
    ] {
        for operation in ["delete", "expand", "snapshot", "move-in"] {
            let ended = node.moved(operation, &path, &[("SNAPSHOT_ID", SNAPSHOT), ("OLD_SIZE_BYTES", "1")]);
            assert!([65, 78].contains(&ended.code), "{operation} {}: {ended:?}", path.display());
        }
    }
    assert!(outside.join("precious").exists() && own.exists() && stored.exists());
    assert_eq!(node.names(), [&format!(".snapshot-{SNAPSHOT}"), SOURCE_ID, "link", "nested"]);
}

#[test]
fn it_grows_is_listed_and_is_the_source_of_snapshots_and_clones() {
    let node = Node::new();
    let volume = node.left(&named());
    // Names of hexadecimal digits are no ids either.
    let others = ["unrelated", "cafe", "2024-01-01"];
    for name in others {
        node.left(name);
    }
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576")];
    assert_eq!(node.moved("expand", &volume, &grows).code, 0);
    let listed = node.command("list", "", &[]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.contains(ID) && listed.contains(&named()), "{listed}");
    assert!(others.iter().all(|name| !listed.contains(name)), "{listed}");

    let ended = node.moved("snapshot", &volume, &[("SNAPSHOT_ID", SNAPSHOT)]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let stored = node.base().join(format!(".snapshot-{SNAPSHOT}"));
    assert_eq!(fs::read_to_string(stored.join("deep/file")).unwrap(), named());

    let api = Api::start(vec![Reply::Echo]);
    let path = path_text(volume.clone());
    let source = format!(r#"{{"hostPath":{{"path":"{path}"}}}}"#);
    let copy = [
        ("CLAIM_UUID", SOURCE_ID),
        ("CLONE_OF", ID),
        ("CLONE_OF_SOURCE", source.as_str()),
        ("CLONE_OF_MOVED_IN_PATH", path.as_str()),
    ];
    let ended = node.run("provision", &api.kubeconfig(), &copy);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read_to_string(node.base().join(SOURCE_ID).join("deep/file")).unwrap(), named());
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(node.base().join(SOURCE_ID)));
    fs::remove_dir_all(&volume).unwrap();
    let ended = node.moved("expand", &volume, &grows);
    assert!(ended.code == 65 && ended.termination_message.contains("a lost volume cannot grow"), "{ended:?}");
}
