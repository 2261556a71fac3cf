//! Tests of whose turn is next.

use flex_core::object::ObjectName;
use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(100);

fn claim(name: &str) -> WorkItem {
    WorkItem::Claim(name.parse().expect("namespace/name"))
}

fn flow(namespace: &str) -> Flow {
    let (operation, namespace) = (Operation::Provision, namespace.into());
    Flow { for_pool: false, namespace, operation, has_failed: false, node: None }
}

fn on(namespace: &str, node: &str) -> Flow {
    Flow { node: Some(node.into()), ..flow(namespace) }
}

/// Returns a queue with these items, each in the flow of its namespace.
fn fair_queue(names: &[&str]) -> FairQueue {
    let mut queue = FairQueue::default();
    for name in names {
        let namespace = name.split('/').next().unwrap_or_default();
        queue.enqueue(&claim(name), "c", flow(namespace), NOW);
    }
    queue
}

fn slots(most: usize, used: HashMap<Cow<'static, str>, usize>) -> SlotsPerName<'static> {
    SlotsPerName { most, used }
}

fn dispatch(queue: &FairQueue, free_slots: FreeSlots<'_>) -> Vec<String> {
    let dispatch = queue.dispatch("c", &free_slots, NOW);
    dispatch.map(|item| if let WorkItem::Claim(name) = item { name.to_string() } else { String::new() }).collect()
}

#[test]
fn a_deletion_does_not_wait_for_many_that_fail() {
    let mut queue = FairQueue::default();
    let new = Flow { operation: Operation::Delete, ..flow("a") };
    let failed = Flow { has_failed: true, ..new.clone() };
    let goes = |number: u8| WorkItem::Volume(format!("pv-{number}"));
    (0..9).for_each(|number| queue.enqueue(&goes(number), "c", failed.clone(), NOW));
    queue.enqueue(&goes(9), "c", new.clone(), NOW);
    let mut order = Vec::new();
    for _ in 0..3 {
        let turn = queue.dispatch("c", &FreeSlots { free: 1, ..FreeSlots::for_all() }, NOW).next().cloned().unwrap();
        queue.dequeue(&turn);
        queue.record_dispatch("c", if turn == goes(9) { &new } else { &failed });
        order.push(turn);
    }
    assert_eq!(order, [goes(0), goes(9), goes(1)], "they take turns");
}

#[test]
fn the_first_item_has_the_first_turn_and_keeps_it_when_it_asks_again() {
    let mut queue = fair_queue(&["a/1", "a/2", "a/3"]);
    queue.enqueue(&claim("a/1"), "c", flow("a"), NOW);
    assert_eq!(dispatch(&queue, FreeSlots { free: 2, ..FreeSlots::for_all() }), ["a/1", "a/2"]);
    queue.enqueue(&claim("a/2"), "c", on("a", "n"), NOW);
    assert_eq!(dispatch(&queue, FreeSlots::for_all()), ["a/1", "a/2", "a/3"], "also where it learns of its node");
    let position = queue.dequeue(&claim("a/1")).unwrap();
    assert_eq!((position.class.as_str(), position.number), ("c", 1));
    assert_eq!(dispatch(&queue, FreeSlots::for_all()), ["a/2", "a/3"]);
    assert_eq!(queue.dequeue(&claim("a/1")), None);
    assert_eq!(queue.dispatch("other", &FreeSlots::for_all(), NOW).count(), 0);
}

#[test]
fn a_new_claim_does_not_wait_for_many_deletions() {
    let mut queue = FairQueue::default();
    let deletes = Flow { operation: Operation::Delete, ..flow("a") };
    let goes = |number: u8| WorkItem::Volume(format!("pv-{number}"));
    (0..9).for_each(|number| queue.enqueue(&goes(number), "c", deletes.clone(), NOW));
    let makes = flow("a");
    queue.enqueue(&claim("a/1"), "c", makes.clone(), NOW);
    queue.enqueue(&claim("a/2"), "c", makes.clone(), NOW);
    let mut order = Vec::new();
    for _ in 0..4 {
        let turn = queue.dispatch("c", &FreeSlots { free: 1, ..FreeSlots::for_all() }, NOW).next().cloned().unwrap();
        queue.dequeue(&turn);
        queue.record_dispatch("c", if matches!(turn, WorkItem::Volume(_)) { &deletes } else { &makes });
        order.push(turn);
    }
    assert_eq!(order, [goes(0), claim("a/1"), goes(1), claim("a/2")], "they take turns");
}

#[test]
fn a_new_claim_does_not_wait_for_many_claims_that_fail_and_these_do_not_wait_for_new_ones() {
    let (makes, failed) = (flow("a"), Flow { has_failed: true, ..flow("a") });
    let mut queue = FairQueue::default();
    for number in 0..9 {
        queue.enqueue(&claim(&format!("a/failed-{number}")), "c", failed.clone(), NOW);
    }
    for number in 0..9 {
        queue.enqueue(&claim(&format!("a/new-{number}")), "c", makes.clone(), NOW);
    }
    let mut order = Vec::new();
    for _ in 0..4 {
        let turn = queue.dispatch("c", &FreeSlots { free: 1, ..FreeSlots::for_all() }, NOW).next().cloned().unwrap();
        let WorkItem::Claim(name) = &turn else { panic!("{turn:?}") };
        queue.dequeue(&turn);
        queue.record_dispatch("c", if name.name.starts_with("failed") { &failed } else { &makes });
        order.push(name.name.clone());
    }
    assert_eq!(order, ["failed-0", "new-0", "failed-1", "new-1"]);
}

#[test]
fn an_operation_with_an_outage_has_one_turn_and_delays_no_other() {
    let mut queue = fair_queue(&["a/1", "a/2", "b/1"]);
    let goes = WorkItem::Volume("pv".into());
    queue.enqueue(&goes, "c", Flow { operation: Operation::Delete, ..flow("a") }, NOW);
    for (left, provisions) in [(1, vec![claim("a/1")]), (0, vec![])] {
        let in_outage = || BTreeMap::from([(Operation::Provision, left)]);
        let free_slots = FreeSlots { in_outage: in_outage(), ..FreeSlots::for_all() };
        let turns: Vec<_> = queue.dispatch("c", &free_slots, NOW).cloned().collect();
        assert!(turns.contains(&goes), "{turns:?}");
        let others: Vec<_> = turns.into_iter().filter(|item| *item != goes).collect();
        assert_eq!(others, provisions);
        let is_next = |item: &WorkItem, flow: &Flow| {
            let free_slots = FreeSlots { in_outage: in_outage(), ..FreeSlots::for_all() };
            queue.is_next(item, flow, "c", &free_slots, NOW)
        };
        assert_eq!(is_next(&claim("a/1"), &flow("a")), left == 1);
        assert!(
            !is_next(&claim("b/1"), &flow("b"))
                && is_next(&claim("z/1"), &Flow { operation: Operation::Expand, ..flow("z") })
        );
    }
}

#[test]
fn a_claim_that_comes_during_a_drain_has_one_of_the_next_two_turns() {
    for namespace in ["a", "b"] {
        let mut queue = FairQueue::default();
        let deletes = Flow { operation: Operation::Delete, ..flow("a") };
        (0..10_000)
            .for_each(|number| queue.enqueue(&WorkItem::Volume(format!("pv-{number}")), "c", deletes.clone(), NOW));
        let late = claim(&format!("{namespace}/late"));
        let mut waited = None;
        for turns in 0..102_u32 {
            if turns == 100 {
                queue.enqueue(&late, "c", flow(namespace), NOW);
            }
            let next =
                queue.dispatch("c", &FreeSlots { free: 1, ..FreeSlots::for_all() }, NOW).next().cloned().unwrap();
            queue.dequeue(&next);
            if next == late {
                waited = Some(turns - 100);
                break;
            }
            queue.record_dispatch("c", &deletes);
        }
        assert!(waited.is_some(), "a claim of namespace {namespace} waits behind the deletions");
    }
}

#[test]
fn a_namespace_that_asks_for_little_does_not_wait_behind_one_that_asks_for_much() {
    let mut queue = fair_queue(&["big/1", "big/2", "big/3", "big/4", "small/1"]);
    assert_eq!(dispatch(&queue, FreeSlots { free: 3, ..FreeSlots::for_all() }), ["big/1", "small/1", "big/2"]);
    let runs = HashMap::from([("big".into(), 7)]);
    let free_slots = FreeSlots { namespaces: slots(usize::MAX, runs), free: 2, ..FreeSlots::for_all() };
    let first: Vec<_> = queue.dispatch("c", &free_slots, NOW).cloned().collect();
    assert_eq!(first, [claim("small/1"), claim("big/1")], "it has fewer runs");
    // With one slot, nobody has runs when the slot is free.
    queue.dequeue(&claim("big/1"));
    queue.record_dispatch("c", &flow("big"));
    assert_eq!(dispatch(&queue, FreeSlots { free: 1, ..FreeSlots::for_all() }), ["small/1"]);
    queue.dequeue(&claim("small/1"));
    queue.record_dispatch("c", &flow("small"));
    queue.enqueue(&claim("small/2"), "c", flow("small"), NOW);
    assert_eq!(dispatch(&queue, FreeSlots { free: 1, ..FreeSlots::for_all() }), ["big/2"], "by turns");
    for new in 3..30 {
        let (namespace, first) =
            (format!("new-{new}"), dispatch(&queue, FreeSlots { free: 1, ..FreeSlots::for_all() }));
        queue.enqueue(&claim(&format!("{namespace}/1")), "c", flow(&namespace), NOW);
        assert_eq!(
            dispatch(&queue, FreeSlots { free: 1, ..FreeSlots::for_all() }),
            first,
            "a new namespace does not go before those that wait"
        );
    }
}

#[test]
fn a_full_namespace_or_node_delays_no_other() {
    let mut queue = fair_queue(&["a/1", "a/2", "b/1"]);
    let free_slots = FreeSlots { namespaces: slots(1, HashMap::from([("a".into(), 1)])), ..FreeSlots::for_all() };
    let all: Vec<_> = queue.dispatch("c", &free_slots, NOW).cloned().collect();
    assert_eq!(all, [claim("b/1")]);
    queue.enqueue(&claim("a/1"), "c", on("a", "n"), NOW);
    queue.enqueue(&claim("b/1"), "c", on("b", "n"), NOW);
    let free_slots = FreeSlots { nodes: slots(2, HashMap::from([("n".into(), 1)])), ..FreeSlots::for_all() };
    let all: Vec<_> = queue.dispatch("c", &free_slots, NOW).cloned().collect();
    assert_eq!(all, [claim("a/1"), claim("a/2")], "one more on the node, and the others elsewhere");
}

#[test]
fn pool_requests_have_the_last_turn() {
    let mut queue = fair_queue(&["a/1"]);
    for request in ["own/pool-1", "own/pool-2"] {
        queue.enqueue(&claim(request), "c", Flow { for_pool: true, ..flow("own") }, NOW);
    }
    queue.enqueue(&claim("a/2"), "c", flow("a"), NOW);
    assert_eq!(dispatch(&queue, FreeSlots { for_pool: 1, ..FreeSlots::for_all() }), ["a/1", "a/2", "own/pool-1"]);
    assert!(queue.has_claims("c", NOW));
    queue.dequeue(&claim("a/1"));
    queue.dequeue(&claim("a/2"));
    assert!(!queue.has_claims("c", NOW) && queue.classes().eq(["c"]));
}

#[test]
fn an_item_that_does_not_ask_again_leaves_the_queue() {
    let mut queue = fair_queue(&["a/1", "a/2"]);
    let later = NOW + ENTRY_TTL - Duration::from_secs(1);
    queue.enqueue(&claim("a/2"), "c", flow("a"), later);
    assert_eq!(
        queue.dispatch("c", &FreeSlots::for_all(), NOW + ENTRY_TTL).cloned().collect::<Vec<_>>(),
        [claim("a/2")]
    );
    queue.enqueue(&claim("a/3"), "c", flow("a"), NOW + ENTRY_TTL);
    assert_eq!(queue.flow_of(&claim("a/1"), "c"), None);
    assert_eq!(queue.flow_of(&claim("a/2"), "c"), Some(&flow("a")));
}

#[test]
fn an_item_that_asks_keeps_its_number_in_another_flow() {
    let queue = fair_queue(&["a/1", "a/2"]);
    let is_turn = |name: &str, flow: &Flow, free| {
        let (key, free_slots) = (
            claim(name),
            FreeSlots { free, nodes: slots(1, HashMap::from([("n".into(), 1)])), ..FreeSlots::for_all() },
        );
        queue.is_next(&key, flow, "c", &free_slots, NOW)
    };
    assert!(is_turn("a/1", &flow("a"), 1) && !is_turn("a/2", &flow("a"), 1));
    assert!(!is_turn("a/1", &on("a", "n"), 9), "its node is full");
    assert!(is_turn("a/2", &flow("a"), 2) && !is_turn("a/3", &flow("a"), 2) && is_turn("a/3", &flow("a"), 3));
    assert!(is_turn("b/1", &flow("b"), 2), "another namespace has its own turn");
}

proptest! {
    /// No item has two turns, no limit is exceeded, and while slots are free no item that fits is left out.
    #[test]
    fn dispatch_uses_all_slots_within_the_limits(
        waiting in prop::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..40),
        limits in (0..30_usize, 0..10_usize, 1..12_usize, 1..12_usize),
    ) {
        let mut line = FairQueue::default();
        for (number, (namespace, node, for_pool)) in waiting.iter().enumerate() {
            let node = (*node > 0).then(|| node.to_string());
            let lane = Flow { for_pool: *for_pool, node, ..flow(&namespace.to_string()) };
            line.enqueue(&WorkItem::Claim(ObjectName::new(namespace.to_string(), number.to_string())), "c", lane, NOW);
        }
        let (free, for_pool, per_namespace, per_node) = limits;
        let (namespaces, nodes) = (slots(per_namespace, HashMap::new()), slots(per_node, HashMap::new()));
        let free_slots = FreeSlots { free, for_pool, namespaces, nodes, ..FreeSlots::for_all() };
        let turns: Vec<&WorkItem> = line.dispatch("c", &free_slots, NOW).collect();
        let lanes: Vec<&Flow> = turns.iter().filter_map(|key| line.flow_of(key, "c")).collect();
        let mut distinct = turns.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), turns.len());
        let fits = |lanes: &[&Flow]| {
            let most = |of: &dyn Fn(&Flow) -> Option<String>| {
                let mut counts = HashMap::<String, usize>::new();
                lanes.iter().filter_map(|lane| of(lane)).for_each(|key| *counts.entry(key).or_default() += 1);
                counts.into_values().max().unwrap_or_default()
            };
            let pool = lanes.iter().filter(|lane| lane.for_pool).count();
            let namespaces = most(&|lane| Some(lane.namespace.clone()));
            lanes.len() <= free && pool <= for_pool && namespaces <= per_namespace && most(&|lane| lane.node.clone()) <= per_node
        };
        prop_assert!(fits(&lanes));
        for left in line.entries.keys().filter(|key| !turns.contains(key)) {
            let more: Vec<&Flow> = lanes.iter().copied().chain(line.flow_of(left, "c")).collect();
            prop_assert!(!fits(&more), "{:?} is left out", left);
        }
    }
}

proptest! {
    /// An item waits once, in its last class and flow, until it leaves.
    #[test]
    fn each_item_waits_once_until_it_leaves(
        operations in prop::collection::vec((0..8_u8, 0..2_usize, 0..3_u8, 0..4_u8), 0..60),
    ) {
        let (mut queue, mut waiting) = (FairQueue::default(), BTreeMap::<WorkItem, (&str, Flow)>::new());
        for (item, class, namespace, operation) in operations {
            let (key, class, flow) = (claim(&format!("x/{item}")), ["c", "d"][class], flow(&namespace.to_string()));
            match operation {
                0 => {
                    let left = queue.dequeue(&key).map(|position| position.class);
                    prop_assert_eq!(left.as_deref(), waiting.remove(&key).map(|(class, _)| class));
                }
                1 => queue.record_dispatch(class, &flow),
                _ => {
                    queue.enqueue(&key, class, flow.clone(), NOW);
                    waiting.insert(key, (class, flow));
                }
            }
            for class in ["c", "d"] {
                let mut turns: Vec<_> = queue.dispatch(class, &FreeSlots::for_all(), NOW).collect();
                turns.sort();
                let of_class: Vec<_> = waiting.iter().filter(|(_, (of, _))| *of == class).collect();
                prop_assert_eq!(&turns, &of_class.iter().map(|(key, _)| *key).collect::<Vec<_>>());
                prop_assert_eq!(queue.has_claims(class, NOW), !turns.is_empty());
                prop_assert!(of_class.iter().all(|(key, (class, flow))| queue.flow_of(key, class) == Some(flow)));
            }
        }
    }
}
