//! Tests of the order of the preconditions.

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
