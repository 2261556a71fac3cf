//! The whole cache, for the search of findings.

use super::Index;
use crate::config::classes::Identity;
use crate::findings::ClusterObservation;

impl Index {
    /// Returns the cache at this time, in seconds since 1970; `deep` as in [`ClusterObservation`].
    pub fn whole(&self, identity: &Identity, now: i64, deep: bool) -> ClusterObservation {
        ClusterObservation {
            identity: identity.clone(),
            classes: self.classes(),
            claims: self.claims().cloned().collect(),
            volumes: self.volumes().cloned().collect(),
            jobs: self.jobs().cloned().collect(),
            pods: self.pods().cloned().collect(),
            snapshots: self.snapshots().cloned().collect(),
            contents: self.contents().cloned().collect(),
            nodes: self.nodes().cloned().collect(),
            recipes: self.recipe_hashes().map(str::to_owned).collect(),
            unused: self.unused_revisions(now),
            deep,
        }
    }
}
