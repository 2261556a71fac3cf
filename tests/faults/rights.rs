//! The orchestrator uses all its permissions, and no others: the test compares the rules of `deploy/` with the requests
//! in the API server's audit log.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;

use cluster::{ClientLimits, Cluster, Snapshotter};
use flex_contract::names;
use flex_contract::reason;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotClass};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node as NodeObject, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use orchestrator::ring::{ADMIN, OWN, Ring, USER, annotation, uid};
use orchestrator::wait::{GUARD, unexpected, until, within};
use serde_json::{Value, json};

use crate::node::{FAILS, Node};

/// A config namespace that was deleted, together with the Role in it.
const GONE: &str = "gone";
/// The group of resources that only the admission policies use, and no request.
const MARKS: &str = "flex-provisioner.io";
/// The ClusterRole of images.
const OF_IMAGES: &str = "flex-provisioner-image";
/// The ClusterRole for people who only look.
const OF_PEOPLE: &str = "flex-provisioner-viewer";

/// A permission of one role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    role: String,
    /// The namespace of the permission, or `None` for all.
    namespaces: Option<Vec<String>>,
    group: String,
    resource: String,
    verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {} (group {:?})", self.role, self.verb, self.resource, self.group)
    }
}

/// A kind of request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    namespace: String,
    group: String,
    resource: String,
    verb: String,
}

impl Right {
    fn permits(&self, request: &Request) -> bool {
        let here = self.namespaces.as_ref().is_none_or(|all| all.contains(&request.namespace));
        here && (&self.group, &self.resource, &self.verb) == (&request.group, &request.resource, &request.verb)
    }
}

fn documents(yaml: &str) -> Vec<Value> {
    let texts = yaml.split("\n---").map(|text| text.trim_start_matches("---"));
    texts
        .map(|text| serde_saphyr::from_str::<Value>(text).expect("a manifest is YAML"))
        .filter(|one| !one.is_null())
        .collect()
}

/// Returns the permissions of the orchestrator. A Role without a namespace counts in `namespaces`.
fn rights(documents: &[Value], namespaces: impl Fn(&str) -> Vec<String>) -> BTreeSet<Right> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let mut rights = BTreeSet::new();
    for document in documents {
        let (kind, role) = (text(&document["kind"]), text(&document["metadata"]["name"]));
        if !matches!(kind.as_str(), "Role" | "ClusterRole") || [OF_IMAGES, OF_PEOPLE].contains(&role.as_str()) {
            continue;
        }
        let here = match document["metadata"]["namespace"].as_str() {
            _ if kind == "ClusterRole" => Vec::new(),
            Some(namespace) => vec![namespace.to_owned()],
            None => namespaces(&role),
        };
        for rule in document["rules"].as_array().expect("a role has rules") {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let namespaces = (kind == "Role").then(|| here.clone());
                        let (role, group, resource) = (role.clone(), group.clone(), resource.clone());
                        rights.insert(Right { role, namespaces, group, resource, verb });
                    }
                }
            }
        }
    }
    assert!(!rights.is_empty());
    rights
}

fn path(relative: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

fn shipped() -> Vec<Value> {
    documents(&std::fs::read_to_string(path("deploy/kustomize/rbac.yaml")).unwrap())
}

/// Returns the orchestrator's requests from the audit log, and those that were forbidden.
fn audited(log: &Path) -> (BTreeSet<Request>, BTreeSet<Request>) {
    let account = format!("system:serviceaccount:{OWN}:flex-provisioner");
    let (mut all, mut refused) = (BTreeSet::new(), BTreeSet::new());
    for line in std::fs::read_to_string(log).expect("there is an audit log").lines() {
        let entry: Value = serde_json::from_str(line).expect("each line is a JSON object");
        if entry["impersonatedUser"]["username"] != json!(account) {
            continue;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let object = &entry["objectRef"];
        let resource = match object["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&object["resource"])),
            None => text(&object["resource"]),
        };
        let request = Request {
            namespace: text(&object["namespace"]),
            group: text(&object["apiGroup"]),
            resource,
            verb: text(&entry["verb"]),
        };
        if entry["annotations"]["authorization.k8s.io/decision"] == json!("forbid") {
            refused.insert(request.clone());
        }
        all.insert(request);
    }
    (all, refused)
}

#[tokio::test]
async fn the_orchestrator_uses_exactly_the_shipped_rights() {
    let flags = ["--config-namespace", OWN, "--config-namespace", GONE, "--sweep-interval", "1s"];
    // The audit log contains this orchestrator alone.
    let cluster = Cluster::control_plane().with_controller_manager(ClientLimits::Raised).await;
    let mut ring = Ring::on(cluster.expect("the control plane starts"), &flags).await;
    ring.with_shipped_rights();
    ring.install_grants();
    let _node = Node::start(ring.client.clone()).await;
    ring.run().await;
    everything(&mut ring).await;
    ring.stop().await;

    let (requests, refused) = audited(&ring.cluster().audit_log());
    // The orchestrator's own namespace needs both Roles of the file, and each config namespace the Role for configs.
    let rights = rights(&shipped(), |role| match role {
        "flex-provisioner-configs" => vec![OWN.into(), ADMIN.into()],
        _ => vec![OWN.into()],
    });
    let missing: Vec<_> = requests
        .iter()
        .filter(|request| request.namespace != GONE && !rights.iter().any(|right| right.permits(request)))
        .collect();
    assert!(missing.is_empty(), "requested, and not in deploy/kustomize/rbac.yaml: {missing:#?}");
    let refused: Vec<_> = refused.iter().filter(|request| request.namespace != GONE).collect();
    assert!(refused.is_empty(), "refused: {refused:#?}");

    let (marks, rights): (Vec<_>, Vec<_>) = rights.iter().partition(|right| right.group == MARKS);
    let unused: Vec<_> = rights.iter().filter(|right| !requests.iter().any(|request| right.permits(request))).collect();
    let unused: Vec<_> = unused.iter().map(ToString::to_string).collect();
    assert!(unused.is_empty(), "in deploy/kustomize/rbac.yaml, and never used: {unused:#?}");
    let policies = std::fs::read_to_string(path("deploy/kustomize/policies.yaml")).unwrap();
    for mark in &marks {
        let asked = policies.lines().any(|line| {
            line.contains(&format!("group('{MARKS}').resource('{}')", mark.resource))
                && line.contains(&format!("check('{}')", mark.verb))
        });
        assert!(asked, "no admission policy asks for {mark}");
    }
    println!(
        "{} rights, {} kinds of requests: none missing, none unused; {} for the admission policies",
        rights.len(),
        requests.len(),
        marks.len()
    );
}

#[test]
fn the_chart_grants_the_same_rights() {
    let helm = cluster::helm().expect("helm is there");
    let rendered = |more: &[&str]| {
        let chart = ["template", "flex-provisioner", "deploy/helm/flex-provisioner", "--namespace", OWN];
        let rbac = ["--kube-version", "1.36.0", "--show-only", "templates/rbac.yaml"];
        let output = Command::new(&helm).current_dir(path("")).args(chart).args(rbac).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        documents(&String::from_utf8(output.stdout).unwrap())
    };
    let each = |rights: BTreeSet<Right>| -> BTreeSet<Right> {
        let apart = |right: Right| match right.namespaces.clone() {
            None => vec![right],
            Some(all) => all.into_iter().map(|one| Right { namespaces: Some(vec![one]), ..right.clone() }).collect(),
        };
        rights.into_iter().flat_map(apart).collect()
    };
    let everywhere = |configs: Vec<String>| {
        each(rights(&shipped(), move |role| match role {
            "flex-provisioner-configs" => configs.clone(),
            _ => vec![OWN.into()],
        }))
    };
    let none = |_: &str| panic!("the chart writes every namespace");
    assert_eq!(each(rights(&rendered(&[]), none)), everywhere(vec![OWN.into()]));

    // Without configs in it, the orchestrator's own namespace needs no right to ConfigMaps or ServiceAccounts.
    let mut apart = everywhere(vec![OWN.into(), ADMIN.into()]);
    let of_configs = |right: &Right| matches!(right.resource.as_str(), "configmaps" | "serviceaccounts");
    apart.retain(|right| !of_configs(right) || right.namespaces != Some(vec![OWN.into()]));
    let set = format!("configNamespaces={{{ADMIN}}}");
    assert_eq!(each(rights(&rendered(&["--set", &set]), none)), apart);
}

/// Makes the orchestrator do everything that it can do.
async fn everything(ring: &mut Ring) {
    // A claim's life, with expansion and deletion.
    let growing = [("capabilities", "expand"), ("max-size", "10Gi")];
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "allowVolumeExpansion": true })).await;
    ring.config("c", "c", &growing).await;
    ring.claim("a", "c").await;
    let volume = ring.bound("a").await.spec.unwrap().volume_name.unwrap();
    let more = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    ring.claims().patch("a", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    let grown = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.capacity.as_ref()).is_some_and(|has| has["storage"].0 == "2Gi")
    };
    ring.claim_when("a", "has grown", grown).await;
    ring.delete_claim("a").await;
    ring.volume_gone(&volume).await;

    many_at_one_time(ring).await;
    pooled_volumes(ring).await;
    snapshots_of_a_claim(ring).await;
    deleted_node(ring).await;
    published_capacity(ring).await;
    returning_and_deleted_revisions(ring).await;
    orphaned_pod(ring).await;
    external_provisioner(ring).await;
    former_deployment(ring).await;

    // One process emits an event, and the next process emits it again.
    ring.claim_with("big", "c", json!({ "spec": { "resources": { "requests": { "storage": "1Ti" } } } })).await;
    ring.event(USER, "big", reason::PROVISIONING_FAILED, "class c provides at most").await;
    ring.stop().await;

    // A foreign Job has the name of the orchestrator's Job.
    ring.claim("b", "c").await;
    let name = format!("provision-{}-1", uid(&ring.get_claim("b").await));
    let pod = json!({ "restartPolicy": "Never", "containers": [{ "name": "c", "image": "example/image" }] });
    let job = json!({ "metadata": { "name": name }, "spec": { "suspend": true, "template": { "spec": pod } } });
    let jobs = ring.api::<Job>(ADMIN);
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    ring.run().await;
    ring.event(USER, "b", reason::PROVISIONING_FAILED, "belongs to somebody else").await;
    let background = DeleteParams::background();
    jobs.delete(&name, &background).await.unwrap();
    ring.bound("b").await;
    let repeated = until("the event is counted twice", || async {
        let list = ListParams::default().fields("involvedObject.name=big");
        let events =
            ring.api::<k8s_openapi::api::core::v1::Event>(USER).list(&list).await.map_err(|e| e.to_string())?;
        let counts: Vec<_> = events.iter().map(|event| event.count).collect();
        if counts.iter().any(|count| count.unwrap_or(0) > 1) { Ok(()) } else { unexpected(counts) }
    });
    repeated.await;
}

/// Makes so many volumes at one time that sync probes are needed.
async fn many_at_one_time(ring: &Ring) {
    let batches = [("batch-size", "10"), ("batch-window", "300ms"), ("max-in-flight", "100")];
    ring.config("m", "m", &batches).await;
    let names: Vec<String> = (0..20).map(|n| format!("m-{n}")).collect();
    for name in &names {
        ring.claim(name, "m").await;
    }
    for name in &names {
        ring.bound(name).await;
        ring.delete_claim(name).await;
    }
    for name in &names {
        ring.claim_gone(name).await;
    }
}

/// Fills a pool; a claim gets a pooled volume, and the next volume stays unclaimed.
async fn pooled_volumes(ring: &Ring) {
    let can = ("capabilities", "pool");
    let counted = |count: usize| async move {
        let volumes: Api<PersistentVolume> = Api::all(ring.client.clone());
        let labelled = ListParams::default().labels(names::LABEL_POOL);
        until(format!("{count} volumes are ready"), || async {
            let ready = volumes.list(&labelled).await.map_err(|error| error.to_string())?.items;
            let requests = ring.api::<PersistentVolumeClaim>(OWN).list(&labelled).await;
            let requests = requests.map_err(|error| error.to_string())?.items;
            let names: Vec<_> = ready.iter().map(|volume| volume.name_any()).collect();
            if names.len() == count && requests.is_empty() { Ok(names) } else { unexpected((names, requests.len())) }
        })
        .await
    };
    ring.config("p", "p", &[can, ("pool", "1Gi=1")]).await;
    let ready = counted(1).await;
    ring.claim("p", "p").await;
    let volume = ring.bound("p").await.spec.unwrap().volume_name.unwrap();
    assert_eq!(ready, [volume.as_str()]);
    let next = counted(1).await;
    ring.config("p", "p", &[can]).await;
    counted(0).await;
    ring.delete_claim("p").await;
    for volume in [&volume, &next[0]] {
        ring.volume_gone(volume).await;
    }
}

/// Makes snapshots that must wait, fail, are restored and deleted.
async fn snapshots_of_a_claim(ring: &Ring) {
    Snapshotter::ensure().unwrap().install(ring.cluster()).unwrap();
    let class =
        json!({ "metadata": { "name": "s" }, "driver": names::DEFAULT_PROVISIONER, "deletionPolicy": "Delete" });
    let classes: Api<VolumeSnapshotClass> = Api::all(ring.client.clone());
    classes.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    ring.config("s", "s", &[("capabilities", "snapshot"), ("backoff", "1s")]).await;
    let snapshots = ring.api::<VolumeSnapshot>(USER);
    let source = json!({ "persistentVolumeClaimName": "s" });
    let snapshot = json!({ "metadata": { "name": "s" }, "spec": { "volumeSnapshotClassName": "s", "source": source } });
    snapshots.create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await.unwrap();
    ring.event(USER, "s", reason::SNAPSHOT_CREATION_FAILED, "the provisioner waits for it").await;
    ring.claim("s", "s").await;
    until("the snapshot is ready", || async {
        let status = snapshots.get("s").await.map_err(|error| error.to_string())?.status;
        if status.as_ref().is_some_and(|s| s.ready_to_use == Some(true)) { Ok(()) } else { unexpected(status) }
    })
    .await;
    let from = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" });
    ring.claim_with("restored", "s", json!({ "spec": { "dataSource": from } })).await;
    ring.bound("restored").await;
    snapshots.delete("s", &DeleteParams::default()).await.unwrap();
    until("the snapshot is deleted", || async {
        match snapshots.get_opt("s").await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(snapshot) => unexpected(snapshot.metadata),
        }
    })
    .await;
}

/// Forgets the leftovers on a deleted node, if the config says so.
async fn deleted_node(ring: &Ring) {
    let nodes: Api<NodeObject> = Api::all(ring.client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "ghost" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    ring.class("n", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    let keys = [("placement", "selected-node"), ("node-gone", "forget"), (FAILS, "9"), ("backoff", "60s")];
    ring.config("n", "n", &keys).await;
    let selected = json!({ "metadata": { "annotations": { names::SELECTED_NODE: "ghost" } } });
    ring.claim_with("n", "n", selected).await;
    ring.claim_when("n", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    nodes.delete("ghost", &DeleteParams::default()).await.unwrap();
    ring.delete_claim("n").await;
    ring.claim_gone("n").await;
}

/// Starts the external provisioner of a driver, and checks that the config leaves its classes alone.
async fn external_provisioner(ring: &Ring) {
    let spec = json!({ "holderIdentity": "sidecar", "leaseDurationSeconds": 600 });
    let lease = json!({ "metadata": { "name": "csi-example-com" }, "spec": spec });
    let leases = ring.api::<Lease>(USER);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    ring.class("d", "csi.example.com", json!({})).await;
    ring.config("d", "d", &[("replaces-provisioner", "csi.example.com"), ("replaces-provisioner-namespace", USER)])
        .await;
    until("the verdict names the external provisioner", || async {
        let config = ring.api::<ConfigMap>(ADMIN).get("d").await.map_err(|error| error.to_string())?;
        let verdict = config.annotations().get(names::VERDICT).cloned().unwrap_or_default();
        if verdict.contains("sidecar holds the Lease") { Ok(()) } else { unexpected(verdict) }
    })
    .await;
}

/// Looks for the Deployment of a provisioner that is no CSI driver. Its account may create no volumes, so that the config
/// serves the class.
async fn former_deployment(ring: &Ring) {
    ring.former_deployment(USER, "former", 1).await;
    ring.class("e", "example.com/former", json!({})).await;
    let named = format!("{USER}/former");
    ring.config("e", "e", &[("replaces-provisioner", "example.com/former"), ("replaces-deployment", &named)]).await;
    until("the config serves the class", || async {
        let config = ring.api::<ConfigMap>(ADMIN).get("e").await.map_err(|error| error.to_string())?;
        let verdict = config.annotations().get(names::VERDICT).cloned().unwrap_or_default();
        if verdict.contains("no Deployment of example.com/former was found") { Ok(()) } else { unexpected(verdict) }
    })
    .await;
}

/// Makes a class report capacity repeatedly, and then stop.
async fn published_capacity(ring: &Ring) {
    let capacities = ring.api::<CSIStorageCapacity>(OWN);
    let drivers: Api<CSIDriver> = Api::all(ring.client.clone());
    ring.class("k", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    ring.config("k", "k", &[("placement", "any"), ("capabilities", "capacity"), ("capacity-interval", "1s..2s")]).await;
    until("two capacity runs have ended, and the scheduler checks capacity", || async {
        let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let driver = drivers.get_opt(names::DEFAULT_PROVISIONER).await.map_err(|error| error.to_string())?;
        let record = |one: &CSIStorageCapacity| one.annotations().get(names::CAPACITY).cloned();
        let records: Vec<_> = all.iter().filter_map(record).collect();
        let again = records.iter().any(|record| !record.contains("\"attempt\":1,"));
        if again && driver.is_some() { Ok(()) } else { unexpected((records, driver)) }
    })
    .await;
    ring.config("k", "k", &[("placement", "any"), ("capabilities", "-"), ("capacity-interval", "-")]).await;
    until("no published capacity is left", || async {
        let all = capacities.list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let driver = drivers.get_opt(names::DEFAULT_PROVISIONER).await.map_err(|error| error.to_string())?;
        if all.is_empty() && driver.is_none() { Ok(()) } else { unexpected((all, driver)) }
    })
    .await;
}

/// Undoes an edit of a config, which then uses its first version again. An old version that nothing needs is deleted.
async fn returning_and_deleted_revisions(ring: &Ring) {
    let revisions = ring.api::<ControllerRevision>(OWN);
    let of = |zone: &'static str| {
        let revisions = revisions.clone();
        async move {
            let all = revisions.list(&ListParams::default()).await.unwrap().items;
            all.into_iter().find(|revision| json!(revision.data).to_string().contains(&format!("\"{zone}\"")))
        }
    };
    let kept = |zone: &'static str, after: i64| async move {
        until(format!("the version of {zone} is the newest"), || async {
            match of(zone).await {
                Some(revision) if revision.revision > after => Ok(revision),
                other => unexpected(other.map(|revision| revision.revision)),
            }
        })
        .await
    };
    ring.config("z", "z", &[("zone", "north")]).await;
    let first = kept("north", 0).await;
    ring.config("z", "z", &[("zone", "south")]).await;
    let second = kept("south", 0).await;
    ring.config("z", "z", &[("zone", "north")]).await;
    kept("north", first.revision.max(second.revision)).await;

    let name = second.name_any();
    age(ring, &format!("/registry/controllerrevisions/{OWN}/{name}"), &second).await;
    within(2 * GUARD, "the old version is deleted", || async {
        match revisions.get_opt(&name).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(revision) => unexpected(revision.metadata.creation_timestamp),
        }
    })
    .await;
}

/// Leaves the pod of a run whose Job was deleted without it, and whose claim is gone too.
async fn orphaned_pod(ring: &Ring) {
    let labels = json!({
        names::LABEL_INSTANCE: names::DEFAULT_INSTANCE, names::LABEL_OPERATION: "provision", names::LABEL_ATTEMPT: "1",
        names::LABEL_VOLUME_ID: "00000000-0000-4000-8000-000000000000", "job-name": "provision-gone-1",
    });
    let pod = json!({
        "metadata": { "name": "orphaned", "labels": labels },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "provisioner", "image": "example/image" }] },
    });
    let pods = ring.api::<Pod>(ADMIN);
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    let pod = pods.patch_status("orphaned", &PatchParams::default(), &ended).await.unwrap();
    age(ring, &format!("/registry/pods/{ADMIN}/orphaned"), &pod).await;
    until("the pod is deleted", || async {
        match pods.get_opt("orphaned").await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(pod) => unexpected((pod.metadata.creation_timestamp, pod.metadata.deletion_timestamp, pod.status)),
        }
    })
    .await;
}

/// Makes an object years old, which no request can do.
async fn age<K: serde::Serialize>(ring: &Ring, key: &str, object: &K) {
    let mut old = serde_json::to_value(object).unwrap();
    old["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
    old["metadata"].as_object_mut().unwrap().retain(|key, _| key != "resourceVersion" && key != "managedFields");
    ring.cluster().write_to_etcd(key, &old).await.unwrap();
}
