//! Members of batches: which members have left, and each member's view of Job and pods.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use flex_core::object::ObjectName;
use flex_core::run::view::{Job, Pod};

use crate::state::cache::runs::RunCache;

/// The state of members. It can be rebuilt by reconciling once more.
#[derive(Debug, Default)]
pub struct Members {
    /// Ids of members that do not want their batch any more, by the UID of its Job.
    detached: HashMap<String, BTreeSet<String>>,
}

impl Members {
    /// Records that a claim or volume does not want its batch any more, and sees the Job as terminating. Returns
    /// whether all members have left. If not, the item must be requeued, as by an event.
    pub fn detach(&mut self, job: &Job, runs: &RunCache) -> bool {
        let Some(real) = runs.job(job.real_name()).filter(|real| real.uid == job.uid) else { return true };
        let detached = self.detached.entry(job.uid.clone()).or_default();
        detached.insert(job.run_labels.id.clone());
        real.members.iter().all(|member| detached.contains(&member.id))
    }

    /// Records that the Job was not deleted after all.
    pub fn attach(&mut self, job: &Job) {
        if let Some(detached) = self.detached.get_mut(&job.uid) {
            detached.remove(&job.run_labels.id);
        }
    }

    /// Forgets a Job that is gone.
    pub fn forget(&mut self, uid: &str) {
        self.detached.remove(uid);
    }

    fn is_detached(&self, uid: &str, id: &str) -> bool {
        self.detached.get(uid).is_some_and(|detached| detached.contains(id))
    }

    /// Returns the Jobs of a volume id, and a batch as that id sees it.
    pub fn jobs_of(&self, id: &str, runs: &RunCache) -> Vec<Arc<Job>> {
        runs.jobs_named(id).filter_map(|job| self.job_for(job, id, runs)).collect()
    }

    /// Returns the Jobs of the runs for a claim by its name. The claim may be gone. A batch appears as each of its ids
    /// sees it.
    pub fn jobs_of_claim(&self, name: &ObjectName, runs: &RunCache) -> Vec<Arc<Job>> {
        let of_claim = runs.jobs().filter(|job| job.is_for_claim());
        let alone = of_claim.clone().filter(|job| job.claim.as_ref() == Some(name)).cloned();
        let members = of_claim.flat_map(|job| job.members.iter().map(move |member| (job, member)));
        let members = members.filter(|(_, member)| member.claim() == Some(name));
        alone.chain(members.filter_map(|(job, member)| self.job_for(job, &member.id, runs))).collect()
    }

    /// Returns the Jobs of the delete and expand runs of a volume by its name. The volume may be gone. A batch appears
    /// as that volume sees it.
    pub fn jobs_of_volume(&self, name: &str, runs: &RunCache) -> Vec<Arc<Job>> {
        let alone = runs.jobs().filter(|job| job.volume.as_deref() == Some(name)).cloned();
        let members = runs.jobs().flat_map(|job| job.members.iter().map(move |member| (job, member)));
        let members = members.filter(|(_, member)| member.volume().is_some_and(|volume| volume == name));
        alone.chain(members.filter_map(|(job, member)| self.job_for(job, &member.id, runs))).collect()
    }

    /// Returns the pods of a volume id, and the pod of a batch as that id sees it.
    pub fn pods_of(&self, id: &str, runs: &RunCache) -> Vec<Arc<Pod>> {
        runs.pods_named(id).filter_map(|pod| self.pod_for(pod, id)).collect()
    }

    /// Returns an id's view of a Job. A member that has left does not see a batch that has ended.
    fn job_for(&self, job: &Arc<Job>, id: &str, runs: &RunCache) -> Option<Arc<Job>> {
        let Some(number) = job.members.iter().position(|member| member.id == id) else { return Some(job.clone()) };
        let pods = runs.pods_named(&job.run_labels.id).map(Arc::as_ref);
        let pods: Vec<&Pod> = pods.filter(|pod| pod.job_uid == job.uid).collect();
        let left = self.is_detached(&job.uid, id);
        if left && job.is_over && pods.iter().all(|pod| pod.is_over()) {
            return None;
        }
        job.as_seen_by(number, &pods, left).map(Arc::new)
    }

    /// Returns an id's view of a pod. A member that has left does not see a batch that has ended.
    fn pod_for(&self, pod: &Arc<Pod>, id: &str) -> Option<Arc<Pod>> {
        let Some(number) = pod.members.iter().position(|member| member.id == id) else { return Some(pod.clone()) };
        if pod.is_over() && self.is_detached(&pod.job_uid, id) {
            return None;
        }
        pod.as_seen_by(number).map(Arc::new)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.detached.is_empty()
    }
}

#[cfg(test)]
#[path = "members_tests.rs"]
mod tests;
