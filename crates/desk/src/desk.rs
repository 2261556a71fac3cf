//! Runs a container on this machine, with the API beside it, as a kubelet would.

mod ended;
mod error;
mod home;
mod log;
mod mount_points;
mod node;
mod process;
mod programs;
mod temporary;
mod tools;

use std::path::{Path, PathBuf};

use k8s_openapi::api::batch::v1::Job;

pub use self::ended::Ended;
pub use self::error::DeskError;
pub use self::log::last_lines;
use self::node::Node;
pub(crate) use self::node::is_root;
pub use self::process::{Killer, Stop};
pub use self::programs::flex_pv;
pub use self::temporary::Temporary;
pub use self::tools::{Isolation, Program, Tools};
use crate::api::Api;
use crate::below::Below;
use crate::container::{Container, PodFacts, container};
use crate::sandbox::spec::Trouble;
use crate::setting::Setting;

/// The name of the pod of each run.
const POD: &str = "desk-run";

/// A machine in place of a cluster.
pub struct Desk {
    folder: PathBuf,
    tools: Tools,
    node: Node,
    /// The API.
    pub api: Api,
    isolation: Isolation,
}

/// The directory of a run.
enum RunFolder {
    /// In the directory of the desk.
    OfDesk(tempfile::TempDir),
    /// Among the temporary files of this machine.
    OfMachine(Temporary),
}

impl RunFolder {
    fn path(&self) -> &Path {
        match self {
            RunFolder::OfDesk(folder) => folder.path(),
            RunFolder::OfMachine(folder) => folder.path(),
        }
    }
}

impl Desk {
    /// Makes a desk with its files in a directory.
    ///
    /// # Errors
    /// If this machine has no containers, the directory has files of somebody else or cannot be written, or no port can
    /// be had.
    pub async fn new(folder: &Path, tools: Tools) -> Result<Self, DeskError> {
        let isolation = process::isolation(&tools)?;
        let folder = home::taken(folder)?;
        let node = Node::new(&folder, &tools.on_node)?;
        Ok(Desk { node, api: Api::start().await?, isolation, folder, tools })
    }

    /// Returns how near the desk comes to a container.
    pub fn isolation(&self) -> Isolation {
        self.isolation.clone()
    }

    /// Makes the container of a Job, with the variables by which its clients find the API.
    ///
    /// # Errors
    /// If the kubelet would not start it.
    pub fn container(&self, setting: &Setting, job: &Job) -> Result<Container, DeskError> {
        let node = setting.pod_node();
        let facts = PodFacts { name: POD, node, secrets: &setting.secrets, configs: &setting.configs };
        let mut made = container(job, facts).map_err(|missing| DeskError::Container(missing.join("; ")))?;
        if made.command.is_empty() {
            let Some(program) = &self.tools.program else {
                let why = "the config names an image, which this machine does not run: name the program that stands in for it";
                return Err(DeskError::Machine(why.into()));
            };
            made.command.clone_from(&program.words);
        }
        Ok(made)
    }

    /// Runs a container to its end.
    ///
    /// # Errors
    /// If this machine cannot run it.
    pub async fn run(&self, container: &Container, stop: Stop<'_>) -> Result<Ended, DeskError> {
        let folder = self.folder_of_run()?;
        let place = process::Place { folder: folder.path(), node: &self.node, tools: &self.tools, api: &self.api };
        match process::run(&place, container, &self.isolation, &stop).await? {
            Ok(ended) => Ok(Ended { message_from_log: container.message_from_log, ..ended }),
            Err((Trouble::Start, why)) => Ok(Ended::not_started(why)),
            Err((Trouble::Setup, why)) => Err(process::unconfinable(&why)),
        }
    }

    /// Makes the directory of a run, which goes with the run. Only a run without mounts of its own walks to it.
    fn folder_of_run(&self) -> std::io::Result<RunFolder> {
        if !matches!(self.isolation, Isolation::None(_)) {
            return Ok(RunFolder::OfDesk(tempfile::Builder::new().prefix("run-").tempdir_in(&self.folder)?));
        }
        let folder = Temporary::new()?;
        node::open(folder.path())?;
        Ok(RunFolder::OfMachine(folder))
    }

    /// Removes everything that runs have stored in directories of the desk.
    ///
    /// # Errors
    /// If something cannot be removed.
    pub fn clear(&self) -> Result<(), DeskError> {
        Ok(self.node.clear()?)
    }

    /// Returns the file or directory at the end of the links at a path of the node.
    ///
    /// # Errors
    /// If a link leads out of the directories that stand for the node.
    pub fn on_node(&self, path: &str) -> Result<PathBuf, DeskError> {
        Ok(self.node.end_of_links(path)?)
    }

    /// Writes a file of the desk itself.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn keep(&self, name: &str, text: &str) -> std::io::Result<()> {
        Below::open(&self.folder)?.write(Path::new(name), text.as_bytes(), 0o600, None)
    }

    /// Reads a file of the desk itself; `None` if it is missing.
    ///
    /// # Errors
    /// If something else has its name.
    pub fn kept(&self, name: &str) -> std::io::Result<Option<String>> {
        match Below::open(&self.folder)?.read(Path::new(name)).and_then(std::io::read_to_string) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// Returns the directory with everything that runs have stored on the desk itself.
    pub fn storage(&self) -> &Path {
        self.node.folder()
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
