//! Tests of what an image can do to claims and volumes that are not its own.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::people::*;
use crate::binding::all_reconciled;
use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, USER, WHILE, merge, phase, uid};
use orchestrator::wait::{stays, unexpected, until};

#[tokio::test]
async fn the_volume_of_a_plain_script_is_reserved_for_its_own_of_two_identical_claims() {
    let mut ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    ring.claim("twin", "c").await;
    let (claim, job) = attempt(&ring, "a").await;
    attempt(&ring, "twin").await;
    // No orchestrator runs that could bind the volume at once.
    ring.kill().await;
    let made = create(&image(&ring, &job).await, script_volume(&job)).await.unwrap();
    let reference = made.spec.unwrap().claim_ref.unwrap();
    assert_eq!(reference, placeholder(&job), "the placeholder of flex-pv");
    let by_name = json!({ "spec": { "volumeName": names::pv_name(&uid(&claim)) } });
    ring.claim_with("thief", "c", by_name).await;
    all_reconciled(&ring).await;
    for claim in ring.claims().list(&ListParams::default()).await.unwrap() {
        assert_eq!(phase(&claim), "Pending", "{:?} takes no volume of another", claim.metadata.name);
    }
    ring.run().await;
    let bound = ring.bound("a").await;
    assert_eq!(bound.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&claim)));
    for other in ["twin", "thief"] {
        assert_eq!(phase(&ring.get_claim(other).await), "Pending", "{other}");
    }
}

/// Kubernetes before 1.36 has no mutating policies.
#[tokio::test]
async fn without_mutating_policies_a_volume_without_its_placeholder_is_refused() {
    let ring = ring(false).await;
    install_validating_policies(&ring).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = attempt(&ring, "a").await;
    let image = image(&ring, &job).await;
    let own = placeholder(&job);
    let (namespace, name) = (own.namespace.as_deref().unwrap(), own.name.as_deref().unwrap());
    let written = format!("namespace: {namespace}, name: {name}}}, without a uid");
    for wrong in [
        json!({ "namespace": USER, "name": "thief", "uid": "c0ffee00-0000-4000-8000-00000000cafe" }),
        json!({ "namespace": USER, "name": "a", "uid": uid(&claim) }),
        json!({ "namespace": USER, "name": name }),
        json!({ "namespace": namespace, "name": "thief" }),
        Value::Null,
    ] {
        let mut volume = script_volume(&job);
        merge(&mut volume, json!({ "spec": { "claimRef": wrong } }));
        let message = refusal(create(&image, volume).await);
        says(&message, &["its claimRef must be", &written, "flex-pv create"]);
    }
    let mut volume = script_volume(&job);
    merge(&mut volume, json!({ "spec": { "claimRef": own } }));
    create(&image, volume).await.unwrap();
    assert_eq!(ring.bound("a").await.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&claim)));
}

#[tokio::test]
async fn a_run_creates_the_volume_of_its_own_claim_and_no_other() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    class_of_images(&ring, "gold", &[]).await;
    ring.claim("a", "c").await;
    ring.claim("victim", "gold").await;
    let (_, job) = attempt(&ring, "a").await;
    let (victim, victims) = attempt(&ring, "victim").await;
    let image = image(&ring, &job).await;
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
    // For another claim, under that claim's right name.
    let message = refusal(create(&image, script_volume(&victims)).await);
    says(
        &message,
        &[
            &names::pv_name(&other),
            "a run creates only the volume of its own claim",
            &other,
            &format!("provision-{own}-1"),
        ],
    );
    // For no claim, so that any claim of the class `gold` could take it.
    let message =
        refused(json!({ "metadata": { "name": "free", "annotations": null }, "spec": { "storageClassName": "gold" } }))
            .await;
    says(&message, &["volume free", "creates volumes for claims only", names::CLAIM_UID]);
    // Ten volumes.
    for n in 0..10 {
        let message = refused(json!({ "metadata": { "name": format!("more-{n}") } })).await;
        says(
            &message,
            &[&format!("volume more-{n}"), "the name of the volume must be $PV_NAME", &names::pv_name(&own)],
        );
    }
    for path in ["/", "//", "/data/..", "/data/../etc", "relative"] {
        for kind in ["hostPath", "local"] {
            let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "a", "operator": "Exists" }] }] } });
            let message =
                refused(json!({ "spec": { "nfs": null, kind: { "path": path }, "nodeAffinity": affinity } })).await;
            // The API server itself refuses some of these.
            assert!(
                message.contains("would open a whole node to pods") || message.contains("must not contain '..'"),
                "{kind} {path}: {message}"
            );
        }
    }
    // A forged provenance, to have another vendor's image run with that vendor's Secrets.
    let message = refused(json!({ "metadata": { "annotations": { names::PROVENANCE: "{}" } } })).await;
    says(&message, &["only the provisioner writes flex-provisioner.io/provenance", "leave it out"]);
    let message = refused(json!({ "metadata": { "annotations": { names::VOLUME_ID: other } } })).await;
    says(&message, &["only the provisioner writes flex-provisioner.io/volume-id", "$CLAIM_UUID"]);
    // Among the pooled volumes, and kept by a finalizer that only others remove.
    for labels in [json!({ names::LABEL_POOL: names::POOL_REQUEST }), json!({ names::LABEL_VOLUME_ID: other })] {
        let message = refused(json!({ "metadata": { "labels": labels } })).await;
        says(&message, &["only the provisioner writes flex-provisioner.io/", "leave it out"]);
    }
    let message = refused(json!({ "metadata": { "finalizers": ["flex-provisioner.io/claim"] } })).await;
    says(&message, &["only the provisioner writes flex-provisioner.io/claim", "leave it out"]);
    assert_eq!(ring.volumes().list(&ListParams::default()).await.unwrap().items.len(), 0, "no volume was created");

    // The policy lets a usual volume pass without a look at the rest: what is not usual is looked at, however much there is.
    let many: serde_json::Map<String, Value> = (0..20).map(|n| (format!("e.io/a{n}"), json!("x"))).collect();
    let with_many = async |metadata: Value| {
        let mut volume = with(json!({ "metadata": { "annotations": many, "labels": many } }));
        merge(&mut volume, json!({ "metadata": metadata }));
        image.create(&dry(), &object(volume)).await
    };
    for (metadata, name) in [
        (json!({ "annotations": { names::PROVENANCE: "{}" } }), names::PROVENANCE),
        (json!({ "labels": { names::LABEL_POOL: names::POOL_REQUEST } }), names::LABEL_POOL),
    ] {
        says(&refusal(with_many(metadata).await), &[&format!("only the provisioner writes {name}"), "leave it out"]);
    }
    with_many(json!({})).await.unwrap();
    // Without the mark of a claim it is no volume of this run, whatever else there is.
    let said = refusal(with_many(json!({ "annotations": null })).await);
    says(&said, &["creates volumes for claims only"]);

    // Its own volume is accepted. After that the image cannot change it: its role has no such right, and the policy
    // holds for an account that has all rights.
    create(&image, script_volume(&job)).await.unwrap();
    ring.bound("a").await;
    grant(&ring, "cluster-admin", account(ADMIN, IMAGE), None).await;
    let name = names::pv_name(&own);
    let free = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    until("the rights are known", || async {
        match image.patch(&name, &PatchParams::default(), &Patch::Merge(&free)).await {
            Err(kube::Error::Api(status)) if status.message.contains("and never changes one") => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
    let message = refusal(image.delete(&name, &DeleteParams::default()).await);
    says(&message, &[&name, "and never deletes one"]);
    let message = refusal(create(&image, script_volume(&victims)).await);
    says(&message, &["a run creates only the volume of its own claim"]);
    assert_eq!(phase(&ring.get_claim("victim").await), "Pending");
    let volume = ring.volumes().get(&name).await.unwrap();
    assert_eq!(volume.spec.unwrap().persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
}

#[tokio::test]
async fn an_account_of_images_without_a_run_needs_a_grant_for_each_class() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = attempt(&ring, "a").await;
    // As with a token from a Secret, which is bound to no pod.
    let name = format!("system:serviceaccount:{ADMIN}:{IMAGE}");
    let image: Api<PersistentVolume> = Api::all(as_user(&ring, &name).await);
    let message = refusal(create(&image, script_volume(&job)).await);
    says(&message, &[&name, "may not create volumes of class c", "verb provision on c of classes.flex-provisioner.io"]);
    let rules = json!([{ "apiGroups": ["flex-provisioner.io"], "resources": ["classes"], "resourceNames": ["c"], "verbs": ["provision"] }]);
    role(&ring, "makes-c", rules).await;
    grant(&ring, "makes-c", account(ADMIN, IMAGE), None).await;
    until("the grant is known", || async {
        match create(&image, script_volume(&job)).await {
            Ok(_) => Ok(()),
            Err(error) => unexpected(error),
        }
    })
    .await;
    assert_eq!(ring.bound("a").await.metadata.uid, claim.metadata.uid);
    let message = refusal(create(&image, volume_of("free", "")).await);
    says(&message, &["creates volumes for claims only"]);
    // An account that is no image claims that the volume belongs to this provisioner.
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    let unknown = "c0ffee00-0000-4000-8000-00000000cafe";
    let message = refusal(create(&operator, volume_of(&names::pv_name(unknown), unknown)).await);
    says(&message, &[OPERATOR, "is not the account of an image"]);
    // The policies ignore volumes of other provisioners.
    let mut foreign = volume_of("foreign", "");
    foreign["metadata"]["annotations"] = json!({ names::PROVISIONED_BY: "example.com/other" });
    merge(&mut foreign, json!({ "spec": { "claimRef": { "namespace": USER, "name": "x", "uid": unknown } } }));
    let made = create(&operator, foreign).await.unwrap();
    assert_eq!(
        made.spec.unwrap().claim_ref.unwrap().uid.as_deref(),
        Some(unknown),
        "the claimRef is as the image wrote it"
    );

    // With all rights on volumes, the account changes and deletes none, whosever it is.
    grant(&ring, "volumes-operator", account(ADMIN, IMAGE), None).await;
    let mut plain = volume_of("plain", "");
    plain["metadata"] = json!({ "name": "plain" });
    ring.create_volume(&object(plain)).await;
    let change = json!({ "spec": { "persistentVolumeReclaimPolicy": "Retain" } });
    until("the rights are known", || async {
        match image.patch("plain", &dry_patch(), &Patch::Merge(&change)).await {
            Err(kube::Error::Api(status)) if status.message.contains("and never changes one") => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
    let status = json!({ "status": { "message": "x" } });
    let said = refusal(image.patch_status("plain", &dry_patch(), &Patch::Merge(status)).await);
    says(&said, &["volume plain", "and never changes one"]);
    let said = refusal(image.delete("plain", &DeleteParams::default()).await);
    says(&said, &["volume plain", "and never deletes one"]);
}

#[tokio::test]
async fn a_stranger_s_volume_has_no_name_or_mark_of_the_orchestrator() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = attempt(&ring, "a").await;
    // An account that may create volumes and is no image: that of a driver, in a namespace where users create pods.
    let driver: ServiceAccount = object(json!({ "metadata": { "name": "driver" } }));
    ring.api::<ServiceAccount>(USER).create(&PostParams::default(), &driver).await.unwrap();
    grant(&ring, "volumes-operator", account(USER, "driver"), None).await;
    // Its pod has the name of the pod of the claim's run.
    let pod: Pod = object(json!({
        "metadata": { "name": format!("provision-{}-1-x", uid(&claim)) },
        "spec": { "serviceAccountName": "driver", "containers": [{ "name": "c", "image": "example/image" }] },
    }));
    let pod = ring.api::<Pod>(USER).create(&PostParams::default(), &pod).await.unwrap();
    let named_like_a_run = mounted(&ring, "driver", pod).await;
    until("the rights are known", || async {
        match named_like_a_run.create(&dry(), &object(script_volume(&job))).await {
            Err(kube::Error::Api(status)) if status.message.contains("is not the account of an image") => Ok(()),
            other => unexpected(other.map(drop)),
        }
    })
    .await;
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    for (marks, name) in [
        (json!({ "annotations": { names::PROVENANCE: "{}" } }), "annotation"),
        (json!({ "annotations": { names::VOLUME_ID: uid(&claim) } }), "annotation"),
        (json!({ "labels": { names::LABEL_POOL: names::POOL_REQUEST } }), "label"),
        (json!({ "labels": { names::LABEL_INSTANCE: names::DEFAULT_INSTANCE } }), "label"),
        (json!({ "finalizers": [names::VOLUME_FINALIZER] }), "finalizer"),
    ] {
        let mut volume = volume_of("stranger", "");
        volume["metadata"] = json!({ "name": "stranger" });
        merge(&mut volume, json!({ "metadata": marks }));
        let message = refusal(create(&operator, volume).await);
        says(&message, &["volume stranger", OPERATOR, "is not the account of an image", name]);
    }
    assert_eq!(ring.volumes().list(&ListParams::default()).await.unwrap().items.len(), 0, "no volume was created");
}

#[tokio::test]
async fn a_claim_ref_with_a_uid_is_refused_so_that_the_volume_is_checked_first() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (owner, job) = attempt(&ring, "a").await;
    let image = image(&ring, &job).await;
    let mut volume = script_volume(&job);
    merge(&mut volume, json!({ "spec": { "capacity": { "storage": "1Mi" } } }));
    let mut bound = volume.clone();
    let reference = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": USER, "name": "a", "uid": uid(&owner) });
    merge(&mut bound, json!({ "spec": { "claimRef": reference } }));
    let message = refusal(create(&image, bound).await);
    says(
        &message,
        &["its claimRef must be", &uid(&owner), "would bind the volume before the provisioner has checked it"],
    );
    let made = create(&image, volume).await.unwrap();
    assert_eq!(made.spec.unwrap().claim_ref.unwrap(), placeholder(&job));
    ring.event(USER, "a", reason::VOLUME_REFUSED, "its size is 1Mi, the claim asks for 1Gi").await;
    all_reconciled(&ring).await;
    assert_eq!(phase(&ring.get_claim("a").await), "Pending", "a mismatched volume is not bound");
}

#[tokio::test]
async fn without_policies_a_mismatched_volume_is_quarantined_and_forged_provenance_is_not_used() {
    let ring = ring(false).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (_, job) = attempt(&ring, "a").await;
    let image = image(&ring, &job).await;
    let mut volume = serde_json::to_value(nfs_volume(&job)).unwrap();
    merge(&mut volume, json!({ "spec": { "nfs": null, "hostPath": { "path": "/" } } }));
    create(&image, volume).await.unwrap();
    ring.event(USER, "a", reason::VOLUME_REFUSED, "its path is `/`").await;
    assert_eq!(phase(&ring.get_claim("a").await), "Pending");
    // A volume for a claim that never existed, with provenance that leads to another vendor's Secrets.
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
    assert_eq!(made.status.and_then(|status| status.reason), None, "no image can write the adoption mark");
    ring.event("default", &names::pv_name(unknown), reason::VOLUME_RESTORED, "neither deletes nor changes").await;
    // The Job of the first volume may be deleted by now, because its run has failed.
    stays("no run for the forged volume", WHILE, || async {
        let jobs = ring.api::<Job>(ADMIN).list(&ListParams::default()).await.unwrap().items;
        let others: Vec<_> = jobs.iter().filter(|other| other.metadata.name != job.metadata.name).collect();
        if others.is_empty() { Ok(()) } else { unexpected(others) }
    })
    .await;
}
