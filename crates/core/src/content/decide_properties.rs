//! Properties of all observations of a content.

use flex_contract::policy::ReclaimPolicy;
use proptest::prelude::*;

use super::*;

fn states() -> impl Strategy<Value = RunState> {
    prop_oneof![
        Just(RunState::NotCached),
        Just(RunState::MayBeRunning),
        Just(RunState::Succeeded),
        Just(failed(true)),
        Just(failed(false)),
        Just(RunState::Stuck { cause: Cause::new("ErrImagePull", "none"), since: NOW }),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    let snapshots = prop_oneof![
        Just(SnapshotState::Unbound),
        Just(SnapshotState::Alive),
        Just(SnapshotState::Terminating),
        Just(SnapshotState::NotCached),
        Just(SnapshotState::NotFound),
    ];
    let flags = (any::<[bool; 17]>(), 0u32..3, prop::option::of((any::<bool>(), 1u32..3, any::<bool>())));
    let filling = prop::collection::vec((any::<bool>(), 0..3u8), 0..3);
    let jobs = prop::collection::vec((1u32..3, any::<bool>(), any::<bool>()), 0..3);
    let deletes = prop::collection::vec(any::<bool>(), 0..2);
    (snapshots, flags, filling, jobs, states(), states(), deletes).prop_map(
        |(snapshot, (flags, attempt, noted), filling, jobs, run, delete_run, deletes)| {
            let [
                content_terminating,
                held,
                theirs,
                begun,
                ready,
                handle,
                retain,
                fresh,
                able,
                terminating,
                kept,
                known,
                has_running_pods,
                abandoned,
                has_slot,
                named,
                copied,
            ] = flags;
            let mut world = new();
            let content = &mut world.content;
            (content.terminating, content.ready, content.attempt, content.abandoned) =
                (content_terminating, ready, attempt, abandoned);
            content.finalizers.extend(held.then(|| names::SNAPSHOT_FINALIZER.to_owned()));
            content.finalizers.extend(theirs.then(|| names::CONTENT_FINALIZER.to_owned()));
            content.provenance = begun.then(|| serde_json::json!(provenance()).to_string());
            content.handle = handle.then(|| if named { "h" } else { "" }.to_owned());
            // An unbound content has the id in its name, if at all.
            content.snapshot_uid = (snapshot != SnapshotState::Unbound).then(|| UID.to_owned());
            content.name = if named { names::content_name(UID) } else { "saved".to_owned() };
            content.uid = if copied { "copy" } else { "c" }.to_owned();
            content.policy = if retain { "Retain" } else { "Delete" }.into();
            content.last_failure = noted.map(|(deletes, attempt, never)| {
                let operation = if deletes { Operation::DeleteSnapshot } else { Operation::Snapshot };
                failure(operation, attempt, if never { Reaction::Never } else { Reaction::Retry })
            });
            (world.snapshot, world.fresh, world.able, world.is_terminating) = (snapshot, fresh, able, terminating);
            (world.is_protected, world.known, world.has_running_pods, world.has_slot) =
                (kept, known, has_running_pods, has_slot);
            world.source_users =
                filling.into_iter().map(|(in_progress, n)| claim(&n.to_string(), in_progress)).collect();
            world.jobs = jobs.into_iter().map(|(n, over, terminating)| Job { terminating, ..job(n, over) }).collect();
            (world.run, world.delete_run) = (run, delete_run);
            world.delete_jobs = deletes.into_iter().map(|terminating| Job { terminating, ..job(9, false) }).collect();
            world
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_run_begins_only_after_its_record_and_never_beside_another_run(world in worlds(), later in 0i64..4000) {
        let content = &world.content;
        let running = |attempt: Option<u32>| world.jobs.iter().any(|job| !job.is_over && attempt.is_none_or(|a| a == job.run_labels.attempt));
        match world.decide(NOW + later).step {
            Step::StartRun => {
                prop_assert!(content.has_finalizer() && content.provenance.is_some() && content.attempt > 0);
                prop_assert!(world.is_protected && world.fresh && world.able && !content.terminating && !content.ready);
                prop_assert!(world.snapshot == SnapshotState::Alive && world.run == RunState::NotCached);
                prop_assert!(!world.jobs.iter().any(|job| job.run_labels.attempt == content.attempt));
                prop_assert!(!content.id().is_empty());
            }
            Step::Stamp { attempt, .. } => {
                prop_assert!(attempt > content.attempt && world.able && !content.terminating && !content.ready);
                prop_assert!(!running(None) && !world.has_running_pods && content.handle.is_none());
                prop_assert!(world.has_slot);
            }
            Step::WaitForSlot => {
                prop_assert!(!world.has_slot && !content.ready && !content.terminating && content.handle.is_none());
            }
            Step::StartDelete { .. } => {
                prop_assert!(content.terminating && world.known && world.delete_run == RunState::NotCached);
                prop_assert!(!world.has_running_pods && world.jobs.is_empty() && world.run == RunState::NotCached);
                prop_assert!(world.source_users.is_empty() && world.snapshot != SnapshotState::Alive);
                prop_assert!(!content.id().is_empty() && !content.run_id().is_empty());
                let is_gone = matches!(world.snapshot, SnapshotState::NotFound | SnapshotState::Unbound);
                prop_assert!(!is_gone || !content.may_be_restored());
            }
            _ => {}
        }
    }

    #[test]
    fn a_content_is_released_only_after_its_deletion_or_if_it_is_retained(world in worlds()) {
        let content = &world.content;
        if world.decide(NOW).step == Step::RemoveFinalizer && !content.abandoned {
            let begun = content.provenance.is_some() || content.handle.is_some();
            let stays = content.policy == ReclaimPolicy::Retain && (content.ready || content.handle.is_some());
            prop_assert!(content.terminating && world.source_users.is_empty() && !world.has_running_pods);
            prop_assert!(!begun || stays || world.delete_run == RunState::Succeeded);
        }
        let Decision { rule, step, .. } = world.decide(NOW);
        if step == Step::RemoveFinalizer && matches!(rule, Rule::Abandoned | Rule::DeletedButRetained) {
            let ends = world.delete_jobs.iter().all(|job| job.terminating);
            prop_assert!(ends && (content.abandoned || world.delete_jobs.is_empty()), "a run deletes what must stay");
        }
        if step == Step::DeleteContent {
            prop_assert!(content.provenance.is_none() && content.handle.is_none() && world.snapshot == SnapshotState::NotFound);
        }
    }

    #[test]
    fn no_step_is_repeated_after_its_write(world in worlds()) {
        let decision = world.decide(NOW);
        let change = |change: &dyn Fn(&mut World)| world.clone().with(|w| change(w));
        let next = match decision.step.clone() {
            Step::WriteStatus { error } => change(&|w| w.content.error = Some(error.clone())),
            Step::MarkReady { .. } => change(&|w| w.content.ready = true),
            Step::AddFinalizer => change(&|w| w.content.finalizers.push(names::SNAPSHOT_FINALIZER.into())),
            Step::ProtectSource => change(&|w| w.is_protected = true),
            Step::Refresh => change(&|w| w.fresh = true),
            Step::RecordFailure(failure) => change(&|w| w.content.last_failure = Some(failure.clone())),
            Step::UnprotectSource { claims } => change(&|w| w.source_users.retain(|claim| !claims.contains(&claim.uid))),
            _ => return Ok(()),
        };
        prop_assert_ne!(next.decide(NOW).step, decision.step);
    }
}
