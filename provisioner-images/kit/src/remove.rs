//! Removing a directory that somebody may be changing while it is removed.
//!
//! Whoever held it open when its volume was still there, holds it now. So nothing here goes by a path: each thing is
//! addressed by its name in a directory that is open already ([`crate::below`]), and the way back up is taken only to the
//! very directory that the way down came from. How deep the directories are, their owner decides: what is remembered of
//! each level is its name, and only the outermost are held open.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, AtFlags, Dir, RenameFlags};
use rustix::io::Errno;

use crate::Failure;
use crate::below::{self, HELD, Identity};

/// So often something may be found in another state than it was left in, before it is left to a later run.
const PATIENCE: usize = 1000;

/// Removes what stands under each path, with all that is in it. What is not there is a success. A link is removed itself,
/// and nothing that is mounted is entered.
///
/// The directory that a path stands in must be the caller's own: only below the last name everything may be another's.
///
/// # Errors
/// What could not be removed of each path, and why. The rest of that path is left.
pub fn remove<P: AsRef<Path>>(paths: &[P]) -> Result<(), Failure> {
    let failures: Vec<Failure> = paths.iter().filter_map(|path| remove_one(path.as_ref()).err()).collect();
    let messages: Vec<&str> = failures.iter().map(|failure| failure.message.as_str()).collect();
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(Failure { code: first.code, message: messages.join("\n") }),
    }
}

/// Renames a file or directory, both by their names in directories that are open: a link is renamed itself, and what stands
/// at the new place is neither replaced nor entered.
///
/// # Errors
/// Why that is not possible.
pub fn rename(from: &Path, to: &Path) -> Result<(), Failure> {
    let (from_folder, from_name) = below::parent(from)?;
    let (to_folder, to_name) = below::parent(to)?;
    let renamed = match fs::renameat_with(&from_folder, &from_name, &to_folder, &to_name, RenameFlags::NOREPLACE) {
        // A file system that cannot tell by itself.
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
    let (parent, name) = below::parent(path)?;
    whole(&parent, &name).map_err(|trouble| told(path, trouble))
}

/// Removes all that is in an open directory, but for what it has under the name `but`. `path` is for people.
pub(crate) fn empty_but(path: &Path, top: &OwnedFd, but: Option<&CStr>) -> Result<(), Failure> {
    let mut patience = PATIENCE;
    loop {
        empty(top, but, &mut patience).map_err(|trouble| told(path, trouble))?;
        match below::is_empty(top, but).map_err(|error| told(path, at_the_top(error)))? {
            true => return Ok(()),
            false if patience == 0 => return Err(told(path, at_the_top(Cause::Restless))),
            false => patience -= 1,
        }
    }
}

fn told(path: &Path, Trouble { error, within }: Trouble) -> Failure {
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

/// What went wrong, and where below the path.
struct Trouble {
    error: Cause,
    within: Vec<CString>,
}

enum Cause {
    System(Errno),
    /// It never stays as it was left.
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
    let mut patience = PATIENCE;
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

/// Says that there is something else now than there was: no empty directory.
fn is_change(error: Errno) -> bool {
    matches!(error, Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR)
}

/// A directory on the way down to where the work is.
struct Level {
    folder: Identity,
    /// Held open, with how far it was read.
    open: Option<Dir>,
    /// Where the way goes on from here.
    next: CString,
}

/// Removes all that is in a directory, but for one name.
fn empty(top: &OwnedFd, but: Option<&CStr>, patience: &mut usize) -> Result<(), Trouble> {
    let mut levels: Vec<Level> = Vec::new();
    let mut here = Dir::read_from(top).map_err(at_the_top)?;
    loop {
        let down = match sweep(&mut here, but.filter(|_| levels.is_empty())) {
            Ok(down) => down,
            Err((name, error)) => return Err(trouble(levels, name, error)),
        };
        let moved = match down {
            Some((next, folder)) => descend(&mut levels, &mut here, next, folder),
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

/// How a step between two directories went.
enum Moved {
    On,
    /// Something else stands there than before: it is looked at once more.
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

/// Goes back to the directory above one that has been emptied, and removes this one.
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

/// A directory that is not empty, under its name.
type Full = (CString, OwnedFd);

/// Removes what stands in a directory, but for one name, up to the first directory that is not empty, which is opened.
fn sweep(here: &mut Dir, but: Option<&CStr>) -> Result<Option<Full>, (Option<CString>, Errno)> {
    while let Some(entry) = here.read() {
        let entry = entry.map_err(|error| (None, error))?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") || but == Some(name) {
            continue;
        }
        let told = |error| (Some(name.to_owned()), error);
        let folder = here.fd().map_err(told)?;
        match fs::unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => continue,
            Err(Errno::ISDIR) => {}
            Err(error) => return Err(told(error)),
        }
        match fs::unlinkat(folder, name, AtFlags::REMOVEDIR) {
            // What was exchanged meanwhile is found when the directory around it is not empty.
            Ok(()) | Err(Errno::NOENT | Errno::NOTDIR) => continue,
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(told(error)),
        }
        match below::open(folder, name) {
            Ok(opened) => return Ok(Some((name.to_owned(), opened))),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(told(error)),
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "remove_tests.rs"]
mod tests;
