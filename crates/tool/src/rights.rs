//! Questions to RBAC about the rights of accounts.

use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_core::preflight::rights::{Right, Scope, described};
use flex_provisioner::api::reviews::has_right;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Client;

/// The number of questions that are asked at one time.
const REVIEWS: usize = 16;

/// Returns the rights that RBAC does not give to an account, grouped by resource.
///
/// # Errors
/// If the user may not ask, or the API server does not answer.
pub(super) async fn missing_rights(
    client: &Client,
    identity: &Identity,
    account: &ObjectName,
    rights: Vec<Right>,
) -> kube::Result<Vec<String>> {
    let questions = rights.into_iter().flat_map(|right| {
        let namespaces = match right.scope {
            Scope::Cluster => vec![None],
            Scope::Own => vec![Some(identity.namespace.clone())],
            Scope::Configs => identity.config_namespaces.iter().cloned().map(Some).collect(),
        };
        namespaces.into_iter().map(move |namespace| (right.clone(), namespace))
    });
    let missing: Vec<Option<Right>> = stream::iter(questions)
        .map(|(right, namespace)| missing_right(client, identity, account, right, namespace))
        .buffered(REVIEWS)
        .try_collect()
        .await?;
    Ok(described(&missing.into_iter().flatten().collect::<Vec<_>>()))
}

/// Asks RBAC for a right of an account. Returns the right if the account does not have it.
async fn missing_right(
    client: &Client,
    identity: &Identity,
    account: &ObjectName,
    right: Right,
    namespace: Option<String>,
) -> kube::Result<Option<Right>> {
    let asked = ResourceAttributes {
        group: Some(right.group.clone()),
        resource: Some(right.resource.clone()),
        subresource: Some(right.subresource.clone()).filter(|subresource| !subresource.is_empty()),
        verb: Some(right.verb.clone()),
        name: right.is_of_provisioner.then(|| identity.provisioner.clone()),
        namespace,
        ..ResourceAttributes::default()
    };
    Ok((!has_right(client, account, asked).await?).then_some(right))
}
