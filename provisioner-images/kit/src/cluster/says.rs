//! Errors of the Kubernetes API as texts for people.

use kube::Error;

/// Says why a request failed: in the API server's own words, or with each cause of a request that got no answer. The
/// text that the error has itself contains the whole answer as a structure of this program.
pub fn says(error: &Error) -> String {
    match error {
        Error::Api(status) if status.message.is_empty() => {
            format!("the API server refuses it with code {} {}", status.code, status.reason)
        }
        Error::Api(status) => status.message.clone(),
        other => chain(other),
    }
}

/// Writes an error with its causes. The outermost alone often says no more than "client error (Connect)".
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use kube::core::Status;

    use super::*;

    #[test]
    fn an_error_is_said_without_the_structure_of_the_answer() {
        let refused = |message: &str| {
            let status = Status { code: 403, reason: "Forbidden".into(), message: message.into(), ..Status::default() };
            Error::Api(Box::new(status))
        };
        assert_eq!(says(&refused("secrets is forbidden")), "secrets is forbidden");
        assert_eq!(says(&refused("")), "the API server refuses it with code 403 Forbidden");
        let lost = std::io::Error::other("connection reset by peer");
        let lost = says(&Error::ReadEvents(lost));
        assert!(lost.contains("connection reset by peer") && !lost.contains("Custom"), "{lost}");
    }

    /// Returns the source files below a directory.
    fn sources(directory: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
        let paths = entries.map(|entry| entry.unwrap().path());
        let below = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
        paths.flat_map(below).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
    }

    /// An event with the structure of an answer is unreadable. Files that speak to the API call an error `error`, and print
    /// it only by [`says`] or [`chain`].
    #[test]
    fn no_image_prints_an_error_of_the_library_itself() {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let all = fs::read_dir(images).unwrap().flat_map(|image| sources(&image.unwrap().path().join("src")));
        let mut speaking = 0;
        for path in all.filter(|path| !path.ends_with("cluster/says.rs")) {
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]").next().unwrap();
            if !text.contains("kube::") {
                continue;
            }
            speaking += 1;
            for printed in ["{error", "{err", "{e}", "{e:", "error.to_string()", ", error)", "{status"] {
                assert!(!text.contains(printed), "{} prints an error by `{printed}`: use `says`", path.display());
            }
        }
        assert!(speaking > 4, "only {speaking} files speak to the API");
    }
}
