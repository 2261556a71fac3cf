//! The fair queue: the items that wait for a slot, and whose turn is next.
//!
//! The items of one namespace that need the same node form a flow (`Flow`), in the order of their arrival. Runs that
//! delete have flows of their own, and so have runs of objects whose last run failed. The next slot goes to the namespace
//! with the fewest runs, and among equals to the one that has waited longest for its turn. Within a namespace, runs that
//! delete, runs after a failure and all others take turns. So a namespace that asks for little does not wait behind one
//! that asks for much, and a new claim waits neither for many deletions nor for many claims that fail. The time to find
//! the next turn depends on the number of flows and slots, and not on the number of items.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, btree_map};
use std::time::Duration;

use flex_contract::operation::Operation;

use crate::state::work_item::WorkItem;

/// The time after which an item that does not ask again has left.
const ENTRY_TTL: Duration = Duration::from_secs(75);

/// The number of namespaces whose last dispatches are remembered. If there are more, the dispatches are forgotten as
/// soon as nobody waits.
const MAX_DISPATCHES: usize = 1000;

/// A flow: the common properties of items that wait behind each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The flow is for pooled volumes, which delay no claim.
    pub for_pool: bool,
    /// The namespace of the user.
    pub namespace: String,
    /// The operation of the runs.
    pub operation: Operation,
    /// The last runs of the objects failed.
    pub has_failed: bool,
    /// The node on which the runs must be.
    pub node: Option<String>,
}

/// The number of kinds of flows that take turns within a namespace.
const KINDS: usize = 4;

impl Flow {
    /// Returns the number of the kind.
    fn kind(&self) -> usize {
        match (self.operation, self.has_failed) {
            (Operation::Delete | Operation::DeleteSnapshot, has_failed) => 2 + usize::from(has_failed),
            (_, has_failed) => usize::from(has_failed),
        }
    }
}

/// The number of runs of a class that may still begin.
#[derive(Debug)]
pub struct FreeSlots<'a> {
    /// The free slots of the class.
    pub free: usize,
    /// The free slots for pooled volumes.
    pub for_pool: usize,
    /// The free slots of each operation that has an outage.
    pub in_outage: BTreeMap<Operation, usize>,
    /// The slots of each namespace.
    pub namespaces: SlotsPerName<'a>,
    /// The slots of each node.
    pub nodes: SlotsPerName<'a>,
}

/// The slots of each namespace or node.
#[derive(Debug)]
pub struct SlotsPerName<'a> {
    /// The slots that one of them may use.
    pub most: usize,
    /// The slots that each of them uses.
    pub used: HashMap<Cow<'a, str>, usize>,
}

impl FreeSlots<'_> {
    /// Returns free slots for all items.
    pub fn for_all() -> Self {
        let any = || SlotsPerName { most: usize::MAX, used: HashMap::new() };
        let in_outage = BTreeMap::new();
        FreeSlots { free: usize::MAX, for_pool: usize::MAX, in_outage, namespaces: any(), nodes: any() }
    }
}

/// All waiting items, by class.
#[derive(Debug, Default)]
pub struct FairQueue {
    classes: BTreeMap<String, ClassQueue>,
    entries: HashMap<WorkItem, Position>,
    /// The number for the next arrival or dispatch.
    next: u64,
    /// The time when items that have left were last removed.
    swept: Duration,
}

/// The position of an item that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The class for which it waits.
    pub class: String,
    /// Its flow.
    flow: Flow,
    /// Its number, which counts from the first arrival.
    number: u64,
}

#[derive(Debug, Default)]
struct ClassQueue {
    flows: BTreeMap<Flow, BTreeMap<u64, Waiting>>,
    /// The last dispatch of each namespace, by the kind of flow.
    dispatched: HashMap<String, [u64; KINDS]>,
}

#[derive(Debug)]
struct Waiting {
    item: WorkItem,
    /// The time of the last request for a slot.
    asked: Duration,
}

impl Waiting {
    fn is_there(&self, now: Duration) -> bool {
        now.saturating_sub(self.asked) < ENTRY_TTL
    }
}

impl FairQueue {
    /// Adds an item, or records that it asks again. An item that changes its flow keeps its position.
    pub fn enqueue(&mut self, item: &WorkItem, class: &str, flow: Flow, now: Duration) {
        if now.saturating_sub(self.swept) >= ENTRY_TTL {
            self.sweep(now);
        }
        let number = match self.dequeue(item) {
            Some(before) if before.class == class => before.number,
            _ => self.number(),
        };
        let queue = self.classes.entry(class.to_owned()).or_default();
        let waiting = Waiting { item: item.clone(), asked: now };
        queue.flows.entry(flow.clone()).or_default().insert(number, waiting);
        self.entries.insert(item.clone(), Position { class: class.to_owned(), flow, number });
    }

    /// Removes an item. Returns its position.
    pub fn dequeue(&mut self, item: &WorkItem) -> Option<Position> {
        let position = self.entries.remove(item)?;
        if let Some(queue) = self.classes.get_mut(&position.class)
            && let Some(waiting) = queue.flows.get_mut(&position.flow)
        {
            waiting.remove(&position.number);
            if waiting.is_empty() {
                queue.flows.remove(&position.flow);
            }
        }
        Some(position)
    }

    /// Records that an item of a flow got a slot.
    pub fn record_dispatch(&mut self, class: &str, flow: &Flow) {
        let turn = self.number();
        let queue = self.classes.entry(class.to_owned()).or_default();
        if queue.dispatched.len() >= MAX_DISPATCHES && queue.flows.is_empty() {
            queue.dispatched.clear();
        }
        queue.dispatched.entry(flow.namespace.clone()).or_default()[flow.kind()] = turn;
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn sweep(&mut self, now: Duration) {
        self.swept = now;
        let flows = self.classes.values().flat_map(|queue| queue.flows.values());
        let gone = flows.flat_map(BTreeMap::values).filter(|waiting| !waiting.is_there(now));
        let gone: Vec<WorkItem> = gone.map(|waiting| waiting.item.clone()).collect();
        gone.iter().for_each(|item| drop(self.dequeue(item)));
    }

    /// Returns the classes for which items wait.
    pub fn classes(&self) -> impl Iterator<Item = &String> {
        self.classes.iter().filter(|(_, queue)| !queue.flows.is_empty()).map(|(class, _)| class)
    }

    /// Returns the flow in which an item waits for a class.
    pub fn flow_of(&self, item: &WorkItem, class: &str) -> Option<&Flow> {
        self.entries.get(item).filter(|position| position.class == class).map(|position| &position.flow)
    }

    /// Checks whether an item waits for a slot that is not for a pool.
    pub fn has_claims(&self, class: &str, now: Duration) -> bool {
        let flows = self.classes.get(class).into_iter().flat_map(|queue| &queue.flows);
        let mut claims = flows.filter(|(flow, _)| !flow.for_pool).flat_map(|(_, waiting)| waiting.values());
        claims.any(|waiting| waiting.is_there(now))
    }

    /// Returns the items that get a slot now, in their order.
    pub fn dispatch<'a>(
        &'a self,
        class: &str,
        free_slots: &FreeSlots<'_>,
        now: Duration,
    ) -> impl Iterator<Item = &'a WorkItem> + use<'a> {
        Dispatch::new(self.classes.get(class), None, free_slots, now).map(|turn| turn.item)
    }

    /// Checks whether an item gets a slot now, if it waits in this flow or joins it as the last.
    pub fn is_next(
        &self,
        item: &WorkItem,
        flow: &Flow,
        class: &str,
        free_slots: &FreeSlots<'_>,
        now: Duration,
    ) -> bool {
        let stands = self.entries.get(item).filter(|position| position.class == class);
        let number = stands.map_or(u64::MAX, |position| position.number);
        let asks = Asking { turn: Turn { number, item }, flow };
        Dispatch::new(self.classes.get(class), Some(asks), free_slots, now).any(|turn| turn.number == number)
    }
}

/// The dispatch of the free slots, one after another.
struct Dispatch<'a> {
    heads: Vec<Head<'a>>,
    /// The flows by rank, the next to get a slot first. A rank only falls, when another flow of the namespace has got a
    /// slot, and is then computed again.
    ranked: BinaryHeap<Reverse<(Rank, usize)>>,
    free: usize,
    for_pool: usize,
    in_outage: BTreeMap<Operation, usize>,
    namespaces: Limited,
    nodes: Limited,
    asks: Option<u64>,
    now: Duration,
}

/// The rank of a flow, by its fields in their order. Claims come before pools, then namespaces with the fewest runs,
/// then those that wait longest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    for_pool: bool,
    /// The runs of the namespace.
    runs: usize,
    /// The namespace's last dispatch, or the arrival of the first item, whichever was later.
    waits_since: u64,
    /// The arrival of the first item.
    arrived: u64,
}

/// The turn of an item.
#[derive(Clone, Copy)]
struct Turn<'a> {
    number: u64,
    item: &'a WorkItem,
}

/// An item that asks for a slot, wherever it waits.
struct Asking<'a, 'f> {
    turn: Turn<'a>,
    flow: &'f Flow,
}

/// The first item of a flow, and those behind it.
struct Head<'a> {
    for_pool: bool,
    operation: Operation,
    namespace: usize,
    node: Option<usize>,
    dispatched: u64,
    first: Turn<'a>,
    behind: btree_map::Iter<'a, u64, Waiting>,
}

impl<'a> Dispatch<'a> {
    /// Begins the dispatch of a queue. An item that asks takes part with its number and flow, wherever it waits.
    fn new(
        queue: Option<&'a ClassQueue>,
        asks: Option<Asking<'a, '_>>,
        free_slots: &FreeSlots<'_>,
        now: Duration,
    ) -> Self {
        let mut turns = Dispatch {
            heads: Vec::new(),
            ranked: BinaryHeap::new(),
            free: free_slots.free,
            for_pool: free_slots.for_pool,
            in_outage: free_slots.in_outage.clone(),
            namespaces: Limited { most: free_slots.namespaces.most, has: Vec::new() },
            nodes: Limited { most: free_slots.nodes.most, has: Vec::new() },
            asks: asks.as_ref().map(|asks| asks.turn.number),
            now,
        };
        if free_slots.free == 0 {
            return turns;
        }
        let (mut namespaces, mut nodes) = (HashMap::new(), HashMap::new());
        let dispatched = |flow: &Flow| {
            let turns = queue.and_then(|queue| queue.dispatched.get(&flow.namespace)).copied().unwrap_or_default();
            turns[flow.kind()]
        };
        let mut add = |turns: &mut Self, flow: &Flow, first, behind| {
            let namespace = turns.namespaces.number_of(&flow.namespace, &mut namespaces, &free_slots.namespaces.used);
            let node = flow.node.as_ref().map(|node| turns.nodes.number_of(node, &mut nodes, &free_slots.nodes.used));
            let (for_pool, operation, dispatched) = (flow.for_pool, flow.operation, dispatched(flow));
            let head = Head { for_pool, operation, namespace, node, dispatched, first, behind };
            turns.ranked.push(Reverse((turns.rank(&head), turns.heads.len())));
            turns.heads.push(head);
        };
        for (flow, waiting) in queue.into_iter().flat_map(|queue| &queue.flows) {
            let mut behind = waiting.iter();
            if let Some(first) = turns.next_of(&mut behind) {
                add(&mut turns, flow, first, behind);
            }
        }
        if let Some(Asking { turn, flow }) = asks {
            add(&mut turns, flow, turn, btree_map::Iter::default());
        }
        turns
    }

    fn next_of(&self, behind: &mut btree_map::Iter<'a, u64, Waiting>) -> Option<Turn<'a>> {
        let is_there = |(number, waiting): &(&u64, &Waiting)| waiting.is_there(self.now) && Some(**number) != self.asks;
        behind.find(is_there).map(|(number, waiting)| Turn { number: *number, item: &waiting.item })
    }

    fn rank(&self, head: &Head<'_>) -> Rank {
        let arrived = head.first.number;
        let runs = self.namespaces.has[head.namespace];
        Rank { for_pool: head.for_pool, runs, waits_since: head.dispatched.max(arrived), arrived }
    }
}

impl<'a> Iterator for Dispatch<'a> {
    type Item = Turn<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.free > 0 {
            let Reverse((was, at)) = self.ranked.pop()?;
            let head = &self.heads[at];
            let is = self.rank(head);
            if is != was {
                self.ranked.push(Reverse((is, at)));
                continue;
            }
            let (for_pool, namespace, node, turn) = (head.for_pool, head.namespace, head.node, head.first);
            let is_full = self.namespaces.is_full(namespace) || node.is_some_and(|node| self.nodes.is_full(node));
            let of_operation = self.in_outage.get_mut(&head.operation);
            if is_full || for_pool && self.for_pool == 0 || of_operation.as_ref().is_some_and(|free| **free == 0) {
                // The items behind it do not fit either.
                continue;
            }
            of_operation.into_iter().for_each(|free| *free -= 1);
            self.free -= 1;
            self.for_pool -= usize::from(for_pool);
            self.namespaces.has[namespace] += 1;
            node.into_iter().for_each(|node| self.nodes.has[node] += 1);
            let mut behind = self.heads[at].behind.clone();
            if let Some(next) = self.next_of(&mut behind) {
                let head = &mut self.heads[at];
                (head.first, head.behind) = (next, behind);
                let rank = self.rank(&self.heads[at]);
                self.ranked.push(Reverse((rank, at)));
            }
            return Some(turn);
        }
        None
    }
}

/// The limit and the use of each of several names.
struct Limited {
    most: usize,
    has: Vec<usize>,
}

impl Limited {
    /// Returns the number by which a name is known.
    fn number_of(
        &mut self,
        name: &str,
        slots: &mut HashMap<String, usize>,
        has: &HashMap<Cow<'_, str>, usize>,
    ) -> usize {
        if let Some(slot) = slots.get(name) {
            return *slot;
        }
        self.has.push(has.get(name).copied().unwrap_or_default());
        slots.insert(name.to_owned(), self.has.len() - 1);
        self.has.len() - 1
    }

    fn is_full(&self, slot: usize) -> bool {
        self.has[slot] >= self.most
    }
}

#[cfg(test)]
#[path = "fair_queue_tests.rs"]
mod tests;
