//! Tests of clones, and of the claims that are protected as their sources.

use cluster::{ClientLimits, Cluster};
use flex_contract::exit;
use flex_contract::names;
use flex_contract::reason;
use flex_core::model::grant::ReferenceGrant;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::{Api, ResourceExt};
use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::nodes::{local_volume, pinned_to};
use orchestrator::ring::{ADMIN, Ring, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};
use serde_json::{Value, json};

fn of(claim: &str) -> Value {
    json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": claim } } })
}

/// Returns the spec of a clone, with a size.
fn sized(claim: &str, size: &str) -> Value {
    let mut copy = of(claim);
    copy["spec"]["resources"] = json!({ "requests": { "storage": size } });
    copy
}

fn protected_uids(claim: &PersistentVolumeClaim) -> Vec<String> {
    let finalizers = claim.metadata.finalizers.iter().flatten();
    finalizers.filter_map(|finalizer| finalizer.strip_prefix(names::CLONE_FINALIZER)).map(str::to_owned).collect()
}

/// Creates a bound claim, and returns its id.
async fn source(ring: &Ring, class: &str) -> String {
    ring.claim("source", class).await;
    ring.provision("source").await;
    uid(&ring.get_claim("source").await)
}

/// Waits until the source is protected for these claims, and no others.
async fn protected_for(ring: &Ring, uids: &[&str]) {
    let same = |claim: &PersistentVolumeClaim| protected_uids(claim) == uids;
    ring.claim_when("source", &format!("is protected for {uids:?}"), same).await;
}

#[tokio::test]
async fn an_image_gets_the_source_of_a_clone_which_is_protected_until_the_clone_is_bound() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("reclaim-policy", "Delete")]).await;
    // First the clone, then its source.
    ring.claim_with("copy", "c", sized("source", "2Gi")).await;
    ring.event(
        &ring.user,
        "copy",
        reason::WAITING_FOR_PROVISIONER,
        "source, the data source of this claim, does not exist",
    )
    .await;
    let source = source(&ring, "c").await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    let asked = request(&job);
    let source_request = asked.clone_of.clone().expect("the request names the source");
    assert_eq!(
        (source_request.id.as_str(), source_request.pv_name, source_request.size_bytes),
        (source.as_str(), names::pv_name(&source), 1 << 30)
    );
    assert_eq!(source_request.source, format!(r#"{{"nfs":{{"path":"/{source}","server":"10.0.0.1"}}}}"#));
    assert_eq!((asked.volume_id.as_str(), asked.size_bytes), (copy.as_str(), 2 << 30));
    protected_for(&ring, &[&copy]).await;
    // The source is deleted while it is read: it stays, and an event says for which claims.
    ring.delete_claim("source").await;
    let message =
        ring.event(&ring.user, "source", reason::BEING_CLONED, "until its clones and snapshots are made").await;
    assert!(message.ends_with("/copy; to free it before, delete those"), "{message}");
    // Another attempt while the source is terminating.
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &copy, 2).await;
    assert_eq!(request(&job).clone_of.map(|source_request| source_request.id).as_deref(), Some(source.as_str()));
    assert!(ring.jobs(ADMIN, "delete", &source).await.is_empty());
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("copy").await;
    ring.pod_ends(&job, 0, "").await;
    ring.claim_gone("source").await;
    let delete = ring.job(ADMIN, "delete", &source, 1).await;
    assert_eq!(request(&delete).clone_of, None);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&source)).await;
    ring.bound("copy").await;
    ring.delete_claim("copy").await;
    let delete = ring.job(ADMIN, "delete", &copy, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&copy)).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn several_clones_at_once_and_clones_of_clones_are_made() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    source(&ring, "c").await;
    for name in ["one", "two"] {
        ring.claim_with(name, "c", of("source")).await;
    }
    ring.claim_with("three", "c", of("one")).await;
    ring.event(&ring.user, "three", reason::WAITING_FOR_PROVISIONER, "is not bound; the provisioner waits for it")
        .await;
    let (one, two) = (uid(&ring.stamped("one").await), uid(&ring.stamped("two").await));
    let both = |claim: &PersistentVolumeClaim| {
        let protected_uids = protected_uids(claim);
        protected_uids.len() == 2 && protected_uids.contains(&one) && protected_uids.contains(&two)
    };
    ring.claim_when("source", "is protected for both", both).await;
    ring.provision("one").await;
    protected_for(&ring, &[&two]).await;
    let (job, _) = ring.provision("three").await;
    assert_eq!(request(&job).clone_of.map(|source_request| source_request.id), Some(one));
    ring.provision("two").await;
    protected_for(&ring, &[]).await;
}

#[tokio::test]
async fn a_source_waits_for_no_deleted_clone_that_cannot_be_undone() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("reclaim-policy", "Delete"), ("backoff", "1h..2h")]).await;
    let source = source(&ring, "c").await;
    ring.claim_with("copy", "c", of("source")).await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    ring.claim_when("copy", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    ring.delete_claim("copy").await;
    ring.delete_claim("source").await;
    let delete = ring.job(ADMIN, "delete", &copy, 1).await;
    assert!(request(&delete).clone_of.is_some(), "it asks as the attempt did");
    protected_for(&ring, &[&copy]).await;
    ring.pod_ends(&delete, exit::TEMPFAIL, "busy").await;
    ring.claim_gone("source").await;
    let delete = ring.job(ADMIN, "delete", &source, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&source)).await;
    assert_eq!(ring.records_of("copy").await.unwrap().len(), 1, "it is not undone");
}

#[tokio::test]
async fn a_clone_deleted_half_way_unprotects_its_source_also_after_a_crash() {
    let mut ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone")]).await;
    let source = source(&ring, "c").await;
    ring.claim_with("copy", "c", of("source")).await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    // For all that the orchestrator can know, the process of the clone still runs.
    let pod = ring.pod_on_node(&job, "n1").await;
    ring.delete_claim("copy").await;
    ring.delete_claim("source").await;
    stays("the source is protected as long as a run may read it", WHILE, || async {
        let protected_uids = protected_uids(&ring.get_claim("source").await);
        if protected_uids == [copy.clone()] { Ok(()) } else { unexpected(protected_uids) }
    })
    .await;
    ring.kill().await;
    ring.pod_is_over(ADMIN, &pod).await;
    ring.run().await;
    let delete = ring.job(ADMIN, "delete", &copy, 1).await;
    assert_eq!(protected_uids(&ring.get_claim("source").await), std::slice::from_ref(&copy));
    ring.kill().await;
    ring.pod_ends(&delete, 0, "").await;
    // Somebody deletes the record meanwhile: the finalizer on the source names a claim of which nothing is known any more.
    for record in ring.records_of("copy").await.unwrap() {
        ring.revisions().delete(&record.name_any(), &DeleteParams::default()).await.unwrap();
    }
    ring.claim_vanished("copy").await;
    ring.run().await;
    ring.claim_gone("source").await;
    let delete = ring.job(ADMIN, "delete", &source, 1).await;
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&names::pv_name(&source)).await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn impossible_clones_are_refused_and_claims_for_populators_are_left_alone() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("volume-mode", "Filesystem, Block")]).await;
    ring.config("cannot", "cannot", &[]).await;
    source(&ring, "c").await;
    let populated = json!({ "spec": { "dataSourceRef": { "apiGroup": "example.com", "kind": "Hello", "name": "h" } } });
    let snapshot = json!({ "spec": { "dataSource": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" } } });
    let mut block = of("source");
    block["spec"]["volumeMode"] = json!("Block");
    let cases = [
        (
            "cannot",
            "cannot",
            of("source"),
            reason::PROVISIONING_FAILED,
            "admin/cannot of class cannot does not declare",
        ),
        ("small", "c", sized("source", "1Mi"), reason::WAITING_FOR_PROVISIONER, "has 1Gi, this claim asks for 1Mi"),
        ("block", "c", block, reason::WAITING_FOR_PROVISIONER, "has the volume mode Filesystem, this claim has Block"),
        ("restored", "c", snapshot, reason::PROVISIONING_FAILED, "can copy it (`capabilities: snapshot`)"),
        ("populated", "c", populated, reason::LEFT_TO_POPULATOR, "the populator for Hello.example.com h"),
    ];
    for (name, class, more, reason, says) in cases {
        ring.claim_with(name, class, more).await;
        ring.event(&ring.user, name, reason, says).await;
        assert_eq!(annotation(&ring.get_claim(name).await, names::ATTEMPT), None, "{name} has no attempt");
    }
    let (_, status) = ring.command(&["status", "-A"]).await;
    let fills = "the populator for Hello.example.com h fills this claim";
    for says in ["ok; 1 claim refused", fills, "has 1Gi, this claim"] {
        assert!(status.contains(says), "{says}: {status}");
    }
    let (_, traced) = ring.command(&["trace", &format!("{}/populated", ring.user)]).await;
    assert!(traced.contains("has no volume yet: the populator") && !traced.contains("is refused"), "{traced}");
    let (_, traced) = ring.command(&["trace", &format!("{}/small", ring.user)]).await;
    assert!(traced.lines().next().is_some_and(|first| first.contains("has 1Gi, this claim asks for 1Mi")), "{traced}");
    // The class can clone now, but the source is of another class.
    ring.config("cannot", "cannot", &[("capabilities", "clone")]).await;
    ring.event(&ring.user, "cannot", reason::WAITING_FOR_PROVISIONER, "is of another class, c").await;
    assert_eq!(protected_uids(&ring.get_claim("source").await), [""; 0]);
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
        orchestrator::ring::merge(&mut claim["spec"], source);
        let file = ring.file(&format!("{name}.yaml"), &claim.to_string());
        let applied = ring.cluster().kubectl().args(["apply", "--validate=false", "-f"]).arg(file).output().unwrap();
        assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    };
    for (name, source) in [
        // A kind that the API server does not allow in this field, a version in place of a group, and a misspelt field.
        ("kind", json!({ "dataSource": { "kind": "VolumeSnapshot", "name": "s" } })),
        ("group", json!({ "dataSource": { "apiGroup": "v1", "kind": "PersistentVolumeClaim", "name": "source" } })),
        ("field", json!({ "datasource": { "kind": "PersistentVolumeClaim", "name": "source" } })),
        // Without the feature gate, a claim of the clone's own namespace would be cloned.
        ("far", json!({ "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "source", "namespace": "gold" } })),
    ] {
        apply(name, source);
        let spec = ring.get_claim(name).await.spec.unwrap();
        let stored = spec.data_source_ref.as_ref().map(|source| source.namespace.clone());
        assert!(name == "far" && stored == Some(None) || spec.data_source.is_none(), "{spec:?}");
        ring.event(&ring.user, name, reason::PROVISIONING_FAILED, "makes no empty volume instead").await;
        assert!(ring.jobs(ADMIN, "provision", &uid(&ring.get_claim(name).await)).await.is_empty());
    }
    apply("plain", json!({}));
    ring.provision("plain").await;
}

#[tokio::test]
async fn a_clone_of_a_volume_on_a_node_is_made_on_that_node() {
    let ring = Ring::start().await;
    for node in ["n1", "n2", "n3"] {
        ring.node(node).await;
    }
    let keys = [("capabilities", "clone"), ("volume-sources", "local:/data"), ("backoff", "1s")];
    ring.delayed_class("c", &keys).await;
    ring.claim("source", "c").await;
    ring.select("source", "n2").await;
    let source = uid(&ring.stamped("source").await);
    let job = ring.job(ADMIN, "provision", &source, 1).await;
    ring.create_volume(&local_volume(&job, "n2")).await;
    ring.bound("source").await;
    ring.pod_ends(&job, 0, "").await;

    ring.claim_with("copy", "c", of("source")).await;
    stays("no run before a pod uses the claim", WHILE, || async {
        let stamp = annotation(&ring.get_claim("copy").await, names::ATTEMPT);
        if stamp.is_none() { Ok(()) } else { unexpected(stamp) }
    })
    .await;
    // The clone is made there, whichever node the scheduler selects.
    ring.select("copy", "n3").await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    let asked = request(&job);
    assert_eq!((pinned_to(&job).as_deref(), asked.node_name.as_str()), (Some("n2"), "n2"));
    assert_eq!(asked.clone_of.map(|source_request| source_request.node).as_deref(), Some("n2"));
    // No other node can make it.
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
    until("the source is not protected any more", || async {
        let protected_uids = protected_uids(&ring.get_claim("source").await);
        if protected_uids.is_empty() { Ok(()) } else { unexpected(protected_uids) }
    })
    .await;
}

#[tokio::test]
async fn a_clone_from_another_namespace_waits_for_a_grant() {
    const GOLD: &str = "gold";
    // No other test may share a cluster with this gate, or with these kinds.
    let cluster = Cluster::control_plane().api_server_flag("--feature-gates=CrossNamespaceVolumeDataSource=true");
    let cluster = cluster.with_controller_manager(ClientLimits::Raised).await.expect("the control plane starts");
    let mut ring = Ring::on(cluster, &[]).await;
    ring.with_shipped_rights();
    ring.namespace(GOLD, &[]).await;
    ring.install_grants();
    ring.run().await;
    ring.config("c", "c", &[("capabilities", "clone"), ("reclaim-policy", "Delete")]).await;
    let team = std::mem::replace(&mut ring.user, GOLD.into());
    let source = source(&ring, "c").await;
    ring.user = team;
    let of = |name: &str| json!({ "spec": { "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": name, "namespace": GOLD } } });
    ring.claim_with("copy", "c", of("source")).await;
    let says = "claim gold/source, the data source of this claim, is in another namespace, where no ReferenceGrant";
    let message = ring.event(&ring.user, "copy", reason::WAITING_FOR_PROVISIONER, says).await;
    assert!(message.contains("lets claims of namespace team use it"), "{message}");
    // The event does not reveal whether the claim exists.
    ring.claim_with("guess", "c", of("nothing")).await;
    ring.event(
        &ring.user,
        "guess",
        reason::WAITING_FOR_PROVISIONER,
        "is in another namespace, where no ReferenceGrant",
    )
    .await;
    assert_eq!(annotation(&ring.get_claim("copy").await, names::ATTEMPT), None, "the claim has no attempt");

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
    create(grant("for-others", "others", "source")).await;
    create(grant("of-another", &ring.user, "another")).await;
    stays("grants for other namespaces or objects do not count", WHILE, || async {
        let stamp = annotation(&ring.get_claim("copy").await, names::ATTEMPT);
        if stamp.is_none() { Ok(()) } else { unexpected(stamp) }
    })
    .await;
    create(grant("right", &ring.user, "source")).await;
    let copy = uid(&ring.stamped("copy").await);
    let job = ring.job(ADMIN, "provision", &copy, 1).await;
    assert_eq!(request(&job).clone_of.map(|source_request| source_request.id).as_deref(), Some(source.as_str()));
    // The grant is deleted after the clone has begun: that is too late.
    grants.delete("right", &DeleteParams::default()).await.unwrap();
    ring.pod_ends(&job, exit::TEMPFAIL, "busy").await;
    let job = ring.job(ADMIN, "provision", &copy, 2).await;
    ring.create_volume(&nfs_volume(&job)).await;
    ring.bound("copy").await;
    ring.pod_ends(&job, 0, "").await;
    let gold: Api<PersistentVolumeClaim> = Api::namespaced(ring.client.clone(), GOLD);
    until("the source is not protected any more", || async {
        let protected_uids = protected_uids(&gold.get("source").await.map_err(|error| error.to_string())?);
        if protected_uids.is_empty() { Ok(()) } else { unexpected(protected_uids) }
    })
    .await;
}
