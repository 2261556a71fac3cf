//! Tests of what makes the program a plugin of kubectl.

use serde_json::json;

use super::fake::{Server, deployment, list, status};
use super::run;

const DEPLOYMENTS: &str = "/apis/apps/v1/deployments?";
const PODS: &str = "/apis/apps/v1/namespaces/";

/// The answers to `vouch --all`, which reads much, and prints nothing where there is nothing.
fn vouch(deployments: (u16, String)) -> Server {
    let (code, text) = deployments;
    let lists = ["/api/v1/", "/apis/storage.k8s.io/", "/apis/batch/", "/apis/apps/v1/namespaces/"];
    let lists = lists.map(|path| (path, 200, list(&[])));
    Server::start([vec![(DEPLOYMENTS, code, text)], lists.to_vec()].concat())
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
fn several_orchestrators_are_listed() {
    let two = vouch((200, list(&[deployment("b", &["--instance=y"]), deployment("a", &[])])));
    let answer = two.run(&["vouch", "--all"]);
    let expected = "flex-provisioner: several orchestrators are installed: name one of them
  --namespace a --instance default    (provisioner flex-provisioner.io)
  --namespace b --instance y    (provisioner flex-provisioner.io)
";
    assert_eq!((answer.err.as_str(), answer.code), (expected, Some(1)));
    let named = two.run(&["vouch", "--all", "--instance", "y"]);
    assert_eq!((named.err.as_str(), namespaces(&two)), ("", vec!["b".to_owned()]));
}

#[test]
fn a_user_who_may_not_list_deployments_gets_the_usual_names_and_is_told_so() {
    let forbidden = vouch((403, status(403, "Forbidden")));
    let answer = forbidden.run(&["vouch", "--all"]);
    let note = "You may not list Deployments, so the orchestrator is taken to be instance default in namespace flex-provisioner: name another with --instance and --namespace.\n";
    assert_eq!((answer.err.as_str(), namespaces(&forbidden)), (note, vec!["flex-provisioner".to_owned()]));
    let named = forbidden.run(&["vouch", "--all", "--instance", "default"]);
    assert_eq!(named.err, "");
}
