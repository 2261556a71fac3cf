//! The whole cluster that the tests of this checkout share, with the orchestrator installed as the README says, and
//! common steps of the tests on it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use cluster::Cluster;
pub use cluster::volumes_in;
use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::ring::{OWN, Ring, uid};
use crate::wait::{unexpected, until};

/// The image that all of these tests run.
pub const IMAGE: &str = "localhost/flex-provisioner/hostpath:0.1.0";
/// Where the classes of `configmaps/` keep their volumes on the node.
pub const HOSTPATH: &str = "/var/lib/flex-hostpath";
/// Where the class without a StorageClass object keeps its volumes on the node.
pub const SCRATCH: &str = "/var/lib/flex-scratch";

/// Returns the directory on the node where the class of one test keeps its volumes.
pub fn directory(class: &str) -> String {
    format!("/var/lib/flex-test/{}/{class}", cluster::tests_name())
}

static DEPLOYED: OnceCell<()> = OnceCell::const_new();

/// Returns the root of this checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this crate is two folders deep").to_owned()
}

/// Returns the shared cluster, with the orchestrator deployed and ready, and a namespace for one test.
pub async fn users(namespace: &str) -> Ring {
    let cluster = Cluster::shared(&cluster::tests_name()).await.expect("the whole cluster starts");
    DEPLOYED.get_or_init(|| deploy(&cluster)).await;
    Ring::on_whole(cluster, namespace).await
}

/// Brings images that `make images` has built to all nodes.
pub async fn import(cluster: &Cluster, images: &[&str]) {
    for image in images {
        let archive = root().join(format!("build/images/{image}.tar"));
        assert!(archive.exists(), "{} is missing: run `make images`", archive.display());
        cluster.import_image(&archive).await.expect("the image is imported");
    }
}

async fn deploy(cluster: &Cluster) {
    install(cluster, &["flex-provisioner", "hostpath", "nfs", "cinder", "csi", "shell"]).await;
    kubectl(cluster, &["apply", "-f", "configmaps/hostpath.yaml", "-f", "configmaps/hostpath-pure.yaml"]);
    kubectl(cluster, &["apply", "-f", "examples/hostpath/storageclass.yaml"]);
}

/// Installs the orchestrator without any class, and brings images to the nodes.
pub async fn install(cluster: &Cluster, images: &[&str]) {
    import(cluster, images).await;
    kubectl(cluster, &["apply", "-k", kustomization(cluster)]);
    // A cluster of an earlier run has the image of that run.
    kubectl(cluster, &["-n", OWN, "rollout", "restart", "deployment/flex-provisioner"]);
    kubectl(cluster, &["-n", OWN, "rollout", "status", "deployment/flex-provisioner", "--timeout=300s"]);
}

/// Returns the kustomization for the cluster's version.
fn kustomization(cluster: &Cluster) -> &'static str {
    let served = kubectl(cluster, &["get", "--raw", "/apis/admissionregistration.k8s.io/v1"]);
    match served.contains("mutatingadmissionpolicies") {
        true => "deploy/kustomize",
        false => "deploy/kustomize-before-1.36",
    }
}

/// Runs kubectl in the root of this checkout; it must succeed.
pub fn kubectl(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = cluster.kubectl().current_dir(root()).args(arguments).output().expect("kubectl runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "kubectl {arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// The lock of a test that adds nodes to the whole cluster, and of tests that more nodes would disturb.
pub static NODES: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// The lock of a test that vouches for the restored volumes of all tests, and of tests that have restored volumes.
pub static RESTORED: tokio::sync::RwLock<()> = tokio::sync::RwLock::const_new(());

/// Makes the directory of a class on the node, as the shipped DaemonSet does for the shipped classes.
pub fn make_directory(directory: &str) {
    fs::create_dir_all(directory).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o1700)).unwrap();
}

/// Creates a class on the node's directory for one test, without a StorageClass object.
pub async fn local_class(ring: &Ring, class: &str, more: &[(&str, &str)]) {
    let map = fs::read_to_string(root().join("configmaps/hostpath-pure.yaml")).unwrap();
    let map = map.split("\n---").next().unwrap().replace(SCRATCH, &directory(class));
    let map: ConfigMap = serde_saphyr::from_str(&map).unwrap();
    make_directory(&directory(class));
    let mut data: Vec<(&str, &str)> =
        map.data.as_ref().unwrap().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    data.push(("placement", "selected-node"));
    data.extend(more);
    ring.config(class, class, &data).await;
}

/// Lets the account of an image make volumes of a class without a pod that names the claim.
pub fn grant_provision(ring: &Ring, account: &str, class: &str) {
    let name = format!("batches-of-{class}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": name },
        "rules": [{
            "apiGroups": ["flex-provisioner.io"], "resources": ["classes"], "resourceNames": [class], "verbs": ["provision"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": ring.admin }],
    });
    let both = json!({ "apiVersion": "v1", "kind": "List", "items": [role, binding] });
    let file = ring.file("allow.json", &both.to_string());
    kubectl(ring.cluster(), &["apply", "-f", file.to_str().unwrap()]);
}

/// Creates a class whose image is a shell that runs a script.
pub async fn script_class(ring: &Ring, class: &str, script: &str, more: &[(&str, &str)]) {
    let args = json!(["-c", script]).to_string();
    let mut data =
        vec![("image", IMAGE), ("image-pull-policy", "IfNotPresent"), ("command", "[sh]"), ("args", args.as_str())];
    data.extend(more);
    ring.config(class, class, &data).await;
}

/// Creates a pod of a user that mounts a claim at `/data` and runs a script.
pub async fn pod(ring: &Ring, name: &str, claim: &str, script: &str) {
    pod_as(ring, name, claim, script, json!({})).await;
}

/// Creates such a pod with a security context.
pub async fn pod_as(ring: &Ring, name: &str, claim: &str, script: &str, security: Value) {
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "securityContext": security,
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
        },
    });
    ring.api::<Pod>(&ring.user).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

/// Waits until a pod has succeeded.
pub async fn ends_well(ring: &Ring, name: &str) {
    let pods = ring.api::<Pod>(&ring.user);
    until(format!("pod {name} ends well"), || async {
        let status = pods.get(name).await.map_err(|error| error.to_string())?.status;
        match status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Succeeded") => Ok(()),
            _ => unexpected(status),
        }
    })
    .await;
}

/// Waits until a pod has succeeded and has a log, which may appear a little after its end. Returns the log.
pub async fn log_of(ring: &Ring, name: &str) -> String {
    ends_well(ring, name).await;
    let pods = ring.api::<Pod>(&ring.user);
    until(format!("pod {name} has a log"), || async {
        let log = pods.logs(name, &LogParams::default()).await.map_err(|error| error.to_string())?;
        if log.is_empty() { unexpected(log) } else { Ok(log) }
    })
    .await
}

/// Deletes all objects of the test, and waits until all volumes of its claims are gone.
pub async fn clean(ring: &Ring) {
    ring.api::<Pod>(&ring.user)
        .delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default())
        .await
        .unwrap();
    let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
    ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    for claim in claims {
        ring.claim_gone(claim.metadata.name.as_deref().unwrap()).await;
        ring.volume_gone(&names::pv_name(&uid(&claim))).await;
    }
    // What a claim left that was gone before this call is undone under its record.
    ring.all_settled().await;
    let mine = ring.user.clone();
    until("no Job of the test is left", || async {
        let jobs = ring.api::<Job>(OWN).list(&ListParams::default()).await.unwrap().items;
        // A Job names its claim itself, or in the template of its pod.
        let of_test = |job: &&Job| {
            let of_pod = job.spec.as_ref().and_then(|spec| spec.template.metadata.as_ref()?.annotations.as_ref());
            let listed = of_pod.and_then(|of_pod| of_pod.get(names::BATCH));
            let claim = job.metadata.annotations.as_ref().and_then(|of_job| of_job.get(names::JOB_CLAIM));
            claim.is_some_and(|claim| claim.starts_with(&format!("{mine}/")))
                || listed.is_some_and(|listed| listed.contains(&format!(r#""namespace":"{mine}""#)))
        };
        match jobs.iter().find(of_test) {
            None => Ok(()),
            Some(job) => unexpected(&job.metadata.name),
        }
    })
    .await;
}

/// Deletes a claim whose image cannot delete, after fixing its class.
pub async fn drop_claim(ring: &Ring, claim: &str) {
    let class = ring.get_claim(claim).await.spec.unwrap().storage_class_name.unwrap();
    ring.delete_claim(claim).await;
    ring.claim_vanished(claim).await;
    ring.abandon(claim).await;
    ring.claim_gone(claim).await;
    ring.api::<ConfigMap>(OWN).delete(&class, &DeleteParams::default()).await.unwrap();
}

/// Returns the process id of the orchestrator in this cluster, as the machine has it.
pub fn orchestrator_pid() -> Option<i32> {
    let own = format!("/flex-cluster-{}/", cluster::tests_name());
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let group = fs::read_to_string(entry.path().join("cgroup")).ok()?;
        (command.starts_with(b"/flex-orchestrator\0") && group.contains(&own)).then_some(pid)
    })
}

/// Kills a process, as a crash does.
pub fn kill(pid: i32) {
    assert!(std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}
