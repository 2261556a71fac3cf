//! Volumes that are mount points of the run, because the config has `storage-mounts`.
//!
//! A run cannot remove, rename or replace such a directory, and sees no other. So a volume is neither renamed when it
//! is complete nor removed when it is deleted. A file in the directory says that it is an unfinished copy. A second
//! directory, which only a delete run gets, says that the first is deleted ([`storage::mark`]): a pod can give its volume
//! any mode, and any content. [`keep`] works on all directories, for a program with the whole base path.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
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
use crate::remove::HALF;
use crate::{copy, remove};

/// The mode of the base path, which the kubelet copies to each directory that it makes there for a run.
const FRESH: u32 = 0o1700;
/// The mode of an empty directory whose volume was deleted, and of the mark that says so.
const GONE: u32 = 0o1000;
/// The mode of a directory that the runtime makes.
const USUAL: u32 = 0o755;
/// The number of milliseconds after which the clock of a file system must have ticked.
const TICKS: u32 = 1000;

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
        let is_kept = |name: &str| is_volume(storage::marked(name).unwrap_or(name));
        let named = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_kept));
        let opened = named.filter_map(|entry| fs::openat(CWD, entry.path(), FOLDER, Mode::empty()).ok());
        opened.filter(|folder| fs::flock(folder, FlockOperation::LockShared).is_ok()).collect()
    }
}

/// Makes an existing directory the copy of another. A complete copy stays as it is. An unfinished copy is made again
/// from the beginning.
///
/// # Errors
/// If the original does not exist, or if something could not be copied. The message says what and why. The unfinished
/// copy is removed. A process that is killed leaves it, and marked as such.
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
    if let Err(failed) = copy::fill(from, source, target, HALF) {
        // The mark ends last, so that nothing of the copy is ever taken for a whole one.
        let emptied = remove::empty_but(to, &top, Some(HALF)).and_then(|()| {
            fs::unlinkat(&top, HALF, AtFlags::empty())
                .map_err(|error| below::failure(format!("emptying {}", to.display()), &error.into()))
        });
        return Err(failed.with_leftover(to, emptied));
    }
    // All data are on the disk. Only the time differs from that of the original now.
    let whole = fs::unlinkat(&top, HALF, AtFlags::empty()).and_then(|()| fs::futimens(&top, &times(&like)));
    whole.and_then(|()| fs::fsync(&top)).map_err(failed)
}

/// Empties a directory, and marks it as deleted.
///
/// # Errors
/// If something could not be removed. The message says why.
pub fn empty(path: &Path) -> Result<(), Failure> {
    let folder = open(path)?;
    let mark = path.file_name().and_then(|name| storage::mark(name.to_str()?)).map(|mark| path.with_file_name(mark));
    // Runs that see their own directory for another reason have none.
    let mark = mark.filter(|mark| mark.is_dir());
    let mark = mark.map(|mark| open(&mark).and_then(|opened| held(&opened, &mark).map(|()| opened))).transpose()?;
    remove::empty_but(path, &folder, Some(HALF))?;
    remove::empty_but(path, &folder, None)?;
    set_mode(&folder, GONE, path)?;
    let Some(mark) = mark else { return Ok(()) };
    // The mark is the younger of the two, until somebody uses the directory again. The clock of a file system ticks some
    // hundred times a second.
    for _ in 0..TICKS {
        set_mode(&mark, GONE, path)?;
        let stats = fs::fstat(&mark).and_then(|mark| Ok((mark, fs::fstat(&folder)?)));
        let (mark, directory) =
            stats.map_err(|error| below::failure(format!("looking at {}", path.display()), &error.into()))?;
        if is_from(&mark, &directory) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Failure::retry(format!("the clock of node {} stands still", node())))
}

/// Gives a directory, which belongs to the volume with this path, a mode.
fn set_mode(folder: &OwnedFd, mode: u32, path: &Path) -> Result<(), Failure> {
    fs::fchmod(folder, Mode::from_raw_mode(mode)).and_then(|()| fs::fsync(folder)).map_err(|error| match error {
        Errno::PERM => Failure::permission(format!(
            "the mode of {} cannot be changed: see run-as-user and the capabilities of pod-template",
            path.display()
        )),
        error => below::failure(format!("setting the mode of {}", path.display()), &io::Error::from(error)),
    })
}

/// Checks whether a volume with a directory of the run can be created. The directory must exist, and be no unfinished
/// copy. From then on, a mark of an earlier delete run says nothing about it.
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
    if below::is_empty(&folder, None).map_err(observed)? {
        set_mode(&folder, fs::fstat(&folder).map_err(observed)?.st_mode & 0o7777, path)?;
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

/// Checks whether an original exists, and is no empty directory that the kubelet made for a run.
///
/// The kubelet makes no directory that the orchestrator knows to exist, and the run has each of these a second time. Of
/// others the mode shows it in a base path that is [kept](keep), and elsewhere the age does: the kubelet makes the
/// directory after the target, while a volume or snapshot existed before somebody requested its copy.
fn is_original(source: &OwnedFd, target: &OwnedFd) -> Result<bool, Errno> {
    if !below::is_empty(source, None)? || is_known(below::identity(source)?) {
        return Ok(true);
    }
    let is_older = match (born(source), born(target)) {
        (Some(source), Some(target)) => source < target,
        // This file system does not record the time.
        _ => true,
    };
    Ok(is_older && !matches!(fs::fstat(source)?.st_mode & 0o7777, FRESH | GONE))
}

/// Checks whether the kubelet has found this directory, and did not make it.
fn is_known(directory: below::Identity) -> bool {
    let known = std::fs::read_dir(storage::EXISTING).into_iter().flatten().flatten();
    let identity = |path: PathBuf| below::identity(fs::openat(CWD, path, FOLDER, Mode::empty())?);
    known.into_iter().any(|entry| identity(entry.path()) == Ok(directory))
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

/// Checks whether a directory of this name may be that of a volume, also of one that has moved in, or of a snapshot.
fn is_volume(name: &str) -> bool {
    storage::is_of_one(name) || !name.starts_with('.')
}

/// Keeps a base path in order. No other user of the node can enter it. The empty directories of deleted volumes, and those
/// that Kubernetes has made for runs that made no volume, are removed after a while. Returns the removed directories.
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
        let (name, ended) = match storage::marked(name).filter(|name| is_volume(name)) {
            Some(marked) => (marked, end_mark(&folder, entry.file_name(), marked, age)),
            None if storage::is_of_one(name) => (name, end_untouched(&folder, entry.file_name(), age)),
            None => continue,
        };
        match ended {
            Ok(true) => removed.push(name.to_owned()),
            Ok(false) => {}
            Err(error) => trouble = Some(below::failure(format!("removing {}/{name}", base.display()), &error.into())),
        }
    }
    trouble.map_or(Ok(removed), Err)
}

/// Removes an empty directory that Kubernetes has made for a run, and that nobody has changed since. A run changes the
/// directory of its volume before it creates the volume. Returns whether the directory was removed.
fn end_untouched(base: &OwnedFd, name: &CStr, age: Duration) -> Result<bool, Errno> {
    let Some((folder, stat)) = locked(base, name)? else { return Ok(false) };
    match is_as_made(&folder, &stat) && has_age(&stat, age) {
        true => removed(base, name),
        false => Ok(false),
    }
}

/// Checks whether a directory is as kubelet or runtime make it. All changes within one tick of the kernel's clock have the
/// same time, so that the times alone prove nothing about a copy, or about a directory with another mode or owner.
fn is_as_made(folder: &OwnedFd, stat: &Stat) -> bool {
    let time = |seconds, nanos| u32::try_from(nanos).ok().map(|nanos| (seconds, nanos));
    let changed = time(stat.st_ctime, stat.st_ctime_nsec);
    let times = [time(stat.st_mtime, stat.st_mtime_nsec), born(folder)];
    changed.is_some()
        && times == [changed; 2]
        && (stat.st_uid, stat.st_gid) == (0, 0)
        && matches!(stat.st_mode & 0o7777, FRESH | USUAL)
}

/// Checks whether something was last changed so long ago.
fn has_age(stat: &Stat, age: Duration) -> bool {
    let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or(0));
    SystemTime::now().duration_since(changed).is_ok_and(|since| since >= age)
}

/// Removes the mark of a directory once no run uses it, and before it the directory, if that is deleted. Returns whether
/// the directory was removed.
fn end_mark(base: &OwnedFd, mark: &CStr, name: &str, age: Duration) -> Result<bool, Errno> {
    let Some((_locked, stat)) = locked(base, mark)? else { return Ok(false) };
    if !has_age(&stat, age) {
        return Ok(false);
    }
    let mut is_removed = false;
    if stat.st_mode & 0o7777 == GONE
        && let Some(exists) = found(base, name)?
        && is_from(&stat, &exists)
    {
        // Nobody has changed the directory since the delete run. A pod can set each of its times but this one.
        match locked(base, name)? {
            Some((_locked, exists)) if is_from(&stat, &exists) => is_removed = removed(base, name)?,
            // A run has just begun with it.
            _ => return Ok(false),
        }
    }
    removed(base, mark).map(|_| is_removed)
}

/// Checks whether a directory was last changed before it was marked.
fn is_from(mark: &Stat, directory: &Stat) -> bool {
    (directory.st_ctime, directory.st_ctime_nsec) < (mark.st_ctime, mark.st_ctime_nsec)
}

/// Returns what is known about a directory.
fn found<P: rustix::path::Arg>(base: &OwnedFd, name: P) -> Result<Option<Stat>, Errno> {
    match fs::statat(base, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok((FileType::from_raw_mode(stat.st_mode) == FileType::Directory).then_some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Locks a directory that no run has locked. A run that begins later sees that it is gone.
fn locked<P: rustix::path::Arg>(base: &OwnedFd, name: P) -> Result<Option<(OwnedFd, Stat)>, Errno> {
    let locked = fs::openat(base, name, FOLDER, Mode::empty()).and_then(|folder| {
        fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
        let stat = fs::fstat(&folder)?;
        Ok((folder, stat))
    });
    match locked {
        Ok(locked) => Ok(Some(locked)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes an empty directory. Returns whether it was there, and empty.
fn removed<P: rustix::path::Arg>(base: &OwnedFd, name: P) -> Result<bool, Errno> {
    match fs::unlinkat(base, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST | Errno::BUSY) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "mounted_tests.rs"]
mod tests;
