//! A directory tree as users of volumes write it, and the comparison of two such trees.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use crate::below::Below;

/// The directory with most of the tree.
const FOLDER: &str = "flex-tree";
/// The bytes of the large file.
const LARGE: usize = 3 << 20;
/// The small files of a tree whose copy takes a while.
const MANY: usize = 600;
/// The bytes of the largest file there.
const LARGEST: usize = 4 << 20;
/// What a user writes later.
const LATER: &[u8] = b"later data\n";
/// The place of a file system's own directory, which is no content.
const LOST_AND_FOUND: &str = "lost+found";

/// The owners of what is written; `None` for that of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owners {
    /// The owner of most files.
    pub user: Option<u32>,
    /// Another one, where a program can copy files of others.
    pub other: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    File(Vec<u8>),
    Link(PathBuf),
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    kind: Kind,
    mode: u32,
    owner: (u32, u32),
    /// The first name of a file that has several.
    first: Option<PathBuf>,
}

/// What a directory has, by the paths in it. The directory itself has the empty path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserTree(BTreeMap<PathBuf, Item>);

impl UserTree {
    /// Reads a directory, and follows no link.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        let (mut tree, mut first) = (UserTree::default(), HashMap::new());
        tree.add(root, root, &mut first)?;
        tree.0.retain(|path, _| !path.starts_with(LOST_AND_FOUND));
        Ok(tree)
    }

    fn add(&mut self, root: &Path, at: &Path, first: &mut HashMap<(u64, u64), PathBuf>) -> io::Result<()> {
        let found = fs::symlink_metadata(at)?;
        let path = at.strip_prefix(root).unwrap_or(at).to_path_buf();
        let kind = if found.is_symlink() {
            Kind::Link(fs::read_link(at)?)
        } else if found.is_dir() {
            Kind::Directory
        } else if found.is_file() {
            Kind::File(fs::read(at)?)
        } else {
            Kind::Other
        };
        let has_names = found.is_file() && found.nlink() > 1;
        let first_name = match first.entry((found.dev(), found.ino())) {
            _ if !has_names => None,
            Slot::Occupied(known) => Some(known.get().clone()),
            Slot::Vacant(new) => {
                new.insert(path.clone());
                None
            }
        };
        let mode = if found.is_symlink() { 0 } else { found.permissions().mode() & 0o7777 };
        let owner = (found.uid(), found.gid());
        self.0.insert(path, Item { kind, mode, owner, first: first_name });
        if found.is_dir() {
            // The order of the names decides which of them is the first.
            let mut names: Vec<_> = fs::read_dir(at)?.collect::<io::Result<Vec<_>>>()?;
            names.sort_by_key(fs::DirEntry::file_name);
            names.iter().try_for_each(|entry| self.add(root, &entry.path(), first))?;
        }
        Ok(())
    }

    /// Returns the paths, without that of the directory itself.
    pub(super) fn paths(&self) -> Vec<&Path> {
        self.0.keys().map(PathBuf::as_path).filter(|path| *path != Path::new("")).collect()
    }

    /// Says how another tree differs from this one; `None` if it does not. Owners and hard links count where a program
    /// writes the files itself, not a server.
    pub(super) fn difference(&self, other: &UserTree, by_program: bool) -> Option<String> {
        let shown = |path: &Path| match path == Path::new("") {
            true => "the directory itself".to_owned(),
            false => format!("{:?}", path.display().to_string()),
        };
        for (path, item) in &self.0 {
            let Some(found) = other.0.get(path) else { return Some(format!("{} is missing", shown(path))) };
            if let Some(how) = item.difference(found, by_program) {
                return Some(format!("{} {how}", shown(path)));
            }
        }
        let more = other.0.keys().find(|path| !self.0.contains_key(*path));
        more.map(|path| format!("{} is there, which was not", shown(path)))
    }
}

impl Item {
    fn difference(&self, found: &Item, by_program: bool) -> Option<String> {
        match (&self.kind, &found.kind) {
            (Kind::Link(target), Kind::Link(other)) if target != other => {
                return Some(format!("is a link to {} in place of {}", other.display(), target.display()));
            }
            (Kind::Link(_), Kind::File(_) | Kind::Directory) => {
                return Some("is no link any more, and has the content of what it led to".into());
            }
            (Kind::File(bytes), Kind::File(other)) if bytes.len() != other.len() => {
                return Some(format!("has {} bytes in place of {}", other.len(), bytes.len()));
            }
            (Kind::File(bytes), Kind::File(other)) if bytes != other => {
                return Some("has other content".into());
            }
            (kind, other) if std::mem::discriminant(kind) != std::mem::discriminant(other) => {
                return Some("is something of another kind".into());
            }
            _ => {}
        }
        if self.mode != found.mode {
            return Some(format!("has the mode {:04o} in place of {:04o}", found.mode, self.mode));
        }
        if !by_program {
            return None;
        }
        if self.owner != found.owner {
            return Some(format!("belongs to {:?} in place of {:?}", found.owner, self.owner));
        }
        (self.first != found.first).then(|| "is a file of its own in place of another name of the same file".into())
    }
}

/// Writes files of one user.
struct Writer<'a> {
    root: &'a Path,
    owners: Owners,
}

impl Writer<'_> {
    fn own(&self, path: &Path, owner: Option<u32>) -> io::Result<()> {
        match owner {
            Some(owner) => lchown(path, Some(owner), Some(owner)),
            None => Ok(()),
        }
    }

    fn file(&self, name: impl AsRef<Path>, mode: u32, content: &[u8]) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        // A run may have put a link there, which must not be followed.
        File::create_new(&path)?.write_all(content)?;
        self.own(&path, self.owners.user)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }

    fn folder(&self, name: impl AsRef<Path>, mode: u32) -> io::Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir(&path)?;
        self.own(&path, self.owners.user)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) -> io::Result<()> {
        let path = self.root.join(name);
        symlink(target, &path)?;
        self.own(&path, self.owners.user)
    }
}

/// Returns bytes that compress badly and differ from part to part.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_u32;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[0]
    };
    (0..count).map(next).collect()
}

/// Writes a tree with all that a directory can have, but for pipes, sockets and devices. `any_names` lets names have bytes
/// that are no text.
pub(super) fn write(root: &Path, owners: Owners, any_names: bool) -> io::Result<()> {
    let by = Writer { root, owners };
    by.file("flex-content", 0o644, b"the data of a user\n")?;
    by.file(".flex-hidden", 0o640, b"a hidden file\n")?;
    by.folder(FOLDER, 0o755)?;
    let inner = root.join(FOLDER);
    let by = Writer { root: &inner, owners };
    for (name, mode) in
        [("plain", 0o644), ("private", 0o600), ("program", 0o755), ("read-only", 0o444), (".dot", 0o664)]
    {
        by.file(name, mode, format!("{name}\n").as_bytes())?;
    }
    by.file("empty", 0o644, b"")?;
    by.file("large", 0o644, &bytes(LARGE))?;
    let holes = by.file("holes", 0o644, b"")?;
    let holes = File::options().write(true).open(holes)?;
    holes.write_all_at(b"after a hole\n", 1 << 20)?;
    holes.set_len(2 << 20)?;
    let long = "long".repeat(50);
    for name in [" a name with * and $(touch x) \"'\\ ", "-rf", "line\nbreak", "\u{e4}\u{20ac}", long.as_str()] {
        by.file(name, 0o644, name.as_bytes())?;
    }
    if any_names {
        by.file(OsStr::from_bytes(b"\xff\xfe"), 0o644, b"no text\n")?;
    }
    by.folder("empty-directory", 0o750)?;
    let deep: PathBuf = by.folder("deep", 0o711)?;
    let deep = (0..8).try_fold(deep, |at, n| Writer { root: &at, owners }.folder(n.to_string(), 0o755))?;
    Writer { root: &deep, owners }.file("end", 0o644, b"at the end\n")?;
    let linked = by.file("linked-1", 0o644, b"a file with two names\n")?;
    fs::hard_link(linked, inner.join("linked-2"))?;
    by.link("link", "plain")?;
    by.link("link-to-nothing", "/flex/nothing")?;
    by.link("link-out", "/etc/passwd")?;
    let Some(other) = owners.other else { return Ok(()) };
    let by = Writer { root: &inner, owners: Owners { user: Some(other), other: None } };
    let theirs = by.folder("of-another", 0o700)?;
    Writer { root: &theirs, ..by }.file("file", 0o600, b"of another user\n").map(drop)
}

/// Writes many files, so that their copy takes a while.
pub(super) fn write_many(root: &Path, owners: Owners) -> io::Result<()> {
    let many = Writer { root, owners }.folder("flex-many", 0o755)?;
    for folder in 0..6 {
        let at = Writer { root: &many, owners }.folder(folder.to_string(), 0o755)?;
        for n in 0..MANY / 6 {
            Writer { root: &at, owners }.file(n.to_string(), 0o644, format!("{folder} {n}\n").as_bytes())?;
        }
    }
    Writer { root: &many, owners }.file("largest", 0o644, &bytes(LARGEST)).map(drop)
}

/// Changes a tree in its place, as a program does that has its files open. A link that a run has put there is not followed.
pub(super) fn overwrite(root: &Path, owners: Owners) -> io::Result<()> {
    let (below, inner) = (Below::open(root)?, Path::new(FOLDER));
    let text = below.change(Path::new("flex-content"))?;
    text.set_len(0)?;
    text.write_all_at(LATER, 0)?;
    below.change(&inner.join("large"))?.write_all_at(LATER, 1 << 20)?;
    let linked = below.change(&inner.join("linked-1"))?;
    linked.write_all_at(LATER, linked.metadata()?.len())?;
    below.change(&inner.join("program"))?.set_permissions(fs::Permissions::from_mode(0o700))?;
    below.remove_empty(&inner.join("empty"))?;
    below.write(&inner.join("later"), LATER, 0o644, owners.user)
}

/// Checks whether a path is that of a file which these functions write.
pub(super) fn is_of_user(path: &str) -> bool {
    ["flex-content", ".flex-hidden", FOLDER, "flex-many", "flex-links"].iter().any(|name| path.contains(name))
}

/// Writes links to paths, by their names.
pub(super) fn write_links(root: &Path, owners: Owners, links: &[(&str, String)]) -> io::Result<()> {
    let folder = Writer { root, owners }.folder("flex-links", 0o755)?;
    let by = Writer { root: &folder, owners };
    links.iter().try_for_each(|(name, target)| by.link(name, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> (tempfile::TempDir, UserTree) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), Owners::default(), cfg!(target_os = "linux")).unwrap();
        let tree = UserTree::read(folder.path()).unwrap();
        (folder, tree)
    }

    #[test]
    fn each_difference_of_a_copy_is_named() {
        let (folder, tree) = written();
        let root = folder.path();
        assert_eq!(tree.difference(&UserTree::read(root).unwrap(), true), None);
        let inner = root.join(FOLDER);
        let steps: [(&str, &dyn Fn() -> io::Result<()>); 6] = [
            ("read-only\" has the mode 0644 in place of 0444", &|| {
                fs::set_permissions(inner.join("read-only"), fs::Permissions::from_mode(0o644))
            }),
            ("linked-2\" is a file of its own", &|| {
                fs::copy(inner.join("linked-2"), inner.join("copied"))?;
                fs::rename(inner.join("copied"), inner.join("linked-2"))
            }),
            ("link-out\" is no link any more", &|| {
                fs::remove_file(inner.join("link-out"))?;
                fs::write(inner.join("link-out"), "root")
            }),
            ("large\" has other content", &|| {
                File::options().write(true).open(inner.join("large"))?.write_all_at(b"other", 1 << 21)
            }),
            (".flex-hidden\" is missing", &|| fs::remove_file(root.join(".flex-hidden"))),
            ("more\" is there, which was not", &|| fs::write(root.join("more"), "")),
        ];
        for (expected, change) in steps {
            let (_other, before) = written();
            change().unwrap();
            let how = tree.difference(&UserTree::read(root).unwrap(), true).unwrap();
            assert!(how.contains(expected), "{how}");
            // Another tree of the same kind is no different.
            assert_eq!(tree.difference(&before, true), None);
            fs::remove_dir_all(&inner).unwrap();
            for name in ["flex-content", ".flex-hidden", "more"] {
                let _ = fs::remove_file(root.join(name));
            }
            write(root, Owners::default(), cfg!(target_os = "linux")).unwrap();
        }
    }

    #[test]
    fn a_user_changes_files_in_their_place() {
        let (folder, tree) = written();
        write_many(folder.path(), Owners::default()).unwrap();
        write_links(folder.path(), Owners::default(), &[("a", "/etc/passwd".into())]).unwrap();
        overwrite(folder.path(), Owners::default()).unwrap();
        let later = UserTree::read(folder.path()).unwrap();
        let how = tree.difference(&later, true).unwrap();
        assert!(how.contains("flex-content\" has 11 bytes in place of 19"), "{how}");
        assert!(later.paths().len() > tree.paths().len() + MANY);
    }
}
