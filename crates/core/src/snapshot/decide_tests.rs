//! Tests of each row of the table, and properties of all observations.

use proptest::prelude::*;

use super::*;
use crate::config::record::EffectiveConfig;

const NOW: i64 = 1_000_000;
const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";
const NODE: &str = "n1";

fn record(data: &[(&str, &str)]) -> EffectiveConfig {
    let all = [("image", "x"), ("backoff", "10s..60s")].iter().chain(data);
    let data = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    EffectiveConfig {
        config: ObjectName::new("admin", "silver"),
        class: "silver".into(),
        data,
        ..EffectiveConfig::default()
    }
}

/// Returns a recipe with or without `capabilities: snapshot`, also where no config may declare it.
fn recipe(able: bool) -> Recipe {
    let recipe = record(&[]).recipe().unwrap();
    Recipe { capabilities: able.then(|| CAPABILITY.to_owned()).into_iter().collect(), ..recipe }
}

fn provenance() -> Provenance {
    Provenance {
        record: record(&[]),
        node: NODE.into(),
        volume_id: "v".into(),
        pv_name: "pvc-v".into(),
        size: 1 << 30,
        volume_mode: "Filesystem".into(),
    }
}

fn content() -> Content {
    Content {
        name: names::content_name(UID),
        uid: "c".into(),
        resource_version: "1".into(),
        created: NOW,
        deleting: false,
        finalizers: Vec::new(),
        instance: Some("default".into()),
        driver: "flex".into(),
        policy: "Delete".into(),
        handle: None,
        told: None,
        snapshot: ObjectName::new("team", "monday"),
        snapshot_uid: UID.into(),
        volume_mode: None,
        class: None,
        attempt: 0,
        provenance: None,
        last_failure: None,
        abandoned: false,
        ready: false,
        made_at: None,
        size: None,
        error: None,
    }
}

fn failure(operation: Operation, attempt: u32, kind: Failure) -> LastFailure {
    let (reason, message) = ("ExitCode".to_owned(), "the array is on fire".to_owned());
    LastFailure {
        operation,
        attempt,
        at: NOW,
        kind,
        reason,
        message,
        without_account: false,
        config: String::new(),
        unstarted_attempts: 0,
    }
}

#[derive(Clone, Debug)]
struct World {
    content: Content,
    ours: bool,
    fresh: bool,
    snapshot: SnapshotState,
    source: Result<(), String>,
    able: bool,
    is_terminating: bool,
    is_protected: bool,
    has_slot: bool,
    known: bool,
    jobs: Vec<Job>,
    run: RunState,
    has_running_pods: bool,
    node_states: NodeStates,
    node_gone: NodeGone,
    delete_run: RunState,
    source_users: Vec<SourceUser>,
}

/// Returns a content that was just created.
fn new() -> World {
    World {
        content: content(),
        ours: true,
        fresh: false,
        snapshot: SnapshotState::Alive,
        source: Ok(()),
        able: true,
        is_terminating: false,
        is_protected: false,
        has_slot: true,
        known: true,
        jobs: Vec::new(),
        run: RunState::Absent,
        has_running_pods: false,
        node_states: NodeStates([(NODE.to_owned(), NodeState::Ready)].into()),
        node_gone: NodeGone::Hold,
        delete_run: RunState::Absent,
        source_users: Vec::new(),
    }
}

/// Returns a content whose first attempt is stamped.
fn begun() -> World {
    let mut world = new();
    world.content.finalizers = vec![names::SNAPSHOT_FINALIZER.into()];
    (world.content.attempt, world.content.provenance) = (1, Some(serde_json::json!(provenance()).to_string()));
    world
}

fn ready() -> World {
    let mut world = begun();
    world.content.ready = true;
    world
}

/// Deletes the content and its VolumeSnapshot.
fn deleting(mut world: World) -> World {
    world.content.deleting = true;
    world.snapshot = SnapshotState::Terminating;
    world
}

fn job(attempt: u32, is_over: bool) -> Job {
    let run_labels =
        crate::run::view::RunLabels { operation: "snapshot".into(), id: UID.into(), attempt, class: "c".into() };
    Job { name: ObjectName::new("admin", format!("snapshot-{UID}-{attempt}")), run_labels, is_over, ..Job::default() }
}

fn failed(pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "busy"), kind: Failure::Retry, at: NOW, pods_ended }
}

fn claim(uid: &str, in_progress: bool) -> SourceUser {
    SourceUser { uid: uid.into(), in_progress: in_progress.then(|| ObjectName::new("team", uid)) }
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        let (recipe, provenance) = (recipe(self.able), provenance());
        let jobs: Vec<&Job> = self.jobs.iter().collect();
        decide(
            &Observed {
                content: &self.content,
                ours: self.ours,
                fresh: self.fresh,
                snapshot: self.snapshot,
                source: self.source.clone().map(|()| Source {
                    provenance: &provenance,
                    recipe: &recipe,
                    is_terminating: self.is_terminating,
                    is_protected: self.is_protected,
                    has_slot: self.has_slot,
                }),
                recipe: if self.known { Ok(&recipe) } else { Err("lost".into()) },
                home_node: NODE,
                jobs: &jobs,
                run: self.run.clone(),
                has_running_pods: self.has_running_pods,
                nodes_with_pods: &[],
                node_states: &self.node_states,
                node_gone: self.node_gone,
                delete_run: self.delete_run.clone(),
                source_users: &self.source_users,
            },
            now,
        )
    }

    fn step(&self) -> Step {
        self.decide(NOW).step
    }

    #[track_caller]
    fn says(&self, texts: &str) {
        let decision = self.decide(NOW);
        let said = decision.event.map(|tell| tell.message).unwrap_or_default();
        assert!(said.contains(texts), "{:?}: {said}", decision.step);
    }

    fn with(mut self, change: impl FnOnce(&mut World)) -> World {
        change(&mut self);
        self
    }
}

#[test]
fn rows_1_and_2_what_is_not_ours_is_left_alone() {
    assert_eq!(new().with(|w| w.ours = false).step(), Step::Nothing);
    // A claim that was restored from the content does not keep it any longer.
    let filled = || {
        new().with(|w| (w.ours, w.source_users) = (false, vec![SourceUser { uid: "copy".into(), in_progress: None }]))
    };
    assert_eq!(filled().step(), Step::UnprotectSource { claims: vec!["copy".into()] });
    assert_eq!(deleting(filled()).step(), Step::UnprotectSource { claims: vec!["copy".into()] });
    assert_eq!(deleting(new()).step(), Step::Nothing, "nothing keeps it");
    let theirs = deleting(new()).with(|w| w.content.finalizers = vec![names::CONTENT_FINALIZER.into()]);
    assert_eq!(
        theirs.step(),
        Step::RemoveFinalizer,
        "the snapshot-controller leaves its finalizer to whoever stored it"
    );
}

#[test]
fn rows_3_to_6_a_content_that_goes_waits_for_those_who_need_it() {
    assert_eq!(deleting(ready()).with(|w| w.content.abandoned = true).step(), Step::RemoveFinalizer);
    assert_eq!(deleting(ready()).with(|w| w.snapshot = SnapshotState::Missing).step(), Step::ConfirmSnapshot);
    let alive = deleting(ready()).with(|w| w.snapshot = SnapshotState::Alive);
    assert_eq!(alive.step(), Step::Nothing);
    alive.says("as long as its VolumeSnapshot exists");
    let filling = deleting(ready()).with(|w| w.source_users = vec![claim("a", true), claim("b", false)]);
    assert_eq!(filling.step(), Step::UnprotectSource { claims: vec!["b".into()] });
    let filling = filling.with(|w| w.source_users.truncate(1));
    assert_eq!(filling.step(), Step::Nothing);
    filling.says("filled from it: team/a");
}

#[test]
fn row_7_a_run_ends_before_its_snapshot_is_deleted() {
    let running = deleting(begun()).with(|w| (w.jobs, w.run) = (vec![job(1, false)], RunState::Running));
    assert_eq!(running.step(), Step::RemoveJob { job: job(1, false).name });
    let stopping = running.clone().with(|w| w.jobs[0].deleting = true);
    assert_eq!(stopping.step(), Step::Nothing);
    let pod = deleting(begun()).with(|w| w.has_running_pods = true);
    assert_eq!(pod.step(), Step::Nothing);
    let over = deleting(ready()).with(|w| (w.jobs, w.run) = (vec![job(1, true)], RunState::Succeeded));
    assert_eq!(over.step(), Step::RemoveJob { job: job(1, true).name }, "a later one is then known to be late");
}

#[test]
fn rows_8_and_9_what_stays_and_what_nobody_can_delete() {
    assert_eq!(deleting(begun()).with(|w| w.content.provenance = None).step(), Step::RemoveFinalizer);
    let retained = |world: World| deleting(world).with(|w| w.content.policy = "Retain".into());
    assert_eq!(retained(ready()).step(), Step::RemoveFinalizer);
    assert_eq!(retained(begun()).step(), Step::StartDelete { attempt: 1, on_any_node: false }, "it is half-made");
    deleting(ready()).with(|w| w.known = false).says("cannot be deleted: lost; clean up by hand");
}

#[test]
fn rows_10_and_11_a_snapshot_is_deleted_where_it_is() {
    let world = |state, node_gone| {
        deleting(ready())
            .with(|w| (w.node_states, w.node_gone) = (NodeStates([(NODE.to_owned(), state)].into()), node_gone))
    };
    assert_eq!(world(NodeState::Missing, NodeGone::Hold).step(), Step::ConfirmNode { node: NODE.into() });
    world(NodeState::Gone, NodeGone::Hold).says("node n1, which stores the snapshot, is gone");
    assert_eq!(world(NodeState::Gone, NodeGone::Hold).step(), Step::Nothing);
    assert_eq!(world(NodeState::Gone, NodeGone::Forget).step(), Step::RemoveFinalizer);
    let elsewhere = Step::StartDelete { attempt: 1, on_any_node: true };
    assert_eq!(world(NodeState::Gone, NodeGone::RunElsewhere).step(), elsewhere);
}

#[test]
fn row_12_a_failed_deletion_is_repeated_at_the_pace_of_the_class() {
    let world = deleting(ready());
    assert_eq!(world.step(), Step::StartDelete { attempt: 1, on_any_node: false });
    let run = |state| world.clone().with(|w| w.delete_run = state);
    assert_eq!(run(RunState::Running).step(), Step::Nothing);
    assert_eq!(run(failed(false)).step(), Step::Nothing);
    assert_eq!(run(RunState::Succeeded).step(), Step::RemoveFinalizer);
    let Step::RecordFailure(failure) = run(failed(true)).step() else { panic!("it failed") };
    assert_eq!((failure.operation, failure.attempt), (Operation::DeleteSnapshot, 1));
    run(failed(true)).says("delete-snapshot run 1 failed: busy; next try in 10 s");
    let waits = world.with(|w| w.content.last_failure = Some(failure));
    let decision = waits.decide(NOW);
    assert_eq!((decision.step, decision.requeue_at), (Step::Nothing, Some(NOW + 10)));
    assert_eq!(waits.decide(NOW + 10).step, Step::StartDelete { attempt: 2, on_any_node: false });
}

#[test]
fn rows_13_to_15_a_snapshot_that_exists_and_one_that_is_ready() {
    let existing = new().with(|w| w.content.handle = Some("h".into()));
    assert_eq!(existing.step(), Step::AddFinalizer);
    assert_eq!(
        begun().with(|w| w.content.finalizers.clear()).step(),
        Step::AddFinalizer,
        "the snapshot-controller took it off"
    );
    let held = existing.with(|w| w.content.finalizers = vec![names::SNAPSHOT_FINALIZER.into()]);
    assert_eq!(held.step(), Step::MarkReady { size: None });
    assert_eq!(held.clone().with(|w| w.content.ready = true).step(), Step::Nothing);
    let gone = deleting(held).with(|w| w.snapshot = SnapshotState::Gone);
    assert_eq!(gone.step(), Step::StartDelete { attempt: 1, on_any_node: false });
    assert_eq!(ready().step(), Step::Nothing);
    let done = ready().with(|w| (w.jobs, w.run) = (vec![job(1, true)], RunState::Succeeded));
    assert_eq!(done.step(), Step::RemoveJob { job: job(1, true).name });
    let filled = ready().with(|w| w.source_users = vec![claim("a", false)]);
    assert_eq!(filled.step(), Step::UnprotectSource { claims: vec!["a".into()] });
    assert_eq!(ready().with(|w| w.source_users = vec![claim("a", true)]).step(), Step::Nothing);
}

#[test]
fn rows_16_to_18_nothing_begins_for_a_snapshot_that_goes() {
    assert_eq!(new().with(|w| w.snapshot = SnapshotState::Missing).step(), Step::ConfirmSnapshot);
    let gone = new().with(|w| w.snapshot = SnapshotState::Gone);
    assert_eq!(gone.step(), Step::DeleteContent);
    assert_eq!(gone.with(|w| w.content.instance = None).step(), Step::Nothing, "somebody else made it");
    for state in [SnapshotState::Terminating, SnapshotState::Gone] {
        assert_eq!(begun().with(|w| (w.snapshot, w.is_protected, w.fresh) = (state, true, true)).step(), Step::Nothing);
    }
    assert_eq!(new().with(|w| w.snapshot = SnapshotState::Unbound).step(), Step::Nothing);
}

#[test]
fn row_19_what_was_begun_of_a_claim_that_is_gone_is_not_made_of_another_of_its_name() {
    let old = Provenance { volume_id: "old".into(), pv_name: "pvc-old".into(), ..provenance() };
    for kept in [false, true] {
        let world = begun().with(|w| {
            w.content.provenance = Some(serde_json::json!(old).to_string());
            (w.is_protected, w.fresh) = (kept, true);
        });
        assert!(matches!(world.step(), Step::Report { .. }), "{:?}", world.step());
        world.says("snapshot the volume pvc-old, but its claim is gone");
    }
}

#[test]
fn row_19_what_can_not_begin_is_said_once_in_the_status() {
    type Spoilt = fn(&mut World);
    let cases: [(Spoilt, &str); 3] = [
        (|w| w.source = Err("claim team/a is not bound".into()), "is not bound"),
        (
            |w| w.able = false,
            "admin/silver does not declare that its image can make snapshots (`capabilities: snapshot`)",
        ),
        (|w| w.is_terminating = true, "is being deleted"),
    ];
    for (change, says) in cases {
        let world = new().with(change);
        let Step::Report { error } = world.step() else { panic!("{says}: {:?}", world.step()) };
        assert!(error.contains(says), "{error}");
        assert_eq!(world.with(|w| w.content.error = Some(error)).step(), Step::Nothing);
    }
    let kept = begun().with(|w| (w.is_terminating, w.is_protected, w.fresh) = (true, true, true));
    assert_eq!(kept.step(), Step::StartRun, "what is kept can still be read");
}

#[test]
fn rows_20_and_21_the_next_attempt_follows_by_backoff() {
    let stamp = |attempt| Step::Stamp { attempt, provenance: Box::new(provenance()) };
    assert_eq!(new().step(), stamp(1));
    let noted = |kind| begun().with(|w| w.content.last_failure = Some(failure(Operation::Snapshot, 1, kind)));
    let world = noted(Failure::Retry);
    assert_eq!(world.step(), Step::Report { error: "the array is on fire".into() });
    let told = world.with(|w| w.content.error = Some("the array is on fire".into()));
    let decision = told.decide(NOW);
    assert_eq!((decision.step, decision.requeue_at), (Step::Nothing, Some(NOW + 10)));
    assert_eq!(told.decide(NOW + 10).step, stamp(2));
    let waits = told.with(|w| w.jobs = vec![job(1, false)]);
    assert_eq!(waits.decide(NOW + 10).step, Step::Nothing, "its Job is not over");
    let never = noted(Failure::Never).with(|w| w.content.error = Some("the array is on fire".into()));
    assert_eq!(never.decide(NOW + 60).step, Step::Nothing);
    assert_eq!(never.decide(NOW + 1800).step, stamp(2));
}

#[test]
fn row_21_a_run_waits_for_a_place_of_its_class() {
    let full = new().with(|w| w.has_slot = false);
    let decision = full.decide(NOW);
    assert_eq!((decision.step, decision.event, decision.requeue_at), (Step::WaitForSlot, None, Some(NOW + 30)));
    let later = full.decide(NOW + 31);
    let (tell, again) = (later.event.expect("it has waited for long"), later.requeue_at);
    assert!(!tell.warning && tell.message.contains("`max-in-flight`") && again == Some(NOW + 61), "{tell:?}");
    let begun = begun().with(|w| (w.has_slot, w.is_protected, w.fresh) = (false, true, true));
    assert_eq!(begun.step(), Step::StartRun, "what is begun has its place");
    assert_eq!(deleting(begun).step(), Step::StartDelete { attempt: 1, on_any_node: false }, "to delete takes none");
}

#[test]
fn rows_22_to_24_a_run_begins_when_its_source_is_kept() {
    assert_eq!(begun().step(), Step::ProtectSource);
    assert_eq!(begun().with(|w| w.is_protected = true).step(), Step::Refresh);
    let due = begun().with(|w| (w.is_protected, w.fresh) = (true, true));
    assert_eq!(due.step(), Step::StartRun);
    let run = |state| due.clone().with(|w| (w.jobs, w.run) = (vec![job(1, false)], state));
    assert_eq!(run(RunState::Running).step(), Step::Nothing);
    assert_eq!(run(failed(false)).step(), Step::Nothing);
    assert_eq!(run(RunState::Succeeded).step(), Step::MarkReady { size: Some(1 << 30) });
    run(RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: NOW }).says("no such image");
    let Step::RecordFailure(failure) = run(failed(true)).step() else { panic!("it failed") };
    assert_eq!((failure.operation, failure.attempt, failure.at), (Operation::Snapshot, 1, NOW));
    run(failed(true)).says("snapshot run 1 failed: busy; next try in 10 s");
}

fn states() -> impl Strategy<Value = RunState> {
    prop_oneof![
        Just(RunState::Absent),
        Just(RunState::Running),
        Just(RunState::Succeeded),
        Just(failed(true)),
        Just(failed(false)),
        Just(RunState::Stuck { cause: Cause::new("ErrImagePull", "none"), since: NOW }),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    let snapshots = prop_oneof![
        Just(SnapshotState::Unbound),
        Just(SnapshotState::Alive),
        Just(SnapshotState::Terminating),
        Just(SnapshotState::Missing),
        Just(SnapshotState::Gone),
    ];
    let flags = (any::<[bool; 15]>(), 0u32..3, prop::option::of((any::<bool>(), 1u32..3, any::<bool>())));
    let filling = prop::collection::vec((any::<bool>(), 0..3u8), 0..3);
    let jobs = prop::collection::vec((1u32..3, any::<bool>(), any::<bool>()), 0..3);
    (snapshots, flags, filling, jobs, states(), states()).prop_map(
        |(snapshot, (flags, attempt, noted), filling, jobs, run, delete_run)| {
            let [
                deleting,
                held,
                theirs,
                begun,
                ready,
                handle,
                retain,
                fresh,
                able,
                terminating,
                kept,
                known,
                has_running_pods,
                abandoned,
                room,
            ] = flags;
            let mut world = new();
            let content = &mut world.content;
            (content.deleting, content.ready, content.attempt, content.abandoned) =
                (deleting, ready, attempt, abandoned);
            content.finalizers.extend(held.then(|| names::SNAPSHOT_FINALIZER.to_owned()));
            content.finalizers.extend(theirs.then(|| names::CONTENT_FINALIZER.to_owned()));
            content.provenance = begun.then(|| serde_json::json!(provenance()).to_string());
            content.handle = handle.then(|| "h".to_owned());
            content.policy = if retain { "Retain" } else { "Delete" }.into();
            content.last_failure = noted.map(|(deletes, attempt, never)| {
                let operation = if deletes { Operation::DeleteSnapshot } else { Operation::Snapshot };
                failure(operation, attempt, if never { Failure::Never } else { Failure::Retry })
            });
            (world.snapshot, world.fresh, world.able, world.is_terminating) = (snapshot, fresh, able, terminating);
            (world.is_protected, world.known, world.has_running_pods, world.has_slot) =
                (kept, known, has_running_pods, room);
            world.source_users =
                filling.into_iter().map(|(in_progress, n)| claim(&n.to_string(), in_progress)).collect();
            world.jobs = jobs.into_iter().map(|(n, over, deleting)| Job { deleting, ..job(n, over) }).collect();
            (world.run, world.delete_run) = (run, delete_run);
            world
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_run_begins_only_with_its_trace_and_when_no_other_can_be_under_way(world in worlds(), later in 0i64..4000) {
        let content = &world.content;
        let running = |attempt: Option<u32>| world.jobs.iter().any(|job| !job.is_over && attempt.is_none_or(|a| a == job.run_labels.attempt));
        match world.decide(NOW + later).step {
            Step::StartRun => {
                prop_assert!(content.has_finalizer() && content.provenance.is_some() && content.attempt > 0);
                prop_assert!(world.is_protected && world.fresh && world.able && !content.deleting && !content.ready);
                prop_assert!(world.snapshot == SnapshotState::Alive && world.run == RunState::Absent);
                prop_assert!(!world.jobs.iter().any(|job| job.run_labels.attempt == content.attempt));
            }
            Step::Stamp { attempt, .. } => {
                prop_assert!(attempt > content.attempt && world.able && !content.deleting && !content.ready);
                prop_assert!(!running(None) && !world.has_running_pods && content.handle.is_none());
                prop_assert!(world.has_slot);
            }
            Step::WaitForSlot => {
                prop_assert!(!world.has_slot && !content.ready && !content.deleting && content.handle.is_none());
            }
            Step::StartDelete { .. } => {
                prop_assert!(content.deleting && world.known && world.delete_run == RunState::Absent);
                prop_assert!(!world.has_running_pods && world.jobs.is_empty() && world.run == RunState::Absent);
                prop_assert!(world.source_users.is_empty() && world.snapshot != SnapshotState::Alive);
            }
            _ => {}
        }
    }

    #[test]
    fn what_is_stored_is_let_go_only_when_it_is_gone_or_to_stay(world in worlds()) {
        let content = &world.content;
        if world.step() == Step::RemoveFinalizer && !content.abandoned {
            let begun = content.provenance.is_some() || content.handle.is_some();
            let stays = content.policy == "Retain" && content.ready;
            prop_assert!(content.deleting && world.source_users.is_empty() && !world.has_running_pods);
            prop_assert!(!begun || stays || world.delete_run == RunState::Succeeded);
        }
        if world.step() == Step::DeleteContent {
            prop_assert!(content.provenance.is_none() && content.handle.is_none() && world.snapshot == SnapshotState::Gone);
        }
    }

    #[test]
    fn what_is_written_is_not_written_again(world in worlds()) {
        let decision = world.decide(NOW);
        let change = |change: &dyn Fn(&mut World)| world.clone().with(|w| change(w));
        let next = match decision.step.clone() {
            Step::Report { error } => change(&|w| w.content.error = Some(error.clone())),
            Step::MarkReady { .. } => change(&|w| w.content.ready = true),
            Step::AddFinalizer => change(&|w| w.content.finalizers.push(names::SNAPSHOT_FINALIZER.into())),
            Step::ProtectSource => change(&|w| w.is_protected = true),
            Step::Refresh => change(&|w| w.fresh = true),
            Step::RecordFailure(failure) => change(&|w| w.content.last_failure = Some(failure.clone())),
            Step::UnprotectSource { claims } => change(&|w| w.source_users.retain(|claim| !claims.contains(&claim.uid))),
            _ => return Ok(()),
        };
        prop_assert_ne!(next.decide(NOW).step, decision.step);
    }
}
