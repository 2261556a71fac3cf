//! Tests of the rules about volumes that a copied or restored Job made.

use super::*;

/// Returns a volume that a run made whose claim was gone: never adopted, and with the placeholder of its id.
fn late(policy: &str) -> Volume {
    let reserved = Some(reference("", ID));
    Volume {
        provenance: None,
        adoption_mark: None,
        claim_ref: reserved,
        phase: "Available".into(),
        created: NOW - 1,
        ..unheld(policy)
    }
}

/// Kubernetes deletes a Job an hour after its end, and perhaps no orchestrator runs for so long.
#[test]
fn the_storage_of_a_volume_is_not_deleted_when_the_job_that_made_it_may_have_expired() {
    let of_age = |age: i64| world(Volume { created: NOW - age, ..late("Delete") }, ClaimState::NotFound);
    assert_eq!(of_age(EVIDENCE_LASTS).step(Rule::ProtectReleasedVolume), Step::AddFinalizer);
    let old = of_age(EVIDENCE_LASTS + 1);
    old.waits(Rule::EvidenceExpired, "make sure that nobody uses the storage, here or in another cluster");
    assert_eq!(
        World { provision_runs: ProvisionRuns::Unconfirmed, ..old.clone() }.step(Rule::ConfirmProvisionRuns),
        Step::ConfirmProvisionRuns
    );
    let again = World { provision_runs: ProvisionRuns::CreatedAgain, ..old.clone() };
    assert_eq!(again.step(Rule::MadeByCopiedRun), ABANDONED);
    let own = World { has_provision_job: true, ..old.clone() };
    assert_eq!(own.step(Rule::ProtectReleasedVolume), Step::AddFinalizer, "its Job exists");
    let failure = Some(failure(Operation::Delete, 1, NOW - 4000));
    let tried = World { volume: Volume { last_failure: failure, ..old.volume.clone() }, ..old };
    assert_eq!(tried.step(Rule::ProtectReleasedVolume), Step::AddFinalizer, "it was young when its deletion began");
}

/// Kubernetes runs a Job that a backup tool has copied, and the image finds the storage of the id.
#[test]
fn the_storage_of_a_volume_that_a_copied_or_restored_run_made_stays() {
    for claim in [ClaimState::NotFound, ClaimState::BoundToOtherVolume] {
        let again = World { provision_runs: ProvisionRuns::CreatedAgain, ..world(late("Delete"), claim) };
        let known = World { has_provision_job: true, ..again.clone() };
        let running = World { has_running_provision_pods: true, ..again.clone() };
        let unknown = World { recipe: Err("lost".into()), ..again.clone() };
        let anonymous = World { volume: Volume { claim_ref: None, ..late("Delete") }, ..again.clone() };
        let deleting = World { delete_run_state: RunState::MayBeRunning, ..again.clone() };
        for world in [again.clone(), known, running, unknown, anonymous, deleting] {
            let decision = world.decide(NOW);
            assert_eq!((decision.rule, decision.step), (Rule::MadeByCopiedRun, ABANDONED));
            let event = decision.event.unwrap();
            assert_eq!(event.reason, reason::STORAGE_ABANDONED);
            assert!(event.message.contains("exclude Jobs from backups"), "{}", event.message);
        }
        let kept = Volume { terminating: true, ..late("Delete") };
        World { volume: kept, ..again.clone() }.rests(Rule::KeptByOtherFinalizers);
        World { volume: late("Retain"), ..again.clone() }.rests(Rule::Retained);
        let misnamed = Volume { name: "pvc-other".into(), ..late("Delete") };
        World { volume: misnamed, ..again.clone() }.waits(Rule::UnusableVolumeId, "the volume's name is not");
        // The record of an adopted volume says whose storage it is.
        assert_eq!(World { volume: volume("Delete"), ..again }.step(run(RunRule::RunDue)), begin(1, None));
    }
}

/// The watch of Jobs may be behind that of volumes.
#[test]
fn the_api_says_whose_runs_have_made_a_volume_before_its_storage_is_deleted() {
    let unconfirmed =
        |volume| World { provision_runs: ProvisionRuns::Unconfirmed, ..world(volume, ClaimState::NotFound) };
    let late_one = unconfirmed(late("Delete"));
    assert_eq!(late_one.step(Rule::ConfirmProvisionRuns), Step::ConfirmProvisionRuns);
    let own = World { provision_runs: ProvisionRuns::Own, ..late_one.clone() };
    assert_eq!(own.step(Rule::ProtectReleasedVolume), Step::AddFinalizer);
    let held = Volume { finalizers: volume("Delete").finalizers, ..late("Delete") };
    assert_eq!(World { volume: held, ..own }.step(run(RunRule::RunDue)), begin(1, None));
    assert_eq!(unconfirmed(volume("Delete")).step(run(RunRule::RunDue)), begin(1, None), "it was adopted");
    unconfirmed(late("Retain")).rests(Rule::Retained);
    World { has_running_provision_pods: true, ..late_one.clone() }.step(Rule::ProvisionPodRunning);
    World { delete_run_state: RunState::MayBeRunning, ..late_one }.rests(run(RunRule::RunInProgress));
}
