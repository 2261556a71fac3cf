//! Which directory belongs to which volume. Pure.
//!
//! The records stand in `.flex-provisioner` at the root of the export, out of the users' reach. Each
//! is a symbolic link that leads nowhere: making one is a single step that fails if it exists, and
//! its text is there as soon as the link is. There are two for each volume:
//!
//! - `path-<hash of the path>` says whose the path is, and keeps two volumes from one directory;
//! - `volume-<uuid>` says where the volume is, and keeps a run with an edited pattern from making a
//!   second directory.
//!
//! A directory that exists without the first is somebody else's: it is neither used nor deleted.

use contract::volume::source_kind;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use kit::Failure;
use sha2::{Digest, Sha256};

use crate::parameters::Parameters;

/// The folder of the records, at the root of the export.
pub const FOLDER: &str = ".flex-provisioner";

/// Begins the name of a record that says where a volume is; its id follows.
pub const VOLUME: &str = "volume-";

/// The record that says whose a path is.
pub fn of_path(path: &str) -> String {
    let hash: String = Sha256::digest(path.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{FOLDER}/path-{hash}")
}

/// The record that says where a volume is.
pub fn of_volume(id: &str) -> String {
    format!("{FOLDER}/{VOLUME}{id}")
}

/// A volume's id becomes a part of names on the server.
pub fn check_id(id: &str) -> Result<(), Failure> {
    let legal = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '-');
    if id.is_empty() || id.len() > 64 || !id.chars().all(legal) {
        return Err(Failure::never(format!("CLAIM_UUID is {id:?}, which is not the UUID of a claim: nothing is done")));
    }
    Ok(())
}

/// The folder that a path stands in, and its name there.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn beside(path: &str, name: &str) -> String {
    match split(path) {
        ("", _) => name.to_owned(),
        (folder, _) => format!("{folder}/{name}"),
    }
}

/// Where a directory waits for its removal: beside its old place, as it cannot leave its file system.
pub fn rubbish(path: &str, id: &str) -> String {
    beside(path, &format!(".deleting-{id}"))
}

/// Where an archived directory stays. The id keeps apart those that had the same name one after the other.
pub fn archive(path: &str, id: &str) -> String {
    let (_, name) = split(path);
    let suffix = if name.contains(id) { String::new() } else { format!("-{id}") };
    beside(path, &format!("archived-{name}{suffix}"))
}

/// Where a PersistentVolume's source, as JSON, leads within the export; `None` for an empty one, which
/// belongs to no volume yet.
pub fn source_path(source: &str, parameters: &Parameters) -> Result<Option<String>, Failure> {
    if source.is_empty() {
        return Ok(None);
    }
    let spec: PersistentVolumeSpec = serde_json::from_str(source)
        .map_err(|error| Failure::never(format!("VOLUME_SOURCE is not the source of a volume: {error}")))?;
    let Some(nfs) = spec.nfs else {
        let kind = source_kind(&spec).unwrap_or("none");
        return Err(Failure::never(format!("the volume's source is {kind}, not nfs: nothing is done")));
    };
    let within = nfs.path.strip_prefix(&parameters.export).and_then(|rest| rest.strip_prefix('/'));
    match within.filter(|path| !path.is_empty() && nfs.server == parameters.server) {
        Some(path) => Ok(Some(path.to_owned())),
        None => Err(Failure::never(format!(
            "the volume is {}:{}, but the parameters lead to {}:{}: nothing is done; correct the parameters, or take \
             the directory away by hand",
            nfs.server, nfs.path, parameters.server, parameters.export
        ))),
    }
}

/// Whether the source of a volume leads to the place that its record names.
pub fn check_source(source: &str, parameters: &Parameters, path: &str) -> Result<(), Failure> {
    match source_path(source, parameters)? {
        Some(other) if other != path => Err(Failure::never(format!(
            "the volume leads to {other}, but its record to {path}: nothing is done; find out which is right, and \
             take the directory away by hand"
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_beside_the_directory() {
        assert_eq!(rubbish("a", "1"), ".deleting-1");
        assert_eq!(rubbish("t/a", "1"), "t/.deleting-1");
        assert_eq!(archive("t/a", "1"), "t/archived-a-1");
        assert_eq!(archive("a-pvc-11", "11"), "archived-a-pvc-11");
    }

    #[test]
    fn ids_that_are_none() {
        for id in ["", "..", "a/b", "ABC", "../c0ffee", "x"] {
            assert_eq!(check_id(id).expect_err(id).code, 65);
        }
        check_id("c0ffee00-0000-4000-8000-000000000001").unwrap();
    }

    #[test]
    fn a_source_must_lead_to_the_same_place() {
        let parameters = Parameters::from_env(|name| match name {
            "SERVER" => Some("nas".into()),
            "EXPORT" => Some("/e".into()),
            _ => None,
        })
        .unwrap();
        for (source, fits) in [
            ("", true),
            (r#"{"nfs":{"server":"nas","path":"/e/a"}}"#, true),
            (r#"{"nfs":{"server":"nas","path":"/e/b"}}"#, false),
            (r#"{"nfs":{"server":"other","path":"/e/a"}}"#, false),
            (r#"{"hostPath":{"path":"/e/a"}}"#, false),
            ("{}", false),
            ("x", false),
        ] {
            assert_eq!(check_source(source, &parameters, "a").is_ok(), fits, "{source}");
        }
    }
}
