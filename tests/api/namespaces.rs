//! Tests of classes that serve some namespaces alone.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use orchestrator::ring::{ADMIN, Ring, USER, annotation, claim_of, phase, uid};
use orchestrator::wait::{unexpected, until};

/// Changes the labels of a namespace.
pub async fn label_namespace(ring: &Ring, name: &str, labels: Value) {
    let namespaces: Api<Namespace> = Api::all(ring.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    namespaces.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn a_class_serves_the_namespaces_of_its_config_and_what_has_begun_goes_on() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.namespace("other", &[]).await;
    ring.config("c", "c", &[("namespaces", "elsewhere"), ("namespace-selector", "tier=gold")]).await;
    let of_other = ring.api::<PersistentVolumeClaim>("other");
    of_other.create(&PostParams::default(), &claim_of("c", "b", json!({}))).await.unwrap();
    ring.claim("a", "c").await;
    for (namespace, claim) in [("other", "b"), (USER, "a")] {
        let says = format!(
            "class c does not serve the namespace {namespace}, by `namespaces` and `namespace-selector` of the provisioner config admin/c"
        );
        ring.event(namespace, claim, reason::PROVISIONING_FAILED, &says).await;
    }
    assert_eq!(annotation(&ring.get_claim("a").await, names::ATTEMPT), None);

    label_namespace(&ring, USER, json!({ "tier": "gold" })).await;
    ring.provision("a").await;
    ring.claim("runs", "c").await;
    let id = uid(&ring.stamped("runs").await);
    ring.job(ADMIN, "provision", &id, 1).await;

    // The claim of the other namespace shows that the orchestrator knows the edit.
    ring.config("c", "c", &[("namespaces", "other")]).await;
    until("the other namespace is served", || async {
        let claim = of_other.get("b").await.map_err(|error| error.to_string())?;
        if annotation(&claim, names::ATTEMPT).is_some() { Ok(()) } else { unexpected(claim.metadata.annotations) }
    })
    .await;
    ring.claim("late", "c").await;
    let says = "class c does not serve the namespace team, by `namespaces` of the provisioner config admin/c";
    ring.event(USER, "late", reason::PROVISIONING_FAILED, says).await;
    ring.provision("runs").await;
    assert_eq!(phase(&ring.get_claim("a").await), "Bound");
    assert_eq!(annotation(&ring.get_claim("late").await, names::ATTEMPT), None);
}
