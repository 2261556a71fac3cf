//! Tests of `check` before and after the installation: its lines and its exit codes.

use std::process::Command;

use flex_contract::names;
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use orchestrator::commands::{check, lines_of};
use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, Ring};
use orchestrator::wait::{unexpected, until};

#[tokio::test]
async fn a_cluster_is_checked_before_the_installation() {
    let ring = Ring::without_orchestrator(&[]).await;
    let (code, lines) = check(ring.cluster(), ADMIN, &["--pre"]);
    assert!(code < 2, "nothing fails: {lines:?}");
    assert_eq!(lines_of(&lines, "rights"), [("ok", "you may create all objects of the installation")]);
    assert_eq!(lines_of(&lines, "names").len(), 1);
    assert!(lines_of(&lines, "leader").is_empty() && lines_of(&lines, "configs").is_empty(), "{lines:?}");

    let driver: CSIDriver =
        serde_json::from_value(json!({ "metadata": { "name": names::DEFAULT_PROVISIONER }, "spec": {} })).unwrap();
    let drivers: Api<CSIDriver> = Api::all(ring.client.clone());
    drivers.create(&PostParams::default(), &driver).await.unwrap();
    let is_default = json!({ "metadata": { "annotations": { names::DEFAULT_CLASS: "true" } } });
    for name in ["first", "second"] {
        let mut more = is_default.clone();
        more["metadata"]["name"] = json!(name);
        ring.class(name, "example.com/other", more).await;
    }
    let (code, lines) = check(ring.cluster(), ADMIN, &["--pre"]);
    assert_eq!(code, 2);
    assert_eq!(
        lines_of(&lines, "names"),
        [("failed", "another program has registered the CSI driver flex-provisioner.io")]
    );
    assert_eq!(lines_of(&lines, "default class"), [("warning", "2 StorageClasses are the default: first, second")]);
    let remedies = lines.iter().filter(|line| line["mark"] != "ok");
    assert!(remedies.into_iter().all(|line| line["remedy"].is_string()), "{lines:?}");

    drivers.delete(names::DEFAULT_PROVISIONER, &DeleteParams::default()).await.unwrap();
    let classes: Api<StorageClass> = Api::all(ring.client.clone());
    for name in ["first", "second"] {
        classes.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

/// A namespace that enforces Pod Security, in which nothing is installed.
const STRICT: &str = "strict";

/// Checks a namespace before the installation, and returns the exit code and the lines.
fn check_before(ring: &Ring, namespace: &str) -> (Option<i32>, Vec<Value>) {
    let mut command = Command::new(tool());
    command.args(["check", "--pre", "-o", "json", "--flex-namespace", namespace]);
    let output = command.env("KUBECONFIG", ring.cluster().kubeconfig()).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), report["checks"].as_array().unwrap().clone())
}

#[tokio::test]
async fn the_pods_of_an_installation_are_sent_as_dry_runs_before_it() {
    let ring = Ring::without_orchestrator(&[]).await;
    let marks = |lines: &[Value]| {
        let marks = lines_of(lines, "pods").into_iter().map(|(mark, _)| mark.to_owned());
        marks.collect::<Vec<_>>()
    };
    let (_, lines) = check_before(&ring, "not-there-yet");
    assert_eq!(marks(&lines), ["ok"; 4], "{lines:?}");
    assert!(lines_of(&lines, "pods")[0].1.contains("namespace default (where not-there-yet does not exist yet)"));

    ring.namespace(STRICT, &[("pod-security.kubernetes.io/enforce", "restricted")]).await;
    let (_, lines) = check_before(&ring, STRICT);
    assert_eq!(marks(&lines), ["ok", "ok", "warning", "warning"], "{lines:?}");
    assert!(lines_of(&lines, "pods")[3].1.contains("violates PodSecurity"), "{lines:?}");
    let remedy = lines.iter().filter(|line| line["check"] == "pods").nth(3).unwrap()["remedy"].as_str().unwrap();
    assert!(remedy.contains("kubectl label namespace strict pod-security"), "{remedy}");

    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    let quotas = ring.api::<ResourceQuota>(STRICT);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    until("the API server knows the quota", || async {
        let (code, lines) = check_before(&ring, STRICT);
        let (mark, found) = lines_of(&lines, "pods")[0];
        let refuses = (code, mark) == (Some(2), "failed") && found.contains("quota");
        if refuses { Ok(()) } else { unexpected(lines) }
    })
    .await;

    let left = ring.api::<Pod>(STRICT).list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "a dry run makes nothing: {left:?}");
    let namespaces: Api<Namespace> = Api::all(ring.client.clone());
    namespaces.delete(STRICT, &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_person_without_rights_learns_which_are_missing() {
    let ring = Ring::without_orchestrator(&[]).await;
    let mut config: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(ring.cluster().kubeconfig()).unwrap()).unwrap();
    for user in config["users"].as_array_mut().unwrap() {
        user["user"]["as"] = json!("mallory");
    }
    let kubeconfig = ring.file("mallory.yaml", &config.to_string());
    let output = Command::new(tool()).args(["check", "--pre"]).env("KUBECONFIG", kubeconfig).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("✗ rights         you may not create: namespaces"), "{text}");
    assert!(text.contains("‼ names          this could not be checked"), "{text}");
    assert!(text.contains("what to do: "), "{text}");
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_fails() {
    let output =
        Command::new(tool()).args(["check"]).env_clear().env("KUBECONFIG", "/does/not/exist").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("✗ kubernetes     the API server does not answer"), "{text}");
}

#[tokio::test]
async fn an_installation_is_checked() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    let (code, lines) = check(ring.cluster(), ADMIN, &[]);
    assert_eq!(code, 2);
    assert!(lines_of(&lines, "rights")[0].1.contains("may not: "), "{lines:?}");
    assert_eq!(lines_of(&lines, "leader").iter().map(|(mark, _)| *mark).collect::<Vec<_>>(), ["failed"]);
    assert!(lines_of(&lines, "configs")[0].1.contains("no provisioner config is in namespace admin"), "{lines:?}");
    assert!(lines_of(&lines, "pods").is_empty(), "the dry runs are for the time before the installation: {lines:?}");

    ring.with_shipped_rights();
    ring.run().await;
    ring.account("images").await;
    ring.config("good", "good", &[("service-account-name", "images")]).await;
    ring.config("bad", "bad", &[("image", "-")]).await;
    let lines = until("the orchestrator leads", || async {
        let (_, lines) = check(ring.cluster(), ADMIN, &[]);
        if lines_of(&lines, "leader") == [("ok", "one leads")] { Ok(lines) } else { unexpected(lines) }
    })
    .await;
    assert_eq!(lines_of(&lines, "rights").iter().map(|(mark, _)| *mark).collect::<Vec<_>>(), ["ok"], "{lines:?}");
    let configs = lines_of(&lines, "configs");
    assert_eq!(configs[0], ("ok", "1 valid: admin/good"));
    assert!(configs[1].0 == "failed" && configs[1].1.starts_with("admin/bad is refused: image: "), "{configs:?}");
    let images = lines_of(&lines, "images");
    assert!(images[0].0 == "warning" && images[0].1.starts_with("no node lists example/image"), "{images:?}");
}
