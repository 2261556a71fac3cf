//! Tests of whose turn is next.

use proptest::prelude::*;

use super::*;
use crate::object::ObjectName;

const NOW: Duration = Duration::from_secs(100);

fn claim(name: &str) -> WorkItem {
    WorkItem::Claim(name.parse().expect("namespace/name"))
}

fn lane(namespace: &str) -> Lane {
    Lane { namespace: namespace.into(), ..Lane::default() }
}

fn on(namespace: &str, node: &str) -> Lane {
    Lane { node: Some(node.into()), ..lane(namespace) }
}

/// Returns a queue with these items, each in the flow of its namespace.
fn line(names: &[&str]) -> Line {
    let mut line = Line::default();
    for name in names {
        let namespace = name.split('/').next().unwrap_or_default();
        line.stand(&claim(name), "c", lane(namespace), NOW);
    }
    line
}

fn turns(line: &Line, room: Room<'_>) -> Vec<String> {
    let turns = line.turns("c", &room, NOW);
    turns.map(|key| if let WorkItem::Claim(name) = key { name.to_string() } else { String::new() }).collect()
}

#[test]
fn who_comes_first_has_the_first_place_and_asking_again_loses_none() {
    let mut line = line(&["a/1", "a/2", "a/3"]);
    line.stand(&claim("a/1"), "c", lane("a"), NOW);
    assert_eq!(turns(&line, Room { free: 2, ..Room::for_all() }), ["a/1", "a/2"]);
    line.stand(&claim("a/2"), "c", on("a", "n"), NOW);
    assert_eq!(turns(&line, Room::for_all()), ["a/1", "a/2", "a/3"], "also where it learns of its node");
    assert_eq!(line.leave(&claim("a/1")), Some(("c".to_owned(), 1)));
    assert_eq!(turns(&line, Room::for_all()), ["a/2", "a/3"]);
    assert_eq!(line.leave(&claim("a/1")), None);
    assert_eq!(line.turns("other", &Room::for_all(), NOW).count(), 0);
}

#[test]
fn a_new_claim_does_not_wait_for_the_deletion_of_many() {
    let mut line = Line::default();
    let deletes = Lane { deletes: true, ..lane("a") };
    let goes = |number: u8| WorkItem::Volume(format!("pv-{number}"));
    (0..9).for_each(|number| line.stand(&goes(number), "c", deletes.clone(), NOW));
    line.stand(&claim("a/1"), "c", lane("a"), NOW);
    line.stand(&claim("a/2"), "c", lane("a"), NOW);
    let mut order = Vec::new();
    for _ in 0..4 {
        let turn = line.turns("c", &Room { free: 1, ..Room::for_all() }, NOW).next().cloned().unwrap();
        line.leave(&turn);
        line.serve("c", &Lane { deletes: matches!(turn, WorkItem::Volume(_)), ..lane("a") });
        order.push(turn);
    }
    assert_eq!(order, [goes(0), claim("a/1"), goes(1), claim("a/2")], "they take turns");
}

#[test]
fn a_namespace_that_asks_for_little_does_not_wait_behind_one_that_asks_for_much() {
    let mut line = line(&["big/1", "big/2", "big/3", "big/4", "small/1"]);
    assert_eq!(turns(&line, Room { free: 3, ..Room::for_all() }), ["big/1", "small/1", "big/2"]);
    let runs = HashMap::from([("big", 7)]);
    let room = Room { namespaces: (usize::MAX, runs), free: 2, ..Room::for_all() };
    let first: Vec<_> = line.turns("c", &room, NOW).cloned().collect();
    assert_eq!(first, [claim("small/1"), claim("big/1")], "it has fewer runs");
    // With one slot, nobody has runs when the slot is free.
    line.leave(&claim("big/1"));
    line.serve("c", &lane("big"));
    assert_eq!(turns(&line, Room { free: 1, ..Room::for_all() }), ["small/1"]);
    line.leave(&claim("small/1"));
    line.serve("c", &lane("small"));
    line.stand(&claim("small/2"), "c", lane("small"), NOW);
    assert_eq!(turns(&line, Room { free: 1, ..Room::for_all() }), ["big/2"], "by turns");
    for new in 3..30 {
        let (namespace, first) = (format!("new-{new}"), turns(&line, Room { free: 1, ..Room::for_all() }));
        line.stand(&claim(&format!("{namespace}/1")), "c", lane(&namespace), NOW);
        assert_eq!(
            turns(&line, Room { free: 1, ..Room::for_all() }),
            first,
            "who comes new does not go before those who wait"
        );
    }
}

#[test]
fn what_is_full_keeps_no_other_from_its_turn() {
    let mut line = line(&["a/1", "a/2", "b/1"]);
    let room = Room { namespaces: (1, HashMap::from([("a", 1)])), ..Room::for_all() };
    let all: Vec<_> = line.turns("c", &room, NOW).cloned().collect();
    assert_eq!(all, [claim("b/1")]);
    line.stand(&claim("a/1"), "c", on("a", "n"), NOW);
    line.stand(&claim("b/1"), "c", on("b", "n"), NOW);
    let room = Room { nodes: (2, HashMap::from([("n", 1)])), ..Room::for_all() };
    let all: Vec<_> = line.turns("c", &room, NOW).cloned().collect();
    assert_eq!(all, [claim("a/1"), claim("a/2")], "one more on the node, and the others elsewhere");
}

#[test]
fn what_is_kept_ready_comes_last() {
    let mut line = line(&["a/1"]);
    for request in ["own/pool-1", "own/pool-2"] {
        line.stand(&claim(request), "c", Lane { for_pool: true, ..lane("own") }, NOW);
    }
    line.stand(&claim("a/2"), "c", lane("a"), NOW);
    assert_eq!(turns(&line, Room { for_pool: 1, ..Room::for_all() }), ["a/1", "a/2", "own/pool-1"]);
    assert!(line.has_claims("c", NOW));
    line.leave(&claim("a/1"));
    line.leave(&claim("a/2"));
    assert!(!line.has_claims("c", NOW) && line.classes().eq(["c"]));
}

#[test]
fn who_does_not_ask_again_has_gone() {
    let mut line = line(&["a/1", "a/2"]);
    let later = NOW + IN_LINE - Duration::from_secs(1);
    line.stand(&claim("a/2"), "c", lane("a"), later);
    assert_eq!(line.turns("c", &Room::for_all(), NOW + IN_LINE).cloned().collect::<Vec<_>>(), [claim("a/2")]);
    line.stand(&claim("a/3"), "c", lane("a"), NOW + IN_LINE);
    assert_eq!(line.lane_of(&claim("a/1"), "c"), None);
    assert_eq!(line.lane_of(&claim("a/2"), "c"), Some(&lane("a")));
}

#[test]
fn who_asks_stands_where_it_says_with_the_number_that_it_has() {
    let line = line(&["a/1", "a/2"]);
    let is_turn = |name: &str, lane: &Lane, free| {
        let (key, room) = (claim(name), Room { free, nodes: (1, HashMap::from([("n", 1)])), ..Room::for_all() });
        line.is_turn_of(&key, lane, "c", &room, NOW)
    };
    assert!(is_turn("a/1", &lane("a"), 1) && !is_turn("a/2", &lane("a"), 1));
    assert!(!is_turn("a/1", &on("a", "n"), 9), "its node is full");
    assert!(is_turn("a/2", &lane("a"), 2) && !is_turn("a/3", &lane("a"), 2) && is_turn("a/3", &lane("a"), 3));
    assert!(is_turn("b/1", &lane("b"), 2), "another namespace has its own turn");
}

proptest! {
    /// No item has two turns, no limit is exceeded, and while slots are free no item that fits is left out.
    #[test]
    fn places_are_given_as_far_as_they_go(
        waiting in prop::collection::vec((0..4_u8, 0..3_u8, any::<bool>()), 0..40),
        limits in (0..30_usize, 0..10_usize, 1..12_usize, 1..12_usize),
    ) {
        let mut line = Line::default();
        for (number, (namespace, node, for_pool)) in waiting.iter().enumerate() {
            let node = (*node > 0).then(|| node.to_string());
            let lane = Lane { for_pool: *for_pool, namespace: namespace.to_string(), deletes: false, node };
            line.stand(&WorkItem::Claim(ObjectName::new(namespace.to_string(), number.to_string())), "c", lane, NOW);
        }
        let (free, for_pool, per_namespace, per_node) = limits;
        let room = Room { free, for_pool, namespaces: (per_namespace, HashMap::new()), nodes: (per_node, HashMap::new()) };
        let turns: Vec<&WorkItem> = line.turns("c", &room, NOW).collect();
        let lanes: Vec<&Lane> = turns.iter().filter_map(|key| line.lane_of(key, "c")).collect();
        let mut distinct = turns.clone();
        distinct.sort();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), turns.len());
        let fits = |lanes: &[&Lane]| {
            let most = |of: &dyn Fn(&Lane) -> Option<String>| {
                let mut counts = HashMap::<String, usize>::new();
                lanes.iter().filter_map(|lane| of(lane)).for_each(|key| *counts.entry(key).or_default() += 1);
                counts.into_values().max().unwrap_or_default()
            };
            let pool = lanes.iter().filter(|lane| lane.for_pool).count();
            let namespaces = most(&|lane| Some(lane.namespace.clone()));
            lanes.len() <= free && pool <= for_pool && namespaces <= per_namespace && most(&|lane| lane.node.clone()) <= per_node
        };
        prop_assert!(fits(&lanes));
        for left in line.places.keys().filter(|key| !turns.contains(key)) {
            let more: Vec<&Lane> = lanes.iter().copied().chain(line.lane_of(left, "c")).collect();
            prop_assert!(!fits(&more), "{:?} is left out", left);
        }
    }
}
