//! Checks that the same seed gives the same history.

use flex_provisioner::metrics::Metrics;
use sim::bugs::Bug;
use sim::history::run;

#[test]
fn a_seed_replays_exactly() {
    // The first test of the process sets the listener; without one no decisions are recorded.
    let _ = tracing::subscriber::set_global_default(sim::trace::Listener);
    for seed in 0..12 {
        let (once, again) = (run(seed, None, true, &Metrics::default()), run(seed, None, true, &Metrics::default()));
        assert!(once.trace.lines.len() > 20, "a history of {} lines", once.trace.lines.len());
        assert!(once.trace.lines.iter().any(|line| line.contains(" rule=")), "no decision was recorded");
        for (one, other) in once.trace.lines.iter().zip(&again.trace.lines) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(once.trace.lines.len(), again.trace.lines.len(), "seed {seed}");
        // Recording does not change the history.
        let silent = run(seed, None, false, &Metrics::default());
        assert_eq!(silent.trace.counts, once.trace.counts, "seed {seed}");
        assert_eq!(silent.wrong.len(), once.wrong.len());
    }
}

#[test]
fn a_planted_bug_is_found() {
    let found = (0..400).any(|seed| !run(seed, Some(Bug::IdleDelete), false, &Metrics::default()).wrong.is_empty());
    assert!(found, "delete runs that delete nothing are not found");
}

#[test]
fn seeds_that_once_failed_pass() {
    for (seed, what) in [
        (1026119, "a refused volume that no watch had shown counted for no quota"),
        (910026, "the same, in another class"),
        (70591, "a retained volume that was free again got another policy, and counted as forgotten"),
        (74169, "a version of a config was lost when its deletion was interrupted"),
        (108013, "a second attempt ran on another node, as the watch had not shown the first one's volume yet"),
        (84600, "a delete run began beside its predecessor, whose Job was deleted with its namespace"),
        (1001695, "a claim with a volume that was made for another was not woken when its snapshot's content was gone"),
        (9734, "a claim was not woken although the quota had room, because its own reservation was counted"),
        (13947, "the reservation of a deleted claim kept others from the free quota"),
        (55801, "two claims waited for each other's reservations, by stamps that were not valid"),
        (27848, "quota went to another claim while a deleted claim's volume had not been observed"),
        (93779, "a volume joined a batch of deletions while a run of its own that no watch had shown was under way"),
        (62444, "another node was selected during an adoption, and the volume was refused and never deleted"),
        (
            15948,
            "a second attempt began while the creation of the first one's batch was under way for longer than it is awaited",
        ),
        (85, "more and more volumes were requested, because they were observed after the deletion of their requests"),
        (389, "the stamp of a pool was written on a claim that had taken the volume of another"),
        (778, "leftovers on other nodes stayed while the volume was pooled"),
        (1036, "a pool that waited for claims was not reconciled after their deletion"),
        (2178, "an adopted volume counted for no quota when its request was gone before the adoption was observed"),
        (3823, "a slow watch made a pool larger than its size"),
        (4279, "a claim with a pooled volume kept the nodes of the claim from which it was copied"),
        (18465, "a pool request that was deleted before any watch showed it was not created again"),
        (11620, "an assigned volume had no event when the process that assigned it was gone"),
        (58045, "claims waited for the quota of a volume that an admin retained"),
        (19686, "a claim named a volume that no finalizer kept, and was never bound"),
        (31949, "a run on another node did not reach the storage of a node that had come back"),
    ] {
        let wrong = run(seed, None, false, &Metrics::default()).wrong;
        assert!(wrong.is_empty(), "{seed}, of old: {what}; now: {wrong:?}");
    }
}
