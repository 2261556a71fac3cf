//! Tests of the rules.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::run::backoff::{LONG_DELAY, seconds};
use crate::volume::in_place_run::InPlaceRun;
use crate::volume::test_runs::{NOW, stuck};
use flex_contract::names;

const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn attributes(class: &str) -> Attributes {
    let Some(class) = named(class) else { return Attributes::default() };
    Attributes { parameters: [("iops".to_owned(), class.len().to_string())].into(), class: Some(class) }
}

/// Returns the name of a class; `None` for the empty one.
fn named(class: &str) -> Option<String> {
    Some(class.to_owned()).filter(|class| !class.is_empty())
}

/// Returns an adopted volume with the attributes of a class, or none.
fn volume(class: &str, note: Option<PendingModification>) -> Volume {
    let applied =
        (!class.is_empty()).then(|| json!(AppliedAttributes { attributes: attributes(class), run: 2 }).to_string());
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {
            "name": names::pv_name(ID), "uid": "pv",
            "annotations": {
                names::CLAIM_UID: ID, names::VOLUME_ID: ID, names::PROVENANCE: "x",
                names::ATTRIBUTES: applied.unwrap_or_default(),
                names::MODIFICATION: note.map(|note| json!(note).to_string()).unwrap_or_default(),
            },
        },
        "spec": { "capacity": { "storage": "1Gi" }, "nfs": { "server": "s", "path": "/p" } },
        "status": { "reason": crate::model::volume::adoption_mark("x", "pv") },
    }))
    .unwrap();
    Volume::from(&volume)
}

/// Returns a claim that is bound to it and requests a class.
fn claim(requested: &str) -> Claim {
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": { "namespace": "team", "name": "a", "uid": ID, "annotations": { names::BIND_COMPLETED: "yes" } },
        "spec": { "volumeName": names::pv_name(ID), "volumeAttributesClassName": requested },
        "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
    }))
    .unwrap();
    Claim::from(&claim)
}

/// Returns the claim with the status of a report.
fn message(claim: Claim, report: &ModifyUpdate) -> Claim {
    let mut status = report.status("2026-01-01T00:00:00Z");
    status["conditions"].as_array_mut().unwrap().retain(|condition| condition.get("$patch").is_none());
    if status.get("currentVolumeAttributesClassName").is_none() {
        let current = claim.modify_status.as_ref().and_then(|status| status.current().map(str::to_owned));
        status["currentVolumeAttributesClassName"] = json!(current);
    }
    let with: PersistentVolumeClaim = serde_json::from_value(json!({ "status": status })).unwrap();
    Claim { modify_status: Claim::from(&with).modify_status, ..claim }
}

fn recipe(data: &[(&str, &str)]) -> Recipe {
    let all = [("image", "x"), ("capabilities", "modify")];
    let data = all.iter().chain(data).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    EffectiveConfig { class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn job(attempt: u32, class: &str) -> Job {
    let run_labels =
        crate::run::view::RunLabels { operation: "modify".into(), id: ID.into(), attempt, class: "c".into() };
    let name = ObjectName::new("admin", format!("modify-{attempt}-{class}"));
    let (recipe_version, volume) = (recipe(&[]).version(), Some(names::pv_name(ID)));
    Job { name, run_labels, recipe_version, volume, attributes: Some(attributes(class)), ..Job::default() }
}

fn over(attempt: u32, class: &str) -> Job {
    Job { is_over: true, ..job(attempt, class) }
}

fn failed(reaction: Reaction, pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "array on fire"), reaction, at: NOW, pods_ended }
}

/// Returns the record of a run that has just failed.
fn note(attempt: u32, class: &str, reaction: Reaction) -> PendingModification {
    let cause = Cause::new("ExitCode", "array on fire");
    let before = volume("", None);
    let note = failure(
        &before,
        ModifyRun { attempt, target: &attributes(class) },
        recipe(&[]).version(),
        &cause,
        reaction,
        NOW,
    );
    PendingModification { has_unknown_attributes: reaction != Reaction::Never, ..note }
}

fn begins(run: u32, class: &str) -> PendingModification {
    beginning(&volume("", None), run, &attributes(class))
}

/// Returns the rule about runs to attributes.
fn run(rule: RunRule) -> Rule {
    Rule::Run(Target::Attributes, rule)
}

fn modifying(class: &str) -> ModifyUpdate {
    ModifyUpdate::Modifying { class: named(class), error: None }
}

fn finished(class: &str) -> ModifyUpdate {
    ModifyUpdate::Finished { class: named(class) }
}

#[derive(Clone, Debug)]
struct World {
    volume: Volume,
    claim: Option<Claim>,
    recipe: Result<Recipe, String>,
    requested_attributes: Result<Attributes, String>,
    runs: Vec<(Job, RunState)>,
    is_starting: bool,
    has_running_pods: bool,
    node_not_reachable: Option<&'static str>,
    has_other_running_pods: bool,
}

impl World {
    /// Returns the decision; `None` if the attributes need nothing.
    fn decided(&self, now: i64) -> Option<Decision> {
        let runs: Vec<_> = self.runs.iter().map(|(job, state)| InPlaceRun { job, state: state.clone() }).collect();
        let observed = Observed {
            claim: self.claim.as_ref(),
            recipe: self.recipe.as_ref().map_err(String::clone),
            requested_attributes: self.requested_attributes.as_ref().map_err(String::clone),
            runs: InPlaceRuns {
                all: &runs,
                is_starting: self.is_starting,
                has_running_pods: self.has_running_pods,
                node_not_reachable: self.node_not_reachable,
                has_other_running_pods: self.has_other_running_pods,
            },
        };
        decide(&self.volume, &observed, now)
    }

    #[track_caller]
    fn decide(&self, now: i64) -> Decision {
        self.decided(now).expect("the attributes need something")
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

    fn with(&self, runs: &[(Job, RunState)]) -> World {
        World { runs: runs.to_vec(), ..self.clone() }
    }

    fn noted(&self, note: PendingModification) -> World {
        let volume = Volume { pending_modification: Some(Box::new(note)), ..self.volume.clone() };
        World { volume, ..self.clone() }
    }

    fn after(&self, report: &ModifyUpdate) -> World {
        World { claim: self.claim.clone().map(|claim| message(claim, report)), ..self.clone() }
    }
}

/// Returns a volume of one class, whose claim requests another and reports the present one.
fn world(has: &str, requested: &str) -> World {
    World {
        volume: volume(has, None),
        claim: Some(message(claim(requested), &finished(has))),
        recipe: Ok(recipe(&[])),
        requested_attributes: Ok(attributes(requested)),
        runs: vec![],
        is_starting: false,
        has_running_pods: false,
        node_not_reachable: None,
        has_other_running_pods: false,
    }
}

#[test]
fn only_an_adopted_volume_that_is_bound_is_modified() {
    World { claim: None, ..world("", "gold") }.rests();
    let mut terminating = world("", "gold");
    terminating.volume.terminating = true;
    terminating.rests();
    let mut elsewhere = world("", "gold");
    elsewhere.claim.as_mut().unwrap().volume_name = Some("other".into());
    elsewhere.rests();
    let mut never_adopted = world("", "gold");
    never_adopted.volume.adoption_mark = None;
    never_adopted.rests();
}

#[test]
fn a_stuck_run_is_reported_and_ends_when_another_class_is_requested() {
    let stuck = |has: &str, requested: &str, to: &str| {
        world(has, requested).noted(begins(3, to)).with(&[(job(3, to), stuck())])
    };
    let given_up = Step::RemoveJob { job: job(3, "gold").name };
    assert_eq!(stuck("", "silver", "gold").step(run(RunRule::RunOutdated)), given_up);
    assert_eq!(stuck("silver", "silver", "gold").step(run(RunRule::RunOutdated)), given_up);
    let edited = World { recipe: Ok(recipe(&[("image", "y")])), ..stuck("", "gold", "gold") };
    assert_eq!(edited.step(run(RunRule::RunOutdated)), given_up);
    let error = Some("no such image".to_owned());
    let report = ModifyUpdate::Modifying { class: named("gold"), error };
    assert_eq!(stuck("", "gold", "gold").step(run(RunRule::RunStuck)), Step::WriteStatus(report));
    assert!(stuck("", "gold", "gold").said().contains("VolumeAttributesClass gold does not progress: no such image"));
}

/// An admin has vouched for another node since the run began.
#[test]
fn a_stuck_run_ends_when_the_record_names_another_node() {
    let on = |recorded: &str| {
        let pinned = Job { node: Some("n1".into()), ..job(3, "gold") };
        let mut world = world("", "gold").noted(begins(3, "gold")).with(&[(pinned, stuck())]);
        let record = json!({ "node": recorded }).to_string();
        world.volume.adoption_mark = Some(crate::model::volume::adoption_mark(&record, "pv"));
        world.volume.provenance = Some(record);
        world.decide(NOW).rule
    };
    assert_eq!((on("n1"), on("n2")), (run(RunRule::RunStuck), run(RunRule::RunOutdated)));
}

#[test]
fn a_run_continues_in_spite_of_another_request() {
    for requested in ["gold", "silver", ""] {
        let running = world("", requested).with(&[(job(1, "gold"), RunState::MayBeRunning)]);
        assert_eq!(running.step(run(RunRule::RunInProgress)), Step::WriteStatus(modifying("gold")));
        running.after(&modifying("gold")).waits(run(RunRule::RunInProgress));
    }
    let lost = World {
        node_not_reachable: Some("node-1"),
        ..world("", "gold").with(&[(job(1, "gold"), RunState::MayBeRunning)])
    };
    assert!(lost.said().contains("node-1"));
    assert_eq!(lost.step(run(RunRule::RunUnreachable)), Step::WriteStatus(modifying("gold")));
    World { is_starting: true, ..world("", "gold") }.waits(run(RunRule::RunStarting));
    let terminating = Job { terminating: true, ..job(1, "gold") };
    world("", "gold").with(&[(terminating, RunState::MayBeRunning)]).waits(run(RunRule::RunStopping));
}

#[test]
fn a_volume_records_the_result_of_a_run() {
    let done = |has: &str, run: u32| world(has, "silver").with(&[(over(run, "gold"), RunState::Succeeded)]);
    assert_eq!(
        done("", 1).step(run(RunRule::RunSucceeded)),
        Step::WriteAttributes(AppliedAttributes { attributes: attributes("gold"), run: 1 })
    );
    assert_eq!(
        done("gold", 2).step(run(RunRule::JobNotNeeded)),
        Step::RemoveJob { job: job(2, "gold").name },
        "it is known"
    );
}

#[test]
fn a_failure_is_recorded_after_its_pods_and_says_whether_the_attributes_are_known() {
    let after = |reaction, settled| {
        world("silver", "gold").noted(begins(3, "gold")).with(&[(over(3, "gold"), failed(reaction, settled))])
    };
    after(Reaction::Retry, false).waits(run(RunRule::RunEnding));
    for (reaction, between) in [(Reaction::Retry, true), (Reaction::NoCapacity, true), (Reaction::Never, false)] {
        let Step::Record(noted) = after(reaction, true).step(run(RunRule::RunFailed)) else { panic!("not noted") };
        assert_eq!((noted.failed_attempt, noted.has_unknown_attributes, noted.consecutive_failures), (3, between, 1));
    }
    assert!(
        after(Reaction::Retry, true)
            .said()
            .contains("run 3 to VolumeAttributesClass gold failed: array on fire; next try in 2 s")
    );
    // An earlier run may have changed something, whatever the next one reports.
    let again =
        world("silver", "gold").noted(PendingModification { begun_attempt: 4, ..note(3, "gold", Reaction::Retry) });
    let again = again.with(&[(over(4, "gold"), failed(Reaction::Never, true))]);
    let Step::Record(noted) = again.step(run(RunRule::RunFailed)) else { panic!() };
    assert!(noted.has_unknown_attributes && noted.consecutive_failures == 2);
    // No trace of run 3 is left.
    let lost = world("silver", "gold").noted(begins(3, "gold"));
    let lost = lost.with(&[(over(4, "gold"), failed(Reaction::Never, true))]);
    let Step::Record(noted) = lost.step(run(RunRule::RunFailed)) else { panic!() };
    assert!(noted.has_unknown_attributes);
}

#[test]
fn the_job_of_a_withdrawn_request_is_removed() {
    let known = world("silver", "gold").noted(note(3, "gold", Reaction::Retry));
    let jobs = [(over(3, "gold"), failed(Reaction::Retry, true))];
    assert!(
        matches!(known.with(&jobs).step(run(RunRule::RunNotDue)), Step::WriteStatus(_)),
        "it is kept for a look at it"
    );
    let back = world("silver", "silver").noted(note(3, "gold", Reaction::Never));
    assert_eq!(back.with(&jobs).step(run(RunRule::JobNotNeeded)), Step::RemoveJob { job: job(3, "gold").name });
}

#[test]
fn a_reached_request_is_reported_once_and_its_failure_is_forgotten() {
    let world = world("gold", "gold").after(&modifying("gold"));
    let decision = world.decide(NOW);
    assert_eq!((decision.rule, decision.step), (Rule::ModifyRequestReached, Step::WriteStatus(finished("gold"))));
    assert_eq!(decision.event.unwrap().reason, reason::VOLUME_MODIFY_SUCCESSFUL);
    let message = world.after(&finished("gold"));
    message.rests();
    assert_eq!(message.noted(note(3, "silver", Reaction::Never)).step(Rule::ModifyNoteOutdated), Step::ClearNote);
    // A class cannot be removed.
    let off = self::world("gold", "");
    off.rests();
    self::world("", "").rests();
}

#[test]
fn a_volume_with_unknown_attributes_gets_a_run_before_it_counts_as_done() {
    for noted in [note(3, "gold", Reaction::Retry), begins(3, "gold")] {
        let back = world("silver", "silver").noted(noted);
        assert_eq!(back.step(run(RunRule::AttemptDue)), Step::WriteStatus(modifying("silver")));
        let reported = back.after(&modifying("silver"));
        let Step::Record(noted) = reported.step(run(RunRule::AttemptDue)) else { panic!("no trace") };
        assert_eq!(
            (noted.begun_attempt, noted.begun_target.clone(), noted.has_unknown_attributes),
            (4, attributes("silver").hash(), true)
        );
        let started = reported.noted(noted).step(run(RunRule::RunDue));
        assert_eq!(started, Step::Start { attempt: 4, attributes: attributes("silver") });
    }
    let nothing_changed = world("silver", "silver").noted(note(3, "gold", Reaction::Never)).after(&modifying("gold"));
    assert_eq!(nothing_changed.step(Rule::ModifyRequestReached), Step::WriteStatus(finished("silver")));
    // The claim returns to no class, and none was ever in effect.
    let none = world("", "").noted(note(1, "gold", Reaction::Retry)).after(&modifying(""));
    let Step::Record(noted) = none.step(run(RunRule::AttemptDue)) else { panic!("no trace") };
    let start = Step::Start { attempt: 2, attributes: Attributes::default() };
    assert_eq!(none.noted(noted).step(run(RunRule::RunDue)), start);
}

#[test]
fn an_unavailable_class_is_reported_as_pending() {
    let missing = World { requested_attributes: Err("there is no gold".into()), ..world("", "gold") };
    let pending = ModifyUpdate::Pending { class: named("gold") };
    assert_eq!(missing.step(Rule::ModifyRequestNotAvailable), Step::WriteStatus(pending.clone()));
    let message = missing.after(&pending);
    assert_eq!(
        (message.step(Rule::ModifyRequestNotAvailable), message.said()),
        (Step::Nothing, "there is no gold".into())
    );
    let cannot = World { recipe: Ok(recipe(&[("capabilities", "")])), ..world("", "gold") };
    assert_eq!(cannot.step(Rule::ModifyNotSupported), Step::WriteStatus(pending.clone()));
    assert!(cannot.said().contains("`capabilities: modify`"));
    let unknown = World { recipe: Err("lost".into()), ..world("", "gold") };
    assert_eq!(unknown.step(Rule::ModifyNotSupported), Step::WriteStatus(pending));
    assert!(unknown.said().contains("the volume cannot be modified: lost"));
}

#[test]
fn no_run_begins_for_a_terminating_claim() {
    let mut world = world("", "gold");
    world.claim.as_mut().unwrap().terminating = true;
    world.waits(Rule::ModifyClaimTerminating);
}

#[test]
fn the_next_run_waits_unless_request_or_recipe_changes() {
    let waits = world("silver", "gold").noted(note(3, "gold", Reaction::Retry));
    let error = Some("array on fire".to_owned());
    let report = ModifyUpdate::Modifying { class: named("gold"), error };
    assert_eq!(waits.step(run(RunRule::RunNotDue)), Step::WriteStatus(report.clone()));
    let reported = waits.after(&report);
    assert_eq!(reported.decide(NOW), run(RunRule::RunNotDue).nothing().requeue_at(NOW + 2));
    let due = reported.decide(NOW + 2);
    assert!(due.rule == run(RunRule::AttemptDue) && matches!(due.step, Step::Record(_)), "{due:?}");
    let never = world("silver", "gold").noted(note(3, "gold", Reaction::Never));
    let infeasible = ModifyUpdate::Infeasible { class: named("gold"), error: "array on fire".into() };
    assert_eq!(never.step(run(RunRule::RunNotDue)), Step::WriteStatus(infeasible.clone()));
    assert_eq!(never.after(&infeasible).decide(NOW).requeue_at, Some(NOW + seconds(LONG_DELAY)));
    let asked = World { volume: Volume { retry: true, ..never.volume.clone() }, ..never.clone() };
    assert_eq!(asked.after(&infeasible).decide(NOW).requeue_at, Some(NOW + 10), "somebody asks for it");
    let mut asked = asked;
    asked.volume.pending_modification.as_mut().unwrap().at = NOW - 10;
    let Step::WriteStatus(report) = asked.step(run(RunRule::AttemptDue)) else { panic!("it reports first") };
    let asked = asked.after(&report);
    let Step::Record(begun) = asked.step(run(RunRule::AttemptDue)) else { panic!("it records the attempt") };
    let volume = Volume { pending_modification: Some(Box::new(begun)), ..asked.volume.clone() };
    assert!(matches!(World { volume, ..asked }.step(run(RunRule::RunDue)), Step::Start { attempt: 4, .. }));
    // Another request is tried at once.
    let other = world("silver", "bronze").noted(note(3, "gold", Reaction::Never));
    assert_eq!(other.step(run(RunRule::AttemptDue)), Step::WriteStatus(modifying("bronze")));
    let mended = World { recipe: Ok(recipe(&[("image", "y")])), ..never.after(&infeasible) };
    assert!(matches!(mended.step(run(RunRule::AttemptDue)), Step::WriteStatus(ModifyUpdate::Modifying { .. })));
}

#[test]
fn a_run_waits_for_the_pods_of_other_runs() {
    let pod = World { has_running_pods: true, ..world("", "gold") };
    let other = World { has_other_running_pods: true, ..world("", "gold") };
    for world in [pod, other] {
        assert_eq!(world.decide(NOW), run(RunRule::OtherRunEnding).nothing().requeue_at(NOW + 5));
    }
}

#[test]
fn a_run_is_reported_and_recorded_before_it_begins() {
    let world = world("", "gold");
    assert_eq!(world.step(run(RunRule::AttemptDue)), Step::WriteStatus(modifying("gold")));
    let reported = world.after(&modifying("gold"));
    assert_eq!(reported.step(run(RunRule::AttemptDue)), Step::Record(begins(1, "gold")));
    let start = Step::Start { attempt: 1, attributes: attributes("gold") };
    assert_eq!(reported.noted(begins(1, "gold")).step(run(RunRule::RunDue)), start);
    // No number is used twice: a run to other attributes has used this one.
    let other = reported.noted(begins(1, "silver"));
    let Step::Record(noted) = other.step(run(RunRule::AttemptDue)) else { panic!("no trace") };
    assert_eq!((noted.begun_attempt, noted.has_unknown_attributes), (2, true));
}

#[test]
fn a_run_is_stopped_when_the_claim_is_gone() {
    let (running, terminating) = (job(1, "gold"), Job { terminating: true, ..job(1, "gold") });
    let stopped = |job: &Job, has_running_pods| {
        let runs = [InPlaceRun { job, state: RunState::MayBeRunning }];
        let runs = InPlaceRuns {
            all: &runs,
            is_starting: false,
            has_running_pods,
            node_not_reachable: None,
            has_other_running_pods: false,
        };
        runs.end(NOW)
    };
    assert_eq!(stopped(&running, true), Some((RunRule::RunNotWanted, Some(running.name.clone()))));
    assert_eq!(stopped(&terminating, true), Some((RunRule::RunEnding, None)));
    assert_eq!(stopped(&Job { is_over: true, ..terminating }, false), None);
}

#[test]
fn only_records_that_the_orchestrator_can_have_written_are_read() {
    let note = note(3, "gold", Reaction::Retry);
    assert_eq!(PendingModification::read(&json!(note).to_string()), Some(note.clone()));
    assert_eq!(
        PendingModification::read(&json!(PendingModification { begun_attempt: u32::MAX, ..note }).to_string()),
        None
    );
    assert_eq!(PendingModification::read("{}"), None);
    let applied = AppliedAttributes { attributes: attributes("gold"), run: 1 };
    assert_eq!(AppliedAttributes::read(&json!(applied).to_string()), Some(applied.clone()));
    assert_eq!(AppliedAttributes::read(&json!(AppliedAttributes { run: u32::MAX, ..applied }).to_string()), None);
    let forged = Volume { adoption_mark: None, ..volume("gold", None) };
    assert_eq!(forged.attributes(), &Attributes::default());
}

#[path = "modify_properties.rs"]
mod properties;
