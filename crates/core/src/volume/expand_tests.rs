//! Tests of the rules.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::config::values::yaml;
use crate::volume::in_place_run::InPlaceRun;
use crate::volume::test_runs::{NOW, stuck};
use flex_contract::names;

const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";
const GI: u64 = 1 << 30;

/// Returns an adopted volume of 1 GiB.
fn volume(source: &str) -> Volume {
    let annotations = [(names::CLAIM_UID, ID), (names::VOLUME_ID, ID), (names::PROVENANCE, "x")];
    let annotations: Vec<_> = annotations.iter().map(|(key, value)| format!("'{key}': {value}")).collect();
    Volume::from(
        &yaml::<PersistentVolume>(&format!(
            "metadata: {{name: pvc-{ID}, uid: pv, annotations: {{{}}}, finalizers: ['{}']}}\n\
             spec: {{persistentVolumeReclaimPolicy: Delete, capacity: {{storage: 1Gi}}, {source}}}\n\
             status: {{reason: {}}}\n",
            annotations.join(", "),
            names::VOLUME_FINALIZER,
            crate::model::volume::adoption_mark("x", "pv")
        ))
        .unwrap(),
    )
}

/// Returns a claim that is bound to it and requests this many GiB.
fn claim(requested: u64) -> Claim {
    Claim::from(
        &serde_json::from_value::<PersistentVolumeClaim>(json!({
            "metadata": { "namespace": "team", "name": "a", "uid": ID, "annotations": { names::BIND_COMPLETED: "yes" } },
            "spec": { "volumeName": names::pv_name(ID), "resources": { "requests": { "storage": format!("{requested}Gi") } } },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        }))
        .unwrap(),
    )
}

/// Returns the claim with the status of a report.
fn message(claim: Claim, report: &ExpandUpdate) -> Claim {
    let mut status = report.status("2026-01-01T00:00:00Z");
    let conditions = status["conditions"].as_array_mut().unwrap();
    conditions.retain(|condition| condition.get("$patch").is_none());
    if status["allocatedResourceStatuses"]["storage"].is_null() {
        status["allocatedResourceStatuses"] = json!({});
    }
    let with: PersistentVolumeClaim = serde_json::from_value(json!({ "status": status })).unwrap();
    let with = Claim::from(&with);
    Claim { expand_status: with.expand_status, capacity: with.capacity.or(claim.capacity), ..claim }
}

fn recipe(data: &[(&str, &str)]) -> Recipe {
    let mut all: std::collections::BTreeMap<_, _> =
        [("image".to_owned(), "x".to_owned()), ("capabilities".to_owned(), "expand".to_owned())].into();
    all.extend(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    EffectiveConfig { class: "c".into(), data: all, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn job(attempt: u32, size: u64) -> Job {
    let run_labels =
        crate::run::view::RunLabels { operation: "expand".into(), id: ID.into(), attempt, class: "c".into() };
    let name = ObjectName::new("admin", format!("expand-{attempt}-{size}"));
    let (recipe_version, volume) = (recipe(&[]).version(), Some(names::pv_name(ID)));
    Job { name, run_labels, recipe_version, volume, size: Some(size * GI), ..Job::default() }
}

fn failed(reaction: Reaction, pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), reaction, at: NOW, pods_ended }
}

fn note(attempt: u32, size: u64, reaction: Reaction) -> Option<Box<FailedExpansion>> {
    let cause = Cause::new("ExitCode", "disk on fire");
    let note =
        failure(&volume(""), ExpandRun { attempt, size: size * GI }, recipe(&[]).version(), &cause, reaction, NOW);
    Some(Box::new(note))
}

#[derive(Clone, Debug)]
struct World {
    volume: Volume,
    claim: Option<Claim>,
    recipe: Result<Recipe, String>,
    runs: Vec<(Job, RunState)>,
    is_starting: bool,
    has_running_pods: bool,
    node_not_reachable: Option<&'static str>,
}

impl World {
    /// Returns the decision; `None` if the size needs nothing.
    fn decided(&self, now: i64) -> Option<Decision> {
        let runs: Vec<_> = self.runs.iter().map(|(job, state)| InPlaceRun { job, state: state.clone() }).collect();
        let observed = Observed {
            claim: self.claim.as_ref(),
            recipe: self.recipe.as_ref().map_err(String::clone),
            runs: InPlaceRuns {
                all: &runs,
                is_starting: self.is_starting,
                has_running_pods: self.has_running_pods,
                node_not_reachable: self.node_not_reachable,
                has_other_running_pods: false,
            },
            quota_refusal: None,
        };
        decide(&self.volume, &observed, now)
    }

    #[track_caller]
    fn decide(&self, now: i64) -> Decision {
        self.decided(now).expect("the size needs something")
    }

    /// Returns the step, which is that of a rule.
    #[track_caller]
    fn step(&self, rule: Rule) -> Step {
        let decision = self.decide(NOW);
        assert_eq!(decision.rule, rule, "{decision:?}");
        decision.step
    }

    fn said(&self) -> String {
        self.decide(NOW).event.map(|event| event.message).unwrap_or_default()
    }

    #[track_caller]
    fn rests(&self) {
        assert_eq!(self.decided(NOW), None);
    }

    #[track_caller]
    fn waits(&self, rule: Rule) {
        assert_eq!(self.decide(NOW), rule.nothing());
    }

    /// Returns the world with these runs and their states.
    fn with(&self, runs: &[(Job, RunState)]) -> World {
        World { runs: runs.to_vec(), ..self.clone() }
    }

    fn after(&self, report: &ExpandUpdate) -> World {
        World { claim: self.claim.clone().map(|claim| message(claim, report)), ..self.clone() }
    }
}

/// Returns a claim that requests this many GiB, and its volume of 1 GiB.
fn world(requested: u64) -> World {
    let (volume, claim, recipe) = (volume("nfs: {server: s, path: /p}"), Some(claim(requested)), Ok(recipe(&[])));
    World { volume, claim, recipe, runs: vec![], is_starting: false, has_running_pods: false, node_not_reachable: None }
}

/// Returns the rule about runs to a size.
fn run(rule: RunRule) -> Rule {
    Rule::Run(Target::Size, rule)
}

fn in_progress(size: u64) -> ExpandUpdate {
    ExpandUpdate::InProgress { size: size * GI, error: None }
}

#[test]
fn only_an_adopted_volume_that_is_bound_is_expanded() {
    let wanting = world(3);
    let claim = |change: fn(&mut Claim)| {
        let mut world = wanting.clone();
        world.claim.iter_mut().for_each(change);
        world.rests();
    };
    claim(|claim| claim.phase = "Pending".into());
    claim(|claim| claim.volume_name = Some("another".into()));
    claim(|claim| claim.held = true);
    World { claim: None, ..wanting.clone() }.rests();
    World { volume: Volume { adoption_mark: None, ..wanting.volume.clone() }, ..wanting.clone() }.rests();
    World { volume: Volume { terminating: true, ..wanting.volume.clone() }, ..wanting }.rests();
}

#[test]
fn a_stuck_run_ends_when_another_size_is_requested() {
    let removed = Step::RemoveJob { job: job(1, 3).name };
    for requested in [1, 2, 4] {
        assert_eq!(
            world(requested).with(&[(job(1, 3), stuck())]).step(run(RunRule::RunOutdated)),
            removed,
            "{requested}"
        );
    }
    let recipe = Ok(recipe(&[("image", "fixed")]));
    assert_eq!(World { recipe, ..world(3).with(&[(job(1, 3), stuck())]) }.step(run(RunRule::RunOutdated)), removed);
}

/// An admin has vouched for another node since the run began.
#[test]
fn a_stuck_run_ends_when_the_record_names_another_node() {
    let on = |recorded: &str, pinned: Option<&str>| {
        let mut world = world(3).with(&[(Job { node: pinned.map(str::to_owned), ..job(1, 3) }, stuck())]);
        let record = json!({ "node": recorded }).to_string();
        world.volume.adoption_mark = Some(crate::model::volume::adoption_mark(&record, "pv"));
        world.volume.provenance = Some(record);
        world.decide(NOW).rule
    };
    assert_eq!(on("n2", Some("n1")), run(RunRule::RunOutdated));
    for (recorded, pinned) in [("n1", Some("n1")), ("", Some("n1")), ("n2", None)] {
        assert_eq!(on(recorded, pinned), run(RunRule::RunStuck), "{recorded} {pinned:?}");
    }
}

#[test]
fn a_stuck_run_is_reported() {
    let world = world(3).with(&[(job(1, 3), stuck())]);
    let report = ExpandUpdate::InProgress { size: 3 * GI, error: Some("no such image".into()) };
    assert_eq!(world.step(run(RunRule::RunStuck)), Step::WriteStatus(report.clone()));
    assert_eq!(world.said(), "the run to 3Gi does not progress: no such image");
    assert_eq!(world.after(&report).step(run(RunRule::RunStuck)), Step::Nothing);
}

#[test]
fn a_run_continues_in_spite_of_another_request() {
    for requested in [1, 2, 3, 4] {
        let world = world(requested).with(&[(job(1, 3), RunState::MayBeRunning)]);
        assert_eq!(world.step(run(RunRule::RunInProgress)), Step::WriteStatus(in_progress(3)), "{requested}");
        world.after(&in_progress(3)).waits(run(RunRule::RunInProgress));
    }
    let lost = World { node_not_reachable: Some("n1"), ..world(3).with(&[(job(1, 3), RunState::MayBeRunning)]) };
    assert!(lost.said().contains("on node n1, which does not answer"), "{}", lost.said());
    assert_eq!(lost.step(run(RunRule::RunUnreachable)), Step::WriteStatus(in_progress(3)));
    let terminating = Job { terminating: true, ..job(1, 3) };
    world(3).with(&[(terminating, RunState::MayBeRunning)]).waits(run(RunRule::RunStopping));
    World { is_starting: true, ..world(3) }.waits(run(RunRule::RunStarting));
    let unsettled = world(3).with(&[(job(1, 3), failed(Reaction::Retry, false))]);
    assert_eq!(unsettled.step(run(RunRule::RunEnding)), Step::WriteStatus(in_progress(3)));
    unsettled.after(&in_progress(3)).waits(run(RunRule::RunEnding));
    let over = Job { is_over: true, ..job(1, 3) };
    world(3).with(&[(over, failed(Reaction::Retry, false))]).waits(run(RunRule::RunEnding));
}

#[test]
fn a_run_that_succeeded_gives_the_volume_its_size() {
    for requested in [1, 2, 3, 4] {
        let world = world(requested).with(&[(job(1, 3), RunState::Succeeded)]);
        assert_eq!(world.step(run(RunRule::RunSucceeded)), Step::WriteCapacity { size: 3 * GI }, "{requested}");
    }
}

#[test]
fn a_failure_is_recorded_once() {
    let mut world = world(3).with(&[(job(1, 3), failed(Reaction::Retry, true))]);
    let Step::Record(recorded) = world.step(run(RunRule::RunFailed)) else { panic!("the failure is not recorded") };
    assert_eq!((recorded.attempt, recorded.size, recorded.consecutive_failures, recorded.at), (1, 3 * GI, 1, NOW));
    let said = "expand run 1 to 3Gi failed: disk on fire; next try in 2 s; to stop the expansion, request less, but more than `status.capacity`";
    assert_eq!(world.said(), said);
    assert!(world.with(&[(job(1, 3), failed(Reaction::Never, true))]).said().contains("a retry would fail, too"));

    world.volume.last_failed_expansion = Some(Box::new(recorded));
    let report = ExpandUpdate::InProgress { size: 3 * GI, error: Some("disk on fire".into()) };
    assert_eq!(world.step(run(RunRule::RunNotDue)), Step::WriteStatus(report));
    world.runs = vec![(job(1, 3), failed(Reaction::Retry, true)), (job(2, 3), failed(Reaction::Retry, true))];
    let Step::Record(recorded) = world.step(run(RunRule::RunFailed)) else { panic!("the failure is not recorded") };
    assert_eq!((recorded.attempt, recorded.consecutive_failures), (2, 2));
}

#[test]
fn jobs_are_removed_when_their_size_is_reached_or_withdrawn() {
    let removed = |job: &Job| Step::RemoveJob { job: job.name.clone() };
    let mut world = world(3).with(&[(job(1, 3), RunState::Succeeded)]);
    world.volume.size = Ok(3 * GI);
    assert_eq!(world.step(run(RunRule::JobNotNeeded)), removed(&job(1, 3)));
    let wanting = World { claim: Some(claim(4)), ..world.clone() };
    assert_eq!(wanting.step(run(RunRule::JobNotNeeded)), removed(&job(1, 3)));
    let given_up = world.with(&[(job(1, 5), failed(Reaction::Never, true))]);
    assert_eq!(given_up.step(run(RunRule::JobNotNeeded)), removed(&job(1, 5)));
    let terminating = Job { terminating: true, ..job(1, 3) };
    assert_eq!(
        world.with(&[(terminating, RunState::Succeeded)]).step(Rule::ExpandRequestReached),
        Step::WriteStatus(ExpandUpdate::Finished { size: 3 * GI })
    );
}

#[test]
fn a_reached_size_is_reported_once() {
    let mut world = world(3).after(&in_progress(3));
    world.volume.size = Ok(3 * GI);
    assert_eq!(world.step(Rule::ExpandRequestReached), Step::WriteStatus(ExpandUpdate::Finished { size: 3 * GI }));
    assert_eq!(world.decide(NOW).event.unwrap().reason, reason::VOLUME_RESIZE_SUCCESSFUL);
    // A request that was taken back has left a record.
    let back = World { volume: volume("nfs: {server: s, path: /p}"), claim: Some(claim(1)), ..world.clone() };
    let back = back.after(&in_progress(3));
    assert_eq!(back.step(Rule::ExpandRequestReached), Step::WriteStatus(ExpandUpdate::Finished { size: GI }));
    let finished = world.after(&ExpandUpdate::Finished { size: 3 * GI });
    finished.rests();
}

#[test]
fn the_kubelet_finishes_the_resize_of_a_file_system() {
    for source in ["csi: {driver: d, volumeHandle: h}", "local: {path: /dev/x, fsType: ext4}"] {
        let mut world = world(3).after(&in_progress(3));
        world.volume = Volume { size: Ok(3 * GI), ..volume(source) };
        assert_eq!(
            world.step(Rule::ExpandFileSystemPending),
            Step::WriteStatus(ExpandUpdate::FileSystemPending { size: 3 * GI }),
            "{source}"
        );
        let pending = world.after(&ExpandUpdate::FileSystemPending { size: 3 * GI });
        pending.rests();
        pending.after(&ExpandUpdate::Finished { size: 3 * GI }).rests();
        // The kubelet was faster, and left the orchestrator's conditions.
        let mut fast = world.clone();
        fast.claim.as_mut().unwrap().capacity = Some(3 * GI);
        assert_eq!(fast.step(Rule::ExpandRequestReached), Step::WriteStatus(ExpandUpdate::Finished { size: 3 * GI }));
    }
    let mut directory = world(3).after(&in_progress(3));
    directory.volume = Volume { size: Ok(3 * GI), ..volume("local: {path: /d}") };
    assert_eq!(directory.step(Rule::ExpandRequestReached), Step::WriteStatus(ExpandUpdate::Finished { size: 3 * GI }));
}

#[test]
fn a_failure_is_forgotten_after_its_jobs() {
    let mut world = world(1);
    world.volume.last_failed_expansion = note(2, 3, Reaction::Never);
    assert_eq!(world.step(Rule::ExpandFailureOutdated), Step::ClearFailure);
    let terminating = Job { terminating: true, ..job(2, 3) };
    world.with(&[(terminating, failed(Reaction::Never, true))]).rests();
}

#[test]
fn a_volume_with_its_requested_size_needs_no_step() {
    world(1).rests();
    World { recipe: Err("lost".into()), ..world(1) }.rests();
}

#[test]
fn an_impossible_expansion_is_reported() {
    let cannot = recipe(&[("capabilities", "")]);
    for (rule, recipe, says) in [
        (
            Rule::ExpandNotSupported,
            Err("the volume's record cannot be read".to_owned()),
            "the volume cannot grow: the volume's record cannot be read",
        ),
        (
            Rule::ExpandNotSupported,
            Ok(cannot),
            "does not declare that its image can expand volumes (`capabilities: expand`)",
        ),
        (
            Rule::ExpandAboveMaxSize,
            Ok(recipe(&[("max-size", "2Gi")])),
            "the claim asks for 3Gi, and class c provides at most 2Gi; ask for less",
        ),
    ] {
        let world = World { recipe, ..world(3) };
        assert!(world.step(rule) == Step::Nothing && world.said().contains(says), "{}", world.said());
    }
}

#[test]
fn no_run_begins_for_a_terminating_claim() {
    let mut world = world(3);
    world.claim.as_mut().unwrap().terminating = true;
    world.waits(Rule::ExpandClaimTerminating);
}

#[test]
fn a_failed_run_is_repeated_after_its_delay() {
    let mut world = world(3);
    for (reaction, delay) in [(Reaction::Retry, 2), (Reaction::NoCapacity, 2), (Reaction::Never, 30 * 60)] {
        world.volume.last_failed_expansion = note(7, 3, reaction);
        let Decision { rule, step: Step::WriteStatus(report), requeue_at, .. } = world.decide(NOW) else {
            panic!("{reaction:?}")
        };
        assert_eq!((rule, requeue_at), (run(RunRule::RunNotDue), Some(NOW + delay)));
        let infeasible = matches!(report, ExpandUpdate::Infeasible { .. });
        assert_eq!(infeasible, reaction == Reaction::Never);
        let waiting = world.after(&report);
        assert_eq!(waiting.decide(NOW), run(RunRule::RunNotDue).nothing().requeue_at(NOW + delay));
        let due = waiting.after(&ExpandUpdate::InProgress { size: 3 * GI, error: Some("disk on fire".into()) });
        let start = run(RunRule::RunDue).step(Step::Start { attempt: 8, size: 3 * GI });
        assert_eq!(due.decide(NOW + delay), start);
        let asked = World { volume: Volume { retry: true, ..due.volume.clone() }, ..due };
        assert_eq!(asked.decide(NOW).rule, run(RunRule::RunNotDue), "{reaction:?}: somebody may ask all the time");
        assert_eq!(asked.decide(NOW + delay.min(10)), start, "{reaction:?}: somebody asks for it");
    }
}

#[test]
fn another_request_or_recipe_does_not_wait() {
    let mut failed = world(3);
    failed.volume.last_failed_expansion = note(7, 3, Reaction::Never);
    for requested in [2, 4] {
        let world = World { claim: Some(claim(requested)), ..failed.clone() };
        assert_eq!(world.step(run(RunRule::AttemptDue)), Step::WriteStatus(in_progress(requested)));
        let reported = world.after(&in_progress(requested));
        assert_eq!(reported.step(run(RunRule::RunDue)), Step::Start { attempt: 8, size: requested * GI });
    }
    let fixed = World { recipe: Ok(recipe(&[("image", "fixed")])), ..failed };
    let again = ExpandUpdate::InProgress { size: 3 * GI, error: Some("disk on fire".into()) };
    assert_eq!(fixed.step(run(RunRule::AttemptDue)), Step::WriteStatus(again.clone()));
    assert_eq!(fixed.after(&again).step(run(RunRule::RunDue)), Step::Start { attempt: 8, size: 3 * GI });
}

#[test]
fn a_run_waits_for_a_pod_that_may_run() {
    let world = World { has_running_pods: true, ..world(3) };
    assert_eq!(world.decide(NOW), run(RunRule::OtherRunEnding).nothing().requeue_at(NOW + 5));
}

#[test]
fn a_run_is_reported_before_it_begins() {
    assert_eq!(world(3).step(run(RunRule::AttemptDue)), Step::WriteStatus(in_progress(3)));
    assert_eq!(world(3).after(&in_progress(3)).step(run(RunRule::RunDue)), Step::Start { attempt: 1, size: 3 * GI });
    // A Job of an earlier request still exists.
    let after = world(3)
        .after(&in_progress(3))
        .with(&[(Job { terminating: true, ..job(4, 5) }, failed(Reaction::Retry, true))]);
    assert_eq!(after.step(run(RunRule::RunDue)), Step::Start { attempt: 5, size: 3 * GI });
}

#[test]
fn only_records_that_the_orchestrator_can_have_written_are_read() {
    let note = *note(3, 3, Reaction::Retry).unwrap();
    assert_eq!(FailedExpansion::read(&json!(note).to_string()), Some(note.clone()));
    assert_eq!(FailedExpansion::read(&json!(FailedExpansion { attempt: u32::MAX, ..note }).to_string()), None);
    assert_eq!(FailedExpansion::read("{}"), None);
}

#[path = "expand_properties.rs"]
mod properties;
