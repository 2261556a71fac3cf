//! The facts that a reconcile of a volume has beyond the cache.

use flex_core::model::volume::Volume;
use flex_core::run::node::NodeStates;
use flex_core::volume::observed::ClaimState;

use super::runs;

/// The source of a volume.
pub(super) struct ConfirmedSource {
    /// The resourceVersion of the volume that had it.
    pub resource_version: String,
    /// The source as JSON.
    pub source: String,
}

/// Facts with which a reconcile continues, whatever the cache shows.
#[derive(Default)]
pub(super) struct Confirmed {
    /// The state of the claim, as the API has shown it.
    pub claim_state: Option<ClaimState>,
    /// The state of the claim on which an earlier step of this reconcile relied. Later steps must rely on the same
    /// state.
    pub pinned_claim_state: Option<ClaimState>,
    /// The states of nodes.
    pub nodes: NodeStates,
    /// The source of the volume, as the API has shown it.
    pub source: Option<ConfirmedSource>,
    /// The writes of this reconcile for the expansion.
    pub expand: runs::Written,
    /// The writes of this reconcile for the modification.
    pub modify: runs::Written,
}

impl Confirmed {
    /// Returns the source of the volume, if it was read at the resourceVersion of `volume`.
    pub(super) fn source_of(&self, volume: &Volume) -> Option<&String> {
        let source = self.source.as_ref().filter(|source| source.resource_version == volume.resource_version);
        source.map(|confirmed| &confirmed.source)
    }
}
