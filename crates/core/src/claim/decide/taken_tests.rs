//! Tests of the rules for claims whose volume another claim has taken.

use super::*;

/// Returns a claim whose volume another claim has taken, with the record of its attempt.
fn robbed(world: World) -> World {
    let recorded = RecordedAttempts { last: 1, ..RecordedAttempts::default() };
    with_volume(World { recorded, ..world }, taken_volume(), &["claimRef"])
}

/// Returns the stand-in for a claim that was deleted, and whose volume another claim has taken.
fn gone(other: OtherClaim, had: Had) -> World {
    let mut world = World { other, ..robbed(terminating()) };
    let record = RecordRef { name: ObjectName::new("own", "flex-record-j"), uid: "r".into(), had };
    world.claim = world.claim.stand_in(record, "7");
    world
}

#[test]
fn a_claim_whose_volume_another_claim_has_gets_no_other() {
    let mut world = World { run: RunState::Succeeded, jobs: vec![over(1)], ..robbed(stamped(1)) };
    let decision = world.decide_by(Rule::VolumeTakenByOther, NOW);
    assert_eq!(decision.step, Step::RecordTaken);
    let message = decision.event.unwrap().message;
    for part in ["but claim b/thief has taken it", "delete it, and create it again", "`flex-pv create`"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    world.recorded.taken = true;
    world.waits(Rule::VolumeTakenByOther, "but claim b/thief has taken it");
    // An admin keeps the data of the other claim without the volume, or lets others have the volume.
    world.volumes.clear();
    world.no_volume = true;
    world.waits(Rule::VolumeTakenByOther, "another claim has had the volume that was made for this claim");
    let by_name = Reference { name: ObjectName::new("c", "next"), uid: None };
    for claim_ref in [None, Some(by_name)] {
        let free = Volume { claim_ref, ..volume() };
        with_volume(world.clone(), free, &[]).waits(Rule::VolumeTakenByOther, "delete it, and create it again");
    }
    world.claim.last_failure = Some(failure(Operation::Provision, 1, 0, Reaction::Retry));
    world.claim.retry = true;
    World { foreign: true, ..world }.waits(Rule::VolumeTakenByOther, "create it again");
}

#[test]
fn a_claim_whose_volume_was_taken_gets_no_first_attempt_when_somebody_has_removed_its_stamp() {
    let mut world = robbed(new());
    world.class.recipe = Err("no provisioner config serves the class".into());
    assert_eq!(world.step(Rule::VolumeTakenByOther), Step::RecordTaken, "whatever the config says");
    world.recorded.taken = true;
    world.class.recipe = new().class.recipe;
    world.volumes.clear();
    world.waits(Rule::VolumeTakenByOther, "another claim has had the volume that was made for this claim");
    world.recorded.taken = false;
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 2, nodes: vec!["home".into()] });
    let unrecorded = World { recorded: RecordedAttempts::default(), ..robbed(new()) };
    World { pooled_volume: Some("pvc-ready"), ..unrecorded }
        .waits(Rule::VolumeTakenByOther, "but claim b/thief has taken it");
}

#[test]
fn a_volume_that_may_come_back_is_not_given_up() {
    for other in [OtherClaim::Unsure, OtherClaim::Elsewhere] {
        World { other, ..robbed(stamped(1)) }.waits(Rule::VolumeTakenByOther, "but claim b/thief has taken it");
    }
    adopts(Rule::AdoptVolume, &with_volume(stamped(1), volume(), &[]));
    let unrecorded = World { recorded: RecordedAttempts::default(), ..robbed(stamped(1)) };
    unrecorded.waits(Rule::VolumeTakenByOther, "but claim b/thief has taken it");
    let lost = RecordedAttempts { is_missing: true, ..RecordedAttempts::default() };
    assert_eq!(World { recorded: lost, ..robbed(stamped(1)) }.step(Rule::RecordLost), Step::Record);
}

#[test]
fn a_pool_request_whose_volume_was_taken_gets_no_pooled_volume() {
    let mut world = World { is_pool_request: true, ..robbed(stamped(1)) };
    assert_eq!(world.step(Rule::VolumeTakenByOther), Step::RecordTaken);
    world.recorded.taken = true;
    world.volumes = vec![(volume(), vec![])];
    world.waits(Rule::VolumeTakenByOther, "the pool requests another");
}

#[test]
fn a_claim_that_another_volume_has_keeps_its_hold_while_its_own_is_in_use() {
    let world = World { other: OtherClaim::Unsure, ..bound(robbed(stamped(1)), &names::pv_name(UID)) };
    world.waits(Rule::VolumeTakenByOther, "nothing is deleted while any claim may use it");
    let mut elsewhere = World { other: OtherClaim::Unsure, ..bound(robbed(stamped(1)), "pvc-another") };
    elsewhere.waits(Rule::VolumeTakenByOther, "nothing is deleted while any claim may use it");
    elsewhere.other = OtherClaim::Gone;
    adopts(Rule::AdoptLeftVolume, &elsewhere);
}

#[test]
fn what_a_claim_that_is_gone_left_is_not_deleted_while_another_claim_may_use_it() {
    assert_eq!(gone(OtherClaim::Has, Had::Nobody).step(Rule::VolumeTakenByOther), Step::RecordTaken);
    gone(OtherClaim::Unsure, Had::Nobody).waits(Rule::VolumeTakenByOther, "controllerrevision flex-record-j");
    let mut noted = gone(OtherClaim::Has, Had::Nobody);
    noted.recorded.taken = true;
    noted.waits(Rule::VolumeTakenByOther, "controllerrevision flex-record-j");
    let misnamed = Volume { name: "misnamed".into(), ..taken_volume() };
    let unnamed = World { volumes: vec![(misnamed, vec![])], no_volume: true, ..noted.clone() };
    World { other: OtherClaim::Gone, ..unnamed }.waits(Rule::VolumeTakenByOther, "volume misnamed was made for");
    noted.claim.abandoned = true;
    assert_eq!(noted.step(Rule::Abandoned), Step::EndHold);
}

#[test]
fn what_nobody_uses_any_more_is_deleted_as_its_volume_says() {
    for other in [OtherClaim::Elsewhere, OtherClaim::Gone] {
        for taken in [false, true] {
            let mut left = gone(other, Had::Nobody);
            left.recorded.taken = taken;
            let provenance = adopts(Rule::AdoptLeftVolume, &left);
            assert_eq!(provenance.effective_config, recipe_with(&[]).effective_config);
            left.volumes = vec![(adopted_volume(), vec![])];
            assert_eq!(left.step(Rule::LeftVolumeAdopted), Step::EndHold, "then its own reconciler deletes it");
        }
    }
    let mut retained = gone(OtherClaim::Gone, Had::Nobody);
    retained.volumes[0].0.reclaim_policy = "Retain".into();
    assert_eq!(retained.step(Rule::VolumeTakenByOther), Step::RecordTaken);
    retained.recorded.taken = true;
    retained.waits(Rule::VolumeTakenByOther, "if its reclaim policy is Delete");
    // Others may have it.
    retained.volumes = vec![(volume(), vec![])];
    retained.waits(Rule::VolumeTakenByOther, "another claim has had the volume");
}

#[test]
fn what_another_claim_had_is_not_deleted_without_its_volume() {
    let vanished = |had| {
        let world = gone(OtherClaim::Gone, had);
        let recorded = RecordedAttempts { taken: true, ..world.recorded.clone() };
        World { recorded, volumes: vec![], ..world }
    };
    assert_eq!(vanished(Had::Nobody).step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
    for had in [Had::Nobody, Had::Unknown] {
        let decision = World { no_volume: true, ..vanished(had) }.decide_by(Rule::LeftStorageUnknown, NOW);
        assert_eq!(decision.step, Step::Keep);
        let message = decision.event.unwrap().message;
        assert!(message.contains("another claim had the volume") && message.contains(UID), "{message}");
    }
    let kept = World { no_volume: true, ..vanished(Had::Kept) };
    assert_eq!(kept.step(Rule::LeftStorageRetained), Step::EndHold);
}
