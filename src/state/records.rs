//! The records of provision runs, and the claims that are gone while a record still names them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use flex_core::claim::decide::RecordedAttempts;
use flex_core::model::claim::{Claim, Had, RecordRef};
use flex_core::model::record::Record;
use flex_core::object::ObjectName;

use crate::state::record_waits::RecordWaits;
use crate::state::watch_change::drop_from;

/// The most claims whose end is kept without a record. Each is that of a run which is about to begin.
const RECENT_ENDS: usize = 1_000;

/// What shows the end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// A watch that has shown all changes of the claim.
    Watched,
    /// Another claim of its name. What happened to the claim since it was last seen is unknown.
    Replaced,
    /// A list without the claim. It may still be there.
    Missed,
}

/// The end of a claim.
#[derive(Debug)]
struct End {
    /// The claim as it was last seen.
    claim: Claim,
    shown: Shown,
}

/// All records.
#[derive(Debug, Default)]
pub struct Records {
    by_name: BTreeMap<String, Arc<Record>>,
    /// The names of the records of each claim.
    by_claim: HashMap<String, BTreeSet<String>>,
    /// The UIDs of the claims that records name, by the names that these have or had in the API.
    uids: HashMap<ObjectName, BTreeSet<String>>,
    /// Claims that are gone, as they were last seen.
    last_seen: HashMap<String, Claim>,
    /// Claims that are certainly gone: a watch has shown their deletion, or the API was asked.
    gone: HashSet<String>,
    /// Whether somebody has had a volume of the claims that are gone, as far as watches have shown it.
    had: HashMap<String, Had>,
    /// The last held claims whose end was seen before their record, the last one first.
    recent_ends: VecDeque<End>,
    /// The claims of which somebody else has deleted a record that they needed, with the batches that it named.
    lost: HashMap<String, BTreeSet<ObjectName>>,
    /// The records that this process is about to arm.
    in_creation: BTreeSet<String>,
    /// The claims that need a record no more, by the names of records. This is not written yet.
    undone: HashMap<String, BTreeSet<String>>,
    /// The records that this process has written, and no watch has shown yet.
    unshown: HashSet<String>,
    /// In this term the API has shown that the records are these.
    are_confirmed: bool,
    /// The UIDs of records that this process has deleted, by their names, until a watch shows that they are gone.
    deleted: HashMap<String, String>,
    /// The waits at records.
    pub waits: RecordWaits,
}

/// Questions.
impl Records {
    /// Returns a record by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Record>> {
        self.by_name.get(name)
    }

    /// Returns all records, by their names.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.by_name.values()
    }

    /// Returns the records that name a claim.
    pub fn of(&self, uid: &str) -> impl Iterator<Item = &Arc<Record>> {
        self.by_claim.get(uid).into_iter().flatten().filter_map(|name| self.by_name.get(name))
    }

    /// Returns the UIDs of the claims that records name and that have or had this name.
    pub fn uids_of(&self, name: &ObjectName) -> impl Iterator<Item = &String> {
        self.uids.get(name).into_iter().flatten()
    }

    /// Returns the records that a claim still needs, the newest last.
    pub fn unsettled_of(&self, uid: &str) -> Vec<Arc<Record>> {
        let mut all: Vec<_> = self.of(uid).filter(|record| record.needs(uid)).cloned().collect();
        all.sort_by(|a, b| a.order(uid).cmp(&b.order(uid)));
        all
    }

    /// Checks whether a claim needs a record no more, because a newer one says the same.
    pub fn is_replaced(&self, record: &Record, uid: &str) -> bool {
        let newer = self.of(uid).filter(|other| other.needs(uid) && other.order(uid) > record.order(uid));
        newer.into_iter().any(|newer| newer.replaces(record, uid))
    }

    /// Checks whether this process has found that a claim needs a record no more.
    pub fn is_undone(&self, record: &str, uid: &str) -> bool {
        self.undone.get(record).is_some_and(|uids| uids.contains(uid))
    }

    /// Returns the claim that stands for what runs may have made for a claim that is gone: as the newest run knows it, with
    /// the nodes of all.
    pub fn stand_in(&self, uid: &str) -> Option<Claim> {
        let all = self.unsettled_of(uid);
        let newest = all.last()?;
        let mut claim = newest.claim(uid)?;
        if !newest.has_note(uid) {
            // The claim may have failed since the run began.
            if let Some(seen) = self.last_seen.get(uid).filter(|seen| seen.stamp == claim.stamp) {
                claim.abandoned |= seen.abandoned;
                claim.last_failure.clone_from(&seen.last_failure);
                claim.failed_attempts.clone_from(&seen.failed_attempts);
                claim.nodes_with_storage.clone_from(&seen.nodes_with_storage);
                claim.selected_node.clone_from(&seen.selected_node);
            }
            let mut nodes = self.attempts_of(uid).nodes;
            nodes.retain(|node| !claim.nodes_with_storage.contains(node));
            // The node of the last attempt comes last.
            nodes.append(&mut claim.nodes_with_storage);
            claim.nodes_with_storage = nodes;
        }
        claim.retry = newest.asks_for_retry(uid) && claim.last_failure.is_some();
        let reference = RecordRef { had: self.had.get(uid).copied().unwrap_or_default(), ..newest.reference() };
        Some(claim.stand_in(reference, &newest.resource_version))
    }

    /// Returns what the records that a claim needs say of its attempts.
    pub fn attempts_of(&self, uid: &str) -> RecordedAttempts {
        let mut attempts = RecordedAttempts::default();
        for claim in self.unsettled_of(uid).iter().filter_map(|record| record.recorded(uid)) {
            attempts.last = attempts.last.max(claim.own_stamp().map_or(0, |stamp| stamp.attempt));
            let new: Vec<_> =
                claim.nodes_with_storage.iter().filter(|node| !attempts.nodes.contains(node)).cloned().collect();
            attempts.nodes.extend(new);
        }
        attempts
    }

    /// Checks whether a claim is certainly gone.
    pub fn is_gone(&self, uid: &str) -> bool {
        self.gone.contains(uid)
    }

    /// Returns the batches of the records that a claim needed and somebody else has deleted; `None` without such records.
    pub fn lost(&self, uid: &str) -> Option<&BTreeSet<ObjectName>> {
        self.lost.get(uid)
    }

    /// Checks whether the API has shown in this term that the records are these.
    pub fn are_confirmed(&self) -> bool {
        self.are_confirmed
    }

    /// Checks whether this process is about to arm a record.
    pub fn is_in_creation(&self, name: &str) -> bool {
        self.in_creation.contains(name)
    }

    /// Checks whether this process has written a record that no watch has shown yet. A list may be older.
    pub fn is_unshown(&self, name: &str) -> bool {
        self.unshown.contains(name)
    }
}

/// Changes.
impl Records {
    /// Keeps a claim that is gone as it was last seen. Its record may not be known yet.
    pub fn note_end(&mut self, claim: &Claim, shown: Shown) {
        let end = End { claim: claim.clone(), shown };
        self.lost.remove(&claim.uid);
        if self.by_claim.contains_key(&claim.uid) {
            self.keep_end(end);
        } else if claim.is_held() {
            self.recent_ends.truncate(RECENT_ENDS - 1);
            self.recent_ends.push_front(end);
        }
    }

    fn keep_end(&mut self, End { claim, shown }: End) {
        let uid = claim.uid.clone();
        if shown != Shown::Missed {
            self.gone.insert(uid.clone());
        }
        // A user may have had the volume of a pool request.
        let never_bound = claim.volume_name.is_none() && !claim.bind_completed && !claim.for_pool;
        if shown == Shown::Watched && never_bound {
            self.had.entry(uid.clone()).or_insert(Had::Nobody);
        }
        if claim.is_held() {
            self.last_seen.insert(uid, claim);
        }
    }

    /// Notes that somebody keeps the storage of a claim's volume, which is gone.
    pub fn note_kept(&mut self, uid: &str) {
        if self.by_claim.contains_key(uid) {
            self.had.insert(uid.to_owned(), Had::Kept);
        }
    }

    /// Notes that a claim is certainly gone.
    pub fn note_gone(&mut self, uid: &str) {
        if self.by_claim.contains_key(uid) {
            self.gone.insert(uid.to_owned());
        }
    }

    /// Begins or ends the creation of a record.
    pub fn set_in_creation(&mut self, name: &str, is: bool) {
        match is {
            true => {
                self.undone.remove(name);
                self.in_creation.insert(name.to_owned());
            }
            false => drop(self.in_creation.remove(name)),
        }
    }

    /// Records that a claim needs a record no more.
    pub fn set_undone(&mut self, record: &str, uid: &str) {
        if self.by_name.contains_key(record) {
            self.undone.entry(record.to_owned()).or_default().insert(uid.to_owned());
        }
    }

    /// Forgets what this process has found, because another term begins.
    pub fn begin_term(&mut self) {
        self.are_confirmed = false;
        self.waits = RecordWaits::default();
        self.undone.clear();
        self.lost.clear();
        self.unshown.clear();
        self.deleted.clear();
    }

    /// Notes that the API has shown in this term that the records are these.
    pub fn note_confirmed(&mut self) {
        self.are_confirmed = true;
        self.waits.end_missing();
    }

    /// Adds a record, or its new state, as a watch shows it. Returns the UIDs of the claims that it concerns.
    pub fn apply(&mut self, record: Record) -> BTreeSet<String> {
        let name = record.name.name.clone();
        match self.deleted.get(&name) {
            Some(deleted) if *deleted == record.uid => return BTreeSet::new(),
            _ => drop(self.deleted.remove(&name)),
        }
        let cached = self.by_name.get(&name);
        if cached.is_none_or(|cached| cached.uid == record.uid) {
            self.unshown.remove(&name);
        }
        // The watch may be behind the answers to this process.
        let is_older = match cached {
            Some(cached) if cached.uid == record.uid => cached.version() > record.version(),
            Some(_) => self.unshown.contains(&name),
            None => false,
        };
        if is_older { BTreeSet::new() } else { self.put(record) }
    }

    /// Adds a record as the API server has answered it.
    pub fn answered(&mut self, record: Record) -> BTreeSet<String> {
        let name = record.name.name.clone();
        self.deleted.remove(&name);
        match self.by_name.get(&name).filter(|cached| cached.uid == record.uid) {
            Some(cached) if cached.version() > record.version() => return BTreeSet::new(),
            Some(_) => {}
            None => drop(self.unshown.insert(name)),
        }
        self.put(record)
    }

    fn put(&mut self, record: Record) -> BTreeSet<String> {
        let name = record.name.name.clone();
        let mut uids = self.drop(&name);
        for claim in record.all_recorded() {
            self.by_claim.entry(claim.uid.clone()).or_default().insert(name.clone());
            self.uids.entry(claim.name.clone()).or_default().insert(claim.uid.clone());
        }
        uids.extend(record.uids().cloned());
        record.unsettled().for_each(|uid| _ = self.lost.remove(uid));
        if let Some(undone) = self.undone.get_mut(&name) {
            undone.retain(|uid| record.needs(uid));
        }
        self.by_name.insert(name, Arc::new(record));
        let ends = std::mem::take(&mut self.recent_ends);
        let (ended, rest): (Vec<_>, Vec<_>) = ends.into_iter().partition(|end| uids.contains(&end.claim.uid));
        self.recent_ends = rest.into();
        ended.into_iter().for_each(|end| self.keep_end(end));
        self.forget_unrecorded(&uids);
        uids
    }

    /// Removes a record that a watch shows no more. Returns the UIDs of the claims that it concerns.
    pub fn remove(&mut self, name: &str) -> BTreeSet<String> {
        self.deleted.remove(name);
        // The watch shows the end of another record of this name.
        if self.unshown.contains(name) {
            return BTreeSet::new();
        }
        let cached = self.by_name.get(name).cloned();
        for (record, uid) in cached.iter().flat_map(|record| record.unsettled().map(move |uid| (record, uid))) {
            if !self.gone.contains(uid) && !self.last_seen.contains_key(uid) {
                self.lost.entry(uid.clone()).or_default().extend(record.batch(uid));
            }
        }
        self.forget(name)
    }

    /// Removes a record that somebody else has deleted, as the API has shown. A watch may never have shown the record.
    pub fn vanished(&mut self, record: &Record) -> BTreeSet<String> {
        let name = &record.name.name;
        if self.by_name.get(name).is_none_or(|cached| cached.uid != record.uid) {
            return BTreeSet::new();
        }
        self.unshown.remove(name);
        self.remove(name)
    }

    /// Removes a record that this process has deleted.
    pub fn deleted(&mut self, record: &Record) -> BTreeSet<String> {
        let name = &record.name.name;
        // The watch may have been faster than the answer.
        record.uids().for_each(|uid| _ = self.lost.remove(uid));
        if self.by_name.get(name).is_none_or(|cached| cached.uid != record.uid) {
            return BTreeSet::new();
        }
        // A watch may be so far behind that it has not shown the record yet.
        self.unshown.remove(name);
        self.deleted.insert(name.clone(), record.uid.clone());
        self.forget(name)
    }

    fn forget(&mut self, name: &str) -> BTreeSet<String> {
        self.undone.remove(name);
        self.waits.end_collecting(name);
        let uids = self.drop(name);
        self.forget_unrecorded(&uids);
        uids
    }

    fn drop(&mut self, name: &str) -> BTreeSet<String> {
        let Some(record) = self.by_name.remove(name) else { return BTreeSet::new() };
        for claim in record.all_recorded() {
            drop_from(&mut self.by_claim, &claim.uid, &name.to_owned());
            if !self.by_claim.contains_key(&claim.uid) {
                drop_from(&mut self.uids, &claim.name, &claim.uid);
            }
        }
        record.uids().cloned().collect()
    }

    fn forget_unrecorded(&mut self, uids: &BTreeSet<String>) {
        for uid in uids.iter().filter(|uid| !self.by_claim.contains_key(*uid)) {
            self.last_seen.remove(uid);
            self.gone.remove(uid);
            self.had.remove(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::model::claim::Stamp;
    use flex_core::model::record::record_name;
    use serde_json::{Value, json};

    use super::*;
    use crate::state::testing;

    /// The record of an attempt on nodes, armed at a time unless it is 0.
    fn record(uid: &str, nodes: &[&str], armed_at: u32, version: u32) -> Record {
        let claim = testing::claim("team", "data", true);
        let stamp = claim.stamp.clone().map(|stamp| Stamp { attempt: armed_at, ..stamp });
        let nodes_with_storage = nodes.iter().map(|node| (*node).to_owned()).collect();
        let data = Record::data([Claim { stamp, nodes_with_storage, ..claim }].iter());
        let annotations =
            json!({ names::ARMED: uid, names::JOB_REQUESTED: format!("2026-11-01T00:00:{armed_at:02}Z") });
        let annotations = if armed_at == 0 { Value::Null } else { annotations };
        let metadata = json!({
            "namespace": "own", "name": record_name(uid, &Value::Null), "uid": uid, "annotations": annotations,
            "resourceVersion": version.to_string(),
        });
        Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap()
    }

    fn stand_in(records: &Records) -> Option<(u32, String)> {
        let claim = records.stand_in("uid-team-data")?;
        Some((claim.own_stamp().map_or(0, |stamp| stamp.attempt), claim.nodes_with_storage.join(",")))
    }

    #[test]
    fn the_record_that_was_armed_last_stands_for_a_claim_that_is_gone_with_the_nodes_of_all() {
        let uids = || BTreeSet::from(["uid-team-data".to_owned()]);
        let mut records = Records::default();
        assert_eq!(records.apply(record("a", &["x"], 0, 1)), uids());
        assert_eq!(stand_in(&records), None, "nothing may have run");
        records.apply(record("b", &["y", "z"], 12, 2));
        records.apply(record("c", &["v", "y"], 3, 9));
        assert_eq!(stand_in(&records), Some((12, "v,y,z".to_owned())));
        records.remove(&record("b", &[], 12, 2).name.name);
        assert_eq!(stand_in(&records), Some((3, "v,y".to_owned())));
        assert_eq!(records.remove(&record("c", &[], 3, 9).name.name), uids());
        assert_eq!(stand_in(&records), None);
    }

    #[test]
    fn an_older_record_is_replaced_if_the_newer_says_no_less() {
        let mut records = Records::default();
        let (old, new, other) = (record("a", &["x"], 1, 1), record("b", &["x", "y"], 2, 2), record("c", &["z"], 3, 3));
        [old.clone(), new.clone(), other].into_iter().for_each(|record| drop(records.apply(record)));
        assert!(records.is_replaced(&old, "uid-team-data") && !records.is_replaced(&new, "uid-team-data"));
    }

    #[test]
    fn a_watch_that_is_behind_takes_back_no_answer() {
        let mut records = Records::default();
        let name = record("a", &[], 1, 1).name.name;
        records.answered(record("a", &["x"], 2, 5));
        assert!(records.remove(&name).is_empty(), "the end of another");
        records.apply(record("a", &["x"], 0, 4));
        assert_eq!(stand_in(&records), Some((2, "x".to_owned())));
        records.deleted(&record("a", &["x"], 2, 5));
        records.apply(record("a", &["x"], 2, 5));
        assert_eq!(stand_in(&records), None);
        records.remove(&name);
        records.apply(record("a", &["x"], 2, 5));
        assert_eq!(stand_in(&records), Some((2, "x".to_owned())), "a backup tool may create it again");
    }

    #[test]
    fn a_watch_that_is_far_behind_brings_no_settled_record_back() {
        let mut records = Records::default();
        records.answered(record("a", &["x"], 2, 5));
        records.deleted(&record("a", &["x"], 2, 5));
        for (armed_at, version) in [(0, 4), (2, 5)] {
            records.apply(record("a", &["x"], armed_at, version));
            assert_eq!(stand_in(&records), None);
        }
    }

    #[test]
    fn a_stand_in_has_the_words_of_its_record_and_what_has_failed_since() {
        let mut records = Records::default();
        records.apply(record("a", &["x"], 1, 5));
        let recorded = records.stand_in("uid-team-data").unwrap();
        let seen =
            Claim { size: Ok(7), abandoned: true, stamp: recorded.stamp.clone(), held: true, ..recorded.clone() };
        records.note_end(&Claim { record: None, ..seen }, Shown::Watched);
        let stand_in = records.stand_in("uid-team-data").unwrap();
        assert!(stand_in.size == recorded.size && stand_in.abandoned);
        records.note_kept("uid-team-data");
        assert_eq!(records.stand_in("uid-team-data").unwrap().record.unwrap().had, Had::Kept);
    }

    #[test]
    fn the_end_of_a_claim_is_known_before_its_record() {
        let claim = Claim { held: true, abandoned: true, ..testing::claim("team", "data", true) };
        let bound = Some("v".to_owned());
        for (shown, volume_name, is_gone, never_bound) in [
            (Shown::Watched, None, true, true),
            (Shown::Watched, bound, true, false),
            (Shown::Replaced, None, true, false),
            (Shown::Missed, None, false, false),
        ] {
            let mut records = Records::default();
            records.note_end(&Claim { volume_name, ..claim.clone() }, shown);
            records.apply(record("a", &["x"], 1, 5));
            let stand_in = records.stand_in("uid-team-data").unwrap();
            assert_eq!(stand_in.record.unwrap().had == Had::Nobody, never_bound, "{shown:?}");
            assert!(stand_in.abandoned && records.is_gone("uid-team-data") == is_gone);
        }
    }

    #[test]
    fn what_was_found_of_a_claim_is_forgotten_with_its_last_record() {
        let mut records = Records::default();
        let armed = record("a", &["x"], 2, 5);
        records.apply(armed.clone());
        records.note_gone("uid-team-data");
        records.set_undone(&armed.name.name, "uid-team-data");
        assert!(records.is_gone("uid-team-data") && records.is_undone(&armed.name.name, "uid-team-data"));
        assert_eq!(records.uids_of(&ObjectName::new("team", "data")).count(), 1);
        records.remove(&armed.name.name);
        assert!(!records.is_gone("uid-team-data") && !records.is_undone(&armed.name.name, "uid-team-data"));
        assert_eq!(records.uids_of(&ObjectName::new("team", "data")).count(), 0);
    }
}
