//! The mounts of the container. Its root is a copy of this machine's directories as mounts, without what the container's
//! own mounts replace, and without the directories of this machine's processes.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, mount_remount,
    unmount,
};
use rustix::process::pivot_root;

use super::devices::{make_devices, mount_proc};
use super::place::{below, directory, file, tmpfs};
use super::sockets::hide_sockets;
use super::spec::{Bind, COVERED, Placed, Spec};
use super::users::Users;
use crate::below::Below;

/// The directory with the devices of the container.
const DEV: &str = "/dev";
/// The directory for memory that processes of the container share.
const SHARED: &str = "/dev/shm";

/// Mounts everything, and changes to the new root. The old one is out of reach then.
pub(super) fn enter(spec: &Spec) -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| format!("this machine gives no mounts to a process: {error}"))?;
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", all).map_err(|error| format!("mounts cannot be made private: {error}"))?;
    let root = spec.root();
    tmpfs(&root, c"mode=0755")?;
    if !spec.own_users {
        let owner = spec.users.outside(0);
        chown(&root, Some(owner), Some(owner)).map_err(|error| format!("the root: {error}"))?;
    }
    let mut binds: Vec<Placed<'_>> = spec.binds.iter().map(|bind| (placed(&bind.target), bind)).collect();
    // A mount within another one comes after it.
    binds.sort_by_key(|(place, _)| place.components().count());
    let places: BTreeSet<PathBuf> = binds.iter().map(|(place, _)| place.clone()).collect();
    let covered: BTreeSet<PathBuf> = COVERED.iter().map(|path| resolved(Path::new(path))).collect();
    let own = ["/proc", DEV].map(PathBuf::from);
    let targets: BTreeSet<PathBuf> = places.iter().chain(&covered).cloned().chain(own).collect();
    mirror(Path::new("/"), &root, &targets)?;
    mount_proc(&root)?;
    if !places.contains(Path::new(DEV)) {
        make_devices(&root)?;
    }
    for at in covered.iter().filter(|path| !places.contains(*path)).map(|path| below(&root, path)) {
        directory(&at)?;
        tmpfs(&at, c"mode=0755")?;
    }
    let new = Below::open(&root).map_err(|error| format!("the root: {error}"))?;
    binds.iter().try_for_each(|(place, bind)| bound(&new, &root, place, bind, &targets))?;
    hide_sockets(&root, &binds, &spec.on_node)?;
    change_root(&root).map_err(|error| format!("the root: {error}"))?;
    protect(spec, &binds)
}

/// Makes a directory the root, and detaches the one before. A program that leaves its root by `chroot` finds only this one.
fn change_root(root: &Path) -> std::io::Result<()> {
    std::env::set_current_dir(root)?;
    pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    std::env::set_current_dir("/")
}

/// Returns the place of a mount. Links of this machine lead to it, but none in a directory that this machine's is not in.
fn placed(target: &Path) -> PathBuf {
    for path in COVERED.iter().chain(&[DEV]) {
        if let Ok(rest) = target.strip_prefix(path) {
            let rest = rest.components().filter(|part| matches!(part, Component::Normal(_)));
            return resolved(Path::new(path)).join(rest.collect::<PathBuf>());
        }
    }
    resolved(target)
}

/// Returns the path without links and dots, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let mut known = path.to_path_buf();
    let mut rest = Vec::new();
    loop {
        if let Ok(found) = known.canonicalize() {
            return rest.iter().rev().fold(found, |path, name| path.join(name));
        }
        match (known.file_name().map(ToOwned::to_owned), known.parent()) {
            (Some(name), Some(parent)) => {
                rest.push(name);
                known = parent.to_path_buf();
            }
            _ => return path.components().filter(|part| !matches!(part, Component::ParentDir)).collect(),
        }
    }
}

/// Returns a path by which the kernel finds an open file, and no other one.
fn by_number(open: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", open.as_raw_fd())
}

/// Mounts a file, a directory or memory at a place, which is made if it is missing. A run may have changed the directories
/// that lead to source and place: links there are not followed.
fn bound(new: &Below, root: &Path, place: &Path, bind: &Bind, targets: &BTreeSet<PathBuf>) -> Result<(), String> {
    let within = place.strip_prefix("/").unwrap_or(place);
    let failed = |error: &dyn std::fmt::Display| format!("the mount at {}: {error}", place.display());
    let Some(source) = &bind.source else {
        let at = new.make(within, None).map_err(|error| failed(&error))?.directory;
        return tmpfs(Path::new(&by_number(at.as_fd())), c"mode=1777").map_err(|error| failed(&error));
    };
    if bind.is_of_machine() && targets.iter().any(|target| target != place && target.starts_with(place)) {
        // A place within is not made in a directory of this machine.
        new.make(within, None).map_err(|error| failed(&error))?;
        return mirror(place, &below(root, place), targets);
    }
    let is_directory = fs::metadata(source).map_err(|error| failed(&error))?.is_dir();
    if !is_directory {
        let at = new.make_file(within).map_err(|error| failed(&error))?;
        return mount_bind(source, by_number(at.as_fd())).map_err(|error| failed(&error));
    }
    let source = Below::open(source).and_then(|source| source.find(&bind.within)).map_err(|error| failed(&error))?;
    let at = new.make(within, None).map_err(|error| failed(&error))?.directory;
    mount_bind_recursive(by_number(source.as_fd()), by_number(at.as_fd())).map_err(|error| failed(&error))
}

/// Repeats a directory of this machine in another place: each entry is a mount, unless a target is in it or is it.
fn mirror(from: &Path, to: &Path, targets: &BTreeSet<PathBuf>) -> Result<(), String> {
    let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    for entry in fs::read_dir(from).map_err(|error| failed(from, &error))? {
        let entry = entry.map_err(|error| failed(from, &error))?;
        let (path, at) = (entry.path(), to.join(entry.file_name()));
        if targets.contains(&path) {
            continue;
        }
        let kind = match entry.file_type() {
            Ok(kind) => kind,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path, &error)),
        };
        let mounted = if kind.is_symlink() {
            fs::read_link(&path).and_then(|target| symlink(target, &at)).map_err(|error| failed(&path, &error))
        } else if kind.is_dir() && targets.iter().any(|target| target.starts_with(&path)) {
            directory(&at)?;
            mirror(&path, &at, targets)
        } else if kind.is_dir() {
            directory(&at)?;
            mount_bind_recursive(&path, &at).map_err(|error| failed(&path, &error))
        } else if kind.is_socket() || kind.is_fifo() {
            Ok(())
        } else {
            file(&at)?;
            mount_bind(&path, &at).map_err(|error| failed(&path, &error))
        };
        // A directory that this user may not see is not there for the container either.
        match mounted {
            Err(_) if !path.exists() => {}
            other => other?,
        }
    }
    Ok(())
}

/// Returns the rights that a mount loses. The directories of this machine are read-only, whatever the pod says of its root.
fn lost(spec: &Spec, binds: &[Placed<'_>], at: &Path) -> MountFlags {
    let own = binds.iter().filter(|(place, _)| at.starts_with(place));
    let own = own.max_by_key(|(place, _)| place.as_os_str().len());
    let keeps_root = at == Path::new("/") && !spec.read_only_root;
    let read_only = own.map_or(!keeps_root && at != Path::new(SHARED), |(_, bind)| bind.read_only);
    let mut lost = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    if spec.users != Users::OfMachine {
        lost |= MountFlags::NOSUID;
        if !at.starts_with(DEV) {
            lost |= MountFlags::NODEV;
        }
    }
    lost
}

/// Takes from all mounts the rights that the container must not have.
fn protect(spec: &Spec, binds: &[Placed<'_>]) -> Result<(), String> {
    for Mounted { at, flags } in all_mounts()? {
        let lost = lost(spec, binds, &at);
        if flags.contains(lost) || at.starts_with("/proc") {
            continue;
        }
        let done = mount_remount(&at, MountFlags::BIND | lost | flags, c"");
        match done {
            Ok(()) | Err(Errno::NOENT) => {}
            // Somebody has removed the directory meanwhile, as a kubelet does with its pods' mounts.
            Err(Errno::INVAL) if all_mounts()?.iter().all(|mounted| mounted.at != at) => {}
            // The user of this process may not walk there, nor may the container, which is the same user.
            Err(Errno::ACCESS) if spec.own_users => {}
            Err(error) => return Err(format!("{} cannot be made read-only: {error}", at.display())),
        }
    }
    Ok(())
}

/// Returns the mounts that this process sees now.
fn all_mounts() -> Result<Vec<Mounted>, String> {
    let list = fs::read_to_string("/proc/self/mountinfo").map_err(|error| format!("mountinfo: {error}"))?;
    Ok(list.lines().filter_map(mounted).collect())
}

/// A mount, as `mountinfo` lists it.
struct Mounted {
    at: PathBuf,
    flags: MountFlags,
}

fn mounted(line: &str) -> Option<Mounted> {
    // A namespace that a container runtime keeps as a mount has no files.
    let (_, kind) = line.split_once(" - ")?;
    if kind.starts_with("nsfs ") {
        return None;
    }
    let mut fields = line.split(' ').skip(4);
    let (at, options) = (fields.next()?, fields.next()?);
    let at = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(at.to_owned(), |at, (code, character)| at.replace(code, character));
    let known = [
        ("ro", MountFlags::RDONLY),
        ("nosuid", MountFlags::NOSUID),
        ("nodev", MountFlags::NODEV),
        ("noexec", MountFlags::NOEXEC),
        ("noatime", MountFlags::NOATIME),
        ("nodiratime", MountFlags::NODIRATIME),
        ("relatime", MountFlags::RELATIME),
    ];
    let options: Vec<&str> = options.split(',').collect();
    let flags = known.into_iter().filter(|(name, _)| options.contains(name)).map(|(_, flag)| flag);
    Some(Mounted { at: at.into(), flags: flags.fold(MountFlags::empty(), |all, flag| all | flag) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_with_its_place_and_flags() {
        let Mounted { at, flags } =
            mounted("36 35 98:0 /mnt1 /mnt\\0402 rw,nosuid,noatime master:1 - ext3 /dev/root rw").unwrap();
        assert_eq!(at, Path::new("/mnt 2"));
        assert_eq!(flags, MountFlags::NOSUID | MountFlags::NOATIME);
        assert!(mounted("40 35 0:4 net:[4026532] /run/netns/a rw - nsfs nsfs rw").is_none());
    }

    #[test]
    fn a_target_is_resolved_as_far_as_it_exists() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        fs::create_dir(real.join("run")).unwrap();
        symlink("run", real.join("link")).unwrap();
        assert_eq!(resolved(&real.join("link/secrets/token")), real.join("run/secrets/token"));
        assert_eq!(resolved(&real.join("none")), real.join("none"));
    }

    #[test]
    fn links_of_this_machine_do_not_lead_out_of_the_directories_that_the_container_has_of_its_own() {
        let folder = tempfile::tempdir_in("/tmp").unwrap();
        symlink("/etc", folder.path().join("link")).unwrap();
        let target = folder.path().join("link/x");
        assert_eq!(placed(&target), target);
        assert_eq!(placed(Path::new("/tmp/../etc/x")), Path::new("/tmp/etc/x"));
        assert_eq!(placed(Path::new("/etc/x")), resolved(Path::new("/etc")).join("x"));
    }
}
