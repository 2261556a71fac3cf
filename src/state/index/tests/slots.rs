//! Tests of slots, and of the items that are requeued when a slot is free.

use std::collections::BTreeMap;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use flex_core::run::node::Node;
use flex_core::run::view::{Job, Pod, RunLabels};

use super::{CLASS, index, name, recipe, with_limits};
use crate::state::index::{Index, SlotRequest, WatchChange, WorkItem};
use crate::state::testing::{failed_claim, job, pod_of};

fn asks(index: &mut Index, claim: &str) -> bool {
    let has = index.acquire_slot(claim, &SlotRequest::claim(&name(claim)), &recipe(CLASS));
    if !has {
        index.wait_for_slot(&SlotRequest::claim(&name(claim)), &recipe(CLASS));
    }
    has
}

#[test]
fn slots_go_to_the_first_in_the_queue() {
    let mut index = index();
    assert!(asks(&mut index, "a"));
    assert!(!asks(&mut index, "b") && !asks(&mut index, "c"));
    index.cancel_expectation("a");
    assert!(!asks(&mut index, "new") && !asks(&mut index, "c"), "b is before them");
    assert!(asks(&mut index, "b"));
    index.cancel_expectation("b");
    assert!(!asks(&mut index, "new") && asks(&mut index, "c"));
    index.cancel_expectation("c");
    assert!(
        index.acquire_slot("elsewhere", &SlotRequest::claim(&name("z")), &recipe("other")),
        "classes do not wait for each other"
    );
    assert!(asks(&mut index, "new"));
}

#[test]
fn a_job_that_somebody_deletes_in_progress_is_remembered_while_its_claim_waits() {
    let text = "{metadata: {name: a, namespace: team, uid: u}, spec: {}}";
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(text).unwrap();
    let claim = Claim::from(&claim);
    let mut index = index();
    index.change_claim(WatchChange::Apply(claim.clone()));
    let run_labels = RunLabels { operation: "provision".into(), id: "u".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("provision-u-1"), claim: Some(claim.name.clone()), run_labels, ..Job::default() };
    let removed = |index: &mut Index, job: &Job| {
        index.change_job(WatchChange::Apply(job.clone()));
        index.change_job(WatchChange::Delete(job.name.clone()));
        index.removed("u", "provision-u-1").map(|removed| removed.times)
    };
    assert_eq!(removed(&mut index, &Job { is_over: true, ..job.clone() }), None, "it was done");
    assert_eq!((removed(&mut index, &job), removed(&mut index, &job)), (Some(1), Some(2)));
    assert_eq!(index.removed("u", "provision-u-2"), None, "another attempt");
    index.begin_term();
    assert_eq!(index.removed("u", "provision-u-1"), None, "the leader before may have deleted them");
    index.delete_job(&job.uid);
    assert_eq!(removed(&mut index, &job), None, "this process has deleted it");
    assert_eq!(removed(&mut index, &job), Some(1));
    index.change_claim(WatchChange::Delete(claim.name));
    assert_eq!(index.removed("u", "provision-u-1"), None);
    assert_eq!(removed(&mut index, &job), None, "nobody asks for it any more");
}

#[test]
fn the_end_of_a_run_wakes_the_first_in_the_queue() {
    let mut index = with_limits(&[("max-in-flight", "1")]).0;
    assert!(asks(&mut index, "a"));
    let run_labels = RunLabels { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("a"), claim: Some(name("a")), run_labels, ..Job::default() };
    index.change_job(WatchChange::Apply(job.clone()));
    assert!(!asks(&mut index, "z") && !asks(&mut index, "b"));
    let over = Job { is_over: true, ..job };
    assert_eq!(
        index.change_job(WatchChange::Apply(over.clone())),
        [WorkItem::Claim(name("a")), WorkItem::Claim(name("z"))]
    );
    assert_eq!(index.change_job(WatchChange::Apply(over)), [], "its end is told once");
    assert!(asks(&mut index, "z"));
}

#[test]
fn a_run_on_a_lost_node_leaves_its_slot_to_the_next_in_the_queue() {
    let mut index = with_limits(&[("max-in-flight", "1")]).0;
    let answers =
        |reachable| WatchChange::Apply(Node { name: "n".into(), labels: BTreeMap::new(), reachable, taints: vec![] });
    index.change_node(answers(true));
    assert!(asks(&mut index, "a"));
    let run_labels = RunLabels { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    index.change_job(WatchChange::Apply(Job { name: name("a"), run_labels: run_labels.clone(), ..Job::default() }));
    index.change_pod(WatchChange::Apply(Pod {
        name: name("p"),
        job: "a".into(),
        node: Some("n".into()),
        run_labels,
        ..Pod::default()
    }));
    assert!(!asks(&mut index, "b"));
    let next = WorkItem::Claim(name("b"));
    assert!(index.change_node(answers(false)).contains(&next), "nobody knows when it ends");
    assert!(!index.change_node(answers(true)).contains(&next), "it goes on");
    assert!(index.change_node(WatchChange::Delete(ObjectName::new("", "n"))).contains(&next));
    assert!(asks(&mut index, "b"));
}

#[test]
fn an_outage_begins_and_ends_by_what_watches_show_and_the_end_of_a_run_wakes_who_waits() {
    let (mut index, recipe) = with_limits(&[]);
    let claims = ["a", "b", "c", "d", "e"];
    for claim in claims {
        index.change_claim(WatchChange::Apply(failed_claim(claim, Reaction::Retry, 0)));
    }
    assert_eq!(index.outages_of(CLASS), [Operation::Provision]);
    let run = job("provision", "z");
    index.change_job(WatchChange::Apply(run.clone()));
    index.change_pod(WatchChange::Apply(pod_of(&run, None)));
    for claim in claims {
        let slot_request = SlotRequest::claim(&name(claim));
        assert!(!index.acquire_slot(claim, &slot_request, &recipe), "a run is in progress");
        assert_eq!(index.wait_for_slot(&slot_request, &recipe), []);
    }
    index.change_pod(WatchChange::Apply(pod_of(&run, Some(0))));
    assert!(index.outages_of(CLASS).is_empty());
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, complete: true, ..run }));
    assert_eq!(woken[1..], claims.map(|claim| WorkItem::Claim(name(claim))));
}

#[test]
fn snapshots_wait_in_the_same_queue_as_claims() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "1"), ("max-in-flight-per-namespace", "1")]);
    let (claim, content) = (SlotRequest::claim(&name("a")), SlotRequest::content("snapcontent-s", "team"));
    assert!(index.acquire_slot("snapshot-s-1", &content, &recipe));
    assert!(!index.acquire_slot("provision-a-1", &claim, &recipe));
    index.wait_for_slot(&claim, &recipe);
    let run = |operation: &str, id: &str| {
        let run_labels = RunLabels { operation: operation.into(), id: id.into(), attempt: 1, class: CLASS.into() };
        Job { name: name(&format!("{operation}-{id}-1")), claim: Some(name("source")), run_labels, ..Job::default() }
    };
    let snapshot = Job { content: Some("snapcontent-s".into()), ..run("snapshot", "s") };
    index.change_job(WatchChange::Apply(snapshot.clone()));
    let other = SlotRequest::content("snapcontent-t", "team");
    assert!(index.no_slot(&claim, &recipe).is_some() && !index.acquire_slot("snapshot-t-1", &other, &recipe));
    index.wait_for_slot(&other, &recipe);
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, ..snapshot }));
    assert!(woken.contains(&claim.item) && !woken.contains(&other.item), "{woken:?}");
    assert!(index.acquire_slot("provision-a-1", &claim, &recipe));
    let provision = run("provision", "a");
    index.change_job(WatchChange::Apply(provision.clone()));
    let woken = index.change_job(WatchChange::Delete(provision.name));
    assert!(woken.contains(&other.item), "{woken:?}");
    let deletion = run("delete-snapshot", "s");
    index.change_job(WatchChange::Apply(deletion.clone()));
    assert!(!index.acquire_slot("snapshot-t-1", &other, &recipe), "a deletion uses a slot");
    index.change_job(WatchChange::Delete(deletion.name));
    index.change_job(WatchChange::Apply(run("capacity", "")));
    assert!(index.acquire_slot("snapshot-t-1", &other, &recipe), "a run for the whole class uses none");
}

#[test]
fn a_namespace_at_its_limit_delays_no_other_namespace() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "3"), ("max-in-flight-per-namespace", "1")]);
    let of = |namespace: &str, claim: &str| ObjectName::new(namespace, claim);
    let asks = |namespace: &str, claim: &str| SlotRequest::claim(&of(namespace, claim));
    assert!(index.acquire_slot("a", &asks("t", "a"), &recipe));
    for claim in ["b", "c", "d", "e"] {
        assert!(!index.acquire_slot(claim, &asks("t", claim), &recipe), "{claim}");
        index.wait_for_slot(&asks("t", claim), &recipe);
    }
    assert!(index.acquire_slot("x", &asks("u", "x"), &recipe), "the others of t are before it, and cannot go");
    let run_labels = RunLabels { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("a"), claim: Some(of("t", "a")), run_labels, ..Job::default() };
    index.change_job(WatchChange::Apply(job.clone()));
    assert!(!index.acquire_slot("b", &asks("t", "b"), &recipe));
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, ..job }));
    assert_eq!(woken[1..], [WorkItem::Claim(of("t", "b"))], "one place, one claim");
    assert!(!index.acquire_slot("c", &asks("t", "c"), &recipe) && index.acquire_slot("b", &asks("t", "b"), &recipe));
}

#[test]
fn a_node_at_its_limit_delays_no_other_node() {
    let limits = [("max-in-flight-per-node", "1"), ("placement", "selected-node")];
    let (mut index, recipe) = with_limits(&limits);
    let on =
        |claim: &str, node: &str| SlotRequest::attempt(&name(claim), &recipe, &["old".to_owned(), node.to_owned()]);
    assert!(index.acquire_slot("provision-a-1", &on("a", "n"), &recipe));
    assert!(!index.acquire_slot("provision-b-1", &on("b", "n"), &recipe), "expected there");
    assert!(index.wait_for_slot(&on("b", "n"), &recipe).is_empty());
    assert!(index.no_slot(&SlotRequest::claim(&name("b")), &recipe).is_some(), "it waits for that node");
    let run_labels = RunLabels { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job {
        name: name("provision-a-1"),
        claim: Some(name("a")),
        run_labels,
        node: Some("n".into()),
        ..Job::default()
    };
    index.change_job(WatchChange::Apply(job.clone()));
    assert!(!index.acquire_slot("provision-b-1", &on("b", "n"), &recipe), "seen there");
    assert!(index.acquire_slot("provision-c-1", &on("c", "m"), &recipe), "another node");
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, ..job }));
    assert!(woken.contains(&WorkItem::Claim(name("b"))), "{woken:?}");
    assert!(index.acquire_slot("provision-b-1", &on("b", "n"), &recipe));
    assert!(index.wait_for_slot(&on("d", "n"), &recipe).is_empty());
    assert_eq!(index.wait_for_slot(&on("d", "o"), &recipe), [WorkItem::Claim(name("d"))], "it goes to another node");
    assert!(index.no_slot(&SlotRequest::claim(&name("d")), &recipe).is_none());
}

#[test]
fn the_next_item_is_woken_when_one_before_it_leaves_the_queue() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "1")]);
    let asks = |claim: &str| SlotRequest::claim(&name(claim));
    assert!(index.acquire_slot("a", &asks("a"), &recipe));
    for claim in ["b", "c"] {
        assert!(index.wait_for_slot(&asks(claim), &recipe).is_empty(), "there is no place");
    }
    index.cancel_expectation("a");
    assert!(index.stop_waiting_for_slot(&asks("b").item).contains(&asks("c").item), "b had the next");
    index.wait_for_slot(&asks("b"), &recipe);
    assert!(!index.acquire_slot("d", &asks("d"), &recipe));
    assert_eq!(index.wait_for_slot(&asks("d"), &recipe), [asks("c").item], "nobody has told it yet");
}
