//! VolumeSnapshots, their contents and classes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use flex_contract::names;
use flex_contract::request::Operation;

use super::{Change, Index, WorkItem};
use crate::model::claim::Claim;
use crate::model::data_source::DataSource;
use crate::model::snapshot::Class;
use crate::model::snapshot::Content;
use crate::model::snapshot::Snapshot;
use crate::object::ObjectName;
use crate::run::view::{Job, RunLabels};

/// All snapshot objects.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    snapshots: BTreeMap<ObjectName, Arc<Snapshot>>,
    contents: BTreeMap<String, Arc<Content>>,
    classes: BTreeMap<String, Class>,
}

impl Snapshots {
    /// Returns the VolumeSnapshots of a claim that are not ready.
    pub(super) fn of_claim(&self, claim: &ObjectName) -> Vec<WorkItem> {
        // Few VolumeSnapshots are not ready, and mostly none.
        let of_it =
            self.snapshots.values().filter(|s| s.status.ready != Some(true) && s.claim().as_ref() == Some(claim));
        of_it.flat_map(|snapshot| snapshot_keys(snapshot)).collect()
    }

    /// Returns the content of a pod, also if its Job is not visible any more.
    pub(super) fn of_pod(&self, marks: &RunLabels) -> Option<WorkItem> {
        let of_snapshot = [Operation::Snapshot, Operation::DeleteSnapshot];
        of_snapshot.iter().find(|operation| operation.as_str() == marks.operation)?;
        let name = names::content_name(&marks.id);
        if self.contents.contains_key(&name) {
            return Some(WorkItem::Content(name));
        }
        let content = self.contents.values().find(|content| content.run_id() == marks.id)?;
        Some(WorkItem::Content(content.name.clone()))
    }

    /// Returns the items to requeue when a claim changed: its snapshots, and the content that is its data source.
    pub(super) fn concerned_by_claim(&self, claim: &Claim) -> Vec<WorkItem> {
        let mut keys = self.of_claim(&claim.name);
        if let Some(DataSource::Snapshot(name)) = &claim.data_source {
            let content = self.snapshots.get(name).and_then(|snapshot| snapshot.content());
            keys.extend(content.map(WorkItem::Content));
            let of_name = self.contents.values().filter(|content| content.snapshot == *name);
            keys.extend(of_name.map(|content| WorkItem::Content(content.name.clone())));
        }
        keys
    }

    /// Returns the contents that are terminating.
    pub(super) fn terminating(&self) -> Vec<WorkItem> {
        self.contents.values().filter(|c| c.deleting).map(|c| WorkItem::Content(c.name.clone())).collect()
    }

    /// Returns the items that may wait for a config.
    pub(super) fn waiting(&self) -> Vec<WorkItem> {
        let contents = self.contents.values().filter(|content| !content.ready || content.deleting);
        contents.map(|content| WorkItem::Content(content.name.clone())).collect()
    }

    /// Returns all work items.
    pub(super) fn keys(&self) -> Vec<WorkItem> {
        let snapshots = self.snapshots.keys().cloned().map(WorkItem::Snapshot);
        snapshots.chain(self.contents.keys().cloned().map(WorkItem::Content)).collect()
    }
}

fn snapshot_keys(snapshot: &Snapshot) -> Vec<WorkItem> {
    let content = snapshot.content().map(WorkItem::Content);
    [WorkItem::Snapshot(snapshot.name.clone())].into_iter().chain(content).collect()
}

impl Index {
    /// Returns a VolumeSnapshot by its name.
    pub fn snapshot(&self, name: &ObjectName) -> Option<Arc<Snapshot>> {
        self.snapshots.snapshots.get(name).cloned()
    }

    /// Returns a content by its name.
    pub fn content(&self, name: &str) -> Option<Arc<Content>> {
        self.snapshots.contents.get(name).cloned()
    }

    /// Returns all VolumeSnapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.snapshots.snapshots.values()
    }

    /// Returns all contents.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Content>> {
        self.snapshots.contents.values()
    }

    /// Returns the content that is kept while the claim with a UID is restored from it.
    pub fn content_kept_for(&self, claim: &str) -> Option<Arc<Content>> {
        let finalizer = names::clone_finalizer(claim);
        self.snapshots.contents.values().find(|content| content.finalizers.contains(&finalizer)).cloned()
    }

    /// Returns a VolumeSnapshotClass by its name.
    pub fn snapshot_class(&self, name: &str) -> Option<&Class> {
        self.snapshots.classes.get(name)
    }

    /// Returns all VolumeSnapshotClasses.
    pub fn snapshot_classes(&self) -> impl Iterator<Item = &Class> {
        self.snapshots.classes.values()
    }

    /// Returns the Jobs of the runs for a content by its name. The content may be gone.
    pub fn jobs_of_content(&self, name: &str) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.content.as_deref() == Some(name)).cloned().collect()
    }

    /// Returns the items that depend on a VolumeSnapshot or its content. These are the claims that are restored from
    /// it, and its source claim.
    fn concerned_by_snapshot(&self, name: &ObjectName) -> Vec<WorkItem> {
        let mut keys = self.copy_keys(name);
        let of = self.snapshot(name).and_then(|snapshot| snapshot.claim());
        keys.extend(of.map(WorkItem::Claim));
        keys
    }

    /// Returns the same for a content. Somebody may have removed its VolumeSnapshot by force. Then the content itself
    /// says which claim is its source.
    fn concerned_by_content(&self, content: &Content) -> Vec<WorkItem> {
        let mut keys = self.concerned_by_snapshot(&content.snapshot);
        if self.snapshot(&content.snapshot).is_none_or(|snapshot| snapshot.uid != content.snapshot_uid) {
            let made_by = content.made_by();
            // These are the claim for which the volume was made, and the claim that has it. Without the admission
            // policies they can differ.
            let volume = made_by.as_ref().and_then(|made_by| self.volumes.get(&made_by.pv_name));
            keys.extend(volume.and_then(|volume| Some(WorkItem::Claim(volume.claim_ref.as_ref()?.name.clone()))));
            keys.extend(made_by.and_then(|made_by| self.claim_keys(&made_by.volume_id)));
        }
        keys
    }

    /// Applies a change of a VolumeSnapshot.
    pub fn change_snapshot(&mut self, change: Change<Snapshot>) -> Vec<WorkItem> {
        match change {
            Change::Apply(snapshot) => {
                let (name, mut keys) = (snapshot.name.clone(), snapshot_keys(&snapshot));
                self.snapshots.snapshots.insert(name.clone(), Arc::new(snapshot));
                keys.extend(self.concerned_by_snapshot(&name));
                keys
            }
            Change::Delete(name) => {
                let mut keys = self.concerned_by_snapshot(&name);
                let gone = self.snapshots.snapshots.remove(&name);
                keys.extend(gone.iter().flat_map(|snapshot| snapshot_keys(snapshot)));
                keys
            }
            Change::Retain(all) => {
                self.retain(all, |index| index.snapshots.snapshots.keys().cloned().collect(), Index::change_snapshot)
            }
            // All namespaces are watched together.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// Applies a change of a content.
    pub fn change_content(&mut self, change: Change<Content>) -> Vec<WorkItem> {
        match change {
            Change::Apply(content) => {
                let mut keys =
                    vec![WorkItem::Content(content.name.clone()), WorkItem::Snapshot(content.snapshot.clone())];
                keys.extend(self.concerned_by_content(&content));
                if content.deleting || content.ready {
                    keys.extend(self.dequeue(&keys[0]));
                }
                self.snapshots.contents.insert(content.name.clone(), Arc::new(content));
                keys
            }
            Change::Delete(name) => {
                let Some(content) = self.snapshots.contents.remove(&name.name) else { return Vec::new() };
                let mut keys = vec![WorkItem::Content(name.name), WorkItem::Snapshot(content.snapshot.clone())];
                keys.extend(self.dequeue(&keys[0]));
                keys.extend(self.concerned_by_content(&content));
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.snapshots.contents.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_content,
            ),
            // The kind has no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// Applies a change of a VolumeSnapshotClass.
    pub fn change_snapshot_class(&mut self, change: Change<Class>) -> Vec<WorkItem> {
        let classes = &mut self.snapshots.classes;
        match change {
            Change::Apply(class) => {
                classes.insert(class.name.clone(), class);
            }
            Change::Delete(name) => {
                classes.remove(&name.name);
            }
            Change::Retain(all) => {
                let there: HashSet<String> = all.into_iter().map(|name| name.name).collect();
                classes.retain(|name, _| there.contains(name));
            }
            // The kind has no namespace.
            Change::RetainIn(..) => {}
        }
        // A VolumeSnapshot with its content needs no class any more.
        let waits = self.snapshots.snapshots.values().filter(|snapshot| snapshot.status.content.is_none());
        waits.map(|snapshot| WorkItem::Snapshot(snapshot.name.clone())).collect()
    }
}
