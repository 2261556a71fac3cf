//! Open batches, which collect their members.
//!
//! Nothing is written when a run joins a batch. A crash forgets the list, and all that were on it are due again.

use std::collections::{BTreeMap, BTreeSet};

use flex_contract::operation::Operation;
use flex_core::batch::decide::Observed;
use flex_core::batch::{self, Member, MemberObject};
use flex_core::model::volume::Volume;
use flex_core::object::{ObjectName, label_value};
use flex_core::run::view::Job;

use crate::state::cache::Cache;
use crate::state::expectations::Expectations;
use crate::state::facts::Facts;
pub use crate::state::open_batch::BatchEntry;
use crate::state::open_batch::OpenBatch;
use crate::state::work_item::WorkItem;

/// The state of batches beside their Jobs and pods.
#[derive(Debug, Default)]
pub struct Batches {
    open: BTreeMap<String, OpenBatch>,
    /// The ids of claims and volumes whose runs share no batch any more in this term: the API server has refused the Job of
    /// theirs, or a delete run has begun alone.
    alone: BTreeSet<String>,
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

/// The other runs of a kind.
struct Others {
    /// There is one, or about to be one, or a batch for such runs is open.
    any: bool,
    /// The number of those that are in progress, up to a few.
    runs: usize,
}

/// A closed batch.
#[derive(Debug)]
pub struct ClosedBatch {
    /// The members for its Job.
    pub entries: Vec<BatchEntry>,
    /// The slots of the others, as the label values of their classes.
    pub slots: Vec<String>,
    /// The work items of the others, whose runs may be due again.
    pub left: Vec<WorkItem>,
}

/// Joining and leaving.
impl Batches {
    /// Adds a run, whose slot is taken, to a batch for runs like it: to an open one, or to a new one that is named by the
    /// run's id and this time. It counts as one that may be running. Returns the batch; `None` for a run of its own.
    pub fn join(
        &mut self,
        entry: BatchEntry,
        ts: &str,
        facts: &Facts,
        expectations: &mut Expectations,
    ) -> Option<String> {
        let BatchEntry { member, request, recipe, .. } = &entry;
        if recipe.batch_size < 2 || self.alone.contains(&member.id) {
            return None;
        }
        let (operation, job, item) = (request.operation, member.job_name(), WorkItem::of_member(member));
        self.remove(operation, &member.id);
        let for_pool = is_for_pool(member, facts);
        let open = self.open.iter().find(|(_, open)| open.takes(&entry, for_pool)).map(|(name, _)| name.clone());
        let name = match open {
            Some(name) => name,
            None if self.others(kind(&entry, for_pool), &job, facts, expectations).any => {
                batch::name(operation, &member.id, ts)
            }
            None => return None,
        };
        match self.open.get_mut(&name) {
            Some(open) => open.add(entry),
            None => drop(self.open.insert(name.clone(), OpenBatch::new(entry, for_pool, facts.now()))),
        }
        expectations.join_batch(&job, &name, item);
        Some(name)
    }

    /// Removes an item from its batch. Returns its slot, as the label value of the class.
    pub fn leave(&mut self, operation: Operation, id: &str, expectations: &mut Expectations) -> Option<String> {
        let (batch, left) = self.remove(operation, id)?;
        expectations.leave_batch(&left.member.job_name(), &batch)
    }

    fn remove(&mut self, operation: Operation, id: &str) -> Option<(String, BatchEntry)> {
        let is_of = |open: &OpenBatch| open.first().is_some_and(|first| first.request.operation == operation);
        let removed = |(name, open): (&String, &mut OpenBatch)| Some((name.clone(), open.remove(id)?));
        let removed = self.open.iter_mut().filter(|(_, open)| is_of(open)).find_map(removed)?;
        self.open.retain(|_, open| !open.is_empty());
        Some(removed)
    }

    /// Finds the other runs of the same kind. Runs for claims and for a pool are separate. `own` is the Job of the run that
    /// asks, or the batch. Neither counts, nor do members of open batches.
    fn others(
        &self,
        Kind { class, operation, node, for_pool }: Kind<'_>,
        own: &str,
        facts: &Facts,
        expectations: &Expectations,
    ) -> Others {
        /// More make no difference.
        const FEW: usize = 4;
        let label = label_value(class);
        let is_here = |of: Option<&str>| node.is_none() || of == node;
        let fills = |job: &Job| job.claims().any(|claim| facts.is_pool_request_name(claim));
        let observed = facts.cache.runs.jobs().filter(|job| {
            let is_of_kind = job.run_labels.class == label && job.run_labels.operation == operation;
            let is_alike = operation == Operation::Delete || fills(job) == for_pool;
            is_of_kind
                && is_alike
                && !job.is_over
                && !job.terminating
                && (job.node.is_none() || is_here(job.node.as_deref()))
        });
        let mut runs = observed.take(FEW).count();
        let expected = expectations.of_class(&label, facts.now()).filter(|(job, expected)| {
            let is_of_kind = expected.operation == Some(operation) && expected.for_pool == for_pool;
            let is_collected = expected.batch_name().is_some_and(|batch| self.open.contains_key(batch));
            is_of_kind && is_here(expected.node.as_deref()) && !is_collected && job.as_str() != own
        });
        let (mut is_expected, mut begun) = (false, BTreeSet::new());
        for (job, expected) in expected {
            is_expected = true;
            if expected.created {
                begun.insert(expected.batch_name().unwrap_or(job));
            }
            if begun.len() == FEW {
                break;
            }
        }
        runs += begun.len();
        let is_open = |(name, open): (&String, &OpenBatch)| {
            let of = open.first().map(|first| kind(first, open.for_pool));
            let is_alike = of.is_some_and(|of| {
                let same = of.class == class && of.operation == operation && of.for_pool == for_pool;
                same && is_here(of.node)
            });
            is_alike && name.as_str() != own
        };
        Others { any: is_expected || runs > 0 || self.open.iter().any(is_open), runs }
    }
}

/// Beginning and ending.
impl Batches {
    /// Observes an open batch. Returns `None` if it is not open.
    pub fn observe(&self, name: &str, facts: &Facts, expectations: &Expectations) -> Option<Observed> {
        let open = self.open.get(name)?;
        let first = open.first()?;
        let Others { any, runs } = self.others(kind(first, open.for_pool), name, facts, expectations);
        let (passed, window) = (facts.clock.since(open.began), first.recipe.batch_window);
        Some(Observed { full: open.is_full(), others: any, runs, passed, window })
    }

    /// Closes an open batch.
    pub fn close(&mut self, name: &str, facts: &Facts, expectations: &mut Expectations) -> ClosedBatch {
        let entries = self.open.remove(name).into_iter().flat_map(OpenBatch::into_entries);
        // A run whose slot has expired is due by itself, and may be in another batch by now.
        let members = entries.filter(|entry| expectations.is_member(&entry.member.job_name(), name));
        let (entries, gone): (Vec<_>, Vec<_>) = members.partition(|entry| is_due(entry, &facts.cache));
        let slots = gone.iter().filter_map(|entry| expectations.remove(&entry.member.job_name())).collect();
        let left = gone.iter().map(|entry| WorkItem::of_member(&entry.member)).collect();
        if let Some(first) = entries.first() {
            let job = ObjectName::new(&first.target.namespace, name);
            let members = entries.iter().map(|entry| entry.member.job_name());
            expectations.begin_creation(&job, members, facts.now());
        }
        ClosedBatch { entries, slots, left }
    }

    /// Records that the API server rejects the Job of a batch. Each member gets a run of its own. Returns the members.
    pub fn refuse(&mut self, name: &str, entries: &[BatchEntry], expectations: &mut Expectations) -> Vec<WorkItem> {
        self.alone.extend(entries.iter().map(|entry| entry.member.id.clone()));
        expectations.dissolve(name)
    }

    /// Records that the Job of a batch is visible. Returns its absent members, which do not expect it any more.
    pub fn on_job(&mut self, job: &Job, expectations: &mut Expectations) -> Vec<WorkItem> {
        for member in job.members.iter() {
            expectations.show(&member.job_name(), &job.name.name);
        }
        self.open.remove(&job.name.name);
        expectations.dissolve(&job.name.name)
    }

    /// Forgets all open batches, because another replica leads now.
    pub fn forget_open(&mut self, expectations: &mut Expectations) {
        for (name, open) in std::mem::take(&mut self.open) {
            for entry in open.into_entries() {
                expectations.leave_batch(&entry.member.job_name(), &name);
            }
        }
    }

    /// Begins a term.
    pub fn begin_term(&mut self) {
        self.alone.clear();
    }

    /// Returns the open batches of a class of which a run has ended.
    pub fn open_of(&self, ended: &Job) -> impl Iterator<Item = &String> {
        let of_class = |first: &BatchEntry| {
            label_value(&first.recipe.class) == ended.run_labels.class
                && ended.run_labels.operation == first.request.operation
        };
        self.open.iter().filter(move |(_, open)| open.first().is_some_and(of_class)).map(|(name, _)| name)
    }

    /// Records that the run of a volume begins alone.
    pub fn run_alone(&mut self, id: &str) {
        self.alone.insert(id.to_owned());
    }

    /// Forgets why the runs of a claim or volume share no batch: the claim has its volume, or it is gone.
    pub fn forget_refusal(&mut self, id: &str) {
        self.alone.remove(id);
    }
}

/// Returns the kind of a run.
fn kind(entry: &BatchEntry, for_pool: bool) -> Kind<'_> {
    let BatchEntry { request, target, recipe, .. } = entry;
    Kind { class: &recipe.class, operation: request.operation, node: target.node.as_deref(), for_pool }
}

/// Checks whether a member makes a pooled volume.
fn is_for_pool(member: &Member, facts: &Facts) -> bool {
    member.claim().is_some_and(|claim| facts.is_pool_request_name(claim))
}

/// Checks whether a claim or volume is still as it was when its run was due, and no Job with the run has appeared, by the cache.
fn is_due(entry: &BatchEntry, cache: &Cache) -> bool {
    let Member { id, attempt, object, .. } = &entry.member;
    let own = entry.member.job_name();
    let has_run = |job: &Job| job.name.name == own || job.members.iter().any(|member| member.job_name() == own);
    if cache.runs.jobs_named(id).any(|job| !job.is_over && has_run(job)) {
        return false;
    }
    match object {
        // The cache may be older than the stamp.
        MemberObject::Claim(name) => cache.claims.get(name).filter(|claim| claim.uid == *id).is_none_or(|claim| {
            let is_last = claim.own_stamp().is_none_or(|stamp| stamp.attempt <= *attempt);
            is_last && !claim.terminating && !claim.is_bound()
        }),
        MemberObject::Volume(name) => {
            let is_in_use = |volume: &Volume| {
                let claim = volume.claim_ref_uid().and_then(|uid| cache.claims.by_id(uid));
                claim.is_some_and(|claim| !claim.has_other_volume(name))
            };
            // Its watch may be slower than that of claims.
            let decided_on = entry.volume.as_deref().filter(|volume| !is_in_use(volume));
            decided_on.zip(cache.volumes.get(name)).is_some_and(|(decided_on, now)| now.may_be_deleted_as(decided_on))
        }
    }
}

#[cfg(test)]
#[path = "batches_tests.rs"]
mod tests;
