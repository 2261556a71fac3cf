//! Tests of the rules for claims that are stamped, or are stamped next.

use super::*;
use crate::claim::decide::attempt::SLOW_BATCH;

#[test]
fn a_new_claim_is_stamped() {
    let decision = new().decide_by(Rule::FirstAttemptDue, NOW);
    assert_eq!((decision.step, decision.event), (Step::Stamp { attempt: 1, nodes: vec!["home".into()] }, None));
    let delayed = delayed(new(), Some("a"));
    assert_eq!(delayed.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec!["a".into()] });
}

#[test]
fn an_event_explains_the_warning_about_a_missing_storage_class() {
    let mut world = new();
    world.class.has_object = false;
    let event = world.decide_by(Rule::FirstAttemptDue, NOW).event.unwrap();
    assert!(!event.warning && event.message.contains("\"silver\" not found` on this claim is harmless"), "{event:?}");
}

#[test]
fn a_copied_stamp_is_replaced() {
    let mut world = stamped(7);
    world.claim.stamp.as_mut().unwrap().claim_uid = "copied".into();
    world.claim.nodes_with_storage = vec!["of the other".into()];
    let decision = world.decide_by(Rule::ReplaceStaleStamp, NOW);
    assert_eq!(decision.step, Step::Stamp { attempt: 1, nodes: vec!["home".into()] });
    assert_eq!(decision.event.unwrap().reason, reason::STALE_STAMP_REPLACED);
    let mut world = stamped(0);
    assert_eq!(
        world.step(Rule::ReplaceStaleStamp),
        Step::Stamp { attempt: 1, nodes: vec!["home".into()] },
        "an attempt 0 is none"
    );
    world.claim.stamp = None;
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec!["home".into()] });
}

#[test]
fn a_volume_that_fits_is_adopted() {
    let mut world = with_volume(stamped(2), volume(), &[]);
    world.run = RunState::MayBeRunning;
    world.jobs = vec![job(2)];
    assert_eq!(adopts(Rule::AdoptVolume, &world).origin_node.as_deref(), Some("home"), "the image need not have ended");
    let mut world = delayed(world, Some("a"));
    world.claim.nodes_with_storage = vec!["b".into(), "a".into()];
    assert_eq!(adopts(Rule::AdoptVolume, &world).origin_node.as_deref(), Some("a"), "where the attempt was");
    world.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(adopts(Rule::AdoptVolume, &world).origin_node, None);
}

#[test]
fn the_provenance_is_that_of_the_attempt() {
    let mut world = with_volume(stamped(1), volume(), &[]);
    world.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert_eq!(adopts(Rule::AdoptVolume, &world).effective_config, recipe_with(&[]).effective_config);
    world.stamped_recipe = None;
    assert_eq!(
        adopts(Rule::AdoptVolume, &world).effective_config,
        recipe_with(&[("zone", "newer")]).effective_config,
        "if it is lost, the class's"
    );
}

#[test]
fn an_adopted_volume_is_bound() {
    let mut world = with_volume(stamped(1), Volume { name: "wrong".into(), ..volume() }, &["name"]);
    world = with_volume(world, known_volume(), &[]);
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, Reaction::Retry));
    world.run = failed_run(Reaction::Retry, NOW);
    let decision = world.decide_by(Rule::BindVolume, NOW);
    assert_eq!(decision.step, Step::Bind { volume: names::pv_name(UID) }, "whatever the script exits with");
    assert_eq!(decision.event.unwrap().reason, reason::PROVISIONING_SUCCEEDED);
    let held = Volume { terminating: true, ..known_volume() };
    assert_eq!(with_volume(stamped(1), held, &[]).step(Rule::BindVolume), Step::Bind { volume: names::pv_name(UID) });
}

#[test]
fn the_mark_waits_for_the_phase_where_many_volumes_wait() {
    let marks = |world: &World, rule| matches!(world.step(rule), Step::Adopt { mark: true, .. });
    let mut world = with_volume(stamped(1), volume(), &[]);
    assert!(marks(&world, Rule::AdoptVolume), "alone it would only come later");
    world.many_wait = true;
    assert!(!marks(&world, Rule::AdoptVolume));
    world.binding = Binding::Controller;
    assert!(marks(&world, Rule::AdoptVolume), "the orchestrator writes no phase");
    world.binding = Binding::Direct;
    world.claim.volume_name = Some(names::pv_name(UID));
    world.claim.bind_completed = true;
    assert!(marks(&world, Rule::AdoptBoundVolume), "the PV controller has bound it");
    world.claim.bind_completed = false;
    world.claim.volume_name = Some("other".into());
    assert!(marks(&world, Rule::AdoptLeftVolume), "the claim has another volume");
}

#[test]
fn a_volume_without_its_mark_is_bound_or_marked() {
    let mut world = World { lacks_mark: true, ..with_volume(stamped(1), adopted_volume(), &[]) };
    world.rests(Rule::WaitForBinding);
    world.seen_by_probe = true;
    assert_eq!(world.step(Rule::BindVolume), Step::Bind { volume: names::pv_name(UID) }, "with the mark");
    let mark = Step::MarkAdopted { volume: names::pv_name(UID) };
    let mut leaving = world.clone();
    leaving.claim.terminating = true;
    assert_eq!(leaving.step(Rule::MarkAdoptedVolume), mark, "the claim is deleted");
    world.claim.volume_name = Some(names::pv_name(UID));
    world.claim.bind_completed = true;
    assert_eq!(world.step(Rule::MarkAdoptedVolume), mark, "the PV controller was faster");
    let mut bare = world.clone();
    bare.claim.held = false;
    assert_eq!(bare.step(Rule::MarkAdoptedVolume), mark, "somebody removed the finalizer");
    world.lacks_mark = false;
    assert_eq!(world.step(Rule::BoundClaimHeld), Step::EndHold);
}

#[test]
fn a_claim_in_a_batch_gets_an_event_only_when_its_run_is_slow() {
    let mut world = World { run: RunState::MayBeRunning, ..stamped(1) };
    let began = jiff::Timestamp::from_second(NOW).expect("a time");
    let stamp = world.claim.stamp.as_mut().expect("it is stamped");
    stamp.ts = began.to_string();
    world.rests(run(RunRule::RunInProgress));
    world.jobs = vec![Job { batch: Some(ObjectName::new("admin", "provision-batch-1")), ..job(1) }];
    let fast = world.decide_by(run(RunRule::RunInProgress), NOW + SLOW_BATCH - 1);
    assert_eq!((fast.event, fast.requeue_at), (None, Some(NOW + SLOW_BATCH)));
    let slow = world.decide_by(Rule::BatchSlow, NOW + SLOW_BATCH);
    let event = slow.event.expect("the user learns of the run");
    assert_eq!((event.reason, event.warning, slow.requeue_at), (reason::PROVISIONING, false, None));
    assert!(event.message.contains("provision-batch-1"), "{}", event.message);
    let documented = Rule::BatchSlow.documentation();
    assert!(documented.contains(&format!("{SLOW_BATCH} s")), "{documented}");
}

#[test]
fn the_pv_controller_binds_a_volume_that_it_may_not_have_seen() {
    for phase in ["", "Pending", "Available"] {
        let world = with_volume(stamped(1), Volume { phase: phase.into(), ..adopted_volume() }, &[]);
        world.rests(Rule::WaitForBinding);
    }
    let alone = World { binding: Binding::Controller, ..with_volume(stamped(1), known_volume(), &[]) };
    alone.rests(Rule::WaitForBinding);
    // The PV controller would not choose a terminating volume, but must bind it.
    for binding in [Binding::Direct, Binding::Controller] {
        let terminating = Volume { terminating: true, ..adopted_volume() };
        let mut world = World { binding, ..with_volume(stamped(1), terminating, &[]) };
        assert_eq!(world.step(Rule::NameVolume), Step::SetVolumeName { volume: names::pv_name(UID) });
        world.claim.volume_name = Some(names::pv_name(UID));
        world.rests(Rule::WaitForBinding);
        // The PV controller would not choose a volume without the requested VolumeAttributesClass either.
        let mut world = World { binding, ..with_volume(stamped(1), adopted_volume(), &[]) };
        world.claim.attributes_class = Some("gold".into());
        assert_eq!(world.step(Rule::NameVolume), Step::SetVolumeName { volume: names::pv_name(UID) });
        world.volumes[0].0.attributes_class = Some("gold".into());
        world.rests(Rule::WaitForBinding);
    }
}

#[test]
fn a_job_that_somebody_deletes_repeatedly_is_created_again_by_backoff() {
    let removed = |times| World { removed: Some(RemovedJob { times, at: NOW }), ..stamped(1) };
    assert_eq!(removed(1).step(run(RunRule::RunDue)), Step::StartRun, "once may be anything");
    let recipe = recipe_with(&[]);
    for times in 2..8 {
        let (world, wait) = (removed(times), delay(&recipe, times - 1));
        world.waits(Rule::JobRemovedRepeatedly, &format!("removed the attempt's Job {times} times"));
        assert_eq!(world.decide_by(Rule::JobRemovedRepeatedly, NOW).requeue_at, Some(NOW + wait));
        assert_eq!(world.decide_by(run(RunRule::RunDue), NOW + wait).step, Step::StartRun);
    }
}

#[test]
fn a_claim_waits_until_its_terminating_volume_is_gone() {
    let mut world = with_volume(stamped(1), vanishing_volume(), &[]);
    world.run = RunState::Succeeded;
    world.waits(Rule::VolumeTerminating, "is being deleted; the claim waits until it is gone");
    // Somebody deletes the volume between the two writes of the binding.
    world.volumes[0].0.phase = "Bound".into();
    world.waits(Rule::VolumeTerminating, "is being deleted; the claim waits until it is gone");
    world.volumes[0].0.claim_ref = adopted_volume().claim_ref;
    assert_eq!(world.step(Rule::NameHalfBoundVolume), Step::SetVolumeName { volume: names::pv_name(UID) });
    world.claim.volume_name = Some(names::pv_name(UID));
    world.waits(Rule::VolumeTerminating, "is being deleted; the claim waits until it is gone");
}

#[test]
fn a_volume_that_does_not_fit_is_quarantined() {
    let mut world = with_volume(stamped(1), volume(), &["too small", "wrong class"]);
    let decision = world.decide_by(Rule::QuarantineVolume, NOW);
    let why = "too small; wrong class".to_owned();
    assert_eq!(decision.step, Step::Quarantine { volume: names::pv_name(UID), why: why.clone() });
    assert_eq!(decision.event.unwrap().reason, reason::VOLUME_REFUSED);
    world.volumes[0].0.quarantine = Some("older words".into());
    assert!(matches!(world.step(Rule::QuarantineVolume), Step::Quarantine { .. }));
    world.volumes[0].0.quarantine = Some(why.clone());
    let recorded = records(Rule::RecordQuarantine, &world);
    assert_eq!((recorded.reaction, recorded.reason.as_str()), (Reaction::Never, "VolumeRefused"));
    assert!(recorded.message.contains(&why));
}

#[test]
fn a_claim_waits_for_the_volume_that_is_reserved_for_it() {
    let world = World { reserved_volume: Some("pvc-restored"), ..new() };
    let decision = world.decide_by(Rule::VolumeReserved, NOW);
    assert_eq!(decision.step, Step::Nothing);
    assert!(decision.event.unwrap().message.contains("pvc-restored is reserved for this claim"));
    assert_ne!(
        World { reserved_volume: Some("pvc-restored"), ..stamped(1) }.step(run(RunRule::RunDue)),
        Step::Nothing,
        "what has begun goes on"
    );
}

#[test]
fn an_attempt_leaves_a_node_that_takes_no_runs() {
    let mut world = stamped(1);
    world.node_choice.last = false;
    assert_eq!(
        world.step(Rule::ConfirmNoVolumeBeforeAttempt),
        Step::ConfirmNoVolume,
        "a Job may be there that no watch has shown"
    );
    world.no_volume = true;
    assert_eq!(world.step(Rule::NodeChanged), Step::Stamp { attempt: 2, nodes: vec!["home".into()] });
    world.node_choice.next = Some("b".into());
    assert_eq!(world.step(Rule::NodeChanged), Step::Stamp { attempt: 2, nodes: vec!["home".into(), "b".into()] });
    world.claim.nodes_with_storage.clear();
    world.node_choice.last = true;
    assert_eq!(world.step(Rule::NodeChanged), Step::Stamp { attempt: 2, nodes: vec!["b".into()] }, "none was noted");
    world.node_choice = NodeChoice::default();
    world.waits(Rule::NoNodeForRun, "no node can take a run for this claim");
}

#[test]
fn a_claim_waits_until_what_its_namesake_left_is_deleted() {
    let waits = World { has_namesake: true, ..new() };
    waits.waits(Rule::NamesakeNotUndone, "an earlier claim of this name");
    assert_eq!(World { has_namesake: true, ..stamped(1) }.step(run(RunRule::RunDue)), Step::StartRun);
}

#[test]
fn only_a_first_attempt_waits_until_less_is_left_of_claims_that_are_gone() {
    let much = Some("too much is left");
    let waits = World { left_refusal: much, has_slot: false, ..new() };
    waits.waits(Rule::TooMuchLeft, "too much is left");
    assert_eq!(waits.decide_by(Rule::TooMuchLeft, NOW).event.unwrap().reason, reason::LIMIT_REACHED);
    assert_eq!(World { left_refusal: much, ..stamped(1) }.step(run(RunRule::RunDue)), Step::StartRun);
    let pooled = World { left_refusal: much, pooled_volume: Some("ready"), ..new() };
    assert_eq!(pooled.step(Rule::AssignPooledVolume), Step::AssignPooledVolume { volume: "ready".into() });
}

#[test]
fn a_claim_waits_for_a_node_a_revision_and_a_slot() {
    delayed(new(), None).rests(Rule::WaitForFirstConsumer);
    World { has_revision: false, ..new() }.rests(Rule::RevisionNotStored);
    let full = World { has_slot: false, ..new() };
    assert_eq!(full.step(run(RunRule::NoFreeSlot)), Step::WaitForSlot { nodes: vec!["home".into()] });
    assert_eq!(full.decide_by(run(RunRule::NoFreeSlot), NOW).requeue_at, Some(NOW + 30), "others before it may leave");
    let elsewhere = World { has_slot: false, ..selected(new()) };
    assert_eq!(
        elsewhere.step(run(RunRule::NoFreeSlot)),
        Step::WaitForSlot { nodes: vec!["a".into()] },
        "its place is where it would run"
    );
    let nowhere = World { node_choice: NodeChoice::default(), ..full };
    assert_eq!(nowhere.step(Rule::NoNodeForRun), Step::Nothing, "a place is of no use to it");
}

#[test]
fn a_claim_with_an_uncertain_stamp_checks_the_quota_again() {
    let full = World { quota_refusal: Some("full"), ..new() };
    assert_eq!(full.decide_by(Rule::QuotaReached, NOW).requeue_at, None, "an event says when the quota allows it");
    let unsure = World { has_pending_charge: true, ..full };
    assert_eq!(
        unsure.decide_by(Rule::QuotaReached, NOW).requeue_at,
        Some(NOW + 120),
        "that its stamp never stood is none"
    );
}

#[test]
fn an_attempt_that_may_have_run_begins_once_more_when_the_api_has_neither_volume_nor_run() {
    let recorded = |last| RecordedAttempts { last, ..RecordedAttempts::default() };
    let world = World { recorded: recorded(2), ..stamped(2) };
    assert_eq!(World { fresh: false, ..world.clone() }.step(Rule::ReadClaimBeforeRun), Step::Refresh);
    assert_eq!(world.step(Rule::ConfirmNoVolumeBeforeAttempt), Step::ConfirmNoVolume, "it may be in a batch");
    assert_eq!(World { no_volume: true, ..world.clone() }.step(run(RunRule::RunDue)), Step::StartRun);
    let new = World { recorded: recorded(1), ..world.clone() };
    assert_eq!(new.step(run(RunRule::RunDue)), Step::StartRun, "only the attempt before has run");
    World { run: RunState::MayBeRunning, ..world }.rests(run(RunRule::RunInProgress));
}

#[test]
fn an_attempt_of_a_claim_that_is_not_held_begins_anew() {
    let mut world = World { jobs: vec![job(1)], run: RunState::MayBeRunning, ..stamped(1) };
    world.claim.held = false;
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1).name });
    world.jobs[0].terminating = true;
    world.rests(run(RunRule::RunEnding));
    (world.jobs, world.run) = (vec![], RunState::NotCached);
    assert_eq!(world.step(Rule::ConfirmNoVolumeBeforeAttempt), Step::ConfirmNoVolume);
    world.no_volume = true;
    assert_eq!(world.step(Rule::HoldLost), Step::Stamp { attempt: 2, nodes: vec!["home".into()] });
    world.class.recipe = Err("the config has errors".into());
    world.waits(Rule::ConfigUnusable, "the config has errors");
}

#[test]
fn a_claim_records_its_node_before_the_job_exists() {
    let mut world = World { no_volume: true, ..delayed(stamped(1), Some("b")) };
    world.claim.nodes_with_storage = vec!["a".into()];
    assert_eq!(world.step(Rule::NodeChanged), Step::Stamp { attempt: 2, nodes: vec!["a".into(), "b".into()] });
    delayed(stamped(1), None).rests(Rule::WaitForFirstConsumer);
    world.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun);
}

#[test]
fn a_run_starts_on_a_claim_that_was_just_read() {
    assert_eq!(stamped(1).step(run(RunRule::RunDue)), Step::StartRun);
    assert_eq!(World { fresh: false, ..stamped(1) }.step(Rule::ReadClaimBeforeRun), Step::Refresh);
    assert_eq!(
        World { jobs: vec![job(3)], ..stamped(1) }.step(run(RunRule::RunNotWanted)),
        Step::RemoveJob { job: job(3).name }
    );
    let lost = World { stamped_recipe: None, ..stamped(1) };
    let recorded = records(Rule::RecipeLost, &lost);
    assert_eq!((recorded.reaction, recorded.reason.as_str()), (Reaction::Retry, "ConfigLost"));
}

#[test]
fn a_run_that_succeeds_without_a_volume_counts_as_failed() {
    let mut world = World { run: RunState::Succeeded, jobs: vec![over(1)], ..stamped(1) };
    assert_eq!(world.step(Rule::ConfirmNoVolumeMade), Step::ConfirmNoVolume);
    world.no_volume = true;
    let recorded = records(Rule::NoVolumeMade, &world);
    assert_eq!((recorded.reaction, recorded.reason.as_str()), (Reaction::Retry, "NoVolume"));
    assert!(recorded.message.contains(&format!("exited 0 without creating the PersistentVolume pvc-{UID}")));
    for (keys, tokenless) in [(&[][..], true), (&[("service-account-name", "foo")], false)] {
        world.stamped_recipe = Some(recipe_with(keys));
        assert_eq!(records(Rule::NoVolumeMade, &world).message.contains("has no `service-account-name`"), tokenless);
    }
}

#[test]
fn a_claim_waits_for_its_run() {
    let world = World { run: RunState::MayBeRunning, jobs: vec![job(1)], has_running_pods: true, ..stamped(1) };
    world.rests(run(RunRule::RunInProgress));
    assert_eq!(world.decide_by(run(RunRule::RunInProgress), NOW).requeue_at, None, "its events come");
}

#[test]
fn the_pv_controller_binds_a_volume_that_was_made_for_another_claim() {
    let given =
        Volume { name: "pvc-of-another".into(), volume_id_annotation: Some("another".into()), ..adopted_volume() };
    let given = Volume { claim_uid: Some(UID.into()), ..given };
    let mut world = with_volume(stamped(1), given, &["name"]);
    world.run = failed_run(Reaction::Retry, NOW);
    world.rests(Rule::WaitForBinding);
    world.volumes[0].0.terminating = true;
    assert_eq!(world.step(Rule::NameVolume), Step::SetVolumeName { volume: "pvc-of-another".into() });
    world.volumes[0].0.adoption_mark = None;
    assert!(matches!(world.step(Rule::QuarantineVolume), Step::Quarantine { .. }), "whose word it is nobody knows");
}

#[test]
fn an_attempt_ends_though_its_class_is_gone() {
    let gone = |world: World| World { foreign: true, ..world };
    let made = gone(with_volume(stamped(1), volume(), &[]));
    assert!(matches!(made.step(Rule::AdoptVolume), Step::Adopt { .. }));
    let adopted = gone(with_volume(stamped(1), adopted_volume(), &[]));
    adopted.rests(Rule::WaitForBinding);
    let known = gone(with_volume(stamped(1), known_volume(), &[]));
    assert_eq!(known.step(Rule::BindVolume), Step::Bind { volume: names::pv_name(UID) });
    let wrong = gone(with_volume(stamped(1), volume(), &["size"]));
    assert!(matches!(wrong.step(Rule::QuarantineVolume), Step::Quarantine { .. }));
    let done = gone(World { run: RunState::Succeeded, ..stamped(1) });
    assert_eq!(done.step(Rule::ConfirmNoVolumeMade), Step::ConfirmNoVolume);
    let mut refused = World { run: RunState::Succeeded, ..wrong };
    refused.volumes[0].0.quarantine = Some("size".into());
    refused.waits(Rule::ClassNotServed, "this provisioner does not serve the claim's class any more");
    gone(World { run: RunState::MayBeRunning, ..stamped(1) }).rests(run(RunRule::RunInProgress));
    gone(World { no_volume: true, ..done })
        .waits(Rule::ClassNotServed, "this provisioner does not serve the claim's class any more");
}

#[test]
fn a_lost_record_is_written_again_once_the_api_shows_no_volume() {
    let lost = RecordedAttempts { is_missing: true, ..RecordedAttempts::default() };
    let mut world = World { recorded: lost, fresh: false, run: RunState::MayBeRunning, ..stamped(1) };
    assert_eq!(world.step(Rule::RecordLost), Step::Refresh);
    world.fresh = true;
    assert_eq!(world.step(Rule::RecordLost), Step::ConfirmNoVolume);
    world.no_volume = true;
    assert_eq!(world.step(Rule::RecordLost), Step::Record);
    world.foreign = true;
    assert_eq!(world.step(Rule::RecordLost), Step::Record);
    world.claim.abandoned = true;
    world.rests(run(RunRule::RunInProgress));
    adopts(Rule::AdoptVolume, &with_volume(World { foreign: false, ..world }, volume(), &[]));
}

#[test]
fn a_claim_that_has_lost_its_stamp_goes_on_after_the_attempts_of_its_records() {
    let nodes = vec!["a".to_owned(), "home".into()];
    let recorded = RecordedAttempts { last: 3, nodes, ..RecordedAttempts::default() };
    let nodes = vec!["a".to_owned(), "home".into()];
    let step = World { recorded, pooled_volume: Some("pvc-ready"), ..new() }.step(Rule::FirstAttemptDue);
    assert_eq!(step, Step::Stamp { attempt: 4, nodes });
}
