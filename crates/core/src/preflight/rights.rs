//! The rights that the orchestrator needs, read from the RBAC objects that are shipped.

use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

const SHIPPED: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kustomize/rbac.yaml"));

/// The namespaces for which a right is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The whole cluster.
    Cluster,
    /// The namespace of the orchestrator.
    Own,
    /// Each namespace with configs.
    Configs,
}

/// A right: one verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The namespaces.
    pub scope: Scope,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural of the resource.
    pub resource: String,
    /// The subresource, such as `status`; empty for the object itself.
    pub subresource: String,
    /// The verb.
    pub verb: String,
    /// The right is for the object with the name of the provisioner alone.
    pub is_of_provisioner: bool,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// Returns the rights of the orchestrator's account, sorted.
pub fn of_orchestrator() -> Vec<Right> {
    of_roles(&[
        ("ClusterRole", "flex-provisioner", Scope::Cluster),
        ("Role", "flex-provisioner", Scope::Own),
        ("Role", "flex-provisioner-configs", Scope::Configs),
    ])
}

/// Returns the rights that the account of each image needs, sorted.
pub fn of_image() -> Vec<Right> {
    of_roles(&[("ClusterRole", "flex-provisioner-image", Scope::Cluster)])
}

/// Returns the rights in shipped roles, each by its kind and name.
fn of_roles(roles: &[(&str, &str, Scope)]) -> Vec<Right> {
    let mut rights: Vec<_> = documents()
        .iter()
        .filter_map(|object| {
            let is_it =
                |(kind, name, _): &&(&str, &str, Scope)| object["kind"] == *kind && object["metadata"]["name"] == *name;
            let (_, _, scope) = roles.iter().find(is_it)?;
            let rules: Vec<PolicyRule> = serde_json::from_value(object["rules"].clone())
                .expect("the shipped rules are rules: a test sees to it");
            Some(rules.into_iter().flat_map(|rule| rights(*scope, &rule)).collect::<Vec<_>>())
        })
        .flatten()
        .collect();
    rights.sort();
    rights.dedup();
    rights
}

fn rights(scope: Scope, rule: &PolicyRule) -> Vec<Right> {
    let mut found = Vec::new();
    for group in rule.api_groups.iter().flatten() {
        for resource in rule.resources.iter().flatten() {
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            found.extend(rule.verbs.iter().map(|verb| Right {
                scope,
                group: group.clone(),
                resource: resource.to_owned(),
                subresource: subresource.to_owned(),
                verb: verb.clone(),
                is_of_provisioner: rule.resource_names.is_some(),
            }));
        }
    }
    found
}

fn documents() -> Vec<Value> {
    let documents = SHIPPED.split("\n---\n").filter(|document| document.contains("kind: "));
    documents
        .map(|document| serde_saphyr::from_str(document).expect("the shipped file is YAML: a test sees to it"))
        .collect()
}

/// Groups rights by resource, such as `get, list persistentvolumes`, for a short message.
pub fn described(rights: &[Right]) -> Vec<String> {
    let mut described: Vec<(String, Vec<&str>)> = Vec::new();
    for right in rights {
        let resource = right.to_string();
        let resource = resource.split_once(' ').map_or("", |(_, resource)| resource).to_owned();
        match described.iter_mut().find(|(of, _)| *of == resource) {
            Some((_, verbs)) if verbs.contains(&right.verb.as_str()) => {}
            Some((_, verbs)) => verbs.push(&right.verb),
            None => described.push((resource, vec![&right.verb])),
        }
    }
    described.into_iter().map(|(resource, verbs)| format!("{} {resource}", verbs.join("/"))).collect()
}
