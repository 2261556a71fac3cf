//! The rights that the cases need on a cluster.

use anyhow::{Context as _, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

/// The number of questions that are asked at one time.
const REVIEWS: usize = 16;

/// The rights in the namespace of the runs: group, resource, subresource and verbs.
const IN_NAMESPACE: &[(&str, &str, &str, &[&str])] = &[
    ("batch", "jobs", "", &["create", "delete", "get", "list"]),
    ("", "pods", "", &["delete", "list"]),
    ("", "pods", "log", &["get"]),
    ("", "events", "", &["list"]),
];

/// The rights in the whole cluster. The admission policies ask for the last one when a finalizer is removed.
const IN_CLUSTER: &[(&str, &str, &str, &[&str])] = &[
    ("", "persistentvolumes", "", &["delete", "get", "list", "patch"]),
    ("flex-provisioner.io", "volumes", "", &["manage"]),
];

/// The further rights for pods that mount volumes: in the namespace of the runs, and in the whole cluster.
const OF_MOUNTS: &[(&str, &str, &str, &[&str])] =
    &[("", "pods", "", &["create", "get"]), ("", "persistentvolumeclaims", "", &["create", "delete", "get"])];
const OF_MOUNTS_IN_CLUSTER: &[(&str, &str, &str, &[&str])] = &[("", "persistentvolumes", "", &["create"])];

/// The further rights for a config that places its runs on a node.
const OF_NODES: &[(&str, &str, &str, &[&str])] = &[("", "nodes", "", &["list"])];

/// The further rights for a config on the cluster.
const OF_CONFIG: &[(&str, &str, &str, &[&str])] = &[("", "configmaps", "", &["get"])];
const OF_CLASSES: &[(&str, &str, &str, &[&str])] = &[("storage.k8s.io", "storageclasses", "", &["list"])];

/// Returns the rights for runs in a namespace.
pub(super) fn of_runs(namespace: &str) -> Vec<ResourceAttributes> {
    [attributes(IN_NAMESPACE, Some(namespace)), attributes(IN_CLUSTER, None)].concat()
}

/// Returns the rights to read a config from a namespace, and its class.
pub(super) fn of_config(namespace: &str) -> Vec<ResourceAttributes> {
    [attributes(OF_CONFIG, Some(namespace)), attributes(OF_CLASSES, None)].concat()
}

/// Returns the rights for pods that mount volumes, in the namespace of the runs.
pub(super) fn of_mounts(namespace: &str) -> Vec<ResourceAttributes> {
    [attributes(OF_MOUNTS, Some(namespace)), attributes(OF_MOUNTS_IN_CLUSTER, None)].concat()
}

/// Returns the rights to choose the node of the runs.
pub(super) fn of_nodes() -> Vec<ResourceAttributes> {
    attributes(OF_NODES, None)
}

fn attributes(rights: &[(&str, &str, &str, &[&str])], namespace: Option<&str>) -> Vec<ResourceAttributes> {
    let one = |(group, resource, subresource, verbs): &(&str, &str, &str, &[&str])| {
        let asked = ResourceAttributes {
            group: Some((*group).to_owned()),
            resource: Some((*resource).to_owned()),
            subresource: Some((*subresource).to_owned()).filter(|name| !name.is_empty()),
            namespace: namespace.map(str::to_owned),
            ..ResourceAttributes::default()
        };
        let verbs: Vec<String> = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        verbs.into_iter().map(move |verb| ResourceAttributes { verb: Some(verb), ..asked.clone() })
    };
    rights.iter().flat_map(one).collect()
}

/// Describes rights for a person: a line for each resource and namespace, with the verbs in alphabetical order.
fn described(rights: &[ResourceAttributes]) -> Vec<String> {
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    for right in rights {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (group, sub) = (text(&right.group), text(&right.subresource));
        let mut on = text(&right.resource);
        if !sub.is_empty() {
            on = format!("{on}/{sub}");
        }
        if !group.is_empty() {
            on = format!("{on}.{group}");
        }
        on = match &right.namespace {
            Some(namespace) => format!("{on} in namespace {namespace}"),
            None => format!("{on} in the cluster"),
        };
        match lines.iter_mut().find(|(known, _)| *known == on) {
            Some((_, verbs)) => verbs.push(text(&right.verb)),
            None => lines.push((on, vec![text(&right.verb)])),
        }
    }
    let line = |(on, mut verbs): (String, Vec<String>)| {
        verbs.sort();
        format!("{} {on}", verbs.join("/"))
    };
    lines.into_iter().map(line).collect()
}

/// Checks that the user has all these rights.
///
/// # Errors
/// If the user lacks rights. The message has all of them. Or if the API server does not answer.
pub(super) async fn verify(client: &Client, rights: Vec<ResourceAttributes>) -> anyhow::Result<()> {
    let missing: Vec<Option<ResourceAttributes>> = stream::iter(rights)
        .map(|right| missing(client, right))
        .buffered(REVIEWS)
        .try_collect()
        .await
        .context("your rights cannot be asked for")?;
    let missing = described(&missing.into_iter().flatten().collect::<Vec<_>>());
    if !missing.is_empty() {
        bail!(
            "your account lacks rights, so nothing was created; ask a cluster admin for:\n  {}",
            missing.join("\n  ")
        );
    }
    Ok(())
}

/// Asks for a right of the user. Returns the right if the user does not have it.
async fn missing(client: &Client, right: ResourceAttributes) -> kube::Result<Option<ResourceAttributes>> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(right.clone()), ..Default::default() };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok((!answer.status.is_some_and(|status| status.allowed)).then_some(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_described_for_each_resource_and_namespace() {
        let lines = described(&[of_runs("storage"), of_mounts("storage"), of_config("configs"), of_nodes()].concat());
        for line in [
            "create/delete/get/list jobs.batch in namespace storage",
            "create/delete/get/list pods in namespace storage",
            "get pods/log in namespace storage",
            "create/delete/get/list/patch persistentvolumes in the cluster",
            "manage volumes.flex-provisioner.io in the cluster",
            "list nodes in the cluster",
            "create/delete/get persistentvolumeclaims in namespace storage",
            "get configmaps in namespace configs",
            "list storageclasses.storage.k8s.io in the cluster",
        ] {
            assert!(lines.iter().any(|one| one == line), "{line} is not in {lines:?}");
        }
        let of_runs = described(&of_runs("storage"));
        let volumes = "delete/get/list/patch persistentvolumes in the cluster";
        assert!(of_runs.iter().any(|line| line == volumes), "{of_runs:?}");
        assert!(!of_runs.iter().any(|line| line.contains("configmaps") || line.contains("nodes")), "{of_runs:?}");
    }
}
