//! Tests of the rows for claims that are stamped, or are stamped next.

use super::*;

#[test]
fn row_19_a_new_claim_is_stamped() {
    let decision = new().decide(NOW);
    assert_eq!(
        (decision.step, decision.event),
        (Step::Stamp { attempt: 1, nodes: vec!["home".into()], volume_generation: 0 }, None)
    );
    let delayed = delayed(new(), Some("a"));
    assert_eq!(delayed.step(), Step::Stamp { attempt: 1, nodes: vec!["a".into()], volume_generation: 0 });
}

#[test]
fn row_19_the_warning_of_the_pure_form_is_explained() {
    let mut world = new();
    world.class.has_object = false;
    let tell = world.decide(NOW).event.unwrap();
    assert!(!tell.warning && tell.message.contains("\"silver\" not found` on this claim is harmless"), "{tell:?}");
}

#[test]
fn row_19_a_copied_stamp_is_replaced() {
    let mut world = stamped(7);
    world.claim.stamp.as_mut().unwrap().uuid = "copied".into();
    world.claim.nodes = vec!["of the other".into()];
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Stamp { attempt: 1, nodes: vec!["home".into()], volume_generation: 0 });
    assert_eq!(decision.event.unwrap().reason, reason::STALE_STAMP_REPLACED);
    let mut world = stamped(0);
    assert_eq!(
        world.step(),
        Step::Stamp { attempt: 1, nodes: vec!["home".into()], volume_generation: 0 },
        "an attempt 0 is none"
    );
    world.claim.stamp = None;
    assert_eq!(world.step(), Step::Stamp { attempt: 1, nodes: vec!["home".into()], volume_generation: 0 });
}

#[test]
fn row_20_a_volume_that_fits_is_adopted() {
    let mut world = with_volume(stamped(2), volume(), &[]);
    world.run = RunState::Running;
    world.jobs = vec![job(2)];
    assert_eq!(adopts(&world).node, "home", "the image need not have ended");
    let mut world = delayed(world, Some("a"));
    world.claim.nodes = vec!["b".into(), "a".into()];
    assert_eq!(adopts(&world).node, "a", "where the attempt was");
    world.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(adopts(&world).node, "");
}

#[test]
fn row_20_the_provenance_is_that_of_the_attempt() {
    let mut world = with_volume(stamped(1), volume(), &[]);
    world.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert_eq!(adopts(&world).record, recipe_with(&[]).record);
    world.stamped_recipe = None;
    assert_eq!(adopts(&world).record, recipe_with(&[("zone", "newer")]).record, "if it is lost, the class's");
}

#[test]
fn row_21_an_adopted_volume_is_bound() {
    let mut world = with_volume(stamped(1), Volume { name: "wrong".into(), ..volume() }, &["name"]);
    world = with_volume(world, known_volume(), &[]);
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, Failure::Retry));
    world.run = failed_run(Failure::Retry, NOW);
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Bind { volume: names::pv_name(UID) }, "whatever the script exits with");
    assert_eq!(decision.event.unwrap().reason, reason::PROVISIONING_SUCCEEDED);
    let held = Volume { deleting: true, ..known_volume() };
    assert_eq!(with_volume(stamped(1), held, &[]).step(), Step::Bind { volume: names::pv_name(UID) });
}

#[test]
fn row_21_a_volume_that_the_pv_controller_may_not_know_is_left_to_it() {
    for phase in ["", "Pending", "Available"] {
        let world = with_volume(stamped(1), Volume { phase: phase.into(), ..adopted_volume() }, &[]);
        world.rests();
    }
    let alone = World { binding: Binding::Controller, ..with_volume(stamped(1), known_volume(), &[]) };
    alone.rests();
    // The PV controller would not choose a terminating volume, but must bind it.
    for binding in [Binding::Direct, Binding::Controller] {
        let terminating = Volume { deleting: true, ..adopted_volume() };
        let mut world = World { binding, ..with_volume(stamped(1), terminating, &[]) };
        assert_eq!(world.step(), Step::SetVolumeName { volume: names::pv_name(UID) });
        world.claim.volume_name = Some(names::pv_name(UID));
        world.rests();
        // The PV controller would not choose a volume without the requested VolumeAttributesClass either.
        let mut world = World { binding, ..with_volume(stamped(1), adopted_volume(), &[]) };
        world.claim.attributes_class = Some("gold".into());
        assert_eq!(world.step(), Step::SetVolumeName { volume: names::pv_name(UID) });
        world.volumes[0].0.attributes_class = Some("gold".into());
        world.rests();
    }
}

#[test]
fn row_30_a_job_that_is_removed_again_and_again_is_begun_at_the_pace_of_failures() {
    let removed = |times| World { removed: Some(RemovedJob { times, at: NOW }), ..stamped(1) };
    assert_eq!(removed(1).step(), Step::StartRun, "once may be anything");
    let recipe = recipe_with(&[]);
    for times in 2..8 {
        let (world, wait) = (removed(times), delay(&recipe, times - 1));
        world.waits(&format!("removed the attempt's Job {times} times"));
        assert_eq!(world.decide(NOW).requeue_at, Some(NOW + wait));
        assert_eq!(world.decide(NOW + wait).step, Step::StartRun);
    }
}

#[test]
fn row_22_a_volume_that_goes_is_not_bound_nor_looked_for() {
    let mut world = with_volume(stamped(1), vanishing_volume(), &[]);
    world.run = RunState::Succeeded;
    world.waits("is being deleted; the claim waits until it is gone");
    // Somebody deletes the volume between the two writes of the binding.
    world.volumes[0].0.phase = "Bound".into();
    world.waits("is being deleted; the claim waits until it is gone");
    world.volumes[0].0.claim_ref = adopted_volume().claim_ref;
    assert_eq!(world.step(), Step::SetVolumeName { volume: names::pv_name(UID) });
    world.claim.volume_name = Some(names::pv_name(UID));
    world.waits("is being deleted; the claim waits until it is gone");
}

#[test]
fn row_23_a_volume_that_does_not_fit() {
    let mut world = with_volume(stamped(1), volume(), &["too small", "wrong class"]);
    let decision = world.decide(NOW);
    let why = "too small; wrong class".to_owned();
    assert_eq!(decision.step, Step::Quarantine { volume: names::pv_name(UID), why: why.clone() });
    assert_eq!(decision.event.unwrap().reason, reason::VOLUME_REFUSED);
    world.volumes[0].0.quarantine = Some("older words".into());
    assert!(matches!(world.step(), Step::Quarantine { .. }));
    world.volumes[0].0.quarantine = Some(why.clone());
    let recorded = records(&world);
    assert_eq!((recorded.kind, recorded.reason.as_str()), (Failure::Never, "VolumeRefused"));
    assert!(recorded.message.contains(&why));
}

#[test]
fn row_17a_a_claim_waits_for_the_volume_that_is_reserved_for_it() {
    let world = World { reserved_volume: Some("pvc-restored"), ..new() };
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Nothing);
    assert!(decision.event.unwrap().message.contains("pvc-restored is reserved for this claim"));
    assert_ne!(
        World { reserved_volume: Some("pvc-restored"), ..stamped(1) }.step(),
        Step::Nothing,
        "what has begun goes on"
    );
}

#[test]
fn row_26_a_claim_whose_refused_volume_was_deleted_is_tried_again_at_once() {
    let mut world = failed_with(Failure::Never);
    world.rests_until_slow();
    world.claim.last_failure.as_mut().unwrap().reason = "VolumeRefused".into();
    assert!(matches!(world.step(), Step::Stamp { attempt: 2, .. }), "its volume is gone");
    let there = with_volume(world, Volume { quarantine: Some("wrong".into()), ..volume() }, &["wrong"]);
    there.rests_until_slow();
}

#[test]
fn row_24_a_container_beside_the_image_does_not_keep_a_failed_run() {
    let ended = RunState::Failed { cause: Cause::new("R", "m"), kind: Failure::Retry, at: NOW, pods_ended: false };
    let world = World { jobs: vec![job(1)], has_running_pods: true, run: ended, ..failed_with(Failure::Retry) };
    assert_eq!(
        (world.step(), world.decide(NOW).requeue_at),
        (Step::Nothing, Some(NOW + 5)),
        "it usually ends by itself"
    );
    assert_eq!(world.decide(NOW + 5).step, Step::RemoveJob { job: job(1).name });
    let terminating = World { jobs: vec![Job { deleting: true, ..job(1) }], ..world };
    assert_eq!(terminating.decide(NOW + 5).step, Step::Nothing);
}

#[test]
fn row_24_a_process_of_the_attempt_is_stopped() {
    let world = failed_with(Failure::Retry);
    let late = NOW + 1_000_000;
    let running = World { jobs: vec![job(1)], run: RunState::Running, ..world.clone() };
    assert_eq!(running.decide(late).step, Step::RemoveJob { job: job(1).name });
    let stuck = RunState::Stuck { cause: Cause::new("R", "m"), since: 0 };
    let stopping = World { jobs: vec![Job { deleting: true, ..job(1) }], run: stuck, ..world.clone() };
    assert_eq!(stopping.decide(late).step, Step::Nothing);
    let ending = World { jobs: vec![job(1)], run: failed_run(Failure::Retry, NOW), ..world.clone() };
    assert_eq!(ending.decide(late).step, Step::Nothing, "the Job is about to be over, and its log is wanted");
    assert_eq!(World { has_running_pods: true, ..world.clone() }.decide(late).step, Step::Nothing);
    let later = World { jobs: vec![job(7)], run: failed_run(Failure::Retry, NOW), ..world };
    let unsure = World { fresh: false, ..later.clone() };
    assert_eq!(unsure.decide(late).step, Step::Refresh, "it may be of a stamp that the cache does not have yet");
    let sure = World { fresh: true, ..later };
    assert_eq!(sure.decide(late).step, Step::RemoveJob { job: job(7).name }, "one of another attempt as well");
}

#[test]
fn row_25_no_room_on_the_node() {
    let mut world = delayed(failed_with(Failure::NoCapacity), Some("a"));
    let decision = world.decide(NOW);
    let Step::Reschedule { failure: Some(noted) } = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!(noted.kind, Failure::Retry, "the next node is as good as any");
    assert!(decision.event.unwrap().message.contains("no room on node a"));
    world.claim.selected_node = None;
    let recorded = records(&world);
    assert_eq!((recorded.kind, recorded.attempt, recorded.at), (Failure::Retry, 1, NOW));
    world.claim.last_failure = Some(recorded);
    world.rests();
    for node in ["a", "b"] {
        world.claim.selected_node = Some(node.into());
        let nodes = if node == "a" { vec!["a".to_owned()] } else { vec!["a".into(), "b".into()] };
        world.claim.nodes = vec!["a".into()];
        assert_eq!(world.decide(NOW).requeue_at, Some(NOW + 2), "the same node or another, never at once");
        assert_eq!(world.decide(NOW + 2).step, Step::Stamp { attempt: 2, nodes, volume_generation: 0 });
    }
}

#[test]
fn row_26_no_room_where_the_node_is_chosen_here() {
    let choice = |next: Option<&str>, is_new| NodeChoice { next: next.map(str::to_owned), is_new, last: true };
    let stamp = |nodes: &[&str]| {
        let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        Step::Stamp { attempt: 2, nodes, volume_generation: 0 }
    };
    let mut world = World { node_choice: choice(Some("b"), true), ..failed_with(Failure::NoCapacity) };
    assert_eq!(world.step(), stamp(&["home", "b"]), "a new node at once");
    world.node_choice = choice(Some("b"), false);
    world.claim.nodes = vec!["b".into(), "home".into()];
    assert_eq!(world.decide(NOW).requeue_at, Some(NOW + 2), "all have had an attempt");
    assert_eq!(world.decide(NOW + 2).step, stamp(&["home", "b"]));
    world.node_choice = choice(None, false);
    assert_eq!(world.decide(NOW + 2).step, stamp(&["b", "home"]), "there is no other");
    let mut failed = World { node_choice: choice(Some("b"), true), ..failed_with(Failure::Retry) };
    assert_eq!(failed.decide(NOW + 2).step, stamp(&["home"]), "something may be left there");
    failed.node_choice.last = false;
    assert_eq!(failed.decide(NOW + 2).step, stamp(&["home", "b"]));
    failed.node_choice = NodeChoice::default();
    let decision = failed.decide(NOW + 2);
    assert_eq!(decision.step, Step::Nothing);
    assert!(decision.event.unwrap().message.contains("no node can take a run for this claim"));
}

#[test]
fn row_29_a_chosen_node_that_takes_no_runs_any_more() {
    let mut world = stamped(1);
    world.node_choice.last = false;
    assert_eq!(world.step(), Step::ConfirmNoVolume, "a Job may be there that no watch has shown");
    world.no_volume = true;
    assert_eq!(world.step(), Step::Stamp { attempt: 2, nodes: vec!["home".into()], volume_generation: 0 });
    world.node_choice.next = Some("b".into());
    assert_eq!(world.step(), Step::Stamp { attempt: 2, nodes: vec!["home".into(), "b".into()], volume_generation: 0 });
    world.claim.nodes.clear();
    world.node_choice.last = true;
    assert_eq!(
        world.step(),
        Step::Stamp { attempt: 2, nodes: vec!["b".into()], volume_generation: 0 },
        "none was noted"
    );
    world.node_choice = NodeChoice::default();
    world.waits("no node can take a run for this claim");
}

#[test]
fn row_18_who_may_have_been_stamped_looks_again_after_a_while() {
    let full = World { quota_error: Some("full"), ..new() };
    assert_eq!(full.decide(NOW).requeue_at, None, "its room is an event");
    let unsure = World { has_pending_charge: true, ..full };
    assert_eq!(unsure.decide(NOW).requeue_at, Some(NOW + 120), "that its stamp never stood is none");
}

#[test]
fn row_29_who_is_left_out_of_a_batch_has_a_run_of_its_own() {
    let world = World { missed_batch: true, no_volume: false, ..stamped(1) };
    assert_eq!(world.step(), Step::ConfirmNoVolume, "another process may have seen it in");
    let sure = World { no_volume: true, ..world.clone() };
    assert_eq!(sure.step(), Step::Stamp { attempt: 2, nodes: vec!["home".into()], volume_generation: 0 });
    assert_eq!(World { fresh: false, ..sure.clone() }.step(), Step::Refresh);
    assert_eq!(World { has_slot: false, ..sure.clone() }.step(), Step::WaitForSlot { nodes: vec!["home".into()] });
    World { run: RunState::Running, ..sure }.rests();
}

#[test]
fn row_26_the_next_attempt() {
    let mut world = failed_with(Failure::Retry);
    world.claim.nodes = vec!["a".into(), "b".into()];
    world.claim.selected_node = Some("a".into());
    let nodes = || vec!["b".to_owned(), "a".to_owned()];
    let unsure = World { no_volume: false, ..world.clone() };
    assert_eq!(unsure.decide(NOW + 2).step, Step::ConfirmNoVolume, "the watch may lag, and a second be made");
    assert_eq!(
        world.decide(NOW + 2).step,
        Step::Stamp { attempt: 2, nodes: nodes(), volume_generation: 0 },
        "last is where it is to run"
    );
    world.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert!(matches!(world.step(), Step::Stamp { attempt: 2, .. }), "a new config is tried at once");
    World { has_revision: false, ..world.clone() }.rests();
    let full = World { has_slot: false, ..world.clone() };
    assert_eq!(
        (full.decide(NOW + 2).step, full.decide(NOW + 2).requeue_at),
        (Step::WaitForSlot { nodes: nodes() }, Some(NOW + 32))
    );
    world.class.recipe = Ok(Arc::new(recipe_with(&[("max-size", "1Mi")])));
    world.waits("provides at most 1Mi");
    world.class.recipe = Err("the config has errors".into());
    world.waits("the config has errors");
    let mut never = failed_with(Failure::Never);
    assert_eq!(never.decide(NOW + 1799).requeue_at, Some(NOW + 1800));
    assert!(matches!(never.decide(NOW + 1800).step, Step::Stamp { attempt: 2, .. }));
    never.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert!(matches!(never.step(), Step::Stamp { attempt: 2, .. }));
    delayed(failed_with(Failure::Retry), None).rests();
}

#[test]
fn row_27_the_pause_doubles() {
    let recipe = recipe_with(&[("backoff", "5s..1m"), ("retries", "6")]);
    let pauses: Vec<_> = (1..9).map(|attempt| delay(&recipe, attempt)).collect();
    assert_eq!(pauses, [5, 10, 20, 40, 60, 60, 1800, 1800]);
    assert_eq!(delay(&recipe_with(&[("backoff", "1s..100h"), ("retries", "1000")]), 1000), 360_000);
    let mut world = failed_with(Failure::Retry);
    world.claim.stamp.as_mut().unwrap().attempt = 3;
    world.claim.last_failure = Some(failure(Operation::Provision, 3, NOW, Failure::Retry));
    assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 8)));
    world.claim.last_failure = Some(failure(Operation::Provision, 2, NOW, Failure::Retry));
    assert_eq!(world.step(), Step::StartRun, "a failure of another attempt is past");
    world.claim.last_failure = Some(failure(Operation::Delete, 3, NOW, Failure::Retry));
    assert_eq!(world.step(), Step::StartRun, "and so is one of another operation");
}

#[test]
fn row_28_without_its_finalizer_an_attempt_begins_anew() {
    let mut world = World { jobs: vec![job(1)], run: RunState::Running, ..stamped(1) };
    world.claim.finalizers.clear();
    assert_eq!(world.step(), Step::RemoveJob { job: job(1).name });
    world.jobs[0].deleting = true;
    world.rests();
    (world.jobs, world.run) = (vec![], RunState::Absent);
    assert_eq!(world.step(), Step::ConfirmNoVolume);
    world.no_volume = true;
    assert_eq!(world.step(), Step::Stamp { attempt: 2, nodes: vec!["home".into()], volume_generation: 0 });
    world.class.recipe = Err("the config has errors".into());
    world.waits("the config has errors");
}

#[test]
fn row_29_the_node_is_noted_before_the_job_exists() {
    let mut world = World { no_volume: true, ..delayed(stamped(1), Some("b")) };
    world.claim.nodes = vec!["a".into()];
    assert_eq!(world.step(), Step::Stamp { attempt: 2, nodes: vec!["a".into(), "b".into()], volume_generation: 0 });
    delayed(stamped(1), None).rests();
    world.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(world.step(), Step::StartRun);
}

#[test]
fn row_30_a_run_starts_on_a_claim_that_was_just_read() {
    assert_eq!(stamped(1).step(), Step::StartRun);
    assert_eq!(World { fresh: false, ..stamped(1) }.step(), Step::Refresh);
    assert_eq!(World { jobs: vec![job(3)], ..stamped(1) }.step(), Step::RemoveJob { job: job(3).name });
    let lost = World { stamped_recipe: None, ..stamped(1) };
    let recorded = records(&lost);
    assert_eq!((recorded.kind, recorded.reason.as_str()), (Failure::Retry, "ConfigLost"));
}

#[test]
fn row_31_what_keeps_a_run_is_told_and_an_image_is_given_up() {
    let stuck = |reason: &str, since| World {
        run: RunState::Stuck { cause: Cause::new(reason, "words"), since },
        jobs: vec![job(1)],
        ..stamped(1)
    };
    stuck("ImagePullBackOff", NOW - 29).waits("words");
    assert_eq!(stuck("ImagePullBackOff", NOW - 29).decide(NOW).requeue_at, Some(NOW + 1));
    for reason in ["ImagePullBackOff", "ErrImagePull", "CreateContainerConfigError"] {
        assert_eq!(records(&stuck(reason, NOW - 30)).kind, Failure::Retry);
    }
    let mut unschedulable = stuck("Unschedulable", 0);
    assert_eq!(records(&unschedulable).kind, Failure::NoCapacity, "there is another node");
    unschedulable.node_choice = NodeChoice { last: true, ..NodeChoice::default() };
    unschedulable.waits("words");
    assert_eq!(unschedulable.decide(NOW).requeue_at, None, "it ends with its deadline");
    let mut changed = unschedulable;
    changed.class.recipe = Ok(Arc::new(recipe_with(&[("zone", "newer")])));
    assert_eq!(records(&changed).reason, "Unschedulable");
    changed.has_revision = false;
    changed.waits("words");
}

#[test]
fn row_32_done_without_a_volume() {
    let mut world = World { run: RunState::Succeeded, jobs: vec![over(1)], ..stamped(1) };
    assert_eq!(world.step(), Step::ConfirmNoVolume);
    world.no_volume = true;
    let recorded = records(&world);
    assert_eq!((recorded.kind, recorded.reason.as_str()), (Failure::Retry, "NoVolume"));
    assert!(recorded.message.contains(&format!("exited 0 without creating the PersistentVolume pvc-{UID}")));
    for (keys, tokenless) in [(&[][..], true), (&[("service-account-name", "foo")], false)] {
        world.stamped_recipe = Some(recipe_with(keys));
        assert_eq!(records(&world).message.contains("has no `service-account-name`"), tokenless);
    }
}

#[test]
fn row_33_a_failed_run_is_remembered_and_told() {
    let told = |kind, world: World| {
        let world = World { run: failed_run(kind, NOW - 5), jobs: vec![job(1)], ..world };
        let recorded = records(&world);
        assert_eq!((recorded.attempt, recorded.kind, recorded.at), (1, kind, NOW - 5));
        assert_eq!((recorded.reason.as_str(), recorded.message.as_str()), ("ExitCode", "disk on fire"));
        world.decide(NOW).event.unwrap().message
    };
    assert_eq!(told(Failure::Retry, stamped(1)), "attempt 1 failed: disk on fire; next try in 2 s");
    assert!(
        told(Failure::Never, stamped(1)).contains("when the provisioner config or the class changes, or in 30 min")
    );
    assert!(told(Failure::NoCapacity, stamped(1)).ends_with("tries another node"));
    let alone = World { node_choice: NodeChoice { last: true, ..NodeChoice::default() }, ..stamped(1) };
    assert!(told(Failure::NoCapacity, alone).contains("next try in 2 s"));
    assert!(told(Failure::NoCapacity, delayed(stamped(1), Some("a"))).contains("asks the scheduler for another node"));
}

#[test]
fn row_33_a_node_s_clock_is_not_trusted() {
    for (said, taken) in [(0, NOW - 60), (NOW - 3600, NOW - 60), (NOW + 3600, NOW), (NOW - 7, NOW - 7)] {
        let world = World { run: failed_run(Failure::Retry, said), ..stamped(1) };
        assert_eq!(records(&world).at, taken);
    }
}

#[test]
fn row_34_a_run_that_goes_on_is_waited_for() {
    let world = World { run: RunState::Running, jobs: vec![job(1)], has_running_pods: true, ..stamped(1) };
    world.rests();
    assert_eq!(world.decide(NOW).requeue_at, None, "its events come");
}

#[test]
fn row_23_a_stolen_volume_goes_to_the_thief_and_another_is_made() {
    let mut robbed = with_volume(stamped(1), taken_volume(), &["claimRef"]);
    let decision = robbed.decide(NOW);
    let Step::TransferToOtherClaim { volume, provenance, .. } = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!((volume, &provenance.record), (names::pv_name(UID), &recipe_with(&[]).record));
    assert!(decision.event.unwrap().message.contains("but claim b/thief has taken it"));
    // After a crash between the two writes, the transfer is continued.
    let thief = taken_volume().claim_ref.map(|reference| reference.uid);
    let half = Volume { claim_uuid: thief, volume_id: Some(UID.into()), ..taken_volume() };
    let half_way = with_volume(stamped(1), half.clone(), &["claimRef"]);
    assert!(matches!(half_way.step(), Step::TransferToOtherClaim { .. }), "{:?}", half_way.step());

    let text = serde_json::to_string(&provenance).unwrap();
    let theirs =
        Volume { adoption_mark: Some(crate::model::volume::adoption_mark(&text)), provenance: Some(text), ..half };
    robbed.volumes = vec![(theirs.clone(), vec!["claimRef".into()])];
    robbed.run = RunState::Succeeded;
    robbed.jobs = vec![Job { is_over: true, ..job(1) }];
    robbed.claim.nodes = vec!["a".into(), "home".into()];
    let step = Step::Stamp { attempt: 2, nodes: vec!["home".into()], volume_generation: 1 };
    assert_eq!(robbed.step(), step, "what is on the other goes with the volume");
    robbed.has_running_pods = true;
    robbed.rests();
    robbed.has_running_pods = false;
    robbed.claim.stamp.as_mut().unwrap().volume_generation = 16;
    assert_ne!(robbed.claim.id(), UID);

    // A terminating claim leaves the volume to the other claim.
    let mut leaving = with_volume(deleting(), taken_volume(), &["claimRef"]);
    assert!(matches!(leaving.step(), Step::TransferToOtherClaim { .. }));
    leaving.volumes = vec![(theirs, vec!["claimRef".into()])];
    assert_eq!(leaving.step(), Step::RemoveFinalizer);
}

#[test]
fn row_21_what_was_taken_and_given_is_bound_by_the_pv_controller() {
    let given = Volume { name: "pvc-of-another".into(), volume_id: Some("another".into()), ..adopted_volume() };
    let given = Volume { claim_uuid: Some(UID.into()), ..given };
    let mut world = with_volume(stamped(1), given, &["name"]);
    world.run = failed_run(Failure::Retry, NOW);
    world.rests();
    world.volumes[0].0.deleting = true;
    assert_eq!(world.step(), Step::SetVolumeName { volume: "pvc-of-another".into() });
    world.volumes[0].0.adoption_mark = None;
    assert!(matches!(world.step(), Step::Quarantine { .. }), "whose word it is nobody knows");
}

#[test]
fn row_17_an_attempt_ends_though_its_class_is_gone() {
    let gone = |world: World| World { foreign: true, ..world };
    let made = gone(with_volume(stamped(1), volume(), &[]));
    assert!(matches!(made.step(), Step::Adopt { .. }));
    let adopted = gone(with_volume(stamped(1), adopted_volume(), &[]));
    adopted.rests();
    let known = gone(with_volume(stamped(1), known_volume(), &[]));
    assert_eq!(known.step(), Step::Bind { volume: names::pv_name(UID) });
    let wrong = gone(with_volume(stamped(1), volume(), &["size"]));
    assert!(matches!(wrong.step(), Step::Quarantine { .. }));
    let done = gone(World { run: RunState::Succeeded, ..stamped(1) });
    assert_eq!(done.step(), Step::ConfirmNoVolume);
    let mut refused = World { run: RunState::Succeeded, ..wrong };
    refused.volumes[0].0.quarantine = Some("size".into());
    refused.waits("this provisioner does not serve the claim's class any more");
    gone(World { run: RunState::Running, ..stamped(1) }).rests();
    gone(World { no_volume: true, ..done }).waits("this provisioner does not serve the claim's class any more");
}

#[test]
fn row_26_no_node_is_tried_beyond_those_that_can_be_noted() {
    let mut world = delayed(failed_with(Failure::Retry), Some("another"));
    world.node_states = NodeStates([("another".to_owned(), NodeState::Ready)].into());
    world.claim.nodes = (1..crate::limits::NODES).map(|n| format!("n{n}")).collect();
    let at = NOW + 4000;
    assert!(matches!(world.decide(at).step, Step::Stamp { attempt: 2, .. }), "{:?}", world.decide(at));
    world.claim.nodes.push("n0".into());
    let decision = world.decide(at);
    let said = decision.event.as_ref().map(|tell| tell.message.as_str()).unwrap_or_default();
    assert!(decision.step == Step::Nothing && said.contains("on 100 nodes"), "{decision:?}");
    let mut world = delayed(world, Some("n1"));
    world.node_states = NodeStates([("n1".to_owned(), NodeState::Ready)].into());
    assert!(matches!(world.decide(at).step, Step::Stamp { attempt: 2, .. }), "one of them again");
}
