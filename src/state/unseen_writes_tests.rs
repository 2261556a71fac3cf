//! Tests of the writes that no watch has shown yet.

use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use proptest::prelude::*;

use super::*;
use crate::state::facts::Facts;
use crate::state::testing::{claim, facts, volume};

/// Returns facts with a claim and its volume at version 5, and their work items.
fn world() -> (Facts, WorkItem, WorkItem) {
    let (_, mut facts) = facts();
    let claim = Claim { resource_version: "5".into(), ..claim("t", "a", true) };
    let volume = Volume { resource_version: "5".into(), ..volume(&claim, "1Gi") };
    let items = (WorkItem::Claim(claim.name.clone()), WorkItem::Volume(volume.name.clone()));
    facts.cache.claims.apply(claim);
    facts.cache.volumes.apply(volume);
    (facts, items.0, items.1)
}

#[test]
fn a_write_is_awaited_until_a_watch_shows_it() {
    for (written, shown, is_stale) in [
        ("5", None, false),
        ("9", None, true),
        ("9", Some(Some("8")), true),
        ("9", Some(Some("9")), false),
        ("9", Some(Some("10")), false),
        ("9", Some(None), false),
        ("9", Some(Some("no number")), true),
        ("no number", None, false),
    ] {
        let (facts, claim, _) = world();
        let mut writes = UnseenWrites::default();
        for _ in 0..2 {
            writes.record(claim.clone(), written, &facts.cache, Duration::ZERO);
        }
        shown.into_iter().for_each(|version| writes.shows(&claim, version));
        assert_eq!(writes.is_stale(&claim, &facts.cache, Duration::ZERO), is_stale, "{written}, {shown:?}");
        assert_eq!(writes.is_empty(), !is_stale);
    }
}

#[test]
fn no_version_shows_the_end_of_an_object() {
    let (facts, _, volume) = world();
    let mut writes = UnseenWrites::default();
    writes.record_end(volume.clone(), &facts.cache, Duration::ZERO);
    writes.shows(&volume, Some("99"));
    assert!(writes.is_stale(&volume, &facts.cache, Duration::ZERO));
    writes.shows(&volume, None);
    assert!(writes.is_empty());
}

#[test]
fn a_claim_and_its_volume_are_stale_together() {
    let (facts, claim, volume) = world();
    for written in [&claim, &volume] {
        let mut writes = UnseenWrites::default();
        writes.record(written.clone(), "6", &facts.cache, Duration::ZERO);
        for item in [&claim, &volume] {
            assert!(writes.is_stale(item, &facts.cache, Duration::ZERO), "{item:?} after a write of {written:?}");
            assert!(!writes.is_stale(item, &facts.cache, CACHE_LAG_MAX), "the watch is slow");
        }
        assert!(!writes.is_stale(&WorkItem::Findings, &facts.cache, Duration::ZERO));
        writes.clear();
        assert!(!writes.is_stale(&claim, &facts.cache, Duration::ZERO));
    }
}

#[test]
fn a_write_of_an_unknown_object_is_not_awaited() {
    let (facts, ..) = world();
    let mut writes = UnseenWrites::default();
    writes.record(WorkItem::Volume("unknown".into()), "9", &facts.cache, Duration::ZERO);
    writes.record(WorkItem::Content("content".into()), "9", &facts.cache, Duration::ZERO);
    assert!(writes.is_empty());
}

proptest! {
    /// An object is stale exactly while the cache is older than this process's own last write.
    #[test]
    fn an_object_is_stale_while_its_last_write_is_not_visible(operations in prop::collection::vec(0..4_u8, 0..40)) {
        let (mut facts, _, item) = world();
        let made = facts.cache.volumes.all().next().unwrap();
        let (mut writes, mut stored, mut own, mut shown) = (UnseenWrites::default(), 5_u64, 0, 5);
        for operation in operations {
            match operation {
                0 => {
                    stored += 1;
                    own = stored;
                    writes.record(item.clone(), &own.to_string(), &facts.cache, Duration::ZERO);
                }
                // Another client writes.
                1 => stored += 1,
                _ => {
                    shown = if operation == 2 { stored } else { stored.min(shown + 1) };
                    let version = shown.to_string();
                    facts.cache.volumes.apply(Volume { resource_version: version.clone(), ..(*made).clone() });
                    writes.shows(&item, Some(&version));
                }
            }
            prop_assert_eq!(writes.is_stale(&item, &facts.cache, Duration::ZERO), shown < own);
        }
    }
}
