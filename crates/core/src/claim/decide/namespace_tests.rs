//! Tests of claims whose namespace the class does not serve.

use super::*;
use crate::claim::admit::namespace_refusal;
use crate::model::namespace::{Namespace, Namespaces};

/// Returns the claim as its class sees it, which serves no claim of its namespace.
fn not_served(world: World) -> World {
    World { namespace_refusal: Some("class silver does not serve the namespace team"), ..world }
}

#[test]
fn a_claim_of_another_namespace_is_told_before_a_pod_uses_it_and_gets_nothing() {
    let too_large = {
        let mut world = new();
        world.class.recipe = Ok(Arc::new(recipe_with(&[("max-size", "1Mi")])));
        world
    };
    for world in [
        new(),
        delayed(new(), None),
        World { pooled_volume: Some("pvc-ready"), ..new() },
        World { quota_refusal: Some("full"), ..new() },
        World { has_slot: false, ..new() },
        too_large,
    ] {
        not_served(world).waits(Rule::ClaimRefused, "does not serve the namespace team");
    }
    let event = not_served(new()).decide(NOW).event.unwrap();
    assert_eq!((event.warning, event.reason), (true, reason::PROVISIONING_FAILED));
}

#[test]
fn what_has_begun_for_a_claim_goes_on_when_its_namespace_is_served_no_more() {
    let running = World { run: RunState::MayBeRunning, jobs: vec![job(1)], ..stamped(1) };
    let bound_to = |name: &str| bound(new(), name);
    let made = with_volume(stamped(1), volume(), &[]);
    for world in [running, made.clone(), with_volume(stamped(1), known_volume(), &[]), bound_to("pvc-of-somebody")] {
        let decision = world.decide(NOW);
        assert_ne!(decision.rule, Rule::ClaimRefused);
        assert_eq!(not_served(world).decide(NOW), decision);
    }
    assert!(matches!(not_served(made).step(Rule::AdoptVolume), Step::Adopt { .. }));
    // No later attempt begins, nor one for which there is only a stamp, which its user may have written.
    let failed = not_served(failed_with(Reaction::Retry));
    let refused = failed.decide_by(Rule::ClaimRefused, NOW + 3600);
    assert_eq!(refused.step, Step::Nothing);
    not_served(stamped(1)).waits(Rule::ClaimRefused, "does not serve the namespace team");
    assert_eq!(stamped(1).step(run(RunRule::RunDue)), Step::StartRun, "and it goes on once the namespace is served");
}

#[test]
fn the_event_names_the_keys_and_their_config() {
    let claim = new().claim;
    let mut namespaces = Namespaces::default();
    let refused = |keys: &[(&str, &str)], namespaces: &Namespaces, is_request: bool| {
        namespace_refusal(&claim, &recipe_with(keys), namespaces, is_request)
    };
    let (names, by_label) = (("namespaces", "a, b"), ("namespace-selector", "tier=gold"));
    assert_eq!(refused(&[], &namespaces, false), None);
    assert_eq!(refused(&[("namespaces", "a, team")], &namespaces, false), None);
    let why = refused(&[names], &namespaces, false).unwrap();
    assert!(why.starts_with(
        "class silver does not serve the namespace team, by `namespaces` of the provisioner config admin/silver; use"
    ));
    let why = refused(&[by_label], &namespaces, false).unwrap();
    assert!(
        why.contains("`namespace-selector` of the provisioner config admin/silver") && why.contains("not known yet")
    );
    for (labels, is_served) in [(&[("tier", "silver")][..], false), (&[], false), (&[("tier", "gold")], true)] {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert!(namespaces.apply(Namespace { name: "team".into(), labels }));
        let why = refused(&[names, by_label], &namespaces, false);
        assert_eq!(why.is_none(), is_served, "{why:?}");
        assert!(why.is_none_or(|why| why.contains("by `namespaces` and `namespace-selector` of")));
    }
    assert_eq!(refused(&[names], &namespaces, true), None, "the request of a pool is in the orchestrator's namespace");
}
