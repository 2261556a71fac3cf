//! The Job that asks an image for the free bytes of a backend in one segment.

use std::collections::BTreeMap;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::Job;

use super::segment::Segment;
use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::config::topology::Topologies;
use crate::run::job::{self, RunTarget, job};
use crate::run::list::of_no_claim;
use crate::run::request::{AttemptStart, of_class};

/// The time for which a finished Job stays, in seconds. Its answer is published long before.
const JOB_TTL: i32 = 600;

/// Returns the name of the Job of a segment's run.
pub fn name(segment: &str, attempt: u32) -> String {
    job::name(Operation::Capacity, segment, attempt, "")
}

/// The question to one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRun {
    /// The number of the run, from 1.
    pub attempt: u32,
    /// The node on which the pod must run, where each node has its own storage.
    pub node: Option<String>,
    /// The fingerprint of the segment when the run is created.
    pub fingerprint: String,
}

/// Builds the Job of a capacity run. `ts`, RFC 3339, is the time of its creation.
pub fn capacity(
    recipe: &Recipe,
    allowed: &Topologies,
    segment: &Segment,
    ask: &CapacityRun,
    identity: &Identity,
    kube_api: &str,
    ts: &str,
) -> Job {
    let start = AttemptStart { attempt: ask.attempt, ts: ts.to_owned() };
    let request = RunRequest {
        node_name: ask.node.clone().unwrap_or_default(),
        topology: segment.topology.clone(),
        class_topologies: allowed.json(),
        ..of_class(Operation::Capacity, recipe, identity, kube_api, start)
    };
    let target = RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: ask.node.clone(),
        allowed: match &ask.node {
            None => Topologies::only(&segment.topology),
            Some(_) => Topologies::default(),
        },
        ..RunTarget::default()
    };
    let mut job = job(recipe, &request, &target);
    job.metadata.name = Some(name(&segment.id, ask.attempt));
    of_no_claim(&mut job);
    // The index finds the Job by its segment, as it finds other Jobs by their volumes.
    let marks = [(names::LABEL_VOLUME_ID, segment.id.clone())];
    let marked = |labels: &mut Option<BTreeMap<String, String>>| {
        labels.get_or_insert_default().extend(marks.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    };
    marked(&mut job.metadata.labels);
    job.metadata
        .annotations
        .get_or_insert_default()
        .insert(names::CAPACITY_FINGERPRINT.into(), ask.fingerprint.clone());
    let spec = job.spec.get_or_insert_default();
    spec.ttl_seconds_after_finished = Some(JOB_TTL);
    marked(&mut spec.template.metadata.get_or_insert_default().labels);
    job
}
