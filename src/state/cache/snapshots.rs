//! VolumeSnapshots, their contents and classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::names;
use flex_core::model::snapshot::{Content, Snapshot, SnapshotClass};
use flex_core::object::ObjectName;
use flex_core::run::view::RunLabels;

use crate::state::watch_change::Listed;

/// All snapshot objects.
#[derive(Debug, Default)]
pub struct SnapshotCache {
    snapshots: BTreeMap<ObjectName, Arc<Snapshot>>,
    contents: BTreeMap<String, Arc<Content>>,
    classes: BTreeMap<String, SnapshotClass>,
}

impl SnapshotCache {
    /// Returns a VolumeSnapshot by its name.
    pub fn snapshot(&self, name: &ObjectName) -> Option<&Arc<Snapshot>> {
        self.snapshots.get(name)
    }

    /// Returns all VolumeSnapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.snapshots.values()
    }

    /// Returns a content by its name.
    pub fn content(&self, name: &str) -> Option<&Arc<Content>> {
        self.contents.get(name)
    }

    /// Returns all contents.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Content>> {
        self.contents.values()
    }

    /// Returns a VolumeSnapshotClass by its name.
    pub fn class(&self, name: &str) -> Option<&SnapshotClass> {
        self.classes.get(name)
    }

    /// Returns all VolumeSnapshotClasses.
    pub fn classes(&self) -> impl Iterator<Item = &SnapshotClass> {
        self.classes.values()
    }

    /// Returns the VolumeSnapshots of a claim that are not ready. They are few, and mostly there are none.
    pub fn unready_of(&self, claim: &ObjectName) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.snapshots.values().filter(move |s| s.status.ready != Some(true) && s.claim().as_ref() == Some(claim))
    }

    /// Returns the content of a run by its labels, also if its Job is not visible any more.
    pub fn content_of_run(&self, run: &RunLabels) -> Option<&Arc<Content>> {
        if !run.operation.is_of_snapshot() {
            return None;
        }
        let named = self.contents.get(&names::content_name(&run.id));
        named.or_else(|| self.contents.values().find(|content| content.run_id() == run.id))
    }

    /// Returns the content that is kept while the claim with a UID is restored from it.
    pub fn content_kept_for(&self, claim: &str) -> Option<&Arc<Content>> {
        let finalizer = names::clone_finalizer(claim);
        self.contents.values().find(|content| content.finalizers.contains(&finalizer))
    }

    /// Adds a VolumeSnapshot, or its new state.
    pub fn apply_snapshot(&mut self, snapshot: Arc<Snapshot>) {
        self.snapshots.insert(snapshot.name.clone(), snapshot);
    }

    /// Removes a VolumeSnapshot.
    pub fn remove_snapshot(&mut self, name: &ObjectName) -> Option<Arc<Snapshot>> {
        self.snapshots.remove(name)
    }

    /// Adds a content, or its new state.
    pub fn apply_content(&mut self, content: Arc<Content>) {
        self.contents.insert(content.name.clone(), content);
    }

    /// Removes a content.
    pub fn remove_content(&mut self, name: &str) -> Option<Arc<Content>> {
        self.contents.remove(name)
    }

    /// Adds a VolumeSnapshotClass, or its new state.
    pub fn apply_class(&mut self, class: SnapshotClass) {
        self.classes.insert(class.name.clone(), class);
    }

    /// Removes a VolumeSnapshotClass.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Removes the VolumeSnapshotClasses that are not in a new list.
    pub fn retain_classes(&mut self, all: &Listed) {
        self.classes.retain(|name, _| all.contains(&ObjectName::new("", name)));
    }
}
