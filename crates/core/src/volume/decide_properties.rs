//! Properties of all observations of a volume.

use flex_contract::policy::ReclaimPolicy;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;

fn runs() -> impl Strategy<Value = RunState> {
    let stuck = RunState::Stuck { cause: Cause::new("R", "words"), since: 0 };
    let plain = select(vec![RunState::NotCached, RunState::MayBeRunning, stuck, RunState::Succeeded]);
    prop_oneof![2 => plain, 1 => (times(), any::<bool>()).prop_map(|(at, settled)| failed(at, settled))]
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![NOW - 4000..NOW + 10, select(vec![0, i64::MIN, i64::MAX])]
}

fn states() -> impl Strategy<Value = NodeState> {
    select(vec![NodeState::Reachable, NodeState::Unreachable, NodeState::NotCached, NodeState::NotFound])
}

prop_compose! {
    fn worlds()(
        flags in (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>()),
        claim in select(vec![ClaimState::NoReference, ClaimState::Alive, ClaimState::Awaited, ClaimState::BoundToOtherVolume, ClaimState::NotCached, ClaimState::NotFound]),
        policy in select(vec!["Delete", "Delete", "Retain", "Recycle"]),
        name in select(vec![names::pv_name(ID), names::pv_name(ID), "misnamed".to_owned()]),
        id in select(vec![Some(ID), Some("another"), None]),
        (recorded, marked) in (any::<bool>(), prop::bool::weighted(0.7)),
        reserved in select(vec![None, Some(("", ID)), Some(("", "data")), Some(("claim", "data"))]),
        phase in select(vec!["Available", "Bound", "Released"]),
        known in prop::bool::weighted(0.8),
        attempt in prop_oneof![0u32..20, Just(u32::MAX)],
        at in times(),
        last in select(vec![None, Some(Operation::Delete), Some(Operation::Provision)]),
        delete_run_state in runs(),
        nodes in subsequence(vec!["a".to_owned(), "b".into(), "c".into()], 0..=3),
        places in prop::collection::btree_map(select(names_of(&["a", "b", "c"])), states(), 0..3),
        origin_node in select(vec![None, Some("a"), Some("c")]),
        node_gone in select(vec![NodeGone::Hold, NodeGone::Forget, NodeGone::RunElsewhere]),
        expanding in prop::option::weighted(0.2, any::<bool>()),
        modifying in prop::option::weighted(0.2, any::<bool>()),
    ) -> World {
        let (held, terminating, abandoned, pods_alive) = flags;
        let job = |terminating| Job { terminating, ..Job::default() };
        let (expanding, modifying) = (expanding.map(job), modifying.map(job));
        let mut volume = if held { volume(policy) } else { unheld(policy) };
        volume.name = name;
        volume.volume_id_annotation = id.map(str::to_owned);
        volume.provenance = recorded.then(|| "x".to_owned());
        volume.adoption_mark = volume.adoption_mark.filter(|_| marked);
        volume.claim_ref = reserved.map(|(uid, name)| reference(uid, name));
        volume.phase = phase.into();
        volume.terminating = terminating;
        volume.abandoned = abandoned;
        volume.last_failure = last.map(|operation| failure(operation, attempt, at));
        volume.nodes_with_storage = nodes;
        let recipe = if known { Ok(recipe()) } else { Err("lost".into()) };
        World { claim_was_bound: false, delete_job: None, unwanted_job: None, size_claim: None, volume, claim, recipe, has_running_provision_pods: pods_alive, nodes_with_pods: vec![], node_states: NodeStates(places), origin_node, other_node: None, node_gone, left_by_other: None, delete_run_state, expanding, modifying }
    }
}

/// Checks that somebody ends the rest of a volume that no other run concerns.
fn check_rest(world: &World, decision: &Decision, todo: &[Option<String>]) -> Result<(), TestCaseError> {
    let volume = &world.volume;
    let released = matches!(world.claim, ClaimState::NotFound | ClaimState::BoundToOtherVolume);
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    let alive = matches!(world.claim, ClaimState::Alive | ClaimState::Awaited);
    let goes_on = matches!(world.delete_run_state, RunState::MayBeRunning | RunState::Failed { pods_ended: false, .. });
    let later = alive && world.node_gone == NodeGone::RunElsewhere;
    let awaited = goes_on
        || later
        || todo.is_empty()
        || (!released && !alive)
        || (volume.terminating && !volume.has_finalizer())
        || (alive && volume.abandoned)
        || (!deletes && volume.abandoned);
    let dropped = world.claim == ClaimState::NoReference && volume.terminating && volume.has_finalizer();
    let told = !volume.abandoned && decision.event.is_some();
    prop_assert!(!dropped || told || decision.requeue_at.is_some(), "nobody else removes the finalizer");
    prop_assert!(awaited || decision.event.is_some() || decision.requeue_at.is_some(), "a dead end");
    prop_assert!(decision.requeue_at.is_none_or(|at| at > NOW));
    Ok(())
}

/// Checks the step of a volume that no other run concerns.
fn check_step(world: &World, decision: &Decision, todo: &[Option<String>]) -> Result<(), TestCaseError> {
    let volume = &world.volume;
    let released = matches!(world.claim, ClaimState::NotFound | ClaimState::BoundToOtherVolume);
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    let alive = matches!(world.claim, ClaimState::Alive | ClaimState::Awaited);
    match &decision.step {
        Step::Nothing => check_rest(world, decision, todo)?,
        Step::AddFinalizer => {
            prop_assert!(!volume.has_finalizer() && !volume.terminating && (deletes || !todo.is_empty()))
        }
        Step::RemoveFinalizer => {
            let free = world.claim == ClaimState::NoReference && volume.terminating && volume.abandoned;
            prop_assert!(volume.has_finalizer() && (todo.is_empty() || volume.abandoned) && (!deletes || free));
        }
        Step::Reserve | Step::RemoveClaimUid => prop_assert!(false, "it was not restored, and no claim is known"),
        Step::ConfirmClaimGone => prop_assert_eq!(world.claim, ClaimState::NotCached),
        Step::ConfirmNode { node } => prop_assert_eq!(world.node_states.0.get(node), Some(&NodeState::NotCached)),
        Step::StartDelete { attempt, node, on_any_node } => {
            prop_assert!((released || alive) && !volume.abandoned && *attempt > 0);
            prop_assert!(volume.is_adopted(), "no record of a run names its claim");
            prop_assert!(alive || !world.has_running_provision_pods);
            prop_assert!(volume.has_finalizer() || volume.terminating);
            prop_assert!(world.recipe.is_ok() && world.delete_run_state == RunState::NotCached);
            prop_assert!(
                todo.contains(node)
                    && (!alive || (node.as_deref() != world.origin_node && node.is_some() && !on_any_node))
            );
            prop_assert!(released && deletes || node.as_deref() != world.origin_node);
            prop_assert!(!on_any_node || world.node_gone == NodeGone::RunElsewhere);
            prop_assert_eq!(&volume.name, &names::pv_name(volume.volume_id().unwrap()));
        }
        Step::RemoveJob { .. } => prop_assert!(false, "there is no Job"),
        Step::MarkNodeClean { nodes_left } => {
            let forgotten = world.node_gone == NodeGone::Forget;
            prop_assert!(
                world.delete_run_state == RunState::Succeeded
                    || forgotten && world.delete_run_state == RunState::NotCached
            );
            prop_assert!(
                nodes_left.len() < volume.nodes_with_storage.len()
                    && nodes_left.iter().all(|node| volume.nodes_with_storage.contains(node))
            );
        }
        Step::RecordFailure(failure) => {
            prop_assert!((NOW - 60..=NOW).contains(&failure.at) && failure.attempt > 0 && !todo.is_empty());
        }
        Step::Modify(step) => prop_assert!(false, "no run is left and no claim lives, so what is {step:?} for?"),
        Step::Expand(step) => prop_assert!(false, "no run is left and no claim lives, so what is {step:?} for?"),
        Step::DeleteVolume { storage } => {
            let forgotten = world.node_gone == NodeGone::Forget && world.delete_run_state == RunState::NotCached;
            let deleted = world.delete_run_state == RunState::Succeeded && !volume.abandoned;
            let done = (deleted || forgotten) && !world.has_running_provision_pods && world.recipe.is_ok();
            prop_assert!(released && deletes && (volume.abandoned || volume.is_adopted() && done && todo.len() == 1));
            prop_assert_eq!(*storage == StorageOutcome::Deleted, deleted);
            prop_assert!(volume.has_finalizer() || !volume.terminating, "it was removed before");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// A run that waits, or deletes already, ends before anything that an admin keeps.
    #[test]
    fn nothing_is_let_go_while_a_run_would_delete_it(world in worlds(), terminating: bool) {
        let (deletes, abandoned) = (world.volume.reclaim_policy == ReclaimPolicy::Delete, world.volume.abandoned);
        if !abandoned && (deletes || world.volume.is_restored()) {
            return Ok(());
        }
        let job = Job { terminating, name: ObjectName::new("admin", "delete-1"), ..Job::default() };
        let world = World { unwanted_job: Some(job), ..world };
        let lets_go = matches!(world.decide(NOW).step, Step::RemoveFinalizer | Step::DeleteVolume { .. });
        let has_ended = SeenRun::of_deletion(None, &world.delete_run_state).is_over;
        prop_assert!(!lets_go || terminating && (abandoned || has_ended), "a run deletes what must stay");
    }

    #[test]
    fn no_decision_breaks_an_invariant(world in worlds()) {
        let decision = world.decide(NOW);
        let volume = &world.volume;
        let released = matches!(world.claim, ClaimState::NotFound | ClaimState::BoundToOtherVolume);
        let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
        let alive = matches!(world.claim, ClaimState::Alive | ClaimState::Awaited);
        let mut todo: Vec<_> = nodes_to_clean(volume, world.claim, world.origin_node).into_iter().map(Some).collect();
        if todo.is_empty() && released && deletes {
            todo.push(None);
        }
        prop_assert!(!alive || !todo.iter().any(|node| node.as_deref() == world.origin_node), "where a volume lives, nothing is deleted");
        let restored = volume.is_restored() && !volume.abandoned;
        let by_uid = volume.claim_ref_uid().is_some();
        // The claim, which is not observed here, may be adopting the volume now.
        let must_emit = restored && world.claim != ClaimState::Alive && !(world.claim == ClaimState::NotCached && by_uid);
        if must_emit {
            prop_assert!(decision.event.is_some());
            prop_assert!(matches!(decision.step, Step::Nothing | Step::Reserve | Step::RemoveFinalizer));
            prop_assert!(decision.step != Step::Reserve || volume.claim_ref.is_none());
            prop_assert!(decision.step != Step::RemoveFinalizer || (!deletes && volume.terminating));
            return Ok(());
        }
        // While the storage is deleted, no run changes it.
        if (world.expanding.is_some() || world.modifying.is_some()) && released && !(volume.abandoned && deletes) {
            let stops = matches!(decision.step, Step::Expand(expand::Step::RemoveJob { .. }) | Step::Modify(modify::Step::RemoveJob { .. }));
            let waits = decision.step == Step::Nothing && decision.requeue_at.is_some();
            prop_assert!(stops || waits);
            return Ok(());
        }
        prop_assert!(decision.rule != Rule::InUse || (decision == Rule::InUse.nothing() && world.claim == ClaimState::Alive));
        check_step(&world, &decision, &todo)?;
    }
}
