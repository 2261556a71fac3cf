//! Tests of the records of runs: claims that are gone stay in the index by their records.

use std::time::Duration;

use flex_contract::exit::Reaction;
use flex_core::model::claim::{Had, Stamp};
use flex_core::model::record::{Record, record_name};
use flex_core::run::failure::LastFailure;
use serde_json::{Value, json};

use super::*;
use crate::state::testing::failed_claim;

const JOB: &str = "provision-batch-1";

fn held(name: &str) -> Claim {
    let claim = shared_claim("team", name, true);
    let stamp = claim.stamp.clone().map(|stamp| Stamp { recipe_version: recipe(CLASS).version(), ..stamp });
    Claim { held: true, stamp, ..claim }
}

/// Returns the armed record of a run for these claims, of which some are settled.
fn record(claims: &[Claim], settled: &str, version: u32) -> Record {
    let data = Record::data(claims.iter());
    let annotations =
        json!({ names::ARMED: "r", names::SETTLED: settled, names::JOB_REQUESTED: "2026-11-01T00:00:00Z" });
    let metadata = json!({
        "namespace": "own", "name": record_name(JOB, &Value::Null), "uid": "r", "annotations": annotations,
        "resourceVersion": version.to_string(),
    });
    Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap()
}

fn item(record: &Record) -> WorkItem {
    WorkItem::Record(record.name.name.clone())
}

fn stand_in(claim: &Claim) -> WorkItem {
    WorkItem::Claim(name(&format!("{}#{}", claim.name.name, claim.uid)))
}

#[test]
fn a_claim_that_is_gone_has_a_stand_in_until_its_record_is_settled() {
    let (hands, mut index) = timed();
    let (a, b) = (held("a"), held("b"));
    let effective_config = recipe(CLASS).effective_config;
    let stored = Stored::Recipe(effective_config.hash(), Revision { number: 1, effective_config, created: 0 });
    index.change_stored(WatchChange::Apply(stored));
    for claim in [&a, &b] {
        index.change_claim(WatchChange::Apply(claim.clone()));
    }
    index.record_answered(record(&[a.clone(), b.clone()], "", 5));
    assert!(index.is_live(&a.uid) && index.stand_ins_of(&a.name).is_empty());
    let woken = index.change_claim(WatchChange::Delete(a.name.clone()));
    assert!(woken.contains(&stand_in(&a)) && !woken.contains(&stand_in(&b)), "{woken:?}");
    assert!(!index.is_live(&a.uid) && index.is_gone(&a.uid));
    let there = index.claim_by_id(&a.uid).unwrap();
    assert!(there.is_stand_in() && there.terminating && there.is_held());
    assert!(
        index.change_claim(WatchChange::Retain([b.name.clone()].into_iter().collect())).is_empty(),
        "no list has it"
    );
    let again = Claim { uid: "another".into(), stamp: None, ..a.clone() };
    assert!(index.has_namesake(&again) && !index.has_namesake(&Claim { class: Some("other".into()), ..again.clone() }));
    let reference = Reference { name: b.name.clone(), uid: Some(b.uid.clone()) };
    let taken = Volume { claim_ref: Some(reference), ..shared_volume(&a, "1Gi") };
    index.change_volume(WatchChange::Apply(taken.clone()));
    assert!(!index.has_namesake(&again), "it may wait for the claim that has its volume");
    index.change_volume(WatchChange::Delete(ObjectName::new("", taken.name)));
    assert!(index.has_namesake(&again));
    hands.pass(Duration::from_secs(600));
    assert!(!index.has_namesake(&again), "the deletion may wait for a person");
    let woken = index.record_answered(record(&[a.clone(), b.clone()], &a.uid, 6));
    assert!(woken.contains(&WorkItem::Claim(a.name.clone())), "a namesake may wait: {woken:?}");
    assert!(index.claim_by_id(&a.uid).is_none() && index.is_live(&b.uid));
}

#[test]
fn no_claim_waits_for_what_its_namesake_left_on_a_node_that_is_gone() {
    let (_, mut index) = timed();
    let effective_config = recipe(CLASS).effective_config;
    let stored = Stored::Recipe(effective_config.hash(), Revision { number: 1, effective_config, created: 0 });
    index.change_stored(WatchChange::Apply(stored));
    let node = |reachable| Node { name: "n1".into(), labels: Default::default(), reachable, taints: vec![] };
    index.change_node(WatchChange::Apply(node(true)));
    let a = Claim { nodes_with_storage: vec!["n1".into()], ..held("a") };
    index.record_answered(record(std::slice::from_ref(&a), "", 5));
    let again = Claim { uid: "another".into(), stamp: None, ..a };
    assert!(index.has_namesake(&again));
    index.change_node(WatchChange::Apply(node(false)));
    assert!(!index.has_namesake(&again), "it does not answer");
    index.change_node(WatchChange::Delete(ObjectName::new("", "n1")));
    assert!(!index.has_namesake(&again));
}

#[test]
fn a_change_of_the_record_alone_wakes_no_stand_in() {
    let mut index = index();
    let (a, b) = (held("a"), held("b"));
    let before = record(&[a.clone(), b.clone()], "", 5);
    let woken = index.record_answered(before.clone());
    assert_eq!(woken.iter().filter(|woken| [stand_in(&a), stand_in(&b)].contains(woken)).count(), 2);
    let woken = index.record_answered(record(&[a.clone(), b.clone()], &b.uid, 6));
    assert!(!woken.contains(&stand_in(&a)), "{woken:?}");
    assert_eq!(index.claim_by_id(&a.uid).unwrap().resource_version, "6");
}

#[test]
fn a_record_is_settled_for_all_that_are_undone_or_bound_at_once() {
    let mut index = index();
    let all = ["a", "b", "c"].map(held);
    let record = record(&all, "", 5);
    let observed = |index: &Index| index.observe_record(&record.name.name).unwrap().1;
    all.iter().for_each(|claim| drop(index.change_claim(WatchChange::Apply(claim.clone()))));
    index.record_answered(record.clone());
    assert!(observed(&index).settled.is_empty() && observed(&index).left == 3);
    assert_eq!(index.set_undone(&record.name.name, &all[0].uid), item(&record));
    let bound =
        Claim { held: false, volume_name: Some(names::pv_name(&all[1].uid)), bind_completed: true, ..all[1].clone() };
    assert!(index.change_claim(WatchChange::Apply(bound)).contains(&item(&record)));
    assert_eq!(observed(&index).settled, [all[0].uid.clone(), all[1].uid.clone()].into());
    index.begin_term();
    assert_eq!(observed(&index).settled, [all[1].uid.clone()].into(), "the new term finds it again");
}

#[test]
fn a_live_claim_knows_that_somebody_has_deleted_its_record() {
    let mut index = index();
    let a = held("a");
    index.change_claim(WatchChange::Apply(a.clone()));
    let armed = record(std::slice::from_ref(&a), "", 5);
    let name = ObjectName::new("own", &armed.name.name);
    index.record_answered(armed.clone());
    index.apply_record(armed.clone());
    assert!(index.remove_record(&name).contains(&WorkItem::Claim(a.name.clone())));
    assert!(index.has_lost_record(&a.uid));
    // The watch is faster than the answer to the orchestrator's own deletion.
    index.record_deleted(&armed);
    assert!(!index.has_lost_record(&a.uid));
    index.record_answered(armed.clone());
    index.apply_record(armed.clone());
    index.record_deleted(&armed);
    index.remove_record(&name);
    assert!(!index.has_lost_record(&a.uid));
}

/// No watch may show the batch, which has another name than the claim's own run.
#[test]
fn the_batch_of_a_record_is_known_when_somebody_has_deleted_the_record() {
    let mut index = index();
    let a = held("a");
    index.change_claim(WatchChange::Apply(a.clone()));
    let batch = ObjectName::new("own", "provision-batch-0123456789abcdef");
    let data = Record::data(std::iter::once(&a));
    let metadata = json!({
        "namespace": "own", "name": record_name(&batch.name, &data), "uid": "r", "resourceVersion": "5",
        "annotations": { names::ARMED: "r" },
    });
    let armed = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
    index.apply_record(armed.clone());
    assert_eq!(index.batches_of(&a.uid), [batch.clone()].into());
    index.remove_record(&armed.name);
    assert!(index.has_lost_record(&a.uid));
    assert_eq!(index.batches_of(&a.uid), [batch].into());
    index.record_answered(record(std::slice::from_ref(&a), "", 6));
    assert!(!index.has_lost_record(&a.uid) && index.batches_of(&a.uid).is_empty(), "it was asked for before that");
}

/// A list shows another claim of the name, and what happened before is unknown; or a user had the volume of the pool request.
#[test]
fn a_claim_that_was_replaced_or_a_pool_request_may_have_had_a_user() {
    for (replaced, for_pool) in [(true, false), (false, false), (false, true)] {
        let mut index = index();
        let a = Claim { for_pool, ..held("a") };
        index.change_claim(WatchChange::Apply(a.clone()));
        index.record_answered(record(std::slice::from_ref(&a), "", 5));
        index.change_claim(match replaced {
            true => WatchChange::Apply(Claim { uid: "another".into(), stamp: None, held: false, ..a.clone() }),
            false => WatchChange::Delete(a.name.clone()),
        });
        let had = index.claim_by_id(&a.uid).unwrap().record.as_ref().unwrap().had;
        assert_eq!(had, if replaced || for_pool { Had::Unknown } else { Had::Nobody });
        assert!(index.is_gone(&a.uid));
    }
}

/// Its delete run may begin when nothing else names the recipe any more.
#[test]
fn a_record_keeps_the_recipe_of_its_run() {
    let (clock, mut index) = timed();
    let effective_config = recipe(CLASS).effective_config;
    let hash = effective_config.hash();
    let revision = Revision { number: 1, effective_config, created: 0 };
    index.change_stored(WatchChange::Apply(Stored::Recipe(hash.clone(), revision)));
    clock.pass(VERSION_GRACE);
    let armed = record(&[held("a")], "", 5);
    index.record_answered(armed.clone());
    assert!(index.unused_revisions(10_000).is_empty());
    index.record_deleted(&armed);
    assert_eq!(index.unused_revisions(10_000), [hash]);
}

/// A watch of Jobs may be late, and a batch has another name than the claim's own run.
#[test]
fn a_live_claim_that_an_admin_abandons_needs_no_record_once_its_attempt_has_ended() {
    let mut index = index();
    let a = Claim { abandoned: true, ..held("a") };
    let armed = record(std::slice::from_ref(&a), "", 5);
    index.record_answered(armed.clone());
    let settled = |index: &Index| index.observe_record(&armed.name.name).unwrap().1.settled.len();
    assert_eq!(settled(&index), 0, "what runs for its stand-in ends first");
    index.change_claim(WatchChange::Apply(a.clone()));
    assert_eq!(settled(&index), 0, "its run may be in progress");
    let last_failure = failed_claim("a", Reaction::Retry, 0).last_failure;
    let earlier = last_failure.clone().map(|failure| LastFailure { attempt: 0, ..failure });
    index.change_claim(WatchChange::Apply(Claim { last_failure: earlier, ..a.clone() }));
    assert_eq!(settled(&index), 0, "an earlier attempt has failed");
    assert!(index.change_claim(WatchChange::Apply(Claim { last_failure, ..a })).contains(&item(&armed)));
    assert_eq!(settled(&index), 1);
}

#[test]
fn a_record_that_is_being_deleted_counts_no_more() {
    let mut index = index();
    let a = held("a");
    let armed = record(std::slice::from_ref(&a), "", 5);
    index.apply_record(armed.clone());
    assert!(index.claim_by_id(&a.uid).is_some());
    let metadata = json!({
        "namespace": "own", "name": armed.name.name, "uid": "r", "annotations": { names::ARMED: "r" },
        "resourceVersion": "6", "deletionTimestamp": "2026-11-01T00:00:00Z",
    });
    let held_by_others = armed.with_metadata(&serde_json::from_value(metadata).unwrap()).unwrap();
    index.apply_record(held_by_others);
    assert!(index.claim_by_id(&a.uid).is_none());
}

#[test]
fn first_attempts_wait_until_less_is_left_of_claims_that_are_gone() {
    let mut index = index();
    let known = config(&[]);
    index.change_config(WatchChange::Apply(known.clone()));
    index.set_most_left(2);
    let waits = shared_claim("team", "waits", false);
    let of_others = [
        shared_claim("other", "waits", false),
        Claim { class: Some("other".into()), ..shared_claim("team", "other", false) },
    ];
    for claim in of_others.iter().chain([&waits]) {
        index.change_claim(WatchChange::Apply(claim.clone()));
    }
    let wakes = |woken: &[WorkItem], claim: &Claim| woken.contains(&WorkItem::Claim(claim.name.clone()));
    let wakes_it_alone = |woken: &[WorkItem]| {
        assert!(of_others.iter().all(|other| !wakes(woken, other)), "{woken:?}");
        wakes(woken, &waits)
    };
    let on = |node: &str, claim: &str| Claim { nodes_with_storage: vec![node.into()], ..held(claim) };
    let both = [on("n1", "a"), on("n2", "b")];
    let node = |name: &str| Node { name: name.into(), labels: Default::default(), reachable: true, taints: vec![] };
    index.change_node(WatchChange::Apply(node("n1")));
    index.record_answered(record(&both, "", 5));
    assert_eq!(index.left_refusal(&waits), None, "node n2 is gone");
    index.change_node(WatchChange::Apply(node("n2")));
    assert!(index.left_refusal(&waits).is_some_and(|why| why.contains("attempts for 2 deleted claims")));
    assert!(of_others.iter().all(|other| index.left_refusal(other).is_none()));
    index.change_node(WatchChange::Apply(Node { reachable: false, ..node("n2") }));
    assert_eq!(index.left_refusal(&waits), None, "it does not answer");
    index.change_node(WatchChange::Apply(node("n2")));
    assert!(wakes_it_alone(&index.change_node(WatchChange::Delete(ObjectName::new("", "n2")))));
    index.change_node(WatchChange::Apply(node("n2")));
    assert!(wakes(&index.change_config(WatchChange::Delete(known.name.clone())), &waits));
    assert_eq!(index.left_refusal(&waits), None, "their config is gone");
    index.change_config(WatchChange::Apply(known));
    assert!(index.left_refusal(&waits).is_some());
    assert!(wakes_it_alone(&index.record_answered(record(&both, &both[0].uid, 6))), "one is settled");
    assert_eq!(index.left_refusal(&waits), None);
    assert!(!wakes_it_alone(&index.record_answered(record(&both, "uid-team-a,uid-team-b", 7))), "it has not waited");
}

#[test]
fn what_somebody_may_keep_has_no_stand_in_and_stays_recorded_until_it_is_abandoned() {
    let mut index = index();
    let both = ["a", "b"].map(held);
    let with = |annotations: Value, version: u32| {
        let mut all = json!({ names::ARMED: "r", names::KEPT: "uid-team-a,uid-team-b" });
        all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        let before = record(&both, "", 5);
        let metadata = json!({
            "namespace": "own", "name": before.name.name, "uid": "r", "annotations": all,
            "resourceVersion": version.to_string(),
        });
        before.with_metadata(&serde_json::from_value(metadata).unwrap()).unwrap()
    };
    index.record_answered(record(&both, "", 5));
    assert!(index.claim_by_id(&both[0].uid).is_some() && index.kept_records().next().is_none());
    let woken = index.record_answered(with(json!({}), 6));
    assert!(woken.contains(&WorkItem::Claim(both[0].name.clone())), "a namesake may wait: {woken:?}");
    assert!(both.iter().all(|claim| index.claim_by_id(&claim.uid).is_none()));
    assert_eq!(index.kept_records().count(), 1);
    let observed = |index: &Index| index.observe_record(&with(json!({}), 6).name.name).unwrap().1;
    assert_eq!((observed(&index).settled.len(), observed(&index).left), (0, 2));
    index.record_answered(with(json!({ names::ABANDON: "uid-team-b" }), 7));
    assert_eq!((observed(&index).settled, observed(&index).left), (["uid-team-b".to_owned()].into(), 2));
}
