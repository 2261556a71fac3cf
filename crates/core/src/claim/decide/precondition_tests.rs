//! Tests of the preconditions of an attempt.

use super::*;

/// Returns the rules that decide while one precondition after the other comes to hold.
fn rules(mut world: World) -> Vec<Rule> {
    (world.pooled_volume, world.quota_refusal) = (Some("pvc-ready"), Some("full"));
    (world.has_namesake, world.left_refusal) = (true, Some("much"));
    (world.has_revision, world.has_slot) = (false, false);
    world.node_choice = NodeChoice::default();
    let comes_to_hold: [fn(&mut World); 8] = [
        |_| {},
        |world| world.pooled_volume = None,
        |world| world.quota_refusal = None,
        |world| world.has_namesake = false,
        |world| world.left_refusal = None,
        |world| world.node_choice = new().node_choice,
        |world| world.has_revision = true,
        |world| world.has_slot = true,
    ];
    let mut rules = Vec::new();
    for change in comes_to_hold {
        change(&mut world);
        rules.push(world.decide(NOW + 3600).rule);
    }
    rules.dedup();
    rules
}

#[test]
fn the_first_precondition_that_does_not_hold_decides() {
    let for_others = [Rule::AssignPooledVolume, Rule::QuotaReached, Rule::NamesakeNotUndone, Rule::TooMuchLeft];
    let to_begin = [Rule::NoNodeForRun, Rule::RevisionNotStored, run(RunRule::NoFreeSlot)];
    let first = [&for_others[..], &to_begin, &[Rule::FirstAttemptDue]].concat();
    assert_eq!(rules(new()), first);
    let next = [&[Rule::QuotaReached][..], &to_begin, &[run(RunRule::AttemptDue)]].concat();
    assert_eq!(rules(failed_with(Reaction::Retry)), next, "what was begun waits for less");
}

#[test]
fn a_claim_that_cannot_be_served_gets_an_event() {
    let mut world = new();
    world.class.recipe = Err("no provisioner config serves the class".into());
    world.waits(Rule::ConfigUnusable, "no provisioner config serves the class");

    let with = |keys: &[(&str, &str)], change: fn(&mut Claim)| {
        let mut world = new();
        world.class.recipe = Ok(Arc::new(recipe_with(keys)));
        change(&mut world.claim);
        world
    };
    with(&[("min-size", "2Gi")], |_| {})
        .waits(Rule::ClaimRefused, "asks for 1Gi, and class silver provides at least 2Gi; ask for more");
    with(&[("max-size", "1Mi")], |_| {})
        .waits(Rule::ClaimRefused, "asks for 1Gi, and class silver provides at most 1Mi; ask for less");
    with(&[("access-modes", "ReadWriteMany")], |_| {})
        .waits(Rule::ClaimRefused, "does not allow the access mode ReadWriteOnce; it allows ReadWriteMany");
    with(&[("volume-mode", "Block")], |_| {})
        .waits(Rule::ClaimRefused, "does not allow the volume mode Filesystem; it allows Block");
    with(&[], |claim| claim.size = Err("no size".into())).waits(Rule::ClaimRefused, "no size");
    with(&[], |claim| claim.has_selector = true).waits(Rule::ClaimRefused, "remove the selector");
    // A label that its user wrote does not make a claim a pool request.
    with(&[], |claim| (claim.has_selector, claim.for_pool) = (true, true))
        .waits(Rule::ClaimRefused, "remove the selector");
    with(&[], |claim| claim.data_source = Some(DataSource::Unknown("VolumeSnapshot s".into())))
        .waits(Rule::ClaimRefused, "data source is VolumeSnapshot s");
    with(&[("capabilities", "clone, snapshot")], |claim| claim.data_source = Some(DataSource::Dropped))
        .waits(Rule::ClaimRefused, "makes no empty volume instead");
    with(&[], |claim| claim.data_source = Some(DataSource::Claim(ObjectName::new("team", "a")))).waits(
        Rule::ClaimRefused,
        "data source is claim team/a, but the provisioner config admin/silver of class silver does not declare",
    );
    let gold = with(&[], |claim| claim.attributes_class = Some("gold".into()));
    World { attributes_error: Some("there is no VolumeAttributesClass gold"), ..gold }
        .waits(Rule::AttributesUnavailable, "there is no VolumeAttributesClass gold");
}
