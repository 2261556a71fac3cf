//! Questions to the API server about the rights of other accounts.

use flex_core::object::ObjectName;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};

/// Asks whether a ServiceAccount has a right.
///
/// # Errors
/// If the user may not ask, or the API server does not answer.
pub async fn has_right(client: &Client, account: &ObjectName, right: ResourceAttributes) -> kube::Result<bool> {
    let ObjectName { namespace, name } = account;
    let groups = [
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{namespace}"),
        "system:authenticated".to_owned(),
    ];
    let spec = SubjectAccessReviewSpec {
        user: Some(format!("system:serviceaccount:{namespace}:{name}")),
        groups: Some(groups.into()),
        resource_attributes: Some(right),
        ..SubjectAccessReviewSpec::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &SubjectAccessReview { spec, ..Default::default() }).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
