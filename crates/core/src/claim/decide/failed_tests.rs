//! Tests of the rules for attempts that cannot start or have failed.

use super::*;

/// Checks that the second attempt begins.
#[track_caller]
fn begins_again(world: &World, now: i64, why: &str) {
    let decision = world.decide_by(run(RunRule::AttemptDue), now);
    assert!(matches!(decision.step, Step::Stamp { attempt: 2, .. }), "{why}: {decision:?}");
}

#[test]
fn a_claim_whose_refused_volume_was_deleted_is_tried_again_at_once() {
    let mut world = failed_with(Reaction::Never);
    world.rests_until_slow(run(RunRule::RunNotDue));
    world.claim.last_failure.as_mut().unwrap().reason = "VolumeRefused".into();
    begins_again(&world, NOW, "its volume is gone");
    let there = with_volume(world, Volume { quarantine: Some("wrong".into()), ..volume() }, &["wrong"]);
    there.rests_until_slow(run(RunRule::RunNotDue));
}

#[test]
fn a_sidecar_does_not_keep_a_failed_run() {
    let ended = RunState::Failed { cause: Cause::new("R", "m"), reaction: Reaction::Retry, at: NOW, pods_ended: false };
    let world = World { jobs: vec![job(1)], has_running_pods: true, run: ended, ..failed_with(Reaction::Retry) };
    assert_eq!(
        (world.step(Rule::SidecarsRunning), world.decide_by(Rule::SidecarsRunning, NOW).requeue_at),
        (Step::Nothing, Some(NOW + 5)),
        "it usually ends by itself"
    );
    assert_eq!(world.decide_by(Rule::StopSidecars, NOW + 5).step, Step::RemoveJob { job: job(1).name });
    let terminating = World { jobs: vec![Job { terminating: true, ..job(1) }], ..world };
    assert_eq!(terminating.decide_by(run(RunRule::RunEnding), NOW + 5).step, Step::Nothing);
}

#[test]
fn the_job_of_the_last_attempt_is_stopped_before_the_next() {
    let world = failed_with(Reaction::Retry);
    let late = NOW + 1_000_000;
    let running = World { jobs: vec![job(1)], run: RunState::MayBeRunning, ..world.clone() };
    assert_eq!(running.decide_by(run(RunRule::RunNotWanted), late).step, Step::RemoveJob { job: job(1).name });
    let stuck = RunState::Stuck { cause: Cause::new("R", "m"), since: 0 };
    let stopping = World { jobs: vec![Job { terminating: true, ..job(1) }], run: stuck, ..world.clone() };
    assert_eq!(stopping.decide_by(run(RunRule::RunEnding), late).step, Step::Nothing);
    let ending = World { jobs: vec![job(1)], run: failed_run(Reaction::Retry, NOW), ..world.clone() };
    assert_eq!(
        ending.decide_by(run(RunRule::RunEnding), late).step,
        Step::Nothing,
        "the Job is about to be over, and its log is wanted"
    );
    assert_eq!(
        World { has_running_pods: true, ..world.clone() }.decide_by(run(RunRule::RunEnding), late).step,
        Step::Nothing
    );
    let later = World { jobs: vec![job(7)], run: failed_run(Reaction::Retry, NOW), ..world };
    let unsure = World { fresh: false, ..later.clone() };
    assert_eq!(
        unsure.decide_by(Rule::ReadClaimBeforeStop, late).step,
        Step::Refresh,
        "it may be of a stamp that the cache does not have yet"
    );
    let sure = World { fresh: true, ..later };
    assert_eq!(
        sure.decide_by(run(RunRule::RunNotWanted), late).step,
        Step::RemoveJob { job: job(7).name },
        "one of another attempt as well"
    );
}

#[test]
fn a_claim_is_rescheduled_if_its_node_has_no_capacity() {
    let mut world = delayed(failed_with(Reaction::NoCapacity), Some("a"));
    let decision = world.decide_by(Rule::NoRoomOnNode, NOW);
    let Step::Reschedule { failure: Some(noted) } = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!(noted.reaction, Reaction::Retry, "the next node is as good as any");
    assert!(decision.event.unwrap().message.contains("no room on node a"));
    world.claim.selected_node = None;
    let recorded = records(Rule::NoRoomOnRemovedNode, &world);
    assert_eq!((recorded.reaction, recorded.attempt, recorded.at), (Reaction::Retry, 1, NOW));
    world.claim.last_failure = Some(recorded);
    world.rests(Rule::WaitForReschedule);
    for node in ["a", "b"] {
        world.claim.selected_node = Some(node.into());
        let nodes = if node == "a" { vec!["a".to_owned()] } else { vec!["a".into(), "b".into()] };
        world.claim.nodes_with_storage = vec!["a".into()];
        assert_eq!(
            world.decide_by(run(RunRule::RunNotDue), NOW).requeue_at,
            Some(NOW + 2),
            "the same node or another, never at once"
        );
        assert_eq!(world.decide_by(run(RunRule::AttemptDue), NOW + 2).step, Step::Stamp { attempt: 2, nodes });
    }
}

#[test]
fn an_attempt_without_room_moves_to_a_new_node_at_once() {
    let choice = |next: Option<&str>, is_new| NodeChoice { next: next.map(str::to_owned), is_new, last: true };
    let stamp = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        Step::Stamp { attempt: 2, nodes }
    };
    let mut world = World { node_choice: choice(Some("b"), true), ..failed_with(Reaction::NoCapacity) };
    assert_eq!(world.step(run(RunRule::AttemptDue)), stamp(&["home", "b"]), "a new node at once");
    world.node_choice = choice(Some("b"), false);
    world.claim.nodes_with_storage = vec!["b".into(), "home".into()];
    assert_eq!(world.decide_by(run(RunRule::RunNotDue), NOW).requeue_at, Some(NOW + 2), "all have had an attempt");
    assert_eq!(world.decide_by(run(RunRule::AttemptDue), NOW + 2).step, stamp(&["home", "b"]));
    world.node_choice = choice(None, false);
    assert_eq!(world.decide_by(run(RunRule::AttemptDue), NOW + 2).step, stamp(&["b", "home"]), "there is no other");
    let mut failed = World { node_choice: choice(Some("b"), true), ..failed_with(Reaction::Retry) };
    assert_eq!(
        failed.decide_by(run(RunRule::AttemptDue), NOW + 2).step,
        stamp(&["home"]),
        "something may be left there"
    );
    failed.node_choice.last = false;
    assert_eq!(failed.decide_by(run(RunRule::AttemptDue), NOW + 2).step, stamp(&["home", "b"]));
    failed.node_choice = NodeChoice::default();
    let decision = failed.decide_by(Rule::NoNodeForRun, NOW + 2);
    assert_eq!(decision.step, Step::Nothing);
    assert!(decision.event.unwrap().message.contains("no node can take a run for this claim"));
}

#[test]
fn the_next_attempt_begins_after_its_delay() {
    let mut world = failed_with(Reaction::Retry);
    world.claim.nodes_with_storage = vec!["a".into(), "b".into()];
    world.claim.selected_node = Some("a".into());
    let nodes = || vec!["b".to_owned(), "a".to_owned()];
    let unsure = World { no_volume: false, ..world.clone() };
    assert_eq!(
        unsure.decide_by(Rule::ConfirmNoVolumeBeforeAttempt, NOW + 2).step,
        Step::ConfirmNoVolume,
        "the watch may lag, and a second be made"
    );
    assert_eq!(
        world.decide_by(run(RunRule::AttemptDue), NOW + 2).step,
        Step::Stamp { attempt: 2, nodes: nodes() },
        "last is where it is to run"
    );
    let mut abandoned = world.clone();
    abandoned.claim.abandoned = true;
    let step = abandoned.decide_by(run(RunRule::AttemptDue), NOW + 2).step;
    assert_eq!(step, Step::Stamp { attempt: 2, nodes: vec!["a".into()] }, "an admin has cleaned up on the others");
    let mut of_future = world.clone();
    of_future.claim.last_failure.as_mut().unwrap().at = NOW + 86_400;
    begins_again(&of_future, NOW, "no clock has shown that time");
    world.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    begins_again(&world, NOW, "a new config is tried at once");
    World { has_revision: false, ..world.clone() }.rests(run(RunRule::RunNotDue));
    let full = World { has_slot: false, ..world.clone() }.decide_by(run(RunRule::NoFreeSlot), NOW + 2);
    assert_eq!((full.step, full.requeue_at), (Step::WaitForSlot { nodes: nodes() }, Some(NOW + 32)));
    world.class.recipe = Ok(Arc::new(recipe_with(&[("max-size", "1Mi")])));
    world.waits(Rule::ClaimRefused, "provides at most 1Mi");
    world.class.recipe = Err("the config has errors".into());
    world.waits(Rule::ConfigUnusable, "the config has errors");
    let mut never = failed_with(Reaction::Never);
    assert_eq!(never.decide_by(run(RunRule::RunNotDue), NOW + 1799).requeue_at, Some(NOW + 1800));
    begins_again(&never, NOW + 1800, "it may succeed after all");
    let mut asked = never.clone();
    asked.claim.retry = true;
    assert_eq!(asked.decide_by(run(RunRule::RunNotDue), NOW + 9).requeue_at, Some(NOW + 10), "or asks all the time");
    begins_again(&asked, NOW + 10, "somebody asks for it");
    never.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    begins_again(&never, NOW, "a new config is tried at once");
    delayed(failed_with(Reaction::Retry), None).rests(Rule::WaitForReschedule);
}

#[test]
fn the_delay_between_attempts_doubles() {
    let recipe = recipe_with(&[("backoff", "5s..1m"), ("retries", "6")]);
    let pauses: Vec<_> = (1..9).map(|attempt| delay(&recipe, attempt)).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 1800, 1800]);
    assert_eq!(delay(&recipe_with(&[("backoff", "1s..100h"), ("retries", "1000")]), 1000), 360_000);
    let mut world = failed_with(Reaction::Retry);
    world.claim.stamp.as_mut().unwrap().attempt = 3;
    world.claim.last_failure = Some(failure(Operation::Provision, 3, NOW, Reaction::Retry));
    let third = world.decide_by(run(RunRule::RunNotDue), NOW);
    assert_eq!((third.step, third.requeue_at), (Step::Nothing, Some(NOW + 8)));
    world.claim.last_failure = Some(failure(Operation::Provision, 2, NOW, Reaction::Retry));
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun, "a failure of another attempt is past");
    world.claim.last_failure = Some(failure(Operation::Delete, 3, NOW, Reaction::Retry));
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun, "and so is one of another operation");
}

#[test]
fn a_stuck_run_is_reported_and_a_missing_image_ends_it() {
    let stuck = |reason: &str, since| World {
        run: RunState::Stuck { cause: Cause::new(reason, "words"), since },
        jobs: vec![job(1)],
        ..stamped(1)
    };
    stuck("ImagePullBackOff", NOW - 29).waits(run(RunRule::RunStuck), "words");
    assert_eq!(stuck("ImagePullBackOff", NOW - 29).decide_by(run(RunRule::RunStuck), NOW).requeue_at, Some(NOW + 1));
    for reason in ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"] {
        assert_eq!(records(Rule::ImagePullTimeout, &stuck(reason, NOW - 30)).reaction, Reaction::Retry);
    }
    let mut unschedulable = stuck("Unschedulable", 0);
    assert_eq!(
        records(Rule::NodeAdmissionTimeout, &unschedulable).reaction,
        Reaction::NoCapacity,
        "there is another node"
    );
    unschedulable.node_choice = NodeChoice { last: true, ..NodeChoice::default() };
    unschedulable.waits(run(RunRule::RunStuck), "words");
    assert_eq!(unschedulable.decide_by(run(RunRule::RunStuck), NOW).requeue_at, None, "it ends with its deadline");
    let mut changed = unschedulable;
    changed.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert_eq!(records(run(RunRule::RunOutdated), &changed).reason, "Unschedulable");
    changed.has_revision = false;
    changed.waits(run(RunRule::RunStuck), "words");
}

/// Others may use the quota of a claim that can have made no volume.
#[test]
fn attempts_that_found_no_room_are_counted_from_the_first_on() {
    let ended = |attempt, reaction, before: Option<u32>| {
        let mut world = World { run: failed_run(reaction, NOW), ..stamped(attempt) };
        let before = before.map(|empty_attempts| LastFailure {
            empty_attempts,
            ..failure(Operation::Provision, attempt - 1, NOW, Reaction::NoCapacity)
        });
        world.claim.last_failure = before;
        records(run(RunRule::RunFailed), &world).empty_attempts
    };
    assert_eq!(ended(1, Reaction::NoCapacity, None), 1);
    assert_eq!(ended(2, Reaction::NoCapacity, Some(1)), 2);
    assert_eq!(ended(2, Reaction::Retry, Some(1)), 1);
    assert_eq!(ended(2, Reaction::NoCapacity, Some(0)), 0, "the first may have made a volume");
    assert_eq!(ended(1, Reaction::Retry, None), 0);
    let cause = Cause::new("Unschedulable", "words");
    let pending = World { run: RunState::Stuck { cause, since: 0 }, jobs: vec![job(1)], ..stamped(1) };
    assert_eq!(records(Rule::NodeAdmissionTimeout, &pending).empty_attempts, 0, "the pod may still start");
}

#[test]
fn a_failed_run_is_recorded_and_reported() {
    let message = |reaction, world: World| {
        let world = World { run: failed_run(reaction, NOW - 5), jobs: vec![job(1)], ..world };
        let recorded = records(run(RunRule::RunFailed), &world);
        assert_eq!((recorded.attempt, recorded.reaction, recorded.at), (1, reaction, NOW - 5));
        assert_eq!((recorded.reason.as_str(), recorded.message.as_str()), ("ExitCode", "disk on fire"));
        world.decide_by(run(RunRule::RunFailed), NOW).event.unwrap().message
    };
    assert_eq!(message(Reaction::Retry, stamped(1)), "attempt 1 failed: disk on fire; next try in 2 s");
    let change = "when the provisioner config or the class changes, at the latest in 30 min";
    assert!(message(Reaction::Never, stamped(1)).contains(change));
    assert!(message(Reaction::NoCapacity, stamped(1)).ends_with("tries another node"));
    let alone = World { node_choice: NodeChoice { last: true, ..NodeChoice::default() }, ..stamped(1) };
    assert!(message(Reaction::NoCapacity, alone).contains("next try in 2 s"));
    assert!(
        message(Reaction::NoCapacity, delayed(stamped(1), Some("a"))).contains("asks the scheduler for another node")
    );
}

#[test]
fn a_node_s_clock_is_not_trusted() {
    for (said, taken) in [(0, NOW - 60), (NOW - 3600, NOW - 60), (NOW + 3600, NOW), (NOW - 7, NOW - 7)] {
        let world = World { run: failed_run(Reaction::Retry, said), ..stamped(1) };
        assert_eq!(records(run(RunRule::RunFailed), &world).at, taken);
    }
}

#[test]
fn no_attempt_uses_more_nodes_than_a_claim_can_record() {
    let mut world = delayed(failed_with(Reaction::Retry), Some("another"));
    world.node_states = NodeStates([("another".to_owned(), NodeState::Reachable)].into());
    world.claim.nodes_with_storage = (1..crate::limits::NODES).map(|n| format!("n{n}")).collect();
    let at = NOW + 4000;
    begins_again(&world, at, "another node can be recorded");
    world.claim.nodes_with_storage.push("n0".into());
    let decision = world.decide_by(Rule::TooManyNodes, at);
    let said = decision.event.as_ref().map(|event| event.message.as_str()).unwrap_or_default();
    assert!(decision.step == Step::Nothing && said.contains("on 100 nodes"), "{decision:?}");
    let mut world = delayed(world, Some("n1"));
    world.node_states = NodeStates([("n1".to_owned(), NodeState::Reachable)].into());
    begins_again(&world, at, "one of them again");
}
