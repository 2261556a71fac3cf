//! First delete runs of volumes that no watch may show yet. No name leads from a volume to the batch that deletes it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::object::ObjectName;
use flex_core::run::job;
use flex_core::run::view::Job;

use crate::state::expectations::Expectations;
use crate::state::missing::Missing;
use crate::state::work_item::WorkItem;

/// What this process knows of delete runs in its term, by the namespaces of their configs.
#[derive(Debug, Default)]
pub struct Deletions {
    /// The namespaces of which the cache has had all delete runs that the API had.
    seen: BTreeSet<String>,
    /// The Jobs of batches that this process has created, or tried to, and that no watch has shown, by the ids of their volumes.
    unshown: BTreeMap<String, ObjectName>,
    /// The Jobs that the API has and the cache lacks.
    missing: BTreeMap<String, Missing>,
    /// The names of the volumes that wait until the cache has all delete runs.
    waiting: BTreeMap<String, BTreeSet<String>>,
}

impl Deletions {
    /// Checks whether the cache would certainly have a batch that deletes a volume.
    pub fn are_visible(&self, namespace: &str, id: &str) -> bool {
        self.seen.contains(namespace) && !self.unshown.contains_key(id)
    }

    /// Records that the Job of a batch is about to be created, which deletes a volume.
    pub fn begin(&mut self, id: &str, batch: ObjectName) {
        self.unshown.insert(id.to_owned(), batch);
    }

    /// Records that a watch shows a Job.
    pub fn show(&mut self, job: &Job) {
        for member in job.members.iter() {
            if self.unshown.get(&member.id) == Some(&job.name) {
                self.unshown.remove(&member.id);
            }
        }
    }

    /// Returns the ids of volumes whose batches the API shows from now on, if they exist. A batch that is expected may still
    /// appear.
    pub fn unexpected(&self, namespace: &str, expectations: &Expectations, now: Duration) -> Vec<String> {
        let here = self.unshown.iter().filter(|(_, batch)| batch.namespace == namespace).map(|(id, _)| id);
        here.filter(|id| !expectations.has_any(&job::prefix(Operation::Delete, id), now)).cloned().collect()
    }

    /// Records that the cache has all delete runs that the API has. `unexpected` are those of before the API was asked. Returns
    /// the volumes that have waited for this.
    pub fn note_all(&mut self, namespace: &str, unexpected: &[String]) -> Vec<WorkItem> {
        self.seen.insert(namespace.to_owned());
        self.missing.remove(namespace);
        unexpected.iter().for_each(|id| _ = self.unshown.remove(id));
        self.waiting.remove(namespace).into_iter().flatten().map(WorkItem::Volume).collect()
    }

    /// Records that a volume waits until the cache has all delete runs.
    pub fn wait(&mut self, namespace: &str, volume: &str) {
        self.waiting.entry(namespace.to_owned()).or_default().insert(volume.to_owned());
    }

    /// Checks whether the API has shown a moment ago that the cache lacks delete runs.
    pub fn has_just_missed(&self, namespace: &str, now: Duration) -> bool {
        self.missing.get(namespace).is_some_and(|missing| missing.has_just_missed(now))
    }

    /// Records that the cache lacks Jobs that the API has. Returns the message about them when it is time to log it.
    pub fn note_missing(&mut self, namespace: &str, jobs: &[String], now: Duration) -> Option<String> {
        let told = self.missing.entry(namespace.to_owned()).or_default().note(jobs, now);
        told.map(|names| {
            format!(
                "the first delete runs of volumes with configs in namespace {namespace} wait until the watch of Jobs shows the delete runs that Kubernetes has: it lacks {names}"
            )
        })
    }

    /// Forgets the id of a volume that is gone, or that is certainly in no batch.
    pub fn forget(&mut self, id: &str) {
        self.unshown.remove(id);
    }

    /// Begins a term: another leader may have begun delete runs that no watch has shown.
    pub fn begin_term(&mut self) {
        *self = Deletions::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::expectations::EXPECTATION_TIMEOUT;
    use crate::state::testing::batch_job;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn one_look_at_the_api_tells_of_all_volumes_whose_batches_can_appear_no_more() {
        let mut deletions = Deletions::default();
        let mut expectations = Expectations::default();
        assert!(!deletions.are_visible("own", "a"), "nobody has looked");
        deletions.wait("own", "pvc-a");
        deletions.wait("other", "pvc-b");
        assert_eq!(deletions.note_all("own", &[]), [WorkItem::Volume("pvc-a".into())]);
        assert!(deletions.are_visible("own", "a") && !deletions.are_visible("other", "a"));
        let batch = |name: &str| ObjectName::new("own", name);
        for id in ["a", "b", "late"] {
            deletions.begin(id, batch("batch"));
        }
        deletions.begin("elsewhere", ObjectName::new("other", "batch"));
        expectations.expect("delete-late-1", NOW);
        assert!(["a", "b", "late"].iter().all(|id| !deletions.are_visible("own", id)));
        let unexpected = deletions.unexpected("own", &expectations, NOW);
        assert_eq!(unexpected, ["a", "b"]);
        deletions.begin("meanwhile", batch("next"));
        deletions.note_all("own", &unexpected);
        let hidden = ["a", "b", "late", "meanwhile"].map(|id| !deletions.are_visible("own", id));
        assert_eq!(hidden, [false, false, true, true]);
        assert_eq!(deletions.unexpected("own", &expectations, NOW + EXPECTATION_TIMEOUT), ["late", "meanwhile"]);
        deletions.show(&batch_job("batch", &["late", "meanwhile"]));
        assert!(deletions.are_visible("own", "late") && !deletions.are_visible("own", "meanwhile"), "it is in another");
        deletions.forget("meanwhile");
        assert!(deletions.are_visible("own", "meanwhile"));
        deletions.begin_term();
        assert!(!deletions.are_visible("own", "a"));
    }

    #[test]
    fn a_watch_that_stays_behind_is_told_for_its_namespace() {
        let mut deletions = Deletions::default();
        let jobs = ["delete-batch-1".to_owned()];
        assert_eq!(deletions.note_missing("own", &jobs, NOW), None);
        assert!(deletions.has_just_missed("own", NOW) && !deletions.has_just_missed("other", NOW));
        let message = deletions.note_missing("own", &jobs, NOW + Duration::from_secs(10)).unwrap();
        assert!(message.contains("in namespace own") && message.ends_with("it lacks delete-batch-1"), "{message}");
        deletions.note_all("own", &[]);
        assert!(!deletions.has_just_missed("own", NOW + Duration::from_secs(10)));
    }
}
