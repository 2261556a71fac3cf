//! Tests of the ledger of quota: which objects count, and that each reservation is given back exactly.

use flex_contract::exit::Reaction;
use flex_core::claim::quota::Usage;
use flex_core::object::ObjectName;
use flex_core::run::state::Cause;
use flex_core::run::view::RunLabels;
use proptest::prelude::*;

use super::*;
use crate::state::testing::{CLASS, GI, claim, facts, serve, volume};

/// A ledger with its facts. Each change of the cache is applied to the ledger, as the index does.
struct Books {
    facts: Facts,
    ledger: QuotaLedger,
}

impl Books {
    fn new() -> Self {
        Books { facts: facts().1, ledger: QuotaLedger::default() }
    }

    fn show_claim(&mut self, claim: Claim) -> Vec<String> {
        let changed = self.facts.cache.claims.apply(claim);
        self.ledger.on_claim(&changed, &self.facts)
    }

    fn drop_claim(&mut self, name: &ObjectName) -> Vec<String> {
        let changed = self.facts.cache.claims.remove(name);
        changed.map(|changed| self.ledger.on_claim(&changed, &self.facts)).unwrap_or_default()
    }

    fn show_volume(&mut self, volume: Volume) -> Option<String> {
        let changed = self.facts.cache.volumes.apply(volume);
        self.ledger.on_volume(&changed, &self.facts)
    }

    fn drop_volume(&mut self, name: &str) -> Option<String> {
        let changed = self.facts.cache.volumes.remove(name)?;
        self.ledger.on_volume(&changed, &self.facts)
    }

    fn show_job(&mut self, job: Job) -> Option<String> {
        let changed = self.facts.cache.runs.apply_job(job);
        self.ledger.on_job(&changed, &self.facts)
    }

    /// Returns the number of volumes and GiB that the class uses.
    fn used(&self) -> (u64, u64) {
        let Usage { volumes, bytes } = self.ledger.usage(CLASS).all;
        (volumes, u64::try_from(bytes / u128::from(GI)).unwrap())
    }
}

#[test]
fn each_object_counts_once() {
    let (plain, stamped) = (claim("t", "a", false), claim("t", "a", true));
    let failed = |reaction| {
        let failure = LastFailure::of_delete_run(1, 0, &Cause::new("ExitCode", "no"), None);
        Some(LastFailure { operation: Operation::Provision, reaction, ..failure })
    };
    let retries = Claim { last_failure: failed(Reaction::Retry), ..stamped.clone() };
    let gave_up = Claim { last_failure: failed(Reaction::Never), ..stamped.clone() };
    let empty = |attempts| move |failure| LastFailure { empty_attempts: attempts, ..failure };
    let no_room = Claim { last_failure: failed(Reaction::NoCapacity).map(empty(1)), ..stamped.clone() };
    let of_earlier = |failure| LastFailure { attempt: 0, ..failure };
    let again = Claim { last_failure: no_room.last_failure.clone().map(of_earlier), ..stamped.clone() };
    let not_admitted = Claim { last_failure: failed(Reaction::NoCapacity), ..stamped.clone() };
    let made = || volume(&plain, "2Gi");
    let theirs = Volume { instance: Some("other".into()), ..made() };
    let elsewhere = Volume { class: "d".into(), ..made() };
    for (case, claims, volumes, expected) in [
        ("a claim that has not begun", vec![&plain], vec![], (0, 0)),
        ("a claim that has begun", vec![&stamped], vec![], (1, 1)),
        ("a claim whose attempt will be repeated", vec![&retries], vec![], (1, 1)),
        ("a claim that has given up", vec![&gave_up], vec![], (0, 0)),
        ("a claim for which there was no room", vec![&no_room], vec![], (0, 0)),
        ("a claim that tries again after there was no room", vec![&again], vec![], (1, 1)),
        ("a claim whose pod a node has not admitted yet", vec![&not_admitted], vec![], (1, 1)),
        ("a volume of a claim for which there was no room", vec![&no_room], vec![made()], (1, 2)),
        ("a claim and its volume", vec![&stamped], vec![made()], (1, 2)),
        ("a volume whose claim is gone", vec![], vec![made()], (1, 2)),
        ("the volume of another orchestrator", vec![], vec![theirs], (0, 0)),
        ("a volume of another class", vec![], vec![elsewhere], (0, 0)),
    ] {
        let mut books = Books::new();
        for _ in 0..2 {
            claims.iter().for_each(|claim| drop(books.show_claim((*claim).clone())));
            volumes.iter().for_each(|volume| drop(books.show_volume(volume.clone())));
            assert_eq!(books.used(), expected, "{case}");
        }
        claims.iter().for_each(|claim| drop(books.drop_claim(&claim.name)));
        volumes.iter().for_each(|volume| drop(books.drop_volume(&volume.name)));
        assert_eq!(books.ledger.usage(CLASS), ClassUsage::default(), "{case}: nothing is left");
    }
}

#[test]
fn a_reservation_is_given_back_once() {
    let mut books = Books::new();
    let a = claim("t", "a", false);
    books.show_claim(a.clone());
    assert!(books.ledger.charge(&a, CLASS, &books.facts), "it is new");
    assert!(!books.ledger.charge(&a, CLASS, &books.facts), "an earlier stamp may exist");
    assert_eq!(books.used(), (1, 1));
    assert_eq!(books.ledger.refund(&a.uid, &books.facts).as_deref(), Some(CLASS));
    assert_eq!((books.used(), books.ledger.refund(&a.uid, &books.facts)), ((0, 0), None));
    // The reservation becomes the usage of the stamped claim.
    books.ledger.charge(&a, CLASS, &books.facts);
    books.show_claim(claim("t", "a", true));
    assert!(books.ledger.reservation_of(&a.uid).is_none() && !books.ledger.has_pending_charge(&a.uid, Duration::ZERO));
    assert_eq!(books.used(), (1, 1));
    assert!(!books.ledger.charge(&claim("t", "a", true), CLASS, &books.facts), "the claim has begun");
    assert_eq!(books.drop_claim(&a.name), [CLASS]);
    assert_eq!(books.used(), (0, 0));
    books.ledger.charge(&a, CLASS, &books.facts);
    assert_eq!(books.used(), (0, 0), "the claim is gone");
}

#[test]
fn a_reservation_expires() {
    let (clock, facts) = facts();
    let mut books = Books { facts, ledger: QuotaLedger::default() };
    let a = claim("t", "a", false);
    books.show_claim(a.clone());
    books.ledger.charge(&a, CLASS, &books.facts);
    clock.pass(WRITE_OUTCOME_AFTER);
    books.ledger.drop_expired_charge(&a.uid, &books.facts);
    assert!(books.ledger.has_pending_charge(&a.uid, books.facts.now()) && books.used() == (1, 1));
    clock.pass(Duration::from_secs(1));
    assert!(!books.ledger.has_pending_charge(&a.uid, books.facts.now()));
    books.ledger.drop_expired_charge(&a.uid, &books.facts);
    assert_eq!(books.used(), (0, 0));
}

#[test]
fn a_reservation_whose_stamp_is_confirmed_lasts_until_the_watches_show_it() {
    let (clock, facts) = facts();
    let mut books = Books { facts, ledger: QuotaLedger::default() };
    let a = claim("t", "a", false);
    books.show_claim(a.clone());
    books.ledger.charge(&a, CLASS, &books.facts);
    books.ledger.note_written(&a.uid);
    // The watches show nothing for an hour. The claim is decided again by its old state, and the API refuses the write.
    clock.pass(Duration::from_secs(3600));
    books.ledger.drop_expired_charge(&a.uid, &books.facts);
    assert_eq!(books.used(), (1, 1));
    assert!(!books.ledger.charge(&a, CLASS, &books.facts), "an earlier stamp exists");
    clock.pass(Duration::from_secs(3600));
    books.ledger.drop_expired_charge(&a.uid, &books.facts);
    assert_eq!(books.used(), (1, 1));
    books.show_claim(claim("t", "a", true));
    assert_eq!((books.used(), books.ledger.pending().count()), ((1, 1), 0), "the claim counts itself");
}

#[test]
fn a_reservation_whose_assignment_is_confirmed_lasts_until_the_watches_show_it() {
    let (clock, facts) = facts();
    let mut books = Books { facts, ledger: QuotaLedger::default() };
    let a = claim("t", "a", false);
    books.show_claim(a.clone());
    books.ledger.charge_without_stamp(&a, CLASS, &books.facts);
    books.ledger.note_written(&a.uid);
    clock.pass(Duration::from_secs(3600));
    books.ledger.drop_expired_charge(&a.uid, &books.facts);
    assert_eq!(books.used(), (1, 1), "the API has confirmed that the claim has a volume");
    books.show_volume(volume(&a, "1Gi"));
    assert_eq!(books.used(), (1, 1), "the volume counts in place of the charge");
}

#[test]
fn an_expanding_volume_counts_with_its_new_size_until_its_run_has_failed() {
    let a = claim("t", "a", true);
    let made = volume(&a, "1Gi");
    let run_labels = RunLabels { operation: "expand".into(), id: a.uid.clone(), attempt: 1, class: CLASS.into() };
    let name = ObjectName::new("own", "expand");
    let run = Job { name, volume: Some(made.name.clone()), size: Some(3 * GI), run_labels, ..Job::default() };
    let mut books = Books::new();
    books.show_claim(a.clone());
    books.show_volume(made.clone());
    books.ledger.charge_expand(&made.name, 3 * GI, &books.facts);
    books.ledger.charge_expand(&made.name, 3 * GI, &books.facts);
    assert_eq!(books.used(), (1, 3));
    assert!(books.ledger.refund_expand(&made.name, &books.facts) && books.used() == (1, 1));
    assert!(!books.ledger.refund_expand(&made.name, &books.facts) && books.used() == (1, 1));
    books.ledger.charge_expand(&made.name, 3 * GI, &books.facts);
    assert_eq!((books.show_job(run.clone()), books.used()), (None, (1, 3)), "the Job has the reservation");
    let failed = Job { is_over: true, ..run.clone() };
    assert_eq!((books.show_job(failed).as_deref(), books.used()), (Some(CLASS), (1, 1)));
    books.show_job(Job { is_over: true, complete: true, ..run });
    books.show_volume(volume(&a, "3Gi"));
    assert_eq!(books.used(), (1, 3));
}

#[test]
fn the_last_volume_of_a_quota_is_granted_once() {
    let mut books = Books::new();
    let recipe = serve(&mut books.facts, &[("max-volumes", "1"), ("max-bytes", "2Gi")]);
    let [a, b] = ["a", "b"].map(|name| claim("t", name, false));
    for claim in [&a, &b] {
        books.show_claim(claim.clone());
        assert_eq!(books.ledger.error(claim, &recipe, &books.facts), None);
    }
    books.ledger.charge(&a, CLASS, &books.facts);
    assert_eq!(books.ledger.error(&a, &recipe, &books.facts), None, "its own reservation does not count");
    assert!(books.ledger.error(&b, &recipe, &books.facts).is_some_and(|why| why.contains("max-volumes")));
    let made = volume(&a, "1Gi");
    books.show_volume(made.clone());
    let expand_error = |books: &Books, size| books.ledger.expand_error(&made, &a, size, &recipe, &books.facts);
    assert_eq!(expand_error(&books, 2 * GI), None);
    assert!(expand_error(&books, 3 * GI).is_some_and(|why| why.contains("max-bytes")));
    assert_eq!(books.drop_volume(&made.name).as_deref(), Some(CLASS));
    books.ledger.refund(&a.uid, &books.facts);
    assert_eq!(books.ledger.error(&b, &recipe, &books.facts), None);
}

/// The facts about one claim and its volume, in a model of the ledger.
#[derive(Clone, Copy, Debug, Default)]
struct Item {
    /// The claim exists, stamped or not.
    claim: Option<bool>,
    volume: bool,
    reserved: bool,
    /// The reserved size of the volume in GiB.
    expanding: u64,
}

impl Item {
    /// Returns the usage in GiB, if the item counts.
    fn usage(self) -> Option<u64> {
        match self {
            Item { volume: true, expanding, .. } => Some(expanding.max(1)),
            Item { claim: Some(true), .. } | Item { claim: Some(false), reserved: true, .. } => Some(1),
            _ => None,
        }
    }

    /// Applies an operation to the model and to the ledger.
    fn operate(&mut self, number: usize, operation: u8, books: &mut Books) {
        let (namespace, name) = (format!("team-{}", number % 2), number.to_string());
        let claim = |stamped| claim(&namespace, &name, stamped);
        let made = volume(&claim(false), "1Gi");
        match operation {
            0 | 1 => {
                let stamped = operation == 1;
                books.show_claim(claim(stamped));
                (self.claim, self.reserved) = (Some(stamped), self.reserved && !stamped);
            }
            2 => {
                books.drop_claim(&claim(false).name);
                if self.claim.take().is_some() {
                    self.reserved = false;
                }
            }
            3 => {
                books.show_volume(made);
                self.volume = true;
            }
            4 => {
                books.drop_volume(&made.name);
                if std::mem::take(&mut self.volume) {
                    self.expanding = 0;
                }
            }
            5 if self.claim == Some(false) => {
                let is_new = books.ledger.charge(&claim(false), CLASS, &books.facts);
                assert_eq!(is_new, !std::mem::replace(&mut self.reserved, true));
            }
            6 => {
                let refunded = books.ledger.refund(&claim(false).uid, &books.facts).is_some();
                assert_eq!(refunded, std::mem::take(&mut self.reserved));
            }
            7 if self.volume => {
                self.expanding = 2 + number as u64;
                books.ledger.charge_expand(&made.name, self.expanding * GI, &books.facts);
            }
            8 => {
                let refunded = books.ledger.refund_expand(&made.name, &books.facts);
                assert_eq!(refunded, std::mem::take(&mut self.expanding) > 0);
            }
            _ => {}
        }
    }
}

proptest! {
    /// The usage of the class and of each namespace is the sum of what the objects say, after any sequence of changes
    /// and reservations. An operation that is repeated changes nothing.
    #[test]
    fn the_usage_is_the_sum_of_the_objects(
        operations in prop::collection::vec((0..4_usize, 0..9_u8, any::<bool>()), 0..50),
    ) {
        let (mut books, mut items) = (Books::new(), [Item::default(); 4]);
        for (number, operation, twice) in operations {
            for _ in 0..=usize::from(twice) {
                items[number].operate(number, operation, &mut books);
            }
            let mut expected = ClassUsage::default();
            for (number, item) in items.iter().enumerate() {
                if let Some(size) = item.usage() {
                    expected.add(&format!("team-{}", number % 2), size * GI);
                }
            }
            prop_assert_eq!(books.ledger.usage(CLASS), expected);
        }
        for (number, item) in items.iter_mut().enumerate() {
            [2, 4].into_iter().for_each(|operation| item.operate(number, operation, &mut books));
        }
        prop_assert_eq!(books.ledger.usage(CLASS), ClassUsage::default());
        prop_assert_eq!(books.ledger.pending().count(), 0);
    }
}
