//! Properties of all observations of a volume's size.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::volume::test_runs::{is_any_awaited, is_any_in_progress, may_remove, runs};

prop_compose! {
    fn worlds()(
        (wish, size, capacity) in (1u64..6, 1u64..6, 1u64..6),
        runs in prop::collection::vec(runs(1..4, 1u64..6, job, failed), 0..3),
        note in prop::option::of((1u32..4, 1u64..6, select(vec![Reaction::Retry, Reaction::Never]), 0..4000i64).prop_map(|(attempt, size, reaction, ago)| {
            let mut note = note(attempt, size, reaction).unwrap();
            note.at -= ago;
            note
        })),
        report in prop::option::of((1u64..6, 0usize..4).prop_map(|(size, kind)| {
            let (size, error) = (size * GI, "disk on fire".to_owned());
            match kind {
                0 => ExpandUpdate::InProgress { size, error: None },
                1 => ExpandUpdate::InProgress { size, error: Some(error) },
                2 => ExpandUpdate::Infeasible { size, error },
                _ => ExpandUpdate::FileSystemPending { size },
            }
        })),
        (starting, pods_alive, on_node, terminating) in (prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>(), prop::bool::weighted(0.1)),
        known in 0usize..4,
    ) -> World {
        let mut world = World { runs, is_starting: starting, has_running_pods: pods_alive, ..world(wish) };
        world.volume = volume(if on_node { "csi: {driver: d, volumeHandle: h}" } else { "nfs: {server: s, path: /p}" });
        world.volume.size = Ok(size * GI);
        world.volume.last_failed_expansion = note;
        world.recipe = match known {
            0 => Err("lost".into()),
            1 => Ok(recipe(&[("capabilities", "")])),
            _ => Ok(recipe(&[])),
        };
        let claim = world.claim.as_mut().unwrap();
        (claim.capacity, claim.terminating) = (Some(capacity.min(size) * GI), terminating);
        match report {
            Some(report) => world.after(&report),
            None => world,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_decision_breaks_an_invariant(world in worlds()) {
        let (volume, claim) = (&world.volume, world.claim.as_ref().unwrap());
        let (size, wish) = (volume.size.clone().unwrap(), claim.size.clone().unwrap());
        let goes_on = is_any_in_progress(&world.runs);
        let Some(decision) = world.decided(NOW) else {
            let at_rest = wish <= size && (claim.capacity == Some(size) || volume.kubelet_finishes_resize);
            prop_assert!(at_rest, "a dead end");
            return Ok(());
        };
        match &decision.step {
            Step::Nothing => {
                let awaited = world.is_starting || is_any_awaited(&world.runs);
                prop_assert!(awaited || claim.terminating || decision.event.is_some() || decision.requeue_at.is_some(), "a dead end");
                prop_assert!(decision.requeue_at.is_none_or(|at| at > NOW));
            }
            Step::Start { attempt, size: target } => {
                prop_assert!(!goes_on && !world.is_starting && !world.has_running_pods && !claim.terminating, "one run at a time");
                prop_assert!(*target == wish && wish > size);
                prop_assert!(world.runs.iter().all(|(job, _)| job.run_labels.attempt < *attempt));
                prop_assert!(volume.last_failed_expansion.as_ref().is_none_or(|failed| failed.attempt < *attempt));
                let traced = [None, Some("disk on fire".to_owned())].map(|error| ExpandUpdate::InProgress { size: wish, error });
                prop_assert!(traced.iter().any(|report| report.is_written(claim)), "a run without its trace");
                prop_assert!(world.recipe.as_ref().unwrap().can(CAPABILITY));
            }
            Step::WriteCapacity { size: reached } => {
                prop_assert!(*reached > size, "no volume shrinks");
                prop_assert!(world.runs.iter().any(|(job, state)| *state == RunState::Succeeded && job.size == Some(*reached)));
            }
            // A report that was written counts as written, so that it is not written again.
            Step::WriteStatus(report) => prop_assert!(!report.is_written(claim) && report.is_written(&message(claim.clone(), report))),
            Step::Record(failed) => {
                prop_assert!(volume.last_failed_expansion.as_ref().is_none_or(|before| before.attempt < failed.attempt));
                prop_assert!(decision.event.as_ref().is_some_and(|event| event.warning));
            }
            Step::ClearFailure => prop_assert!(wish <= size && world.runs.is_empty()),
            Step::RemoveJob { job } => prop_assert!(may_remove(&world.runs, job), "a run in progress is stopped"),
        }
    }
}
