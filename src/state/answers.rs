//! Answers: the Jobs whose creation the API server answered to this process in this term, and the pods of them that it opened.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use flex_core::object::ObjectName;
use flex_core::run::gate::Answer;
use flex_core::run::view::Pod;

/// The answers of a term, by the UIDs of the Jobs.
#[derive(Debug, Default)]
pub struct Answers {
    answered: HashMap<String, Answer>,
    /// Jobs that this process deletes, and whether it closes them.
    deleted: HashMap<String, bool>,
    /// Jobs whose runs were withdrawn before their creation was answered.
    withdrawn: HashSet<String>,
    /// Jobs whose pod has ended, or is gone, and still had its gate.
    unopened: HashSet<String>,
    /// How often it has closed a Job, by the names of the Jobs.
    closes: HashMap<ObjectName, u32>,
}

impl Answers {
    /// Records that the API server has answered the creation of a Job.
    pub fn record(&mut self, job_uid: String) {
        if !self.withdrawn.contains(&job_uid) {
            self.answered.insert(job_uid, Answer::default());
        }
    }

    /// Returns what is known about a Job; `None` if its creation was not answered in this term.
    pub fn get(&self, job_uid: &str) -> Option<&Answer> {
        self.answered.get(job_uid)
    }

    /// Records that a pod is about to be opened. Returns whether the Job is still one that this leader may open.
    pub fn begin_opening(&mut self, job_uid: &str, pod_uid: &str) -> bool {
        let Some(answer) = self.answered.get_mut(job_uid) else { return false };
        if answer.opened.as_deref() != Some(pod_uid) {
            *answer = Answer { opened: Some(pod_uid.to_owned()), ..Answer::default() };
        }
        true
    }

    /// Records that a pod is open.
    pub fn opened(&mut self, job_uid: &str, pod_uid: &str) {
        let answer = self.answered.get_mut(job_uid).filter(|answer| answer.opened.as_deref() == Some(pod_uid));
        answer.into_iter().for_each(|answer| answer.is_open = true);
    }

    /// Forgets the answer to a Job whose run is not wanted any more. Returns whether no pod of it was opened: none will be.
    /// `is_requested` says that the answer has not arrived yet.
    pub fn withdraw(&mut self, job_uid: &str, is_requested: bool) -> bool {
        let answer = self.answered.remove(job_uid);
        if is_requested && answer.is_none() {
            self.withdrawn.insert(job_uid.to_owned());
            return true;
        }
        answer.is_some_and(|answer| answer.opened.is_none())
    }

    /// Records what a watch shows of a pod.
    pub fn see(&mut self, pod: &Pod) {
        if has_ended(pod)
            && let Some(answer) = self.answered.get_mut(&pod.job_uid)
            && answer.opened.as_ref() == Some(&pod.uid)
        {
            answer.has_ended = true;
        }
    }

    /// Records what a watch shows of the gate of a pod, at last that the pod is gone.
    pub fn see_gate(&mut self, pod: &Pod, is_gone: bool) {
        match pod.gate {
            None => drop(self.unopened.remove(&pod.job_uid)),
            Some(_) if is_gone || has_ended(pod) => drop(self.unopened.insert(pod.job_uid.clone())),
            Some(_) => {}
        }
    }

    /// Checks whether a pod of a Job had its gate to the end.
    pub fn has_unopened_pod(&self, job_uid: &str) -> bool {
        self.unopened.contains(job_uid)
    }

    /// Records that a Job is about to be deleted because it will never be opened.
    pub fn close(&mut self, job_uid: &str, job: &ObjectName) {
        self.answered.remove(job_uid);
        if let Entry::Vacant(deletion) = self.deleted.entry(job_uid.to_owned()) {
            deletion.insert(true);
            *self.closes.entry(job.clone()).or_default() += 1;
        }
    }

    /// Returns how often a Job of this name was closed in this term.
    pub fn closes(&self, job: &ObjectName) -> u32 {
        self.closes.get(job).copied().unwrap_or_default()
    }

    /// Records that this process is about to delete a Job.
    pub fn delete(&mut self, job_uid: &str) {
        self.deleted.entry(job_uid.to_owned()).or_default();
    }

    /// Checks whether this process has deleted a Job, or tried to.
    pub fn is_deleted(&self, job_uid: &str) -> bool {
        self.deleted.contains_key(job_uid)
    }

    /// Checks whether this process has closed a Job, or tried to. Its runs begin again.
    pub fn is_closed(&self, job_uid: &str) -> bool {
        self.deleted.get(job_uid).is_some_and(|closes| *closes)
    }

    /// Forgets a Job that is gone.
    pub fn forget(&mut self, job_uid: &str) {
        self.answered.remove(job_uid);
        self.deleted.remove(job_uid);
        self.withdrawn.remove(job_uid);
        self.unopened.remove(job_uid);
    }

    /// Forgets all answers, because another term begins: another leader may have led in between.
    pub fn begin_term(&mut self) {
        self.answered.clear();
        self.withdrawn.clear();
        self.closes.clear();
    }
}

/// Checks whether a pod has ended, or never gets a node.
fn has_ended(pod: &Pod) -> bool {
    pod.is_over() || (pod.terminating && pod.node.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_in_its_term_and_knows_the_pod_that_was_opened() {
        let mut answers = Answers::default();
        assert!(!answers.begin_opening("job", "a"), "no answer has arrived");
        answers.record("job".into());
        assert!(answers.begin_opening("job", "a"));
        let pod = |uid: &str, phase: &str| Pod {
            uid: uid.into(),
            job_uid: "job".into(),
            phase: phase.into(),
            ..Pod::default()
        };
        answers.see(&pod("a", "Running"));
        answers.see(&pod("b", "Failed"));
        let opened = Answer { opened: Some("a".into()), ..Answer::default() };
        assert_eq!(answers.get("job"), Some(&opened));
        answers.opened("job", "b");
        assert_eq!(answers.get("job"), Some(&opened), "another pod");
        answers.opened("job", "a");
        assert_eq!(answers.get("job"), Some(&Answer { is_open: true, ..opened }));
        answers.see(&pod("a", "Failed"));
        assert!(answers.begin_opening("job", "a") && answers.get("job").is_some_and(|answer| answer.has_ended));
        assert!(answers.begin_opening("job", "b") && answers.get("job").is_some_and(|answer| !answer.has_ended));
        assert!(!answers.withdraw("job", false), "a pod was opened");
        answers.record("job".into());
        assert!(answers.withdraw("job", false) && !answers.begin_opening("job", "b"), "its run is not wanted");
        assert!(!answers.withdraw("job", false) && answers.withdraw("job", true));
        answers.record("job".into());
        assert!(!answers.begin_opening("job", "b"), "the answer arrives afterwards");
        answers.forget("job");
        answers.record("job".into());
        answers.begin_term();
        assert_eq!(answers.get("job"), None);
        assert!(!answers.begin_opening("job", "b"));
    }

    #[test]
    fn a_job_whose_pod_had_its_gate_to_the_end_is_known_until_it_is_gone() {
        let pod = |gate: Option<usize>, terminating| Pod { job_uid: "job".into(), gate, terminating, ..Pod::default() };
        let mut answers = Answers::default();
        answers.see_gate(&pod(Some(0), false), false);
        assert!(!answers.has_unopened_pod("job"), "somebody may open it");
        for (ended, is_gone) in [(pod(Some(0), true), false), (pod(Some(0), false), true)] {
            answers.see_gate(&ended, is_gone);
            assert!(answers.has_unopened_pod("job"));
            answers.begin_term();
            assert!(answers.has_unopened_pod("job"), "whoever leads");
            answers.see_gate(&pod(None, false), false);
            assert!(!answers.has_unopened_pod("job"), "another pod was opened");
        }
        answers.see_gate(&pod(Some(0), true), false);
        answers.forget("job");
        assert!(!answers.has_unopened_pod("job"));
    }

    #[test]
    fn a_job_that_this_process_deletes_is_known_until_it_is_gone() {
        let mut answers = Answers::default();
        let name = ObjectName::new("admin", "name");
        answers.close("job", &name);
        answers.close("job", &name);
        answers.close("other", &name);
        assert_eq!((answers.closes(&name), answers.closes(&ObjectName::new("own", "name"))), (2, 0));
        answers.begin_term();
        assert_eq!((answers.is_deleted("job"), answers.closes(&name)), (true, 0));
        answers.delete("third");
        answers.close("third", &name);
        assert_eq!((answers.is_deleted("third"), answers.closes(&name)), (true, 0));
        answers.delete("job");
        assert!(answers.is_closed("job") && !answers.is_closed("third"), "the run of the third is not wanted");
        answers.forget("job");
        assert!(!answers.is_deleted("job"));
    }
}
