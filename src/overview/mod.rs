//! The overview: what `status` shows of classes, claims and volumes, as plain data.
//!
//! [`collect`] makes it from a cache. The command makes it from its own reads; `status --watch` asks the orchestrator,
//! which has them already.

pub(crate) mod collect;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use flex_core::config::Problem;
use flex_core::model::volume_notes::{FailedExpansion, PendingModification};
use flex_core::run::failure::LastFailure;
use serde::{Deserialize, Serialize};

use crate::class_health::health::Health;
use crate::class_health::row::{ClaimState, Row};

/// The path of the overview on the status page. The name of a class may follow.
pub(crate) const OVERVIEW_PATH: &str = "/overview";

/// The classes of an orchestrator, with their claims and volumes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Overview {
    /// The classes, by name.
    pub(crate) classes: Vec<ClassRow>,
    /// Their claims, or those that the [`Scope`](collect::Scope) keeps.
    pub(crate) claims: Vec<Row>,
    /// The number of claims that are not bound, and that the scope leaves out.
    pub(crate) more_claims: usize,
    /// Their volumes, or those that the scope keeps.
    pub(crate) volumes: Vec<VolumeRow>,
    /// The number of volumes with failed runs that the scope leaves out.
    pub(crate) more_volumes: usize,
    /// The ConfigMaps that are meant for the orchestrator.
    pub(crate) configs: Vec<ConfigRow>,
    /// The classes that are left to another provisioner, with the reasons.
    pub(crate) left: BTreeMap<String, String>,
}

/// A class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClassRow {
    pub(crate) name: String,
    /// The provisioner of its StorageClass.
    pub(crate) provisioner: String,
    /// The class has a StorageClass object.
    pub(crate) has_object: bool,
    /// Its claims are served when a pod uses them, and not at once.
    pub(crate) waits_for_consumer: bool,
    /// The config has errors, and an older version of it is in use.
    pub(crate) last_good: bool,
    /// How its volumes are made, or why none can be made now.
    pub(crate) recipe: Result<RecipeRow, String>,
    /// What is known to be wrong with its runs.
    pub(crate) health: Health,
    /// The state of the class, for people.
    pub(crate) verdict: String,
    /// The number of claims in each state.
    pub(crate) claims: BTreeMap<ClaimState, usize>,
    /// The runs in progress; `None` if the Jobs could not be listed.
    pub(crate) runs: Option<usize>,
    /// The volumes that count for the quota.
    pub(crate) used_volumes: u64,
    /// The bytes of these volumes.
    pub(crate) used_bytes: u64,
    /// The namespace with the most of these volumes, and their number.
    pub(crate) most_volumes: Option<(String, u64)>,
    /// The namespace with the most of these bytes, and their number.
    pub(crate) most_bytes: Option<(String, u64)>,
    /// The volumes made within the last minute.
    pub(crate) last_minute: usize,
    /// The volumes made within the last hour.
    pub(crate) last_hour: usize,
    /// Its pools, by size.
    pub(crate) pools: Vec<PoolRow>,
}

/// The settings of a class that people ask for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RecipeRow {
    /// `namespace/name@hash` of the config.
    pub(crate) version: String,
    /// The image; empty for that of scripts.
    pub(crate) image: String,
    pub(crate) capabilities: Vec<String>,
    pub(crate) reclaim_policy: String,
    pub(crate) parameters: BTreeMap<String, String>,
    pub(crate) max_in_flight: usize,
    pub(crate) max_in_flight_per_namespace: Option<usize>,
    pub(crate) max_in_flight_per_node: Option<usize>,
    pub(crate) max_volumes: Option<u64>,
    /// In bytes.
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_volumes_per_namespace: Option<u64>,
    /// In bytes.
    pub(crate) max_bytes_per_namespace: Option<u64>,
}

/// The pooled volumes of a class, for one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolRow {
    /// In bytes.
    pub(crate) size: u64,
    /// The pool is filled when it has fewer volumes.
    pub(crate) low: usize,
    /// The pool is filled up to this number.
    pub(crate) high: usize,
    /// The volumes that a claim can take now.
    pub(crate) ready: usize,
}

/// A volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VolumeRow {
    pub(crate) name: String,
    pub(crate) class: String,
    /// `status.phase`.
    pub(crate) phase: String,
    /// In bytes.
    pub(crate) size: Option<u64>,
    /// The last failed delete run.
    pub(crate) last_failure: Option<LastFailure>,
    /// The last failed expand run.
    pub(crate) expansion: Option<FailedExpansion>,
    /// The modify runs since the last that succeeded.
    pub(crate) modification: Option<PendingModification>,
}

/// The verdict on a ConfigMap.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConfigRow {
    /// `namespace/name`.
    pub(crate) name: String,
    /// The classes that the config serves.
    pub(crate) classes: Vec<String>,
    /// Its errors.
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Problem>,
}

impl Overview {
    /// Returns the claims that are not bound: first those whose attempts fail, then the oldest.
    pub(crate) fn open_claims(&self) -> Vec<&Row> {
        let mut open: Vec<_> = self.claims.iter().filter(|row| row.state != ClaimState::Bound).collect();
        open.sort_by(|a, b| urgency(a).cmp(&urgency(b)));
        open
    }
}

/// Returns the key by which claims stand in a list: first those whose attempts fail, then the oldest.
fn urgency(row: &Row) -> (bool, Reverse<i64>, &str) {
    (row.failure.is_none(), Reverse(row.age), &row.claim)
}
