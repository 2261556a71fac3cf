//! The directories of the node that runs mount, and the storage that only a cluster reaches.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use flex_contract::storage;

use super::mount_points::MountPoints;
use crate::below::{Below, Made};
use crate::container::{Content, Mount};
use crate::on_node::{OnNode, place};
use crate::sandbox::spec::Bind;
use crate::sandbox::users::Users;

/// The largest number of links that lead to a file.
const MOST_LINKS: usize = 16;
/// The mode of a storage with a directory for each volume, where each run sees only its own.
const KEPT: rustix::fs::RawMode = 0o1700;
/// The folder that stands for the node, in the directory of the desk.
const NODE: &str = "node";
/// The part with the directories of the node.
const LOCAL: &str = "local";
/// The part with storage that only a cluster reaches.
const REMOTE: &str = "remote";
const PARTS: [&str; 2] = [LOCAL, REMOTE];

/// The folder that stands for the node.
#[derive(Debug)]
pub(super) struct Node {
    folder: PathBuf,
    on_node: Vec<OnNode>,
    mount_points: MountPoints,
}

/// The directory of a mount.
pub(super) enum Source {
    /// A directory that keeps its content: one that the desk or a person has named, and the path within.
    Directory(PathBuf, PathBuf),
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
    /// Makes the folder in the directory of the desk.
    pub(super) fn new(desk: &Path, on_node: &[OnNode]) -> io::Result<Self> {
        let below = Below::open(desk)?;
        for part in PARTS {
            below.make(&Path::new(NODE).join(part), None)?;
        }
        let mount_points = MountPoints::new(on_node);
        Ok(Node { folder: desk.join(NODE), on_node: on_node.to_vec(), mount_points })
    }

    /// Removes everything that is stored in directories of the desk.
    pub(super) fn clear(&self) -> io::Result<()> {
        for part in PARTS {
            fs::remove_dir_all(self.folder.join(part))?;
            fs::create_dir(self.folder.join(part))?;
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

    /// Returns the directory in which a path of the node is, and the path there.
    fn root_and_within(&self, path: &str) -> (PathBuf, PathBuf) {
        match place(&self.on_node, path) {
            Some((one, at)) => {
                let within = at.strip_prefix(&one.directory).unwrap_or(Path::new("")).to_path_buf();
                (one.directory.clone(), within)
            }
            None => (self.folder.clone(), Path::new(LOCAL).join(path.trim_matches('/'))),
        }
    }

    /// Returns the same for the end of the links at a path, as a pod of the node follows them.
    ///
    /// # Errors
    /// If a link leads out of the directories of the node.
    pub(super) fn end_of_links(&self, path: &str) -> io::Result<PathBuf> {
        let mut at = PathBuf::from(path);
        for _ in 0..MOST_LINKS {
            let (root, within) = self.root_and_within(&at.to_string_lossy());
            let Ok(target) = fs::read_link(root.join(within)) else { break };
            at = without_dots(&at.parent().unwrap_or(Path::new("/")).join(target));
        }
        let (root, within) = self.root_and_within(&at.to_string_lossy());
        let end = root.join(within);
        check_within(&root, &end)?;
        Ok(end)
    }

    /// Makes the directory of a mount, as kubelet and admin do. `files` is a place for the files of the pod, `user` the
    /// user of the run, who is one of `users`.
    ///
    /// # Errors
    /// If the directory must exist and does not, or the disk is full.
    pub(super) fn source(&self, mount: &Mount, files: &Path, users: &Users, user: u32) -> io::Result<Source> {
        let of_desk = |path: &Path| Source::Directory(path.to_path_buf(), PathBuf::new());
        match &mount.content {
            Content::Empty => Ok(Source::Memory),
            Content::OfDesk(path) => Ok(of_desk(path)),
            Content::Files(texts) => {
                fs::create_dir_all(files)?;
                open(files)?;
                let below = Below::open(files)?;
                for (name, text) in texts {
                    below.write(Path::new(name), text.as_bytes(), 0o444, None)?;
                }
                Ok(of_desk(files))
            }
            Content::OnNode { path, must_exist, sub_path } => {
                let (root, base) = self.root_and_within(path);
                let is_volumes = mount.path.starts_with(storage::EXISTING);
                if *must_exist && is_volumes && Below::open(&root)?.find(&base).is_err() {
                    let why = format!("the node has no directory {path}: its volume is lost");
                    return Err(io::Error::new(io::ErrorKind::NotFound, why));
                }
                // An admin has prepared a directory that must exist, for the user of the run.
                made(root, base, sub_path, users, if *must_exist { user } else { 0 })
            }
            Content::Remote { volume, sub_path } => {
                made(self.folder.clone(), Path::new(REMOTE).join(volume), sub_path, users, user)
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

/// Makes a directory within a root, as kubelet and admin do. A new one belongs to a user of the container, if this process can
/// give it away.
fn made(root: PathBuf, base: PathBuf, sub_path: &str, users: &Users, user: u32) -> io::Result<Source> {
    let owner = |user| is_root().then(|| users.outside(user));
    let below = Below::open(&root)?;
    // A run that sees only its own volume gets the directory of a new one by its whole path.
    let is_volume = base.file_name().and_then(|name| name.to_str()).is_some_and(storage::is_of_one);
    if let Some(storage) = base.parent().filter(|_| is_volume) {
        let Made { directory, is_new } = below.make(storage, owner(0))?;
        directory.set(is_new.then_some(KEPT), None)?;
    }
    let Made { directory, is_new } = below.make(&base, owner(0))?;
    let (mode, found) = directory.mode_and_owner()?;
    if is_new {
        // `flex-pv keep` does so on a node where runs see only their own volume.
        directory.set((is_volume || !sub_path.is_empty()).then_some(KEPT), owner(user))?;
    } else if found == 0 && *users != Users::OfMachine && root.ends_with(NODE) {
        // A run with the users of this machine has made it.
        directory.set(None, owner(user))?;
    }
    let mode = if is_new && !sub_path.is_empty() { KEPT } else { mode };
    let sub = directory.make(Path::new(sub_path), owner(0))?;
    if sub.is_new {
        sub.directory.set(Some(mode), None)?;
    }
    Ok(Source::Directory(root, base.join(sub_path)))
}

/// Checks whether this process is root.
pub(crate) fn is_root() -> bool {
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
        let node = Node::new(folder.path(), &[]).unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("node/local/srv")).unwrap();
        for (path, sub_path) in [("/srv/data", ""), ("/srv", "data"), ("/", "srv/data")] {
            let error = node.source(&mount(path, sub_path), folder.path(), &Users::OfMachine, 0).err().unwrap();
            assert!(error.to_string().contains("leads over a link"), "{path}: {error}");
        }
        assert!(!folder.path().join("data").exists());
        assert!(node.source(&mount("/data", ""), folder.path(), &Users::OfMachine, 0).is_ok());
    }

    #[test]
    fn a_directory_of_the_desk_with_a_link_in_place_of_the_node_is_refused() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::os::unix::fs::symlink(outside.path(), folder.path().join("node")).unwrap();
        let error = Node::new(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("leads over a link"), "{error}");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_of_a_pod_are_written_nowhere_else() {
        let base = tempfile::tempdir().unwrap();
        let node = Node::new(base.path(), &[]).unwrap();
        let outside = base.path().join("outside");
        for name in [outside.to_str().unwrap(), "../outside", "a/../../outside"] {
            let texts = [("good".to_owned(), String::new()), (name.to_owned(), "owned".to_owned())];
            let mount = Mount { path: "/v".into(), content: Content::Files(texts.into()), read_only: true };
            let error = node.source(&mount, &base.path().join("files"), &Users::OfMachine, 0).err().unwrap();
            assert!(error.to_string().contains("leads out of its directory"), "{name}: {error}");
            assert!(!outside.exists(), "{name}");
        }
    }

    #[test]
    fn a_directory_of_this_machine_is_mounted_in_place_of_a_path_and_links_do_not_leave_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("driver");
        fs::create_dir_all(directory.join("volumes")).unwrap();
        let on_node = [OnNode { path: "/var/lib/driver".into(), directory: directory.clone() }];
        let node = Node::new(folder.path(), &on_node).unwrap();
        let users = Users::OfMachine;
        let source = |path: &str, sub_path: &str| match node.source(&mount(path, sub_path), folder.path(), &users, 0) {
            Ok(Source::Directory(root, within)) => Ok(root.join(within)),
            Ok(Source::Memory) => panic!("it is no directory in memory"),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!(source("/var/lib/driver", ""), Ok(directory.join("")));
        assert_eq!(source("/var/lib/driver/", "volumes/a"), Ok(directory.join("volumes/a")));
        assert_eq!(source("/var/lib/driver/volumes", ""), Ok(directory.join("volumes/")));
        assert!(source("/var/lib/other", "").unwrap().starts_with(folder.path().join("node")));
        std::os::unix::fs::symlink(folder.path(), directory.join("out")).unwrap();
        let error = source("/var/lib/driver", "out/x").unwrap_err();
        assert!(error.contains("leads over a link") && !folder.path().join("x").exists(), "{error}");
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
        let node = Node::new(folder.path(), &on_node).unwrap();
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
