//! The files of a copy that have several names.
//!
//! The copy of such a file gets another name in a directory that only this process knows, so that the next name of the
//! original finds it. So memory does not depend on the number of these files. The directory is removed at the end.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{self, AtFlags, Dir, Mode, Stat, StatxFlags};
use rustix::io::Errno;

use crate::below::FOLDER;

/// The copies of files that have several names.
pub(crate) struct Links {
    top: OwnedFd,
    folder: Option<(CString, OwnedFd)>,
}

impl Links {
    /// Prepares for a copy whose top directory is `top`.
    pub fn new(top: OwnedFd) -> Self {
        Links { top, folder: None }
    }

    /// Gives the copy of a file another name, if the file has been copied under one. `file` is the original, opened.
    ///
    /// # Errors
    /// If the file system refuses the name for another reason than that it has too many.
    pub fn link(&self, file: impl AsFd, stat: &Stat, to: impl AsFd, name: &CStr) -> Result<bool, Errno> {
        let (Some((_, folder)), true) = (&self.folder, stat.st_nlink > 1) else { return Ok(false) };
        match fs::linkat(folder, &identity(file, stat)?, to, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT | Errno::MLINK) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes the copy of a file, if the file has several names.
    ///
    /// # Errors
    /// If the copy cannot get another name.
    pub fn note(&mut self, file: impl AsFd, stat: &Stat, to: impl AsFd, name: &CStr) -> Result<(), Errno> {
        if stat.st_nlink < 2 {
            return Ok(());
        }
        let identity = identity(file, stat)?;
        match fs::linkat(to, name, self.folder()?, &identity, AtFlags::empty()) {
            // The copy has too many names: this one is a copy of its own.
            Err(Errno::EXIST) => Ok(()),
            // The file system has no such names.
            Err(Errno::PERM | Errno::OPNOTSUPP) => Ok(()),
            outcome => outcome,
        }
    }

    fn folder(&mut self) -> Result<&OwnedFd, Errno> {
        if self.folder.is_none() {
            let mut random = [0; 16];
            rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
            let name =
                CString::new(format!(".flex-links-{:032x}", u128::from_ne_bytes(random))).map_err(|_| Errno::INVAL)?;
            fs::mkdirat(&self.top, &name, Mode::RWXU)?;
            let folder = fs::openat(&self.top, &name, FOLDER, Mode::empty())?;
            self.folder = Some((name, folder));
        }
        self.folder.as_ref().map(|(_, folder)| folder).ok_or(Errno::NOENT)
    }

    /// Removes the directory with the other names.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn end(&mut self) -> Result<(), Errno> {
        let Some((name, folder)) = self.folder.take() else { return Ok(()) };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                fs::unlinkat(&folder, entry.file_name(), AtFlags::empty())?;
            }
        }
        fs::unlinkat(&self.top, &name, AtFlags::REMOVEDIR)
    }
}

/// Returns a text that no other file has had. The number of a file that was removed may be that of a new file: the time of
/// its birth differs, or else the time of its last change.
fn identity(file: impl AsFd, stat: &Stat) -> Result<String, Errno> {
    let found = fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    let time = match found {
        Ok(found) if found.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            (found.stx_btime.tv_sec, u64::from(found.stx_btime.tv_nsec))
        }
        _ => (stat.st_ctime, stat.st_ctime_nsec),
    };
    Ok(format!("{:x}-{:x}-{:x}-{:x}", stat.st_dev, stat.st_ino, time.0, time.1))
}
