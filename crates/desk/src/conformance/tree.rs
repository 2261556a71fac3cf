//! The files in the storage of a desk.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The modes of an empty directory that belongs to no volume, where runs see only their own.
const UNUSED: [u32; 2] = [0o041_000, 0o041_700];

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    mode: u32,
    content: u64,
}

/// All files and directories below a directory, by their paths in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, Item>);

impl Tree {
    /// Reads a directory. Files that vanish meanwhile are left out.
    pub fn read(root: &Path) -> Self {
        let mut tree = Tree::default();
        tree.add(root, &Wanted { root: Some(root), is_kept: &|_| true, device: None });
        tree
    }

    /// Adds, with their whole paths, the files and directories of a directory that have a prefix of ids in their names, or
    /// are in a directory with such a name. Others use the directory, too. Other file systems below it are left out.
    pub fn add_own(&mut self, root: &Path, prefix: &str) {
        let is_own = |path: &Path| {
            let within = path.strip_prefix(root).unwrap_or(path);
            within.iter().any(|name| name.to_string_lossy().contains(prefix))
        };
        let device = fs::metadata(root).ok().map(|found| found.dev());
        self.add(root, &Wanted { root: None, is_kept: &is_own, device });
    }

    /// Returns the empty directories that belong to nobody.
    pub fn unused(&self) -> Vec<PathBuf> {
        let has_content = |path: &Path| self.0.keys().any(|other| other != path && other.starts_with(path));
        let is_unused = |path: &Path, item: &Item| UNUSED.contains(&item.mode) && !has_content(path);
        self.0.iter().filter(|(path, item)| is_unused(path, item)).map(|(path, _)| path.clone()).collect()
    }

    /// Leaves out directories that belong to nobody, as the kubelet makes them for runs that see only their own volume.
    #[must_use]
    pub fn without_unused(mut self) -> Self {
        let unused = self.unused();
        self.0.retain(|path, _| !unused.contains(path));
        self
    }

    fn add(&mut self, at: &Path, wanted: &Wanted<'_>) {
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let is_kept = (wanted.is_kept)(&path);
            // On external storage, a link that leads nowhere is a note, and stores nothing.
            let is_note = wanted.root.is_none() && metadata.is_symlink() && !path.exists();
            if is_kept && !is_note {
                let name = wanted.root.and_then(|root| path.strip_prefix(root).ok()).unwrap_or(&path);
                self.0.insert(name.to_path_buf(), item(&path, &metadata));
            }
            if metadata.is_dir() && (is_kept || wanted.device.is_none_or(|device| device == metadata.dev())) {
                self.add(&path, wanted);
            }
        }
    }

    /// Returns the paths that have a text in one of their names.
    pub fn with(&self, text: &str) -> Vec<&Path> {
        let has = |path: &&PathBuf| path.iter().any(|name| name.to_string_lossy().contains(text));
        self.0.keys().filter(has).map(PathBuf::as_path).collect()
    }

    /// Returns the paths that a later tree has more than this one.
    pub fn added(&self, later: &Tree) -> Vec<String> {
        let added = later.0.keys().filter(|path| !self.0.contains_key(*path));
        added.map(|path| path.display().to_string()).collect()
    }

    /// Returns the paths that differ between two trees.
    pub fn changes(&self, later: &Tree) -> Vec<String> {
        let all = self.0.keys().chain(later.0.keys().filter(|path| !self.0.contains_key(*path)));
        let changed = all.filter(|path| self.0.get(*path) != later.0.get(*path));
        changed.map(|path| path.display().to_string()).collect()
    }
}

/// The items of a directory that belong to a tree.
struct Wanted<'a> {
    /// The directory from which the paths begin; `None` for whole paths.
    root: Option<&'a Path>,
    /// Tells whether a path belongs to the tree.
    is_kept: &'a dyn Fn(&Path) -> bool,
    /// The only device with further directories; `None` for all.
    device: Option<u64>,
}

fn item(path: &Path, metadata: &fs::Metadata) -> Item {
    let mut hasher = DefaultHasher::new();
    if metadata.is_symlink() {
        fs::read_link(path).unwrap_or_default().hash(&mut hasher);
    } else if metadata.is_file() {
        // A large file is known by its size and its blocks.
        (metadata.len(), metadata.blocks()).hash(&mut hasher);
        if metadata.len() < 1 << 20 {
            fs::read(path).unwrap_or_default().hash(&mut hasher);
        }
    }
    Item { mode: metadata.permissions().mode(), content: hasher.finish() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_of_a_tree_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("a/id-1")).unwrap();
        let before = Tree::read(root);
        assert_eq!(before.with("id-1"), [Path::new("a/id-1")]);
        fs::write(root.join("a/id-1/f"), "x").unwrap();
        let with_file = Tree::read(root);
        assert_eq!(before.changes(&with_file), ["a/id-1/f"]);
        assert_eq!((before.added(&with_file), with_file.added(&before)), (vec!["a/id-1/f".to_owned()], vec![]));
        fs::write(root.join("a/id-1/f"), "y").unwrap();
        assert_eq!(with_file.changes(&Tree::read(root)), ["a/id-1/f"]);
        fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(before.changes(&Tree::read(root)), ["a", "a/id-1/f"]);
        fs::create_dir(root.join("a/id-2")).unwrap();
        fs::set_permissions(root.join("a/id-2"), fs::Permissions::from_mode(0o1700)).unwrap();
        assert!(Tree::read(root).without_unused().with("id-2").is_empty());
        fs::write(root.join("a/id-2/f"), "x").unwrap();
        assert_eq!(Tree::read(root).without_unused().with("id-2").len(), 2);
    }

    #[test]
    fn only_own_items_of_a_directory_that_others_use_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["12345678-0001-a/data", "names/of-12345678-0001-b", "12345678-0002-a", "theirs/12345678"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        fs::write(root.join("12345678-0001-a/data/file"), "x").unwrap();
        // A link that leads nowhere is a note, and stores nothing.
        std::os::unix::fs::symlink("2026-11-28", root.join("12345678-0001-note")).unwrap();
        std::os::unix::fs::symlink("12345678-0001-a", root.join("12345678-0001-link")).unwrap();
        let mut tree = Tree::default();
        tree.add_own(root, "12345678-0001");
        let found: Vec<_> = tree.0.keys().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect();
        assert_eq!(
            found,
            [
                "12345678-0001-a",
                "12345678-0001-a/data",
                "12345678-0001-a/data/file",
                "12345678-0001-link",
                "names/of-12345678-0001-b"
            ]
        );
        assert_eq!(tree.with("0001-b"), [root.join("names/of-12345678-0001-b")]);
        fs::set_permissions(root.join("12345678-0001-a"), fs::Permissions::from_mode(0o1700)).unwrap();
        fs::set_permissions(root.join("names/of-12345678-0001-b"), fs::Permissions::from_mode(0o1000)).unwrap();
        let mut tree = Tree::default();
        tree.add_own(root, "12345678-0001");
        assert_eq!(tree.unused(), [root.join("names/of-12345678-0001-b")]);
    }
}
