//! The description of a process, which the desk writes into a file and the process reads.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::users::Users;

/// The name under which the program enters its namespaces.
pub const OUTER: &str = "flex-desk-outer";
/// The name under which the program becomes the container.
pub const INNER: &str = "flex-desk-inner";
/// Directories with sockets and files of this machine's processes. The container has empty ones in their place.
pub const COVERED: [&str; 3] = ["/run", "/var/run", "/tmp"];

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// The path in the container.
    pub target: PathBuf,
    /// The file or directory of this machine; `None` for an empty directory in memory.
    pub source: Option<PathBuf>,
    /// The directory within the source; may be empty. Runs may have changed what leads to it, so no link there is followed.
    pub within: PathBuf,
    /// The container may not write.
    pub read_only: bool,
}

/// A mount with its place in the container.
pub(super) type Placed<'a> = (PathBuf, &'a Bind);

impl Bind {
    /// Makes a mount of a file or directory that a person or the desk itself has named.
    pub fn of(target: impl Into<PathBuf>, source: impl Into<PathBuf>, read_only: bool) -> Self {
        Bind { target: target.into(), source: Some(source.into()), within: PathBuf::new(), read_only }
    }

    /// Checks whether the mount is a directory of this machine at its own place, for programs.
    pub fn is_of_machine(&self) -> bool {
        self.read_only && self.source.as_ref() == Some(&self.target)
    }
}

/// A process in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// The mounts.
    pub binds: Vec<Bind>,
    /// The user, and the group.
    pub user: u32,
    /// The capabilities without `CAP_`; `None` for all.
    pub capabilities: Option<Vec<String>>,
    /// A program may get more rights than its caller.
    pub may_escalate: bool,
    /// Nothing can be written except for the mounts that say so.
    pub read_only_root: bool,
    /// The first namespaces belong to a user namespace: the desk does not run as root.
    pub own_users: bool,
    /// The users of the container.
    pub users: Users,
    /// The directories of this machine that a person gave to the run. Their sockets stay.
    pub on_node: Vec<PathBuf>,
    /// A directory for the files of this process.
    pub folder: PathBuf,
}

/// The part that failed before the program ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// This machine does not allow what a container needs.
    Setup,
    /// The program cannot be started.
    Start,
}

impl Spec {
    /// Returns the directory that becomes the root of the container.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Returns the file with the id of the container's first process.
    pub fn pid_file(&self) -> PathBuf {
        self.folder.join("pid")
    }

    fn trouble_file(folder: &Path) -> PathBuf {
        folder.join("trouble")
    }

    /// Reads a description.
    pub fn read(path: &OsStr) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes the description into its directory, and returns the file.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn write(&self) -> std::io::Result<PathBuf> {
        let path = self.folder.join("spec");
        // The environment may have secrets.
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(serde_json::json!(self).to_string().as_bytes())?;
        fs::write(Self::trouble_file(&self.folder), "")?;
        Ok(path)
    }

    /// Opens the file for the reason why the program did not run.
    ///
    /// # Errors
    /// If the file is out of reach.
    pub fn open_report(&self) -> std::io::Result<fs::File> {
        fs::File::options().append(true).open(Self::trouble_file(&self.folder))
    }

    /// Reads why the program did not run.
    pub fn trouble(&self) -> Option<(Trouble, String)> {
        // The process outside may have added that it could not go on either.
        let text = fs::read(Self::trouble_file(&self.folder)).ok()?;
        serde_json::Deserializer::from_slice(&text).into_iter().next()?.ok()
    }
}

/// Writes why the program did not run. There is no other way to tell: its output is the program's.
pub fn report(mut file: fs::File, what: Trouble, why: &str) {
    let _ = file.write_all(serde_json::json!([what, why]).to_string().as_bytes());
}
