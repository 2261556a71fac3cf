//! Tests of what makes the program a plugin of kubectl.

use serde_json::json;

use super::fake::{REVIEWS, Server, deployment, list, review, status};
use super::run;

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments?";
const PODS: &str = "/apis/apps/v1/namespaces/";

/// The answers to `vouch --all`, which reads much, and prints nothing where there is nothing.
fn vouch(deployments: (u16, String)) -> Server {
    vouch_with(deployments, true)
}

/// The same, for accounts of Deployments that have the rights of an orchestrator, or do not.
fn vouch_with((code, text): (u16, String), allowed: bool) -> Server {
    let lists = ["/api/v1/", "/apis/storage.k8s.io/", "/apis/batch/", "/apis/apps/v1/namespaces/"];
    let lists = lists.map(|path| (path, 200, list(&[])));
    let first = vec![(DEPLOYMENTS, code, text), (REVIEWS, 201, review(allowed))];
    Server::start([first, lists.to_vec()].concat())
}

/// Returns the namespaces from which a command read stored configs: those of the orchestrators that it took for its own.
fn namespaces(server: &Server) -> Vec<String> {
    let of = |head: &String| {
        let (namespace, rest) = head.split(' ').nth(1)?.strip_prefix(PODS)?.split_once('/')?;
        rest.starts_with("controllerrevisions").then(|| namespace.to_owned())
    };
    let mut found: Vec<String> = server.heads().iter().filter_map(of).collect();
    found.dedup();
    found
}

#[test]
fn a_missing_kubeconfig_or_context_is_an_error_that_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let contexts = json!([{ "name": "home", "context": { "cluster": "c", "user": "" } }]);
    let text = json!({ "apiVersion": "v1", "kind": "Config", "clusters": [], "users": [], "contexts": contexts });
    std::fs::write(&file, text.to_string()).unwrap();
    let absent = run(&["status", "--kubeconfig", "absent.yaml"]);
    assert_eq!(absent.code, Some(1));
    let start = "flex-provisioner: the kubeconfig absent.yaml cannot be read: name another with --kubeconfig: ";
    assert!(absent.err.starts_with(start), "{}", absent.err);
    let wrong = run(&["status", "--kubeconfig", file.to_str().unwrap(), "--context", "away"]);
    let says = "flex-provisioner: the kubeconfig has no context away: name one of its contexts with --context: home\n";
    assert_eq!((wrong.err.as_str(), wrong.code), (says, Some(1)));
    let none = run(&["status", "--kubeconfig", file.to_str().unwrap()]);
    assert!(none.err.contains("has no current context: name one of its contexts with --context: home"), "{}", none.err);
    let group = run(&["status", "--as-group", "admins"]);
    assert!(group.code == Some(2) && group.err.contains("--as <USER>"), "{}", group.err);
}

#[test]
fn the_orchestrator_is_found_by_its_deployment() {
    let one = vouch((200, list(&[deployment("storage", &["--instance", "b"])])));
    let answer = one.run(&["vouch", "--all", "--as", "eve", "--as-group", "admins"]);
    assert_eq!((answer.err.as_str(), namespaces(&one)), ("", vec!["storage".to_owned()]));
    let heads = one.heads();
    let stored = heads.iter().find(|head| head.contains("/controllerrevisions?")).expect("stored configs are read");
    assert!(stored.contains("flex-provisioner.io%2Finstance%3Db"), "{stored}");
    for head in &heads {
        let head = head.to_lowercase();
        assert!(head.contains("impersonate-user: eve\r\nimpersonate-group: admins"), "{head}");
    }
    let none = vouch((200, list(&[])));
    let answer = none.run(&["vouch", "--all"]);
    assert_eq!((answer.err.as_str(), namespaces(&none)), ("", vec!["flex-provisioner".to_owned()]));
}

#[test]
fn a_deployment_whose_account_has_no_rights_of_an_orchestrator_is_ignored() {
    let strangers = vouch_with((200, list(&[deployment("strangers", &["--instance", "b"])])), false);
    let answer = strangers.run(&["vouch", "--all"]);
    assert_eq!((answer.err.as_str(), namespaces(&strangers)), ("", vec!["flex-provisioner".to_owned()]));
    let heads = strangers.heads();
    let questions = heads.iter().filter(|head| head.starts_with(&format!("POST {REVIEWS}")));
    assert_eq!(questions.count(), 1, "two labels lead to the Deployment");
}

#[test]
fn several_orchestrators_are_listed() {
    let two = vouch((200, list(&[deployment("b", &["--instance=y"]), deployment("a", &[])])));
    let answer = two.run(&["vouch", "--all"]);
    let expected = "flex-provisioner: several orchestrators are installed: name one of them
  --flex-namespace a --instance default    (provisioner flex-provisioner.io)
  --flex-namespace b --instance y    (provisioner flex-provisioner.io)
";
    assert_eq!((answer.err.as_str(), answer.code), (expected, Some(1)));
    let named = two.run(&["vouch", "--all", "--instance", "y"]);
    assert_eq!((named.err.as_str(), namespaces(&two)), ("", vec!["b".to_owned()]));
}

#[test]
fn a_user_who_may_not_list_deployments_gets_the_usual_names_and_is_told_so() {
    let forbidden = vouch((403, status(403, "Forbidden")));
    let answer = forbidden.run(&["vouch", "--all"]);
    let note = "You may not list Deployments and ask for the rights of their accounts, so the command takes instance default in namespace flex-provisioner: name another with --instance and --flex-namespace.\n";
    assert_eq!((answer.err.as_str(), namespaces(&forbidden)), (note, vec!["flex-provisioner".to_owned()]));
    let named = forbidden.run(&["vouch", "--all", "--instance", "default"]);
    assert_eq!(named.err, "");
}

/// Returns the program under another name.
fn named(folder: &tempfile::TempDir, name: &str) -> std::path::PathBuf {
    let path = folder.path().join(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_flex-provisioner"), &path).unwrap();
    path
}

fn run_as(program: &std::path::Path, args: &[&str]) -> super::Answer {
    super::answer(std::process::Command::new(program).args(args).env_clear().output().unwrap())
}

#[test]
fn help_and_usage_and_errors_have_the_name_that_users_type() {
    let folder = tempfile::tempdir().unwrap();
    for (file, typed) in [
        ("kubectl-flex", "kubectl flex"),
        ("kubectl-flex-linux-amd64", "kubectl flex"),
        ("flex-provisioner", "flex-provisioner"),
    ] {
        let program = named(&folder, file);
        let help = run_as(&program, &["--help"]);
        assert!(help.out.contains(&format!("Usage: {typed} [OPTIONS] <COMMAND>")), "{file}: {}", help.out);
        let help = run_as(&program, &["status", "--help"]);
        assert!(help.out.contains(&format!("Usage: {typed} status [OPTIONS]")), "{file}: {}", help.out);
        let usage = run_as(&program, &["logs"]);
        assert!(usage.err.contains(&format!("Usage: {typed} logs")), "{file}: {}", usage.err);
        let error = run_as(&program, &["status", "--kubeconfig", "absent"]);
        assert!(error.err.starts_with(&format!("{typed}: the kubeconfig absent ")), "{file}: {}", error.err);
    }
}

#[test]
fn each_shell_gets_a_completion_for_the_file_that_was_started() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = named(&folder, "kubectl-flex");
    for (shell, own, of_plugin) in [
        ("bash", "-F _flex__provisioner ", "-F _kubectl__flex "),
        ("zsh", "#compdef flex-provisioner", "#compdef kubectl-flex"),
        ("fish", "complete -c flex-provisioner ", "complete -c kubectl-flex "),
        ("powershell", "-CommandName 'flex-provisioner'", "-CommandName 'kubectl-flex'"),
    ] {
        let answer = run(&["completion", shell]);
        assert_eq!((answer.code, answer.err.as_str()), (Some(0), ""));
        assert!(answer.out.contains(own) && answer.out.contains("uninstall"), "{shell}");
        let answer = run_as(&plugin, &["completion", shell]);
        assert!(answer.out.contains(of_plugin) && !answer.out.contains(own), "{shell}");
    }
    let script = folder.path().join("completion");
    std::fs::write(&script, run(&["completion", "bash"]).out).unwrap();
    let checked = std::process::Command::new("bash").arg("-n").arg(&script).status().unwrap();
    assert!(checked.success(), "bash cannot read its completion");
    assert_eq!(run(&["completion", "tcsh"]).code, Some(2));
}

#[test]
fn each_command_gets_a_page_of_the_manual() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("share/man1");
    let answer = run(&["man", directory.to_str().unwrap()]);
    assert_eq!((answer.code, answer.out.as_str(), answer.err.as_str()), (Some(0), "", ""));
    let command = flex_tool::command();
    let commands = command.get_subcommands().map(|command| format!("flex-provisioner-{}.1", command.get_name()));
    for page in commands.chain(["flex-provisioner.1".to_owned()]) {
        let text = std::fs::read_to_string(directory.join(&page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        assert!(text.contains(".SH SYNOPSIS"), "{page}: {text}");
    }
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let refused = run(&["man", file.to_str().unwrap()]);
    assert!(refused.code == Some(1) && refused.err.contains("the pages cannot be written into "), "{}", refused.err);
}

const OWN: &str = env!("CARGO_PKG_VERSION");

#[test]
fn the_version_of_the_client_needs_no_cluster() {
    let answer = run(&["version", "--client"]);
    let expected = format!(
        "COMPONENT      VERSION          DETAILS
client         {OWN:<16} this command
contract       1                between orchestrator and images
"
    );
    assert_eq!((answer.out, answer.err.as_str(), answer.code), (expected, "", Some(0)));
    assert_eq!(super::json(&["version", "--client", "-o", "json"]), json!({ "client": OWN, "contract": 1 }));
    let without = run(&["version"]);
    assert!(without.code == Some(1) && without.out.contains("client "), "{}{}", without.out, without.err);
    assert!(without.err.contains("no access to a cluster"), "{}", without.err);
}

#[test]
fn the_version_of_cluster_and_leader_is_printed() {
    let lease = json!({
        "metadata": { "name": "flex-provisioner-b", "annotations": { "flex-provisioner.io/version": "9.9.9 pod-1" } },
        "spec": { "holderIdentity": "pod-1" },
    });
    let version = json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.2", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
    let server = Server::start(vec![
        (DEPLOYMENTS, 200, list(&[deployment("storage", &["--instance", "b"])])),
        ("/apis/coordination.k8s.io/v1/namespaces/storage/leases/flex-provisioner-b", 200, lease.to_string()),
        ("/version", 200, version.to_string()),
    ]);
    let answer = server.run(&["version"]);
    let expected = "kubernetes     v1.36.2          the API server
orchestrator   9.9.9            pod-1 leads in namespace storage: use the command of the orchestrator's version
";
    assert!(answer.out.ends_with(expected) && answer.code == Some(0), "{}{}", answer.out, answer.err);
    let found: serde_json::Value = serde_json::from_str(&server.run(&["version", "-o", "json"]).out).unwrap();
    let orchestrator = json!({ "version": "9.9.9", "leader": "pod-1", "namespace": "storage" });
    assert_eq!((&found["kubernetes"], &found["orchestrator"]), (&json!("v1.36.2"), &orchestrator));
}

/// A cluster with a claim whose third attempt has failed, and the pods of its second and third attempt, if any.
fn failing(pods: &[serde_json::Value], log: (u16, String)) -> Server {
    let failure = json!({ "operation": "provision", "attempt": 3, "at": 1, "kind": "retry", "reason": "ExitCode", "message": "exit code 75: off" });
    let annotations = json!({
        "flex-provisioner.io/claim-uuid": "u", "flex-provisioner.io/attempt": "3",
        "flex-provisioner.io/config": "storage/c@1", "flex-provisioner.io/last-failure": failure.to_string(),
    });
    let metadata = json!({ "name": "data", "namespace": "team", "uid": "u", "annotations": annotations });
    let claim = json!({ "metadata": metadata, "spec": {}, "status": { "phase": "Pending" } });
    Server::start(vec![
        (DEPLOYMENTS, 200, list(&[deployment("storage", &[])])),
        ("/api/v1/namespaces/team/persistentvolumeclaims/data", 200, claim.to_string()),
        ("/api/v1/persistentvolumes?", 200, list(&[])),
        ("/apis/batch/v1/namespaces/storage/jobs?", 200, list(&[])),
        ("/api/v1/namespaces/storage/pods?", 200, list(pods)),
        ("/api/v1/namespaces/storage/pods/second/log?", 200, "earlier words\n".to_owned()),
        ("/api/v1/namespaces/storage/pods/third/log?", log.0, log.1),
    ])
}

fn pod(name: &str, attempt: &str) -> serde_json::Value {
    let labels = json!({
        "flex-provisioner.io/operation": "provision", "flex-provisioner.io/claim-uuid": "u",
        "flex-provisioner.io/attempt": attempt,
    });
    json!({ "metadata": { "name": name, "namespace": "storage", "labels": labels } })
}

#[test]
fn the_log_of_an_attempt_is_printed() {
    let pods = [pod("second", "2"), pod("third", "3")];
    let server = failing(&pods, (200, "the array is\u{1b}[31m off\n".to_owned()));
    for args in [&["logs", "team/data"][..], &["logs", "-n", "team", "data"], &["logs", "data"]] {
        let answer = server.run(args);
        let is = (answer.out.as_str(), answer.err.as_str(), answer.code);
        assert_eq!(is, ("the array is\\u{1b}[31m off\n", "", Some(0)), "{args:?}");
    }
    assert_eq!(server.run(&["logs", "data", "--previous"]).out, "earlier words\n");
    let absent = server.run(&["logs", "team/other"]);
    let says = "flex-provisioner: claim team/other does not exist, and neither a volume nor a Job of it is left\n";
    assert_eq!((absent.err.as_str(), absent.code), (says, Some(1)));
    let waiting = failing(&pods, (400, status(400, "waiting to start: ContainerCreating"))).run(&["logs", "data"]);
    let says = "pod storage/third has no log: waiting to start: ContainerCreating\n";
    assert_eq!((waiting.out.as_str(), waiting.code), (says, Some(2)));
}

#[test]
fn the_last_words_remain_when_the_pod_is_gone() {
    let answer = failing(&[], (404, status(404, "NotFound"))).run(&["logs", "data"]);
    let says =
        "claim team/data: no pod of attempt 3 exists any more; its last words were: ExitCode: exit code 75: off\n";
    assert_eq!((answer.out.as_str(), answer.err.as_str(), answer.code), (says, "", Some(2)));
}

/// A cluster with a volume whose claim is gone, because its delete run has failed.
fn released(pods: &[serde_json::Value]) -> Server {
    let failure = json!({ "operation": "delete", "attempt": 1, "at": 1, "kind": "retry", "reason": "ExitCode", "message": "exit code 75: in use" });
    let annotations = json!({
        "flex-provisioner.io/claim-uuid": "u", "flex-provisioner.io/last-failure": failure.to_string(),
    });
    let volume = json!({
        "metadata": { "name": "pvc-u", "uid": "v", "annotations": annotations },
        "spec": {
            "storageClassName": "gold", "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": { "namespace": "team", "name": "gone", "uid": "u" },
        },
        "status": { "phase": "Released" },
    });
    Server::start(vec![
        (DEPLOYMENTS, 200, list(&[deployment("storage", &[])])),
        ("/api/v1/persistentvolumes/pvc-u", 200, volume.to_string()),
        ("/api/v1/persistentvolumes?", 200, list(&[volume])),
        ("/apis/batch/v1/namespaces/storage/jobs?", 200, list(&[])),
        ("/api/v1/namespaces/storage/pods?", 200, list(pods)),
        ("/api/v1/namespaces/storage/pods/deletes/log?", 200, "the LUN is in use\n".to_owned()),
    ])
}

#[test]
fn a_claim_that_is_gone_is_known_by_its_own_name_and_by_its_volume() {
    let labels = json!({
        "flex-provisioner.io/operation": "delete", "flex-provisioner.io/claim-uuid": "u",
        "flex-provisioner.io/attempt": "1",
    });
    let pod = json!({ "metadata": { "name": "deletes", "namespace": "storage", "labels": labels } });
    let server = released(&[pod]);
    for name in ["gone", "pvc/gone", "team/gone", "pv/pvc-u", "persistentvolume/pvc-u"] {
        let answer = server.run(&["logs", name]);
        let is = (answer.out.as_str(), answer.err.as_str(), answer.code);
        assert_eq!(is, ("the LUN is in use\n", "", Some(0)), "{name}");
        let answer = server.run(&["trace", name]);
        let says = "Volume pvc-u of class gold: its claim team/gone is gone, and the volume is Released, with the policy Delete.\nIts delete run 1 failed ";
        assert!(answer.out.starts_with(says) && answer.code == Some(2), "{}{}", answer.out, answer.err);
        let answer = server.run(&["retry", name, "--dry-run"]);
        let says = "volume pvc-u: would be tried again: delete run 1 failed ";
        assert!(answer.out.starts_with(says) && answer.code == Some(0), "{}{}", answer.out, answer.err);
    }
    let answer = released(&[]).run(&["logs", "gone"]);
    let says =
        "volume pvc-u: no pod of attempt 1 exists any more; its last words were: ExitCode: exit code 75: in use\n";
    assert_eq!((answer.out.as_str(), answer.code), (says, Some(2)));
    let answer = server.run(&["trace", "pv/pvc-other"]);
    assert_eq!(answer.err, "flex-provisioner: volume pvc-other does not exist\n");
}
