//! Tests of the rules for claims that have a volume.

use super::*;

#[test]
fn a_bound_volume_without_a_complete_adoption_is_adopted() {
    let world = bound(with_volume(stamped(1), volume(), &[]), &names::pv_name(UID));
    assert_eq!(adopts(Rule::AdoptBoundVolume, &world).effective_config, recipe_with(&[]).effective_config);
    for incomplete in [
        Volume { provenance: None, ..adopted_volume() },
        Volume { provenance: Some("{}".into()), ..adopted_volume() },
        Volume { adoption_mark: None, ..adopted_volume() },
        Volume { adoption_mark: Some("Adopted-0".into()), ..adopted_volume() },
        Volume { claim_ref: None, ..adopted_volume() },
        Volume { finalizers: vec![], ..adopted_volume() },
        Volume { provisioned_by: None, ..adopted_volume() },
        Volume { instance: None, ..adopted_volume() },
        Volume { volume_id_annotation: None, ..adopted_volume() },
        Volume { volume_id_annotation: Some("another".into()), ..adopted_volume() },
        Volume { claim_uid: None, ..adopted_volume() },
    ] {
        adopts(Rule::AdoptBoundVolume, &bound(with_volume(stamped(1), incomplete, &[]), &names::pv_name(UID)));
    }
}

#[test]
fn a_volume_without_the_uid_of_a_bound_claim_is_adopted_only_if_the_claim_still_exists() {
    let by_name = Reference { name: ObjectName::new("team", "data"), uid: None };
    for claim_ref in [None, Some(by_name)] {
        let restored = Volume { claim_ref, adoption_mark: None, ..adopted_volume() };
        let read = bound(with_volume(stamped(1), restored, &[]), &names::pv_name(UID));
        let cached = World { fresh: false, ..read.clone() };
        assert_eq!(cached.step(Rule::ReadClaimBeforeAdoption), Step::Refresh, "the claim may be gone");
        adopts(Rule::AdoptBoundVolume, &read);
        let pending =
            |world: &World| with_volume(World { fresh: world.fresh, ..stamped(1) }, world.volumes[0].0.clone(), &[]);
        assert_eq!(pending(&cached).step(Rule::ReadClaimBeforeAdoption), Step::Refresh, "also before it is bound");
        adopts(Rule::AdoptVolume, &pending(&read));
    }
    let unmarked = Volume { adoption_mark: None, ..adopted_volume() };
    let cached = World { fresh: false, ..bound(with_volume(stamped(1), unmarked, &[]), &names::pv_name(UID)) };
    adopts(Rule::AdoptBoundVolume, &cached);
}

#[test]
fn a_forged_provenance_is_replaced() {
    let provenance = Provenance {
        effective_config: recipe_with(&[("image", "theirs")]).effective_config,
        origin_node: None,
        moved_in: None,
        cluster: None,
        others: Vec::new(),
    };
    let forged = Volume { provenance: serde_json::to_string(&provenance).ok(), ..adopted_volume() };
    assert_eq!(
        adopts(Rule::AdoptVolume, &with_volume(stamped(1), forged, &[])).effective_config,
        recipe_with(&[]).effective_config
    );
}

/// Then the records of these attempts are settled.
#[test]
fn an_adopted_volume_names_the_attempts_with_other_configs() {
    let other = |zone: &str| OtherAttempt {
        effective_config: recipe_with(&[("zone", zone)]).effective_config,
        nodes: vec!["a".into()],
    };
    let recorded = RecordedAttempts { others: vec![other("a")], ..RecordedAttempts::default() };
    let found = World { recorded: recorded.clone(), ..with_volume(stamped(2), volume(), &[]) };
    let provenance = adopts(Rule::AdoptVolume, &found);
    assert_eq!(provenance.others, [other("a")]);

    let adopted = |provenance: &Provenance| {
        let text = serde_json::to_string(provenance).unwrap();
        let adoption_mark = Some(crate::model::volume::adoption_mark(&text, ""));
        Volume { provenance: Some(text), adoption_mark, ..known_volume() }
    };
    let both = Provenance { others: vec![other("a"), other("b")], ..provenance.clone() };
    for (volume, left) in [(&provenance, "a"), (&provenance, ""), (&both, "a"), (&both, "b"), (&both, "")] {
        let others = [left].into_iter().filter(|zone| !zone.is_empty()).map(other).collect();
        let recorded = RecordedAttempts { others, ..RecordedAttempts::default() };
        let world = World { recorded, ..with_volume(stamped(2), adopted(volume), &[]) };
        let bound = Step::Bind { volume: names::pv_name(UID) };
        assert_eq!(world.step(Rule::BindVolume), bound, "the records are settled one after the other");
    }
    let changed = Volume { instance: None, ..adopted(&provenance) };
    assert_eq!(adopts(Rule::AdoptVolume, &with_volume(stamped(2), changed, &[])).others, [other("a")]);
    let newer = Provenance { others: vec![other("b")], ..provenance.clone() };
    let late = World { recorded, ..with_volume(stamped(2), adopted(&newer), &[]) };
    assert_eq!(adopts(Rule::AdoptVolume, &late).others, [other("b"), other("a")], "a record came late");
    let forged = Volume { adoption_mark: None, ..adopted(&newer) };
    assert!(adopts(Rule::AdoptVolume, &with_volume(stamped(2), forged, &[])).others.is_empty());

    let large = OtherAttempt { nodes: vec!["n".repeat(crate::limits::RECIPE)], ..other("c") };
    let bounded = provenance.clone().with_others([large, other("b")].into_iter());
    assert_eq!(bounded.others, [other("a"), other("b")], "it has no room");
}

#[test]
fn a_bound_volume_without_recipe_is_reported_and_can_be_abandoned() {
    let mut world = bound(with_volume(terminating(), volume(), &[]), &names::pv_name(UID));
    (world.stamped_recipe, world.foreign) = (None, true);
    world.waits(
        Rule::AdoptionNeedsRecipe,
        "cannot be adopted: the provisioner config of the attempt is not known any more",
    );
    world.claim.abandoned = true;
    assert_eq!(world.step(Rule::Abandoned), Step::EndHold);
}

#[test]
fn a_bound_volume_that_does_not_fit_is_quarantined() {
    let mut world = bound(with_volume(stamped(1), volume(), &["a hostPath of /"]), &names::pv_name(UID));
    let decision = world.decide_by(Rule::QuarantineBoundVolume, NOW);
    assert_eq!(decision.step, Step::Quarantine { volume: names::pv_name(UID), why: "a hostPath of /".into() });
    assert!(decision.event.unwrap().message.contains("delete the claim, and find out who made the volume"));
    world.volumes[0].0.quarantine = Some("a hostPath of /".into());
    world.waits(Rule::BoundVolumeQuarantined, "is bound to volume");
    world.claim.terminating = true;
    assert!(matches!(world.step(Rule::AdoptBoundVolume), Step::Adopt { .. }), "it goes with the claim");
}

#[test]
fn a_claim_with_an_adopted_volume_loses_its_finalizer() {
    let mut world = bound(with_volume(stamped(1), adopted_volume(), &[]), &names::pv_name(UID));
    assert_eq!(world.step(Rule::BoundClaimHeld), Step::EndHold);
    world.jobs = vec![job(1)];
    world.has_running_pods = true;
    assert_eq!(
        world.step(Rule::BoundClaimHeld),
        Step::EndHold,
        "a bound claim owes nothing, whatever the image still does"
    );
    let retained = Volume { reclaim_policy: "Retain".into(), finalizers: vec![], ..adopted_volume() };
    assert_eq!(
        bound(with_volume(stamped(1), retained, &[]), &names::pv_name(UID)).step(Rule::BoundClaimHeld),
        Step::EndHold
    );
}

#[test]
fn a_claim_waits_for_a_volume_that_is_not_visible_yet() {
    bound(stamped(1), &names::pv_name(UID)).rests(Rule::BoundVolumeNotSeen);
}

#[test]
fn a_claim_that_is_bound_to_another_volume_is_cleaned_up() {
    let mut world = bound(stamped(1), "static");
    world.jobs = vec![job(1)];
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1).name });
    world.jobs.clear();
    assert_eq!(world.step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
}

#[test]
fn a_claim_deletes_the_storage_of_its_lost_volume() {
    let mut world = bound(terminating(), &names::pv_name(UID));
    assert_eq!(world.step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
    world.no_volume = true;
    assert_eq!(world.step(leftover(RunRule::RunDue)), begin(1, "home"));
}

/// The volume goes with the claim, and then the stand-in for the claim deletes the storage.
#[test]
fn a_claim_keeps_a_bound_volume_that_cannot_get_the_finalizer() {
    let mut world = bound(with_volume(stamped(1), vanishing_volume(), &[]), &names::pv_name(UID));
    world.rests(Rule::BoundVolumeTerminating);
    world.claim.terminating = true;
    world.claim.finalizers.push("kubernetes.io/pvc-protection".into());
    world.rests(Rule::BoundVolumeTerminating);
    world.jobs = vec![job(1)];
    world.claim.abandoned = true;
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1).name });
    world.jobs.clear();
    assert_eq!(world.step(Rule::Abandoned), Step::EndHold);
    world.claim.abandoned = false;
    (world.stamped_recipe, world.foreign, world.jobs) = (None, true, vec![]);
    world.waits(
        Rule::AdoptionNeedsRecipe,
        "cannot be adopted: the provisioner config of the attempt is not known any more",
    );
}

#[test]
fn ended_jobs_of_a_bound_claim_are_removed() {
    let mut world = bound(new(), &names::pv_name(UID));
    world.jobs = vec![Job { terminating: true, ..over(1) }, job(2), over(3)];
    assert_eq!(world.step(Rule::RemoveEndedJob), Step::RemoveJob { job: over(3).name });
    world.jobs.pop();
    world.rests(Rule::Settled);
}
