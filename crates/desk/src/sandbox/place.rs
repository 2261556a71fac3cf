//! Places of mounts below the new root, before anything of a config is there.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

pub(super) fn tmpfs(at: &Path, mode: &CStr) -> Result<(), String> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", at, "tmpfs", flags, mode).map_err(|error| format!("{}: tmpfs: {error}", at.display()))
}

pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

pub(super) fn directory(at: &Path) -> Result<(), String> {
    fs::create_dir_all(at).map_err(|error| format!("{}: {error}", at.display()))
}

pub(super) fn file(at: &Path) -> Result<(), String> {
    let made = fs::OpenOptions::new().write(true).create(true).truncate(false).open(at);
    made.map(drop).map_err(|error| format!("{}: {error}", at.display()))
}
