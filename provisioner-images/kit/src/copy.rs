//! The copy of a directory to which somebody may be writing.
//!
//! A process that has the original mounted could exchange a directory for a link that leads out. So nothing here uses a
//! path: each file is opened by its name in a directory that is already open, and never through a link
//! ([`crate::below`]).

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::below::{self, FOLDER, HELD, Identity, READ};
use crate::links::Links;
use crate::{Failure, attributes, remove};

/// Copies a directory with all its contents to a place where nothing exists: data, links, owners, modes, times, extended
/// attributes of users and access control lists. Names of one file are names of one file in the copy. If the file
/// system can, both share their blocks. Holes remain holes. Sockets and devices are left out. After the return, all data
/// are on the disk.
///
/// # Errors
/// If something could not be copied. The message says what and why. The unfinished copy is removed, so that a full disk
/// does not stay full.
pub fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let begun = begin(from, to).map_err(|error| message(from, at_the_top(error)))?;
    into(begun.source, begun.target, None)
        .map_err(|trouble| message(from, trouble).with_leftover(to, remove::remove(&[to])))
}

/// Copies the contents of an open directory into another one, which is empty except for the name `but`. Nothing with
/// that name is copied. `from` is the path of the original, for people.
pub(crate) fn fill(from: &Path, source: OwnedFd, target: OwnedFd, but: &CStr) -> Result<(), Failure> {
    into(source, target, Some(but)).map_err(|trouble| message(from, trouble))
}

fn message(from: &Path, Trouble { error, within }: Trouble) -> Failure {
    let from = from.as_os_str().as_encoded_bytes();
    let path = below::shown(std::iter::once(from).chain(within.iter().map(|name| name.to_bytes())));
    below::failure(format!("copying {path}"), &error)
}

/// An error, with its place in the original.
struct Trouble {
    error: io::Error,
    within: Vec<CString>,
}

/// A directory of the original, and its copy.
struct Pair {
    source: OwnedFd,
    target: OwnedFd,
}

/// A directory on the way down to the present place.
struct Level {
    source: Identity,
    target: Identity,
    /// The directory, if it is held open.
    open: Option<Pair>,
    /// The name of the next directory on the way.
    next: CString,
    /// The directories in it that are not copied yet.
    waiting: Vec<CString>,
}

/// Makes the directory of the copy. An existing one is not touched.
fn begin(from: &Path, to: &Path) -> Result<Pair, Errno> {
    let open = |path| fs::openat(CWD, path, FOLDER, Mode::empty());
    let source = open(from)?;
    fs::mkdirat(CWD, to, Mode::RWXU)?;
    Ok(Pair { source, target: open(to)? })
}

fn at_the_top(error: Errno) -> Trouble {
    Trouble { error: error.into(), within: Vec::new() }
}

/// Copies depth first, with a stack of its own, because the owner decides how deep the directories are.
fn into(source: OwnedFd, target: OwnedFd, but: Option<&CStr>) -> Result<(), Trouble> {
    let clone = |fd: &OwnedFd| fd.try_clone().map_err(|error| Trouble { error, within: Vec::new() });
    let top = clone(&target)?;
    let mut links = Links::new(clone(&target)?);
    let mut levels: Vec<Level> = Vec::new();
    let mut here = Pair { source, target };
    let mut waiting = contents(&here, but, &mut links).map_err(|(name, error)| trouble(&levels, name, error))?;
    loop {
        if let Some(next) = waiting.pop() {
            let entered = enter(&here, &next).and_then(|inner| Ok(inner.zip(Some(identities(&here)?))));
            let entered = entered.map_err(|error| trouble(&levels, Some(next.clone()), error.into()))?;
            // Somebody has removed the directory meanwhile.
            let Some((inner, (source, target))) = entered else { continue };
            let outer = std::mem::replace(&mut here, inner);
            let waiting_there = std::mem::take(&mut waiting);
            let open = (levels.len() < HELD).then_some(outer);
            levels.push(Level { source, target, open, next, waiting: waiting_there });
            waiting = contents(&here, None, &mut links).map_err(|(name, error)| trouble(&levels, name, error))?;
        } else {
            // This comes last, because each file that is made in a directory changes its times.
            if levels.is_empty() {
                links.end().map_err(at_the_top)?;
            }
            let dressed = fs::fstat(&here.source).and_then(|like| dress(&here.source, &here.target, &like));
            dressed.map_err(|error| trouble(&levels, None, error.into()))?;
            let Some(level) = levels.pop() else { break };
            here = leave(here, level.open, level.source, level.target)
                .map_err(|error| trouble(&levels, Some(level.next), error))?;
            waiting = level.waiting;
        }
    }
    fs::syncfs(&top).map_err(at_the_top)
}

fn trouble(levels: &[Level], name: Option<CString>, error: io::Error) -> Trouble {
    Trouble { error, within: levels.iter().map(|level| level.next.clone()).chain(name).collect() }
}

fn identities(pair: &Pair) -> Result<(Identity, Identity), Errno> {
    Ok((below::identity(&pair.source)?, below::identity(&pair.target)?))
}

/// Opens a directory of the original and makes its copy. Returns `None` if the directory is gone.
fn enter(here: &Pair, name: &CStr) -> Result<Option<Pair>, Errno> {
    let source = match fs::openat(&here.source, name, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    fs::mkdirat(&here.target, name, Mode::RWXU)?;
    let target = fs::openat(&here.target, name, FOLDER, Mode::empty())?;
    Ok(Some(Pair { source, target }))
}

/// Returns to the parent of a directory that was copied.
fn leave(here: Pair, open: Option<Pair>, source: Identity, target: Identity) -> io::Result<Pair> {
    if let Some(open) = open {
        return Ok(open);
    }
    match (below::above(&here.source, source)?, below::above(&here.target, target)?) {
        (Some(source), Some(target)) => Ok(Pair { source, target }),
        _ => Err(io::Error::other("it was moved away while it was copied")),
    }
}

/// Copies the files of a directory, except for one name. Returns the names of its directories.
fn contents(here: &Pair, but: Option<&CStr>, links: &mut Links) -> Result<Vec<CString>, (Option<CString>, io::Error)> {
    let mut directories = Vec::new();
    let whole = |error: Errno| (None, error.into());
    for entry in Dir::read_from(&here.source).map_err(whole)? {
        let entry = entry.map_err(whole)?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || but == Some(name) {
            continue;
        }
        let found = fs::statat(&here.source, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
        let copied = found.and_then(|stat| match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                directories.push(name.to_owned());
                Ok(())
            }
            kind => thing(here, name, kind, &stat, links),
        });
        match copied {
            // Somebody has removed the file meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err((Some(name.to_owned()), error)),
            Ok(()) => {}
        }
    }
    Ok(directories)
}

/// Copies a file that is no directory. After it is opened, its kind is checked again.
fn thing(here: &Pair, name: &CStr, kind: FileType, stat: &Stat, links: &mut Links) -> io::Result<()> {
    let Pair { source: from, target: to } = here;
    match kind {
        FileType::RegularFile => {
            let source = fs::openat(from, name, READ, Mode::empty())?;
            let stat = fs::fstat(&source)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
                return Err(io::Error::other("it was exchanged while it was copied"));
            }
            if links.link(&source, &stat, to, name)? {
                return Ok(());
            }
            let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let target = fs::openat(to, name, new, Mode::RUSR | Mode::WUSR)?;
            let (source, target) = (File::from(source), File::from(target));
            data(&source, &target)?;
            dress(&source, &target, &stat)?;
            Ok(links.note(&source, &stat, to, name)?)
        }
        FileType::Symlink => {
            let target = fs::readlinkat(from, name, Vec::new())?;
            fs::symlinkat(&target, to, name)?;
            Ok(dress_unopened(to, name, stat)?)
        }
        FileType::Fifo => {
            let mode = Mode::from_raw_mode(stat.st_mode);
            fs::mknodat(to, name, FileType::Fifo, mode, 0)?;
            // The process has a mask for the modes of new files.
            fs::chmodat(to, name, mode, AtFlags::empty())?;
            Ok(dress_unopened(to, name, stat)?)
        }
        _ => Ok(()),
    }
}

/// Copies the content of a file: shares the blocks, or else copies all parts that are no holes.
fn data(from: &File, to: &File) -> io::Result<()> {
    if fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    let size = from.metadata()?.len();
    let mut at = 0;
    while at < size {
        let begin = match fs::seek(from, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // No data follow.
            Err(Errno::NXIO) => break,
            // The file system does not know holes.
            Err(Errno::INVAL) => at,
            Err(error) => return Err(error.into()),
        };
        let end = fs::seek(from, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
        for file in [from, to] {
            fs::seek(file, SeekFrom::Start(begin))?;
        }
        let copied = io::copy(&mut io::Read::take(from, end - begin), &mut &*to)?;
        if copied == 0 {
            // Somebody has shortened the file meanwhile.
            break;
        }
        at = begin + copied;
    }
    // A hole may be at the end of the file.
    to.set_len(size)
}

/// Copies attributes, owner, mode and times. The attributes come before the owner, because only the owner may set them.
/// The owner comes before mode and capabilities, because a change of the owner clears them.
fn dress(from: impl AsFd, to: impl AsFd, like: &Stat) -> Result<(), Errno> {
    let (from, to) = (from.as_fd(), to.as_fd());
    attributes::copy(from, to)?;
    let (owner, group) = owners(like);
    fs::fchown(to, Some(owner), Some(group))?;
    fs::fchmod(to, Mode::from_raw_mode(like.st_mode))?;
    attributes::copy_capabilities(from, to)?;
    fs::futimens(to, &times(like))
}

/// Sets owner and times of a file that must not be opened. A link leads elsewhere, and a pipe waits for its other end.
fn dress_unopened(folder: &OwnedFd, name: &CStr, like: &Stat) -> Result<(), Errno> {
    let (owner, group) = owners(like);
    fs::chownat(folder, name, Some(owner), Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
    fs::utimensat(folder, name, &times(like), AtFlags::SYMLINK_NOFOLLOW)
}

fn owners(like: &Stat) -> (fs::Uid, fs::Gid) {
    (fs::Uid::from_raw(like.st_uid), fs::Gid::from_raw(like.st_gid))
}

fn times(like: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    Timestamps {
        last_access: time(like.st_atime as _, like.st_atime_nsec as _),
        last_modification: time(like.st_mtime as _, like.st_mtime_nsec as _),
    }
}

#[cfg(test)]
#[path = "copy_tests.rs"]
mod tests;
