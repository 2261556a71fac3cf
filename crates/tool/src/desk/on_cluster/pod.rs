//! The end of a run, from its Job and its pods.

use std::time::Duration;

use flex_contract::cause::START_ERROR;
use flex_contract::names::CONTAINER;
use flex_core::run::state::{Cause, RunState, state};
use flex_core::run::view::{Job, Pod, WarningEvent};
use flex_desk::desk::Ended;

/// The reason of Kubernetes for a Job that was in progress for too long.
const DEADLINE: &str = "DeadlineExceeded";
/// The exit code of a run that was killed, or whose program did not start.
const NO_EXIT_CODE: i32 = 128;

/// The progress of a run.
#[derive(Debug)]
pub(super) enum Progress {
    /// The run is in progress.
    Runs,
    /// The pod does not start.
    Stuck(Cause),
    /// The run has ended. The name is that of the pod with its log.
    Ended(Box<Ended>, Option<String>),
}

/// Derives what is known of a run. Times and log are added later.
pub(super) fn progress(job: &Job, pods: &[Pod], warnings: &[WarningEvent]) -> Progress {
    let (all, warnings): (Vec<_>, Vec<_>) = (pods.iter().collect(), warnings.iter().collect());
    let of_image = |pod: &&Pod| pod.terminated.as_ref().is_some_and(|end| end.container == CONTAINER);
    let pod = pods.iter().find(of_image);
    let name = pod.map(|pod| pod.name.name.clone());
    let end = pod.and_then(|pod| pod.terminated.as_ref());
    let message = end.map(|end| end.message.clone()).unwrap_or_default();
    match state(Some(job), &all, &warnings) {
        RunState::NotCached | RunState::MayBeRunning | RunState::Failed { pods_ended: false, .. } => Progress::Runs,
        RunState::Stuck { cause, .. } => Progress::Stuck(cause),
        RunState::Succeeded => Progress::Ended(Box::new(of(0, message)), name),
        RunState::Failed { cause, .. } => {
            let not_started = end.is_none() || cause.reason == START_ERROR;
            let timed_out = cause.reason == DEADLINE;
            let ended = Ended {
                timed_out,
                not_started: (not_started && !timed_out).then_some(cause.message),
                message_from_log: pod.is_some_and(|pod| pod.reads_log),
                ..of(end.map_or(NO_EXIT_CODE, |end| end.code), message)
            };
            Progress::Ended(Box::new(ended), name)
        }
    }
}

/// Returns the end of a run that the command has killed.
pub(super) fn killed(took: Duration) -> Ended {
    Ended { killed: true, took, ..of(NO_EXIT_CODE, String::new()) }
}

fn of(code: i32, message: String) -> Ended {
    Ended {
        code,
        log: String::new(),
        message_bytes: message.len(),
        message,
        timed_out: false,
        killed: false,
        not_started: None,
        took: Duration::ZERO,
        stopped_after: None,
        message_from_log: false,
        attempts: 1,
    }
}

#[cfg(test)]
mod tests {
    use flex_core::object::ObjectName;
    use flex_core::run::phase::PodPhase;
    use flex_core::run::view::{ContainerEnd, JobEnd};
    use flex_core::status_reason::StatusReason;

    use super::*;

    fn pod(code: Option<i32>, reason: &str) -> Pod {
        let end = |code| ContainerEnd {
            container: CONTAINER.into(),
            code,
            reason: reason.into(),
            message: "last words".into(),
            at: 1,
        };
        Pod {
            name: ObjectName::new("n", "pod"),
            job: "job".into(),
            job_uid: "uid".into(),
            phase: match code {
                Some(0) => PodPhase::Succeeded,
                Some(_) => PodPhase::Failed,
                None => PodPhase::Pending,
            },
            terminated: code.map(end),
            started: code.is_some(),
            ..Pod::default()
        }
    }

    fn shown(job: &Job, pods: &[Pod]) -> String {
        match progress(job, pods, &[]) {
            Progress::Runs => "runs".into(),
            Progress::Stuck(cause) => format!("stuck: {}", cause.reason),
            Progress::Ended(ended, pod) => {
                let Ended { code, timed_out, not_started, message, .. } = *ended;
                let pod = pod.unwrap_or_default();
                format!("{code} {message} {pod} late={timed_out} unstarted={}", not_started.is_some())
            }
        }
    }

    #[test]
    fn the_end_of_a_run_follows_from_job_and_pod() {
        let job = Job { name: ObjectName::new("n", "job"), uid: "uid".into(), ..Job::default() };
        let failed = |reason: &str| Job {
            failed: Some(JobEnd { reason: reason.into(), message: "why".into(), at: 2 }),
            is_over: true,
            had_pods: true,
            ..job.clone()
        };
        let waits = Pod { stuck: Some(StatusReason::new("ErrImagePull", "no such image")), ..pod(None, "") };
        for (what, job, pods, expected) in [
            ("no pod yet", job.clone(), vec![], "runs"),
            ("the pod waits", job.clone(), vec![pod(None, "")], "runs"),
            ("no image", job.clone(), vec![waits], "stuck: ErrImagePull"),
            ("exit 0", job.clone(), vec![pod(Some(0), "Completed")], "0 last words pod late=false unstarted=false"),
            ("exit 64", job.clone(), vec![pod(Some(64), "Error")], "64 last words pod late=false unstarted=false"),
            (
                "no program",
                job.clone(),
                vec![pod(Some(128), "StartError")],
                "128 last words pod late=false unstarted=true",
            ),
            ("too long", failed(DEADLINE), vec![], "128   late=true unstarted=false"),
            ("the pod is gone", failed("BackoffLimitExceeded"), vec![], "128   late=false unstarted=true"),
        ] {
            assert_eq!(shown(&job, &pods), expected, "{what}");
        }
    }
}
