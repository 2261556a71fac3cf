//! Runs of claims of which no container has run. Kubernetes says so for a moment, before the pod is gone.

use std::collections::HashMap;

use super::Index;
use crate::run::view::Pod;

/// The observed pods of a claim's last run.
#[derive(Debug)]
struct PodHistory {
    job: String,
    job_uid: String,
    unstarted: bool,
    /// The time of the pod's creation, in seconds since 1970.
    created: i64,
}

/// The observations, by the volume ids of the claims. Normal runs are not among them.
#[derive(Debug, Default)]
pub(super) struct UnstartedRuns(HashMap<String, PodHistory>);

impl UnstartedRuns {
    /// Records a change of a pod. A container that has run, or may have run, counts for good.
    pub(super) fn see(&mut self, pod: &Pod) {
        if pod.run_labels.operation != "provision" || !pod.members.is_empty() {
            return;
        }
        let may_have_run = pod.started || (pod.is_over() && !pod.never_started);
        match self.0.get_mut(&pod.run_labels.id).filter(|observed| observed.job == pod.job) {
            Some(observed) => observed.unstarted &= !may_have_run && observed.job_uid == pod.job_uid,
            None if pod.never_started => {
                let observed = PodHistory {
                    job: pod.job.clone(),
                    job_uid: pod.job_uid.clone(),
                    unstarted: !may_have_run,
                    created: pod.created,
                };
                self.0.insert(pod.run_labels.id.clone(), observed);
            }
            None => {}
        }
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.0.remove(id);
    }
}

impl Index {
    /// Returns the creation time of a run's pod, in seconds since 1970. Returns `None` unless its pods have ended and
    /// none of its containers has run.
    pub fn unstarted_since(&self, id: &str, job: &str) -> Option<i64> {
        self.unstarted
            .0
            .get(id)
            .filter(|observed| observed.unstarted && observed.job == job)
            .map(|observed| observed.created)
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
        pods.iter().for_each(|pod| idle.see(pod));
        idle.0.get("id").is_some_and(|observed| observed.unstarted)
    }

    #[test]
    fn what_has_run_once_is_never_idle_again() {
        let never = || Pod { never_started: true, phase: "Failed".into(), ..pod("a") };
        let ran = Pod { started: true, ..pod("a") };
        let ended = Pod { phase: "Failed".into(), started: true, ..pod("a") };
        assert!(idle(&[pod("a"), never()]));
        assert!(!idle(&[pod("a")]), "it may still start");
        assert!(!idle(&[never(), ran]));
        assert!(!idle(&[never(), ended]));
        assert!(!idle(&[never(), Pod { job_uid: "b".into(), ..never() }]), "another Job had the name before");
    }
}
