//! The steps that a decision about a claim chooses from.

use crate::model::volume::Provenance;
use crate::object::ObjectName;
use crate::run::failure::LastFailure;

/// The next step for a claim.
#[derive(Clone, Debug, Default, PartialEq, strum::VariantNames)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Writes the stamp of an attempt, and holds the claim.
    Stamp {
        /// The number of the attempt.
        attempt: u32,
        /// The nodes where storage may be left behind from now on.
        nodes: Vec<String>,
    },
    /// Waits for a slot of the class.
    WaitForSlot {
        /// The nodes as in [`Step::Stamp`]. If nodes matter, the slot is for a run on the last of them.
        nodes: Vec<String>,
    },
    /// Assigns a pooled volume to the claim.
    AssignPooledVolume {
        /// The name of the volume.
        volume: String,
    },
    /// Writes the stamp that the claim would have if the orchestrator had bound it.
    BackfillStamp {
        /// The volume that the claim is bound to.
        volume: String,
    },
    /// Deletes the pool request, because its volume is ready.
    CompletePoolRequest,
    /// Reads the claim from the API and decides again.
    Refresh,
    /// Adds a finalizer to the data source: to the claim to copy, or to the content of the VolumeSnapshot.
    ProtectSource,
    /// Records again what the attempts may have made: creates a record like that of the run, and arms it.
    Record,
    /// Creates the Job of the stamped attempt, or adds the claim to a batch.
    StartRun,
    /// Makes the volume the orchestrator's and the claim's: claimRef, finalizer, provenance.
    Adopt {
        /// The name of the volume.
        volume: String,
        /// The provenance to write.
        provenance: Box<Provenance>,
        /// The nodes where the volume's storage is, or may have been left. Its own node comes last. Empty where nodes
        /// do not matter.
        nodes: Vec<String>,
        /// The adoption mark follows at once. Otherwise one write has the mark and the phase, when the claim is bound.
        mark: bool,
    },
    /// Writes the adoption mark that was to be written with the volume's phase.
    MarkAdopted {
        /// The name of the volume.
        volume: String,
    },
    /// Completes the binding of the claim to the volume, and ends its hold.
    Bind {
        /// The name of the volume.
        volume: String,
    },
    /// Writes the volume's name on the claim, so that the PV controller binds the two.
    SetVolumeName {
        /// The name of the volume.
        volume: String,
    },
    /// Writes on the volume why it is not bound.
    Quarantine {
        /// The name of the volume.
        volume: String,
        /// The reasons.
        why: String,
    },
    /// Records that a run failed, and emits an event.
    RecordFailure {
        /// The failure to record.
        failure: LastFailure,
    },
    /// Removes the selected node from the claim, so that the scheduler selects another.
    Reschedule {
        /// The failure to record for the attempt there, in the same write. The scheduler may be fast, and its next node
        /// has had no attempt yet.
        failure: Option<LastFailure>,
    },
    /// Asks the API, not the cache, whether a volume exists, and decides again.
    ConfirmNoVolume,
    /// Asks the API, not the cache, whether the class has a StorageClass. Decides again if it has none, and else waits
    /// for the watch.
    ConfirmNoClassObject,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
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
    /// Removes a clean node from the claim's list, and with the last node ends the hold.
    MarkNodeClean {
        /// The names of the nodes that remain.
        nodes_left: Vec<String>,
    },
    /// Ends the hold of the claim.
    EndHold,
    /// Marks the record of a claim that is gone: somebody may keep what its attempts have made. Nothing else is done for the claim.
    Keep,
    /// Removes the finalizers that protect the claim for its copies. The API must show that none of them is in
    /// progress.
    UnprotectSource {
        /// The UIDs of the copies.
        copies: Vec<String>,
    },
}
