//! The removal of a directory that somebody may be changing.
//!
//! A process that opened the directory when its volume existed may still hold it open. So nothing here uses a path:
//! each file is addressed by its name in a directory that is already open ([`crate::below`]). The way back up leads
//! only to the very directory from which the way down began. Users decide how deep the directories are: only the name
//! of each level is kept in memory, and only the outermost levels are held open.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, Mode, RenameFlags};
use rustix::io::Errno;

use crate::Failure;
use crate::below::{self, FOLDER, HELD, Identity};

/// The file that marks an unfinished copy. It is made first and removed last.
pub(crate) const HALF: &CStr = c".flex-partial";
/// The number of unexpected changes after which the removal is left to a later run.
const MAX_CHANGES: usize = 1000;

/// Removes the file or directory at each path, with all its contents. A missing one is a success. A link is removed
/// itself, and mounted file systems are not entered.
///
/// The parent directory of each path must be the caller's own. Everything below the last name may belong to somebody
/// else.
///
/// # Errors
/// If something could not be removed. The message says what of each path, and why. The rest of that path is left.
pub fn remove<P: AsRef<Path>>(paths: &[P]) -> Result<(), Failure> {
    Failure::all(paths.iter().map(|path| remove_one(path.as_ref())))
}

/// Renames a file or directory by names in open directories. A link is renamed itself, and nothing at the new place is
/// replaced or entered.
///
/// # Errors
/// If the rename is not possible. The message says why.
pub fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    let below::Entry { folder: from_folder, name: from_name } = below::parent(from)?;
    let below::Entry { folder: to_folder, name: to_name } = below::parent(to)?;
    let renamed = match fs::renameat_with(&from_folder, &from_name, &to_folder, &to_name, RenameFlags::NOREPLACE) {
        // The file system cannot check this itself.
        Err(Errno::INVAL | Errno::NOSYS) => match fs::statat(&to_folder, &to_name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => fs::renameat(&from_folder, &from_name, &to_folder, &to_name),
            Err(error) => Err(error),
        },
        outcome => outcome,
    };
    renamed.map_err(|error| {
        below::failure(format!("renaming {} to {}", from.display(), to.display()), &io::Error::from(error))
    })
}

fn remove_one(path: &Path) -> Result<(), Failure> {
    let below::Entry { folder: parent, name } = below::parent(path)?;
    // A process that is killed leaves the rest of an unfinished copy with its mark.
    if let Ok(top) = fs::openat(&parent, &name, FOLDER, Mode::empty())
        && fs::statat(&top, HALF, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    {
        empty_but(path, &top, Some(HALF))?;
    }
    whole(&parent, &name).map_err(|trouble| message(path, trouble))
}

/// Removes all contents of an open directory, except for the name `but`. `path` is for people.
pub(crate) fn empty_but(path: &Path, top: &OwnedFd, but: Option<&CStr>) -> Result<(), Failure> {
    let mut patience = MAX_CHANGES;
    loop {
        empty(top, but, &mut patience).map_err(|trouble| message(path, trouble))?;
        match below::is_empty(top, but).map_err(|error| message(path, at_the_top(error)))? {
            true => return Ok(()),
            false if patience == 0 => return Err(message(path, at_the_top(Cause::Restless))),
            false => patience -= 1,
        }
    }
}

fn message(path: &Path, Trouble { error, within }: Trouble) -> Failure {
    let path = path.as_os_str().as_encoded_bytes();
    let path = below::shown(std::iter::once(path).chain(within.iter().map(|name| name.to_bytes())));
    let what = format!("removing {path}");
    match error {
        Cause::System(Errno::BUSY | Errno::XDEV) => Failure::retry(format!(
            "{what}: another file system is mounted there, and its content is not touched; unmount it on the node"
        )),
        Cause::System(error @ (Errno::ACCESS | Errno::PERM)) => Failure::permission(format!(
            "{what}: {}; the run's user may not do that, or the file is immutable: see run-as-user and the \
             capabilities of pod-template",
            io::Error::from(error)
        )),
        Cause::System(error) => below::failure(what, &io::Error::from(error)),
        Cause::Restless => {
            Failure::retry(format!("{what}: somebody changes it all the time; end the processes that still use it"))
        }
    }
}

/// An error, with its place below the path.
struct Trouble {
    error: Cause,
    within: Vec<CString>,
}

enum Cause {
    System(Errno),
    /// The contents change all the time.
    Restless,
}

impl From<Errno> for Cause {
    fn from(error: Errno) -> Self {
        Cause::System(error)
    }
}

fn at_the_top(error: impl Into<Cause>) -> Trouble {
    Trouble { error: error.into(), within: Vec::new() }
}

fn whole(parent: &OwnedFd, name: &CStr) -> Result<(), Trouble> {
    let mut patience = MAX_CHANGES;
    while patience > 0 {
        match fs::unlinkat(parent, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(at_the_top(error)),
        }
        match below::open(parent, name) {
            Ok(top) => empty(&top, None, &mut patience)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(at_the_top(error)),
        }
        match fs::unlinkat(parent, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(error) if is_change(error) => patience = patience.saturating_sub(1),
            Err(error) => return Err(at_the_top(error)),
        }
    }
    Err(at_the_top(Cause::Restless))
}

/// Checks whether an error means that something has changed: the name is no empty directory any more.
fn is_change(error: Errno) -> bool {
    matches!(error, Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR)
}

/// A directory on the way down to the present place.
struct Level {
    folder: Identity,
    /// The directory, if it is held open, with the read position.
    open: Option<Dir>,
    /// The name of the next directory on the way.
    next: CString,
}

/// Removes all contents of a directory, except for one name.
fn empty(top: &OwnedFd, but: Option<&CStr>, patience: &mut usize) -> Result<(), Trouble> {
    let mut levels: Vec<Level> = Vec::new();
    let mut here = Dir::read_from(top).map_err(at_the_top)?;
    loop {
        let down = match sweep(&mut here, but.filter(|_| levels.is_empty())) {
            Ok(down) => down,
            Err((name, error)) => return Err(trouble(levels, name, error)),
        };
        let moved = match down {
            Some(Full { name, folder }) => descend(&mut levels, &mut here, name, folder),
            None => match levels.pop() {
                None => return Ok(()),
                Some(level) => ascend(level, &mut here),
            },
        };
        match moved {
            Ok(Moved::On) => continue,
            Ok(Moved::Again) => {}
            Ok(Moved::Lost) => {
                levels.clear();
                here = Dir::read_from(top).map_err(at_the_top)?;
            }
            Err((name, error)) => return Err(trouble(levels, Some(name), error)),
        }
        *patience = patience.saturating_sub(1);
        if *patience == 0 {
            return Err(trouble(levels, None, Cause::Restless));
        }
    }
}

fn trouble(levels: Vec<Level>, name: Option<CString>, error: impl Into<Cause>) -> Trouble {
    let within = levels.into_iter().map(|level| level.next).chain(name).collect();
    Trouble { error: error.into(), within }
}

/// The result of a step between two directories.
enum Moved {
    On,
    /// Something has changed, and the step is tried again.
    Again,
    /// The directory was moved away, and the way back up is not known.
    Lost,
}

fn descend(levels: &mut Vec<Level>, here: &mut Dir, next: CString, folder: OwnedFd) -> Result<Moved, (CString, Errno)> {
    let step = || -> Result<(Identity, Dir), Errno> { Ok((below::identity(here.fd()?)?, Dir::new(folder)?)) };
    let (folder, inner) = step().map_err(|error| (next.clone(), error))?;
    let outer = std::mem::replace(here, inner);
    levels.push(Level { folder, open: (levels.len() < HELD).then_some(outer), next });
    Ok(Moved::On)
}

/// Returns to the parent of an emptied directory, and removes the directory.
fn ascend(level: Level, here: &mut Dir) -> Result<Moved, (CString, Errno)> {
    let Level { folder, open, next } = level;
    let step = || -> Result<Moved, Errno> {
        *here = match open {
            Some(open) => open,
            None => match below::above(here.fd()?, folder)? {
                Some(above) => Dir::new(above)?,
                None => return Ok(Moved::Lost),
            },
        };
        match fs::unlinkat(here.fd()?, &next, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(Moved::On),
            Err(error) if is_change(error) => {
                here.rewind();
                Ok(Moved::Again)
            }
            Err(error) => Err(error),
        }
    };
    step().map_err(|error| (next.clone(), error))
}

/// A directory that is not empty.
struct Full {
    name: CString,
    folder: OwnedFd,
}

/// Removes the contents of a directory, except for one name, up to the first directory that is not empty. Returns that
/// directory, opened.
fn sweep(here: &mut Dir, but: Option<&CStr>) -> Result<Option<Full>, (Option<CString>, Errno)> {
    while let Some(entry) = here.read() {
        let entry = entry.map_err(|error| (None, error))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || but == Some(name) {
            continue;
        }
        let message = |error| (Some(name.to_owned()), error);
        let folder = here.fd().map_err(message)?;
        match fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(message(error)),
        }
        match fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            // An exchange meanwhile is noticed later, because the directory around it is not empty.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(message(error)),
        }
        match below::open(folder, name) {
            Ok(opened) => return Ok(Some(Full { name: name.to_owned(), folder: opened })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(message(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
