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

/// Says why a command failed: each cause once, and those of the API by [`error`]. An error around one of the API may
/// repeat it in the form that the library prints, as those of watches do.
pub fn causes(failed: &anyhow::Error) -> String {
    let of_api = failed.chain().find_map(api_error).map(|of_api| (of_api.to_string(), error(of_api)));
    let mut said: Vec<String> = Vec::new();
    for cause in failed.chain() {
        let text = match &of_api {
            Some((printed, sentence)) => cause.to_string().replace(printed, sentence),
            None => cause.to_string(),
        };
        if said.last().is_none_or(|last| !last.ends_with(&text)) {
            said.push(text);
        }
        if api_error(cause).is_some() {
            break;
        }
    }
    said.join(": ")
}

fn api_error<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    cause.downcast_ref::<Error>().or_else(|| cause.downcast_ref::<Box<Error>>().map(|boxed| &**boxed))
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

    /// The errors of a watch contain those of the API, and print them.
    #[test]
    fn an_error_of_a_watch_is_one_sentence() {
        use kube::runtime::watcher;

        let message = "claims is forbidden: x";
        for (failed, says) in [
            (watcher::Error::InitialListFailed(refused(message)), "failed to perform initial object list"),
            (watcher::Error::WatchStartFailed(refused(message)), "failed to start watching object"),
            (watcher::Error::WatchFailed(refused(message)), "watch stream failed"),
        ] {
            let failed = anyhow::Error::new(failed).context("the claims cannot be watched");
            assert_eq!(causes(&failed), format!("the claims cannot be watched: {says}: {message}"));
        }
        let answer = Status::failure("too old", "Expired").with_code(410);
        let failed = anyhow::Error::new(watcher::Error::WatchError(Box::new(answer)));
        assert_eq!(causes(&failed), "error returned by apiserver during watch: too old: Expired");
    }
}
