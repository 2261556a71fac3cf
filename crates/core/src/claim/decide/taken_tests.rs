//! Tests of the rules for claims whose volume another claim has taken.

use super::*;

/// Returns a claim whose volume another claim has taken, with the record of its attempt.
fn robbed(world: World) -> World {
    let recorded = RecordedAttempts { last: 1, ..RecordedAttempts::default() };
    with_volume(World { recorded, ..world }, taken_volume(), &["claimRef"])
}

/// Returns the stand-in for a claim that was deleted, and whose volume another claim has taken.
fn gone(is_let_go: bool) -> World {
    let mut world = World { is_let_go, ..robbed(terminating()) };
    let record = RecordRef { name: ObjectName::new("own", "flex-record-j"), uid: "r".into(), had: Had::Nobody };
    world.claim = world.claim.stand_in(record, "7");
    world
}

#[test]
fn a_claim_whose_volume_another_claim_has_gets_no_run() {
    let mut world = World { run: RunState::Succeeded, jobs: vec![over(1)], ..robbed(stamped(1)) };
    for is_let_go in [false, true] {
        world.is_let_go = is_let_go;
        world.waits(Rule::VolumeTakenByOther, "but claim b/thief has taken it; delete this claim, and create it again");
    }
    world.claim.last_failure = Some(failure(Operation::Provision, 1, 0, Reaction::Retry));
    world.claim.retry = true;
    world.waits(Rule::VolumeTakenByOther, "ask an admin to install them");
    World { foreign: true, ..world.clone() }.waits(Rule::VolumeTakenByOther, "ask an admin to install them");
    World { is_pool_request: true, ..world }.waits(Rule::VolumeTakenByOther, "has taken it");
    let lost = RecordedAttempts { is_missing: true, ..RecordedAttempts::default() };
    assert_eq!(World { recorded: lost, ..robbed(stamped(1)) }.step(Rule::RecordLost), Step::Record);
    adopts(Rule::AdoptVolume, &with_volume(stamped(1), volume(), &[]));
}

/// Somebody may have removed the stamp. Another one is written, and no run follows.
#[test]
fn a_claim_without_its_stamp_whose_volume_another_claim_has_gets_no_run() {
    let mut world = robbed(new());
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 2, nodes: vec!["home".into()] });
    world.carry_out(Step::Stamp { attempt: 2, nodes: vec!["home".into()] });
    world.waits(Rule::VolumeTakenByOther, "has taken it");
}

/// Anybody who knows the UID of a claim could make such a volume.
#[test]
fn a_volume_with_a_wrong_name_blocks_no_claim_that_has_the_right_one() {
    let misnamed = Volume { name: "misnamed".into(), ..taken_volume() };
    let without = with_volume(stamped(1), misnamed.clone(), &["name", "claimRef"]);
    without.waits(Rule::VolumeTakenByOther, "volume misnamed was made for this claim");
    adopts(Rule::AdoptVolume, &with_volume(without, volume(), &[]));
    let mut left = gone(true);
    left.volumes[0].0 = misnamed;
    World { no_volume: true, ..left }.waits(Rule::VolumeTakenByOther, "volume misnamed was made for this claim");
}

#[test]
fn what_another_claim_may_use_is_not_deleted() {
    gone(false).waits(Rule::VolumeTakenByOther, "controllerrevision flex-record-j");
    let own = bound(robbed(stamped(1)), &names::pv_name(UID));
    own.waits(Rule::VolumeTakenByOther, "delete this claim, and create it again");
    let mut elsewhere = bound(robbed(stamped(1)), "pvc-another");
    elsewhere.waits(Rule::VolumeTakenByOther, "nothing is deleted while that claim may use it");
    elsewhere.is_let_go = true;
    adopts(Rule::AdoptLeftVolume, &elsewhere);
    let mut abandoned = gone(false);
    abandoned.claim.abandoned = true;
    assert_eq!(abandoned.step(Rule::Abandoned), Step::EndHold);
}

#[test]
fn what_nobody_uses_any_more_is_deleted_as_its_volume_says() {
    let mut left = gone(true);
    assert_eq!(adopts(Rule::AdoptLeftVolume, &left).effective_config, recipe_with(&[]).effective_config);
    left.volumes = vec![(adopted_volume(), vec![])];
    assert_eq!(left.step(Rule::LeftVolumeAdopted), Step::EndHold, "then its own reconciler deletes it");
    let mut retained = gone(true);
    for terminating in [false, true] {
        let volume = &mut retained.volumes[0].0;
        (volume.reclaim_policy, volume.terminating) = ("Retain".into(), terminating);
        assert_eq!(retained.step(Rule::VolumeRetained), Step::EndHold);
    }
    retained.is_let_go = false;
    retained.waits(Rule::VolumeTakenByOther, "if its reclaim policy is Delete");
}
