//! `conformance --cluster` on the whole cluster with pods: with the shipped config, with a script that breaks a rule, and
//! by a user without rights. No call leaves anything behind.

use std::collections::BTreeMap;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use orchestrator::deployed::{HOSTPATH, directory, make_directory, users, volumes_in};
use orchestrator::ring::{OWN, Ring, program};
use serde_json::Value;

/// The cases that a cluster cannot do.
const NOT_POSSIBLE: [&str; 11] = [
    "killed-at-child",
    "killed-at-create",
    "volume-is-last",
    "last-words",
    "no-secret-in-words",
    "delete-half-made",
    "delete-killed",
    "clone-content",
    "clone-killed",
    "snapshot-restore",
    "list-or-nothing",
];

/// The end of a call: its exit code, the outcome of each case with the reason, and what it printed.
struct Ended {
    code: i32,
    outcomes: BTreeMap<String, (String, String)>,
    text: String,
}

/// Runs the command, as an admin or with more flags.
async fn conformance(ring: &Ring, flags: &[&str]) -> Ended {
    let mut command = tokio::process::Command::new(program());
    command.args(["conformance", "--cluster", "-o", "json"]).args(flags);
    let output = command.env("KUBECONFIG", ring.cluster().kubeconfig()).output().await.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&out).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let cases = report["cases"].as_array().cloned().unwrap_or_default();
    let outcomes = cases.iter().map(|case| (text(&case["id"]), (text(&case["outcome"]), text(&case["why"])))).collect();
    let code = output.status.code().unwrap();
    nothing_left(ring, &err).await;
    Ended { code, outcomes, text: format!("{out}{err}") }
}

/// Returns the instance id of a call, as it printed it; `None` if it began no run.
fn instance(text: &str) -> Option<String> {
    let label = format!("{}=", names::LABEL_INSTANCE);
    let rest = text.split(&label).nth(1)?;
    Some(rest.split_whitespace().next().unwrap_or_default().to_owned())
}

/// Returns the directories of a class that a call has made.
fn directories(of: &str, text: &str) -> Vec<String> {
    let instance = instance(text).expect("the call began runs");
    let run = instance.strip_prefix("conformance-").expect("each call has this prefix");
    volumes_in(of).into_iter().filter(|id| id.starts_with(run)).collect()
}

/// Checks that no object of a call is left. Other calls run at the same time.
async fn nothing_left(ring: &Ring, text: &str) {
    let Some(instance) = instance(text) else { return };
    let labelled = ListParams::default().labels(&format!("{}={instance}", names::LABEL_INSTANCE));
    let jobs = Api::<Job>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let pods = Api::<Pod>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let volumes = Api::<PersistentVolume>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let all = jobs.into_iter().map(|one| one.metadata).chain(pods.into_iter().map(|one| one.metadata));
    let left: Vec<_> = all.chain(volumes.into_iter().map(|one| one.metadata)).filter_map(|one| one.name).collect();
    assert!(left.is_empty(), "{left:?} are left: {text}");
}

#[tokio::test]
async fn the_shipped_config_passes_all_cases_that_a_cluster_can_do() {
    let ring = users("conformance-shipped").await;
    let config = format!("{OWN}/hostpath");
    let ended = conformance(&ring, &["--cluster-config", &config]).await;
    assert_eq!(ended.code, 0, "{}", ended.text);
    for (case, (outcome, why)) in &ended.outcomes {
        let expected = if NOT_POSSIBLE.contains(&case.as_str()) { "not-possible" } else { "passed" };
        let undeclared = why.contains("does not declare the capability");
        // A short program ends before a signal reaches it.
        let too_short = case == "ends-after-sigterm" && outcome == "skipped";
        assert!(outcome == expected || undeclared || too_short, "{case}: {outcome}: {why}");
    }
    let passed = ended.outcomes.values().filter(|(outcome, _)| outcome == "passed").count();
    assert!(passed >= 15, "{}", ended.text);
    println!("{passed} cases passed on the cluster");
    // Other tests make volumes in the directory, too. Those of this command have ids of its own.
    assert_eq!(directories(HOSTPATH, &ended.text).len(), 0, "{}", ended.text);
}

#[tokio::test]
async fn a_script_that_breaks_a_rule_fails_the_case_of_that_rule_alone() {
    let ring = users("conformance-broken").await;
    let (class, base) = ("conformance-broken", directory("conformance-broken"));
    make_directory(&base);
    let script = format!(
        "set -eu\nvolume={base}/$CLAIM_UUID\ncase $OPERATION in\nprovision) mkdir -p \"$volume\" && exec flex-pv create --local \"$volume\" ;;\ndelete) exec flex-pv remove \"$volume\" ;;\nlist) {{ for id in $(ls {base}); do echo \"volume $id - {base}/$id\"; done; echo end; }} | flex-pv list ;;\n*) ;;\nesac\n"
    );
    let template = format!(
        "{{spec: {{containers: [{{name: provisioner, volumeMounts: [{{name: d, mountPath: {base}}}]}}], volumes: [{{name: d, hostPath: {{path: {base}, type: Directory}}}}]}}}}"
    );
    let sources = format!("local:{base}");
    let data = [
        ("image", "-"),
        ("script", script.as_str()),
        ("run-as-user", "0"),
        ("placement", "selected-node"),
        ("volume-sources", &sources),
        ("pod-template", &template),
        ("capabilities", "list"),
        ("service-account-name", "flex-provisioner-shell"),
    ];
    ring.config(class, class, &data).await;
    let config = format!("{OWN}/{class}");
    let ended = conformance(&ring, &["--cluster-config", &config]).await;
    let failed: Vec<_> = ended.outcomes.iter().filter(|(_, (outcome, _))| outcome == "failed").collect();
    assert_eq!((ended.code, failed.len()), (1, 1), "{}", ended.text);
    assert_eq!(failed[0].0, "unknown-operation", "{}", ended.text);
    assert_eq!(volumes_in(&base).len(), 0, "{:?} are left", volumes_in(&base));
    ring.api::<ConfigMap>(OWN).delete(class, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_user_without_rights_changes_nothing_and_a_missing_image_is_named() {
    let ring = users("conformance-rights").await;
    let config = format!("{OWN}/hostpath");
    let ended = conformance(&ring, &["--cluster-config", &config, "--as", "somebody"]).await;
    assert_eq!((ended.code, instance(&ended.text)), (2, None), "{}", ended.text);
    assert!(ended.text.contains("create/delete/get/list jobs.batch in namespace flex-provisioner"), "{}", ended.text);

    let missing = "localhost/flex-provisioner/no-such-image:1";
    let ended = conformance(&ring, &["--cluster-config", &config, "--image", missing, "--only", "volume-fits"]).await;
    assert_eq!(ended.code, 2, "{}", ended.text);
    assert!(
        ended.text.contains("has not started within 30 s") && ended.text.contains("no-such-image"),
        "{}",
        ended.text
    );
}

#[tokio::test]
async fn a_signal_ends_the_command_and_its_objects_and_storage_are_removed() {
    let ring = users("conformance-signal").await;
    let mut command = tokio::process::Command::new(program());
    command.args([
        "conformance",
        "--cluster",
        "--cluster-config",
        &format!("{OWN}/hostpath"),
        "--only",
        "killed-at-times",
    ]);
    command.env("KUBECONFIG", ring.cluster().kubeconfig()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(std::process::Command::new("kill").args(["-2", &pid.to_string()]).status().unwrap().success());
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("stopped by a signal") && !text.contains("left behind"), "{text}");
    nothing_left(&ring, &text).await;
    assert_eq!(directories(HOSTPATH, &text).len(), 0, "{text}");
}
