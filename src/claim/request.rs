//! What an image is asked for a claim.

use std::collections::BTreeMap;

use contract::names;
use contract::request::{ClaimRef, Operation, Request};

use super::Claim;
use crate::config::Recipe;
use crate::config::classes::Identity;

/// The attempt that a request belongs to.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// When it began, RFC 3339.
    pub ts: String,
    /// The node that the volume is for.
    pub node: String,
    /// Topology labels of that node.
    pub topology: BTreeMap<String, String>,
}

/// The request of a run for a claim that has no volume yet.
pub fn request(
    operation: Operation,
    claim: &Claim,
    recipe: &Recipe,
    identity: &Identity,
    kube_api: &str,
    attempt: Attempt,
) -> Request {
    let Attempt { number, ts, node, topology } = attempt;
    Request {
        operation,
        claim_uuid: claim.id(),
        provision_ts: ts,
        attempt: number,
        pv_name: names::pv_name(&claim.id()),
        claim: ClaimRef {
            namespace: claim.name.namespace.clone(),
            name: claim.name.name.clone(),
            uid: claim.uid.clone(),
        },
        storage_class: recipe.class.clone(),
        size_bytes: claim.size.clone().unwrap_or_default(),
        old_size_bytes: None,
        access_modes: claim.access_modes.clone(),
        volume_mode: claim.volume_mode.clone(),
        mount_options: recipe.mount_options.clone(),
        reclaim_policy: recipe.reclaim_policy.clone(),
        fs_type: recipe.fs_type.clone(),
        username: claim.created_by.clone(),
        user_groups: claim.created_by_groups.clone(),
        service_account: recipe.service_account.clone().unwrap_or_default(),
        kube_api: kube_api.to_owned(),
        node_name: node,
        topology,
        provisioner: identity.provisioner.clone(),
        instance: identity.instance.clone(),
        volume_source: String::new(),
        claim_metadata: recipe
            .claim_metadata
            .iter()
            .filter_map(|key| Some((key.clone(), claim.metadata.get(key)?.clone())))
            .collect(),
        parameters: recipe.parameters.clone(),
        pod_namespace: recipe.config.namespace.clone(),
    }
}
