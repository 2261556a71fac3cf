//! The meaning of an API error for the volume. The functions are pure.

use kube::Error;
use kube::core::Status;

use super::says::says;
use crate::Failure;

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Get,
}

/// The consequence of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A volume of that name exists and must be compared.
    Exists,
    /// The request must be repeated soon.
    Transient(String),
    /// No repetition helps.
    Failed(Failure),
}

pub(super) fn answer(error: &Error, verb: Verb, name: &str) -> Answer {
    let status = match error {
        Error::Api(status) => status,
        // These are all failures on the way to an answer: connections, timeouts, a proxy's page instead of JSON.
        other => return Answer::Transient(says(other)),
    };
    let what = match verb {
        Verb::Create => format!("PersistentVolume {name} cannot be created: {}", status.message),
        Verb::Get => format!("PersistentVolume {name} exists and cannot be read: {}", status.message),
    };
    match (status.code, verb) {
        (409, Verb::Create) if status.reason == "AlreadyExists" => Answer::Exists,
        (403, _) => Answer::Failed(forbidden(status, what)),
        (401, _) => Answer::Failed(Failure::permission(format!(
            "{what}; the token of the pod's ServiceAccount is not accepted: does the account still exist?"
        ))),
        (400 | 413 | 422, _) => Answer::Failed(Failure::never(what)),
        // If the volume was deleted between create and get, the next create succeeds. Conflicts and overload are
        // temporary too.
        _ => Answer::Transient(what),
    }
}

/// Returns the failure of a pod without a token. The orchestrator mounts a token if the config names a ServiceAccount,
/// whatever the pod and the account say of tokens. `account` is the name that the orchestrator passed on.
pub(super) fn without_token(account: &str, why: &str) -> Failure {
    let what = "the pod has no ServiceAccount token to speak to the Kubernetes API with";
    Failure::config(match account {
        "" => format!(
            "{what}: the provisioner config has no `service-account-name`; create a ServiceAccount in the config's \
             namespace, bind it to the ClusterRole flex-provisioner-image, and name it there"
        ),
        account => format!(
            "{what} ({why}): that of the ServiceAccount {account} is mounted into the container `provisioner`; see that \
             the account exists, and that no volume of `pod-template` is mounted over the token"
        ),
    })
}

/// Distinguishes a missing permission, which the admin can grant with one command, from a refusal by admission.
fn forbidden(status: &Status, what: String) -> Failure {
    let account = status
        .message
        .split("system:serviceaccount:")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .and_then(|account| account.split_once(':'));
    match account {
        // Each pod of the namespace that names no account has the permissions of `default`.
        Some((namespace, "default")) if status.message.contains("cannot ") => Failure::permission(format!(
            "{what}. The pod runs as the ServiceAccount default of {namespace}, because the provisioner config has no \
             `service-account-name`; create one for the image, name it there, and bind it to the ClusterRole \
             flex-provisioner-image"
        )),
        Some((namespace, name)) if status.message.contains("cannot ") => Failure::permission(format!(
            "{what}. The right is missing; grant it with: kubectl create clusterrolebinding \
             flex-provisioner-image-{namespace}-{name} --clusterrole=flex-provisioner-image \
             --serviceaccount={namespace}:{name}"
        )),
        _ => Failure::permission(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(code: u16, reason: &str, message: &str) -> Error {
        Error::Api(Box::new(Status { code, reason: reason.into(), message: message.into(), ..Status::default() }))
    }

    #[test]
    fn every_code_has_its_answer() {
        for (code, reason, verb, expected) in [
            (409, "AlreadyExists", Verb::Create, "exists"),
            (409, "Conflict", Verb::Create, "transient"),
            (404, "NotFound", Verb::Get, "transient"),
            (429, "TooManyRequests", Verb::Create, "transient"),
            (500, "InternalError", Verb::Create, "transient"),
            (503, "ServiceUnavailable", Verb::Get, "transient"),
            (401, "Unauthorized", Verb::Create, "77"),
            (403, "Forbidden", Verb::Create, "77"),
            (422, "Invalid", Verb::Create, "65"),
            (400, "BadRequest", Verb::Create, "65"),
        ] {
            let found = match answer(&api(code, reason, "why"), verb, "pvc-1") {
                Answer::Exists => "exists".to_owned(),
                Answer::Transient(_) => "transient".to_owned(),
                Answer::Failed(failure) => failure.code.to_string(),
            };
            assert_eq!(found, expected, "{code} {reason}");
        }
    }

    #[test]
    fn a_missing_right_is_reported_with_the_command_that_grants_it() {
        let message = "persistentvolumes is forbidden: User \"system:serviceaccount:team:maker\" cannot create \
                       resource \"persistentvolumes\" in API group \"\" at the cluster scope";
        let Answer::Failed(failure) = answer(&api(403, "Forbidden", message), Verb::Create, "pvc-1") else {
            panic!("not final")
        };
        assert!(failure.message.contains("--serviceaccount=team:maker"), "{failure}");
        assert!(failure.message.contains("cannot create"), "{failure}");
    }

    #[test]
    fn no_command_grants_rights_to_the_default_account() {
        let message = "persistentvolumes is forbidden: User \"system:serviceaccount:team:default\" cannot create \
                       resource \"persistentvolumes\" in API group \"\" at the cluster scope";
        let Answer::Failed(failure) = answer(&api(403, "Forbidden", message), Verb::Create, "pvc-1") else {
            panic!("not final")
        };
        assert!(!failure.message.contains("kubectl create clusterrolebinding"), "{failure}");
        assert!(failure.message.contains("has no `service-account-name`"), "{failure}");
    }

    #[test]
    fn a_pod_without_a_token_reports_what_its_config_lacks() {
        let none = without_token("", "no file").message;
        assert!(none.contains("the provisioner config has no `service-account-name`"), "{none}");
        let named = without_token("maker", "no file").message;
        assert!(named.contains("ServiceAccount maker") && named.contains("no file"), "{named}");
        for message in [none, named] {
            assert!(!message.contains("automount"), "the token is mounted whatever that says: {message}");
        }
    }

    #[test]
    fn a_refusal_by_admission_is_not_reported_as_a_missing_right() {
        let message = "persistentvolumes \"pvc-1\" is forbidden: ValidatingAdmissionPolicy 'sizes' denied request";
        let Answer::Failed(failure) = answer(&api(403, "Forbidden", message), Verb::Create, "pvc-1") else {
            panic!("not final")
        };
        assert!(!failure.message.contains("clusterrolebinding"), "{failure}");
        assert!(failure.message.contains("denied request"), "{failure}");
    }
}
