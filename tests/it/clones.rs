//! Tests of clones, and of the claims that are kept for them.

use cluster::{ClientLimits, Cluster};
use flex_contract::exit;
use flex_contract::names::{self, reason};
use flex_provisioner::model::grant::ReferenceGrant;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::kubelet::{nfs_volume, request};
use crate::nodes::{local_volume, pinned_to};
use crate::orchestrator::{ADMIN, Ring, WHILE, annotation, uid};
use crate::wait::{seen, stays, until};

fn of(claim: &str) -> Value {
    json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": claim } } })
}

/// A copy of a claim, with a size.
fn sized(claim: &str, size: &str) -> Value {
    let mut copy = of(claim);
    copy["spec"]["resources"] = json!({ "requests": { "storage": size } });
    copy
}

fn kept(claim: &PersistentVolumeClaim) -> Vec<String> {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    finalizers.filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER)).map(str::to_owned).collect()
}

impl Ring {
    /// A claim that is bound, with its id.
    async fn original(&self, class: &str) -> String {
        self.claim("original", class).await;
        self.provision("original").await;
        uid(&self.get_claim("original").await)
    }

    /// Waits until the original is kept for these claims, and no others.
    async fn kept_for(&self, uids: &[&str]) {
        let same = |claim: &PersistentVolumeClaim| kept(claim) == uids;
        self.claim_when("original", &format!("is kept for {uids:?}"), same).await;
    }
}

#[tokio::test]
async fn a_copy_is_told_its_original_which_is_kept_until_it_is_bound() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("reclaim-policy", "Delete")]).await;
    // First the copy, then what it is to be a copy of.
    ring.claim_with("copy", "c", sized("original", "2Gi")).await;
    ring.event(&ring.user, "copy", reason::WAITING, "original, the data source of this claim, does not exist").await;
    let original = ring.original("c").await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    let asked = request(&job);
    let told = asked.clone_of.clone().expect("it is told what to copy");
    assert_eq!(
        (told.id.as_str(), told.pv_name, told.size_bytes),
        (original.as_str(), names::pv_name(&original), 1 << 30)
    );
    assert_eq!(told.source, format!(r#"{{"nfs":{{"path":"/{original}","server":"10.0.0.1"}}}}"#));
    assert_eq!((asked.claim_uuid.as_str(), asked.size_bytes), (copy.as_str(), 2 << 30));
    ring.kept_for(&[&copy]).await;
    // Deleted while it is read: it stays, and says for whom.
    ring.delete_claim("original").await;
    let said =
        ring.event(&ring.user, "original", reason::BEING_CLONED, "until its clones and snapshots are made").await;
    assert!(said.ends_with("/copy; to free it before, delete those"), "{said}");
    // An attempt more while the original is going.
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &copy, 2).await;
    assert_eq!(request(&job).clone_of.map(|told| told.id).as_deref(), Some(original.as_str()));
    assert!(ring.jobs(ADMIN, "delete", &original).await.is_empty());
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("copy").await;
    ring.pod_ends(&job, 0, "").await;
    ring.claim_gone("original").await;
    let delete = ring.job(ADMIN, "delete", &original, 1).await;
    assert_eq!(request(&delete).clone_of, None);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&original)).await;
    ring.bound("copy").await;
    ring.delete_claim("copy").await;
    let delete = ring.job(ADMIN, "delete", &copy, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&copy)).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn several_copies_at_once_and_copies_of_copies() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    ring.original("c").await;
    for name in ["one", "two"] {
        ring.claim_with(name, "c", of("original")).await;
    }
    ring.claim_with("three", "c", of("one")).await;
    ring.event(&ring.user, "three", reason::WAITING, "is not bound; the provisioner waits for it").await;
    let (one, two) = (uid(&ring.stamped("one").await), uid(&ring.stamped("two").await));
    let both = |claim: &PersistentVolumeClaim| {
        let kept = kept(claim);
        kept.len() == 2 && kept.contains(&one) && kept.contains(&two)
    };
    ring.claim_when("original", "is kept for both", both).await;
    ring.made("one").await;
    ring.kept_for(&[&two]).await;
    let job = ring.made("three").await;
    assert_eq!(request(&job).clone_of.map(|told| told.id), Some(one));
    ring.made("two").await;
    ring.kept_for(&[]).await;
}

#[tokio::test]
async fn a_copy_given_up_half_way_lets_its_original_go_also_after_a_crash() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    let original = ring.original("c").await;
    ring.claim_with("copy", "c", of("original")).await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    // Its process runs on, for all that can be known.
    let pod = ring.pod_on_node(&job, "n1").await;
    ring.delete_claim("copy").await;
    ring.delete_claim("original").await;
    stays("the original is kept as long as it may be read", WHILE, || async {
        let kept = kept(&ring.get_claim("original").await);
        if kept == [copy.clone()] { Ok(()) } else { seen(kept) }
    })
    .await;
    ring.kill().await;
    ring.pod_is_over(ADMIN, &pod).await;
    ring.run().await;
    let delete = ring.job(ADMIN, "delete", &copy, 1).await;
    assert_eq!(kept(&ring.get_claim("original").await), std::slice::from_ref(&copy));
    ring.kill().await;
    ring.pod_ends(&delete, 0, "").await;
    // Nobody sees the copy go: what keeps the original names a claim that is not there any more.
    let free = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    ring.claims().patch("copy", &PatchParams::default(), &free).await.unwrap();
    ring.claim_gone("copy").await;
    ring.run().await;
    ring.claim_gone("original").await;
    let delete = ring.job(ADMIN, "delete", &original, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&original)).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn what_no_image_can_copy_is_refused_and_what_others_fill_is_left_to_them() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    ring.config("cannot", "cannot", &[]).await;
    ring.original("c").await;
    let populated = json!({ "spec": { "dataSourceRef": { "apiGroup": "example.com", "kind": "Hello", "name": "h" } } });
    let snapshot = json!({ "spec": { "dataSource": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" } } });
    let mut block = of("original");
    block["spec"]["volumeMode"] = json!("Block");
    let cases = [
        (
            "cannot",
            "cannot",
            of("original"),
            reason::PROVISIONING_FAILED,
            "admin/cannot of class cannot does not declare",
        ),
        ("small", "c", sized("original", "1Mi"), reason::WAITING, "has 1Gi, this claim asks for 1Mi"),
        ("block", "c", block, reason::WAITING, "has the volume mode Filesystem, this claim has Block"),
        ("restored", "c", snapshot, reason::PROVISIONING_FAILED, "can copy it (`capabilities: snapshot`)"),
        ("populated", "c", populated, reason::LEFT_TO_POPULATOR, "the populator for Hello.example.com h"),
    ];
    for (name, class, more, reason, says) in cases {
        ring.claim_with(name, class, more).await;
        ring.event(&ring.user, name, reason, says).await;
        assert_eq!(annotation(&ring.get_claim(name).await, names::ATTEMPT), None, "{name} is not begun");
    }
    // The class learns it, but the original is of another class.
    ring.config("cannot", "cannot", &[("capabilities", "clone")]).await;
    ring.event(&ring.user, "cannot", reason::WAITING, "is of another class, c").await;
    assert_eq!(kept(&ring.get_claim("original").await), [""; 0]);
}

#[tokio::test]
async fn a_source_that_the_api_server_drops_leads_to_no_empty_volume() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone, snapshot"), ("reclaim-policy", "Delete")]).await;
    let apply = |name: &str, source: Value| {
        let mut claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": ring.user },
            "spec": { "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
        });
        crate::orchestrator::merge(&mut claim["spec"], source);
        let file = ring.file(&format!("{name}.yaml"), &claim.to_string());
        let applied = ring.cluster().kubectl().args(["apply", "--validate=false", "-f"]).arg(file).output().unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    };
    for (name, source) in [
        // A kind that the API server does not allow in this field, a version in place of a group, and a misspelt field.
        ("kind", json!({ "dataSource": { "kind": "VolumeSnapshot", "name": "s" } })),
        ("group", json!({ "dataSource": { "apiGroup": "v1", "kind": "PersistentVolumeClaim", "name": "original" } })),
        ("field", json!({ "datasource": { "kind": "PersistentVolumeClaim", "name": "original" } })),
        // Without the gate: a claim of its own namespace would be copied.
        (
            "far",
            json!({ "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "original", "namespace": "gold" } }),
        ),
    ] {
        apply(name, source);
        let spec = ring.get_claim(name).await.spec.unwrap();
        let kept = spec.data_source_ref.as_ref().map(|source| source.namespace.clone());
        assert!(name == "far" && kept == Some(None) || spec.data_source.is_none(), "{spec:?}");
        ring.event(&ring.user, name, reason::PROVISIONING_FAILED, "makes no empty volume instead").await;
        assert!(ring.jobs(ADMIN, "provision", &uid(&ring.get_claim(name).await)).await.is_empty());
    }
    apply("plain", json!({}));
    ring.provision("plain").await;
    // Its user says that the volume is to be empty.
    let without =
        json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": null } } });
    ring.claims().patch("kind", &PatchParams::default(), &Patch::Merge(without)).await.unwrap();
    ring.provision("kind").await;
}

#[tokio::test]
async fn a_copy_of_what_a_node_has_is_made_on_that_node() {
    let ring = Ring::start().await;
    for node in ["n1", "n2", "n3"] {
        ring.node(node).await;
    }
    let keys = [("capabilities", "clone"), ("volume-sources", "local:/data"), ("backoff", "1s")];
    ring.delayed_class("c", &keys).await;
    ring.claim("original", "c").await;
    ring.select("original", "n2").await;
    let original = uid(&ring.stamped("original").await);
    let job = ring.job(ADMIN, "provision", &original, 1).await;
    ring.create_volume(&local_volume(&job, "n2")).await;
    ring.bound("original").await;
    ring.pod_ends(&job, 0, "").await;

    ring.claim_with("copy", "c", of("original")).await;
    stays("no run before a pod wants it", WHILE, || async {
        let stamp = annotation(&ring.get_claim("copy").await, names::ATTEMPT);
        if stamp.is_none() { Ok(()) } else { seen(stamp) }
    })
    .await;
    // Whatever the scheduler selects.
    ring.select("copy", "n3").await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    let asked = request(&job);
    assert_eq!((pinned_to(&job).as_deref(), asked.node_name.as_str()), (Some("n2"), "n2"));
    assert_eq!(asked.clone_of.map(|told| told.node).as_deref(), Some("n2"));
    // There is no other node to go to.
    ring.pod_ends(&job, exit::UNAVAILABLE, "full").await;
    let job = ring.job(ADMIN, "provision", &copy, 2).await;
    assert_eq!(pinned_to(&job).as_deref(), Some("n2"));
    let claim = ring.get_claim("copy").await;
    assert_eq!(annotation(&claim, names::SELECTED_NODE).as_deref(), Some("n3"));
    assert_eq!(annotation(&claim, names::NODES).as_deref(), Some("n2"));
    ring.create_volume(&local_volume(&job, "n2")).await;
    ring.bound("copy").await;
    ring.pod_ends(&job, 0, "").await;
    ring.delete_claim("copy").await;
    let delete = ring.job_on("delete", &copy, "n2").await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&copy)).await;
    until("the original is let go", || async {
        let kept = kept(&ring.get_claim("original").await);
        if kept.is_empty() { Ok(()) } else { seen(kept) }
    })
    .await;
}

#[tokio::test]
async fn a_copy_of_another_namespace_waits_for_a_grant() {
    const GOLD: &str = "gold";
    // No other test may see a cluster with this gate, or with these kinds.
    let cluster = Cluster::control_plane().api_server_flag("--feature-gates=CrossNamespaceVolumeDataSource=true");
    let cluster = cluster.with_controller_manager(ClientLimits::Raised).await.expect("the control plane starts");
    let mut ring = Ring::on(cluster, &[]).await;
    ring.with_shipped_rights();
    ring.namespace(GOLD, &[]).await;
    ring.install_grants();
    ring.run().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("reclaim-policy", "Delete")]).await;
    let team = std::mem::replace(&mut ring.user, GOLD.into());
    let original = ring.original("c").await;
    ring.user = team;
    let of = |name: &str| json!({ "spec": { "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": name, "namespace": GOLD } } });
    ring.claim_with("copy", "c", of("original")).await;
    let says = "claim gold/original, the data source of this claim, is in another namespace, where no ReferenceGrant";
    let said = ring.event(&ring.user, "copy", reason::WAITING, says).await;
    assert!(said.contains("lets claims of namespace team use it"), "{said}");
    // Whether something is there is not told.
    ring.claim_with("guess", "c", of("nothing")).await;
    ring.event(&ring.user, "guess", reason::WAITING, "is in another namespace, where no ReferenceGrant").await;
    assert_eq!(annotation(&ring.get_claim("copy").await, names::ATTEMPT), None, "it is not begun");

    let kind = ApiResource::erase::<ReferenceGrant>(&());
    let grants: Api<DynamicObject> = Api::namespaced_with(ring.client.clone(), GOLD, &kind);
    let grant = |name: &str, namespace: &str, to: &str| -> DynamicObject {
        let from = json!([{ "group": "", "kind": "PersistentVolumeClaim", "namespace": namespace }]);
        let to = json!([{ "group": "", "kind": "PersistentVolumeClaim", "name": to }]);
        let meta = json!({ "name": name, "namespace": GOLD });
        let types = (&kind.api_version, &kind.kind);
        let spec = json!({ "from": from, "to": to });
        let body = json!({ "apiVersion": types.0, "kind": types.1, "metadata": meta, "spec": spec });
        serde_json::from_value(body).unwrap()
    };
    let create = async |grant: DynamicObject| grants.create(&PostParams::default(), &grant).await.unwrap();
    create(grant("for-others", "others", "original")).await;
    create(grant("of-another", &ring.user, "another")).await;
    stays("grants for others, or of something else, are none", WHILE, || async {
        let stamp = annotation(&ring.get_claim("copy").await, names::ATTEMPT);
        if stamp.is_none() { Ok(()) } else { seen(stamp) }
    })
    .await;
    create(grant("right", &ring.user, "original")).await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    assert_eq!(request(&job).clone_of.map(|told| told.id).as_deref(), Some(original.as_str()));
    // Taken back when it is begun: that is too late.
    grants.delete("right", &DeleteParams::default()).await.unwrap();
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &copy, 2).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("copy").await;
    ring.pod_ends(&job, 0, "").await;
    let gold: Api<PersistentVolumeClaim> = Api::namespaced(ring.client.clone(), GOLD);
    until("the original is let go", || async {
        let kept = kept(&gold.get("original").await.map_err(|error| error.to_string())?);
        if kept.is_empty() { Ok(()) } else { seen(kept) }
    })
    .await;
}
