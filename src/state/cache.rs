//! The cache: the objects that watches have shown, and their relations. It decides nothing, and wakes nobody.
//!
//! All collections that are iterated are ordered, so that the same changes lead to the same decisions in the same order.

pub mod attributes_classes;
pub mod capacities;
pub mod claims;
mod compact_claim;
mod compact_volume;
pub mod grants;
pub mod nodes;
pub mod runs;
pub mod snapshots;
pub mod volumes;

use std::borrow::Cow;
use std::sync::Arc;

use flex_core::batch::Member;
use flex_core::model::claim::Claim;
use flex_core::model::namespace::Namespaces;
use flex_core::run::view::Job;
use flex_core::volume::{expand, modify};

/// All cached objects, by kind.
#[derive(Debug, Default)]
pub struct Cache {
    /// The claims.
    pub claims: claims::ClaimCache,
    /// The volumes, without sync probes.
    pub volumes: volumes::VolumeCache,
    /// The Jobs and pods of runs.
    pub runs: runs::RunCache,
    /// The nodes.
    pub nodes: nodes::NodeCache,
    /// The VolumeSnapshots, their contents and classes.
    pub snapshots: snapshots::SnapshotCache,
    /// The namespaces, as their readers may keep them while the cache changes.
    pub namespaces: Arc<Namespaces>,
    /// The ReferenceGrants.
    pub grants: grants::Grants,
    /// The VolumeAttributesClasses.
    pub attributes_classes: attributes_classes::AttributesClasses,
    /// The published capacities.
    pub capacities: capacities::CapacityCache,
}

impl Cache {
    /// Checks whether a pod of the Job is on a node that does not answer.
    pub fn is_lost(&self, job: &Job) -> bool {
        let pods = self.runs.pods_named(&job.run_labels.id);
        let mut nodes =
            pods.filter(|pod| pod.job == job.name.name && !pod.is_over()).filter_map(|pod| pod.node.as_ref());
        nodes.any(|node| self.nodes.get(node).is_none_or(|node| !node.reachable))
    }

    /// Returns the namespaces of the users for whom a Job runs, one for each volume or snapshot.
    pub fn users_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = Cow<'a, str>> {
        let of_volume = |member: &'a Member| {
            self.volumes.get(member.volume()?).map(|volume| volume.user_namespace().to_owned().into())
        };
        job.claims().map(|claim| claim.namespace.as_str().into()).chain(job.members.iter().filter_map(of_volume))
    }

    /// Checks whether the size or the attributes of a claim's volume need a decision.
    pub fn wants_more(&self, claim: &Claim) -> bool {
        let volume = claim.volume_name.as_ref().and_then(|name| self.volumes.get(name));
        volume.is_some_and(|volume| {
            expand::needs_status_update(&volume, claim) || modify::needs_status_update(&volume, claim)
        })
    }
}
