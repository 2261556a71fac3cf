//! The part of a request that follows from the class and the orchestrator.

use flex_contract::operation::Operation;
use flex_contract::request::{ClaimRef, RunRequest};
use flex_contract::volume_mode::VolumeMode;

use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::config::modify::Attributes;

/// The attempt that a run makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptStart {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The time when the attempt began, RFC 3339.
    pub ts: String,
}

/// Builds a request of a class, still without a claim, volume or snapshot.
pub fn of_class(
    operation: Operation,
    recipe: &Recipe,
    identity: &Identity,
    kube_api: &str,
    start: AttemptStart,
) -> RunRequest {
    RunRequest {
        operation,
        volume_id: String::new(),
        provision_ts: start.ts,
        attempt: start.attempt,
        attempts_alike: false,
        pv_name: String::new(),
        claim: ClaimRef::default(),
        storage_class: recipe.class.clone(),
        size_bytes: 0,
        old_size_bytes: None,
        clone_of: None,
        snapshot: None,
        attributes_class: String::new(),
        attributes: Default::default(),
        old_attributes_class: String::new(),
        old_attributes: Default::default(),
        access_modes: Vec::new(),
        volume_mode: VolumeMode::Other(String::new()),
        mount_options: recipe.mount_options.clone(),
        reclaim_policy: recipe.reclaim_policy.clone(),
        fs_type: recipe.fs_type.clone(),
        username: String::new(),
        user_groups: Vec::new(),
        service_account: recipe.service_account.clone().unwrap_or_default(),
        kube_api: kube_api.to_owned(),
        node_name: String::new(),
        topology: Default::default(),
        class_topologies: String::new(),
        provisioner: recipe.effective_config.provisioner(&identity.provisioner).to_owned(),
        instance: identity.instance.clone(),
        volume_source: String::new(),
        moved_in_path: String::new(),
        claim_metadata: Default::default(),
        parameters: recipe.parameters.clone(),
        pod_namespace: recipe.config.namespace.clone(),
    }
}

/// Returns a request with attributes. Attributes that do not fit the recipe any more are left out, so that the volume
/// can still be deleted.
pub fn with_attributes(request: RunRequest, attributes: &Attributes, recipe: &Recipe) -> RunRequest {
    let (attributes_class, class) = (attributes.class.clone().unwrap_or_default(), recipe.parameters.clone());
    match attributes.over(recipe) {
        Ok(parameters) => {
            RunRequest { attributes_class, attributes: attributes.parameters.clone(), parameters, ..request }
        }
        Err(_) => RunRequest { attributes_class, parameters: class, ..request },
    }
}
