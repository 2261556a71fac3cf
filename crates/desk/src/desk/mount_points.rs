//! The files that the desk leaves in directories of this machine, as places for its own mounts in a container. An example
//! is `/dev/termination-log` in a container that mounts `/dev` of this machine. The files go with the desk.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::below::Below;
use crate::on_node::OnNode;
use crate::sandbox::spec::Bind;

/// The places of mounts in some directories of this machine.
#[derive(Debug, Default)]
pub(super) struct MountPoints {
    directories: Vec<PathBuf>,
    /// Other desks with the same directory remove nothing while this one has these locks. The directory itself stays
    /// without a lock, because a program may lock it.
    locks: Vec<Lock>,
    made: RefCell<BTreeSet<Place>>,
}

/// A directory of this machine, and a path within.
type Place = (PathBuf, PathBuf);

impl MountPoints {
    pub fn new(on_node: &[OnNode]) -> Self {
        let directories: Vec<PathBuf> = on_node.iter().map(|one| one.directory.clone()).collect();
        let locks: Vec<Lock> = directories.iter().filter_map(|directory| Lock::of(directory).ok()).collect();
        MountPoints { directories, locks, made: RefCell::default() }
    }

    /// Notes the places that the mounts of a container will make in the directories.
    pub fn note(&self, binds: &[Bind]) {
        let is_missing = |(root, within): &Place| !Below::open(root).is_ok_and(|root| root.has(within));
        let missing = places(binds, &self.directories).into_iter().filter(is_missing);
        self.made.borrow_mut().extend(missing);
    }
}

impl Drop for MountPoints {
    fn drop(&mut self) {
        let is_last = self.locks.iter().all(|lock| lock.file.try_lock().is_ok());
        for (root, within) in self.made.borrow().iter().rev().filter(|_| is_last) {
            // A directory with files of others stays, and so does a file that somebody has written.
            let _ = Below::open(root).and_then(|root| root.remove_empty(within));
        }
        for lock in self.locks.iter().filter(|_| is_last) {
            let _ = fs::remove_file(&lock.path);
        }
    }
}

/// A file among the temporary files of this machine. All desks with the same directory lock it together.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    file: File,
}

impl Lock {
    fn of(directory: &Path) -> io::Result<Self> {
        let found = fs::metadata(directory)?;
        let path = std::env::temp_dir().join(format!("flex-desk-{:x}-{:x}.lock", found.dev(), found.ino()));
        // A file of another user can be opened, and not created again.
        let file = File::open(&path).or_else(|_| File::create_new(&path)).or_else(|_| File::open(&path))?;
        file.try_lock_shared()?;
        Ok(Lock { path, file })
    }
}

/// Returns the places of mounts within the directories, with the directories that lead to them.
fn places(binds: &[Bind], directories: &[PathBuf]) -> Vec<Place> {
    let mut all = Vec::new();
    for (n, outer) in binds.iter().enumerate() {
        let source = outer.source.as_ref().filter(|source| directories.iter().any(|one| source.starts_with(one)));
        let Some(source) = source else { continue };
        for inner in &binds[n + 1..] {
            let Ok(within) = inner.target.strip_prefix(&outer.target) else { continue };
            let parts = within.ancestors().filter(|part| *part != Path::new(""));
            all.extend(parts.map(|part| (source.clone(), outer.within.join(part))));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(target: &str, source: Option<&Path>) -> Bind {
        Bind { target: target.into(), source: source.map(Path::to_path_buf), within: PathBuf::new(), read_only: false }
    }

    fn on_node(directory: &Path) -> OnNode {
        OnNode { path: "/dev".into(), directory: directory.to_path_buf() }
    }

    #[test]
    fn only_mounts_within_a_directory_of_this_machine_leave_places_there() {
        let (dev, other) = (PathBuf::from("/m/dev"), PathBuf::from("/m/other"));
        let binds = [
            bind("/dev", Some(&dev)),
            bind("/data", Some(&other)),
            bind("/data/x", Some(&other)),
            bind("/dev/a/b", Some(&other)),
            bind("/device", Some(&other)),
            bind("/dev", None),
        ];
        assert_eq!(places(&binds, std::slice::from_ref(&dev)), [(dev.clone(), "a/b".into()), (dev, "a".into())]);
    }

    #[test]
    fn nothing_is_removed_where_a_link_of_a_run_leads() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("log"), "").unwrap();
        let desk = MountPoints::new(&[on_node(folder.path())]);
        desk.note(&[bind("/dev", Some(folder.path())), bind("/dev/x/log", None)]);
        std::os::unix::fs::symlink(outside.path(), folder.path().join("x")).unwrap();
        drop(desk);
        assert!(outside.path().join("log").exists());
    }

    /// Recipes lock the directory of their volumes.
    #[test]
    fn a_program_can_lock_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let desk = MountPoints::new(&[on_node(folder.path())]);
        assert!(desk.locks[0].path.exists());
        File::open(folder.path()).unwrap().try_lock().unwrap();
        let path = desk.locks[0].path.clone();
        drop(desk);
        assert!(!path.exists());
    }

    #[test]
    fn a_place_goes_with_the_last_desk_that_uses_the_directory_and_files_of_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("theirs"), "").unwrap();
        let binds = [bind("/dev", Some(folder.path())), bind("/dev/log", None), bind("/dev/theirs", None)];
        let all = [on_node(folder.path())];
        let first = MountPoints::new(&all);
        first.note(&binds);
        fs::write(path("log"), "").unwrap();
        let second = MountPoints::new(&all);
        drop(first);
        assert!(path("log").exists(), "another desk may have a mount there");
        drop(second);
        let last = MountPoints::new(&all);
        fs::remove_file(path("log")).unwrap();
        last.note(&binds);
        fs::write(path("log"), "").unwrap();
        drop(last);
        assert!(!path("log").exists() && path("theirs").exists());
    }
}
