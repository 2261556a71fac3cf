//! Late runs: snapshot runs whose snapshot is gone. The decision is a pure function of their Jobs and pods.
//!
//! Somebody can remove a content with its finalizer while the run for it is in progress. Then the Job is the only record of
//! what it stores. So the Job stays until that is deleted. A Job whose request arrives late never begins
//! ([`gate`](super::gate)), and what is left of claims that are gone has a record of its own
//! ([`Record`](crate::model::record::Record)).
//!
//! The [rules](Rule) say when it takes which step.

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;
use flex_contract::request::RunRequest;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use super::failure::is_account_gone;
use super::request::AttemptStart;
use super::state::RunState;
use super::view::Job;
use crate::config::Recipe;
use crate::rules::{self, Rule as _};
use crate::run::backoff::delay;

/// The scope of these delete runs. It distinguishes them from those of snapshots that exist.
pub const SCOPE: &str = "late";

/// The objects of one snapshot id whose snapshot is gone.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Jobs of the snapshot runs.
    pub snapshot_jobs: &'a [&'a Job],
    /// A pod of such a run may still be running.
    pub has_running_pods: bool,
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
        /// An earlier delete run could not start without its ServiceAccount. This one has no account.
        without_account: bool,
    },
    /// Deletes all Jobs, those of the late runs first.
    Clear,
}

/// The rules of an id whose snapshot is gone, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// No Job of a late run is left. Deletes the Jobs of delete runs.
    NoRunLeft,
    /// A backup tool may have created the Job of the late run again. Deletes all Jobs, and emits an event: what is stored
    /// stays.
    RunRestored,
    /// The recipe of the late run is not known. Deletes all Jobs, and emits an event.
    RecipeUnknown,
    /// The late run is in progress or ending. Waits for its end.
    RunInProgress,
    /// The policy keeps what somebody has had, or is not known. Deletes all Jobs, and emits an event: what is stored stays.
    MayBeKept,
    /// What the late run stored was deleted. Deletes all Jobs.
    StorageDeleted,
    /// A delete run cannot progress. Emits an event.
    DeleteRunStuck,
    /// A delete run is in progress or ending. Waits for its end.
    DeleteRunInProgress,
    /// The last delete run failed, and the next is not due. Waits.
    DeleteRunNotDue,
    /// A delete run is due. Starts it.
    DeleteRunDue,
}

rules::table!(Rule, Step, "late-run");

/// A decision about a late run.
pub type Decision = rules::Decision<Rule>;

/// Checks whether somebody may keep what the runs stored. No Job shows that nobody has had it: a repeated request can have
/// made the snapshot. An object with the policy Delete has a finalizer until its storage is deleted, so a late run finds
/// only what nobody has.
fn may_be_kept(o: &Observed<'_>) -> bool {
    o.snapshot_jobs.iter().any(|job| job.deletion_policy != Some(ReclaimPolicy::Delete))
}

/// Decides the next step. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    if o.snapshot_jobs.is_empty() {
        return Rule::NoRunLeft.step(Step::Clear);
    }
    if o.snapshot_jobs.iter().any(|job| job.may_be_restored()) {
        let what = "a backup tool may have created this run again, so nothing is deleted: exclude Jobs from backups; if nobody uses what has this id on the storage, delete it by hand";
        return Rule::RunRestored.step(Step::Clear).with_warning(reason::FINDING_REPORTED, what);
    }
    let Some(recipe) = o.recipe else {
        let what = "the config version of this run is lost, so nothing can delete what the run may have made: look on the storage";
        return Rule::RecipeUnknown.step(Step::Clear).with_warning(reason::FINDING_REPORTED, what);
    };
    if o.has_running_pods || o.snapshot_jobs.iter().any(|job| !job.is_over) {
        return Rule::RunInProgress.nothing();
    }
    let last = o.deletes.iter().max_by_key(|(attempt, _)| *attempt);
    if !matches!(last, Some((_, RunState::Succeeded))) && may_be_kept(o) {
        let what = "this run or an earlier one may have stored what somebody keeps by its policy, so nothing is deleted: if nobody uses what has this id on the storage, delete it by hand";
        return Rule::MayBeKept.step(Step::Clear).with_warning(reason::FINDING_REPORTED, what);
    }
    let lost_account = |state: &RunState| matches!(state, RunState::Failed { cause, .. } if is_account_gone(cause));
    let without_account = o.deletes.iter().any(|(_, state)| lost_account(state));
    let start = |attempt| Rule::DeleteRunDue.step(Step::StartDelete { attempt, without_account });
    match last {
        None => start(1),
        Some((_, RunState::Succeeded)) => Rule::StorageDeleted.step(Step::Clear),
        Some((attempt, RunState::Failed { at, pods_ended: true, .. })) => {
            // No object stores the time of the failure. So a node whose clock is ahead would delay the next run.
            let due = (*at).min(now).saturating_add(delay(recipe, *attempt));
            match now < due {
                true => Rule::DeleteRunNotDue.nothing().requeue_at(due),
                false => start(attempt.saturating_add(1)),
            }
        }
        Some((_, RunState::Stuck { cause, .. })) => {
            let what = format!("what this run may have made cannot be deleted now: {}", cause.message);
            Rule::DeleteRunStuck.warn(reason::FINDING_REPORTED, what)
        }
        Some(_) => Rule::DeleteRunInProgress.nothing(),
    }
}

/// Returns the request of a delete run for what a late run may have stored. `own` is the request of the late run, the only
/// record that is left. Some backends tell what they stored only to a client that sends the same request again. So the
/// delete run names the same snapshot and node.
pub fn delete_request(own: RunRequest, recipe: &Recipe, start: AttemptStart) -> RunRequest {
    RunRequest {
        operation: Operation::DeleteSnapshot,
        attempt: start.attempt,
        provision_ts: start.ts,
        attempts_alike: false,
        parameters: recipe.parameters.clone(),
        ..own
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use flex_contract::request::Snapshot;

    use super::*;
    use crate::config::classes::Identity;
    use crate::config::effective_config::EffectiveConfig;
    use crate::object::ObjectName;
    use crate::run::request::of_class;
    use crate::run::state::Cause;

    const NOW: i64 = 1_000_000;

    fn recipe() -> Recipe {
        let data = [("image", "x"), ("backoff", "10s..60s")];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let config = ObjectName::new("admin", "silver");
        EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    fn failed(pods_ended: bool) -> RunState {
        RunState::Failed { cause: Cause::new("Error", "busy"), reaction: Reaction::Retry, at: NOW, pods_ended }
    }

    /// Returns the Job of a snapshot run whose snapshot has the policy Delete.
    fn job(is_over: bool) -> Job {
        Job { is_over, deletion_policy: Some(ReclaimPolicy::Delete), ..Job::default() }
    }

    fn decided_of(jobs: &[Job], deletes: &[(u32, RunState)], now: i64) -> Decision {
        let (recipe, snapshot_jobs) = (recipe(), jobs.iter().collect::<Vec<_>>());
        let observed =
            Observed { snapshot_jobs: &snapshot_jobs, has_running_pods: false, recipe: Some(&recipe), deletes };
        decide(&observed, now)
    }

    fn decided(is_over: bool, deletes: &[(u32, RunState)], now: i64) -> Decision {
        decided_of(&[job(is_over)], deletes, now)
    }

    fn start(attempt: u32) -> Decision {
        Rule::DeleteRunDue.step(Step::StartDelete { attempt, without_account: false })
    }

    #[test]
    fn the_storage_of_a_late_run_is_deleted_after_its_end() {
        assert_eq!(decided(false, &[], NOW), Rule::RunInProgress.nothing(), "the run may still make storage");
        assert_eq!(decided(true, &[], NOW), start(1));
        for waits in [RunState::MayBeRunning, RunState::NotCached, failed(false)] {
            assert_eq!(decided(true, &[(1, waits)], NOW), Rule::DeleteRunInProgress.nothing());
        }
        assert_eq!(decided(true, &[(1, RunState::Succeeded)], NOW), Rule::StorageDeleted.step(Step::Clear));
    }

    #[test]
    fn a_failed_delete_run_is_retried_by_the_backoff_of_the_class() {
        let waits = |until| Rule::DeleteRunNotDue.nothing().requeue_at(until);
        assert_eq!(decided(true, &[(1, failed(true))], NOW), waits(NOW + 10));
        assert_eq!(decided(true, &[(1, failed(true))], NOW + 10), start(2));
        assert_eq!(decided(true, &[(1, failed(true)), (2, failed(true))], NOW), waits(NOW + 20));
        assert_eq!(decided(true, &[(9, failed(true))], NOW + 1800), start(10));
        let deleted = decided(true, &[(2, RunState::Succeeded), (1, failed(true))], NOW);
        assert_eq!(deleted, Rule::StorageDeleted.step(Step::Clear));
    }

    #[test]
    fn a_delete_run_has_no_account_after_that_of_an_earlier_one_was_gone() {
        let cause =
            Cause::new("DeadlineExceeded", "the pod did not start within 60 s: serviceaccount \"foo\" not found");
        let lost = RunState::Failed { cause, reaction: Reaction::Retry, at: NOW - 60, pods_ended: true };
        let without_account = |attempt| Step::StartDelete { attempt, without_account: true };
        assert_eq!(decided(true, &[(1, lost.clone())], NOW).step, without_account(2));
        let later = decided(true, &[(1, lost), (2, failed(true))], NOW + 20);
        assert_eq!(later.step, without_account(3), "the second failed for another reason");
    }

    /// The policy of a snapshot is that of its content, whatever the class has for volumes.
    #[test]
    fn what_a_policy_may_keep_is_never_deleted() {
        let with = |policy: Option<ReclaimPolicy>| Job { deletion_policy: policy, ..job(true) };
        for policy in [Some(ReclaimPolicy::Retain), None] {
            for jobs in [vec![with(policy.clone())], vec![with(policy.clone()), job(true)]] {
                for deletes in [&[][..], &[(1, RunState::MayBeRunning)], &[(1, failed(true))]] {
                    let decision = decided_of(&jobs, deletes, NOW);
                    assert_eq!((decision.rule, decision.step), (Rule::MayBeKept, Step::Clear), "{jobs:?}");
                    let event = decision.event.unwrap();
                    assert!(event.warning && event.message.contains("nothing is deleted"), "{event:?}");
                }
            }
            let done = [(1, RunState::Succeeded)];
            assert_eq!(decided_of(&[with(policy)], &done, NOW).rule, Rule::StorageDeleted);
        }
        assert_eq!(decided_of(&[job(true), job(true)], &[], NOW), start(1), "the policy is Delete");
    }

    /// Backup tools copy Jobs, and Kubernetes runs the copies.
    #[test]
    fn a_restored_run_deletes_nothing_whatever_its_policy() {
        let recipe = recipe();
        for (is_over, recipe) in [(true, Some(&recipe)), (false, Some(&recipe)), (true, None)] {
            let restored = Job { created: NOW, requested: Some(NOW - 3600), ..job(is_over) };
            let snapshot_jobs = [&restored];
            let observed = Observed { snapshot_jobs: &snapshot_jobs, has_running_pods: !is_over, recipe, deletes: &[] };
            let decision = decide(&observed, NOW);
            assert_eq!((decision.rule, decision.step), (Rule::RunRestored, Step::Clear));
            assert!(decision.event.is_some_and(|event| event.message.contains("exclude Jobs from backups")));
        }
    }

    /// A backend may tell what it stored only to a client that sends the same request again.
    #[test]
    fn a_delete_run_asks_as_the_late_run_did() {
        let recipe = recipe();
        let start = |attempt| AttemptStart { attempt, ts: format!("2026-01-0{attempt}T00:00:00Z") };
        let own = RunRequest {
            volume_id: "v".into(),
            attempts_alike: true,
            snapshot: Some(Snapshot { id: "s".into(), ..Snapshot::default() }),
            node_name: "n".into(),
            volume_source: "{}".into(),
            parameters: [("of".to_owned(), "an older image".to_owned())].into(),
            ..of_class(Operation::Snapshot, &recipe, &Identity::of_tests(), "k", start(1))
        };
        let expected = RunRequest {
            operation: Operation::DeleteSnapshot,
            attempt: 2,
            attempts_alike: false,
            provision_ts: start(2).ts,
            parameters: recipe.parameters.clone(),
            ..own.clone()
        };
        assert_eq!(delete_request(own, &recipe, start(2)), expected);
    }

    #[test]
    fn a_delete_run_that_cannot_progress_is_told() {
        let stuck = RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: NOW };
        let decision = decided(true, &[(1, stuck)], NOW);
        assert_eq!((decision.rule, decision.step), (Rule::DeleteRunStuck, Step::Nothing));
        let event = decision.event.unwrap();
        assert!(event.warning && event.message.ends_with("cannot be deleted now: no such image"), "{event:?}");
    }

    #[test]
    fn jobs_without_information_are_cleared() {
        let (recipe, job) = (recipe(), Job::default());
        let snapshot_jobs = [&job];
        let waits =
            Observed { snapshot_jobs: &snapshot_jobs, has_running_pods: true, recipe: Some(&recipe), deletes: &[] };
        let rule = |o: Observed<'_>, step| {
            let decision = decide(&o, NOW);
            assert_eq!(decision.step, step, "{decision:?}");
            decision.rule
        };
        assert_eq!(rule(waits.clone(), Step::Nothing), Rule::RunInProgress, "its pod runs");
        let lost = Observed { recipe: None, ..waits.clone() };
        assert!(decide(&lost, NOW).event.unwrap().message.contains("look on the storage"));
        assert_eq!(rule(lost, Step::Clear), Rule::RecipeUnknown);
        assert_eq!(rule(Observed { snapshot_jobs: &[], ..waits }, Step::Clear), Rule::NoRunLeft);
    }
}
