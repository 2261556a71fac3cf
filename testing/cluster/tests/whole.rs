//! Tests of a whole cluster: pods run, reach the API, and can be inspected. Everything is removed at the end.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cluster::{Cluster, ClusterNode, Component, Health};
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::PostParams;
use kube::{Api, Client};

/// Returns a name for a cluster of this test's own, separate from those of other checkouts.
fn own_name() -> String {
    format!("{}-own", cluster::tests_name())
}

/// No step takes longer, even on a busy machine.
const GUARD: Duration = Duration::from_secs(300);

const IMAGE: &str = "localhost/flex-provisioner/cluster-test:1";

const OBJECTS: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: job}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "IMAGE", command: [/bin/sh, -c, "echo done"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: "IMAGE", command: [/bin/sh, -c, "sleep 600"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: api}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: IMAGE
    command: [/test, --ignored, --exact, inside_a_pod, --nocapture]
---
apiVersion: v1
kind: Pod
metadata: {name: no-image}
spec:
  containers: [{name: main, image: "docker.io/library/no-such-image:1"}]
"#;

#[tokio::test]
async fn pods_run_and_nothing_is_left() {
    let name = &own_name();
    let started = Instant::now();
    let lap = |what: &str| println!("{:>6} ms {what}", started.elapsed().as_millis());
    cluster::down(name).await.unwrap();
    let cluster = Cluster::shared(name).await.unwrap();
    lap("the cluster is up");
    let dir = tempfile::tempdir().unwrap();
    cluster.import_image(&image(dir.path())).await.unwrap();
    lap("the image is imported");
    let attached = Cluster::attach(name).await.unwrap();
    assert_eq!(attached.node_name().unwrap(), format!("{name}-node"));

    kubectl(&cluster, &["apply", "-f", "-"], &OBJECTS.replace("IMAGE", IMAGE));
    kubectl(&cluster, &["wait", "--for=condition=complete", "job/job", "--timeout=300s"], "");
    lap("the Job is complete");
    says(&cluster, "job/job", "done\n");
    kubectl(&cluster, &["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/api", "--timeout=300s"], "");
    says(&cluster, "api", "I am system:serviceaccount:default:default");
    lap("a pod has reached the API");
    kubectl(&cluster, &["wait", "--for=condition=ready", "pod/shell", "--timeout=300s"], "");
    let answer = kubectl(&cluster, &["exec", "shell", "--", "/bin/sh", "-c", "echo from inside"], "");
    assert_eq!(answer, "from inside\n");
    lap("exec works");
    let waiting = "jsonpath={.status.containerStatuses[0].state.waiting.reason}";
    let refused = || {
        let reason = kubectl(&cluster, &["get", "pod", "no-image", "-o", waiting], "");
        ["ErrImagePull", "ImagePullBackOff"].contains(&reason.as_str())
    };
    let asked = Instant::now();
    while !refused() {
        assert!(asked.elapsed() < GUARD, "the kubelet still searches an unknown image");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    lap("an unknown image is refused");

    // The kubelet is restarted while a pod runs, and the pod does not notice.
    cluster.restart(Component::Kubelet).await.unwrap();
    lap("the kubelet runs again");
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl(&cluster, &["get", "pod", "shell", "-o", restarts], ""), "0");
    cluster.restart(Component::Proxy).await.unwrap();
    cluster.restart(Component::Scheduler).await.unwrap();
    lap("proxy and scheduler run again");

    assert!(cluster::down(name).await.unwrap());
    lap("the cluster is down");
    assert!(matches!(cluster::health(name).await, Health::Down));
    assert_nothing_left(name);
}

/// The pods of one node, whose number replaces `NUMBER`. The first serves its number, and keeps a file on the node.
const ON_NODE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: on-NUMBER}
spec:
  nodeName: NAME
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    command: [/bin/sh, -c, "echo NUMBER > /disk/NUMBER; while true; do echo I am NUMBER | busybox nc -l -p 8080; done"]
    volumeMounts: [{name: disk, mountPath: /disk}]
  volumes: [{name: disk, hostPath: {path: /var/lib/flex-test/PLACE, type: DirectoryOrCreate}}]
---
apiVersion: v1
kind: Pod
metadata: {name: api-NUMBER}
spec:
  nodeName: NAME
  restartPolicy: Never
  containers: [{name: main, image: "IMAGE", command: [/test, --ignored, --exact, inside_a_pod, --nocapture]}]
"#;

#[tokio::test]
async fn pods_of_two_nodes_reach_each_other_and_have_disks_of_their_own() {
    let name = &format!("{}-two", cluster::tests_name());
    let place = &format!("/var/lib/flex-test/{name}");
    cluster::down(name).await.unwrap();
    let cluster = Cluster::whole(name).nodes(2).up().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    cluster.import_image(&image(dir.path())).await.unwrap();
    let nodes = [cluster.node(1).unwrap(), cluster.node(2).unwrap()];
    assert!(cluster.node(3).is_err());
    for (number, node) in ["1", "2"].iter().zip(&nodes) {
        let pods = ON_NODE.replace("NAME", node.name()).replace("IMAGE", IMAGE).replace("PLACE", name);
        kubectl(&cluster, &["apply", "-f", "-"], &pods.replace("NUMBER", number));
    }
    for pod in ["pod/api-1", "pod/api-2"] {
        kubectl(&cluster, &["wait", "--for=jsonpath={.status.phase}=Succeeded", pod, "--timeout=300s"], "");
    }
    kubectl(&cluster, &["wait", "--for=condition=ready", "pod/on-1", "pod/on-2", "--timeout=300s"], "");
    for (from, to) in [("on-1", "2"), ("on-2", "1")] {
        let address = kubectl(&cluster, &["get", "pod", &format!("on-{to}"), "-o", "jsonpath={.status.podIP}"], "");
        // The server listens anew for each call, so that a call may be refused.
        let call = format!("busybox nc -w 9 {address} 8080 < /dev/null");
        let call = || cluster.kubectl().args(["exec", from, "--", "/bin/sh", "-c", &call]).output().unwrap();
        let began = Instant::now();
        while call().stdout != format!("I am {to}\n").into_bytes() {
            assert!(began.elapsed() < GUARD, "{:?}", call());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    let files = |node: &ClusterNode| {
        let all = fs::read_dir(node.on_machine(place)).unwrap().flatten();
        all.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((files(&nodes[0]), files(&nodes[1])), (vec!["1".into()], vec!["2".into()]));
    assert_eq!(nodes[1].run("ls", &[place]).unwrap(), "2\n");
    fs::remove_dir_all(place).unwrap();

    // The containers of a node outlive its kubelet and containerd.
    nodes[1].stop().await.unwrap();
    assert!(matches!(cluster::health(name).await, Health::Broken(_)));
    nodes[1].start().await.unwrap();
    let began = Instant::now();
    let alive = || cluster.kubectl().args(["exec", "on-2", "--", "/bin/sh", "-c", "echo alive"]).output().unwrap();
    // A new kubelet needs a moment until it knows its pods.
    while alive().stdout != b"alive\n" {
        assert!(began.elapsed() < GUARD, "{:?}", alive());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let restarts = "jsonpath={.status.containerStatuses[0].restartCount}";
    assert_eq!(kubectl(&cluster, &["get", "pod", "on-2", "-o", restarts], ""), "0");

    // The end finds everything, also of a node without its programs.
    nodes[1].stop().await.unwrap();
    assert!(cluster::down(name).await.unwrap());
    assert_nothing_left(name);
}

/// The program of the pod `api`, from a copy of this binary: it is static and needs nothing of its surroundings.
#[tokio::test]
#[ignore = "runs inside a pod of the test above"]
async fn inside_a_pod() {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let reviews = Api::<SelfSubjectReview>::all(Client::try_default().await.unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await.unwrap();
    println!("I am {}", review.status.unwrap().user_info.unwrap().username.unwrap());
}

/// Builds an image of a shell and this binary.
fn image(dir: &Path) -> std::path::PathBuf {
    let (root, archive) = (dir.join("root"), dir.join("image.tar"));
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("setup.sh brings busybox-static");
    for link in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(link)).unwrap();
    }
    fs::copy(std::env::current_exe().unwrap(), root.join("test")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scratch-image.sh");
    let status = Command::new(script).arg(IMAGE).args([&archive, &root]).arg("/bin/sh").status().unwrap();
    assert!(status.success());
    archive
}

/// Waits for a text in the log of a container that has ended. The log may appear a little after the end.
fn says(cluster: &Cluster, what: &str, text: &str) {
    let began = Instant::now();
    loop {
        let log = kubectl(cluster, &["logs", what], "");
        if log.contains(text) {
            return;
        }
        assert!(began.elapsed() < GUARD, "{what} says {log}");
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Returns the output of kubectl, which must succeed; if it does not, this prints what is wrong in the cluster.
fn kubectl(cluster: &Cluster, arguments: &[&str], input: &str) -> String {
    let mut child = cluster
        .kubectl()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        let _ = cluster.kubectl().args(["describe", "pods"]).status();
        panic!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that no files, control groups, mounts and processes of a cluster are left.
fn assert_nothing_left(name: &str) {
    for location in ["/run/flex-cluster", "/var/lib/flex-cluster", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
        assert!(!has_leftovers(location, name), "something is left in {location}");
    }
    for result in fs::read_dir("/var/lib/cni/results").into_iter().flatten().flatten() {
        // Another cluster may remove its own at the same time.
        let text = fs::read_to_string(result.path()).unwrap_or_default();
        assert!(!text.contains(name), "{result:?} is left");
    }
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(name));
    let commands = fs::read_dir("/proc").unwrap().flatten();
    let commands = commands.filter_map(|entry| fs::read_to_string(entry.path().join("cmdline")).ok());
    let own = format!("/flex-cluster/{name}/");
    assert_eq!(commands.filter(|command| command.contains(&own)).collect::<Vec<_>>(), Vec::<String>::new());
}

fn has_leftovers(location: &str, cluster: &str) -> bool {
    let names = fs::read_dir(location).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| name.to_string_lossy().contains(cluster))
}
