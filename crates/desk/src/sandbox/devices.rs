//! The parts of the kernel that a container sees: a few devices, and `/proc` without what would change this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rustix::mount::{MountFlags, mount, mount_bind, mount_remount};

use super::place::{below, directory, file, tmpfs};

/// The devices that change nothing on this machine.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// The links in `/dev`.
const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];
/// The file in place of files and sockets that a container must not use.
const NULL: &str = "/dev/null";
/// Parts of `/proc` and `/sys` that a container does not see.
const HIDDEN: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
/// Parts of `/proc` that a container can only read.
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Makes `/dev` below the new root.
pub(super) fn make_devices(root: &Path) -> Result<(), String> {
    let dev = root.join("dev");
    directory(&dev)?;
    tmpfs(&dev, c"mode=0755")?;
    for name in DEVICES {
        let (device, at) = (Path::new("/dev").join(name), dev.join(name));
        if device.exists() {
            file(&at)?;
            mount_bind(&device, &at).map_err(|error| format!("{}: {error}", device.display()))?;
        }
    }
    for (name, target) in LINKS {
        symlink(target, dev.join(name)).map_err(|error| format!("/dev/{name}: {error}"))?;
    }
    directory(&dev.join("shm"))?;
    tmpfs(&dev.join("shm"), c"mode=1777")
}

/// Mounts `/proc` below the new root, and takes from it, and from `/sys`, what a container runtime takes.
pub(super) fn mount_proc(root: &Path) -> Result<(), String> {
    let at = root.join("proc");
    directory(&at)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", &at, "proc", flags, None).map_err(|error| format!("/proc cannot be mounted: {error}"))?;
    for path in READ_ONLY.map(|path| below(root, Path::new(path))) {
        if path.exists() {
            let failed = |error| format!("{} cannot be made read-only: {error}", path.display());
            mount_bind(&path, &path).map_err(failed)?;
            mount_remount(&path, MountFlags::BIND | MountFlags::RDONLY | flags, c"").map_err(failed)?;
        }
    }
    HIDDEN.iter().try_for_each(|path| hide(&below(root, Path::new(path))))
}

/// Puts nothing in place of a file, socket or directory.
pub(super) fn hide(path: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{} cannot be hidden: {error}", path.display());
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => tmpfs(path, c"mode=0555").and_then(|()| {
            let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
            mount_remount(path, flags, c"").map_err(|error| failed(&error))
        }),
        Ok(_) => match mount_bind(NULL, path) {
            // The process of a socket has removed it meanwhile.
            Err(_) if fs::symlink_metadata(path).is_err() => Ok(()),
            done => done.map_err(|error| failed(&error)),
        },
        // It is not there, or the user of this process, who is that of the container, may not see it.
        Err(_) => Ok(()),
    }
}
