//! The recipes pass the cases of `flex-provisioner conformance`, as a vendor calls it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance_report::Outcomes;
use serde_json::{Value, json};

use super::api::path_text;
use super::cases::{Backend, nothing_left};
use super::desk::SIZE;
use super::parameters::recipes;

/// This file, as the page names it.
const SOURCE: &str = "provisioner-images/kit/tests/recipes/conformance.rs";

/// Returns the command that `FLEX_PROVISIONER` names, or the one that a build of the whole workspace has left beside
/// `flex-pv`.
fn flex_provisioner() -> PathBuf {
    if let Some(shipped) = std::env::var_os("FLEX_PROVISIONER") {
        return shipped.into();
    }
    let folder = Path::new(env!("CARGO_BIN_EXE_flex-pv")).parent().unwrap();
    let path = folder.join("flex-provisioner");
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--locked", "--package", "flex-tool", "--bin", "flex-provisioner"]);
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
    let memory = std::env::var_os("TMPDIR").map(|memory| ("TMPDIR", memory));
    let output = command.env_clear().env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").envs(memory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let outcomes = Outcomes::read(&String::from_utf8_lossy(&output.stdout));
    let outcomes = outcomes.unwrap_or_else(|why| panic!("{why}\n{}: {said}", output.status));
    assert!(output.status.success() && outcomes.passed() >= 15, "{outcomes:?}\n{said}");
    nothing_left(backend, &before, "after all cases");
    let row = outcomes.row(&format!("recipes/{class}.yaml"), &change(on_node, arguments));
    conformance_report::check(SOURCE, &[row], "cargo test -p flex-image-kit --test recipes passes_conformance");
}

/// Says for the page which flags the command has.
fn change(on_node: &[&str], arguments: &[&str]) -> String {
    let has = |flag: &str| arguments.iter().any(|argument| argument.starts_with(flag));
    let flags = [
        (!on_node.is_empty() || has("--on-node"), "`--on-node`"),
        (has("--external-storage"), "`--external-storage`"),
        (has("--external-storage="), "the directory of the server"),
    ];
    let flags: Vec<_> = flags.into_iter().filter(|(is_there, _)| *is_there).map(|(_, text)| text).collect();
    format!(" with {}", flags.join(" and "))
}

#[test]
fn the_page_has_a_row_for_each_recipe() {
    let mut configs = conformance_report::configs(SOURCE);
    configs.sort();
    assert_eq!(configs, recipes().iter().map(|recipe| format!("recipes/{recipe}.yaml")).collect::<Vec<_>>());
}

/// Returns a Secret of the namespace of the configs.
pub fn secret(name: &str, data: &[(String, String)]) -> Value {
    let data: serde_json::Map<_, _> = data.iter().map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": "flex-provisioner" },
        "stringData": data,
    })
}
