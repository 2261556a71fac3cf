//! Open batches, which collect their members.
//!
//! All of this state can be rebuilt from the stamps of claims and the batch annotations of volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::policy::ReclaimPolicy;
use flex_core::batch::decide::{Observed, STAMP_TIMEOUT};
use flex_core::batch::{self, Member, MemberObject};
use flex_core::claim::decide::run_node;
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::record::Record;
use flex_core::model::volume::Volume;
use flex_core::object::{ObjectName, label_value};
use flex_core::run::job;
use flex_core::run::view::Job;

use crate::state::cache::Cache;
use crate::state::expectations::{Expectation, Expectations, Membership};
use crate::state::facts::Facts;
pub use crate::state::open_batch::BatchEntry;
use crate::state::open_batch::{OpenBatch, WeighedEntry};
use crate::state::work_item::WorkItem;

/// The largest number of refused batches that are kept. A batch matters only until all members have been reconciled.
const MAX_REFUSED: usize = 1000;

/// The state of batches beside their Jobs and pods.
#[derive(Debug, Default)]
pub struct Batches {
    open: BTreeMap<String, OpenBatch>,
    /// Ids of volumes whose own delete runs have begun. If no watch shows the Job for long, it is created again with
    /// the same name.
    own_runs: BTreeSet<String>,
    /// Batches whose Jobs the API server rejects.
    refused: BTreeSet<String>,
}

/// A kind of run. Runs of one kind can share a batch.
#[derive(Clone, Copy)]
struct Kind<'a> {
    class: &'a str,
    operation: Operation,
    node: Option<&'a str>,
    /// The runs make pooled volumes.
    for_pool: bool,
}

/// A run that could join others in a batch.
struct JoiningRun<'a> {
    operation: Operation,
    recipe: &'a Recipe,
    node: Option<&'a str>,
    /// The run makes a pooled volume.
    for_pool: bool,
    /// The last attempt failed.
    is_retry: bool,
    id: &'a str,
    /// The name of its own Job outside a batch.
    job: &'a str,
    /// The time of the stamp.
    ts: &'a str,
}

/// An attempt of a claim that may join a batch.
pub struct AttemptToBatch<'a> {
    /// The name of its own Job, as which its slot is taken.
    pub job: &'a str,
    /// The nodes where the claim's attempts may leave storage.
    pub nodes: &'a [String],
    /// The time of the stamp.
    pub ts: &'a str,
}

/// A first delete run of a volume that may join a batch.
pub struct DeletionToBatch<'a> {
    /// The name of its own Job, as which its slot is taken.
    pub job: &'a str,
    /// The node to which the run's pod is bound.
    pub node: Option<&'a str>,
    /// The time of the annotation.
    pub ts: &'a str,
}

/// The run that asks, which does not count among the others.
#[derive(Clone, Copy)]
struct Asking<'a> {
    /// The name of its Job; `None` if a batch asks for itself.
    job: Option<&'a str>,
    /// The batch that it would join, or that asks.
    batch: Option<&'a str>,
}

/// A closed batch.
#[derive(Debug)]
pub struct ClosedBatch {
    /// The members for its Job.
    pub entries: Vec<BatchEntry>,
    /// The slots of the others, as the label values of their classes.
    pub slots: Vec<String>,
}

/// The effect of leaving batches.
#[derive(Debug, Default)]
pub struct LeftBatches {
    /// The batches that were left.
    pub batches: Vec<String>,
    /// The slots that are free by that, as the label values of their classes.
    pub slots: Vec<String>,
}

/// Joining and leaving.
impl Batches {
    /// Returns the batch for which an attempt must be stamped. It is named by the claim's id and the time of the
    /// stamp. Returns `None` for a run of its own.
    pub fn join_provision(
        &mut self,
        claim: &Claim,
        recipe: &Recipe,
        AttemptToBatch { job, nodes, ts }: &AttemptToBatch<'_>,
        facts: &Facts,
        expectations: &mut Expectations,
    ) -> Option<String> {
        let node = run_node(nodes, recipe);
        if claim.data_source.is_some() {
            return None;
        }
        let for_pool = facts.is_pool_request_name(&claim.name);
        let (operation, is_retry) = (Operation::Provision, claim.own_stamp().is_some());
        let run = JoiningRun { operation, recipe, node, for_pool, is_retry, id: &claim.uid, job, ts };
        let name = self.join(&run, facts, expectations)?;
        expectations.join_batch(job, &name, WorkItem::Claim(claim.name.clone()));
        Some(name)
    }

    /// Returns the batch to record on a volume for its first delete run, with the time of the annotation. Returns
    /// `None` for a run of its own.
    pub fn join_deletion(
        &mut self,
        volume: &Volume,
        recipe: &Recipe,
        &DeletionToBatch { job, node, ts }: &DeletionToBatch<'_>,
        facts: &Facts,
        expectations: &mut Expectations,
    ) -> Option<String> {
        let id = volume.volume_id().unwrap_or_default();
        let operation = Operation::Delete;
        let run = JoiningRun { operation, recipe, node, for_pool: false, is_retry: false, id, job, ts };
        let name = if self.own_runs.contains(id) { None } else { self.join(&run, facts, expectations) };
        match &name {
            None => drop(self.own_runs.insert(id.to_owned())),
            Some(batch) => {
                let member = WorkItem::Volume(volume.name.clone());
                let name = job::name(Operation::Delete, id, 1, batch);
                expectations.move_to_batch(job, &name, Membership { batch: batch.clone(), member });
            }
        }
        name
    }

    /// Forgets the id of a volume that is gone.
    pub fn forget_own_run(&mut self, id: &str) {
        self.own_runs.remove(id);
    }

    fn join(&mut self, run: &JoiningRun<'_>, facts: &Facts, expectations: &Expectations) -> Option<String> {
        if run.recipe.batch_size < 2 {
            return None;
        }
        let now = facts.now();
        let JoiningRun { operation, node, for_pool, is_retry, .. } = *run;
        let kind = Kind { class: &run.recipe.class, operation, node, for_pool };
        let joins = |(name, open): &(&String, &OpenBatch)| {
            let passed = now.saturating_sub(open.began);
            let is_open = || {
                passed < open.window || {
                    let runs = self.runs_in_progress(
                        kind,
                        Asking { job: Some(run.job), batch: Some(name) },
                        facts,
                        expectations,
                    );
                    batch::decide::is_open(passed, open.window, runs)
                }
            };
            let has_place = open.stamped.len() < open.size && !open.is_full();
            let is_alike = (open.for_pool, open.is_retry) == (for_pool, is_retry);
            has_place && is_alike && open.matches(run.operation, run.recipe, run.node) && is_open()
        };
        let open = self.open.iter().find(joins);
        let name = match open.map(|(name, _)| name.clone()) {
            Some(name) => name,
            None if self.is_another_in_progress(
                kind,
                Asking { job: Some(run.job), batch: None },
                facts,
                expectations,
            ) =>
            {
                batch::name(operation, run.id, run.ts)
            }
            None => return None,
        };
        let open = self.open.entry(name.clone());
        let open = open.or_insert_with(|| OpenBatch::new(operation, run.recipe, node, for_pool, is_retry, now));
        open.stamped.insert(run.id.to_owned());
        open.joined = now;
        Some(name)
    }

    /// Checks whether another run of the same kind is in progress or about to begin, or another batch for such runs is
    /// open. The run that asks and its batch do not count.
    fn is_another_in_progress(
        &self,
        kind: Kind<'_>,
        asking: Asking<'_>,
        facts: &Facts,
        expectations: &Expectations,
    ) -> bool {
        let Kind { class, operation, node, for_pool } = kind;
        let mut open = self.open.iter().filter(|(name, open)| {
            let same = open.operation == operation && open.class == class && open.for_pool == for_pool;
            same && (node.is_none() || open.node.as_deref() == node) && Some(name.as_str()) != asking.batch
        });
        open.next().is_some() || self.runs_in_progress(kind, asking, facts, expectations) > 0
    }

    /// Counts the other runs of the same kind that are in progress or about to begin, up to a few. Runs for claims and
    /// for a pool are separate. The run that asks and its batch do not count, nor do members of open batches.
    fn runs_in_progress(
        &self,
        Kind { class, operation, node, for_pool }: Kind<'_>,
        asking: Asking<'_>,
        facts: &Facts,
        expectations: &Expectations,
    ) -> usize {
        /// More make no difference.
        const FEW: usize = 4;
        let label = label_value(class);
        let observed = facts.cache.runs.jobs();
        let observed = observed.filter(|job| !job.is_over && !job.terminating && job.run_labels.class == label);
        let fills = |job: &Job| job.claims().any(|claim| facts.is_pool_request_name(claim));
        let observed = observed.filter(|job| job.run_labels.operation == operation);
        let observed = observed.filter(|job| operation == Operation::Delete || fills(job) == for_pool);
        let on_node = |job: &&Arc<Job>| node.is_none() || job.node.is_none() || job.node.as_deref() == node;
        let expected = expectations.of_class(&label, facts.now()).filter(|(job, expected)| {
            let same = expected.operation == Some(operation) && expected.for_pool == for_pool;
            let here = node.is_none() || expected.node.as_deref() == node;
            let asks =
                asking.job == Some(job.as_str()) || (asking.batch.is_some() && expected.batch_name() == asking.batch);
            same && here && !asks
        });
        let is_open = |name: &&str| self.open.contains_key(*name);
        let names = expected.map(|(job, expected)| expected.batch_name().unwrap_or(job));
        let mut begun: BTreeSet<&str> = BTreeSet::new();
        for name in names.filter(|name| !is_open(name)) {
            begun.insert(name);
            if begun.len() == FEW {
                break;
            }
        }
        begun.len() + observed.filter(on_node).take(FEW).count()
    }

    /// Records that a stamped member has arrived for its batch. Returns whether the member must wait for the batch. It
    /// waits until the batch's Job is visible; the Job may lack a member that arrived too late.
    pub fn add_entry(&mut self, name: &str, entry: BatchEntry, facts: &Facts, expectations: &mut Expectations) -> bool {
        let is_begun = !self.open.contains_key(name) && expectations.is_expected(name, facts.now());
        if !is_begun && !self.collect(name, &entry, facts) {
            return false;
        }
        let BatchEntry { member, target, recipe, request, claim: _ } = entry;
        let of_volume = || Some(facts.cache.volumes.get(member.volume()?)?.user_namespace().to_owned());
        let namespace = member.claim().map(|claim| claim.namespace.clone()).or_else(of_volume).unwrap_or_default();
        let expected = Expectation {
            since: facts.now(),
            class_label: label_value(&recipe.class),
            namespace,
            created: true,
            operation: Some(request.operation),
            for_pool: is_for_pool(&member, facts),
            node: target.node,
            batch: Some(Membership { batch: name.to_owned(), member: WorkItem::of_member(&member) }),
        };
        expectations.add(&member.job_name(name), expected);
        true
    }

    /// Adds a member to those that have arrived, unless the batch is full. Returns whether the batch is for such a member.
    fn collect(&mut self, name: &str, entry: &BatchEntry, facts: &Facts) -> bool {
        let id = &entry.member.id;
        if !self.open.contains_key(name) {
            // An earlier process stamped the members. All with the same stamp are expected.
            let mut open = OpenBatch::of(entry, is_for_pool(&entry.member, facts), facts.now());
            open.stamped.extend(stamped_for(open.operation, name, &facts.cache));
            self.open.insert(name.to_owned(), open);
        }
        let Some(open) = self.open.get_mut(name) else { return false };
        open.leave(id);
        if !open.is_for(entry) {
            return false;
        }
        if !open.is_full() {
            let first = open.entries.first().map_or(entry, |first| &first.entry);
            let bytes = batch::weight(&first.request, &entry.request);
            open.stamped.insert(id.clone());
            let recorded = entry.claim.as_deref().map_or(0, Record::weight);
            open.entries.push(WeighedEntry { entry: entry.clone(), bytes, recorded });
        }
        true
    }

    /// Removes an item from its batches.
    pub fn leave(&mut self, operation: Operation, id: &str, expectations: &mut Expectations) -> LeftBatches {
        let (mut batches, mut jobs) = (Vec::new(), Vec::new());
        for (name, open) in self.open.iter_mut().filter(|(_, open)| open.operation == operation) {
            if let Some(entry) = open.entry(id) {
                jobs.push(entry.member.job_name(name));
            }
            if open.stamped.contains(id) {
                open.leave(id);
                batches.push(name.clone());
            }
        }
        LeftBatches { batches, slots: jobs.iter().filter_map(|job| expectations.remove(job)).collect() }
    }
}

/// Beginning and ending.
impl Batches {
    /// Checks whether the batch of a claim's stamp has begun without it, or will not begin. Then the claim needs a run
    /// of its own.
    pub fn is_missed_by(&self, claim: &Claim, recipe: &Recipe, cache: &Cache) -> bool {
        let Some(name) = claim.batch() else { return false };
        claim.data_source.is_some()
            || self.is_shut_out_of_batch(
                name,
                Operation::Provision,
                recipe,
                run_node(&claim.nodes_with_storage, recipe),
                cache,
            )
    }

    /// Checks whether an item can no longer join the batch that it names: its Job exists without the item, it cannot be
    /// created, or it is for other runs.
    pub fn is_shut_out_of_batch(
        &self,
        name: &str,
        operation: Operation,
        recipe: &Recipe,
        node: Option<&str>,
        cache: &Cache,
    ) -> bool {
        let job = ObjectName::new(&recipe.config.namespace, name);
        let open = self.open.get(name);
        let other = recipe.batch_size < 2 || open.is_some_and(|open| !open.matches(operation, recipe, node));
        other || self.refused.contains(name) || cache.runs.job(&job).is_some()
    }

    /// Returns the objects of the members of an open batch.
    pub fn members(&self, name: &str) -> Vec<MemberObject> {
        let entries = self.open.get(name).into_iter().flat_map(|open| &open.entries);
        entries.map(|weighed| weighed.entry.member.object.clone()).collect()
    }

    /// Observes an open batch. Returns `None` if it is not open.
    pub fn observe(&self, name: &str, facts: &Facts, expectations: &Expectations) -> Option<Observed> {
        let open = self.open.get(name)?;
        let kind =
            Kind { class: &open.class, operation: open.operation, node: open.node.as_deref(), for_pool: open.for_pool };
        let own = Asking { job: None, batch: Some(name) };
        Some(Observed {
            awaited: open.stamped.len() - open.entries.len(),
            entries: open.entries.len(),
            full: open.is_full(),
            others: self.is_another_in_progress(kind, own, facts, expectations),
            runs: self.runs_in_progress(kind, own, facts, expectations),
            passed: facts.clock.since(open.began),
            joined: facts.clock.since(open.joined),
            window: open.window,
        })
    }

    /// Closes an open batch.
    pub fn close(&mut self, name: &str, facts: &Facts, expectations: &mut Expectations) -> ClosedBatch {
        let entries = self.open.remove(name).map(|open| open.entries).unwrap_or_default();
        let entries = entries.into_iter().map(|weighed| weighed.entry);
        let (entries, gone): (Vec<_>, Vec<_>) = entries.partition(|entry| still_wants(name, entry, &facts.cache));
        let slots = gone.iter().filter_map(|entry| expectations.remove(&entry.member.job_name(name))).collect();
        if let Some(first) = entries.first() {
            let job = ObjectName::new(&first.target.namespace, name);
            let members = entries.iter().map(|entry| entry.member.job_name(name));
            expectations.begin_creation(&job, members, facts.now());
        }
        ClosedBatch { entries, slots }
    }

    /// Opens a batch again whose Job may or may not have been created. Unless the Job becomes visible, it is created
    /// again with the same members, except for those that leave meanwhile.
    pub fn reopen(&mut self, name: &str, entries: &[BatchEntry], facts: &Facts) {
        let Some(first) = entries.first() else { return };
        let is_seen = facts.cache.runs.job(&ObjectName::new(&first.target.namespace, name)).is_some();
        if is_seen || self.open.contains_key(name) {
            return;
        }
        let began = facts.now().saturating_sub(first.recipe.batch_window + STAMP_TIMEOUT);
        self.open.insert(name.to_owned(), OpenBatch::of(first, is_for_pool(&first.member, facts), began));
        for entry in entries {
            if still_wants(name, entry, &facts.cache) {
                // The Job of the batch may have been created all the same.
                let member = Member { is_first: false, ..entry.member.clone() };
                self.collect(name, &BatchEntry { member, ..entry.clone() }, facts);
            }
        }
    }

    /// Records that the API server rejects the Job of a batch. Each member gets a run of its own. Returns the members.
    pub fn refuse(&mut self, name: &str, expectations: &mut Expectations) -> Vec<WorkItem> {
        if self.refused.len() > MAX_REFUSED {
            self.refused.clear();
        }
        self.refused.insert(name.to_owned());
        expectations.dissolve(name)
    }

    /// Records that the Job of a batch is visible. Returns its absent members, which do not expect it any more.
    pub fn on_job(&mut self, job: &Job, expectations: &mut Expectations) -> Vec<WorkItem> {
        for member in job.members.iter() {
            expectations.remove(&member.job_name(&job.name.name));
        }
        self.open.remove(&job.name.name);
        expectations.dissolve(&job.name.name)
    }

    /// Forgets all open batches, because another replica leads now.
    pub fn forget_open(&mut self, expectations: &mut Expectations) {
        for (name, open) in std::mem::take(&mut self.open) {
            for weighed in open.entries {
                expectations.remove(&weighed.entry.member.job_name(&name));
            }
        }
        self.refused.clear();
    }

    /// Returns the open batches of a class of which a run has ended.
    pub fn open_of(&self, ended: &Job) -> impl Iterator<Item = &String> {
        let of_class = |open: &OpenBatch| {
            label_value(&open.class) == ended.run_labels.class && ended.run_labels.operation == open.operation
        };
        self.open.iter().filter(move |(_, open)| of_class(open)).map(|(name, _)| name)
    }
}

/// Checks whether a member makes a pooled volume.
fn is_for_pool(member: &Member, facts: &Facts) -> bool {
    member.claim().is_some_and(|claim| facts.is_pool_request_name(claim))
}

/// Returns the ids of all that name the batch and wait for it.
fn stamped_for(operation: Operation, name: &str, cache: &Cache) -> BTreeSet<String> {
    if operation == Operation::Delete {
        let noted = cache.volumes.unsettled().filter(|volume| volume.batch().is_some_and(|batch| batch == name));
        return noted.filter_map(|volume| volume.volume_id().map(str::to_owned)).collect();
    }
    let stamped = cache.claims.unsettled().filter(|claim| claim.batch().is_some_and(|batch| batch == name));
    let waits = |claim: &&Arc<Claim>| claim.is_held() && !claim.terminating && !claim.is_bound();
    stamped.filter(waits).map(|claim| claim.volume_id()).collect()
}

/// Checks whether a claim or volume is still as it was when it arrived, by the cache.
fn still_wants(name: &str, entry: &BatchEntry, cache: &Cache) -> bool {
    // The cache may be older than the stamp.
    match &entry.member.object {
        MemberObject::Claim(claim) => {
            cache.claims.get(claim).filter(|claim| claim.volume_id() == entry.member.id).is_none_or(|claim| {
                let stamped = claim.own_stamp().is_none_or(|stamp| stamp.batch.as_deref() == Some(name));
                stamped && !claim.terminating && !claim.is_bound()
            })
        }
        MemberObject::Volume(volume) => cache.volumes.get(volume).is_some_and(|volume| {
            let noted = volume.batch.as_ref().is_none_or(|batch| batch == name);
            let goes =
                volume.reclaim_policy == ReclaimPolicy::Delete && !volume.abandoned && !volume.claim_ref_was_removed();
            noted && goes && volume.volume_id() == Some(entry.member.id.as_str())
        }),
    }
}

#[cfg(test)]
#[path = "batches_tests.rs"]
mod tests;
