//! The own parts of each node of a whole cluster: a name, an address, directories and namespaces.
//!
//! The first node shares the mounts of the machine, and its network namespace with the control plane. Each further node
//! has a network namespace, and a mount namespace in which it has a disk of its own.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::run;

/// The script that covers paths of the machine by the node's disk.
const MOUNTS: &str = include_str!("../node-mounts.sh");

/// The largest number of nodes, by the ranges of addresses.
pub(crate) const MOST_NODES: u8 = 8;

/// A node of a whole cluster.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// 1 for the first node.
    pub(crate) number: u8,
    pub(crate) name: String,
    /// The directory of its configuration and data.
    pub(crate) root: PathBuf,
    /// The directory of its sockets and namespaces.
    pub(crate) run: PathBuf,
    pub(crate) address: Ipv4Addr,
    /// The file of its network namespace.
    pub(crate) network: PathBuf,
}

impl Node {
    pub(crate) fn is_first(&self) -> bool {
        self.number == 1
    }

    /// Returns `text` for the first node, and `text-N` for the others: a name of files that all nodes keep in one
    /// directory.
    pub(crate) fn named(&self, text: &str) -> String {
        if self.is_first() { text.into() } else { format!("{text}-{}", self.number) }
    }

    pub(crate) fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }

    /// Returns the file of its mount namespace, which the first node does not have.
    pub(crate) fn mounts(&self) -> Option<PathBuf> {
        (!self.is_first()).then(|| self.pins().join("mounts"))
    }

    /// Returns the directory of the file of its mount namespace.
    fn pins(&self) -> PathBuf {
        self.run.join("pins")
    }

    /// Returns the directory of the files that only this node has.
    fn disk(&self) -> PathBuf {
        self.root.join("disk")
    }

    /// Returns the place on the machine of a path of this node.
    pub(crate) fn on_machine(&self, path: &Path) -> PathBuf {
        if self.is_first() { path.into() } else { self.disk().join(path.strip_prefix("/").unwrap_or(path)) }
    }

    /// Makes the mount namespace of a further node, which has some directories at the same path as the machine.
    pub(crate) fn create_mounts(&self, kept: &[&Path]) -> Result<()> {
        let Some(mounts) = self.mounts() else { return Ok(()) };
        let (pins, stage, disk) = (self.pins(), self.run.join("stage"), self.disk());
        for dir in [&pins, &stage, &disk] {
            fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        }
        // The kernel keeps a mount namespace only by a file on a mount that is not shared with it.
        run("mount", [Path::new("--bind"), &pins, &pins])?;
        run("mount", [Path::new("--make-private"), &pins])?;
        fs::write(&mounts, "").with_context(|| format!("create {}", mounts.display()))?;
        let options = [format!("--mount={}", mounts.display()), "--propagation=slave".into()];
        let script = ["sh", "-c", MOUNTS, "node-mounts.sh"].map(String::from);
        let paths = [&stage, &disk].map(PathBuf::as_path).into_iter().chain(kept.iter().copied());
        let paths = paths.map(|path| path.display().to_string());
        run("unshare", options.into_iter().chain(script).chain(paths))
            .with_context(|| format!("make the mounts of node {}", self.name))?;
        Ok(())
    }

    /// Runs a command in the namespaces of the node.
    pub(crate) fn inside(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut all = vec![format!("--net={}", self.network.display())];
        all.extend(self.mounts().map(|file| format!("--mount={}", file.display())));
        all.extend(["--", program].into_iter().chain(arguments.iter().copied()).map(String::from));
        run("nsenter", all)
    }
}
