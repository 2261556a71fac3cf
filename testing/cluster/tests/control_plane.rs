//! Tests of control planes: they start, answer, and leave nothing behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster::{ClientLimits, Cluster, Component};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

fn config_map(name: &str) -> ConfigMap {
    ConfigMap { metadata: ObjectMeta { name: Some(name.into()), ..Default::default() }, ..Default::default() }
}

async fn namespaces(client: Client) -> usize {
    Api::<Namespace>::all(client).list(&Default::default()).await.unwrap().items.len()
}

/// Lists the processes whose command line contains this text.
fn processes_with(text: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name() != own.as_str())
        .filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok())
        .filter(|command| command.contains(text))
        .collect()
}

fn dir_of(cluster: &Cluster) -> PathBuf {
    cluster.kubeconfig().parent().unwrap().to_owned()
}

#[tokio::test]
async fn a_control_plane_answers_and_leaves_nothing() {
    let started = Instant::now();
    let cluster = Cluster::control_plane().await.unwrap();
    println!("ready after {:?}", started.elapsed());
    let dir = dir_of(&cluster);
    assert!(namespaces(cluster.client().await.unwrap()).await >= 4);
    assert!(cluster.node_name().is_err());

    // A user without rights is refused, and the audit log names the user.
    let visitor = cluster.client_as("jane", &["staff", "visitors"]).await.unwrap();
    let refused = Api::<ConfigMap>::default_namespaced(visitor).create(&PostParams::default(), &config_map("x")).await;
    assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    let audit = fs::read_to_string(cluster.audit_log()).unwrap();
    assert!(audit.contains(r#""impersonatedUser":{"username":"jane","groups":["staff","visitors","#), "{audit}");

    cluster.stop().await.unwrap();
    assert!(!dir.exists());
    // The process that removes the directory may take a moment longer.
    within("no process is left", || processes_with(dir.to_str().unwrap()).is_empty().then_some(()));
}

#[tokio::test]
async fn two_control_planes_at_once_are_separate() {
    let (one, two) = tokio::join!(Cluster::control_plane(), Cluster::control_plane());
    let (one, two) = (one.unwrap(), two.unwrap());
    let first = Api::<ConfigMap>::default_namespaced(one.client().await.unwrap());
    let second = Api::<ConfigMap>::default_namespaced(two.client().await.unwrap());
    first.create(&PostParams::default(), &config_map("mine")).await.unwrap();
    assert!(second.get_opt("mine").await.unwrap().is_none());
}

#[tokio::test]
async fn components_are_paused_killed_and_restarted() {
    let cluster = Cluster::control_plane()
        .api_server_flag("--feature-gates=CrossNamespaceVolumeDataSource=true")
        .with_controller_manager(ClientLimits::Raised)
        .await
        .unwrap();
    let client = cluster.client().await.unwrap();
    let claims = Api::<PersistentVolumeClaim>::default_namespaced(client.clone());

    cluster.pause(Component::ApiServer).unwrap();
    // The server may still answer what it got before the signal.
    let mut answers = 0;
    while tokio::time::timeout(Duration::from_secs(1), claims.list(&Default::default())).await.is_ok() {
        answers += 1;
        assert!(answers < 100, "the server is not paused");
    }
    cluster.resume(Component::ApiServer).unwrap();
    claims.list(&Default::default()).await.unwrap();

    let before = cluster.pid(Component::ApiServer).unwrap();
    cluster.restart(Component::ApiServer).await.unwrap();
    assert_ne!(cluster.pid(Component::ApiServer).unwrap(), before);
    claims.list(&Default::default()).await.unwrap();
    cluster.restart(Component::ControllerManager).await.unwrap();
    assert!(cluster.pid(Component::Kubelet).is_err());
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let mut error = String::new();
    for _ in 0..10 {
        let started = Cluster::control_plane().api_server_flag("--no-such-flag").await;
        error = format!("{:#}", started.unwrap_err());
        // The process may be gone before anybody has looked at it.
        if !error.contains("ended at once") {
            break;
        }
    }
    assert!(error.contains("kube-apiserver of cluster control-plane died"), "{error}");
    assert!(error.contains("unknown flag: --no-such-flag"), "{error}");
}

/// Not a test of its own: the killed copy of the binary runs this.
#[tokio::test]
#[ignore = "waits to be killed by the test below"]
async fn victim() {
    let cluster = Cluster::control_plane().await.unwrap();
    println!("dir={}", dir_of(&cluster).display());
    tokio::time::sleep(Duration::from_secs(3600)).await;
    unreachable!("the test kills this process");
}

#[test]
fn a_killed_test_leaves_nothing() {
    let output = tempfile::NamedTempFile::new().unwrap();
    let mut copy = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "victim", "--nocapture"])
        .stdout(output.reopen().unwrap())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let dir = within("the copy has started", || {
        let text = fs::read_to_string(output.path()).unwrap();
        let line = text.lines().find_map(|line| line.split_once("dir=").map(|(_, dir)| dir.to_owned()));
        line.filter(|_| text.ends_with('\n'))
    });
    assert!(!processes_with(&dir).is_empty());
    copy.kill().unwrap();
    copy.wait().unwrap();
    within("nothing is left", || (processes_with(&dir).is_empty() && !Path::new(&dir).exists()).then_some(()));
}

/// No step takes longer, even on a busy machine.
const GUARD: Duration = Duration::from_secs(120);

fn within<T>(what: &str, check: impl Fn() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < GUARD, "waited {GUARD:?} until {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
