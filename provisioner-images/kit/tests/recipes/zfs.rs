//! The recipe `zfs` with a scripted `zfs`: the kernel of the test's machine has none.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, SIZE};
use super::host::Host;

const BYTES: u64 = 40 * SIZE;

struct Pool {
    desk: Desk,
    folder: tempfile::TempDir,
    _host: Host,
}

impl Pool {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let none = r#"{"origin": "-", "refquota": "0", "refreservation": "0", "sharenfs": "off"}"#;
        fs::create_dir_all(folder.path().join("mounted/tank/volumes")).unwrap();
        fs::create_dir(folder.path().join("kept")).unwrap();
        let state = format!(r#"{{"datasets": {{"tank": {none}, "tank/volumes": {none}}}, "snapshots": {{}}}}"#);
        fs::write(folder.path().join("state"), state).unwrap();
        let mut desk = Desk::new("zfs", &[], &[Path::new("/usr/bin/ssh")]);
        let (state, bytes) = (path_text(folder.path().into()), BYTES.to_string());
        let env = [("ZFS_STATE", state.as_str()), ("ZFS_BYTES", &bytes)];
        let host = Host::start(&mut desk, &["zfs", "chmod"], &super::host::scripted(), &env);
        Pool { desk, folder, _host: host }
    }

    fn state(&self) -> Value {
        serde_json::from_str(&fs::read_to_string(self.folder.path().join("state")).unwrap()).unwrap()
    }

    fn volume(&self, id: &str) -> PathBuf {
        self.folder.path().join("mounted/tank/volumes").join(id)
    }
}

impl Backend for Pool {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        let state = self.state();
        let names = |kind: &str| state[kind].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        [names("datasets"), names("snapshots")].concat()
    }

    fn size(&self, id: &str) -> u64 {
        let dataset = &self.state()["datasets"][format!("tank/volumes/{id}")];
        assert_eq!(dataset["refquota"], dataset["refreservation"]);
        assert_eq!(dataset["sharenfs"], "rw=@192.0.2.0/24,root_squash");
        dataset["refquota"].as_str().unwrap().parse().unwrap()
    }

    fn write(&self, id: &str, text: &str) {
        fs::write(self.volume(id).join("file"), text).unwrap();
    }

    fn read(&self, id: &str) -> String {
        fs::read_to_string(self.volume(id).join("file")).unwrap()
    }
}

#[test]
fn zfs_passes_the_cases_of_all_recipes() {
    let pool = Pool::new();
    cases::all(&pool);
}

#[test]
fn zfs_passes_conformance() {
    let pool = Pool::new();
    conformance::passes(&pool, &[], &["--external-storage"]);
}

#[test]
fn a_dataset_is_shared_with_its_path_and_none_is_promised_too_much() {
    let pool = Pool::new();
    assert_eq!(pool.desk.run("provision", &id(1), &[]).code, Some(0));
    let nfs = &pool.desk.volume(&id(1))["spec"]["nfs"];
    assert_eq!(*nfs, serde_json::json!({ "server": "192.0.2.10", "path": path_text(pool.volume(&id(1))) }));
    for _ in 0..2 {
        let ended = pool.desk.run("provision", &id(2), &[("SIZE_BYTES", &BYTES.to_string())]);
        assert!(ended.code == Some(69) && ended.last_words.contains("greater than available space"), "{ended:?}");
    }
    assert_eq!(pool.desk.run("delete", &id(2), &[]).code, Some(0));
    let ended = pool.desk.run("expand", &id(1), &[("SIZE_BYTES", &(2 * BYTES).to_string())]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert_eq!(pool.size(&id(1)), SIZE, "a size that is not promised is not allowed");
    assert_eq!(pool.desk.run("delete", &id(1), &[]).code, Some(0));
    assert_eq!(pool.objects(), ["tank", "tank/volumes"]);
}

#[test]
fn nothing_is_listed_or_called_deleted_while_the_pool_is_away_or_the_dataset_is_busy() {
    let pool = Pool::new();
    assert_eq!(pool.desk.run("provision", &id(1), &[]).code, Some(0));
    let before = pool.objects();
    let switch = |name: &str| pool.folder.path().join(name);
    fs::write(switch("exported"), "").unwrap();
    for operation in ["provision", "expand", "delete", "snapshot", "delete-snapshot", "list", "capacity"] {
        let ended = pool.desk.run(operation, &id(1), &[("SNAPSHOT_ID", &id(90))]);
        assert!(ended.code == Some(75) && ended.output.contains("pool imported"), "{operation}: {ended:?}");
    }
    fs::remove_file(switch("exported")).unwrap();
    assert_eq!(pool.objects(), before);
    fs::write(switch("busy"), "").unwrap();
    for _ in 0..2 {
        let ended = pool.desk.run("delete", &id(1), &[]);
        assert!(ended.code == Some(75) && ended.last_words.contains("busy"), "{ended:?}");
    }
    fs::remove_file(switch("busy")).unwrap();
    assert_eq!(pool.desk.run("delete", &id(1), &[]).code, Some(0));
    assert_eq!(pool.objects(), ["tank", "tank/volumes"]);
}

#[test]
fn a_volume_that_was_made_once_more_is_deleted_while_a_snapshot_keeps_the_first() {
    let pool = Pool::new();
    let run = |operation: &str, snapshot: &str| {
        let ended = pool.desk.run(operation, &id(1), &[("SNAPSHOT_ID", snapshot)]);
        assert_eq!(ended.code, Some(0), "{operation}: {ended:?}");
    };
    run("provision", "");
    run("snapshot", &id(90));
    run("delete", "");
    let kept = pool.objects();
    for _ in 0..2 {
        run("provision", "");
        run("delete", "");
        assert_eq!(pool.objects(), kept);
    }
    run("delete-snapshot", &id(90));
    assert_eq!(pool.objects(), ["tank", "tank/volumes"]);
}
