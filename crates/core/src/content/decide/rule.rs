//! The rules that decide about a VolumeSnapshotContent, and the steps that they choose.

use strum::{EnumIter, EnumMessage, IntoStaticStr};

use crate::model::snapshot::SnapshotProvenance;
use crate::object::ObjectName;
use crate::rules;
use crate::run;
use crate::run::failure::LastFailure;
use crate::run::rule::Target;

/// The next step for a content.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Step {
    /// Does nothing. The next event brings a new decision.
    #[default]
    Nothing,
    /// Adds the finalizer.
    AddFinalizer,
    /// Waits for a slot, in the queue of the class.
    WaitForSlot,
    /// Writes finalizer, provenance and number of an attempt, all at once.
    Stamp {
        /// The number of the attempt, from 1.
        attempt: u32,
        /// The provenance to write.
        provenance: Box<SnapshotProvenance>,
    },
    /// Adds a finalizer to the claim of which the snapshot is made.
    ProtectSource,
    /// Reads the content from the API and decides again.
    Refresh,
    /// Creates the Job of the stamped attempt.
    StartRun,
    /// Deletes a Job with its pods.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
    },
    /// Writes an error into the status.
    WriteStatus {
        /// The error message.
        error: String,
    },
    /// Records that a run failed.
    RecordFailure(LastFailure),
    /// Writes into the status that the snapshot is ready to be restored.
    MarkReady {
        /// The size of the volume, in bytes, where it is known.
        size: Option<u64>,
    },
    /// Removes the finalizers that keep the content for claims, if the API shows that none of them is in progress.
    UnprotectSource {
        /// The UIDs of the claims.
        claims: Vec<String>,
    },
    /// Asks the API, not the cache, for the VolumeSnapshot, and decides again.
    ConfirmSnapshot,
    /// Asks the API, not the cache, whether a node exists, and decides again.
    ConfirmNode {
        /// The name of the node.
        node: String,
    },
    /// Creates the Job of a delete-snapshot run.
    StartDelete {
        /// The number of the run, from 1.
        attempt: u32,
        /// The run need not be on the node of the snapshot, because the node is gone.
        on_any_node: bool,
    },
    /// Removes the orchestrator's finalizers: the stored snapshot is deleted, or must stay.
    RemoveFinalizer,
    /// Deletes the content, for which no snapshot is stored.
    DeleteContent,
}

/// A decision about a content.
pub type Decision = rules::Decision<Rule>;

/// The rules of a content, in their order: the first that holds applies. The rules of its runs stand between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, EnumMessage, IntoStaticStr)]
pub enum Rule {
    /// The content does not belong to the orchestrator. Does nothing.
    NotOurs,
    /// The content is kept for claims that were restored or abandoned. Removes their finalizers. This also holds for a
    /// content of others, which must not stay longer than needed.
    UnprotectContent,
    /// The content is terminating, and has no finalizer of the orchestrator. Does nothing.
    KeptByOtherFinalizers,
    /// The content is terminating, and an admin set the abandon annotation. Removes the finalizers, and emits an event.
    Abandoned,
    /// The cache does not have the VolumeSnapshot of the content. Asks the API.
    ConfirmSnapshotGone,
    /// The content is terminating, and its VolumeSnapshot exists. Emits an event: both are deleted together.
    SnapshotExists,
    /// The content is terminating, and claims are being restored from it. Waits for them, and emits an event.
    RestoreInProgress,
    /// The content is terminating, and no attempt has begun for it. Removes the finalizers.
    NothingStored,
    /// The content has the record of another content, or no status, and its VolumeSnapshot is gone, as after a restore
    /// from a backup. Emits an event: what is stored stays until an admin decides.
    Restored,
    /// The content is terminating and ready, and its policy is Retain. Removes the finalizers.
    DeletedButRetained,
    /// The content is terminating, and the recipe or the id of its snapshot is not known. Emits an event.
    ProvenanceUnknown,
    /// The content is of an existing snapshot, or an attempt has begun, and it has no finalizer. Adds the finalizer.
    ProtectContent,
    /// The content is of an existing snapshot. Marks it as ready.
    ExistingSnapshot,
    /// The content is ready. Does nothing.
    Ready,
    /// The VolumeSnapshot is gone, no attempt has begun, and the orchestrator made the content. Deletes the content.
    SnapshotGone,
    /// The VolumeSnapshot is terminating or gone, and no run is in progress. Does nothing: the content is deleted, too.
    SnapshotTerminating,
    /// The content is bound to no VolumeSnapshot. Does nothing.
    Unbound,
    /// No attempt can begin, or the claim of the attempt is gone. Writes that into the status, and emits an event.
    NotPossible,
    /// The last attempt failed, and the status does not say so. Writes the failure into the status.
    ReportFailure,
    /// The content is stamped, and the source has no finalizer for it. Protects the source.
    ProtectSource,
    /// The content is stamped, but comes from the cache. Reads it from the API.
    ConfirmContent,
    /// A rule of the runs that store the snapshot, or of those that delete it.
    #[strum(disabled)]
    Run(Target, run::rule::Rule),
}

crate::run::rule::table_with_runs!(Rule, Step, "content", [Snapshot, StoredSnapshot]);
