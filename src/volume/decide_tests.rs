//! A test per row of the table, then what holds for all that can be observed.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::config::record::Record;
use crate::run::state::Cause;
use contract::exit::Failure;

const NOW: i64 = 1_000_000;
const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn recipe() -> Recipe {
    Record { data: [("image".to_owned(), "x".to_owned())].into(), ..Record::default() }.recipe().unwrap()
}

/// An adopted volume with this policy.
fn volume(policy: &str) -> Volume {
    let mut text = format!("metadata: {{name: pvc-{ID}, uid: pv, annotations: {{");
    for (key, value) in [(names::CLAIM_UUID, ID), (names::VOLUME_ID, ID), (names::PROVENANCE, "x")] {
        text.push_str(&format!("'{key}': {value}, "));
    }
    text.push_str(&format!("}}, finalizers: ['{}']}}\n", names::VOLUME_FINALIZER));
    text.push_str(&format!("spec: {{persistentVolumeReclaimPolicy: {policy}}}\n"));
    text.push_str(&format!("status: {{reason: {}}}\n", crate::volume::mark("x")));
    Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
}

fn unheld(policy: &str) -> Volume {
    Volume { finalizers: vec!["kubernetes.io/pv-protection".into()], ..volume(policy) }
}

#[derive(Clone, Debug)]
struct World {
    volume: Volume,
    ours: bool,
    claim: ClaimState,
    recipe: Result<Recipe, String>,
    pods_alive: bool,
    run: RunState,
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        let recipe = self.recipe.as_ref().map_err(String::clone);
        let World { volume, ours, claim, pods_alive, run, .. } = self;
        let (ours, claim, pods_alive, run) = (*ours, *claim, *pods_alive, run.clone());
        decide(&Observed { volume, ours, claim, recipe, pods_alive, run }, now)
    }

    fn step(&self) -> Step {
        self.decide(NOW).step
    }

    #[track_caller]
    fn rests(&self) {
        assert_eq!(self.decide(NOW), Decision::from(Step::Nothing));
    }

    #[track_caller]
    fn waits(&self, says: &str) {
        let decision = self.decide(NOW);
        let said = decision.tell.as_ref().map(|tell| tell.message.as_str()).unwrap_or_default();
        assert!(decision.step == Step::Nothing && said.contains(says), "{decision:?}");
    }
}

fn world(volume: Volume, claim: ClaimState) -> World {
    World { volume, ours: true, claim, recipe: Ok(recipe()), pods_alive: false, run: RunState::Absent }
}

/// Its claim is gone.
fn released() -> World {
    world(volume("Delete"), ClaimState::Gone)
}

fn failure(operation: Operation, attempt: u32, at: i64) -> LastFailure {
    let cause = Cause::new("R", "m");
    LastFailure { operation, ..LastFailure::of_delete(attempt, at, &cause, None) }
}

fn failed(at: i64, settled: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), kind: Failure::Never, at, settled }
}

#[test]
fn row_1_what_is_not_ours_is_left_alone() {
    World { ours: false, ..released() }.rests();
    world(volume("Delete"), ClaimState::None).rests();
}

#[test]
fn row_2_a_volume_that_is_to_stay_is_not_held() {
    for policy in ["Retain", "Recycle"] {
        assert_eq!(world(volume(policy), ClaimState::Alive).step(), Step::Unhold);
        world(unheld(policy), ClaimState::Alive).rests();
    }
}

#[test]
fn row_3_a_volume_that_is_to_go_is_held() {
    let unheld = unheld("Delete");
    assert_eq!(world(unheld.clone(), ClaimState::Alive).step(), Step::Hold);
    world(Volume { provenance: None, ..unheld.clone() }, ClaimState::Alive).rests();
    world(Volume { mark: None, ..unheld.clone() }, ClaimState::Alive).rests();
    world(Volume { deleting: true, ..unheld }, ClaimState::Alive).rests();
}

#[test]
fn row_4_a_claim_that_lives_decides() {
    for volume in [volume("Delete"), Volume { deleting: true, abandoned: true, ..volume("Delete") }] {
        World { run: RunState::Succeeded, ..world(volume, ClaimState::Alive) }.rests();
    }
}

#[test]
fn row_5_that_a_claim_is_gone_is_asked() {
    for volume in [volume("Delete"), volume("Retain"), unheld("Delete")] {
        assert_eq!(world(volume, ClaimState::Missing).step(), Step::ConfirmClaimGone);
    }
}

#[test]
fn row_6_what_is_retained_stays() {
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        assert_eq!(world(volume("Retain"), claim).step(), Step::Unhold);
        World { run: RunState::Succeeded, ..world(unheld("Retain"), claim) }.rests();
        world(Volume { abandoned: true, ..unheld("Retain") }, claim).rests();
    }
}

#[test]
fn row_7_an_admin_lets_go() {
    let volume = Volume { abandoned: true, ..volume("Delete") };
    let world = World { recipe: Err("lost".into()), pods_alive: true, ..world(volume, ClaimState::Gone) };
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Remove);
    assert!(decision.tell.unwrap().message.contains("its storage was not deleted"));
}

#[test]
fn row_4_a_quarantined_volume_may_be_deleted_by_hand() {
    let refused = Volume { quarantine: Some("why".into()), mark: None, deleting: true, ..volume("Delete") };
    assert_eq!(world(refused.clone(), ClaimState::Alive).step(), Step::Unhold);
    world(Volume { deleting: false, ..refused }, ClaimState::Alive).rests();
    let adopted = Volume { quarantine: Some("why".into()), deleting: true, ..volume("Delete") };
    world(adopted, ClaimState::Alive).rests();
}

#[test]
fn row_8_without_an_id_nothing_is_deleted() {
    let disowned = Volume { claim_uuid: None, volume_id: None, ..volume("Delete") };
    world(disowned, ClaimState::Gone).waits("it bears no volume id");
}

#[test]
fn row_8_what_is_not_known_is_not_deleted() {
    let lost = World { recipe: Err("its provenance cannot be read".into()), ..released() };
    lost.waits("the storage cannot be deleted: its provenance cannot be read; clean up by hand, then annotate");
    lost.waits("flex-provisioner.io/abandon=i-have-cleaned-up-by-hand");
}

#[test]
fn row_8_a_misnamed_volume_does_not_delete_the_right_one() {
    let misnamed = Volume { name: "misnamed".into(), ..volume("Delete") };
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        world(misnamed.clone(), claim).waits(&format!("it is not named pvc-{ID}"));
    }
    let born = Volume { volume_id: None, provenance: None, ..misnamed };
    world(born, ClaimState::Elsewhere).waits(&format!("it is not named pvc-{ID}"));
    let another = Volume { volume_id: Some("another".into()), ..volume("Delete") };
    world(another, ClaimState::Gone).waits("it is not named pvc-another");
}

#[test]
fn row_9_a_pod_that_may_run_is_waited_for() {
    let world = World { pods_alive: true, run: RunState::Succeeded, ..released() };
    assert_eq!((world.step(), world.decide(NOW).wake_at), (Step::Nothing, Some(NOW + 5)));
}

#[test]
fn row_10_the_storage_is_deleted() {
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        assert_eq!(world(volume("Delete"), claim).step(), Step::StartDelete { attempt: 1 });
    }
    World { run: RunState::Running, ..released() }.rests();
    let stuck = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: 0 };
    World { run: stuck, ..released() }.waits("delete run: 0/1 nodes");
    assert_eq!(World { run: RunState::Succeeded, ..released() }.step(), Step::Remove);
    World { run: failed(NOW, false), ..released() }.rests();
}

#[test]
fn row_10_a_failed_run_is_repeated_after_a_pause() {
    let mut world = World { run: failed(NOW + 3600, true), ..released() };
    let decision = world.decide(NOW);
    let Step::RecordFailure(recorded) = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW));
    assert_eq!(decision.tell.unwrap().message, "delete run 1 failed: disk on fire; next try in 2 s");
    world.run = RunState::Absent;
    world.volume.last_failure = Some(LastFailure { attempt: 3, ..recorded });
    assert_eq!((world.step(), world.decide(NOW).wake_at), (Step::Nothing, Some(NOW + 8)));
    assert_eq!(world.decide(NOW + 8).step, Step::StartDelete { attempt: 4 });
    world.volume.last_failure = Some(failure(Operation::Provision, 3, NOW));
    assert_eq!(world.step(), Step::StartDelete { attempt: 1 });
}

fn runs() -> impl Strategy<Value = RunState> {
    let stuck = RunState::Stuck { cause: Cause::new("R", "words"), since: 0 };
    let plain = select(vec![RunState::Absent, RunState::Running, stuck, RunState::Succeeded]);
    prop_oneof![2 => plain, 1 => (times(), any::<bool>()).prop_map(|(at, settled)| failed(at, settled))]
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![NOW - 4000..NOW + 10, select(vec![0, i64::MIN, i64::MAX])]
}

prop_compose! {
    fn worlds()(
        flags in (prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>()),
        claim in select(vec![ClaimState::None, ClaimState::Alive, ClaimState::Elsewhere, ClaimState::Missing, ClaimState::Gone]),
        policy in select(vec!["Delete", "Delete", "Retain", "Recycle"]),
        name in select(vec![names::pv_name(ID), names::pv_name(ID), "misnamed".to_owned()]),
        id in select(vec![Some(ID), Some("another"), None]),
        adopted in any::<bool>(),
        known in prop::bool::weighted(0.8),
        attempt in prop_oneof![0u32..20, Just(u32::MAX)],
        at in times(),
        last in select(vec![None, Some(Operation::Delete), Some(Operation::Provision)]),
        run in runs(),
    ) -> World {
        let (ours, held, deleting, abandoned, pods_alive) = flags;
        let mut volume = if held { volume(policy) } else { unheld(policy) };
        volume.name = name;
        volume.volume_id = id.map(str::to_owned);
        volume.provenance = adopted.then(|| "x".to_owned());
        volume.deleting = deleting;
        volume.abandoned = abandoned;
        volume.last_failure = last.map(|operation| failure(operation, attempt, at));
        World { volume, ours, claim, recipe: if known { Ok(recipe()) } else { Err("lost".into()) }, pods_alive, run }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_never_done(world in worlds()) {
        let decision = world.decide(NOW);
        let volume = &world.volume;
        let released = matches!(world.claim, ClaimState::Gone | ClaimState::Elsewhere);
        let deletes = volume.reclaim_policy == "Delete";
        prop_assert!(world.ours || decision == Decision::from(Step::Nothing));
        match &decision.step {
            Step::Nothing => {
                let goes_on = matches!(world.run, RunState::Running | RunState::Failed { settled: false, .. });
                let awaited = !world.ours || !released || !deletes || goes_on;
                prop_assert!(awaited || decision.tell.is_some() || decision.wake_at.is_some(), "a dead end");
                prop_assert!(!deletes || !released || !world.ours || decision != Decision::from(Step::Nothing) || goes_on);
                prop_assert!(decision.wake_at.is_none_or(|at| at > NOW));
            }
            Step::Hold => prop_assert!(deletes && !volume.is_held() && !volume.deleting && world.claim == ClaimState::Alive),
            Step::Unhold => prop_assert!(!deletes && volume.is_held()),
            Step::ConfirmClaimGone => prop_assert_eq!(world.claim, ClaimState::Missing),
            Step::StartDelete { attempt } => {
                prop_assert!(released && deletes && !world.pods_alive && !volume.abandoned && *attempt > 0);
                prop_assert!(world.recipe.is_ok() && world.run == RunState::Absent);
                prop_assert_eq!(&volume.name, &names::pv_name(volume.id().unwrap()));
            }
            Step::RecordFailure(failure) => {
                prop_assert!(released && deletes && (NOW - 60..=NOW).contains(&failure.at) && failure.attempt > 0);
            }
            Step::Remove => {
                let done = world.run == RunState::Succeeded && !world.pods_alive && world.recipe.is_ok();
                prop_assert!(released && deletes && (volume.abandoned || done));
            }
        }
    }
}
