//! Properties of all observations of a volume's attributes.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::volume::test_runs::{is_any_awaited, is_any_in_progress, may_remove, runs};

fn classes() -> impl Strategy<Value = &'static str> {
    select(vec!["", "gold", "silver", "bronze"])
}

prop_compose! {
    fn notes()(
        (attempt, begun) in (0u32..5, 0u32..5),
        (class, to) in (classes(), classes()),
        reaction in select(vec![Reaction::Retry, Reaction::Never, Reaction::NoCapacity]),
        (between, ago) in (any::<bool>(), 0..4000i64),
    ) -> PendingModification {
        let note = note(attempt, class, reaction);
        PendingModification { begun_attempt: begun.max(attempt), begun_target: attributes(to).hash(), has_unknown_attributes: between, at: NOW - ago, ..note }
    }
}

prop_compose! {
    fn worlds()(
        (has, wish) in (classes(), classes()),
        runs in prop::collection::vec(runs(1..6, classes(), job, failed), 0..3),
        note in prop::option::of(notes()),
        report in prop::option::of((classes(), 0usize..5).prop_map(|(class, kind)| {
            let (class, error) = (named(class), "array on fire".to_owned());
            match kind {
                0 => ModifyUpdate::Pending { class },
                1 => ModifyUpdate::Modifying { class, error: None },
                2 => ModifyUpdate::Modifying { class, error: Some(error) },
                3 => ModifyUpdate::Infeasible { class, error },
                _ => ModifyUpdate::Finished { class },
            }
        })),
        (starting, pods_alive, others_alive, terminating) in (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1)),
        known in 0usize..5,
    ) -> World {
        let mut world = World { runs, is_starting: starting, has_running_pods: pods_alive, has_other_running_pods: others_alive, ..world(has, wish) };
        world.volume.pending_modification = note.map(Box::new);
        match known {
            0 => world.recipe = Err("lost".into()),
            1 => world.recipe = Ok(recipe(&[("capabilities", "")])),
            2 => world.requested_attributes = Err("no such class".into()),
            _ => {}
        }
        world.claim.as_mut().unwrap().terminating = terminating;
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
        let (has, wanted) = (volume.attributes(), &claim.attributes_class);
        let settled = has_requested_attributes(volume, claim) && !has_unknown_attributes(volume);
        let goes_on = is_any_in_progress(&world.runs);
        let Some(decision) = world.decided(NOW) else {
            prop_assert!(settled && finished(has.class.as_deref().unwrap_or_default()).is_written(claim), "a dead end");
            return Ok(());
        };
        match &decision.step {
            Step::Nothing => {
                let awaited = world.is_starting || is_any_awaited(&world.runs);
                prop_assert!(awaited || claim.terminating || decision.event.is_some() || decision.requeue_at.is_some(), "a dead end");
                prop_assert!(decision.requeue_at.is_none_or(|at| at > NOW));
            }
            Step::Start { attempt, attributes } => {
                let alive = world.is_starting || world.has_running_pods || world.has_other_running_pods;
                prop_assert!(!goes_on && !alive && !claim.terminating, "one run at a time");
                prop_assert!(attributes.class == *wanted || attributes == has);
                prop_assert!(attributes != has || has_unknown_attributes(volume), "a run for nothing");
                prop_assert!(world.runs.iter().all(|(job, _)| job.run_labels.attempt < *attempt));
                let note = volume.pending_modification.as_ref().expect("a run without its trace on the volume");
                prop_assert!(note.begun_attempt == *attempt && note.failed_attempt < *attempt && note.begun_target == attributes.hash());
                prop_assert!(world.recipe.as_ref().unwrap().can(CAPABILITY));
            }
            Step::WriteAttributes(applied) => {
                prop_assert!(world.runs.iter().any(|(job, state)| *state == RunState::Succeeded && job.attributes.as_ref() == Some(&applied.attributes) && job.run_labels.attempt == applied.run));
                prop_assert!(volume.applied.as_ref().is_none_or(|before| before.run < applied.run), "what is over is applied again");
            }
            // A report that was written counts as written, so that it is not written again.
            Step::WriteStatus(report) => {
                prop_assert!(!report.is_written(claim) && report.is_written(&message(claim.clone(), report)));
                let success = matches!(report, ModifyUpdate::Finished { .. });
                prop_assert!(!success || settled, "what may be in between is called done");
            }
            Step::Record(note) => {
                let before = volume.pending_modification.as_deref();
                prop_assert!(before != Some(note));
                prop_assert!(before.is_none_or(|before| before.failed_attempt <= note.failed_attempt && before.begun_attempt.max(before.failed_attempt) <= note.begun_attempt.max(note.failed_attempt)));
                let forgotten = before.is_some_and(|before| before.has_unknown_attributes) && !note.has_unknown_attributes;
                prop_assert!(!forgotten, "that it may be in between is forgotten");
            }
            Step::ClearNote => prop_assert!(settled && world.runs.is_empty()),
            Step::RemoveJob { job } => prop_assert!(may_remove(&world.runs, job), "a run in progress is stopped"),
        }
    }
}
