//! Answers: the Jobs whose creation the API server answered to this process in this term, and the pods of them that it opened.

use std::collections::{HashMap, HashSet};

use flex_core::run::gate::Answer;
use flex_core::run::view::Pod;

/// The answers of a term, by the UIDs of the Jobs.
#[derive(Debug, Default)]
pub struct Answers {
    answered: HashMap<String, Answer>,
    /// Jobs that this process deletes because it will never open them.
    closed: HashSet<String>,
    /// Jobs whose runs were withdrawn before their creation was answered.
    withdrawn: HashSet<String>,
    /// How often it has closed a Job, by the names of the Jobs.
    closes: HashMap<String, u32>,
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
        let never_runs = pod.terminating && pod.node.is_none();
        if (pod.is_over() || never_runs)
            && let Some(answer) = self.answered.get_mut(&pod.job_uid)
            && answer.opened.as_ref() == Some(&pod.uid)
        {
            answer.has_ended = true;
        }
    }

    /// Records that a Job is about to be deleted because it will never be opened.
    pub fn close(&mut self, job_uid: &str, job: &str) {
        if self.closed.insert(job_uid.to_owned()) {
            *self.closes.entry(job.to_owned()).or_default() += 1;
        }
    }

    /// Returns how often a Job of this name was closed in this term.
    pub fn closes(&self, job: &str) -> u32 {
        self.closes.get(job).copied().unwrap_or_default()
    }

    /// Checks whether this process has deleted a Job because it would never open it.
    pub fn is_closed(&self, job_uid: &str) -> bool {
        self.closed.contains(job_uid)
    }

    /// Forgets a Job that is gone.
    pub fn forget(&mut self, job_uid: &str) {
        self.answered.remove(job_uid);
        self.closed.remove(job_uid);
        self.withdrawn.remove(job_uid);
    }

    /// Forgets all answers, because another term begins: another leader may have led in between.
    pub fn begin_term(&mut self) {
        self.answered.clear();
        self.withdrawn.clear();
        self.closes.clear();
    }
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
    fn a_closed_job_is_known_until_it_is_gone() {
        let mut answers = Answers::default();
        answers.close("job", "name");
        answers.close("job", "name");
        answers.close("other", "name");
        assert_eq!(answers.closes("name"), 2);
        answers.begin_term();
        assert_eq!((answers.is_closed("job"), answers.closes("name")), (true, 0));
        answers.forget("job");
        assert!(!answers.is_closed("job"));
    }
}
