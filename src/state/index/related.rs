//! The items that are related to an object, for the [table of wake-ups](super::wake).

use std::sync::Arc;

use flex_core::config::classes::Class;
use flex_core::model::claim::{Claim, is_stand_in_name};
use flex_core::model::data_source::DataSource;
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::object::ObjectName;
use flex_core::run::view::{Job, Pod};

use super::{Index, WorkItem};
use crate::state::cache::volumes::claims_of;

impl Index {
    /// Returns the item of a Job's gate, if a pod of it waits, or nobody has opened it in time.
    pub(super) fn gate_of(&self, job: &Job) -> Option<WorkItem> {
        let mut pods = self.facts.cache.runs.pods_named(&job.run_labels.id);
        let waits = job.is_unopened || pods.any(|pod| pod.gate.is_some() && pod.job == job.name.name);
        waits.then(|| WorkItem::Gate(job.name.clone()))
    }

    /// Returns the item of the gate that a change of a pod concerns: its own, or that of another pod of its Job.
    pub(super) fn gate_of_pod(&self, pod: &Pod) -> Option<WorkItem> {
        let own = || pod.gate.map(|_| WorkItem::Gate(ObjectName::new(&pod.name.namespace, &pod.job)));
        own().or_else(|| self.gate_of(self.facts.cache.runs.job_of(pod)?))
    }

    /// Returns the claim with a UID.
    pub fn claim_of_id(&self, id: &str) -> Option<WorkItem> {
        self.facts.cache.claims.name_of(id).cloned().map(WorkItem::Claim)
    }

    /// Returns the stand-ins for claims that are gone and for which the run of a Job is.
    pub(super) fn stand_ins_of_run(&self, job: &Job) -> Vec<WorkItem> {
        let claims = job.ids().filter_map(|id| self.facts.cache.claims.name_of(id));
        claims.filter(|name| is_stand_in_name(name)).cloned().map(WorkItem::Claim).collect()
    }

    /// Returns the items of the records that may need a claim no more.
    pub(super) fn records_of(&self, uid: &str) -> Vec<WorkItem> {
        self.records.of(uid).map(|record| WorkItem::Record(record.name.name.clone())).collect()
    }

    /// Returns the volumes that name a claim in any way.
    pub(super) fn volumes_of_id(&self, id: &str) -> Vec<WorkItem> {
        self.facts.cache.volumes.names_of(id).map(|name| WorkItem::Volume(name.to_owned())).collect()
    }

    /// Returns the other claims for which the volumes that a claim has were made.
    pub(super) fn makers(&self, uid: &str) -> Vec<WorkItem> {
        let named = self.facts.cache.volumes.of_claim(uid).flat_map(|volume| claims_of(&volume));
        named.filter(|other| other != uid).filter_map(|other| self.claim_of_id(&other)).collect()
    }

    /// Returns the volumes that name a claim in any way, and the other claims for which they were made.
    pub(super) fn volumes_and_makers(&self, uid: &str) -> Vec<WorkItem> {
        let mut items = self.volumes_of_id(uid);
        items.extend(self.makers(uid));
        items
    }

    /// Returns the claims that wait for the claim or VolumeSnapshot with this name as their data source.
    pub(super) fn copies_of(&self, source: &ObjectName) -> Vec<WorkItem> {
        self.facts.cache.claims.unbound_copies_of(source).cloned().map(WorkItem::Claim).collect()
    }

    /// Returns the items for a namespace.
    pub(super) fn woken_by_namespace(&self, name: &str) -> Vec<WorkItem> {
        if !self.facts.configs.classes().iter().any(Class::selects_namespaces) {
            return Vec::new();
        }
        let waits = |claim: &&Arc<Claim>| claim.name.namespace == name && !claim.is_bound();
        self.facts.cache.claims.unsettled().filter(waits).map(|claim| WorkItem::Claim(claim.name.clone())).collect()
    }

    /// Returns the items for a VolumeAttributesClass.
    pub(super) fn woken_by_attributes_class(&self, name: &str) -> Vec<WorkItem> {
        let asks = |claim: &Arc<Claim>| claim.attributes_class.as_deref() == Some(name);
        let with_volume = |claim: Arc<Claim>| {
            let volume = claim.volume_name.clone().map(WorkItem::Volume);
            [WorkItem::Claim(claim.name.clone())].into_iter().chain(volume).collect::<Vec<_>>()
        };
        self.facts.cache.claims.all().filter(asks).flat_map(with_volume).collect()
    }

    /// Returns the items for a ReferenceGrant in a namespace.
    pub(super) fn woken_by_grant(&self, namespace: &str) -> Vec<WorkItem> {
        let sources = self.facts.cache.claims.sources_in(namespace);
        sources.into_iter().flat_map(|source| self.copies_of(source)).collect()
    }

    /// Returns the snapshots of a claim that are not ready, and the content that is its data source.
    pub(super) fn snapshots_of(&self, claim: &Claim) -> Vec<WorkItem> {
        let snapshots = &self.facts.cache.snapshots;
        let mut items: Vec<_> =
            snapshots.unready_of(&claim.name).flat_map(|snapshot| snapshot_and_content(snapshot)).collect();
        if let Some(DataSource::Snapshot(name)) = &claim.data_source {
            let content = snapshots.snapshot(name).and_then(|snapshot| snapshot.content());
            items.extend(content.map(WorkItem::Content));
            let of_name = snapshots.contents().filter(|content| content.snapshot == *name);
            items.extend(of_name.map(|content| WorkItem::Content(content.name.clone())));
        }
        items
    }

    /// Returns the claims that are restored from a VolumeSnapshot, and its source claim.
    pub(super) fn restored_and_source(&self, name: &ObjectName, snapshot: Option<&Snapshot>) -> Vec<WorkItem> {
        let mut items = self.copies_of(name);
        items.extend(snapshot.and_then(Snapshot::claim).map(WorkItem::Claim));
        items
    }

    /// Returns the same for a content. Somebody may have removed its VolumeSnapshot by force. Then the content itself
    /// says which claim is its source.
    pub(super) fn concerned_by_content(&self, content: &Content) -> Vec<WorkItem> {
        let cache = &self.facts.cache;
        let snapshot = cache.snapshots.snapshot(&content.snapshot);
        let mut items = self.restored_and_source(&content.snapshot, snapshot.map(AsRef::as_ref));
        if snapshot.is_none_or(|snapshot| content.snapshot_uid.as_ref() != Some(&snapshot.uid)) {
            let made_by = content.made_by();
            // These are the claim for which the volume was made, and the claim that has it. Without the admission
            // policies they can differ.
            let volume = made_by.as_ref().and_then(|made_by| cache.volumes.get(&made_by.pv_name));
            items.extend(volume.and_then(|volume| Some(WorkItem::Claim(volume.claim_ref.as_ref()?.name.clone()))));
            items.extend(made_by.and_then(|made_by| self.claim_of_id(&made_by.volume_id)));
        }
        items
    }
}

/// Returns a VolumeSnapshot and its content.
pub(super) fn snapshot_and_content(snapshot: &Snapshot) -> Vec<WorkItem> {
    let content = snapshot.content().map(WorkItem::Content);
    [WorkItem::Snapshot(snapshot.name.clone())].into_iter().chain(content).collect()
}
