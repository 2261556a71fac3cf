//! Tests of ready volumes, of their assignment, and of pool requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_core::config::Recipe;
use flex_core::config::classes::{Class, ClassLookup, Config};
use flex_core::config::external_provisioner::{ExternalProvisioner, ExternalProvisioners, LeaseCheck};
use flex_core::model::claim::Claim;
use flex_core::model::volume::adoption_mark;
use flex_core::object::ObjectName;
use flex_core::pool::{Step, decide};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;

use super::ManualClock;
use crate::state::configs::CLASS_REPLACE_GRACE;
use crate::state::index::{Index, PoolObservation, SlotRequest, UnknownPool, WatchChange, WorkItem};

const CLASS: &str = "c";

fn data(more: &[(&str, &str)]) -> BTreeMap<String, String> {
    let fixed =
        [("plugin-name", "p"), ("image", "x"), ("placement", "any"), ("capabilities", "pool"), ("pool", "1Gi=2")];
    fixed.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn index(more: &[(&str, &str)]) -> Index {
    timed_index(more).1
}

fn timed_index(more: &[(&str, &str)]) -> (ManualClock, Index) {
    let (clock, mut index) = super::timed();
    let config = Config {
        name: ObjectName::new("own", CLASS),
        class: Some(CLASS.into()),
        data: data(more),
        ..Config::default()
    };
    index.change_config(WatchChange::Apply(config));
    let object: StorageClass =
        serde_json::from_value(json!({ "metadata": { "name": CLASS }, "provisioner": "p" })).unwrap();
    index.change_class(WatchChange::Apply((&object).into()));
    (clock, index)
}

fn class(index: &Index) -> (Class, Arc<Recipe>) {
    let classes = index.classes();
    let ClassLookup::Ours(class) = classes.lookup(CLASS) else { panic!("it is ours") };
    (class.clone(), class.recipe.clone().unwrap())
}

/// Returns a ready volume.
fn volume(index: &Index, id: &str) -> PersistentVolume {
    let (_, recipe) = class(index);
    let provenance = json!({ "config": "own/c", "class": CLASS, "data": {} }).to_string();
    serde_json::from_value(json!({
        "metadata": {
            "name": names::pv_name(id), "finalizers": [names::VOLUME_FINALIZER],
            "labels": { names::LABEL_INSTANCE: "i", names::LABEL_POOL: recipe.effective_config.pool_hash() },
            "annotations": {
                names::PROVISIONED_BY: "p", names::VOLUME_ID: id, names::PROVENANCE: provenance,
                names::POOL_SIZE: (1u64 << 30).to_string(),
            },
        },
        "spec": {
            "storageClassName": CLASS, "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "nfs": { "server": "s", "path": "/x" },
            "claimRef": { "namespace": "own", "name": id },
        },
        "status": { "reason": adoption_mark(&provenance, "") },
    }))
    .unwrap()
}

fn add(index: &mut Index, id: &str) {
    let volume = volume(index, id);
    index.change_volume(WatchChange::Apply((&volume).into()));
}

fn claim(name: &str, size: &str) -> Claim {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "team", "uid": name, "resourceVersion": "1" },
        "spec": {
            "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": size } },
        },
    }))
    .unwrap();
    (&claim).into()
}

fn request(name: &str, uid: &str) -> Claim {
    let claim = claim(name, "1Gi");
    Claim { name: ObjectName::new("own", name), uid: uid.into(), for_pool: true, ..claim }
}

fn offered(index: &Index, claim: &Claim) -> Option<String> {
    let (class, recipe) = class(index);
    index.pooled_volume_for(claim, &class, &recipe).map(|volume| volume.name.clone())
}

fn gives(index: &mut Index, claim: &Claim) -> bool {
    let name = offered(index, claim).unwrap();
    let volume = index.volume(&name).unwrap();
    index.assign(claim, &volume)
}

#[test]
fn a_claim_is_offered_a_pooled_volume_that_fits() {
    let mut index = index(&[]);
    add(&mut index, "a");
    let fits = claim("x", "1Gi");
    assert_eq!(offered(&index, &fits).as_deref(), Some("pvc-a"));
    assert_eq!(offered(&index, &claim("x", "2Gi")), None, "only the requested size");
    let many = Claim { access_modes: vec!["ReadWriteMany".into()], ..fits.clone() };
    let block = Claim { volume_mode: "Block".into(), ..fits.clone() };
    let gold = Claim { attributes_class: Some("gold".into()), ..fits.clone() };
    let selects = Claim { has_selector: true, ..fits.clone() };
    for other in [many, block, gold, selects, request("pool-x-0", "r")] {
        assert_eq!(offered(&index, &other), None, "{other:?}");
    }
    // Until its request is gone, the request may still change the volume.
    index.change_claim(WatchChange::Apply(request("pool-x-0", "a")));
    assert_eq!(offered(&index, &fits), None);
    let keys = index.change_claim(WatchChange::Delete(ObjectName::new("own", "pool-x-0")));
    assert!(keys.contains(&WorkItem::Pool(CLASS.into())), "{keys:?}");
    assert!(offered(&index, &fits).is_some());
}

#[test]
fn a_volume_that_differs_from_its_pool_is_offered_to_no_claim() {
    let mut index = index(&[]);
    let fits = claim("x", "1Gi");
    let right = volume(&index, "a");
    let wrong: [fn(&mut PersistentVolume); 5] = [
        |v| drop(v.metadata.labels.as_mut().unwrap().insert(names::LABEL_POOL.into(), "older".into())),
        |v| v.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap()),
        |v| v.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".into()),
        |v| v.status.as_mut().unwrap().reason = Some("forged".into()),
        |v| v.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some(names::NO_CLAIM_UID.into()),
    ];
    let mut larger = right.clone();
    larger.spec.as_mut().unwrap().capacity = Some(serde_json::from_value(json!({ "storage": "2Gi" })).unwrap());
    index.change_volume(WatchChange::Apply((&larger).into()));
    assert!(offered(&index, &fits).is_some() && offered(&index, &claim("x", "2Gi")).is_none(), "backends round up");
    for change in wrong {
        let mut volume = right.clone();
        change(&mut volume);
        index.change_volume(WatchChange::Apply((&volume).into()));
        assert_eq!(offered(&index, &fits), None, "{volume:?}");
    }
    index.change_volume(WatchChange::Apply((&right).into()));
    assert!(offered(&index, &fits).is_some());
}

#[test]
fn a_pooled_volume_is_assigned_once() {
    let mut index = index(&[]);
    add(&mut index, "a");
    let (x, y) = (claim("x", "1Gi"), claim("y", "1Gi"));
    index.change_claim(WatchChange::Apply(x.clone()));
    index.change_claim(WatchChange::Apply(y.clone()));
    let volume = index.volume("pvc-a").unwrap();
    assert!(gives(&mut index, &x) && !index.assign(&y, &volume));
    assert_eq!((offered(&index, &x).as_deref(), offered(&index, &y)), (Some("pvc-a"), None), "it is its own");
    assert!(index.assign(&x, &volume), "a write of which nobody knows is tried again");
    index.unassign(&x);
    assert_eq!(offered(&index, &y).as_deref(), Some("pvc-a"));
    // The claim is deleted before anything was written.
    assert!(gives(&mut index, &y));
    index.change_claim(WatchChange::Delete(y.name.clone()));
    assert_eq!(offered(&index, &x).as_deref(), Some("pvc-a"));
    // The watch shows that the volume is the claim's.
    assert!(gives(&mut index, &x));
    let mut given = self::volume(&index, "a");
    given.metadata.labels.as_mut().unwrap().remove(names::LABEL_POOL);
    given.metadata.annotations.as_mut().unwrap().insert(names::CLAIM_UID.into(), "x".into());
    let reference = given.spec.as_mut().unwrap().claim_ref.as_mut().unwrap();
    (reference.namespace, reference.name, reference.uid) = (Some("team".into()), Some("x".into()), Some("x".into()));
    index.change_volume(WatchChange::Apply((&given).into()));
    assert_eq!(offered(&index, &y), None);
    assert!(!index.has_pending_charge("x"), "its reservation is settled");
}

#[test]
fn a_pooled_volume_counts_for_the_class_and_for_no_namespace() {
    let mut index = index(&[("max-volumes", "2"), ("max-volumes-per-namespace", "1")]);
    add(&mut index, "a");
    add(&mut index, "b");
    let (x, y) = (claim("x", "1Gi"), claim("y", "1Gi"));
    index.change_claim(WatchChange::Apply(x.clone()));
    let (_, recipe) = class(&index);
    assert!(index.quota_refusal(&claim("z", "2Gi"), &recipe).is_some(), "the class is full");
    assert!(gives(&mut index, &x), "an existing volume needs no quota of the class");
    assert_eq!(offered(&index, &y), None, "the namespace has all it may have");
    let asks = request("pool-x-0", "r");
    assert!(index.quota_refusal(&asks, &recipe).is_some_and(|why| why.contains("max-volumes")), "for the class alone");
}

fn steps(index: &mut Index) -> Vec<Step> {
    decide(&index.observe_pool(CLASS).unwrap().observed()).into_iter().map(|decision| decision.step).collect()
}

#[test]
fn a_pool_creates_each_request_once() {
    let mut index = index(&[]);
    assert_eq!(steps(&mut index), [Step::CreateRequests { size: 1 << 30, count: 2 }]);
    let names = index.expect_pool_requests(CLASS, 1 << 30, 2);
    assert!(names[0] != names[1] && names.iter().all(|name| index.facts.is_pool_request_name(name)), "{names:?}");
    assert_eq!(steps(&mut index), [], "they are on their way");
    index.forget_pool_request(&names[1]);
    assert_eq!(steps(&mut index), [Step::CreateRequests { size: 1 << 30, count: 1 }]);
    assert_eq!(index.expect_pool_requests(CLASS, 1 << 30, 1), names[1..]);
    // The first volume is made. The watch shows the deletion of its request before the volume.
    let first = Claim { name: names[0].clone(), ..request("", "a") };
    index.change_claim(WatchChange::Apply(first.clone()));
    let made = volume(&index, "a");
    index.expect_pooled(&(&made).into());
    assert_eq!(steps(&mut index), [], "it stands for its request, which is still seen");
    index.change_claim(WatchChange::Apply(Claim { terminating: true, ..first }));
    index.change_claim(WatchChange::Delete(names[0].clone()));
    assert_eq!(steps(&mut index), []);
    index.change_volume(WatchChange::Apply((&made).into()));
    assert_eq!(steps(&mut index), []);
    index.expect_drained("pvc-a");
    assert_eq!(steps(&mut index), [Step::CreateRequests { size: 1 << 30, count: 1 }], "it is none any more");
}

#[test]
fn a_pool_gives_way_to_claims_without_quota() {
    let mut index = index(&[("max-volumes", "2")]);
    add(&mut index, "a");
    add(&mut index, "b");
    assert_eq!(steps(&mut index), []);
    let other = claim("x", "2Gi");
    index.change_claim(WatchChange::Apply(other.clone()));
    index.wait_for_quota(WorkItem::Claim(other.name.clone()), CLASS);
    assert_eq!(steps(&mut index), [Step::Drain("pvc-b".into())]);
    let mut drained = volume(&index, "b");
    drained.metadata.labels.as_mut().unwrap().remove(names::LABEL_POOL);
    drained.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some(names::NO_CLAIM_UID.into());
    index.change_volume(WatchChange::Apply((&drained).into()));
    assert_eq!(steps(&mut index), [], "its quota is about to be free");
    drained.spec.as_mut().unwrap().persistent_volume_reclaim_policy = Some("Retain".into());
    index.change_volume(WatchChange::Apply((&drained).into()));
    assert_eq!(steps(&mut index), [Step::Drain("pvc-a".into())], "it stays, by an admin's will");
}

#[test]
fn each_volume_that_becomes_ready_wakes_another_claim() {
    let mut index = index(&[("max-in-flight", "1")]);
    let (_, recipe) = class(&index);
    assert!(index.acquire_slot("run", &SlotRequest::claim(&claim("runs", "1Gi").name), &recipe));
    let block = Claim { volume_mode: "Block".into(), ..claim("block", "1Gi") };
    let waiting = [block, claim("large", "2Gi"), claim("a", "1Gi"), claim("b", "1Gi"), claim("c", "1Gi")];
    for claim in &waiting {
        index.change_claim(WatchChange::Apply(claim.clone()));
        index.wait_for_slot(&SlotRequest::claim(&claim.name), &recipe);
    }
    let woken = |index: &mut Index, id: &str| -> Vec<String> {
        let volume = volume(index, id);
        let keys = index.change_volume(WatchChange::Apply((&volume).into())).into_iter();
        let names = keys.filter_map(|key| if let WorkItem::Claim(name) = key { Some(name.name) } else { None });
        names.collect()
    };
    assert_eq!(woken(&mut index, "x"), ["a"]);
    assert_eq!(woken(&mut index, "y"), ["a", "b"], "a may have either");
    assert_eq!(woken(&mut index, "y"), [""; 0], "it has been ready");
    assert!(gives(&mut index, &waiting[2]) && gives(&mut index, &waiting[3]));
    assert_eq!(woken(&mut index, "z"), ["c"], "the others have theirs");
    // Until its request is gone, the request may still change the volume.
    index.change_claim(WatchChange::Apply(request("pool-x-0", "w")));
    assert!(gives(&mut index, &waiting[4]));
    let last = claim("d", "1Gi");
    index.change_claim(WatchChange::Apply(last.clone()));
    index.wait_for_slot(&SlotRequest::claim(&last.name), &recipe);
    assert_eq!(woken(&mut index, "w"), ["pool-x-0"]);
    let keys = index.change_claim(WatchChange::Delete(ObjectName::new("own", "pool-x-0")));
    assert!(keys.contains(&WorkItem::Claim(last.name)), "{keys:?}");
}

#[test]
fn claims_get_slots_before_pool_requests() {
    let mut index = index(&[("max-in-flight", "2")]);
    let (_, recipe) = class(&index);
    let slot_request = |name: &str| SlotRequest::claim(&ObjectName::new("own", name));
    assert!(index.acquire_slot("r0", &slot_request("pool-x-0"), &recipe));
    assert!(!index.acquire_slot("r1", &slot_request("pool-x-1"), &recipe), "a quarter, or one");
    index.wait_for_slot(&slot_request("pool-x-1"), &recipe);
    assert!(
        index.acquire_slot("a", &SlotRequest::claim(&claim("a", "1Gi").name), &recipe),
        "claims do not wait behind it"
    );
    index.cancel_expectation("r0");
    let waits = SlotRequest::claim(&claim("b", "1Gi").name);
    index.wait_for_slot(&waits, &recipe);
    let has_slot = |slot_request: &SlotRequest| index.no_slot(slot_request, &recipe).is_none();
    assert!(!has_slot(&slot_request("pool-x-1")) && has_slot(&waits));
}

#[test]
fn a_pool_is_drained_some_time_after_nobody_serves_its_class() {
    let (clock, mut index) = timed_index(&[]);
    add(&mut index, "a");
    clock.pass(CLASS_REPLACE_GRACE);
    let config = index.config(&ObjectName::new("own", CLASS)).unwrap().clone();
    index.change_config(WatchChange::Delete(config.name.clone()));
    let never = UnknownPool { known_after: None };
    assert_eq!(index.observe_pool(CLASS).unwrap_err(), never, "the class is there, its config is not");
    index.change_class(WatchChange::Delete(ObjectName::new("", CLASS)));
    let soon = UnknownPool { known_after: Some(CLASS_REPLACE_GRACE) };
    assert_eq!(index.observe_pool(CLASS).unwrap_err(), soon, "somebody may create both again");
    let nearly = CLASS_REPLACE_GRACE - Duration::from_secs(1);
    clock.pass(nearly);
    index.change_config(WatchChange::Apply(config.clone()));
    index.serve_without_deleted();
    assert!(matches!(index.observe_pool(CLASS), Err(_) | Ok(PoolObservation { recipe: Some(_), .. })));
    index.change_config(WatchChange::Delete(config.name));
    clock.pass(nearly);
    assert!(index.observe_pool(CLASS).is_err());
    clock.pass(Duration::from_secs(1));
    assert_eq!(steps(&mut index), [Step::Drain("pvc-a".into())]);
}

#[test]
fn a_pool_is_kept_while_its_class_is_left_to_the_external_provisioner() {
    let (clock, mut index) = timed_index(&[("replaces-provisioner", "csi.example")]);
    let theirs = json!({ "metadata": { "name": CLASS }, "provisioner": "csi.example" });
    index.change_class(WatchChange::Apply((&serde_json::from_value::<StorageClass>(theirs).unwrap()).into()));
    let state = |provisioner: ExternalProvisioner| {
        ExternalProvisioners::new([("csi.example".to_owned(), LeaseCheck::from(provisioner))])
    };
    index.change_external_provisioners(state(ExternalProvisioner::Gone));
    let mut pooled = volume(&index, "a");
    let annotations = pooled.metadata.annotations.as_mut().unwrap();
    annotations.insert(names::PROVISIONED_BY.into(), "csi.example".into());
    index.change_volume(WatchChange::Apply((&pooled).into()));
    assert_eq!(index.observe_pool(CLASS).unwrap().pooled_names(), ["pvc-a"]);
    // A new process does not know the state at first, and then the Lease of the old process seems to be held.
    let lease = ObjectName::new("kube-system", "csi-example");
    let live = ExternalProvisioner::Live { lease, holder: "h".into() };
    for unknown in [ExternalProvisioner::Unknown(None), live] {
        index.change_external_provisioners(state(unknown));
        clock.pass(CLASS_REPLACE_GRACE * 10);
        assert_eq!(index.observe_pool(CLASS).unwrap_err(), UnknownPool { known_after: None });
    }
    index.change_external_provisioners(state(ExternalProvisioner::Gone));
    assert_eq!(index.observe_pool(CLASS).unwrap().pooled_names(), ["pvc-a"]);
}
