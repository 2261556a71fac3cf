//! Directories that somebody else may change during the work.
//!
//! A process that holds such a directory open could exchange a directory in it for a link that leads out. So each file
//! is addressed by its name in a directory that is already open, and no link is ever followed. A path is only a text
//! for people here.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::Failure;

/// The flags for opening a file to read it.
pub(crate) const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// The flags for opening a directory to read it.
pub(crate) const FOLDER: OFlags = READ.union(OFlags::DIRECTORY);
/// The number of nested directories that are held open at one time. A deeper one is found again by its parent.
pub(crate) const HELD: usize = 64;

/// The identity of a directory, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// Returns the identity of an open directory.
pub(crate) fn identity(folder: impl AsFd) -> Result<Identity, Errno> {
    let stat = fs::fstat(folder)?;
    Ok(Identity { device: stat.st_dev, inode: stat.st_ino })
}

/// Opens a directory by its name, if nothing is mounted on it.
///
/// # Errors
/// [`Errno::XDEV`] for a mount point; [`Errno::LOOP`] or [`Errno::NOTDIR`] if it is no directory.
pub(crate) fn open(folder: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    match fs::openat2(&folder, name, FOLDER, Mode::empty(), ResolveFlags::NO_XDEV) {
        // The kernel is old, or a filter of system calls does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let opened = fs::openat(&folder, name, FOLDER, Mode::empty())?;
            match identity(&opened)?.device == identity(&folder)?.device {
                true => Ok(opened),
                false => Err(Errno::XDEV),
            }
        }
        outcome => outcome,
    }
}

/// Checks whether an open directory is empty, except for one name.
pub(crate) fn is_empty(folder: impl AsFd, but: Option<&CStr>) -> Result<bool, Errno> {
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if !matches!(name.to_bytes(), b"." | b"..") && but != Some(name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens the parent of an open directory, if it is still the expected one.
pub(crate) fn above(folder: impl AsFd, expected: Identity) -> Result<Option<OwnedFd>, Errno> {
    match fs::openat(folder, c"..", FOLDER, Mode::empty()) {
        Ok(above) => Ok((identity(&above)? == expected).then_some(above)),
        // Somebody else has removed the directory, and with it the way up.
        Err(Errno::NOENT | Errno::STALE) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A path, as its opened directory and the name there.
#[derive(Debug)]
pub(crate) struct Entry {
    pub folder: OwnedFd,
    pub name: CString,
}

/// Opens the directory that contains a path. Only the last name may belong to somebody else.
pub(crate) fn parent(path: &Path) -> Result<Entry, Failure> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Failure::usage(format!("`{}` does not end with a name", path.display())));
    };
    let name = CString::new(name.as_bytes())
        .map_err(|_| Failure::usage(format!("`{}` has a zero byte in it", path.display())))?;
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = fs::openat(CWD, parent, flags, Mode::empty()).map_err(|error| {
        let what = format!("the directory {} cannot be opened: {}", parent.display(), io::Error::from(error));
        Failure::retry(format!("{what}; see whether it is mounted in this pod"))
    })?;
    Ok(Entry { folder, name })
}

/// Makes a failure of its cause: a full disk, a missing permission, or a temporary problem.
pub(crate) fn failure(what: String, error: &io::Error) -> Failure {
    let text = format!("{what}: {error}");
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => Failure::no_capacity(text),
        _ => Failure::retry(text),
    }
}

/// The number of bytes of a path in a message.
const SHOWN: usize = 300;

/// Writes a path for people, from its names. Leaves out the middle of a long path, because the cause follows the path.
pub(crate) fn shown<'a>(names: impl Iterator<Item = &'a [u8]>) -> String {
    let names: Vec<_> = names.map(String::from_utf8_lossy).collect();
    let whole: usize = names.iter().map(|name| name.len() + 1).sum();
    if whole <= SHOWN {
        return names.join("/");
    }
    let fit = |names: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        let mut remaining = SHOWN / 2;
        let short = names.take_while(|name| {
            let fits = name.len() < remaining;
            remaining = remaining.saturating_sub(name.len() + 1);
            fits
        });
        short.map(str::to_owned).collect()
    };
    let begin = fit(&mut names.iter().map(|name| &**name));
    let mut end = fit(&mut names.iter().skip(begin.len()).rev().map(|name| &**name));
    end.reverse();
    let between = names.len() - begin.len() - end.len();
    let middle = vec![format!("[{between} more directories]")];
    [begin, middle, end].concat().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_path_keeps_its_ends() {
        let path = |names: &[&str]| shown(names.iter().map(|name| name.as_bytes()));
        assert_eq!(path(&["a", "b c", "d"]), "a/b c/d");
        let long = "x".repeat(100);
        assert_eq!(path(&["a", &long, &long, &long, "y", "z"]), format!("a/{long}/[1 more directories]/{long}/y/z"));
        let longest = "x".repeat(255);
        assert_eq!(path(&[&longest, &longest]), "[2 more directories]");
        assert_eq!(shown([&b"a\xff"[..], b"b"].into_iter()), "a\u{fffd}/b");
    }

    #[test]
    fn a_path_must_end_with_a_name() {
        for path in ["/", "..", "a/..", "."] {
            assert_eq!(parent(Path::new(path)).unwrap_err().code, flex_contract::exit::USAGE, "{path}");
        }
        let missing = parent(Path::new("/nonexistent/a")).unwrap_err();
        assert!(missing.code == flex_contract::exit::TEMPFAIL && missing.message.contains("is mounted"), "{missing}");
        assert_eq!(parent(Path::new("/tmp/a/")).unwrap().name.as_c_str(), c"a");
    }
}
