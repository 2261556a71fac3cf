//! The directories of the node that runs mount, and the storage that only a cluster reaches.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};

use super::mount_points::MountPoints;
use crate::container::{Content, Mount};
use crate::on_node::{OnNode, place};
use crate::sandbox::spec::Bind;

/// The largest number of links that lead to a file.
const MOST_LINKS: usize = 16;
/// The mode of a storage with a directory for each volume, where each run sees only its own.
const KEPT: u32 = 0o1700;

/// The folder that stands for the node.
#[derive(Debug)]
pub(super) struct Node {
    folder: PathBuf,
    on_node: Vec<OnNode>,
    mount_points: MountPoints,
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
    pub(super) fn new(folder: &Path, on_node: &[OnNode]) -> io::Result<Self> {
        fs::create_dir_all(folder.join("remote"))?;
        fs::create_dir_all(folder.join("local"))?;
        let mount_points = MountPoints::new(on_node);
        Ok(Node { folder: folder.to_path_buf(), on_node: on_node.to_vec(), mount_points })
    }

    /// Removes everything that is stored in directories of the desk.
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

    /// Notes the places that the mounts of a container will make in directories of this machine.
    pub(super) fn note_mount_points(&self, binds: &[Bind]) {
        self.mount_points.note(binds);
    }

    /// Returns the file or directory that stands for a path of the node.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root_and_path(path).1
    }

    /// Returns the same, with the directory that links must not leave.
    fn root_and_path(&self, path: &str) -> (PathBuf, PathBuf) {
        match place(&self.on_node, path) {
            Some((one, at)) => (one.directory.clone(), at),
            None => (self.folder.clone(), self.folder.join("local").join(path.trim_matches('/'))),
        }
    }

    /// Returns the same for the end of the links at a path, as a pod of the node follows them.
    ///
    /// # Errors
    /// If a link leads out of the directories of the node.
    pub(super) fn end_of_links(&self, path: &str) -> io::Result<PathBuf> {
        let mut at = PathBuf::from(path);
        for _ in 0..MOST_LINKS {
            let Ok(target) = fs::read_link(self.path(&at.to_string_lossy())) else { break };
            at = without_dots(&at.parent().unwrap_or(Path::new("/")).join(target));
        }
        let (root, end) = self.root_and_path(&at.to_string_lossy());
        check_within(&root, &end)?;
        Ok(end)
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
                let (root, base) = self.root_and_path(path);
                let is_volumes = mount.path.starts_with("/run/flex-provisioner/existing");
                if *must_exist && is_volumes && !base.is_dir() {
                    let why = format!("the node has no directory {path}: its volume is lost");
                    return Err(io::Error::new(io::ErrorKind::NotFound, why));
                }
                // An admin has prepared a directory that must exist, for the user of the run.
                made(&root, &base, sub_path, must_exist.then_some(user))
            }
            Content::Remote { volume, sub_path } => {
                made(&self.folder, &self.folder.join("remote").join(volume), sub_path, Some(user))
            }
        }
    }
}

/// Returns an absolute path without dots.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::ParentDir => drop(plain.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    plain
}

/// Refuses a path with a link that an earlier run has left, and that leads out of a directory.
fn check_within(root: &Path, path: &Path) -> io::Result<()> {
    let known = path.ancestors().find(|known| fs::symlink_metadata(known).is_ok()).unwrap_or(path);
    if known.canonicalize()?.starts_with(root.canonicalize()?) {
        return Ok(());
    }
    let why = format!("{} leads out of {} by a link: remove the link", path.display(), root.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Makes a directory within a root, as kubelet and admin do.
fn made(root: &Path, base: &Path, sub_path: &str, owner: Option<u32>) -> io::Result<Source> {
    check_within(root, base)?;
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
    check_within(root, &directory)?;
    if !directory.exists() {
        fs::create_dir_all(&directory)?;
        fs::set_permissions(&directory, fs::metadata(base)?.permissions())?;
    }
    Ok(Source::Directory(directory))
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

    fn mount(path: &str, sub_path: &str) -> Mount {
        let content = Content::OnNode { path: path.into(), must_exist: false, sub_path: sub_path.into() };
        Mount { path: "/v".into(), content, read_only: false }
    }

    #[test]
    fn a_link_does_not_lead_out_of_the_desk() {
        let folder = tempfile::tempdir().unwrap();
        let node = Node::new(&folder.path().join("node"), &[]).unwrap();
        std::os::unix::fs::symlink(folder.path(), node.path("/srv")).unwrap();
        let error = node.source(&mount("/srv/data", ""), folder.path(), 0).err().unwrap().to_string();
        assert!(error.contains("by a link"), "{error}");
        assert!(!folder.path().join("data").exists());
        assert!(node.source(&mount("/data", ""), folder.path(), 0).is_ok());
    }

    #[test]
    fn a_directory_of_this_machine_is_mounted_in_place_of_a_path_and_links_do_not_leave_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("driver");
        fs::create_dir_all(directory.join("volumes")).unwrap();
        let on_node = [OnNode { path: "/var/lib/driver".into(), directory: directory.clone() }];
        let node = Node::new(&folder.path().join("node"), &on_node).unwrap();
        let source = |path: &str, sub_path: &str| match node.source(&mount(path, sub_path), folder.path(), 0) {
            Ok(Source::Directory(at)) => Ok(at),
            Ok(Source::Memory) => panic!("it is no directory in memory"),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(source("/var/lib/driver", ""), Ok(directory.join("")));
        assert_eq!(source("/var/lib/driver/", "volumes/a"), Ok(directory.join("volumes/a")));
        assert_eq!(source("/var/lib/driver/volumes", ""), Ok(directory.join("volumes/")));
        assert!(source("/var/lib/other", "").unwrap().starts_with(folder.path().join("node")));
        std::os::unix::fs::symlink(folder.path(), directory.join("out")).unwrap();
        let error = source("/var/lib/driver", "out/x").unwrap_err();
        assert!(error.contains("by a link") && !folder.path().join("x").exists(), "{error}");
        // The desk removes only its own directories.
        node.clear().unwrap();
        assert!(directory.join("volumes/a").is_dir());
    }

    #[test]
    fn a_link_of_the_node_is_followed_as_a_pod_there_sees_it() {
        let folder = tempfile::tempdir().unwrap();
        let dev = folder.path().join("dev");
        fs::create_dir_all(dev.join("names")).unwrap();
        fs::write(dev.join("loop7"), "").unwrap();
        std::os::unix::fs::symlink("/dev/loop7", dev.join("names/absolute")).unwrap();
        std::os::unix::fs::symlink("../loop7", dev.join("names/relative")).unwrap();
        std::os::unix::fs::symlink("endless", dev.join("names/endless")).unwrap();
        let on_node = [OnNode { path: "/dev".into(), directory: dev.clone() }];
        let node = Node::new(&folder.path().join("node"), &on_node).unwrap();
        std::os::unix::fs::symlink("../../../etc/passwd", dev.join("names/out")).unwrap();
        std::os::unix::fs::symlink("/etc", dev.join("etc")).unwrap();
        for (path, is_found) in [
            ("/dev/loop7", true),
            ("/dev/names/absolute", true),
            ("/dev/names/relative", true),
            ("/dev/names/none", false),
            ("/dev/names/out", false),
        ] {
            assert_eq!(node.end_of_links(path).unwrap().is_file(), is_found, "{path}");
        }
        for path in ["/dev/names/endless", "/dev/etc/passwd"] {
            assert!(node.end_of_links(path).is_err(), "{path}");
        }
    }
}
