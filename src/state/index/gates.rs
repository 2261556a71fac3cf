//! The scheduling gates of runs: what the decision about a gate observes, and what its reconciler records.

use std::sync::Arc;

use flex_core::object::ObjectName;
use flex_core::run::gate::{self, Answer, Decision, Observed};
use flex_core::run::view::{Job, Pod};

use super::Index;

/// A Job with its pods, and what this leader knows of it.
#[derive(Debug)]
pub struct GateView {
    /// The Job.
    pub job: Option<Arc<Job>>,
    /// The pods of the Job.
    pub pods: Vec<Arc<Pod>>,
    /// The pods that name the Job and are not of it.
    pub strays: Vec<Arc<Pod>>,
    is_requested: bool,
    answer: Option<Answer>,
    closes: u32,
}

impl GateView {
    /// Decides the next step. `is_confirmed` says that Job and pods come from the API itself, and `now` is in seconds since 1970.
    pub fn decide(&self, is_confirmed: bool, now: i64) -> Decision {
        gate::decide(
            &Observed {
                job: self.job.as_deref(),
                pods: &self.pods.iter().map(Arc::as_ref).collect::<Vec<_>>(),
                strays: &self.strays.iter().map(Arc::as_ref).collect::<Vec<_>>(),
                is_requested: self.is_requested,
                answer: self.answer.as_ref(),
                closes: self.closes,
                is_confirmed,
            },
            now,
        )
    }

    /// Returns the pod with a UID.
    pub fn pod(&self, uid: &str) -> Option<&Pod> {
        self.pods.iter().chain(&self.strays).map(Arc::as_ref).find(|pod| pod.uid == uid)
    }
}

impl Index {
    /// Returns a Job with its pods, as the cache has them, and what this leader knows of it.
    pub fn observe_gate(&self, name: &ObjectName) -> GateView {
        let runs = &self.facts.cache.runs;
        let job = runs.job(name).cloned();
        let names_it = |pod: &&Arc<Pod>| pod.job == name.name && pod.name.namespace == name.namespace;
        let named = match &job {
            Some(job) => runs.pods_named(&job.run_labels.id).filter(names_it).cloned().collect(),
            None => runs.pods().filter(names_it).cloned().collect(),
        };
        self.view_gate(name, job, named)
    }

    /// Adds what this leader knows to a Job and the pods that name it.
    pub fn view_gate(&self, name: &ObjectName, job: Option<Arc<Job>>, named: Vec<Arc<Pod>>) -> GateView {
        let is_open = |job: &Job| named.iter().any(|pod| pod.job_uid == job.uid && pod.gate.is_none());
        let job = job.map(|job| match self.was_never_opened(&job) && !is_open(&job) {
            true => Arc::new(Arc::unwrap_or_clone(job).unopened()),
            false => job,
        });
        let is_of_it = |pod: &Arc<Pod>| job.as_ref().is_some_and(|job| job.uid == pod.job_uid);
        let (pods, strays) = named.into_iter().partition(is_of_it);
        GateView {
            answer: job.as_ref().and_then(|job| self.answers.get(&job.uid)).cloned(),
            closes: self.answers.closes(name),
            is_requested: self.slots.expectations().is_being_created(name),
            job,
            pods,
            strays,
        }
    }

    /// Checks whether the time of a Job was over before anybody opened its pod, as far as the watches of this process show.
    pub(super) fn was_never_opened(&self, job: &Job) -> bool {
        if !job.may_be_unopened() {
            return false;
        }
        let is_asked = self.answers.get(&job.uid).is_some_and(|answer| answer.opened.is_some());
        let pods = self.facts.cache.runs.pods_named(&job.run_labels.id).filter(|pod| pod.job_uid == job.uid);
        let (closed, open): (Vec<_>, Vec<_>) = pods.partition(|pod| pod.gate.is_some());
        !is_asked && open.is_empty() && (!closed.is_empty() || self.answers.has_unopened_pod(&job.uid))
    }

    /// Records what a watch shows of the gate of a pod, at last that the pod is gone.
    pub(super) fn see_gate(&mut self, pod: &Pod, is_gone: bool) {
        if self.facts.cache.runs.job_of(pod).is_some_and(|job| job.uid == pod.job_uid) {
            self.answers.see_gate(pod, is_gone);
        }
    }

    /// Records the answer to the creation of a Job. It counts in this term.
    pub fn record_answer(&mut self, job_uid: String) {
        self.answers.record(job_uid);
    }

    /// Records that a pod is about to be opened. Returns whether the Job is still one that this leader may open.
    pub fn begin_opening(&mut self, job_uid: &str, pod_uid: &str) -> bool {
        self.answers.begin_opening(job_uid, pod_uid)
    }

    /// Records that the run of a Job is not wanted any more. Returns whether no pod of it was opened: none will be.
    pub fn withdraw(&mut self, job: &Job) -> bool {
        let is_requested = self.slots.expectations().is_being_created(job.real_name());
        self.answers.withdraw(&job.uid, is_requested)
    }

    /// Records that a pod is open.
    pub fn record_opening(&mut self, job_uid: &str, pod_uid: &str) {
        self.answers.opened(job_uid, pod_uid);
    }

    /// Records that this process is about to delete a Job.
    pub fn delete_job(&mut self, job_uid: &str) {
        self.answers.delete(job_uid);
    }

    /// Records that a Job is about to be deleted because it will never be opened.
    pub fn close_job(&mut self, job: &Job) {
        self.answers.close(&job.uid, &job.name);
    }
}
