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
        tree.add(root, root);
        tree
    }

    /// Leaves out directories that belong to nobody, as the kubelet makes them for runs that see only their own volume.
    #[must_use]
    pub fn without_unused(mut self) -> Self {
        let has_content = |path: &Path| self.0.keys().any(|other| other != path && other.starts_with(path));
        let is_unused = |path: &Path, item: &Item| UNUSED.contains(&item.mode) && !has_content(path);
        let unused: Vec<PathBuf> =
            self.0.iter().filter(|(path, item)| is_unused(path, item)).map(|(path, _)| path.clone()).collect();
        self.0.retain(|path, _| !unused.contains(path));
        self
    }

    fn add(&mut self, root: &Path, at: &Path) {
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(metadata) = path.symlink_metadata() else { continue };
            let mut hasher = DefaultHasher::new();
            if metadata.is_symlink() {
                fs::read_link(&path).unwrap_or_default().hash(&mut hasher);
            } else if metadata.is_file() {
                // A large file is known by its size and its blocks.
                (metadata.len(), metadata.blocks()).hash(&mut hasher);
                if metadata.len() < 1 << 20 {
                    fs::read(&path).unwrap_or_default().hash(&mut hasher);
                }
            }
            let item = Item { mode: metadata.permissions().mode(), content: hasher.finish() };
            self.0.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), item);
            if metadata.is_dir() {
                self.add(root, &path);
            }
        }
    }

    /// Returns the paths that have a text in one of their names.
    pub fn with(&self, text: &str) -> Vec<&Path> {
        let has = |path: &&PathBuf| path.iter().any(|name| name.to_string_lossy().contains(text));
        self.0.keys().filter(has).map(PathBuf::as_path).collect()
    }

    /// Returns the paths that differ between two trees.
    pub fn changes(&self, later: &Tree) -> Vec<String> {
        let all = self.0.keys().chain(later.0.keys().filter(|path| !self.0.contains_key(*path)));
        let changed = all.filter(|path| self.0.get(*path) != later.0.get(*path));
        changed.map(|path| path.display().to_string()).collect()
    }
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
}
