//! Runs for volumes and snapshots that exist: deletions, growth, other attributes, snapshots, and capacities.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::run::times::{self, RunStage};
use flex_core::run::view::{Job, Pod};
use serde::Serialize;

use super::claims::{NextStage, StageRow};
use super::{Rows, name};

/// The runs in progress that make no volume, the oldest first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runs {
    /// The runs.
    pub runs: Rows<RunRow>,
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// The operation, as the image gets it.
    pub operation: String,
    /// The volume or VolumeSnapshotContent of the run; `None` for a batch and for a capacity run.
    pub object: Option<String>,
    /// The number of volumes; 1 outside a batch.
    pub members: usize,
    /// The label value of the class.
    pub class: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The Job, `namespace/name`.
    pub job: String,
    /// The node of the pod.
    pub node: Option<String>,
    /// The time since when the run was wanted, or else that of its Job's creation, in seconds since 1970.
    pub began: i64,
    /// The milliseconds from that time until the observation.
    pub age_ms: i64,
    /// The stages that the run has reached, from that time. Kubernetes tells them in whole seconds.
    pub stages: Vec<StageRow>,
    /// The stage that the run waits for; `None` when the image has ended.
    pub next: Option<NextStage>,
}

/// What the page knows of a run.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// The Job of the run or batch.
    pub job: Arc<Job>,
    /// The pods of the Job.
    pub pods: Vec<Arc<Pod>>,
    /// The time since when the run was wanted, in seconds since 1970, if that is known.
    pub wanted: Option<i64>,
}

impl RunFacts {
    /// Checks whether a Job is on this page: its run is in progress and makes no volume for a claim.
    pub fn is_shown(job: &Job) -> bool {
        !job.is_over && job.run_labels.operation != Operation::Provision
    }
}

impl RunRow {
    /// Describes a run. `now_ms` is in milliseconds since 1970.
    pub fn of(facts: &RunFacts, now_ms: i64) -> Self {
        let RunFacts { job, pods, wanted } = facts;
        let began = wanted.filter(|wanted| *wanted > 0).map_or(job.created, |wanted| wanted.min(job.created));
        let pods: Vec<_> = pods.iter().filter(|pod| pod.job_uid == job.uid).collect();
        let mut after_ms = 0;
        let reached = times::stages(Some(began), &[job], &pods);
        let row = |reached: &times::ReachedStage| {
            let took_ms = reached.took.saturating_mul(1000);
            after_ms += took_ms;
            StageRow { stage: reached.stage.name(), after_ms, took_ms, worker: reached.stage.worker() }
        };
        let stages: Vec<_> = reached.iter().map(row).collect();
        let age_ms = now_ms.saturating_sub(began.saturating_mul(1000)).max(after_ms).max(0);
        let is_suspended = job.suspension_text().is_some();
        let next = reached.last().map_or(Some(RunStage::JobCreated), |last| last.stage.next());
        RunRow {
            operation: job.run_labels.operation.to_string(),
            object: job.volume.as_deref().or(job.content.as_deref()).map(name),
            members: job.runs(),
            class: name(&job.run_labels.class),
            attempt: job.run_labels.attempt,
            job: name(&job.name.to_string()),
            node: pods.iter().find_map(|pod| pod.node.as_deref()).or(job.node.as_deref()).map(name),
            began,
            age_ms,
            stages,
            next: next.map(|stage| NextStage {
                stage: stage.name(),
                worker: if is_suspended { times::SUSPENDER } else { stage.worker() },
                for_ms: age_ms - after_ms,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use flex_core::object::ObjectName;
    use flex_core::run::view::RunLabels;

    use super::*;

    fn job(operation: &str) -> Job {
        let run_labels = RunLabels { operation: operation.into(), id: "id".into(), attempt: 2, class: "gold".into() };
        let volume = Some("pvc-id".to_owned());
        Job { name: ObjectName::new("flex", "j"), uid: "u".into(), run_labels, volume, created: 110, ..Job::default() }
    }

    #[test]
    fn a_run_shows_its_stages_from_the_time_when_it_was_wanted() {
        let run_labels = job("delete").run_labels;
        let pod = |job_uid: &str, node: &str| Pod {
            run_labels: run_labels.clone(),
            job_uid: job_uid.into(),
            node: Some(node.into()),
            scheduled_at: Some(111),
            created: 110,
            ..Pod::default()
        };
        let (pod, other) = (pod("u", "n1"), Pod { created: 120, ..pod("another", "n2") });
        let (pods, wanted) = (vec![Arc::new(other), Arc::new(pod)], Some(100));
        let row = RunRow::of(&RunFacts { job: job("delete").into(), pods, wanted }, 115_000);
        let stages: Vec<_> = row.stages.iter().map(|stage| (stage.stage, stage.took_ms)).collect();
        assert_eq!(stages, [("job-created", 10_000), ("scheduled", 1000)]);
        assert_eq!((row.began, row.age_ms, row.node.as_deref()), (100, 15_000, Some("n1")));
        assert_eq!(row.next.map(|next| (next.stage, next.for_ms)), Some(("started", 4000)));
        assert_eq!((row.object.as_deref(), row.members, row.attempt), (Some("pvc-id"), 1, 2));
    }

    #[test]
    fn a_run_without_a_known_wish_begins_with_its_job() {
        for wanted in [None, Some(0), Some(500)] {
            let row = RunRow::of(&RunFacts { job: job("expand").into(), pods: Vec::new(), wanted }, 0);
            assert_eq!((row.began, row.stages[0].took_ms, row.age_ms), (110, 0, 0), "{wanted:?}");
        }
    }

    #[test]
    fn provision_runs_are_shown_with_their_claims() {
        assert!(RunFacts::is_shown(&job("delete")) && RunFacts::is_shown(&job("snapshot")));
        assert!(!RunFacts::is_shown(&job("provision")));
        assert!(!RunFacts::is_shown(&Job { is_over: true, ..job("delete") }));
    }
}
