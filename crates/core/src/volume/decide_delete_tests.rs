//! Tests of the rules by which the storage of a volume is deleted.

use super::*;

#[test]
fn a_volume_without_an_id_is_not_deleted() {
    let disowned = Volume { claim_uid: None, volume_id_annotation: None, ..volume("Delete") };
    world(disowned, ClaimState::NotFound).waits(Rule::UnusableVolumeId, "the volume has no id");
}

#[test]
fn an_impossible_volume_id_is_reported() {
    for id in ["$(id)", "a.b", "A", &"a".repeat(37)] {
        let odd = Volume { name: names::pv_name(id), volume_id_annotation: Some(id.into()), ..volume("Delete") };
        world(odd, ClaimState::NotFound).waits(Rule::UnusableVolumeId, "not one that a run can have");
    }
}

#[test]
fn a_volume_without_readable_provenance_is_not_deleted() {
    let lost = World { recipe: Err("the volume's record cannot be read".into()), ..released() };
    lost.waits(
        Rule::ProvenanceUnreadable,
        "nothing is deleted: the volume's record cannot be read; to delete it: clean up by hand, then run `kubectl",
    );
    lost.waits(Rule::ProvenanceUnreadable, "flex-provisioner.io/abandon=i-have-cleaned-up-by-hand");
}

#[test]
fn a_misnamed_volume_does_not_delete_the_right_one() {
    let misnamed = Volume { name: "misnamed".into(), ..volume("Delete") };
    for claim in [ClaimState::NotFound, ClaimState::BoundToOtherVolume] {
        world(misnamed.clone(), claim).waits(Rule::UnusableVolumeId, &format!("the volume's name is not pvc-{ID}"));
    }
    let born = Volume { volume_id_annotation: None, provenance: None, ..misnamed };
    world(born, ClaimState::BoundToOtherVolume)
        .waits(Rule::UnusableVolumeId, &format!("the volume's name is not pvc-{ID}"));
    let another = Volume { volume_id_annotation: Some("another".into()), ..volume("Delete") };
    world(another, ClaimState::NotFound).waits(Rule::UnusableVolumeId, "the volume's name is not pvc-another");
}

#[test]
fn a_delete_run_waits_for_a_pod_that_may_run() {
    let world = World { has_running_provision_pods: true, delete_run_state: RunState::Succeeded, ..released() };
    assert_eq!(world.decide(NOW), Rule::ProvisionPodRunning.nothing().requeue_at(NOW + 5));
}

#[test]
fn the_storage_is_deleted() {
    for claim in [ClaimState::NotFound, ClaimState::BoundToOtherVolume] {
        assert_eq!(world(volume("Delete"), claim).step(run(RunRule::RunDue)), begin(1, None));
    }
    World { delete_run_state: RunState::MayBeRunning, ..released() }.rests(run(RunRule::RunInProgress));
    let stuck = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: 0 };
    World { delete_run_state: stuck, ..released() }.waits(run(RunRule::RunStuck), "delete run: 0/1 nodes");
    assert_eq!(World { delete_run_state: RunState::Succeeded, ..released() }.step(Rule::StorageDeleted), DELETED);
    World { delete_run_state: failed(NOW, false), ..released() }.rests(run(RunRule::RunEnding));
}

#[test]
fn what_attempts_with_another_config_left_is_deleted_before_the_volume() {
    let data = [("image", "x"), ("zone", "a")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let other = EffectiveConfig { data, ..EffectiveConfig::default() }.recipe().unwrap();
    for node in [None, Some("a")] {
        let world = World { left_by_other: Some((other.clone(), node)), ..released() };
        assert_eq!(world.step(run(RunRule::RunDue)), begin(1, node));
        let ended = World { delete_run_state: failed(NOW, true), ..world.clone() };
        let Step::RecordFailure(failure) = ended.step(run(RunRule::RunFailed)) else { panic!("{ended:?}") };
        assert_eq!(failure.recipe_version, other.version());
        let said = ended.decide(NOW).event.unwrap().message;
        assert!(
            said.starts_with("delete run 1 for what an earlier config may have left failed: disk on fire"),
            "{said}"
        );
        let job = Job { recipe_version: recipe().version(), ..Job::default() };
        let stuck = RunState::Stuck { cause: Cause::new("R", "words"), since: 0 };
        let outdated = World { delete_run_state: stuck, delete_job: Some(job), ..world.clone() };
        assert!(matches!(outdated.step(run(RunRule::RunOutdated)), Step::RemoveJob { .. }));
        let done = World { delete_run_state: RunState::Succeeded, ..world };
        assert_eq!(done.decide(NOW).step, Step::Nothing, "the next observation says what is left");
    }
}

#[test]
fn a_terminating_volume_is_not_deleted_again() {
    let removed = |terminating, volume: Volume| {
        let done = Volume { terminating, ..volume };
        World { delete_run_state: RunState::Succeeded, ..world(done, ClaimState::NotFound) }
    };
    for volume in [volume("Delete"), unheld("Delete")] {
        let abandoned = Volume { abandoned: true, ..volume.clone() };
        let gone = !volume.has_finalizer();
        let ends = [(volume, Rule::StorageDeleted, DELETED), (abandoned, Rule::Abandoned, ABANDONED)];
        for (volume, rule, removal) in ends {
            assert_eq!(removed(false, volume.clone()).step(rule), removal);
            match gone {
                true => removed(true, volume).rests(Rule::KeptByOtherFinalizers),
                false => assert_eq!(removed(true, volume).step(rule), removal),
            }
        }
    }
}

#[test]
fn a_failed_run_is_repeated_after_a_pause() {
    let mut world = World { delete_run_state: failed(NOW + 3600, true), ..released() };
    let decision = world.decide(NOW);
    assert_eq!(decision.rule, run(RunRule::RunFailed));
    let Step::RecordFailure(recorded) = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW));
    assert_eq!(decision.event.unwrap().message, "delete run 1 failed: disk on fire; next try in 2 s");
    world.delete_run_state = RunState::NotCached;
    world.volume.last_failure = Some(LastFailure { attempt: 3, ..recorded });
    assert_eq!(world.decide(NOW), run(RunRule::RunNotDue).nothing().requeue_at(NOW + 8));
    assert_eq!(world.decide(NOW + 8).step, begin(4, None));
    world.volume.retry = true;
    world.volume.last_failure.as_mut().unwrap().attempt = 8;
    assert_eq!(world.decide(NOW), run(RunRule::RunNotDue).nothing().requeue_at(NOW + 10), "somebody asks for it");
    assert_eq!(world.decide(NOW + 10).step, begin(9, None));
    world.volume.last_failure.as_mut().unwrap().attempt = 3;
    world.volume.retry = false;
    world.volume.last_failure.as_mut().unwrap().at = NOW + 86_400;
    assert_eq!(world.step(run(RunRule::RunDue)), begin(4, None), "no clock has shown that time");
    world.volume.last_failure = Some(failure(Operation::Provision, 3, NOW));
    assert_eq!(world.step(run(RunRule::RunDue)), begin(1, None));
}

#[test]
fn leftovers_on_other_nodes_are_deleted_while_the_claim_exists() {
    let alive = wandered(ClaimState::Alive);
    assert_eq!(alive.step(run(RunRule::RunDue)), begin(1, "a"));
    let done = World { delete_run_state: RunState::Succeeded, ..alive.clone() };
    assert_eq!(done.step(Rule::NodeCleaned), Step::MarkNodeClean { nodes_left: names_of(&["b", "c"]) });
    let settled = |nodes: &[&str]| {
        let volume = Volume { nodes_with_storage: names_of(nodes), ..alive.volume.clone() };
        World { volume, ..alive.clone() }
    };
    assert_eq!(settled(&["b", "c"]).step(run(RunRule::RunDue)), begin(1, "b"));
    settled(&["c"]).rests(Rule::InUse);
    let unmarked = Volume { adoption_mark: None, ..alive.volume.clone() };
    World { volume: unmarked, ..alive.clone() }.rests(Rule::InUse);
    // Without a known node of its own, nothing is deleted under the id of a volume that is in use.
    World { origin_node: None, ..alive.clone() }.rests(Rule::InUse);
    let retained = Volume { reclaim_policy: "Retain".into(), ..alive.volume.clone() };
    let retained = World { volume: retained, ..alive };
    assert_eq!(retained.step(run(RunRule::RunDue)), begin(1, "a"));
    let kept = World {
        volume: Volume { nodes_with_storage: names_of(&["c"]), ..retained.volume.clone() },
        ..retained.clone()
    };
    assert_eq!(kept.step(Rule::UnneededFinalizer), Step::RemoveFinalizer);
    let unheld = World { volume: Volume { finalizers: vec![], ..retained.volume.clone() }, ..retained.clone() };
    assert_eq!(unheld.step(Rule::ProtectVolume), Step::AddFinalizer);
    let gone = World { claim: ClaimState::NotFound, ..retained };
    assert_eq!(gone.step(run(RunRule::RunDue)), begin(1, "a"));
    let last = Volume { nodes_with_storage: names_of(&["a", "c"]), ..gone.volume.clone() };
    let last = World { volume: last, delete_run_state: RunState::Succeeded, ..gone };
    assert_eq!(last.step(Rule::RetainedCleaned), Step::MarkNodeClean { nodes_left: vec![] });
}

#[test]
fn a_released_volume_gets_the_finalizer_before_its_delete_run() {
    assert_eq!(world(unheld("Delete"), ClaimState::NotFound).step(Rule::ProtectReleasedVolume), Step::AddFinalizer);
    let terminating = Volume { terminating: true, ..unheld("Delete") };
    assert_eq!(world(terminating, ClaimState::NotFound).step(run(RunRule::RunDue)), begin(1, None));
}

#[test]
fn a_policy_decides_about_storage_on_a_deleted_node() {
    let released = wandered(ClaimState::NotFound);
    assert_eq!(released.step(run(RunRule::RunDue)), begin(1, "a"));
    let last = World {
        volume: Volume { nodes_with_storage: names_of(&["c"]), ..released.volume.clone() },
        ..released.clone()
    };
    let missing = with_state("c", NodeState::NotCached, last.clone());
    assert_eq!(missing.step(run(RunRule::ConfirmNodeGone)), Step::ConfirmNode { node: "c".into() });
    let gone = with_state("c", NodeState::NotFound, last);
    gone.waits(run(RunRule::NodeGoneHold), "node c is gone, and storage on it must be deleted");
    let forget = World { node_gone: NodeGone::Forget, ..gone.clone() };
    assert_eq!(forget.step(run(RunRule::NodeGoneForget)), ABANDONED);
    assert!(forget.decide(NOW).event.unwrap().message.contains("node-gone: forget"));
    let elsewhere = World { node_gone: NodeGone::RunElsewhere, ..gone };
    assert_eq!(
        elsewhere.step(run(RunRule::NodeGoneRunElsewhere)),
        Step::StartDelete { attempt: 1, node: Some("c".into()), on_any_node: true }
    );
    // A dead node does not prevent the clean-up of the others.
    let others = with_state("a", NodeState::NotFound, released);
    assert_eq!(others.step(run(RunRule::RunDue)), begin(1, "b"));
    let one = |node_gone| {
        let alive = wandered(ClaimState::Alive);
        let volume = Volume { nodes_with_storage: names_of(&["a", "c"]), ..alive.volume.clone() };
        with_state("a", NodeState::NotFound, World { volume, node_gone, ..alive })
    };
    one(NodeGone::RunElsewhere).rests(Rule::NodeGoneWhileInUse);
    one(NodeGone::Hold).waits(run(RunRule::NodeGoneHold), "node a");
    assert_eq!(
        one(NodeGone::Forget).step(run(RunRule::NodeGoneForget)),
        Step::MarkNodeClean { nodes_left: names_of(&["c"]) }
    );
}

#[test]
fn a_stuck_delete_run_of_another_config_is_stopped() {
    let stuck = RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: 0 };
    let job = |version: &str| Job {
        name: ObjectName::new("admin", "delete-1"),
        recipe_version: version.into(),
        ..Job::default()
    };
    let with = |job| World { delete_run_state: stuck.clone(), delete_job: Some(job), ..released() };
    let outdated = with(job("admin/silver@old"));
    assert_eq!(outdated.step(run(RunRule::RunOutdated)), Step::RemoveJob { job: ObjectName::new("admin", "delete-1") });
    with(Job { terminating: true, ..job("admin/silver@old") }).rests(run(RunRule::RunStopping));
    with(job(&recipe().version())).waits(run(RunRule::RunStuck), "no such image");
    let batch = Job { batch: Some(ObjectName::new("admin", "batch")), ..job("admin/silver@old") };
    with(batch).waits(run(RunRule::RunStuck), "no such image");
}

/// The pod of the delete run may still be opened: a request on its way could delete what the admin wants to keep.
#[test]
fn what_an_admin_keeps_is_let_go_when_its_delete_run_has_ended() {
    let job = Job { name: ObjectName::new("admin", "delete-1"), ..Job::default() };
    let with = |volume: Volume, unwanted_job, delete_run_state| World {
        unwanted_job,
        delete_run_state,
        ..world(volume, ClaimState::NotFound)
    };
    let retained = |job, state| with(volume("Retain"), job, state);
    let stopped = retained(Some(job.clone()), RunState::MayBeRunning).step(run(RunRule::RunNotWanted));
    assert_eq!(stopped, Step::RemoveJob { job: job.name.clone() });
    let ending = Job { terminating: true, ..job.clone() };
    for ending in [Some(ending.clone()), None] {
        let waits = retained(ending, RunState::MayBeRunning).decide(NOW);
        assert_eq!(waits, run(RunRule::RunEnding).nothing().requeue_at(NOW + 5));
    }
    assert_eq!(retained(None, RunState::NotCached).step(Rule::RetainedWithFinalizer), Step::RemoveFinalizer);

    let abandoned = |job, state| with(Volume { abandoned: true, ..volume("Delete") }, job, state);
    let stopped = abandoned(Some(job.clone()), RunState::MayBeRunning).step(run(RunRule::RunNotWanted));
    assert_eq!(stopped, Step::RemoveJob { job: job.name.clone() });
    assert_eq!(abandoned(Some(ending), RunState::MayBeRunning).step(Rule::Abandoned), ABANDONED, "on a lost node");
    let unseen = abandoned(None, RunState::MayBeRunning);
    assert_eq!(unseen.decide(NOW), run(RunRule::RunEnding).nothing().requeue_at(NOW + 5), "no watch shows its Job");
    let lost = World { nodes_with_pods: names_of(&["lost"]), ..unseen };
    assert_eq!(with_state("lost", NodeState::Unreachable, lost).step(Rule::Abandoned), ABANDONED);

    let again = World { claim: ClaimState::Alive, ..with(volume("Delete"), Some(job.clone()), RunState::MayBeRunning) };
    let stopped = again.step(run(RunRule::RunNotWanted));
    assert_eq!(stopped, Step::RemoveJob { job: job.name.clone() }, "somebody has restored etcd, and the claim is back");
    let free = World { claim: ClaimState::NoReference, ..again.clone() };
    let restored = Volume { adoption_mark: None, ..volume("Delete") };
    for kept in [free.clone(), World { volume: restored, claim: ClaimState::NotFound, ..again }] {
        assert_eq!(kept.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job.name.clone() }, "{kept:?}");
    }
    let ending = Some(Job { terminating: true, ..job.clone() });
    World { unwanted_job: ending, ..free }.rests(Rule::NoClaim);

    // The run on its own node ends, and what attempts have left on others is deleted afterwards.
    let kept = |claim, unwanted_job, delete_run_state| {
        let wandered = wandered(claim);
        let volume = Volume { reclaim_policy: "Retain".into(), ..wandered.volume.clone() };
        World { volume, unwanted_job, delete_run_state, ..wandered }
    };
    for claim in [ClaimState::NotFound, ClaimState::Alive] {
        let stopped = kept(claim, Some(job.clone()), RunState::MayBeRunning).step(run(RunRule::RunNotWanted));
        assert_eq!(stopped, Step::RemoveJob { job: job.name.clone() });
        assert_eq!(kept(claim, None, RunState::NotCached).step(run(RunRule::RunDue)), begin(1, "a"));
        kept(claim, None, RunState::MayBeRunning).rests(run(RunRule::RunInProgress));
    }
}

#[test]
fn a_node_that_does_not_answer_is_named_while_a_pod_may_run_there() {
    let says = "a pod of the provisioner is on node a, which does not answer";
    let lost = with_state("a", NodeState::Unreachable, World { nodes_with_pods: names_of(&["a"]), ..released() });
    let with = |state: RunState, job: Option<Job>| World { delete_run_state: state, delete_job: job, ..lost.clone() };
    let terminating = Some(Job { terminating: true, ..Job::default() });
    with(RunState::MayBeRunning, None).waits(run(RunRule::RunUnreachable), says);
    with(RunState::MayBeRunning, terminating.clone()).waits(run(RunRule::RunStopping), says);
    with(failed(NOW, false), None).waits(run(RunRule::RunEnding), says);
    let stuck = RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: 0 };
    with(stuck, terminating.clone()).rests(run(RunRule::RunStopping));
    World { has_running_provision_pods: true, ..lost.clone() }.waits(Rule::ProvisionPodRunning, says);
    let ending = Rule::Expand(expand::Rule::Run(Target::Size, RunRule::RunEnding));
    World { expanding: terminating, ..lost.clone() }.waits(ending, says);
    let volume = Volume { last_failure: Some(failure(Operation::Delete, 1, NOW)), ..lost.volume.clone() };
    assert_eq!(World { volume, ..lost }.decide(NOW), run(RunRule::RunNotDue).nothing().requeue_at(NOW + 2));
}

/// A run on the node of the record would succeed, and leave the storage on the other node behind.
#[test]
fn nothing_is_deleted_while_record_and_node_affinity_name_different_nodes() {
    let says = "the record of this volume says that its storage is on node a, but its node affinity leads to node b";
    let made = World { origin_node: Some("a"), other_node: Some("b"), ..released() };
    let policies = [NodeGone::Hold, NodeGone::Forget, NodeGone::RunElsewhere];
    let states = [NodeState::Reachable, NodeState::Unreachable, NodeState::NotFound];
    for (node_gone, state) in policies.into_iter().flat_map(|policy| states.map(|state| (policy, state))) {
        for run in [RunState::NotCached, RunState::Succeeded, failed(NOW, true)] {
            let world = World { node_gone, delete_run_state: run, ..made.clone() };
            let world = with_state("a", state, world);
            match (node_gone, state) {
                (NodeGone::RunElsewhere, NodeState::NotFound) => {
                    assert_ne!(world.decide(NOW).rule, Rule::StorageOnOtherNode, "other nodes reach the storage");
                }
                _ => world.waits(Rule::StorageOnOtherNode, says),
            }
        }
    }
    World { delete_run_state: RunState::MayBeRunning, ..made.clone() }.rests(run(RunRule::RunInProgress));
    // Storage that attempts left on other nodes is not the volume's own.
    let mut leftovers = made;
    leftovers.volume.nodes_with_storage = names_of(&["c", "a"]);
    let states = [("a", NodeState::Unreachable), ("c", NodeState::Reachable)];
    leftovers.node_states = NodeStates(states.map(|(node, state)| (node.to_owned(), state)).into());
    assert_eq!(
        leftovers.step(run(RunRule::RunDue)),
        Step::StartDelete { attempt: 1, node: Some("c".into()), on_any_node: false }
    );
    // While the volume is in use, what seems to be left on another node may be the volume itself.
    let used = World { other_node: Some("a"), ..wandered(ClaimState::Alive) };
    used.waits(Rule::StorageOnOtherNode, "but its node affinity leads to node a");
}

#[test]
fn an_event_names_the_finalizers_that_keep_a_deleted_volume() {
    let kept = |finalizers: &[&str], since: i64| {
        let volume = Volume { terminating: true, unneeded_since: Some(since), ..volume("Delete") };
        let volume = Volume { finalizers: names_of(finalizers), ..volume };
        World { volume, delete_run_state: RunState::Succeeded, ..released() }
    };
    let protection = "kubernetes.io/pv-protection";
    kept(&[protection], NOW - 9000).rests(Rule::KeptByOtherFinalizers);
    let young = kept(&[protection, "a/b"], NOW - 10).decide(NOW);
    assert_eq!(young, Rule::KeptByOtherFinalizers.nothing().requeue_at(NOW + 50));
    kept(&[protection, "a/b"], NOW - 60).waits(Rule::KeptByOtherFinalizers, "finalizers of others keep it: a/b;");
}
