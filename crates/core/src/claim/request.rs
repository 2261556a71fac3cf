//! The request to an image for a claim.

use std::collections::BTreeMap;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::{ClaimRef, CloneSource, RunRequest, Snapshot};

use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::config::modify::Attributes;
use crate::limits;
use crate::model::claim::Claim;
use crate::object::hash;
use crate::run::request::{AttemptStart, of_class, with_attributes};

/// The attempt that a request belongs to.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// The number of the attempt, from 1.
    pub number: u32,
    /// The time when the attempt began, RFC 3339.
    pub ts: String,
    /// The node that the volume is for, if there is one.
    pub node: Option<String>,
    /// The topology labels of that node.
    pub topology: BTreeMap<String, String>,
    /// The topologies that the class allows, as JSON.
    pub class_topologies: String,
    /// The volume to copy, for a clone.
    pub clone_of: Option<CloneSource>,
    /// The snapshot to restore, if any.
    pub snapshot: Option<Snapshot>,
    /// The attributes that the volume gets.
    pub attributes: Attributes,
    /// All earlier attempts that may have left storage asked for the same.
    pub alike: bool,
}

/// Returns a hash of the parts of a request that admins and the scheduler change between the attempts of a claim. The
/// hash does not cover the metadata of the claim, Secrets, and the labels of nodes.
pub fn request_hash(
    recipe_version: &str,
    node: Option<&str>,
    class_topologies: &str,
    attributes: &Attributes,
) -> String {
    hash(serde_json::json!([recipe_version, node, class_topologies, attributes]).to_string().as_bytes())
}

/// The words of the claim's user that the image gets.
#[derive(Clone, Debug, Default)]
pub(super) struct ClaimTexts {
    access_modes: Vec<String>,
    username: String,
    user_groups: Vec<String>,
    metadata: BTreeMap<String, String>,
}

impl ClaimTexts {
    /// Selects the words that the class lets through.
    fn of(claim: &Claim, recipe: &Recipe) -> Self {
        let allowed = |key: &String| Some((key.clone(), claim.metadata.get(key)?.clone()));
        ClaimTexts {
            access_modes: claim.access_modes.clone(),
            username: claim.created_by.clone(),
            user_groups: claim.created_by_groups.clone(),
            metadata: recipe.claim_metadata.iter().filter_map(allowed).collect(),
        }
    }

    /// Checks whether a pod can carry the words.
    fn check(&self) -> Result<(), String> {
        let lists = || self.access_modes.iter().chain(&self.user_groups).chain([&self.username]);
        let bytes =
            lists().map(|text| text.len() + 1).sum::<usize>() + serde_json::json!(self.metadata).to_string().len();
        if bytes > limits::CLAIM {
            return Err(format!(
                "the labels and annotations of the claim that the image gets (`claim-metadata` of the provisioner config, and the claim's creator) have {bytes} bytes; shorten them to {}",
                limits::CLAIM
            ));
        }
        match lists().any(|text| text.contains('\0')) {
            true => Err("the name or a group of the claim's creator has a zero byte, which no image can get".into()),
            false => Ok(()),
        }
    }
}

/// Checks whether the image can get the words of the claim that the class lets through.
pub(super) fn check_request_size(claim: &Claim, recipe: &Recipe) -> Result<(), String> {
    ClaimTexts::of(claim, recipe).check()
}

/// Builds the request of a run for a claim that has no volume yet.
pub fn request(
    operation: Operation,
    claim: &Claim,
    recipe: &Recipe,
    identity: &Identity,
    kube_api: &str,
    attempt: Attempt,
) -> RunRequest {
    let Attempt { number, ts, node, topology, class_topologies, clone_of, snapshot, attributes, alike } = attempt;
    let start = AttemptStart { attempt: number, ts };
    let name = claim.api_name();
    let texts = ClaimTexts::of(claim, recipe);
    // Words that became too long after the claim was admitted must not prevent the deletion of its storage.
    let texts = if texts.check().is_ok() { texts } else { ClaimTexts::default() };
    RunRequest {
        attempts_alike: alike,
        volume_id: claim.volume_id(),
        pv_name: names::pv_name(&claim.volume_id()),
        claim: ClaimRef { namespace: name.namespace, name: name.name, uid: claim.uid.clone() },
        size_bytes: claim.size.clone().unwrap_or_default(),
        clone_of,
        snapshot,
        access_modes: texts.access_modes,
        volume_mode: claim.volume_mode.clone(),
        username: texts.username,
        user_groups: texts.user_groups,
        node_name: node.unwrap_or_default(),
        topology,
        class_topologies,
        claim_metadata: texts.metadata,
        ..with_attributes(of_class(operation, recipe, identity, kube_api, start), &attributes, recipe)
    }
}
