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

    /// The lines that print another error than one of the library, each by its file and a part of the line.
    const OTHERS: &[(&str, &str)] = &[
        // Errors of writes say by `says` what the API server refuses.
        ("cli/adopt/mod.rs", "work.writes.move_in(&fresh, mapping)"),
        ("cli/adopt/mod.rs", "its record is written, its mark is not"),
        ("cli/adopt/undo.rs", "its mark is gone, its record is not"),
        ("cli/adopt/work.rs", "self.writes.read_volume(name)"),
        ("cli/adopt/work.rs", "self.writes.read_claim("),
        ("cli/adopt/work.rs", "self.writes.remove_adoption_mark(volume)"),
        ("cli/adopt/work.rs", "its mark could not be written again ({error})"),
        ("cli/import.rs", "work.writes.validate_import(made)"),
        ("cli/import.rs", "work.writes.import(made)"),
        ("cli/import.rs", "its record is written, its mark is not"),
        ("cli/import.rs", "its mark is gone: run this command again"),
        // Errors of the desk have theirs from `broken`, which uses `says`.
        ("cli/desk/on_cluster/place.rs", "self.delete_job(&name)"),
        ("cli/desk/on_cluster/place.rs", "self.end_pods(&self.ours())"),
        ("cli/desk/on_cluster/place.rs", "storage that no list run could show"),
        ("cli/desk/on_cluster/mount/mod.rs", "{name} of a mount, perhaps: {error}"),
        // These are no errors of the library, or are not printed.
        ("api/client.rs", "ParseNoProxy"),
        ("cli/out.rs", "standard output cannot be written"),
        ("cli/status/asked.rs", "the answer cannot be read: {error}"),
        ("cli/desk/on_cluster/source.rs", "texts.map_err("),
        ("cli/doctor/list.rs", "listing::read(&log)"),
        ("cli/import.rs", "size => size.map_err("),
    ];

    /// Returns the sources of commands and of the access to the API without their tests, each with its path.
    fn sources() -> Vec<(String, String)> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut found, mut folders) = (Vec::new(), vec![root.join("cli"), root.join("api")]);
        let mut files = vec![root.join("page/observe.rs")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { folders.push(path) } else { files.push(path) }
            }
        }
        for path in files {
            let name = path.strip_prefix(&root).unwrap().display().to_string();
            if name.ends_with(".rs") && !name.contains("test") && name != "api/says.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                found.push((name, text.to_owned()));
            }
        }
        found
    }

    /// Checks whether a line prints a variable that may be an error of the library.
    fn prints_error(line: &str) -> bool {
        let of = |name: &str| {
            let text = format!("{name}.to_string()");
            let before = [" ", "&", "("].iter().any(|before| line.contains(&format!("{before}{text}")));
            before || line.contains(&format!("{{{name}:#}}")) || line.contains(&format!("{{{name}:?}}"))
        };
        ["error", "err", "e", "why", "failed", "cause"].into_iter().any(of)
            || ["{error}", "{err}", "map_err(ToString::to_string)"].iter().any(|form| line.contains(form))
    }

    /// The form that the library prints has the whole answer. No command and no page prints it. A line of a log may.
    #[test]
    fn commands_print_no_error_of_the_library_itself() {
        let sources = sources();
        assert!(sources.len() > 100, "{} sources", sources.len());
        let mut others = OTHERS.to_vec();
        for (file, text) in &sources {
            for line in text.lines().filter(|line| !line.contains("tracing::") && !line.trim().starts_with("//")) {
                let other = OTHERS.iter().find(|(of, part)| of == file && line.contains(part));
                others.retain(|left| Some(left) != other);
                let is_wrong = other.is_none() && prints_error(line);
                assert!(!is_wrong, "{file} prints an error itself: use `says` in `{}`", line.trim());
            }
        }
        assert!(others.is_empty(), "these lines are gone: {others:?}");
    }
}
