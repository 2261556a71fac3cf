use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::*;
use crate::setting::NODE;

/// Writes a program, and returns its path.
fn program(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("program");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Makes a container that leaves a file where it runs.
fn leaving(file: &Path) -> Container {
    let job = json!({ "spec": { "template": { "spec": {
        "containers": [{ "name": "provisioner", "command": ["/usr/bin/touch", file] }],
    } } } });
    let (secrets, configs) = (BTreeMap::new(), BTreeMap::new());
    let facts = PodFacts { name: POD, node: NODE, secrets: &secrets, configs: &configs };
    container(&serde_json::from_value(job).unwrap(), facts).unwrap()
}

#[tokio::test]
async fn a_program_that_cannot_be_confined_does_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let why = r#"#!/bin/sh
        echo '["Setup", "no namespaces"]' >>"${1%/spec}/trouble"
        stat -c %a "$1" >"${0%/*}/mode"
        exit 125
    "#;
    let helper = Some(program(folder.path(), why));
    let desk = Desk::new(&folder.path().join("desk"), Tools { helper, ..Tools::default() }).await.unwrap();
    let left = folder.path().join("left");
    let error = desk.run(&leaving(&left), Stop::Never).await.unwrap_err().to_string();
    for text in ["was not run: no namespaces", "as root", "user namespaces", "--unconfined"] {
        assert!(error.contains(text), "{text}: {error}");
    }
    assert!(!left.exists());
    // The environment in the description may have secrets.
    assert_eq!(fs::read_to_string(folder.path().join("mode")).unwrap().trim(), "600");
}

#[tokio::test]
async fn a_person_may_ask_for_a_run_that_is_not_confined() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let desk = Desk::new(&folder.path().join("desk"), Tools { unconfined: true, ..Tools::default() }).await.unwrap();
    let left = folder.path().join("left");
    let ended = desk.run(&leaving(&left), Stop::Never).await.unwrap();
    assert!(ended.is_success() && left.exists(), "{ended:?}");
}
