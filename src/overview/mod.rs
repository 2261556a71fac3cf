//! The overview: what `status` shows of classes, claims and volumes, as plain data.
//!
//! [`collect`] makes it from a cache. The command makes it from its own reads; `status --watch` asks the orchestrator,
//! which has them already.

pub mod collect;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flex_core::claim::progress::Progress;
use flex_core::config::Problem;
use flex_core::model::volume_notes::{FailedExpansion, PendingModification};
use flex_core::run::failure::LastFailure;
use serde::{Deserialize, Serialize};

use crate::class_health::health::Health;
use crate::class_health::row::Row;

/// The path of the overview on the status page. The name of a class may follow.
pub const OVERVIEW_PATH: &str = "/overview";

/// The classes of an orchestrator, with their claims and volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Overview {
    /// The classes, by name.
    pub classes: Vec<ClassRow>,
    /// Their claims, or those that the [`Scope`](collect::Scope) keeps.
    pub claims: Vec<Row>,
    /// The number of claims that are not bound, and that the scope leaves out.
    pub more_claims: usize,
    /// Their volumes, or those that the scope keeps.
    pub volumes: Vec<VolumeRow>,
    /// The number of volumes with failed runs that the scope leaves out.
    pub more_volumes: usize,
    /// The ConfigMaps that are meant for the orchestrator.
    pub configs: Vec<ConfigRow>,
    /// The classes that are left to another provisioner, with the reasons.
    pub left: BTreeMap<String, String>,
    /// The deleted claims whose attempts may have made storage that somebody may keep.
    #[serde(default)]
    pub kept: Vec<String>,
}

/// A class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassRow {
    /// Its name.
    pub name: String,
    /// The provisioner of its StorageClass.
    pub provisioner: String,
    /// The class has a StorageClass object.
    pub has_object: bool,
    /// Its claims are served when a pod uses them, and not at once.
    pub waits_for_consumer: bool,
    /// The config has errors, and an older version of it is in use.
    pub last_good: bool,
    /// How its volumes are made, or why none can be made now.
    pub recipe: Result<RecipeRow, String>,
    /// What is known to be wrong with its runs.
    pub health: Health,
    /// The state of the class, for people.
    pub verdict: String,
    /// The number of claims in each state.
    pub claims: BTreeMap<Progress, usize>,
    /// The runs in progress; `None` if the Jobs could not be listed.
    pub runs: Option<usize>,
    /// The volumes that count for the quota.
    pub used_volumes: u64,
    /// The bytes of these volumes.
    pub used_bytes: u64,
    /// The namespace with the most of these volumes, and their number.
    pub most_volumes: Option<(String, u64)>,
    /// The namespace with the most of these bytes, and their number.
    pub most_bytes: Option<(String, u64)>,
    /// The volumes made within the last minute.
    pub last_minute: usize,
    /// The volumes made within the last hour.
    pub last_hour: usize,
    /// Its pools, by size.
    pub pools: Vec<PoolRow>,
}

/// The settings of a class that people ask for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RecipeRow {
    /// `namespace/name@hash` of the config.
    pub version: String,
    /// The image; empty for that of scripts.
    pub image: String,
    /// What the image can do beside making and deleting volumes.
    pub capabilities: Vec<String>,
    /// `Delete` or `Retain`.
    pub reclaim_policy: String,
    /// What the image gets beside the claim.
    pub parameters: BTreeMap<String, String>,
    /// The largest number of runs at one time.
    pub max_in_flight: usize,
    /// The same for each namespace.
    pub max_in_flight_per_namespace: Option<usize>,
    /// The same for each node.
    pub max_in_flight_per_node: Option<usize>,
    /// The largest number of volumes.
    pub max_volumes: Option<u64>,
    /// The largest sum of their sizes, in bytes.
    pub max_bytes: Option<u64>,
    /// The largest number of volumes of each namespace.
    pub max_volumes_per_namespace: Option<u64>,
    /// The largest sum of their sizes, in bytes.
    pub max_bytes_per_namespace: Option<u64>,
}

/// The pooled volumes of a class, for one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// In bytes.
    pub size: u64,
    /// The pool is filled when it has fewer volumes.
    pub low: usize,
    /// The pool is filled up to this number.
    pub high: usize,
    /// The volumes that a claim can take now.
    pub ready: usize,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeRow {
    /// Its name.
    pub name: String,
    /// The name of its class.
    pub class: String,
    /// `status.phase`.
    pub phase: String,
    /// In bytes.
    pub size: Option<u64>,
    /// The last failed delete run.
    pub last_failure: Option<LastFailure>,
    /// The last failed expand run.
    pub expansion: Option<FailedExpansion>,
    /// The modify runs since the last that succeeded.
    pub modification: Option<PendingModification>,
}

/// The verdict on a ConfigMap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfigRow {
    /// `namespace/name`.
    pub name: String,
    /// The classes that the config serves.
    pub classes: Vec<String>,
    /// Its errors.
    pub problems: Vec<Problem>,
    /// Its warnings.
    pub warnings: Vec<Problem>,
}

impl Overview {
    /// Returns the claims that are not bound: first those whose attempts fail, then the oldest.
    pub fn open_claims(&self) -> Vec<&Row> {
        let mut open: Vec<_> = self.claims.iter().filter(|row| row.state != Progress::Bound).collect();
        open.sort_by(|a, b| urgency(a).cmp(&urgency(b)));
        open
    }
}

impl ClassRow {
    /// Forgets the parameters, which not everybody who reads the status page may know.
    pub(crate) fn forget_parameters(&mut self) {
        if let Ok(recipe) = &mut self.recipe {
            recipe.parameters.clear();
        }
    }
}

/// Returns the key by which claims stand in a list: first those whose attempts fail, then the oldest.
fn urgency(row: &Row) -> (bool, Reverse<i64>, &str) {
    (row.failure.is_none(), Reverse(row.age), &row.claim)
}
