//! Checks that the same seed gives the same history.

use flex_provisioner::metrics::Metrics;
use sim::bugs::Bug;
use sim::history::run;

#[test]
fn a_seed_replays_exactly() {
    // Whoever is first in the process sets it; without it no decision is heard of.
    let _ = tracing::subscriber::set_global_default(sim::trace::Listener);
    for seed in 0..12 {
        let (once, again) = (run(seed, None, true, &Metrics::default()), run(seed, None, true, &Metrics::default()));
        assert!(once.trace.lines.len() > 20, "a history of {} lines", once.trace.lines.len());
        assert!(once.trace.lines.iter().any(|line| line.contains(" rule=")), "no decision was heard of");
        for (one, other) in once.trace.lines.iter().zip(&again.trace.lines) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(once.trace.lines.len(), again.trace.lines.len(), "seed {seed}");
        // And what is written down does not change what happens.
        let silent = run(seed, None, false, &Metrics::default());
        assert_eq!(silent.trace.counts, once.trace.counts, "seed {seed}");
        assert_eq!(silent.wrong.len(), once.wrong.len());
    }
}

#[test]
fn a_bug_shows() {
    let found = (0..400).any(|seed| !run(seed, Some(Bug::IdleDelete), false, &Metrics::default()).wrong.is_empty());
    assert!(found, "delete runs that delete nothing go unnoticed");
}

#[test]
fn seeds_that_once_were_broken_are_well() {
    for (seed, what) in [
        (70591, "what was to stay and is free again was given another policy, and taken for forgotten"),
        (74169, "a version of a config was lost when its deletion was broken off"),
        (108013, "a second attempt ran on another node, as the watch had not shown the first one's volume yet"),
        (84600, "a delete run began beside its predecessor, whose Job had gone with its namespace"),
        (1001695, "a claim with a volume that was made for another was not woken when its snapshot's content was gone"),
        (9734, "a claim was not woken when there was room, for what it had been promised itself was counted"),
        (13947, "what a claim that was gone had been promised kept others from the room that there was"),
        (55801, "two claims waited for room that they had promised each other, by stamps that did not stand"),
        (27848, "room was given to another while a claim had gone and its volume had not been seen"),
        (93779, "a volume joined a batch of deletions while a run of its own that no watch had shown was under way"),
        (62444, "another node was selected while a volume was being adopted, which was refused then and never went"),
        (
            15948,
            "a second attempt began while the creation of the first one's batch was under way for longer than it is awaited",
        ),
        (85, "more and more was asked for, since what had been made was seen later than that its request went"),
        (389, "the stamp of a pool was written on a claim that had taken another's volume"),
        (778, "what attempts had left on other nodes stayed there while the volume was kept ready"),
        (1036, "a pool that waited for claims was looked at by nobody when they had gone"),
        (2178, "a volume that was adopted and not seen so counted for nobody when its request was gone"),
        (3823, "a slow watch had more volumes made than were to be kept"),
        (4279, "a claim that was given a volume kept the nodes of the claim that it was copied from"),
        (18465, "a request that somebody deleted before any watch showed it was not made again"),
        (11620, "of a volume that was given nothing was told when who gave it was gone"),
        (58045, "claims waited for the room of a volume that an admin retained"),
        (19686, "a claim named a volume that nothing kept, and was bound to none any more"),
        (31949, "a run that was begun elsewhere did not reach what was on a node that had come back meanwhile"),
    ] {
        let wrong = run(seed, None, false, &Metrics::default()).wrong;
        assert!(wrong.is_empty(), "{seed}, of old: {what}; now: {wrong:?}");
    }
}
