//! When a run for an existing volume or snapshot reached each stage. Kubernetes tells these times in whole seconds.

use std::sync::Arc;

use strum::IntoStaticStr;

use super::view::{Job, Pod};

/// The worker while a Job is suspended.
pub const SUSPENDER: &str = "whoever suspended the Job";

/// A stage of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum RunStage {
    /// The Job was created.
    JobCreated,
    /// The scheduler chose a node for the pod.
    Scheduled,
    /// The container of the image started.
    Started,
    /// The container of the image ended.
    Ended,
}

impl RunStage {
    /// Returns the name, as logs and metrics have it.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns who works until the stage is reached.
    pub fn worker(self) -> &'static str {
        match self {
            RunStage::JobCreated => "the orchestrator, or the limits of the class",
            RunStage::Scheduled => "the scheduler",
            RunStage::Started => "the kubelet: the pod's volumes, and the pull of the image",
            RunStage::Ended => "the image",
        }
    }

    /// Returns the stage that comes next; `None` after the last.
    pub fn next(self) -> Option<Self> {
        match self {
            RunStage::JobCreated => Some(RunStage::Scheduled),
            RunStage::Scheduled => Some(RunStage::Started),
            RunStage::Started => Some(RunStage::Ended),
            RunStage::Ended => None,
        }
    }
}

/// A stage that a run reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReachedStage {
    /// The stage.
    pub stage: RunStage,
    /// The seconds since the stage before. For the first, the seconds since the run was wanted; 0 if that is not known.
    pub took: i64,
}

/// Returns the stages that the last run of some Jobs and pods reached. `wanted` is the time since when the run was
/// wanted, in seconds since 1970.
pub fn stages(wanted: Option<i64>, jobs: &[&Arc<Job>], pods: &[&Arc<Pod>]) -> Vec<ReachedStage> {
    let job = jobs.iter().max_by_key(|job| job.run_labels.attempt);
    let attempt = job.map(|job| job.run_labels.attempt);
    let of_run = pods.iter().filter(|pod| attempt.is_none_or(|attempt| pod.run_labels.attempt == attempt));
    let pod = of_run.max_by_key(|pod| pod.created);
    let times = [
        (RunStage::JobCreated, job.map(|job| job.created)),
        (RunStage::Scheduled, pod.and_then(|pod| pod.scheduled_at)),
        (RunStage::Started, pod.and_then(|pod| pod.started_at)),
        (RunStage::Ended, pod.and_then(|pod| pod.terminated.as_ref()).map(|ended| ended.at)),
    ];
    let mut reached = Vec::new();
    let mut before = wanted;
    for (stage, at) in times {
        let Some(at) = at.filter(|at| *at > 0) else { continue };
        // The clocks of nodes differ.
        let at = before.map_or(at, |before| at.max(before));
        reached.push(ReachedStage { stage, took: before.map_or(0, |before| at - before) });
        before = Some(at);
    }
    reached
}

/// Writes stages as the log has them, such as `job-created 0 s, started 2 s`.
pub fn line(stages: &[ReachedStage]) -> String {
    let texts = stages.iter().map(|reached| format!("{} {} s", reached.stage.name(), reached.took));
    texts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::view::{ContainerEnd, RunLabels};

    fn job(attempt: u32, created: i64) -> Arc<Job> {
        let run_labels = RunLabels { attempt, ..RunLabels::default() };
        Arc::new(Job { run_labels, created, ..Job::default() })
    }

    fn pod(attempt: u32, times: [i64; 3]) -> Arc<Pod> {
        let [scheduled, started, ended] = times;
        let end = ContainerEnd {
            container: "provisioner".into(),
            code: 0,
            reason: String::new(),
            message: String::new(),
            at: ended,
        };
        Arc::new(Pod {
            run_labels: RunLabels { attempt, ..RunLabels::default() },
            created: scheduled,
            scheduled_at: Some(scheduled),
            started_at: Some(started),
            terminated: Some(end),
            ..Pod::default()
        })
    }

    #[test]
    fn the_stages_are_those_of_the_last_attempt() {
        let jobs = [job(1, 100), job(2, 200)];
        let pods = [pod(1, [100, 101, 109]), pod(2, [201, 203, 207])];
        let of = |wanted| line(&stages(wanted, &jobs.iter().collect::<Vec<_>>(), &pods.iter().collect::<Vec<_>>()));
        assert_eq!(of(Some(190)), "job-created 10 s, scheduled 1 s, started 2 s, ended 4 s");
        assert_eq!(of(None), "job-created 0 s, scheduled 1 s, started 2 s, ended 4 s");
    }

    #[test]
    fn a_clock_that_is_behind_makes_no_negative_time() {
        let (jobs, pods) = ([job(1, 100)], [pod(1, [101, 90, 104])]);
        let stages = stages(Some(95), &jobs.iter().collect::<Vec<_>>(), &pods.iter().collect::<Vec<_>>());
        assert_eq!(line(&stages), "job-created 5 s, scheduled 1 s, started 0 s, ended 3 s");
        assert_eq!(line(&super::stages(Some(95), &[], &[])), "");
    }
}
