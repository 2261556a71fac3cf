use flex_contract::names;

use super::*;
use crate::object::ObjectName;
use crate::run::managers::Suspension;
use crate::run::view::{ContainerEnd, JobEnd};

fn job() -> Job {
    Job { uid: "job".into(), created: 100, ..Job::default() }
}

fn pod(phase: &str) -> Pod {
    let (uid, job_uid) = ("pod".into(), "job".into());
    Pod { uid, job_uid, phase: phase.into(), created: 101, reads_log: true, ..Pod::default() }
}

fn ended(code: i32, message: &str) -> ContainerEnd {
    ContainerEnd { container: "provisioner".into(), code, reason: String::new(), message: message.into(), at: 110 }
}

fn failed(state: RunState) -> (String, Reaction, bool) {
    match state {
        RunState::Failed { cause, reaction, pods_ended, .. } => {
            (format!("{}: {}", cause.reason, cause.message), reaction, pods_ended)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cause_always_has_words() {
    for message in ["", " \n"] {
        assert_eq!(Cause::new("R", message).message, "no message was given");
    }
}

#[test]
fn a_run_without_a_job_is_absent_unless_it_has_a_pod() {
    assert_eq!(state(None, &[], &[]), RunState::NotCached);
    assert_eq!(state(None, &[&pod("Running")], &[]), RunState::MayBeRunning);
    assert_eq!(state(Some(&job()), &[], &[]), RunState::MayBeRunning);
}

#[test]
fn pods_of_an_earlier_job_do_not_count() {
    let stopped = Pod { job_uid: "before".into(), terminated: Some(ended(137, "")), ..pod("Failed") };
    assert_eq!(state(Some(&job()), &[&stopped], &[]), RunState::MayBeRunning, "its own pod is not observed yet");
    let alive = Pod { job_uid: "before".into(), ..pod("Running") };
    let done = Pod { terminated: Some(ended(0, "")), ..pod("Succeeded") };
    assert_eq!(state(Some(&job()), &[&alive, &done], &[]), RunState::MayBeRunning, "two are never alive unnoticed");
    assert_eq!(state(Some(&job()), &[&stopped, &done], &[]), RunState::Succeeded);
    let over = Job { is_over: true, failed: Some(JobEnd { reason: "R".into(), message: "m".into(), at: 1 }), ..job() };
    assert!(matches!(state(Some(&over), &[&alive], &[]), RunState::MayBeRunning));
}

#[test]
fn the_end_of_the_image_counts_before_the_phase_of_the_pod() {
    let done = Pod { terminated: Some(ended(0, "")), ..pod("Running") };
    assert_eq!(state(Some(&job()), &[&done], &[]), RunState::Succeeded);
    let failed_early = Pod { terminated: Some(ended(75, "server  is\nbusy")), ..pod("Running") };
    let (message, reaction, pods_ended) = failed(state(Some(&job()), &[&failed_early], &[]));
    assert_eq!(message, "ExitCode: exit code 75: try again later: server is busy");
    assert_eq!((reaction, pods_ended), (Reaction::Retry, false));
}

#[test]
fn a_failure_before_the_deadline_is_reported_as_the_cause() {
    let deadline = |at| JobEnd { reason: "DeadlineExceeded".into(), message: "m".into(), at };
    let pod = Pod { terminated: Some(ended(75, "the array is busy")), started: true, ..pod("Failed") };
    let late = Job { is_over: true, failed: Some(deadline(160)), ..job() };
    assert!(failed(state(Some(&late), &[&pod], &[])).0.contains("exit code 75"), "a container beside it continued");
    let killed = Job { is_over: true, failed: Some(deadline(110)), ..job() };
    assert!(failed(state(Some(&killed), &[&pod], &[])).0.contains("did not end within `timeout`"));
    let never = Pod {
        never_started: true,
        ..Pod { phase: "Failed".into(), uid: "p".into(), job_uid: "job".into(), ..Pod::default() }
    };
    assert!(failed(state(Some(&late), &[&never], &[])).0.contains("no container of the run had started"));
}

#[test]
fn a_run_counts_as_never_started_only_with_proof() {
    let never = Pod { never_started: true, ..pod("Failed") };
    assert!(never_started(Some(&job()), &[&never]));
    assert!(!never_started(Some(&job()), &[&never, &pod("Failed")]));
    assert!(!never_started(Some(&job()), &[]), "its pod may not be observed yet");
    assert!(never_started(Some(&Job { is_over: true, ..job() }), &[]));
    assert!(!never_started(Some(&Job { is_over: true, had_pods: true, ..job() }), &[]));
    assert!(!never_started(None, &[]));
}

#[test]
fn exit_codes_decide_about_retries() {
    for (code, expected) in
        [(1, Reaction::Retry), (65, Reaction::Never), (69, Reaction::NoCapacity), (78, Reaction::Never)]
    {
        let pod = Pod { terminated: Some(ended(code, "why")), ..pod("Failed") };
        let (_, reaction, pods_ended) = failed(state(Some(&job()), &[&pod], &[]));
        assert_eq!((reaction, pods_ended), (expected, true), "code {code}");
    }
}

#[test]
fn the_end_of_a_sidecar_is_not_the_end_of_the_image() {
    let sidecar = ContainerEnd { container: "side".into(), ..ended(137, "") };
    let running = Pod { terminated: Some(sidecar.clone()), started: true, ..pod("Running") };
    assert_eq!(state(Some(&job()), &[&running], &[]), RunState::MayBeRunning);
    let dead = Pod { terminated: Some(sidecar), ..pod("Failed") };
    let (message, reaction, _) = failed(state(Some(&job()), &[&dead], &[]));
    assert!(message.contains("container side"), "{message}");
    assert_eq!(reaction, Reaction::Retry);
}

#[test]
fn a_deadline_names_what_kept_the_pod_from_starting() {
    let late =
        Job { failed: Some(JobEnd { reason: "DeadlineExceeded".into(), message: String::new(), at: 120 }), ..job() };
    let (message, _, pods_ended) = failed(state(
        Some(&late),
        &[&Pod { stuck: Some(StatusReason::new("Unschedulable", "0/1 nodes")), terminating: true, ..pod("Pending") }],
        &[],
    ));
    assert!(message.contains("did not start within `timeout`: Unschedulable: 0/1 nodes"), "{message}");
    assert!(!pods_ended, "its pod may still start");
    let (message, reaction, _) = failed(state(
        Some(&late),
        &[&Pod { terminated: Some(ended(143, "waiting for server")), terminating: true, ..pod("Failed") }],
        &[],
    ));
    assert!(message.contains("waiting for server"), "{message}");
    assert_eq!(reaction, Reaction::Retry);
}

/// No orchestrator was there to open the pod, or to see its end.
#[test]
fn a_deadline_says_nothing_of_an_image_that_nobody_has_seen() {
    let end = JobEnd { reason: "DeadlineExceeded".into(), message: String::new(), at: 130 };
    let late = Job { failed: Some(end), deadline: Some(30), is_over: true, had_pods: true, ..job() };
    let said = |pods: &[&Pod]| failed(state(Some(&late), pods, &[])).0;
    let closed = Pod { gate: Some(0), terminating: true, ..pod("Pending") };
    let never = "DeadlineExceeded: no container of the run had started within 30 s (`timeout`)";
    assert_eq!(said(&[&closed]), never);
    assert_eq!(said(&[]), "DeadlineExceeded: the run did not end within 30 s (`timeout`), and its pod is gone");
    assert!(said(&[&Pod { gate: None, ..closed }]).contains("the image did not end within 30 s"));
}

#[test]
fn a_deadline_says_nothing_of_words_that_nobody_has_read() {
    let end = |at| JobEnd { reason: "DeadlineExceeded".into(), message: String::new(), at };
    let late = Job { failed: Some(end(130)), deadline: Some(30), ..job() };
    let running = Pod { started: true, terminating: true, ..pod("Running") };
    let (message, ..) = failed(state(Some(&late), &[&running], &[]));
    assert_eq!(message, "DeadlineExceeded: the image did not end within 30 s (`timeout`)", "it may have said anything");
    let silent = Pod { terminated: Some(ContainerEnd { at: 130, ..ended(137, "") }), ..pod("Failed") };
    let (message, ..) = failed(state(Some(&late), &[&silent], &[]));
    assert!(message.ends_with("did not end within 30 s (`timeout`), and said nothing"), "{message}");
    let spoken = Pod { terminated: Some(ContainerEnd { at: 130, ..ended(137, "creating LUN") }), ..pod("Failed") };
    let (message, ..) = failed(state(Some(&late), &[&spoken], &[]));
    assert!(message.ends_with("its last words: creating LUN"), "{message}");
}

/// The kubelet takes the end of a log for last words only after a failure, and not where the run has Secrets.
#[test]
fn an_image_said_nothing_only_where_its_log_is_read() {
    let deadline = JobEnd { reason: "DeadlineExceeded".into(), message: String::new(), at: 130 };
    let by_image = Job { name: ObjectName::new("admin", "provision-1"), ..job() };
    let late = Job { failed: Some(deadline), deadline: Some(30), ..by_image.clone() };
    let of_claim = |job: &Job| Job { claim: Some(ObjectName::new("team", "data")), ..job.clone() };
    let of_volume = |job: &Job| Job { volume: Some("flex-pv-1".into()), ..of_claim(job) };
    let pod = |container: &str, code, message: &str, reads_log| Pod {
        terminated: Some(ContainerEnd { container: container.into(), at: 130, ..ended(code, message) }),
        started: true,
        reads_log,
        ..pod("Failed")
    };
    let (image, side) = ("provisioner", "side");
    let unread = "; its log is not read";
    let by_claim = format!("{unread}: flex-provisioner logs team/data");
    let by_job = format!("{unread}: kubectl -n admin logs job/provision-1 -c provisioner");
    let (by_claim, by_job, nothing) = (by_claim.as_str(), by_job.as_str(), ", and said nothing");
    for (what, job, pod, text, expected) in [
        ("it is killed", late.clone(), pod(image, 137, "", true), "30 s (`timeout`)", nothing),
        ("it is killed, with Secrets", of_claim(&late), pod(image, 137, "", false), "30 s (`timeout`)", by_claim),
        ("a delete run, with Secrets", of_volume(&late), pod(image, 137, "", false), "30 s (`timeout`)", by_job),
        ("another container ends first", late.clone(), pod(side, 1, "", true), "30 s (`timeout`)", ""),
        ("the same, with Secrets", of_claim(&late), pod(side, 1, "", false), "30 s (`timeout`)", ""),
        (
            "its words",
            late,
            pod(side, 1, "no route", true),
            "30 s (`timeout`)",
            "; the last words of container side: no route",
        ),
        ("it fails", by_image.clone(), pod(image, 75, "", true), "try again later", nothing),
        ("it fails, with Secrets", of_claim(&by_image), pod(image, 75, "", false), "try again later", by_claim),
        ("an expand run, with Secrets", of_volume(&by_image), pod(image, 75, "", false), "try again later", by_job),
        (
            "another container fails",
            by_image.clone(),
            pod(side, 75, "", true),
            "container side: exit code 75: try again later",
            "",
        ),
        ("it speaks, with Secrets", by_image, pod(image, 75, "busy", false), "try again later", ": busy"),
    ] {
        let (message, ..) = failed(state(Some(&job), &[&pod], &[]));
        assert!(message.ends_with(&format!("{text}{expected}")), "{what}: {message}");
    }
}

/// `trap 'exit 0' TERM` ends so at the deadline.
#[test]
fn a_log_is_not_read_after_exit_0() {
    let stopped = Pod { terminated: Some(ended(0, "")), started: true, ..pod("Failed") };
    let message = deadline_message(&job(), &[&stopped], Some(&stopped), None, &[]);
    assert_eq!(message, "the image did not end within `timeout`");
}

#[test]
fn a_suspended_job_is_stuck_and_says_by_whom() {
    let by = |by: Option<&str>| Job {
        name: ObjectName::new("admin", "delete-1"),
        suspended: Some(Suspension { by: by.map(str::to_owned), since: 105 }),
        ..job()
    };
    let queue = by(Some("kueue"));
    let RunState::Stuck { cause, since } = state(Some(&queue), &[], &[]) else { panic!() };
    assert_eq!((cause.reason.as_str(), since), ("Suspended", 105));
    for part in ["Job admin/delete-1 is suspended", "by kueue", "namespace admin", names::LABEL_MANAGED_BY] {
        assert!(cause.message.contains(part), "{part} in {cause:?}");
    }
    let RunState::Stuck { cause, .. } = state(Some(&by(None)), &[], &[]) else { panic!() };
    assert!(cause.message.contains("an admission policy or webhook"), "{cause:?}");
    // Kubernetes ends the pods of a Job that is suspended while it runs; that is no failure.
    let ending = Pod { terminating: true, started: true, ..pod("Running") };
    assert_eq!(state(Some(&queue), &[&ending], &[]), RunState::MayBeRunning);
    let killed = Pod { terminating: true, terminated: Some(ended(137, "")), ..pod("Failed") };
    assert!(matches!(state(Some(&queue), &[&killed], &[]), RunState::Stuck { .. }));
    let done = Pod { terminated: Some(ended(0, "")), ..pod("Succeeded") };
    assert_eq!(state(Some(&queue), &[&done], &[]), RunState::Succeeded);
    assert_eq!(state(Some(&job()), &[], &[]), RunState::MayBeRunning, "resumed");
}

#[test]
fn a_pod_that_kubernetes_takes_away_is_no_lack_of_memory() {
    let killed = |code| Pod { terminated: Some(ended(code, "")), ..pod("Failed") };
    let target = |reason: &str, code| Pod { disruption: Some(StatusReason::new(reason, "why")), ..killed(code) };
    let of_pod = |reason: &str, pod: Pod| Pod { reason: reason.into(), message: "The node was low".into(), ..pod };
    let bare = Pod { terminated: None, ..killed(137) };
    for (expected, pod) in [
        (
            "EvictionByEvictionAPI: the pod was evicted (EvictionByEvictionAPI: why)",
            target("EvictionByEvictionAPI", 137),
        ),
        (
            "PreemptionByScheduler: the pod was evicted (PreemptionByScheduler: why)",
            target("PreemptionByScheduler", 143),
        ),
        (
            "DeletionByTaintManager: the pod was evicted (DeletionByTaintManager: why)",
            target("DeletionByTaintManager", 1),
        ),
        ("Evicted: the pod was evicted (Evicted: The node was low)", of_pod("Evicted", killed(137))),
        ("Terminated: the pod was evicted (Terminated: The node was low)", of_pod("Terminated", killed(143))),
        ("Evicted: the pod was evicted (Evicted: The node was low)", of_pod("Evicted", bare.clone())),
        (
            "TerminationByKubelet: the pod was evicted",
            Pod { disruption: Some(StatusReason::new("TerminationByKubelet", "")), ..bare },
        ),
        ("PodFailed: somebody deleted the pod", Pod { terminating: true, ..killed(137) }),
        ("ExitCode: exit code 137: killed (out of memory", killed(137)),
        ("ExitCode: exit code 75", of_pod("Evicted", killed(75))),
        ("ExitCode: exit code 75", Pod { terminating: true, ..killed(75) }),
    ] {
        let (message, ..) = failed(state(Some(&job()), &[&pod], &[]));
        assert!(message.starts_with(expected), "{message}, not {expected}");
        assert!(!message.contains("memory") || expected.contains("memory"), "{message}");
    }
    let memory = ContainerEnd { reason: "OOMKilled".into(), ..ended(137, "") };
    let (message, ..) = failed(state(Some(&job()), &[&Pod { terminated: Some(memory), ..target("X", 137) }], &[]));
    assert!(message.contains("ran out of memory"), "{message}");
    let spoken = Pod { terminated: Some(ended(143, "half done")), ..target("X", 143) };
    assert!(failed(state(Some(&job()), &[&spoken], &[])).0.ends_with("(X: why): half done"));
}

/// An admin may set a deadline that is shorter than `timeout`. Kubernetes then ends the pod, and the Job fails because of that.
#[test]
fn a_deadline_that_pod_template_sets_is_no_eviction() {
    let told = "DeadlineExceeded: the image did not end within the `activeDeadlineSeconds` of its pod";
    for (terminated, expected) in [
        (None, told.to_owned()),
        (Some(ended(143, "")), told.to_owned()),
        (Some(ended(137, "half done")), format!("{told}: half done")),
        (Some(ended(75, "busy")), "ExitCode: exit code 75: try again later: busy".to_owned()),
    ] {
        let late = Pod { reason: DEADLINE_EXCEEDED.into(), terminated, ..pod("Failed") };
        let end = JobEnd { reason: "BackoffLimitExceeded".into(), message: String::new(), at: 130 };
        let (message, reaction, _) = failed(state(Some(&Job { failed: Some(end), ..job() }), &[&late], &[]));
        assert_eq!((message, reaction), (expected, Reaction::Retry));
    }
}

#[test]
fn the_name_of_a_pod_that_was_never_created_is_not_in_the_message() {
    let job = Job { name: ObjectName::new("admin", "provision-1"), ..job() };
    let shown = |message: &str| {
        let refused =
            WarningEvent { object_uid: "job".into(), reason: "FailedCreate".into(), message: message.into(), at: 1 };
        let RunState::Stuck { cause, .. } = state(Some(&job), &[], &[&refused]) else { panic!() };
        cause.message
    };
    let first = shown(r#"pods "provision-1-2ljkw" is forbidden: exceeded quota"#);
    assert_eq!(first, shown(r#"pods "provision-1-8c4qb" is forbidden: exceeded quota"#));
    assert!(first.ends_with(r#"pods "provision-1" is forbidden: exceeded quota"#), "{first}");
    let account = shown(
        r#"pods "provision-1-" is forbidden: error looking up service account admin/foo: serviceaccount "foo" not found"#,
    );
    assert!(
        account.starts_with("the ServiceAccount does not exist") && account.contains(r#""foo" not found"#),
        "{account}"
    );
    for other in ["provision-1-controller is away", "no room for provision-1-", "none of provision-1"] {
        assert!(shown(other).ends_with(other), "{other}");
    }
}

#[test]
fn a_container_that_may_not_be_root_says_which_key_permits_it() {
    for texts in
        ["container's runAsUser breaks non-root policy", "container has runAsNonRoot and image will run as root"]
    {
        let refused = Pod { stuck: Some(StatusReason::new("CreateContainerConfigError", texts)), ..pod("Pending") };
        let RunState::Stuck { cause, .. } = state(Some(&job()), &[&refused], &[]) else { panic!() };
        assert!(cause.message.contains("`run-as-user: \"0\"`"), "{cause:?}");
    }
}

#[test]
fn a_user_that_is_a_word_gets_the_key_for_its_number() {
    let texts = "container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root";
    let refused = Pod { stuck: Some(StatusReason::new("CreateContainerConfigError", texts)), ..pod("Pending") };
    let RunState::Stuck { cause, .. } = state(Some(&job()), &[&refused], &[]) else { panic!() };
    assert!(cause.message.contains("number as `run-as-user`") && !cause.message.contains("as root"), "{cause:?}");
}

#[test]
fn the_reason_why_a_pod_does_not_start_is_reported() {
    let pull = Pod { stuck: Some(StatusReason::new("ErrImagePull", "not found")), ..pod("Pending") };
    let RunState::Stuck { cause, .. } = state(Some(&job()), &[&pull], &[]) else { panic!() };
    assert!(cause.message.contains("look at `image`") && cause.message.contains("not found"), "{cause:?}");

    let quota = WarningEvent {
        object_uid: "job".into(),
        reason: "FailedCreate".into(),
        message: "exceeded quota".into(),
        at: 1,
    };
    let RunState::Stuck { cause, since } = state(Some(&job()), &[], &[&quota]) else { panic!() };
    assert!(cause.message.contains("exceeded quota"), "{cause:?}");
    assert_eq!(since, 100);

    let mount = WarningEvent {
        object_uid: "pod".into(),
        reason: "FailedMount".into(),
        message: "secret \"x\" not found".into(),
        at: 1,
    };
    let RunState::Stuck { cause, .. } = state(Some(&job()), &[&pod("Pending")], &[&mount]) else { panic!() };
    assert!(cause.message.contains("secret \"x\" not found"), "{cause:?}");
    let started = Pod { started: true, ..pod("Running") };
    assert_eq!(state(Some(&job()), &[&started], &[&mount]), RunState::MayBeRunning);
}

#[test]
fn the_end_of_a_log_is_its_termination_message() {
    let long = format!("{}END", "x ".repeat(2000));
    let texts = termination_message(&long);
    assert!(texts.chars().count() <= 601 && texts.ends_with("END"));
}

#[test]
fn messages_of_others_are_bounded_and_printable() {
    let cause = Cause::new("R".repeat(1000), format!("\u{1b}[2J{}", "m".repeat(10_000)));
    assert!(cause.reason.len() <= limits::REASON && cause.message.len() <= limits::MESSAGE);
    assert!(cause.message.starts_with("\\u{1b}[2Jmm") && cause.message.ends_with("m…"), "{}", cause.message);
}

/// The scheduler's message only counts the nodes with a taint.
#[test]
fn a_pod_that_fits_on_no_node_is_reported_with_the_taints_of_its_node() {
    let node = |taints: &str| {
        let node = format!("metadata: {{name: node-1}}\nspec: {{taints: [{taints}]}}");
        Node::from(&serde_saphyr::from_str::<k8s_openapi::api::core::v1::Node>(&node).unwrap())
    };
    let full =
        node("{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}, {key: a/b, value: c, effect: NoExecute}");
    let stuck = |reason: &str| {
        let pod = Pod { stuck: Some(StatusReason::new(reason, "0/1 nodes")), ..pod("Pending") };
        state(Some(&job()), &[&pod], &[])
    };
    let message = |state: RunState| match state {
        RunState::Stuck { cause, .. } => cause.message,
        other => panic!("{other:?}"),
    };
    let said = message(stuck("Unschedulable").with_taints_of(Some(&full)));
    let taints = "0/1 nodes; node node-1 has the taints node.kubernetes.io/disk-pressure:NoSchedule, a/b:NoExecute";
    assert!(said.ends_with(taints), "{said}");
    for (reason, node) in [("ErrImagePull", Some(&full)), ("Unschedulable", Some(&node(""))), ("Unschedulable", None)] {
        assert_eq!(stuck(reason).with_taints_of(node), stuck(reason), "{reason}");
    }
}
