//! The path of a volume within the export, from a pattern of the admin and values of the claim. The functions are pure.
//!
//! A value is always a part of one name. It can neither begin a new directory nor lead out of one, and variables in it
//! are not replaced.

use flex_contract::request::RunRequest;
use flex_image_kit::Failure;

use crate::record::FOLDER;

/// The variables, for messages.
const KNOWN: &str =
    "${pvc.namespace}, ${pvc.name}, ${pvc.uid}, ${pv.name}, ${storage-class}, ${username} and ${metadata.KEY}";

/// The longest name that file systems allow, minus room for `archived-` and a UUID.
const LONGEST_NAME: usize = 255 - "archived-".len() - "-".len() - 36;

/// Returns the path, relative to the export.
pub fn path(pattern: &str, request: &RunRequest) -> Result<String, Failure> {
    let mut path = String::new();
    let mut rest = pattern;
    while let Some((literal, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or_else(|| {
            Failure::config(format!("subdirectory is `{pattern}`: a variable that begins with ${{ must end with }}"))
        })?;
        path.push_str(literal);
        path.push_str(value(name, pattern, request)?);
        rest = after;
    }
    path.push_str(rest);
    check(&path, pattern)?;
    Ok(path)
}

fn value<'a>(name: &str, pattern: &str, request: &'a RunRequest) -> Result<&'a str, Failure> {
    let value = match name {
        "pvc.namespace" => request.claim.namespace.as_str(),
        "pvc.name" => &request.claim.name,
        "pvc.uid" => &request.claim.uid,
        "pv.name" => &request.pv_name,
        "storage-class" => &request.storage_class,
        "username" => &request.username,
        other => match other.strip_prefix("metadata.") {
            Some(key) => request.claim_metadata.get(key).map(String::as_str).unwrap_or_default(),
            None => {
                return Err(Failure::config(format!(
                    "subdirectory is `{pattern}`: ${{{name}}} is not known; there are {KNOWN}"
                )));
            }
        },
    };
    if value.is_empty() {
        return Err(Failure::never(format!(
            "subdirectory is `{pattern}`, and this claim has no value for ${{{name}}}: no directory is made"
        )));
    }
    if value.contains(['/', '\0']) || value.contains(char::is_control) || value == "." || value == ".." {
        return Err(Failure::never(format!(
            "${{{name}}} of this claim is {value:?}, which cannot be a part of a directory's name: no directory is made"
        )));
    }
    Ok(value)
}

fn check(path: &str, pattern: &str) -> Result<(), Failure> {
    let problem = path.split('/').find_map(|part| match part {
        "" => Some("it has an empty part; it must be relative and without doubled slashes"),
        "." | ".." => Some("it has a part `.` or `..`"),
        FOLDER => Some("it has the part `.flex-provisioner`, where the provisioner keeps its records"),
        long if long.len() > LONGEST_NAME => Some("it has a part that is too long"),
        _ if path.contains(char::is_control) => Some("it has a control character"),
        _ => None,
    });
    match problem {
        Some(problem) => Err(Failure::never(format!("subdirectory `{pattern}` gives the path `{path}`: {problem}"))),
        None => Ok(()),
    }
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

    #[test]
    fn variables_become_their_values() {
        let request = request("data", "blue");
        for (pattern, expected) in [
            (crate::parameters::DEFAULT_PATTERN, "team-data-pvc-1"),
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
        let failure = path("${pvc.name}${metadata.team.example/dir}/x", &request(".x", ".")).map(|_| ());
        assert_eq!(failure.unwrap_err().code, 65);
        assert!(path(".${metadata.team.example/dir}", &request("x", "..")).is_err());
        assert!(path(".${metadata.team.example/dir}", &request("x", "flex-provisioner")).is_err());
    }

    #[test]
    fn an_impossible_pattern_is_refused() {
        let request = request("data", "blue");
        for (pattern, code) in [
            ("${pvc.nam}", 78),
            ("${pvc.name", 78),
            ("/${pvc.name}", 65),
            ("${pvc.name}/", 65),
            ("a//b", 65),
            ("../${pvc.name}", 65),
            (".flex-provisioner/x", 65),
        ] {
            assert_eq!(path(pattern, &request).expect_err(pattern).code, code, "{pattern}");
        }
        assert!(path(&"x".repeat(250), &request).is_err());
    }
}
