//! Tests of the completion of `kubectl flex`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use serde_json::json;

use super::fake::{Server, list, status};
use super::run;

fn named(name: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name } })
}

/// Returns the claims of a namespace.
fn claims(names: &[&str]) -> String {
    let items: Vec<_> = names.iter().map(|name| named(name)).collect();
    json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items })
        .to_string()
}

fn cluster() -> Server {
    let class = json!({ "metadata": { "name": "gold" }, "provisioner": "flex-provisioner.io" });
    let other = json!({ "metadata": { "name": "fast" }, "provisioner": "other.example" });
    Server::start(vec![
        ("/apis/apps/v1/deployments?", 200, list(&[])),
        ("/apis/storage.k8s.io/v1/storageclasses", 200, list(&[class, other])),
        ("/api/v1/namespaces/team/persistentvolumeclaims", 200, claims(&["data", "cache", "db"])),
        ("/api/v1/namespaces/other/persistentvolumeclaims", 200, claims(&["theirs"])),
        ("/api/v1/namespaces/closed/persistentvolumeclaims", 403, status(403, "Forbidden")),
        ("/api/v1/namespaces?", 200, list(&[named("team"), named("other")])),
        ("/api/v1/", 200, list(&[])),
        ("/apis/apps/v1/namespaces/", 200, list(&[])),
    ])
}

/// Returns the candidates for the last word, without their help, and the directive.
fn completed(server: &Server, words: &[&str]) -> (Vec<String>, String) {
    let answer = server.run(&[&["__complete"], words].concat());
    assert_eq!((answer.err.as_str(), answer.code), ("", Some(0)), "{words:?}");
    let mut lines: Vec<_> =
        answer.out.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect();
    let directive = lines.pop().expect("the last line is the directive");
    (lines, directive)
}

#[test]
fn the_words_of_kubectl_flex_are_completed_from_the_command_line_and_the_cluster() {
    let server = cluster();
    let candidates = |words: &[&str]| completed(&server, words).0;
    let commands = candidates(&[""]);
    assert!(commands.contains(&"trace".into()) && commands.contains(&"status".into()), "{commands:?}");
    assert!(commands.iter().all(|word| !word.starts_with('-')), "flags come when a word begins with a hyphen");
    assert_eq!(candidates(&["tra"]), ["trace"]);
    assert!(candidates(&["trace", "--wa"]).contains(&"--watch".into()));
    assert_eq!(candidates(&["status", "-o", ""]), ["table", "wide", "json", "yaml", "name"]);
    assert_eq!(candidates(&["status", ""]), ["gold"], "classes of others are no candidates");
    assert_eq!(candidates(&["explain", "go"]), ["gold"]);
    assert_eq!(candidates(&["retry", "--class", ""]), ["gold"]);
    assert_eq!(candidates(&["trace", ""]), ["cache", "data", "db"], "the claims of the context's namespace");
    assert_eq!(candidates(&["logs", "d"]), ["data", "db"]);
    assert_eq!(candidates(&["trace", "-n", "other", ""]), ["theirs"]);
    assert_eq!(candidates(&["trace", "other/t"]), ["other/theirs"]);
    assert_eq!(candidates(&["trace", "pvc/d"]), ["pvc/data", "pvc/db"]);
    assert_eq!(candidates(&["export-traces", "-n", ""]), ["other", "team"]);
    assert_eq!(candidates(&["status", "--context", ""]), ["test"]);
    assert_eq!(candidates(&["trace", "closed/"]), [""; 0], "nobody reads an error at this moment");
    assert_eq!(completed(&server, &["trace", ""]).1, ":4", "no files");
    assert_eq!(
        completed(&server, &["validate", "example"]),
        (vec!["examples/".into()], ":6".into()),
        "the path goes on"
    );
}

#[test]
fn without_a_cluster_the_command_line_is_completed() {
    let answer = run(&["__complete", "trace", ""]);
    assert_eq!((answer.out.as_str(), answer.err.as_str(), answer.code), (":4\n", "", Some(0)));
    assert!(run(&["__complete", "tra"]).out.starts_with("trace\t"));
    assert!(run(&["__complete"]).out.contains("\n:4\n"));
}

#[test]
fn the_program_for_kubectl_calls_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_flex-provisioner"), folder.path().join("kubectl-flex")).unwrap();
    let script = folder.path().join("kubectl_complete-flex");
    std::fs::write(&script, run(&["completion", "kubectl"]).out).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/bin:/usr/bin", folder.path().display());
    let output = Command::new(&script).args(["log-l"]).env_clear().env("PATH", path).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed, "log-level\tChange the log filter of the running orchestrator for a time\n:4\n");
}
