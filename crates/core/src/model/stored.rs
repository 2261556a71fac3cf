//! The objects in which the orchestrator keeps something in its own namespace ([`Stored`]).

use super::record::Record;
use crate::config::classes::{KeptScript, Revision};

/// An object in which the orchestrator keeps what a class or a run needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    /// A recipe, with its hash.
    Recipe(String, Revision),
    /// A script.
    Script(KeptScript),
    /// The record of a run.
    Record(Record),
}
