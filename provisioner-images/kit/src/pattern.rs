//! The path of a volume below a directory, from a pattern of the admin and values of the claim. The functions are pure.
//!
//! A value is always a part of one name. It can neither begin a new directory nor lead out of one, and variables in it
//! are not replaced.

use flex_contract::request::RunRequest;

use crate::Failure;

/// The variables, for messages.
const KNOWN: &str =
    "${pvc.namespace}, ${pvc.name}, ${pvc.uid}, ${pv.name}, ${storage-class}, ${username} and ${metadata.KEY}";

/// Returns the path, which is relative. `parameter` is the name of the pattern's parameter, for messages. `problem` says
/// what is wrong with a path, if anything is.
///
/// # Errors
/// If the pattern can give no path for any claim (78), or none for this one (65).
pub fn path(
    parameter: &str,
    pattern: &str,
    request: &RunRequest,
    problem: impl Fn(&str) -> Option<&'static str>,
) -> Result<String, Failure> {
    // A pattern that is wrong with harmless values is wrong for all claims.
    let harmless = replaced(parameter, pattern, |_| Ok("x"))?;
    if let Some(problem) = defect(&harmless).or_else(|| problem(&harmless)) {
        return Err(Failure::config(format!("{parameter} is `{pattern}`: {problem}")));
    }
    let path = replaced(parameter, pattern, |name| value(name, parameter, pattern, request))?;
    match defect(&path).or_else(|| problem(&path)) {
        Some(problem) => {
            Err(Failure::never(format!("{parameter} `{pattern}` gives the path {path:?}: {problem}: nothing is done")))
        }
        None => Ok(path),
    }
}

/// Returns the pattern with a value in place of each variable.
fn replaced<'a>(
    parameter: &str,
    pattern: &str,
    value: impl Fn(&str) -> Result<&'a str, Failure>,
) -> Result<String, Failure> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((literal, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| {
            Failure::config(format!("{parameter} is `{pattern}`: a variable that begins with ${{ must end with }}"))
        })?;
        let is_known =
            matches!(name, "pvc.namespace" | "pvc.name" | "pvc.uid" | "pv.name" | "storage-class" | "username")
                || name.strip_prefix("metadata.").is_some_and(|key| !key.is_empty());
        if !is_known {
            return Err(Failure::config(format!(
                "{parameter} is `{pattern}`: ${{{name}}} is not known; there are {KNOWN}"
            )));
        }
        path.push_str(literal);
        path.push_str(value(name)?);
        rest = after;
    }
    path.push_str(rest);
    Ok(path)
}

fn value<'a>(name: &str, parameter: &str, pattern: &str, request: &'a RunRequest) -> Result<&'a str, Failure> {
    let value = match name {
        "pvc.namespace" => request.claim.namespace.as_str(),
        "pvc.name" => &request.claim.name,
        "pvc.uid" => &request.claim.uid,
        "pv.name" => &request.pv_name,
        "storage-class" => &request.storage_class,
        "username" => &request.username,
        other => {
            let key = other.strip_prefix("metadata.").unwrap_or_default();
            request.claim_metadata.get(key).map(String::as_str).unwrap_or_default()
        }
    };
    if value.is_empty() {
        return Err(Failure::never(format!(
            "{parameter} is `{pattern}`, and this claim has no value for ${{{name}}}: no directory is made"
        )));
    }
    if value.contains('/') || value.contains(char::is_control) || value == "." || value == ".." {
        return Err(Failure::never(format!(
            "${{{name}}} of this claim is {value:?}, which cannot be a part of a directory's name: no directory is made"
        )));
    }
    Ok(value)
}

/// Returns what makes a path unusable on every backend.
fn defect(path: &str) -> Option<&'static str> {
    path.split('/').find_map(|part| match part {
        "" => Some("it has an empty part; it must be relative and without doubled slashes"),
        "." | ".." => Some("it has a part `.` or `..`"),
        _ if path.contains(char::is_control) => Some("it has a control character"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(name: &str, key: &str) -> RunRequest {
        let metadata = serde_json::json!({ "team.example/dir": key }).to_string();
        RunRequest::from_env(|variable| {
            Some(match variable {
                "OPERATION" => "provision".into(),
                variable if variable.ends_with("SIZE_BYTES") || variable == "ATTEMPT" => "1".into(),
                "CLAIM_METADATA" => metadata.clone(),
                "PVC_NAME" => name.into(),
                "PVC_NAMESPACE" => "team".into(),
                "PV_NAME" => "pvc-1".into(),
                "TOPOLOGY" | "CLASS_TOPOLOGIES" | "ATTRIBUTES" | "OLD_ATTRIBUTES" => String::new(),
                other => other.to_lowercase(),
            })
        })
        .unwrap()
    }

    fn path(pattern: &str, request: &RunRequest) -> Result<String, Failure> {
        super::path("subdirectory", pattern, request, |path| {
            path.split('/').any(|part| part == ".records").then_some("it has the part `.records`")
        })
    }

    #[test]
    fn variables_become_their_values() {
        let request = request("data", "blue");
        for (pattern, expected) in [
            ("${pvc.namespace}-${pvc.name}-${pv.name}", "team-data-pvc-1"),
            ("${pvc.namespace}/${pvc.name}", "team/data"),
            ("volumes/${pv.name}", "volumes/pvc-1"),
            ("${metadata.team.example/dir}", "blue"),
            ("fixed", "fixed"),
            ("a$b}c", "a$b}c"),
        ] {
            assert_eq!(path(pattern, &request).as_deref(), Ok(expected), "{pattern}");
        }
    }

    #[test]
    fn a_value_is_never_expanded_again() {
        assert_eq!(path("${metadata.team.example/dir}", &request("x", "${pvc.name}")).unwrap(), "${pvc.name}");
    }

    #[test]
    fn a_value_cannot_leave_its_name() {
        for value in ["../x", "a/b", "/etc", "..", ".", "", "a\0b", "a\nb"] {
            let failure = path("${metadata.team.example/dir}", &request("x", value)).expect_err(value);
            assert_eq!(failure.code, 65, "{value:?}");
        }
        // Two harmless values must not together form a harmful name.
        for (pattern, name, key) in [
            ("${pvc.name}${metadata.team.example/dir}/x", ".x", "."),
            (".${metadata.team.example/dir}", "x", ".."),
            (".${metadata.team.example/dir}", "x", "records"),
        ] {
            assert_eq!(path(pattern, &request(name, key)).expect_err(pattern).code, 65, "{pattern}");
        }
    }

    #[test]
    fn an_impossible_pattern_is_an_error_of_the_config() {
        let request = request("data", "blue");
        for pattern in [
            "${pvc.nam}",
            "${pvc.name",
            "${metadata.}",
            "/${pvc.name}",
            "${pvc.name}/",
            "a//b",
            "../${pvc.name}",
            ".records/x",
            "",
        ] {
            assert_eq!(path(pattern, &request).expect_err(pattern).code, 78, "{pattern}");
        }
    }
}
