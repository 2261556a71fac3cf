//! Slots, and the Jobs that are created or deleted.

use std::collections::HashMap;
use std::time::Duration;

use flex_contract::request::Operation;

use super::fair_queue::{Flow, FreeSlots};
use super::pool::is_pool_request_name;
use super::{Expectation, Index, SlotRequest, WorkItem};
use crate::claim::decide::RemovedJob;
use crate::config::Recipe;
use crate::config::classes::ClassLookup;
use crate::object::{ObjectName, label_value};
use crate::run::batch::Member;
use crate::run::view::Job;

impl Index {
    /// Takes a slot of the class for a run, before its Job exists. Returns whether there was one for this claim, volume
    /// or content. If not, the item must [join the queue](Index::wait_for_slot).
    pub fn acquire_slot(&mut self, job: &str, slot_request: &SlotRequest, recipe: &Recipe) -> bool {
        self.drop_expired_expectations();
        let flow = self.flow(slot_request);
        if !self.expected.contains_key(job) && !self.is_next(slot_request, &flow, recipe) {
            return false;
        }
        self.fair_queue.dequeue(&slot_request.key);
        self.fair_queue.record_dispatch(&recipe.class, &flow);
        let since = self.clock.passed();
        self.revisions_used.insert(recipe.hash.clone(), since);
        let class = label_value(&recipe.class);
        let Flow { for_pool, namespace, node, .. } = flow;
        let operation = Some(slot_request.operation);
        let expected = Expectation { since, class, operation, namespace, for_pool, node, ..Expectation::default() };
        self.expected.insert(job.to_owned(), expected);
        true
    }

    /// Removes expectations that have expired.
    fn drop_expired_expectations(&mut self) {
        let (now, batches) = (self.clock.passed(), &self.batches);
        self.expected.retain(|job, expected| batches.may_still_appear(job, expected, now));
    }

    /// Checks whether the class has a slot for this run, after those that wait before it. An item in the queue counts
    /// for the node with which it joined.
    pub fn has_slot(&self, slot_request: &SlotRequest, recipe: &Recipe) -> bool {
        let stands = self.fair_queue.flow_of(&slot_request.key, &recipe.class).cloned();
        self.is_next(slot_request, &stands.unwrap_or_else(|| self.flow(slot_request)), recipe)
    }

    fn is_next(&self, slot_request: &SlotRequest, flow: &Flow, recipe: &Recipe) -> bool {
        let Some(free_slots) = self.free_slots(recipe, flow.for_pool) else { return false };
        self.fair_queue.is_next(&slot_request.key, flow, &recipe.class, &free_slots, self.clock.passed())
    }

    /// Returns the waiting items that get a slot now, in their order.
    fn dispatch(&self, recipe: &Recipe) -> Vec<WorkItem> {
        let Some(free_slots) = self.free_slots(recipe, true) else { return Vec::new() };
        self.fair_queue.dispatch(&recipe.class, &free_slots, self.clock.passed()).cloned().collect()
    }

    /// Returns the free slots of a class, if there are any.
    pub(super) fn free_slots(&self, recipe: &Recipe, with_pool: bool) -> Option<FreeSlots<'_>> {
        let recipe = self.current(recipe);
        let (class, now) = (label_value(&recipe.class), self.clock.passed());
        let free = recipe.max_in_flight.saturating_sub(self.runs_in_flight(&recipe.class));
        if free == 0 {
            return None;
        }
        let (mut namespaces, mut nodes) = (HashMap::<&str, usize>::new(), HashMap::<&str, usize>::new());
        for job in self.visible_runs(&class) {
            self.users_of(job).for_each(|namespace| *namespaces.entry(namespace).or_default() += 1);
            job.node.iter().for_each(|node| *nodes.entry(node).or_default() += job.runs());
        }
        for expected in self.expected_runs(&class, now) {
            *namespaces.entry(&expected.namespace).or_default() += 1;
            expected.node.iter().for_each(|node| *nodes.entry(node).or_default() += 1);
        }
        let for_pool = match &recipe.pool {
            Some(pool) if with_pool => pool.slots(recipe.max_in_flight).saturating_sub(self.pool_runs(&class, now)),
            _ => free,
        };
        let most = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        Some(FreeSlots {
            free,
            for_pool,
            namespaces: (most(recipe.max_in_flight_per_namespace), namespaces),
            nodes: (most(recipe.max_in_flight_per_node), nodes),
        })
    }

    /// Returns the current recipe of the class. All requests for slots follow the present config, whatever the version
    /// of their runs.
    fn current<'a>(&'a self, recipe: &'a Recipe) -> &'a Recipe {
        match self.classes.lookup(&recipe.class) {
            ClassLookup::Ours(found) => found.recipe.as_deref().unwrap_or(recipe),
            _ => recipe,
        }
    }

    /// Returns the flow of a request.
    fn flow(&self, slot_request: &SlotRequest) -> Flow {
        let is_request =
            matches!(&slot_request.key, WorkItem::Claim(name) if is_pool_request_name(name, &self.identity.namespace));
        let deletes = matches!(slot_request.operation, Operation::Delete | Operation::DeleteSnapshot);
        let (namespace, node) = (slot_request.namespace.clone(), slot_request.node.clone());
        Flow { for_pool: is_request && !deletes, namespace, deletes, node }
    }

    /// Returns the runs of a class, by its label value, that use a slot and are in progress. Runs on a dead node do not
    /// count, so that such a node does not block others.
    fn visible_runs(&self, class: &str) -> impl Iterator<Item = &Job> {
        let runs =
            self.jobs.values().filter(move |job| !job.is_over && job.run_labels.class == class && needs_slot(job));
        runs.filter(|job| !self.is_lost(job)).map(|job| &**job)
    }

    /// Returns the runs that are about to begin.
    fn expected_runs(&self, class: &str, now: Duration) -> impl Iterator<Item = &Expectation> {
        let runs = self.expected.iter().filter(move |(_, expected)| expected.class == class);
        runs.filter(move |(job, expected)| self.batches.may_still_appear(job, expected, now))
            .map(|(_, expected)| expected)
    }

    /// Counts the runs of a class, by its label value, that make pooled volumes.
    fn pool_runs(&self, class: &str, now: Duration) -> usize {
        let visible = self.visible_runs(class).flat_map(|job| job.claims());
        let visible = visible.filter(|name| is_pool_request_name(name, &self.identity.namespace)).count();
        visible + self.expected_runs(class, now).filter(|expected| expected.for_pool).count()
    }

    /// Returns the namespaces of the users for whom a Job runs, one for each volume or snapshot.
    fn users_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a str> {
        let of_volume = |member: &'a Member| self.volumes.get(member.volume()?).map(|volume| volume.user_namespace());
        job.claims().map(|claim| claim.namespace.as_str()).chain(job.members.iter().filter_map(of_volume))
    }

    /// Counts the runs of a class that are in progress or about to begin.
    pub fn runs_in_flight(&self, class: &str) -> usize {
        let class = label_value(class);
        let observed = self.visible_runs(&class).map(Job::runs).sum::<usize>();
        observed + self.expected_runs(&class, self.clock.passed()).count()
    }

    /// Adds a run without a slot to the queue. Returns the items whose turn is now.
    pub fn wait_for_slot(&mut self, slot_request: &SlotRequest, recipe: &Recipe) -> Vec<WorkItem> {
        self.fair_queue.enqueue(&slot_request.key, &recipe.class, self.flow(slot_request), self.clock.passed());
        self.dispatch(recipe)
    }

    /// Removes an item from the queue. If it was its turn, returns the items whose turn is now.
    pub fn dequeue(&mut self, key: &WorkItem) -> Vec<WorkItem> {
        match self.fair_queue.dequeue(key) {
            Some((class, _)) => self.wake_next(&class),
            None => Vec::new(),
        }
    }

    fn wake_next(&self, class: &str) -> Vec<WorkItem> {
        let recipe = match self.classes.lookup(class) {
            ClassLookup::Ours(found) => found.recipe.as_ref().ok(),
            _ => None,
        };
        match recipe {
            Some(recipe) => self.dispatch(recipe),
            // Without a config the number of slots is unknown, and the first item asks.
            None => self
                .fair_queue
                .dispatch(class, &FreeSlots::for_all(), self.clock.passed())
                .next()
                .cloned()
                .into_iter()
                .collect(),
        }
    }

    /// Returns the items that may use the slot of a run that has ended.
    pub(super) fn wake_for_slot(&self, ended: &Job) -> Vec<WorkItem> {
        self.wake_for_slot_of(&ended.run_labels.class)
    }

    /// Returns the items whose turn is now, in a class given by its label value.
    pub(super) fn wake_for_slot_of(&self, label: &str) -> Vec<WorkItem> {
        let class = self.fair_queue.classes().find(|class| label_value(class) == label);
        class.map(|class| self.wake_next(class)).unwrap_or_default()
    }

    /// Records that this process has created a Job. Until the watch shows the Job, it does not count as absent.
    pub fn expect_job(&mut self, job: &str) {
        let since = self.clock.passed();
        let expected = self.expected.entry(job.to_owned()).or_default();
        (expected.since, expected.created) = (since, true);
    }

    /// Records that the Job was not created. Returns the items that get its slot.
    pub fn cancel_expectation(&mut self, job: &str) -> Vec<WorkItem> {
        match self.expected.remove(job) {
            Some(expected) => self.wake_for_slot_of(&expected.class),
            None => Vec::new(),
        }
    }

    /// Checks whether a Job was created a moment ago and is not visible yet.
    pub fn is_expected(&self, job: &str) -> bool {
        let awaited = |expected: &Expectation| self.batches.may_still_appear(job, expected, self.clock.passed());
        self.expected.get(job).is_some_and(|expected| expected.created && awaited(expected))
    }

    /// Checks the same for all Jobs whose names have this prefix.
    pub fn has_expectation(&self, prefix: &str) -> bool {
        let from = self.expected.range(prefix.to_owned()..).take_while(|(job, _)| job.starts_with(prefix));
        from.into_iter().any(|(job, _)| self.is_expected(job))
    }

    /// Returns how often somebody deleted the provision Job with this name while it was in progress.
    pub fn removed(&self, id: &str, job: &str) -> Option<RemovedJob> {
        self.removed.get(id).filter(|(name, _)| name.name == job).map(|(_, removed)| *removed)
    }

    /// Records that somebody deleted a Job. If it was in progress, it is counted until the claim has its volume.
    pub(super) fn note_removed(&mut self, job: &Job) {
        if job.run_labels.operation != "provision" || job.is_over {
            return;
        }
        let alone = job.members.is_empty().then(|| (job.run_labels.id.clone(), job.name.name.clone()));
        let members = job.members.iter().map(|member| (member.id.clone(), member.job_name(&job.name.name)));
        for (id, name) in members.chain(alone).filter(|(id, _)| self.claim_by_id.contains_key(id)) {
            let before = self.removed(&id, &name).map_or(0, |removed| removed.times);
            let removed = RemovedJob { times: before.saturating_add(1), at: self.clock.now() };
            self.removed.insert(id, (ObjectName::new(&job.name.namespace, name), removed));
        }
    }

    /// Checks whether a pod of the Job is on a node that does not answer.
    pub(super) fn is_lost(&self, job: &Job) -> bool {
        let pods = self.pods_by_id.get(&job.run_labels.id).into_iter().flatten().filter_map(|name| self.pods.get(name));
        let mut nodes =
            pods.filter(|pod| pod.job == job.name.name && !pod.is_over()).filter_map(|pod| pod.node.as_ref());
        nodes.any(|node| self.nodes.get(node).is_none_or(|node| !node.reachable))
    }
}

/// Checks whether a run needs a slot. Runs for a volume or a snapshot do. Runs for a whole class have their own rate
/// limit.
fn needs_slot(job: &Job) -> bool {
    [Operation::List, Operation::Capacity].iter().all(|operation| operation.as_str() != job.run_labels.operation)
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
