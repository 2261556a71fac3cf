//! Tests of the ledger of slots: which runs use one, and that none is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_core::object::ObjectName;
use flex_core::run::node::Node;
use flex_core::run::view::Pod;
use proptest::prelude::*;

use super::*;
use crate::state::expectations::EXPECTATION_TIMEOUT;
use crate::state::testing::{CLASS, batch_job, claim, facts, failed_claim, job, pod_of, recipe, serve};
use crate::state::watch_change::Changed;

fn asks(claim: &str) -> SlotRequest {
    SlotRequest::claim(&ObjectName::new("team", claim))
}

#[test]
fn each_run_in_progress_uses_a_slot() {
    let over = |job: Job| Job { is_over: true, ..job };
    let mut other_class = job("provision", "a");
    other_class.run_labels.class = "other".into();
    for (case, jobs, expected) in [
        ("no run", vec![], 0),
        ("a run of a claim", vec![job("provision", "a")], 1),
        ("two runs of a claim", vec![job("provision", "a"), job("delete", "a")], 2),
        ("each member of a batch", vec![batch_job("batch", &["a", "b", "c"])], 3),
        ("an ended run", vec![over(job("provision", "a")), over(batch_job("batch", &["b", "c"]))], 0),
        ("a run of another class", vec![other_class], 0),
        ("runs for the whole class", vec![job("list", "a"), job("capacity", "b")], 0),
    ] {
        let (_, mut facts) = facts();
        for job in jobs {
            // A watch may show an object twice.
            facts.cache.runs.apply_job(job.clone());
            facts.cache.runs.apply_job(job);
        }
        assert_eq!(Slots::default().in_flight(CLASS, &facts), expected, "{case}");
    }
}

#[test]
fn a_run_on_a_lost_node_uses_no_slot() {
    let (_, mut facts) = facts();
    let run = job("provision", "a");
    let pod = Pod {
        name: ObjectName::new("own", "pod"),
        job: run.name.name.clone(),
        run_labels: run.run_labels.clone(),
        node: Some("n".into()),
        ..Pod::default()
    };
    facts.cache.runs.apply_job(run);
    facts.cache.runs.apply_pod(pod);
    let node = |reachable| Node { name: "n".into(), labels: BTreeMap::new(), reachable, taints: vec![] };
    for (reachable, expected) in [(true, 1), (false, 0), (true, 1)] {
        facts.cache.nodes.apply(node(reachable));
        assert_eq!(Slots::default().in_flight(CLASS, &facts), expected, "reachable: {reachable}");
    }
    facts.cache.nodes.remove("n");
    assert_eq!(Slots::default().in_flight(CLASS, &facts), 0, "the node is deleted");
}

#[test]
fn a_run_takes_one_slot_and_gives_back_one() {
    let (clock, facts) = facts();
    let recipe = recipe(&[("max-in-flight", "2")]);
    let mut slots = Slots::default();
    for _ in 0..3 {
        assert!(slots.acquire("run-a", &asks("a"), &recipe, &facts), "the slot is its own");
        assert_eq!(slots.in_flight(CLASS, &facts), 1);
    }
    assert!(slots.acquire("run-b", &asks("b"), &recipe, &facts));
    assert!(!slots.acquire("run-c", &asks("c"), &recipe, &facts) && slots.free(&recipe, true, &facts).is_none());
    assert_eq!(slots.in_flight(CLASS, &facts), 2, "a refused run takes none");
    assert_eq!(slots.expectations_mut().remove("run-a").as_deref(), Some(CLASS));
    assert_eq!(slots.expectations_mut().remove("run-a"), None);
    assert_eq!(slots.in_flight(CLASS, &facts), 1);
    clock.pass(EXPECTATION_TIMEOUT);
    assert_eq!(slots.in_flight(CLASS, &facts), 0, "no watch has shown the Job in time");
}

#[test]
fn free_slots_are_counted_for_the_class_each_namespace_and_each_node() {
    let (_, mut facts) = facts();
    let keys = [("max-in-flight", "9"), ("max-in-flight-per-namespace", "3"), ("max-in-flight-per-node", "2")];
    let recipe = recipe(&keys);
    let mut slots = Slots::default();
    assert!(slots.acquire("expected", &asks("a").on(Some("n1")), &recipe, &facts));
    facts.cache.runs.apply_job(Job { node: Some("n2".into()), ..batch_job("batch", &["b", "c"]) });
    let other = Job { claim: Some(ObjectName::new("other", "d")), node: Some("n1".into()), ..job("provision", "d") };
    facts.cache.runs.apply_job(other);
    let free = slots.free(&recipe, true, &facts).unwrap();
    assert_eq!((free.free, free.for_pool), (5, 5));
    assert_eq!(free.namespaces.most, 3);
    assert_eq!(free.namespaces.used, HashMap::from([("team".into(), 3), ("other".into(), 1)]));
    assert_eq!(free.nodes.most, 2);
    assert_eq!(free.nodes.used, HashMap::from([("n1".into(), 2), ("n2".into(), 2)]));
    assert!(!slots.acquire("more", &asks("e"), &recipe, &facts), "the namespace has its share");
}

#[test]
fn an_item_leaves_the_queue_when_it_gets_a_slot_or_asks_for_none() {
    let (_, mut facts) = facts();
    let recipe = serve(&mut facts, &[("max-in-flight", "1")]);
    let mut slots = Slots::default();
    let item = |claim: &str| asks(claim).item;
    assert!(slots.acquire("run-a", &asks("a"), &recipe, &facts));
    for claim in ["b", "c", "b"] {
        assert_eq!(slots.wait(&asks(claim), &recipe, &facts), [], "no slot is free");
    }
    let now = facts.now();
    assert!(slots.waiting(CLASS, now).eq([&item("b"), &item("c")]));
    assert_eq!(
        (slots.stop_waiting_for_slot(&item("b")).as_deref(), slots.stop_waiting_for_slot(&item("b"))),
        (Some(CLASS), None)
    );
    slots.expectations_mut().remove("run-a");
    assert_eq!(slots.next(CLASS, &facts), [item("c")]);
    assert_eq!(slots.next_of_label(CLASS, &facts), [item("c")]);
    assert!(slots.acquire("run-c", &asks("c"), &recipe, &facts));
    assert_eq!(slots.waiting(CLASS, now).count(), 0);
}

/// Shows claims whose attempts failed at this time.
fn fail(slots: &mut Slots, claims: &[&str], at: i64) {
    for name in claims {
        let now = Some(Arc::new(failed_claim(name, Reaction::Retry, at)));
        slots.outages_mut().on_claim(&Changed { before: None, now });
    }
}

#[test]
fn in_an_outage_the_runs_of_the_operation_begin_one_at_a_time() {
    const FIVE: Duration = Duration::from_secs(5);
    let (clock, mut facts) = facts();
    let recipe = serve(&mut facts, &[("max-in-flight", "9")]);
    let (mut slots, all) = (Slots::default(), ["a", "b", "c", "d", "e"]);
    let no_slot = |slots: &Slots, claim: &str, facts: &Facts| slots.no_slot(&asks(claim), &recipe, facts);
    fail(&mut slots, &all[..4], 0);
    for run in ["run-x", "run-y"] {
        assert!(slots.acquire(run, &asks(run), &recipe, &facts), "few have failed");
        slots.expectations_mut().remove(run);
    }
    fail(&mut slots, &all, 0);
    assert!(slots.outages_of(CLASS).eq([Operation::Provision]));
    assert!(!slots.acquire("run-a", &asks("a"), &recipe, &facts));
    assert_eq!(no_slot(&slots, "a", &facts), Some(NoSlot::Outage(Some(5))));
    for claim in ["a", "b"] {
        assert_eq!(slots.wait(&asks(claim), &recipe, &facts), []);
    }
    let deletes = asks("z").to(Operation::Delete);
    assert!(slots.acquire("delete-z", &deletes, &recipe, &facts), "a full backend still deletes");

    clock.pass(FIVE);
    assert_eq!(slots.next(CLASS, &facts), [asks("a").item], "one at a time");
    assert_eq!(no_slot(&slots, "b", &facts), Some(NoSlot::Outage(None)), "the other has its turn");
    assert!(slots.acquire("run-a", &asks("a"), &recipe, &facts));
    assert!(slots.acquire("run-a", &asks("a"), &recipe, &facts), "the slot is its own");
    assert_eq!(no_slot(&slots, "b", &facts), Some(NoSlot::Outage(Some(65))), "its end tells more");
    slots.expectations_mut().remove("run-a");
    assert_eq!(no_slot(&slots, "b", &facts), Some(NoSlot::Outage(Some(10))), "no watch has shown the failure");
    fail(&mut slots, &["a"], 5);
    assert_eq!(slots.next(CLASS, &facts), []);

    clock.pass(FIVE);
    assert!(slots.acquire("run-b", &asks("b"), &recipe, &facts));
    let run = job("provision", "b");
    slots.outages_mut().on_pod(Some(&pod_of(&run, None)), &pod_of(&run, Some(0)), 10);
    assert_eq!(slots.outages_of(CLASS).count(), 0);
    for claim in ["c", "d"] {
        assert!(slots.acquire(claim, &asks(claim), &recipe, &facts), "a run has succeeded");
    }
}

/// The state of an item between two operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Waiting,
    /// The item has a slot, and no watch shows its Job.
    Expected,
    /// A watch shows the Job.
    Visible,
}

/// Applies an operation on an item to the ledger. Returns the new state of the item.
fn operate(state: State, item: usize, operation: u8, slots: &mut Slots, facts: &mut Facts, recipe: &Recipe) -> State {
    let name = item.to_string();
    let run = job("provision", &name);
    match (operation, state) {
        (0 | 1, State::Idle | State::Waiting | State::Expected) => {
            if slots.acquire(&run.name.name, &asks(&name), recipe, facts) {
                return State::Expected;
            }
            slots.wait(&asks(&name), recipe, facts);
            State::Waiting
        }
        (2, State::Expected) => {
            slots.expectations_mut().remove(&run.name.name);
            State::Idle
        }
        (3, State::Expected) => {
            facts.cache.runs.apply_job(run.clone());
            slots.expectations_mut().remove(&run.name.name);
            State::Visible
        }
        (4, State::Visible) => {
            facts.cache.runs.apply_job(Job { is_over: true, ..run });
            State::Idle
        }
        (5, State::Waiting) => {
            slots.stop_waiting_for_slot(&asks(&name).item);
            State::Idle
        }
        (6, State::Visible) => {
            facts.cache.claims.apply(claim("team", &name, true));
            facts.cache.runs.remove_job(&run.name);
            slots.keep(&run, facts);
            State::Expected
        }
        _ => state,
    }
}

proptest! {
    /// The slots in use are those of the items that have one, in any order of requests, results and departures. As long
    /// as an item waits and a slot is free, some item has its turn.
    #[test]
    fn no_slot_is_lost(most in 1..4_usize, operations in prop::collection::vec((0..6_usize, 0..7_u8), 0..60)) {
        let (_, mut facts) = facts();
        let recipe = serve(&mut facts, &[("max-in-flight", &most.to_string())]);
        let (mut slots, mut states) = (Slots::default(), [State::Idle; 6]);
        for (item, operation) in operations {
            states[item] = operate(states[item], item, operation, &mut slots, &mut facts, &recipe);
            let count = |all: &[State]| states.iter().filter(|state| all.contains(state)).count();
            let (used, waiting) = (count(&[State::Expected, State::Visible]), count(&[State::Waiting]));
            prop_assert_eq!(slots.in_flight(CLASS, &facts), used);
            prop_assert!(used <= most);
            prop_assert_eq!(slots.waiting(CLASS, facts.now()).count(), waiting);
            prop_assert_eq!(slots.next(CLASS, &facts).len(), waiting.min(most - used));
        }
        // All runs end, and each item that waits gets its slot. The run of the last one ends after all others.
        for _ in 0..=states.len() {
            for (item, state) in states.iter_mut().enumerate() {
                *state = operate(*state, item, 2, &mut slots, &mut facts, &recipe);
                *state = operate(*state, item, 4, &mut slots, &mut facts, &recipe);
            }
            for item in slots.next(CLASS, &facts) {
                let WorkItem::Claim(name) = item else { panic!("{item:?}") };
                let item: usize = name.name.parse().unwrap();
                states[item] = operate(states[item], item, 0, &mut slots, &mut facts, &recipe);
                prop_assert_eq!(states[item], State::Expected, "its turn is now");
            }
        }
        prop_assert_eq!(slots.in_flight(CLASS, &facts) + slots.waiting(CLASS, facts.now()).count(), 0);
    }
}
