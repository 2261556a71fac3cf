//! Tests of the overview.

use super::collect::{Scope, overview, overview_in_parts};
use super::testing::{NOW, cluster};
use super::*;
use crate::clock::Clock;
use crate::state::ClusterState;
use crate::state::testing::default_identity;

/// Returns the overview of all classes in the cluster of the tests.
fn seen(scope: Scope) -> Overview {
    overview(&cluster(), ("default", None), scope, NOW, true)
}

#[test]
fn scripts_get_all_claims_and_people_those_that_are_not_bound() {
    let names = |overview: &Overview| -> Vec<String> { overview.claims.iter().map(|row| row.claim.clone()).collect() };
    let whole = seen(Scope::Whole);
    assert_eq!(names(&whole), ["team/bound", "team/cannot", "team/fails", "team/runs", "team/waits"]);
    let open = seen(Scope::Open(usize::MAX));
    assert_eq!(names(&open), ["team/fails", "team/waits", "team/cannot", "team/runs"]);
    let counts = |overview: &Overview| overview.classes.iter().map(|class| class.claims.clone()).collect::<Vec<_>>();
    assert_eq!(counts(&whole), counts(&open));
    let volumes = |overview: &Overview| overview.volumes.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (volumes(&whole), volumes(&open)),
        (vec!["pvc-bound".into(), "pvc-stays".into()], vec!["pvc-stays".into()])
    );
}

#[test]
fn a_limit_keeps_the_most_urgent_claims_and_says_how_many_more_there_are() {
    let overview = seen(Scope::Open(2));
    let kept: Vec<_> = overview.claims.iter().map(|row| row.claim.as_str()).collect();
    assert_eq!((kept, overview.more_claims), (vec!["team/fails", "team/waits"], 2));
    let gold = overview.classes.iter().find(|class| class.name == "gold").unwrap();
    assert_eq!(gold.claims.values().sum::<usize>(), 4, "the counts are of all claims");
    assert!(gold.health.failing.is_some(), "the health of a class does not depend on the limit");
}

#[test]
fn an_overview_of_one_class_has_only_its_claims() {
    let overview = overview(&cluster(), ("default", Some("broken")), Scope::Whole, NOW, false);
    assert_eq!(overview.claims.iter().map(|row| row.claim.as_str()).collect::<Vec<_>>(), ["team/cannot"]);
    let [broken] = overview.classes.as_slice() else { panic!("{:?}", overview.classes) };
    assert_eq!((broken.name.as_str(), broken.runs), ("broken", None));
    assert!(broken.recipe.is_err());
}

#[test]
fn an_overview_in_parts_is_the_same() {
    let state = ClusterState::new(default_identity(), Clock::default());
    state.update(|index| {
        *index = cluster();
        []
    });
    for scope in [Scope::Whole, Scope::Open(1)] {
        let in_parts = overview_in_parts(&state, ("default", None), scope, NOW);
        assert_eq!(serde_json::to_value(in_parts).unwrap(), serde_json::to_value(seen(scope)).unwrap());
    }
}

#[test]
fn an_overview_survives_its_way_through_json() {
    for scope in [Scope::Whole, Scope::Open(usize::MAX)] {
        let text = serde_json::to_string(&seen(scope)).unwrap();
        let read: Overview = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
    }
}
