//! Directories for as long as a command runs, beside those of other commands. A command that is killed leaves its
//! directories, and the next command removes them.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The beginning of the names of all these directories.
const PREFIX: &str = "flex-desk-";
/// The age from which a directory without a lock has no owner: a directory is made first, and locked then.
const ABANDONED: Duration = Duration::from_secs(60);

/// A directory that goes with the value. As long as its owner runs, the directory is locked.
pub struct Temporary {
    folder: tempfile::TempDir,
    _lock: File,
}

impl Temporary {
    /// Makes a directory among the temporary files of this machine, and removes those of commands that were killed.
    ///
    /// # Errors
    /// If the directory cannot be made.
    pub fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir(), SystemTime::now())
    }

    fn within(base: &Path, now: SystemTime) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?;
        let lock = File::open(folder.path())?;
        lock.lock()?;
        let owner = lock.metadata()?.uid();
        for entry in fs::read_dir(base)?.flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with(PREFIX) && entry.path() != folder.path() {
                // The next command tries again.
                let _ = remove_abandoned(&entry.path(), owner, now);
            }
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes a directory of the same user whose owner has ended.
fn remove_abandoned(path: &Path, owner: u32, now: SystemTime) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let age = now.duration_since(found.modified()?).unwrap_or_default();
    if !found.is_dir() || found.uid() != owner || age < ABANDONED {
        return Ok(());
    }
    match File::open(path)?.try_lock() {
        Ok(()) => fs::remove_dir_all(path),
        Err(TryLockError::WouldBlock) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_of_commands_that_have_ended_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path();
        let running = Temporary::within(base, SystemTime::now()).unwrap();
        for name in ["flex-desk-killed/inner", "flex-desk-young", "somebody-s"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("flex-desk-killed/inner/file"), "x").unwrap();
        fs::write(base.join("flex-desk-file"), "x").unwrap();
        std::os::unix::fs::symlink(base.join("somebody-s"), base.join("flex-desk-link")).unwrap();
        let names = || {
            let entries = fs::read_dir(base).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = entries.filter(|name| base.join(name) != running.path()).collect();
            names.sort();
            names
        };
        drop(Temporary::within(base, SystemTime::now()).unwrap());
        let all = ["flex-desk-file", "flex-desk-killed", "flex-desk-link", "flex-desk-young", "somebody-s"];
        assert_eq!(names(), all, "a directory that is young may get its lock in a moment");
        let later = SystemTime::now() + ABANDONED;
        let young = SystemTime::now() + ABANDONED / 2;
        File::open(base.join("flex-desk-young")).unwrap().set_modified(young).unwrap();
        drop(Temporary::within(base, later).unwrap());
        assert_eq!(names(), ["flex-desk-file", "flex-desk-link", "flex-desk-young", "somebody-s"]);
        assert!(running.path().is_dir(), "the owner of this one runs");
    }
}
