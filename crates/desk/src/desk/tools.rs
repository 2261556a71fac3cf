//! The programs of a desk, and the rights that this machine allows.

use std::path::PathBuf;

use crate::on_node::OnNode;

/// The program that stands in for the entry point of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The path, and the arguments.
    pub words: Vec<String>,
}

/// How near the desk comes to a container on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// Mounts and processes of its own, as root of this machine makes them.
    Root,
    /// The same in a user namespace.
    UserNamespace,
    /// None, with the reason, because the person wants it so: the program runs on this machine as it is, with the environment of the run.
    None(String),
}

/// The fixed parts of a desk.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// The program in place of the image; `None` for configs with a script.
    pub program: Option<Program>,
    /// Directories of programs that come before those of `PATH`.
    pub path: Vec<PathBuf>,
    /// The program that [enters](crate::sandbox::entered) a container: this one unless given.
    pub helper: Option<PathBuf>,
    /// The program runs on the real file system, without mounts and processes of its own.
    pub unconfined: bool,
    /// Directories of this machine in place of paths of the node.
    pub on_node: Vec<OnNode>,
}
