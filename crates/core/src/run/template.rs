//! The pod of a run: the generated pod, merged over the admin's partial template. The generated pod wins where the
//! contract needs it. All else that the admin adds stays. The template has no container but that of the image: the check
//! of `pod-template` (`crates/core/src/config/check.rs`) refuses others. It may have init containers.

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
    let PodTemplateSpec { metadata: generated_metadata, spec: generated_spec } = generated;
    let mut merged = PodTemplateSpec { metadata: partial.metadata, spec: None };
    merged.metadata.merge_from(generated_metadata);
    merged.spec = Some(merge_spec(partial.spec.unwrap_or_default(), generated_spec.unwrap_or_default()));
    merged
}

fn merge_spec(partial: PodSpec, generated: PodSpec) -> PodSpec {
    let mut spec = generated;
    let admin = partial.clone();
    let containers = std::mem::take(&mut spec.containers);
    let mut result = PodSpec { containers: Vec::new(), ..partial };
    let volumes = joined(result.volumes.take(), spec.volumes.take(), |volume| volume.name.clone());
    let tolerations = joined(result.tolerations.take(), spec.tolerations.take(), |t| format!("{t:?}"));
    let security = spec.security_context.take();
    let affinity = spec.affinity.take();
    result.merge_from(spec);
    result.volumes = volumes;
    // Init containers that the admin adds may need the account too.
    result.automount_service_account_token =
        admin.automount_service_account_token.or(result.automount_service_account_token);
    result.tolerations = tolerations;
    result.security_context = match (admin.security_context, security) {
        (Some(admin), Some(mut generated)) => {
            generated.merge_from(admin);
            Some(generated)
        }
        (admin, generated) => admin.or(generated),
    };
    // The node affinity of the generated pod names the claim's node. It must hold beside the admin's.
    if let Some(generated) = affinity {
        let mut combined = admin.affinity.unwrap_or_default();
        combined.node_affinity = both_nodes(combined.node_affinity.take(), generated.node_affinity);
        result.affinity = Some(combined);
    }
    result.containers = containers
        .into_iter()
        .map(|generated| match admin.containers.iter().find(|container| container.name == CONTAINER) {
            Some(partial) => merge_container(partial.clone(), generated),
            None => generated,
        })
        .collect();
    result
}

/// Combines two node affinities: a node must satisfy a term of each. Each term of the admin is joined with each
/// generated term.
fn both_nodes(admin: Option<NodeAffinity>, generated: Option<NodeAffinity>) -> Option<NodeAffinity> {
    let (Some(mut admin), Some(generated)) = (admin.clone(), generated.clone()) else { return admin.or(generated) };
    let generated = generated.required_during_scheduling_ignored_during_execution;
    let required = &mut admin.required_during_scheduling_ignored_during_execution;
    match (required.as_mut(), generated) {
        // An empty list of terms would allow no node, and the generated terms would be lost.
        (Some(theirs), Some(generated)) if !theirs.node_selector_terms.is_empty() => {
            let joined = |theirs: &Option<Vec<NodeSelectorRequirement>>,
                          generated: &Option<Vec<NodeSelectorRequirement>>| {
                let all: Vec<_> = theirs.iter().chain(generated).flatten().cloned().collect();
                Some(all).filter(|all| !all.is_empty())
            };
            let with = |term: &NodeSelectorTerm, generated: &NodeSelectorTerm| NodeSelectorTerm {
                match_expressions: joined(&term.match_expressions, &generated.match_expressions),
                match_fields: joined(&term.match_fields, &generated.match_fields),
            };
            let both = theirs.node_selector_terms.iter();
            let both =
                both.flat_map(|term| generated.node_selector_terms.iter().map(move |generated| with(term, generated)));
            theirs.node_selector_terms = both.collect();
        }
        (_, Some(generated)) => *required = Some(generated),
        (_, None) => {}
    }
    Some(admin)
}

fn merge_container(partial: Container, generated: Container) -> Container {
    let mut generated = generated;
    // The default gives way to the admin's setting.
    if partial.volume_mounts.iter().flatten().any(|mount| mount.mount_path == TMP_DIR) {
        generated.volume_mounts.iter_mut().for_each(|mounts| mounts.retain(|mount| mount.mount_path != TMP_DIR));
    }
    if partial.resources.is_some() && generated.resources.as_ref() == Some(&usual_resources()) {
        generated.resources = None;
    }
    let env = joined(partial.env.clone(), generated.env.take(), |variable| variable.name.clone());
    let mounts =
        joined(partial.volume_mounts.clone(), generated.volume_mounts.take(), |mount| mount.mount_path.clone());
    let env_from = match (partial.env_from.clone(), generated.env_from.take()) {
        (Some(admin), Some(generated)) => Some(admin.into_iter().chain(generated).collect()),
        (admin, generated) => admin.or(generated),
    };
    let security = security(partial.security_context.clone(), generated.security_context.take());
    let mut merged = partial;
    merged.env = None;
    merged.env_from = None;
    merged.volume_mounts = None;
    merged.merge_from(generated);
    merged.env = env;
    merged.env_from = env_from;
    merged.volume_mounts = mounts;
    merged.security_context = security;
    merged
}

/// Merges the admin's security context over the generated one. A privileged container cannot forbid privilege
/// escalation.
fn security(admin: Option<SecurityContext>, generated: Option<SecurityContext>) -> Option<SecurityContext> {
    let (Some(admin), Some(mut generated)) = (admin.clone(), generated.clone()) else { return admin.or(generated) };
    let escalates = admin.privileged == Some(true)
        || admin
            .capabilities
            .as_ref()
            .and_then(|c| c.add.as_ref())
            .is_some_and(|add| add.iter().any(|c| c.contains("SYS_ADMIN")));
    if escalates && admin.allow_privilege_escalation.is_none() {
        generated.allow_privilege_escalation = None;
    }
    // A privileged container has all capabilities. A runtime that takes the generated list literally would drop them.
    if admin.privileged == Some(true) && admin.capabilities.is_none() {
        generated.capabilities = None;
    }
    if admin.run_as_user == Some(0) && admin.run_as_non_root.is_none() {
        generated.run_as_non_root = Some(false);
    }
    generated.merge_from(admin);
    Some(generated)
}

/// Joins two lists. Where both have an entry of the same name, the generated entry wins.
fn joined<T>(admin: Option<Vec<T>>, generated: Option<Vec<T>>, key: impl Fn(&T) -> String) -> Option<Vec<T>> {
    match (admin, generated) {
        (Some(admin), Some(generated)) => {
            let taken: Vec<String> = generated.iter().map(&key).collect();
            let kept = admin.into_iter().filter(|item| !taken.contains(&key(item)));
            Some(kept.collect::<Vec<_>>().into_iter().chain(generated).collect())
        }
        (admin, generated) => admin.or(generated),
    }
}
