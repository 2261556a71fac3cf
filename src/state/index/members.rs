//! Members of batches: who has left one, and what each sees of its Job and pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Index;
use crate::run::view::{Job, Pod};

/// What is known of members beside their batches. It can be built again by deciding once more.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Ids of those that want nothing of their batch any more, by the UID of its Job.
    left: HashMap<String, BTreeSet<String>>,
}

impl Members {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

impl Index {
    /// A claim or volume wants nothing of a batch any more, and sees it as being removed. Says whether that holds for all
    /// who are in it; else it is to be decided anew, as if that were an event.
    pub fn leave_job(&mut self, job: &Job) -> bool {
        let Some(real) = self.jobs.get(job.real_name()).filter(|real| real.uid == job.uid) else { return true };
        let left = self.members.left.entry(job.uid.clone()).or_default();
        left.insert(job.marks.id.clone());
        real.members.iter().all(|member| left.contains(&member.id))
    }

    /// It was not removed after all.
    pub fn stay_in_job(&mut self, job: &Job) {
        if let Some(left) = self.members.left.get_mut(&job.uid) {
            left.remove(&job.marks.id);
        }
    }

    pub(super) fn forget_left(&mut self, uid: &str) {
        self.members.left.remove(uid);
    }

    fn has_left(&self, uid: &str, id: &str) -> bool {
        self.members.left.get(uid).is_some_and(|left| left.contains(id))
    }

    /// The pods of a Job.
    fn pods_of_job<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Pod> {
        let pods = self.pods_by_id.get(&job.marks.id).into_iter().flatten().filter_map(|name| self.pods.get(name));
        pods.map(Arc::as_ref).filter(|pod| pod.job_uid == job.uid)
    }

    /// A Job as it is shown to an id. Who has left a batch that is over does not see it.
    pub(super) fn job_for(&self, job: &Arc<Job>, id: &str) -> Option<Arc<Job>> {
        let Some(number) = job.members.iter().position(|member| member.id == id) else { return Some(job.clone()) };
        let pods: Vec<&Pod> = self.pods_of_job(job).collect();
        let left = self.has_left(&job.uid, id);
        if left && job.over && pods.iter().all(|pod| pod.is_over()) {
            return None;
        }
        job.shown_to(number, &pods, left).map(Arc::new)
    }

    /// A pod as it is shown to an id. Who has left a batch that is over does not see it.
    pub(super) fn pod_for(&self, pod: &Arc<Pod>, id: &str) -> Option<Arc<Pod>> {
        let Some(number) = pod.members.iter().position(|member| member.id == id) else { return Some(pod.clone()) };
        if pod.is_over() && self.has_left(&pod.job_uid, id) {
            return None;
        }
        pod.shown_to(number).map(Arc::new)
    }
}
