//! Changes of Jobs and pods, and warnings about them.

use flex_contract::operation::Operation;
use flex_core::object::ObjectName;
use flex_core::run::view::{Job, Pod, WarningEvent};

use super::wake::of_job;
use super::{Index, WatchChange, WorkItem, within};
use crate::state::watch_change::Changed;

impl Index {
    /// Applies a change of a Job.
    pub fn change_job(&mut self, change: WatchChange<Job>) -> Vec<WorkItem> {
        let change = match change {
            WatchChange::Apply(job) if self.was_never_opened(&job) => WatchChange::Apply(job.unopened()),
            change => change,
        };
        let runs = &self.facts.cache.runs;
        match change {
            WatchChange::Apply(job) if job.is_copy(&self.facts.identity) => self.add_copied_job(job),
            WatchChange::Apply(job) if self.shows_nothing_new(&job) => Vec::new(),
            WatchChange::Apply(job) => {
                self.facts.cache.runs.remove_copied_job(&job.name);
                self.slots.expectations_mut().show(&job.name.name, &job.name.name);
                let changed = self.facts.cache.runs.apply_job(job);
                self.on_job(&changed)
            }
            WatchChange::Delete(name) => {
                if let Some(copy) = self.facts.cache.runs.remove_copied_job(&name) {
                    self.answers.forget(&copy.uid);
                }
                let Some(changed) = self.facts.cache.runs.remove_job(&name) else { return Vec::new() };
                let (job, cache) = (changed.last(), &self.facts.cache);
                if !self.answers.is_deleted(&job.uid) {
                    self.removed_jobs.on_deleted_job(job, &cache.claims, self.facts.clock.now());
                }
                if self.answers.is_closed(&job.uid) && !job.is_over {
                    self.slots.keep(job, &self.facts);
                }
                self.answers.forget(&job.uid);
                self.members.forget(&job.uid);
                self.on_job(&changed)
            }
            WatchChange::Retain(all) => {
                let missing = all.missing(runs.job_names());
                self.remove_missing(missing, |index, name| index.change_job(WatchChange::Delete(name.clone())))
            }
            WatchChange::RetainIn(namespace, all) => {
                let missing = all.missing(within(runs.job_names(), &namespace));
                self.remove_missing(missing, |index, name| index.change_job(WatchChange::Delete(name.clone())))
            }
        }
    }

    /// Keeps a copy of another cluster's Job apart, so that it counts for nothing. The search for findings removes it.
    fn add_copied_job(&mut self, job: Job) -> Vec<WorkItem> {
        // Somebody may have created it in place of a Job of this cluster.
        let mut items = match self.facts.cache.runs.job(&job.name).is_some() {
            true => self.change_job(WatchChange::Delete(job.name.clone())),
            false => Vec::new(),
        };
        if self.facts.cache.runs.add_copied_job(job) {
            items.push(WorkItem::Findings);
        }
        items
    }

    fn on_job(&mut self, changed: &Changed<Job>) -> Vec<WorkItem> {
        let of_batch = changed.now.as_ref().filter(|job| !job.members.is_empty());
        of_batch.iter().for_each(|job| self.deletions.show(job));
        let dissolved = of_batch.map(|job| self.batches.on_job(job, self.slots.expectations_mut()));
        let quota = self.quota.on_job(changed, &self.facts);
        match &changed.now {
            Some(now) => {
                let gate = self.gate_of(now);
                let mut items =
                    self.woken_by_job(changed.before.as_deref(), now, dissolved.unwrap_or_default(), quota.as_deref());
                items.extend(gate);
                items
            }
            None => self.woken_by_gone_job(changed.last(), quota.as_deref()),
        }
    }

    /// Checks whether a Job is unchanged in all fields that matter. An expected Job and a batch always count as
    /// changed.
    fn shows_nothing_new(&self, job: &Job) -> bool {
        let same = self.facts.cache.runs.job(&job.name).is_some_and(|before| **before == *job);
        same && job.members.is_empty() && !self.slots.expectations().contains(&job.name.name)
    }

    /// Applies a change of a pod.
    pub fn change_pod(&mut self, change: WatchChange<Pod>) -> Vec<WorkItem> {
        let runs = &self.facts.cache.runs;
        match change {
            // Most of a kubelet's writes on a pod do not matter here.
            WatchChange::Apply(pod) if runs.pod(&pod.name).is_some_and(|before| **before == pod) => Vec::new(),
            WatchChange::Apply(pod) => {
                self.unstarted.see(&pod);
                self.answers.see(&pod);
                let before = runs.pod(&pod.name).map(|before| &**before);
                self.slots.outages_mut().on_pod(before, &pod, self.facts.clock.now());
                self.see_gate(&pod, false);
                let changed = self.facts.cache.runs.apply_pod(pod);
                let mut items = self.woken_by_pod(changed.last());
                // The watch of Jobs may have been faster.
                let job = self.facts.cache.runs.job_of(changed.last()).filter(|job| self.was_never_opened(job));
                if let Some(job) = job.map(|job| Job::clone(job)) {
                    items.extend(self.change_job(WatchChange::Apply(job)));
                }
                items
            }
            WatchChange::Delete(name) => {
                let Some(changed) = self.facts.cache.runs.remove_pod(&name) else { return Vec::new() };
                self.see_gate(changed.last(), true);
                self.woken_by_pod(changed.last())
            }
            WatchChange::Retain(all) => {
                let missing = all.missing(runs.pod_names());
                self.remove_missing(missing, |index, name| index.lose_pod(name))
            }
            WatchChange::RetainIn(namespace, all) => {
                let missing = all.missing(within(runs.pod_names(), &namespace));
                self.remove_missing(missing, |index, name| index.lose_pod(name))
            }
        }
    }

    /// Replaces a Job that was taken for one that nobody opened by what the API shows. A Job that the cache does not have, or
    /// has as it is, stays so: the answer may be older than what a watch has shown.
    pub fn correct_unopened(&mut self, job: Job) -> Vec<WorkItem> {
        let known = self.facts.cache.runs.job(&job.name);
        match known.is_some_and(|known| known.uid == job.uid && known.is_unopened) {
            true => self.change_job(WatchChange::Apply(job)),
            false => Vec::new(),
        }
    }

    /// Removes a pod that a list lacks. Unlike a deletion, that does not show that the cache had the pod's last state.
    fn lose_pod(&mut self, name: &ObjectName) -> Vec<WorkItem> {
        let lost = self.facts.cache.runs.remove_pod(name);
        lost.map(|changed| self.woken_by_pod(changed.last())).unwrap_or_default()
    }

    /// Returns the items of a Job's run; none if there is no such Job.
    pub fn items_of_job(&self, name: &ObjectName) -> Vec<WorkItem> {
        self.facts.cache.runs.job(name).map(|job| of_job(job)).unwrap_or_default()
    }

    /// Returns the operations of a class that have an outage: their runs begin one at a time.
    pub fn outages_of(&self, class: &str) -> Vec<Operation> {
        self.slots.outages_of(class).collect()
    }

    /// Records a warning of Kubernetes about a Job or pod.
    pub fn add_warning_event(&mut self, event: WarningEvent) -> Vec<WorkItem> {
        let items = self.woken_by_warning(&event);
        self.facts.cache.runs.add_warning(event);
        items
    }
}
