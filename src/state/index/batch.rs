//! Open batches, which collect their members.
//!
//! All of this state can be rebuilt from the stamps of claims and the batch annotations of volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::request::{Operation, RunRequest};

use super::pool::is_pool_request_name;
use super::{EXPECTATION_TIMEOUT, Expectation, Index, WorkItem};
use crate::claim::decide::run_node;
use crate::config::Recipe;
use crate::limits;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::object::{ObjectName, label_value};
use crate::run::batch::{self, Member, MemberObject};
use crate::run::collect::{Observed, STAMP_TIMEOUT};
use crate::run::job::{self, RunTarget};
use crate::run::view::Job;

/// The state of batches beside their Jobs and pods.
#[derive(Debug, Default)]
pub(super) struct Batches {
    open: BTreeMap<String, OpenBatch>,
    /// Batches whose Jobs are being created: no answer has arrived yet, however long that takes.
    creating: BTreeSet<String>,
    /// Ids of volumes whose own delete runs have begun. If no watch shows the Job for long, it is created again with
    /// the same name.
    own_runs: BTreeSet<String>,
    /// Batches whose Jobs the API server rejects.
    refused: BTreeSet<String>,
}

impl Batches {
    /// Checks whether the watch may still show an expected Job.
    pub fn may_still_appear(&self, job: &str, expected: &Expectation, now: Duration) -> bool {
        let of = || expected.batch.as_ref().map_or(job, |(batch, _)| batch);
        now.saturating_sub(expected.since) < EXPECTATION_TIMEOUT || self.creating.contains(of())
    }
}

/// An open batch: its members are being collected, and its Job is about to be created.
#[derive(Debug)]
struct OpenBatch {
    operation: Operation,
    /// The version of the config.
    version: String,
    /// The node to which the pod is bound.
    node: Option<String>,
    /// The batch makes pooled volumes, and no claim waits for it.
    for_pool: bool,
    class: String,
    size: usize,
    window: Duration,
    began: Duration,
    /// The ids of all stamped members, whether they have arrived or not.
    stamped: BTreeSet<String>,
    /// The members that have arrived, each with the estimated bytes that it adds.
    entries: Vec<(BatchEntry, usize)>,
}

/// A member that has arrived for its batch.
#[derive(Clone, Debug)]
pub struct BatchEntry {
    /// The member.
    pub member: Member,
    /// The request to the image.
    pub request: RunRequest,
    /// The target of the run.
    pub target: RunTarget,
    /// The recipe of the attempt.
    pub recipe: Arc<Recipe>,
}

impl OpenBatch {
    fn new(operation: Operation, recipe: &Recipe, node: Option<&str>, for_pool: bool, began: Duration) -> Self {
        OpenBatch {
            operation,
            version: recipe.version(),
            node: node.map(str::to_owned),
            for_pool,
            class: recipe.class.clone(),
            size: recipe.batch_size,
            window: recipe.batch_window,
            began,
            stamped: BTreeSet::new(),
            entries: Vec::new(),
        }
    }

    /// Makes the batch for which this member has arrived.
    fn of(entry: &BatchEntry, for_pool: bool, began: Duration) -> Self {
        let node = entry.target.node.as_deref();
        OpenBatch::new(entry.request.operation, &entry.recipe, node, for_pool, began)
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= self.size || self.entries.iter().map(|(_, bytes)| bytes).sum::<usize>() >= limits::POD / 2
    }

    fn entry(&self, id: &str) -> Option<&BatchEntry> {
        self.entries.iter().map(|(entry, _)| entry).find(|entry| entry.member.id == id)
    }

    fn matches(&self, operation: Operation, recipe: &Recipe, node: Option<&str>) -> bool {
        self.operation == operation && self.version == recipe.version() && self.node.as_deref() == node
    }

    fn is_for(&self, entry: &BatchEntry) -> bool {
        let same_place = self.entries.first().is_none_or(|(first, _)| first.target == entry.target);
        same_place && self.matches(entry.request.operation, &entry.recipe, entry.target.node.as_deref())
    }

    fn leave(&mut self, id: &str) {
        self.stamped.remove(id);
        self.entries.retain(|(entry, _)| entry.member.id != id);
    }
}

/// Returns the work item of a member.
pub(super) fn key(member: &Member) -> WorkItem {
    match &member.object {
        MemberObject::Claim(name) => WorkItem::Claim(name.clone()),
        MemberObject::Volume(name) => WorkItem::Volume(name.clone()),
    }
}

/// A first run that could join others in a batch.
struct Joins<'a> {
    operation: Operation,
    recipe: &'a Recipe,
    node: Option<&'a str>,
    /// The run makes a pooled volume.
    for_pool: bool,
    id: &'a str,
    /// The name of its own Job outside a batch.
    job: &'a str,
    /// The time of the stamp.
    ts: &'a str,
}

impl Index {
    /// Returns the batch for which a first attempt must be stamped. It is named by the claim's id and the time of the
    /// stamp. Returns `None` for a run of its own. Its slot is [reserved](Index::acquire_slot) as `job`.
    pub fn join_batch(
        &mut self,
        claim: &Claim,
        recipe: &Recipe,
        (job, nodes, ts): (&str, &[String], &str),
    ) -> Option<String> {
        let node = run_node(nodes, recipe);
        if claim.data_source.is_some() {
            return None;
        }
        let for_pool = is_pool_request_name(&claim.name, &self.identity.namespace);
        let joins = Joins { operation: Operation::Provision, recipe, node, for_pool, id: &claim.uid, job, ts };
        let name = self.join(&joins)?;
        if let Some(expected) = self.expected.get_mut(job) {
            expected.batch = Some((name.clone(), WorkItem::Claim(claim.name.clone())));
        }
        Some(name)
    }

    /// Returns the batch to record on a volume for its first delete run, with the time of the annotation. Returns
    /// `None` for a run of its own. Its slot is [reserved](Index::acquire_slot) as `job`.
    pub fn join_deletion(
        &mut self,
        volume: &Volume,
        recipe: &Recipe,
        (job, node, ts): (&str, Option<&str>, &str),
    ) -> Option<String> {
        let id = volume.id().unwrap_or_default();
        let joins = Joins { operation: Operation::Delete, recipe, node, for_pool: false, id, job, ts };
        let name = if self.batches.own_runs.contains(id) { None } else { self.join(&joins) };
        match &name {
            None => drop(self.batches.own_runs.insert(id.to_owned())),
            // In a batch, the run has another name.
            Some(batch) => {
                let target = self.expected.remove(job).unwrap_or_default();
                let batch = (batch.clone(), WorkItem::Volume(volume.name.clone()));
                let name = job::name(Operation::Delete, id, 1, &batch.0);
                self.expected.insert(name, Expectation { batch: Some(batch), ..target });
            }
        }
        name
    }

    /// Forgets the id of a volume that is gone.
    pub(super) fn forget_own_run(&mut self, id: &str) {
        self.batches.own_runs.remove(id);
    }

    fn join(&mut self, j: &Joins<'_>) -> Option<String> {
        if j.recipe.batch_size < 2 {
            return None;
        }
        let passed = self.clock.passed();
        let joins = |gathering: &OpenBatch| {
            let open = passed.saturating_sub(gathering.began) < gathering.window;
            let room = gathering.stamped.len() < gathering.size && !gathering.is_full();
            open && room && gathering.for_pool == j.for_pool && gathering.matches(j.operation, j.recipe, j.node)
        };
        let gathers = self.batches.open.iter().find(|(_, gathering)| joins(gathering));
        let name = match gathers.map(|(name, _)| name.clone()) {
            Some(name) => name,
            None if self.is_another_in_progress((&j.recipe.class, j.operation, j.node, j.for_pool), j.job, None) => {
                batch::name(j.operation, j.id, j.ts)
            }
            None => return None,
        };
        let gathering = self.batches.open.entry(name.clone());
        let gathering = gathering.or_insert_with(|| OpenBatch::new(j.operation, j.recipe, j.node, j.for_pool, passed));
        gathering.stamped.insert(j.id.to_owned());
        Some(name)
    }

    /// Checks whether another run of the same class, operation and node is in progress or about to begin. Runs for
    /// claims and for a pool are separate. The Job `but` and the batch `batch` do not count.
    fn is_another_in_progress(
        &self,
        (class, operation, node, for_pool): (&str, Operation, Option<&str>, bool),
        but: &str,
        batch: Option<&str>,
    ) -> bool {
        let (label, now) = (label_value(class), self.clock.passed());
        let observed = self.jobs.values().filter(|job| !job.is_over && !job.deleting && job.run_labels.class == label);
        let namespace = &self.identity.namespace;
        let fills = |job: &Job| job.claims().any(|claim| is_pool_request_name(claim, namespace));
        let observed = observed.filter(|job| job.run_labels.operation == operation.as_str());
        let mut observed = observed.filter(|job| operation == Operation::Delete || fills(job) == for_pool);
        let on_node = |job: &Arc<Job>| node.is_none() || job.node.is_none() || job.node.as_deref() == node;
        let mut expected = self.expected.iter().filter(|(job, expected)| {
            let same = expected.class == label && expected.operation == Some(operation);
            let same = same && expected.for_pool == for_pool;
            let here = node.is_none() || expected.node.as_deref() == node;
            let of = expected.batch.as_ref().map(|(name, _)| name.as_str());
            let awaited = || self.batches.may_still_appear(job, expected, now);
            same && here && awaited() && job.as_str() != but && (batch.is_none() || of != batch)
        });
        let mut gathers = self.batches.open.iter().filter(|(name, open)| {
            let same = open.operation == operation && open.class == class && open.for_pool == for_pool;
            same && (node.is_none() || open.node.as_deref() == node) && Some(name.as_str()) != batch
        });
        observed.any(on_node) || expected.next().is_some() || gathers.next().is_some()
    }

    /// Records that a stamped member has arrived for its batch. Returns whether the member must wait for the batch. It
    /// waits until the batch's Job is visible; the Job may lack a member that arrived too late.
    pub fn add_entry(&mut self, name: &str, entry: BatchEntry) -> bool {
        let is_begun = !self.batches.open.contains_key(name) && self.is_expected(name);
        if !is_begun && !self.collect(name, &entry) {
            return false;
        }
        let BatchEntry { member, target, recipe, request } = entry;
        let of_volume = || Some(self.volumes.get(member.volume()?)?.user_namespace());
        let namespace = member.claim().map(|claim| claim.namespace.as_str()).or_else(of_volume).unwrap_or_default();
        let expected = Expectation {
            since: self.clock.passed(),
            class: label_value(&recipe.class),
            namespace: namespace.to_owned(),
            created: true,
            operation: Some(request.operation),
            for_pool: self.is_for_pool(&member),
            node: target.node,
            batch: Some((name.to_owned(), key(&member))),
        };
        self.expected.insert(member.job_name(name), expected);
        true
    }

    /// Checks whether a member makes a pooled volume.
    fn is_for_pool(&self, member: &Member) -> bool {
        member.claim().is_some_and(|claim| is_pool_request_name(claim, &self.identity.namespace))
    }

    /// Adds a member to those that have arrived, if there is room. Returns whether the batch is for such a member.
    fn collect(&mut self, name: &str, entry: &BatchEntry) -> bool {
        let id = &entry.member.id;
        if !self.batches.open.contains_key(name) {
            // An earlier process stamped the members. All with the same stamp are expected.
            let mut open = OpenBatch::of(entry, self.is_for_pool(&entry.member), self.clock.passed());
            open.stamped.extend(self.stamped_for(open.operation, name));
            self.batches.open.insert(name.to_owned(), open);
        }
        let Some(open) = self.batches.open.get_mut(name) else { return false };
        open.leave(id);
        if !open.is_for(entry) {
            return false;
        }
        if !open.is_full() {
            let first = open.entries.first().map_or(entry, |(first, _)| first);
            let bytes = batch::weight(&first.request, &entry.request);
            open.stamped.insert(id.clone());
            open.entries.push((entry.clone(), bytes));
        }
        true
    }

    /// Returns the ids of all that name the batch and wait for it.
    fn stamped_for(&self, operation: Operation, name: &str) -> BTreeSet<String> {
        if operation == Operation::Delete {
            let noted = self.volumes.values().filter(|volume| volume.batch().is_some_and(|batch| batch == name));
            return noted.filter_map(|volume| volume.id().map(str::to_owned)).collect();
        }
        let stamped = self.claims.values().filter(|claim| claim.batch().is_some_and(|batch| batch == name));
        let waits = |claim: &&Arc<Claim>| claim.has_finalizer() && !claim.deleting && !claim.is_bound();
        stamped.filter(waits).map(|claim| claim.id()).collect()
    }

    /// Removes an item from its batches. Returns the batches to requeue.
    pub fn leave_batches(&mut self, operation: Operation, id: &str) -> Vec<WorkItem> {
        let (mut keys, mut jobs) = (Vec::new(), Vec::new());
        for (name, open) in self.batches.open.iter_mut().filter(|(_, g)| g.operation == operation) {
            if let Some(entries) = open.entry(id) {
                jobs.push(entries.member.job_name(name));
            }
            if open.stamped.contains(id) {
                open.leave(id);
                keys.push(WorkItem::Batch(name.clone()));
            }
        }
        keys.extend(jobs.iter().flat_map(|job| self.cancel_expectation(job)));
        keys
    }

    /// Checks whether the batch of a claim's stamp has begun without it, or will not begin. Then the claim needs a run
    /// of its own.
    pub fn has_missed_batch(&self, claim: &Claim, recipe: &Recipe) -> bool {
        let (Some(name), Some(stamp)) = (claim.batch(), claim.own_stamp()) else { return false };
        let alone = stamp.attempt != 1 || claim.data_source.is_some();
        alone || self.excludes(name, Operation::Provision, recipe, run_node(&claim.nodes, recipe))
    }

    /// Checks whether a batch has begun without the items that do not see its Job. Also if the batch will not begin, or
    /// is for another kind of run.
    pub fn excludes(&self, name: &str, operation: Operation, recipe: &Recipe, node: Option<&str>) -> bool {
        let job = ObjectName::new(&recipe.config.namespace, name);
        let gathers = self.batches.open.get(name);
        let other = recipe.batch_size < 2 || gathers.is_some_and(|open| !open.matches(operation, recipe, node));
        other || self.batches.refused.contains(name) || self.jobs.contains_key(&job)
    }

    /// Observes an open batch. Returns `None` if it is not open.
    pub fn observe_batch(&self, name: &str) -> Option<Observed> {
        let open = self.batches.open.get(name)?;
        Some(Observed {
            awaited: open.stamped.len() - open.entries.len(),
            entries: open.entries.len(),
            full: open.is_full(),
            others: self.is_another_in_progress(
                (&open.class, open.operation, open.node.as_deref(), open.for_pool),
                "",
                Some(name),
            ),
            passed: self.clock.since(open.began),
            window: open.window,
        })
    }

    /// Closes an open batch. Returns the members for its Job, and the work items that can use the slots of the others.
    pub fn close_batch(&mut self, name: &str) -> (Vec<BatchEntry>, Vec<WorkItem>) {
        let entries = self.batches.open.remove(name).map(|open| open.entries).unwrap_or_default();
        let entries = entries.into_iter().map(|(entry, _)| entry);
        let (entries, gone): (Vec<_>, Vec<_>) = entries.partition(|entry| self.still_wants(name, entry));
        let woken = gone.iter().flat_map(|entry| self.cancel_expectation(&entry.member.job_name(name))).collect();
        let since = self.clock.passed();
        for entry in &entries {
            self.expected.entry(entry.member.job_name(name)).and_modify(|expected| expected.since = since);
        }
        if !entries.is_empty() {
            // From now on, members that arrive wait for the Job.
            self.expect_job(name);
            self.batches.creating.insert(name.to_owned());
        }
        (entries, woken)
    }

    /// Records that the creation of a batch's Job was answered, or will never be. The time of its expectation begins
    /// now.
    pub fn answered(&mut self, name: &str) {
        self.batches.creating.remove(name);
        let since = self.clock.passed();
        let of = |job: &str, expected: &Expectation| {
            job == name || expected.batch.as_ref().is_some_and(|(batch, _)| batch == name)
        };
        self.expected.iter_mut().filter(|(job, expected)| of(job, expected)).for_each(|(_, e)| e.since = since);
    }

    /// Opens a batch again whose Job may or may not have been created. Unless the Job becomes visible, it is created
    /// again with the same members, except for those that leave meanwhile.
    pub fn collect_again(&mut self, name: &str, entries: Vec<BatchEntry>) {
        let Some(first) = entries.first() else { return };
        let is_seen = self.jobs.contains_key(&ObjectName::new(&first.target.namespace, name));
        if is_seen || self.batches.open.contains_key(name) {
            return;
        }
        let began = self.clock.passed().saturating_sub(first.recipe.batch_window + STAMP_TIMEOUT);
        let open = OpenBatch::of(first, self.is_for_pool(&first.member), began);
        self.batches.open.insert(name.to_owned(), open);
        for entry in &entries {
            if self.still_wants(name, entry) {
                self.collect(name, entry);
            }
        }
    }

    /// Checks whether a claim or volume is still as it was when it arrived, by the cache.
    fn still_wants(&self, name: &str, entry: &BatchEntry) -> bool {
        // The cache may be older than the stamp.
        match &entry.member.object {
            MemberObject::Claim(claim) => {
                self.claims.get(claim).filter(|claim| claim.id() == entry.member.id).is_none_or(|claim| {
                    let stamped = claim.own_stamp().is_none_or(|stamp| stamp.batch.as_deref() == Some(name));
                    stamped && !claim.deleting && !claim.is_bound()
                })
            }
            MemberObject::Volume(volume) => self.volumes.get(volume).is_some_and(|volume| {
                let noted = volume.batch.as_ref().is_none_or(|batch| batch == name);
                let goes = volume.reclaim_policy == "Delete" && !volume.abandoned && !volume.has_lost_claim_ref();
                noted && goes && volume.id() == Some(entry.member.id.as_str())
            }),
        }
    }

    /// Records that the API server rejects the Job of a batch. Each member gets a run of its own, and is requeued.
    pub fn refuse_batch(&mut self, name: &str) -> Vec<WorkItem> {
        // An entry matters only until all members have been reconciled.
        if self.batches.refused.len() > 1000 {
            self.batches.refused.clear();
        }
        self.batches.refused.insert(name.to_owned());
        self.dissolve(name)
    }

    /// Forgets a batch for which nobody waits any more. Returns the members to requeue.
    fn dissolve(&mut self, name: &str) -> Vec<WorkItem> {
        let mut keys = Vec::new();
        self.expected.retain(|_, expected| match &expected.batch {
            Some((batch, key)) if batch == name && expected.created => {
                keys.push(key.clone());
                false
            }
            _ => true,
        });
        keys
    }

    /// Forgets all open batches, because another replica leads now.
    pub(super) fn forget_open_batches(&mut self) {
        for (name, open) in std::mem::take(&mut self.batches.open) {
            open.entries.iter().for_each(|(entry, _)| drop(self.expected.remove(&entry.member.job_name(&name))));
        }
        self.batches.refused.clear();
    }

    /// Returns the open batches of a class of which a run has ended.
    pub(super) fn open_batches_of(&self, ended: &Job) -> Vec<WorkItem> {
        let of_class = |open: &OpenBatch| {
            label_value(&open.class) == ended.run_labels.class && open.operation.as_str() == ended.run_labels.operation
        };
        let open = self.batches.open.iter().filter(|(_, open)| of_class(open));
        open.map(|(name, _)| WorkItem::Batch(name.clone())).collect()
    }

    /// Records that the Job of a batch is visible. Its absent members do not expect it any more.
    pub(super) fn on_batch(&mut self, job: &Job) -> Vec<WorkItem> {
        for member in job.members.iter() {
            self.expected.remove(&member.job_name(&job.name.name));
        }
        self.batches.open.remove(&job.name.name);
        self.dissolve(&job.name.name)
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
