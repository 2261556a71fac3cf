//! Tests of the image `cinder` with a real Cinder and the whole orchestrator: as a process in place of a pod, and on
//! the whole cluster.

use std::process::Stdio;
use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use openstack::{Call, Proxy};
use serde_json::{Value, json};

use orchestrator::backup::Backup;
use orchestrator::cinder::cinder;
use orchestrator::processes::{Kubelet, program, run};
use orchestrator::ring::{ADMIN, Ring, annotation, phase, uid};
use orchestrator::wait::{GUARD, unexpected, within};

/// The image's program.
const PROGRAM: &str = "cinder-provisioner";
/// Returns how many volumes Cinder was working on at one time, at most: those that it began and that have no connection
/// yet.
fn most_in_flight(calls: &[Call]) -> usize {
    let (mut begun, mut connected, mut most) = (0_usize, 0, 0);
    for call in calls {
        // A busy Cinder may refuse a call, which is then repeated.
        begun += usize::from(call.what == "create" && call.status.is_some_and(|status| status < 300));
        connected += usize::from(call.what == "os-initialize_connection");
        most = most.max(begun.saturating_sub(connected));
    }
    most
}

#[tokio::test]
async fn many_claims_are_made_within_the_limit_and_a_restored_volume_stays_until_it_is_vouched_for() {
    const CLAIMS: usize = 12;
    const IN_FLIGHT: usize = 4;
    let server = tokio::task::spawn_blocking(cinder).await.unwrap();
    let project = server.project("many");
    let proxy = Proxy::start(server.port());
    let ring = Ring::start().await;
    let _kubelet = Kubelet::start(&ring, PROGRAM);
    let endpoint = format!("http://127.0.0.1:{}/v3", proxy.port());
    let in_flight = IN_FLIGHT.to_string();
    let data = [
        ("max-in-flight", in_flight.as_str()),
        ("volume-sources", "iscsi"),
        ("os-cinder-endpoint", endpoint.as_str()),
        ("os-tenant-name", "many"),
        ("secret-namespace", ADMIN),
        ("type", "iscsi"),
    ];
    ring.config("cinder", "cinder", &data).await;
    let began = Instant::now();
    for n in 0..CLAIMS {
        ring.claim(&format!("c{n}"), "cinder").await;
    }
    within(GUARD * 3, "all claims are bound", || async {
        let claims = ring.claims().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items;
        let bound = claims.iter().filter(|claim| phase(claim) == "Bound").count();
        if bound == CLAIMS { Ok(()) } else { unexpected(bound) }
    })
    .await;
    println!("{CLAIMS} claims, all bound after {:?}", began.elapsed());
    let volumes = project.volumes();
    assert_eq!(volumes.len(), CLAIMS, "one volume for each claim");
    let most = most_in_flight(&proxy.calls());
    println!("at most {most} were in flight");
    assert!(most <= IN_FLIGHT && most > 1, "{most}");
    let secrets: Api<Secret> = Api::namespaced(ring.client.clone(), ADMIN);
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), CLAIMS);

    let kept = project.volume_of(&uid(&ring.get_claim("c0").await))["id"].clone();
    let is_there = || project.volumes().iter().any(|volume| volume["id"] == kept);
    let backup = Backup::restored(&ring, "c0", is_there).await;
    backup.vouched_for_and_deleted(&ring, is_there).await;

    let began = Instant::now();
    ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    within(GUARD * 3, "all volumes are gone", || async {
        let remaining =
            ring.volumes().list(&ListParams::default()).await.map_err(|error| error.to_string())?.items.len();
        if remaining == 0 { Ok(()) } else { unexpected(remaining) }
    })
    .await;
    println!("all deleted after {:?}", began.elapsed());
    assert_eq!(project.volumes(), Vec::<Value>::new());
    assert_eq!(secrets.list(&ListParams::default()).await.unwrap().items.len(), 0);
    ring.nothing_left().await;
}

#[tokio::test]
async fn in_tree_ceph_is_refused_before_anything_is_made_where_no_kubelet_mounts_it() {
    let server = tokio::task::spawn_blocking(cinder).await.unwrap();
    let project = server.project("in-tree");
    let ring = Ring::start().await;
    let kubelet = Kubelet::start(&ring, PROGRAM);
    let proxy = Proxy::start(server.port());
    let endpoint = format!("http://127.0.0.1:{}/v3", proxy.port());
    let data = [
        ("volume-sources", "rbd, csi"),
        ("os-cinder-endpoint", endpoint.as_str()),
        ("os-tenant-name", "in-tree"),
        ("secret-namespace", ADMIN),
        ("type", "rbd"),
        ("rbd-form", "in-tree"),
        ("reclaim-policy", "Delete"),
    ];
    ring.config("ceph", "ceph", &data).await;
    ring.claim("old", "ceph").await;
    let old = uid(&ring.stamped("old").await);
    let message = ring.event("team", "old", reason::PROVISIONING_FAILED, "rbd-form is in-tree").await;
    assert!(
        message.contains("this cluster is Kubernetes 1.36") && message.contains("use is rbd-form: csi"),
        "{message}"
    );
    assert_eq!(proxy.calls().len(), 0, "Cinder got no request");

    // The same run where the API server's version still supports it.
    drop(kubelet);
    let job = ring.job(ADMIN, "provision", &old, 1).await;
    let mut behind = tokio::process::Command::from(ring.cluster().kubectl());
    let behind = behind.args(["proxy", "--port=0"]).stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut behind = behind.expect("kubectl runs");
    let mut line = String::new();
    let mut message = tokio::io::BufReader::new(behind.stdout.take().unwrap());
    tokio::io::AsyncBufReadExt::read_line(&mut message, &mut line).await.unwrap();
    let port: u16 = line.trim().rsplit(':').next().unwrap().parse().unwrap_or_else(|_| panic!("{line}"));
    let older = Proxy::start(port);
    let version = json!({ "major": "1", "minor": "30+", "gitVersion": "v1.30.9", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
    older.answer("GET version", version);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "older",
        "clusters": [{ "name": "older", "cluster": { "server": format!("http://127.0.0.1:{}", older.port()) } }],
        "users": [{ "name": "older", "user": {} }],
        "contexts": [{ "name": "older", "context": { "cluster": "older", "user": "older" } }],
    });
    let kubeconfig = ring.file("older.kubeconfig", &kubeconfig.to_string());
    // A run that died left the Secret of the other form, and the type of a Secret cannot change.
    let secrets: Api<Secret> = ring.api(ADMIN);
    let of_csi = json!({ "metadata": { "name": format!("flex-cinder-{old}") }, "type": "Opaque", "stringData": { "userID": "x" } });
    secrets.create(&Default::default(), &serde_json::from_value(of_csi).unwrap()).await.unwrap();
    run(program(PROGRAM), ring.client.clone(), kubeconfig, job).await;
    let volume = project.volume_of(&old);
    let pv = ring.volumes().get(&names::pv_name(&old)).await.unwrap();
    let source = json!({
        "monitors": ["192.0.2.1:6789", "192.0.2.2:6789"], "image": format!("volume-{}", volume["id"].as_str().unwrap()),
        "pool": "volumes", "user": "lab", "keyring": "/etc/ceph/keyring",
        "secretRef": { "name": format!("flex-cinder-{old}"), "namespace": ADMIN },
    });
    assert_eq!(serde_json::to_value(pv.spec.unwrap().rbd).unwrap(), source);
    let secret = secrets.get(&format!("flex-cinder-{old}")).await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/rbd"));
    assert_eq!(secret.data.unwrap().into_keys().collect::<Vec<_>>(), ["key"]);
    let _kubelet = Kubelet::start(&ring, PROGRAM);
    ring.delete_claim("old").await;
    ring.claim_gone("old").await;
    ring.volume_gone(&names::pv_name(&old)).await;
    assert_eq!(project.volumes(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_clone_request_is_followed_where_the_class_allows_it() {
    let server = tokio::task::spawn_blocking(cinder).await.unwrap();
    let project = server.project("clones");
    let ring = Ring::start().await;
    let _kubelet = Kubelet::start(&ring, PROGRAM);
    let endpoint = format!("http://127.0.0.1:{}/v3", server.port());
    let data = [
        ("volume-sources", "iscsi"),
        ("os-cinder-endpoint", endpoint.as_str()),
        ("os-tenant-name", "clones"),
        ("secret-namespace", ADMIN),
        ("smartclone", "true"),
        ("capabilities", "clone, expand, snapshot"),
        ("claim-metadata", "k8s.io/CloneRequest"),
        ("backoff", "1s"),
    ];
    ring.config("cinder", "cinder", &data).await;
    ring.claim("source", "cinder").await;
    let source = uid(&ring.bound("source").await);
    let asking = |of: &str| json!({ "metadata": { "annotations": { "k8s.io/CloneRequest": of } } });
    ring.claim_with("by-annotation", "cinder", asking("team/source")).await;
    let by_data_source = json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "source" } } });
    ring.claim_with("by-data-source", "cinder", by_data_source).await;
    ring.claim_with("from-elsewhere", "cinder", asking("admin/source")).await;
    let source_id = project.volume_of(&source)["id"].clone();
    for name in ["by-annotation", "by-data-source"] {
        let copy = ring.bound(name).await;
        assert_eq!(project.volume_of(&uid(&copy))["source_volid"], source_id, "{name}");
    }
    let of = annotation(&ring.get_claim("by-annotation").await, "k8s.io/CloneOf");
    assert_eq!(of.as_deref(), Some("team/source"));
    let message = ring.event("team", "from-elsewhere", reason::PROVISIONING_FAILED, "clone-namespaces").await;
    assert!(message.contains("admin"), "{message}");
    assert_eq!(project.volumes().len(), 3, "and no empty volume for the refused claim");
    ring.claims().delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    for name in ["source", "by-annotation", "by-data-source", "from-elsewhere"] {
        ring.claim_gone(name).await;
    }
    ring.nothing_left().await;
    assert_eq!(project.volumes(), Vec::<Value>::new());
}
