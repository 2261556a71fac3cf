//! Reads the admission policies of the cluster, for the comparison in [`flex_core::policies`].

use flex_core::policies::PolicyKind;
use kube::api::{DynamicObject, ListParams};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::pages;
use super::says;

/// Returns all admission policies and bindings of the cluster. A kind that the cluster does not serve has none.
///
/// # Errors
/// If they cannot be read. The message says which, and why.
pub async fn read(client: &Client) -> Result<Vec<Value>, String> {
    let mut found = Vec::new();
    for kind in [PolicyKind::Mutating, PolicyKind::Validating] {
        for kind in [kind.policy().to_owned(), format!("{}Binding", kind.policy())] {
            found.extend(list(client, &kind).await?);
        }
    }
    Ok(found)
}

async fn list(client: &Client, kind: &str) -> Result<Vec<Value>, String> {
    let plural = match kind.strip_suffix('y') {
        Some(stem) => format!("{}ies", stem.to_lowercase()),
        None => format!("{}s", kind.to_lowercase()),
    };
    let resource = ApiResource {
        group: "admissionregistration.k8s.io".into(),
        version: "v1".into(),
        api_version: "admissionregistration.k8s.io/v1".into(),
        kind: kind.to_owned(),
        plural,
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    // The items of a list do not have their kind.
    let view =
        |object: DynamicObject| json!({ "kind": kind, "metadata": object.metadata, "spec": object.data["spec"] });
    match pages::all(&api, ListParams::default(), view).await {
        Ok(list) => Ok(list),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(format!("{} cannot be listed: {}", resource.plural, says::error(&error))),
    }
}
