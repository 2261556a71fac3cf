//! Files and directories below an open directory. A config, or a program that has run, chose their names. No name leads out
//! of the directory: each part of a path is opened alone, and is never a link.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, RawMode, Uid};
use rustix::{fs, io::Errno};

/// The mode of a directory that is made on the way to another one.
const ON_THE_WAY: RawMode = 0o755;

/// An open directory.
#[derive(Debug)]
pub(crate) struct Below(OwnedFd);

/// A directory that a caller asked for.
pub(crate) struct Made {
    /// The directory.
    pub directory: Below,
    /// It was missing.
    pub is_new: bool,
}

impl Below {
    /// Opens a directory at a path that a person or the desk itself has chosen.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        fs::open(directory, flags, Mode::empty()).map(Below).map_err(|error| named(error, directory))
    }

    /// Opens a directory that exists.
    pub fn find(&self, path: &Path) -> io::Result<Self> {
        self.walk(path, false, None).map(|made| made.directory)
    }

    /// Opens a directory, and makes what is missing of its path. What is made belongs to `owner`.
    pub fn make(&self, path: &Path, owner: Option<u32>) -> io::Result<Made> {
        self.walk(path, true, owner)
    }

    fn walk(&self, path: &Path, makes: bool, owner: Option<u32>) -> io::Result<Made> {
        let mut made = Made { directory: Below(self.0.try_clone()?), is_new: false };
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(leads_out(path)) };
            let at = &made.directory.0;
            let is_new = makes
                && match fs::mkdirat(at, name, Mode::from_raw_mode(ON_THE_WAY)) {
                    Ok(()) => true,
                    Err(Errno::EXIST) => false,
                    Err(error) => return Err(named(error, path)),
                };
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
            let next = Below(fs::openat(at, name, flags, Mode::empty()).map_err(|error| named(error, path))?);
            if is_new {
                next.set(Some(ON_THE_WAY), owner)?;
            }
            made = Made { directory: next, is_new };
        }
        Ok(made)
    }

    /// Sets the mode and the owner of the directory. Only root can give a directory to somebody.
    pub fn set(&self, mode: Option<RawMode>, owner: Option<u32>) -> io::Result<()> {
        if let Some(mode) = mode {
            fs::fchmod(&self.0, Mode::from_raw_mode(mode))?;
        }
        give(self.0.as_fd(), owner)
    }

    /// Returns the mode and the owner of the directory.
    pub fn mode_and_owner(&self) -> io::Result<(RawMode, u32)> {
        let found = fs::fstat(&self.0)?;
        Ok((Mode::from_raw_mode(RawMode::try_from(found.st_mode).unwrap_or_default()).as_raw_mode(), found.st_uid))
    }

    /// Writes a file with this mode, in place of one that is there.
    pub fn write(&self, path: &Path, text: &[u8], mode: RawMode, owner: Option<u32>) -> io::Result<()> {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let name = name.ok_or_else(|| leads_out(path))?;
        let Made { directory, .. } = self.make(folder, owner)?;
        match fs::unlinkat(&directory.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(named(error, path)),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = fs::openat(&directory.0, name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(made.map_err(|error| named(error, path))?);
        file.write_all(text)?;
        fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        give(file.as_fd(), owner)
    }

    /// Opens a file as a place for a mount, and makes it if it is missing.
    #[cfg(target_os = "linux")]
    pub fn make_file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let (Made { directory, .. }, name) = (self.make(folder, None)?, name.ok_or_else(|| leads_out(path))?);
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        match fs::openat(&directory.0, name, flags, Mode::RUSR | Mode::RGRP | Mode::ROTH) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(named(error, path)),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&directory.0, name, flags, Mode::empty()).map_err(|error| named(error, path))?;
        match fs::FileType::from_raw_mode(fs::fstat(&file)?.st_mode) {
            fs::FileType::Symlink | fs::FileType::Directory => Err(named(Errno::NOTDIR, path)),
            _ => Ok(file),
        }
    }

    /// Opens a file for reading. A file of another kind, such as a pipe, is refused.
    pub fn read(&self, path: &Path) -> io::Result<File> {
        self.existing(path, OFlags::RDONLY)
    }

    /// Opens a file that exists for changes in its place. A file of another kind is refused.
    pub fn change(&self, path: &Path) -> io::Result<File> {
        self.existing(path, OFlags::RDWR)
    }

    fn existing(&self, path: &Path, access: OFlags) -> io::Result<File> {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let folder = self.find(folder)?;
        let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&folder.0, name.ok_or_else(|| leads_out(path))?, flags, Mode::empty());
        let file = File::from(file.map_err(|error| named(error, path))?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no file", path.display()))),
        }
    }

    /// Removes an empty file, or an empty directory, and leaves everything else.
    pub fn remove_empty(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let (folder, name) = (self.find(folder)?, name.ok_or_else(|| leads_out(path))?);
        let found = fs::statat(&folder.0, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = fs::FileType::from_raw_mode(found.st_mode);
        let flags = match kind {
            fs::FileType::Directory => AtFlags::REMOVEDIR,
            fs::FileType::RegularFile if found.st_size == 0 => AtFlags::empty(),
            _ => return Ok(()),
        };
        Ok(fs::unlinkat(&folder.0, name, flags)?)
    }

    /// Checks whether something is at a path, also a link.
    pub fn has(&self, path: &Path) -> bool {
        let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name());
        let found = self.find(folder).ok().zip(name);
        found.is_some_and(|(folder, name)| fs::statat(&folder.0, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }
}

impl AsFd for Below {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn give(file: BorrowedFd<'_>, owner: Option<u32>) -> io::Result<()> {
    let Some(owner) = owner else { return Ok(()) };
    Ok(fs::fchown(file, Some(Uid::from_raw(owner)), Some(Gid::from_raw(owner)))?)
}

fn leads_out(path: &Path) -> io::Error {
    let why = format!("{} leads out of its directory: write a path within, without `..`", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Says in an error which path it is about. A link in a path is refused as something that is no directory.
fn named(error: Errno, path: &Path) -> io::Error {
    let why = match error {
        Errno::LOOP | Errno::NOTDIR => {
            "it leads over a link or a file, which the desk does not follow: remove that".into()
        }
        other => io::Error::from(other).to_string(),
    };
    io::Error::new(io::Error::from(error).kind(), format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir, read_to_string, write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn no_path_leads_out_and_nothing_is_made_there() {
        let base = tempfile::tempdir().unwrap();
        let (inside, outside) = (base.path().join("in"), base.path().join("out"));
        create_dir(&inside).unwrap();
        create_dir(&outside).unwrap();
        write(outside.join("file"), "theirs").unwrap();
        symlink(&outside, inside.join("link")).unwrap();
        symlink("../out", inside.join("relative")).unwrap();
        symlink(outside.join("file"), inside.join("to-file")).unwrap();
        let below = Below::open(&inside).unwrap();
        let absolute = outside.join("x");
        for path in [absolute.to_str().unwrap(), "../out/x", "a/../../out/x", "link/x", "relative/x", "link", ""] {
            let path = Path::new(path);
            if path != Path::new("link") {
                below.write(path, b"mine", 0o444, None).expect_err("it is outside");
                assert!(below.read(path).is_err() && below.remove_empty(path).is_err() && !below.has(path), "{path:?}");
                below.change(path).expect_err("it is outside");
            }
            if path != Path::new("") {
                below.make(path, None).err().expect("it is outside");
                assert!(below.find(path).is_err(), "{path:?}");
            }
        }
        // A link in place of a file goes, and its target stays.
        assert!(below.read(Path::new("to-file")).is_err() && below.change(Path::new("to-file")).is_err());
        below.write(Path::new("to-file"), b"mine", 0o444, None).unwrap();
        assert_eq!(read_to_string(inside.join("to-file")).unwrap(), "mine");
        assert_eq!(read_to_string(outside.join("file")).unwrap(), "theirs");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn files_and_directories_are_made_with_their_modes() {
        let base = tempfile::tempdir().unwrap();
        let below = Below::open(base.path()).unwrap();
        below.write(Path::new("a/b/file"), b"text", 0o444, None).unwrap();
        let mode = |path: &str| std::fs::metadata(base.path().join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode("a"), mode("a/b"), mode("a/b/file")), (0o755, 0o755, 0o444));
        let Made { directory, is_new } = below.make(Path::new("a/c"), None).unwrap();
        directory.set(Some(0o1700), None).unwrap();
        assert!(is_new && !below.make(Path::new("a/c"), None).unwrap().is_new);
        assert_eq!((mode("a/c"), directory.mode_and_owner().unwrap().0), (0o1700, 0o1700));
        below.remove_empty(Path::new("a/b/file")).unwrap();
        assert!(below.has(Path::new("a/b/file")), "it has content");
        assert!(below.remove_empty(Path::new("a")).is_err());
        below.remove_empty(Path::new("a/c")).unwrap();
        assert!(!below.has(Path::new("a/c")));
    }
}
