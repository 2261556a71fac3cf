//! Tests of the ledger of pools: each volume is ready, assigned or drained, and never two of these.

use flex_core::model::volume::{Reference, adoption_mark};
use proptest::prelude::*;

use super::*;
use crate::state::testing::{CLASS, GI, claim, facts, volume};

/// Returns a ready volume of 1 GiB.
fn ready(name: &str) -> Volume {
    let made = volume(&claim("own", name, false), "1Gi");
    Volume {
        name: name.into(),
        claim_ref: None,
        claim_uid: None,
        volume_id_annotation: Some(name.into()),
        pool: Some("kind".into()),
        pool_size: Some(GI),
        provenance: Some("x".into()),
        adoption_mark: Some(adoption_mark("x", &made.uid)),
        reclaim_policy: "Delete".into(),
        ..made
    }
}

/// Returns a volume with the claimRef of a claim, or of nobody.
fn referring(name: &str, uid: &str) -> Volume {
    let reference =
        Reference { name: ObjectName::new("team", "a"), uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()) };
    Volume { claim_ref: Some(reference), ..ready(name) }
}

/// A ledger with its facts. Each change of the cache is applied to the ledger, as the index does.
struct Books {
    facts: Facts,
    pools: Pools,
}

impl Books {
    fn new() -> Self {
        Books { facts: facts().1, pools: Pools::default() }
    }

    fn show(&mut self, volume: Volume) -> PoolChange {
        let changed = self.facts.cache.volumes.apply(volume);
        self.pools.on_volume(&changed, &self.facts)
    }

    fn drop(&mut self, name: &str) {
        if let Some(changed) = self.facts.cache.volumes.remove(name) {
            self.pools.on_volume(&changed, &self.facts);
        }
    }

    fn show_claim(&mut self, claim: Claim) {
        let changed = self.facts.cache.claims.apply(claim);
        self.pools.on_claim(&changed, &self.facts);
    }

    fn ready(&self) -> Vec<String> {
        self.pools.ready_of(CLASS, &self.facts.cache).map(|volume| volume.name.clone()).collect()
    }
}

#[test]
fn a_volume_is_ready_until_it_is_assigned_drained_or_gone() {
    let change = |change: fn(&mut Books)| {
        let mut books = Books::new();
        assert!(books.show(ready("pv")).ready && !books.show(ready("pv")).ready, "it becomes ready once");
        assert_eq!(books.ready(), ["pv"]);
        change(&mut books);
        (books.ready().len(), books.pools.count_drained(CLASS))
    };
    for (case, expected, result) in [
        ("nothing happens", (1, 0), change(|_| {})),
        ("a claim has the volume", (0, 0), change(|books| assert!(books.show(referring("pv", "uid")).left))),
        ("the volume is drained", (0, 1), change(|books| drop(books.show(referring("pv", names::NO_CLAIM_UID))))),
        ("the volume is gone", (0, 0), change(|books| books.drop("pv"))),
        (
            "another orchestrator has the volume",
            (0, 0),
            change(|books| {
                books.show(Volume { instance: Some("other".into()), ..ready("pv") });
            }),
        ),
        (
            "a drained volume is retained",
            (0, 0),
            change(|books| {
                books.show(Volume { reclaim_policy: "Retain".into(), ..referring("pv", names::NO_CLAIM_UID) });
            }),
        ),
        (
            "a drained volume is gone",
            (0, 0),
            change(|books| {
                books.show(referring("pv", names::NO_CLAIM_UID));
                books.drop("pv");
            }),
        ),
        (
            "the term ends",
            (1, 0),
            change(|books| {
                assert!(books.pools.assign(&claim("t", "a", false), &ready("pv")));
                books.pools.forget_writes(&books.facts.cache);
            }),
        ),
    ] {
        assert_eq!(result, expected, "{case}");
    }
}

#[test]
fn an_assignment_is_undone_once_and_ends_with_its_claim() {
    let mut books = Books::new();
    books.show(ready("pv"));
    let [a, b] = ["a", "b"].map(|name| claim("t", name, false));
    books.show_claim(a.clone());
    for _ in 0..2 {
        assert!(books.pools.assign(&a, &ready("pv")), "the volume is its own");
        assert!(!books.pools.assign(&b, &ready("pv")) && books.ready().is_empty());
    }
    books.show(ready("pv"));
    assert!(books.ready().is_empty(), "the watch does not show the assignment yet");
    assert_eq!(books.pools.forget_assigned_to(&a.uid, &books.facts.cache).as_deref(), Some(CLASS));
    assert_eq!(books.pools.forget_assigned_to(&a.uid, &books.facts.cache), None);
    assert_eq!(books.ready(), ["pv"]);
    assert!(books.pools.assign(&a, &ready("pv")));
    books.show_claim(Claim { terminating: true, ..a });
    assert_eq!(books.ready(), ["pv"], "its claim is terminating");
}

#[test]
fn an_expected_request_counts_until_a_watch_shows_it_or_the_time_is_over() {
    let (clock, facts) = facts();
    let mut books = Books { facts, pools: Pools::default() };
    let names = books.pools.expect_requests(CLASS, GI, 2, &books.facts);
    let more = books.pools.expect_requests(CLASS, GI, 1, &books.facts);
    assert!(names[0] != names[1] && !names.contains(&more[0]), "each name is used once");
    let sizes = |books: &Books| {
        let requests = books.pools.requests_of(CLASS, &books.facts);
        requests.iter().map(|request| (request.size, request.begun)).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&books), [(GI, false); 3]);
    (0..2).for_each(|_| books.pools.forget_request(&more[0]));
    assert_eq!(sizes(&books).len(), 2);
    let request = Claim { name: names[0].clone(), for_pool: true, ..claim("own", "request", false) };
    (0..2).for_each(|_| books.show_claim(request.clone()));
    assert_eq!(sizes(&books).len(), 2, "a watch shows one of the two");
    clock.pass(EXPECTATION_TIMEOUT);
    assert!(!books.pools.expects_request(CLASS, books.facts.now()));
    assert_eq!(sizes(&books).len(), 1, "the other one was not created");
}

#[test]
fn a_made_volume_stands_for_its_request_until_a_watch_shows_it() {
    let mut books = Books::new();
    let now = books.facts.now();
    (0..2).for_each(|_| books.pools.expect_pooled(&ready("pv"), &books.facts.cache, now));
    let made = books.pools.requests_of(CLASS, &books.facts);
    assert!(made.len() == 1 && made[0].has_volume && made[0].size == GI, "{made:?}");
    books.show(ready("pv"));
    assert!(books.pools.requests_of(CLASS, &books.facts).is_empty());
    books.pools.expect_pooled(&ready("pv"), &books.facts.cache, now);
    assert!(books.pools.requests_of(CLASS, &books.facts).is_empty(), "the watch was faster");
    assert_eq!(books.pools.stock(CLASS, None, &books.facts).len(), 1);
    books.pools.expect_drained("pv", now);
    assert!(books.pools.stock(CLASS, None, &books.facts).is_empty());
}

proptest! {
    /// Each visible volume is ready or assigned to one claim, in any order of assignments, failures and deletions.
    #[test]
    fn each_volume_is_ready_or_assigned(operations in prop::collection::vec((0..3_usize, 0..3_usize, 0..5_u8), 0..50)) {
        const VOLUMES: [&str; 3] = ["pv-0", "pv-1", "pv-2"];
        let claims = ["a", "b", "c"].map(|name| claim("t", name, false));
        let (mut books, mut exist, mut assigned) = (Books::new(), [false; 3], [None::<usize>; 3]);
        for (pv, of, operation) in operations {
            match operation {
                0 | 1 => {
                    books.show(ready(VOLUMES[pv]));
                    exist[pv] = true;
                }
                2 => {
                    books.drop(VOLUMES[pv]);
                    if std::mem::take(&mut exist[pv]) {
                        assigned.iter_mut().filter(|has| **has == Some(pv)).for_each(|has| *has = None);
                    }
                }
                3 if assigned[of].is_none_or(|has| has == pv) => {
                    let is_free = exist[pv] && !assigned.contains(&Some(pv));
                    let is_its = assigned[of] == Some(pv);
                    prop_assert_eq!(books.pools.assign(&claims[of], &ready(VOLUMES[pv])), is_free || is_its);
                    assigned[of] = (is_free || is_its).then_some(pv);
                }
                4 => {
                    let undone = books.pools.forget_assigned_to(&claims[of].uid, &books.facts.cache);
                    prop_assert_eq!(undone.is_some(), assigned[of].take().is_some());
                }
                _ => {}
            }
            for (of, claim) in claims.iter().enumerate() {
                let expected = assigned[of].map(|pv| VOLUMES[pv]);
                prop_assert_eq!(books.pools.assigned_to(claim).map(String::as_str), expected);
            }
            let ready = (0..3).filter(|pv| exist[*pv] && !assigned.contains(&Some(*pv))).map(|pv| VOLUMES[pv]);
            prop_assert_eq!(books.ready(), ready.collect::<Vec<_>>());
        }
    }
}
