//! The front of a call, and what it knows of the program.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::front::Front;

/// An act of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Act {
    /// A volume is made.
    Provision,
    /// The same run is repeated.
    Again,
    /// A snapshot is made.
    Snapshot,
    /// A volume is made from the snapshot.
    Restore,
    /// A volume is made from the volume.
    Clone,
    /// The volumes are listed.
    List,
    /// The snapshot is deleted.
    DeleteSnapshot,
    /// The volume grows.
    Expand,
    /// The volume gets a class.
    Modify,
    /// The volume is deleted.
    Delete,
}

impl Act {
    /// Returns the words for the run.
    pub(super) fn words(self) -> &'static str {
        match self {
            Act::Provision => "provision run",
            Act::Again => "repeated provision run",
            Act::Snapshot => "snapshot run",
            Act::Restore => "provision run from a snapshot",
            Act::Clone => "provision run of a clone",
            Act::List => "list run",
            Act::DeleteSnapshot => "delete-snapshot run",
            Act::Expand => "expand run",
            Act::Modify => "modify run",
            Act::Delete => "delete run",
        }
    }

    /// Checks whether the orchestrator gives up the work of a run that says so by its exit code.
    pub(super) fn can_be_given_up(self) -> bool {
        !matches!(self, Act::List | Act::DeleteSnapshot | Act::Delete)
    }
}

/// What a life without faults has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The requests of each act.
    pub counts: BTreeMap<Act, usize>,
    /// The collections of the server with the storage.
    pub collections: BTreeSet<String>,
    /// The largest number of lives of a case.
    pub most: usize,
}

/// The front of a call, with what it knows of the program.
pub struct Fronted {
    /// The front.
    pub front: Front,
    /// What a life without faults has shown; `None` before.
    pub(super) known: RefCell<Option<Known>>,
}

impl Fronted {
    /// Makes the front of a call. Nothing is known yet.
    pub fn new(front: Front) -> Self {
        Fronted { front, known: RefCell::default() }
    }
}
