//! `conformance --cluster` on the whole cluster with pods: with the shipped config, with a script that breaks a rule, and
//! by a user without rights. No call leaves anything behind.

use std::collections::BTreeMap;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use orchestrator::deployed::{HOSTPATH, directory, make_directory, root, users, volumes_in};
use orchestrator::programs::tool;
use orchestrator::ring::{OWN, Ring};
use orchestrator::wait::{unexpected, until};
use serde_json::Value;

/// The cases that a cluster cannot do.
const NOT_POSSIBLE: [&str; 18] = [
    "killed-at-child",
    "killed-at-create",
    "volume-is-last",
    "interleaved",
    "unknown-parameter",
    "other-path",
    "storage-fails",
    "last-words",
    "no-secret-in-words",
    "next-volume-empty",
    "delete-half-made",
    "delete-alone",
    "hostile-content",
    "delete-killed",
    "clone-killed",
    "snapshot-killed",
    "snapshot-outlives",
    "list-or-nothing",
];

/// The end of a call: its exit code, the outcome of each case with the reason, and what it printed.
pub struct Ended {
    pub code: i32,
    pub outcomes: BTreeMap<String, (String, String)>,
    pub text: String,
}

/// Runs the command, as an admin or with more flags.
pub async fn conformance(ring: &Ring, flags: &[&str]) -> Ended {
    let mut command = tokio::process::Command::new(tool());
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
    let claims = Api::<PersistentVolumeClaim>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let all = jobs.into_iter().map(|one| one.metadata).chain(pods.into_iter().map(|one| one.metadata));
    let all = all.chain(claims.into_iter().map(|one| one.metadata));
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
    assert!(passed >= 17, "{}", ended.text);
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
    let cases = ["--only", "unknown-operation", "--only", "volume-fits", "--only", "delete-twice"];
    let ended = conformance(&ring, &[&["--cluster-config", config.as_str()], cases.as_slice()].concat()).await;
    let failed: Vec<_> = ended.outcomes.iter().filter(|(_, (outcome, _))| outcome == "failed").collect();
    assert_eq!((ended.code, failed.len()), (1, 1), "{}", ended.text);
    assert_eq!(failed[0].0, "unknown-operation", "{}", ended.text);
    for case in ["volume-fits", "delete-twice"] {
        assert_eq!(ended.outcomes[case].0, "passed", "{}", ended.text);
    }
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

/// The flags for the cases that compare the content of copies.
pub const COPIES: [&str; 4] = ["--only", "clone-content", "--only", "snapshot-restore"];

/// Creates a class of directories whose script makes copies. Returns the directory of its volumes.
async fn copies_class(ring: &Ring, class: &str, provision: &str, capabilities: &str) -> String {
    let base = directory(class);
    make_directory(&base);
    let script = format!(
        "set -eu\nvolume={base}/$CLAIM_UUID snapshot={base}/.snapshot-${{SNAPSHOT_ID:-}}\ncase $OPERATION in\nprovision)\n{provision}\n;;\n\
         delete) exec flex-pv remove \"$volume\" ;;\nsnapshot) rm -rf \"$snapshot\" && cp -a \"$volume\" \"$snapshot\" ;;\n\
         delete-snapshot) exec flex-pv remove \"$snapshot\" ;;\n*) exec flex-pv fail never \"it cannot $OPERATION\" ;;\nesac\n"
    );
    let mounts = format!("volumeMounts: [{{name: d, mountPath: {base}}}]");
    let add = "securityContext: {capabilities: {drop: [ALL], add: [CHOWN, DAC_OVERRIDE, FOWNER, FSETID]}}";
    let template = format!(
        "{{spec: {{containers: [{{name: provisioner, {add}, {mounts}}}], volumes: [{{name: d, hostPath: {{path: {base}, type: Directory}}}}]}}}}"
    );
    let data = [
        ("image", "-"),
        ("script", script.as_str()),
        ("run-as-user", "0"),
        ("placement", "selected-node"),
        ("volume-sources", &format!("local:{base}")),
        ("pod-template", &template),
        ("capabilities", capabilities),
        ("service-account-name", "flex-provisioner-shell"),
    ];
    ring.config(class, class, &data).await;
    base
}

async fn delete_config(ring: &Ring, class: &str) {
    ring.api::<ConfigMap>(OWN).delete(class, &DeleteParams::default()).await.unwrap();
}

/// A clone lacks a file in a directory, and a restored volume has the content of its source as it is now.
#[tokio::test]
async fn a_copy_that_differs_from_its_source_fails_its_case() {
    let ring = users("conformance-copies").await;
    let provision = "case ${CLONE_OF:-}${SNAPSHOT_ID:-} in\n\
        '') mkdir -p \"$volume\" && chmod 0777 \"$volume\" ;;\n\
        *) from=$(dirname \"$volume\")/${CLONE_OF:-$SNAPSHOT_OF}; rm -rf \"$volume\" && cp -a \"$from\" \"$volume\"; \
           [ -z \"${CLONE_OF:-}\" ] || echo lost >\"$volume/flex-directory/flex-content\" ;;\nesac\n\
        exec flex-pv create --copied --local \"$volume\"";
    let class = "conformance-copies";
    let base = copies_class(&ring, class, provision, "clone, snapshot").await;
    let ended =
        conformance(&ring, &[&["--cluster-config", &format!("{OWN}/{class}")], COPIES.as_slice()].concat()).await;
    assert_eq!(ended.code, 1, "{}", ended.text);
    for case in ["clone-content", "snapshot-restore"] {
        let (outcome, why) = &ended.outcomes[case];
        let expected = ("failed", "the new volume has other content than its source had");
        assert_eq!((outcome.as_str(), why.as_str()), expected, "{case}: {}", ended.text);
    }
    assert_eq!(volumes_in(&base).len(), 0, "{}", ended.text);
    delete_config(&ring, class).await;
}

/// A clone of a block volume differs in its last block.
#[tokio::test]
async fn a_block_volume_whose_copy_lacks_its_end_fails_the_case() {
    let ring = users("conformance-blocks").await;
    let class = "conformance-blocks";
    let config = std::fs::read_to_string(root().join("configmaps/hostpath-block.yaml")).unwrap();
    let (base, devices) = (directory(class), format!("/dev/{class}"));
    make_directory(&base);
    let script = "/provision.sh || exit\n[ -z \"${CLONE_OF:-}\" ] || dd if=/dev/zero of=\"$DEVICES/$CLAIM_UUID\" bs=512 \
         seek=$((SIZE_BYTES / 512 - 1)) count=1 conv=notrunc,fsync";
    let wrong = format!("  command: \"[sh]\"\n  args: '{}'\n  pod-template:", serde_json::json!(["-c", script]));
    let config = config.split("\n---").next().unwrap().replace("hostpath-block\n", &format!("{class}\n"));
    let config = config.replace("/var/lib/flex-hostpath-block", &base).replace("/dev/flex-hostpath", &devices);
    let config = ring.file("wrong.yaml", &config.replacen("  pod-template:", &wrong, 1)).display().to_string();
    let claim = format!(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c, namespace: team}}, spec: {{storageClassName: {class}, \
         accessModes: [ReadWriteOnce], volumeMode: Block, resources: {{requests: {{storage: 16Mi}}}}}}}}\n"
    );
    let claim = ring.file("claim.yaml", &claim).display().to_string();
    let ended = conformance(&ring, &["--config", &config, "--claim", &claim, "--only", "clone-content"]).await;
    let (outcome, why) = &ended.outcomes["clone-content"];
    assert_eq!(outcome, "failed", "{}", ended.text);
    assert!(why.contains("has other content than its source had"), "{}", ended.text);
    assert_eq!(volumes_in(&base).len(), 0, "{}", ended.text);
    let _ = std::fs::remove_dir(&devices);
}

#[tokio::test]
async fn a_volume_that_no_pod_can_mount_fails_with_the_events_of_the_pod_and_a_signal_leaves_nothing() {
    let ring = users("conformance-mounts").await;
    let class = "conformance-mounts";
    let provision = "mkdir -p \"$volume\"\nexec flex-pv create --copied --local \"$volume/absent\"";
    let base = copies_class(&ring, class, provision, "clone").await;
    let config = format!("{OWN}/{class}");
    let flags = ["--cluster-config", config.as_str(), "--only", "clone-content"];
    let failure = async |limit: u32| {
        let ended = conformance(&ring, &[flags.as_slice(), &["--mount-timeout", &format!("{limit}s")]].concat()).await;
        let (outcome, why) = &ended.outcomes["clone-content"];
        assert_eq!((ended.code, outcome.as_str()), (1, "failed"), "{}", ended.text);
        assert!(why.contains(&format!("within {limit} s: ")), "{why}");
        why.clone()
    };
    let mut why = failure(15).await;
    // On a busy machine the kubelet may begin with the pod later.
    if !why.contains("FailedMount") {
        why = failure(240).await;
    }
    for part in ["the pod that writes into the volume pvc-", "FailedMount: ", "/absent"] {
        assert!(why.contains(part), "{part}: {why}");
    }

    let mut command = tokio::process::Command::new(tool());
    command.args(["conformance", "--cluster"]).args(flags);
    command.env("KUBECONFIG", ring.cluster().kubeconfig()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let pods: Api<Pod> = ring.api(OWN);
    let of_mount = ListParams::default().labels("flex-provisioner.io/mount-of");
    let begun = until("a pod mounts the volume", || async {
        // Other calls mount volumes at the same time.
        let volumes = Api::<PersistentVolume>::all(ring.client.clone()).list(&of_mount).await.unwrap().items;
        let is_own = |volume: &PersistentVolume| {
            let local = volume.spec.as_ref().and_then(|spec| spec.local.as_ref());
            local.is_some_and(|local| local.path.starts_with(&base))
        };
        let labels = volumes.iter().find(|volume| is_own(volume)).and_then(|volume| volume.metadata.labels.clone());
        let instance = labels.map(|labels| labels[names::LABEL_INSTANCE].clone());
        let found = pods.list(&of_mount).await.map_err(|error| error.to_string())?.items;
        let has_pod = found.iter().any(|pod| {
            pod.metadata.labels.as_ref().and_then(|all| all.get(names::LABEL_INSTANCE)) == instance.as_ref()
        });
        instance.filter(|_| has_pod).map_or_else(|| unexpected("no pod"), Ok)
    })
    .await;
    let pid = child.id().unwrap();
    assert!(std::process::Command::new("kill").args(["-2", &pid.to_string()]).status().unwrap().success());
    let output = child.wait_with_output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(&begun) && text.contains("stopped by a signal") && !text.contains("left behind"), "{text}");
    nothing_left(&ring, &text).await;
    assert_eq!(volumes_in(&base).len(), 0, "{text}");
    delete_config(&ring, class).await;
}
