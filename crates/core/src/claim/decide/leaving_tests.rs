//! Tests of the rows for terminating claims.

use super::*;

#[test]
fn row_6_going_and_nothing_is_owed() {
    let mut world = new();
    world.claim.deleting = true;
    world.rests();
    world.jobs = vec![over(1)];
    assert_eq!(world.step(), Step::RemoveJob { job: over(1).name });
}

#[test]
fn row_7_an_admin_lets_go() {
    let mut world = deleting();
    world.claim.abandoned = true;
    world.has_running_pods = true;
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::RemoveFinalizer, "also from a pod on a node that is lost");
    assert!(decision.event.unwrap().message.contains("did not delete"));
}

#[test]
fn row_8_jobs_are_removed_first() {
    let mut world = with_volume(deleting(), volume(), &[]);
    world.jobs = vec![Job { deleting: true, ..job(1) }, over(2)];
    assert_eq!(world.step(), Step::RemoveJob { job: over(2).name });
}

#[test]
fn row_9_a_job_that_is_being_removed_is_waited_for() {
    World { no_volume: true, jobs: vec![Job { deleting: true, ..over(1) }], ..deleting() }.rests();
}

#[test]
fn row_10_a_pod_that_may_run_is_waited_for() {
    let ready = World { no_volume: true, ..deleting() };
    World { has_running_pods: true, ..ready.clone() }.rests();
    World { run: RunState::Running, ..ready }.rests();
}

#[test]
fn row_11_a_volume_that_another_claim_has_is_not_deleted() {
    let world = with_volume(deleting(), Volume { name: "misnamed".into(), ..taken_volume() }, &["taken"]);
    World { no_volume: true, ..world }.waits("so it is not deleted with this claim");
    let mut unknown = with_volume(deleting(), taken_volume(), &["taken"]);
    (unknown.stamped_recipe, unknown.foreign) = (None, true);
    unknown.waits("so it is not deleted with this claim");
    let another = Volume { claim_uuid: Some("another".into()), ..volume() };
    with_volume(deleting(), another, &["annotation"])
        .waits("its annotation flex-provisioner.io/claim-uuid names another");
}

#[test]
fn row_12_a_volume_that_goes_by_itself_is_waited_for() {
    with_volume(deleting(), vanishing_volume(), &[]).waits("is being deleted; the claim waits until it is gone");
}

#[test]
fn row_12_a_bound_volume_does_not_go_before_its_claim() {
    let protected = Volume { phase: "Bound".into(), ..vanishing_volume() };
    let mut world = with_volume(deleting(), protected.clone(), &[]);
    assert_eq!(world.step(), begin(1, "home"), "its storage goes first");
    world.claim.finalizers.push("kubernetes.io/pvc-protection".into());
    world.rests();
    let mut kept = with_volume(deleting(), protected, &[]);
    kept.stamped_recipe = Some(recipe_with(&[("reclaim-policy", "Retain")]));
    assert_eq!(kept.step(), Step::RemoveFinalizer, "its storage stays");
    kept.stamped_recipe = None;
    kept.class.recipe = Err("the config has errors".into());
    kept.waits("not known any more");
}

#[test]
fn row_13_a_volume_that_came_is_adopted_to_be_deleted() {
    adopts(&with_volume(deleting(), volume(), &["too small"]));
    adopts(&with_volume(deleting(), Volume { claim_uuid: None, ..volume() }, &[]));
    adopts(&bound(with_volume(stamped(1), volume(), &[]), "static"));
}

#[test]
fn row_14_the_volume_takes_over() {
    assert_eq!(with_volume(deleting(), adopted_volume(), &[]).step(), Step::RemoveFinalizer);
}

#[test]
fn row_15_that_no_volume_exists_is_asked() {
    assert_eq!(deleting().step(), Step::ConfirmNoVolume);
    let misnamed = Volume { name: "misnamed".into(), ..volume() };
    assert_eq!(
        with_volume(deleting(), misnamed, &["name"]).step(),
        Step::ConfirmNoVolume,
        "it is no volume of the claim"
    );
}

#[test]
fn row_7a_that_nothing_has_run_is_noted_before_the_proof_is_gone() {
    let mut world = World { never_started: true, jobs: vec![super::worlds::job_of(1)], ..deleting() };
    let noted = records(&world);
    assert_eq!((noted.operation, noted.attempt, noted.unstarted_attempts), (Operation::Provision, 1, 1));
    world.claim.last_failure = Some(noted);
    assert!(matches!(world.step(), Step::RemoveJob { .. }), "then the Job goes");
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, Failure::Retry));
    assert_eq!(
        records(&world).unstarted_attempts,
        1,
        "an attempt whose failure was noted while its pod could still start"
    );
    world.removed = Some(RemovedJob { times: 1, at: NOW });
    assert!(matches!(world.step(), Step::RemoveJob { .. }), "who removes a Job removes what is known of it");
}

#[test]
fn row_15a_what_never_ran_has_left_nothing() {
    let mut world = World { no_volume: true, ..deleting() };
    let idle = |unstarted_attempts| {
        Some(LastFailure { unstarted_attempts, ..failure(Operation::Provision, 1, NOW, Failure::Retry) })
    };
    world.claim.last_failure = idle(1);
    assert_eq!(world.step(), Step::RemoveFinalizer);
    // A node that is gone has no storage of the claim.
    world.claim.nodes = vec!["a".into()];
    assert_eq!(with_state("a", NodeState::Gone, world.clone()).step(), Step::RemoveFinalizer);
    assert_eq!(World { no_volume: false, ..world.clone() }.step(), Step::ConfirmNoVolume);
    world.claim.last_failure = idle(0);
    assert_eq!(world.step(), begin(1, "a"));
    // The second attempt may have run.
    let mut second = World { no_volume: true, claim: stamped(2).claim, ..deleting() };
    second.claim.deleting = true;
    second.claim.last_failure = idle(1);
    assert!(matches!(second.step(), Step::StartDelete { .. }));
    second.never_started = true;
    assert_eq!(records(&second).unstarted_attempts, 2);
    second.claim.last_failure = idle(0);
    assert!(matches!(second.step(), Step::StartDelete { .. }), "nobody knows of the first");
}

#[test]
fn a_job_that_can_never_exist_has_left_nothing() {
    let started = |attempt, kind| {
        let world = stamped(attempt);
        let cause = Cause::new("JobRefused", "malformed");
        let decision = world.observed(|o| super::super::failed_start(o, &world.class, cause, kind, NOW));
        let Step::RecordFailure { failure } = decision.step else { panic!("{decision:?}") };
        failure
    };
    let mut world = World { no_volume: true, ..deleting() };
    world.claim.last_failure = Some(started(1, Failure::Never));
    assert_eq!(world.step(), Step::RemoveFinalizer);
    // A Job that a quota refuses now may have existed before.
    assert_eq!(started(1, Failure::Retry).unstarted_attempts, 0);
    // Nobody knows of the first attempt.
    assert_eq!(started(2, Failure::Never).unstarted_attempts, 0);
}

#[test]
fn row_16_a_config_that_was_mended_is_gone_by_at_once() {
    let mut world = World { no_volume: true, ..deleting() };
    let before = LastFailure { config: "n/c@before".into(), ..failure(Operation::Delete, 1, NOW, Failure::Retry) };
    world.claim.last_failure = Some(before);
    assert!(matches!(world.step(), Step::StartDelete { attempt: 2, .. }));
    world.claim.last_failure = None;
    world.delete_run = RunState::Stuck { cause: Cause::new("ImagePullBackOff", "no such image"), since: NOW };
    world.delete_job = Some(Job { config: "n/c@before".into(), ..over(1) });
    assert!(matches!(world.step(), Step::RemoveJob { .. }));
    world.delete_job = Some(Job { deleting: true, config: "n/c@before".into(), ..over(1) });
    world.rests();
}

#[test]
fn row_16_a_delete_run_per_node() {
    let mut world = World { no_volume: true, ..deleting() };
    world.claim.nodes = vec!["a".into(), "b".into()];
    assert_eq!(world.step(), begin(1, "a"));
    world.delete_run = RunState::Running;
    world.rests();
    world.delete_run = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: NOW };
    world.waits("deleting what an attempt left behind: 0/1 nodes");
    world.delete_run = RunState::Succeeded;
    world.delete_job = Some(over(1));
    assert_eq!(world.step(), Step::MarkNodeClean { nodes: vec!["b".into()] });
    world.claim.nodes = vec![];
    assert_eq!(world.step(), Step::MarkNodeClean { nodes: vec![] });
    world.delete_job = Some(Job { deleting: true, ..over(1) });
    world.rests();
}

#[test]
fn row_16_a_failed_delete_run_is_repeated_after_a_pause() {
    let mut world = World { no_volume: true, delete_run: failed_run(Failure::Never, 0), ..deleting() };
    let recorded = records(&world);
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW - 60));
    world.claim.last_failure = Some(failure(Operation::Delete, 1, NOW, Failure::Retry));
    assert_eq!(records(&world).attempt, 2);
    world.delete_run = RunState::Absent;
    assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 2)));
    assert_eq!(world.decide(NOW + 2).step, begin(2, "home"));
    world.delete_run =
        RunState::Failed { cause: Cause::new("R", "m"), kind: Failure::Retry, at: NOW, pods_ended: false };
    world.rests();
}

#[test]
fn row_16_without_a_recipe_it_is_told() {
    World { no_volume: true, stamped_recipe: None, foreign: true, ..deleting() }
        .waits("annotate the claim with flex-provisioner.io/abandon=i-have-cleaned-up-by-hand");
}

#[test]
fn row_16_a_node_that_is_gone() {
    let mut left = deleting();
    (left.no_volume, left.claim.nodes) = (true, vec!["a".into(), "b".into()]);
    assert_eq!(left.step(), begin(1, "a"));
    // A dead node does not prevent the clean-up of the others.
    assert_eq!(with_state("a", NodeState::Unreachable, left.clone()).step(), begin(1, "b"));
    left.claim.nodes = vec!["a".into()];
    let missing = with_state("a", NodeState::Missing, left.clone());
    assert_eq!(missing.step(), Step::ConfirmNode { node: "a".into() });
    let policy = |policy: &str| {
        let mut gone = with_state("a", NodeState::Gone, left.clone());
        gone.class.recipe = Ok(Arc::new(recipe_with(&[("node-gone", policy)])));
        gone
    };
    policy("hold").waits("an attempt may have left something on node a, which is gone");
    let forgotten = policy("forget").decide(NOW);
    assert_eq!(forgotten.step, Step::MarkNodeClean { nodes: vec![] });
    assert!(forgotten.event.unwrap().message.contains("node-gone: forget"));
    let elsewhere = Step::StartDelete { attempt: 1, node: "a".into(), on_any_node: true };
    assert_eq!(policy("run-elsewhere").step(), elsewhere);
}
