//! The check whether a container of a claim's attempt has run, by the observed Job and pods.

use std::sync::Arc;

use flex_core::model::claim::Claim;
use flex_core::run::state::never_started;
use flex_core::run::view::Pod;

use super::names::provision_job_name;
use crate::reconcile::context::RunObjects;
use crate::state::index::Index;

/// Checks that no container of the stamped attempt has run. Somebody may have deleted a Job that had run, so that the
/// orchestrator created it again with the same name, or the run in a batch. Only the first Job of an attempt proves something.
pub(super) fn has_never_started(claim: &Claim, run: RunObjects<'_>, index: &Index) -> bool {
    let (id, name) = (claim.volume_id(), provision_job_name(claim));
    let job = run.jobs.iter().find(|job| job.name.name == name).map(Arc::as_ref);
    let pods: Vec<&Pod> = run.pods.iter().map(Arc::as_ref).filter(|pod| pod.job == name).collect();
    let is_first = job.is_none_or(|job| job.is_first) && pods.iter().all(|pod| pod.is_first);
    let is_over = job.is_none_or(|job| job.terminating || job.is_over);
    let was_batched = || !index.batches_of(&claim.uid).is_empty();
    let remembered = || pods.is_empty() && is_over && index.has_ended_unstarted(&id, &name) && !was_batched();
    is_first && !index.is_repeated(&id, &name) && (never_started(job, &pods) || remembered())
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::model::claim::Stamp;
    use flex_core::model::record::{Record, record_name};
    use serde_json::json;

    use super::*;
    use crate::reconcile::claim::observe::{Confirmed, observe};
    use crate::reconcile::delete_run::tests::context;
    use crate::state::index::WatchChange;
    use crate::state::testing;

    /// This replica has not led then, and no watch need have shown the batch.
    #[tokio::test]
    async fn an_attempt_that_began_again_in_a_batch_may_have_started() {
        let (context, _) = context(String::new());
        let claim = testing::claim("team", "a", true);
        let stamp = claim.stamp.clone().map(|stamp| Stamp { recipe_version: "own/c@a".into(), ..stamp });
        let claim = Claim { stamp, held: true, ..claim };
        let job = testing::job("provision", &claim.uid);
        assert_eq!(job.name.name, provision_job_name(&claim));
        let pod = testing::pod_of(&job, None);
        let pod = Pod { never_started: true, is_first: true, phase: "Failed".into(), ..pod };
        context.cluster.update(|index| index.change_pod(WatchChange::Apply(pod.clone())));
        context.cluster.update(|index| index.change_pod(WatchChange::Delete(pod.name.clone())));
        let never_started = || observe(&context, &claim, &Confirmed::default()).runs.never_started;
        assert!(never_started());
        let data = Record::data(std::iter::once(&claim));
        let name = record_name("provision-batch-0123456789abcdef", &data);
        let metadata = json!({ "namespace": "own", "name": name, "uid": "r", "annotations": { names::ARMED: "r" } });
        let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
        context.cluster.update(|index| index.record_answered(record));
        assert!(!never_started());
    }
}
