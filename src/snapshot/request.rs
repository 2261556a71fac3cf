//! What an image is asked about a snapshot.

use contract::request::{ClaimRef, Operation, Request, Snapshot};

use super::{Content, Provenance};
use crate::config::Recipe;
use crate::config::classes::Identity;

/// The request of a snapshot or delete-snapshot run, from what is recorded on the content. `run` is the attempt and when
/// it began, `claim` the one whose volume the snapshot is of, where it is known, and `source` that volume's as JSON.
pub fn request(
    operation: Operation,
    content: &Content,
    (provenance, recipe): (&Provenance, &Recipe),
    identity: &Identity,
    kube_api: &str,
    run: (u32, String),
    (claim, source): (ClaimRef, String),
) -> Request {
    Request {
        operation,
        claim_uuid: provenance.volume_id.clone(),
        provision_ts: run.1,
        attempt: run.0,
        pv_name: provenance.pv_name.clone(),
        claim,
        storage_class: recipe.class.clone(),
        size_bytes: provenance.size,
        old_size_bytes: None,
        clone_of: None,
        snapshot: Some(Snapshot {
            namespace: content.snapshot.namespace.clone(),
            name: content.snapshot.name.clone(),
            ..told(content)
        }),
        access_modes: Vec::new(),
        volume_mode: provenance.volume_mode.clone(),
        mount_options: recipe.mount_options.clone(),
        reclaim_policy: recipe.reclaim_policy.clone(),
        fs_type: recipe.fs_type.clone(),
        username: String::new(),
        user_groups: Vec::new(),
        service_account: recipe.service_account.clone().unwrap_or_default(),
        kube_api: kube_api.to_owned(),
        node_name: provenance.node.clone(),
        topology: Default::default(),
        class_topologies: String::new(),
        provisioner: identity.provisioner.clone(),
        instance: identity.instance.clone(),
        volume_source: source,
        claim_metadata: Default::default(),
        parameters: recipe.parameters.clone(),
        pod_namespace: recipe.config.namespace.clone(),
    }
}

/// What a run that fills a claim is told of the snapshot.
pub fn told(content: &Content) -> Snapshot {
    let made_by = content.made_by();
    let provenance = made_by.as_ref();
    Snapshot {
        id: content.id().to_owned(),
        of: provenance.map(|made_by| made_by.volume_id.clone()).unwrap_or_default(),
        size_bytes: content.size.or(provenance.map(|made_by| made_by.size)),
        node: provenance.map(|made_by| made_by.node.clone()).unwrap_or_default(),
        ..Snapshot::default()
    }
}
