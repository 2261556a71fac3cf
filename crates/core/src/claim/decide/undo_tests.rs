//! Tests of the rules for terminating claims.

use super::*;

#[test]
fn a_terminating_claim_without_attempts_needs_no_cleanup() {
    let mut world = new();
    world.claim.terminating = true;
    world.rests(Rule::Settled);
    world.jobs = vec![over(1)];
    assert_eq!(world.step(Rule::RemoveEndedJob), Step::RemoveJob { job: over(1).name });
}

#[test]
fn an_abandoned_claim_is_held_no_more() {
    let mut world = terminating();
    world.claim.abandoned = true;
    world.has_running_pods = true;
    let decision = world.decide_by(Rule::Abandoned, NOW);
    assert_eq!(decision.step, Step::EndHold, "also from a pod on a node that is lost");
    assert!(decision.event.unwrap().message.contains("does not delete"));
    // Without its claim, the run would go on, and make what the admin has taken care of.
    world.jobs = vec![Job { terminating: true, ..job(1) }, over(2)];
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: over(2).name });
    world.jobs.truncate(1);
    assert_eq!(world.step(Rule::Abandoned), Step::EndHold);
    // The pod of the delete run may still be opened.
    (world.delete_job, world.delete_run) = (Some(job(9)), RunState::MayBeRunning);
    assert_eq!(world.step(leftover(RunRule::RunNotWanted)), Step::RemoveJob { job: job(9).name });
    world.delete_job = Some(Job { terminating: true, ..job(9) });
    assert_eq!(world.step(Rule::Abandoned), Step::EndHold);
    world.delete_job = None;
    world.rests(leftover(RunRule::RunEnding));
    world.nodes_with_pods = vec!["lost".into()];
    assert_eq!(world.step(Rule::Abandoned), Step::EndHold);
}

#[test]
fn jobs_are_removed_first() {
    let mut world = with_volume(terminating(), volume(), &[]);
    world.jobs = vec![Job { terminating: true, ..job(1) }, over(2)];
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: over(2).name });
}

#[test]
fn a_claim_waits_for_the_end_of_its_runs() {
    let ready = World { no_volume: true, ..terminating() };
    let terminating = Job { terminating: true, ..over(1) };
    World { jobs: vec![terminating], ..ready.clone() }.rests(run(RunRule::RunEnding));
    World { has_running_pods: true, ..ready.clone() }.rests(run(RunRule::RunEnding));
    World { run: RunState::MayBeRunning, ..ready }.rests(run(RunRule::RunEnding));
}

#[test]
fn a_volume_that_names_another_claim_is_left_alone() {
    let another = Volume { claim_uid: Some("another".into()), ..volume() };
    with_volume(terminating(), another, &["annotation"])
        .waits(Rule::VolumeNameTaken, "its annotation flex-provisioner.io/claim-uuid names another claim");
}

#[test]
fn a_claim_waits_for_its_terminating_volume() {
    with_volume(terminating(), vanishing_volume(), &[])
        .waits(Rule::VolumeTerminating, "is being deleted; the claim waits until it is gone");
}

#[test]
fn a_bound_volume_without_finalizer_ends_with_its_claim() {
    let protected = Volume { phase: "Bound".into(), ..vanishing_volume() };
    let is_awaited = |world: &World| world.waits(Rule::VolumeTerminating, "the claim waits until it is gone");
    is_awaited(&with_volume(terminating(), protected.clone(), &[]));
    let by_admin = Volume { reclaim_policy: "Retain".into(), ..protected.clone() };
    let kept = with_volume(terminating(), by_admin.clone(), &[]);
    assert_eq!(kept.step(Rule::VolumeRetained), Step::EndHold, "its storage stays");
    let deleting = World { delete_run: RunState::MayBeRunning, delete_job: Some(over(9)), ..kept };
    assert_eq!(deleting.step(leftover(RunRule::RunNotWanted)), Step::RemoveJob { job: over(9).name });
    is_awaited(&with_volume(terminating(), Volume { phase: "Released".into(), ..by_admin }, &[]));
    let mut of_class = with_volume(terminating(), protected, &[]);
    of_class.stamped_recipe = Some(recipe_with(&[("reclaim-policy", "Retain")]));
    assert_eq!(of_class.step(Rule::VolumeRetained), Step::EndHold);
    of_class.stamped_recipe = None;
    of_class.class.recipe = Err("the config has errors".into());
    is_awaited(&of_class);
}

#[test]
fn the_volume_of_a_terminating_claim_is_adopted_for_its_deletion() {
    adopts(Rule::AdoptLeftVolume, &with_volume(terminating(), volume(), &["too small"]));
    adopts(Rule::AdoptLeftVolume, &with_volume(terminating(), Volume { claim_uid: None, ..volume() }, &[]));
    adopts(Rule::AdoptLeftVolume, &bound(with_volume(stamped(1), volume(), &[]), "static"));
}

#[test]
fn an_adopted_volume_takes_over_the_cleanup() {
    assert_eq!(with_volume(terminating(), adopted_volume(), &[]).step(Rule::LeftVolumeAdopted), Step::EndHold);
}

#[test]
fn a_quorum_read_confirms_that_no_volume_exists() {
    assert_eq!(terminating().step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
    let misnamed = Volume { name: "misnamed".into(), ..volume() };
    assert_eq!(
        with_volume(terminating(), misnamed, &["name"]).step(Rule::ConfirmNoVolumeLeft),
        Step::ConfirmNoVolume,
        "it is no volume of the claim"
    );
}

#[test]
fn a_claim_records_an_unstarted_run_before_its_job_is_removed() {
    let mut world = World { never_started: true, jobs: vec![super::worlds::job_of(1)], ..terminating() };
    let noted = records(Rule::RecordNeverStarted, &world);
    assert_eq!((noted.operation, noted.attempt, noted.unstarted_attempts), (Operation::Provision, 1, 1));
    world.claim.last_failure = Some(noted);
    assert!(matches!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { .. }), "then the Job goes");
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, Reaction::Retry));
    assert_eq!(
        records(Rule::RecordNeverStarted, &world).unstarted_attempts,
        1,
        "an attempt whose failure was noted while its pod could still start"
    );
}

#[test]
fn attempts_that_never_started_need_no_delete_run() {
    let mut world = World { no_volume: true, ..terminating() };
    let idle = |unstarted_attempts| {
        Some(LastFailure { unstarted_attempts, ..failure(Operation::Provision, 1, NOW, Reaction::Retry) })
    };
    world.claim.last_failure = idle(1);
    assert_eq!(world.step(Rule::NothingLeftBehind), Step::EndHold);
    // A node that is gone has no storage of the claim.
    world.claim.nodes_with_storage = vec!["a".into()];
    assert_eq!(with_state("a", NodeState::NotFound, world.clone()).step(Rule::NothingLeftBehind), Step::EndHold);
    assert_eq!(World { no_volume: false, ..world.clone() }.step(Rule::ConfirmNoVolumeLeft), Step::ConfirmNoVolume);
    world.claim.last_failure = idle(0);
    assert_eq!(world.step(leftover(RunRule::RunDue)), begin(1, "a"));
    // The second attempt may have run.
    let mut second = World { no_volume: true, claim: stamped(2).claim, ..terminating() };
    second.claim.terminating = true;
    second.claim.last_failure = idle(1);
    assert!(matches!(second.step(leftover(RunRule::RunDue)), Step::StartDelete { .. }));
    second.never_started = true;
    assert_eq!(records(Rule::RecordNeverStarted, &second).unstarted_attempts, 2);
    second.claim.last_failure = idle(0);
    assert!(matches!(second.step(leftover(RunRule::RunDue)), Step::StartDelete { .. }), "nobody knows of the first");
}

#[test]
fn an_attempt_without_a_possible_job_needs_no_delete_run() {
    let started_after = |is_first, attempt, reaction| {
        let world = stamped(attempt);
        let cause = Cause::new("JobRefused", "malformed");
        let decision = world.observed(|o| {
            super::super::failed_start(
                o,
                &world.class,
                crate::run::state::JobRefusal { cause, reaction },
                is_first,
                NOW,
            )
        });
        assert_eq!(decision.rule, run(RunRule::RunRefused));
        let Step::RecordFailure { failure } = decision.step else { panic!("{decision:?}") };
        failure
    };
    let started = |attempt, reaction| started_after(true, attempt, reaction);
    let mut world = World { no_volume: true, ..terminating() };
    world.claim.last_failure = Some(started(1, Reaction::Never));
    assert_eq!(world.step(Rule::NothingLeftBehind), Step::EndHold);
    // A Job that a quota refuses now may have existed before.
    assert_eq!(started(1, Reaction::Retry).unstarted_attempts, 0);
    // Somebody may have removed the first Job of the attempt.
    assert_eq!(started_after(false, 1, Reaction::Never).unstarted_attempts, 0);
    // Nobody knows of the first attempt.
    assert_eq!(started(2, Reaction::Never).unstarted_attempts, 0);
}

#[test]
fn a_changed_config_gets_a_delete_run_at_once() {
    let mut world = World { no_volume: true, ..terminating() };
    let before =
        LastFailure { recipe_version: "n/c@before".into(), ..failure(Operation::Delete, 1, NOW, Reaction::Retry) };
    world.claim.last_failure = Some(before);
    assert!(matches!(world.step(leftover(RunRule::RunDue)), Step::StartDelete { attempt: 2, .. }));
    world.claim.last_failure = None;
    world.delete_run = RunState::Stuck { cause: Cause::new("ImagePullBackOff", "no such image"), since: NOW };
    world.delete_job = Some(Job { recipe_version: "n/c@before".into(), ..over(1) });
    assert!(matches!(world.step(leftover(RunRule::RunOutdated)), Step::RemoveJob { .. }));
    world.delete_job = Some(Job { terminating: true, recipe_version: "n/c@before".into(), ..over(1) });
    world.rests(leftover(RunRule::RunStopping));
}

#[test]
fn each_node_gets_a_delete_run() {
    let mut world = World { no_volume: true, ..terminating() };
    world.claim.nodes_with_storage = vec!["a".into(), "b".into()];
    assert_eq!(world.step(leftover(RunRule::RunDue)), begin(1, "a"));
    world.delete_run = RunState::MayBeRunning;
    world.rests(leftover(RunRule::RunInProgress));
    with_state("a", NodeState::Unreachable, World { nodes_with_pods: vec!["a".into()], ..world.clone() })
        .waits(leftover(RunRule::RunUnreachable), "a pod of the provisioner is on node a, which does not answer");
    world.delete_run = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: NOW };
    world.waits(leftover(RunRule::RunStuck), "deleting what an attempt left behind: 0/1 nodes");
    world.delete_run = RunState::Succeeded;
    world.delete_job = Some(over(1));
    assert_eq!(world.step(leftover(RunRule::RunSucceeded)), Step::MarkNodeClean { nodes_left: vec!["b".into()] });
    world.claim.nodes_with_storage = vec![];
    assert_eq!(world.step(leftover(RunRule::RunSucceeded)), Step::MarkNodeClean { nodes_left: vec![] });
    world.delete_job = Some(Job { terminating: true, ..over(1) });
    world.rests(leftover(RunRule::RunStopping));
}

#[test]
fn a_failed_delete_run_is_repeated_after_a_pause() {
    let mut world = World { no_volume: true, delete_run: failed_run(Reaction::Never, 0), ..terminating() };
    let recorded = records(leftover(RunRule::RunFailed), &world);
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW - 60));
    world.claim.last_failure = Some(failure(Operation::Delete, 1, NOW, Reaction::Retry));
    assert_eq!(records(leftover(RunRule::RunFailed), &world).attempt, 2);
    world.delete_run = RunState::NotCached;
    assert_eq!(
        (world.step(leftover(RunRule::RunNotDue)), world.decide_by(leftover(RunRule::RunNotDue), NOW).requeue_at),
        (Step::Nothing, Some(NOW + 2))
    );
    assert_eq!(world.decide_by(leftover(RunRule::RunDue), NOW + 2).step, begin(2, "home"));
    world.claim.retry = true;
    world.claim.last_failure = Some(failure(Operation::Delete, 8, NOW, Reaction::Retry));
    assert_eq!(world.decide_by(leftover(RunRule::RunNotDue), NOW).requeue_at, Some(NOW + 10), "somebody asks for it");
    assert_eq!(world.decide_by(leftover(RunRule::RunDue), NOW + 10).step, begin(9, "home"));
    world.delete_run =
        RunState::Failed { cause: Cause::new("R", "m"), reaction: Reaction::Retry, at: NOW, pods_ended: false };
    world.rests(leftover(RunRule::RunEnding));
}

/// The counts say which attempts cannot have left storage, and the config whether another one may help.
#[test]
fn a_clean_up_that_fails_or_is_refused_keeps_the_counts_of_attempts_and_notes_its_config() {
    let mut world = World { no_volume: true, delete_run: failed_run(Reaction::Retry, NOW), ..stamped(4) };
    world.claim.terminating = true;
    let recipe = recipe_with(&[]);
    for (operation, of, attempt) in [(Operation::Provision, 4, 1), (Operation::Delete, 1, 2)] {
        let before = failure(operation, of, NOW, Reaction::Retry);
        world.claim.last_failure = Some(LastFailure { unstarted_attempts: 1, empty_attempts: 3, ..before });
        let failed = records(leftover(RunRule::RunFailed), &world);
        let refused = failed_cleanup(&world.claim, &recipe, attempt, NOW, &Cause::new("R", "m"));
        for record in [failed, refused] {
            assert_eq!((record.operation, record.attempt), (Operation::Delete, attempt));
            assert_eq!((record.unstarted_attempts, record.empty_attempts), (1, 3));
            assert_eq!(record.recipe_version, recipe.version());
        }
    }
}

#[test]
fn a_cleanup_without_recipe_is_reported() {
    World { no_volume: true, stamped_recipe: None, foreign: true, ..terminating() }.waits(
        Rule::CleanupNeedsRecipe,
        "run `kubectl -n team annotate pvc data flex-provisioner.io/abandon=i-have-cleaned-up-by-hand`",
    );
}

#[test]
fn a_policy_decides_about_storage_on_a_deleted_node() {
    let mut left = terminating();
    (left.no_volume, left.claim.nodes_with_storage) = (true, vec!["a".into(), "b".into()]);
    assert_eq!(left.step(leftover(RunRule::RunDue)), begin(1, "a"));
    // A dead node does not prevent the clean-up of the others.
    assert_eq!(with_state("a", NodeState::Unreachable, left.clone()).step(leftover(RunRule::RunDue)), begin(1, "b"));
    left.claim.nodes_with_storage = vec!["a".into()];
    let missing = with_state("a", NodeState::NotCached, left.clone());
    assert_eq!(missing.step(leftover(RunRule::ConfirmNodeGone)), Step::ConfirmNode { node: "a".into() });
    let policy = |policy: &str| {
        let mut gone = with_state("a", NodeState::NotFound, left.clone());
        gone.class.recipe = Ok(Arc::new(recipe_with(&[("node-gone", policy)])));
        gone
    };
    policy("hold")
        .waits(leftover(RunRule::NodeGoneHold), "an attempt may have left something on node a, which is gone");
    let forgotten = policy("forget").decide_by(leftover(RunRule::NodeGoneForget), NOW);
    assert_eq!(forgotten.step, Step::MarkNodeClean { nodes_left: vec![] });
    assert!(forgotten.event.unwrap().message.contains("node-gone: forget"));
    let elsewhere = Step::StartDelete { attempt: 1, node: Some("a".into()), on_any_node: true };
    assert_eq!(policy("run-elsewhere").step(leftover(RunRule::NodeGoneRunElsewhere)), elsewhere);
}

#[test]
fn what_a_claim_that_is_gone_left_stays_if_its_class_keeps_storage() {
    let record = RecordRef { name: ObjectName::new("own", "flex-record-j"), uid: "r".into(), had: Had::Unknown };
    let gone = |policy: &'static str| {
        let mut world = World { no_volume: true, ..terminating() };
        world.claim = world.claim.stand_in(record.clone(), "7");
        world.stamped_recipe = Some(recipe_with(&[("reclaim-policy", policy)]));
        world
    };
    let decision = gone("Retain").decide_by(Rule::LeftStorageUnknown, NOW);
    assert_eq!(decision.step, Step::Keep);
    let event = decision.event.unwrap();
    let command = format!("annotate controllerrevision flex-record-j {}={UID}", names::ABANDON);
    assert!(event.warning && event.message.contains(&command), "{event:?}");
    let mut kept = gone("Delete");
    kept.claim = terminating().claim.stand_in(RecordRef { had: Had::Kept, ..record.clone() }, "7");
    assert_eq!(kept.step(Rule::LeftStorageRetained), Step::EndHold);
    assert_eq!(gone("Delete").step(leftover(RunRule::RunDue)), begin(1, "home"));
    let mut changed = gone("Retain");
    changed.class.recipe = Ok(Arc::new(recipe_with(&[("reclaim-policy", "Delete")])));
    assert_eq!(changed.step(Rule::LeftStorageUnknown), Step::Keep, "the class has changed since");
    changed.stamped_recipe = None;
    let unknown = changed.decide_by(Rule::LeftStorageUnknown, NOW);
    assert!(unknown.step == Step::Keep && unknown.event.unwrap().message.contains("not known any more"));
    let mut unused = gone("Retain");
    unused.claim = terminating().claim.stand_in(RecordRef { had: Had::Nobody, ..record.clone() }, "7");
    assert_eq!(unused.step(leftover(RunRule::RunDue)), begin(1, "home"), "nobody had the volume");
    let unstarted = LastFailure { unstarted_attempts: 1, ..failure(Operation::Provision, 1, NOW, Reaction::Retry) };
    let mut nothing = gone("Retain");
    nothing.claim.last_failure = Some(unstarted);
    assert_eq!(nothing.step(Rule::NothingLeftBehind), Step::EndHold);
}

#[test]
fn a_lost_record_is_written_again_before_anything_is_undone() {
    let lost = RecordedAttempts { is_missing: true, ..RecordedAttempts::default() };
    let mut world = World { recorded: lost, no_volume: true, fresh: true, ..terminating() };
    assert_eq!(world.step(Rule::RecordLost), Step::Record);
    world.recorded.is_missing = false;
    assert_eq!(world.step(leftover(RunRule::RunDue)), begin(1, "home"));
}

#[test]
fn nothing_is_left_behind_only_if_no_recorded_attempt_has_started() {
    let unstarted = LastFailure { unstarted_attempts: 1, ..failure(Operation::Provision, 1, NOW, Reaction::Retry) };
    let mut world = World { no_volume: true, ..terminating() };
    world.claim.last_failure = Some(unstarted);
    assert_eq!(world.step(Rule::NothingLeftBehind), Step::EndHold);
    world.recorded.last = 3;
    assert_eq!(world.step(leftover(RunRule::RunDue)), begin(1, "home"), "its stamp is younger than they are");
}

#[test]
fn each_recipe_of_a_claim_that_is_gone_gets_its_own_delete_run() {
    let record = RecordRef { name: ObjectName::new("own", "flex-record-j"), uid: "r".into(), had: Had::Nobody };
    let mut world = World { no_volume: true, delete_run: RunState::Succeeded, ..terminating() };
    let of_other = Job { recipe_version: "admin/silver@other".into(), ..over(1) };
    world.delete_job = Some(of_other.clone());
    assert_eq!(world.step(leftover(RunRule::RunSucceeded)), Step::MarkNodeClean { nodes_left: vec![] });
    world.claim = world.claim.stand_in(record, "7");
    assert_eq!(world.step(leftover(RunRule::RunOutdated)), Step::RemoveJob { job: of_other.name.clone() });
    world.delete_run = failed_run(Reaction::Never, NOW);
    assert_eq!(world.step(leftover(RunRule::RunOutdated)), Step::RemoveJob { job: of_other.name.clone() });
    (world.delete_run, world.delete_job) = (RunState::Succeeded, Some(Job { terminating: true, ..of_other }));
    world.rests(leftover(RunRule::RunStopping));
    world.delete_job = Some(Job { recipe_version: recipe_with(&[]).version(), ..over(1) });
    assert_eq!(world.step(leftover(RunRule::RunSucceeded)), Step::MarkNodeClean { nodes_left: vec![] });
}
