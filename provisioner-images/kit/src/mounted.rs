//! Volumes that are mount points of the run, because the config has `storage-mounts`.
//!
//! A run cannot remove, rename or replace such a directory, and sees no other. So a volume is neither renamed when it
//! is complete nor removed when it is deleted. The mode of the empty directory says that no volume uses it, and a file
//! in it says that it is an unfinished copy. [`keep`] works on all directories, for a program with the whole base path.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flex_contract::storage;
use k8s_openapi::api::core::v1::PersistentVolume;
use rustix::fs::{
    self, AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags, Timespec, Timestamps,
};
use rustix::io::Errno;

use crate::Failure;
use crate::below::{self, FOLDER};
use crate::{copy, remove};

/// The mode of the base path, which the kubelet copies to each directory that it makes there for a run.
const FRESH: u32 = 0o1700;
/// The mode of an empty directory whose volume was deleted.
const GONE: u32 = 0o1000;
/// The file that marks an unfinished copy. It is made first and removed last.
const HALF: &CStr = c".flex-partial";

/// The paths below which the run sees only its own storage.
#[derive(Clone, Debug, Default)]
pub struct Mounts(Vec<PathBuf>);

impl Mounts {
    /// Reads the paths from a text in the form of [`storage::VARIABLE`].
    pub fn read(text: &str) -> Self {
        Self(text.split(',').filter(|path| !path.is_empty()).map(PathBuf::from).collect())
    }

    /// Returns the paths of this process's run.
    pub fn of_run() -> Self {
        Self::read(&std::env::var(storage::VARIABLE).unwrap_or_default())
    }

    /// Checks whether a path is one of the run's directories, and not something in one.
    pub fn have(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.0.iter().any(|mount| mount == parent))
    }

    /// Locks each existing directory of the run, until the result is dropped. [`keep`] removes none of them, however
    /// long the run takes to begin with it.
    pub fn hold(&self) -> Vec<OwnedFd> {
        let entries = self.0.iter().filter_map(|mount| std::fs::read_dir(mount).ok()).flatten().flatten();
        let is_volume = |name: &str| storage::is_of_one(name) || !name.starts_with('.');
        let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_volume));
        let opened = named.filter_map(|entry| fs::openat(CWD, entry.path(), FOLDER, Mode::empty()).ok());
        opened.filter(|folder| fs::flock(folder, FlockOperation::LockShared).is_ok()).collect()
    }
}

/// Makes an existing directory the copy of another. A complete copy stays as it is. An unfinished copy is made again
/// from the beginning.
///
/// # Errors
/// If the original does not exist, or if something could not be copied. The message says what and why. The unfinished
/// copy is left, and marked as such.
pub fn fill(from: &Path, to: &Path) -> Result<(), Failure> {
    let failed = |error: Errno| below::failure(format!("copying {}", from.display()), &io::Error::from(error));
    let target = open(to)?;
    held(&target, to)?;
    let half = is_half(&target);
    if !half && !below::is_empty(&target, None).map_err(failed)? {
        return Ok(());
    }
    let source = match fs::openat(CWD, from, FOLDER, Mode::empty()) {
        Ok(source) if is_original(&source, &target).map_err(failed)? => source,
        Ok(_) | Err(Errno::NOENT) => {
            return Err(Failure::retry(format!(
                "{}, the source of the copy, is not on node {}",
                from.display(),
                node()
            )));
        }
        Err(error) => return Err(failed(error)),
    };
    let like = fs::fstat(&source).map_err(failed)?;
    if !half {
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        fs::openat(&target, HALF, new, Mode::RUSR).and_then(fs::fsync).map_err(failed)?;
    }
    let begun = fs::fchmod(&target, Mode::RWXU).and_then(|()| fs::fsync(&target));
    begun.and_then(|()| fs::flock(&target, FlockOperation::Unlock)).map_err(failed)?;
    remove::empty_but(to, &target, Some(HALF))?;
    let top = target.try_clone().map_err(|error| below::failure(format!("copying {}", from.display()), &error))?;
    copy::fill(from, source, target, HALF)?;
    // All data are on the disk. Only the time differs from that of the original now.
    let whole = fs::unlinkat(&top, HALF, AtFlags::empty()).and_then(|()| fs::futimens(&top, &times(&like)));
    whole.and_then(|()| fs::fsync(&top)).map_err(failed)
}

/// Empties a directory, and marks it as unused.
///
/// # Errors
/// If something could not be removed. The message says why.
pub fn empty(path: &Path) -> Result<(), Failure> {
    let folder = open(path)?;
    remove::empty_but(path, &folder, None)?;
    fs::fchmod(&folder, Mode::from_raw_mode(GONE)).and_then(|()| fs::fsync(&folder)).map_err(|error| match error {
        Errno::PERM => Failure::permission(format!(
            "{} is empty, and its mode cannot be changed: see run-as-user and the capabilities of pod-template",
            path.display()
        )),
        error => below::failure(format!("emptying {}", path.display()), &io::Error::from(error)),
    })
}

/// Checks whether a volume with a directory of the run can be created. The directory must exist, and be neither unused
/// nor an unfinished copy.
///
/// # Errors
/// If it cannot be created.
pub fn check(mounts: &Mounts, volume: &PersistentVolume) -> Result<(), Failure> {
    let spec = volume.spec.as_ref();
    let local = spec.and_then(|spec| spec.local.as_ref()).map(|local| &local.path);
    let path = local.or(spec.and_then(|spec| spec.host_path.as_ref()).map(|host_path| &host_path.path));
    let Some(path) = path.map(Path::new) else { return Ok(()) };
    if mounts.have(path) {
        return check_directory(path);
    }
    // The storage may be mounted at another path than on the node.
    let below = |mount: &PathBuf| path.file_name().map(|name| mount.join(name)).filter(|path| path.is_dir());
    let candidates: Vec<PathBuf> = mounts.0.iter().filter_map(below).collect();
    let checked: Vec<_> = candidates.iter().map(|path| check_directory(path)).collect();
    if let Some(failed) = checked.into_iter().reduce(|one, other| one.or(other)) {
        return failed;
    }
    // Somebody may have removed `storage-mounts` from the config since a copy was begun.
    let observed = fs::openat(CWD, path, FOLDER, Mode::empty());
    match observed.is_ok_and(|folder| is_half(&folder)) {
        true => Err(Failure::retry(format!("{} is half a copy", path.display()))),
        false => Ok(()),
    }
}

/// Checks whether a directory is a complete volume.
fn check_directory(path: &Path) -> Result<(), Failure> {
    let folder = open(path)?;
    held(&folder, path)?;
    let observed = |error: Errno| below::failure(format!("looking at {}", path.display()), &io::Error::from(error));
    if is_nobody_s(&folder).map_err(observed)? {
        return Err(Failure::never(format!(
            "{} is empty and has the mode of a directory that is nobody's: give it the mode of a volume first",
            path.display()
        )));
    }
    match is_half(&folder) {
        true => Err(Failure::retry(format!("{} is half a copy", path.display()))),
        false => Ok(()),
    }
}

fn is_half(folder: &OwnedFd) -> bool {
    fs::statat(folder, HALF, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Opens a directory of the run.
fn open(path: &Path) -> Result<OwnedFd, Failure> {
    fs::openat(CWD, path, FOLDER, Mode::empty()).map_err(|error| match error {
        Errno::NOENT => Failure::config(format!(
            "{} is not in this pod: name its directory in the config's key storage-mounts",
            path.display()
        )),
        error => below::failure(format!("opening {}", path.display()), &io::Error::from(error)),
    })
}

/// Locks a directory, so that nobody takes it for an empty unused one while it is open. The directory may have been
/// removed just before. Files that are made in it then are nowhere.
fn held(folder: &OwnedFd, path: &Path) -> Result<(), Failure> {
    let stat = fs::flock(folder, FlockOperation::LockShared).and_then(|()| fs::fstat(folder));
    let stat = stat.map_err(|error| below::failure(format!("locking {}", path.display()), &io::Error::from(error)))?;
    match stat.st_nlink {
        0 => Err(Failure::retry(format!("{} was removed as an empty directory when this run began", path.display()))),
        _ => Ok(()),
    }
}

/// Checks whether a directory is empty and unused by its mode. No run has made it a volume, or its volume was deleted.
fn is_nobody_s(folder: impl AsFd) -> Result<bool, Errno> {
    Ok(has_such_a_mode(&fs::fstat(&folder)?) && below::is_empty(folder, None)?)
}

fn has_such_a_mode(stat: &Stat) -> bool {
    matches!(stat.st_mode & 0o7777, FRESH | GONE)
}

/// Checks whether an original exists, and is no empty directory that the kubelet made for a run.
///
/// In a base path that is [kept](keep), the mode of such a directory shows this. In others its age does: the kubelet
/// makes it after the target, while a volume or snapshot existed before somebody requested its copy.
fn is_original(source: &OwnedFd, target: &OwnedFd) -> Result<bool, Errno> {
    if !below::is_empty(source, None)? {
        return Ok(true);
    }
    let is_older = match (born(source), born(target)) {
        (Some(source), Some(target)) => source < target,
        // This file system does not record the time.
        _ => true,
    };
    Ok(is_older && !has_such_a_mode(&fs::fstat(source)?))
}

/// Returns the time when a directory was made, in seconds and nanoseconds.
fn born(folder: &OwnedFd) -> Option<(i64, u32)> {
    let stat = fs::statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
    let is_known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    is_known.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec))
}

fn node() -> String {
    std::env::var(flex_contract::variable::POD_NODE.name).unwrap_or_else(|_| "?".to_owned())
}

fn times(like: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(like.st_atime as _, like.st_atime_nsec as _),
        last_modification: time(like.st_mtime as _, like.st_mtime_nsec as _),
    }
}

/// Keeps a base path in order. No other user of the node can enter it. The directories that the kubelet makes in it are
/// marked as unused, and empty ones are removed after they were unused for a while. Returns the removed directories.
///
/// # Errors
/// If something could not be done. The message says why. All else is done.
pub fn keep(base: &Path, age: Duration) -> Result<Vec<String>, Failure> {
    let failed = |error: Errno| below::failure(format!("keeping {}", base.display()), &io::Error::from(error));
    let folder = fs::openat(CWD, base, FOLDER, Mode::empty()).map_err(failed)?;
    if fs::fstat(&folder).map_err(failed)?.st_mode & 0o7777 != FRESH {
        fs::fchmod(&folder, Mode::from_raw_mode(FRESH)).map_err(failed)?;
    }
    let mut removed = Vec::new();
    let mut trouble = None;
    for entry in Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        // A directory with another name may have moved in. It is nobody's only once its volume was deleted.
        let modes: &[u32] = if storage::is_of_one(name) { &[FRESH, GONE] } else { &[GONE] };
        if name.starts_with('.') && !storage::is_of_one(name) {
            continue;
        }
        match remove_nobody_s(&folder, entry.file_name(), modes, age) {
            Ok(true) => removed.push(name.to_owned()),
            Ok(false) => {}
            Err(error) => trouble = Some(below::failure(format!("removing {}/{name}", base.display()), &error.into())),
        }
    }
    trouble.map_or(Ok(removed), Err)
}

/// Removes a directory that has been unused for this time, by one of these modes. Returns whether it was removed.
fn remove_nobody_s(base: &OwnedFd, name: &CStr, modes: &[u32], age: Duration) -> Result<bool, Errno> {
    let stat = fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let old = |stat: &Stat| {
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
        SystemTime::now().duration_since(changed).is_ok_and(|since| since >= age)
    };
    let is_unused = |stat: &Stat| modes.contains(&(stat.st_mode & 0o7777));
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || !is_unused(&stat) || !old(&stat) {
        return Ok(false);
    }
    let gone = |error| matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN);
    // A run that has just begun locks the directory, or sees that it is gone.
    let held = fs::openat(base, name, FOLDER, Mode::empty())
        .and_then(|folder| fs::flock(&folder, FlockOperation::NonBlockingLockExclusive).map(|()| folder));
    let folder = match held {
        Ok(folder) => folder,
        Err(error) if gone(error) => return Ok(false),
        Err(error) => return Err(error),
    };
    if !is_unused(&fs::fstat(&folder)?) {
        return Ok(false);
    }
    match fs::unlinkat(base, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
        Err(error) if gone(error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "mounted_tests.rs"]
mod tests;
