//! The table of wake-ups: the items that each change wakes.
//!
//! A change that concerns an object and does not requeue its item is the mistake to look for (ADR 8). All changes that
//! watches report are rows here, and so are all slots and quota that ledgers set free. Each row is a function, which
//! returns the items in the order of the row. The queue drops repeated items.
//!
//! | change | woken items |
//! |---|---|
//! | a claim | itself, its volumes and for whom they were made, copies, source and snapshots; its pool; capacity |
//! | a volume | itself; the claims that it names, with their copies and snapshots; its pool; sync probes; capacity |
//! | a sync probe | the sync probes; the claims of the volumes that are synced by it |
//! | a Job, a pod, a warning about one | the items of the run |
//! | a record of a run, a stand-in | itself; the stand-ins of its claims; the claims that waited until less was left |
//! | a Job or a pod, while a pod of the Job has our scheduling gate, or had it to the end of its time | the gate |
//! | the end of a run | the items whose turn is next, and open batches of its kind |
//! | a node | the items that depend on it or may wait for it; who gets the slots of lost runs; capacity; pools |
//! | a VolumeSnapshot or content | itself and the other of the two; the claims restored from it; its source |
//! | a kind of snapshot objects that the cluster begins or ceases to serve | the claims to be restored from snapshots |
//! | a VolumeSnapshotClass | the VolumeSnapshots without content |
//! | a namespace | its claims without a volume, if a class selects namespaces by their labels |
//! | a ReferenceGrant | the claims elsewhere whose data source is in its namespace |
//! | a VolumeAttributesClass | the claims that request it, with their volumes |
//! | a CSIStorageCapacity, the CSIDriver | capacity |
//! | a kept script that is gone | the configs, one of which may still need it |
//! | a class, by any of its objects | the claims, volumes and contents in progress; the configs; capacity; pools |
//! | a claim that does not get its pooled volume after all | the pool of the class |
//! | a batch whose Job was refused, or lacks members | these members |
//! | a look at the API which shows that the cache has all delete runs | the volumes that have waited for it |
//! | a free slot | the items whose turn is next |
//! | free quota | the items that have quota now, in the order of their arrival |
//! | a pooled volume that becomes ready | the claims that wait longest for a slot or for quota and could use it |
//! | the begin of a term | everything |

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::config::classes::ClassLookup;
use flex_core::model::claim::Claim;
use flex_core::model::data_source::DataSource;
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::view::{Job, Pod, WarningEvent};

use super::related::snapshot_and_content;
use super::{Index, WorkItem};
use crate::state::cache::runs::pod_ids;
use crate::state::cache::volumes::{claims_of, reservation};
use crate::state::pools::PoolChange;
use crate::state::queue::Checks;

/// The slots and the quota that a change has set free, as the ledgers report it.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// The slot of the batch that the item has left, as the label value of its class.
    pub left: Option<String>,
    /// The class for whose quota the item does not wait any more.
    pub waited_for: Option<String>,
    /// The class for whose slots the item does not wait any more.
    pub turn: Option<String>,
    /// The classes that have more quota.
    pub quota: Vec<String>,
}

/// The effect of a change of a volume on ledgers.
pub(super) struct VolumeNews {
    /// Enough volumes wait for a sync probe.
    pub probe_due: bool,
    /// The effect on the pool.
    pub pool: PoolChange,
}

/// Claims and volumes.
impl Index {
    /// Returns the items for a claim. If it is bound or terminating, others get the slots, the quota and the places in
    /// batches that it does not need any more.
    pub(super) fn woken_by_claim(&self, before: Option<&Claim>, now: &Claim, freed: &Freed) -> Vec<WorkItem> {
        let cache = &self.facts.cache;
        let mut items = Vec::new();
        if before.is_some_and(found_no_capacity) != found_no_capacity(now) {
            items.extend(self.for_capacity());
        }
        items.extend(self.for_slots_of(&freed.left));
        items.extend(freed.waited_for.iter().flat_map(|class| self.for_quota(class)));
        items.extend(freed.turn.iter().flat_map(|class| self.for_slot(class)));
        // A restored volume may be reserved for the claim by name alone.
        let named = now.volume_name.as_ref().and_then(|volume| cache.volumes.get(volume));
        let by_name = named.filter(|volume| volume.claim_ref_uid().is_none());
        items.extend(by_name.map(|volume| WorkItem::Volume(volume.name.clone())));
        items.extend(self.copies_of(&now.name));
        items.extend(now.source_claim().cloned().map(WorkItem::Claim));
        items.extend(freed.quota.iter().flat_map(|class| self.for_quota(class)));
        if self.facts.is_pool_request(now) {
            items.extend(now.class.clone().map(WorkItem::Pool));
        }
        items.extend(self.snapshots_of(now));
        items.extend(self.records_of(&now.uid));
        items.push(WorkItem::Claim(now.name.clone()));
        // A bound claim that is not held concerns its volume only when it has just got it, is terminating or requests more.
        let is_settled = |before: &Claim| !before.is_held() && before.volume_name == now.volume_name;
        let is_quiet = now.is_bound() && !now.is_held() && !now.terminating && before.is_none_or(is_settled);
        if !is_quiet || cache.wants_more(now) {
            items.extend(self.volumes_and_makers(&now.uid));
        }
        items
    }

    /// Returns the items for a claim that is gone. `ready` are the pooled volumes that a pool request leaves.
    pub(super) fn woken_by_gone_claim(&self, claim: &Claim, ready: &[Arc<Volume>], freed: &Freed) -> Vec<WorkItem> {
        let mut items = self.volumes_and_makers(&claim.uid);
        items.extend(freed.turn.iter().flat_map(|class| self.for_slot(class)));
        items.extend(self.for_slots_of(&freed.left));
        items.extend(self.copies_of(&claim.name));
        if self.facts.is_pool_request(claim) {
            items.extend(claim.class.clone().map(WorkItem::Pool));
        }
        items.extend(ready.iter().flat_map(|volume| self.claims_waiting_for(volume)));
        items.extend(claim.class.as_deref().and_then(|class| self.pool_of(class)));
        items.extend(freed.quota.iter().flat_map(|class| self.for_quota(class)));
        items.extend(self.snapshots_of(claim));
        items.extend(claim.source_claim().cloned().map(WorkItem::Claim));
        items.push(WorkItem::Claim(claim.name.clone()));
        // Another claim of this name may wait for the end of what the runs of this one left.
        items.extend(claim.is_stand_in().then(|| WorkItem::Claim(claim.api_name())));
        items
    }

    /// Returns the items for a volume. Others get the quota that it set free, if its size changed.
    pub(super) fn woken_by_volume(
        &self,
        before: Option<&Volume>,
        now: &Volume,
        news: &VolumeNews,
        freed: &Freed,
    ) -> Vec<WorkItem> {
        let cache = &self.facts.cache;
        let mut items = vec![WorkItem::Volume(now.name.clone())];
        if before.is_none_or(|before| (&before.size, &before.affinity) != (&now.size, &now.affinity)) {
            items.extend(self.for_capacity());
        }
        items.extend(news.probe_due.then_some(WorkItem::SyncProbe));
        for claim in claims_of(now).iter().filter_map(|uid| cache.claims.name_of(uid)) {
            items.extend(self.copies_of(claim));
            // The watch may have shown the claim as bound before it showed that its volume is the orchestrator's.
            items.extend(cache.snapshots.unready_of(claim).flat_map(|snapshot| snapshot_and_content(snapshot)));
            items.push(WorkItem::Claim(claim.clone()));
        }
        items.extend(reservation(now).cloned().map(WorkItem::Claim));
        items.extend(freed.quota.iter().flat_map(|class| self.for_quota(class)));
        items.extend(self.for_pool_change(now, &news.pool));
        items
    }

    /// Returns the items for a volume that is gone. Others get the slots and the quota that it used.
    pub(super) fn woken_by_gone_volume(&self, volume: &Volume, news: &VolumeNews, freed: &Freed) -> Vec<WorkItem> {
        let claims = &self.facts.cache.claims;
        let named = claims_of(volume);
        let mut items: Vec<WorkItem> =
            named.iter().filter_map(|uid| claims.name_of(uid)).cloned().map(WorkItem::Claim).collect();
        items.extend(reservation(volume).cloned().map(WorkItem::Claim));
        items.extend(self.for_slots_of(&freed.left));
        items.extend(freed.turn.iter().flat_map(|class| self.for_slot(class)));
        items.extend(self.for_pool_change(volume, &news.pool));
        items.extend(self.pool_of(&volume.class));
        items.extend(freed.quota.iter().flat_map(|class| self.for_quota(class)));
        items.extend(self.for_capacity());
        items.push(WorkItem::Volume(volume.name.clone()));
        items
    }

    /// Returns the items for a sync probe, and the volumes that are synced by it.
    pub(super) fn woken_by_probe(&self, synced: &[String]) -> Vec<WorkItem> {
        let volumes = synced.iter().filter_map(|name| self.facts.cache.volumes.get(name));
        let claims = volumes.filter_map(|volume| self.claim_of_id(volume.claim_uid.as_deref()?));
        [WorkItem::SyncProbe].into_iter().chain(claims).collect()
    }
}

/// Runs.
impl Index {
    /// Returns the items for a Job. `dissolved` are members that expected it and that it lacks, and `quota` is a class
    /// that has more quota because an expansion failed.
    pub(super) fn woken_by_job(
        &self,
        before: Option<&Job>,
        now: &Job,
        dissolved: Vec<WorkItem>,
        quota: Option<&str>,
    ) -> Vec<WorkItem> {
        let mut items = of_job(now);
        items.extend(self.stand_ins_of_run(now));
        items.extend(before.filter(|before| before.members != now.members).map(of_job).unwrap_or_default());
        items.extend(dissolved);
        if now.is_over && before.is_none_or(|before| !before.is_over) {
            items.extend(self.for_ended_run(now));
        }
        items.extend(quota.map(|class| self.for_quota(class)).unwrap_or_default());
        items
    }

    /// Returns the items for a Job that is gone. `quota` is a class that has more quota because its expansion ended.
    pub(super) fn woken_by_gone_job(&self, job: &Job, quota: Option<&str>) -> Vec<WorkItem> {
        let mut items = of_job(job);
        items.extend(self.stand_ins_of_run(job));
        items.extend(quota.map(|class| self.for_quota(class)).unwrap_or_default());
        if !job.is_over {
            items.extend(self.for_ended_run(job));
        }
        items
    }

    /// Returns the items for a pod: the items of its Job, its claim, volumes and content.
    pub(super) fn woken_by_pod(&self, pod: &Pod) -> Vec<WorkItem> {
        if pod.run_labels.operation == Operation::Capacity {
            return [WorkItem::Capacity].into_iter().chain(self.gate_of_pod(pod)).collect();
        }
        let cache = &self.facts.cache;
        let mut items: Vec<WorkItem> = cache.runs.job_of(pod).map(|job| of_job(job)).unwrap_or_default();
        for id in pod_ids(pod) {
            items.extend(self.claim_of_id(id));
            items.extend(self.volumes_of_id(id));
        }
        let content = cache.snapshots.content_of_run(&pod.run_labels);
        items.extend(content.map(|content| WorkItem::Content(content.name.clone())));
        items.extend(self.gate_of_pod(pod));
        items.sort();
        items.dedup();
        items
    }

    /// Returns the items for a warning about a Job or pod.
    pub(super) fn woken_by_warning(&self, event: &WarningEvent) -> Vec<WorkItem> {
        let runs = &self.facts.cache.runs;
        if let Some(job) = runs.jobs().find(|job| job.uid == event.object_uid) {
            return of_job(job);
        }
        // Otherwise the object is gone, or not visible yet. Its next event decides.
        let pod = runs.pods().find(|pod| pod.uid == event.object_uid);
        pod.map(|pod| self.woken_by_pod(pod)).unwrap_or_default()
    }

    /// Returns the items for the end of a run.
    fn for_ended_run(&self, job: &Job) -> Vec<WorkItem> {
        let mut items = self.slots.next_of_label(&job.run_labels.class, &self.facts);
        items.extend(self.batches.open_of(job).cloned().map(WorkItem::Batch));
        items
    }
}

/// Other objects. They seldom change.
impl Index {
    /// Returns the items for a node that exists, or is gone.
    pub(super) fn woken_by_node(&self, node: &str, is_there: bool) -> Vec<WorkItem> {
        let cache = &self.facts.cache;
        let on_it = |name: &String| name == node;
        let waits = |claim: &Claim| is_there && (claim.selected_node.is_none() || claim.data_source.is_some());
        let claims = cache.claims.unsettled().filter(|claim| match claim.is_bound() {
            true => claim.is_held() && claim.nodes_with_storage.iter().chain(&claim.selected_node).any(on_it),
            false => waits(claim) || claim.nodes_with_storage.iter().chain(&claim.selected_node).any(on_it),
        });
        let volumes = cache.volumes.all().filter(|volume| volume.nodes_with_storage.iter().any(on_it));
        let volumes = volumes.chain(self.with_due_deletion());
        let contents = cache.snapshots.contents().filter(|content| content.terminating);
        let pods = cache.runs.pods().filter(|pod| !pod.is_over() && pod.node.iter().any(on_it));
        let mut items: Vec<WorkItem> = claims.map(|claim| WorkItem::Claim(claim.name.clone())).collect();
        items.extend(volumes.map(|volume| WorkItem::Volume(volume.name.clone())));
        items.extend(contents.map(|content| WorkItem::Content(content.name.clone())));
        items.extend(pods.clone().flat_map(|pod| self.woken_by_pod(pod)));
        // Runs on a lost node do not use slots.
        let classes: BTreeSet<&String> = pods.map(|pod| &pod.run_labels.class).collect();
        items.extend(classes.into_iter().flat_map(|class| self.slots.next_of_label(class, &self.facts)));
        items.sort();
        items.dedup();
        items.extend(self.for_capacity());
        items.extend(self.all_pools());
        items
    }

    /// Returns the volumes for which a deletion is due or in progress: no claim has them. Those that were never adopted
    /// may have no finalizer and any phase.
    fn with_due_deletion(&self) -> impl Iterator<Item = Arc<Volume>> {
        let claims = &self.facts.cache.claims;
        let has_no_claim = |volume: &Volume| {
            let uid = volume.claim_ref_uid().or(volume.claim_uid.as_deref());
            volume.pool_hash().is_none() && uid.is_some_and(|uid| claims.name_of(uid).is_none())
        };
        let is_due =
            move |volume: &&Arc<Volume>| volume.terminating || volume.phase.is_claim_gone() || has_no_claim(volume);
        self.facts.cache.volumes.unsettled().filter(is_due).cloned()
    }

    /// Returns the items for a VolumeSnapshot.
    pub(super) fn woken_by_snapshot(&self, snapshot: &Snapshot) -> Vec<WorkItem> {
        let mut items = snapshot_and_content(snapshot);
        items.extend(self.restored_and_source(&snapshot.name, Some(snapshot)));
        items
    }

    /// Returns the items for a VolumeSnapshot that is gone.
    pub(super) fn woken_by_gone_snapshot(&self, name: &ObjectName, gone: Option<&Snapshot>) -> Vec<WorkItem> {
        let mut items = self.restored_and_source(name, gone);
        items.extend(gone.map(snapshot_and_content).unwrap_or_default());
        items
    }

    /// Returns the items for a content. `turn` is the class for whose slots it does not wait any more.
    pub(super) fn woken_by_content(&self, content: &Content, turn: Option<&str>) -> Vec<WorkItem> {
        let mut items = vec![WorkItem::Content(content.name.clone()), WorkItem::Snapshot(content.snapshot.clone())];
        items.extend(self.concerned_by_content(content));
        items.extend(turn.map(|class| self.for_slot(class)).unwrap_or_default());
        items
    }

    /// Returns the items for a content that is gone. `turn` is the class for whose slots it waited.
    pub(super) fn woken_by_gone_content(&self, content: &Content, turn: Option<&str>) -> Vec<WorkItem> {
        let mut items = vec![WorkItem::Content(content.name.clone()), WorkItem::Snapshot(content.snapshot.clone())];
        items.extend(turn.map(|class| self.for_slot(class)).unwrap_or_default());
        items.extend(self.concerned_by_content(content));
        items
    }

    /// Returns the items for a kind of snapshot objects that the cluster begins or ceases to serve.
    pub(super) fn woken_by_snapshot_kind(&self) -> Vec<WorkItem> {
        let is_restored = |claim: &&Arc<Claim>| matches!(claim.data_source, Some(DataSource::Snapshot(_)));
        let waits = self.facts.cache.claims.unsettled().filter(|claim| !claim.is_bound()).filter(is_restored);
        waits.map(|claim| WorkItem::Claim(claim.name.clone())).collect()
    }

    /// Returns the items for a CSIStorageCapacity or the CSIDriver.
    pub(super) fn woken_by_published(&self) -> Vec<WorkItem> {
        vec![WorkItem::Capacity]
    }

    /// Returns the items for a kept script that is gone.
    pub(super) fn woken_by_gone_script(&self) -> Vec<WorkItem> {
        vec![WorkItem::Configs]
    }

    /// Returns the items for a pooled volume that was assigned to a claim and is free again.
    pub(super) fn woken_by_unassigned(&self, class: Option<String>) -> Vec<WorkItem> {
        class.map(WorkItem::Pool).into_iter().collect()
    }

    /// Returns the items for any VolumeSnapshotClass.
    pub(super) fn woken_by_snapshot_class(&self) -> Vec<WorkItem> {
        // A VolumeSnapshot with its content needs no class any more.
        let waits = self.facts.cache.snapshots.snapshots().filter(|snapshot| snapshot.status.content.is_none());
        waits.map(|snapshot| WorkItem::Snapshot(snapshot.name.clone())).collect()
    }

    /// Returns the items for the table of classes: a config, StorageClass, ServiceAccount, revision or external
    /// provisioner changed it.
    pub(super) fn woken_by_classes(&self) -> Vec<WorkItem> {
        let (cache, classes) = (&self.facts.cache, self.facts.configs.classes());
        let concerned = cache.claims.all().filter(|claim| {
            let class = claim.class.as_deref();
            let ours = || class.is_some_and(|class| matches!(classes.lookup(class), ClassLookup::Ours(_)));
            let left = || class.is_some_and(|class| classes.left_to_external_provisioner(class).is_some());
            claim.is_held() || (!claim.is_bound() && (ours() || left()))
        });
        let mut items: Vec<WorkItem> = concerned.map(|claim| WorkItem::Claim(claim.name.clone())).collect();
        // The config may not have said before how their storage is deleted.
        items.extend(self.with_due_deletion().map(|volume| WorkItem::Volume(volume.name.clone())));
        let growing = cache.claims.all().filter(|claim| cache.wants_more(claim));
        items.extend(growing.filter_map(|claim| claim.volume_name.clone()).map(WorkItem::Volume));
        let contents = cache.snapshots.contents().filter(|content| !content.ready || content.terminating);
        items.extend(contents.map(|content| WorkItem::Content(content.name.clone())));
        items.push(WorkItem::Configs);
        items.extend(self.for_capacity());
        items.extend(self.all_pools());
        items
    }

    /// Returns the items for the begin of a term as leader, but for claims and volumes that are settled.
    pub(super) fn unsettled_items(&self) -> Vec<WorkItem> {
        let cache = &self.facts.cache;
        let claims = cache.claims.unsettled().map(|claim| WorkItem::Claim(claim.name.clone()));
        let volumes = cache.volumes.unsettled().map(|volume| WorkItem::Volume(volume.name.clone()));
        let late = cache.runs.jobs().filter(|job| job.is_unopened).filter_map(|job| self.gate_of(job));
        let gates = cache.runs.pods().filter_map(|pod| self.gate_of_pod(pod)).chain(late);
        let records = self.records.all().map(|record| WorkItem::Record(record.name.name.clone()));
        let jobs = cache.runs.jobs().flat_map(|job| of_job(job)).chain(gates).chain(records);
        let snapshots = cache.snapshots.snapshots().map(|snapshot| WorkItem::Snapshot(snapshot.name.clone()));
        let contents = cache.snapshots.contents().map(|content| WorkItem::Content(content.name.clone()));
        let items = claims.chain(volumes).chain(jobs).chain(snapshots).chain(contents).chain(self.all_pools());
        items.chain([WorkItem::Configs, WorkItem::SyncProbe, WorkItem::Findings, WorkItem::Capacity]).collect()
    }

    /// Returns the items of claims and volumes that are settled. They are checked at the begin of a term, because they may
    /// have changed while nobody led. Each item is made when it is taken.
    pub(super) fn settled_items(&self) -> Checks<WorkItem> {
        let cache = &self.facts.cache;
        let claims = cache.claims.settled_names().into_iter();
        let volumes = cache.volumes.settled_names().into_iter();
        let claims = claims.map(|name| WorkItem::Claim(Arc::unwrap_or_clone(name)));
        Box::new(claims.chain(volumes.map(|name| WorkItem::Volume(name.to_string()))))
    }
}

/// Slots, quota and pools.
impl Index {
    /// Returns the items that may use a slot of a class.
    pub(super) fn for_slot(&self, class: &str) -> Vec<WorkItem> {
        self.slots.next(class, &self.facts)
    }

    /// Returns the items that may use these slots, given by the label values of their classes.
    pub(super) fn for_slots_of<'a>(&self, labels: impl IntoIterator<Item = &'a String>) -> Vec<WorkItem> {
        labels.into_iter().flat_map(|label| self.slots.next_of_label(label, &self.facts)).collect()
    }

    /// Returns the items that have quota after usage of a class was freed.
    pub(super) fn for_quota(&self, class: &str) -> Vec<WorkItem> {
        self.quota_waiters.admitted(class, &self.quota, &self.facts)
    }

    /// Returns the items that a change of a pooled volume concerns: its pools, and the claims that may get it. From the
    /// moment when a volume leaves its pool, it counts against the quota of another namespace. Then the items that have
    /// quota follow too.
    fn for_pool_change(&self, volume: &Volume, change: &PoolChange) -> Vec<WorkItem> {
        let mut items: Vec<_> = change.classes.iter().cloned().map(WorkItem::Pool).collect();
        if change.ready {
            items.extend(self.claims_waiting_for(volume));
        }
        if change.left {
            items.extend(self.for_quota(&volume.class));
        }
        items.sort();
        items.dedup();
        items
    }

    /// Returns the claims that wait longest for a slot or for quota and could use this pooled volume. There are as many
    /// as volumes of its size, because all but one may get another volume.
    fn claims_waiting_for(&self, volume: &Volume) -> Vec<WorkItem> {
        let facts = &self.facts;
        let for_slot = self.slots.waiting(&volume.class, facts.now());
        let for_quota = self.quota_waiters.of(&volume.class);
        let is_wanted = |item: &&WorkItem| match item {
            WorkItem::Claim(name) => {
                facts.cache.claims.get(name).is_some_and(|claim| self.pools.is_wanted_by(volume, &claim, facts))
            }
            _ => false,
        };
        let count = self.pools.count_like(volume, &facts.cache);
        for_slot.chain(for_quota).filter(is_wanted).take(count).cloned().collect()
    }

    /// Returns the work item of a class's pool, if it has one: there may be quota for it.
    fn pool_of(&self, class: &str) -> Option<WorkItem> {
        let recipe = self.facts.configs.recipe_of(class)?;
        recipe.pool.is_some().then(|| WorkItem::Pool(class.to_owned()))
    }

    /// Returns all pools that are configured, or of which volumes are left.
    fn all_pools(&self) -> Vec<WorkItem> {
        self.pools.classes(&self.facts).into_iter().cloned().map(WorkItem::Pool).collect()
    }

    /// Returns the work item of capacities, if any are published. For changes that may affect them.
    fn for_capacity(&self) -> Option<WorkItem> {
        self.facts.has_capacities().then_some(WorkItem::Capacity)
    }
}

/// Checks whether an unbound claim found no capacity on its backend.
fn found_no_capacity(claim: &Claim) -> bool {
    let full = claim.last_failure.as_ref().is_some_and(|failure| failure.reaction == Reaction::NoCapacity);
    full && !claim.is_bound()
}

/// Returns the items of a Job's run.
pub(super) fn of_job(job: &Job) -> Vec<WorkItem> {
    if !job.members.is_empty() {
        return job.members.iter().map(WorkItem::of_member).collect();
    }
    vec![match (&job.content, &job.volume) {
        (None, None) if job.run_labels.operation == Operation::Capacity => WorkItem::Capacity,
        (Some(content), _) => WorkItem::Content(content.clone()),
        (None, Some(volume)) => WorkItem::Volume(volume.clone()),
        (None, None) => WorkItem::Claim(job.claim.clone().unwrap_or_default()),
    }]
}
