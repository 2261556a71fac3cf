//! Tests of directories with names by a pattern, and of their owners.

use super::*;

const PATTERN: (&str, &str) = ("PATH_PATTERN", "${pvc.namespace}/${pvc.name}");
const CLAIM: [(&str, &str); 2] = [("PVC_NAMESPACE", "team"), ("PVC_NAME", "data")];

impl Node {
    /// Runs for the claim `team/data` of a class with a pattern.
    fn named(&self, operation: &str, kubeconfig: &str, extra: &[(&str, &str)]) -> Ended {
        self.run(operation, kubeconfig, &[&[PATTERN], &CLAIM[..], extra].concat())
    }

    fn source(&self, path: &str) -> String {
        format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(self.base().join(path)))
    }

    /// Returns the ids and places of a list run.
    fn ids(&self) -> Vec<(String, String)> {
        let output = self.command("list", "", &[]).env_remove("CLAIM_UUID").output().unwrap();
        let entries = flex_contract::listing::read(&String::from_utf8(output.stdout).unwrap()).unwrap();
        entries.into_iter().map(|entry| (entry.id, entry.place)).collect()
    }

    /// Returns what a list run says, by the place.
    fn listed(&self) -> Vec<(String, String)> {
        let output = self.command("list", "", &[]).env_remove("CLAIM_UUID").output().unwrap();
        let entries = flex_contract::listing::read(&String::from_utf8(output.stdout).unwrap()).unwrap();
        entries.iter().map(|entry| (entry.state.as_str().to_owned(), entry.place.clone())).collect()
    }
}

#[test]
fn a_directory_has_the_name_owner_and_mode_of_the_class() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo, Reply::Echo]));
    let own = [("OWNER", "1234"), ("GROUP", "5678"), ("MODE", "2750")];
    assert_eq!(node.named("provision", &api.kubeconfig(), &own).code, 0);
    let volume = node.base().join("team/data");
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(volume.clone()));
    let made = fs::metadata(&volume).unwrap();
    assert_eq!((made.uid(), made.gid(), made.permissions().mode() & 0o7777), (1234, 5678, 0o2750));
    fs::write(volume.join("kept"), "x").unwrap();
    // The pattern has changed, or is gone.
    for other in ["${pv.name}", ""] {
        let ended = node.named("provision", &api.kubeconfig(), &[("PATH_PATTERN", other)]);
        assert_eq!((ended.code, node.names()), (0, vec![".flex-provisioner".into(), "team".into()]), "{ended:?}");
        assert_eq!(api.posted()["spec"]["local"]["path"], path_text(volume.clone()));
    }
    assert!(volume.join("kept").exists());
    assert_eq!(node.listed(), [("volume".to_owned(), path_text(volume.clone()))]);
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576")];
    assert_eq!(node.run("expand", "", &grows).code, 0);
    let source = node.source("team/data");
    for _ in 0..2 {
        let ended = node.run("delete", "", &[("VOLUME_SOURCE", &source), ("PATH_PATTERN", "${pv.name}")]);
        assert_eq!((ended.code, node.names()), (0, vec![]), "{ended:?}");
    }
}

#[test]
fn an_owner_needs_no_pattern() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    assert_eq!(node.run("provision", &api.kubeconfig(), &[("GROUP", "5678")]).code, 0);
    let made = fs::metadata(node.base().join(ID)).unwrap();
    assert_eq!((made.uid(), made.gid()), (0, 5678));
}

/// The first volume is retained, and its claim was made again.
#[test]
fn a_claim_of_the_same_name_gets_no_data_of_the_former_one() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    assert_eq!(node.named("provision", &api.kubeconfig(), &[]).code, 0);
    let file = node.base().join("team/data/secret");
    fs::write(&file, "x").unwrap();
    let again = [("CLAIM_UUID", SOURCE_ID), ("PVC_UID", SOURCE_ID)];
    let ended = node.named("provision", "", &again);
    assert!(ended.code == 75 && ended.termination_message.contains("another volume"), "{ended:?}");
    // The event of one user says nothing about the volumes of others.
    assert!(!ended.termination_message.contains(ID), "{ended:?}");
    assert_eq!(node.named("delete", "", &again).code, 0);
    assert!(file.exists(), "the other claim's deletion leaves it");
    let ended = node.named("delete", "", &[("VOLUME_SOURCE", &node.source("elsewhere"))]);
    assert!(ended.code == 65 && file.exists(), "{ended:?}");
    assert_eq!(node.named("delete", "", &[("VOLUME_SOURCE", &node.source("team/data"))]).code, 0);
    assert_eq!(node.named("provision", &api.kubeconfig(), &again).code, 0);
    assert!(!file.exists() && file.parent().unwrap().is_dir());
}

#[test]
fn a_copy_and_a_snapshot_find_a_named_source() {
    let node = Node::new();
    let api = Api::start(vec![Reply::Echo, Reply::Echo, Reply::Echo]);
    assert_eq!(node.named("provision", &api.kubeconfig(), &[]).code, 0);
    let source = node.source("team/data");
    fs::write(node.base().join("team/data/file"), "content").unwrap();
    let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("VOLUME_SOURCE", source.as_str())];
    let ended = node.named("snapshot", "", &snapshot);
    assert_eq!(ended.code, 0, "{ended:?}");
    for (name, extra) in [
        ("clone", &[("CLONE_OF", ID), ("CLONE_OF_SOURCE", source.as_str())][..]),
        ("restored", &[("SNAPSHOT_ID", SNAPSHOT)]),
    ] {
        let id = if name == "clone" { SOURCE_ID.to_owned() } else { SOURCE_ID.replace("000f", "000d") };
        let own = [&[("CLAIM_UUID", id.as_str()), ("PVC_NAME", name)], extra].concat();
        let ended = node.named("provision", &api.kubeconfig(), &own);
        assert_eq!(ended.code, 0, "{name}: {ended:?}");
        assert_eq!(fs::read_to_string(node.base().join("team").join(name).join("file")).unwrap(), "content");
        assert_eq!(node.named("delete", "", &own[..2]).code, 0);
    }
    assert_eq!(node.named("delete-snapshot", "", &snapshot[..1]).code, 0);
    assert_eq!(fs::read_to_string(node.base().join("team/data/file")).unwrap(), "content");
    assert_eq!(node.named("delete", "", &[]).code, 0);
    assert_eq!(node.names(), [""; 0]);
}

#[test]
fn no_text_of_a_tenant_leaves_the_base_path() {
    let node = Node::new();
    let outside = node.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let long = "x".repeat(256);
    for value in ["..", ".", "../outside", "/etc", "a/b", "", " ", ".x", "-x", "a b", "ä", "a\\b", "$(id)", "*", &long]
    {
        let metadata = serde_json::json!({ "dir": value }).to_string();
        for pattern in ["${metadata.dir}", "${metadata.dir}/${pv.name}", "${pvc.namespace}/${metadata.dir}"] {
            let ended = node.named("provision", "", &[("PATH_PATTERN", pattern), ("CLAIM_METADATA", &metadata)]);
            assert_eq!(ended.code, 65, "{value:?} {pattern}: {ended:?}");
            assert_eq!(node.names(), [""; 0], "{value:?} {pattern}");
        }
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_wrong_config_is_refused() {
    let node = Node::new();
    let mounts = path_text(node.base());
    for (name, value, says) in [
        ("PATH_PATTERN", "../${pvc.name}", "`..`"),
        ("PATH_PATTERN", "/${pvc.name}", "empty part"),
        ("PATH_PATTERN", ".flex-provisioner/${pvc.name}", "begins with a dot"),
        ("PATH_PATTERN", "${pvc.nam}", "is not known"),
        ("PATH_PATTERN", "--help", "begins with a dot or a hyphen"),
        ("STORAGE_MOUNTS", &mounts, "remove storage-mounts"),
        ("DEVICES", "/dev/flex-tests", "remove devices"),
        ("OWNER", "root", "must be numbers"),
        ("GROUP", "-1", "must be numbers"),
        ("OWNER", "99999999999", "must be numbers"),
    ] {
        let ended = node.named("provision", "", &[(name, value)]);
        assert_eq!(ended.code, 78, "{name}={value}: {ended:?}");
        assert!(ended.termination_message.contains(says), "{name}={value}: {ended:?}");
        assert_eq!(node.names(), [""; 0], "{name}={value}");
    }
    // Runs that see only the directory of an id must not leave the named one behind.
    fs::create_dir(node.base().join(ID)).unwrap();
    let seen = [("STORAGE_MOUNTS", mounts.as_str()), ("VOLUME_SOURCE", &node.source("team/data"))];
    let ended = node.run("delete", "", &seen);
    assert!(ended.code == 78 && ended.termination_message.contains("another name than its id"), "{ended:?}");
}

#[test]
fn directories_of_others_are_neither_used_nor_moved_in() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let theirs = node.base().join("legacy");
    fs::create_dir(&theirs).unwrap();
    for pattern in ["legacy", "legacy/${pvc.name}"] {
        let ended = node.named("provision", "", &[("PATH_PATTERN", pattern)]);
        assert!(ended.code == 65 && ended.termination_message.contains("somebody else"), "{pattern}: {ended:?}");
    }
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
    assert_eq!(node.named("provision", &api.kubeconfig(), &[]).code, 0);
    let source = node.source("team");
    let path = path_text(node.base().join("team"));
    let moved = [("CLAIM_UUID", SOURCE_ID), ("VOLUME_SOURCE", source.as_str()), ("MOVED_IN_PATH", path.as_str())];
    let ended = node.run("move-in", "", &moved);
    assert!(ended.code == 65 && ended.termination_message.contains("team/data"), "{ended:?}");
    // A volume that was made before the class had a pattern keeps its directory.
    fs::create_dir(node.base().join(SOURCE_ID)).unwrap();
    assert_eq!(node.named("provision", &api.kubeconfig(), &[("CLAIM_UUID", SOURCE_ID), ("PVC_NAME", "x")]).code, 0);
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(node.base().join(SOURCE_ID)));
}

#[test]
fn a_run_continues_where_a_path_is_recorded() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let both = [path_text(node.base()), path_text(memory.path().to_owned())];
    for base in &both {
        // The run before this one died when it had recorded its path in this directory, or in the other one.
        let records = Path::new(base).join(".flex-provisioner");
        fs::create_dir(&records).unwrap();
        symlink("team/data", records.join(format!("volume-{ID}"))).unwrap();
        assert_eq!(node.named("provision", &api.kubeconfig(), &[("BASE_PATH", &both.join(" "))]).code, 0);
        assert!(Path::new(base).join("team/data").is_dir());
        assert_eq!(node.named("delete", "", &[("BASE_PATH", &both.join(" "))]).code, 0);
        assert_eq!(fs::read_dir(base).unwrap().count(), 0);
    }
}

/// The node was restored from a backup that has no links.
#[test]
fn a_volume_whose_record_is_lost_is_not_called_deleted() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    assert_eq!(node.named("provision", &api.kubeconfig(), &[]).code, 0);
    let file = node.base().join("team/data/file");
    fs::write(&file, "x").unwrap();
    let record = node.base().join(format!(".flex-provisioner/volume-{ID}"));
    fs::remove_file(&record).unwrap();
    let source = node.source("team/data");
    for _ in 0..2 {
        let ended = node.named("delete", "", &[("VOLUME_SOURCE", &source)]);
        let says = format!("ln -s team/data {}", path_text(record.clone()));
        assert!(ended.code == 65 && ended.termination_message.contains(&says) && file.exists(), "{ended:?}");
    }
    // As the message says.
    symlink("team/data", &record).unwrap();
    for _ in 0..2 {
        let ended = node.named("delete", "", &[("VOLUME_SOURCE", &source)]);
        assert_eq!((ended.code, node.names()), (0, vec![]), "{ended:?}");
    }
    // The config names another base path than that of the volume.
    assert_eq!(node.run("provision", &api.kubeconfig(), &[]).code, 0);
    let elsewhere = node.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let other = [("VOLUME_SOURCE", &*node.source(ID)), ("BASE_PATH", &path_text(elsewhere))];
    let ended = node.run("delete", "", &other);
    assert!(ended.code == 78 && ended.termination_message.contains("nothing is deleted"), "{ended:?}");
    assert_eq!(node.run("delete", "", &other[..1]).code, 0);
}

#[test]
fn no_name_of_a_tenant_passes_for_another_volume() {
    let (node, api) = (Node::new(), Api::start((0..9).map(|_| Reply::Echo).collect()));
    let hyphens = "c0ffee00-----------------------------";
    for (n, name) in [format!("pvc-{SOURCE_ID}_team_x"), hyphens[..36].to_owned()].into_iter().enumerate() {
        let id = ID.replace("0001", &format!("000{}", n + 1));
        for pattern in ["${metadata.dir}", "${metadata.dir}/${pvc.name}"] {
            let metadata = serde_json::json!({ "dir": name }).to_string();
            let own = [("CLAIM_UUID", id.as_str()), ("CLAIM_METADATA", &metadata), ("PATH_PATTERN", pattern)];
            let made = node.named("provision", &api.kubeconfig(), &own);
            if name.starts_with("pvc-") {
                assert!(made.code == 65 && made.termination_message.contains("UUID"), "{made:?}");
                // A volume that was made before such names were refused.
                let path = if pattern.contains('/') { format!("{name}/data") } else { name.clone() };
                let records = node.base().join(".flex-provisioner");
                fs::create_dir_all(records.join("folders")).unwrap();
                if pattern.contains('/') {
                    fs::create_dir(records.join("folders").join(&name)).unwrap();
                }
                fs::create_dir_all(node.base().join(&path)).unwrap();
                symlink(&path, records.join(format!("volume-{id}"))).unwrap();
            } else {
                assert_eq!(made.code, 0, "{made:?}");
            }
            let path = if pattern.contains('/') { format!("{name}/data") } else { name.clone() };
            assert_eq!(node.ids(), [(id.clone(), path_text(node.base().join(path)))]);
            assert_eq!(node.named("delete", "", &own[..1]).code, 0);
            assert_eq!(node.names(), [""; 0]);
        }
    }
}
