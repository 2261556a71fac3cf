//! The names of the Jobs of a claim.

use flex_contract::operation::Operation;
use flex_core::claim::decide::cleanup_node;
use flex_core::model::claim::Claim;
use flex_core::run::job;
use flex_core::run::node::NodeStates;

/// Returns the name of the stamped attempt's Job.
pub(super) fn provision_job_name(claim: &Claim) -> String {
    let attempt = claim.own_stamp().map_or(0, |stamp| stamp.attempt);
    job::name(Operation::Provision, &claim.volume_id(), attempt, "")
}

/// Returns the name of the Job of the delete run that is due for a claim without a volume.
pub(super) fn delete_job_name(claim: &Claim, node_states: &NodeStates) -> String {
    let failure = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Delete);
    let attempt = failure.map_or(1, |failure| failure.attempt.saturating_add(1));
    job::name(Operation::Delete, &claim.volume_id(), attempt, scope(cleanup_node(claim, node_states)))
}

/// Returns the scope of a delete run for a claim without a volume: the node, if it matters.
pub(super) fn scope(node: Option<&str>) -> &str {
    node.unwrap_or("anywhere")
}
