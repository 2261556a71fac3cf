//! The state of a run: a pure function of its Job, its pods and the warnings of Kubernetes.

use flex_contract::cause;
use flex_contract::exit::{self, Reaction};
use flex_contract::names::CONTAINER;

use super::node::Node;
use super::phase::PodPhase;
use super::pod_view::START_ERRORS;
use super::stuck::{StuckReason, explain, strip_random_suffix};
use super::view::{ContainerEnd, DEADLINE_EXCEEDED, Job, Pod, WarningEvent};
use crate::limits;
use crate::object::ObjectName;
use crate::status_reason::StatusReason;
use crate::text::line;

/// The reason of Kubernetes for a Job for which it makes no pod.
const SUSPENDED: &str = "Suspended";

/// The words of a failure if the kubelet does not read the log, as in runs with Secrets.
const LOG_IS_UNREAD: &str = "; its log is not read";

/// The cause of a failure or of a stuck run: a short reason, and a message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// A reason in the words of Kubernetes, such as `ImagePullBackOff`.
    pub reason: String,
    /// A message of one or two sentences.
    pub message: String,
}

/// The refusal of a run's Job by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRefusal {
    /// The cause.
    pub cause: Cause,
    /// When the next try makes sense.
    pub reaction: Reaction,
}

impl Cause {
    /// Makes a cause. Others write much of both texts, so they are cut and made printable. The message is never empty.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.into(), message.into());
        let message = if message.trim().is_empty() { "no message was given" } else { &message };
        Self { reason: line(&reason, limits::REASON), message: line(message, limits::MESSAGE) }
    }
}

/// The state of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Neither a Job nor a pod of the run was seen.
    NotCached,
    /// The run is in progress, or is being stopped, or its Job was created a moment ago and is not cached yet.
    MayBeRunning,
    /// The run cannot progress by itself, at least now.
    Stuck {
        /// The cause.
        cause: Cause,
        /// The latest time since when, in seconds since 1970.
        since: i64,
    },
    /// The image has exited 0.
    Succeeded,
    /// The run has failed.
    Failed {
        /// The cause.
        cause: Cause,
        /// The reaction that the image asks for.
        reaction: Reaction,
        /// The time of the failure, in seconds since 1970.
        at: i64,
        /// No process of the run can be running any more.
        pods_ended: bool,
    },
}

impl RunState {
    /// Adds the taints of the node on which the run must be, if its pod fits on no node. Kubernetes does not name them.
    #[must_use]
    pub fn with_taints_of(self, node: Option<&Node>) -> Self {
        match (self, node) {
            (RunState::Stuck { cause, since }, Some(node))
                if StuckReason::of(&cause.reason, "") == StuckReason::Unschedulable && !node.taints.is_empty() =>
            {
                let taints: Vec<_> =
                    node.taints.iter().map(|taint| format!("{}:{}", taint.key, taint.effect)).collect();
                let message = format!("{}; node {} has the taints {}", cause.message, node.name, taints.join(", "));
                RunState::Stuck { cause: Cause::new(cause.reason, message), since }
            }
            (state, _) => state,
        }
    }
}

/// Derives the state of a run.
pub fn state(job: Option<&Job>, pods: &[&Pod], warning_events: &[&WarningEvent]) -> RunState {
    let Some(job) = job else {
        return match pods.iter().any(|pod| !pod.is_over()) {
            true => RunState::MayBeRunning,
            false => RunState::NotCached,
        };
    };
    // Somebody deleted the Job, and it was created again with the same name. The pods of the old Job say nothing about
    // the new one, but as long as one of them runs, the run is in progress.
    let (pods, before): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|pod| pod.job_uid == job.uid);
    if before.iter().any(|pod| !pod.is_over()) {
        return RunState::MayBeRunning;
    }
    let pods_ended = pods.iter().all(|pod| pod.is_over()) && (job.is_over || !pods.is_empty());
    let pod = pods.iter().max_by_key(|pod| (pod.terminated.is_some(), pod.created));
    let end = pod.and_then(|pod| pod.terminated.as_ref());
    if job.complete || end.is_some_and(|end| end.container == CONTAINER && end.code == 0) {
        return RunState::Succeeded;
    }
    if let Some(text) = job.suspension_text() {
        // Kubernetes ends the pods of a Job that is suspended late.
        return match pods.iter().any(|pod| !pod.is_over()) {
            true => RunState::MayBeRunning,
            false => RunState::Stuck {
                cause: Cause::new(SUSPENDED, text),
                since: job.suspended.as_ref().map_or(job.created, |suspension| suspension.since),
            },
        };
    }
    let texts = |text: &str| termination_message(text);
    if let Some(failed) = &job.failed {
        let said = end.map(|end| texts(&end.message)).filter(|said| !said.is_empty());
        // A container beside the image may run until the deadline after the image has failed. A service mesh may have
        // added it.
        let ended_before =
            |end: &&ContainerEnd| end.container == CONTAINER && end.at > 0 && end.at.saturating_add(1) < failed.at;
        if failed.reason == DEADLINE_EXCEEDED && end.filter(ended_before).is_none() {
            let message = deadline_message(job, &pods, pod.copied(), said, warning_events);
            return RunState::Failed {
                cause: Cause::new(DEADLINE_EXCEEDED, message),
                reaction: Reaction::Retry,
                at: failed.at,
                pods_ended,
            };
        }
    }
    if let Some((pod, end)) = pod.and_then(|pod| Some((pod, pod.terminated.as_ref()?)))
        && (end.container == CONTAINER || pod.phase == PodPhase::Failed)
        && (!pod.terminating || job.failed.is_some() || pod.is_over())
    {
        return failed_container(job, pod, end, pods_ended);
    }
    if let Some(pod) = pod.filter(|pod| pod.phase == PodPhase::Failed) {
        let Cause { reason, message } = evicted(pod).unwrap_or_else(|| {
            Cause::new(cause::POD_FAILED, format!("the pod failed before the image ended: {}", texts(&pod.message)))
        });
        let at = job.failed.as_ref().map_or(pod.created, |failed| failed.at);
        return RunState::Failed { cause: Cause::new(reason, message), reaction: Reaction::Retry, at, pods_ended };
    }
    if let Some(failed) = &job.failed {
        let cause = Cause::new(&failed.reason, format!("the Job failed: {}", texts(&failed.message)));
        return RunState::Failed { cause, reaction: Reaction::Retry, at: failed.at, pods_ended };
    }
    stuck(job, pod.copied(), warning_events).unwrap_or(RunState::MayBeRunning)
}

/// Returns why Kubernetes ended a pod before its image had ended, as an eviction does.
fn evicted(pod: &Pod) -> Option<Cause> {
    let of_pod = || StatusReason::new(&pod.reason, &pod.message);
    let StatusReason { reason, message } = pod.disruption.clone().or_else(|| (!pod.reason.is_empty()).then(of_pod))?;
    if reason == DEADLINE_EXCEEDED {
        return Some(Cause::new(reason, "the image did not end within the `activeDeadlineSeconds` of its pod"));
    }
    let why = if message.is_empty() { reason.clone() } else { format!("{reason}: {}", termination_message(&message)) };
    Some(Cause::new(reason, format!("the pod was evicted ({why})")))
}

/// Returns why a container was killed that ended with this code, if not by itself: its pod was evicted or deleted.
fn disruption(job: &Job, pod: &Pod, code: i32) -> Option<Cause> {
    let is_killed = code > exit::SIGNALS;
    let evicted = evicted(pod).filter(|_| is_killed || pod.disruption.is_some());
    let deleted = || {
        let by_others = is_killed && pod.terminating && !job.terminating;
        by_others.then(|| Cause::new(cause::POD_FAILED, "somebody deleted the pod before the image had ended"))
    };
    evicted.or_else(deleted)
}

/// Says why a run has not ended within `timeout`. `said` are the last words of the container that has ended.
fn deadline_message(
    job: &Job,
    pods: &[&Pod],
    pod: Option<&Pod>,
    said: Option<String>,
    warning_events: &[&WarningEvent],
) -> String {
    let event = warning_events.iter().find(|c| pod.is_none_or(|pod| !pod.started) && !c.message.is_empty());
    let within = job.deadline.map_or("`timeout`".to_owned(), |seconds| format!("{seconds} s (`timeout`)"));
    // The kubelet tells the last words when the container has ended, which may take its grace period.
    let ended = pod.and_then(|pod| Some((pod, pod.terminated.as_ref()?)));
    let whose = match ended.filter(|(_, end)| end.container != CONTAINER) {
        Some((_, end)) => format!("the last words of container {}", end.container),
        None => "its last words".to_owned(),
    };
    let kept = pod.and_then(|pod| pod.stuck.clone()).or(event.map(|c| StatusReason::new(&c.reason, &c.message)));
    let is_closed = !pods.is_empty() && pods.iter().all(|pod| pod.gate.is_some());
    match (said, kept) {
        (Some(said), _) => format!("the image did not end within {within}; {whose}: {said}"),
        (None, Some(StatusReason { reason, message })) => {
            format!("the pod did not start within {within}: {reason}: {}", termination_message(&message))
        }
        (None, None) if is_closed || never_started(Some(job), pods) => {
            format!("no container of the run had started within {within}")
        }
        // Nobody has seen the pod, because no orchestrator was there.
        (None, None) if pods.is_empty() => format!("the run did not end within {within}, and its pod is gone"),
        (None, None) => {
            let silence = ended.map(|(pod, end)| silence(job, pod, end)).unwrap_or_default();
            format!("the image did not end within {within}{silence}")
        }
    }
}

/// Says why there are no last words of a container that has ended, after a text about its end; empty if nobody knows.
/// The kubelet reads a log only where the pod allows it, and not after exit 0.
fn silence(job: &Job, pod: &Pod, end: &ContainerEnd) -> String {
    let ObjectName { namespace, name } = job.real_name();
    match (&job.claim, pod.reads_log) {
        _ if end.container != CONTAINER => String::new(),
        (_, true) if end.code == 0 => String::new(),
        (_, true) => ", and said nothing".to_owned(),
        (Some(claim), false) if job.is_for_claim() => format!("{LOG_IS_UNREAD}: flex-provisioner logs {claim}"),
        // A run that the desk makes has no Job.
        _ if name.is_empty() => LOG_IS_UNREAD.to_owned(),
        _ => format!("{LOG_IS_UNREAD}: kubectl -n {namespace} logs job/{name} -c {CONTAINER}"),
    }
}

/// Checks that no container of a run has run and none will, by its Job and by the observed pods. A missing pod proves
/// nothing, unless the Job has ended and counted no pod.
pub fn never_started(job: Option<&Job>, pods: &[&Pod]) -> bool {
    match pods.is_empty() {
        true => job.is_some_and(|job| job.is_over && !job.complete && !job.had_pods),
        false => pods.iter().all(|pod| pod.never_started),
    }
}

fn failed_container(job: &Job, pod: &Pod, end: &ContainerEnd, pods_ended: bool) -> RunState {
    let disruption = disruption(job, pod, end.code);
    let said = termination_message(&end.message);
    let whose = if end.container == CONTAINER { String::new() } else { format!("container {}: ", end.container) };
    let (reason, what) = match (end.reason.as_str(), &disruption) {
        ("OOMKilled", _) => ("OOMKilled", "the image ran out of memory; raise `resources`".to_owned()),
        (reason, _) if START_ERRORS.contains(&reason) => {
            (cause::START_ERROR, "the container could not start".to_owned())
        }
        (_, Some(Cause { reason, message })) => (reason.as_str(), message.clone()),
        _ => (cause::EXIT_CODE, exit::explain(end.code)),
    };
    let message = match said.as_str() {
        // Without a process there is no log.
        "" if disruption.is_some() || reason == cause::START_ERROR => format!("{whose}{what}"),
        "" => format!("{whose}{what}{}", silence(job, pod, end)),
        said => format!("{whose}{what}: {said}"),
    };
    // The exit code of a container that never ran means nothing.
    let reaction =
        if reason == cause::EXIT_CODE && whose.is_empty() { exit::reaction(end.code) } else { Reaction::Retry };
    RunState::Failed { cause: Cause::new(reason, message), reaction, at: end.at, pods_ended }
}

fn stuck(job: &Job, pod: Option<&Pod>, warning_events: &[&WarningEvent]) -> Option<RunState> {
    let newest = |about: &str| warning_events.iter().filter(|c| c.object_uid == about).max_by_key(|c| c.at);
    let Some(pod) = pod else {
        let event = newest(&job.uid)?;
        let message = termination_message(&strip_random_suffix(&event.message, &job.real_name().name));
        return Some(RunState::Stuck {
            cause: Cause::new(&event.reason, explain(&event.reason, &message)),
            since: job.created,
        });
    };
    if pod.is_over() || (pod.started && pod.stuck.is_none()) {
        return None;
    }
    if let Some(StatusReason { reason, message }) = &pod.stuck {
        let message = termination_message(message);
        return Some(RunState::Stuck { cause: Cause::new(reason, explain(reason, &message)), since: pod.created });
    }
    let event = newest(&pod.uid)?;
    let message = termination_message(&event.message);
    Some(RunState::Stuck { cause: Cause::new(&event.reason, explain(&event.reason, &message)), since: pod.created })
}

/// Returns the last 600 characters of a text, on one line. Events are short, and the end of a log says most.
fn termination_message(text: &str) -> String {
    const MAX_CHARACTERS: usize = 600;
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let characters = one_line.chars().count();
    match characters > MAX_CHARACTERS {
        true => format!("…{}", one_line.chars().skip(characters - MAX_CHARACTERS).collect::<String>()),
        false => one_line,
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
