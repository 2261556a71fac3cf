//! The data on which findings rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flex_contract::names;

use crate::config::classes::{Classes, Identity};
use crate::model::claim::Claim;
use crate::model::snapshot::{Content, Snapshot};
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::run::node::Node;
use crate::run::view::{Job, Pod};

/// All data on which findings rest.
#[derive(Clone, Debug)]
pub struct ClusterObservation {
    /// The names of this orchestrator.
    pub identity: Identity,
    /// All classes.
    pub classes: Arc<Classes>,
    /// All claims of the cluster.
    pub claims: Vec<Arc<Claim>>,
    /// All volumes of the cluster.
    pub volumes: Vec<Arc<Volume>>,
    /// The Jobs of this orchestrator.
    pub jobs: Vec<Arc<Job>>,
    /// The pods of this orchestrator.
    pub pods: Vec<Arc<Pod>>,
    /// All VolumeSnapshots of the cluster.
    pub snapshots: Vec<Arc<Snapshot>>,
    /// All VolumeSnapshotContents of the cluster.
    pub contents: Vec<Arc<Content>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// The hashes of the stored recipes.
    pub recipes: HashSet<String>,
    /// The hashes of revisions to which no object refers.
    pub unused: Vec<String>,
    /// Checks also the provenance of each volume and each finalizer. Takes long with thousands of objects.
    pub deep: bool,
}

/// An observation of the cluster, indexed for the checks.
pub(super) struct Lookups<'a> {
    pub s: &'a ClusterObservation,
    pub now: i64,
    /// The claims, by each id that a run for them may have.
    pub claims: HashMap<String, &'a Claim>,
    pub volumes: HashMap<&'a str, &'a Volume>,
    pub snapshots: HashMap<&'a ObjectName, &'a Snapshot>,
    pub contents: HashMap<&'a str, &'a Content>,
    pub jobs: HashSet<&'a ObjectName>,
    pub jobs_by_id: HashMap<&'a str, Vec<&'a Job>>,
    /// The time at which the last container of a Job's pods ended.
    pub ended: HashMap<(&'a str, &'a str), i64>,
    /// The ids for which a volume with that id or name exists and is not adopted.
    pub unadopted: HashSet<&'a str>,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(s: &'a ClusterObservation, now: i64) -> Self {
        let mut jobs_by_id: HashMap<&str, Vec<&Job>> = HashMap::new();
        for job in &s.jobs {
            job.ids().for_each(|id| jobs_by_id.entry(id.as_str()).or_default().push(job));
        }
        let mut ended: HashMap<(&str, &str), i64> = HashMap::new();
        for pod in &s.pods {
            let at = pod.terminated.as_ref().map_or(pod.created, |end| end.at);
            let last = ended.entry((pod.name.namespace.as_str(), pod.job.as_str())).or_default();
            *last = (*last).max(at);
        }
        let unadopted = s.volumes.iter().filter(|volume| !volume.is_adopted());
        let ids = |volume: &'a Arc<Volume>| {
            [volume.claim_uid.as_deref(), volume.name.strip_prefix(names::PV_PREFIX)].into_iter().flatten()
        };
        Lookups {
            s,
            now,
            claims: s.claims.iter().flat_map(|claim| claim.volume_ids().map(move |id| (id, claim.as_ref()))).collect(),
            volumes: s.volumes.iter().map(|volume| (volume.name.as_str(), volume.as_ref())).collect(),
            snapshots: s.snapshots.iter().map(|snapshot| (&snapshot.name, snapshot.as_ref())).collect(),
            contents: s.contents.iter().map(|content| (content.name.as_str(), content.as_ref())).collect(),
            jobs: s.jobs.iter().map(|job| &job.name).collect(),
            jobs_by_id,
            ended,
            unadopted: unadopted.flat_map(ids).collect(),
        }
    }
}
