//! The facts that a reconcile of a volume has beyond the cache.

use flex_core::run::node::NodeStates;
use flex_core::volume::observed::ClaimState;

use super::runs;

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
    /// The writes of this reconcile for the expansion.
    pub expand: runs::Written,
    /// The writes of this reconcile for the modification.
    pub modify: runs::Written,
}
