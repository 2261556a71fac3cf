//! The scheduling gate of a run's pod: a pure decision whether the leader opens it, or closes the Job.
//!
//! Each pod of a run is born with a [gate](flex_contract::names::START_GATE), and Kubernetes starts nothing before the gate is gone. The leader
//! opens only a pod of a Job *whose creation was answered to it in this term*. So a Job that was copied, restored from a backup or
//! applied by hand never runs, nor one whose request arrives late: the copy has the gate too, and nobody opens it.
//!
//! The [rules](Rule) say when it takes which step.

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use super::backoff::due_after;
use super::view::{Job, Pod};
use crate::rules::{self, Rule as _};

/// A Job that the API server has created at the request of this leader, in this term.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The UID of the pod that it opened last, or asked to open.
    pub opened: Option<String>,
    /// The API server has answered that request.
    pub is_open: bool,
    /// A watch has shown that this pod has ended, or never gets a node.
    pub has_ended: bool,
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Job; `None` if there is none.
    pub job: Option<&'a Job>,
    /// The pods of the Job.
    pub pods: &'a [&'a Pod],
    /// The pods that name the Job and are not of it: somebody has deleted or copied theirs.
    pub strays: &'a [&'a Pod],
    /// The request that creates the Job has no answer yet.
    pub is_requested: bool,
    /// The answer to the creation of the Job; `None` if none has reached this leader in this term.
    pub answer: Option<&'a Answer>,
    /// How often a Job of this name was closed in this term.
    pub closes: u32,
    /// The API itself has said which Job and pods there are.
    pub is_confirmed: bool,
}

/// The next step for a Job and its pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Asks the API for the Job and its pods.
    Confirm,
    /// Opens the pod with this UID.
    Open(String),
    /// Deletes the pod with this UID, which never ran.
    RemovePod(String),
    /// Deletes the Job, which stops its pods.
    Close,
}

/// The rules of gates, in their order: the first that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A pod has the gate, and its Job is gone. Deletes the pod, when the API has said so.
    StrayPod,
    /// The Job is terminating or over, or has no gate. Does nothing.
    NothingToOpen,
    /// The request that creates the Job has no answer yet. Waits for it.
    JobRequested,
    /// A pod of the Job was opened and may be running, or there is none that waits. Does nothing.
    NoPodWaits,
    /// A pod waits, and the creation of its Job was not answered to this leader: it is a copy, or a former leader requested it.
    /// Or much of the time of the Job was over before anybody opened its pod. Deletes the Job, when the API has said so; at once
    /// for the first time. Its owner, if it has one, starts the run again.
    NotAnswered,
    /// A pod waits, and another one was opened and is gone without an end. Deletes the waiting one, so that the Job fails: both
    /// could run at one time.
    PodLost,
    /// A pod waits, and the creation of its Job was answered. Opens it.
    PodReady,
}

rules::table!(Rule, Step, "gate");

/// A decision about the gate of a run.
pub type Decision = rules::Decision<Rule>;

/// Returns how long a Job that was closed before stays closed before it is deleted again, in seconds. Somebody may create it again
/// and again.
fn pause(closes: u32) -> i64 {
    const LONGEST: i64 = 30;
    LONGEST.min(1 << closes.min(5))
}

/// The time that a pod may wait for its leader, in seconds. A leader whose Lease is not renewed pauses after as long.
const PATIENCE: i64 = 10;

/// Checks whether a pod has waited for its leader so long that its run would lack time: Kubernetes counts that of the Job also while
/// the pod has the gate. After each close a pod may wait longer, so that a slow leader opens one at last.
fn has_waited_long(job: &Job, pod: &Pod, closes: u32, now: i64) -> bool {
    let Some((requested, deadline)) = job.requested.zip(job.deadline) else { return false };
    now.saturating_sub(requested.max(pod.created)) > PATIENCE.max(deadline / 10) << closes.min(5)
}

/// Decides the next step. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Decision {
    let is_closed = |pod: &&&Pod| pod.gate.is_some() && !pod.terminating && !pod.is_over();
    let confirmed = |rule: Rule, step: Step| rule.step(if o.is_confirmed { step } else { Step::Confirm });
    if let Some(pod) = o.strays.iter().find(is_closed) {
        return confirmed(Rule::StrayPod, Step::RemovePod(pod.uid.clone()));
    }
    let Some(job) = o.job.filter(|job| job.has_gate && !job.terminating && !job.is_over) else {
        return Rule::NothingToOpen.nothing();
    };
    if o.is_requested {
        return Rule::JobRequested.nothing();
    }
    let may_run =
        o.pods.iter().any(|pod| pod.gate.is_none() && !pod.is_over() && !(pod.terminating && pod.node.is_none()));
    let pod = o.pods.iter().find(is_closed).filter(|_| !may_run);
    if pod.is_none() && !job.is_unopened {
        return Rule::NoPodWaits.nothing();
    }
    let answer = o.answer.filter(|_| !job.is_unopened);
    let (Some(pod), Some(Answer { opened, is_open, has_ended })) = (pod, answer) else {
        let due = due_after(job.created, pause(o.closes), now);
        return match o.closes > 0 && now < due {
            true => Rule::NotAnswered.nothing().requeue_at(due),
            false => confirmed(Rule::NotAnswered, Step::Close),
        };
    };
    // The request to open it may have been lost.
    let again = opened
        .as_ref()
        .filter(|_| !is_open)
        .and_then(|uid| o.pods.iter().filter(is_closed).find(|pod| pod.uid == *uid));
    match opened {
        Some(uid) if again.is_none() && !has_ended && o.pods.iter().all(|pod| pod.uid != *uid) => {
            Rule::PodLost.step(Step::RemovePod(pod.uid.clone()))
        }
        Some(_) if again.is_none() && !has_ended => Rule::NoPodWaits.nothing(),
        _ if has_waited_long(job, again.unwrap_or(pod), o.closes, now) => confirmed(Rule::NotAnswered, Step::Close),
        _ => Rule::PodReady.step(Step::Open(again.unwrap_or(pod).uid.clone())),
    }
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
