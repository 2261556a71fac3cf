//! The installation on a cluster of its own, as an admin makes it: images in a real registry, the files that
//! `make push` writes, an upgrade and the removal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Instant;

use cluster::Cluster;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::registry::Registry;
use orchestrator::deployed::{HOSTPATH, clean, directory, ends_well, kubectl, log_of, root, volumes_in};
use orchestrator::ring::{OWN, Ring, uid};

const CLASS: &str = "flex-local";
/// The directory of that class in quickstart.yaml.
const SHIPPED: &str = "/var/lib/flex-local";
/// The kinds of what stands outside of namespaces.
const EVERYWHERE: &str = "namespaces,clusterroles,clusterrolebindings,storageclasses,csidrivers,persistentvolumes,\
    validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingadmissionpolicies,\
    mutatingadmissionpolicybindings";

#[tokio::test]
async fn two_commands_make_a_class_and_its_removal_leaves_nothing() {
    let name = format!("{}-reg", cluster::tests_name());
    cluster::down(&name).await.unwrap();
    // The cluster ends, however the story does.
    let story = tokio::spawn(story(name.clone())).await;
    if story.is_err() {
        describe(&name).await;
    }
    assert!(cluster::down(&name).await.unwrap());
    if let Err(error) = story {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// The commands that an admin types, with times.
async fn story(name: String) {
    let cluster = Cluster::shared(&name).await.expect("the cluster starts");
    let address = cluster.host_address().unwrap();
    let registry = spawn_blocking(move || Registry::start(address)).await.unwrap();
    cluster.allow_registry(registry.host()).unwrap();
    let ring = Ring::on_whole(cluster, "team").await;
    let files = Files { folder: tempfile::tempdir().unwrap() };
    let before = volumes_in(&directory("install"));

    let began = Instant::now();
    let lap = |what: &str| println!("{:>6} ms {what}", began.elapsed().as_millis());
    files.push(&registry, env!("CARGO_PKG_VERSION"));
    lap("the images are in the registry");
    let quickstart = files.edited("quickstart.yaml", |text| text);
    kubectl(ring.cluster(), &["apply", "-f", &quickstart]);
    lap("quickstart.yaml is applied");
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", &files.path("claim.yaml")]);
    let first = ring.bound("flex-local-example").await;
    lap("the claim is Bound");
    ends_well(&ring, "flex-local-writer").await;
    lap("its pod has written");
    assert!(volumes_in(&directory("install")).contains(&uid(&first)));

    upgrade(&ring, &registry, &files).await;
    lap("the upgrade is done");

    clean(&ring).await;
    assert_eq!(volumes_in(&directory("install")), before, "the directories are really gone");
    lap("the claims and their directories are gone");
    remove(&ring, &[&quickstart]);
    lap("quickstart.yaml is deleted, and nothing is left");

    from_parts(&ring, &files).await;
    assert_eq!(volumes_in(&directory("install")), before, "the directory of the other class is gone");
    lap("install.yaml with a config has made a volume, and nothing is left");
    fs::remove_dir_all(directory("install")).unwrap();
}

/// Installs the orchestrator alone, with a class of the configs and examples that were written beside.
async fn from_parts(ring: &Ring, files: &Files) {
    let install = files.path("install.yaml");
    let config = files.edited("configmaps/hostpath.yaml", |text| text);
    let class = files.path("examples/hostpath/storageclass.yaml");
    for file in [&install, &config, &class] {
        kubectl(ring.cluster(), &["apply", "-f", file]);
    }
    for file in ["claim", "writer"] {
        let file = files.path(&format!("examples/hostpath/{file}.yaml"));
        kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", &file]);
    }
    let claim = ring.bound("hostpath-example").await;
    ends_well(ring, "hostpath-writer").await;
    assert!(volumes_in(&directory("install")).contains(&uid(&claim)));
    clean(ring).await;
    remove(ring, &[&class, &config, &install]);
}

/// Deletes the objects of files as docs/how-to/uninstall.md says, and checks that nothing is left of them.
fn remove(ring: &Ring, files: &[&str]) {
    for file in files {
        kubectl(ring.cluster(), &["delete", "--ignore-not-found", "--timeout=300s", "-f", file]);
    }
    kubectl(ring.cluster(), &["delete", "--ignore-not-found", "csidriver", "flex-provisioner.io"]);
    let all = kubectl(ring.cluster(), &["get", EVERYWHERE, "-o", "name"]);
    let remaining: Vec<&str> = all.lines().filter(|name| name.contains("flex") || name.contains("hostpath")).collect();
    assert_eq!(remaining, Vec::<&str>::new(), "the removal leaves nothing");
}

/// Applies images of another version and a class with another setting, beside a volume of before.
async fn upgrade(ring: &Ring, registry: &Registry, files: &Files) {
    files.push(registry, concat!(env!("CARGO_PKG_VERSION"), "-next"));
    let changed = files.edited("quickstart.yaml", |text| {
        let changed = text.replace(r#"mode: "0777""#, r#"mode: "0775""#);
        assert_ne!(text, changed, "the class has the setting");
        changed
    });
    kubectl(ring.cluster(), &["apply", "-f", &changed]);
    for what in ["deployment/flex-provisioner", "daemonset/flex-local-keeper"] {
        kubectl(ring.cluster(), &["-n", OWN, "rollout", "status", what, "--timeout=300s"]);
    }
    let deployment = ring.api::<Deployment>(OWN).get("flex-provisioner").await.unwrap();
    let container = deployment.spec.unwrap().template.spec.unwrap().containers.remove(0);
    assert_eq!(container.image, Some(files.image("flex-provisioner")));

    ring.claim("second", CLASS).await;
    files.pod(ring, "second", "second", "true").await;
    let second = ring.bound("second").await;
    ends_well(ring, "second").await;
    let made = fs::metadata(format!("{}/{}", directory("install"), uid(&second))).unwrap();
    assert_eq!(made.permissions().mode() & 0o7777, 0o775, "the changed setting has its effect");
    files.pod(ring, "reader", "flex-local-example", "cat /data/greeting").await;
    assert_eq!(log_of(ring, "reader").await.trim(), "hello from the writer");
}

/// The files that the last push has written.
struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    /// Runs what `make push` runs, with the images that are built.
    fn push(&self, registry: &Registry, version: &str) {
        let output = Command::new(root().join("scripts/push.sh"))
            .args([
                "--no-build",
                "--insecure",
                "--registry",
                &format!("{}/team", registry.host()),
                "--version",
                version,
            ])
            .arg("--out")
            .arg(self.folder.path())
            .envs(["NO_PROXY", "no_proxy"].map(|name| (name, registry.host())))
            .output()
            .unwrap();
        assert!(output.status.success(), "push.sh: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Changes a file. Its class gets a directory for this test, because clusters share the machine.
    fn edited(&self, name: &str, change: impl Fn(String) -> String) -> String {
        let path = self.path(name);
        let mut text = fs::read_to_string(&path).unwrap();
        for shipped in [SHIPPED, HOSTPATH] {
            text = text.replace(shipped, &directory("install"));
        }
        fs::write(&path, change(text)).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Returns the name of an image in the files, with its tag and its digest.
    fn image(&self, name: &str) -> String {
        let images = fs::read_to_string(self.path("images.txt")).unwrap();
        let named = images.lines().find(|line| line.contains(&format!("/{name}:")));
        let named = named.unwrap_or_else(|| panic!("{name} in {images}"));
        assert!(named.contains("@sha256:"), "{named}");
        named.to_owned()
    }

    /// A pod of a user that has a claim at `/data` and runs a script. Its shell is that of the pushed image.
    async fn pod(&self, ring: &Ring, name: &str, claim: &str, script: &str) {
        let pod = json!({
            "metadata": { "name": name },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": self.image("hostpath"), "command": ["sh", "-c", script],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
            },
        });
        ring.api::<Pod>(&ring.user)
            .create(&PostParams::default(), &serde_json::from_value(pod).unwrap())
            .await
            .unwrap();
    }
}

/// Prints the state of a failed test before its cluster ends.
async fn describe(name: &str) {
    let Ok(cluster) = Cluster::attach(name).await else { return };
    for arguments in [
        ["get", "pods,pvc,pv", "-A", "-o", "wide"].as_slice(),
        &["get", "events", "-A", "--sort-by=.lastTimestamp"],
        &["-n", OWN, "logs", "deployment/flex-provisioner", "--tail=60"],
    ] {
        let output = cluster.kubectl().args(arguments).output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        eprintln!("--- kubectl {arguments:?}\n{}", String::from_utf8_lossy(&text));
    }
}
