//! The data on which findings rest.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flex_contract::names;

use crate::config::classes::{Classes, Identity};
use crate::model::claim::Claim;
use crate::model::namespace::Namespaces;
use crate::model::record::Record;
use crate::model::snapshot::{Content, Snapshot};
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::run::node::Node;
use crate::run::view::{Job, Pod};

/// The claims and volumes of a cluster. There may be very many, so that nobody keeps a list of them: a cache returns one
/// after the other.
pub trait ClaimsAndVolumes {
    /// Returns all claims of the cluster.
    fn claims(&self) -> Box<dyn Iterator<Item = Arc<Claim>> + '_>;

    /// Returns all volumes of the cluster.
    fn volumes(&self) -> Box<dyn Iterator<Item = Arc<Volume>> + '_>;

    /// Returns a claim by its name.
    fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>>;

    /// Returns a claim by its UID, which is the volume id of its runs.
    fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>>;

    /// Returns a volume by its name.
    fn volume(&self, name: &str) -> Option<Arc<Volume>>;
}

/// A cluster in which findings are searched.
#[derive(Clone, Copy)]
pub struct Searched<'a> {
    /// The claims and volumes.
    pub objects: &'a dyn ClaimsAndVolumes,
    /// The other objects.
    pub others: &'a ClusterObservation,
}

/// The data on which findings rest, except for claims and volumes.
#[derive(Clone, Debug)]
pub struct ClusterObservation {
    /// The names of this orchestrator.
    pub identity: Identity,
    /// All classes.
    pub classes: Arc<Classes>,
    /// The Jobs of this orchestrator.
    pub jobs: Vec<Arc<Job>>,
    /// The copies of Jobs of other clusters.
    pub copied_jobs: Vec<Arc<Job>>,
    /// The pods of this orchestrator.
    pub pods: Vec<Arc<Pod>>,
    /// All VolumeSnapshots of the cluster.
    pub snapshots: Vec<Arc<Snapshot>>,
    /// All VolumeSnapshotContents of the cluster.
    pub contents: Vec<Arc<Content>>,
    /// All nodes.
    pub nodes: Vec<Arc<Node>>,
    /// All namespaces.
    pub namespaces: Arc<Namespaces>,
    /// The hashes of the stored recipes.
    pub recipes: HashSet<String>,
    /// The hashes of revisions to which no object refers.
    pub unused: Vec<String>,
    /// The records that say what somebody may keep.
    pub kept: Vec<Arc<Record>>,
    /// Checks also the provenance of each volume and each finalizer. Takes long with thousands of objects.
    pub deep: bool,
}

/// An observation of the cluster, indexed for the checks.
pub(super) struct Lookups<'a> {
    pub objects: &'a dyn ClaimsAndVolumes,
    pub s: &'a ClusterObservation,
    pub now: i64,
    pub snapshots: HashMap<&'a ObjectName, &'a Snapshot>,
    pub contents: HashMap<&'a str, &'a Content>,
    pub nodes: HashMap<&'a str, &'a Node>,
    /// The names of the nodes with a host name label.
    pub nodes_by_host: HashMap<&'a str, Vec<&'a str>>,
    pub jobs: HashSet<&'a ObjectName>,
    pub jobs_by_id: HashMap<&'a str, Vec<&'a Job>>,
    /// The time at which the last container of a Job's pods ended.
    pub ended: HashMap<(&'a str, &'a str), i64>,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(searched: Searched<'a>, now: i64) -> Self {
        let Searched { objects, others: s } = searched;
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
        let mut nodes_by_host: HashMap<&str, Vec<&str>> = HashMap::new();
        for node in &s.nodes {
            let host = node.labels.get(names::HOSTNAME);
            host.into_iter().for_each(|host| nodes_by_host.entry(host).or_default().push(&node.name));
        }
        Lookups {
            objects,
            s,
            now,
            snapshots: s.snapshots.iter().map(|snapshot| (&snapshot.name, snapshot.as_ref())).collect(),
            contents: s.contents.iter().map(|content| (content.name.as_str(), content.as_ref())).collect(),
            nodes: s.nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect(),
            nodes_by_host,
            jobs: s.jobs.iter().chain(&s.copied_jobs).map(|job| &job.name).collect(),
            jobs_by_id,
            ended,
        }
    }
}
