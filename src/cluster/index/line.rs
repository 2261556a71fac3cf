//! Who stands in line for a place for a run, and whose turn it is.
//!
//! Those of one namespace who want to run on the same node stand in a lane, in the order in which they came. The next place
//! goes to the namespace that has the fewest runs; among equals to the one that has waited longest for its turn. So a
//! namespace that asks for little does not wait behind one that asks for much, and to find whose turn it is takes as long as
//! there are lanes and places, however many stand in them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, btree_map};
use std::time::Duration;

use super::Key;

/// Who does not ask again within this time has gone.
const IN_LINE: Duration = Duration::from_secs(75);

/// What those who stand behind each other have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    /// It is for what is to be kept ready, which delays no claim.
    pub for_pool: bool,
    /// The namespace of the user.
    pub namespace: String,
    /// The node that the run must be on.
    pub node: Option<String>,
}

/// How many runs of a class may still begin.
#[derive(Debug)]
pub(super) struct Room<'a> {
    /// In all.
    pub free: usize,
    /// For what is to be kept ready.
    pub for_pool: usize,
    /// How many one namespace may have, and how many each has that has any.
    pub namespaces: (usize, HashMap<&'a str, usize>),
    /// The same of nodes.
    pub nodes: (usize, HashMap<&'a str, usize>),
}

impl<'a> Room<'a> {
    /// For whoever there is.
    pub fn for_all() -> Self {
        let any = || (usize::MAX, HashMap::new());
        Room { free: usize::MAX, for_pool: usize::MAX, namespaces: any(), nodes: any() }
    }

    fn runs_of(&self, lane: &Lane) -> usize {
        self.namespaces.1.get(lane.namespace.as_str()).copied().unwrap_or_default()
    }

    fn has_room_for(&self, lane: &Lane) -> bool {
        let on_node = |node: &String| self.nodes.1.get(node.as_str()).copied().unwrap_or_default();
        let node_is_full = lane.node.as_ref().is_some_and(|node| on_node(node) >= self.nodes.0);
        let none_for_pool = lane.for_pool && self.for_pool == 0;
        self.free > 0 && !none_for_pool && !node_is_full && self.runs_of(lane) < self.namespaces.0
    }

    fn take(&mut self, lane: &'a Lane) {
        self.free -= 1;
        self.for_pool -= usize::from(lane.for_pool);
        *self.namespaces.1.entry(&lane.namespace).or_default() += 1;
        if let Some(node) = &lane.node {
            *self.nodes.1.entry(node).or_default() += 1;
        }
    }
}

/// All who stand in line, by class.
#[derive(Debug, Default)]
pub(super) struct Line {
    queues: BTreeMap<String, Queue>,
    places: HashMap<Key, (String, Lane, u64)>,
    /// The number of the next who comes, or has had a turn.
    next: u64,
    /// When those who have gone were last taken out.
    swept: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    lanes: BTreeMap<Lane, BTreeMap<u64, Waiting>>,
    /// When each namespace had its last turn.
    served: HashMap<String, u64>,
}

#[derive(Debug)]
struct Waiting {
    key: Key,
    /// When it last asked.
    asked: Duration,
}

impl Waiting {
    fn is_there(&self, now: Duration) -> bool {
        now.saturating_sub(self.asked) < IN_LINE
    }
}

impl Line {
    /// Somebody comes, or asks again. Where it goes to another lane, it does not lose its place.
    pub fn stand(&mut self, key: &Key, class: &str, lane: Lane, now: Duration) {
        if now.saturating_sub(self.swept) >= IN_LINE {
            self.sweep(now);
        }
        let number = match self.leave(key) {
            Some((before, number)) if before == class => number,
            _ => self.number(),
        };
        let queue = self.queues.entry(class.to_owned()).or_default();
        let waiting = Waiting { key: key.clone(), asked: now };
        queue.lanes.entry(lane.clone()).or_default().insert(number, waiting);
        self.places.insert(key.clone(), (class.to_owned(), lane, number));
    }

    /// Somebody waits no longer. Says for which class it did, and its number.
    pub fn leave(&mut self, key: &Key) -> Option<(String, u64)> {
        let (class, lane, number) = self.places.remove(key)?;
        if let Some(queue) = self.queues.get_mut(&class)
            && let Some(waiting) = queue.lanes.get_mut(&lane)
        {
            waiting.remove(&number);
            if waiting.is_empty() {
                queue.lanes.remove(&lane);
            }
        }
        Some((class, number))
    }

    /// Somebody of a namespace has had a place.
    pub fn serve(&mut self, class: &str, namespace: &str) {
        let turn = self.number();
        match self.queues.get_mut(class) {
            Some(queue) if !queue.lanes.is_empty() => drop(queue.served.insert(namespace.to_owned(), turn)),
            // Nobody has waited.
            _ => drop(self.queues.remove(class)),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn sweep(&mut self, now: Duration) {
        self.swept = now;
        let lanes = self.queues.values().flat_map(|queue| queue.lanes.values());
        let gone = lanes.flat_map(BTreeMap::values).filter(|waiting| !waiting.is_there(now));
        let gone: Vec<Key> = gone.map(|waiting| waiting.key.clone()).collect();
        gone.iter().for_each(|key| drop(self.leave(key)));
    }

    /// The classes that somebody waits for.
    pub fn classes(&self) -> impl Iterator<Item = &String> {
        self.queues.iter().filter(|(_, queue)| !queue.lanes.is_empty()).map(|(class, _)| class)
    }

    /// Where somebody stands for a class.
    pub fn lane_of(&self, key: &Key, class: &str) -> Option<&Lane> {
        self.places.get(key).filter(|(of, ..)| of == class).map(|(_, lane, _)| lane)
    }

    /// Somebody who waits for no pool waits for a place.
    pub fn has_claims(&self, class: &str, now: Duration) -> bool {
        let lanes = self.queues.get(class).into_iter().flat_map(|queue| &queue.lanes);
        let mut claims = lanes.filter(|(lane, _)| !lane.for_pool).flat_map(|(_, waiting)| waiting.values());
        claims.any(|waiting| waiting.is_there(now))
    }

    /// Those who have a place now, in their order. Who asks and stands elsewhere, or not yet, is as if in this lane.
    pub fn turns<'a>(
        &'a self,
        class: &str,
        asks: Option<(&'a Key, &'a Lane)>,
        mut room: Room<'a>,
        now: Duration,
    ) -> impl Iterator<Item = &'a Key> {
        let queue = self.queues.get(class);
        let asking = asks.map(|(key, _)| key);
        let served = move |lane: &Lane| queue.and_then(|queue| queue.served.get(&lane.namespace)).copied();
        let number =
            |key| self.places.get(key).filter(|(of, ..)| of == class).map_or(u64::MAX, |(_, _, number)| *number);
        let asks = asks.map(|(key, lane)| Head { lane, first: (number(key), key), rest: btree_map::Iter::default() });
        let lanes = queue.into_iter().flat_map(|queue| &queue.lanes);
        let lanes = lanes.filter_map(move |(lane, waiting)| Head::of(lane, waiting.iter(), asking, now));
        let mut heads: Vec<_> = lanes.chain(asks).map(Some).collect();
        let rank = move |head: &Head<'_>, room: &Room<'_>| {
            (head.lane.for_pool, room.runs_of(head.lane), served(head.lane), head.first.0)
        };
        let ranked = heads.iter().flatten().enumerate().map(|(at, head)| Reverse((rank(head, &room), at)));
        let mut ranked: BinaryHeap<_> = ranked.collect();
        std::iter::from_fn(move || {
            while let Some(Reverse((was, at))) = ranked.pop() {
                let Some(head) = heads[at].take() else { continue };
                if !room.has_room_for(head.lane) {
                    continue;
                }
                let is = rank(&head, &room);
                if is != was {
                    // Another lane of its namespace has had a turn.
                    heads[at] = Some(head);
                    ranked.push(Reverse((is, at)));
                    continue;
                }
                room.take(head.lane);
                let (_, key) = head.first;
                if let Some(next) = Head::of(head.lane, head.rest, asking, now) {
                    ranked.push(Reverse((rank(&next, &room), at)));
                    heads[at] = Some(next);
                }
                return Some(key);
            }
            None
        })
    }
}

/// Who is first in a lane, and those behind.
struct Head<'a> {
    lane: &'a Lane,
    first: (u64, &'a Key),
    rest: btree_map::Iter<'a, u64, Waiting>,
}

impl<'a> Head<'a> {
    fn of(
        lane: &'a Lane,
        mut waiting: btree_map::Iter<'a, u64, Waiting>,
        but: Option<&Key>,
        now: Duration,
    ) -> Option<Self> {
        let (number, first) = waiting.find(|(_, waiting)| waiting.is_there(now) && Some(&waiting.key) != but)?;
        Some(Head { lane, first: (*number, &first.key), rest: waiting })
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
