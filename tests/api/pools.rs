//! Tests of pools.

mod copied;
mod image;
mod quota;
mod replaced;

use std::collections::BTreeSet;
use std::time::Instant;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;
use flex_core::model::record::is_record;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, ResourceQuota};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use self::image::*;
use crate::binding::all_reconciled;
use crate::failures::refuses;
use crate::namespaces::label_namespace;
use orchestrator::backup::{Backup, flex, saved};
use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::ring::{ADMIN, OWN, Ring, USER, annotation, merge, phase, uid};
use orchestrator::wait::{unexpected, until};

/// The image can make volumes before a claim exists.
const CAN: (&str, &str) = ("capabilities", "pool");
/// A pool of one volume, and of two, of the size that the claims of these tests ask for.
const ONE: [(&str, &str); 2] = [CAN, ("pool", "1Gi=1")];
const TWO: [(&str, &str); 2] = [CAN, ("pool", "1Gi=2")];

#[tokio::test]
async fn a_claim_gets_a_pooled_volume_without_a_run_and_others_replace_it() {
    let mut ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &TWO).await;
    let ready = image.filled(&ring, 2).await;
    assert_eq!(ready.iter().map(|name| id_of(name)).collect::<BTreeSet<_>>(), image.stored);
    ring.restart().await;
    rests_with(&ring, &ready).await;
    let restored = ListParams::default().fields(&format!("reason={}", reason::VOLUME_RESTORED.name));
    let told = ring.api::<Event>("default").list(&restored).await.unwrap().items;
    assert!(told.is_empty(), "the record of an adoption comes before its mark: {told:?}");

    let began = Instant::now();
    ring.claim("a", "c").await;
    ring.bound("a").await;
    println!("a claim is Bound to a volume that was ready after {:?}", began.elapsed());
    is_without_run(&ring, "a").await;
    let claim = ring.get_claim("a").await;
    let volume = ring.volume_of("a").await;
    let (name, id) = (volume.name_any(), id_of(&volume.name_any()));
    assert!(ready.contains(&name), "{name} of {ready:?}");
    assert_eq!(claim.finalizers(), [names::CLAIM_PROTECTION]);
    ring.event(USER, "a", reason::PROVISIONING_SUCCEEDED, &format!("the claim gets the pooled volume {name}")).await;
    // The PV controller may have bound it before the stamp is written.
    let stamped = ring.stamped("a").await;
    let stamp = [names::CLAIM_UID, names::ATTEMPT, names::LABEL_INSTANCE].map(|key| annotation(&stamped, key));
    assert_eq!(stamp.map(Option::unwrap), [uid(&claim), "1".into(), names::DEFAULT_INSTANCE.into()]);
    assert!(annotation(&stamped, names::PROVISION_TS).is_some_and(|ts| !ts.is_empty()));
    assert!(annotation(&stamped, names::RECIPE_VERSION).is_some_and(|config| config.starts_with("admin/c@")));

    let spec = volume.spec.clone().unwrap();
    let of = spec.claim_ref.unwrap();
    assert_eq!((of.uid, of.name.as_deref(), of.namespace.as_deref()), (Some(uid(&claim)), Some("a"), Some(USER)));
    assert_eq!(spec.persistent_volume_reclaim_policy.as_deref(), Some("Delete"));
    assert!(!volume.labels().contains_key(names::LABEL_POOL), "{:?}", volume.labels());
    assert_eq!(volume.annotations()[names::CLAIM_UID], uid(&claim));
    assert_eq!(volume.annotations()[names::VOLUME_ID], id);
    assert!(volume.finalizers().iter().any(|finalizer| finalizer == names::VOLUME_FINALIZER));

    let again = image.filled(&ring, 2).await;
    assert_eq!(again.intersection(&ready).count(), 1, "{ready:?}, then {again:?}");
    assert_eq!(image.stored.len(), 3);
    image.matches_volumes(&ring).await;

    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    let asked = request(&job);
    assert_eq!((asked.volume_id.as_str(), asked.pv_name.as_str()), (id.as_str(), name.as_str()));
    assert_eq!(asked.volume_source, format!(r#"{{"nfs":{{"path":"/{id}","server":"10.0.0.1"}}}}"#));
    image.run(&ring, &job).await;
    ring.volume_gone(&name).await;
    ring.claim_gone("a").await;
    assert_eq!(image.filled(&ring, 2).await, again);

    // An admin deletes a pooled volume: it is deleted with its storage, and replaced.
    let name = again.first().unwrap();
    ring.volumes().delete(name, &DeleteParams::default()).await.unwrap();
    let gone =
        image.until(&ring, "the volume is deleted", async || match ring.volumes().get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(volume) => unexpected((volume.metadata, volume.status)),
        });
    gone.await;
    assert_eq!(image.asked_for(&id_of(name)), [Operation::Provision, Operation::Delete]);
    let others = image.filled(&ring, 2).await;
    assert!(!others.contains(name), "{others:?}");
    assert_eq!(image.stored.len(), 2);
    image.ends_empty(&ring).await;
}

/// The backup is older than the claim that has written into the volume.
#[tokio::test]
async fn a_restored_volume_of_a_pool_goes_to_no_other_claim() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &ONE).await;
    let name = image.filled(&ring, 1).await.pop_first().unwrap();
    let volume = saved(&ring, &["pv", &name]);
    ring.claim("a", "c").await;
    ring.bound("a").await;
    assert_eq!(ring.volume_of("a").await.name_any(), name);
    image.filled(&ring, 1).await;
    let backup = Backup { claim: json!({ "metadata": { "name": "a" } }), volume };
    backup.lose(&ring).await;
    Backup::create(&ring, &backup.volume);
    // An admin who vouches for a volume just when it changes must do so again.
    ring.available(&name).await;
    let refused = flex(&ring, &["vouch", &name]);
    assert!(!refused.status.success(), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("it was in a pool"), "{refused:?}");
    let vouched = flex(&ring, &["vouch", "--trust-record", &name]);
    assert!(vouched.status.success(), "{vouched:?}");
    for claim in ["b", "d"] {
        ring.claim(claim, "c").await;
        ring.bound(claim).await;
        assert_ne!(ring.volume_of(claim).await.name_any(), name, "claim {claim}");
        image.filled(&ring, 1).await;
    }
    assert!(image.stored.contains(&id_of(&name)), "nobody has deleted the storage");
    let kept = ring.volumes().get(&name).await.unwrap();
    assert!(!kept.labels().contains_key(names::LABEL_POOL), "{:?}", kept.labels());
}

#[tokio::test]
async fn a_pooled_volume_goes_to_no_claim_of_a_namespace_that_its_class_does_not_serve() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &[ONE[0], ONE[1], ("namespace-selector", "tier=gold")]).await;
    let ready = image.filled(&ring, 1).await;
    ring.claim("a", "c").await;
    ring.event(USER, "a", reason::PROVISIONING_FAILED, "class c does not serve the namespace team").await;
    assert_eq!(ring.ready("c").await, ready, "nobody has taken it");
    label_namespace(&ring, USER, json!({ "tier": "gold" })).await;
    ring.bound("a").await;
    is_without_run(&ring, "a").await;
    image.filled(&ring, 1).await;
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_pooled_volume_gets_the_policy_of_its_class_when_it_is_assigned() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    let retains = ("reclaim-policy", "Retain");
    ring.config("c", "c", &[ONE[0], ONE[1], retains]).await;
    let ready = image.filled(&ring, 1).await;
    let policy = async |name: &str| {
        let spec = ring.volumes().get(name).await.unwrap().spec.unwrap();
        spec.persistent_volume_reclaim_policy.unwrap()
    };
    let name = ready.first().unwrap();
    assert_eq!(policy(name).await, "Delete", "no claim has used it yet");
    ring.claim("a", "c").await;
    assert_eq!(ring.volume_of("a").await.name_any(), *name);
    assert_eq!(policy(name).await, "Retain");
    // Pooled volumes are the same, whatever the policy is.
    let ready = image.filled(&ring, 1).await;
    let recipes = async || -> BTreeSet<String> {
        let kept = ring.api::<ControllerRevision>(OWN).list(&ListParams::default()).await.unwrap();
        kept.iter().map(ResourceExt::name_any).filter(|name| !is_record(name)).collect()
    };
    let before = recipes().await;
    ring.config("c", "c", &ONE).await;
    until("the orchestrator has the new recipe", || async {
        let now = recipes().await;
        if now.is_subset(&before) { unexpected(now) } else { Ok(()) }
    })
    .await;
    rests_with(&ring, &ready).await;
    ring.claim("b", "c").await;
    let given = ring.volume_of("b").await.name_any();
    assert!(ready.contains(&given));
    assert_eq!(policy(&given).await, "Delete");
    image.filled(&ring, 1).await;
    let deletes = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    ring.volumes().patch(name, &PatchParams::default(), &Patch::Merge(deletes)).await.unwrap();
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn of_two_claims_one_gets_the_pooled_volume_and_the_other_a_new_one() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &ONE).await;
    let ready = image.filled(&ring, 1).await;
    tokio::join!(ring.claim("a", "c"), ring.claim("b", "c"));
    let winner = until("one of the claims is Bound", || async {
        for claim in ["a", "b"] {
            if phase(&ring.get_claim(claim).await) == "Bound" {
                return Ok(claim);
            }
        }
        unexpected("none")
    });
    let winner = ring.explained(winner).await;
    let other = if winner == "a" { "b" } else { "a" };
    let id = uid(&ring.get_claim(other).await);
    ring.job(ADMIN, "provision", &id, 1).await;
    is_without_run(&ring, winner).await;
    image.bound(&ring, other).await;
    assert_eq!(ready, [ring.volume_of(winner).await.name_any()].into());
    assert_eq!(ring.volume_of(other).await.name_any(), names::pv_name(&id));
    image.filled(&ring, 1).await;
    assert_eq!(image.stored.len(), 3);
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_pooled_volume_does_not_suit_every_claim() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &[("capabilities", "pool, clone"), ONE[1], ("volume-mode", "Filesystem, Block")]).await;
    image.filled(&ring, 1).await;
    ring.claim("source", "c").await;
    let source = ring.volume_of("source").await.name_any();
    let ready = image.filled(&ring, 1).await;
    for (claim, more) in [
        ("larger", size("2Gi")),
        ("smaller", size("512Mi")),
        ("shared", json!({ "spec": { "accessModes": ["ReadWriteMany"] } })),
        ("block", json!({ "spec": { "volumeMode": "Block" } })),
        ("copy", json!({ "spec": { "dataSource": { "kind": "PersistentVolumeClaim", "name": "source" } } })),
    ] {
        ring.claim_with(claim, "c", more).await;
        let bound = image.bound(&ring, claim).await;
        assert_eq!(bound.spec.as_ref().unwrap().volume_name, Some(names::pv_name(&uid(&bound))), "{claim}");
        assert_eq!(ring.ready("c").await, ready, "{claim}");
    }
    let copied: Vec<_> = image.asked.iter().filter_map(|asked| asked.clone_of.as_ref()).collect();
    assert_eq!(copied.len(), 1);
    assert_eq!((copied[0].id.clone(), copied[0].pv_name.clone()), (id_of(&source), source));
    // The volume is unchanged.
    ring.claim("usual", "c").await;
    assert_eq!(ready, [ring.volume_of("usual").await.name_any()].into());
    image.filled(&ring, 1).await;
    assert_eq!(image.stored.len(), 8);
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn nothing_that_users_write_on_claims_reaches_a_pooled_volume() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &ONE).await;
    let ready = image.filled(&ring, 1).await;
    let name = ready.first().unwrap();
    let volume = ring.available(name).await;
    let kind = &volume.labels()[names::LABEL_POOL];
    let selects = |value: &str| json!({ "spec": { "selector": { "matchLabels": { names::LABEL_POOL: value } } } });
    let as_request = json!({ "metadata": { "labels": { names::LABEL_POOL: names::POOL_REQUEST } } });
    let mut like_a_request = selects(names::POOL_REQUEST);
    merge(&mut like_a_request, as_request);
    let any =
        json!({ "spec": { "selector": { "matchExpressions": [{ "key": names::LABEL_POOL, "operator": "Exists" }] } } });
    for (claim, more) in [("kind", selects(kind)), ("any", any), ("request", like_a_request)] {
        ring.claim_with(claim, "c", more).await;
        ring.event(USER, claim, reason::PROVISIONING_FAILED, "remove the selector").await;
    }
    // The claim names the volume, or has the name of the claim for which the volume is reserved.
    ring.claim_with("by-name", "c", json!({ "spec": { "volumeName": name } })).await;
    let reserved = volume.spec.clone().unwrap().claim_ref.unwrap();
    assert_eq!(reserved.namespace.as_deref(), Some(OWN), "users create nothing in this namespace");
    ring.claim_with(&reserved.name.unwrap(), "c", json!({ "spec": { "volumeName": name } })).await;
    all_reconciled(&ring).await;
    for claim in ring.claims().list(&ListParams::default()).await.unwrap() {
        assert_eq!(phase(&claim), "Pending", "{} gets no volume", claim.name_any());
    }
    assert_eq!(ring.ready("c").await, ready);
    assert_eq!(ring.volumes().get(name).await.unwrap().metadata.resource_version, volume.metadata.resource_version);
    for claim in ring.claims().list(&ListParams::default()).await.unwrap().items {
        ring.claims().delete(&claim.name_any(), &DeleteParams::default()).await.unwrap();
    }
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn pooled_volumes_of_another_recipe_or_size_are_drained() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &TWO).await;
    let first = image.filled(&ring, 2).await;
    // This change makes no difference to a volume.
    ring.config("c", "c", &[TWO[0], TWO[1], ("timeout", "77s")]).await;
    rests_with(&ring, &first).await;
    ring.config("c", "c", &[TWO[0], TWO[1], ("image", "example/second")]).await;
    let second = image
        .until(&ring, "other volumes are ready", async || {
            let (ready, volumes) = (ring.ready("c").await, ring.all_volumes().await.len());
            let others = ready.len() == 2 && volumes == 2 && ready.is_disjoint(&first);
            if others { Ok(ready) } else { unexpected((ready, volumes)) }
        })
        .await;
    image.filled(&ring, 2).await;
    for id in first.iter().map(|name| id_of(name)) {
        assert_eq!(image.asked_for(&id), [Operation::Provision, Operation::Delete]);
    }
    image.matches_volumes(&ring).await;
    for name in &second {
        let provenance = ring.volumes().get(name).await.unwrap().annotations()[names::PROVENANCE].clone();
        assert!(provenance.contains("example/second"), "{provenance}");
    }
    ring.claim("a", "c").await;
    assert!(second.contains(&ring.volume_of("a").await.name_any()));
    image.filled(&ring, 2).await;

    // Without the key all unclaimed volumes are drained.
    ring.config("c", "c", &[CAN, ("image", "example/second")]).await;
    image
        .until(&ring, "only claimed volumes are left", async || {
            let names: Vec<_> = ring.all_volumes().await.iter().map(ResourceExt::name_any).collect();
            if names.len() == 1 { Ok(()) } else { unexpected(names) }
        })
        .await;
    image.filled(&ring, 0).await;
    assert_eq!(image.stored, [id_of(&ring.volume_of("a").await.name_any())].into());
    rests_with(&ring, &BTreeSet::new()).await;
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_failed_pool_run_is_reported_and_retried_and_delays_no_claim() {
    let ring = Ring::start().await;
    let mut image = Image { fails: true, ..Image::default() };
    ring.config("c", "c", &[ONE[0], ONE[1], ("backoff", "1s..2s")]).await;
    let attempt = |request: &PersistentVolumeClaim| annotation(request, names::ATTEMPT)?.parse::<u32>().ok();
    let request = image
        .until(&ring, "the pool request has two attempts", async || {
            let requests = ring.requests().await;
            // The third may follow before anybody looks.
            let again = requests.iter().find(|request| attempt(request) >= Some(2));
            again.cloned().ok_or_else(|| format!("{requests:?}"))
        })
        .await;
    let message = ring.event(OWN, &request.name_any(), reason::PROVISIONING_FAILED, "attempt 1 failed").await;
    assert!(message.contains("the array is busy") && message.contains("next try in"), "{message}");
    ring.claim("a", "c").await;
    let id = uid(&image.bound(&ring, "a").await);
    assert_eq!(ring.volume_of("a").await.name_any(), names::pv_name(&id));
    image
        .until(&ring, "the pool request is retried", async || {
            let now = ring.requests().await;
            assert!(now.len() == 1 && uid(&now[0]) == uid(&request), "the pool request is still the same: {now:?}");
            if attempt(&now[0]) > attempt(&request) { Ok(()) } else { unexpected(attempt(&now[0])) }
        })
        .await;
    image.fails = false;
    assert_eq!(image.filled(&ring, 1).await, [names::pv_name(&uid(&request))].into());
    assert_eq!(image.stored, [id, uid(&request)].into());
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_pool_request_deleted_half_way_is_cleaned_up_and_created_again() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    ring.config("c", "c", &ONE).await;
    let first = until("a request", || async { ring.requests().await.pop().ok_or_else(|| "none".to_owned()) });
    let first = ring.explained(first).await;
    let id = uid(&first);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    ring.pod_of(&job).await;
    // Its storage is made, and its PersistentVolume is not.
    image.stored.insert(id.clone());
    image.over.insert(job.uid().unwrap());
    let requests = ring.api::<PersistentVolumeClaim>(OWN);
    requests.delete(&first.name_any(), &DeleteParams::default()).await.unwrap();
    let delete = ring.job(ADMIN, "delete", &id, 1).await;
    assert!(ring.jobs(ADMIN, "provision", &id).await.is_empty(), "its process has ended");
    image.run(&ring, &delete).await;
    let ready = image.filled(&ring, 1).await;
    assert!(!ready.contains(&names::pv_name(&id)));
    assert_eq!(image.asked_for(&id), [Operation::Delete]);
    image.matches_volumes(&ring).await;

    // When it is deleted after its volume exists, the volume stays in the pool.
    ring.claim("a", "c").await;
    ring.bound("a").await;
    let second = until("a request", || async { ring.requests().await.pop().ok_or_else(|| "none".to_owned()) });
    let second = ring.explained(second).await;
    let job = ring.job(ADMIN, "provision", &uid(&second), 1).await;
    image.stored.insert(uid(&second));
    image.over.insert(job.uid().unwrap());
    ring.create_volume(&nfs_volume(&job)).await;
    match requests.delete(&second.name_any(), &DeleteParams::default()).await {
        // The orchestrator may have deleted it before.
        Err(kube::Error::Api(status)) if status.is_not_found() => (),
        other => drop(other.unwrap()),
    }
    ring.pod_ends_or_is_deleted(&job, 0, "").await;
    // Until the volume is adopted, the pool may ask for another one, and begin to make it on a busy machine. Then this one goes.
    let stays = names::pv_name(&uid(&second));
    let joined = until("the volume joins the pool", || async {
        let (ready, drained) = (ring.ready("c").await, ring.jobs(ADMIN, "delete", &uid(&second)).await);
        if ready.contains(&stays) || !drained.is_empty() { Ok(()) } else { unexpected(ready) }
    });
    ring.explained(joined).await;
    let ready = image.filled(&ring, 1).await;
    assert!(ready == [stays].into() || image.asked_for(&uid(&second)) == [Operation::Delete], "{ready:?}");
    image.matches_volumes(&ring).await;
    assert_eq!(image.stored.len(), 2);
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn a_pool_that_kubernetes_refuses_gets_an_event_on_its_config() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "persistentvolumeclaims": "0" } } });
    let quotas = ring.api::<ResourceQuota>(OWN);
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let probe = orchestrator::ring::claim_of("c", "probe", json!({}));
    refuses::<PersistentVolumeClaim>(&ring.api(OWN), json!(probe)).await;
    ring.config("c", "c", &ONE).await;
    let message = ring.event(ADMIN, "c", reason::POOL_FAILED, "exceeded quota").await;
    assert!(message.contains("the pool of class c (1Gi) cannot be filled"), "{message}");
    // Claims are still served.
    ring.claim("a", "c").await;
    let id = uid(&image.bound(&ring, "a").await);
    assert_eq!(ring.volume_of("a").await.name_any(), names::pv_name(&id));
    assert_eq!(ring.requests().await.len(), 0);
    quotas.delete("none", &DeleteParams::default()).await.unwrap();
    image.filled(&ring, 1).await;
    assert_eq!(image.stored.len(), 2);
    image.ends_empty(&ring).await;
}

#[tokio::test]
async fn the_claim_of_a_pod_gets_the_pooled_volume_on_its_node() {
    let ring = Ring::start().await;
    let mut image = Image::default();
    for node in ["n1", "n2"] {
        ring.node(node).await;
    }
    ring.delayed_class("c", &[ONE[0], ONE[1], ("volume-sources", "local:/data")]).await;
    let ready = image.filled(&ring, 1).await;
    let home = image.asked[0].node_name.clone();
    let other = if home == "n1" { "n2" } else { "n1" };
    ring.claim("here", "c").await;
    ring.claim("there", "c").await;
    rests_with(&ring, &ready).await;
    ring.select("there", other).await;
    let there = image.bound(&ring, "there").await;
    assert_eq!(ring.volume_of("there").await.name_any(), names::pv_name(&uid(&there)));
    assert_eq!(image.asked.last().unwrap().node_name, other);
    assert_eq!(image.filled(&ring, 1).await, ready);
    ring.select("here", &home).await;
    assert_eq!(ready, [ring.volume_of("here").await.name_any()].into());
    image.filled(&ring, 1).await;
    image.ends_empty(&ring).await;
}
