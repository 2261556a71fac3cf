//! VolumeSnapshots, their contents and classes.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use contract::names;
use contract::request::Operation;

use super::{Change, Index, Key};
use crate::claim::Claim;
use crate::claim::origin::DataSource;
use crate::object::ObjectName;
use crate::run::view::{Job, Marks};
use crate::snapshot::{Class, Content, Snapshot};

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    snapshots: BTreeMap<ObjectName, Arc<Snapshot>>,
    contents: BTreeMap<String, Arc<Content>>,
    classes: BTreeMap<String, Class>,
}

impl Snapshots {
    /// What is made of a claim, and is not ready.
    pub(super) fn of_claim(&self, claim: &ObjectName) -> Vec<Key> {
        // There are few that are not ready, and seldom any.
        let of_it =
            self.snapshots.values().filter(|s| s.status.ready != Some(true) && s.claim().as_ref() == Some(claim));
        of_it.flat_map(|snapshot| snapshot_keys(snapshot)).collect()
    }

    /// The content that a pod is for, also when its Job is not seen any more.
    pub(super) fn of_pod(&self, marks: &Marks) -> Option<Key> {
        let of_snapshot = [Operation::Snapshot, Operation::DeleteSnapshot];
        of_snapshot.iter().find(|operation| operation.as_str() == marks.operation)?;
        let name = names::content_name(&marks.id);
        if self.contents.contains_key(&name) {
            return Some(Key::Content(name));
        }
        let content = self.contents.values().find(|content| content.run_id() == marks.id)?;
        Some(Key::Content(content.name.clone()))
    }

    /// What is to be decided anew when a claim changed: what is made of it, and what it is filled from.
    pub(super) fn concerned_by_claim(&self, claim: &Claim) -> Vec<Key> {
        let mut keys = self.of_claim(&claim.name);
        if let Some(DataSource::Snapshot(name)) = &claim.data_source {
            let content = self.snapshots.get(name).and_then(|snapshot| snapshot.content());
            keys.extend(content.map(Key::Content));
            let of_name = self.contents.values().filter(|content| content.snapshot == *name);
            keys.extend(of_name.map(|content| Key::Content(content.name.clone())));
        }
        keys
    }

    /// Contents that are going.
    pub(super) fn going(&self) -> Vec<Key> {
        self.contents.values().filter(|c| c.deleting).map(|c| Key::Content(c.name.clone())).collect()
    }

    /// What may wait for a config.
    pub(super) fn waiting(&self) -> Vec<Key> {
        let contents = self.contents.values().filter(|content| !content.ready || content.deleting);
        contents.map(|content| Key::Content(content.name.clone())).collect()
    }

    /// Every key.
    pub(super) fn keys(&self) -> Vec<Key> {
        let snapshots = self.snapshots.keys().cloned().map(Key::Snapshot);
        snapshots.chain(self.contents.keys().cloned().map(Key::Content)).collect()
    }
}

fn snapshot_keys(snapshot: &Snapshot) -> Vec<Key> {
    let content = snapshot.content().map(Key::Content);
    [Key::Snapshot(snapshot.name.clone())].into_iter().chain(content).collect()
}

impl Index {
    /// A VolumeSnapshot by its name.
    pub fn snapshot(&self, name: &ObjectName) -> Option<Arc<Snapshot>> {
        self.snapshots.snapshots.get(name).cloned()
    }

    /// A content by its name.
    pub fn content(&self, name: &str) -> Option<Arc<Content>> {
        self.snapshots.contents.get(name).cloned()
    }

    /// All VolumeSnapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.snapshots.snapshots.values()
    }

    /// All contents.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Content>> {
        self.snapshots.contents.values()
    }

    /// The content that is kept while the claim with a UID is filled from it.
    pub fn content_kept_for(&self, claim: &str) -> Option<Arc<Content>> {
        let finalizer = names::clone_finalizer(claim);
        self.snapshots.contents.values().find(|content| content.finalizers.contains(&finalizer)).cloned()
    }

    /// A VolumeSnapshotClass by its name.
    pub fn snapshot_class(&self, name: &str) -> Option<&Class> {
        self.snapshots.classes.get(name)
    }

    /// All VolumeSnapshotClasses.
    pub fn snapshot_classes(&self) -> impl Iterator<Item = &Class> {
        self.snapshots.classes.values()
    }

    /// Jobs of the runs for a content by its name, which may be gone.
    pub fn jobs_of_content(&self, name: &str) -> Vec<Arc<Job>> {
        self.jobs.values().filter(|job| job.content.as_deref() == Some(name)).cloned().collect()
    }

    /// What depends on a VolumeSnapshot or its content: claims that are to be filled from it, and the one that it is of.
    fn concerned_by_snapshot(&self, name: &ObjectName) -> Vec<Key> {
        let mut keys = self.copy_keys(name);
        let of = self.snapshot(name).and_then(|snapshot| snapshot.claim());
        keys.extend(of.map(Key::Claim));
        keys
    }

    /// The same of a content, whose VolumeSnapshot somebody may have forced away: then what it was made of is what it says
    /// itself.
    fn concerned_by_content(&self, content: &Content) -> Vec<Key> {
        let mut keys = self.concerned_by_snapshot(&content.snapshot);
        if self.snapshot(&content.snapshot).is_none_or(|snapshot| snapshot.uid != content.snapshot_uid) {
            let made_by = content.made_by();
            // The claim that its volume was made for, and the one that has it: without the admission policies it can be another.
            let volume = made_by.as_ref().and_then(|made_by| self.volumes.get(&made_by.pv_name));
            keys.extend(volume.and_then(|volume| Some(Key::Claim(volume.claim_ref.as_ref()?.name.clone()))));
            keys.extend(made_by.and_then(|made_by| self.claim_keys(&made_by.volume_id)));
        }
        keys
    }

    /// A VolumeSnapshot changed.
    pub fn change_snapshot(&mut self, change: Change<Snapshot>) -> Vec<Key> {
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
            // All namespaces are watched as one.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// A content changed.
    pub fn change_content(&mut self, change: Change<Content>) -> Vec<Key> {
        match change {
            Change::Apply(content) => {
                let mut keys = vec![Key::Content(content.name.clone()), Key::Snapshot(content.snapshot.clone())];
                keys.extend(self.concerned_by_content(&content));
                if content.deleting || content.ready {
                    keys.extend(self.leave_line(&keys[0]));
                }
                self.snapshots.contents.insert(content.name.clone(), Arc::new(content));
                keys
            }
            Change::Delete(name) => {
                let Some(content) = self.snapshots.contents.remove(&name.name) else { return Vec::new() };
                let mut keys = vec![Key::Content(name.name), Key::Snapshot(content.snapshot.clone())];
                keys.extend(self.leave_line(&keys[0]));
                keys.extend(self.concerned_by_content(&content));
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.snapshots.contents.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_content,
            ),
            // In no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// A VolumeSnapshotClass changed.
    pub fn change_snapshot_class(&mut self, change: Change<Class>) -> Vec<Key> {
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
            // In no namespace.
            Change::RetainIn(..) => {}
        }
        // What has its content needs no class any more.
        let waits = self.snapshots.snapshots.values().filter(|snapshot| snapshot.status.content.is_none());
        waits.map(|snapshot| Key::Snapshot(snapshot.name.clone())).collect()
    }
}
