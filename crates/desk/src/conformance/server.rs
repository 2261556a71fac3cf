//! Cases in which the server of the storage fails, behind the front of the desk.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::bench::{Bench, Halt, Step};
use super::cuts::spread;
use super::fronted::{Act, Fronted, Known};
use super::life::{IDS, Life};
use super::listed::list;
use crate::front::Fault;

/// The time that the lives of a case may take, unless each of them is long.
const BUDGET: Duration = Duration::from_secs(40);
/// The smallest and the largest number of requests of an act that a fault meets, where it has so many.
const FEWEST: usize = 3;
const MOST: usize = 8;
/// The time for which a server fails. A program that tries again for longer hears nothing of it.
const OUTAGE: Duration = Duration::from_secs(8);
/// The time by which an answer is late.
const LATE: Duration = Duration::from_secs(2);
/// The statuses of a server that fails.
const STATUSES: [u16; 2] = [500, 503];
/// The number of the first id of the first life.
const FIRST: u32 = 1000;

/// A bench whose program speaks to the front.
struct Stand {
    bench: Bench,
    fronted: Rc<Fronted>,
    known: Known,
    before: BTreeSet<String>,
    lives: Cell<u32>,
}

/// Chooses the requests of an act, from 1.
fn points(count: usize, most: usize) -> Vec<usize> {
    spread(count, most).into_iter().map(|n| n + 1).collect()
}

/// Returns the number of lives of a case, by the time that one takes.
fn most(life: Duration) -> usize {
    let lives = BUDGET.as_millis() / life.as_millis().max(1);
    usize::try_from(lives).unwrap_or(MOST).clamp(FEWEST, MOST)
}

/// Says that a program cannot use the front. Other cases say what is wrong with the program itself.
fn unfit(halt: Halt) -> Halt {
    match halt {
        Halt::Failed(why) => {
            Halt::NotPossible(format!("through the front, which changes nothing yet, the program fails: {why}"))
        }
        other => other,
    }
}

impl Stand {
    async fn new(bench: &Bench) -> Step<Self> {
        let fronted = bench.fronted()?;
        let changed = bench.setting.with_values(fronted.front.values());
        let setting = changed.map_err(|why| Halt::NotPossible(format!("the address of the front: {why}")))?;
        let there = bench.again(&setting).await?;
        let entries = list(&there).await.map_err(unfit)?.unwrap_or_default();
        let before = entries.into_iter().map(|entry| entry.id).collect();
        let known = fronted.known.borrow().clone();
        let mut stand = Stand { bench: there, fronted, known: Known::default(), before, lives: Cell::new(0) };
        stand.known = match known {
            Some(known) => known,
            None => stand.learnt().await?,
        };
        Ok(stand)
    }

    fn life(&self, fault: Fault, at: BTreeMap<Act, usize>) -> Life<'_> {
        let number = self.lives.replace(self.lives.get() + 1);
        Life {
            bench: &self.bench,
            front: &self.fronted.front,
            fault,
            at,
            first: FIRST + IDS * number,
            before: &self.before,
            collections: &self.known.collections,
            secrets: self.bench.setting.own_secrets(),
            counts: RefCell::default(),
            moments: RefCell::default(),
        }
    }

    /// Lives a life without faults, and keeps what it shows.
    async fn learnt(&self) -> Step<Known> {
        let (life, began) = (self.life(Fault::None, BTreeMap::new()), Instant::now());
        let lived = life.live().await;
        let counts = life.counts.take();
        // Without its first act, the program has not come to its server.
        let halted = |halt| match counts.is_empty() {
            true => unfit(halt),
            false => Halt::during(halt, "through the front, which changed nothing"),
        };
        lived.map_err(halted)?;
        if counts.values().all(|count| *count == 0) {
            let names: Vec<&str> = self.fronted.front.values().iter().map(|(name, _)| name.as_str()).collect();
            return Err(Halt::NotPossible(format!("no run has connected to the address in {}", names.join(", "))));
        }
        let collections = self.fronted.front.take_ledger().collections();
        let known = Known { counts, collections, most: most(began.elapsed()) };
        *self.fronted.known.borrow_mut() = Some(known.clone());
        Ok(known)
    }

    /// Lives as many lives as a fault needs to meet all chosen requests of these acts. The fault gets the number of the life.
    async fn each(&self, fault: impl Fn(usize) -> Fault, acts: impl Fn(Act) -> bool) -> Step<()> {
        let counts = self.known.counts.iter().filter(|(act, _)| acts(**act));
        let chosen: Vec<(Act, Vec<usize>)> =
            counts.map(|(act, count)| (*act, points(*count, self.known.most))).collect();
        let lives = chosen.iter().map(|(_, points)| points.len()).max().unwrap_or_default();
        for n in 0..lives {
            let at = chosen.iter().filter_map(|(act, points)| Some((*act, *points.get(n)?))).collect();
            self.life(fault(n), at).live().await?;
        }
        Ok(())
    }

    /// Returns these acts with the number of a request, where they have so many.
    fn at(&self, number: usize, acts: impl Fn(Act) -> bool) -> BTreeMap<Act, usize> {
        let counts = self.known.counts.iter().filter(|(act, count)| acts(**act) && **count >= number);
        counts.map(|(act, _)| (*act, number)).collect()
    }
}

pub(super) async fn answer_lost(bench: &Bench) -> Step<()> {
    Stand::new(bench).await?.each(|_| Fault::AnswerLost, |_| true).await
}

pub(super) async fn server_fails(bench: &Bench) -> Step<()> {
    let stand = Stand::new(bench).await?;
    stand.each(|n| Fault::Status(STATUSES[n % STATUSES.len()]), |_| true).await?;
    // Copies would take long with a program that tries again itself.
    let in_outage = |act| !matches!(act, Act::Again | Act::Restore | Act::Clone | Act::List);
    for number in [1, 2] {
        let at = stand.at(number, in_outage);
        if !at.is_empty() {
            stand.life(Fault::Outage(OUTAGE), at).live().await?;
        }
    }
    Ok(())
}

pub(super) async fn line_cut(bench: &Bench) -> Step<()> {
    Stand::new(bench).await?.each(|_| Fault::Cut, |_| true).await
}

pub(super) async fn killed_at_answer(bench: &Bench) -> Step<()> {
    // A list run that was killed leaves nothing.
    Stand::new(bench).await?.each(|_| Fault::Held, |act| act != Act::List).await
}

pub(super) async fn server_slow(bench: &Bench) -> Step<()> {
    let stand = Stand::new(bench).await?;
    let at = stand.at(1, |act| matches!(act, Act::Provision | Act::List | Act::Delete));
    stand.life(Fault::Late(LATE), at).live().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_requests_are_met_unless_there_are_many_or_a_life_is_long() {
        for (seconds, expected) in [(0, MOST), (2, MOST), (8, 5), (30, FEWEST), (600, FEWEST)] {
            assert_eq!(most(Duration::from_secs(seconds)), expected, "{seconds}");
        }
        assert_eq!(points(3, MOST), [1, 2, 3]);
        assert_eq!(points(8, MOST), [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(points(9, FEWEST), [1, 5, 9]);
        assert_eq!(points(0, MOST), [0_usize; 0]);
        let many = points(100, MOST);
        assert_eq!((many.len(), many[0], many[MOST - 1]), (MOST, 1, 100));
    }
}
