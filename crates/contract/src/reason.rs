//! The reasons of events, each with its documentation.
//!
//! An event takes a [`Reason`], which only this module can make: a reason without documentation does not compile. The tables of
//! `docs/troubleshooting.md` are printed from here.

use std::fmt;

/// The reason of an event.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Reason {
    /// The text in the event.
    pub name: &'static str,
    /// The type of the events with this reason.
    pub level: Level,
    /// The action of the orchestrator, in a word.
    pub action: &'static str,
    /// The kinds of objects that have such events.
    pub on: &'static [Object],
    /// The meaning, as lines of Markdown.
    pub doc: &'static [&'static str],
    /// The remedy for the reader of the event, as Markdown.
    pub remedy: &'static str,
}

/// The types of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Always `Normal`.
    Normal,
    /// Always `Warning`.
    Warning,
    /// `Normal` or `Warning`, by the event.
    Either,
}

/// The kinds of objects that events are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A VolumeSnapshot or a VolumeSnapshotContent.
    Snapshot,
    /// A provisioner ConfigMap.
    Config,
    /// A Job, a pod or a ControllerRevision.
    Run,
}

impl Reason {
    /// Checks whether an event on an object of this kind may have the reason. Any kind outside [`Object`] may.
    pub fn is_on(&self, kind: &str) -> bool {
        let object = match kind {
            "PersistentVolumeClaim" => Object::Claim,
            "PersistentVolume" => Object::Volume,
            "VolumeSnapshot" | "VolumeSnapshotContent" => Object::Snapshot,
            "ConfigMap" => Object::Config,
            // A record stands for claims that are gone.
            "ControllerRevision" => return [Object::Claim, Object::Run].iter().any(|of| self.on.contains(of)),
            "Job" | "Pod" => Object::Run,
            _ => return true,
        };
        self.on.contains(&object)
    }

    /// Checks whether an event of this type may have the reason.
    pub fn allows(&self, warning: bool) -> bool {
        match self.level {
            Level::Normal => !warning,
            Level::Warning => warning,
            Level::Either => true,
        }
    }
}

impl PartialEq for Reason {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Reason {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl AsRef<str> for Reason {
    fn as_ref(&self) -> &str {
        self.name
    }
}

/// Declares a constant for each reason, with its comment as documentation, and the list of all.
macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $reason:ident = $name:literal, $level:ident $action:ident on [$($on:ident),+]: $remedy:literal;)*) => {
        $($(#[doc = $doc])+ pub const $reason: &Reason = &Reason {
            name: $name,
            level: Level::$level,
            action: stringify!($action),
            on: &[$(Object::$on),+],
            doc: &[$($doc),+],
            remedy: $remedy,
        };)*

        /// All reasons, in the order of their documentation.
        pub const ALL: &[&Reason] = &[$($reason),*];
    };
}

reasons! {
    /// An attempt began.
    PROVISIONING = "Provisioning", Normal Provision on [Claim]: "nothing";
    /// The claim is bound, or has got a [pooled volume](how-to/pools.md).
    PROVISIONING_SUCCEEDED = "ProvisioningSucceeded", Normal Provision on [Claim]: "nothing";
    /// An attempt failed, or cannot succeed as things are.
    PROVISIONING_FAILED = "ProvisioningFailed", Warning Provision on [Claim]: "[Look up the message](#why-an-attempt-failed).";
    /// The claim waits for its admin, or for another object: the message names what is missing.
    WAITING_FOR_PROVISIONER = "WaitingForProvisioner", Either Provision on [Claim]: "Correct what the message names, or wait for it.";
    /// A [limit](config.md#limits-and-times) is reached, or the class has an [outage](config.md#outages).
    LIMIT_REACHED = "LimitReached", Either Run on [Claim, Snapshot]: "Wait, or [raise the limit](#limitreached).";
    /// The data source is of another API group, and a populator makes the volume.
    LEFT_TO_POPULATOR = "LeftToPopulator", Normal Provision on [Claim]: "Nothing, if that populator is installed.";
    /// The claim is terminating, and stays until its clones and snapshots are made.
    BEING_CLONED = "BeingCloned", Normal Delete on [Claim]: "Nothing, or delete the clones that it names.";
    /// The selected node has no capacity, is gone, or is not allowed.
    RESCHEDULING = "Rescheduling", Either Provision on [Claim]: "Nothing, if another node has capacity.";
    /// The class has no StorageClass object.
    CLASS_WITHOUT_OBJECT = "ClassWithoutObject", Normal Provision on [Claim]: "Nothing, [the warning is harmless](#classwithoutobject).";
    /// The claim had annotations of another claim, as a copy or a restored claim has.
    STALE_STAMP_REPLACED = "StaleStampReplaced", Warning Provision on [Claim]: "nothing";
    /// An image made a volume that does not fit its claim, and the volume is not bound.
    VOLUME_REFUSED = "VolumeRefused", Warning Provision on [Claim, Volume]: "[The vendor corrects the image](#volumerefused).";
    /// The storage of a volume, or what an attempt left, cannot be deleted: a delete run failed, or cannot begin.
    VOLUME_FAILED_DELETE = "VolumeFailedDelete", Warning Delete on [Claim, Volume]: "[Look up the message](#a-deletion-hangs).";
    /// Storage is given up, and the provisioner deletes none.
    /// An admin abandoned the object or removed the claimRef, the node of the storage is gone, or somebody may keep what a
    /// claim left.
    STORAGE_ABANDONED = "StorageAbandoned", Warning Delete on [Claim, Volume, Snapshot]: "Make sure that nobody uses or keeps the storage, here or in another cluster. Only then delete it by hand.";
    /// An expand run began.
    RESIZING = "Resizing", Normal Expand on [Claim]: "nothing";
    /// The volume has the size that the claim asks for.
    VOLUME_RESIZE_SUCCESSFUL = "VolumeResizeSuccessful", Normal Expand on [Claim]: "nothing";
    /// The storage has grown, and the kubelet grows the file system.
    FILE_SYSTEM_RESIZE_REQUIRED = "FileSystemResizeRequired", Normal Expand on [Claim]: "Start a pod that uses the claim, if none runs.";
    /// An expand run failed, or cannot begin.
    VOLUME_RESIZE_FAILED = "VolumeResizeFailed", Warning Expand on [Claim]:
        "Correct what the message names, or [ask for less](how-to/expansion.md#how-to-undo).";
    /// A modify run began.
    VOLUME_MODIFY = "VolumeModify", Normal Modify on [Claim]: "nothing";
    /// The volume has the attributes that the claim asks for.
    VOLUME_MODIFY_SUCCESSFUL = "VolumeModifySuccessful", Normal Modify on [Claim]: "nothing";
    /// A modify run failed, or cannot begin.
    VOLUME_MODIFY_FAILED = "VolumeModifyFailed", Warning Modify on [Claim]:
        "Correct what the message names, or [go back](operations.md#volumeattributesclasses) to the old class.";

    /// A snapshot run began.
    CREATING_SNAPSHOT = "CreatingSnapshot", Normal Snapshot on [Snapshot]: "nothing";
    /// The snapshot can be restored.
    SNAPSHOT_READY = "SnapshotReady", Normal Snapshot on [Snapshot]: "nothing";
    /// A snapshot run failed, or cannot begin.
    SNAPSHOT_CREATION_FAILED = "SnapshotCreationFailed", Warning Snapshot on [Snapshot]: "Do what the message says.";
    /// A delete-snapshot run failed, or cannot begin.
    SNAPSHOT_DELETION_FAILED = "SnapshotDeletionFailed", Warning DeleteSnapshot on [Snapshot]: "Do what the message says.";
    /// A VolumeSnapshot or its content is terminating, and something still needs it.
    SNAPSHOT_IN_USE = "SnapshotInUse", Either DeleteSnapshot on [Snapshot]: "Nothing, or delete what the message names.";

    /// The content of a snapshot was restored, as from a backup.
    SNAPSHOT_RESTORED = "SnapshotRestored", Warning Keep on [Snapshot]:
        "Do what the message says: [backup and restore](how-to/backup.md#what-can-go-wrong)";
    /// The volume was restored without the orchestrator's mark, as from a backup.
    VOLUME_RESTORED = "VolumeRestored", Warning Keep on [Volume]:
        "`flex-provisioner vouch VOLUME`: [backup and restore](how-to/backup.md)";

    /// The config is in use.
    CONFIG_ACCEPTED = "ConfigAccepted", Normal Check on [Config]: "Read the warnings, if there are any.";
    /// The config has errors, and the event names all of them.
    CONFIG_REFUSED = "ConfigRefused", Warning Check on [Config]: "`flex-provisioner validate FILE` shows file and line.";
    /// The capacity of a node or zone is not known.
    CAPACITY_FAILED = "CapacityFailed", Warning MeasureCapacity on [Config]: "Correct what the message names.";
    /// The scheduler ignores capacities, because another program owns the CSIDriver object with the provisioner's name.
    CAPACITY_UNUSED = "CapacityUnused", Warning MeasureCapacity on [Config]: "Find out who created that CSIDriver object.";
    /// Kubernetes refuses what the orchestrator writes for the class's [pool](how-to/pools.md).
    POOL_FAILED = "PoolFailed", Warning FillPool on [Config]: "Correct what the message names, such as a quota.";

    /// The object is orphaned or stuck, and nothing in progress will fix it.
    FINDING_REPORTED = "FindingReported", Either Search on [Claim, Snapshot, Volume, Config, Run]: "[Look up the finding](#findings).";
    /// The orchestrator removed an orphaned object of its own.
    ORPHAN_REMOVED = "OrphanRemoved", Normal Remove on [Run]: "nothing";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_reason_exists_once_and_is_documented() {
        let names: BTreeSet<&str> = ALL.iter().map(|reason| reason.name).collect();
        assert_eq!(names.len(), ALL.len(), "a reason exists twice");
        for reason in ALL {
            let is_reason = |c: char| c.is_ascii_alphanumeric();
            assert!(reason.name.chars().all(is_reason) && reason.name.len() <= 128, "{reason}");
            assert!(reason.doc[0].ends_with('.') && reason.doc[0].split(' ').count() <= 24, "{reason}");
            assert!(!reason.remedy.is_empty(), "{reason}");
        }
    }
}
