//! Tests of the rules for claims that get a pooled volume, and for pool requests.

use super::*;

/// Returns the volume of a request when it is ready.
fn ready_volume() -> Volume {
    let pool_hash = recipe_with(&[]).effective_config.pool_hash();
    let reference = Reference { name: ObjectName::new("own", UID), uid: None };
    let pool_size = new().claim.size.ok();
    Volume { pool: Some(pool_hash), pool_size, claim_uid: None, claim_ref: Some(reference), ..adopted_volume() }
}

fn request(mut world: World) -> World {
    world.is_pool_request = true;
    world
}

#[test]
fn a_pooled_volume_is_assigned_without_slot_or_quota() {
    let mut world = World {
        pooled_volume: Some("pvc-ready"),
        quota_refusal: Some("full"),
        has_slot: false,
        has_revision: false,
        ..new()
    };
    let take = Step::AssignPooledVolume { volume: "pvc-ready".into() };
    assert_eq!(world.step(Rule::AssignPooledVolume), take);
    world.attributes_error = Some("no such attributes");
    world.waits(Rule::AttributesUnavailable, "no such attributes");
    let mut begun = stamped(1);
    begun.pooled_volume = Some("pvc-ready");
    assert_ne!(begun.step(run(RunRule::RunDue)), take, "what was begun goes on");
    let mut late = delayed(new(), None);
    late.pooled_volume = Some("pvc-ready");
    late.rests(Rule::WaitForFirstConsumer);
}

#[test]
fn an_assigned_volume_is_bound_after_the_pv_controller_has_seen_it() {
    let given = Volume { name: "pvc-ready".into(), volume_id_annotation: Some("ready".into()), ..adopted_volume() };
    let mut world = with_volume(new(), given.clone(), &["name"]);
    world.pooled_volume = Some("pvc-another");
    world.rests(Rule::WaitForBinding);
    world.seen_by_probe = true;
    assert_eq!(world.step(Rule::BindPooledVolume), Step::Bind { volume: "pvc-ready".into() });
    world.binding = Binding::Controller;
    world.rests(Rule::WaitForBinding);
    let terminating = Volume { terminating: true, ..given };
    let world = with_volume(World { binding: Binding::Controller, ..new() }, terminating, &["name"]);
    assert_eq!(world.step(Rule::NameVolume), Step::SetVolumeName { volume: "pvc-ready".into() });
}

#[test]
fn a_claim_that_the_pv_controller_bound_to_a_pooled_volume_gets_a_stamp() {
    let taken = Volume { name: "pvc-ready".into(), volume_id_annotation: Some("ready".into()), ..adopted_volume() };
    bound(with_volume(new(), taken.clone(), &["name"]), "pvc-ready").rests(Rule::Settled);
    let given = Volume { pool_size: Some(1), ..taken };
    let mut world = bound(with_volume(new(), given, &["name"]), "pvc-ready");
    assert_eq!(world.step(Rule::BoundToPooledVolume), Step::BackfillStamp { volume: "pvc-ready".into() });
    world.claim.terminating = true;
    world.rests(Rule::Settled);
    let mut stamped = bound(with_volume(stamped(1), adopted_volume(), &[]), &names::pv_name(UID));
    stamped.claim.held = false;
    stamped.rests(Rule::Settled);
    bound(new(), "static").rests(Rule::Settled);
}

#[test]
fn the_volume_of_a_pool_request_is_adopted_and_the_request_is_completed() {
    let mut world = request(with_volume(stamped(1), volume(), &[]));
    world.run = RunState::MayBeRunning;
    adopts(Rule::AdoptPooledVolume, &world);
    adopts(Rule::AdoptPooledVolume, &request(with_volume(stamped(1), adopted_volume(), &[])));
    let older = Volume { pool: Some("older".into()), ..ready_volume() };
    adopts(Rule::AdoptPooledVolume, &request(with_volume(stamped(1), older, &[])));
    world.volumes = vec![(ready_volume(), vec![])];
    assert_eq!(world.step(Rule::CompletePoolRequest), Step::CompletePoolRequest);
    (world.jobs, world.has_running_pods) = (vec![job(1)], true);
    assert_eq!(world.step(Rule::CompletePoolRequest), Step::CompletePoolRequest, "the volume is on its own");
    world.claim.terminating = true;
    assert_eq!(world.step(Rule::PoolRequestTerminating), Step::EndHold);
    let by_controller = bound(request(with_volume(stamped(1), ready_volume(), &[])), &names::pv_name(UID));
    assert_eq!(by_controller.step(Rule::CompletePoolRequest), Step::CompletePoolRequest);
}

#[test]
fn a_pool_request_is_completed_when_a_claim_has_its_volume() {
    for uid in [Some("another"), None] {
        let reference = Reference { name: ObjectName::new("team", "data"), uid: Some("another".into()) };
        let claim_uid = uid.map(str::to_owned);
        let given = Volume { pool: None, claim_uid, claim_ref: Some(reference), ..ready_volume() };
        let mut world = request(with_volume(stamped(1), given, &["claimRef"]));
        assert_eq!(world.step(Rule::CompletePoolRequest), Step::CompletePoolRequest);
        world.claim.terminating = true;
        assert_eq!(world.step(Rule::PoolRequestTerminating), Step::EndHold);
    }
}

#[test]
fn a_terminating_pool_request_is_cleaned_up_like_a_claim() {
    let mut world = request(terminating());
    world.jobs = vec![job(1)];
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1).name });
    world.jobs.clear();
    assert_eq!(world.step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
    let world = request(with_volume(terminating(), volume(), &[]));
    adopts(Rule::AdoptLeftVolume, &world);
}
