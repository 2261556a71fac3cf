//! The directories of the node that runs mount, and the storage that only a cluster reaches.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use crate::container::{Content, Mount};

/// The mode of a storage with a directory for each volume, where each run sees only its own.
const KEPT: u32 = 0o1700;

/// The folder that stands for the node.
#[derive(Debug)]
pub(super) struct Node {
    folder: PathBuf,
}

/// The directory of a mount.
pub(super) enum Source {
    /// A directory that keeps its content.
    Directory(PathBuf),
    /// A directory in memory.
    Memory,
}

/// Lets each user walk through a directory.
///
/// # Errors
/// If the directory belongs to somebody else.
pub(super) fn open(folder: &Path) -> io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))
}

impl Node {
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder.join("remote"))?;
        fs::create_dir_all(folder.join("local"))?;
        Ok(Node { folder: folder.to_path_buf() })
    }

    /// Removes everything that is stored.
    pub(super) fn clear(&self) -> io::Result<()> {
        for part in ["local", "remote"] {
            fs::remove_dir_all(self.folder.join(part))?;
            fs::create_dir_all(self.folder.join(part))?;
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the directory that stands for a path of the node.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.folder.join("local").join(path.trim_matches('/'))
    }

    /// Makes the directory of a mount, as kubelet and admin do. `files` is a place for the files of the pod, `user` the
    /// user of the run.
    ///
    /// # Errors
    /// If the directory must exist and does not, or the disk is full.
    pub(super) fn source(&self, mount: &Mount, files: &Path, user: u32) -> io::Result<Source> {
        match &mount.content {
            Content::Empty => Ok(Source::Memory),
            Content::OfDesk(path) => Ok(Source::Directory(path.clone())),
            Content::Files(texts) => {
                for (name, text) in texts {
                    let path = files.join(name);
                    fs::create_dir_all(path.parent().unwrap_or(files))?;
                    fs::write(&path, text)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o444))?;
                }
                fs::create_dir_all(files)?;
                Ok(Source::Directory(files.to_path_buf()))
            }
            Content::OnNode { path, must_exist, sub_path } => {
                let base = self.path(path);
                let is_volumes = mount.path.starts_with("/run/flex-provisioner/existing");
                if *must_exist && is_volumes && !base.is_dir() {
                    let why = format!("the node has no directory {path}: its volume is lost");
                    return Err(io::Error::new(io::ErrorKind::NotFound, why));
                }
                // An admin has prepared a directory that must exist, for the user of the run.
                self.made(&base, sub_path, must_exist.then_some(user))
            }
            Content::Remote { volume, sub_path } => {
                self.made(&self.folder.join("remote").join(volume), sub_path, Some(user))
            }
        }
    }

    /// Refuses a path with a link that an earlier run has left, and that leads out of the desk.
    fn check_within(&self, path: &Path) -> io::Result<()> {
        let known = path.ancestors().find(|known| fs::symlink_metadata(known).is_ok()).unwrap_or(path);
        if known.canonicalize()?.starts_with(self.folder.canonicalize()?) {
            return Ok(());
        }
        let why = format!("{} leads out of the desk by a link: remove the link", path.display());
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }

    fn made(&self, base: &Path, sub_path: &str, owner: Option<u32>) -> io::Result<Source> {
        self.check_within(base)?;
        if !base.exists() {
            fs::create_dir_all(base)?;
            if let Some(owner) = owner.filter(|_| is_root()) {
                chown(base, Some(owner), Some(owner))?;
            }
            if !sub_path.is_empty() {
                // `flex-pv keep` does so on a node where runs see only their own volume.
                fs::set_permissions(base, fs::Permissions::from_mode(KEPT))?;
            }
        }
        let directory = base.join(sub_path);
        self.check_within(&directory)?;
        if !directory.exists() {
            fs::create_dir_all(&directory)?;
            fs::set_permissions(&directory, fs::metadata(base)?.permissions())?;
        }
        Ok(Source::Directory(directory))
    }
}

/// Checks whether this process is root.
pub(super) fn is_root() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::process::geteuid().is_root();
    #[cfg(not(target_os = "linux"))]
    return false;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_does_not_lead_out_of_the_desk() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(&folder.path().join("node")).unwrap();
        std::os::unix::fs::symlink(folder.path(), node.path("/srv")).unwrap();
        let mount = |path: &str| {
            let content = Content::OnNode { path: path.into(), must_exist: false, sub_path: String::new() };
            Mount { path: "/v".into(), content, read_only: false }
        };
        let error = node.source(&mount("/srv/data"), folder.path(), 0).err().unwrap().to_string();
        assert!(error.contains("by a link"), "{error}");
        assert!(!folder.path().join("data").exists());
        assert!(node.source(&mount("/data"), folder.path(), 0).is_ok());
    }
}
