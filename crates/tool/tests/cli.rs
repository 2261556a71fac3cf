//! Tests of the commands as an admin calls them, without a cluster: their output and their exit codes.

#[path = "cli/complete.rs"]
mod complete;
#[path = "cli/export_traces.rs"]
mod export_traces;
#[path = "cli/fake.rs"]
mod fake;
#[path = "cli/golden.rs"]
mod golden;
#[path = "cli/plugin.rs"]
mod plugin;
#[path = "cli/schema.rs"]
mod schema;
#[path = "cli/schema_rules.rs"]
mod schema_rules;

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

/// The root of this checkout.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CLAIM: &str = "crates/tool/tests/cli/claim.yaml";
const SILVER: &str = "configmaps/silver.yaml";

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
}

/// Runs the program in the project's directory, without environment variables that could change its output.
fn run(args: &[&str]) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_flex-provisioner"))
        .args(args)
        .current_dir(ROOT)
        .env_clear()
        .output()
        .expect("the program can be started");
    answer(output)
}

fn answer(output: Output) -> Answer {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program prints UTF-8");
    Answer { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    let Answer { out, err, .. } = run(args);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

/// Writes a file of its own: the first example with its mistakes repaired and these lines changed.
fn edited(folder: &tempfile::TempDir, name: &str, edit: impl Fn(String) -> String) -> PathBuf {
    let text = std::fs::read_to_string(PathBuf::from(ROOT).join(SILVER)).unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, edit(text)).unwrap();
    path
}

#[test]
fn a_command_whose_output_is_closed_ends_silently() {
    for args in [
        vec!["validate", SILVER],
        vec!["validate", "--output", "json", SILVER],
        vec!["render", SILVER, CLAIM],
        vec!["render", "--output", "json", SILVER, CLAIM],
    ] {
        let (reader, writer) = std::io::pipe().expect("the system has pipes");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_flex-provisioner"));
        command.args(&args).current_dir(ROOT).env_clear().stdout(writer);
        let output = command.output().expect("the program can be started");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((message.as_str(), output.status.code()), ("", Some(141)), "{args:?}");
    }
}

#[test]
fn the_mistakes_of_the_first_example_are_reported_with_their_lines() {
    let answer = run(&["validate", "crates/tool/tests/cli/seed.yaml"]);
    let message = |line: u32, key: &str, value: &str| {
        format!(
            "crates/tool/tests/cli/seed.yaml:{line}: error: {key}: has no space after the colon, so YAML does not see a key here; write `{key}: {value}`\n"
        )
    };
    let expected = [
        message(12, "service-token", "23092390532lksf90kwelklfw"),
        message(13, "use-nfs-server", "10.10.2.4"),
        message(14, "zone", "west"),
        "0 provisioner configs checked: 3 errors, 0 warnings\n".to_owned(),
    ];
    assert_eq!((answer.out, answer.err.as_str(), answer.code), (expected.concat(), "", Some(1)));
}

#[test]
fn the_example_with_its_spaces_is_valid() {
    let answer = run(&["validate", "--config-namespace", "admin", SILVER]);
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
    assert!(answer.out.ends_with("1 provisioner configs checked: 0 errors, 1 warnings\n"), "{}", answer.out);
    assert!(answer.out.contains(": warning: service-token: stands in a ConfigMap, where many can read it"));
    assert!(!answer.out.contains("23092390532lksf90kwelklfw"), "a token does not belong into a log");
}

#[test]
fn the_valid_example_differs_from_the_first_one_only_in_spaces() {
    let root = PathBuf::from(ROOT);
    let lines = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let config = text.split("\n---").next().unwrap_or_default();
        let own = config.lines().filter(|line| !line.trim_start().starts_with('#') && !line.starts_with("apiVersion"));
        own.map(|line| line.replacen(": ", ":", 1)).collect()
    };
    assert_eq!(lines(SILVER), lines("crates/tool/tests/cli/seed.yaml"));
}

#[test]
fn all_errors_are_reported_at_once_with_their_lines() {
    let answer = json(&["validate", "-o", "json", "--config-namespace", "admin", "crates/tool/tests/cli/broken.yaml"]);
    let mut found: Vec<(u64, &str, &str)> = Vec::new();
    for finding in
        answer["findings"].as_array().unwrap().iter().filter(|f| f["file"] == "crates/tool/tests/cli/broken.yaml")
    {
        let message = finding["message"].as_str().unwrap();
        let start = message.split([':', ' ']).next().unwrap_or_default();
        found.push((finding["line"].as_u64().unwrap(), finding["severity"].as_str().unwrap(), start));
    }
    let expected = [
        (1, "error", "image"),
        (11, "error", "timeout"),
        (12, "error", "path"),
        (13, "error", "capabilities"),
        (15, "error", "pod-template"),
        (29, "warning", "ConfigMap"),
        (31, "warning", "ConfigMap"),
        (31, "warning", "service-account-name"),
        (40, "error", "StorageClass"),
    ];
    assert_eq!(found, expected, "{answer:#}");
    let lonely =
        answer["findings"].as_array().unwrap().iter().find(|f| f["message"].as_str().unwrap().contains("lonely"));
    assert_eq!(lonely.unwrap()["severity"], "error");
    assert_eq!((answer["configs"].as_u64(), answer["errors"].as_u64()), (Some(3), Some(6)));
    assert_eq!(run(&["validate", "-o", "json", "crates/tool/tests/cli/broken.yaml"]).code, Some(1));
}

#[test]
fn all_configs_of_the_project_are_valid() {
    let answer = run(&["validate", "configmaps", "examples/hostpath", "examples/nfs"]);
    assert_eq!(answer.code, Some(0), "{}{}", answer.out, answer.err);
}

#[test]
fn a_missing_file_is_reported() {
    let answer = run(&["validate", "crates/tool/tests/cli/absent.yaml"]);
    assert_eq!((answer.code, answer.out.as_str()), (Some(1), ""));
    assert!(
        answer.err.starts_with("flex-provisioner: crates/tool/tests/cli/absent.yaml cannot be read: "),
        "{}",
        answer.err
    );
}

#[test]
fn whoever_runs_the_orchestrator_as_before_is_told_its_program() {
    let answer = run(&["run", "--namespace", "storage"]);
    let says = "flex-provisioner: the orchestrator is the program flex-orchestrator: start that, with the same flags\n";
    assert_eq!((answer.out.as_str(), answer.err.as_str(), answer.code), ("", says, Some(1)));
}

#[test]
fn another_plugin_name_can_be_given() {
    let answer = run(&["validate", "--plugin-name", "example.com/other", SILVER]);
    assert!(answer.out.contains("is meant for another plugin than example.com/other"), "{}", answer.out);
    let refused = run(&["validate", "--provisioner-name", "kubernetes.io/nfs", SILVER]);
    assert!(refused.code == Some(2) && refused.err.contains("without a slash"), "{}", refused.err);
    let reserved = run(&["validate", "--provisioner-name", "x.kubernetes.io", SILVER]);
    assert!(reserved.code == Some(2) && reserved.err.contains("belong to Kubernetes itself"), "{}", reserved.err);
}

#[test]
fn the_job_of_the_example_is_printed() {
    let job = json(&["render", "-o", "json", SILVER, CLAIM]);
    assert_eq!((&job["kind"], &job["metadata"]["namespace"]), (&"Job".into(), &"admin".into()));
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["serviceAccountName"], "foo");
    assert_eq!(container["image"], "custom/iscsi-provision");
    let variables = container["env"].as_array().unwrap();
    let variable = |name: &str| variables.iter().find(|variable| variable["name"] == name).unwrap_or(&Value::Null);
    for (name, value) in [
        ("OPERATION", "provision"),
        ("PVC_NAME", "data"),
        ("PVC_NAMESPACE", "team"),
        ("SIZE_BYTES", "1073741824"),
        ("STORAGE_CLASS", "silver"),
        ("SERVICE_ACCOUNT", "foo"),
        ("USE_NFS_SERVER", "10.10.2.4"),
        ("ZONE", "west"),
    ] {
        assert_eq!(variable(name)["value"], value, "{name}");
    }
    let token = &variable("SERVICE_TOKEN")["valueFrom"]["configMapKeyRef"];
    assert_eq!((&token["name"], &token["key"]), (&"custom-isci-provisioner".into(), &"service-token".into()));
    assert!(!job.to_string().contains("23092390532lksf90kwelklfw"), "the token is never copied");
}

#[test]
fn a_config_outside_of_the_config_namespaces_gets_no_job() {
    assert_eq!(json(&["render", "-o", "json", "--config-namespace", "admin", SILVER, CLAIM])["kind"], "Job");
    let other = run(&["render", "--config-namespace", "other", SILVER, CLAIM]);
    let says = "is in none of the namespaces of --config-namespace, so the orchestrator ignores it\n";
    assert!(other.code == Some(1) && other.err.contains(says) && other.out.is_empty(), "{}{}", other.out, other.err);
}

#[test]
fn documents_are_indented() {
    for args in [&["version", "--client", "-o", "json"][..], &["render", "-o", "json", SILVER, CLAIM]] {
        assert!(run(args).out.starts_with("{\n  \""), "{args:?}");
    }
}

#[test]
fn the_printed_job_is_yaml_as_well() {
    let yaml = run(&["render", SILVER, CLAIM]).out;
    let read: Value = serde_saphyr::from_str(yaml.trim_start_matches("---\n")).unwrap();
    assert_eq!(read, json(&["render", "-o", "json", SILVER, CLAIM]));
}

#[test]
fn a_selected_node_pins_the_pod() {
    let node = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    let job = json(&["render", "-o", "json", "--node", "node-1", SILVER, CLAIM]);
    assert_eq!(job.pointer(node), Some(&"node-1".into()));
    assert_eq!(json(&["render", "-o", "json", SILVER, CLAIM]).pointer(node), None);
}

#[test]
fn a_claim_that_gets_no_job_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let small = edited(&folder, "small.yaml", |text| text.replace("data:\n", "data:\n  max-size: 1Mi\n"));
    let wrong = edited(&folder, "wrong.yaml", |text| text.replace("data:\n", "data:\n  retries: many\n"));
    for (files, says) in [
        (vec![SILVER], "no PersistentVolumeClaim in configmaps/silver.yaml; add the file with the claim"),
        (vec![CLAIM], "no provisioner ConfigMap or StorageClass for class `silver` among the files"),
        (
            vec!["crates/tool/tests/cli/seed.yaml", CLAIM],
            "crates/tool/tests/cli/seed.yaml:12: service-token: has no space after the colon",
        ),
        (vec![SILVER, CLAIM, "crates/tool/tests/cli/foreign.yaml"], "class `silver` belongs to another provisioner"),
        (
            vec![small.to_str().unwrap(), CLAIM],
            "the claim asks for 1Gi, and class silver provides at most 1Mi; ask for less",
        ),
        (vec![wrong.to_str().unwrap(), CLAIM], "retries: `many` must be a whole number from 0 to 1000"),
    ] {
        let answer = run(&[vec!["render"], files.clone()].concat());
        assert_eq!((answer.code, answer.out.as_str()), (Some(1), ""), "{files:?}");
        assert!(answer.err.contains(says), "{files:?}: {}", answer.err);
    }
}

/// Writes the config of a script, with these lines under the key.
fn scripted(folder: &tempfile::TempDir, script: &str) -> PathBuf {
    let path = folder.path().join("script.yaml");
    let lines: String = script.lines().map(|line| format!("    {line}\n")).collect();
    let text = std::fs::read_to_string(PathBuf::from(ROOT).join("configmaps/script.yaml")).unwrap();
    let (before, _) = text.split_once("  script: |\n").unwrap();
    std::fs::write(&path, format!("{before}  script: |\n{lines}")).unwrap();
    path
}

#[test]
fn a_mistake_in_a_script_is_reported_at_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = scripted(&folder, "set -eu\nif true; then\nfi");
    let answer = json(&["validate", "-o", "json", path.to_str().unwrap()]);
    let [finding] = &answer["findings"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().position(|line| line == "    fi").unwrap() + 1;
    assert_eq!((finding["line"].as_u64(), finding["severity"].as_str()), (Some(line as u64), Some("error")));
    assert!(finding["message"].as_str().unwrap().starts_with("script: the shell cannot read it: "), "{finding}");
}

#[test]
fn what_shellcheck_says_of_a_script_is_a_warning_at_its_line() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = scripted(&folder, "set -eu\necho $volume\n");
    let tools = tempfile::tempdir().unwrap();
    let fake = tools.path().join("shellcheck");
    let says = r#"[{"line":2,"level":"warning","code":2086,"message":"Double quote"},{"line":1,"level":"style","code":1,"message":"taste"}]"#;
    std::fs::write(&fake, format!("#!/bin/sh\ngrep -q 'echo .volume' || exit 2\necho '{says}'\nexit 1\n")).unwrap();
    std::fs::set_permissions(&fake, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_flex-provisioner"))
        .args(["validate", path.to_str().unwrap()])
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", tools.path().display()))
        .output()
        .unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{}:23: warning: script: shellcheck SC2086: Double quote\n", path.display());
    assert_eq!(out, format!("{expected}1 provisioner configs checked: 0 errors, 1 warnings\n"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn render_shows_the_script_and_its_image() {
    let folder = tempfile::tempdir().unwrap();
    let claim = folder.path().join("claim.yaml");
    let text = std::fs::read_to_string(PathBuf::from(ROOT).join("examples/script/claim.yaml"));
    std::fs::write(&claim, text.unwrap().split("\n---").next().unwrap()).unwrap();
    let files = ["configmaps/script.yaml", claim.to_str().unwrap()];
    let job = json(&[&["render", "-o", "json", "--shell-image", "registry.example/shell:1"][..], &files].concat());
    let template = &job["spec"]["template"];
    let container = &template["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example/shell:1");
    assert_eq!(container["command"], serde_json::json!(["/bin/sh", "/etc/flex-script/script"]));
    let script = template["metadata"]["annotations"]["flex-provisioner.io/script"].as_str().unwrap();
    assert!(script.contains("flex-pv create --local \"$volume\""), "{script}");
    let shipped = json(&[&["render", "-o", "json"][..], &files].concat());
    let image = shipped["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    assert_eq!(image, concat!("localhost/flex-provisioner/shell:", env!("CARGO_PKG_VERSION")));
}
