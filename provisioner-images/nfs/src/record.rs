//! The records of which directory belongs to which volume. The functions are pure.
//!
//! A record is a symbolic link that leads nowhere, in `.flex-provisioner` at the root of the export, where users cannot
//! reach it. A link is made in a single step that fails if it exists, and its text is there as soon as the link is. Each
//! volume has two:
//!
//! - `path-<hash of the path>` names the volume of the path, and keeps two volumes from using one directory.
//! - `volume-<uuid>` names the path of the volume, and keeps a run with a changed pattern from making a second
//!   directory.
//!
//! With several exports, there are records about a volume's exports, too. They are called notes:
//!
//! - `begun-<uuid>` names the export where a run has begun the volume. Each export has it until the volume is complete.
//! - `also-<uuid>-<hash of an export>` notes another export that may have what an earlier run for the volume left.
//!
//! `deleted-snapshots/<id>` is a tombstone: the snapshot was deleted, and a run that still makes it must not publish it.
//!
//! `export` has a text that no other storage has. So the image recognises an export that has two names.
//!
//! A directory without the first record belongs to somebody else: it is neither used nor deleted.

use flex_contract::request::RunRequest;
use flex_contract::text::cut;
use flex_contract::volume::volume_source_kind;
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::PersistentVolumeSpec;
use sha2::{Digest, Sha256};

use crate::parameters::Parameters;

/// The folder of the records, at the root of the export.
pub const FOLDER: &str = ".flex-provisioner";

/// The prefix of a record that names the path of a volume. The volume's id follows.
pub const VOLUME: &str = "volume-";

/// Returns the name of the record for a path, which names the path's volume.
pub fn of_path(path: &str) -> String {
    format!("{FOLDER}/path-{}", hash(path))
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name of the record for a volume, which names the volume's path.
pub fn of_volume(id: &str) -> String {
    format!("{FOLDER}/{VOLUME}{id}")
}

/// Returns the name that the record of a volume's path has right before its removal.
pub fn of_release(id: &str) -> String {
    format!("{FOLDER}/released-{id}")
}

/// Returns the name of the note that another export may have what an earlier run for a volume left.
pub fn of_note(id: &str, other: &Parameters) -> String {
    format!("{FOLDER}/also-{id}-{}", &hash(&other.location())[..16])
}

/// The name of the record that identifies a storage.
pub const IDENTITY: &str = ".flex-provisioner/export";

/// Returns the identity of a storage, which the first run makes that asks the storage about a volume.
pub fn identity(id: &str, export: &Parameters) -> String {
    format!("{id}-{}", &hash(&export.location())[..16])
}

/// The folder of the tombstones.
pub const TOMBSTONES: &str = ".flex-provisioner/deleted-snapshots";

/// Returns the name of the tombstone of a snapshot.
pub fn of_tombstone(id: &str) -> String {
    format!("{TOMBSTONES}/{id}")
}

/// The time for which a tombstone stays, in seconds. A run that makes the snapshot, and was suspended before the deletion,
/// must have ended by then.
const TOMBSTONE_SECONDS: u32 = 7 * 24 * 3600;

/// Returns the tombstones that nothing needs any more, by the times when they were made. The clock is that of the server: the
/// time of the tombstone that this run has just made.
pub fn old_tombstones<'a>(tombstones: &'a [(String, u32)], just_made: &str) -> Vec<&'a str> {
    let now = tombstones.iter().find(|(id, _)| id == just_made).map(|(_, made)| *made);
    let is_old = |made: u32| now.is_some_and(|now| now.saturating_sub(made) > TOMBSTONE_SECONDS);
    tombstones.iter().filter(|(_, made)| is_old(*made)).map(|(id, _)| id.as_str()).collect()
}

/// Returns the name of the note that says where a run has begun a volume.
pub fn of_begin(id: &str) -> String {
    format!("{FOLDER}/begun-{id}")
}

/// The largest length of a note's text. The text of a link may have 1024 bytes on XFS.
const LONGEST_NOTE: usize = 500;

/// Returns the text of a note about another export, for the admin: its name, and why it did not serve.
pub fn text_of_note(other: &Parameters, why: Option<&Failure>) -> String {
    let why = why.map(|failure| format!(": {failure}")).unwrap_or_default();
    let text: String = format!("{}{why}", other.location());
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    cut(&plain, LONGEST_NOTE).to_owned()
}

/// Returns the request for what a run has left that no volume names.
pub fn without_source(request: &RunRequest) -> RunRequest {
    RunRequest { volume_source: String::new(), moved_in_path: String::new(), ..request.clone() }
}

/// Checks a volume's id, which becomes a part of names on the server.
pub fn check_id(id: &str) -> Result<(), Failure> {
    let legal = |c: char| matches!(c, '0'..='9' | 'a'..='f' | '-');
    if id.is_empty() || id.len() > 64 || !id.chars().all(legal) {
        return Err(Failure::never(format!("CLAIM_UUID is {id:?}, which is not the UUID of a claim: nothing is done")));
    }
    Ok(())
}

/// A path in its parts.
pub struct PathParts<'a> {
    /// The folder; empty at the top.
    pub folder: &'a str,
    /// The name in the folder.
    pub name: &'a str,
}

/// Divides a path into its folder and its name there.
pub fn split(path: &str) -> PathParts<'_> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    PathParts { folder, name }
}

fn beside(path: &str, name: &str) -> String {
    match split(path).folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    }
}

/// Returns the place where a directory waits for its removal. The place is beside the old one, because both must be on
/// one file system.
pub fn rubbish(path: &str, id: &str) -> String {
    beside(path, &format!(".deleting-{id}"))
}

/// The beginning of the name of an archive.
pub const ARCHIVED: &str = "archived-";

/// The number of archives that one volume can have. A volume gets a second archive if a run made the volume again after a
/// delete run that died.
pub const MAX_ARCHIVES: usize = 9;

/// Returns the place of an archived directory. The id distinguishes directories that had the same name one after
/// another, and no other volume can have a name of this form. `number` is from 1.
pub fn archive(path: &str, id: &str, number: usize) -> String {
    let name = split(path).name;
    let suffix = if name.contains(id) { String::new() } else { format!("-{id}") };
    let number = if number > 1 { format!(".{number}") } else { String::new() };
    beside(path, &format!("{ARCHIVED}{name}{suffix}{number}"))
}

/// Returns the path within the export in a PersistentVolume's source, given as JSON. Returns `None` for an empty
/// source, which belongs to no volume yet.
pub fn source_path(source: &str, parameters: &Parameters) -> Result<Option<String>, Failure> {
    if source.is_empty() {
        return Ok(None);
    }
    let spec: PersistentVolumeSpec = serde_json::from_str(source)
        .map_err(|error| Failure::never(format!("VOLUME_SOURCE is not the source of a volume: {error}")))?;
    let Some(nfs) = spec.nfs else {
        let kind = volume_source_kind(&spec).unwrap_or("none");
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

/// The longest name of a directory that servers accept.
const LONGEST_NAME: usize = 255;

/// Checks that the names which a directory gets when it is deleted are not too long.
pub fn check_length(path: &str, id: &str) -> Result<(), Failure> {
    let longest = [archive(path, id, MAX_ARCHIVES), rubbish(path, id)]
        .iter()
        .map(|path| split(path).name.len())
        .max()
        .unwrap_or(0);
    match longest <= LONGEST_NAME {
        true => Ok(()),
        false => Err(Failure::never(format!(
            "the name of the directory {path} is too long by {} characters to be archived: nothing is done",
            longest - LONGEST_NAME
        ))),
    }
}

/// Checks that a run's volume leads to the directory of its record: by its source, and by the place of storage that has
/// moved in.
pub fn check_place(request: &RunRequest, parameters: &Parameters, path: &str) -> Result<(), Failure> {
    check_source(&request.volume_source, parameters, path)?;
    let moved_in = &request.moved_in_path;
    match moved_in.is_empty() || *moved_in == format!("{}/{path}", parameters.export) {
        true => Ok(()),
        false => Err(Failure::never(format!(
            "the volume has moved in at {moved_in}, but its record on the server names {path}: nothing is done; find \
             out which is right, and take the directory away by hand"
        ))),
    }
}

/// Checks whether the source of a volume has the path that its record names.
fn check_source(source: &str, parameters: &Parameters, path: &str) -> Result<(), Failure> {
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
    fn a_moved_directory_stays_beside_its_former_name() {
        assert_eq!(rubbish("a", "1"), ".deleting-1");
        assert_eq!(rubbish("t/a", "1"), "t/.deleting-1");
        assert_eq!(archive("t/a", "1", 1), "t/archived-a-1");
        assert_eq!(archive("a-pvc-11", "11", 1), "archived-a-pvc-11");
        assert_eq!(archive("t/a", "1", 2), "t/archived-a-1.2");
    }

    #[test]
    fn a_tombstone_stays_as_long_as_a_run_may_live() {
        let day = |n: u32| 1_800_000_000 + n * 24 * 3600;
        let tombstones =
            [("a", day(0)), ("b", day(3)), ("c", day(10)), ("d", day(12))].map(|(id, at)| (id.to_owned(), at));
        assert_eq!(old_tombstones(&tombstones, "c"), ["a"]);
        assert_eq!(old_tombstones(&tombstones, "d"), ["a", "b"]);
        assert_eq!(old_tombstones(&tombstones, "none"), [""; 0], "the time of the server is not known");
    }

    #[test]
    fn a_name_leaves_room_for_what_its_archive_adds() {
        let id = "c0ffee00-0000-4000-8000-000000000001";
        let room = 255 - "archived-".len() - "-".len() - id.len() - ".9".len();
        check_length(&format!("a/{}", "x".repeat(room)), id).unwrap();
        let failure = check_length(&"x".repeat(room + 1), id).unwrap_err();
        assert!(failure.code == 65 && failure.message.contains("too long by 1 "), "{failure}");
        check_length(&format!("{}{id}", "x".repeat(room)), id).unwrap();
    }

    #[test]
    fn invalid_ids_are_refused() {
        for id in ["", "..", "a/b", "ABC", "../c0ffee", "x"] {
            assert_eq!(check_id(id).expect_err(id).code, 65);
        }
        check_id("c0ffee00-0000-4000-8000-000000000001").unwrap();
    }

    #[test]
    fn a_source_must_lead_to_the_same_directory() {
        let parameters = Parameters::from_env(|name| match name {
            "SERVER" => Some("nas".into()),
            "EXPORT" => Some("/e".into()),
            _ => None,
        })
        .unwrap()
        .remove(0);
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
