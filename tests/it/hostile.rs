//! Hostile users and hostile images: what they get, with the admission policies and without. Users are
//! impersonated; an image has the token that its pod would find mounted.

use std::time::Duration;

use contract::names::{self, reason};
use contract::request::Request;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::kubelet::{nfs_volume, request};
use crate::orchestrator::{ADMIN, OWN, Ring, USER, WHILE, annotation, merge, phase, uid};
use crate::wait::{seen, stays, until};

/// A user with the usual rights in their namespace.
const TOM: &str = "tom";
/// An account that may change volumes, as controllers of others may.
const OPERATOR: &str = "operator";
/// The account of images.
const IMAGE: &str = "image";

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// The words of a refusal; a panic if there is none.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> String {
    match result {
        Err(kube::Error::Api(status)) => status.message.clone(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Grants a cluster role, everywhere or in the users' namespace.
async fn grant(ring: &Ring, role: &str, subject: Value, namespace: Option<&str>) {
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

async fn role(ring: &Ring, name: &str, rules: Value) {
    let roles: Api<ClusterRole> = Api::all(ring.client.clone());
    roles
        .create(&PostParams::default(), &object(json!({ "metadata": { "name": name }, "rules": rules })))
        .await
        .unwrap();
}

fn user(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
}

fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "namespace": namespace, "name": name })
}

/// The users of these tests, and the account of images with its shipped role.
async fn people(ring: &Ring) {
    grant(ring, "edit", user(TOM), Some(USER)).await;
    let volumes =
        json!([{ "apiGroups": [""], "resources": ["persistentvolumes", "persistentvolumes/status"], "verbs": ["*"] }]);
    role(ring, "volumes-operator", volumes).await;
    grant(ring, "volumes-operator", user(OPERATOR), None).await;
    ring.account(IMAGE).await;
    grant(ring, "flex-provisioner-image", account(ADMIN, IMAGE), None).await;
}

/// A cluster with people, the shipped rights, and the policies; or, to see what they are good for, without.
async fn ring(policies: bool) -> Ring {
    let mut ring = Ring::without_orchestrator(&["--provisioner-name", names::DEFAULT_PROVISIONER]).await;
    ring.with_shipped_rights();
    people(&ring).await;
    if policies {
        install_policies(&ring).await;
    }
    ring.run().await;
    ring
}

async fn as_user(ring: &Ring, name: &str) -> Client {
    ring.cluster().client_as(name, &["system:authenticated"]).await.unwrap()
}

fn volume_of(name: &str, uuid: &str) -> Value {
    json!({
        "metadata": { "name": name, "annotations": { names::CLAIM_UUID: uuid } },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "c", "nfs": { "server": "s", "path": "/x" },
        },
    })
}

fn dry() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn dry_patch() -> PatchParams {
    PatchParams { dry_run: true, ..PatchParams::default() }
}

/// Installs the shipped admission policies, and waits until each of them acts.
async fn install_policies(ring: &Ring) {
    // The API server forgets policies some time after they are gone.
    ring.cluster().end_with_test();
    let policies = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/policies.yaml");
    let applied = ring.cluster().kubectl().args(["apply", "-f", policies]).output().unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    in_force(ring).await;
}

/// Waits until each of the policies acts: the API server takes a moment to learn of them.
async fn in_force(ring: &Ring) {
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
            other => seen(other),
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
        _ => seen(error),
    };
    until("images", || async {
        match image.create(&dry(), &object(volume_of("any", uuid))).await {
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
            (claim, volume) => seen((claim.is_err(), volume.is_err())),
        }
    })
    .await;
    ring.claims().delete("probe", &DeleteParams::default()).await.unwrap();
    ring.volumes().delete("probe", &DeleteParams::default()).await.unwrap();
    ring.volume_gone("probe").await;
}

impl Ring {
    /// A client with the token that the pod of a Job finds mounted.
    async fn image(&self, job: &Job) -> Api<PersistentVolume> {
        let pod = self.pod_of(job).await;
        let (name, uid) = (pod.metadata.name.unwrap(), pod.metadata.uid.unwrap());
        let output = self
            .cluster()
            .kubectl()
            .args(["-n", pod.metadata.namespace.as_deref().unwrap(), "create", "token", IMAGE])
            .args(["--bound-object-kind", "Pod", "--bound-object-name", &name, "--bound-object-uid", &uid])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut kubeconfig = Kubeconfig::read_from(self.cluster().kubeconfig()).unwrap();
        for user in &mut kubeconfig.auth_infos {
            let token = String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned();
            user.auth_info = Some(object(json!({ "token": token })));
        }
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Api::all(Client::try_from(config).unwrap())
    }

    /// A claim with the Job of its first attempt.
    async fn attempt(&self, claim: &str) -> (PersistentVolumeClaim, Job) {
        let claim = self.stamped(claim).await;
        let job = self.job(ADMIN, "provision", &uid(&claim), 1).await;
        (claim, job)
    }

    async fn class_of_images(&self, class: &str, more: &[(&str, &str)]) {
        let mut data = vec![("service-account-name", IMAGE)];
        data.extend(more);
        self.config(class, class, &data).await;
    }
}

/// A volume as a plain script would make it: no claimRef, none of our annotations but one.
fn script_volume(job: &Job) -> Value {
    let request = request(job);
    let mut volume = volume_of(&request.pv_name, &request.claim_uuid);
    merge(&mut volume, json!({ "spec": { "storageClassName": request.storage_class } }));
    volume
}

/// What flex-pv reserves a volume with in the pod of a Job.
fn placeholder(job: &Job) -> ObjectReference {
    let pod_namespace = job.metadata.namespace.clone().unwrap();
    contract::volume::placeholder(&Request { pod_namespace, ..request(job) })
}

async fn create(api: &Api<PersistentVolume>, volume: Value) -> kube::Result<PersistentVolume> {
    api.create(&PostParams::default(), &object(volume)).await
}

fn says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "`{part}` in: {said}");
    }
}

#[tokio::test]
async fn the_shipped_policies_are_sound() {
    let ring = ring(true).await;
    // All of the kustomization, as it is installed.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize");
    let applied = ring.cluster().kubectl().args(["apply", "--dry-run=server", "-k", shipped]).output().unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let known = status(&ring, &["-o", "json"]);
    let known: Value = serde_json::from_str(&known).expect("JSON");
    let known = known["policies"].as_array().unwrap();
    assert_eq!(known.len(), 6);
    for policy in known {
        assert_eq!(policy["state"], "installed", "{policy}");
    }
    ring.logged("the admission policies are installed").await;
    let kinds = [
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", 3),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", 3),
    ];
    for (kind, plural, count) in kinds {
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".into(),
            version: "v1".into(),
            api_version: "admissionregistration.k8s.io/v1".into(),
            kind: kind.into(),
            plural: plural.into(),
        };
        let api: Api<DynamicObject> = Api::all_with(ring.client.clone(), &resource);
        let ours = ListParams::default().labels(names::LABEL_POLICY);
        assert_eq!(api.list(&ours).await.unwrap().items.len(), count, "{kind}");
    }
    until("the controller manager has checked the types of all expressions", || async {
        let api: Api<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy> =
            Api::all(ring.client.clone());
        for policy in api.list(&ListParams::default().labels(names::LABEL_POLICY)).await.unwrap() {
            let name = policy.metadata.name.unwrap();
            let Some(checked) = policy.status.and_then(|status| status.type_checking) else { return seen(name) };
            let warnings = checked.expression_warnings.unwrap_or_default();
            assert!(warnings.is_empty(), "{name}: {warnings:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn status_and_log_say_which_policies_do_not_act() {
    let ring = ring(false).await;
    let said = ring.logged("6 of 6 admission policies do not act").await;
    says(
        &said,
        &["USERNAME and USER_GROUPS are empty", "can be taken by another claim", "kubectl apply -k deploy/kustomize"],
    );
    let said = status(&ring, &[]);
    says(
        &said,
        &[
            "reservations   MutatingAdmissionPolicy    not installed",
            "Off without them:",
            "USERNAME",
            "Install them: kubectl apply -k",
        ],
    );
    // One of them, and changed.
    let policies =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/policies.yaml")).unwrap();
    let images: Vec<_> = policies.split("\n---\n").filter(|document| document.contains("policy: images")).collect();
    let file = ring.file("images.yaml", &images.join("\n---\n").replace("[Deny]", "[Audit]"));
    let apply = ring.cluster().kubectl().arg("apply").arg("-f").arg(&file).output().unwrap();
    assert!(apply.status.success(), "{}", String::from_utf8_lossy(&apply.stderr));
    says(&status(&ring, &[]), &["images         ValidatingAdmissionPolicy  without a binding that acts"]);
}

/// What `flex-provisioner status` prints.
fn status(ring: &Ring, more: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flex-provisioner"))
        .args(["status", "--namespace", OWN, "--config-namespace", ADMIN])
        .args(more)
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn a_plain_script_s_volume_is_reserved_and_goes_to_its_own_of_two_identical_claims() {
    let mut ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("a", "c").await;
    ring.claim("twin", "c").await;
    let (claim, job) = ring.attempt("a").await;
    ring.attempt("twin").await;
    // Nobody is there who could bind it at once.
    ring.kill().await;
    let made = create(&ring.image(&job).await, script_volume(&job)).await.unwrap();
    let reference = made.spec.unwrap().claim_ref.unwrap();
    assert_eq!(reference, placeholder(&job), "the placeholder of flex-pv");
    let by_name = json!({ "spec": { "volumeName": names::pv_name(&uid(&claim)) } });
    ring.claim_with("thief", "c", by_name).await;
    // The PV controller looks at waiting claims every 15 s.
    stays("no claim takes it", Duration::from_secs(20), || async {
        let claims = ring.claims().list(&ListParams::default()).await.unwrap();
        match claims.iter().find(|claim| phase(claim) != "Pending") {
            None => Ok(()),
            Some(claim) => seen((&claim.metadata.name, phase(claim))),
        }
    })
    .await;
    ring.run().await;
    let bound = ring.bound("a").await;
    assert_eq!(bound.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&claim)));
    for other in ["twin", "thief"] {
        assert_eq!(phase(&ring.get_claim(other).await), "Pending", "{other}");
    }
}

#[tokio::test]
async fn without_policies_a_stolen_volume_is_noticed_and_another_is_made() {
    let mut ring = ring(false).await;
    ring.class_of_images("c", &[("backoff", "1s")]).await;
    ring.claim("a", "c").await;
    let (claim, job) = ring.attempt("a").await;
    ring.kill().await;
    let stolen = create(&ring.image(&job).await, script_volume(&job)).await.unwrap();
    // Of two identical claims the older would get it, which is `a` itself: the thief asks for it by name.
    let by_name = json!({ "spec": { "volumeName": stolen.metadata.name } });
    ring.claim_with("thief", "c", by_name).await;
    ring.bound("thief").await;
    ring.run().await;
    ring.event(USER, "a", reason::VOLUME_REFUSED, "but claim team/thief has taken it").await;
    ring.claim_when("a", "begins anew", |claim| annotation(claim, names::TAKEN).is_some()).await;
    let id = flex_provisioner::claim::volume_id(&uid(&claim), 1);
    let second = ring.job(ADMIN, "provision", &id, 2).await;
    // From now on with the policies: they know a run by its id, whichever of the claim's it is.
    install_policies(&ring).await;
    let image = ring.image(&second).await;
    let said = refusal(create(&image, script_volume(&job)).await);
    says(&said, &["it must be named $PV_NAME", &names::pv_name(&id)]);
    let mut script = script_volume(&second);
    merge(&mut script, json!({ "metadata": { "annotations": { names::CLAIM_UUID: uid(&claim) } } }));
    let reserved = image.create(&dry(), &object(script)).await.unwrap();
    assert_eq!(reserved.spec.unwrap().claim_ref.unwrap(), placeholder(&second), "a script's volume passes");
    let mut made = serde_json::to_value(nfs_volume(&second)).unwrap();
    merge(&mut made, json!({ "spec": { "claimRef": { "namespace": ADMIN } } }));
    create(&image, made).await.unwrap();
    assert_eq!(ring.bound("a").await.spec.unwrap().volume_name.unwrap(), names::pv_name(&id));
    assert_eq!(phase(&ring.get_claim("thief").await), "Bound", "what is in use is left in use");
}

#[tokio::test]
async fn a_run_makes_the_volume_of_its_own_claim_and_no_other() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.class_of_images("gold", &[]).await;
    ring.claim("a", "c").await;
    ring.claim("victim", "gold").await;
    let (_, job) = ring.attempt("a").await;
    let (victim, victims) = ring.attempt("victim").await;
    let image = ring.image(&job).await;
    let with = |change: Value| {
        let mut volume = script_volume(&job);
        merge(&mut volume, change);
        volume
    };
    let (own, other) = (uid(&ring.get_claim("a").await), uid(&victim));
    let refused = |change: Value| {
        let image = &image;
        let volume = with(change);
        async move { refusal(create(image, volume).await) }
    };
    // For another's claim, under its right name.
    let said = refusal(create(&image, script_volume(&victims)).await);
    says(
        &said,
        &[
            &names::pv_name(&other),
            "a run creates the volume of its own claim only",
            &other,
            &format!("provision-{own}-1"),
        ],
    );
    // For nobody's claim, to be taken by whoever waits for the class `gold`.
    let said =
        refused(json!({ "metadata": { "name": "free", "annotations": null }, "spec": { "storageClassName": "gold" } }))
            .await;
    says(&said, &["volume free", "creates volumes for claims only", names::CLAIM_UUID]);
    // Ten of them.
    for n in 0..10 {
        let said = refused(json!({ "metadata": { "name": format!("more-{n}") } })).await;
        says(&said, &[&format!("volume more-{n}"), "it must be named $PV_NAME", &names::pv_name(&own)]);
    }
    for path in ["/", "//", "/data/..", "/data/../etc", "relative"] {
        for kind in ["hostPath", "local"] {
            let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } });
            let said =
                refused(json!({ "spec": { "nfs": null, kind: { "path": path }, "nodeAffinity": affinity } })).await;
            // The API server itself refuses some of them.
            assert!(
                said.contains("would give away a node") || said.contains("must not contain '..'"),
                "{kind} {path}: {said}"
            );
        }
    }
    // Provenance of its own, to have another vendor's image run with another's Secrets.
    let said = refused(json!({ "metadata": { "annotations": { names::PROVENANCE: "{}" } } })).await;
    says(&said, &["only the provisioner writes flex-provisioner.io/provenance", "leave it out"]);
    let said = refused(json!({ "metadata": { "annotations": { names::VOLUME_ID: other } } })).await;
    says(&said, &["only the provisioner writes flex-provisioner.io/volume-id", "$CLAIM_UUID"]);
    assert_eq!(ring.volumes().list(&ListParams::default()).await.unwrap().items.len(), 0, "nothing was made");

    // Its own is welcome, and then it cannot touch it any more: its role has no such right, and the policy is
    // there for an account that has all of them.
    create(&image, script_volume(&job)).await.unwrap();
    ring.bound("a").await;
    grant(&ring, "cluster-admin", account(ADMIN, IMAGE), None).await;
    let name = names::pv_name(&own);
    let free = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    until("the rights are known", || async {
        match image.patch(&name, &PatchParams::default(), &Patch::Merge(&free)).await {
            Err(kube::Error::Api(status)) if status.message.contains("and never changes one") => Ok(()),
            other => seen(other.map(drop)),
        }
    })
    .await;
    let said = refusal(image.delete(&name, &DeleteParams::default()).await);
    says(&said, &[&name, "and never deletes one"]);
    let said = refusal(create(&image, script_volume(&victims)).await);
    says(&said, &["a run creates the volume of its own claim only"]);
    assert_eq!(phase(&ring.get_claim("victim").await), "Pending");
    let volume = ring.volumes().get(&name).await.unwrap();
    assert_eq!(volume.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
}

#[tokio::test]
async fn an_account_of_images_without_a_run_needs_a_grant_for_each_class() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = ring.attempt("a").await;
    // As with a token from a Secret, which is bound to no pod.
    let name = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    let image: Api<PersistentVolume> = Api::all(as_user(&ring, &name).await);
    let said = refusal(create(&image, script_volume(&job)).await);
    says(&said, &[&name, "may not create volumes of class c", "verb provision on c of classes.flex-provisioner.io"]);
    let rules = json!([{ "apiGroups": ["flex-provisioner.io"], "resources": ["classes"], "resourceNames": ["c"], "verbs": ["provision"] }]);
    role(&ring, "makes-c", rules).await;
    grant(&ring, "makes-c", account(ADMIN, IMAGE), None).await;
    until("the grant is known", || async {
        match create(&image, script_volume(&job)).await {
            Ok(_) => Ok(()),
            Err(error) => seen(error),
        }
    })
    .await;
    assert_eq!(ring.bound("a").await.metadata.uid, claim.metadata.uid);
    let said = refusal(create(&image, volume_of("free", "")).await);
    says(&said, &["creates volumes for claims only"]);
    // Somebody who is no image, and says that the volume is one of ours.
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    let unknown = "c0ffee00-0000-4000-8000-00000000cafe";
    let said = refusal(create(&operator, volume_of(&names::pv_name(unknown), unknown)).await);
    says(&said, &[OPERATOR, "may not create volumes of class c"]);
    // Volumes of other provisioners are nobody's business here.
    let mut foreign = volume_of("foreign", "");
    foreign["metadata"]["annotations"] = json!({ names::PROVISIONED_BY: "example.com/other" });
    merge(&mut foreign, json!({ "spec": { "claimRef": { "namespace": USER, "name": "x", "uid": unknown } } }));
    let made = create(&operator, foreign).await.unwrap();
    assert_eq!(made.spec.unwrap().claim_ref.unwrap().uid.as_deref(), Some(unknown), "as it was written");
}

#[tokio::test]
async fn a_claim_ref_with_a_uid_is_replaced_so_that_the_volume_is_checked_first() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("a", "c").await;
    ring.claim("small", "c").await;
    for (claim, size) in [("small", "1Mi"), ("a", "1Gi")] {
        let (owner, job) = ring.attempt(claim).await;
        let reference = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": USER, "name": claim, "uid": uid(&owner) });
        let mut volume = script_volume(&job);
        merge(&mut volume, json!({ "spec": { "claimRef": reference, "capacity": { "storage": size } } }));
        let made = create(&ring.image(&job).await, volume).await.unwrap();
        assert_eq!(made.spec.unwrap().claim_ref.unwrap(), placeholder(&job));
    }
    ring.bound("a").await;
    ring.event(USER, "small", reason::VOLUME_REFUSED, "its size is 1Mi, the claim asks for 1Gi").await;
    stays("what does not fit is not bound", WHILE, || async {
        let phase = phase(&ring.get_claim("small").await);
        if phase == "Pending" { Ok(()) } else { Err(phase) }
    })
    .await;
}

#[tokio::test]
async fn without_policies_what_does_not_fit_is_quarantined_and_foreign_provenance_is_not_used() {
    let ring = ring(false).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("a", "c").await;
    let (_, job) = ring.attempt("a").await;
    let image = ring.image(&job).await;
    let mut volume = serde_json::to_value(nfs_volume(&job)).unwrap();
    merge(&mut volume, json!({ "spec": { "nfs": null, "hostPath": { "path": "/" } } }));
    create(&image, volume).await.unwrap();
    ring.event(USER, "a", reason::VOLUME_REFUSED, "its path is `/`").await;
    assert_eq!(phase(&ring.get_claim("a").await), "Pending");
    // A volume for a claim that never was, with the way to another vendor's Secrets.
    let unknown = "c0ffee00-0000-4000-8000-00000000cafe";
    let mut volume = volume_of(&names::pv_name(unknown), unknown);
    let provenance =
        json!({ "config": "admin/gold", "class": "gold", "data": { "image": "evil", "secret-env": "gold-login" } });
    let marks = json!({
        "labels": { names::LABEL_INSTANCE: names::DEFAULT_INSTANCE },
        "annotations": { names::PROVENANCE: provenance.to_string(), names::PROVISIONED_BY: names::DEFAULT_PROVISIONER },
    });
    merge(&mut volume, json!({ "spec": { "storageClassName": "gold" } }));
    merge(&mut volume, json!({ "metadata": marks, "status": { "reason": "Adopted-forged" } }));
    let made = create(&image, volume).await.unwrap();
    assert_eq!(made.status.and_then(|status| status.reason), None, "the mark is beyond an image");
    ring.event("default", &names::pv_name(unknown), reason::VOLUME_FAILED_DELETE, "how it was made is not known").await;
    let jobs = ring.api::<Job>(ADMIN).list(&ListParams::default()).await.unwrap().items;
    // The first one may be gone by now, because it has failed.
    let names: Vec<_> = jobs.iter().map(|of| of.metadata.name.as_ref()).collect();
    assert!(names.iter().all(|name| *name == job.metadata.name.as_ref()), "none but the first: {names:?}");
}

#[tokio::test]
async fn users_cannot_touch_what_the_orchestrator_wrote_on_their_claims() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    let tom = as_user(&ring, TOM).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tom, USER);
    ring.claim("a", "c").await;
    let (claim, _) = ring.attempt("a").await;
    let patch = async |change: Value| claims.patch("a", &PatchParams::default(), &Patch::Merge(change)).await;
    for key in [
        names::CLAIM_UUID,
        names::PROVISION_TS,
        names::ATTEMPT,
        names::CONFIG,
        names::CREATED_BY,
        names::CREATED_BY_GROUPS,
    ] {
        for value in [Value::Null, json!("forged")] {
            let said = refusal(patch(json!({ "metadata": { "annotations": { key: value } } })).await);
            says(&said, &["claim team/a", "only the provisioner writes the annotation", key, "leave it as it is"]);
        }
    }
    for key in [names::NODES, names::FAILURE, "flex-provisioner.io/of-a-later-version"] {
        let said = refusal(patch(json!({ "metadata": { "annotations": { key: "forged" } } })).await);
        says(&said, &["only the provisioner writes the annotation", key]);
    }
    let said = refusal(patch(json!({ "metadata": { "finalizers": null } })).await);
    says(&said, &["only the provisioner sets and removes its finalizer", names::CLAIM_FINALIZER, "delete the claim"]);
    let abandon = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    let said = refusal(patch(abandon.clone()).await);
    says(&said, &[names::ABANDON, "verb abandon on claims.flex-provisioner.io", "ask the admin of the storage"]);
    let now = ring.get_claim("a").await;
    assert_eq!(
        (now.metadata.annotations, now.metadata.finalizers),
        (claim.metadata.annotations, claim.metadata.finalizers)
    );
    // What is the user's own is free, and an admin of the storage may let go.
    patch(json!({ "metadata": { "annotations": { "team": "green" }, "labels": { "team": "green" } } })).await.unwrap();
    let rules =
        json!([{ "apiGroups": ["flex-provisioner.io"], "resources": ["claims", "volumes"], "verbs": ["abandon"] }]);
    role(&ring, "storage-admin", rules).await;
    grant(&ring, "storage-admin", user(TOM), None).await;
    until("the grant is known", || async { patch(abandon.clone()).await.map(drop).map_err(|error| error.to_string()) })
        .await;
    claims.delete("a", &DeleteParams::default()).await.unwrap();
    ring.claim_gone("a").await;
}

#[tokio::test]
async fn nobody_else_touches_what_the_orchestrator_wrote_on_volumes() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = ring.attempt("a").await;
    create(&ring.image(&job).await, script_volume(&job)).await.unwrap();
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let name = names::pv_name(&uid(&claim));
    let before = until("the volume is Bound", || async {
        let volume = ring.volumes().get(&name).await.unwrap();
        match volume.status.as_ref().unwrap().phase.as_deref() {
            Some("Bound") => Ok(volume),
            phase => seen(phase),
        }
    })
    .await;
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    let patch = async |change: Value| operator.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    for key in [names::CLAIM_UUID, names::VOLUME_ID, names::PROVENANCE] {
        for value in [Value::Null, json!("forged")] {
            let said = refusal(patch(json!({ "metadata": { "annotations": { key: value } } })).await);
            says(&said, &[&format!("volume {name}"), "only the provisioner writes the annotation", key]);
        }
    }
    let said = refusal(patch(json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } })).await);
    says(&said, &["verb abandon on volumes.flex-provisioner.io"]);
    let said = refusal(patch(json!({ "metadata": { "labels": { names::LABEL_INSTANCE: "other" } } })).await);
    says(&said, &["only the provisioner writes labels"]);
    let said = refusal(patch(json!({ "metadata": { "finalizers": null } })).await);
    says(&said, &["finalizer flex-provisioner.io/volume", "delete the claim that has it"]);
    let mark = json!({ "status": { "reason": "Adopted-forged" } });
    let said = refusal(operator.patch_status(&name, &PatchParams::default(), &Patch::Merge(mark)).await);
    says(&said, &["only the provisioner marks a volume as adopted"]);
    let after = ring.volumes().get(&name).await.unwrap();
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    assert_eq!(after.metadata.finalizers, before.metadata.finalizers);
    // What others write on volumes is free; and the volume goes its way to the end.
    patch(json!({ "metadata": { "labels": { "team": "green" } } })).await.unwrap();
    ring.delete_claim("a").await;
    let delete = ring.job(ADMIN, "delete", &uid(&claim), 1).await;
    let said = refusal(create(&ring.image(&delete).await, script_volume(&job)).await);
    says(&said, &["a run creates the volume of its own claim only", "the run is delete-"]);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&name).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_copy_comes_without_the_stamp() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    ring.claim("original", "c").await;
    let (original, _) = ring.attempt("original").await;
    let mut annotations = original.metadata.annotations.clone().unwrap();
    annotations.insert(names::ABANDON.into(), names::ABANDON_YES.into());
    annotations.insert("team".into(), "green".into());
    let marks = json!({ "metadata": { "annotations": annotations, "finalizers": [names::CLAIM_FINALIZER, "example.com/own"] } });
    // Of a class that nobody serves, so that it stays as it was made.
    let copy = ring.claim_with("copy", "nobody", marks.clone()).await;
    let left = copy.metadata.annotations.unwrap();
    let ours: Vec<_> = left.keys().filter(|key| key.starts_with("flex-provisioner.io/")).collect();
    assert_eq!(ours, [names::CREATED_BY, names::CREATED_BY_GROUPS]);
    assert_eq!(left["team"], "green");
    let finalizers = copy.metadata.finalizers.unwrap();
    assert!(
        finalizers.contains(&"example.com/own".to_owned()) && !finalizers.contains(&names::CLAIM_FINALIZER.to_owned())
    );
    let off = json!({ "metadata": { "finalizers": null } });
    ring.claims().patch("copy", &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
    // Of a class of ours it gets a stamp and a volume of its own.
    ring.claim_with("twin", "c", json!({ "metadata": { "annotations": annotations } })).await;
    let (twin, job) = ring.attempt("twin").await;
    assert_eq!(annotation(&twin, names::CLAIM_UUID), twin.metadata.uid);
    create(&ring.image(&job).await, script_volume(&job)).await.unwrap();
    assert_eq!(ring.bound("twin").await.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&twin)));
    assert_eq!(phase(&ring.get_claim("original").await), "Pending", "nothing of the original was touched");
}

#[tokio::test]
async fn a_backup_tool_brings_volumes_back_as_they_were() {
    let ring = ring(true).await;
    let uuid = "c0ffee00-0000-4000-8000-00000000beef";
    let tool = format!("system:serviceaccount:{USER}:velero");
    let velero: ServiceAccount = object(json!({ "metadata": { "name": "velero" } }));
    ring.api::<ServiceAccount>(USER).create(&PostParams::default(), &velero).await.unwrap();
    grant(&ring, "cluster-admin", account(USER, "velero"), None).await;
    let mut volume = volume_of(&names::pv_name(uuid), uuid);
    let reference = json!({ "kind": "PersistentVolumeClaim", "namespace": USER, "name": "restored" });
    let annotations = json!({ names::VOLUME_ID: uuid, names::PROVENANCE: "{}" });
    merge(&mut volume, json!({ "metadata": { "annotations": annotations }, "spec": { "claimRef": reference } }));
    let made = create(&Api::all(as_user(&ring, &tool).await), volume.clone()).await.unwrap();
    let reference = made.spec.unwrap().claim_ref.unwrap();
    assert_eq!((reference.namespace.as_deref(), reference.name.as_deref()), (Some(USER), Some("restored")));
    let by_name = json!({ "spec": { "volumeName": names::pv_name(uuid) } });
    ring.claim_with("restored", "c", by_name).await;
    ring.bound("restored").await;
}

#[tokio::test]
async fn who_created_a_claim_reaches_the_image_and_cannot_be_forged() {
    let ring = ring(true).await;
    ring.class_of_images("c", &[]).await;
    let asked = async |name: &str| {
        let (_, job) = ring.attempt(name).await;
        let request = request(&job);
        (request.username, request.user_groups.join(","))
    };
    let claim = |name: &str, annotations: Value| -> PersistentVolumeClaim {
        object(json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        }))
    };
    // A user with groups, one of them with a comma in its name, as those of LDAP have.
    let groups = ["system:authenticated", "devs", "CN=storage,OU=x", "100%"];
    let tom = ring.cluster().client_as(TOM, &groups).await.unwrap();
    let forged = json!({ names::CREATED_BY: "root", names::CREATED_BY_GROUPS: "system:masters" });
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tom, USER);
    claims.create(&PostParams::default(), &claim("a-user", forged.clone())).await.unwrap();
    assert_eq!(
        asked("a-user").await,
        (TOM.to_owned(), "system:authenticated,devs,CN=storage%2COU=x,100%25".to_owned())
    );
    // A group that may create claims.
    let group = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs" });
    grant(&ring, "edit", group, Some(USER)).await;
    let ann = ring.cluster().client_as("ann", &["devs"]).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(ann, USER);
    claims.create(&PostParams::default(), &claim("of-a-group", Value::Null)).await.unwrap();
    assert_eq!(asked("of-a-group").await, ("ann".to_owned(), "devs,system:authenticated".to_owned()));
    // A ServiceAccount.
    grant(&ring, "edit", account(USER, "default"), Some(USER)).await;
    let name = format!("system:serviceaccount:{USER}:default");
    let of_account = ["system:serviceaccounts", &format!("system:serviceaccounts:{USER}"), "system:authenticated"];
    let client = ring.cluster().client_as(&name, &of_account).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, USER);
    claims.create(&PostParams::default(), &claim("of-an-account", forged.clone())).await.unwrap();
    assert_eq!(asked("of-an-account").await, (name, of_account.join(",")));
    // A StatefulSet's claims are made by its controller.
    let template = json!({ "metadata": { "labels": { "app": "s" } }, "spec": { "containers": [{ "name": "c", "image": "example/image" }] } });
    let set: StatefulSet = object(json!({
        "metadata": { "name": "s" },
        "spec": {
            "serviceName": "s", "replicas": 1, "selector": { "matchLabels": { "app": "s" } }, "template": template,
            "volumeClaimTemplates": [claim("data", forged)],
        },
    }));
    Api::<StatefulSet>::namespaced(as_user(&ring, TOM).await, USER).create(&PostParams::default(), &set).await.unwrap();
    ring.claim_when("data-s-0", "is there", |_| true).await;
    let (user, groups) = asked("data-s-0").await;
    assert_eq!(user, "system:serviceaccount:kube-system:statefulset-controller");
    assert!(groups.contains("system:serviceaccounts:kube-system"), "{groups}");
}

#[tokio::test]
async fn a_user_s_own_config_takes_over_no_class() {
    let ring = ring(true).await;
    let tom: Api<ConfigMap> = Api::namespaced(as_user(&ring, TOM).await, USER);
    let labels = json!({ names::LABEL_TYPE: names::LABEL_TYPE_CONFIG, names::LABEL_STORAGE_CLASS: "c" });
    let data = json!({ "plugin-name": names::DEFAULT_PLUGIN, "image": "evil/image" });
    let config = object(json!({ "metadata": { "name": "takeover", "labels": labels }, "data": data }));
    tom.create(&PostParams::default(), &config).await.unwrap();
    ring.claim("early", "c").await;
    stays("it serves nothing", WHILE, || async {
        match annotation(&ring.get_claim("early").await, names::CLAIM_UUID) {
            None => Ok(()),
            some => seen(some),
        }
    })
    .await;
    ring.class_of_images("c", &[]).await;
    let (_, job) = ring.attempt("early").await;
    assert_eq!(job.metadata.namespace.as_deref(), Some(ADMIN));
    assert_eq!(job.spec.unwrap().template.spec.unwrap().containers[0].image.as_deref(), Some("example/image"));
    assert_eq!(ring.api::<Job>(USER).list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(ring.api::<Job>(OWN).list(&ListParams::default()).await.unwrap().items.len(), 0);
}
