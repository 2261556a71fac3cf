//! Tests of volumes that another provisioner made, and of data that an admin imports.

use std::collections::BTreeSet;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use orchestrator::former::{FINALIZER, LOCAL_PATH, directory_of};
use orchestrator::kubelet::request;
use orchestrator::nodes::ON_NODE;
use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::{unexpected, until};
use serde_json::json;

use crate::configs::verdict;

const BASE: &str = "/opt/local-path-provisioner";
const NODE: &str = "node-1";
const FORMER: &str = "local-path-storage";
const DEPLOYMENT: &str = "local-path-provisioner";

/// Starts a cluster with the class of the local-path provisioner, whose Deployment runs, and a config that replaces the
/// provisioner.
async fn start() -> Ring {
    let ring = Ring::start().await;
    ring.namespace(FORMER, &[]).await;
    ring.node(NODE).await;
    ring.former_rights(FORMER, DEPLOYMENT).await;
    ring.former_deployment(FORMER, DEPLOYMENT, 1).await;
    ring.class("local-path", LOCAL_PATH, json!({ "allowVolumeExpansion": true })).await;
    ring.config("local-path", "local-path", &keys("move-in, expand")).await;
    // Each of its watches may be late. The orchestrator knows the class and its provisioner when it says so.
    verdict(&ring, "local-path", "kubectl -n local-path-storage scale deployment").await;
    ring
}

fn keys(capabilities: &str) -> [(&str, &str); 4] {
    [
        ON_NODE,
        ("capabilities", capabilities),
        ("replaces-provisioner", LOCAL_PATH),
        ("volume-sources", "hostPath:/opt/local-path-provisioner, local:/opt/local-path-provisioner"),
    ]
}

async fn stop_former(ring: &Ring) {
    ring.former_deployment(FORMER, DEPLOYMENT, 0).await;
    verdict(ring, "local-path", "ok").await;
}

async fn adopt(ring: &Ring, flags: &[&str]) -> (i32, String) {
    ring.command(&[&["adopt", "--from", "local-path", "--config", &config()], flags].concat()).await
}

fn config() -> String {
    format!("{ADMIN}/local-path")
}

/// Returns the UIDs of the Jobs of an operation.
async fn known_jobs(ring: &Ring, operation: &str) -> BTreeSet<Option<String>> {
    ring.jobs(ADMIN, operation, "").await.into_iter().map(|job| job.metadata.uid).collect()
}

/// Waits for a Job of an operation that the test does not know: the Job of an earlier command may still be there.
async fn new_job(ring: &Ring, operation: &str, known: &BTreeSet<Option<String>>) -> Job {
    let found = until(format!("another {operation} Job"), || async {
        let jobs = ring.jobs(ADMIN, operation, "").await;
        let is_new = |job: &Job| !known.contains(&job.metadata.uid);
        jobs.into_iter().find(is_new).ok_or_else(|| "none".to_owned())
    });
    ring.explained(found).await
}

/// Runs `adopt`, and ends its run as the kubelet does.
async fn adopted(ring: &Ring, volume: &str, code: i32, texts: &str, flags: &[&str]) -> (i32, String) {
    let operation = if flags.contains(&"--undo") { "move-out" } else { "move-in" };
    let known = known_jobs(ring, operation).await;
    let kubelet = async {
        let job = new_job(ring, operation, &known).await;
        let asked = request(&job);
        assert_eq!(asked.pv_name, volume);
        assert!(asked.moved_in_path.starts_with(BASE) && asked.volume_source.contains(&asked.moved_in_path));
        ring.pod_ends(&job, code, texts).await;
    };
    let flags = [&["--volume", volume], flags].concat();
    tokio::join!(adopt(ring, &flags), kubelet).0
}

/// A cluster in which the local-path provisioner has made a volume for the claim `data`, and is stopped.
struct Former {
    ring: Ring,
    volume: String,
}

async fn with_volume() -> Former {
    let ring = start().await;
    ring.claim("data", "local-path").await;
    let volume = ring.former_volume("data", BASE, NODE).await.metadata.name.unwrap();
    stop_former(&ring).await;
    Former { ring, volume }
}

impl Former {
    async fn moved_in(self) -> Former {
        let (code, text) = adopted(&self.ring, &self.volume, 0, "", &[]).await;
        assert_eq!(code, 0, "{text}");
        self
    }
}

#[tokio::test]
async fn a_config_waits_until_the_deployment_of_the_other_provisioner_has_no_replica() {
    let ring = start().await;
    let why = verdict(&ring, "local-path", "kubectl -n local-path-storage scale deployment").await;
    assert!(why.contains("asks for 1"), "{why}");
    ring.claim("data", "local-path").await;
    ring.former_volume("data", BASE, NODE).await;
    let (code, text) = adopt(&ring, &[]).await;
    assert!(code == 1 && text.contains("scale deployment local-path-provisioner"), "{text}");
    stop_former(&ring).await;
    let (code, text) = adopt(&ring, &["--dry-run"]).await;
    assert!(code == 0 && text.contains("would move in"), "{text}");
    let claim = ring.get_claim("data").await;
    assert!(text.contains(&directory_of(&claim)) && text.contains(NODE) && text.contains("/data"), "{text}");
    for more in ["--dry-run", "--undo"] {
        let (code, text) = adopt(&ring, &["--provisioner", "rancher.io/local-paht", more]).await;
        assert!(code == 1 && text.contains("the volumes are of: rancher.io/local-path"), "{text}");
    }
    // A new claim of the same class is the orchestrator's now.
    ring.claim("new", "local-path").await;
    ring.stamped("new").await;
    // The other provisioner starts again, and gets the class back.
    ring.former_deployment(FORMER, DEPLOYMENT, 1).await;
    verdict(&ring, "local-path", "scale deployment").await;
    // Without a Deployment, nobody knows whether the other provisioner is stopped.
    stop_former(&ring).await;
    let deployments = ring.api::<k8s_openapi::api::apps::v1::Deployment>(FORMER);
    deployments.delete(DEPLOYMENT, &DeleteParams::default()).await.unwrap();
    verdict(&ring, "local-path", "no Deployment of rancher.io/local-path was found").await;
    let (code, text) = adopt(&ring, &["--dry-run"]).await;
    assert!(code == 1 && text.contains("--former-is-gone"), "{text}");
    let (code, text) = adopt(&ring, &["--dry-run", "--former-is-gone"]).await;
    assert!(code == 0 && text.contains("would move in"), "{text}");
}

#[tokio::test]
async fn a_volume_that_moved_in_grows_and_is_deleted_at_its_own_place() {
    let Former { ring, volume } = with_volume().await;
    let before = ring.volumes().get(&volume).await.unwrap();
    let (code, text) = adopted(&ring, &volume, 65, "nothing is there", &[]).await;
    assert!(code == 2 && text.contains("refused: ") && text.contains("nothing is there"), "{text}");
    assert_eq!(ring.volumes().get(&volume).await.unwrap().metadata.resource_version, before.metadata.resource_version);

    let (code, text) = adopted(&ring, &volume, 0, "", &[]).await;
    assert!(code == 0 && text.contains("moved in"), "{text}");
    let moved = ring.volumes().get(&volume).await.unwrap();
    let finalizers = moved.metadata.finalizers.unwrap();
    assert!(finalizers.contains(&names::VOLUME_FINALIZER.to_owned()) && !finalizers.contains(&FINALIZER.to_owned()));
    let (code, text) = adopt(&ring, &[]).await;
    assert!(code == 0 && text.contains("no volume"), "nothing is left to do: {text}");

    let claim = ring.get_claim("data").await;
    let id = uid(&claim);
    let grows = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    ring.claims().patch("data", &PatchParams::default(), &Patch::Merge(grows)).await.unwrap();
    let expand = ring.job(ADMIN, "expand", &id, 1).await;
    let path = format!("{BASE}/{}", directory_of(&claim));
    assert_eq!(request(&expand).moved_in_path, path);
    ring.pod_ends(&expand, 0, "").await;
    until("the volume has its new size", || async {
        let found = ring.volumes().get(&volume).await.map_err(|error| error.to_string())?;
        let size = found.spec.unwrap().capacity.unwrap()["storage"].0.clone();
        if size == "2Gi" { Ok(()) } else { unexpected(size) }
    })
    .await;
    let (code, text) = adopt(&ring, &["--volume", &volume, "--undo"]).await;
    assert!(code == 2 && text.contains("was expanded"), "{text}");

    ring.delete_claim("data").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    let asked = request(&delete);
    assert_eq!((asked.moved_in_path.as_str(), asked.node_name.as_str()), (path.as_str(), NODE));
    assert!(asked.volume_source.contains(&path), "{}", asked.volume_source);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&volume).await;
}

#[tokio::test]
async fn an_undo_leaves_the_volume_as_it_was() {
    let Former { ring, volume } = with_volume().await;
    let shown = |volume: PersistentVolume| {
        let mut finalizers = volume.metadata.finalizers.unwrap_or_default();
        finalizers.sort();
        let status = volume.status.unwrap();
        (
            volume.metadata.annotations,
            volume.metadata.labels.unwrap_or_default(),
            finalizers,
            volume.spec,
            status.reason,
        )
    };
    let before = shown(ring.volumes().get(&volume).await.unwrap());
    let (code, text) = adopted(&ring, &volume, 0, "", &[]).await;
    assert_eq!(code, 0, "{text}");
    let (code, text) = adopt(&ring, &["--undo", "--dry-run"]).await;
    assert!(code == 0 && text.contains("would move out"), "{text}");
    // The run fails, and the command is repeated.
    let (code, text) = adopted(&ring, &volume, 75, "later", &["--undo"]).await;
    assert!(code == 2 && text.contains("later"), "{text}");
    let (code, text) = adopted(&ring, &volume, 0, "", &["--undo"]).await;
    assert!(code == 0 && text.contains("moved out"), "{text}");
    assert_eq!(shown(ring.volumes().get(&volume).await.unwrap()), before);
    // It is another provisioner's volume again: nothing is deleted.
    ring.delete_claim("data").await;
    ring.claim_gone("data").await;
    rests(&ring, &volume).await;
    let released = ring.volumes().get(&volume).await.unwrap();
    assert!(ring.jobs(ADMIN, "delete", volume.trim_start_matches(names::PV_PREFIX)).await.is_empty());
    assert!(released.metadata.deletion_timestamp.is_none());
}

#[tokio::test]
async fn a_volume_of_nfs_subdir_moves_in_and_is_deleted_from_any_node() {
    const NFS_SUBDIR: &str = "cluster.local/nfs-subdir-external-provisioner";
    let ring = Ring::start().await;
    ring.namespace("storage", &[]).await;
    ring.former_rights("storage", "nfs-subdir").await;
    ring.former_deployment("storage", "nfs-subdir", 0).await;
    ring.class("nfs-client", NFS_SUBDIR, json!({})).await;
    let claim = ring.claim("data", "nfs-client").await;
    let (id, volume) = (uid(&claim), names::pv_name(&uid(&claim)));
    let path = format!("/exports/{}-data-{volume}", ring.user);
    let object = json!({
        "metadata": { "name": volume, "annotations": { names::PROVISIONED_BY: NFS_SUBDIR } },
        "spec": {
            "storageClassName": "nfs-client", "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "nfs": { "server": "nas", "path": path },
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": ring.user, "name": "data", "uid": id,
            },
        },
    });
    ring.volumes().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    ring.bound("data").await;
    let keys = [
        ("capabilities", "move-in"),
        ("replaces-provisioner", NFS_SUBDIR),
        ("replaces-deployment", "storage/nfs-subdir"),
        ("volume-sources", "nfs"),
    ];
    let config = format!("{ADMIN}/nfs-client");
    let arguments = ["adopt", "--from", "nfs-subdir", "--config", &config];
    ring.config("nfs-client", "nfs-client", &keys).await;
    verdict(&ring, "nfs-client", "ok").await;
    // The provisioner would have archived the directory.
    let (code, text) = ring.command(&arguments).await;
    assert!(code == 2 && text.contains("write `on-delete: archive` into the config"), "{text}");
    ring.config("nfs-client", "nfs-client", &[&keys[..], &[("on-delete", "archive")]].concat()).await;
    verdict(&ring, "nfs-client", "ok").await;
    let kubelet = async {
        let job = ring.job(ADMIN, "move-in", "", 1).await;
        let asked = request(&job);
        assert_eq!(
            (asked.moved_in_path.as_str(), asked.volume_id.as_str(), asked.node_name.as_str()),
            (path.as_str(), id.as_str(), "")
        );
        ring.pod_ends(&job, 0, "").await;
    };
    let ((code, text), ()) = tokio::join!(ring.command(&arguments), kubelet);
    assert!(code == 0 && text.contains(&format!("nas:{path}")), "{text}");
    ring.delete_claim("data").await;
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    assert_eq!(request(&delete).moved_in_path, path);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&volume).await;
}

#[tokio::test]
async fn imported_data_get_a_claim_and_stay_when_it_is_deleted() {
    let ring = start().await;
    stop_former(&ring).await;
    let path = format!("{BASE}/photos");
    let of = ["import", "--config", &config(), "--path", &path, "--node", NODE];
    let arguments = [&of[..], &["--claim", "pvc/photos", "-n", &ring.user, "--size", "3Gi"]].concat();
    let (code, text) = ring.command(&[&arguments[..], &["--dry-run"]].concat()).await;
    assert!(code == 0 && text.contains("would be imported"), "{text}");
    assert!(ring.claims().get_opt("photos").await.unwrap().is_none());
    let with_kubelet = async |code: i32, texts: &'static str| {
        let known = known_jobs(&ring, "move-in").await;
        let kubelet = async {
            let job = new_job(&ring, "move-in", &known).await;
            assert_eq!(request(&job).moved_in_path, path);
            ring.pod_ends(&job, code, texts).await;
        };
        tokio::join!(ring.command(&arguments), kubelet).0
    };
    let (code, text) = with_kubelet(65, "it is not there").await;
    assert!(code == 2 && text.contains("it is not there"), "{text}");
    assert!(ring.claims().get_opt("photos").await.unwrap().is_none());
    let (code, text) = with_kubelet(0, "").await;
    assert!(code == 0 && text.contains("imported as volume"), "{text}");
    let bound = ring.bound("photos").await;
    let volume = bound.spec.unwrap().volume_name.unwrap();
    let id = volume.strip_prefix(names::PV_PREFIX).unwrap().to_owned();
    let (code, text) = ring.command(&arguments).await;
    assert!(code == 2 && text.contains("exists already"), "{text}");

    let grows = json!({ "spec": { "resources": { "requests": { "storage": "4Gi" } } } });
    ring.claims().patch("photos", &PatchParams::default(), &Patch::Merge(grows)).await.unwrap();
    let expand = ring.job(ADMIN, "expand", &id, 1).await;
    assert_eq!(request(&expand).moved_in_path, path);
    ring.pod_ends(&expand, 0, "").await;
    ring.claim_when("photos", "has its new size", |claim| {
        let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
        capacity.is_some_and(|capacity| capacity["storage"].0 == "4Gi")
    })
    .await;
    let back = ["import", "--config", &config(), "--path", &path, "--node", NODE, "--undo"];
    let (code, text) = ring.command(&back).await;
    assert!(code == 2 && text.contains("delete the claim first"), "{text}");
    ring.delete_claim("photos").await;
    ring.claim_gone("photos").await;
    rests(&ring, &volume).await;
    assert!(ring.jobs(ADMIN, "delete", &id).await.is_empty(), "imported data stay");
    assert!(ring.volumes().get(&volume).await.unwrap().metadata.deletion_timestamp.is_none());
    // The image forgets them.
    let kubelet = async {
        let job = ring.job(ADMIN, "move-out", "", 1).await;
        assert_eq!(request(&job).moved_in_path, path);
        ring.pod_ends(&job, 0, "").await;
    };
    let ((code, text), ()) = tokio::join!(ring.command(&back), kubelet);
    assert!(code == 0 && text.contains("the data stay"), "{text}");
    ring.volume_gone(&volume).await;
}

/// Waits until the orchestrator has seen that a volume is released, and has done later work.
async fn rests(ring: &Ring, volume: &str) {
    until("the volume is released", || async {
        let found = ring.volumes().get(volume).await.map_err(|error| error.to_string())?;
        match found.status.and_then(|status| status.phase).as_deref() {
            Some("Released") => Ok(()),
            phase => unexpected(format!("{phase:?}")),
        }
    })
    .await;
    ring.claim("later", "local-path").await;
    ring.stamped("later").await;
}

#[tokio::test]
async fn a_move_without_its_mark_is_finished_and_one_by_a_forged_record_is_not_undone() {
    let Former { ring, volume } = with_volume().await.moved_in().await;
    let moved = ring.volumes().get(&volume).await.unwrap();
    let unmarked = json!({ "status": { "reason": null } });
    ring.volumes().patch_status(&volume, &PatchParams::default(), &Patch::Merge(unmarked)).await.unwrap();
    let (code, text) = adopted(&ring, &volume, 0, "", &[]).await;
    assert!(code == 0 && text.contains("moved in"), "{text}");
    let again = ring.volumes().get(&volume).await.unwrap();
    assert_eq!(again.status.unwrap().reason, moved.status.unwrap().reason);
    assert_eq!(again.metadata.annotations, moved.metadata.annotations);

    // An account that may create volumes can write any provenance: no undo starts a run by what nobody has confirmed.
    let record = moved.metadata.annotations.unwrap()[names::PROVENANCE].clone();
    let mut record: serde_json::Value = serde_json::from_str(&record).unwrap();
    record["config"] = json!({ "namespace": ring.user, "name": "local-path" });
    let forged = json!({ "metadata": { "annotations": { names::PROVENANCE: record.to_string() } } });
    ring.volumes().patch(&volume, &PatchParams::default(), &Patch::Merge(forged)).await.unwrap();
    let (code, text) = adopt(&ring, &["--undo"]).await;
    assert!(code == 0 && text.contains("no volume"), "{text}");
    let (code, text) = adopt(&ring, &["--undo", "--volume", &volume]).await;
    assert!(code == 2 && text.contains("see --config"), "{text}");
    assert!(ring.jobs(&ring.user, "move-out", "").await.is_empty());
}

/// The former provisioner and its namespace are gone, and a tenant has made a namespace of that name.
#[tokio::test]
async fn a_tenant_who_has_the_namespace_of_a_removed_provisioner_stops_no_class() {
    let ring = Ring::start().await;
    ring.namespace(FORMER, &[]).await;
    ring.node(NODE).await;
    ring.former_deployment(FORMER, DEPLOYMENT, 1).await;
    let spec = json!({ "holderIdentity": "tenant", "leaseDurationSeconds": 600 });
    let lease = json!({ "metadata": { "name": "rancher.io-local-path" }, "spec": spec });
    let leases = ring.api::<k8s_openapi::api::coordination::v1::Lease>(FORMER);
    leases.create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
    ring.class("local-path", LOCAL_PATH, json!({})).await;
    ring.config("local-path", "local-path", &keys("move-in")).await;
    verdict(&ring, "local-path", "no Deployment of rancher.io/local-path was found").await;
    verdict(&ring, "local-path", "somebody holds the Lease local-path-storage/rancher.io-local-path").await;
    ring.former_rights(FORMER, DEPLOYMENT).await;
    verdict(&ring, "local-path", "tenant holds the Lease local-path-storage/rancher.io-local-path").await;
}

#[tokio::test]
async fn a_volume_that_cannot_move_in_stays_with_the_reason() {
    let Former { ring, volume } = with_volume().await;
    let mut volume = ring.volumes().get(&volume).await.unwrap();
    // Another volume leads to the same directory.
    let path = volume.spec.as_ref().unwrap().host_path.as_ref().unwrap().path.clone();
    volume.metadata.name = Some("other".into());
    (volume.metadata.resource_version, volume.metadata.uid) = (None, None);
    volume.spec.as_mut().unwrap().claim_ref = None;
    volume.spec.as_mut().unwrap().host_path.as_mut().unwrap().path = format!("{path}/inner");
    ring.volumes().create(&PostParams::default(), &volume).await.unwrap();
    let (code, text) = adopt(&ring, &[]).await;
    assert!(code == 2 && text.contains("volume other may have the same files"), "{text}");
    assert!(text.contains("its name is not pvc-UID"), "{text}");
    let none = json!({ "metadata": { "finalizers": null } });
    ring.volumes().patch("other", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    ring.volumes().delete("other", &DeleteParams::default()).await.unwrap();
    ring.volume_gone("other").await;
    ring.config("local-path", "local-path", &keys("expand")).await;
    verdict(&ring, "local-path", "ok").await;
    let (code, text) = adopt(&ring, &[]).await;
    assert!(code == 1 && text.contains("add `move-in` to its `capabilities`"), "{text}");
    let (code, text) = ring.command(&["adopt", "--from", "nfs-subdir", "--config", &config()]).await;
    assert!(code == 1 && text.contains("no volume is of the provisioner cluster.local/"), "{text}");
}
