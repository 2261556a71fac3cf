//! Tests of the rules.

use flex_contract::names;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::object::ObjectName;
use crate::run::node::NodeState;

const NOW: i64 = 1_000_000;
const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";
const NODE: &str = "n1";

fn effective_config(data: &[(&str, &str)]) -> EffectiveConfig {
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
    let recipe = effective_config(&[]).recipe().unwrap();
    Recipe { capabilities: able.then(|| CAPABILITY.to_owned()).into_iter().collect(), ..recipe }
}

fn provenance() -> SnapshotProvenance {
    SnapshotProvenance {
        effective_config: effective_config(&[]),
        origin_node: Some(NODE.into()),
        volume_id: "v".into(),
        pv_name: "pvc-v".into(),
        size: 1 << 30,
        volume_mode: "Filesystem".into(),
        content_uid: Some("c".into()),
    }
}

fn content() -> Content {
    Content {
        name: names::content_name(UID),
        uid: "c".into(),
        resource_version: "1".into(),
        created: NOW,
        terminating: false,
        finalizers: Vec::new(),
        instance: Some("default".into()),
        driver: "flex".into(),
        policy: "Delete".into(),
        handle: None,
        status_handle: None,
        snapshot: ObjectName::new("team", "monday"),
        snapshot_uid: Some(UID.into()),
        volume_mode: None,
        class: None,
        attempt: 0,
        provenance: None,
        last_failure: None,
        retry: false,
        abandoned: false,
        ready: false,
        made_at: None,
        size: None,
        error: None,
    }
}

fn failure(operation: Operation, attempt: u32, reaction: Reaction) -> LastFailure {
    LastFailure::new(operation, attempt, NOW, &Cause::new("ExitCode", "the array is on fire"), reaction)
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
    delete_jobs: Vec<Job>,
    nodes_with_pods: Vec<String>,
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
        run: RunState::NotCached,
        has_running_pods: false,
        node_states: NodeStates([(NODE.to_owned(), NodeState::Reachable)].into()),
        node_gone: NodeGone::Hold,
        delete_run: RunState::NotCached,
        delete_jobs: Vec::new(),
        nodes_with_pods: Vec::new(),
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
fn terminating(mut world: World) -> World {
    world.content.terminating = true;
    world.snapshot = SnapshotState::Terminating;
    world
}

fn job(attempt: u32, is_over: bool) -> Job {
    let run_labels =
        crate::run::view::RunLabels { operation: "snapshot".into(), id: UID.into(), attempt, class: "c".into() };
    Job { name: ObjectName::new("admin", format!("snapshot-{UID}-{attempt}")), run_labels, is_over, ..Job::default() }
}

fn failed(pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "busy"), reaction: Reaction::Retry, at: NOW, pods_ended }
}

/// Returns the rule about a run that stores the snapshot.
fn snapshot(rule: RunRule) -> Rule {
    Rule::Run(Target::Snapshot, rule)
}

/// Returns the rule about a run that deletes the stored snapshot.
fn stored(rule: RunRule) -> Rule {
    Rule::Run(Target::StoredSnapshot, rule)
}

fn claim(uid: &str, in_progress: bool) -> SourceUser {
    SourceUser { uid: uid.into(), in_progress: in_progress.then(|| ObjectName::new("team", uid)) }
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        let (recipe, provenance) = (recipe(self.able), provenance());
        let jobs: Vec<&Job> = self.jobs.iter().collect();
        let delete_jobs: Vec<&Job> = self.delete_jobs.iter().collect();
        decide(
            &Observed {
                content: &self.content,
                ours: self.ours,
                fresh: self.fresh,
                snapshot: self.snapshot,
                source: self.source.clone().map(|()| RunSource {
                    provenance: &provenance,
                    recipe: &recipe,
                    is_terminating: self.is_terminating,
                    is_protected: self.is_protected,
                    no_slot: (!self.has_slot).then_some(NoSlot::Taken),
                }),
                recipe: if self.known { Ok(&recipe) } else { Err("lost".into()) },
                origin_node: Some(NODE),
                jobs: &jobs,
                run: self.run.clone(),
                has_running_pods: self.has_running_pods,
                nodes_with_pods: &self.nodes_with_pods,
                node_states: &self.node_states,
                node_gone: self.node_gone,
                delete_run: self.delete_run.clone(),
                delete_jobs: &delete_jobs,
                source_users: &self.source_users,
            },
            now,
        )
    }

    /// Returns the step, which is that of a rule.
    #[track_caller]
    fn step(&self, rule: Rule) -> Step {
        let decision = self.decide(NOW);
        assert_eq!(decision.rule, rule, "{decision:?}");
        decision.step
    }

    #[track_caller]
    fn waits(&self, rule: Rule) {
        assert_eq!(self.decide(NOW), rule.nothing());
    }

    #[track_caller]
    fn says(&self, texts: &str) {
        let decision = self.decide(NOW);
        let said = decision.event.map(|event| event.message).unwrap_or_default();
        assert!(said.contains(texts), "{:?}: {said}", decision.step);
    }

    fn with(mut self, change: impl FnOnce(&mut World)) -> World {
        change(&mut self);
        self
    }
}

#[test]
fn contents_of_others_are_left_alone() {
    new().with(|w| w.ours = false).waits(Rule::NotOurs);
    // A claim that was restored from the content does not keep it any longer.
    let filled = || {
        new().with(|w| (w.ours, w.source_users) = (false, vec![SourceUser { uid: "copy".into(), in_progress: None }]))
    };
    for world in [filled(), terminating(filled())] {
        let step = Step::UnprotectSource { claims: vec!["copy".into()] };
        assert_eq!(world.step(Rule::UnprotectContent), step);
    }
    terminating(new()).waits(Rule::KeptByOtherFinalizers);
    let theirs = terminating(new()).with(|w| w.content.finalizers = vec![names::CONTENT_FINALIZER.into()]);
    assert_eq!(
        theirs.step(Rule::NothingStored),
        Step::RemoveFinalizer,
        "the snapshot-controller leaves its finalizer to whoever stored it"
    );
}

#[test]
fn a_terminating_content_waits_for_its_snapshot_and_for_restores() {
    let abandoned = terminating(ready()).with(|w| w.content.abandoned = true);
    assert_eq!(abandoned.step(Rule::Abandoned), Step::RemoveFinalizer);
    // Without its content, the Job would be a late run, and the stored snapshot would be deleted.
    let running = abandoned.clone().with(|w| (w.jobs, w.run) = (vec![job(1, false)], RunState::MayBeRunning));
    assert_eq!(running.step(snapshot(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1, false).name });
    let missing = terminating(ready()).with(|w| w.snapshot = SnapshotState::NotCached);
    assert_eq!(missing.step(Rule::ConfirmSnapshotGone), Step::ConfirmSnapshot);
    let alive = terminating(ready()).with(|w| w.snapshot = SnapshotState::Alive);
    assert_eq!(alive.step(Rule::SnapshotExists), Step::Nothing);
    alive.says("as long as its VolumeSnapshot exists");
    let filling = terminating(ready()).with(|w| w.source_users = vec![claim("a", true), claim("b", false)]);
    assert_eq!(filling.step(Rule::UnprotectContent), Step::UnprotectSource { claims: vec!["b".into()] });
    let filling = filling.with(|w| w.source_users.truncate(1));
    assert_eq!(filling.step(Rule::RestoreInProgress), Step::Nothing);
    filling.says("filled from it: team/a");
}

#[test]
fn a_run_ends_before_its_snapshot_is_deleted() {
    let running = terminating(begun()).with(|w| (w.jobs, w.run) = (vec![job(1, false)], RunState::MayBeRunning));
    assert_eq!(running.step(snapshot(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1, false).name });
    let stopping = running.clone().with(|w| w.jobs[0].terminating = true);
    stopping.waits(snapshot(RunRule::RunEnding));
    let pod = terminating(begun()).with(|w| w.has_running_pods = true);
    pod.waits(snapshot(RunRule::RunEnding));
    let over = terminating(ready()).with(|w| (w.jobs, w.run) = (vec![job(1, true)], RunState::Succeeded));
    assert_eq!(
        over.step(snapshot(RunRule::RunNotWanted)),
        Step::RemoveJob { job: job(1, true).name },
        "a later one is then known to be late"
    );
}

#[test]
fn a_deletion_follows_the_policy_and_needs_the_provenance() {
    let unbegun = terminating(begun()).with(|w| w.content.provenance = None);
    assert_eq!(unbegun.step(Rule::NothingStored), Step::RemoveFinalizer);
    let retained = |world: World| terminating(world).with(|w| w.content.policy = "Retain".into());
    assert_eq!(retained(ready()).step(Rule::DeletedButRetained), Step::RemoveFinalizer);
    let half_made = retained(begun()).step(stored(RunRule::RunDue));
    assert_eq!(half_made, Step::StartDelete { attempt: 1, on_any_node: false });
    let lost = terminating(ready()).with(|w| w.known = false);
    assert_eq!(lost.step(Rule::ProvenanceUnknown), Step::Nothing);
    lost.says("cannot be deleted: lost; clean up by hand");
}

/// The pod of the run may still be opened, and would delete what the admin keeps.
#[test]
fn what_an_admin_keeps_is_let_go_when_no_run_deletes_it_any_more() {
    let job = |terminating| Job { terminating, ..job(9, false) };
    let runs = |jobs| move |w: &mut World| (w.delete_jobs, w.delete_run) = (jobs, RunState::MayBeRunning);
    let retained = terminating(ready()).with(runs(vec![job(false)])).with(|w| w.content.policy = "Retain".into());
    let abandoned = terminating(ready()).with(runs(vec![job(false)])).with(|w| w.content.abandoned = true);
    for world in [&retained, &abandoned] {
        assert_eq!(world.step(stored(RunRule::RunNotWanted)), Step::RemoveJob { job: job(false).name });
        // No watch has shown the Job yet.
        world.clone().with(runs(vec![])).waits(stored(RunRule::RunEnding));
    }
    retained.clone().with(runs(vec![job(true)])).waits(stored(RunRule::RunEnding));
    let gone = retained.with(|w| (w.delete_jobs, w.delete_run) = (vec![], RunState::NotCached));
    assert_eq!(gone.step(Rule::DeletedButRetained), Step::RemoveFinalizer);
    let ending = abandoned.clone().with(runs(vec![job(true)]));
    assert_eq!(ending.step(Rule::Abandoned), Step::RemoveFinalizer, "the node of its pod may be lost");
    let lost = abandoned.with(runs(vec![])).with(|w| w.nodes_with_pods = vec![NODE.into()]);
    assert_eq!(lost.step(Rule::Abandoned), Step::RemoveFinalizer);
}

#[test]
fn a_policy_decides_about_a_snapshot_on_a_deleted_node() {
    let world = |state, node_gone| {
        terminating(ready())
            .with(|w| (w.node_states, w.node_gone) = (NodeStates([(NODE.to_owned(), state)].into()), node_gone))
    };
    let missing = world(NodeState::NotCached, NodeGone::Hold);
    assert_eq!(missing.step(stored(RunRule::ConfirmNodeGone)), Step::ConfirmNode { node: NODE.into() });
    world(NodeState::NotFound, NodeGone::Hold).says("node n1, which stores the snapshot, is gone");
    assert_eq!(world(NodeState::NotFound, NodeGone::Hold).step(stored(RunRule::NodeGoneHold)), Step::Nothing);
    assert_eq!(
        world(NodeState::NotFound, NodeGone::Forget).step(stored(RunRule::NodeGoneForget)),
        Step::RemoveFinalizer
    );
    let elsewhere = Step::StartDelete { attempt: 1, on_any_node: true };
    assert_eq!(
        world(NodeState::NotFound, NodeGone::RunElsewhere).step(stored(RunRule::NodeGoneRunElsewhere)),
        elsewhere
    );
}

#[test]
fn a_failed_deletion_is_repeated_at_the_pace_of_the_class() {
    let world = terminating(ready());
    assert_eq!(world.step(stored(RunRule::RunDue)), Step::StartDelete { attempt: 1, on_any_node: false });
    let run = |state| world.clone().with(|w| w.delete_run = state);
    run(RunState::MayBeRunning).waits(stored(RunRule::RunInProgress));
    run(failed(false)).waits(stored(RunRule::RunEnding));
    let stuck = RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: NOW };
    assert_eq!(run(stuck.clone()).step(stored(RunRule::RunStuck)), Step::Nothing);
    run(stuck).says("delete-snapshot run: no such image");
    assert_eq!(run(RunState::Succeeded).step(stored(RunRule::RunSucceeded)), Step::RemoveFinalizer);
    let Step::RecordFailure(failure) = run(failed(true)).step(stored(RunRule::RunFailed)) else { panic!("it failed") };
    assert_eq!((failure.operation, failure.attempt), (Operation::DeleteSnapshot, 1));
    run(failed(true)).says("delete-snapshot run 1 failed: busy; next try in 10 s");
    let waits = world.with(|w| w.content.last_failure = Some(failure));
    assert_eq!(waits.decide(NOW), stored(RunRule::RunNotDue).nothing().requeue_at(NOW + 10));
    let start = Step::StartDelete { attempt: 2, on_any_node: false };
    assert_eq!(waits.decide(NOW + 10), stored(RunRule::RunDue).step(start.clone()));
    let asked = waits.clone().with(|w| w.content.retry = true);
    let often = asked.with(|w| w.content.last_failure.as_mut().unwrap().attempt = 7);
    assert_eq!(often.decide(NOW), stored(RunRule::RunNotDue).nothing().requeue_at(NOW + 10), "somebody asks for it");
    let of_future = waits.with(|w| w.content.last_failure.as_mut().unwrap().at = NOW + 86_400);
    assert_eq!(of_future.decide(NOW), stored(RunRule::RunDue).step(start), "no clock has shown that time");
}

#[test]
fn a_content_with_an_existing_snapshot_becomes_ready_without_a_run() {
    let existing = new().with(|w| w.content.handle = Some("h".into()));
    assert_eq!(existing.step(Rule::ProtectContent), Step::AddFinalizer);
    assert_eq!(
        begun().with(|w| w.content.finalizers.clear()).step(Rule::ProtectContent),
        Step::AddFinalizer,
        "the snapshot-controller took it off"
    );
    let held = existing.with(|w| w.content.finalizers = vec![names::SNAPSHOT_FINALIZER.into()]);
    assert_eq!(held.step(Rule::ExistingSnapshot), Step::MarkReady { size: None });
    held.clone().with(|w| w.content.ready = true).waits(Rule::Ready);
    let gone = terminating(held).with(|w| w.snapshot = SnapshotState::NotFound);
    assert_eq!(gone.step(stored(RunRule::RunDue)), Step::StartDelete { attempt: 1, on_any_node: false });
    ready().waits(Rule::Ready);
    let done = ready().with(|w| (w.jobs, w.run) = (vec![job(1, true)], RunState::Succeeded));
    assert_eq!(done.step(snapshot(RunRule::JobNotNeeded)), Step::RemoveJob { job: job(1, true).name });
    let filled = ready().with(|w| w.source_users = vec![claim("a", false)]);
    assert_eq!(filled.step(Rule::UnprotectContent), Step::UnprotectSource { claims: vec!["a".into()] });
    ready().with(|w| w.source_users = vec![claim("a", true)]).waits(Rule::Ready);
}

#[test]
fn no_run_begins_for_a_terminating_snapshot() {
    let missing = new().with(|w| w.snapshot = SnapshotState::NotCached);
    assert_eq!(missing.step(Rule::ConfirmSnapshotGone), Step::ConfirmSnapshot);
    let gone = new().with(|w| w.snapshot = SnapshotState::NotFound);
    assert_eq!(gone.step(Rule::SnapshotGone), Step::DeleteContent);
    // Somebody else made the content.
    gone.with(|w| w.content.instance = None).waits(Rule::SnapshotTerminating);
    let world = begun().with(|w| (w.snapshot, w.is_protected, w.fresh) = (SnapshotState::Terminating, true, true));
    world.waits(Rule::SnapshotTerminating);
    new().with(|w| w.snapshot = SnapshotState::Unbound).waits(Rule::Unbound);
}

#[test]
fn an_attempt_does_not_continue_with_another_claim_of_the_same_name() {
    let old = SnapshotProvenance { volume_id: "old".into(), pv_name: "pvc-old".into(), ..provenance() };
    for kept in [false, true] {
        let world = begun().with(|w| {
            w.content.provenance = Some(serde_json::json!(old).to_string());
            (w.is_protected, w.fresh) = (kept, true);
        });
        assert!(matches!(world.step(Rule::NotPossible), Step::WriteStatus { .. }));
        world.says("snapshot the volume pvc-old, but its claim is gone");
    }
}

#[test]
fn the_status_says_once_why_no_run_begins() {
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
        let Step::WriteStatus { error } = world.step(Rule::NotPossible) else { panic!("{says}") };
        assert!(error.contains(says), "{error}");
        assert_eq!(world.with(|w| w.content.error = Some(error)).step(Rule::NotPossible), Step::Nothing);
    }
    let kept = begun().with(|w| (w.is_terminating, w.is_protected, w.fresh) = (true, true, true));
    assert_eq!(kept.step(snapshot(RunRule::RunDue)), Step::StartRun, "what is kept can still be read");
}

#[test]
fn the_next_attempt_follows_by_backoff() {
    let stamp =
        |attempt| snapshot(RunRule::AttemptDue).step(Step::Stamp { attempt, provenance: Box::new(provenance()) });
    assert_eq!(new().decide(NOW), stamp(1));
    let noted = |reaction| begun().with(|w| w.content.last_failure = Some(failure(Operation::Snapshot, 1, reaction)));
    let world = noted(Reaction::Retry);
    assert_eq!(world.step(Rule::ReportFailure), Step::WriteStatus { error: "the array is on fire".into() });
    let reported = world.with(|w| w.content.error = Some("the array is on fire".into()));
    assert_eq!(reported.decide(NOW), snapshot(RunRule::RunNotDue).nothing().requeue_at(NOW + 10));
    assert_eq!(reported.decide(NOW + 10), stamp(2));
    let waits = reported.with(|w| w.jobs = vec![job(1, false)]);
    assert_eq!(waits.decide(NOW + 10), snapshot(RunRule::OtherRunEnding).nothing(), "its Job is not over");
    let never = noted(Reaction::Never).with(|w| w.content.error = Some("the array is on fire".into()));
    assert_eq!(never.decide(NOW + 60).rule, snapshot(RunRule::RunNotDue));
    assert_eq!(never.decide(NOW + 1800), stamp(2));
    let asked = never.with(|w| w.content.retry = true);
    assert_eq!(
        asked.decide(NOW),
        snapshot(RunRule::RunNotDue).nothing().requeue_at(NOW + 10),
        "who asks all the time gains little"
    );
    assert_eq!(asked.decide(NOW + 10), stamp(2), "somebody asks for it");
}

#[test]
fn a_run_waits_for_a_slot_of_its_class() {
    let full = new().with(|w| w.has_slot = false);
    let decision = full.decide(NOW);
    assert_eq!(decision, snapshot(RunRule::NoFreeSlot).step(Step::WaitForSlot).requeue_at(NOW + 30));
    let later = full.decide(NOW + 31);
    let (event, again) = (later.event.expect("it has waited for long"), later.requeue_at);
    assert!(!event.warning && event.message.contains("`max-in-flight`") && again == Some(NOW + 61), "{event:?}");
    let begun = begun().with(|w| (w.has_slot, w.is_protected, w.fresh) = (false, true, true));
    assert_eq!(begun.step(snapshot(RunRule::RunDue)), Step::StartRun, "what is begun has its place");
    let step = terminating(begun).step(stored(RunRule::RunDue));
    assert_eq!(step, Step::StartDelete { attempt: 1, on_any_node: false }, "to delete takes none");
}

#[test]
fn a_run_begins_when_its_source_is_protected() {
    assert_eq!(begun().step(Rule::ProtectSource), Step::ProtectSource);
    assert_eq!(begun().with(|w| w.is_protected = true).step(Rule::ConfirmContent), Step::Refresh);
    let due = begun().with(|w| (w.is_protected, w.fresh) = (true, true));
    assert_eq!(due.step(snapshot(RunRule::RunDue)), Step::StartRun);
    let run = |state| due.clone().with(|w| (w.jobs, w.run) = (vec![job(1, false)], state));
    run(RunState::MayBeRunning).waits(snapshot(RunRule::RunInProgress));
    run(failed(false)).waits(snapshot(RunRule::RunEnding));
    assert_eq!(run(RunState::Succeeded).step(snapshot(RunRule::RunSucceeded)), Step::MarkReady { size: Some(1 << 30) });
    let stuck = run(RunState::Stuck { cause: Cause::new("ErrImagePull", "no such image"), since: NOW });
    assert!(matches!(stuck.step(snapshot(RunRule::RunStuck)), Step::WriteStatus { .. }));
    stuck.says("no such image");
    stuck.with(|w| w.jobs[0].terminating = true).waits(snapshot(RunRule::RunStopping));
    let Step::RecordFailure(failure) = run(failed(true)).step(snapshot(RunRule::RunFailed)) else {
        panic!("it failed")
    };
    assert_eq!((failure.operation, failure.attempt, failure.at), (Operation::Snapshot, 1, NOW));
    run(failed(true)).says("snapshot run 1 failed: busy; next try in 10 s");
    let refusal = JobRefusal { cause: Cause::new("JobRefused", "malformed"), reaction: Reaction::Never };
    let refused = failed_start(&due.content, &refusal, &recipe(true), NOW);
    assert_eq!(refused.rule, snapshot(RunRule::RunRefused));
    assert!(matches!(refused.step, Step::RecordFailure(LastFailure { attempt: 1, .. })), "{refused:?}");
}

#[path = "decide_properties.rs"]
mod properties;
#[path = "decide_restored_tests.rs"]
mod restored;
