//! The mounts of the container. Its root is a copy of this machine's directories as mounts, without what the container's
//! own mounts replace.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::chroot;

use super::spec::{Bind, Spec};

/// Mounts everything, and changes to the new root.
pub(super) fn enter(spec: &Spec) -> Result<(), String> {
    let all = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", all).map_err(|error| format!("mounts cannot be made private: {error}"))?;
    let root = spec.root();
    tmpfs(&root)?;
    let binds: Vec<(PathBuf, &Bind)> = spec.binds.iter().map(|bind| (resolved(&bind.target), bind)).collect();
    let mut targets: BTreeSet<PathBuf> = binds.iter().map(|(target, _)| target.clone()).collect();
    targets.insert("/proc".into());
    mirror(Path::new("/"), &root, &targets)?;
    mount_proc(&root)?;
    for (target, bind) in &binds {
        let at = below(&root, target);
        match &bind.source {
            Some(source) => bound(source, &at)?,
            None => {
                directory(&at)?;
                tmpfs(&at)?;
                open_to_all(&at)?;
            }
        }
    }
    chroot(&root).map_err(|error| format!("the root: {error}"))?;
    std::env::set_current_dir("/").map_err(|error| format!("the root: {error}"))?;
    protect(spec, &binds)
}

fn tmpfs(at: &Path) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", at, "tmpfs", flags, c"mode=0755").map_err(|error| format!("{}: tmpfs: {error}", at.display()))
}

fn open_to_all(at: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let all = fs::Permissions::from_mode(0o1777);
    fs::set_permissions(at, all).map_err(|error| format!("{}: {error}", at.display()))
}

fn mount_proc(root: &Path) -> Result<(), String> {
    let at = root.join("proc");
    directory(&at)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &at, "proc", flags, None).map_err(|error| format!("/proc cannot be mounted: {error}"))
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
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

fn directory(at: &Path) -> Result<(), String> {
    fs::create_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))
}

fn file(at: &Path) -> Result<(), String> {
    let made = fs::OpenOptions::new().write(true).create(true).truncate(false).open(at);
    made.map(drop).map_err(|error| format!("{}: {error}", at.display()))
}

/// Mounts a file or directory of this machine at a path, which is made if it is missing.
fn bound(source: &Path, at: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{} at {}: {error}", source.display(), at.display());
    let is_directory = fs::metadata(source).map_err(|error| failed(&error))?.is_dir();
    if is_directory {
        directory(at)?;
    } else {
        directory(at.parent().unwrap_or(at))?;
        file(at)?;
    }
    mount_bind_recursive(source, at).map_err(|error| failed(&error))
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

/// Makes all mounts read-only that the container may not write.
fn protect(spec: &Spec, binds: &[(PathBuf, &Bind)]) -> Result<(), String> {
    for Mounted { at, flags } in all_mounts()? {
        let own = binds
            .iter()
            .filter(|(target, _)| at.starts_with(target))
            .max_by_key(|(target, _)| target.as_os_str().len());
        // This machine's directories are read-only, whatever the pod says of its root.
        let read_only = own.map_or(spec.read_only_root || at != Path::new("/"), |(_, bind)| bind.read_only);
        if !read_only || at.starts_with("/proc") {
            continue;
        }
        let done = mount_remount(&at, MountFlags::BIND | MountFlags::RDONLY | flags, c"");
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
}
