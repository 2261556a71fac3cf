//! The Jobs of claims that are gone: nothing needs them without a stand-in for the claim.
//!
//! A record names what an attempt may have left, and the stand-in undoes it together with its Jobs. Without a record,
//! either all is undone, or nobody opened the run of such a Job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::object::ObjectName;
use flex_core::run::gate;
use flex_core::run::job;
use flex_core::run::view::Job;

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, Requeue};
use crate::state::index::{Index, WorkItem};

/// The delay before Jobs are looked at again while this process may be creating one of them.
const CREATION_POLL: Duration = Duration::from_secs(2);

/// Deletes the Jobs of a claim that is gone, by its name or that of its stand-in.
pub(super) async fn clean_up(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    // A reconcile that began before the claim was gone may have queued it.
    context.cluster.update(|index| index.stop_waiting_for_slot(&WorkItem::Claim(name.clone())));
    let name = name_of_claim(name);
    let ids: BTreeSet<String> = {
        let index = context.cluster.index();
        let jobs = index.jobs_of_claim(&name).into_iter().filter(|job| !job.terminating);
        jobs.map(|job| job.run_labels.id.clone()).filter(|id| index.claim_by_id(id).is_none()).collect()
    };
    if ids.is_empty() {
        return Ok(Requeue::Done);
    }
    // The cache may be stale: the API is asked before a run is stopped.
    let there = context.writes.read_claim(&name).await?;
    let mut next = Requeue::Done;
    for id in ids.iter().filter(|id| there.as_ref().is_none_or(|claim| claim.uid != **id)) {
        if let Requeue::After(delay) = remove_jobs(context, id).await? {
            next = Requeue::After(delay);
        }
    }
    Ok(next)
}

/// Deletes the Jobs of an id that belongs to no claim, as the API has confirmed. Returns when to look again if this process may
/// be creating one of them.
pub(in crate::reconcile) async fn remove_jobs(context: &Context, id: &str) -> Result<Requeue, WriteError> {
    let jobs: Vec<Arc<Job>> = {
        let jobs = context.cluster.index().jobs_of(id).into_iter();
        jobs.filter(|job| job.is_for_claim() && !job.terminating).collect()
    };
    {
        let index = context.cluster.index();
        // A watch may have shown the claim or its record meanwhile.
        if index.claim_by_id(id).is_some() {
            return Ok(Requeue::Done);
        }
        if jobs.iter().any(|job| may_be_in_creation(&index, job, context.clock.now())) {
            return Ok(Requeue::After(CREATION_POLL));
        }
    }
    for job in &jobs {
        context.remove_run(job).await?;
    }
    Ok(Requeue::Done)
}

/// Checks whether this process may be creating a Job, or another one of the same run. Its record may follow.
fn may_be_in_creation(index: &Index, job: &Job, now: i64) -> bool {
    let is_awaited = |operation: Operation| index.has_expectation(&job::prefix(operation, &job.run_labels.id));
    [Operation::Provision, Operation::Delete].into_iter().any(is_awaited)
        || index.is_expected(&job.real_name().name)
        || index.observe_gate(job.real_name()).decide(false, now).rule == gate::Rule::JobRequested
}

/// Returns the name that a claim had in the API. The item of a stand-in has the name of the stand-in.
fn name_of_claim(name: &ObjectName) -> ObjectName {
    let own = name.name.split_once('#').map_or(name.name.as_str(), |(own, _)| own);
    ObjectName::new(&name.namespace, own)
}

#[cfg(test)]
mod tests {
    use flex_contract::policy::ReclaimPolicy;
    use flex_core::model::claim::{Claim, Had, RecordRef};
    use flex_core::model::volume::Volume;

    use super::*;
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    /// Returns the claim of the Jobs.
    fn claim() -> Claim {
        Claim { uid: "a".into(), ..testing::claim("team", "a", false) }
    }

    fn job_of(operation: &str) -> Job {
        Job { uid: operation.into(), has_gate: true, ..testing::job(operation, "a") }
    }

    /// Returns the names of the Jobs that are deleted, and the seconds until the next look. The cache has the Jobs of a
    /// provision run and of a delete run, and is then changed.
    async fn cleaned(name: &str, change: impl FnOnce(&mut Index)) -> (Vec<String>, Option<u64>) {
        let (context, asked) = context(String::new());
        {
            let mut index = context.cluster.index_mut();
            for operation in ["provision", "delete"] {
                index.change_job(WatchChange::Apply(job_of(operation)));
            }
            change(&mut index);
        }
        let next = clean_up(&context, &ObjectName::new("team", name)).await.unwrap();
        let asked = asked.lock().unwrap();
        let deleted =
            asked.iter().filter_map(|request| request.strip_prefix("DELETE /apis/batch/v1/namespaces/own/jobs/"));
        let mut deleted: Vec<String> = deleted.map(str::to_owned).collect();
        deleted.sort();
        let delay = match next {
            Requeue::After(delay) => Some(delay.as_secs()),
            _ => None,
        };
        (deleted, delay)
    }

    fn all() -> (Vec<String>, Option<u64>) {
        (vec!["delete-a-1".to_owned(), "provision-a-1".to_owned()], None)
    }

    #[tokio::test]
    async fn all_jobs_of_a_claim_that_is_gone_go() {
        assert_eq!(cleaned("a", |_| {}).await, all());
        assert_eq!(cleaned("a#a", |_| {}).await, all(), "its stand-in has gone");
        assert_eq!(cleaned("b", |_| {}).await, (vec![], None), "they are of another claim");
    }

    #[tokio::test]
    async fn the_jobs_of_a_claim_or_of_its_stand_in_stay() {
        let record = RecordRef { name: ObjectName::new("own", "record"), uid: "r".into(), had: Had::Unknown };
        for there in [claim(), claim().stand_in(record, "7")] {
            let change = |index: &mut Index| drop(index.change_claim(WatchChange::Apply(there)));
            assert_eq!(cleaned("a", change).await, (vec![], None));
        }
    }

    /// Its record may be armed a moment later.
    #[tokio::test]
    async fn a_job_in_creation_stays() {
        let job = ObjectName::new("own", "provision-a-1");
        let visible = |index: &mut Index| {
            index.begin_creation(&job);
            index.change_job(WatchChange::Apply(job_of("provision")));
            assert!(!index.is_expected(&job.name), "the watch was faster than the answer");
        };
        assert_eq!(cleaned("a", visible).await, (vec![], Some(2)));
        let answered = |index: &mut Index| {
            visible(index);
            index.end_creation(&job);
        };
        assert_eq!(cleaned("a", answered).await, all());
        assert_eq!(cleaned("a", |index| index.expect_job("provision-a-2")).await, (vec![], Some(2)));
    }

    #[tokio::test]
    async fn no_volume_needs_the_jobs() {
        let volume = Volume { reclaim_policy: ReclaimPolicy::Delete, ..testing::volume(&claim(), "1Gi") };
        let with = |index: &mut Index| drop(index.change_volume(WatchChange::Apply(volume)));
        assert_eq!(cleaned("a", with).await, all());
    }
}
