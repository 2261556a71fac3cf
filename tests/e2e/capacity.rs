//! The third ring with several nodes, of which all but one are full. The tests check where pods and volumes are placed.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use flex_contract::exit;
use flex_contract::names;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;

use orchestrator::deployed::{HOSTPATH, IMAGE, NODES as ALONE, clean, directory, log_of, make_directory, root, users};
use orchestrator::ring::{OWN, Ring, annotation, phase, uid};
use orchestrator::wait::{unexpected, until};

const CLASS: &str = "rooms";
const NODES: usize = 4;
const PODS: usize = 8;
/// Keeps the pods of other tests off nodes that run nothing.
const TAINT: &str = "flex-test/rooms";

/// Nodes without a kubelet. The scheduler takes them for the emptiest nodes, and their disks are full.
struct FullNodes {
    client: Client,
    names: Vec<String>,
    /// The number of attempts there, by claim.
    tries: Arc<Mutex<BTreeMap<String, usize>>>,
    work: JoinHandle<()>,
}

impl FullNodes {
    async fn join(client: &Client, number: usize) -> FullNodes {
        let names: Vec<String> = (0..number).map(|n| format!("full-{n}")).collect();
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        for name in &names {
            // Left by a test that was stopped half-way.
            let _ = nodes.delete(name, &DeleteParams::default()).await;
            let _ = leases.delete(name, &DeleteParams::default()).await;
            let room = json!({ "cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi" });
            let now = jiff::Timestamp::now().to_string();
            let ready = json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now });
            let node = json!({
                "metadata": { "name": name, "labels": { names::HOSTNAME: name, names::OS: names::OS_LINUX } },
                "spec": { "taints": [{ "key": TAINT, "effect": "NoSchedule" }] },
            });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
            let status = json!({ "status": { "capacity": room, "allocatable": room, "conditions": [ready] } });
            nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
            let lease =
                json!({ "metadata": { "name": name }, "spec": { "holderIdentity": name, "leaseDurationSeconds": 40 } });
            leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
        }
        let tries = Arc::new(Mutex::new(BTreeMap::new()));
        let work = tokio::spawn(kubelets(client.clone(), names.clone(), tries.clone()));
        FullNodes { client: client.clone(), names, tries, work }
    }

    async fn leave(self) {
        let nodes: Api<Node> = Api::all(self.client.clone());
        for name in &self.names {
            nodes.delete(name, &DeleteParams::default()).await.unwrap();
        }
        self.work.abort();
    }
}

/// Runs the pods of these nodes, whose disks have no space.
async fn kubelets(client: Client, names: Vec<String>, tries: Arc<Mutex<BTreeMap<String, usize>>>) {
    let pods: Api<Pod> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let mut renewed = None::<Instant>;
    loop {
        if renewed.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
            renewed = Some(Instant::now());
            let now = format!("{:.6}", jiff::Timestamp::now());
            for name in &names {
                let body = Patch::Merge(json!({ "spec": { "renewTime": now } }));
                let _ = leases.patch(name, &PatchParams::default(), &body).await;
            }
        }
        for name in &names {
            let here = ListParams::default().fields(&format!("spec.nodeName={name}"));
            for pod in pods.list(&here).await.map(|list| list.items).unwrap_or_default() {
                run(&client, &pod, &tries).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn run(client: &Client, pod: &Pod, tries: &Mutex<BTreeMap<String, usize>>) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
    if pod.metadata.deletion_timestamp.is_some() {
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await;
        return;
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let (Some("Pending"), Some(operation)) = (phase, pod.labels().get(names::LABEL_OPERATION)) else { return };
    let (code, texts) = match operation.as_str() {
        "capacity" => (0, "flex-capacity 1 0"),
        "delete" => (0, ""),
        _ => {
            let claim = pod.labels()[names::LABEL_VOLUME_ID].clone();
            *tries.lock().unwrap().entry(claim).or_default() += 1;
            (exit::UNAVAILABLE, "no room")
        }
    };
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let ended =
        json!({ "terminated": { "exitCode": code, "reason": "Completed", "message": texts, "finishedAt": now } });
    let container = json!({ "name": "provisioner", "image": IMAGE, "imageID": "", "ready": false, "restartCount": 0, "state": ended });
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let status = json!({ "status": { "phase": phase, "containerStatuses": [container] } });
    let _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(status)).await;
}

/// Creates a copy of the class `hostpath` with another directory, which also runs on these nodes.
async fn class(ring: &Ring) {
    let map = fs::read_to_string(root().join("configmaps/hostpath.yaml")).unwrap();
    let map = map.split("\n---").next().unwrap().replace(HOSTPATH, &directory(CLASS));
    let map: ConfigMap = serde_saphyr::from_str(&map).unwrap();
    make_directory(&directory(CLASS));
    let mut data: Vec<(&str, &str)> =
        map.data.as_ref().unwrap().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    data.extend([("placement", "selected-node"), ("tolerations", "[{key: flex-test/rooms, operator: Exists}]")]);
    let classes: Api<StorageClass> = Api::all(ring.client.clone());
    let _ = classes.delete(CLASS, &DeleteParams::default()).await;
    ring.class(CLASS, names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    ring.config(CLASS, CLASS, &data).await;
}

async fn pod(ring: &Ring, name: &str) {
    ring.claim(name, CLASS).await;
    let pod = json!({
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{ "key": TAINT, "operator": "Exists" }],
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["sh", "-c", "echo here > /data/was && cat /data/was"],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        },
    });
    ring.api::<Pod>(&ring.user).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

#[tokio::test]
async fn pods_are_placed_on_the_one_node_with_capacity() {
    let _more_nodes = ALONE.lock().await;
    let ring = users("rooms").await;
    let full = FullNodes::join(&ring.client, NODES).await;
    class(&ring).await;
    let capacities = ring.api::<CSIStorageCapacity>(OWN);
    until("the capacity of all nodes is published", || async {
        let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let known: Vec<_> = all.iter().filter(|one| one.storage_class_name == CLASS).map(|one| &one.capacity).collect();
        if known.len() > NODES { Ok(()) } else { unexpected(known) }
    })
    .await;

    let began = Instant::now();
    let names: Vec<String> = (0..PODS).map(|n| format!("pod-{n}")).collect();
    for name in &names {
        pod(&ring, name).await;
    }
    let mut attempts = Vec::new();
    for name in &names {
        assert_eq!(log_of(&ring, name).await.trim(), "here");
        let claim = ring.get_claim(name).await;
        assert_eq!(phase(&claim), "Bound");
        let wrong = full.tries.lock().unwrap().get(&uid(&claim)).copied().unwrap_or_default();
        assert!(wrong <= 1, "{name} was tried {wrong} times on nodes without capacity");
        attempts.push(annotation(&claim, names::ATTEMPT).unwrap());
    }
    let wrong: usize = full.tries.lock().unwrap().values().sum();
    println!(
        "{PODS} of {PODS} pods ran in {:.1?}, with {wrong} wrong tries; attempts: {}",
        began.elapsed(),
        attempts.join(" ")
    );

    clean(&ring).await;
    full.leave().await;
    Api::<StorageClass>::all(ring.client.clone()).delete(CLASS, &DeleteParams::default()).await.unwrap();
    ring.api::<ConfigMap>(OWN).delete(CLASS, &DeleteParams::default()).await.unwrap();
    until("no capacity of the deleted class is published", || async {
        let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let leftovers: Vec<_> =
            all.iter().filter(|one| one.storage_class_name == CLASS).map(ResourceExt::name_any).collect();
        if leftovers.is_empty() { Ok(()) } else { unexpected(leftovers) }
    })
    .await;
}
