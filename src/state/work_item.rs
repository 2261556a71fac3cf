//! Work items: the objects and tasks that are reconciled on their own.

use flex_core::batch::{Member, MemberObject};
use flex_core::object::ObjectName;

use crate::state::queue::{InLane, Lane};

/// A work item: an object or a task that is reconciled on its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum WorkItem {
    /// All provisioner configs.
    Configs,
    /// A claim, or the Jobs of a claim that is gone.
    Claim(ObjectName),
    /// A volume.
    Volume(String),
    /// The Job of a batch that is about to begin, by the name of the Job.
    Batch(String),
    /// The scheduling gate of a Job's pods, by the name of the Job.
    Gate(ObjectName),
    /// The record of a run, by its name.
    Record(String),
    /// A VolumeSnapshot.
    Snapshot(ObjectName),
    /// A VolumeSnapshotContent.
    Content(String),
    /// All sync probes.
    SyncProbe,
    /// The pool of a class.
    Pool(String),
    /// The search for findings.
    Findings,
    /// The capacity of all segments.
    Capacity,
}

/// A result, with the work items to requeue.
#[derive(Debug)]
pub struct Woken<T> {
    /// The result.
    pub value: T,
    /// The work items to requeue.
    pub items: Vec<WorkItem>,
}

impl InLane for WorkItem {
    /// Volumes and contents are many when somebody deletes a namespace. Users wait for claims and VolumeSnapshots.
    fn lane(&self) -> Lane {
        match self {
            WorkItem::Volume(_) | WorkItem::Content(_) => Lane::Bulk,
            WorkItem::Configs
            | WorkItem::Claim(_)
            | WorkItem::Batch(_)
            | WorkItem::Record(_)
            | WorkItem::Gate(_)
            | WorkItem::Snapshot(_)
            | WorkItem::SyncProbe
            | WorkItem::Pool(_)
            | WorkItem::Findings
            | WorkItem::Capacity => Lane::Awaited,
        }
    }
}

impl WorkItem {
    /// Returns the work item of a batch's member.
    pub fn of_member(member: &Member) -> Self {
        match &member.object {
            MemberObject::Claim(name) => WorkItem::Claim(name.clone()),
            MemberObject::Volume(name) => WorkItem::Volume(name.clone()),
        }
    }
}
