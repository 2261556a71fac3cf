//! Tests of the ledger of open batches: who is in one, and which slots its members use.

use flex_core::claim::request::{Attempt, request};
use proptest::prelude::*;

use super::*;
use crate::state::testing::{CLASS, claim, facts, identity, member, recipe};

fn batched() -> Arc<Recipe> {
    recipe(&[("batch-size", "9"), ("placement", "any")])
}

fn claim_of(id: &str) -> Claim {
    Claim { uid: id.into(), ..claim("team", id, false) }
}

fn entry(id: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let attempt = Attempt { number: 1, ..Attempt::default() };
    let request = request(Operation::Provision, &claim_of(id), recipe, &identity(), "", attempt);
    BatchEntry { member: member(id), request, target: job::RunTarget::default(), recipe: recipe.clone(), claim: None }
}

/// A ledger with its facts and the expectations beside it.
struct Books {
    facts: Facts,
    expectations: Expectations,
    batches: Batches,
    recipe: Arc<Recipe>,
}

impl Books {
    /// Returns a ledger while the claim `first` has a run of its own.
    fn new() -> Self {
        let (facts, recipe) = (facts().1, batched());
        let mut books = Books { facts, expectations: Expectations::default(), batches: Batches::default(), recipe };
        assert_eq!(books.join("first"), None, "no other run is in progress");
        books
    }

    /// Takes a slot for the run of a claim, and joins a batch if there is reason for one.
    fn join(&mut self, id: &str) -> Option<String> {
        let job = member(id).job_name("");
        let operation = Some(Operation::Provision);
        self.expectations.add(&job, Expectation { class_label: CLASS.into(), operation, ..Expectation::default() });
        let run = AttemptToBatch { job: &job, nodes: &[], ts: "t" };
        self.batches.join_provision(&claim_of(id), &self.recipe, &run, &self.facts, &mut self.expectations)
    }

    fn arrive(&mut self, batch: &str, id: &str) -> bool {
        self.batches.add_entry(batch, entry(id, &self.recipe), &self.facts, &mut self.expectations)
    }

    fn leave(&mut self, id: &str) -> LeftBatches {
        self.batches.leave(Operation::Provision, id, &mut self.expectations)
    }

    /// Returns the ids that a batch has, in their order, and closes the batch.
    fn close(&mut self, batch: &str) -> Vec<String> {
        let ClosedBatch { entries, .. } = self.batches.close(batch, &self.facts, &mut self.expectations);
        entries.into_iter().map(|entry| entry.member.id).collect()
    }

    /// Counts the members of a batch that are awaited, and those that have arrived.
    fn counts(&self, batch: &str) -> Option<(usize, usize)> {
        let observed = self.batches.observe(batch, &self.facts, &self.expectations)?;
        Some((observed.awaited, observed.entries))
    }

    fn slots(&self) -> usize {
        self.expectations.of_class(CLASS, self.facts.now()).count()
    }
}

#[test]
fn a_member_counts_once_however_often_it_joins_and_arrives() {
    let mut books = Books::new();
    let batch = books.join("a").expect("another run is in progress");
    assert_eq!(books.join("a").as_ref(), Some(&batch));
    assert_eq!((books.counts(&batch), books.slots()), (Some((1, 0)), 2));
    for _ in 0..2 {
        assert!(books.arrive(&batch, "a"));
        assert_eq!((books.counts(&batch), books.slots()), (Some((0, 1)), 2));
    }
    assert_eq!(books.close(&batch), ["a"]);
    assert_eq!((books.counts(&batch), books.close(&batch)), (None, vec![]), "a batch begins once");
    assert_eq!(books.slots(), 2, "its members use their slots until the Job is visible");
}

#[test]
fn a_member_that_leaves_gives_back_its_slot_once() {
    let mut books = Books::new();
    let batch = books.join("a").unwrap();
    books.join("b");
    books.arrive(&batch, "a");
    let left = books.leave("a");
    assert_eq!((left.batches.as_slice(), left.slots.as_slice()), (&[batch.clone()][..], &[CLASS.to_owned()][..]));
    let again = books.leave("a");
    assert!(again.batches.is_empty() && again.slots.is_empty());
    assert_eq!((books.counts(&batch), books.slots()), (Some((1, 0)), 2));
    // The slot of a member that has not arrived is not the batch's.
    let left = books.leave("b");
    assert!(left.batches == [batch.as_str()] && left.slots.is_empty());
    assert_eq!((books.counts(&batch), books.close(&batch)), (Some((0, 0)), vec![]));
}

#[test]
fn a_refused_or_visible_job_gives_back_the_slots_of_its_members() {
    for is_refused in [true, false] {
        let mut books = Books::new();
        let batch = books.join("a").unwrap();
        books.join("b");
        ["a", "b"].iter().for_each(|id| assert!(books.arrive(&batch, id)));
        assert_eq!(books.close(&batch), ["a", "b"]);
        let Books { batches, expectations, facts, recipe } = &mut books;
        let is_excluded = |batches: &Batches, facts: &Facts| {
            batches.is_shut_out_of_batch(&batch, Operation::Provision, recipe, None, &facts.cache)
        };
        assert!(!is_excluded(batches, facts), "its Job is being created");
        if is_refused {
            let members = batches.refuse(&batch, expectations);
            assert_eq!(members, ["a", "b"].map(|id| WorkItem::of_member(&member(id))));
            assert!(is_excluded(batches, facts));
        } else {
            // One of the two fits into the Job.
            let job = crate::state::testing::batch_job(&batch, &["a"]);
            assert_eq!(batches.on_job(&job, expectations), [WorkItem::of_member(&member("b"))]);
            assert_eq!(batches.on_job(&job, expectations), []);
        }
        assert_eq!(books.slots(), 1, "that of the first run");
    }
}

#[test]
fn a_reopened_batch_has_the_same_members() {
    let mut books = Books::new();
    let batch = books.join("a").unwrap();
    books.arrive(&batch, "a");
    let ClosedBatch { entries, .. } = books.batches.close(&batch, &books.facts, &mut books.expectations);
    for _ in 0..2 {
        books.batches.reopen(&batch, &entries, &books.facts);
        assert_eq!((books.counts(&batch), books.slots()), (Some((0, 1)), 2));
    }
    assert_eq!(books.close(&batch), ["a"]);
    books.facts.cache.runs.apply_job(flex_core::run::view::Job {
        name: ObjectName::new("", &batch),
        ..crate::state::testing::batch_job(&batch, &["a"])
    });
    books.batches.reopen(&batch, &entries, &books.facts);
    assert_eq!(books.counts(&batch), None, "its Job is visible");
}

/// The state of a claim in a model of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Outside,
    Stamped,
    Arrived,
}

proptest! {
    /// The batch has the members that joined, arrived and did not leave. Each uses one slot, and none is lost.
    #[test]
    fn the_members_of_a_batch_are_those_that_stay(operations in prop::collection::vec((0..4_usize, 0..4_u8), 0..40)) {
        const IDS: [&str; 4] = ["a", "b", "c", "d"];
        let (mut books, mut states) = (Books::new(), [State::Outside; 4]);
        let batch = books.join("opener").unwrap();
        books.leave("opener");
        books.expectations.remove(&member("opener").job_name(""));
        for (at, operation) in operations {
            let id = IDS[at];
            states[at] = match (operation, states[at]) {
                (0, State::Outside) => {
                    let joined = books.join(id);
                    prop_assert_eq!(joined.as_ref(), Some(&batch));
                    State::Stamped
                }
                (1 | 2, State::Stamped | State::Arrived) => {
                    prop_assert!(books.arrive(&batch, id));
                    State::Arrived
                }
                (3, state) => {
                    let left = books.leave(id);
                    prop_assert_eq!(left.batches.len(), usize::from(state != State::Outside));
                    prop_assert_eq!(left.slots.len(), usize::from(state == State::Arrived));
                    books.expectations.remove(&member(id).job_name(""));
                    State::Outside
                }
                (_, state) => state,
            };
            let count = |wanted| states.iter().filter(|state| **state == wanted).count();
            prop_assert_eq!(books.counts(&batch), Some((count(State::Stamped), count(State::Arrived))));
            prop_assert_eq!(books.slots(), 1 + count(State::Stamped) + count(State::Arrived));
        }
        let arrived = states.iter().zip(IDS).filter(|(state, _)| **state == State::Arrived).map(|(_, id)| id.to_owned());
        let mut closed = books.close(&batch);
        closed.sort();
        prop_assert_eq!(closed, arrived.collect::<Vec<_>>());
    }

    /// Another replica leads. The slots of all members that have arrived are free.
    #[test]
    fn forgetting_the_open_batches_frees_their_slots(arrived in prop::collection::btree_set("[a-d]", 0..4)) {
        let mut books = Books::new();
        for id in &arrived {
            let batch = books.join(id).unwrap();
            prop_assert!(books.arrive(&batch, id));
        }
        prop_assert_eq!(books.slots(), 1 + arrived.len());
        books.batches.forget_open(&mut books.expectations);
        prop_assert_eq!(books.slots(), 1);
    }
}
