//! Batches that gather their members.
//!
//! All of this state can be rebuilt from the stamps of claims and the batch annotations of volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use contract::request::{Operation, Request};

use super::pool::is_paced;
use super::{EXPECTED, Expected, Index, WorkItem};
use crate::claim::decide::run_node;
use crate::config::Recipe;
use crate::limits;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::object::{ObjectName, label_value};
use crate::run::batch::{self, Member, Whom};
use crate::run::gather::{Observed, STAMP_TIMEOUT, Step, decide};
use crate::run::job::{self, Place};
use crate::run::view::Job;

/// The state of batches beside their Jobs and pods.
#[derive(Debug, Default)]
pub(super) struct Batches {
    gathering: BTreeMap<String, Gathering>,
    /// Batches whose Jobs are being created: no answer has arrived yet, however long that takes.
    creating: BTreeSet<String>,
    /// Ids of volumes whose own delete runs have begun. If no watch shows the Job for long, it is created again with
    /// the same name.
    alone: BTreeSet<String>,
    /// Batches whose Jobs the API server rejects.
    refused: BTreeSet<String>,
}

impl Batches {
    /// Checks whether the watch may still show an expected Job.
    pub fn is_awaited(&self, job: &str, expected: &Expected, now: Duration) -> bool {
        let of = || expected.batch.as_ref().map_or(job, |(batch, _)| batch);
        now.saturating_sub(expected.since) < EXPECTED || self.creating.contains(of())
    }
}

/// A batch whose Job is about to be created.
#[derive(Debug)]
struct Gathering {
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
    come: Vec<(Arrival, usize)>,
}

/// A member that has arrived for its batch.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The member.
    pub member: Member,
    /// The request to the image.
    pub request: Request,
    /// The place of the run.
    pub place: Place,
    /// The recipe of the attempt.
    pub recipe: Arc<Recipe>,
}

impl Gathering {
    fn new(operation: Operation, recipe: &Recipe, node: Option<&str>, for_pool: bool, began: Duration) -> Self {
        Gathering {
            operation,
            version: recipe.version(),
            node: node.map(str::to_owned),
            for_pool,
            class: recipe.class.clone(),
            size: recipe.batch_size,
            window: recipe.batch_window,
            began,
            stamped: BTreeSet::new(),
            come: Vec::new(),
        }
    }

    /// Makes the batch for which this member has arrived.
    fn of(arrival: &Arrival, for_pool: bool, began: Duration) -> Self {
        let node = arrival.place.node.as_deref();
        Gathering::new(arrival.request.operation, &arrival.recipe, node, for_pool, began)
    }

    fn is_full(&self) -> bool {
        self.come.len() >= self.size || self.come.iter().map(|(_, bytes)| bytes).sum::<usize>() >= limits::POD / 2
    }

    fn arrived(&self, id: &str) -> Option<&Arrival> {
        self.come.iter().map(|(arrival, _)| arrival).find(|arrival| arrival.member.id == id)
    }

    fn is_of(&self, operation: Operation, recipe: &Recipe, node: Option<&str>) -> bool {
        self.operation == operation && self.version == recipe.version() && self.node.as_deref() == node
    }

    fn is_for(&self, arrival: &Arrival) -> bool {
        let same_place = self.come.first().is_none_or(|(first, _)| first.place == arrival.place);
        same_place && self.is_of(arrival.request.operation, &arrival.recipe, arrival.place.node.as_deref())
    }

    fn leave(&mut self, id: &str) {
        self.stamped.remove(id);
        self.come.retain(|(arrival, _)| arrival.member.id != id);
    }
}

/// Returns the work item of a member.
pub(super) fn key(member: &Member) -> WorkItem {
    match &member.whom {
        Whom::Claim(name) => WorkItem::Claim(name.clone()),
        Whom::Volume(name) => WorkItem::Volume(name.clone()),
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
    /// stamp. Returns `None` for a run of its own. Its slot is [reserved](Index::reserve) as `job`.
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
        let for_pool = is_paced(&claim.name, &self.identity.namespace);
        let joins = Joins { operation: Operation::Provision, recipe, node, for_pool, id: &claim.uid, job, ts };
        let name = self.join(&joins)?;
        if let Some(expected) = self.expected.get_mut(job) {
            expected.batch = Some((name.clone(), WorkItem::Claim(claim.name.clone())));
        }
        Some(name)
    }

    /// Returns the batch to record on a volume for its first delete run, with the time of the annotation. Returns
    /// `None` for a run of its own. Its slot is [reserved](Index::reserve) as `job`.
    pub fn join_deletion(
        &mut self,
        volume: &Volume,
        recipe: &Recipe,
        (job, node, ts): (&str, Option<&str>, &str),
    ) -> Option<String> {
        let id = volume.id().unwrap_or_default();
        let joins = Joins { operation: Operation::Delete, recipe, node, for_pool: false, id, job, ts };
        let name = if self.batches.alone.contains(id) { None } else { self.join(&joins) };
        match &name {
            None => drop(self.batches.alone.insert(id.to_owned())),
            // In a batch, the run has another name.
            Some(batch) => {
                let place = self.expected.remove(job).unwrap_or_default();
                let batch = (batch.clone(), WorkItem::Volume(volume.name.clone()));
                let name = job::name(Operation::Delete, id, 1, &batch.0);
                self.expected.insert(name, Expected { batch: Some(batch), ..place });
            }
        }
        name
    }

    /// Forgets the id of a volume that is gone.
    pub(super) fn forget_alone(&mut self, id: &str) {
        self.batches.alone.remove(id);
    }

    fn join(&mut self, j: &Joins<'_>) -> Option<String> {
        if j.recipe.batch_size < 2 {
            return None;
        }
        let passed = self.clock.passed();
        let joins = |gathering: &Gathering| {
            let open = passed.saturating_sub(gathering.began) < gathering.window;
            let room = gathering.stamped.len() < gathering.size && !gathering.is_full();
            open && room && gathering.for_pool == j.for_pool && gathering.is_of(j.operation, j.recipe, j.node)
        };
        let gathers = self.batches.gathering.iter().find(|(_, gathering)| joins(gathering));
        let name = match gathers.map(|(name, _)| name.clone()) {
            Some(name) => name,
            None if self.is_another_under_way((&j.recipe.class, j.operation, j.node, j.for_pool), j.job, None) => {
                batch::name(j.operation, j.id, j.ts)
            }
            None => return None,
        };
        let gathering = self.batches.gathering.entry(name.clone());
        let gathering = gathering.or_insert_with(|| Gathering::new(j.operation, j.recipe, j.node, j.for_pool, passed));
        gathering.stamped.insert(j.id.to_owned());
        Some(name)
    }

    /// Checks whether another run of the same class, operation and node is in progress or about to begin. Runs for
    /// claims and for a pool are separate. The Job `but` and the batch `batch` do not count.
    fn is_another_under_way(
        &self,
        (class, operation, node, for_pool): (&str, Operation, Option<&str>, bool),
        but: &str,
        batch: Option<&str>,
    ) -> bool {
        let (label, now) = (label_value(class), self.clock.passed());
        let seen = self.jobs.values().filter(|job| !job.over && !job.deleting && job.marks.class == label);
        let namespace = &self.identity.namespace;
        let fills = |job: &Job| job.claims().any(|claim| is_paced(claim, namespace));
        let seen = seen.filter(|job| job.marks.operation == operation.as_str());
        let mut seen = seen.filter(|job| operation == Operation::Delete || fills(job) == for_pool);
        let on_node = |job: &Arc<Job>| node.is_none() || job.node.is_none() || job.node.as_deref() == node;
        let mut expected = self.expected.iter().filter(|(job, expected)| {
            let same = expected.class == label && expected.operation == Some(operation);
            let same = same && expected.for_pool == for_pool;
            let here = node.is_none() || expected.node.as_deref() == node;
            let of = expected.batch.as_ref().map(|(name, _)| name.as_str());
            let awaited = || self.batches.is_awaited(job, expected, now);
            same && here && awaited() && job.as_str() != but && (batch.is_none() || of != batch)
        });
        let mut gathers = self.batches.gathering.iter().filter(|(name, gathering)| {
            let same = gathering.operation == operation && gathering.class == class && gathering.for_pool == for_pool;
            same && (node.is_none() || gathering.node.as_deref() == node) && Some(name.as_str()) != batch
        });
        seen.any(on_node) || expected.next().is_some() || gathers.next().is_some()
    }

    /// Records that a stamped member has arrived for its batch. Returns whether the member must wait for the batch. It
    /// waits until the batch's Job is visible; the Job may lack a member that arrived too late.
    pub fn come(&mut self, name: &str, arrival: Arrival) -> bool {
        let is_begun = !self.batches.gathering.contains_key(name) && self.is_expected(name);
        if !is_begun && !self.gather(name, &arrival) {
            return false;
        }
        let Arrival { member, place, recipe, request } = arrival;
        let of_volume = || Some(self.volumes.get(member.volume()?)?.user_namespace());
        let namespace = member.claim().map(|claim| claim.namespace.as_str()).or_else(of_volume).unwrap_or_default();
        let expected = Expected {
            since: self.clock.passed(),
            class: label_value(&recipe.class),
            namespace: namespace.to_owned(),
            created: true,
            operation: Some(request.operation),
            for_pool: self.makes_ready(&member),
            node: place.node,
            batch: Some((name.to_owned(), key(&member))),
        };
        self.expected.insert(member.job_name(name), expected);
        true
    }

    /// Checks whether a member makes a pooled volume.
    fn makes_ready(&self, member: &Member) -> bool {
        member.claim().is_some_and(|claim| is_paced(claim, &self.identity.namespace))
    }

    /// Adds a member to those that have arrived, if there is room. Returns whether the batch is for such a member.
    fn gather(&mut self, name: &str, arrival: &Arrival) -> bool {
        let id = &arrival.member.id;
        if !self.batches.gathering.contains_key(name) {
            // An earlier process stamped the members. All with the same stamp are expected.
            let mut gathering = Gathering::of(arrival, self.makes_ready(&arrival.member), self.clock.passed());
            gathering.stamped.extend(self.stamped_for(gathering.operation, name));
            self.batches.gathering.insert(name.to_owned(), gathering);
        }
        let Some(gathering) = self.batches.gathering.get_mut(name) else { return false };
        gathering.leave(id);
        if !gathering.is_for(arrival) {
            return false;
        }
        if !gathering.is_full() {
            let first = gathering.come.first().map_or(arrival, |(first, _)| first);
            let bytes = batch::weight(&first.request, &arrival.request);
            gathering.stamped.insert(id.clone());
            gathering.come.push((arrival.clone(), bytes));
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
        for (name, gathering) in self.batches.gathering.iter_mut().filter(|(_, g)| g.operation == operation) {
            if let Some(come) = gathering.arrived(id) {
                jobs.push(come.member.job_name(name));
            }
            if gathering.stamped.contains(id) {
                gathering.leave(id);
                keys.push(WorkItem::Batch(name.clone()));
            }
        }
        keys.extend(jobs.iter().flat_map(|job| self.forget_expected(job)));
        keys
    }

    /// Checks whether the batch of a claim's stamp has begun without it, or will not begin. Then the claim needs a run
    /// of its own.
    pub fn is_left_out(&self, claim: &Claim, recipe: &Recipe) -> bool {
        let (Some(name), Some(stamp)) = (claim.batch(), claim.own_stamp()) else { return false };
        let alone = stamp.attempt != 1 || claim.data_source.is_some();
        alone || self.is_without(name, Operation::Provision, recipe, run_node(&claim.nodes, recipe))
    }

    /// Checks whether a batch has begun without the items that do not see its Job. Also if the batch will not begin, or
    /// is for another kind of run.
    pub fn is_without(&self, name: &str, operation: Operation, recipe: &Recipe, node: Option<&str>) -> bool {
        let job = ObjectName::new(&recipe.config.namespace, name);
        let gathers = self.batches.gathering.get(name);
        let other = recipe.batch_size < 2 || gathers.is_some_and(|gathering| !gathering.is_of(operation, recipe, node));
        other || self.batches.refused.contains(name) || self.jobs.contains_key(&job)
    }

    /// Decides the next step of a batch; to create its Job, with these members. Returns also the work items that can
    /// use the slots of the other members.
    pub fn gathered(&mut self, name: &str) -> (Step, Vec<Arrival>, Vec<WorkItem>) {
        let nobody = |step| (step, Vec::new(), Vec::new());
        let Some(gathering) = self.batches.gathering.get(name) else { return nobody(Step::Forget) };
        let step = decide(&Observed {
            awaited: gathering.stamped.len() - gathering.come.len(),
            come: gathering.come.len(),
            full: gathering.is_full(),
            others: self.is_another_under_way(
                (&gathering.class, gathering.operation, gathering.node.as_deref(), gathering.for_pool),
                "",
                Some(name),
            ),
            passed: self.clock.since(gathering.began),
            window: gathering.window,
        });
        if matches!(step, Step::Wait(_)) {
            return nobody(step);
        }
        let come = self.batches.gathering.remove(name).map(|gathering| gathering.come).unwrap_or_default();
        let come = come.into_iter().map(|(arrival, _)| arrival);
        let (come, gone): (Vec<_>, Vec<_>) = come.partition(|arrival| self.still_wants(name, arrival));
        let woken = gone.iter().flat_map(|arrival| self.forget_expected(&arrival.member.job_name(name))).collect();
        let since = self.clock.passed();
        for arrival in &come {
            self.expected.entry(arrival.member.job_name(name)).and_modify(|expected| expected.since = since);
        }
        if come.is_empty() {
            return (Step::Forget, come, woken);
        }
        // From now on, members that arrive wait for the Job.
        self.expect_job(name);
        self.batches.creating.insert(name.to_owned());
        (step, come, woken)
    }

    /// Records that the creation of a batch's Job was answered, or will never be. The time of its expectation begins
    /// now.
    pub fn answered(&mut self, name: &str) {
        self.batches.creating.remove(name);
        let since = self.clock.passed();
        let of = |job: &str, expected: &Expected| {
            job == name || expected.batch.as_ref().is_some_and(|(batch, _)| batch == name)
        };
        self.expected.iter_mut().filter(|(job, expected)| of(job, expected)).for_each(|(_, e)| e.since = since);
    }

    /// Gathers again a batch whose Job may or may not have been created. Unless the Job becomes visible, it is created
    /// again with the same members, except for those that leave meanwhile.
    pub fn gather_again(&mut self, name: &str, come: Vec<Arrival>) {
        let Some(first) = come.first() else { return };
        let is_seen = self.jobs.contains_key(&ObjectName::new(&first.place.namespace, name));
        if is_seen || self.batches.gathering.contains_key(name) {
            return;
        }
        let began = self.clock.passed().saturating_sub(first.recipe.batch_window + STAMP_TIMEOUT);
        let gathering = Gathering::of(first, self.makes_ready(&first.member), began);
        self.batches.gathering.insert(name.to_owned(), gathering);
        for arrival in &come {
            if self.still_wants(name, arrival) {
                self.gather(name, arrival);
            }
        }
    }

    /// Checks whether a claim or volume is still as it was when it arrived, by the cache.
    fn still_wants(&self, name: &str, arrival: &Arrival) -> bool {
        // The cache may be older than the stamp.
        match &arrival.member.whom {
            Whom::Claim(claim) => {
                self.claims.get(claim).filter(|claim| claim.id() == arrival.member.id).is_none_or(|claim| {
                    let stamped = claim.own_stamp().is_none_or(|stamp| stamp.batch.as_deref() == Some(name));
                    stamped && !claim.deleting && !claim.is_bound()
                })
            }
            Whom::Volume(volume) => self.volumes.get(volume).is_some_and(|volume| {
                let noted = volume.batch.as_ref().is_none_or(|batch| batch == name);
                let goes = volume.reclaim_policy == "Delete" && !volume.abandoned && !volume.has_lost_claim_ref();
                noted && goes && volume.id() == Some(arrival.member.id.as_str())
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
        self.disperse(name)
    }

    /// Forgets a batch for which nobody waits any more. Returns the members to requeue.
    fn disperse(&mut self, name: &str) -> Vec<WorkItem> {
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

    /// Forgets all gathering batches, because another replica leads now.
    pub(super) fn forget_gathering(&mut self) {
        for (name, gathering) in std::mem::take(&mut self.batches.gathering) {
            gathering.come.iter().for_each(|(arrival, _)| drop(self.expected.remove(&arrival.member.job_name(&name))));
        }
        self.batches.refused.clear();
    }

    /// Returns the gathering batches of a class of which a run has ended.
    pub(super) fn gathering_of(&self, ended: &Job) -> Vec<WorkItem> {
        let of_class = |gathering: &Gathering| {
            label_value(&gathering.class) == ended.marks.class && gathering.operation.as_str() == ended.marks.operation
        };
        let gathering = self.batches.gathering.iter().filter(|(_, gathering)| of_class(gathering));
        gathering.map(|(name, _)| WorkItem::Batch(name.clone())).collect()
    }

    /// Records that the Job of a batch is visible. Its absent members do not expect it any more.
    pub(super) fn see_batch(&mut self, job: &Job) -> Vec<WorkItem> {
        for member in job.members.iter() {
            self.expected.remove(&member.job_name(&job.name.name));
        }
        self.batches.gathering.remove(&job.name.name);
        self.disperse(&job.name.name)
    }
}

#[cfg(test)]
#[path = "batch_tests.rs"]
mod tests;
