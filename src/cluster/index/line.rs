//! Who may begin a run: places, who waits for one, and the Jobs that are created or removed.

use std::collections::HashMap;

use contract::request::Operation;

use super::pools::is_paced;
use super::{Asker, EXPECTED, Expected, IN_LINE, Index, Key, Waiting};
use crate::claim::decide::Removed;
use crate::config::Recipe;
use crate::config::classes::Lookup;
use crate::object::ObjectName;
use crate::run::view::Job;

impl Index {
    /// Takes one of a class's places for a run, before its Job exists. Says whether there was one for this claim or content;
    /// else it should [stand in line](Index::stand_in_line).
    pub fn reserve(&mut self, job: &str, asker: &Asker, recipe: &Recipe) -> bool {
        let mut expected = std::mem::take(&mut self.expected);
        expected.retain(|job, expected| self.is_awaited(job, expected));
        self.expected = expected;
        if !self.expected.contains_key(job) && !self.has_room(asker, recipe) {
            return false;
        }
        self.leave_line(&asker.key);
        self.revisions_used.insert(recipe.record.hash(), self.clock.passed());
        let since = self.clock.passed();
        let class = crate::object::label_value(&recipe.class);
        let (namespace, for_pool) = (asker.namespace.clone(), self.is_for_pool(asker));
        let expected = Expected { since, class, namespace, for_pool, ..Expected::default() };
        self.expected.insert(job.to_owned(), expected);
        true
    }

    /// A class has a place for this run, also when those that came before it have had theirs.
    pub fn has_room(&self, asker: &Asker, recipe: &Recipe) -> bool {
        self.turns(recipe, Some(asker)).contains(&asker)
    }

    /// Those in line who have a place now, in their order. Who does not stand in it yet comes last.
    fn turns<'a>(&'a self, recipe: &Recipe, asks: Option<&'a Asker>) -> Vec<&'a Asker> {
        let class = recipe.class.as_str();
        let mut free = recipe.max_in_flight.saturating_sub(self.runs_in_flight(class));
        let stands = |waiting: &&Waiting| asks == Some(&waiting.asker) || self.is_waiting(waiting);
        if free == 0 {
            return Vec::new();
        }
        let line = self.line.values().filter(|waiting| waiting.class == class).filter(stands);
        let newcomer = asks.filter(|asks| self.line.values().all(|waiting| waiting.asker != **asks));
        let all = line.map(|waiting| &waiting.asker).chain(newcomer);
        // What is to be kept ready delays no claim.
        let (requests, claims): (Vec<_>, Vec<_>) = all.partition(|asker| self.is_for_pool(asker));
        let mut for_pool = match (requests.is_empty(), &recipe.pool) {
            (true, _) => 0,
            (false, Some(pool)) => pool.places(recipe.max_in_flight).saturating_sub(self.pool_runs(class)),
            (false, None) => free,
        };
        let mut free_in: HashMap<&str, usize> = HashMap::new();
        let mut turns = Vec::new();
        for asker in claims.into_iter().chain(requests) {
            if free == 0 {
                break;
            }
            if self.is_for_pool(asker) {
                if for_pool == 0 {
                    break;
                }
                for_pool -= 1;
            }
            if let Some(most) = recipe.max_in_flight_per_namespace {
                let namespace = asker.namespace.as_str();
                let left = || most.saturating_sub(self.runs_in_namespace(class, namespace));
                let free_here = free_in.entry(namespace).or_insert_with(left);
                // Those of other namespaces do not wait for this one.
                if *free_here == 0 {
                    continue;
                }
                *free_here -= 1;
            }
            free -= 1;
            turns.push(asker);
        }
        turns
    }

    /// The run would be for a volume that is to be kept ready.
    fn is_for_pool(&self, asker: &Asker) -> bool {
        matches!(&asker.key, Key::Claim(name) if is_paced(name, &self.identity.namespace))
    }

    /// Runs of a class for volumes that are to be kept ready.
    fn pool_runs(&self, class: &str) -> usize {
        let class = crate::object::label_value(class);
        let namespace = &self.identity.namespace;
        let seen = self.jobs.values().filter(|job| !job.over && job.marks.class == class && takes_a_place(job));
        let seen = seen.filter(|job| !self.is_lost(job)).flat_map(|job| job.claims());
        let expected = self.expected.iter().filter(|(_, e)| e.for_pool && e.class == class);
        let expected = expected.filter(|(job, e)| self.is_awaited(job, e));
        seen.filter(|name| is_paced(name, namespace)).count() + expected.count()
    }

    /// There is no place for a run: places go to those that came first. Who does not ask again for a while has gone.
    pub fn stand_in_line(&mut self, asker: &Asker, class: &str) {
        let asked = self.clock.passed();
        match self.line.values_mut().find(|waiting| waiting.asker == *asker) {
            Some(waiting) => (waiting.asked, waiting.class) = (asked, class.to_owned()),
            None => {
                let clock = &self.clock;
                self.line.retain(|_, waiting| clock.since(waiting.asked) < IN_LINE);
                let number = self.line.last_key_value().map_or(0, |(number, _)| number + 1);
                self.line.insert(number, Waiting { asker: asker.clone(), class: class.to_owned(), asked });
            }
        }
    }

    pub(super) fn leave_line(&mut self, key: &Key) {
        self.line.retain(|_, waiting| waiting.asker.key != *key);
    }

    pub(super) fn is_waiting(&self, waiting: &Waiting) -> bool {
        self.clock.since(waiting.asked) < IN_LINE
    }

    /// A Job was created by this process: until the watch shows it, it is not taken for absent.
    pub fn expect_job(&mut self, job: &str) {
        let since = self.clock.passed();
        let expected = self.expected.entry(job.to_owned()).or_default();
        (expected.since, expected.created) = (since, true);
    }

    /// The Job was not created after all.
    pub fn forget_expected(&mut self, job: &str) {
        self.expected.remove(job);
    }

    /// A Job was created a moment ago and is not seen yet.
    pub fn is_expected(&self, job: &str) -> bool {
        self.expected.get(job).is_some_and(|expected| expected.created && self.is_awaited(job, expected))
    }

    /// What is expected may still come to be seen.
    pub(super) fn is_awaited(&self, job: &str, expected: &Expected) -> bool {
        let batch = expected.batch.as_ref().map_or(job, |(batch, _)| batch);
        self.is_being_created(batch) || self.clock.since(expected.since) < EXPECTED
    }

    /// The same of any Job whose name begins so.
    pub fn is_any_expected(&self, prefix: &str) -> bool {
        let from = self.expected.range(prefix.to_owned()..).take_while(|(job, _)| job.starts_with(prefix));
        from.into_iter().any(|(job, _)| self.is_expected(job))
    }

    /// How often the provision Job of this name was removed while it was under way.
    pub fn removed(&self, id: &str, job: &str) -> Option<Removed> {
        self.removed.get(id).filter(|(name, _)| name.name == job).map(|(_, removed)| *removed)
    }

    /// Somebody removed a Job: if it was under way, how often is remembered until its claim has its volume.
    pub(super) fn note_removed(&mut self, job: &Job) {
        if job.marks.operation != "provision" || job.over {
            return;
        }
        let alone = job.members.is_empty().then(|| (job.marks.id.clone(), job.name.name.clone()));
        let members = job.members.iter().map(|member| (member.id.clone(), member.job_name(&job.name.name)));
        for (id, name) in members.chain(alone).filter(|(id, _)| self.claim_by_id.contains_key(id)) {
            let before = self.removed(&id, &name).map_or(0, |removed| removed.times);
            let removed = Removed { times: before.saturating_add(1), at: self.clock.now() };
            self.removed.insert(id, (ObjectName::new(&job.name.namespace, name), removed));
        }
    }

    /// A pod of the Job is on a node that does not answer.
    pub(super) fn is_lost(&self, job: &Job) -> bool {
        let pods = self.pods_by_id.get(&job.marks.id).into_iter().flatten().filter_map(|name| self.pods.get(name));
        let mut nodes =
            pods.filter(|pod| pod.job == job.name.name && !pod.is_over()).filter_map(|pod| pod.node.as_ref());
        nodes.any(|node| self.nodes.get(node).is_none_or(|node| !node.reachable))
    }

    /// Runs of a class that make something and go on, with those that are about to. A dead node must not keep others from
    /// work: runs that are lost there do not count.
    pub fn runs_in_flight(&self, class: &str) -> usize {
        let class = crate::object::label_value(class);
        let seen = self
            .jobs
            .values()
            .filter(|job| !job.over && job.marks.class == class && takes_a_place(job))
            .filter(|job| !self.is_lost(job))
            .map(|job| job.runs())
            .sum::<usize>();
        let expected = self.expected.iter().filter(|(_, e)| e.class == class && !e.deletes);
        let expected = expected.filter(|(job, e)| self.is_awaited(job, e));
        seen + expected.count()
    }

    /// A run of a class has ended: those who are first in line may have the places that are free.
    pub(super) fn next_in_line(&self, ended: &Job) -> Vec<Key> {
        let of_class = |waiting: &&Waiting| crate::object::label_value(&waiting.class) == ended.marks.class;
        let line = self.line.values().filter(of_class).filter(|waiting| self.is_waiting(waiting));
        let mut line = line.peekable();
        let Some(first) = line.peek() else { return Vec::new() };
        let mut turns = match self.classes.lookup(&first.class) {
            Lookup::Ours(found) => found.recipe.as_ref().map(|recipe| self.turns(recipe, None)).unwrap_or_default(),
            _ => Vec::new(),
        };
        if turns.is_empty() {
            turns.push(&first.asker);
        }
        turns.into_iter().map(|asker| asker.key.clone()).collect()
    }
}

/// Of the runs that go on only those that make something have a limited number of places: what was made can always be
/// taken away, grow and change.
pub(super) fn takes_a_place(job: &Job) -> bool {
    [Operation::Provision, Operation::Snapshot].iter().any(|operation| operation.as_str() == job.marks.operation)
}
