//! Tests of the image `csi` on the whole cluster. The driver makes real volumes and is registered at the real kubelet,
//! with the name in the shipped config and the examples. Pods use its volumes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use cluster::Snapshotter;
use flex_contract::names;
use flex_contract::reason;
use futures::future::join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::conformance::{COPIES, conformance};
use crate::kinds::{delete_pod, is_running, mounted, pod_with};
use orchestrator::backup::Backup;
use orchestrator::batches::all_bound;
use orchestrator::csi_driver::RealDriver;
use orchestrator::deployed::{RESTORED, clean, ends_well, kubectl, log_of, root, users};
use orchestrator::processes::program;
use orchestrator::ring::{Ring, phase, uid};
use orchestrator::snapshots::{snapshotter_deletes, snapshotter_reports};
use orchestrator::wait::{unexpected, until};

/// The driver that the shipped config and the examples are for.
const NAME: &str = "hostpath.csi.k8s.io";
/// The topology key that the driver reports.
const TOPOLOGY: &str = "topology.hostpath.csi/node";

/// The line in the log of a driver that the kubelet has registered.
const REGISTERED: &str = "the kubelet has registered the driver";

/// Only one driver of this name can run at a time.
static DRIVER: Mutex<()> = Mutex::const_new(());

/// Returns the directory of the test's cluster.
fn home(ring: &Ring) -> PathBuf {
    ring.cluster().log_dir().parent().expect("logs are in the cluster's directory").to_owned()
}

/// Starts the driver at the kubelet, and writes its CSIDriver object to a file.
async fn at_kubelet(ring: &Ring) -> (RealDriver, String) {
    let segment = format!("{TOPOLOGY}={}", ring.cluster().node_name().unwrap());
    let data = home(ring).join("csi").join(NAME);
    let (log, object) = (ring.cluster().log_dir().join("csi-driver.log"), ring.file("driver.json", ""));
    let (object_file, path) = (object.clone(), object.to_str().unwrap().to_owned());
    let written = log.clone();
    let start = move || {
        let mut command = Command::new(root().join("testing/csi-driver/at-kubelet.sh"));
        command.args([&cluster::tests_name(), "--name", NAME, "--segment", &segment]);
        command.stdout(Stdio::from(fs::File::create(object_file).unwrap()));
        command.stderr(Stdio::from(fs::File::create(log).unwrap()));
        RealDriver::of(command, data)
    };
    let driver = tokio::task::spawn_blocking(start).await.unwrap();
    // The script prints the object before it becomes the driver. The CSINode may still have the driver of an earlier test,
    // which the kubelet removes only before it registers this one. So only the log of this driver counts first.
    until("the kubelet has registered this driver", || async {
        let said = fs::read_to_string(&written).map_err(|error| error.to_string())?;
        match said.contains(REGISTERED) {
            true => Ok(()),
            false => Err(said),
        }
    })
    .await;
    let nodes: Api<CSINode> = Api::all(ring.client.clone());
    until("the CSINode has the driver with its topology key", || async {
        let node = nodes.get(ring.cluster().node_name().unwrap()).await.map_err(|error| error.to_string())?;
        let keys = node.spec.drivers.iter().filter(|driver| driver.name == NAME).flat_map(|one| &one.topology_keys);
        match keys.flatten().any(|key| key == TOPOLOGY) {
            true => Ok(()),
            false => unexpected(node.spec.drivers),
        }
    })
    .await;
    (driver, path)
}

/// Returns a shipped config with the directory of this kubelet.
fn shipped(ring: &Ring, name: &str) -> String {
    let shipped = fs::read_to_string(root().join("configmaps").join(name)).unwrap();
    let usual = "path: /var/lib/kubelet/plugins/csi-hostpath\n";
    assert_eq!(shipped.matches(usual).count(), 1);
    let here = home(ring).join("kubelet/plugins").join(NAME);
    let config = shipped.replace(usual, &format!("path: {}\n", here.display()));
    ring.file(name, &config).to_str().unwrap().to_owned()
}

/// Makes or deletes a snapshot in place of the driver's own snapshotter, with the image's program.
async fn snapshotter(ring: &Ring, of_run: &[(&str, &str)]) {
    let socket = home(ring).join("kubelet/plugins").join(NAME).join("csi.sock");
    let endpoint = format!("unix://{}", socket.display());
    let usual = [
        ("PARAMETER_NAMES", "csi-endpoint"),
        ("CSI_ENDPOINT", &endpoint),
        ("STORAGE_CLASS", "csi"),
        ("SIZE_BYTES", "1"),
    ];
    let texts = ring.file("words", "");
    let mut run = tokio::process::Command::new(program("csi-provisioner"));
    run.env_clear().env("KUBECONFIG", ring.cluster().kubeconfig()).env("FLEX_TERMINATION_LOG", texts);
    let ended = run.envs(usual).envs(of_run.iter().copied()).kill_on_drop(true).output().await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Returns the spec of a pod that has a claim as a device.
fn device(claim: &str) -> Value {
    json!({
        "container": { "volumeDevices": [{ "name": "data", "devicePath": "/dev/data" }], "securityContext": { "runAsUser": 0 } },
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
    })
}

fn claimed(claim: &str) -> Value {
    let mut pod = mounted(json!({ "persistentVolumeClaim": { "claimName": claim } }));
    // The root directory of a new file system belongs to root.
    pod["container"]["securityContext"] = json!({ "runAsUser": 0 });
    pod
}

#[tokio::test]
async fn pods_use_what_the_shipped_config_and_examples_make() {
    let _turn = DRIVER.lock().await;
    let ring = users("examples-csi").await;
    let (driver, object) = at_kubelet(&ring).await;
    let before = driver.list();
    let (config, in_place) = (shipped(&ring, "csi.yaml"), shipped(&ring, "csi-in-place.yaml"));
    // Another class, as it is written for the external provisioner. Its volumes have a file system of their own, so
    // that `df` shows their size.
    let sized = fs::read_to_string(root().join("examples/csi/in-place/storageclass.yaml")).unwrap();
    let sized =
        sized.replace("name: csi-hostpath\n", "name: csi-xfs\n") + "parameters: {csi.storage.k8s.io/fstype: xfs}\n";
    let sized = ring.file("csi-xfs.yaml", &sized).to_str().unwrap().to_owned();
    Snapshotter::ensure().unwrap().install(ring.cluster()).unwrap();
    let of_admin = [
        config.as_str(),
        &in_place,
        &object,
        &sized,
        "examples/csi/storageclass.yaml",
        "examples/csi/in-place/storageclass.yaml",
    ];
    let of_admin: Vec<_> = of_admin.into_iter().flat_map(|file| ["-f", file]).collect();
    kubectl(ring.cluster(), &[&["apply"], of_admin.as_slice()].concat());
    let apply = |file: &str| {
        kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", &format!("examples/csi/{file}.yaml")]);
    };

    // Its pods wait while the examples run.
    let began = Instant::now();
    let small = json!({ "spec": { "resources": { "requests": { "storage": "300Mi" } } } });
    ring.claim_with("grows", "csi-xfs", small).await;
    let grows = r#"set -eu
        size() { df -k /data | tail -n 1 | tr -s ' ' | cut -d ' ' -f 2; }
        echo kept > /data/file; echo "$(size)"
        until [ "$(size)" -gt 450000 ]; do sleep 0.2; done
        echo "$(size)"; cat /data/file"#;
    pod_with(&ring, "grows", grows, claimed("grows")).await;
    apply("block");
    let write = "printf 'kept in block 7' | dd of=/dev/data bs=512 seek=7 conv=notrunc,fsync 2>/dev/null; blockdev --getsize64 /dev/data";
    pod_with(&ring, "block-writer", write, device("csi-block")).await;
    apply("claim");
    apply("pod");
    assert_eq!(log_of(&ring, "csi-writer").await.trim(), "hello from the writer");
    println!("a pod has written after {:?}", began.elapsed());
    let id = uid(&ring.bound("csi-example").await);
    let spec = ring.volumes().get(&names::pv_name(&id)).await.unwrap().spec.unwrap();
    let source = spec.csi.unwrap();
    assert_eq!(source.driver, NAME);
    let affinity = serde_json::to_value(spec.node_affinity).unwrap();
    let term = &affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!((&term["key"], &term["values"]), (&json!(TOPOLOGY), &json!([ring.cluster().node_name().unwrap()])));

    // Another pod reads the volume, and its clone.
    apply("clone");
    for (name, claim) in [("reader", "csi-example"), ("reader-of-copy", "csi-copy")] {
        pod_with(&ring, name, "cat /data/greeting", claimed(claim)).await;
    }
    for name in ["reader", "reader-of-copy"] {
        assert_eq!(log_of(&ring, name).await.trim(), "hello from the writer", "{name}");
    }
    let made = driver.list()["volumes"].as_array().cloned().unwrap();
    let volume = |id: &str| made.iter().find(|volume| volume["name"] == names::pv_name(id)).unwrap();
    let copy = uid(&ring.bound("csi-copy").await);
    assert_eq!(volume(&copy)["source"], format!("volume/{}", volume(&id)["id"].as_str().unwrap()));

    // A snapshot by the driver's snapshotter is restored to a claim whose class names the driver.
    let (pv, of_run) = (names::pv_name(&id), json!({ "csi": source }).to_string());
    let of_volume = [("CLAIM_UUID", id.as_str()), ("PV_NAME", &pv), ("SNAPSHOT_OF", &id), ("VOLUME_SOURCE", &of_run)];
    let make = [("OPERATION", "snapshot"), ("SNAPSHOT_ID", "of-monday")];
    snapshotter(&ring, &[make.as_slice(), &of_volume].concat()).await;
    let stored = driver.list()["snapshots"].as_array().cloned().unwrap();
    let stored = stored.iter().find(|it| it["name"] == "snapshot-of-monday").expect("the snapshot was made");
    let handle = stored["id"].as_str().unwrap().to_owned();
    apply("in-place/snapshot");
    snapshotter_reports(&ring, "csi-snapshot", NAME, (&source.volume_handle, &handle, 1 << 30)).await;
    apply("in-place/restore");
    pod_with(&ring, "reader-of-restored", "cat /data/greeting", claimed("csi-restored")).await;

    assert_eq!(log_of(&ring, "block-writer").await.trim(), (1_u64 << 30).to_string(), "as large as was asked for");
    delete_pod(&ring, "block-writer").await;
    let read = "dd if=/dev/data bs=512 skip=7 count=1 2>/dev/null | head -c 15";
    pod_with(&ring, "block-reader", read, device("csi-block")).await;

    // The file system grows while the pod uses it.
    is_running(&ring, "grows").await;
    let asked = Instant::now();
    ring.ask("grows", "600Mi").await.unwrap();
    // The kubelet may have begun, or be done.
    let is_for_kubelet = |claim: &PersistentVolumeClaim| {
        let status = claim.status.clone().unwrap_or_default();
        let state = status.allocated_resource_statuses.and_then(|states| states.get("storage").cloned());
        matches!(state.as_deref(), Some("NodeResizePending" | "NodeResizeInProgress"))
            || status.capacity.is_some_and(|capacity| capacity["storage"].0 == "600Mi")
    };
    ring.claim_when("grows", "is for the kubelet to expand", is_for_kubelet).await;
    // The kubelet checks the volumes of a pod whenever it reconciles the pod: every minute or two, or when the pod
    // changes.
    kubectl(ring.cluster(), &["-n", &ring.user, "annotate", "pod", "grows", "example.com/look=again"]);
    let message = log_of(&ring, "grows").await;
    println!("the file system of a pod grew after {:?}", asked.elapsed());
    let words: Vec<_> = message.split_whitespace().collect();
    let kib = |n: usize| words[n].parse::<u64>().unwrap();
    assert!((150_000..310_000).contains(&kib(0)) && (450_000..620_000).contains(&kib(1)), "{words:?}");
    assert_eq!(words[2], "kept");
    let grown = names::pv_name(&uid(&ring.get_claim("grows").await));
    ring.has_size("grows", &grown, "600Mi").await;
    let of_driver = ring.volumes().get(&grown).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(of_driver[names::PROVISIONED_BY], NAME);

    // A volume restored from a backup has its data, and is deleted once an admin has vouched for it.
    ring.claim("restored", "csi").await;
    pod_with(&ring, "writer-before", "echo precious > /data/text", claimed("restored")).await;
    ends_well(&ring, "writer-before").await;
    delete_pod(&ring, "writer-before").await;
    let volume = names::pv_name(&uid(&ring.bound("restored").await));
    let of_driver = || driver.list()["volumes"].as_array().cloned().unwrap_or_default();
    let is_there = || of_driver().iter().any(|made| made["name"] == volume);
    let _beside = RESTORED.read().await;
    let backup = Backup::restored(&ring, "restored", is_there).await;
    pod_with(&ring, "reader-after", "cat /data/text", claimed("restored")).await;
    assert_eq!(log_of(&ring, "reader-after").await.trim(), "precious");
    delete_pod(&ring, "reader-after").await;
    backup.vouched_for_and_deleted(&ring, is_there).await;

    assert_eq!(log_of(&ring, "block-reader").await, "kept in block 7");
    assert_eq!(log_of(&ring, "reader-of-restored").await.trim(), "hello from the writer");
    snapshotter_deletes(&ring, "csi-snapshot").await;
    let count = |list: &Value| list["volumes"].as_array().map_or(0, Vec::len);
    assert_eq!(count(&driver.list()), count(&before) + 5, "one volume for each claim");
    clean(&ring).await;
    snapshotter(&ring, &[("OPERATION", "delete-snapshot"), ("SNAPSHOT_ID", &handle)]).await;
    assert_eq!(driver.list(), before, "the driver has the volumes from before");
    kubectl(ring.cluster(), &[&["delete"], of_admin.as_slice()].concat());
    // The kubelet forgets the driver when its socket is removed.
    tokio::task::spawn_blocking(move || drop(driver)).await.unwrap();
}

/// The number of claims at one time.
const CLAIMS: usize = 15;
/// The claim that fails.
const REFUSED: &str = "c12";

/// Creates many claims, one of which is to fail. Waits until all others are bound by few runs and an event gives
/// the reason of the failure. Returns another claim of the failed one's run, or of any shared run.
async fn burst(ring: &Ring, class: &str, refused: Value, says: &str) -> String {
    let create = |n: usize| {
        let name = format!("c{n}");
        let more = if name == REFUSED { refused.clone() } else { json!({}) };
        async move { ring.claim_with(&name, class, more).await }
    };
    join_all((0..CLAIMS).map(create)).await;
    let jobs = all_bound(ring, class, CLAIMS - 1).await;
    println!("claims of each Job: {:?}", jobs.values().map(BTreeSet::len).collect::<Vec<_>>());
    assert!(jobs.len() < CLAIMS * 3 / 4, "{jobs:?}");
    // On a busy machine the failing claim may have been stamped too late for its batch, and has a run of its own. What
    // happens then is shown by `batches::failed_members_delay_no_other_and_share_their_next_run`.
    let shared = jobs.iter().filter(|(name, claims)| name.starts_with("provision-batch-") && claims.len() > 1);
    let (batch, claims) = shared.max_by_key(|(_, claims)| claims.contains(REFUSED)).expect("some claims share a run");
    println!("{batch}: {claims:?}");
    ring.event(&ring.user, REFUSED, reason::PROVISIONING_FAILED, says).await;
    assert_ne!(phase(&ring.get_claim(REFUSED).await), "Bound");
    claims.iter().find(|claim| *claim != REFUSED).unwrap().clone()
}

/// One connection of one run serves many claims; a refusal by the driver concerns one claim alone.
#[tokio::test]
async fn a_burst_of_claims_is_provisioned_by_few_runs() {
    let _turn = DRIVER.lock().await;
    let ring = users("batches-csi").await;
    let (driver, object) = at_kubelet(&ring).await;
    let before = driver.list();
    let (account, config) = (shipped(&ring, "csi.yaml"), shipped(&ring, "csi-batches.yaml"));
    let of_admin = [account.as_str(), &config, &object, "examples/csi/batches/storageclass.yaml"];
    let of_admin: Vec<_> = of_admin.into_iter().flat_map(|file| ["-f", file]).collect();
    kubectl(ring.cluster(), &[&["apply"], of_admin.as_slice()].concat());

    let large = json!({ "spec": { "resources": { "requests": { "storage": "1Ti" } } } });
    let other = burst(&ring, "csi-batches", large, "no place has more than").await;
    pod_with(&ring, "writer", "echo from a batch > /data/text", claimed(&other)).await;
    ends_well(&ring, "writer").await;
    pod_with(&ring, "reader", "cat /data/text", claimed(&other)).await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "from a batch");
    let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
    let bound = claims.iter().filter(|claim| phase(claim) == "Bound");
    let bound: BTreeSet<String> = bound.map(|claim| names::pv_name(&uid(claim))).collect();
    let name = |volume: &Value| volume["name"].as_str().unwrap().to_owned();
    let made: BTreeSet<String> = driver.list()["volumes"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(made, bound, "one volume for each claim that is bound");
    clean(&ring).await;
    assert_eq!(driver.list(), before, "the driver has the volumes from before");
    kubectl(ring.cluster(), &[&["delete"], of_admin.as_slice()].concat());
    tokio::task::spawn_blocking(move || drop(driver)).await.unwrap();
}

/// The file system of the second test has a root directory of root, so that only a pod with `fsGroup` can write there.
#[tokio::test]
async fn the_cases_of_copies_pass_with_a_driver_and_nothing_is_left() {
    let _turn = DRIVER.lock().await;
    let ring = users("conformance-csi").await;
    let (driver, object) = at_kubelet(&ring).await;
    let before = driver.list();
    let config = shipped(&ring, "csi.yaml");
    let of_admin = ["-f", config.as_str(), "-f", &object, "-f", "examples/csi/storageclass.yaml"];
    kubectl(ring.cluster(), &[&["apply"], of_admin.as_slice()].concat());
    let block = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "team" },
        "spec": {
            "storageClassName": "csi", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": { "requests": { "storage": "16Mi" } },
        },
    });
    let block = ring.file("block.json", &block.to_string()).display().to_string();
    let config = format!("{}/csi", orchestrator::ring::OWN);
    for cases in [&COPIES[..], &["--claim", block.as_str(), "--only", "clone-content"]] {
        let ended = conformance(&ring, &[&["--cluster-config", config.as_str()], cases].concat()).await;
        assert_eq!(ended.code, 0, "{}", ended.text);
        assert_eq!(ended.outcomes["clone-content"].0, "passed", "{}", ended.text);
    }
    assert_eq!(driver.list(), before, "the driver has the volumes from before");
    kubectl(ring.cluster(), &[&["delete"], of_admin.as_slice()].concat());
    tokio::task::spawn_blocking(move || drop(driver)).await.unwrap();
}
