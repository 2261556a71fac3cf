use proptest::prelude::*;

use super::*;

const NOW: i64 = 1000;

fn job() -> Job {
    Job { uid: "job".into(), has_gate: true, created: NOW, ..Job::default() }
}

fn pod(uid: &str, gate: Option<usize>) -> Pod {
    Pod { uid: uid.into(), job_uid: "job".into(), gate, ..Pod::default() }
}

fn ended(uid: &str) -> Pod {
    Pod { phase: "Failed".into(), ..pod(uid, None) }
}

fn observed<'a>(job: &'a Job, answer: Option<&'a Answer>, pods: &'a [&'a Pod]) -> Observed<'a> {
    Observed { job: Some(job), pods, strays: &[], is_requested: false, answer, closes: 0, is_confirmed: true }
}

fn decided(answer: Option<&Answer>, pods: &[Pod]) -> (Rule, Step) {
    let (job, pods) = (job(), pods.iter().collect::<Vec<_>>());
    let Decision { rule, step, .. } = decide(&observed(&job, answer, &pods), NOW);
    (rule, step)
}

fn opened(uid: &str) -> Answer {
    Answer { opened: Some(uid.into()), ..Answer::default() }
}

#[test]
fn only_a_pod_of_an_answered_job_is_opened() {
    let closed = [pod("a", Some(0))];
    assert_eq!(decided(Some(&Answer::default()), &closed), (Rule::PodReady, Step::Open("a".into())));
    assert_eq!(decided(Some(&Answer::default()), &[]), (Rule::NoPodWaits, Step::Nothing));
    assert_eq!(decided(None, &closed), (Rule::NotAnswered, Step::Close));
    assert_eq!(decided(None, &[]), (Rule::NoPodWaits, Step::Nothing), "a quota may refuse the pod for a long time");
    let (job, pods) = (job(), closed.iter().collect::<Vec<_>>());
    let of = |change: fn(&mut Observed<'_>)| {
        let mut observed = observed(&job, None, &pods);
        change(&mut observed);
        decide(&observed, NOW)
    };
    assert_eq!(of(|o| o.is_confirmed = false).step, Step::Confirm);
    assert_eq!(of(|o| o.is_requested = true), Rule::JobRequested.nothing());
    assert_eq!(of(|o| o.closes = 3), Rule::NotAnswered.nothing().requeue_at(NOW + 8));
    assert_eq!(of(|o| o.closes = 99), Rule::NotAnswered.nothing().requeue_at(NOW + 30));
}

#[test]
fn a_clock_behind_that_of_the_api_server_keeps_no_job_that_nobody_opens() {
    for (ahead, closes, step) in
        [(30, 0, Step::Close), (30, 3, Step::Nothing), (3600, 0, Step::Close), (3600, 3, Step::Close)]
    {
        let (job, pod) = (Job { created: NOW + ahead, ..job() }, pod("a", Some(0)));
        let pods = [&pod];
        let o = Observed { closes, ..observed(&job, None, &pods) };
        assert_eq!(decide(&o, NOW).step, step, "{ahead} s, closed {closes} times");
    }
}

#[test]
fn a_run_that_a_former_leader_opened_goes_on() {
    assert_eq!(decided(None, &[pod("a", None)]).0, Rule::NoPodWaits);
    assert_eq!(decided(None, &[pod("a", None), pod("b", Some(0))]).0, Rule::NoPodWaits);
    assert_eq!(decided(None, &[ended("a")]).0, Rule::NoPodWaits);
    assert_eq!(decided(None, &[ended("a"), pod("b", Some(0))]), (Rule::NotAnswered, Step::Close), "it was resumed");
}

/// Kubernetes counts the time of a Job while its pod waits, also where no orchestrator opens it.
#[test]
fn a_job_whose_time_was_over_before_its_pod_was_opened_is_made_again() {
    let late = Job { is_unopened: true, ..job() };
    let closed = pod("a", Some(0));
    let answer = Answer::default();
    for pods in [&[][..], &[&closed]] {
        for answer in [None, Some(&answer)] {
            let o = observed(&late, answer, pods);
            assert_eq!(decide(&o, NOW), Rule::NotAnswered.step(Step::Close));
            assert_eq!(decide(&Observed { is_confirmed: false, ..o }, NOW), Rule::NotAnswered.step(Step::Confirm));
        }
    }
}

/// A pause ends no term, and a request may hang.
#[test]
fn a_run_has_its_time_though_its_leader_was_away() {
    let (requested, answer, asked) = (Some(NOW - 540), Answer::default(), opened("a"));
    let of = |deadline, created, answer, change: fn(&mut Observed<'_>)| {
        let (job, pod) = (Job { requested, deadline, ..job() }, Pod { created, ..pod("a", Some(0)) });
        let pods = [&pod];
        let mut observed = observed(&job, Some(answer), &pods);
        change(&mut observed);
        let Decision { rule, step, .. } = decide(&observed, NOW);
        (rule, step)
    };
    let (begins_again, opens) = ((Rule::NotAnswered, Step::Close), (Rule::PodReady, Step::Open("a".into())));
    for answer in [&answer, &asked] {
        assert_eq!(of(Some(600), NOW - 61, answer, |_| {}), begins_again);
    }
    assert_eq!(of(Some(600), NOW - 61, &answer, |o| o.is_confirmed = false).1, Step::Confirm);
    assert_eq!(of(Some(600), NOW - 61, &answer, |o| o.closes = 1), opens, "it is always slow");
    assert_eq!(of(Some(600), NOW - 60, &answer, |_| {}), opens, "Kubernetes has made the pod late");
    assert_eq!(of(Some(20), NOW - 11, &answer, |_| {}), begins_again);
    assert_eq!(of(Some(20), NOW - 10, &answer, |_| {}), opens);
    assert_eq!(of(None, NOW - 540, &answer, |_| {}), opens);
}

/// The pod of a node that was cut off was deleted by force, so its Job made another.
#[test]
fn a_second_pod_is_opened_only_after_the_end_of_the_first() {
    let answer = opened("a");
    let lost = [pod("a", Some(0))];
    assert_eq!(decided(Some(&answer), &lost), (Rule::PodReady, Step::Open("a".into())), "the request was lost");
    let told = Answer { is_open: true, ..answer.clone() };
    assert_eq!(decided(Some(&told), &lost), (Rule::NoPodWaits, Step::Nothing), "no watch has shown it yet");
    let alone = [pod("b", Some(0))];
    assert_eq!(decided(Some(&answer), &[pod("a", None), alone[0].clone()]), (Rule::NoPodWaits, Step::Nothing));
    assert_eq!(decided(Some(&answer), &alone), (Rule::PodLost, Step::RemovePod("b".into())));
    assert_eq!(
        decided(Some(&Answer::default()), &[pod("a", None), alone[0].clone()]).0,
        Rule::NoPodWaits,
        "somebody else has opened it"
    );
    for answer in [Answer { has_ended: true, ..answer.clone() }, Answer { has_ended: true, ..opened("c") }] {
        assert_eq!(decided(Some(&answer), &alone), (Rule::PodReady, Step::Open("b".into())));
        assert_eq!(decided(Some(&answer), &[ended("a"), alone[0].clone()]).0, Rule::PodReady);
    }
}

#[test]
fn a_pod_whose_job_is_gone_is_removed() {
    let closed = pod("a", Some(0));
    let done = [pod("b", None), Pod { terminating: true, ..pod("c", Some(0)) }];
    let job = job();
    let of =
        |strays: &[&Pod], is_confirmed| decide(&Observed { strays, is_confirmed, ..observed(&job, None, &[]) }, NOW);
    assert_eq!(of(&[&done[0], &closed], false), Rule::StrayPod.step(Step::Confirm));
    assert_eq!(of(&[&done[0], &closed], true), Rule::StrayPod.step(Step::RemovePod("a".into())));
    assert_eq!(of(&[&done[0], &done[1]], true).rule, Rule::NoPodWaits);
    assert_eq!(decide(&Observed { job: None, ..observed(&job, None, &[]) }, NOW).rule, Rule::NothingToOpen);
}

#[test]
fn a_job_without_the_gate_or_at_its_end_is_left_alone() {
    let closed = pod("a", Some(0));
    let jobs = [Job { has_gate: false, ..job() }, Job { terminating: true, ..job() }, Job { is_over: true, ..job() }];
    for job in jobs {
        assert_eq!(decide(&observed(&job, None, &[&closed]), NOW), Rule::NothingToOpen.nothing());
    }
}

prop_compose! {
    fn any_pod()(uid in "[ab]", gate in prop::option::of(0..2_usize), terminating: bool, has_ended: bool) -> Pod {
        let phase = if has_ended { "Failed" } else { "Pending" };
        Pod { terminating, phase: phase.into(), node: gate.is_none().then(|| "node".into()), ..pod(&uid, gate) }
    }
}

proptest! {
    /// Whatever is seen: nothing opens without an answer, only a pod that waits, and none beside one that may run.
    #[test]
    fn nothing_opens_without_an_answer(
        answer in prop::option::of((prop::option::of("[ab]"), any::<bool>(), any::<bool>())),
        pods in prop::collection::vec(any_pod(), 0..3),
        is_requested: bool,
        is_confirmed: bool,
    ) {
        let (job, answer) = (job(), answer.map(|(opened, is_open, has_ended)| Answer { opened, is_open, has_ended }));
        let pods: Vec<&Pod> = pods.iter().collect();
        let observed = Observed { is_requested, is_confirmed, ..observed(&job, answer.as_ref(), &pods) };
        if let Step::Open(uid) = decide(&observed, NOW).step {
            let answer = answer.expect("the Job is answered");
            prop_assert!(!is_requested);
            prop_assert!(pods.iter().any(|pod| pod.uid == uid && pod.gate.is_some() && !pod.terminating));
            prop_assert!(!pods.iter().any(|pod| pod.gate.is_none() && !pod.is_over()));
            prop_assert!(answer.opened.is_none_or(|opened| opened == uid || answer.has_ended));
        }
    }
}
