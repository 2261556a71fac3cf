//! The actors of these tests: users, operators, and images with the token that their pods would find mounted.

use std::path::Path;

use cluster::Cluster;
use flex_contract::names;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use orchestrator::kubelet::request;
use orchestrator::ring::{ADMIN, Ring, USER, annotation, merge, uid};
use orchestrator::wait::{unexpected, until};

/// A user with the usual rights in their namespace.
pub(super) const TOM: &str = "tom";
/// An account that may change volumes, as controllers of others may.
pub(super) const OPERATOR: &str = "operator";
/// The account of images.
pub(super) const IMAGE: &str = "image";

pub(super) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Returns the message of a refusal; panics if there is none.
pub(super) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> String {
    match result {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Grants a cluster role, everywhere or in the users' namespace.
pub(super) async fn grant(ring: &Ring, role: &str, subject: Value, namespace: Option<&str>) {
    let name = format!("{role}-{}", subject["name"].as_str().unwrap());
    let reference = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role });
    let body = json!({ "metadata": { "name": name }, "roleRef": reference, "subjects": [subject] });
    match namespace {
        Some(namespace) => {
            drop(ring.api::<RoleBinding>(namespace).create(&PostParams::default(), &object(body)).await.unwrap())
        }
        None => {
            let bindings: Api<ClusterRoleBinding> = Api::all(ring.client.clone());
            bindings.create(&PostParams::default(), &object(body)).await.unwrap();
        }
    }
}

pub(super) async fn role(ring: &Ring, name: &str, rules: Value) {
    let roles: Api<ClusterRole> = Api::all(ring.client.clone());
    roles
        .create(&PostParams::default(), &object(json!({ "metadata": { "name": name }, "rules": rules })))
        .await
        .unwrap();
}

pub(super) fn user(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
}

pub(super) fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

/// The users of these tests, and the account of images with its shipped role.
pub(super) async fn people(ring: &Ring) {
    grant(ring, "edit", user(TOM), Some(USER)).await;
    let volumes =
        json!([{ "apiGroups": [""], "resources": ["persistentvolumes", "persistentvolumes/status"], "verbs": ["*"] }]);
    role(ring, "volumes-operator", volumes).await;
    grant(ring, "volumes-operator", user(OPERATOR), None).await;
    ring.account(IMAGE).await;
    grant(ring, "flex-provisioner-image", account(ADMIN, IMAGE), None).await;
}

/// Starts a cluster with the actors, the shipped rights, and the policies; or without the policies, to show what they
/// prevent.
pub(super) async fn ring(policies: bool) -> Ring {
    let cluster = match policies {
        true => Cluster::lent_with("policies", apply_policies).await,
        false => Cluster::lent().await,
    };
    let flags = ["--provisioner-name", names::DEFAULT_PROVISIONER];
    let mut ring = Ring::on(cluster.expect("the control plane starts"), &flags).await;
    ring.with_shipped_rights();
    people(&ring).await;
    match policies {
        true => in_force(&ring).await,
        false => rights_are_known(&ring).await,
    }
    ring.run().await;
    ring
}

pub(super) async fn as_user(ring: &Ring, name: &str) -> Client {
    ring.cluster().client_as(name, &["system:authenticated"]).await.unwrap()
}

pub(super) fn volume_of(name: &str, uuid: &str) -> Value {
    json!({
        "metadata": { "name": name, "annotations": { names::CLAIM_UID: uuid } },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "c", "nfs": { "server": "s", "path": "/x" },
        },
    })
}

pub(super) fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

pub(super) fn dry_patch() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// The shipped policies.
const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/policies.yaml");

fn apply_policies(cluster: &Cluster) -> anyhow::Result<()> {
    apply(cluster, Path::new(POLICIES))
}

fn apply(cluster: &Cluster, policies: &Path) -> anyhow::Result<()> {
    let applied = cluster.kubectl().args(["apply", "-f"]).arg(policies).output()?;
    anyhow::ensure!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    Ok(())
}

/// Installs the shipped policies that only validate, as a cluster before Kubernetes 1.36 has them, and waits until they act.
pub(super) async fn install_validating_policies(ring: &Ring) {
    // The API server forgets policies some time after they are deleted.
    ring.cluster().end_with_test();
    let all = std::fs::read_to_string(POLICIES).unwrap();
    let validating: Vec<_> = all.split("\n---\n").filter(|policy| policy.contains("\nkind: Validating")).collect();
    apply(ring.cluster(), &ring.file("policies.yaml", &validating.join("\n---\n"))).unwrap();
    let image = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    images_refuse(&Api::all(as_user(ring, &image).await)).await;
}

/// Waits until the policy `images` acts.
async fn images_refuse(image: &Api<PersistentVolume>) {
    until("images", || async {
        match image.create(&dry(), &object(volume_of("any", "c0ffee00-0000-4000-8000-00000000aaaa"))).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
}

/// Waits until the API server knows the last of the rights that [`people`] grants.
async fn rights_are_known(ring: &Ring) {
    let name = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    let image: Api<PersistentVolume> = Api::all(as_user(ring, &name).await);
    until("the rights are known", || async {
        let created = image.create(&dry(), &object(volume_of("probe", "c0ffee00-0000-4000-8000-00000000aaaa"))).await;
        created.map(drop).map_err(|error| error.to_string())
    })
    .await;
}

/// Waits until each policy acts: the API server takes a moment to load them.
pub(super) async fn in_force(ring: &Ring) {
    let tom = as_user(ring, TOM).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tom, USER);
    let operator: Api<PersistentVolume> = Api::all(as_user(ring, OPERATOR).await);
    let image = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    let image: Api<PersistentVolume> = Api::all(as_user(ring, &image).await);
    let uuid = "c0ffee00-0000-4000-8000-00000000aaaa";
    let stamped = json!({
        "metadata": { "name": "probe", "annotations": { names::ATTEMPT: "7" } },
        "spec": { "storageClassName": "nobody", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    until("copies and creators", || async {
        let made = claims.create(&dry(), &object(stamped.clone())).await.map_err(|error| error.to_string())?;
        match (annotation(&made, names::ATTEMPT), annotation(&made, names::CREATED_BY).as_deref()) {
            (None, Some(TOM)) => Ok(()),
            other => unexpected(other),
        }
    })
    .await;
    until("reservations", || async {
        let body = object(volume_of(&names::pv_name(uuid), uuid));
        let made = ring.volumes().create(&dry(), &body).await.map_err(|error| error.to_string())?;
        let reference = made.spec.unwrap().claim_ref.ok_or("no claimRef")?;
        assert_eq!((reference.namespace.as_deref(), reference.name.as_deref()), (Some("kube-system"), Some(uuid)));
        Ok(())
    })
    .await;
    let refused = |code: u16, error: kube::Error| match &error {
        kube::Error::Api(status) if status.code == code => Ok(()),
        _ => unexpected(error),
    };
    images_refuse(&image).await;
    let pod = json!({
        "metadata": { "name": "probe", "labels": { names::LABEL_OPERATION: "delete" } },
        "spec": { "containers": [{ "name": "c", "image": "example/image" }] },
    });
    until("runs", || async {
        match ring.api::<Pod>(ADMIN).create(&dry(), &object(pod.clone())).await {
            Err(error) => refused(403, error),
            Ok(_) => Err("let through".into()),
        }
    })
    .await;
    ring.claims().create(&PostParams::default(), &object(stamped)).await.unwrap();
    ring.create_volume(&object(volume_of("probe", uuid))).await;
    let forged = json!({ "metadata": { "annotations": { names::ATTEMPT: "8" } } });
    until("claims and volumes", || async {
        let claim = claims.patch("probe", &dry_patch(), &Patch::Merge(&forged)).await;
        let volume = operator.patch("probe", &dry_patch(), &Patch::Merge(&forged)).await;
        match (claim, volume) {
            (Err(claim), Err(volume)) => refused(403, claim).and_then(|()| refused(403, volume)),
            (claim, volume) => unexpected((claim.is_err(), volume.is_err())),
        }
    })
    .await;
    ring.claims().delete("probe", &DeleteParams::default()).await.unwrap();
    ring.volumes().delete("probe", &DeleteParams::default()).await.unwrap();
    ring.claim_gone("probe").await;
    ring.volume_gone("probe").await;
}

/// Returns a client with the token that the pod of a Job has mounted.
pub(super) async fn image(ring: &Ring, job: &Job) -> Api<PersistentVolume> {
    mounted(ring, IMAGE, ring.pod_of(job).await).await
}

/// Returns a client with the token of an account that a pod has mounted.
pub(super) async fn mounted(ring: &Ring, account: &str, pod: Pod) -> Api<PersistentVolume> {
    let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
    let output = ring
        .cluster()
        .kubectl()
        .args(["-n", pod.metadata.namespace.as_deref().unwrap(), "create", "token", account])
        .args(["--bound-object-kind", "Pod", "--bound-object-name", &name, "--bound-object-uid", &uid])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut kubeconfig = Kubeconfig::read_from(ring.cluster().kubeconfig()).unwrap();
    for user in &mut kubeconfig.auth_infos {
        let token = String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned();
        user.auth_info = Some(object(json!({ "token": token })));
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Api::all(Client::try_from(config).unwrap())
}

/// Creates a claim, and returns it with the Job of its first attempt.
pub(super) async fn attempt(ring: &Ring, claim: &str) -> (PersistentVolumeClaim, Job) {
    let claim = ring.stamped(claim).await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    (claim, job)
}

pub(super) async fn class_of_images(ring: &Ring, class: &str, more: &[(&str, &str)]) {
    let mut data = vec![("service-account-name", IMAGE)];
    data.extend(more);
    ring.config(class, class, &data).await;
}

/// Builds a volume as a plain script would: no claimRef, and one of this project's annotations.
pub(super) fn script_volume(job: &Job) -> Value {
    let request = request(job);
    let mut volume = volume_of(&request.pv_name, &request.volume_id);
    merge(&mut volume, json!({ "spec": { "storageClassName": request.storage_class } }));
    volume
}

/// Returns the claimRef with which flex-pv reserves a volume in the pod of a Job.
pub(super) fn placeholder(job: &Job) -> ObjectReference {
    let pod_namespace = job.metadata.namespace.clone().unwrap();
    flex_contract::volume::placeholder(&RunRequest { pod_namespace, ..request(job) })
}

pub(super) async fn create(api: &Api<PersistentVolume>, volume: Value) -> kube::Result<PersistentVolume> {
    api.create(&PostParams::default(), &object(volume)).await
}

pub(super) fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` in: {message}");
    }
}
