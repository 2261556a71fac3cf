//! Runs of claims of which no container has run. Kubernetes says so for a moment, before the pod is gone.

use flex_contract::operation::Operation;
use std::collections::HashMap;

use crate::run::view::{Job, Pod};

/// The observed pods of a claim's last run.
#[derive(Debug)]
struct PodHistory {
    job: String,
    job_uid: String,
    unstarted: bool,
    /// The time of the Job's creation, in seconds since 1970; that of the pod if the Job is not known.
    created: i64,
}

/// The observations, by the volume ids of the claims. Normal runs are not among them.
#[derive(Debug, Default)]
pub struct UnstartedRuns {
    pods: HashMap<String, PodHistory>,
    /// Jobs that were deleted before a container had started. The proof arrives with the end of the pod, which is later.
    deleted_jobs: HashMap<String, DeletedJob>,
}

/// A Job that was deleted.
#[derive(Debug)]
struct DeletedJob {
    uid: String,
    /// The time of its creation, in seconds since 1970.
    created: i64,
}

impl UnstartedRuns {
    /// Records that the Job of one claim is gone before its pod has started a container.
    pub fn on_deleted_job(&mut self, id: &str, job: &Job) {
        self.deleted_jobs.insert(id.to_owned(), DeletedJob { uid: job.uid.clone(), created: job.created });
    }

    /// Records a change of a pod, of a Job that is in the cache or not. A container that has run, or may have run, counts
    /// for good.
    pub fn see(&mut self, pod: &Pod, job: Option<&Job>) {
        if pod.run_labels.operation != Operation::Provision || !pod.members.is_empty() {
            return;
        }
        let may_have_run = pod.started || (pod.is_over() && !pod.never_started);
        let gone = self.deleted_jobs.get(&pod.run_labels.id).filter(|gone| gone.uid == pod.job_uid);
        let known = job.filter(|job| job.uid == pod.job_uid).map(|job| job.created);
        let created = known.or(gone.map(|gone| gone.created)).unwrap_or(pod.created);
        match self.pods.get_mut(&pod.run_labels.id).filter(|observed| observed.job == pod.job) {
            Some(observed) => observed.unstarted &= !may_have_run && observed.job_uid == pod.job_uid,
            None if pod.never_started => {
                let observed = PodHistory {
                    job: pod.job.clone(),
                    job_uid: pod.job_uid.clone(),
                    unstarted: !may_have_run,
                    created,
                };
                self.pods.insert(pod.run_labels.id.clone(), observed);
            }
            None => {}
        }
    }

    /// Forgets the runs of an id whose claim is gone.
    pub fn forget(&mut self, id: &str) {
        self.pods.remove(id);
        self.deleted_jobs.remove(id);
    }

    /// Returns the creation time of a run's Job, in seconds since 1970. Returns `None` unless its pods have ended and
    /// none of its containers has run.
    pub fn since(&self, id: &str, job: &str) -> Option<i64> {
        let observed = self.pods.get(id).filter(|observed| observed.unstarted && observed.job == job);
        observed.map(|observed| observed.created)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::view::RunLabels;

    fn pod(job_uid: &str) -> Pod {
        let run_labels = RunLabels { operation: "provision".into(), id: "id".into(), attempt: 1, class: "c".into() };
        Pod { run_labels, job: "job".into(), job_uid: job_uid.into(), ..Pod::default() }
    }

    fn idle(pods: &[Pod]) -> bool {
        let mut idle = UnstartedRuns::default();
        pods.iter().for_each(|pod| idle.see(pod, None));
        idle.pods.get("id").is_some_and(|observed| observed.unstarted)
    }

    #[test]
    fn a_run_whose_container_has_started_never_counts_as_unstarted() {
        let never = || Pod { never_started: true, phase: "Failed".into(), ..pod("a") };
        let ran = Pod { started: true, ..pod("a") };
        let ended = Pod { phase: "Failed".into(), started: true, ..pod("a") };
        assert!(idle(&[pod("a"), never()]));
        assert!(!idle(&[pod("a")]), "it may still start");
        assert!(!idle(&[never(), ran]));
        assert!(!idle(&[never(), ended]));
        assert!(!idle(&[never(), Pod { job_uid: "b".into(), ..never() }]), "another Job had the name before");
    }

    /// The Job controller may be slow. The time that counts is that of the Job, also when the Job is gone before its pod.
    #[test]
    fn a_run_is_as_old_as_its_job() {
        let late = Pod { never_started: true, phase: "Failed".into(), created: 109, ..pod("a") };
        let job = Job { uid: "a".into(), created: 100, ..Job::default() };
        let created = |before: Option<&Job>, with: Option<&Job>| {
            let mut unstarted = UnstartedRuns::default();
            before.into_iter().for_each(|job| unstarted.on_deleted_job("id", job));
            unstarted.see(&late, with);
            unstarted.pods["id"].created
        };
        assert_eq!((created(None, Some(&job)), created(Some(&job), None)), (100, 100));
        let other = Job { uid: "b".into(), ..job };
        assert_eq!((created(None, Some(&other)), created(Some(&other), None), created(None, None)), (109, 109, 109));
        let mut unstarted = UnstartedRuns::default();
        unstarted.on_deleted_job("id", &other);
        unstarted.forget("id");
        assert!(unstarted.deleted_jobs.is_empty());
    }
}
