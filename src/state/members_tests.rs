//! Tests of the members that leave their batch.

use proptest::prelude::*;

use super::*;
use crate::state::testing::batch_job;

const IDS: [&str; 3] = ["a", "b", "c"];

fn runs() -> RunCache {
    let mut runs = RunCache::default();
    runs.apply_job(batch_job("batch", &IDS));
    runs
}

/// Returns the Job as a member sees it.
fn view(members: &Members, id: &str, runs: &RunCache) -> Arc<Job> {
    members.jobs_of(id, runs).pop().expect("the batch is in progress")
}

#[test]
fn the_last_member_ends_the_batch() {
    let (runs, mut members) = (runs(), Members::default());
    for _ in 0..2 {
        assert!(!members.detach(&view(&members, "a", &runs), &runs), "two members are left");
        assert!(!members.detach(&view(&members, "b", &runs), &runs), "one member is left");
    }
    assert!(view(&members, "a", &runs).terminating && !view(&members, "c", &runs).terminating);
    assert!(members.detach(&view(&members, "c", &runs), &runs));
    let job = view(&members, "a", &runs);
    members.forget(&job.uid);
    assert!(members.is_empty() && !view(&members, "a", &runs).terminating);
}

#[test]
fn a_member_that_left_does_not_see_the_ended_batch() {
    let (mut runs, mut members) = (runs(), Members::default());
    let job = view(&members, "a", &runs);
    members.detach(&job, &runs);
    runs.apply_job(Job { is_over: true, ..batch_job("batch", &IDS) });
    assert_eq!(members.jobs_of("a", &runs).len(), 0);
    assert_eq!(members.jobs_of("b", &runs).len(), 1);
    members.attach(&job);
    assert_eq!(members.jobs_of("a", &runs).len(), 1, "its Job was not deleted");
}

#[test]
fn a_job_that_is_not_cached_has_no_members_left() {
    let (runs, mut members) = (runs(), Members::default());
    let job = view(&members, "a", &runs);
    assert!(members.detach(&Job { uid: "another".into(), ..(*job).clone() }, &runs), "another Job had the name");
    assert!(members.detach(&job, &RunCache::default()) && members.is_empty());
}

proptest! {
    /// A batch ends with the member that leaves it last, in any order of leaving and returning.
    #[test]
    fn a_batch_ends_when_all_members_have_left(operations in prop::collection::vec((0..3_usize, any::<bool>()), 0..20)) {
        let (runs, mut members, mut left) = (runs(), Members::default(), [false; 3]);
        for (at, leaves) in operations {
            let job = view(&members, IDS[at], &runs);
            left[at] = leaves;
            match leaves {
                true => prop_assert_eq!(members.detach(&job, &runs), left == [true; 3]),
                false => members.attach(&job),
            }
            let seen = IDS.map(|id| view(&members, id, &runs).terminating);
            prop_assert_eq!(seen, left);
        }
    }
}
