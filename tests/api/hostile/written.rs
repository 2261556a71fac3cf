//! Tests of fields that an image writes on its own volume and that others would act on.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use super::people::*;
use orchestrator::ring::{USER, annotation, merge, phase, uid};
use orchestrator::wait::{unexpected, until};

#[tokio::test]
async fn a_volume_with_foreign_metadata_is_bound_only_if_the_config_allows_it() {
    // With the policies: they let an image write the fields of which its volume consists.
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    let secret = json!({ "name": "bootstrap", "namespace": "kube-system" });
    let driver = json!({ "driver": "secrets.example", "volumeHandle": "h", "nodePublishSecretRef": secret });
    let iscsi = json!({ "targetPortal": "10.0.0.1", "iqn": "iqn.2026-01.example:a", "lun": 1, "secretRef": secret,
        "chapAuthSession": true });
    // The garbage collector deletes a volume whose owner does not exist.
    let namespace = Api::<Namespace>::all(ring.client.clone()).get(USER).await.unwrap().metadata;
    let owner = json!([{ "apiVersion": "v1", "kind": "Namespace", "name": USER, "uid": namespace.uid }]);
    let written: [(&str, Value, &str); 7] = [
        ("driver", json!({ "spec": { "nfs": null, "csi": driver } }), "needs `volume-sources: csi:DRIVER`"),
        (
            "secret",
            json!({ "spec": { "nfs": null, "iscsi": iscsi } }),
            "the Secret bootstrap in the namespace kube-system",
        ),
        ("owner", json!({ "metadata": { "ownerReferences": owner } }), "owned by Namespace"),
        ("finalizer", json!({ "metadata": { "finalizers": ["example.com/hold"] } }), "the finalizer example.com/hold"),
        ("size", json!({ "spec": { "capacity": { "storage": "1Pi" } } }), "its size is 1Pi"),
        ("options", json!({ "spec": { "mountOptions": ["suid", "dev"] } }), "the mount option dev"),
        (
            "gid",
            json!({ "metadata": { "annotations": { "pv.beta.kubernetes.io/gid": "0" } } }),
            "pv.beta.kubernetes.io/gid",
        ),
    ];
    for (name, _, _) in &written {
        ring.claim(name, "c").await;
    }
    for (name, more, says) in written {
        let (claim, job) = attempt(&ring, name).await;
        let mut volume = script_volume(&job);
        merge(&mut volume, more);
        create(&image(&ring, &job).await, volume).await.unwrap();
        ring.event(USER, name, reason::VOLUME_REFUSED, says).await;
        until(format!("the volume with a {name} is quarantined"), || async {
            let made = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
            let bears = |key: &str| made.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
            assert!(!bears(names::PROVENANCE), "{name}: {made:?}");
            if bears(names::QUARANTINE) { Ok(()) } else { unexpected(made) }
        })
        .await;
        let claim = ring.get_claim(name).await;
        assert!(phase(&claim) == "Pending" && annotation(&claim, names::BIND_COMPLETED).is_none(), "{name}");
    }

    // A config that allows all of them.
    let keys = [
        ("volume-sources", "csi:secrets.example"),
        ("secret-namespaces", "vault"),
        ("volume-finalizers", "example.com/hold"),
        ("volume-mount-options", "noatime"),
        ("volume-metadata", "pv.beta.kubernetes.io/gid"),
        ("max-surplus", "2Ti"),
    ];
    class_of_images(&ring, "allows", &keys).await;
    ring.claim("a", "allows").await;
    let (_, job) = attempt(&ring, "a").await;
    let secret = json!({ "name": "login", "namespace": "vault" });
    let mut volume = script_volume(&job);
    merge(
        &mut volume,
        json!({
            "metadata": { "finalizers": ["example.com/hold"], "annotations": { "pv.beta.kubernetes.io/gid": "1000" } },
            "spec": { "nfs": null, "mountOptions": ["noatime"], "capacity": { "storage": "2Ti" },
                "csi": { "driver": "secrets.example", "volumeHandle": "h", "nodeStageSecretRef": secret } },
        }),
    );
    create(&image(&ring, &job).await, volume).await.unwrap();
    ring.bound("a").await;
}
