//! Tests of the ledger of open batches: who is in one, and which slots its members use.

use std::sync::Arc;

use flex_core::claim::request::{Attempt, request};
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::run::job::RunTarget;
use proptest::prelude::*;

use super::*;
use crate::state::expectations::{EXPECTATION_TIMEOUT, Expectation};
use crate::state::testing::{CLASS, claim, facts, identity, member, recipe};

fn entry(id: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let attempt = Attempt { number: 1, ..Attempt::default() };
    let claim = Claim { uid: id.into(), ..claim("team", id, false) };
    let request = request(Operation::Provision, &claim, recipe, &identity(), "", attempt);
    let (target, recipe) = (RunTarget::default(), recipe.clone());
    BatchEntry { member: member(id), request, target, recipe, claim: None, volume: None }
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
        let (facts, recipe) = (facts().1, recipe(&[("batch-size", "9"), ("placement", "any")]));
        let mut books = Books { facts, expectations: Expectations::default(), batches: Batches::default(), recipe };
        assert_eq!(books.join("first"), None, "no other run is in progress");
        books.expectations.expect(&member("first").job_name(), books.facts.now());
        books
    }

    /// Takes a slot for the run of a claim, and joins a batch if there is reason for one.
    fn join(&mut self, id: &str) -> Option<String> {
        let operation = Some(Operation::Provision);
        let expectation = Expectation { class_label: CLASS.into(), operation, ..Expectation::default() };
        self.expectations.add(&member(id).job_name(), expectation);
        self.batches.join(entry(id, &self.recipe), "t", &self.facts, &mut self.expectations)
    }

    fn leave(&mut self, id: &str) -> Option<String> {
        self.batches.leave(Operation::Provision, id, &mut self.expectations)
    }

    /// Returns the ids that a batch has, in their order, and closes the batch.
    fn close(&mut self, batch: &str) -> Vec<String> {
        let ClosedBatch { entries, .. } = self.batches.close(batch, &self.facts, &mut self.expectations);
        entries.into_iter().map(|entry| entry.member.id).collect()
    }

    fn members(&self, batch: &str) -> usize {
        self.batches.open.get(batch).map_or(0, |open| open.entries().count())
    }

    fn slots(&self) -> usize {
        self.expectations.of_class(CLASS, self.facts.now()).count()
    }
}

#[test]
fn a_member_counts_once_however_often_it_joins() {
    let mut books = Books::new();
    let batch = books.join("a").expect("another run is in progress");
    assert!(books.expectations.is_expected(&member("a").job_name(), books.facts.now()), "it is not begun again");
    assert_eq!(books.join("b").as_ref(), Some(&batch));
    assert_eq!(books.join("a").as_ref(), Some(&batch));
    assert_eq!((books.members(&batch), books.slots()), (2, 3));
    assert_eq!(books.close(&batch), ["b", "a"]);
    assert_eq!((books.members(&batch), books.close(&batch)), (0, vec![]), "a batch begins once");
    assert_eq!(books.slots(), 3, "its members use their slots until the Job is visible");
}

#[test]
fn a_member_that_leaves_gives_back_its_slot_once() {
    let mut books = Books::new();
    let batch = books.join("a").unwrap();
    books.join("b");
    assert_eq!((books.leave("a").as_deref(), books.leave("a")), (Some(CLASS), None));
    assert_eq!((books.members(&batch), books.slots()), (1, 2));
    assert_eq!(books.leave("b").as_deref(), Some(CLASS));
    let is_open = books.batches.observe(&batch, &books.facts, &books.expectations).is_some();
    assert!(!is_open && books.close(&batch).is_empty(), "nobody is left");
}

#[test]
fn a_refused_or_visible_job_gives_back_the_slots_of_its_members() {
    for is_refused in [true, false] {
        let mut books = Books::new();
        let batch = books.join("a").unwrap();
        books.join("b");
        let ClosedBatch { entries, .. } = books.batches.close(&batch, &books.facts, &mut books.expectations);
        let Books { batches, expectations, .. } = &mut books;
        if is_refused {
            let members = batches.refuse(&batch, &entries, expectations);
            assert_eq!(members, ["a", "b"].map(|id| WorkItem::of_member(&member(id))));
        } else {
            // One of the two fits into the Job.
            let job = crate::state::testing::batch_job(&batch, &["a"]);
            assert_eq!(batches.on_job(&job, expectations), [WorkItem::of_member(&member("b"))]);
            assert_eq!(batches.on_job(&job, expectations), []);
        }
        assert_eq!(books.slots(), 1, "that of the first run");
        assert_eq!(books.join("b").is_none(), is_refused, "a refused one meets the refusal alone");
        books.batches.forget_refusal("b");
        assert!(books.join("b").is_some());
    }
}

/// The process was stopped for long, or a Job has come late.
#[test]
fn a_run_without_its_slot_or_with_a_job_is_in_no_further_job() {
    let mut books = Books::new();
    let batch = books.join("a").unwrap();
    books.join("b");
    books.expectations.drop_expired(EXPECTATION_TIMEOUT);
    for id in ["b", "c"] {
        assert_eq!(books.join(id).as_ref(), Some(&batch));
    }
    books.facts.cache.runs.apply_job(crate::state::testing::batch_job("late", &["c"]));
    let ClosedBatch { entries, left, .. } = books.batches.close(&batch, &books.facts, &mut books.expectations);
    assert_eq!(entries.into_iter().map(|entry| entry.member.id).collect::<Vec<_>>(), ["b"]);
    assert_eq!(left, [WorkItem::of_member(&member("c"))]);
}

proptest! {
    /// The batch has the members that joined and did not leave. Each uses one slot, and none is lost.
    #[test]
    fn the_members_of_a_batch_are_those_that_stay(operations in prop::collection::vec((0..4_usize, any::<bool>()), 0..40)) {
        const IDS: [&str; 4] = ["a", "b", "c", "d"];
        let (mut books, mut is_in) = (Books::new(), [false; 4]);
        let batch = books.join("opener").unwrap();
        for (at, joins) in operations {
            let id = IDS[at];
            if joins {
                let joined = books.join(id);
                prop_assert_eq!(joined.as_ref(), Some(&batch));
            } else {
                prop_assert_eq!(books.leave(id).is_some(), is_in[at]);
            }
            is_in[at] = joins;
            let count = 1 + is_in.iter().filter(|is_in| **is_in).count();
            prop_assert_eq!((books.members(&batch), books.slots()), (count, count + 1));
        }
        let stay = is_in.iter().zip(IDS).filter(|(is_in, _)| **is_in).map(|(_, id)| id.to_owned());
        let mut closed = books.close(&batch);
        closed.retain(|id| id != "opener");
        closed.sort();
        prop_assert_eq!(closed, stay.collect::<Vec<_>>());
    }

    /// Another replica leads. The slots of all members are free.
    #[test]
    fn forgetting_the_open_batches_frees_their_slots(joined in prop::collection::btree_set("[a-d]", 0..4)) {
        let mut books = Books::new();
        for id in &joined {
            prop_assert!(books.join(id).is_some());
        }
        prop_assert_eq!(books.slots(), 1 + joined.len());
        books.batches.forget_open(&mut books.expectations);
        prop_assert_eq!(books.slots(), 1);
    }
}
