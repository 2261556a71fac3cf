//! Tests of what the index knows about the gates of runs.

use flex_core::object::ObjectName;
use flex_core::run::gate::{Rule, Step};
use flex_core::run::view::{Job, JobEnd, Pod};

use super::index;
use crate::state::index::{Index, WatchChange, WorkItem};
use crate::state::testing::job;

fn gated() -> Job {
    Job { has_gate: true, had_pods: true, ..job("provision", "a") }
}

/// Returns the Job when its time is over, before and after its pods have ended.
fn late(is_over: bool) -> Job {
    let failed = JobEnd { reason: "DeadlineExceeded".into(), message: String::new(), at: 9 };
    Job { failed: Some(failed), is_over, ..gated() }
}

fn pod(gate: Option<usize>) -> Pod {
    let Job { name, uid, run_labels, .. } = gated();
    let (pod, job) = (ObjectName::new(&name.namespace, "pod"), name.name);
    Pod { name: pod, uid: "pod".into(), job, job_uid: uid, run_labels, gate, ..Pod::default() }
}

/// A message of a watch.
enum Seen {
    Job(Job),
    Pod(Pod),
    PodGone,
}

fn see(index: &mut Index, all: impl IntoIterator<Item = Seen>) {
    for seen in all {
        match seen {
            Seen::Job(job) => drop(index.change_job(WatchChange::Apply(job))),
            Seen::Pod(pod) => drop(index.change_pod(WatchChange::Apply(pod))),
            Seen::PodGone => drop(index.change_pod(WatchChange::Delete(pod(None).name))),
        }
    }
}

/// Returns whether the Job counts as one that nobody has opened; else it has failed.
fn is_unopened(index: &Index) -> bool {
    let job = index.jobs_of("a").pop().expect("the Job is there");
    assert_eq!((job.is_over, job.failed.is_some()), (!job.is_unopened, !job.is_unopened));
    job.is_unopened
}

/// No orchestrator led, and this replica has watched. The watches of Jobs and pods may be of different speed.
#[test]
fn a_run_that_nobody_opened_in_time_waits_until_its_job_is_made_again() {
    let ending = Pod { terminating: true, ..pod(Some(0)) };
    let orders = [
        vec![
            Seen::Job(gated()),
            Seen::Pod(pod(Some(0))),
            Seen::Pod(ending.clone()),
            Seen::PodGone,
            Seen::Job(late(true)),
        ],
        vec![Seen::Job(gated()), Seen::Pod(pod(Some(0))), Seen::PodGone, Seen::Job(late(false)), Seen::Job(late(true))],
        vec![Seen::Pod(pod(Some(0))), Seen::Job(late(false)), Seen::Pod(ending.clone()), Seen::Job(late(true))],
        vec![Seen::Job(late(false)), Seen::Pod(ending), Seen::PodGone, Seen::Job(late(true))],
        vec![Seen::Job(late(true)), Seen::Pod(pod(Some(0))), Seen::PodGone],
    ];
    for order in orders {
        let mut index = index();
        see(&mut index, order);
        assert!(is_unopened(&index));
        let gate = WorkItem::Gate(gated().name);
        assert!(index.begin_term().items.contains(&gate), "the next leader deletes the Job");
        let decision = index.observe_gate(&gated().name).decide(false, 0);
        assert_eq!((decision.rule, decision.step), (Rule::NotAnswered, Step::Confirm));
    }
}

/// Kubernetes has counted the time of its Job meanwhile.
#[test]
fn a_run_that_waited_during_a_pause_of_its_leader_begins_again() {
    let (mut index, asked) = (index(), 1_000);
    let job = Job { requested: Some(asked), deadline: Some(600), ..gated() };
    let waiting = Pod { created: asked, ..pod(Some(0)) };
    see(&mut index, [Seen::Job(job.clone()), Seen::Pod(waiting)]);
    index.record_answer(job.uid.clone());
    index.resume_term();
    let step = |index: &Index, now| index.observe_gate(&job.name).decide(true, now).step;
    assert_eq!(step(&index, asked + 12), Step::Open("pod".into()));
    assert_eq!(step(&index, asked + 540), Step::Close);
    index.close_job(&job);
    assert!(!index.begin_opening(&job.uid, "pod"), "even if the request to delete it fails");
    assert_eq!(step(&index, asked + 541), Step::Close);
}

#[test]
fn a_run_that_may_have_been_opened_has_failed_at_the_end_of_its_time() {
    let ending = Pod { terminating: true, ..pod(Some(0)) };
    let orders = [
        vec![Seen::Job(late(true))],
        vec![Seen::Job(gated()), Seen::Pod(pod(Some(0))), Seen::Pod(pod(None)), Seen::PodGone, Seen::Job(late(true))],
        vec![Seen::Job(gated()), Seen::Pod(pod(None)), Seen::Job(late(true)), Seen::PodGone],
    ];
    for order in orders {
        let mut index = index();
        see(&mut index, order);
        assert!(!is_unopened(&index));
    }
    for is_asked in [false, true] {
        let mut index = index();
        see(&mut index, [Seen::Job(gated()), Seen::Pod(pod(Some(0)))]);
        index.record_answer(gated().uid);
        assert!(!is_asked || index.begin_opening(&gated().uid, "pod"));
        see(&mut index, [Seen::Pod(ending.clone()), Seen::PodGone, Seen::Job(late(true))]);
        assert_eq!(is_unopened(&index), !is_asked, "the request may have arrived");
    }
    let mut failed = index();
    let other = JobEnd { reason: "BackoffLimitExceeded".into(), message: String::new(), at: 9 };
    see(&mut failed, [Seen::Job(gated()), Seen::Pod(ending), Seen::Job(Job { failed: Some(other), ..late(true) })]);
    assert!(!is_unopened(&failed), "somebody has deleted its pod");
}
