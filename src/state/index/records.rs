//! The records of runs, and the stand-ins for claims that are gone while a record names them.

use std::collections::BTreeSet;
use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::decide::RecordedAttempts;
use flex_core::config::effective_config::hash_of;
use flex_core::model::claim::Claim;
use flex_core::model::record::Record;
use flex_core::object::ObjectName;
use flex_core::run::record::Observed;

use super::{Index, WorkItem};
use crate::state::records::Records;
use crate::state::watch_change::Listed;

/// The longest wait of a claim for the end of what attempts for an earlier claim of its name left, in seconds. No failure shows
/// that some deletions need a person.
const NAMESAKE_PATIENCE: i64 = 600;

impl Index {
    /// Applies a change of a record. Claims that are gone, and that a record names, get a stand-in.
    pub(super) fn apply_record(&mut self, record: Record) -> Vec<WorkItem> {
        self.change_record(record.name.name.clone(), |records| records.apply(record))
    }

    /// Applies the end of a record.
    pub(super) fn remove_record(&mut self, name: &ObjectName) -> Vec<WorkItem> {
        self.change_record(name.name.clone(), |records| records.remove(&name.name))
    }

    /// Applies a record as the API server has answered it to this process, before a watch shows it.
    pub fn record_answered(&mut self, record: Record) -> Vec<WorkItem> {
        self.change_record(record.name.name.clone(), |records| records.answered(record))
    }

    /// Removes a record that this process has deleted, before a watch shows it.
    pub fn record_deleted(&mut self, record: &Record) -> Vec<WorkItem> {
        self.change_record(record.name.name.clone(), |records| records.deleted(record))
    }

    /// Removes a record that somebody else has deleted, as the API has shown.
    pub fn record_vanished(&mut self, record: &Record) -> Vec<WorkItem> {
        self.change_record(record.name.name.clone(), |records| records.vanished(record))
    }

    fn change_record(&mut self, name: String, change: impl FnOnce(&mut Records) -> BTreeSet<String>) -> Vec<WorkItem> {
        let before = self.records.get(&name).cloned();
        let uids = change(&mut self.records);
        let now = self.records.get(&name).cloned();
        let needed = |record: &Option<Arc<Record>>, uid: &str| record.as_ref().is_some_and(|record| record.needs(uid));
        let mut items: Vec<WorkItem> = uids.iter().flat_map(|uid| self.sync_stand_in(uid)).collect();
        // A claim may have waited until it needs the record no more.
        let changed = uids.iter().filter(|uid| needed(&before, uid) != needed(&now, uid));
        items.extend(changed.clone().filter_map(|uid| self.claim_of_id(uid)));
        items.extend(changed.flat_map(|uid| self.records_of(uid)));
        items.push(WorkItem::Record(name));
        items.sort();
        items.dedup();
        items
    }

    /// Returns a record by its name.
    pub fn record(&self, name: &str) -> Option<Arc<Record>> {
        self.records.get(name).cloned()
    }

    /// Returns the records that a claim still needs, the newest last.
    pub fn unsettled_records_of(&self, uid: &str) -> Vec<Arc<Record>> {
        self.records.unsettled_of(uid)
    }

    /// Checks whether the API has shown in this term that the records are those of the cache.
    pub fn are_records_confirmed(&self) -> bool {
        self.records.are_confirmed()
    }

    /// Notes that the API has shown in this term that the records are those of the cache.
    pub fn note_records_confirmed(&mut self) {
        self.records.note_confirmed();
    }

    /// Checks whether the API has shown a moment ago that the cache lacks records.
    pub fn has_just_missed_records(&self) -> bool {
        self.records.waits.has_just_missed(self.facts.now())
    }

    /// Notes that the API has these records and the cache lacks them. Returns the message about them when it is time to log it.
    pub fn note_missing_records(&mut self, names: &[String]) -> Option<String> {
        let now = self.facts.now();
        self.records.waits.note_missing(names, now)
    }

    /// Returns the message about records that the cache lacks, once that lasts.
    pub fn why_records_are_awaited(&self) -> Option<String> {
        self.records.waits.why()
    }

    /// Returns all records.
    pub fn records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.records.all()
    }

    /// Returns the records of what somebody may keep.
    pub fn kept_records(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.records.all().filter(|record| record.kept().next().is_some())
    }

    /// Checks whether somebody else has deleted a record that a claim needed.
    pub fn has_lost_record(&self, uid: &str) -> bool {
        self.records.lost(uid).is_some()
    }

    /// Returns the Jobs of the batches in which attempts for a claim may have run, also by records that somebody has deleted.
    pub fn batches_of(&self, uid: &str) -> BTreeSet<ObjectName> {
        let mut batches: BTreeSet<_> =
            self.records.unsettled_of(uid).iter().filter_map(|record| record.batch(uid)).collect();
        batches.extend(self.records.lost(uid).into_iter().flatten().cloned());
        batches
    }

    /// Returns what the records that a claim needs say of its attempts.
    pub fn recorded_attempts(&self, uid: &str) -> RecordedAttempts {
        self.records.attempts_of(uid)
    }

    /// Returns the stand-ins for claims that are gone and had this name.
    pub fn stand_ins_of(&self, name: &ObjectName) -> Vec<Arc<Claim>> {
        let claims = self.records.uids_of(name).filter_map(|uid| self.facts.cache.claims.by_id(uid));
        claims.filter(|claim| claim.is_stand_in()).collect()
    }

    /// Checks whether what attempts for an earlier claim of this name and class left is being deleted. A claim waits for no
    /// node that is gone, nor for a person or another claim, and not long.
    pub fn has_namesake(&self, claim: &Claim) -> bool {
        if self.facts.clock.now() >= claim.created.saturating_add(NAMESAKE_PATIENCE) {
            return false;
        }
        let blocks = |other: &Arc<Claim>| {
            let has_node = |node: &String| self.facts.cache.nodes.get(node).is_some_and(|node| node.reachable);
            let has_failed = other.last_failure.as_ref().is_some_and(|last| last.operation == Operation::Delete);
            let is_known = |version: &str| self.revisions.recipe(version).is_some();
            other.class == claim.class
                && !other.abandoned
                && !has_failed
                && other.nodes_with_storage.iter().all(has_node)
                && other.own_stamp().is_some_and(|stamp| is_known(&stamp.recipe_version))
                && !self.is_volume_taken(&other.uid)
        };
        self.stand_ins_of(&claim.name).iter().any(blocks)
    }

    /// Checks whether another claim has the volume that was made for a claim.
    fn is_volume_taken(&self, uid: &str) -> bool {
        let volume = self.facts.cache.volumes.get(&names::pv_name(uid));
        volume.is_some_and(|volume| volume.claim_ref_uid().is_some_and(|of| of != uid))
    }

    /// Checks whether a claim is certainly gone: a watch has shown its deletion, or the API was asked.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.records.is_gone(uid)
    }

    /// Checks whether the cache has the claim itself, and no stand-in for it.
    pub fn is_live(&self, uid: &str) -> bool {
        self.facts.cache.claims.by_id(uid).is_some_and(|claim| claim.uid == uid && !claim.is_stand_in())
    }

    /// Notes that the API has no claim with this UID. Returns the other claims for which its volumes were made.
    pub fn note_gone(&mut self, uid: &str) -> Vec<WorkItem> {
        self.records.note_gone(uid);
        self.makers(uid)
    }

    /// Begins or ends the creation of a record by this process. Returns the items to requeue.
    pub fn set_record_in_creation(&mut self, name: &str, is: bool) -> Vec<WorkItem> {
        self.records.set_in_creation(name, is);
        if is { Vec::new() } else { vec![WorkItem::Record(name.to_owned())] }
    }

    /// Notes that a claim needs a record no more. Returns the item that writes this.
    pub fn set_undone(&mut self, record: &str, uid: &str) -> WorkItem {
        self.records.set_undone(record, uid);
        WorkItem::Record(record.to_owned())
    }

    /// Returns a record, and the claims that need it no more.
    pub fn observe_record(&self, name: &str) -> Option<(Arc<Record>, Observed)> {
        let record = self.records.get(name)?.clone();
        let unsettled: BTreeSet<String> = record.unsettled().cloned().collect();
        let done = unsettled.iter().filter(|uid| {
            let claim = self.facts.cache.claims.by_id(uid).filter(|claim| claim.uid == **uid);
            self.records.is_undone(name, uid)
                || self.records.is_replaced(&record, uid)
                || claim.is_some_and(|claim| is_settled(&claim, &record))
        });
        let kept: BTreeSet<String> = record.kept().map(|claim| claim.uid.clone()).collect();
        let abandoned = kept.iter().filter(|uid| record.is_abandoned(uid));
        let observed = Observed {
            armed: record.armed,
            in_creation: self.records.is_in_creation(name),
            settled: done.chain(abandoned).cloned().collect(),
            left: unsettled.len() + kept.len(),
            unreadable: record.unreadable(),
            collecting: self.records.waits.rest(name, self.facts.now()),
        };
        Some((record, observed))
    }

    /// Begins to wait for more claims that need a record no more, unless the record waits already.
    pub fn begin_collecting(&mut self, record: &str) {
        let now = self.facts.now();
        self.records.waits.begin_collecting(record, now);
    }

    /// Ends the wait of a record for more claims, because it is written for those that there are.
    pub fn end_collecting(&mut self, record: &str) {
        self.records.waits.end_collecting(record);
    }

    /// Checks whether a record names a version of a config.
    pub fn is_recorded_with(&self, hash: &str) -> bool {
        self.recorded_versions().iter().any(|version| hash_of(version) == Some(hash))
    }

    /// Returns the recipe versions that records name.
    pub(super) fn recorded_versions(&self) -> BTreeSet<String> {
        let claims = self.records.all().flat_map(|record| record.all_recorded());
        claims.filter_map(|claim| Some(claim.stamp.as_ref()?.recipe_version.clone())).collect()
    }

    /// Returns the records that a new list lacks.
    pub(super) fn missing_records(&self, listed: &Listed) -> Vec<ObjectName> {
        let shown = self.records.all().filter(|record| !self.records.is_unshown(&record.name.name));
        listed.missing(shown.map(|record| &record.name))
    }
}

/// Checks whether a claim needs a record no more: it is bound to its volume, or an admin has abandoned it. What an abandoned
/// claim has left stays also if no process knows of the annotation any more when the claim is deleted. But while the attempt may
/// be in progress, only the record keeps the next leader from a second run.
fn is_settled(claim: &Claim, record: &Record) -> bool {
    let last = claim.last_failure.as_ref().filter(|last| last.operation == Operation::Provision);
    let attempt = record.recorded(&claim.uid).and_then(Claim::own_stamp).map_or(0, |stamp| stamp.attempt);
    let has_ended = last.is_some_and(|last| last.attempt >= attempt);
    let is_abandoned = claim.abandoned && !claim.is_stand_in() && has_ended;
    is_abandoned || !claim.is_held() && claim.is_bound() && claim.volume_name == Some(names::pv_name(&claim.uid))
}
