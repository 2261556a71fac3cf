//! The control group that contains all pods of a cluster, so that they can be found and ended together.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::nodes::Node;
use crate::process::END;

/// A control group at the top of each hierarchy: of several with version 1, of a single one with version 2.
pub(crate) struct Cgroup {
    name: String,
    hierarchies: Vec<Hierarchy>,
}

struct Hierarchy {
    mount: PathBuf,
    version: u8,
}

impl Cgroup {
    pub(crate) fn of_cluster(cluster: &str) -> Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
        let hierarchies: Vec<_> = mounts.lines().filter_map(hierarchy).collect();
        if hierarchies.is_empty() {
            bail!("no control groups are mounted; a node needs them under /sys/fs/cgroup");
        }
        Ok(Self { name: format!("flex-cluster-{cluster}"), hierarchies })
    }

    /// Returns the group of a node: that of the cluster, and below it those of further nodes.
    pub(crate) fn of_node(cluster: &str, node: &Node) -> Result<Self> {
        let mut found = Self::of_cluster(cluster)?;
        if !node.is_first() {
            found.name = format!("{}/node-{}", found.name, node.number);
        }
        Ok(found)
    }

    /// Returns its name as the kubelet takes it.
    pub(crate) fn path(&self) -> String {
        format!("/{}", self.name)
    }

    pub(crate) fn create(&self) -> Result<()> {
        // A hybrid machine mounts version 2 beside version 1, without controllers: there the group needs nothing.
        let mixed = self.hierarchies.iter().any(|hierarchy| hierarchy.version == 1);
        for hierarchy in &self.hierarchies {
            let group = hierarchy.mount.join(&self.name);
            if hierarchy.version == 2 && mixed {
                continue;
            }
            if hierarchy.version == 2 {
                enable_controllers(&hierarchy.mount);
            }
            fs::create_dir_all(&group).with_context(|| format!("create {}", group.display()))?;
            if hierarchy.version == 2 {
                enable_controllers(&group);
            }
            // A new cpuset of version 1 is empty, and takes no process until it has processors.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let (1, Ok(all)) = (hierarchy.version, fs::read_to_string(hierarchy.mount.join(file))) {
                    fs::write(group.join(file), all).with_context(|| format!("write {file} in {}", group.display()))?;
                }
            }
        }
        Ok(())
    }

    /// Kills every process in the group, and removes the group.
    pub(crate) fn remove(&self) -> Result<()> {
        let deadline = Instant::now() + END;
        for hierarchy in &self.hierarchies {
            let top = hierarchy.mount.join(&self.name);
            while top.exists() {
                let groups = groups_below(&top);
                for pid in groups.iter().flat_map(|group| processes(group)) {
                    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                        Ok(()) | Err(Errno::ESRCH) => {}
                        Err(error) => return Err(error).with_context(|| format!("kill process {pid} of a pod")),
                    }
                }
                // The deepest group first. A group stays busy until its last process has ended.
                for group in groups.iter().rev() {
                    let _ = fs::remove_dir(group);
                }
                if top.exists() {
                    if Instant::now() > deadline {
                        bail!("the control group {} is still in use after {END:?}", top.display());
                    }
                    sleep(Duration::from_millis(10));
                }
            }
        }
        Ok(())
    }
}

/// Returns mount point and version from a line of mountinfo.
fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (before, after) = line.split_once(" - ")?;
    let version = match after.split(' ').next()? {
        "cgroup" => 1,
        "cgroup2" => 2,
        _ => return None,
    };
    Some(Hierarchy { mount: before.split(' ').nth(4)?.into(), version })
}

/// Lets the children of a version 2 group have each controller that the machine has.
fn enable_controllers(group: &Path) {
    let available = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_whitespace() {
        // The kubelet reports controllers that cannot be enabled: it knows which ones it needs.
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Lists a group and all groups below it, parents before children.
fn groups_below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while next < found.len() {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        found.extend(entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()));
        next += 1;
    }
    found
}

fn processes(group: &Path) -> Vec<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_read_from_mountinfo() {
        let first = hierarchy("30 25 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory").unwrap();
        assert_eq!((first.mount, first.version), ("/sys/fs/cgroup/memory".into(), 1));
        let second = hierarchy("30 25 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw").unwrap();
        assert_eq!((second.mount, second.version), ("/sys/fs/cgroup".into(), 2));
        assert!(hierarchy("30 25 0:26 / /tmp rw - tmpfs tmpfs rw").is_none());
    }
}
