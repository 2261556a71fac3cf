//! Slots: the runs that use them, and the items that wait for one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::config::Recipe;
use flex_core::object::label_value;
use flex_core::run::view::Job;

use crate::state::expectations::{Expectation, Expectations, Membership};
use crate::state::facts::Facts;
use crate::state::fair_queue::{FairQueue, Flow, FreeSlots, SlotsPerName};
use crate::state::outages::Outages;
use crate::state::slot_request::SlotRequest;
use crate::state::work_item::WorkItem;
use flex_core::run::outage::{Failures, Pace};
use flex_core::run::slot_wait::NoSlot;

/// The slots that are taken before their Jobs are visible, and the items that wait for one.
#[derive(Debug, Default)]
pub struct Slots {
    /// The Jobs that no watch shows yet.
    expectations: Expectations,
    queue: FairQueue,
    /// The failures that let the runs of an operation begin one at a time.
    outages: Outages,
}

impl Slots {
    /// Returns the ends of runs, for a change.
    pub fn outages_mut(&mut self) -> &mut Outages {
        &mut self.outages
    }

    /// Returns the Jobs that no watch shows yet. Each takes a slot.
    pub fn expectations(&self) -> &Expectations {
        &self.expectations
    }

    /// Returns the Jobs that no watch shows yet, for a change. A Job that is removed frees its slot.
    pub fn expectations_mut(&mut self) -> &mut Expectations {
        &mut self.expectations
    }

    /// Takes a slot of the class for a run, before its Job exists. Returns whether there was one for this claim, volume
    /// or content. If not, the item must [join the queue](Slots::wait).
    pub fn acquire(&mut self, job: &str, slot_request: &SlotRequest, recipe: &Recipe, facts: &Facts) -> bool {
        self.expectations.drop_expired(facts.now());
        let flow = self.flow(slot_request, recipe, facts);
        let class_label = label_value(&recipe.class);
        if !self.expectations.contains(job) {
            if !self.is_next(slot_request, &flow, recipe, facts) {
                return false;
            }
            self.outages.begin(&class_label, slot_request.operation, facts.clock.now());
        }
        self.queue.dequeue(&slot_request.item);
        self.queue.record_dispatch(&recipe.class, &flow);
        let Flow { for_pool, namespace, node, .. } = flow;
        let expected = Expectation {
            since: facts.now(),
            class_label,
            operation: Some(slot_request.operation),
            namespace,
            for_pool,
            node,
            ..Expectation::default()
        };
        self.expectations.add(job, expected);
        true
    }

    /// Keeps the slots of a Job that is gone, for the runs of its claims and volumes that begin again, unless they have begun.
    pub fn keep(&mut self, job: &Job, facts: &Facts) {
        let members = (0..job.members.len()).filter_map(|number| job.as_seen_by(number, &[], false));
        let alone = (job.members.is_empty() && needs_slot(job)).then(|| job.clone());
        for run in members.chain(alone) {
            let volume = run.volume.as_ref().and_then(|name| facts.cache.volumes.get(name));
            let claim = run.claim.as_ref().and_then(|name| facts.cache.claims.get(name));
            let has_begun = self.expectations.is_expected(&run.name.name, facts.now());
            if has_begun || volume.is_none() && claim.is_none_or(|claim| claim.is_bound()) {
                continue;
            }
            let of_volume = volume.map(|volume| volume.user_namespace().to_owned());
            let of_claim = run.claim.as_ref().map(|claim| claim.namespace.clone());
            let for_pool = run.claim.as_ref().is_some_and(|claim| facts.is_pool_request_name(claim));
            let item = run.claim.map(WorkItem::Claim).or(run.volume.map(WorkItem::Volume));
            let expected = Expectation {
                since: facts.now(),
                class_label: run.run_labels.class,
                operation: run.run_labels.operation.as_str().parse().ok(),
                namespace: of_claim.or(of_volume).unwrap_or_default(),
                for_pool,
                node: run.node,
                batch: run.batch.zip(item).map(|(batch, member)| Membership { batch: batch.name, member }),
                ..Expectation::default()
            };
            self.expectations.add(&run.name.name, expected);
        }
    }

    /// Returns why the class has no slot for this run, after those that wait before it; `None` if it has one. An item in
    /// the queue counts for the node with which it joined.
    pub fn no_slot(&self, slot_request: &SlotRequest, recipe: &Recipe, facts: &Facts) -> Option<NoSlot> {
        let stands = self.queue.flow_of(&slot_request.item, &recipe.class).cloned();
        let flow = stands.unwrap_or_else(|| self.flow(slot_request, recipe, facts));
        if self.is_next(slot_request, &flow, recipe, facts) {
            return None;
        }
        let class = label_value(&recipe.class);
        let pace = self.paces(&class, facts).find(|(operation, _)| *operation == slot_request.operation);
        Some(match pace {
            None | Some((_, Pace::Normal)) => NoSlot::Taken,
            Some((_, Pace::Pause(until))) => NoSlot::Outage(Some(until)),
            Some((_, Pace::Probe)) => NoSlot::Outage(None),
        })
    }

    /// Returns the operations of a class, by its label value, that have an outage, with the pace of each.
    fn paces(&self, class: &str, facts: &Facts) -> impl Iterator<Item = (Operation, Pace)> {
        let pace = move |(operation, failures): (Operation, Failures)| {
            let is_visible = visible_runs(class, facts).any(|job| job.run_labels.operation == operation);
            let mut expected = self.expectations.of_class(class, facts.now());
            let is_running = is_visible || expected.any(|(_, expected)| expected.operation == Some(operation));
            (operation, failures.pace(is_running, facts.clock.now()))
        };
        self.outages.of(class).map(pace)
    }

    /// Returns the operations of a class that have an outage.
    pub fn outages_of(&self, class: &str) -> impl Iterator<Item = Operation> {
        self.outages.of(&label_value(class)).map(|(operation, _)| operation)
    }

    fn is_next(&self, slot_request: &SlotRequest, flow: &Flow, recipe: &Recipe, facts: &Facts) -> bool {
        let Some(free_slots) = self.free(recipe, flow.for_pool, facts) else { return false };
        self.queue.is_next(&slot_request.item, flow, &recipe.class, &free_slots, facts.now())
    }

    /// Adds a run without a slot to the queue. Returns the items whose turn is now.
    pub fn wait(&mut self, slot_request: &SlotRequest, recipe: &Recipe, facts: &Facts) -> Vec<WorkItem> {
        let flow = self.flow(slot_request, recipe, facts);
        self.queue.enqueue(&slot_request.item, &recipe.class, flow, facts.now());
        self.dispatch(recipe, facts)
    }

    /// Removes an item from the queue for slots. Returns the class for which it waited.
    pub fn stop_waiting_for_slot(&mut self, item: &WorkItem) -> Option<String> {
        self.queue.dequeue(item).map(|position| position.class)
    }

    /// Returns the items of a class whose turn is now, in their order.
    pub fn next(&self, class: &str, facts: &Facts) -> Vec<WorkItem> {
        match facts.configs.recipe_of(class) {
            Some(recipe) => self.dispatch(recipe, facts),
            // Without a config the number of slots is unknown, and the first item asks.
            None => self.waiting(class, facts.now()).take(1).cloned().collect(),
        }
    }

    /// Returns the items whose turn is now, in a class given by its label value.
    pub fn next_of_label(&self, label: &str, facts: &Facts) -> Vec<WorkItem> {
        let class = self.queue.classes().find(|class| label_value(class) == label);
        class.map(|class| self.next(class, facts)).unwrap_or_default()
    }

    fn dispatch(&self, recipe: &Recipe, facts: &Facts) -> Vec<WorkItem> {
        let Some(free_slots) = self.free(recipe, true, facts) else { return Vec::new() };
        self.queue.dispatch(&recipe.class, &free_slots, facts.now()).cloned().collect()
    }

    /// Returns all items of a class that wait for a slot, in the order in which they would get one.
    pub fn waiting(&self, class: &str, now: Duration) -> impl Iterator<Item = &WorkItem> {
        self.queue.dispatch(class, &FreeSlots::for_all(), now)
    }

    /// Checks whether an item waits for a slot that is not for a pool.
    pub fn has_claims(&self, class: &str, now: Duration) -> bool {
        self.queue.has_claims(class, now)
    }

    /// Counts the runs of a class that are in progress or about to begin.
    pub fn in_flight(&self, class: &str, facts: &Facts) -> usize {
        let class = label_value(class);
        let observed = visible_runs(&class, facts).map(Job::runs).sum::<usize>();
        observed + self.expectations.of_class(&class, facts.now()).count()
    }

    /// Returns the free slots of a class, if there are any. All requests follow the present config, whatever the
    /// version of their runs.
    pub fn free<'a>(&'a self, recipe: &'a Recipe, with_pool: bool, facts: &'a Facts) -> Option<FreeSlots<'a>> {
        let recipe = facts.configs.recipe_of(&recipe.class).map_or(recipe, AsRef::as_ref);
        let (class, now) = (label_value(&recipe.class), facts.now());
        let free = recipe.max_in_flight.saturating_sub(self.in_flight(&recipe.class, facts));
        if free == 0 {
            return None;
        }
        let (mut namespaces, mut nodes) =
            (HashMap::<Cow<'_, str>, usize>::new(), HashMap::<Cow<'_, str>, usize>::new());
        for job in visible_runs(&class, facts) {
            facts.cache.users_of(job).for_each(|namespace| *namespaces.entry(namespace).or_default() += 1);
            job.node.iter().for_each(|node| *nodes.entry(node.as_str().into()).or_default() += job.runs());
        }
        for (_, expected) in self.expectations.of_class(&class, now) {
            *namespaces.entry(expected.namespace.as_str().into()).or_default() += 1;
            expected.node.iter().for_each(|node| *nodes.entry(node.as_str().into()).or_default() += 1);
        }
        let for_pool = match &recipe.pool {
            Some(pool) if with_pool => pool.slots(recipe.max_in_flight).saturating_sub(self.pool_runs(&class, facts)),
            _ => free,
        };
        let most = |limit: Option<usize>| limit.unwrap_or(usize::MAX);
        let free_in_outage = |(operation, pace): (Operation, Pace)| (operation, usize::from(pace == Pace::Probe));
        Some(FreeSlots {
            free,
            for_pool,
            in_outage: self.paces(&class, facts).map(free_in_outage).collect(),
            namespaces: SlotsPerName { most: most(recipe.max_in_flight_per_namespace), used: namespaces },
            nodes: SlotsPerName { most: most(recipe.max_in_flight_per_node), used: nodes },
        })
    }

    /// Counts the runs of a class, by its label value, that make pooled volumes.
    fn pool_runs(&self, class: &str, facts: &Facts) -> usize {
        let visible = visible_runs(class, facts).flat_map(|job| job.claims());
        let visible = visible.filter(|name| facts.is_pool_request_name(name)).count();
        visible + self.expectations.of_class(class, facts.now()).filter(|(_, expected)| expected.for_pool).count()
    }

    /// Returns the flow of a request.
    fn flow(&self, slot_request: &SlotRequest, recipe: &Recipe, facts: &Facts) -> Flow {
        let SlotRequest { item, operation, namespace, node } = slot_request.clone();
        let is_request = matches!(&item, WorkItem::Claim(name) if facts.is_pool_request_name(name));
        let for_pool = is_request && !matches!(operation, Operation::Delete | Operation::DeleteSnapshot);
        let has_failed = self.outages.has_failed(&label_value(&recipe.class), operation, &item);
        Flow { for_pool, namespace, operation, has_failed, node }
    }
}

/// Returns the runs of a class, by its label value, that use a slot and are in progress. Runs on a dead node do not
/// count, so that such a node does not block others.
fn visible_runs<'a>(class: &str, facts: &'a Facts) -> impl Iterator<Item = &'a Job> {
    let runs = facts.cache.runs.jobs();
    let runs = runs.filter(move |job| !job.is_over && job.run_labels.class == class && needs_slot(job));
    runs.filter(|job| !facts.cache.is_lost(job)).map(|job| &**job)
}

/// Checks whether a run needs a slot. Runs for a volume or a snapshot do. Runs for a whole class have their own rate
/// limit.
fn needs_slot(job: &Job) -> bool {
    !job.run_labels.operation.is_of_no_volume()
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
