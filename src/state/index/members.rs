//! Members of batches: which members have left, and each member's view of Job and pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::Index;
use crate::run::view::{Job, Pod};

/// The state of members. It can be rebuilt by reconciling once more.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// Ids of members that do not want their batch any more, by the UID of its Job.
    detached: HashMap<String, BTreeSet<String>>,
}

impl Members {
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.detached.is_empty()
    }
}

impl Index {
    /// Records that a claim or volume does not want its batch any more, and sees the Job as terminating. Returns
    /// whether all members have left. If not, the item must be requeued, as by an event.
    pub fn detach_member(&mut self, job: &Job) -> bool {
        let Some(real) = self.jobs.get(job.real_name()).filter(|real| real.uid == job.uid) else { return true };
        let leftovers = self.members.detached.entry(job.uid.clone()).or_default();
        leftovers.insert(job.run_labels.id.clone());
        real.members.iter().all(|member| leftovers.contains(&member.id))
    }

    /// Records that the Job was not deleted after all.
    pub fn attach_member(&mut self, job: &Job) {
        if let Some(leftovers) = self.members.detached.get_mut(&job.uid) {
            leftovers.remove(&job.run_labels.id);
        }
    }

    pub(super) fn forget_detached(&mut self, uid: &str) {
        self.members.detached.remove(uid);
    }

    fn is_detached(&self, uid: &str, id: &str) -> bool {
        self.members.detached.get(uid).is_some_and(|leftovers| leftovers.contains(id))
    }

    /// Returns the pods of a Job.
    fn pods_of_job<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a Pod> {
        let pods = self.pods_by_id.get(&job.run_labels.id).into_iter().flatten().filter_map(|name| self.pods.get(name));
        pods.map(Arc::as_ref).filter(|pod| pod.job_uid == job.uid)
    }

    /// Returns an id's view of a Job. A member that has left does not see a batch that has ended.
    pub(super) fn job_for(&self, job: &Arc<Job>, id: &str) -> Option<Arc<Job>> {
        let Some(number) = job.members.iter().position(|member| member.id == id) else { return Some(job.clone()) };
        let pods: Vec<&Pod> = self.pods_of_job(job).collect();
        let left = self.is_detached(&job.uid, id);
        if left && job.is_over && pods.iter().all(|pod| pod.is_over()) {
            return None;
        }
        job.as_seen_by(number, &pods, left).map(Arc::new)
    }

    /// Returns an id's view of a pod. A member that has left does not see a batch that has ended.
    pub(super) fn pod_for(&self, pod: &Arc<Pod>, id: &str) -> Option<Arc<Pod>> {
        let Some(number) = pod.members.iter().position(|member| member.id == id) else { return Some(pod.clone()) };
        if pod.is_over() && self.is_detached(&pod.job_uid, id) {
            return None;
        }
        pod.as_seen_by(number).map(Arc::new)
    }
}
