//! Late runs: provision runs whose claim is gone. The decision is a pure function of their Jobs, pods and volumes.
//!
//! A request to create a Job can arrive after its claim was cleaned up and deleted. Then the Job is the only record of
//! the storage that it makes. So the Job stays until that storage is deleted.
//!
//! The first row that holds applies.
//!
//! | # | for the id there is | and | step |
//! |---|---|---|---|
//! | 1 | a volume, or no provision Job | | [`Step::Clear`]: the reconciler of volumes deletes the volume |
//! | 2 | a provision Job | its recipe is not known | [`Step::Clear`] |
//! | 3 | a provision Job | it has not ended, or a pod of it may run | wait for its end |
//! | 4 | a provision Job that has ended | the last delete run is absent, failed, or done | [`Step::StartDelete`], the same later, or [`Step::Clear`] |

use super::state::RunState;
use super::view::Job;
use crate::config::Recipe;
use crate::decision::Decision;
use crate::run::backoff::delay;

/// The scope of these delete runs. It distinguishes them from those of claims and volumes.
pub const SCOPE: &str = "late";

/// The objects of one volume id whose claim is gone.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The provision Jobs.
    pub provisions: &'a [&'a Job],
    /// A pod of a provision run may still be running.
    pub has_running_pods: bool,
    /// A volume with the id exists.
    pub volume: bool,
    /// The recipe of the Jobs.
    pub recipe: Option<&'a Recipe>,
    /// The delete runs of [`SCOPE`], with their numbers.
    pub deletes: &'a [(u32, RunState)],
}

/// The next step for an id.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Creates the Job of a delete run.
    StartDelete {
        /// The number of the delete run, from 1.
        attempt: u32,
    },
    /// Deletes all Jobs, the provision Jobs first.
    Clear,
}

/// Decides the next step. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision<Step> {
    let Some(recipe) = o.recipe.filter(|_| !o.volume && !o.provisions.is_empty()) else {
        return Step::Clear.into();
    };
    if o.has_running_pods || o.provisions.iter().any(|job| !job.is_over) {
        return Step::Nothing.into();
    }
    match o.deletes.iter().max_by_key(|(attempt, _)| *attempt) {
        None => Step::StartDelete { attempt: 1 }.into(),
        Some((_, RunState::Succeeded)) => Step::Clear.into(),
        Some((attempt, RunState::Failed { at, pods_ended: true, .. })) => {
            // No object stores the time of the failure. So a node whose clock is ahead would delay the next run.
            let due = (*at).min(now).saturating_add(delay(recipe, *attempt));
            match now < due {
                true => Decision::from(Step::Nothing).requeue_at(due),
                false => Step::StartDelete { attempt: attempt.saturating_add(1) }.into(),
            }
        }
        Some(_) => Step::Nothing.into(),
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Failure;

    use super::*;
    use crate::config::record::EffectiveConfig;
    use crate::object::ObjectName;
    use crate::run::state::Cause;

    const NOW: i64 = 1_000_000;

    fn recipe() -> Recipe {
        let data = [("image".to_owned(), "x".to_owned()), ("backoff".into(), "10s..60s".into())].into();
        let config = ObjectName::new("admin", "silver");
        EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    fn failed(pods_ended: bool) -> RunState {
        RunState::Failed { cause: Cause::new("Error", "busy"), kind: Failure::Retry, at: NOW, pods_ended }
    }

    fn decided(is_over: bool, deletes: &[(u32, RunState)], now: i64) -> Decision<Step> {
        let (recipe, job) = (recipe(), Job { is_over, ..Job::default() });
        let provisions = [&job];
        decide(
            &Observed {
                provisions: &provisions,
                has_running_pods: false,
                volume: false,
                recipe: Some(&recipe),
                deletes,
            },
            now,
        )
    }

    #[test]
    fn the_storage_of_a_late_run_is_deleted_after_its_end() {
        assert_eq!(decided(false, &[], NOW).step, Step::Nothing, "the run may still make storage");
        assert_eq!(decided(true, &[], NOW).step, Step::StartDelete { attempt: 1 });
        for waits in [RunState::Running, RunState::Absent, failed(false)] {
            assert_eq!(decided(true, &[(1, waits)], NOW).step, Step::Nothing);
        }
        assert_eq!(decided(true, &[(1, RunState::Succeeded)], NOW).step, Step::Clear);
    }

    #[test]
    fn a_failed_delete_run_is_retried_by_the_backoff_of_the_class() {
        let first = decided(true, &[(1, failed(true))], NOW);
        assert_eq!((first.step, first.requeue_at), (Step::Nothing, Some(NOW + 10)));
        assert_eq!(decided(true, &[(1, failed(true))], NOW + 10).step, Step::StartDelete { attempt: 2 });
        let second = decided(true, &[(1, failed(true)), (2, failed(true))], NOW);
        assert_eq!(second.requeue_at, Some(NOW + 20));
        assert_eq!(decided(true, &[(9, failed(true))], NOW + 1800).step, Step::StartDelete { attempt: 10 });
        assert_eq!(decided(true, &[(2, RunState::Succeeded), (1, failed(true))], NOW).step, Step::Clear);
    }

    #[test]
    fn jobs_without_information_are_cleared() {
        let (recipe, job) = (recipe(), Job::default());
        let provisions = [&job];
        let left = Observed {
            provisions: &provisions,
            has_running_pods: true,
            volume: true,
            recipe: Some(&recipe),
            deletes: &[],
        };
        assert_eq!(decide(&left, NOW).step, Step::Clear, "the volume's own reconciliation deletes it");
        assert_eq!(decide(&Observed { volume: false, ..left.clone() }, NOW).step, Step::Nothing, "its pod runs");
        assert_eq!(decide(&Observed { volume: false, recipe: None, ..left.clone() }, NOW).step, Step::Clear);
        assert_eq!(decide(&Observed { volume: false, provisions: &[], ..left }, NOW).step, Step::Clear);
    }
}
