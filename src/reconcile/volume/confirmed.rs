//! What a reconcile of a volume knows beyond the cache.

use super::runs;
use crate::model::volume::Volume;
use crate::node::NodeState;
use crate::volume::observed::ClaimState;

/// Facts beyond the cache that a reconcile has confirmed.
#[derive(Default)]
pub(super) struct Confirmed {
    /// The state of the claim.
    pub claim: Option<ClaimState>,
    /// The states of nodes.
    pub nodes: Vec<(String, NodeState)>,
    /// The source of the volume as JSON, and the resourceVersion of the volume that had it.
    pub source: Option<(String, String)>,
    /// Facts about the size.
    pub size: runs::Confirmed,
    /// Facts about the attributes.
    pub attributes: runs::Confirmed,
}

impl Confirmed {
    /// Returns the source of the volume, if the API has shown it of this version.
    pub(super) fn source_of(&self, volume: &Volume) -> Option<&String> {
        self.source.as_ref().filter(|(version, _)| *version == volume.resource_version).map(|(_, source)| source)
    }
}
