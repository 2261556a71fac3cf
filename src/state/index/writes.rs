//! The records that reconcilers make of their own steps. A function that frees something returns the items that may use
//! it.

use std::time::Duration;

use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Reference, Volume};
use flex_core::object::ObjectName;
use flex_core::run::view::Job;

use super::{BatchEntry, ClosedBatch, Index, SlotRequest, Woken, WorkItem};

/// Writes.
impl Index {
    /// Records a write of a claim or volume. The cache is stale until the watch shows the write.
    pub fn record_write(&mut self, item: WorkItem, resource_version: &str) {
        self.unseen_writes.record(item, resource_version, &self.facts.cache, self.facts.now());
    }

    /// Records that this process has adopted a volume but for the adoption mark.
    pub fn record_unmarked(&mut self, adopted: &Volume) {
        self.unmarked.record(adopted);
    }

    /// Records a write that ended a claim or volume. The cache is stale until the watch shows that it is gone.
    pub fn ended(&mut self, item: WorkItem) {
        self.unseen_writes.record_end(item, &self.facts.cache, self.facts.now());
    }

    /// Records that the claim of a volume is gone by the API, so that nobody has to ask again. Returns the other claims for
    /// which its volumes were made.
    pub fn note_claim_gone(&mut self, volume: &str, claim: &Reference) -> Vec<WorkItem> {
        self.facts.cache.volumes.note_claim_gone(volume, claim);
        claim.uid.as_deref().map(|uid| self.makers(uid)).unwrap_or_default()
    }
}

/// Slots and Jobs.
impl Index {
    /// Takes a slot of the class for a run, before its Job exists. Returns whether there was one for this claim, volume
    /// or content. If not, the item must [join the queue](Index::wait_for_slot).
    pub fn acquire_slot(&mut self, job: &str, slot_request: &SlotRequest, recipe: &Recipe) -> bool {
        let acquired = self.slots.acquire(job, slot_request, recipe, &self.facts);
        if acquired {
            self.revisions.note_use(&recipe.hash, self.facts.now());
        }
        acquired
    }

    /// Adds a run without a slot to the queue. Returns the items whose turn is now.
    pub fn wait_for_slot(&mut self, slot_request: &SlotRequest, recipe: &Recipe) -> Vec<WorkItem> {
        self.slots.wait(slot_request, recipe, &self.facts)
    }

    /// Removes an item from the queue for slots. If it was its turn, returns the items whose turn is now.
    pub fn stop_waiting_for_slot(&mut self, item: &WorkItem) -> Vec<WorkItem> {
        self.slots.stop_waiting_for_slot(item).map(|class| self.for_slot(&class)).unwrap_or_default()
    }

    /// Records that a Job is being created. It is, until [`Index::end_creation`] and some time longer, no absent Job.
    pub fn begin_creation(&mut self, job: &ObjectName) {
        self.slots.expectations_mut().begin_creation(job, std::iter::empty(), self.facts.now());
    }

    /// Records that the creation of a Job, of a batch too, was answered, or will never be. The time of its expectation
    /// begins now. Returns the item of its gate, if a watch has shown a pod of
    /// the Job already.
    pub fn end_creation(&mut self, job: &ObjectName) -> Option<WorkItem> {
        self.slots.expectations_mut().end_creation(job, self.facts.now());
        self.facts.cache.runs.job(job).and_then(|job| self.gate_of(job))
    }

    /// Records that a Job exists. Until the watch shows the Job, it does not count as absent.
    pub fn expect_job(&mut self, job: &str) {
        self.slots.expectations_mut().expect(job, self.facts.now());
    }

    /// Records that the Job was not created. Returns the items that get its slot.
    pub fn cancel_expectation(&mut self, job: &str) -> Vec<WorkItem> {
        self.slots.expectations_mut().remove(job).map(|class| self.for_slots_of([&class])).unwrap_or_default()
    }
}

/// Batches.
impl Index {
    /// Adds a run to a batch for runs like it, which waits for more of them. Its slot is [taken](Index::acquire_slot) as its
    /// own Job. Returns the batch; `None` for a run of its own.
    pub fn join_batch(&mut self, entry: BatchEntry, ts: &str) -> Option<String> {
        self.batches.join(entry, ts, &self.facts, self.slots.expectations_mut())
    }

    /// Closes an open batch. Wakes the members that have left, and the work items that can use their slots.
    pub fn close_batch(&mut self, name: &str) -> Woken<Vec<BatchEntry>> {
        let ClosedBatch { entries, slots, left } = self.batches.close(name, &self.facts, self.slots.expectations_mut());
        for entry in entries.iter().filter(|entry| entry.volume.is_some()) {
            self.deletions.begin(&entry.member.id, ObjectName::new(&entry.target.namespace, name));
        }
        let mut items = self.for_slots_of(&slots);
        items.extend(left);
        Woken { value: entries, items }
    }

    /// Records that the API server rejects the Job of a batch. Each member gets a run of its own, and is requeued.
    pub fn refuse_batch(&mut self, name: &str, entries: &[BatchEntry]) -> Vec<WorkItem> {
        entries.iter().for_each(|entry| self.deletions.forget(&entry.member.id));
        self.batches.refuse(name, entries, self.slots.expectations_mut())
    }

    /// Records that a claim or volume does not want its batch any more, and sees the Job as terminating. Returns
    /// whether all members have left. If not, the item must be requeued, as by an event.
    pub fn detach_member(&mut self, job: &Job) -> bool {
        self.members.detach(job, &self.facts.cache.runs)
    }

    /// Records that the Job was not deleted after all.
    pub fn attach_member(&mut self, job: &Job) {
        self.members.attach(job);
    }
}

/// Attempts and their Jobs.
impl Index {
    /// Records that an attempt was stamped. It has no Job.
    pub fn on_stamp(&mut self, id: &str, job: &str) {
        self.unstarted.on_stamp(id, job);
    }

    /// Records that the Job of an attempt is about to be created. Returns whether it is certainly the attempt's first.
    pub fn begin_run(&mut self, id: &str, job: &str) -> bool {
        self.unstarted.begin_run(id, job)
    }
}

/// Quota.
impl Index {
    /// Charges a claim that is about to be stamped. Returns whether the charge is new: an earlier stamp may exist that
    /// no watch has shown yet.
    pub fn charge(&mut self, claim: &Claim, class: &str) -> bool {
        self.quota_waiters.remove(&WorkItem::Claim(claim.name.clone()));
        self.quota.charge(claim, class, &self.facts)
    }

    /// Notes that a charged claim is stamped, or has its pooled volume.
    pub fn note_charge_written(&mut self, uid: &str) {
        self.quota.note_written(uid);
    }

    /// Drops the charge of a claim if it has expired.
    pub fn drop_expired_charge(&mut self, uid: &str) {
        self.quota.drop_expired_charge(uid, &self.facts);
    }

    /// Takes back the charge of a claim that was not stamped. Returns the items to requeue.
    pub fn refund(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let class = self.quota.refund(&claim.uid, &self.facts);
        class.map(|class| self.for_quota(&class)).unwrap_or_default()
    }

    /// Charges the new size of a volume that is about to be expanded.
    pub fn charge_expand(&mut self, volume: &str, bytes: u64) {
        self.quota_waiters.remove(&WorkItem::Volume(volume.to_owned()));
        self.quota.charge_expand(volume, bytes, &self.facts);
    }

    /// Takes back the charge of a new size. Returns the items to requeue.
    pub fn refund_expand(&mut self, volume: &Volume) -> Vec<WorkItem> {
        let refunded = self.quota.refund_expand(&volume.name, &self.facts);
        if refunded { self.for_quota(&volume.class) } else { Vec::new() }
    }

    /// Records that a claim or volume reached a quota. It is requeued when there is quota for it.
    pub fn wait_for_quota(&mut self, item: WorkItem, class: &str) {
        self.quota_waiters.add(item, class);
    }

    /// Removes a claim that waits for something else from those that wait for quota. Returns the items that may use its
    /// quota.
    pub fn stop_waiting_for_quota(&mut self, item: &WorkItem) -> Vec<WorkItem> {
        self.quota_waiters.remove(item).map(|class| self.for_quota(&class)).unwrap_or_default()
    }
}

/// Pools.
impl Index {
    /// Assigns a volume to a claim. Until the watch shows it, no other claim may get the volume. Returns whether the
    /// assignment was possible.
    pub fn assign(&mut self, claim: &Claim, volume: &Volume) -> bool {
        let assigned = self.pools.assign(claim, volume);
        if assigned {
            self.quota_waiters.remove(&WorkItem::Claim(claim.name.clone()));
            self.quota.charge_without_stamp(claim, &volume.class, &self.facts);
        }
        assigned
    }

    /// Cancels an assignment. Returns the items that may use the volume now.
    pub fn unassign(&mut self, claim: &Claim) -> Vec<WorkItem> {
        let mut items = self.refund(claim);
        let class = self.pools.forget_assigned_to(&claim.uid, &self.facts.cache);
        items.extend(self.woken_by_unassigned(class));
        items
    }

    /// Records that the volume of a request is ready. The watch may show this after the request is gone.
    pub fn expect_pooled(&mut self, volume: &Volume) {
        self.pools.expect_pooled(volume, &self.facts.cache, self.facts.now());
    }

    /// Records that a volume is drained, before the watch shows it.
    pub fn expect_drained(&mut self, volume: &str) {
        self.pools.expect_drained(volume, self.facts.now());
    }

    /// Returns the names of requests that are about to be created.
    pub fn expect_pool_requests(&mut self, class: &str, size: u64, count: usize) -> Vec<ObjectName> {
        self.pools.expect_requests(class, size, count, &self.facts)
    }

    /// Records that a request was not created.
    pub fn forget_pool_request(&mut self, name: &ObjectName) {
        self.pools.forget_request(name);
    }
}

/// Sync probes.
impl Index {
    /// Records that a probe with this name is about to be created. It is the current one.
    pub fn begin_probe(&mut self, name: &str) {
        self.sync_probes.begin(name, self.facts.now());
    }

    /// Gives up the current probe, because it was not created, or has no phase in time.
    pub fn give_up_probe(&mut self) {
        self.sync_probes.give_up();
    }

    /// Records that a probe was deleted, before its event arrives.
    pub fn probe_deleted(&mut self, name: &str) {
        self.sync_probes.forget_probe(name);
    }

    /// Returns how long an adopted volume waited until the PV controller had seen it. Returns it once.
    pub fn take_sync_time(&mut self, volume: &str) -> Option<Duration> {
        self.sync_probes.take_waited(volume)
    }
}
