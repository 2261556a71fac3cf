//! The recipes pass the cases of `flex-provisioner conformance`, as a vendor calls it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use super::api::path_text;
use super::cases::Backend;
use super::desk::SIZE;

/// Returns the command. A build of the whole workspace has left it beside `flex-pv`.
fn flex_provisioner() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_flex-pv")).parent().unwrap();
    let path = folder.join("flex-provisioner");
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "flex-provisioner", "--bin", "flex-provisioner"]);
        if folder.file_name().is_some_and(|name| name != "debug") {
            build.arg("--profile").arg(folder.file_name().unwrap());
        }
        assert!(build.status().unwrap().success(), "flex-provisioner cannot be built");
    }
    path
}

/// Runs all cases on a recipe, and checks that none fails and that nothing is left. The command has `on_node` in place of
/// these paths of the node, and `arguments`.
#[track_caller]
pub fn passes(backend: &impl Backend, on_node: &[&str], arguments: &[&str]) {
    let (desk, before) = (backend.desk(), backend.objects());
    let config = desk.path("conformance.yaml");
    let secrets: String = desk.secrets().iter().map(|secret| format!("\n---\n{secret}")).collect();
    fs::write(&config, format!("{}{secrets}", desk.recipe(on_node))).unwrap();
    let class = desk.class();
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "data", "namespace": "team" },
        "spec": {
            "storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": SIZE.to_string() } },
        },
    });
    fs::write(desk.path("claim.json"), claim.to_string()).unwrap();
    let mut command = Command::new(flex_provisioner());
    command.args(["conformance", "-o", "json", "--config", &path_text(config)]);
    command.args(["--claim", &path_text(desk.path("claim.json"))]);
    command.args(["--path", &path_text(desk.path("plain"))]).args(arguments);
    for path in on_node {
        command.args(["--on-node", &format!("{path}={}", desk.replacement(path))]);
    }
    for (key, value) in desk.changes() {
        command.args(["--set", &format!("{key}={value}")]);
    }
    let output = command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}: {said}", output.status));
    let cases = document["cases"].as_array().expect("a list of cases");
    let of = |outcome: &'static str| cases.iter().filter(move |case| case["outcome"] == outcome);
    let failed: Vec<String> = of("failed").map(|case| format!("{}: {}", case["id"], case["why"])).collect();
    assert!(failed.is_empty() && output.status.success(), "{}\n{said}", failed.join("\n"));
    for outcome in ["skipped", "not-possible"] {
        of(outcome).for_each(|case| eprintln!("{outcome}: {}: {}", case["id"], case["why"]));
    }
    assert!(of("passed").count() >= 15, "{document}");
    assert_eq!(backend.objects(), before);
}

/// Returns a Secret of the namespace of the configs.
pub fn secret(name: &str, data: &[(String, String)]) -> Value {
    let data: serde_json::Map<_, _> = data.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "flex-provisioner" },
        "stringData": data,
    })
}
