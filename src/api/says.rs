//! Errors of the API as one sentence for people, without the structure of the answer.

use kube::Error;

/// The ClusterRole for users who look at the orchestrator.
const VIEWER: &str = "flex-provisioner-viewer";

/// Says why a request failed: in the API server's own words, and whom to ask for a missing right.
pub fn error(error: &Error) -> String {
    let Error::Api(status) = error else { return chain_of(error) };
    let message = match status.message.as_str() {
        "" => format!("the API server refuses it with code {} {}", status.code, status.reason),
        message => message.to_owned(),
    };
    let is_of_person = !message.contains("User \"system:");
    let is_read = ["get", "list", "watch"].iter().any(|verb| message.contains(&format!(" cannot {verb} resource")));
    match status.code == 403 && is_of_person && is_read {
        true => format!("{message}: ask an admin for the ClusterRole {VIEWER}"),
        false => message,
    }
}

/// Says why a command failed: each cause once, and those of the API by [`error`].
pub fn causes(failed: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in failed.chain() {
        let boxed = || cause.downcast_ref::<Box<Error>>().map(AsRef::as_ref);
        let of_api = cause.downcast_ref::<Error>().or_else(boxed);
        let text = of_api.map_or_else(|| cause.to_string(), error);
        if said.last().is_none_or(|last| !last.ends_with(&text)) {
            said.push(text);
        }
        if of_api.is_some() {
            break;
        }
    }
    said.join(": ")
}

fn chain_of(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        source = cause.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use kube::core::Status;

    use super::*;

    fn refused(message: &str) -> Error {
        Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403)))
    }

    #[test]
    fn an_error_of_the_api_is_one_sentence() {
        let message = r#"configmaps is forbidden: User "tom" cannot list resource "configmaps" in API group """#;
        let asks = format!("{message}: ask an admin for the ClusterRole {VIEWER}");
        assert_eq!(error(&refused(message)), asks);
        let wrapped = Err::<(), _>(refused(message)).context("the configs cannot be listed").unwrap_err();
        assert_eq!(causes(&wrapped), format!("the configs cannot be listed: {asks}"));
        for text in [error(&refused(message)), causes(&wrapped), error(&refused(""))] {
            assert!(!text.contains("Status {") && !text.contains("ListMeta") && !text.contains("ApiError"), "{text}");
        }
        let by_policy = "a person may not do that";
        assert_eq!(error(&refused(by_policy)), by_policy, "a right would not help");
        let account = r#"x is forbidden: User "system:serviceaccount:a:b" cannot list resource "x""#;
        assert_eq!(error(&refused(account)), account, "the rights of an account are in its manifests");
        assert_eq!(causes(&anyhow::anyhow!("plain").context("outer")), "outer: plain");
    }

    /// The form that the library prints has the whole answer. No command and no page prints it.
    #[test]
    fn commands_print_no_error_of_the_library_itself() {
        for (file, text) in [
            ("cli/mod.rs", include_str!("../cli/mod.rs")),
            ("cli/trace/mod.rs", include_str!("../cli/trace/mod.rs")),
            ("cli/check/collect.rs", include_str!("../cli/check/collect.rs")),
            ("cli/status/surroundings.rs", include_str!("../cli/status/surroundings.rs")),
            ("cli/doctor/collect.rs", include_str!("../cli/doctor/collect.rs")),
            ("cli/each.rs", include_str!("../cli/each.rs")),
            ("cli/bundle/record.rs", include_str!("../cli/bundle/record.rs")),
            ("page/observe.rs", include_str!("../page/observe.rs")),
            ("api/policies.rs", include_str!("policies.rs")),
        ] {
            let text = text.split("#[cfg(test)]").next().unwrap();
            for printed in ["{error:#}", "{error}", "error.to_string()"] {
                assert!(!text.contains(printed), "{file} prints an error by `{printed}`: use `says`");
            }
        }
    }
}
