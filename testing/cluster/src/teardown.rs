//! Takes a whole cluster down, by its state file or by its leftovers.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, umount2};

use crate::cgroup::Cgroup;
use crate::component::Component;
use crate::nodes::Node;
use crate::process::{END, Identity};
use crate::state::State;
use crate::whole::{default_root, run_dir};

/// The file that marks a directory of this program.
pub(crate) const MARK: &str = ".flex-cluster";

/// Stops all processes and removes all files. With `keep_logs` the log directory stays, for a start that failed.
pub(crate) fn take_down(name: &str, keep_logs: bool) -> Result<()> {
    let run = run_dir(name);
    if !run.exists() {
        // Only the logs of a failed start can exist.
        return remove_root(&default_root(name), keep_logs);
    }
    // Without a state file nothing was started: it is written first.
    if let Ok(state) = State::load(&run) {
        stop_processes(&state)?;
        if state.node.is_some() {
            Cgroup::of_cluster(name)?.remove()?;
            for node in state.nodes() {
                stop_shims(&node)?;
                remove_bundle_sockets(&node);
            }
            remove_runtime_leftovers(&state);
        }
        if let Some(network) = &state.network {
            network.remove();
        }
        // The mounts of a further node end with its namespace, before the files below them are removed.
        for node in state.nodes().iter().filter(|node| !node.is_first()) {
            unmount_below(&node.run)?;
        }
        remove_all(&state.etcd_data)?;
        remove_root(&state.root, keep_logs)?;
    }
    unmount_below(&run)?;
    remove_all(&run)
}

/// Stops the kubelets first: they would restart the processes that end next.
fn stop_processes(state: &State) -> Result<()> {
    let is_kubelet = |component| component == Component::Kubelet;
    let kubelets = state.all_processes().filter(|(_, component, _)| is_kubelet(*component));
    let others = state.all_processes().filter(|(_, component, _)| !is_kubelet(*component));
    kubelets.chain(others).try_for_each(|(_, _, process)| process.identity.kill())
}

/// Ends the processes that watch over containers. They are children of containerd, and known by the socket of this
/// node in their command line.
fn stop_shims(node: &Node) -> Result<()> {
    let socket = node.containerd_socket();
    let deadline = Instant::now() + END;
    loop {
        let shims = shims_of(&socket);
        if shims.is_empty() {
            return Ok(());
        }
        for shim in shims {
            shim.kill()?;
        }
        if Instant::now() > deadline {
            bail!("containerd shims of {} still run after {END:?}", node.name);
        }
        sleep(Duration::from_millis(10));
    }
}

fn shims_of(socket: &Path) -> Vec<Identity> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| {
            // The identity first: if the id is reused after this, the kill finds the wrong start time.
            let identity = Identity::of(pid).ok()?;
            let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let texts: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
            let shim = texts.first()?.ends_with(b"containerd-shim-runc-v2");
            let is_of_node =
                texts.windows(2).any(|pair| pair[0] == b"-address" && pair[1] == socket.as_os_str().as_encoded_bytes());
            (shim && is_of_node && identity.is_alive()).then_some(identity)
        })
        .collect()
}

/// Removes the sockets of shims, which are outside of this program's directories: each bundle names its own socket.
fn remove_bundle_sockets(node: &Node) {
    let bundles = node.run.join("containerd/io.containerd.runtime.v2.task/k8s.io");
    for bundle in entries(&bundles) {
        let address = fs::read_to_string(bundle.join("address")).unwrap_or_default();
        if let Some(socket) = address.strip_prefix("unix://") {
            let _ = fs::remove_file(socket.trim());
        }
    }
}

/// Removes the files of the plugins and the kubelet outside of this program's directories. Further nodes have theirs on
/// their own disks.
fn remove_runtime_leftovers(state: &State) {
    // The results of the network plugins name their namespace, which is below this program's directory.
    let namespaces = state.run.display().to_string() + "/";
    for result in entries(Path::new("/var/lib/cni/results")) {
        if fs::read_to_string(&result).is_ok_and(|text| text.contains(&namespaces)) {
            let _ = fs::remove_file(result);
        }
    }
    // The kubelet listens for device plugins at a fixed path; the socket of another kubelet answers.
    let plugins = Path::new("/var/lib/kubelet/device-plugins");
    if UnixStream::connect(plugins.join("kubelet.sock")).is_err() {
        let _ = fs::remove_file(plugins.join("kubelet.sock"));
    }
    for shared in [
        "/var/lib/kubelet/device-plugins",
        "/var/lib/kubelet",
        "/var/lib/cni/results",
        "/var/lib/cni",
        "/run/containerd/s",
        "/run/containerd",
    ] {
        // This succeeds only for an empty directory.
        let _ = fs::remove_dir(shared);
    }
    for link in entries(Path::new("/var/log/containers")) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(&state.root)) {
            let _ = fs::remove_file(link);
        }
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Unmounts everything below a directory, and checks that: deleting files through a remaining mount would delete the
/// data of a volume.
fn unmount_below(dir: &Path) -> Result<()> {
    let deadline = Instant::now() + END;
    while Instant::now() < deadline {
        let mounts = mounts_below(dir)?;
        if mounts.is_empty() {
            return Ok(());
        }
        for mount in mounts.iter().rev() {
            // Detached even if in use: the users are dead or dying.
            let _ = umount2(mount, MntFlags::MNT_DETACH);
        }
        sleep(Duration::from_millis(10));
    }
    bail!("mounts below {} cannot be unmounted: {:?}", dir.display(), mounts_below(dir)?)
}

/// Lists mount points at or below a directory, in the order in which they were made.
fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(|point| PathBuf::from(point.replace("\\040", " "))).filter(|point| point.starts_with(dir)).collect())
}

/// Removes a directory of this program with everything in it, but not what is mounted there. It leaves other
/// directories alone.
pub(crate) fn remove_root(root: &Path, keep_logs: bool) -> Result<()> {
    if !root.join(MARK).exists() {
        return Ok(());
    }
    unmount_below(root)?;
    // The mark is removed last: if something cannot be removed, the rest still has the mark.
    for entry in entries(root) {
        let name = entry.file_name().unwrap_or_default();
        if name == MARK || (keep_logs && name == "logs") {
            continue;
        }
        if entry.is_dir() { remove_all(&entry)? } else { fs::remove_file(&entry)? }
    }
    if keep_logs { Ok(()) } else { remove_all(root) }
}

pub(crate) fn remove_all(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("remove {}", dir.display())),
    }
}
