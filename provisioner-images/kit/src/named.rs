//! Directories of volumes that have names by the admin's pattern, with records of which directory is whose.
//!
//! The records are in `.flex-provisioner` in the base path, where users cannot reach them:
//!
//! - `volume-<uuid>` is a symbolic link that leads nowhere. Its text is the path of the volume's directory. A run makes it
//!   before the directory, and removes it after the directory.
//! - `folders` has a directory for each folder around volumes that this program has made.
//!
//! A directory without a record belongs to somebody else: it is neither used nor deleted. No volume is in the directory
//! of another one. A lock of the base path lets one process at a time read and change the records.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use flex_contract::request::RunRequest;
use flex_contract::storage;
use rustix::fs::{self, AtFlags, CWD, Dir, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::below::{self, FOLDER};
use crate::{Failure, nested, pattern};

/// The parameter with the pattern, for messages.
pub const PARAMETER: &str = "path-pattern";
/// The folder of the records, in the base path.
const RECORDS: &str = ".flex-provisioner";
/// The folder in it with a directory for each folder that this program has made.
const FOLDERS: &str = "folders";
/// The prefix of the name of a volume's record.
const VOLUME: &str = "volume-";
/// The mode of folders around volumes. Nobody gets through the base path.
const OPEN: Mode = Mode::RWXU.union(Mode::from_raw_mode(0o055));
/// The longest name that file systems allow.
const LONGEST_NAME: usize = 255;
/// The longest path. It is the text of a link, for which XFS has 1024 bytes.
const LONGEST_PATH: usize = 1000;

/// Returns the path of this run's volume below the base path: the recorded one, or a new one, which is recorded. Makes
/// the folders around it, and not the directory itself.
///
/// # Errors
/// If the pattern gives no path (65, 78), if another volume has this path (75), or if it is not this program's (65).
pub fn take(base: &Path, pattern: &str, request: &RunRequest) -> Result<String, Failure> {
    let id = checked(&request.volume_id)?;
    let base = Base::open(base, FlockOperation::LockExclusive)?;
    let records = base.records()?;
    let path = match records.get(id) {
        Some(path) => path.clone(),
        None => {
            let path = pattern::path(PARAMETER, pattern, request, |path| problem(path).or_else(|| alike(path, id)))?;
            if let Some((other, at)) = overlapping(&records, id, &path) {
                // The message becomes an event of this claim's user, and the log is for the admin.
                eprintln!("the directory {path} would overlap with {at}, which belongs to volume {other}");
                return Err(Failure::retry(format!(
                    "the directory {path} of this volume would overlap with that of another volume, which the log of \
                     this run names: this claim waits until that volume is deleted; or give {PARAMETER} a part that \
                     is different for each volume, such as ${{pv.name}}"
                )));
            }
            base.check_free(&path)?;
            base.record(id, &path)?;
            path
        }
    };
    base.make_folders(&path)?;
    Ok(path)
}

/// Ends the record of a volume whose directory is gone, and removes empty folders that were made for it. A missing record
/// is a success.
///
/// # Errors
/// If the directory exists, or if something cannot be removed.
pub fn free(base: &Path, id: &str) -> Result<(), Failure> {
    let id = checked(id)?;
    let base = Base::open(base, FlockOperation::LockExclusive)?;
    let mut records = base.records()?;
    let Some(path) = records.remove(id) else { return Ok(()) };
    if base.has(&path)? {
        return Err(Failure::retry(format!("{} exists: its record stays", base.shown(&path))));
    }
    let around: Vec<usize> = path.match_indices('/').map(|(at, _)| at).collect();
    for end in around.into_iter().rev() {
        let folder = &path[..end];
        let is_used = records.values().any(|other| nested::is_below(other, folder));
        // Somebody else may have put files there.
        if is_used || !base.remove_empty(folder)? || !base.remove_empty(&mirror(folder))? {
            break;
        }
    }
    base.end_record(id)
}

/// Checks that a directory which is to move in has nothing in common with that of another volume.
///
/// # Errors
/// If it has.
pub fn check(base: &Path, id: &str, path: &str) -> Result<(), Failure> {
    let base = Base::open(base, FlockOperation::LockShared)?;
    if let Some((other, at)) = overlapping(&base.records()?, id, path) {
        return Err(Failure::never(format!(
            "{} has files in common with {at}, which belongs to volume {other}: nothing is done",
            base.shown(path)
        )));
    }
    match base.has(&mirror(path))? {
        true => Err(Failure::never(format!("{} is for the directories of volumes: nothing is done", base.shown(path)))),
        false => Ok(()),
    }
}

/// Returns the lines of a list for all records, in the form that [`crate::listing`] reads.
///
/// # Errors
/// If the records cannot be read.
pub fn list(base: &Path) -> Result<String, Failure> {
    let base = Base::open(base, FlockOperation::LockShared)?;
    let mut lines = String::new();
    for (id, path) in base.records()? {
        let (state, place) = match base.has(&path)? {
            true => ("volume", path),
            // The image lists these directories.
            false if base.has(&format!(".deleting-{id}"))? || base.has(&format!(".copying-{id}"))? => continue,
            // A run died before it made the directory, or after it had removed the directory.
            false => ("rubbish", format!("{RECORDS}/{VOLUME}{id}")),
        };
        lines.push_str(&format!("{state} {id} - {}\n", base.shown(&place)));
    }
    Ok(lines)
}

/// A base path that is open and locked.
struct Base<'a> {
    path: &'a Path,
    folder: OwnedFd,
}

impl<'a> Base<'a> {
    fn open(path: &'a Path, lock: FlockOperation) -> Result<Self, Failure> {
        let failed = |error: Errno| {
            below::failure(format!("the directory {} cannot be opened", path.display()), &io::Error::from(error))
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        fs::flock(&folder, lock).map_err(failed)?;
        Ok(Self { path, folder })
    }

    fn shown(&self, path: &str) -> String {
        format!("{}/{path}", self.path.display())
    }

    fn failed(&self, what: &str, path: &str, error: Errno) -> Failure {
        match error {
            Errno::LOOP | Errno::NOTDIR => {
                Failure::never(format!("{} is not a directory, or is below a link: nothing is done", self.shown(path)))
            }
            _ => below::failure(format!("{what} {}", self.shown(path)), &io::Error::from(error)),
        }
    }

    /// Opens a directory by its path from here. No link is followed. `None` if it is missing.
    fn folder(&self, path: &str) -> Result<Option<OwnedFd>, Failure> {
        let mut folder =
            self.folder.try_clone().map_err(|error| below::failure("opening a directory".into(), &error))?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            folder = match fs::openat(&folder, name, FOLDER, Mode::empty()) {
                Ok(folder) => folder,
                Err(Errno::NOENT) => return Ok(None),
                Err(error) => return Err(self.failed("opening", path, error)),
            };
        }
        Ok(Some(folder))
    }

    /// Checks whether anything exists at a path.
    fn has(&self, path: &str) -> Result<bool, Failure> {
        let (around, name) = nested::divided(path);
        let Some(folder) = self.folder(around)? else { return Ok(false) };
        match fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("looking at", path, error)),
        }
    }

    /// Returns the path of each volume that has a record.
    fn records(&self) -> Result<BTreeMap<String, String>, Failure> {
        let mut records = BTreeMap::new();
        let Some(folder) = self.folder(RECORDS)? else { return Ok(records) };
        let failed = |error| self.failed("reading the records in", RECORDS, error);
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            let Some(id) = name.strip_prefix(VOLUME).filter(|id| storage::is_uuid(id)) else { continue };
            let text = fs::readlinkat(&folder, entry.file_name(), Vec::new()).map_err(failed)?;
            let path = CString::into_string(text).ok().filter(|path| problem(path).is_none());
            let Some(path) = path else {
                // Users read the message, and only the admin reads the log.
                eprintln!("the record {} names no path of this image", self.shown(&format!("{RECORDS}/{name}")));
                return Err(Failure::never(format!(
                    "a record in {} is not this image's, and the log of this run names it: nothing is done",
                    self.shown(RECORDS)
                )));
            };
            records.insert(id.to_owned(), path);
        }
        Ok(records)
    }

    /// Checks that nothing exists at a path, and that only folders of this program are around it.
    fn check_free(&self, path: &str) -> Result<(), Failure> {
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            if !self.has(folder)? {
                return Ok(());
            }
            if !self.has(&mirror(folder))? {
                return Err(self.foreign(folder));
            }
        }
        match self.has(path)? {
            true => Err(self.foreign(path)),
            false => Ok(()),
        }
    }

    fn foreign(&self, path: &str) -> Failure {
        Failure::never(format!(
            "{} belongs to somebody else (no record says that it is a volume of this image): nothing is done; give \
             {PARAMETER} another form, or move that directory",
            self.shown(path)
        ))
    }

    /// Writes the record of a volume, and waits until it is on the disk.
    fn record(&self, id: &str, path: &str) -> Result<(), Failure> {
        let record = format!("{RECORDS}/{VOLUME}{id}");
        let folder = self.made(RECORDS, Mode::RWXU)?;
        let written = fs::symlinkat(path, &folder, format!("{VOLUME}{id}")).and_then(|()| fs::fsync(&folder));
        written.and_then(|()| fs::fsync(&self.folder)).map_err(|error| self.failed("making the record", &record, error))
    }

    fn end_record(&self, id: &str) -> Result<(), Failure> {
        let record = format!("{RECORDS}/{VOLUME}{id}");
        // The removal of the directory must be on the disk first.
        fs::fsync(&self.folder).map_err(|error| self.failed("removing the record", &record, error))?;
        if let Some(folder) = self.folder(RECORDS)? {
            let removed = fs::unlinkat(&folder, format!("{VOLUME}{id}"), AtFlags::empty());
            removed.map_err(|error| self.failed("removing the record", &record, error))?;
        }
        if self.remove_empty(&format!("{RECORDS}/{FOLDERS}"))? {
            self.remove_empty(RECORDS)?;
        }
        Ok(())
    }

    /// Makes the folders around a path, each after the directory that says so.
    fn make_folders(&self, path: &str) -> Result<(), Failure> {
        if path.contains('/') {
            self.made(&format!("{RECORDS}/{FOLDERS}"), Mode::RWXU)?;
        }
        for (end, _) in path.match_indices('/') {
            let folder = &path[..end];
            self.made(&mirror(folder), Mode::RWXU)?;
            self.made(folder, OPEN)?;
        }
        Ok(())
    }

    /// Makes a directory, unless it exists. Returns it.
    fn made(&self, path: &str, mode: Mode) -> Result<OwnedFd, Failure> {
        let (around, name) = nested::divided(path);
        let missing = || self.failed("making", path, Errno::NOENT);
        let folder = self.folder(around)?.ok_or_else(missing)?;
        match fs::mkdirat(&folder, name, mode) {
            Ok(()) | Err(Errno::EXIST) => self.folder(path)?.ok_or_else(missing),
            Err(error) => Err(self.failed("making", path, error)),
        }
    }

    /// Removes a directory if it is empty. Returns whether it is gone.
    fn remove_empty(&self, path: &str) -> Result<bool, Failure> {
        let (around, name) = nested::divided(path);
        let Some(folder) = self.folder(around)? else { return Ok(true) };
        match fs::unlinkat(folder.as_fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
            Err(error) => Err(self.failed("removing", path, error)),
        }
    }
}

fn checked(id: &str) -> Result<&str, Failure> {
    match storage::is_uuid(id) {
        true => Ok(id),
        false => Err(Failure::never(format!("{id:?} is not the UUID of a volume: nothing is done"))),
    }
}

/// Returns the directory which says that a folder was made by this program.
fn mirror(folder: &str) -> String {
    format!("{RECORDS}/{FOLDERS}/{folder}")
}

/// Returns another volume whose directory equals, contains or is in this one.
fn overlapping<'a>(records: &'a BTreeMap<String, String>, id: &str, path: &str) -> Option<(&'a str, &'a str)> {
    let mut others = records.iter().filter(|(other, _)| *other != id);
    others.find(|(_, at)| nested::overlap(at, path)).map(|(other, at)| (other.as_str(), at.as_str()))
}

/// Returns why a path cannot be that of a volume. Only such characters are in it that neither a shell nor JSON changes,
/// and no name that an image gives to other directories.
fn problem(path: &str) -> Option<&'static str> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@+=".contains(&byte);
    if path.len() > LONGEST_PATH {
        return Some("it has more than 1000 characters");
    }
    if path.split('/').next().is_some_and(storage::is_uuid) {
        return Some("its first name is a UUID; such names belong to volumes without a pattern");
    }
    path.split('/').find_map(|part| match part {
        "" => Some("it has an empty part"),
        long if long.len() > LONGEST_NAME => Some("it has a name of more than 255 characters"),
        hidden if hidden.starts_with(['.', '-']) => Some("it has a name that begins with a dot or a hyphen"),
        other if !other.bytes().all(legal) => {
            Some("a name may have the letters a to z and A to Z, digits, and `._-@+=`")
        }
        _ => None,
    })
}

/// Returns why a new volume cannot have a path that a record may have.
fn alike(path: &str, own_id: &str) -> Option<&'static str> {
    let first = path.split('/').next().and_then(|name| name.strip_prefix("pvc-"));
    let id = first.and_then(|rest| rest.split_once('_')).map(|(id, _)| id);
    id.filter(|id| storage::is_uuid(id) && *id != own_id)
        .map(|_| "its first name is pvc-UUID_ with the UUID of another volume, and would pass for that one")
}

#[cfg(test)]
#[path = "named_tests.rs"]
mod tests;
