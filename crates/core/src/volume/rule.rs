//! The rules that decide about a volume of the orchestrator, and the steps that they choose.
//!
//! A volume *is released* if its claim is gone, or is bound to another volume. The *next node* is the node on which
//! storage is deleted next ([`next_node`](super::decide::next_node)).

use strum::{EnumIter, EnumMessage, IntoEnumIterator, IntoStaticStr};

use crate::object::ObjectName;
use crate::rules;
use crate::run::failure::LastFailure;
use crate::run::rule::{Rule as RunRule, Target};
use crate::volume::{expand, modify};

/// The next step for a volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Adds the finalizer.
    AddFinalizer,
    /// Removes the finalizer. The storage stays.
    RemoveFinalizer,
    /// Reserves the volume for the claim that it had, so that no other claim gets it.
    Reserve,
    /// Removes the claim's UID from the claimRef, which keeps the claim's name. First asks the API whether the claim is
    /// still unbound.
    RemoveClaimUid,
    /// Asks the API, not the cache, whether the claim is gone, and decides again.
    ConfirmClaimGone,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Creates the Job of a delete run.
    StartDelete {
        /// The number of the delete run, from 1.
        attempt: u32,
        /// The node whose storage the run deletes; `None` for no particular node.
        node: Option<String>,
        /// The run need not be on that node, because the node is gone.
        on_any_node: bool,
    },
    /// Deletes the Job of a delete run with its pods: the run is stuck, and the config has changed since, or it is not wanted.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
    /// Writes on the volume which nodes still have storage (`nodes_with_storage`).
    MarkNodeClean {
        /// The nodes on which storage is left.
        nodes_left: Vec<String>,
    },
    /// Records that a delete run failed, and emits an event.
    RecordFailure(LastFailure),
    /// A step of the expansion: a run, a report, or a clean-up.
    Expand(expand::Step),
    /// A step of the modification: a run, a report, or a clean-up.
    Modify(modify::Step),
    /// Deletes the volume and removes the finalizer, because nothing is left to delete.
    DeleteVolume {
        /// Whether the storage was deleted.
        storage: StorageOutcome,
    },
}

/// The state of the storage when its volume is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorageOutcome {
    /// The runs of the image deleted it.
    Deleted,
    /// Nobody deleted it: an admin abandoned the volume, or the node that stored it is gone.
    LeftBehind,
}

/// A decision about a volume.
pub type Decision = rules::Decision<Rule>;

/// The rules of a volume, in groups. The functions in `decide` find the group, and its first rule that holds applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
pub enum Rule {
    /// The volume has provenance, and is reserved by name for a claim that was bound to it before. Reserves it by the
    /// claim's UID.
    ReserveForBoundClaim,
    /// A claim uses a restored volume, and requests a larger one. Says in an event that an admin must vouch first.
    RestoredNotExpanded,
    /// The volume was restored, and is reserved for no claim. Reserves it, and emits an event.
    ReserveRestored,
    /// The volume was restored, is terminating, and its policy is not Delete. Removes the finalizer.
    RestoredTerminating,
    /// The volume was restored, and nobody has vouched for it. Emits an event.
    RestoredUnvouched,
    /// The volume is terminating, somebody removed its claimRef, and its storage stays. Removes the finalizer.
    ClaimRefRemovedRetained,
    /// The volume is terminating, somebody removed its claimRef, and storage must be deleted. This is so if its policy
    /// is Delete, or if earlier attempts may have left storage on other nodes. Emits an event: no claim has released
    /// it.
    ClaimRefRemovedHold,
    /// The volume has no UID of a claim, or somebody removed its claimRef. Does nothing.
    NoClaim,
    /// The volume is pooled, and other nodes are clean. Does nothing until a claim gets it.
    Pooled,
    /// A claim uses the volume, which has no finalizer. Its storage must be deleted later, or attempts may have left
    /// storage on other nodes. Adds the finalizer.
    ProtectVolume,
    /// A claim uses the volume, which must be deleted later, but is already terminating without the finalizer. Emits an
    /// event: its storage stays.
    DeletePolicyTooLate,
    /// A claim uses the volume, which has the finalizer, although nothing must be deleted when the claim is gone.
    /// Removes the finalizer.
    UnneededFinalizer,
    /// An admin deleted a quarantined volume. Removes the finalizer: the claim is responsible for the storage.
    QuarantinedTerminating,
    /// An admin deleted a quarantined volume that the PV controller had begun to bind, and has not bound after a minute.
    /// Removes the claim's UID from the claimRef, so that Kubernetes lets the volume go.
    QuarantinedHalfBound,
    /// A claim uses the volume, and its size changes by a rule of the expansion.
    #[strum(disabled)]
    Expand(expand::Rule),
    /// A claim uses the volume, and its attributes change by a rule of the modification.
    #[strum(disabled)]
    Modify(modify::Rule),
    /// A claim uses the volume, and neither size nor attributes change. Does nothing.
    InUse,
    /// The cache does not have the claim. Asks the API.
    ConfirmClaimGone,
    /// The volume is released, its policy is Delete, and an admin set the abandon annotation. It is not terminating, or
    /// has the finalizer. Deletes the volume, but not its storage.
    Abandoned,
    /// The volume is released, has the finalizer, its policy is not Delete, and other nodes are clean. Removes the
    /// finalizer.
    RetainedWithFinalizer,
    /// The volume is released, has no finalizer, and its policy is not Delete. Does nothing.
    Retained,
    /// Storage must be deleted, but the volume has no usable id, or a name that differs from its id. Emits an event.
    UnusableVolumeId,
    /// Storage must be deleted, but the volume was never adopted, and no record of a run names its claim. Emits an event.
    OriginUnknown,
    /// Storage must be deleted, but the provenance of the volume cannot be read. Emits an event.
    ProvenanceUnreadable,
    /// Storage must be deleted, and a provision pod of the claim may still run. Waits for its end.
    ProvisionPodRunning,
    /// Storage must be deleted, but record and node affinity of the volume name different nodes. Emits an event: a run
    /// on the wrong node would leave the storage behind.
    StorageOnOtherNode,
    /// Storage must be deleted, and a rule about the delete run on the next node holds.
    #[strum(disabled)]
    Run(Target, RunRule),
    /// A delete run is due, and the volume has no finalizer. Adds the finalizer.
    ProtectReleasedVolume,
    /// The next node is gone, `node-gone` says to delete from another node, and a claim uses the volume. Does nothing:
    /// a run on another node could delete the volume's own storage.
    NodeGoneWhileInUse,
    /// The delete run has succeeded, and other nodes are left, or a claim uses the volume. Marks the node as clean.
    NodeCleaned,
    /// The delete run on the last node has succeeded, and the policy is not Delete. Marks all nodes as clean.
    RetainedCleaned,
    /// The delete run on the last node has succeeded. Deletes the volume.
    StorageDeleted,
    /// The volume is deleted, and finalizers of others keep it. Emits an event after a minute.
    KeptByOtherFinalizers,
}

impl rules::Rule for Rule {
    type Step = Step;
    const OBJECT: &'static str = "volume";

    fn all() -> Vec<Self> {
        let runs = Target::Storage.rules().map(|rule| Rule::Run(Target::Storage, rule));
        let changes = expand::Rule::all().into_iter().map(Rule::Expand);
        let changes = changes.chain(modify::Rule::all().into_iter().map(Rule::Modify));
        Rule::iter().chain(runs).chain(changes).collect()
    }

    fn name(self) -> &'static str {
        match self {
            Rule::Run(_, rule) => rule.name(),
            Rule::Expand(rule) => rule.name(),
            Rule::Modify(rule) => rule.name(),
            own => own.into(),
        }
    }

    fn documentation(self) -> &'static str {
        match self {
            Rule::Run(_, rule) => rule.documentation(),
            Rule::Expand(rule) => rule.documentation(),
            Rule::Modify(rule) => rule.documentation(),
            own => own.get_documentation().unwrap_or_default().trim(),
        }
    }

    fn target(self) -> Option<&'static str> {
        match self {
            Rule::Run(target, _) => Some(target.name()),
            Rule::Expand(rule) => rule.target(),
            Rule::Modify(rule) => rule.target(),
            _ => None,
        }
    }
}

impl From<expand::Decision> for Decision {
    fn from(decision: expand::Decision) -> Self {
        // An event without a step is emitted on the claim.
        let step = if decision.is_idle() { Step::Nothing } else { Step::Expand(decision.step) };
        Decision { rule: Rule::Expand(decision.rule), step, event: decision.event, requeue_at: decision.requeue_at }
    }
}

impl From<modify::Decision> for Decision {
    fn from(decision: modify::Decision) -> Self {
        let step = if decision.is_idle() { Step::Nothing } else { Step::Modify(decision.step) };
        Decision { rule: Rule::Modify(decision.rule), step, event: decision.event, requeue_at: decision.requeue_at }
    }
}
