//! Jobs and pods, and what Kubernetes complains about of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{CAPACITY, Change, Index, Key, drop_from, within};
use crate::config::record::hash_of;
use crate::object::ObjectName;
use crate::run::view::{Complaint, Job, Pod};

impl Index {
    /// All Jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    /// All pods.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.values()
    }

    /// Jobs of a volume id.
    pub fn jobs_of(&self, id: &str) -> Vec<Arc<Job>> {
        self.jobs_by_id.get(id).into_iter().flatten().filter_map(|name| self.jobs.get(name).cloned()).collect()
    }

    /// Jobs of the runs for a claim by its name, which may be gone.
    pub fn jobs_of_claim(&self, name: &ObjectName) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.is_of_claim() && job.claim.as_ref() == Some(name)).cloned().collect()
    }

    /// The volume ids of provision runs that are no claim's, and whose recipes are kept.
    pub fn ids_without_claim(&self) -> BTreeSet<String> {
        let provisions =
            self.jobs.values().filter(|job| job.is_of_claim() && job.marks.operation == "provision" && !job.deleting);
        let provisions =
            provisions.filter(|job| hash_of(&job.config).is_some_and(|hash| self.recipes.contains_key(hash)));
        let ids = provisions.map(|job| &job.marks.id).filter(|id| !self.claim_by_id.contains_key(*id));
        ids.cloned().collect()
    }

    /// Jobs of the delete and expand runs of a volume by its name, which may be gone.
    pub fn jobs_of_volume(&self, name: &str) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.volume.as_deref() == Some(name)).cloned().collect()
    }

    /// Pods of a volume id.
    pub fn pods_of(&self, id: &str) -> Vec<Arc<Pod>> {
        self.pods_by_id.get(id).into_iter().flatten().filter_map(|name| self.pods.get(name).cloned()).collect()
    }

    /// What Kubernetes complains about of these objects.
    pub fn complaints_about<'a>(&'a self, uids: impl Iterator<Item = &'a str>) -> Vec<Arc<Complaint>> {
        uids.filter_map(|uid| self.complaints.get(uid).cloned()).collect()
    }

    /// A Job changed.
    pub fn change_job(&mut self, change: Change<Job>) -> Vec<Key> {
        match change {
            Change::Apply(job) => {
                let mut keys = vec![job_key(&job)];
                self.expected.remove(&job.name.name);
                self.jobs_by_id.entry(job.marks.id.clone()).or_default().insert(job.name.clone());
                let job = Arc::new(job);
                let before = self.jobs.insert(job.name.clone(), job.clone());
                if job.over && before.is_none_or(|before| !before.over) {
                    keys.extend(self.next_in_line(&job));
                }
                keys.extend(self.see_growth(&job, false));
                keys
            }
            Change::Delete(name) => {
                let Some(job) = self.jobs.remove(&name) else { return Vec::new() };
                self.complaints.remove(&job.uid);
                drop_from(&mut self.jobs_by_id, &job.marks.id, &name);
                self.note_removed(&job);
                let mut keys = vec![job_key(&job)];
                keys.extend(self.see_growth(&job, true));
                if !job.over {
                    keys.extend(self.next_in_line(&job));
                }
                keys
            }
            Change::Retain(all) => self.retain(all, |index| index.jobs.keys().cloned().collect(), Index::change_job),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.jobs.keys(), &namespace), Index::change_job)
            }
        }
    }

    /// A pod changed.
    pub fn change_pod(&mut self, change: Change<Pod>) -> Vec<Key> {
        match change {
            Change::Apply(pod) => {
                let keys = self.pod_keys(&pod);
                self.pods_by_id.entry(pod.marks.id.clone()).or_default().insert(pod.name.clone());
                self.pods.insert(pod.name.clone(), Arc::new(pod));
                keys
            }
            Change::Delete(name) => {
                let Some(pod) = self.pods.remove(&name) else { return Vec::new() };
                self.complaints.remove(&pod.uid);
                drop_from(&mut self.pods_by_id, &pod.marks.id, &name);
                self.pod_keys(&pod)
            }
            Change::Retain(all) => self.retain(all, |index| index.pods.keys().cloned().collect(), Index::change_pod),
            Change::RetainIn(namespace, all) => {
                self.retain(all, |index| within(index.pods.keys(), &namespace), Index::change_pod)
            }
        }
    }

    pub(super) fn pod_keys(&self, pod: &Pod) -> Vec<Key> {
        if pod.marks.operation == CAPACITY {
            return vec![Key::Capacity];
        }
        let job = self.jobs.get(&ObjectName::new(&pod.name.namespace, &pod.job));
        let mut keys: Vec<Key> = job.map(|job| job_key(job)).into_iter().collect();
        keys.extend(self.claim_keys(&pod.marks.id));
        keys.extend(self.volume_keys(&pod.marks.id));
        keys.extend(self.snapshots.of_pod(&pod.marks));
        keys.sort();
        keys.dedup();
        keys
    }

    /// Kubernetes complains about a Job or pod.
    pub fn complain(&mut self, complaint: Complaint) -> Vec<Key> {
        let job = self.jobs.values().find(|job| job.uid == complaint.about);
        let keys = match job {
            Some(job) => vec![job_key(job)],
            None => match self.pods.values().find(|pod| pod.uid == complaint.about) {
                Some(pod) => self.pod_keys(pod),
                // About an object that is gone, or not seen yet: its next event decides.
                None => Vec::new(),
            },
        };
        // The newest word on an object counts; objects that are not ours are few here and short-lived.
        if self.complaints.len() > 10_000 {
            self.complaints.clear();
        }
        self.complaints.insert(complaint.about.clone(), Arc::new(complaint));
        keys
    }
}

/// What is decided anew when a Job changes.
pub(super) fn job_key(job: &Job) -> Key {
    match (&job.content, &job.volume) {
        (None, None) if job.marks.operation == CAPACITY => Key::Capacity,
        (Some(content), _) => Key::Content(content.clone()),
        (None, Some(volume)) => Key::Volume(volume.clone()),
        (None, None) => Key::Claim(job.claim.clone().unwrap_or_default()),
    }
}
