//! What the index knows of delete runs that no watch may show yet.

use super::{Index, WorkItem};

impl Index {
    /// Checks whether the cache would certainly have a batch that deletes a volume, by the namespace of its config.
    pub fn has_all_deletions(&self, namespace: &str, id: &str) -> bool {
        self.deletions.are_visible(namespace, id)
    }

    /// Checks whether the API has shown a moment ago that the cache lacks delete runs.
    pub fn has_just_missed_deletions(&self, namespace: &str) -> bool {
        self.deletions.has_just_missed(namespace, self.facts.now())
    }

    /// Returns the ids of volumes whose batches the API shows from now on, if they exist.
    pub fn unexpected_deletions(&self, namespace: &str) -> Vec<String> {
        self.deletions.unexpected(namespace, self.slots.expectations(), self.facts.now())
    }

    /// Records that the cache has all delete runs that the API has. `unexpected` are those of before the API was asked. Returns
    /// the volumes that have waited for this.
    pub fn note_all_deletions(&mut self, namespace: &str, unexpected: &[String]) -> Vec<WorkItem> {
        self.deletions.note_all(namespace, unexpected)
    }

    /// Records that a volume waits until the cache has all delete runs.
    pub fn await_deletions(&mut self, namespace: &str, volume: &str) {
        self.deletions.wait(namespace, volume);
    }

    /// Records that the cache lacks Jobs that the API has. Returns the message about them when it is time to log it.
    pub fn note_missing_deletions(&mut self, namespace: &str, jobs: &[String]) -> Option<String> {
        let now = self.facts.now();
        self.deletions.note_missing(namespace, jobs, now)
    }

    /// Records that the first delete run of a volume begins alone. Only its name keeps a second one away while no watch shows it,
    /// so that it joins no batch in this term.
    pub fn run_alone(&mut self, id: &str) {
        self.batches.run_alone(id);
    }
}
