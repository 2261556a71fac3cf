//! Tests of what users can do to the orchestrator's writes, and to each other.

use std::collections::BTreeMap;
use std::time::Instant;

use flex_contract::{names, reason};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::people::*;
use orchestrator::kubelet::request;
use orchestrator::ring::{ADMIN, OWN, USER, WHILE, annotation, claim_of, merge, phase, uid};
use orchestrator::wait::{stays, unexpected, until};

#[tokio::test]
async fn users_cannot_touch_what_the_orchestrator_wrote_on_their_claims() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    let tom = as_user(&ring, TOM).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(tom, USER);
    ring.claim("a", "c").await;
    let (claim, _) = attempt(&ring, "a").await;
    let patch = async |change: Value| claims.patch("a", &PatchParams::default(), &Patch::Merge(change)).await;
    for key in [
        names::CLAIM_UID,
        names::PROVISION_TS,
        names::ATTEMPT,
        names::RECIPE_VERSION,
        names::CREATED_BY,
        names::CREATED_BY_GROUPS,
    ] {
        for value in [Value::Null, json!("forged")] {
            let message = refusal(patch(json!({ "metadata": { "annotations": { key: value } } })).await);
            says(&message, &["claim team/a", "only the provisioner writes the annotation", key, "leave it as it is"]);
        }
    }
    for key in [names::NODES, names::FAILURE, names::HELD] {
        let message = refusal(patch(json!({ "metadata": { "annotations": { key: "forged" } } })).await);
        says(&message, &["only the provisioner writes the annotation", key]);
    }
    let protects = names::clone_finalizer(&uid(&claim));
    let message = refusal(patch(json!({ "metadata": { "finalizers": [protects] } })).await);
    says(&message, &["only the provisioner sets and removes its finalizers", "clones and snapshots"]);
    let abandon = json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } });
    let message = refusal(patch(abandon.clone()).await);
    says(&message, &[names::ABANDON, "verb abandon on claims.flex-provisioner.io", "ask the admin of the storage"]);

    // Nor does the owner of the namespace, with all rights in it.
    role(&ring, "everything", json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }])).await;
    grant(&ring, "everything", user("owner"), Some(USER)).await;
    let of_owner: Api<PersistentVolumeClaim> = Api::namespaced(as_user(&ring, "owner").await, USER);
    let owns = async |change: Value| of_owner.patch("a", &PatchParams::default(), &Patch::Merge(change)).await;
    until("the rights are known", || async {
        owns(json!({ "metadata": { "labels": { "team": "blue" } } })).await.map_err(|error| error.to_string())
    })
    .await;
    for (key, value) in [(names::CLAIM_UID, Value::Null), (names::ATTEMPT, json!("9")), (names::CREATED_BY, json!("x"))]
    {
        let message = refusal(owns(json!({ "metadata": { "annotations": { key: value } } })).await);
        says(&message, &["only the provisioner writes the annotation", key]);
    }
    let protects = names::clone_finalizer(&uid(&claim));
    let message = refusal(owns(json!({ "metadata": { "finalizers": [protects] } })).await);
    says(&message, &["only the provisioner sets and removes its finalizers"]);
    let message = refusal(owns(abandon.clone()).await);
    says(&message, &["verb abandon on claims.flex-provisioner.io in the whole cluster"]);
    let forged = json!({ "metadata": { "annotations": { names::CREATED_BY: "root" } } });
    let made = of_owner.create(&PostParams::default(), &claim_of("c", "b", forged)).await.unwrap();
    assert_eq!(annotation(&made, names::CREATED_BY).as_deref(), Some("owner"));

    let now = ring.get_claim("a").await;
    assert_eq!(
        (now.metadata.annotations, now.metadata.finalizers),
        (claim.metadata.annotations, claim.metadata.finalizers)
    );
    // Users may write everything else on their claims, and an admin of the storage may abandon them.
    patch(json!({ "metadata": { "annotations": { "team": "green" }, "labels": { "team": "green" } } })).await.unwrap();
    let rules =
        json!([{ "apiGroups": ["flex-provisioner.io"], "resources": ["claims", "volumes"], "verbs": ["abandon"] }]);
    role(&ring, "storage-admin", rules).await;
    grant(&ring, "storage-admin", user(TOM), None).await;
    until("the grant is known", || async { patch(abandon.clone()).await.map(drop).map_err(|error| error.to_string()) })
        .await;
    claims.delete("a", &DeleteParams::default()).await.unwrap();
    ring.claim_vanished("a").await;
}

/// A user may make a claim as large as the API allows. The policies still find what they look for, and at once: an
/// expression over the whole claim would take seconds for each request, and then exceed its cost limit.
#[tokio::test]
async fn a_large_claim_hides_nothing_from_the_policies() {
    let ring = ring(true).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(as_user(&ring, TOM).await, USER);
    let annotations: BTreeMap<_, _> = (0..25_000).map(|n| (format!("a{n}"), "")).collect();
    let mut finalizers: Vec<_> = (0..5_000).map(|n| format!("e.io/f{n}")).collect();
    let much = json!({ "metadata": { "annotations": annotations, "finalizers": finalizers.clone() } });
    claims.create(&PostParams::default(), &claim_of("nobody", "much", much)).await.unwrap();
    let patch = async |change: Value| claims.patch("much", &PatchParams::default(), &Patch::Merge(change)).await;
    let began = Instant::now();
    patch(json!({ "metadata": { "annotations": { "a1": "x" } } })).await.unwrap();
    println!("an update of a claim with 25,000 annotations takes {:?}", began.elapsed());
    let message = refusal(patch(json!({ "metadata": { "annotations": { names::ATTEMPT: "9" } } })).await);
    says(&message, &["only the provisioner writes the annotation flex-provisioner.io/attempt"]);
    finalizers.insert(2_500, names::clone_finalizer("u"));
    let message = refusal(patch(json!({ "metadata": { "finalizers": finalizers } })).await);
    says(&message, &["only the provisioner sets and removes its finalizers"]);
    patch(json!({ "metadata": { "finalizers": null } })).await.unwrap();
}

#[tokio::test]
async fn only_the_orchestrator_changes_what_it_wrote_on_volumes() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (claim, job) = attempt(&ring, "a").await;
    create(&image(&ring, &job).await, script_volume(&job)).await.unwrap();
    ring.bound("a").await;
    ring.pod_ends(&job, 0, "").await;
    let name = names::pv_name(&uid(&claim));
    let before = until("the volume is Bound", || async {
        let volume = ring.volumes().get(&name).await.unwrap();
        match volume.status.as_ref().unwrap().phase.as_deref() {
            Some("Bound") => Ok(volume),
            phase => unexpected(phase),
        }
    })
    .await;
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    let patch = async |change: Value| operator.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await;
    for key in [names::CLAIM_UID, names::VOLUME_ID, names::PROVENANCE] {
        for value in [Value::Null, json!("forged")] {
            let message = refusal(patch(json!({ "metadata": { "annotations": { key: value } } })).await);
            says(&message, &[&format!("volume {name}"), "only the provisioner writes the annotation", key]);
        }
    }
    let message =
        refusal(patch(json!({ "metadata": { "annotations": { names::ABANDON: names::ABANDON_YES } } })).await);
    says(&message, &["verb abandon on volumes.flex-provisioner.io"]);
    let message = refusal(patch(json!({ "metadata": { "labels": { names::LABEL_INSTANCE: "other" } } })).await);
    says(&message, &["only the provisioner writes the label flex-provisioner.io/instance"]);
    let message = refusal(patch(json!({ "metadata": { "labels": { names::LABEL_POOL: "request" } } })).await);
    says(&message, &["only the provisioner writes the label flex-provisioner.io/pool"]);
    let message = refusal(patch(json!({ "metadata": { "finalizers": null } })).await);
    says(&message, &["finalizer flex-provisioner.io/volume", "delete the claim of the volume"]);
    let mark = json!({ "status": { "reason": "Adopted-forged" } });
    let message = refusal(operator.patch_status(&name, &PatchParams::default(), &Patch::Merge(mark)).await);
    says(&message, &["only the provisioner marks a volume as adopted"]);
    let after = ring.volumes().get(&name).await.unwrap();
    assert_eq!(after.metadata.annotations, before.metadata.annotations);
    assert_eq!(after.metadata.finalizers, before.metadata.finalizers);
    // The policies take the usual name of the orchestrator's account for a hint, and for nothing else.
    grant(&ring, "edit", account(USER, "flex-provisioner"), Some(USER)).await;
    grant(&ring, "volumes-operator", account(USER, "flex-provisioner"), None).await;
    let forger = as_user(&ring, &format!("system:serviceaccount:{USER}:flex-provisioner")).await;
    let (claims, volumes): (Api<PersistentVolumeClaim>, Api<PersistentVolume>) =
        (Api::namespaced(forger.clone(), USER), Api::all(forger));
    let forged = json!({ "metadata": { "annotations": { names::ATTEMPT: "9" } } });
    until("the rights are known", || async {
        let of_claim = claims.patch("a", &dry_patch(), &Patch::Merge(&forged)).await.map(drop);
        let of_volume = volumes.patch(&name, &dry_patch(), &Patch::Merge(&forged)).await.map(drop);
        let by_policy = |answer: &kube::Result<()>| match answer {
            Err(kube::Error::Api(status)) => status.message.contains("only the provisioner writes"),
            _ => false,
        };
        if by_policy(&of_claim) && by_policy(&of_volume) { Ok(()) } else { unexpected((of_claim, of_volume)) }
    })
    .await;
    let unheld = json!({ "metadata": { "finalizers": null } });
    let said = refusal(volumes.patch(&name, &dry_patch(), &Patch::Merge(&unheld)).await);
    says(&said, &["finalizer flex-provisioner.io/volume"]);
    let mark = json!({ "status": { "reason": "Adopted-forged" } });
    let said = refusal(volumes.patch_status(&name, &dry_patch(), &Patch::Merge(mark)).await);
    says(&said, &["only the provisioner marks a volume as adopted"]);
    let said = refusal(volumes.create(&dry(), &object(script_volume(&job))).await);
    says(&said, &["is not the account of an image"]);
    let free = json!({ "metadata": { "labels": { "team": "green" } } });
    volumes.patch(&name, &dry_patch(), &Patch::Merge(&free)).await.unwrap();

    // Others may write everything else on volumes, and the volume is deleted as usual.
    patch(json!({ "metadata": { "labels": { "team": "green" } } })).await.unwrap();
    ring.delete_claim("a").await;
    let delete = ring.job(ADMIN, "delete", &uid(&claim), 1).await;
    let message = refusal(create(&image(&ring, &delete).await, script_volume(&job)).await);
    says(&message, &["a run creates only the volume of its own claim", "the run is delete-"]);
    ring.pod_ends(&delete, 0, "").await;
    ring.volume_gone(&name).await;
    ring.nothing_left().await;
}

/// The API server drops these sources after the policy has seen them. `kubectl create` leaves no manifest on the claim.
#[tokio::test]
async fn a_source_that_the_api_server_drops_is_noticed_whichever_client_creates_the_claim() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[("capabilities", "clone, snapshot")]).await;
    for (name, source) in [
        ("kind", json!({ "dataSource": { "kind": "VolumeSnapshot", "name": "s" } })),
        ("group", json!({ "dataSource": { "apiGroup": "v1", "kind": "PersistentVolumeClaim", "name": "source" } })),
        ("far", json!({ "dataSourceRef": { "kind": "PersistentVolumeClaim", "name": "source", "namespace": "gold" } })),
    ] {
        let made = ring.claim_with(name, "c", json!({ "spec": source })).await;
        let spec = made.spec.unwrap();
        assert!(spec.data_source_ref.is_none_or(|kept| kept.namespace.is_none()), "{name}: the source was dropped");
        ring.event(&ring.user, name, reason::PROVISIONING_FAILED, "makes no empty volume instead").await;
        assert_eq!(annotation(&ring.get_claim(name).await, names::ATTEMPT), None, "{name} has no attempt");
    }
    ring.claim("empty", "c").await;
    attempt(&ring, "empty").await;
}

#[tokio::test]
async fn a_copied_claim_is_created_without_the_stamp() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[("capabilities", "clone")]).await;
    ring.claim("original", "c").await;
    let (original, _) = attempt(&ring, "original").await;
    let mut annotations = original.metadata.annotations.clone().unwrap();
    annotations.insert(names::ABANDON.into(), names::ABANDON_YES.into());
    annotations.insert("team".into(), "green".into());
    let protects = names::clone_finalizer("u");
    let marks = json!({ "metadata": { "annotations": annotations, "finalizers": [protects, "example.com/own"] } });
    // Its class is served by no provisioner, so that it stays as it was created.
    let copy = ring.claim_with("copy", "nobody", marks.clone()).await;
    let leftovers = copy.metadata.annotations.unwrap();
    let own_keys: Vec<_> = leftovers.keys().filter(|key| key.starts_with("flex-provisioner.io/")).collect();
    assert_eq!(own_keys, [names::CREATED_BY, names::CREATED_BY_GROUPS]);
    assert_eq!(leftovers["team"], "green");
    let finalizers = copy.metadata.finalizers.unwrap();
    assert!(finalizers.contains(&"example.com/own".to_owned()) && !finalizers.contains(&protects));
    let off = json!({ "metadata": { "finalizers": null } });
    ring.claims().patch("copy", &PatchParams::default(), &Patch::Merge(off)).await.unwrap();
    // A copy with a served class gets a stamp and a volume of its own.
    ring.claim_with("twin", "c", json!({ "metadata": { "annotations": annotations } })).await;
    let (twin, job) = attempt(&ring, "twin").await;
    assert_eq!(annotation(&twin, names::CLAIM_UID), twin.metadata.uid);
    create(&image(&ring, &job).await, script_volume(&job)).await.unwrap();
    assert_eq!(ring.bound("twin").await.spec.unwrap().volume_name.unwrap(), names::pv_name(&uid(&twin)));
    assert_eq!(phase(&ring.get_claim("original").await), "Pending", "the original claim is unchanged");

    // Whoever exports a claim and creates it elsewhere may be the creator of both, so that nothing else is to be overwritten.
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "source" } });
    let cloned = ring.claim_with("cloned", "nobody", json!({ "spec": source })).await;
    assert_eq!(annotation(&cloned, names::SOURCE_NAMESPACE).as_deref(), Some(USER));
    let mut annotations = cloned.metadata.annotations.unwrap();
    annotations.insert(names::SOURCE_NAMESPACE.into(), "elsewhere".into());
    let exported = json!({ "metadata": { "annotations": annotations } });
    let of_another = json!({ "metadata": { "annotations": { names::SOURCE_NAMESPACE: "elsewhere" } } });
    for (what, metadata) in [("own", exported), ("others", of_another)] {
        let mut with_source = metadata.clone();
        merge(&mut with_source, json!({ "spec": source }));
        let copy = ring.claim_with(&format!("{what}-clone"), "nobody", with_source).await;
        assert_eq!(annotation(&copy, names::SOURCE_NAMESPACE).as_deref(), Some(USER), "the clone of {what}");
        let empty = ring.claim_with(&format!("{what}-empty"), "c", metadata).await;
        assert_eq!(annotation(&empty, names::SOURCE_NAMESPACE), None, "the empty copy of {what}");
        assert_eq!(annotation(&empty, names::CREATED_BY), annotation(&copy, names::CREATED_BY), "{what}");
        attempt(&ring, &format!("{what}-empty")).await;
    }
}

#[tokio::test]
async fn a_backup_tool_restores_volumes_as_they_were() {
    let ring = ring(true).await;
    let uuid = "c0ffee00-0000-4000-8000-00000000beef";
    let tool = format!("system:serviceaccount:{USER}:velero");
    let velero: ServiceAccount = object(json!({ "metadata": { "name": "velero" } }));
    ring.api::<ServiceAccount>(USER).create(&PostParams::default(), &velero).await.unwrap();
    grant(&ring, "cluster-admin", account(USER, "velero"), None).await;
    let mut volume = volume_of(&names::pv_name(uuid), uuid);
    let reference = json!({ "kind": "PersistentVolumeClaim", "namespace": USER, "name": "restored" });
    let annotations = json!({ names::VOLUME_ID: uuid, names::PROVENANCE: "{}", names::NODES: "a" });
    let labels = json!({ names::LABEL_INSTANCE: names::DEFAULT_INSTANCE });
    let metadata = json!({ "annotations": annotations, "labels": labels, "finalizers": [names::VOLUME_FINALIZER] });
    merge(&mut volume, json!({ "metadata": metadata, "spec": { "claimRef": reference } }));
    // An account with this right alone may do so; all rights in one namespace do not include it.
    let operator: Api<PersistentVolume> = Api::all(as_user(&ring, OPERATOR).await);
    let all = json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]);
    role(&ring, "everything", all).await;
    grant(&ring, "everything", user(OPERATOR), Some(USER)).await;
    let message = refusal(operator.create(&dry(), &object(volume.clone())).await);
    says(
        &message,
        &["is not the account of an image", "A backup tool needs the verb manage on volumes.flex-provisioner.io"],
    );
    role(
        &ring,
        "restores",
        json!([{ "apiGroups": ["flex-provisioner.io"], "resources": ["volumes"], "verbs": ["manage"] }]),
    )
    .await;
    grant(&ring, "restores", user(OPERATOR), None).await;
    until("the right is known", || async {
        operator.create(&dry(), &object(volume.clone())).await.map_err(|error| error.to_string())
    })
    .await;
    let made = create(&Api::all(as_user(&ring, &tool).await), volume.clone()).await.unwrap();
    let reference = made.spec.unwrap().claim_ref.unwrap();
    assert_eq!((reference.namespace.as_deref(), reference.name.as_deref()), (Some(USER), Some("restored")));
    let by_name = json!({ "spec": { "volumeName": names::pv_name(uuid) } });
    ring.claim_with("restored", "c", by_name).await;
    ring.bound("restored").await;
}

#[tokio::test]
async fn the_creator_of_a_claim_reaches_the_image_and_cannot_be_forged() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    let asked = async |name: &str| {
        let (_, job) = attempt(&ring, name).await;
        let request = request(&job);
        (request.username, request.user_groups.join(","))
    };
    let claim = |name, annotations: Value| claim_of("c", name, json!({ "metadata": { "annotations": annotations } }));
    // A user with groups. One name contains a comma, as names of LDAP do.
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
    let made = claim("of-a-group", Value::Null);
    until("the grant is known", || async {
        claims.create(&PostParams::default(), &made).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(asked("of-a-group").await, ("ann".to_owned(), "devs,system:authenticated".to_owned()));
    // The old annotation names the class, and the field says that there is none.
    let of_old = json!({ "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": "c" } }, "spec": { "storageClassName": "" } });
    claims.create(&PostParams::default(), &claim_of("c", "of-old", of_old)).await.unwrap();
    assert_eq!(asked("of-old").await.0, "ann");
    // A ServiceAccount.
    grant(&ring, "edit", account(USER, "default"), Some(USER)).await;
    let name = format!("system:serviceaccount:{USER}:default");
    let of_account = ["system:serviceaccounts", &format!("system:serviceaccounts:{USER}"), "system:authenticated"];
    let client = ring.cluster().client_as(&name, &of_account).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, USER);
    let made = claim("of-an-account", forged.clone());
    until("the grant is known", || async {
        claims.create(&PostParams::default(), &made).await.map(drop).map_err(|error| error.to_string())
    })
    .await;
    assert_eq!(asked("of-an-account").await, (name, of_account.join(",")));
    // A controller creates the claims of a StatefulSet.
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
    stays("the config serves no class", WHILE, || async {
        match annotation(&ring.get_claim("early").await, names::CLAIM_UID) {
            None => Ok(()),
            some => unexpected(some),
        }
    })
    .await;
    class_of_images(&ring, "c", &[]).await;
    let (_, job) = attempt(&ring, "early").await;
    assert_eq!(job.metadata.namespace.as_deref(), Some(ADMIN));
    assert_eq!(job.spec.unwrap().template.spec.unwrap().containers[0].image.as_deref(), Some("example/image"));
    assert_eq!(ring.api::<Job>(USER).list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(ring.api::<Job>(OWN).list(&ListParams::default()).await.unwrap().items.len(), 0);
}
