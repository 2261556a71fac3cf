//! The requests of the attempts of a claim, and whether a delete run asks for the same.

use flex_core::claim::decide::{ServedClass, run_node};
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::request::request_hash;
use flex_core::model::claim::Claim;

use super::observe::Observation;
use super::served::served_class;
use crate::reconcile::data_source;

/// Returns the node that the request of the stamped attempt names.
pub(super) fn attempt_node<'a>(claim: &'a Claim, observation: &Observation) -> Option<&'a str> {
    let of_run = observation.runs.recipe.as_ref().and_then(|recipe| run_node(&claim.nodes_with_storage, recipe));
    of_run.or(claim.selected_node.as_deref())
}

/// Returns the hash of a request of the claim that names a node.
pub(super) fn request_hash_of(claim: &Claim, observation: &Observation, node: Option<&str>) -> String {
    let version = claim.own_stamp().map(|stamp| stamp.recipe_version.as_str()).unwrap_or_default();
    let allowed = match served_class(claim, &observation.classes) {
        ServedClass::Ours(class) => class.allowed.json(),
        ServedClass::NotOurs => String::new(),
    };
    request_hash(version, node, &allowed, &observation.preconditions.attributes.clone().unwrap_or_default())
}

/// Checks whether all attempts that may have left storage asked for the same as a delete run with this node and source.
pub(super) fn are_alike(
    claim: &Claim,
    observation: &Observation,
    node: Option<&str>,
    source: &data_source::SourceRequest,
) -> bool {
    let has_source = claim.data_source.is_none() || source.clone_of.is_some() || source.snapshot.is_some();
    let is_served = matches!(served_class(claim, &observation.classes), ServedClass::Ours(_));
    let is_whole = has_source
        && is_served
        && observation.runs.recipe.is_some()
        && observation.preconditions.attributes.is_ok()
        && node == attempt_node(claim, observation);
    let request = is_whole.then(|| request_hash_of(claim, observation, node));
    FailedAttempts::of(claim).are_alike(claim, request.as_deref())
}
