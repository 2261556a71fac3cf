//! The directory with the files of a desk. Nothing of anybody else is in it.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::error::DeskError;

/// The file that marks a directory of the desk.
const MARKER: &str = ".flex-desk";
/// The text in the marker.
const TEXT: &str = "This directory belongs to the desk of flex-provisioner, which changes and removes files in it.\n";

/// Takes a directory for the desk, and returns its absolute path. A directory that exists keeps its mode.
///
/// # Errors
/// If the directory has files that are not the desk's, or cannot be written.
pub(super) fn taken(folder: &Path) -> Result<PathBuf, DeskError> {
    take(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => DeskError::Machine(format!(
            "{} has files that are not the desk's, so the desk leaves it as it is: name an empty directory, or one that does not exist yet",
            folder.display()
        )),
        _ => DeskError::Machine(format!("{} cannot be the directory of the desk: {error}", folder.display())),
    })
}

fn take(folder: &Path) -> io::Result<PathBuf> {
    if !folder.exists() {
        fs::create_dir_all(folder.parent().unwrap_or(folder))?;
        fs::DirBuilder::new().mode(0o700).create(folder)?;
    }
    let marker = folder.join(MARKER);
    let is_own = fs::symlink_metadata(&marker).is_ok_and(|found| found.is_file());
    if !is_own {
        if fs::read_dir(folder)?.next().is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        fs::write(&marker, TEXT)?;
    }
    folder.canonicalize()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn a_directory_with_files_of_somebody_else_is_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("runs/0")).unwrap();
        let why = taken(folder.path()).unwrap_err().to_string();
        assert!(why.contains("name an empty directory") && why.contains(folder.path().to_str().unwrap()), "{why}");
        assert!(folder.path().join("runs/0").is_dir() && !folder.path().join(MARKER).exists());
    }

    #[test]
    fn an_empty_directory_keeps_its_mode_and_is_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let real = taken(folder.path()).unwrap();
        fs::write(real.join("volume.json"), "null").unwrap();
        assert_eq!(taken(folder.path()).unwrap(), real);
        assert_eq!(mode(&real), 0o750);
    }

    #[test]
    fn a_new_directory_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let made = taken(&folder.path().join("a/b")).unwrap();
        assert_eq!(mode(&made), 0o700);
    }
}
