//! The observation on which the decision about a volume rests.

use crate::config::{NodeGone, Recipe};
use crate::model::volume::Volume;
use crate::run::node::NodeStates;
use crate::run::state::RunState;
use crate::run::view::Job;
use crate::volume::{expand, modify};

/// The claim to which a volume refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// The volume has no UID of a claim, neither in its claimRef nor in its annotation. Or it is adopted, and somebody
    /// removed the claimRef or its UID.
    NoReference,
    /// The claim exists. It may be terminating, or bound to another volume while it has the orchestrator's finalizer.
    Alive,
    /// The volume is pooled, so that a claim may get it at any time.
    Awaited,
    /// The claim exists, is bound to another volume, and does not have the orchestrator's finalizer.
    BoundToOtherVolume,
    /// The cache does not have the claim.
    NotCached,
    /// The API does not have the claim.
    NotFound,
}

impl ClaimState {
    /// Checks whether a claim uses the volume, or will.
    pub(super) fn is_in_use(self) -> bool {
        matches!(self, ClaimState::Alive | ClaimState::Awaited)
    }
}

/// The storage that attempts with another config may have left. The orchestrator deletes it after the storage of a released volume.
#[derive(Clone, Copy, Debug)]
pub struct LeftByOther<'a> {
    /// The recipe of the delete run.
    pub recipe: &'a Recipe,
    /// The node where the run must be; `None` for no particular node.
    pub node: Option<&'a str>,
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The volume, which belongs to this orchestrator.
    pub volume: &'a Volume,
    /// The claim of the volume.
    pub claim_state: ClaimState,
    /// The volume is reserved by name for a claim that was bound to it before, as after a restore.
    pub claim_was_bound: bool,
    /// The recipe in the volume's provenance, with the program of its class; or the reason why it cannot be read. A volume
    /// that was never adopted has none.
    pub recipe: Result<&'a Recipe, String>,
    /// A pod of a provision run for the volume may still be running.
    pub has_running_provision_pods: bool,
    /// The nodes of all pods that may still be running, whatever their run.
    pub nodes_with_pods: &'a [String],
    /// The states of the nodes that the volume and its pods depend on.
    pub node_states: &'a NodeStates,
    /// The node to which the node affinity of an adopted volume leads, if it excludes `origin_node`.
    pub other_node: Option<&'a str>,
    /// The node where the volume was made; `None` if runs of the class may be on any node.
    pub origin_node: Option<&'a str>,
    /// The class's present treatment of nodes that are gone.
    pub node_gone_policy: NodeGone,
    /// What is deleted next of attempts with other configs; `None` if nothing is left of them, the volume's own storage is not
    /// deleted yet, or the volume stays.
    pub left_by_other: Option<LeftByOther<'a>>,
    /// The delete run for that, or else on the node of [`next_node`](super::decide::next_node).
    pub delete_run_state: RunState,
    /// The Job of that delete run.
    pub delete_job: Option<&'a Job>,
    /// The Job of a delete run that has not ended, where an admin or a claim keeps what the run deletes.
    pub unwanted_job: Option<&'a Job>,
    /// The observation about the volume's size.
    pub expand: expand::Observed<'a>,
    /// The observation about the volume's attributes.
    pub modify: modify::Observed<'a>,
}
