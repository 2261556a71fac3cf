//! Runs of claims of which no container has run. Kubernetes says so for a moment, before the pod is gone.

use std::collections::HashMap;

use flex_contract::operation::Operation;
use flex_core::run::view::Pod;

/// The observed pods of a claim's last run.
#[derive(Debug)]
struct PodHistory {
    job: String,
    unstarted: bool,
}

/// The names of the Jobs of attempts, and what their pods have shown, by the volume ids of the claims. Normal runs are not
/// among the pods.
#[derive(Debug, Default)]
pub struct UnstartedRuns {
    /// The number of the term in which this process leads.
    term: u64,
    /// Attempts that this process has stamped in this term, and has created no Job for.
    stamped: HashMap<String, String>,
    /// Attempts whose Job this process created without knowing that it is the first.
    repeated: HashMap<String, String>,
    pods: HashMap<String, PodHistory>,
}

impl UnstartedRuns {
    /// Returns the number of the term.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Forgets the stamped attempts: another leader may have started them meanwhile.
    pub fn begin_term(&mut self) {
        self.term += 1;
        self.stamped.clear();
    }

    /// Records that an attempt was stamped. It has no Job.
    pub fn on_stamp(&mut self, id: &str, job: &str) {
        self.stamped.insert(id.to_owned(), job.to_owned());
    }

    /// Records that the Job of an attempt is about to be created. Returns whether it is certainly the attempt's first.
    pub fn begin_run(&mut self, id: &str, job: &str) -> bool {
        let is_first = self.stamped.remove(id).is_some_and(|stamped| stamped == job);
        if !is_first {
            self.repeated.insert(id.to_owned(), job.to_owned());
        }
        is_first
    }

    /// Records a change of a pod. A container that has run, or may have run, counts for good.
    pub fn see(&mut self, pod: &Pod) {
        if pod.run_labels.operation != Operation::Provision || !pod.members.is_empty() {
            return;
        }
        let may_have_run = pod.started || (pod.is_over() && !pod.never_started) || !pod.is_first;
        match self.pods.get_mut(&pod.run_labels.id).filter(|observed| observed.job == pod.job) {
            Some(observed) => observed.unstarted &= !may_have_run,
            None if pod.never_started => {
                let observed = PodHistory { job: pod.job.clone(), unstarted: !may_have_run };
                self.pods.insert(pod.run_labels.id.clone(), observed);
            }
            None => {}
        }
    }

    /// Forgets the runs of an id whose claim is gone.
    pub fn forget(&mut self, id: &str) {
        self.stamped.remove(id);
        self.repeated.remove(id);
        self.pods.remove(id);
    }

    /// Checks whether a run's Job may have been created a second time.
    pub fn is_repeated(&self, id: &str, job: &str) -> bool {
        self.repeated.get(id).is_some_and(|repeated| repeated == job)
    }

    /// Checks that the pods of a run's first Job have ended, and none of their containers has run.
    pub fn has_ended_unstarted(&self, id: &str, job: &str) -> bool {
        self.pods.get(id).is_some_and(|observed| observed.unstarted && observed.job == job)
    }
}

#[cfg(test)]
mod tests {
    use flex_core::run::view::RunLabels;

    use super::*;

    fn pod() -> Pod {
        let run_labels = RunLabels { operation: "provision".into(), id: "id".into(), attempt: 1, class: "c".into() };
        Pod { run_labels, job: "job".into(), is_first: true, ..Pod::default() }
    }

    fn idle(pods: &[Pod]) -> bool {
        let mut idle = UnstartedRuns::default();
        pods.iter().for_each(|pod| idle.see(pod));
        idle.has_ended_unstarted("id", "job")
    }

    #[test]
    fn a_run_whose_container_has_started_never_counts_as_unstarted() {
        let never = || Pod { never_started: true, phase: "Failed".into(), ..pod() };
        let ran = Pod { started: true, ..pod() };
        let ended = Pod { phase: "Failed".into(), started: true, ..pod() };
        assert!(idle(&[pod(), never()]));
        assert!(!idle(&[pod()]), "it may still start");
        assert!(!idle(&[never(), ran]));
        assert!(!idle(&[never(), ended]));
        assert!(!idle(&[never(), Pod { is_first: false, ..never() }]), "another Job had the name before");
        assert!(!idle(&[Pod { is_first: false, ..never() }]), "another Job may have had the name before");
    }

    /// A Job that somebody removes is created again under the same name. What the removed one did is not known any more.
    #[test]
    fn only_the_first_job_after_a_stamp_is_the_first() {
        let mut runs = UnstartedRuns::default();
        assert!(!runs.begin_run("id", "job"), "another process has stamped the claim");
        runs.on_stamp("id", "job-2");
        assert!(runs.begin_run("id", "job-2"));
        assert!(!runs.is_repeated("id", "job-2"));
        assert!(!runs.begin_run("id", "job-2"));
        assert!(runs.is_repeated("id", "job-2") && !runs.is_repeated("id", "job-3"));
        runs.on_stamp("id", "job-3");
        assert!(!runs.begin_run("id", "job-4"), "somebody has changed the stamp");
    }

    #[test]
    fn a_leader_does_not_count_on_the_stamps_of_its_former_term() {
        let mut runs = UnstartedRuns::default();
        runs.on_stamp("id", "job");
        runs.begin_term();
        assert!(!runs.begin_run("id", "job"));
        runs.on_stamp("id", "job");
        runs.forget("id");
        assert!(!runs.begin_run("id", "job") && runs.is_repeated("id", "job"));
        runs.forget("id");
        assert!(!runs.is_repeated("id", "job"));
    }
}
