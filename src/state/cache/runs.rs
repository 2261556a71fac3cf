//! Jobs and pods, and the warnings of Kubernetes about them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use flex_core::object::ObjectName;
use flex_core::run::view::{Job, Pod, WarningEvent};

use crate::state::watch_change::{Changed, drop_from};

/// The largest number of warnings that are kept.
const MAX_WARNINGS: usize = 10_000;

/// All Jobs and pods of runs, as they exist. [`Members`](crate::state::members::Members) has the view of each member of
/// a batch.
#[derive(Debug, Default)]
pub struct RunCache {
    jobs: BTreeMap<ObjectName, Arc<Job>>,
    /// The copies of Jobs of other clusters, which nothing else knows.
    copied_jobs: BTreeMap<ObjectName, Arc<Job>>,
    jobs_by_id: HashMap<String, BTreeSet<ObjectName>>,
    pods: BTreeMap<ObjectName, Arc<Pod>>,
    pods_by_id: HashMap<String, BTreeSet<ObjectName>>,
    warnings: HashMap<String, Arc<WarningEvent>>,
}

impl RunCache {
    /// Returns a Job by its name.
    pub fn job(&self, name: &ObjectName) -> Option<&Arc<Job>> {
        self.jobs.get(name)
    }

    /// Returns all Jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> + Clone {
        self.jobs.values()
    }

    /// Returns the names of all Jobs, and of all copies.
    pub fn job_names(&self) -> impl Iterator<Item = &ObjectName> {
        self.jobs.keys().chain(self.copied_jobs.keys())
    }

    /// Returns the copies of Jobs of other clusters.
    pub fn copied_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.copied_jobs.values()
    }

    /// Adds a copy of another cluster's Job. Returns whether it is new.
    pub fn add_copied_job(&mut self, job: Job) -> bool {
        let before = self.copied_jobs.insert(job.name.clone(), Arc::new(job));
        before.is_none()
    }

    /// Forgets a copy, and returns it.
    pub fn remove_copied_job(&mut self, name: &ObjectName) -> Option<Arc<Job>> {
        self.copied_jobs.remove(name)
    }

    /// Returns the Jobs with a volume id. A batch has also the ids of its members.
    pub fn jobs_named(&self, id: &str) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs_by_id.get(id).into_iter().flatten().filter_map(|name| self.jobs.get(name))
    }

    /// Returns a pod by its name.
    pub fn pod(&self, name: &ObjectName) -> Option<&Arc<Pod>> {
        self.pods.get(name)
    }

    /// Returns all pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> + Clone {
        self.pods.values()
    }

    /// Returns the names of all pods.
    pub fn pod_names(&self) -> impl Iterator<Item = &ObjectName> {
        self.pods.keys()
    }

    /// Returns the pods with a volume id. The pod of a batch has also the ids of its members.
    pub fn pods_named(&self, id: &str) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_by_id.get(id).into_iter().flatten().filter_map(|name| self.pods.get(name))
    }

    /// Returns the Job that a pod names. It may be another Job of this name than the pod's own.
    pub fn job_of(&self, pod: &Pod) -> Option<&Arc<Job>> {
        self.jobs.get(&ObjectName::new(&pod.name.namespace, &pod.job))
    }

    /// Returns the last warning about an object.
    pub fn warning(&self, uid: &str) -> Option<&Arc<WarningEvent>> {
        self.warnings.get(uid)
    }

    /// Adds a Job, or its new state.
    pub fn apply_job(&mut self, job: Job) -> Changed<Job> {
        let job = Arc::new(job);
        let before = self.jobs.insert(job.name.clone(), job.clone());
        if let Some(before) = before.as_ref().filter(|before| before.members != job.members) {
            job_ids(before).for_each(|id| drop_from(&mut self.jobs_by_id, id, &before.name));
        }
        for id in job_ids(&job) {
            self.jobs_by_id.entry(id.clone()).or_default().insert(job.name.clone());
        }
        Changed { before, now: Some(job) }
    }

    /// Removes a Job.
    pub fn remove_job(&mut self, name: &ObjectName) -> Option<Changed<Job>> {
        let job = self.jobs.remove(name)?;
        self.warnings.remove(&job.uid);
        job_ids(&job).for_each(|id| drop_from(&mut self.jobs_by_id, id, name));
        Some(Changed::gone(job))
    }

    /// Adds a pod, or its new state.
    pub fn apply_pod(&mut self, pod: Pod) -> Changed<Pod> {
        let pod = Arc::new(pod);
        for id in pod_ids(&pod) {
            self.pods_by_id.entry(id.clone()).or_default().insert(pod.name.clone());
        }
        Changed { before: self.pods.insert(pod.name.clone(), pod.clone()), now: Some(pod) }
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, name: &ObjectName) -> Option<Changed<Pod>> {
        let pod = self.pods.remove(name)?;
        self.warnings.remove(&pod.uid);
        pod_ids(&pod).for_each(|id| drop_from(&mut self.pods_by_id, id, name));
        Some(Changed::gone(pod))
    }

    /// Keeps a warning, in place of an earlier one about the same object.
    pub fn add_warning(&mut self, event: WarningEvent) {
        // Warnings about objects of others are few here and short-lived.
        if self.warnings.len() > MAX_WARNINGS {
            self.warnings.clear();
        }
        self.warnings.insert(event.object_uid.clone(), Arc::new(event));
    }
}

/// Returns the ids under which a Job is found. A batch is found also by its own name.
fn job_ids(job: &Job) -> impl Iterator<Item = &String> {
    job.members.iter().map(|member| &member.id).chain([&job.run_labels.id])
}

/// Returns the ids under which a pod is found.
pub fn pod_ids(pod: &Pod) -> impl Iterator<Item = &String> {
    pod.members.iter().map(|member| &member.id).chain([&pod.run_labels.id])
}
