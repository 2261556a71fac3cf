//! Tests of which items have quota. They compare the running count with a full count after any sequence of changes.

use std::collections::HashSet;

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::quota::ClassUsage;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use flex_core::run::failure::LastFailure;
use flex_core::run::state::Cause;
use flex_core::run::view::{Job, RunLabels};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use proptest::prelude::*;
use serde_json::json;

use super::{CLASS, index, shared_claim, shared_volume, with_limits};
use crate::state::index::{Index, WatchChange, WorkItem};

const CLASSES: [&str; 2] = ["c", "d"];

/// Counts the usage of a class by the API and the charges that are not visible yet.
fn counted(index: &Index, class: &str) -> ClassUsage {
    let mut taken = ClassUsage::default();
    let mut counted: HashSet<String> = HashSet::new();
    for volume in index.volumes().filter(|volume| volume.class == class && volume.belongs_to(&index.facts.identity)) {
        counted.extend(volume.volume_id().map(str::to_owned));
        counted.extend(volume.claim_uid.clone());
        let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_some());
        let claim = volume.claim_uid.as_ref().and_then(|uid| index.facts.cache.claims.name_of(uid));
        let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.as_str());
        taken.add(namespace.unwrap_or_default(), index.quota.bytes_of(&volume, &index.facts));
    }
    for claim in index.claims().filter(|claim| claim.class.as_deref() == Some(class)) {
        let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.uid));
        if own && holds(index, &claim) && !counted.contains(&claim.uid) {
            taken.add(&claim.name.namespace, claim.size.as_ref().copied().unwrap_or_default());
        }
    }
    for (uid, charge) in index.quota.pending().filter(|(_, charge)| charge.class == class) {
        let is_there = index.claims().any(|claim| claim.uid == *uid && !holds(index, &claim));
        if is_there && !counted.contains(uid.as_str()) {
            taken.add(&charge.namespace, charge.bytes);
        }
    }
    taken
}

/// Checks whether a claim has usage: by its stamp, if it has not given up, or by a volume.
fn holds(index: &Index, claim: &Claim) -> bool {
    claim.own_stamp().is_some() && !(only_waits(claim) && index.volumes_of(&claim.uid).is_empty())
}

#[derive(Clone, Debug)]
enum Deed {
    Claim { claim: u8, again: bool, class: u8, stamp: bool, bound: bool, size: u8, failed: u8 },
    ClaimGone(u8),
    Volume { claim: u8, again: bool, class: u8, size: u8, reference: u8, theirs: bool },
    VolumeGone { claim: u8, again: bool },
    Promise(u8),
    TakeBack(u8),
    Grow { claim: u8, size: u8 },
    Growth { claim: u8, size: u8, end: u8 },
}

fn deeds() -> impl Strategy<Value = Deed> {
    let claim = || 0..3u8;
    prop_oneof![
        (claim(), any::<bool>(), 0..2u8, any::<bool>(), any::<bool>(), 1..4u8, 0..4u8).prop_map(
            |(claim, again, class, stamp, bound, size, failed)| Deed::Claim {
                claim,
                again,
                class,
                stamp,
                bound,
                size,
                failed
            }
        ),
        claim().prop_map(Deed::ClaimGone),
        (claim(), any::<bool>(), 0..2u8, 1..4u8, 0..4u8, any::<bool>()).prop_map(
            |(claim, again, class, size, reference, theirs)| Deed::Volume {
                claim,
                again,
                class,
                size,
                reference,
                theirs
            }
        ),
        (claim(), any::<bool>()).prop_map(|(claim, again)| Deed::VolumeGone { claim, again }),
        claim().prop_map(Deed::Promise),
        claim().prop_map(Deed::TakeBack),
        (claim(), 1..9u8).prop_map(|(claim, size)| Deed::Grow { claim, size }),
        (claim(), 1..9u8, 0..3u8).prop_map(|(claim, size, end)| Deed::Growth { claim, size, end }),
    ]
}

/// Returns the failure of the first attempt, as a claim stores it.
fn failure(reaction: Reaction) -> String {
    let failure = LastFailure::of_delete_run(1, 0, &Cause::new("ExitCode", "no"), None);
    let empty_attempts = u32::from(reaction == Reaction::NoCapacity);
    let failure = LastFailure { operation: Operation::Provision, reaction, empty_attempts, ..failure };
    serde_json::to_string(&failure).unwrap()
}

/// Checks whether the first attempt was the last, and has left nothing or cannot succeed if it is repeated.
fn only_waits(claim: &Claim) -> bool {
    !claim.is_bound() && claim.last_failure.as_ref().is_some_and(|failure| failure.reaction != Reaction::Retry)
}

fn name(claim: u8) -> ObjectName {
    ObjectName::new(format!("team-{}", claim % 2), format!("claim-{claim}"))
}

/// Returns the UID of a claim, or of another claim with the same name.
fn uid(claim: u8, again: bool) -> String {
    format!("0d9c2f0e-0000-4000-8000-00000000000{}", claim + if again { 4 } else { 0 })
}

impl Deed {
    /// Returns the claim that the deed creates or changes.
    fn claim(&self) -> PersistentVolumeClaim {
        let Deed::Claim { claim, again, class, stamp, bound, size, failed } = *self else { unreachable!() };
        let uid = uid(claim, again);
        let mut stamped = json!({ names::CLAIM_UID: uid, names::ATTEMPT: "1" });
        if failed > 0 {
            let reaction = [Reaction::Never, Reaction::Retry, Reaction::NoCapacity][usize::from(failed - 1)];
            stamped[names::FAILURE] = json!(failure(reaction));
        }
        let volume = bound.then(|| names::pv_name(&uid));
        serde_json::from_value(json!({
            "metadata": {
                "name": name(claim).name, "namespace": name(claim).namespace, "uid": uid,
                "annotations": if stamp { stamped } else { json!({}) },
            },
            "spec": {
                "storageClassName": CLASSES[usize::from(class)], "volumeName": volume,
                "resources": { "requests": { "storage": format!("{size}Gi") } },
            },
        }))
        .unwrap()
    }

    /// Returns the volume that the deed creates or changes.
    fn volume(&self) -> PersistentVolume {
        let Deed::Volume { claim, again, class, size, reference, theirs } = *self else { unreachable!() };
        let (by, label) = if theirs { ("other", json!({})) } else { ("p", json!({ names::LABEL_INSTANCE: "i" })) };
        let (of, uid) = (name(claim), uid(claim, again));
        // Another claim may have taken the volume.
        let reference = match reference {
            0 => json!(null),
            1 => json!({ "namespace": "own", "name": uid }),
            2 => json!({ "namespace": "team-0", "name": "claim-0", "uid": self::uid(0, false) }),
            _ => json!({ "namespace": of.namespace, "name": of.name, "uid": uid }),
        };
        serde_json::from_value(json!({
            "metadata": {
                "name": names::pv_name(&uid), "labels": label,
                "annotations": { names::CLAIM_UID: uid, names::PROVISIONED_BY: by },
            },
            "spec": {
                "storageClassName": CLASSES[usize::from(class)], "capacity": { "storage": format!("{size}Gi") },
                "claimRef": reference,
            },
        }))
        .unwrap()
    }

    fn on(&self, index: &mut Index) {
        match *self {
            Deed::Claim { .. } => drop(index.change_claim(WatchChange::Apply((&self.claim()).into()))),
            Deed::ClaimGone(claim) => drop(index.change_claim(WatchChange::Delete(name(claim)))),
            Deed::Volume { .. } => drop(index.change_volume(WatchChange::Apply((&self.volume()).into()))),
            Deed::VolumeGone { claim, again } => {
                let name = ObjectName::new("", names::pv_name(&uid(claim, again)));
                index.change_volume(WatchChange::Delete(name));
            }
            Deed::Promise(claim) => {
                if let Some(claim) = index.claim(&name(claim)) {
                    index.charge(&claim, claim.class.as_deref().unwrap());
                }
            }
            Deed::TakeBack(claim) => {
                if let Some(claim) = index.claim(&name(claim)) {
                    index.refund(&claim);
                }
            }
            Deed::Grow { claim, size } => {
                index.charge_expand(&names::pv_name(&uid(claim, false)), u64::from(size) << 30);
            }
            Deed::Growth { claim, size, end } => {
                let id = uid(claim, false);
                let run_labels =
                    RunLabels { operation: "expand".into(), id: id.clone(), attempt: 1, class: "c".into() };
                let name = ObjectName::new("own", format!("expand-{claim}"));
                let (volume, size) = (Some(names::pv_name(&id)), Some(u64::from(size) << 30));
                let job = Job { name: name.clone(), volume, size, run_labels, is_over: end == 1, ..Job::default() };
                match end {
                    2 => drop(index.change_job(WatchChange::Delete(name))),
                    _ => drop(index.change_job(WatchChange::Apply(job))),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_running_count_equals_a_full_count(deeds in prop::collection::vec(deeds(), 1..24)) {
        let mut index = index();
        for (at, deed) in deeds.iter().enumerate() {
            deed.on(&mut index);
            for class in CLASSES {
                prop_assert_eq!(index.quota.usage(class), counted(&index, class), "class {} after {:?}", class, &deeds[..=at]);
            }
        }
    }
}

/// Returns three claims for the only volume that the class allows; the first is stamped, or not.
fn three_for_one_place(stamped: bool) -> (Index, Recipe, [Claim; 3]) {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let claims = [("a", stamped), ("b", false), ("c", false)].map(|(name, stamped)| shared_claim("t", name, stamped));
    for claim in &claims {
        index.change_claim(WatchChange::Apply(claim.clone()));
    }
    (index, recipe, claims)
}

#[test]
fn the_last_quota_is_given_once_and_again_after_it_is_freed() {
    let (mut index, recipe, [a, b, c]) = three_for_one_place(false);
    let refused = |index: &Index, claim: &Claim| index.quota_refusal(claim, &recipe).is_some();
    assert!(!refused(&index, &a) && !refused(&index, &b), "the place is free");
    assert!(index.charge(&a, CLASS), "for the first time");
    assert!(!index.charge(&a, CLASS), "this try cannot take back an earlier charge");
    assert!(refused(&index, &b) && !refused(&index, &a), "given away, before any watch shows it");
    index.wait_for_quota(WorkItem::Claim(b.name.clone()), CLASS);
    index.wait_for_quota(WorkItem::Claim(c.name.clone()), CLASS);
    assert_eq!(index.refund(&a), [WorkItem::Claim(b.name.clone())], "and back: the first gets it, not both");
    assert_eq!(
        index.stop_waiting_for_quota(&WorkItem::Claim(b.name.clone())),
        [WorkItem::Claim(c.name.clone())],
        "a claim that cannot use the quota leaves it to the next"
    );
    index.wait_for_quota(WorkItem::Claim(b.name.clone()), CLASS);
    assert!(
        index.stop_waiting_for_quota(&WorkItem::Claim(a.name.clone())).is_empty(),
        "a claim that did not wait leaves none"
    );
    assert!(index.charge(&a, CLASS));

    // The watch shows the stamp, then the volume, then the deletion of both.
    index.change_claim(WatchChange::Apply(shared_claim("t", "a", true)));
    assert!(refused(&index, &b));
    let bound = Claim { volume_name: Some(names::pv_name(&a.uid)), ..shared_claim("t", "a", true) };
    index.change_claim(WatchChange::Apply(bound));
    assert!(refused(&index, &b), "bound to a volume that no watch has shown yet");
    let volume = shared_volume(&a, "1Gi");
    index.change_volume(WatchChange::Apply(volume.clone()));
    assert!(refused(&index, &b), "claim and volume are one");
    let woken = index.change_claim(WatchChange::Delete(a.name.clone()));
    assert!(refused(&index, &b) && !woken.contains(&WorkItem::Claim(b.name.clone())), "its storage is there");
    let woken = index.change_volume(WatchChange::Delete(ObjectName::new("", &volume.name)));
    assert!(woken.contains(&WorkItem::Claim(c.name.clone())) && !woken.contains(&WorkItem::Claim(b.name)), "{woken:?}");
    assert!(!refused(&index, &c));
}

#[test]
fn a_reservation_ends_with_the_version_of_its_stamp() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let at = |uid: &str, version: &str| Claim { resource_version: version.into(), ..shared_claim("t", uid, false) };
    let (a, b) = (at("a", "9"), at("b", "5"));
    for claim in [&a, &b] {
        index.change_claim(WatchChange::Apply(claim.clone()));
    }
    assert!(index.charge(&a, CLASS));
    index.wait_for_quota(WorkItem::Claim(b.name.clone()), CLASS);
    for version in ["8", "9"] {
        let woken = index.change_claim(WatchChange::Apply(at("a", version)));
        assert!(!woken.contains(&WorkItem::Claim(b.name.clone())), "the stamp may come to stand on version 9");
    }
    let woken = index.change_claim(WatchChange::Apply(at("a", "10")));
    assert!(woken.contains(&WorkItem::Claim(b.name.clone())) && !index.has_pending_charge(&a.uid));
    assert_eq!(index.quota_refusal(&b, &recipe), None);
}

#[test]
fn a_claim_is_not_blocked_by_its_own_reservation() {
    let (mut index, recipe, [a, b, c]) = three_for_one_place(true);
    // The stamp may or may not have been written, and the quota turns out to be used by another claim.
    assert!(index.charge(&c, CLASS));
    let volume = shared_volume(&a, "1Gi");
    index.change_volume(WatchChange::Apply(volume.clone()));
    for claim in [&b, &c] {
        assert!(index.quota_refusal(claim, &recipe).is_some());
        index.wait_for_quota(WorkItem::Claim(claim.name.clone()), CLASS);
    }
    index.change_claim(WatchChange::Delete(a.name.clone()));
    let woken = index.change_volume(WatchChange::Delete(ObjectName::new("", &volume.name)));
    assert!(woken.contains(&WorkItem::Claim(c.name.clone())) && !woken.contains(&WorkItem::Claim(b.name)), "{woken:?}");
    assert_eq!(index.quota_refusal(&c, &recipe), None);
}

#[test]
fn a_reservation_of_a_claim_that_is_gone_blocks_no_claim() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let (old, b) = (shared_claim("t", "a", false), shared_claim("t", "b", false));
    let another = Claim { uid: format!("{}0", old.uid), ..old.clone() };
    for claim in [&old, &b] {
        index.change_claim(WatchChange::Apply(claim.clone()));
    }
    assert!(index.charge(&old, CLASS));
    assert!(index.quota_refusal(&b, &recipe).is_some());
    index.wait_for_quota(WorkItem::Claim(b.name.clone()), CLASS);
    // The watch was interrupted when the claim was deleted, and shows another claim of the same name.
    let woken = index.change_claim(WatchChange::Apply(another));
    assert!(woken.contains(&WorkItem::Claim(b.name.clone())), "{woken:?}");
    // An earlier reconcile tries once more.
    index.charge(&old, CLASS);
    assert_eq!(index.quota_refusal(&b, &recipe), None);
}

#[test]
fn each_namespace_has_its_own_quota_and_growing_volumes_count_with_their_new_size() {
    let (mut index, recipe) = with_limits(&[("max-volumes-per-namespace", "2"), ("max-bytes-per-namespace", "3Gi")]);
    let (one, two) = (shared_claim("t", "one", true), shared_claim("t", "two", false));
    index.change_claim(WatchChange::Apply(one.clone()));
    index.change_claim(WatchChange::Apply(two.clone()));
    let volume = shared_volume(&one, "1Gi");
    index.change_volume(WatchChange::Apply(volume.clone()));
    let gi = |count: u64| count << 30;
    assert_eq!(index.quota_refusal(&two, &recipe), None);
    assert_eq!(index.expand_quota_refusal(&volume, &one, gi(3), &recipe), None, "it does not count itself");
    assert!(index.expand_quota_refusal(&volume, &one, gi(4), &recipe).is_some());
    index.charge_expand(&volume.name, gi(3));
    let why = index.quota_refusal(&two, &recipe).expect("the charged size counts");
    assert!(why.contains("namespace t may have at most 3Gi") && why.contains("3Gi are used"), "{why}");
    let elsewhere = shared_claim("u", "two", false);
    assert_eq!(index.quota_refusal(&elsewhere, &recipe), None, "another namespace");

    // The run has failed, so that its Job does not count any more.
    index.wait_for_quota(WorkItem::Claim(two.name.clone()), CLASS);
    let run_labels = RunLabels { operation: "expand".into(), id: one.uid.clone(), attempt: 1, class: CLASS.into() };
    let job = Job {
        name: ObjectName::new("own", "e"),
        volume: Some(volume.name.clone()),
        size: Some(gi(3)),
        run_labels,
        ..Job::default()
    };
    index.change_job(WatchChange::Apply(job.clone()));
    assert!(index.quota_refusal(&two, &recipe).is_some(), "the Job says it now");
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, ..job }));
    assert!(woken.contains(&WorkItem::Claim(two.name.clone())), "{woken:?}");
    assert_eq!(index.quota_refusal(&two, &recipe), None);
    index.change_volume(WatchChange::Apply(shared_volume(&one, "3Gi")));
    assert!(index.quota_refusal(&two, &recipe).is_some(), "it has grown");
}

#[test]
fn a_claim_that_has_given_up_uses_no_quota_until_its_next_attempt() {
    let (mut index, recipe, [a, b, c]) = three_for_one_place(true);
    let refused = |index: &Index, claim: &Claim| index.quota_refusal(claim, &recipe).is_some();
    let failed = |claim: &Claim, reaction, attempt| {
        let failure = LastFailure::read(&failure(reaction)).unwrap();
        Claim { last_failure: Some(LastFailure { attempt, ..failure }), ..claim.clone() }
    };
    index.wait_for_quota(WorkItem::Claim(b.name.clone()), CLASS);
    index.change_claim(WatchChange::Apply(failed(&a, Reaction::Retry, 1)));
    assert!(refused(&index, &b), "it is tried again in a moment");
    index.change_claim(WatchChange::Apply(failed(&a, Reaction::Never, 0)));
    assert!(refused(&index, &b), "an attempt before it failed");
    let given_up = failed(&a, Reaction::Never, 1);
    let woken = index.change_claim(WatchChange::Apply(given_up.clone()));
    assert!(woken.contains(&WorkItem::Claim(b.name.clone())) && !refused(&index, &b), "{woken:?}");

    assert!(index.charge(&b, CLASS));
    assert!(refused(&index, &given_up), "its next attempt asks anew");
    index.refund(&b);
    assert!(!refused(&index, &given_up) && index.charge(&given_up, CLASS), "for the next attempt");
    assert!(refused(&index, &b));
    let newer = Claim { resource_version: "9".into(), ..given_up.clone() };
    index.change_claim(WatchChange::Apply(newer));
    assert!(refused(&index, &c), "the stamp of the next attempt may come");
    index.change_claim(WatchChange::Apply(a));
    assert!(refused(&index, &c), "it tries again");
}
