//! Slots, and the Jobs that are created or deleted.

use std::collections::HashMap;
use std::time::Duration;

use contract::request::Operation;

use super::line::{Lane, Room};
use super::pool::is_paced;
use super::{Asker, Expected, Index, WorkItem};
use crate::claim::decide::RemovedJob;
use crate::config::Recipe;
use crate::config::classes::ClassLookup;
use crate::object::{ObjectName, label_value};
use crate::run::batch::Member;
use crate::run::view::Job;

impl Index {
    /// Takes a slot of the class for a run, before its Job exists. Returns whether there was one for this claim, volume
    /// or content. If not, the item must [join the queue](Index::stand_in_line).
    pub fn reserve(&mut self, job: &str, asker: &Asker, recipe: &Recipe) -> bool {
        self.forget_what_never_came();
        let lane = self.lane(asker);
        if !self.expected.contains_key(job) && !self.is_turn_of(asker, &lane, recipe) {
            return false;
        }
        self.line.leave(&asker.key);
        self.line.serve(&recipe.class, &lane);
        let since = self.clock.passed();
        self.revisions_used.insert(recipe.hash.clone(), since);
        let class = label_value(&recipe.class);
        let Lane { for_pool, namespace, node, .. } = lane;
        let operation = Some(asker.operation);
        let expected = Expected { since, class, operation, namespace, for_pool, node, ..Expected::default() };
        self.expected.insert(job.to_owned(), expected);
        true
    }

    /// Removes expectations that have expired.
    fn forget_what_never_came(&mut self) {
        let (now, batches) = (self.clock.passed(), &self.batches);
        self.expected.retain(|job, expected| batches.is_awaited(job, expected, now));
    }

    /// Checks whether the class has a slot for this run, after those that wait before it. An item in the queue counts
    /// for the node with which it joined.
    pub fn has_room(&self, asker: &Asker, recipe: &Recipe) -> bool {
        let stands = self.line.lane_of(&asker.key, &recipe.class).cloned();
        self.is_turn_of(asker, &stands.unwrap_or_else(|| self.lane(asker)), recipe)
    }

    fn is_turn_of(&self, asker: &Asker, lane: &Lane, recipe: &Recipe) -> bool {
        let Some(room) = self.room(recipe, lane.for_pool) else { return false };
        self.line.is_turn_of(&asker.key, lane, &recipe.class, &room, self.clock.passed())
    }

    /// Returns the waiting items that get a slot now, in their order.
    fn turns(&self, recipe: &Recipe) -> Vec<WorkItem> {
        let Some(room) = self.room(recipe, true) else { return Vec::new() };
        self.line.turns(&recipe.class, &room, self.clock.passed()).cloned().collect()
    }

    /// Returns the free slots of a class, if there are any.
    pub(super) fn room(&self, recipe: &Recipe, with_pool: bool) -> Option<Room<'_>> {
        let recipe = self.current(recipe);
        let (class, now) = (label_value(&recipe.class), self.clock.passed());
        let free = recipe.max_in_flight.saturating_sub(self.runs_in_flight(&recipe.class));
        if free == 0 {
            return None;
        }
        let (mut namespaces, mut nodes) = (HashMap::<&str, usize>::new(), HashMap::<&str, usize>::new());
        for job in self.seen_runs(&class) {
            self.users_of(job).for_each(|namespace| *namespaces.entry(namespace).or_default() += 1);
            job.node.iter().for_each(|node| *nodes.entry(node).or_default() += job.runs());
        }
        for expected in self.expected_runs(&class, now) {
            *namespaces.entry(&expected.namespace).or_default() += 1;
            expected.node.iter().for_each(|node| *nodes.entry(node).or_default() += 1);
        }
        let for_pool = match &recipe.pool {
            Some(pool) if with_pool => pool.places(recipe.max_in_flight).saturating_sub(self.pool_runs(&class, now)),
            _ => free,
        };
        let most = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        Some(Room {
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
    fn lane(&self, asker: &Asker) -> Lane {
        let is_request = matches!(&asker.key, WorkItem::Claim(name) if is_paced(name, &self.identity.namespace));
        let deletes = matches!(asker.operation, Operation::Delete | Operation::DeleteSnapshot);
        let (namespace, node) = (asker.namespace.clone(), asker.node.clone());
        Lane { for_pool: is_request && !deletes, namespace, deletes, node }
    }

    /// Returns the runs of a class, by its label value, that use a slot and are in progress. Runs on a dead node do not
    /// count, so that such a node does not block others.
    fn seen_runs(&self, class: &str) -> impl Iterator<Item = &Job> {
        let runs =
            self.jobs.values().filter(move |job| !job.is_over && job.run_labels.class == class && takes_a_place(job));
        runs.filter(|job| !self.is_lost(job)).map(|job| &**job)
    }

    /// Returns the runs that are about to begin.
    fn expected_runs(&self, class: &str, now: Duration) -> impl Iterator<Item = &Expected> {
        let runs = self.expected.iter().filter(move |(_, expected)| expected.class == class);
        runs.filter(move |(job, expected)| self.batches.is_awaited(job, expected, now)).map(|(_, expected)| expected)
    }

    /// Counts the runs of a class, by its label value, that make pooled volumes.
    fn pool_runs(&self, class: &str, now: Duration) -> usize {
        let seen = self.seen_runs(class).flat_map(|job| job.claims());
        let seen = seen.filter(|name| is_paced(name, &self.identity.namespace)).count();
        seen + self.expected_runs(class, now).filter(|expected| expected.for_pool).count()
    }

    /// Returns the namespaces of the users for whom a Job runs, one for each volume or snapshot.
    fn users_of<'a>(&'a self, job: &'a Job) -> impl Iterator<Item = &'a str> {
        let of_volume = |member: &'a Member| self.volumes.get(member.volume()?).map(|volume| volume.user_namespace());
        job.claims().map(|claim| claim.namespace.as_str()).chain(job.members.iter().filter_map(of_volume))
    }

    /// Counts the runs of a class that are in progress or about to begin.
    pub fn runs_in_flight(&self, class: &str) -> usize {
        let class = label_value(class);
        let seen = self.seen_runs(&class).map(Job::runs).sum::<usize>();
        seen + self.expected_runs(&class, self.clock.passed()).count()
    }

    /// Adds a run without a slot to the queue. Returns the items whose turn is now.
    pub fn stand_in_line(&mut self, asker: &Asker, recipe: &Recipe) -> Vec<WorkItem> {
        self.line.stand(&asker.key, &recipe.class, self.lane(asker), self.clock.passed());
        self.turns(recipe)
    }

    /// Removes an item from the queue. If it was its turn, returns the items whose turn is now.
    pub fn leave_line(&mut self, key: &WorkItem) -> Vec<WorkItem> {
        match self.line.leave(key) {
            Some((class, _)) => self.turns_of(&class),
            None => Vec::new(),
        }
    }

    fn turns_of(&self, class: &str) -> Vec<WorkItem> {
        let recipe = match self.classes.lookup(class) {
            ClassLookup::Ours(found) => found.recipe.as_ref().ok(),
            _ => None,
        };
        match recipe {
            Some(recipe) => self.turns(recipe),
            // Without a config the number of slots is unknown, and the first item asks.
            None => self.line.turns(class, &Room::for_all(), self.clock.passed()).next().cloned().into_iter().collect(),
        }
    }

    /// Returns the items that may use the slot of a run that has ended.
    pub(super) fn next_in_line(&self, ended: &Job) -> Vec<WorkItem> {
        self.turns_in(&ended.run_labels.class)
    }

    /// Returns the items whose turn is now, in a class given by its label value.
    pub(super) fn turns_in(&self, label: &str) -> Vec<WorkItem> {
        let class = self.line.classes().find(|class| label_value(class) == label);
        class.map(|class| self.turns_of(class)).unwrap_or_default()
    }

    /// Records that this process has created a Job. Until the watch shows the Job, it does not count as absent.
    pub fn expect_job(&mut self, job: &str) {
        let since = self.clock.passed();
        let expected = self.expected.entry(job.to_owned()).or_default();
        (expected.since, expected.created) = (since, true);
    }

    /// Records that the Job was not created. Returns the items that get its slot.
    pub fn forget_expected(&mut self, job: &str) -> Vec<WorkItem> {
        match self.expected.remove(job) {
            Some(expected) => self.turns_in(&expected.class),
            None => Vec::new(),
        }
    }

    /// Checks whether a Job was created a moment ago and is not visible yet.
    pub fn is_expected(&self, job: &str) -> bool {
        let awaited = |expected: &Expected| self.batches.is_awaited(job, expected, self.clock.passed());
        self.expected.get(job).is_some_and(|expected| expected.created && awaited(expected))
    }

    /// Checks the same for all Jobs whose names have this prefix.
    pub fn is_any_expected(&self, prefix: &str) -> bool {
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
fn takes_a_place(job: &Job) -> bool {
    [Operation::List, Operation::Capacity].iter().all(|operation| operation.as_str() != job.run_labels.operation)
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
