//! Jobs and pods, and the warnings of Kubernetes about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::request::Operation;

use super::{CAPACITY, Change, Index, WorkItem, batch, drop_from, within};
use crate::config::record::hash_of;
use crate::object::ObjectName;
use crate::run::view::{Job, Pod, WarningEvent};

impl Index {
    /// Returns all Jobs as they exist.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// Returns all pods as they exist.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// Returns the Jobs of a volume id, and a batch as that id sees it.
    pub fn jobs_of(&self, id: &str) -> Vec<Arc<Job>> {
        let jobs = self.jobs_by_id.get(id).into_iter().flatten().filter_map(|name| self.jobs.get(name));
        jobs.filter_map(|job| self.job_for(job, id)).collect()
    }

    /// Returns the Jobs of the runs for a claim by its name. The claim may be gone. A batch appears as each of its ids
    /// sees it.
    pub fn jobs_of_claim(&self, name: &ObjectName) -> Vec<Arc<Job>> {
        let of_claim = self.jobs.values().filter(|job| job.is_for_claim());
        let alone = of_claim.clone().filter(|job| job.claim.as_ref() == Some(name)).cloned();
        let members = of_claim.flat_map(|job| job.members.iter().map(move |member| (job, member)));
        let members = members.filter(|(_, member)| member.claim() == Some(name));
        alone.chain(members.filter_map(|(job, member)| self.job_for(job, &member.id))).collect()
    }

    /// Returns the volume ids of provision runs that belong to no claim and whose recipes are stored.
    pub fn ids_without_claim(&self) -> BTreeSet<String> {
        let provisions = self
            .jobs
            .values()
            .filter(|job| job.is_for_claim() && job.run_labels.operation == "provision" && !job.deleting);
        let provisions =
            provisions.filter(|job| hash_of(&job.config).is_some_and(|hash| self.recipes.contains_key(hash)));
        let ids = provisions.flat_map(|job| job.ids()).filter(|id| !self.claim_by_id.contains_key(*id));
        ids.cloned().collect()
    }

    /// Returns the Jobs of the delete and expand runs of a volume by its name. The volume may be gone. A batch appears
    /// as that volume sees it.
    pub fn jobs_of_volume(&self, name: &str) -> Vec<Arc<Job>> {
        let alone = self.jobs.values().filter(|job| job.volume.as_deref() == Some(name)).cloned();
        let members = self.jobs.values().flat_map(|job| job.members.iter().map(move |member| (job, member)));
        let members = members.filter(|(_, member)| member.volume().is_some_and(|volume| volume == name));
        alone.chain(members.filter_map(|(job, member)| self.job_for(job, &member.id))).collect()
    }

    /// Returns the pods of a volume id, and the pod of a batch as that id sees it.
    pub fn pods_of(&self, id: &str) -> Vec<Arc<Pod>> {
        let pods = self.pods_by_id.get(id).into_iter().flatten().filter_map(|name| self.pods.get(name));
        pods.filter_map(|pod| self.pod_for(pod, id)).collect()
    }

    /// Returns the warnings of Kubernetes about these objects.
    pub fn warning_events_of<'a>(&'a self, uids: impl Iterator<Item = &'a str>) -> Vec<Arc<WarningEvent>> {
        uids.filter_map(|uid| self.warning_events.get(uid).cloned()).collect()
    }

    /// Applies a change of a Job.
    pub fn change_job(&mut self, change: Change<Job>) -> Vec<WorkItem> {
        match change {
            Change::Apply(job) if self.shows_nothing_new(&job) => Vec::new(),
            Change::Apply(job) => {
                let mut keys = job_keys(&job);
                self.expected.remove(&job.name.name);
                let job = Arc::new(job);
                let before = self.jobs.insert(job.name.clone(), job.clone());
                if let Some(before) = before.as_ref().filter(|before| before.members != job.members) {
                    keys.extend(job_keys(before));
                    own_ids(before).for_each(|id| drop_from(&mut self.jobs_by_id, id, &before.name));
                }
                for id in own_ids(&job) {
                    self.jobs_by_id.entry(id.clone()).or_default().insert(job.name.clone());
                }
                if !job.members.is_empty() {
                    keys.extend(self.on_batch(&job));
                }
                if job.is_over && before.is_none_or(|before| !before.is_over) {
                    keys.extend(self.wake_for_slot(&job));
                    keys.extend(self.open_batches_of(&job));
                }
                keys.extend(self.on_growth(&job, false));
                keys
            }
            Change::Delete(name) => {
                let Some(job) = self.jobs.remove(&name) else { return Vec::new() };
                self.warning_events.remove(&job.uid);
                own_ids(&job).for_each(|id| drop_from(&mut self.jobs_by_id, id, &name));
                self.note_removed(&job);
                self.note_unstarted(&job);
                self.forget_detached(&job.uid);
                let mut keys = job_keys(&job);
                keys.extend(self.on_growth(&job, true));
                if !job.is_over {
                    keys.extend(self.wake_for_slot(&job));
                    keys.extend(self.open_batches_of(&job));
                }
                keys
            }
            Change::Retain(all) => self.retain(all, |index| index.jobs.keys().cloned().collect(), Index::change_job),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.jobs.keys(), &namespace), Index::change_job)
            }
        }
    }

    /// Checks whether a Job is unchanged in all fields that matter. An expected Job and a batch always count as
    /// changed.
    fn shows_nothing_new(&self, job: &Job) -> bool {
        let same = self.jobs.get(&job.name).is_some_and(|before| **before == *job);
        same && job.members.is_empty() && !self.expected.contains_key(&job.name.name)
    }

    /// Remembers a deleted Job of one claim whose pod has not started a container.
    fn note_unstarted(&mut self, job: &Job) {
        if job.run_labels.operation != Operation::Provision.as_str() || !job.members.is_empty() {
            return;
        }
        let id = &job.run_labels.id;
        if self.pods_of(id).iter().any(|pod| pod.job_uid == job.uid && !pod.started) {
            self.unstarted.on_deleted_job(id, job);
        }
    }

    /// Applies a change of a pod.
    pub fn change_pod(&mut self, change: Change<Pod>) -> Vec<WorkItem> {
        match change {
            // Most of a kubelet's writes on a pod do not matter here.
            Change::Apply(pod) if self.pods.get(&pod.name).is_some_and(|before| **before == pod) => Vec::new(),
            Change::Apply(pod) => {
                let keys = self.pod_keys(&pod);
                // Most pods start, and nobody asks for the age of their Jobs.
                let name = pod.never_started.then(|| ObjectName::new(&pod.name.namespace, &pod.job));
                let job = name.and_then(|name| self.jobs.get(&name));
                self.unstarted.see(&pod, job.map(Arc::as_ref));
                for id in ids_of_pod(&pod) {
                    self.pods_by_id.entry(id.clone()).or_default().insert(pod.name.clone());
                }
                self.pods.insert(pod.name.clone(), Arc::new(pod));
                keys
            }
            Change::Delete(name) => {
                let Some(pod) = self.pods.remove(&name) else { return Vec::new() };
                self.warning_events.remove(&pod.uid);
                ids_of_pod(&pod).for_each(|id| drop_from(&mut self.pods_by_id, id, &name));
                self.pod_keys(&pod)
            }
            Change::Retain(all) => self.retain(all, |index| index.pods.keys().cloned().collect(), Index::change_pod),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.pods.keys(), &namespace), Index::change_pod)
            }
        }
    }

    pub(super) fn pod_keys(&self, pod: &Pod) -> Vec<WorkItem> {
        if pod.run_labels.operation == CAPACITY {
            return vec![WorkItem::Capacity];
        }
        let job = self.jobs.get(&ObjectName::new(&pod.name.namespace, &pod.job));
        let mut keys: Vec<WorkItem> = job.map(|job| job_keys(job)).unwrap_or_default();
        for id in ids_of_pod(pod) {
            keys.extend(self.claim_keys(id));
            keys.extend(self.volume_keys(id));
        }
        keys.extend(self.snapshots.of_pod(&pod.run_labels));
        keys.sort();
        keys.dedup();
        keys
    }

    /// Records a warning of Kubernetes about a Job or pod.
    pub fn add_warning_event(&mut self, event: WarningEvent) -> Vec<WorkItem> {
        let job = self.jobs.values().find(|job| job.uid == event.object_uid);
        let keys = match job {
            Some(job) => job_keys(job),
            None => match self.pods.values().find(|pod| pod.uid == event.object_uid) {
                Some(pod) => self.pod_keys(pod),
                // The object is gone, or not visible yet. Its next event decides.
                None => Vec::new(),
            },
        };
        // The last warning about an object counts. Warnings about objects of others are few here and short-lived.
        if self.warning_events.len() > 10_000 {
            self.warning_events.clear();
        }
        self.warning_events.insert(event.object_uid.clone(), Arc::new(event));
        keys
    }
}

/// Returns the items to requeue when a Job changes.
pub(super) fn job_keys(job: &Job) -> Vec<WorkItem> {
    if !job.members.is_empty() {
        return job.members.iter().map(batch::key).collect();
    }
    vec![match (&job.content, &job.volume) {
        (None, None) if job.run_labels.operation == CAPACITY => WorkItem::Capacity,
        (Some(content), _) => WorkItem::Content(content.clone()),
        (None, Some(volume)) => WorkItem::Volume(volume.clone()),
        (None, None) => WorkItem::Claim(job.claim.clone().unwrap_or_default()),
    }]
}

/// Returns the ids under which a Job is found. A batch is found also by its own name.
fn own_ids(job: &Job) -> impl Iterator<Item = &String> {
    job.members.iter().map(|member| &member.id).chain([&job.run_labels.id])
}

/// Returns the same for a pod.
fn ids_of_pod(pod: &Pod) -> impl Iterator<Item = &String> {
    pod.members.iter().map(|member| &member.id).chain([&pod.run_labels.id])
}
