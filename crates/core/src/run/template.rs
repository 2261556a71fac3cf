//! The admin's partial pod template under the generated pod. The generated pod wins where the contract is concerned.
//! All else that the admin adds stays.

use flex_contract::names::CONTAINER;
use k8s_openapi::DeepMerge;
use k8s_openapi::api::core::v1::{
    Container, NodeAffinity, NodeSelectorRequirement, NodeSelectorTerm, PodSpec, PodTemplateSpec, SecurityContext,
};

use super::pod::{TMP_DIR, usual_resources};

/// Merges the generated pod over the admin's partial template.
///
/// Lists with names (containers, volumes, mounts, variables) are joined. A security context of the admin wins field by
/// field: its purpose is to ask for more than `restricted`.
pub fn merge(partial: PodTemplateSpec, generated: PodTemplateSpec) -> PodTemplateSpec {
    let PodTemplateSpec { metadata: own_metadata, spec: own_spec } = generated;
    let mut merged = PodTemplateSpec { metadata: partial.metadata, spec: None };
    merged.metadata.merge_from(own_metadata);
    merged.spec = Some(merge_spec(partial.spec.unwrap_or_default(), own_spec.unwrap_or_default()));
    merged
}

fn merge_spec(partial: PodSpec, generated: PodSpec) -> PodSpec {
    let mut spec = generated;
    let wanted = partial.clone();
    let containers = std::mem::take(&mut spec.containers);
    let mut result = PodSpec { containers: Vec::new(), ..partial };
    let volumes = joined(result.volumes.take(), spec.volumes.take(), |volume| volume.name.clone());
    let tolerations = joined(result.tolerations.take(), spec.tolerations.take(), |t| format!("{t:?}"));
    let security = spec.security_context.take();
    let affinity = spec.affinity.take();
    result.merge_from(spec);
    result.volumes = volumes;
    // Containers that the admin adds may need the account too.
    result.automount_service_account_token =
        wanted.automount_service_account_token.or(result.automount_service_account_token);
    result.tolerations = tolerations;
    result.security_context = match (wanted.security_context, security) {
        (Some(wanted), Some(mut own)) => {
            own.merge_from(wanted);
            Some(own)
        }
        (wanted, own) => wanted.or(own),
    };
    // The node affinity of the generated pod names the claim's node. It must hold beside the admin's.
    if let Some(own) = affinity {
        let mut combined = wanted.affinity.unwrap_or_default();
        combined.node_affinity = both_nodes(combined.node_affinity.take(), own.node_affinity);
        result.affinity = Some(combined);
    }
    result.containers = containers
        .into_iter()
        .map(|own| match wanted.containers.iter().find(|container| container.name == CONTAINER) {
            Some(partial) => merge_container(partial.clone(), own),
            None => own,
        })
        .collect();
    result
}

/// Combines two node affinities: a node must satisfy a term of each. Each term of the admin is joined with each
/// generated term.
fn both_nodes(admin: Option<NodeAffinity>, own: Option<NodeAffinity>) -> Option<NodeAffinity> {
    let (Some(mut admin), Some(own)) = (admin.clone(), own.clone()) else { return admin.or(own) };
    let own = own.required_during_scheduling_ignored_during_execution;
    let required = &mut admin.required_during_scheduling_ignored_during_execution;
    match (required.as_mut(), own) {
        // An empty list of terms would allow no node, and the generated terms would be lost.
        (Some(theirs), Some(own)) if !theirs.node_selector_terms.is_empty() => {
            let joined = |theirs: &Option<Vec<NodeSelectorRequirement>>, own: &Option<Vec<NodeSelectorRequirement>>| {
                let all: Vec<_> = theirs.iter().chain(own).flatten().cloned().collect();
                Some(all).filter(|all| !all.is_empty())
            };
            let with = |term: &NodeSelectorTerm, own: &NodeSelectorTerm| NodeSelectorTerm {
                match_expressions: joined(&term.match_expressions, &own.match_expressions),
                match_fields: joined(&term.match_fields, &own.match_fields),
            };
            let both = theirs.node_selector_terms.iter();
            let both = both.flat_map(|term| own.node_selector_terms.iter().map(move |own| with(term, own)));
            theirs.node_selector_terms = both.collect();
        }
        (_, Some(own)) => *required = Some(own),
        (_, None) => {}
    }
    Some(admin)
}

fn merge_container(partial: Container, generated: Container) -> Container {
    let mut own = generated;
    // The default gives way to the admin's setting.
    if partial.volume_mounts.iter().flatten().any(|mount| mount.mount_path == TMP_DIR) {
        own.volume_mounts.iter_mut().for_each(|mounts| mounts.retain(|mount| mount.mount_path != TMP_DIR));
    }
    if partial.resources.is_some() && own.resources.as_ref() == Some(&usual_resources()) {
        own.resources = None;
    }
    let env = joined(partial.env.clone(), own.env.take(), |variable| variable.name.clone());
    let mounts = joined(partial.volume_mounts.clone(), own.volume_mounts.take(), |mount| mount.mount_path.clone());
    let env_from = match (partial.env_from.clone(), own.env_from.take()) {
        (Some(admin), Some(own)) => Some(admin.into_iter().chain(own).collect()),
        (admin, own) => admin.or(own),
    };
    let security = security(partial.security_context.clone(), own.security_context.take());
    let mut merged = partial;
    merged.env = None;
    merged.env_from = None;
    merged.volume_mounts = None;
    merged.merge_from(own);
    merged.env = env;
    merged.env_from = env_from;
    merged.volume_mounts = mounts;
    merged.security_context = security;
    merged
}

/// Merges the admin's security context over the generated one. A privileged container cannot forbid privilege
/// escalation.
fn security(wanted: Option<SecurityContext>, own: Option<SecurityContext>) -> Option<SecurityContext> {
    let (Some(wanted), Some(mut own)) = (wanted.clone(), own.clone()) else { return wanted.or(own) };
    let escalates = wanted.privileged == Some(true)
        || wanted
            .capabilities
            .as_ref()
            .and_then(|c| c.add.as_ref())
            .is_some_and(|add| add.iter().any(|c| c.contains("SYS_ADMIN")));
    if escalates && wanted.allow_privilege_escalation.is_none() {
        own.allow_privilege_escalation = None;
    }
    // A privileged container has all capabilities. A runtime that takes the generated list literally would drop them.
    if wanted.privileged == Some(true) && wanted.capabilities.is_none() {
        own.capabilities = None;
    }
    if wanted.run_as_user == Some(0) && wanted.run_as_non_root.is_none() {
        own.run_as_non_root = Some(false);
    }
    own.merge_from(wanted);
    Some(own)
}

/// Joins two lists. Where both have an entry of the same name, the generated entry wins.
fn joined<T>(admin: Option<Vec<T>>, own: Option<Vec<T>>, key: impl Fn(&T) -> String) -> Option<Vec<T>> {
    match (admin, own) {
        (Some(admin), Some(own)) => {
            let taken: Vec<String> = own.iter().map(&key).collect();
            let kept = admin.into_iter().filter(|item| !taken.contains(&key(item)));
            Some(kept.collect::<Vec<_>>().into_iter().chain(own).collect())
        }
        (admin, own) => admin.or(own),
    }
}
