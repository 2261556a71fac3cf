//! Late runs: provision runs whose claim is gone, and snapshot runs whose snapshot is gone. The decision is a pure
//! function of their Jobs, pods and volumes.
//!
//! A request to create a Job can arrive after its claim or snapshot was cleaned up and deleted. Then the Job is the only
//! record of the storage that it makes. So the Job stays until that storage is deleted.
//!
//! The [rules](Rule) say when it takes which step.

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;
use flex_contract::request::RunRequest;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use super::failure::is_account_gone;
use super::request::{AttemptStart, with_attributes};
use super::state::RunState;
use super::view::Job;
use crate::config::Recipe;
use crate::config::modify::Attributes;
use crate::rules::{self, Rule as _};
use crate::run::backoff::delay;

/// The scope of these delete runs. It distinguishes them from those of claims and volumes.
pub const SCOPE: &str = "late";

/// The time after which a late run is looked at again that a volume needs as evidence, in seconds.
const VOLUME_POLL: i64 = 5;

/// The volume with the id of late runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateVolume {
    /// There is none.
    Gone,
    /// The volume exists, was never adopted, and has the policy Delete. A Job that somebody created again is the
    /// evidence that its storage must stay.
    NeedsEvidence,
    /// The volume exists, and does not need the Jobs.
    Exists,
}

/// The objects of one volume id whose claim is gone, or of one snapshot id whose snapshot is gone.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Jobs of the provision runs, or of the snapshot runs.
    pub creating_jobs: &'a [&'a Job],
    /// A pod of such a run may still be running.
    pub has_running_pods: bool,
    /// The volume with the id.
    pub volume: LateVolume,
    /// A run of the id has succeeded, and such runs create a volume as their last act.
    pub made_volume: bool,
    /// The runs are for a snapshot.
    pub is_of_snapshot: bool,
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

/// The rules of an id whose claim or snapshot is gone, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A volume that was never adopted has the id, and the policy Delete; and a backup tool may have created the Job of
    /// the late run again, or the Job names its node. Waits until the reconciler of volumes has removed the volume: the
    /// Job is the evidence that the storage must stay, or where it is.
    RunIsEvidence,
    /// A volume has the id. Deletes all Jobs: the reconciler of volumes deletes the volume.
    VolumeExists,
    /// No Job of a late run is left. Deletes the Jobs of delete runs.
    NoRunLeft,
    /// A backup tool may have created the Job of the late run again. Deletes all Jobs, and emits an event: what is stored
    /// stays.
    RunRestored,
    /// The recipe of the late run is not known. Deletes all Jobs, and emits an event.
    RecipeUnknown,
    /// The late run is in progress or ending. Waits for its end.
    RunInProgress,
    /// The run has made a volume, and the volume is gone. Deletes all Jobs: the storage was deleted with the volume, or
    /// somebody keeps it.
    VolumeRemoved,
    /// The policy keeps what somebody has had, or is not known. Deletes all Jobs, and emits an event: what is stored stays.
    MayBeKept,
    /// The storage of the late run was deleted. Deletes all Jobs.
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

/// Checks whether somebody may keep what the runs stored. No Job shows that nobody has had it: a run can fail after it has
/// made its volume, and a repeated request can have made the snapshot. An object with the policy Delete has a finalizer
/// until its storage is deleted, so a late run finds only what nobody has.
fn may_be_kept(o: &Observed<'_>, recipe: &Recipe) -> bool {
    match o.is_of_snapshot {
        true => o.creating_jobs.iter().any(|job| job.deletion_policy != Some(ReclaimPolicy::Delete)),
        false => recipe.reclaim_policy != ReclaimPolicy::Delete,
    }
}

/// Decides the next step. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let is_restored = o.creating_jobs.iter().any(|job| job.may_be_restored());
    let names_node = || o.creating_jobs.iter().any(|job| job.node.is_some());
    let recipe = match o.recipe {
        _ if (is_restored || names_node()) && o.volume == LateVolume::NeedsEvidence => {
            return Rule::RunIsEvidence.nothing().requeue_at(now.saturating_add(VOLUME_POLL));
        }
        _ if o.volume != LateVolume::Gone => return Rule::VolumeExists.step(Step::Clear),
        _ if o.creating_jobs.is_empty() => return Rule::NoRunLeft.step(Step::Clear),
        _ if is_restored => {
            let what = "a backup tool may have created this run again, so nothing is deleted: exclude Jobs from backups; if nobody uses what has this id on the storage, delete it by hand";
            return Rule::RunRestored.step(Step::Clear).with_warning(reason::FINDING_REPORTED, what);
        }
        None => {
            let what = "the config version of this run is lost, so nothing can delete what the run may have made: look on the storage";
            return Rule::RecipeUnknown.step(Step::Clear).with_warning(reason::FINDING_REPORTED, what);
        }
        Some(recipe) => recipe,
    };
    if o.has_running_pods || o.creating_jobs.iter().any(|job| !job.is_over) {
        return Rule::RunInProgress.nothing();
    }
    if o.made_volume {
        return Rule::VolumeRemoved.step(Step::Clear);
    }
    let last = o.deletes.iter().max_by_key(|(attempt, _)| *attempt);
    if !matches!(last, Some((_, RunState::Succeeded))) && may_be_kept(o, recipe) {
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

/// Returns the request of a delete run for what a late run may have made. `own` is the request of the late run, the only
/// record that is left. Some backends tell which storage they made only to a client that sends the same request again. So
/// the delete run has the same data source, node and attributes. `is_only` says that there is no other late run of the id,
/// which may have asked for something else.
pub fn delete_request(
    own: RunRequest,
    recipe: &Recipe,
    operation: Operation,
    start: AttemptStart,
    is_only: bool,
) -> RunRequest {
    let class = Some(own.attributes_class.clone()).filter(|class| !class.is_empty());
    let attributes = Attributes { class, parameters: own.attributes.clone() };
    let attempts_alike = is_only && operation == Operation::Delete;
    let request = RunRequest { operation, attempt: start.attempt, provision_ts: start.ts, attempts_alike, ..own };
    with_attributes(request, &attributes, recipe)
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use flex_contract::request::{CloneSource, Snapshot};

    use super::*;
    use crate::config::classes::Identity;
    use crate::config::effective_config::EffectiveConfig;
    use crate::object::ObjectName;
    use crate::run::request::of_class;
    use crate::run::state::Cause;
    use crate::run::view::RunLabels;

    const NOW: i64 = 1_000_000;

    fn recipe() -> Recipe {
        recipe_of(&[])
    }

    fn recipe_of(more: &[(&str, &str)]) -> Recipe {
        let all = [("image", "x"), ("backoff", "10s..60s")].iter().chain(more);
        let data = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = ObjectName::new("admin", "silver");
        EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    fn failed(pods_ended: bool) -> RunState {
        RunState::Failed { cause: Cause::new("Error", "busy"), reaction: Reaction::Retry, at: NOW, pods_ended }
    }

    fn decided(is_over: bool, deletes: &[(u32, RunState)], now: i64) -> Decision {
        let (recipe, job) = (recipe(), Job { is_over, ..Job::default() });
        let creating_jobs = [&job];
        let observed = Observed {
            creating_jobs: &creating_jobs,
            has_running_pods: false,
            volume: LateVolume::Gone,
            made_volume: false,
            is_of_snapshot: false,
            recipe: Some(&recipe),
            deletes,
        };
        decide(&observed, now)
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

    /// The orchestrator may have been away while somebody deleted a claim, and a volume that its policy retains.
    #[test]
    fn the_storage_of_a_volume_that_was_there_is_never_deleted_by_the_run_that_made_it() {
        let (recipe, job) = (recipe(), Job { is_over: true, ..Job::default() });
        let creating_jobs = [&job];
        for deletes in [&[][..], &[(1, failed(true))]] {
            let gone = Observed {
                creating_jobs: &creating_jobs,
                has_running_pods: false,
                volume: LateVolume::Gone,
                made_volume: true,
                is_of_snapshot: false,
                recipe: Some(&recipe),
                deletes,
            };
            assert_eq!(decide(&gone, NOW), Rule::VolumeRemoved.step(Step::Clear));
            let ending = Observed { has_running_pods: true, ..gone.clone() };
            assert_eq!(decide(&ending, NOW).rule, Rule::RunInProgress);
            assert_eq!(decide(&Observed { volume: LateVolume::Exists, ..gone }, NOW).rule, Rule::VolumeExists);
        }
    }

    /// The volume of a class with the policy Retain may have had an owner, and an admin may have deleted its object. The
    /// run that made the volume may have failed afterwards.
    #[test]
    fn what_a_policy_may_keep_is_never_deleted() {
        let retain = recipe_of(&[("reclaim-policy", "Retain")]);
        let job = |attempt: u32| {
            let run_labels = RunLabels { attempt, ..RunLabels::default() };
            Job { is_over: true, is_first: attempt == 1, run_labels, ..Job::default() }
        };
        let of_snapshot = |attempt: u32, policy| Job { deletion_policy: policy, ..job(attempt) };
        let decided = |recipe: &Recipe, jobs: &[Job], is_of_snapshot: bool, deletes: &[(u32, RunState)]| {
            let creating_jobs: Vec<&Job> = jobs.iter().collect();
            let observed = Observed {
                creating_jobs: &creating_jobs,
                has_running_pods: false,
                volume: LateVolume::Gone,
                made_volume: false,
                is_of_snapshot,
                recipe: Some(recipe),
                deletes,
            };
            decide(&observed, NOW)
        };
        for jobs in [vec![job(1)], vec![job(2)], vec![job(1), job(2)]] {
            for deletes in [&[][..], &[(1, RunState::MayBeRunning)], &[(1, failed(true))]] {
                let decision = decided(&retain, &jobs, false, deletes);
                assert_eq!((decision.rule, decision.step), (Rule::MayBeKept, Step::Clear), "{jobs:?}");
                assert!(
                    decision.event.is_some_and(|event| event.warning && event.message.contains("nothing is deleted"))
                );
            }
            assert_eq!(decided(&recipe(), &jobs, false, &[]), start(1), "the policy is Delete");
        }
        // The policy of a snapshot is that of its content, whatever the class has for volumes.
        for recipe in [&recipe(), &retain] {
            for attempt in [1, 2] {
                let deletes = [of_snapshot(attempt, Some(ReclaimPolicy::Delete))];
                assert_eq!(decided(recipe, &deletes, true, &[]), start(1));
                for policy in [Some(ReclaimPolicy::Retain), None] {
                    let keeps = [of_snapshot(attempt, policy.clone())];
                    assert_eq!(decided(recipe, &keeps, true, &[]).rule, Rule::MayBeKept, "{policy:?}");
                }
            }
        }
        let done = [(1, RunState::Succeeded)];
        assert_eq!(decided(&retain, &[job(2)], false, &done).rule, Rule::StorageDeleted);
    }

    /// Backup tools copy Jobs, and Kubernetes runs the copies.
    #[test]
    fn a_restored_run_deletes_nothing_whatever_its_policy() {
        let recipe = recipe();
        let job = Job { created: NOW, requested: Some(NOW - 3600), is_first: true, ..Job::default() };
        for (is_over, recipe) in [(true, Some(&recipe)), (false, Some(&recipe)), (true, None)] {
            let job = Job { is_over, ..job.clone() };
            let creating_jobs = [&job];
            let observed = Observed {
                creating_jobs: &creating_jobs,
                has_running_pods: !is_over,
                volume: LateVolume::Gone,
                made_volume: false,
                is_of_snapshot: false,
                recipe,
                deletes: &[],
            };
            let decision = decide(&observed, NOW);
            assert_eq!((decision.rule, decision.step), (Rule::RunRestored, Step::Clear));
            assert!(decision.event.is_some_and(|event| event.message.contains("exclude Jobs from backups")));
            // Without the Job, the volume that it made looks like one of the orchestrator's own runs.
            let with = |volume| decide(&Observed { volume, made_volume: true, ..observed.clone() }, NOW);
            let waits = Rule::RunIsEvidence.nothing().requeue_at(NOW + VOLUME_POLL);
            assert_eq!(with(LateVolume::NeedsEvidence), waits);
            assert_eq!(with(LateVolume::Exists), Rule::VolumeExists.step(Step::Clear));
        }
    }

    /// Labels of nodes change, and no other object names the node of a volume that was never adopted.
    #[test]
    fn a_job_that_names_the_node_of_a_volume_stays_until_the_volume_is_gone() {
        let (recipe, job) = (recipe(), Job { is_over: true, node: Some("n1".into()), ..Job::default() });
        let creating_jobs = [&job];
        let decided = |volume| {
            let observed = Observed {
                creating_jobs: &creating_jobs,
                has_running_pods: false,
                volume,
                made_volume: true,
                is_of_snapshot: false,
                recipe: Some(&recipe),
                deletes: &[],
            };
            decide(&observed, NOW)
        };
        let waits = Rule::RunIsEvidence.nothing().requeue_at(NOW + VOLUME_POLL);
        assert_eq!(decided(LateVolume::NeedsEvidence), waits);
        assert_eq!(decided(LateVolume::Exists), Rule::VolumeExists.step(Step::Clear));
        assert_eq!(decided(LateVolume::Gone), Rule::VolumeRemoved.step(Step::Clear));
    }

    /// A CSI driver answers ALREADY_EXISTS to a request for the same name without its data source, and never tells which
    /// volume it made.
    #[test]
    fn a_delete_run_asks_as_the_late_run_did() {
        let recipe = recipe();
        let start = |attempt| AttemptStart { attempt, ts: format!("2026-01-0{attempt}T00:00:00Z") };
        let own = RunRequest {
            volume_id: "v".into(),
            clone_of: Some(CloneSource { id: "source".into(), source: "{}".into(), ..CloneSource::default() }),
            snapshot: Some(Snapshot { id: "s".into(), ..Snapshot::default() }),
            attributes_class: "fast".into(),
            attributes: [("iops".to_owned(), "9".to_owned())].into(),
            node_name: "n".into(),
            topology: [("zone".to_owned(), "b".to_owned())].into(),
            class_topologies: "[]".into(),
            parameters: [("of".to_owned(), "an older image".to_owned())].into(),
            ..of_class(Operation::Provision, &recipe, &Identity::of_tests(), "k", start(1))
        };
        let again = delete_request(own.clone(), &recipe, Operation::Delete, start(2), true);
        assert!(!delete_request(own.clone(), &recipe, Operation::Delete, start(2), false).attempts_alike);
        assert_eq!(again.parameters.get("iops").map(String::as_str), Some("9"), "the attributes are parameters too");
        let expected = RunRequest {
            operation: Operation::Delete,
            attempt: 2,
            attempts_alike: true,
            provision_ts: start(2).ts,
            parameters: again.parameters.clone(),
            ..own
        };
        assert_eq!(again, expected);
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
        let creating_jobs = [&job];
        let left = Observed {
            creating_jobs: &creating_jobs,
            has_running_pods: true,
            volume: LateVolume::Exists,
            made_volume: false,
            is_of_snapshot: false,
            recipe: Some(&recipe),
            deletes: &[],
        };
        let rule = |o: Observed<'_>, step| {
            let decision = decide(&o, NOW);
            assert_eq!(decision.step, step, "{decision:?}");
            decision.rule
        };
        assert_eq!(rule(left.clone(), Step::Clear), Rule::VolumeExists, "the volume's own reconciliation deletes it");
        let own = Observed { volume: LateVolume::NeedsEvidence, ..left.clone() };
        assert_eq!(rule(own, Step::Clear), Rule::VolumeExists, "nobody created the Job again");
        let waits = Observed { volume: LateVolume::Gone, ..left };
        assert_eq!(rule(waits.clone(), Step::Nothing), Rule::RunInProgress, "its pod runs");
        let lost = Observed { recipe: None, ..waits.clone() };
        assert!(decide(&lost, NOW).event.unwrap().message.contains("look on the storage"));
        assert_eq!(rule(lost, Step::Clear), Rule::RecipeUnknown);
        assert_eq!(rule(Observed { creating_jobs: &[], ..waits }, Step::Clear), Rule::NoRunLeft);
    }
}
