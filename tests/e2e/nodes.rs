//! A whole cluster of its own with two nodes, of which each has a disk.
//!
//! Volumes are made on the node of their pod, the scheduler knows the space of both nodes, and a deletion waits for the
//! node that has the storage.

use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use cluster::{Cluster, ClusterNode};
use flex_contract::names;
use flex_contract::reason;
use flex_contract::storage::CAPACITY_DIR;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, PersistentVolume, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use orchestrator::deployed::{
    HOSTPATH, IMAGE, clean, directory, install, kubectl, log_of, make_directory, root, volumes_in,
};
use orchestrator::ring::{OWN, Ring, uid};
use orchestrator::wait::{unexpected, until};

const CLASS: &str = "hostpath";
/// A class whose directory is full on the second node.
const SMALL: &str = "small";
/// The space for that class on the second node, less than a claim of the tests requests.
const ROOM: u64 = 64 << 20;

#[tokio::test]
async fn volumes_of_two_nodes_are_made_and_deleted_where_their_pods_are() {
    let name = format!("{}-nodes", cluster::tests_name());
    cluster::down(&name).await.unwrap();
    // The cluster ends, however the story does.
    let story = tokio::spawn(story(name.clone())).await;
    assert!(cluster::down(&name).await.unwrap());
    for class in [CLASS, SMALL] {
        let _ = fs::remove_dir_all(directory(&format!("nodes-{class}")));
    }
    if let Err(error) = story {
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn story(name: String) {
    let began = Instant::now();
    let lap = |what: &str| println!("{:>6} ms {what}", began.elapsed().as_millis());
    let both = Both::start(&name).await;
    lap("both nodes are ready, and the orchestrator leads on the first");
    let both = Arc::new(both);
    let steps = tokio::spawn(steps(both.clone(), began)).await;
    if let Err(error) = steps {
        describe(both.ring.cluster());
        std::panic::resume_unwind(error.into_panic());
    }
}

async fn steps(both: Arc<Both>, began: Instant) {
    let lap = |what: &str| println!("{:>6} ms {what}", began.elapsed().as_millis());
    both.have_keepers().await;
    lap("the DaemonSet keeps the directory of both nodes");
    both.make_volumes_where_pods_are().await;
    lap("a volume was made, used and deleted on the second node");
    both.are_chosen_by_their_space().await;
    lap("pods were placed where there is room");
    both.keep_a_deletion_while_one_is_down().await;
    lap("a deletion has waited for the second node");
    both.lose_one_for_good().await;
    lap("the volumes of a lost node are gone, and their storage is not");
}

/// The cluster and its nodes.
struct Both {
    ring: Ring,
    first: ClusterNode,
    second: ClusterNode,
}

impl Both {
    /// Starts the cluster, with the orchestrator on the first node and the shipped class on directories of this test.
    async fn start(name: &str) -> Both {
        let cluster = Cluster::whole(name).nodes(2).up().await.expect("the cluster starts");
        let (first, second) = (cluster.node(1).unwrap(), cluster.node(2).unwrap());
        // The second node is stopped later, and the orchestrator must not stop with it.
        kubectl(&cluster, &["cordon", second.name()]);
        install(&cluster, &["flex-provisioner", "hostpath"]).await;
        kubectl(&cluster, &["uncordon", second.name()]);
        let ring = Ring::on_whole(cluster, "two-nodes").await;
        let both = Both { ring, first, second };
        let config = fs::read_to_string(root().join("configmaps/hostpath.yaml")).unwrap();
        let config = both.ring.file("hostpath.yaml", &config.replace(HOSTPATH, &both.path(CLASS)));
        kubectl(both.ring.cluster(), &["apply", "-f", config.to_str().unwrap()]);
        kubectl(both.ring.cluster(), &["apply", "-f", "examples/hostpath/storageclass.yaml"]);
        both
    }

    /// Returns the directory of a class, which both nodes have at the same path.
    fn path(&self, class: &str) -> String {
        directory(&format!("nodes-{class}"))
    }

    /// Returns the volumes of the class on the first and on the second node.
    fn volumes(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let on = |node: &ClusterNode| volumes_in(node.on_machine(self.path(CLASS)).to_str().unwrap());
        (on(&self.first), on(&self.second))
    }

    /// Creates a claim and a pod that writes its name and reads it, with more in its spec. Returns the volume's id.
    async fn write(&self, name: &str, class: &str, size: &str, more: Value) -> String {
        let size = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        self.ring.claim_with(name, class, size).await;
        self.pod(name, name, &format!("echo {name} > /data/text && cat /data/text"), more).await;
        assert_eq!(log_of(&self.ring, name).await.trim(), name);
        uid(&self.ring.bound(name).await)
    }

    async fn pod(&self, name: &str, claim: &str, script: &str, more: Value) {
        let mut pod = json!({
            "metadata": { "name": name },
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }],
            },
        });
        orchestrator::ring::merge(&mut pod["spec"], more);
        let pods = self.ring.api::<Pod>(&self.ring.user);
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// Returns the part of a pod's spec by which it runs on the second node.
    fn on_second(&self) -> Value {
        json!({ "nodeSelector": { names::HOSTNAME: self.second.name() } })
    }

    async fn node_of(&self, pod: &str) -> String {
        let pod = self.ring.api::<Pod>(&self.ring.user).get(pod).await.unwrap();
        pod.spec.unwrap().node_name.unwrap()
    }

    async fn drop_pod(&self, name: &str) {
        let pods = self.ring.api::<Pod>(&self.ring.user);
        pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
        until(format!("pod {name} is gone"), || async {
            match pods.get_opt(name).await.map_err(|error| error.to_string())? {
                None => Ok(()),
                Some(pod) => unexpected(pod.status),
            }
        })
        .await;
    }

    async fn volume(&self, id: &str) -> Option<PersistentVolume> {
        self.ring.volumes().get_opt(&names::pv_name(id)).await.unwrap()
    }

    /// Checks that the DaemonSet of the shipped class runs on both nodes, and has made the directory of each.
    async fn have_keepers(&self) {
        let status = ["-n", OWN, "rollout", "status", "daemonset/hostpath-keeper", "--timeout=300s"];
        kubectl(self.ring.cluster(), &status);
        let keepers = ListParams::default().labels("app=hostpath-keeper");
        let keepers = self.ring.api::<Pod>(OWN).list(&keepers).await.unwrap().items;
        let nodes: BTreeSet<String> = keepers.into_iter().filter_map(|pod| pod.spec?.node_name).collect();
        assert_eq!(nodes, [self.first.name(), self.second.name()].map(String::from).into());
        for node in [&self.first, &self.second] {
            let path = self.path(CLASS);
            until(format!("only root can list {path} of {}", node.name()), || async {
                match node.run("stat", &["-c", "%a", &path]).map_err(|error| error.to_string())?.trim() {
                    "1700" => Ok(()),
                    mode => unexpected(mode),
                }
            })
            .await;
        }
        assert_ne!(self.first.on_machine(self.path(CLASS)), self.second.on_machine(self.path(CLASS)));
    }

    async fn make_volumes_where_pods_are(&self) {
        let before = self.volumes();
        let id = self.write("there", CLASS, "1Gi", self.on_second()).await;
        let path = format!("{}/{id}", self.path(CLASS));
        assert_eq!(fs::read_to_string(self.second.on_machine(format!("{path}/text"))).unwrap(), "there\n");
        assert!(!fs::exists(&path).unwrap(), "the first node has no directory of it");
        assert_eq!(self.volumes(), (before.0.clone(), &before.1 | &BTreeSet::from([id.clone()])));

        let spec = self.volume(&id).await.unwrap().spec.unwrap();
        assert_eq!(spec.local.unwrap().path, path);
        let only = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
            { "key": names::HOSTNAME, "operator": "In", "values": [self.second.name()] },
        ] }] } });
        assert_eq!(json!(spec.node_affinity), only);
        self.ran_on("provision", &id, self.second.name()).await;
        // A pod that may run anywhere follows the volume.
        self.pod("reader", "there", "cat /data/text", json!({})).await;
        assert_eq!(log_of(&self.ring, "reader").await.trim(), "there");
        assert_eq!(self.node_of("reader").await, self.second.name());

        // Another volume is on the other node.
        let first = json!({ "nodeSelector": { names::HOSTNAME: self.first.name() } });
        let here = self.write("here", CLASS, "1Gi", first).await;
        assert_eq!(self.volumes(), (&before.0 | &[here.clone()].into(), &before.1 | &[id.clone()].into()));

        clean(&self.ring).await;
        assert_eq!(self.volumes(), before, "the directories are deleted on both nodes");
        self.ran_on("delete", &id, self.second.name()).await;
        self.ran_on("delete", &here, self.first.name()).await;
        for node in [&self.first, &self.second] {
            until(format!("the keeper of {} has removed what the deletion left", node.name()), || async {
                let all = node.run("ls", &["-A", &self.path(CLASS)]).map_err(|error| error.to_string())?;
                // Capacity runs use this one again.
                let left: Vec<&str> = all.lines().filter(|name| *name != CAPACITY_DIR).collect();
                if left.is_empty() { Ok(()) } else { unexpected(left) }
            })
            .await;
        }
    }

    /// Checks that the scheduler has put each pod of an operation for a volume on this node.
    async fn ran_on(&self, operation: &str, id: &str, node: &str) {
        let scheduled = ListParams::default().fields("reason=Scheduled,involvedObject.kind=Pod");
        // The scheduler writes its events a little after its decisions.
        let of_run = until(format!("an event about the {operation} run of {id}"), || async {
            let events = self.ring.api::<Event>(OWN).list(&scheduled).await.map_err(|error| error.to_string())?;
            let messages = events.items.into_iter().filter_map(|event| event.message);
            let of_run: Vec<String> =
                messages.filter(|message| message.contains(operation) && message.contains(id)).collect();
            if of_run.is_empty() { unexpected(of_run) } else { Ok(of_run) }
        })
        .await;
        let to_node = format!(" to {node}");
        assert!(of_run.iter().all(|message| message.ends_with(&to_node)), "{of_run:?}");
    }

    /// Checks that the published capacity, and nothing else, keeps a pod off the node that it prefers.
    async fn are_chosen_by_their_space(&self) {
        let path = self.path(SMALL);
        make_directory(&path);
        make_directory(self.second.on_machine(&path).to_str().unwrap());
        let options = format!("size={ROOM},mode=1700");
        self.second.run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &path]).unwrap();
        self.small_class(&path).await;
        until("the capacity of both nodes is published", || async {
            let all = self.ring.shown_bytes().await;
            let bytes = |node: &ClusterNode| -> Option<u64> {
                all.get(&format!("{SMALL}@{}", node.name()))?.split('/').next()?.parse().ok()
            };
            match (bytes(&self.first), bytes(&self.second)) {
                (Some(first), Some(second)) if first > 1 << 30 && second > 0 && second <= ROOM => Ok(()),
                _ => unexpected(all),
            }
        })
        .await;
        let preference = json!({ "matchExpressions": [
            { "key": names::HOSTNAME, "operator": "In", "values": [self.second.name()] },
        ] });
        let preferred = json!([{ "weight": 100, "preference": preference }]);
        let prefers_second =
            json!({ "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } } });
        self.write("fits", SMALL, "16Mi", prefers_second.clone()).await;
        self.write("large", SMALL, "1Gi", prefers_second).await;
        assert_eq!(self.node_of("fits").await, self.second.name());
        assert_eq!(self.node_of("large").await, self.first.name(), "the second node has no room");
        clean(&self.ring).await;
        self.ring.api::<ConfigMap>(OWN).delete(SMALL, &DeleteParams::default()).await.unwrap();
        self.second.run("umount", &["--lazy", &path]).unwrap();
    }

    /// Creates a copy of the shipped class with another directory.
    async fn small_class(&self, path: &str) {
        let map = fs::read_to_string(root().join("configmaps/hostpath.yaml")).unwrap();
        let map = map.split("\n---").next().unwrap().replace(HOSTPATH, path);
        let map: ConfigMap = serde_saphyr::from_str(&map).unwrap();
        let data = map.data.as_ref().unwrap().iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let data: Vec<(&str, &str)> = data.chain([("placement", "selected-node")]).collect();
        let delayed = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
        self.ring.class(SMALL, names::DEFAULT_PROVISIONER, delayed).await;
        self.ring.config(SMALL, SMALL, &data).await;
    }

    async fn ready(&self, expected: bool) {
        let nodes: Api<Node> = Api::all(self.ring.client.clone());
        until(format!("the second node is ready: {expected}"), || async {
            let node = nodes.get(self.second.name()).await.map_err(|error| error.to_string())?;
            let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
            let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
            match ready {
                Some(ready) if (ready.status == "True") == expected => Ok(()),
                other => unexpected(other),
            }
        })
        .await;
    }

    /// Waits for an event of a volume that contains a text, and prints it.
    async fn says(&self, id: &str, reason: impl AsRef<str>, text: &str) {
        let message = self.ring.event("default", &names::pv_name(id), reason, text).await;
        println!("          {message}");
    }

    /// Waits until the scheduler has decided about the pod of a Job. Returns whether it has found a node.
    async fn is_placed(&self, job: &Job) -> bool {
        until("the scheduler has decided", || async {
            let pod = self.ring.pod_of(job).await;
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let reasons: Vec<_> = conditions.filter_map(|condition| condition.reason.clone()).collect();
            match pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
                true => Ok(true),
                false if reasons.iter().any(|reason| reason == "Unschedulable") => Ok(false),
                false => unexpected(reasons),
            }
        })
        .await
    }

    /// Checks that deletions which are due before and after Kubernetes notices an outage wait, say why, and are done once
    /// the node is back.
    async fn keep_a_deletion_while_one_is_down(&self) {
        let mut ids = Vec::new();
        for name in ["early", "late"] {
            ids.push(self.write(name, CLASS, "1Gi", self.on_second()).await);
            self.drop_pod(name).await;
        }
        let before = self.volumes();
        self.second.stop().await.unwrap();
        // The Node object still says that the node is ready.
        self.ring.delete_claim("early").await;
        self.ready(false).await;
        self.ring.delete_claim("late").await;
        // On a busy machine the scheduler may be too late to put the pod on a node that counts as ready.
        let is_placed = self.is_placed(&self.ring.job(OWN, "delete", &ids[0], 1).await).await;
        let began = Instant::now();
        let silent = format!("a pod of the provisioner is on node {}, which does not answer", self.second.name());
        let waits = format!("delete run: it must run on node {}, which does not answer", self.second.name());
        for (id, text) in ids.iter().zip([if is_placed { &silent } else { &waits }, &waits]) {
            self.says(id, reason::VOLUME_FAILED_DELETE, text).await;
        }
        println!("{:>6} ms until both volumes said why they wait", began.elapsed().as_millis());
        for id in &ids {
            assert!(self.volume(id).await.is_some(), "the volume waits for its node");
        }
        assert_eq!(self.volumes(), before, "nothing was deleted");
        // The first node works as before.
        let first = json!({ "nodeSelector": { names::HOSTNAME: self.first.name() } });
        let meanwhile = self.write("meanwhile", CLASS, "1Gi", first).await;
        self.drop_pod("meanwhile").await;
        self.ring.delete_claim("meanwhile").await;
        self.ring.volume_gone(&names::pv_name(&meanwhile)).await;

        let began = Instant::now();
        self.second.start().await.unwrap();
        self.ready(true).await;
        for id in &ids {
            self.ring.volume_gone(&names::pv_name(id)).await;
        }
        println!("{:>6} ms until both were deleted after the start of the node", began.elapsed().as_millis());
        let after = self.volumes().1;
        assert!(ids.iter().all(|id| !after.contains(id)), "{after:?}");
    }

    /// Checks what docs/how-to/lost-nodes.md says: a volume waits, an admin lets go of it, or the class says that the
    /// storage is gone with the node.
    async fn lose_one_for_good(&self) {
        let mut ids = Vec::new();
        for name in ["let-go", "forgotten"] {
            ids.push(self.write(name, CLASS, "1Gi", self.on_second()).await);
            self.drop_pod(name).await;
        }
        let before = self.volumes();
        self.second.stop().await.unwrap();
        kubectl(self.ring.cluster(), &["delete", "node", self.second.name()]);
        for name in ["let-go", "forgotten"] {
            self.ring.delete_claim(name).await;
        }
        for id in &ids {
            let gone = format!("node {} is gone, and storage on it must be deleted", self.second.name());
            self.says(id, reason::VOLUME_FAILED_DELETE, &gone).await;
        }
        let let_go = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
        let volume = names::pv_name(&ids[0]);
        self.ring.volumes().patch(&volume, &PatchParams::default(), &Patch::Merge(let_go)).await.unwrap();
        self.ring.volume_gone(&volume).await;
        assert!(self.volume(&ids[1]).await.is_some(), "the other volume still waits");

        let forget = r#"{"data": {"node-gone": "forget"}}"#;
        kubectl(self.ring.cluster(), &["-n", OWN, "patch", "configmap", CLASS, "-p", forget]);
        self.ring.volume_gone(&names::pv_name(&ids[1])).await;
        self.says(&ids[1], reason::STORAGE_ABANDONED, "and with it the storage there (node-gone: forget)").await;

        // A node that comes back all the same has its directories, and nobody deletes them.
        self.second.start().await.unwrap();
        assert_eq!(self.volumes(), before);
    }
}

/// Prints what is in a cluster whose test has failed.
fn describe(cluster: &Cluster) {
    for what in ["nodes", "pods,jobs,pvc,pv,csistoragecapacities", "events"] {
        let _ = cluster.kubectl().args(["get", what, "-A", "-o", "wide"]).status();
    }
    let _ = cluster.kubectl().args(["-n", OWN, "logs", "deployment/flex-provisioner", "--tail=60"]).status();
}
