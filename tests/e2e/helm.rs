//! The chart alone, on a whole cluster of its own: an installation with a class, claims, an upgrade, and the end.

use std::collections::BTreeSet;
use std::path::Path;

use cluster::Cluster;
use flex_contract::names;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use orchestrator::deployed::{clean, directory, import, kubectl, log_of, pod, root, volumes_in};
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

const CHART: &str = "deploy/helm/flex-provisioner";
const RELEASE: &str = "by-helm";
/// Names that only the environment of the container tells to other subcommands.
const SETTINGS: [&str; 3] = ["provisionerName=helm.example", "pluginName=example.com/helm", "instance=by-helm"];

/// Runs helm; it must succeed.
fn helm(cluster: &Cluster, arguments: &[&str]) -> String {
    let mut command = cluster.helm().expect("helm is there");
    let output = command.current_dir(root()).args(["--namespace", OWN]).args(arguments).output().expect("helm runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "helm {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Lets helm uninstall the release, which must fail, and returns all that it printed.
fn refused_uninstall(cluster: &Cluster) -> String {
    let mut command = cluster.helm().expect("helm is there");
    let uninstall = ["--namespace", OWN, "uninstall", RELEASE, "--wait", "--timeout", "300s"];
    let output = command.current_dir(root()).args(uninstall).output().expect("helm runs");
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "helm uninstalls while volumes need the orchestrator: {printed}");
    printed.into_owned()
}

/// Returns the objects of the release, of all kinds that the cluster knows.
fn objects(cluster: &Cluster) -> BTreeSet<String> {
    let label = format!("app.kubernetes.io/instance={RELEASE}");
    let named = ["-l", &label, "-o", "name", "--ignore-not-found"];
    let list = |kinds: &str, more: &[&str]| kubectl(cluster, &[&["get", kinds], &named[..], more].concat());
    let kinds = |namespaced: &str| {
        let all = ["api-resources", "--verbs=list", "-o", "name", &format!("--namespaced={namespaced}")];
        kubectl(cluster, &all).lines().filter(|kind| !kind.starts_with("events")).collect::<Vec<_>>().join(",")
    };
    let everywhere = list(&kinds("false"), &[]) + &list(&kinds("true"), &["--all-namespaces"]);
    everywhere.lines().map(str::to_owned).collect()
}

/// Waits until the orchestrator has accepted the config of a class, with a value for a key.
pub async fn accepted(ring: &Ring, class: &str, key: &str, value: &str) {
    until(format!("the config {class} has {key}: {value}, and is accepted"), || async {
        let config = ring.api::<ConfigMap>(OWN).get(class).await.map_err(|error| error.to_string())?;
        let verdict = config.metadata.annotations.as_ref().and_then(|all| all.get(names::VERDICT)).cloned();
        let written = config.data.as_ref().and_then(|data| data.get(key)).map(String::as_str);
        match verdict.as_deref() {
            Some(verdict) if verdict.starts_with("ok") && written == Some(value) => Ok(()),
            _ => unexpected((verdict, written)),
        }
    })
    .await;
}

/// Makes a claim of the default class, has a pod write to it, and returns its UID.
async fn write(ring: &Ring, name: &str) -> String {
    ring.claim_with(name, "local", json!({ "spec": { "storageClassName": null } })).await;
    pod(ring, name, name, &format!("echo {name} > /data/text && cat /data/text")).await;
    assert_eq!(log_of(ring, name).await.trim(), name);
    let claim = ring.bound(name).await;
    assert_eq!(claim.spec.as_ref().unwrap().storage_class_name.as_deref(), Some("local"), "the default class");
    uid(&claim)
}

#[tokio::test]
async fn a_release_makes_a_class_whose_claims_outlive_an_upgrade_and_leaves_nothing() {
    let name = &format!("{}-helm", cluster::tests_name());
    // A cluster of a failed test may still exist.
    cluster::down(name).await.unwrap();
    let cluster = Cluster::shared(name).await.expect("the whole cluster starts");
    import(&cluster, &["flex-provisioner", "hostpath"]).await;
    let base = directory("helm");
    let before = volumes_in(&base);

    let base_path = format!("classes.local.config.base-path={base}");
    let class = ["classes.local.preset=hostpath", "classes.local.default=true", &base_path];
    let values = [&SETTINGS[..], &class].concat().join(",");
    let wait = ["--wait", "--timeout", "300s"];
    helm(&cluster, &[&["install", RELEASE, CHART, "--create-namespace", "--set", &values], &wait[..]].concat());
    assert!(!objects(&cluster).is_empty(), "the release has objects");
    let ring = Ring::on_whole(cluster, "helm-user").await;
    accepted(&ring, "local", "timeout", "60s").await;
    let first = write(&ring, "first").await;
    assert!(volumes_in(&base).contains(&first), "{first} in {:?}", volumes_in(&base));

    // A test that fails lets helm fail.
    helm(ring.cluster(), &["test", RELEASE, "--timeout", "300s"]);

    // Without a flag the command knows the names of the orchestrator.
    let status = ["-n", OWN, "exec", "deploy/flex-provisioner", "--", "/flex-provisioner", "status"];
    let status = kubectl(ring.cluster(), &status);
    let is_of_class = |line: &&str| line.split_whitespace().next() == Some("local");
    let row = status.lines().find(is_of_class).unwrap_or_else(|| panic!("the class is not there: {status}"));
    assert!(row.contains("Bound 1"), "{status}");

    // The volume stays, and the next one is made by the new config and a new process.
    let changes = "classes.local.config.timeout=90s,replicas=2,log=debug";
    let upgrade = ["upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", changes];
    helm(ring.cluster(), &[&upgrade, &wait[..]].concat());
    accepted(&ring, "local", "timeout", "90s").await;
    let second = write(&ring, "second").await;
    pod(&ring, "again", "first", "cat /data/text").await;
    assert_eq!(log_of(&ring, "again").await.trim(), "first", "the data of before the upgrade");
    assert_eq!(volumes_in(&base), &before | &BTreeSet::from([first.clone(), second]));

    // The volumes still need the orchestrator, so that nothing is deleted.
    let mut deployed = objects(ring.cluster());
    // Pods of before the upgrade may still end.
    deployed.retain(|object| !object.starts_with("pod/"));
    let printed = refused_uninstall(ring.cluster());
    assert!(printed.contains(&names::pv_name(&first)), "the list names the volume: {printed}");
    assert!(deployed.is_subset(&objects(ring.cluster())), "a refused uninstall deletes nothing");
    // Helm takes the release for half uninstalled, and upgrades it only after what the Job prints.
    assert!(printed.contains(&format!("helm rollback {RELEASE} 2 -n {OWN}")), "{printed}");
    helm(ring.cluster(), &[&["rollback", RELEASE, "2"], &wait[..]].concat());
    helm(ring.cluster(), &[&upgrade, &wait[..]].concat());

    clean(&ring).await;
    assert_eq!(volumes_in(&base), before, "the storage of both claims is gone");
    helm(ring.cluster(), &[&["uninstall", RELEASE], &wait[..]].concat());
    until("the objects of the release are gone", || async {
        match objects(ring.cluster()) {
            remaining if remaining.is_empty() => Ok(()),
            remaining => unexpected(remaining),
        }
    })
    .await;
    drop(ring);
    assert!(cluster::down(name).await.unwrap());
    // The DaemonSet has made the directory on this machine.
    let _ = std::fs::remove_dir(Path::new(&base));
}
