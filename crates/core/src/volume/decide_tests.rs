//! One test for each row of the table, then the properties of all observations.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::config::record::EffectiveConfig;
use crate::object::ObjectName;
use crate::run::state::Cause;
use crate::run::view::Job;
use crate::volume::change::{Run, Runs};
use flex_contract::exit::Failure;

const NOW: i64 = 1_000_000;
const ID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn recipe() -> Recipe {
    EffectiveConfig { data: [("image".to_owned(), "x".to_owned())].into(), ..EffectiveConfig::default() }
        .recipe()
        .unwrap()
}

/// Returns an adopted volume with this policy.
fn volume(policy: &str) -> Volume {
    let mut text = format!("metadata: {{name: pvc-{ID}, uid: pv, annotations: {{");
    for (key, value) in [(names::CLAIM_UUID, ID), (names::VOLUME_ID, ID), (names::PROVENANCE, "x")] {
        text.push_str(&format!("'{key}': {value}, "));
    }
    text.push_str(&format!("}}, finalizers: ['{}']}}\n", names::VOLUME_FINALIZER));
    text.push_str(&format!("spec: {{persistentVolumeReclaimPolicy: {policy}}}\n"));
    text.push_str(&format!("status: {{reason: {}}}\n", crate::model::volume::adoption_mark("x")));
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
    run_known: bool,
    has_running_pods: bool,
    /// The states of all nodes that are not ready.
    node_states: NodeStates,
    home_node: &'static str,
    node_gone: NodeGone,
    run: RunState,
    /// The Job of an expand run in progress.
    growing: Option<Job>,
    /// The Job of a modify run in progress.
    modifying: Option<Job>,
}

/// Returns runs, each with a pod.
fn runs_of<'a>(all: &'a [Run<'a>], has_other_running_pods: bool) -> Runs<'a> {
    Runs { all, is_starting: false, has_running_pods: !all.is_empty(), unreachable_node: None, has_other_running_pods }
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        let recipe = self.recipe.as_ref().map_err(String::clone);
        let World { volume, ours, claim, has_running_pods, run, home_node, node_gone, run_known, .. } = self;
        let run_known = *run_known;
        let (ours, claim, has_running_pods, run, node_gone) =
            (*ours, *claim, *has_running_pods, run.clone(), *node_gone);
        let nodes = volume.nodes.iter().cloned().chain([(*home_node).to_owned()]);
        let mut node_states = NodeStates(nodes.map(|node| (node, NodeState::Ready)).collect());
        node_states.0.extend(self.node_states.0.clone());
        let (node_states, nodes_with_pods) = (&node_states, &[] as &[String]);
        let runs: Vec<_> = self.growing.iter().map(|job| Run { job, state: RunState::Running }).collect();
        let working = |all| runs_of(all, has_running_pods);
        let expansion =
            expand::Observed { quota_error: None, claim: None, recipe: recipe.clone(), runs: working(&runs) };
        let modify_runs: Vec<_> = self.modifying.iter().map(|job| Run { job, state: RunState::Running }).collect();
        let modification = modify::Observed {
            claim: None,
            recipe: recipe.clone(),
            requested_attributes: Err(String::new()),
            runs: working(&modify_runs),
        };
        let o = Observed {
            volume,
            ours,
            claim,
            claim_was_bound: false,
            recipe,
            run_known,
            has_running_pods,
            nodes_with_pods,
            node_states,
            home_node,
            node_gone,
            run,
            delete_job: None,
            expansion,
            modification,
        };
        decide(&o, now)
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
        let said = decision.event.as_ref().map(|tell| tell.message.as_str()).unwrap_or_default();
        assert!(decision.step == Step::Nothing && said.contains(says), "{decision:?}");
    }
}

fn world(volume: Volume, claim: ClaimState) -> World {
    World {
        volume,
        ours: true,
        claim,
        recipe: Ok(recipe()),
        run_known: false,
        has_running_pods: false,
        node_states: NodeStates::default(),
        home_node: "",
        node_gone: NodeGone::Hold,
        run: RunState::Absent,
        growing: None,
        modifying: None,
    }
}

/// Returns a volume whose claim is gone.
fn released() -> World {
    world(volume("Delete"), ClaimState::Gone)
}

fn failure(operation: Operation, attempt: u32, at: i64) -> LastFailure {
    let cause = Cause::new("R", "m");
    LastFailure::of_deletion(operation, attempt, at, &cause, None)
}

fn failed(at: i64, pods_ended: bool) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), kind: Failure::Never, at, pods_ended }
}

#[test]
fn row_1_what_is_not_ours_is_left_alone() {
    World { ours: false, ..released() }.rests();
    world(volume("Delete"), ClaimState::None).rests();
}

#[test]
fn row_1a_what_is_deleted_without_a_claim_is_told_and_can_be_let_go_of() {
    let deleted = |policy| Volume { deleting: true, ..volume(policy) };
    world(deleted("Delete"), ClaimState::None).waits("no claim has released it");
    assert_eq!(world(deleted("Retain"), ClaimState::None).step(), Step::RemoveFinalizer);
    let abandoned = Volume { abandoned: true, ..deleted("Delete") };
    assert_eq!(world(abandoned, ClaimState::None).step(), Step::RemoveFinalizer);
}

#[test]
fn row_4_a_volume_that_is_to_stay_is_not_held() {
    for policy in ["Retain", "Recycle"] {
        assert_eq!(world(volume(policy), ClaimState::Alive).step(), Step::RemoveFinalizer);
        world(unheld(policy), ClaimState::Alive).rests();
    }
}

#[test]
fn row_4_a_volume_that_is_going_stays_as_long_as_its_claim() {
    let terminating = Volume { deleting: true, ..volume("Retain") };
    world(terminating.clone(), ClaimState::Alive).rests();
    assert_eq!(world(terminating, ClaimState::Gone).step(), Step::RemoveFinalizer);
}

#[test]
fn row_2_a_volume_that_is_to_go_is_held() {
    let unheld = unheld("Delete");
    assert_eq!(world(unheld.clone(), ClaimState::Alive).step(), Step::AddFinalizer);
    world(Volume { provenance: None, ..unheld.clone() }, ClaimState::Alive).rests();
    world(Volume { adoption_mark: None, ..unheld.clone() }, ClaimState::Alive).rests();
    world(Volume { deleting: true, ..unheld }, ClaimState::Alive).waits("came too late");
}

fn reference(uid: &str, name: &str) -> crate::model::volume::Reference {
    crate::model::volume::Reference { name: ObjectName::new("team", name), uid: uid.into() }
}

/// Returns a volume as a backup tool restores it: without status and UIDs.
fn restored(policy: &str, reserved: Option<&str>) -> Volume {
    let claim_ref = reserved.map(|name| reference("", name));
    Volume { adoption_mark: None, phase: "Available".into(), claim_ref, ..volume(policy) }
}

#[test]
fn row_5a_what_was_restored_is_never_deleted_before_somebody_vouches_for_it() {
    for claim in [ClaimState::None, ClaimState::Missing, ClaimState::Gone, ClaimState::Elsewhere] {
        for policy in ["Delete", "Retain"] {
            for known in [false, true] {
                let world = World { run_known: known, ..world(restored(policy, Some("data")), claim) };
                world.waits(&format!("flex-provisioner vouch pvc-{ID}"));
            }
        }
    }
    let bound =
        Volume { claim_ref: Some(reference("new-uid", "data")), phase: "Released".into(), ..restored("Delete", None) };
    world(bound, ClaimState::Gone).waits("neither deletes nor changes");
}

#[test]
fn row_5a_what_was_restored_is_reserved_for_the_claim_that_it_had() {
    let free = restored("Delete", None);
    assert_eq!(world(free.clone(), ClaimState::Missing).step(), Step::Reserve);
    assert_eq!(free.reservation("own"), ObjectName::new("own", ID), "nobody else gets it");
    let known = Volume { former_claim: Some(ObjectName::new("team", "data")), ..free.clone() };
    assert_eq!(known.reservation("own"), ObjectName::new("team", "data"));
    world(Volume { deleting: true, ..free }, ClaimState::None).waits("vouch");
}

#[test]
fn row_5a_what_was_restored_can_be_let_go_of() {
    let deleted = Volume { deleting: true, ..restored("Retain", Some("data")) };
    assert_eq!(world(deleted, ClaimState::Missing).step(), Step::RemoveFinalizer);
    let abandoned = Volume { abandoned: true, ..restored("Delete", Some("data")) };
    assert_eq!(world(abandoned, ClaimState::Gone).step(), Step::DeleteVolume);
}

#[test]
fn row_6_half_adopted_it_is_its_claims() {
    let half = Volume { adoption_mark: None, claim_ref: Some(reference(ID, "data")), ..volume("Delete") };
    world(half.clone(), ClaimState::Alive).rests();
    assert_eq!(world(half, ClaimState::Missing).step(), Step::ConfirmClaimGone);
}

#[test]
fn row_10_what_no_run_made_is_not_deleted() {
    let unadopted = Volume { provenance: None, adoption_mark: None, ..volume("Delete") };
    world(unadopted.clone(), ClaimState::Gone).waits("no run is known to have made it");
    let made = World { run_known: true, ..world(unadopted.clone(), ClaimState::Gone) };
    assert_eq!(made.step(), begin(1, ""));
    let placeholder = Volume { claim_ref: Some(reference("", ID)), ..unadopted.clone() };
    assert_eq!(world(placeholder, ClaimState::Gone).step(), begin(1, ""));
    let taken = Volume { claim_ref: Some(reference("u", "data")), phase: "Released".into(), ..unadopted };
    assert_eq!(world(taken, ClaimState::Gone).step(), begin(1, ""));
}

#[test]
fn row_5_a_claim_that_lives_decides() {
    for volume in [volume("Delete"), Volume { deleting: true, abandoned: true, ..volume("Delete") }] {
        World { run: RunState::Succeeded, ..world(volume, ClaimState::Alive) }.rests();
    }
}

#[test]
fn row_3_what_is_kept_ready_is_cleared_up_after_and_no_more() {
    for volume in [volume("Delete"), Volume { deleting: true, ..volume("Delete") }, volume("Retain")] {
        World { run: RunState::Succeeded, ..world(volume, ClaimState::Awaited) }.rests();
    }
    let ready = wandered(ClaimState::Awaited);
    assert_eq!(ready.step(), wandered(ClaimState::Alive).step());
    assert!(matches!(ready.step(), Step::StartDelete { node, .. } if node != ready.home_node));
}

#[test]
fn row_6_that_a_claim_is_gone_is_asked() {
    for volume in [volume("Delete"), volume("Retain"), unheld("Delete")] {
        assert_eq!(world(volume, ClaimState::Missing).step(), Step::ConfirmClaimGone);
    }
}

#[test]
fn row_8_no_run_for_the_size_is_beside_a_deletion() {
    for (policy, claim) in
        [("Delete", ClaimState::Gone), ("Retain", ClaimState::Gone), ("Delete", ClaimState::Elsewhere)]
    {
        let name = crate::object::ObjectName::new("n", "expand-1");
        let terminating = Job { name: name.clone(), deleting: true, ..Job::default() };
        let goes_on = Job { name: name.clone(), ..Job::default() };
        let world = World { growing: Some(goes_on), run: RunState::Succeeded, ..world(volume(policy), claim) };
        assert_eq!(world.step(), Step::Expand(expand::Step::RemoveJob { job: name }));
        let world = World { growing: Some(terminating.clone()), ..world };
        assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 5)));
        let goes_on = Job { deleting: false, ..terminating.clone() };
        let world = World { growing: None, modifying: Some(goes_on.clone()), ..world };
        assert_eq!(world.step(), Step::Modify(modify::Step::RemoveJob { job: goes_on.name }));
        let world = World { modifying: Some(terminating), ..world };
        assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 5)));
    }
}

#[test]
fn row_9_what_is_retained_stays() {
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        assert_eq!(world(volume("Retain"), claim).step(), Step::RemoveFinalizer);
        World { run: RunState::Succeeded, ..world(unheld("Retain"), claim) }.rests();
        world(Volume { abandoned: true, ..unheld("Retain") }, claim).rests();
    }
}

#[test]
fn row_7_an_admin_lets_go() {
    let volume = Volume { abandoned: true, ..volume("Delete") };
    let world = World { recipe: Err("lost".into()), has_running_pods: true, ..world(volume, ClaimState::Gone) };
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::DeleteVolume);
    assert!(decision.event.unwrap().message.contains("did not delete its storage"));
}

#[test]
fn row_5_a_quarantined_volume_may_be_deleted_by_hand() {
    let refused = Volume { quarantine: Some("why".into()), adoption_mark: None, deleting: true, ..volume("Delete") };
    assert_eq!(world(refused.clone(), ClaimState::Alive).step(), Step::RemoveFinalizer);
    world(Volume { deleting: false, ..refused }, ClaimState::Alive).rests();
    // The claim may lose its finalizer at this moment, because an adopted volume is responsible for the storage.
    let adopted = Volume { quarantine: Some("why".into()), deleting: true, ..volume("Delete") };
    world(adopted, ClaimState::Alive).rests();
}

#[test]
fn row_10_without_an_id_nothing_is_deleted() {
    let disowned = Volume { claim_uuid: None, volume_id: None, ..volume("Delete") };
    world(disowned, ClaimState::Gone).waits("it has no volume id");
}

#[test]
fn row_10_an_id_that_no_run_can_have_is_told() {
    for id in ["$(id)", "a.b", "A", &"a".repeat(37)] {
        let odd = Volume { name: names::pv_name(id), volume_id: Some(id.into()), ..volume("Delete") };
        world(odd, ClaimState::Gone).waits("not one that a run can have");
    }
}

#[test]
fn row_10_what_is_not_known_is_not_deleted() {
    let lost = World { recipe: Err("its provenance cannot be read".into()), ..released() };
    lost.waits("the storage cannot be deleted: its provenance cannot be read; clean up by hand, then annotate");
    lost.waits("flex-provisioner.io/abandon=i-have-cleaned-up-by-hand");
}

#[test]
fn row_10_a_misnamed_volume_does_not_delete_the_right_one() {
    let misnamed = Volume { name: "misnamed".into(), ..volume("Delete") };
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        world(misnamed.clone(), claim).waits(&format!("its name is not pvc-{ID}"));
    }
    let born = Volume { volume_id: None, provenance: None, ..misnamed };
    world(born, ClaimState::Elsewhere).waits(&format!("its name is not pvc-{ID}"));
    let another = Volume { volume_id: Some("another".into()), ..volume("Delete") };
    world(another, ClaimState::Gone).waits("its name is not pvc-another");
}

#[test]
fn row_11_a_pod_that_may_run_is_waited_for() {
    let world = World { has_running_pods: true, run: RunState::Succeeded, ..released() };
    assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 5)));
}

#[test]
fn row_15_the_storage_is_deleted() {
    for claim in [ClaimState::Gone, ClaimState::Elsewhere] {
        assert_eq!(world(volume("Delete"), claim).step(), begin(1, ""));
    }
    World { run: RunState::Running, ..released() }.rests();
    let stuck = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: 0 };
    World { run: stuck, ..released() }.waits("delete run: 0/1 nodes");
    assert_eq!(World { run: RunState::Succeeded, ..released() }.step(), Step::DeleteVolume);
    World { run: failed(NOW, false), ..released() }.rests();
}

#[test]
fn row_16_what_is_removed_is_not_removed_again() {
    let removed = |deleting, volume: Volume| {
        let done = Volume { deleting, ..volume };
        World { run: RunState::Succeeded, ..world(done, ClaimState::Gone) }
    };
    for volume in [volume("Delete"), unheld("Delete")] {
        let abandoned = Volume { abandoned: true, ..volume.clone() };
        let gone = !volume.has_finalizer();
        for volume in [volume, abandoned] {
            assert_eq!(removed(false, volume.clone()).step(), Step::DeleteVolume);
            match gone {
                true => removed(true, volume).rests(),
                false => assert_eq!(removed(true, volume).step(), Step::DeleteVolume),
            }
        }
    }
}

#[test]
fn row_15_a_failed_run_is_repeated_after_a_pause() {
    let mut world = World { run: failed(NOW + 3600, true), ..released() };
    let decision = world.decide(NOW);
    let Step::RecordFailure(recorded) = decision.step else { panic!("{:?}", decision.step) };
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW));
    assert_eq!(decision.event.unwrap().message, "delete run 1 failed: disk on fire; next try in 2 s");
    world.run = RunState::Absent;
    world.volume.last_failure = Some(LastFailure { attempt: 3, ..recorded });
    assert_eq!((world.step(), world.decide(NOW).requeue_at), (Step::Nothing, Some(NOW + 8)));
    assert_eq!(world.decide(NOW + 8).step, begin(4, ""));
    world.volume.last_failure = Some(failure(Operation::Provision, 3, NOW));
    assert_eq!(world.step(), begin(1, ""));
}

fn begin(attempt: u32, node: &str) -> Step {
    Step::StartDelete { attempt, node: node.to_owned(), on_any_node: false }
}

fn names_of(nodes: &[&str]) -> Vec<String> {
    nodes.iter().map(|node| (*node).to_owned()).collect()
}

/// Returns a volume that was made on node `c`, after attempts on `a` and `b`.
fn wandered(claim: ClaimState) -> World {
    let volume = Volume { nodes: names_of(&["a", "b", "c"]), ..volume("Delete") };
    World { home_node: "c", ..world(volume, claim) }
}

fn with_state(node: &str, state: NodeState, world: World) -> World {
    World { node_states: NodeStates([(node.to_owned(), state)].into()), ..world }
}

#[test]
fn row_3_what_attempts_left_elsewhere_is_deleted_while_the_claim_lives() {
    let alive = wandered(ClaimState::Alive);
    assert_eq!(alive.step(), begin(1, "a"));
    let done = World { run: RunState::Succeeded, ..alive.clone() };
    assert_eq!(done.step(), Step::MarkNodeClean { nodes: names_of(&["b", "c"]) });
    let settled = |nodes: &[&str]| {
        let volume = Volume { nodes: names_of(nodes), ..alive.volume.clone() };
        World { volume, ..alive.clone() }
    };
    assert_eq!(settled(&["b", "c"]).step(), begin(1, "b"));
    settled(&["c"]).rests();
    let unmarked = Volume { adoption_mark: None, ..alive.volume.clone() };
    World { volume: unmarked, ..alive.clone() }.rests();
    // Without a known node of its own, nothing is deleted under the id of a volume that is in use.
    World { home_node: "", ..alive.clone() }.rests();
    let retained = Volume { reclaim_policy: "Retain".into(), ..alive.volume.clone() };
    let retained = World { volume: retained, ..alive };
    assert_eq!(retained.step(), begin(1, "a"));
    let kept = World { volume: Volume { nodes: names_of(&["c"]), ..retained.volume.clone() }, ..retained.clone() };
    assert_eq!(kept.step(), Step::RemoveFinalizer);
    let unheld = World { volume: Volume { finalizers: vec![], ..retained.volume.clone() }, ..retained.clone() };
    assert_eq!(unheld.step(), Step::AddFinalizer);
    let gone = World { claim: ClaimState::Gone, ..retained };
    assert_eq!(gone.step(), begin(1, "a"));
    let last = Volume { nodes: names_of(&["a", "c"]), ..gone.volume.clone() };
    let last = World { volume: last, run: RunState::Succeeded, ..gone };
    assert_eq!(last.step(), Step::MarkNodeClean { nodes: vec![] });
}

#[test]
fn row_12_what_vanishes_meanwhile_is_held_first() {
    assert_eq!(world(unheld("Delete"), ClaimState::Gone).step(), Step::AddFinalizer);
    let terminating = Volume { deleting: true, ..unheld("Delete") };
    assert_eq!(world(terminating, ClaimState::Gone).step(), begin(1, ""));
}

#[test]
fn rows_13_and_14_a_node_that_is_gone() {
    let released = wandered(ClaimState::Gone);
    assert_eq!(released.step(), begin(1, "a"));
    let last = World { volume: Volume { nodes: names_of(&["c"]), ..released.volume.clone() }, ..released.clone() };
    let missing = with_state("c", NodeState::Missing, last.clone());
    assert_eq!(missing.step(), Step::ConfirmNode { node: "c".into() });
    let gone = with_state("c", NodeState::Gone, last);
    gone.waits("node c, where something must be deleted, is gone");
    let forget = World { node_gone: NodeGone::Forget, ..gone.clone() };
    assert_eq!(forget.step(), Step::DeleteVolume);
    assert!(forget.decide(NOW).event.unwrap().message.contains("node-gone: forget"));
    let elsewhere = World { node_gone: NodeGone::RunElsewhere, ..gone };
    assert_eq!(elsewhere.step(), Step::StartDelete { attempt: 1, node: "c".into(), on_any_node: true });
    // A dead node does not prevent the clean-up of the others.
    let others = with_state("a", NodeState::Gone, released);
    assert_eq!(others.step(), begin(1, "b"));
    let one = |node_gone| {
        let alive = wandered(ClaimState::Alive);
        let volume = Volume { nodes: names_of(&["a", "c"]), ..alive.volume.clone() };
        with_state("a", NodeState::Gone, World { volume, node_gone, ..alive })
    };
    one(NodeGone::RunElsewhere).rests();
    one(NodeGone::Hold).waits("node a");
    assert_eq!(one(NodeGone::Forget).step(), Step::MarkNodeClean { nodes: names_of(&["c"]) });
}

fn runs() -> impl Strategy<Value = RunState> {
    let stuck = RunState::Stuck { cause: Cause::new("R", "words"), since: 0 };
    let plain = select(vec![RunState::Absent, RunState::Running, stuck, RunState::Succeeded]);
    prop_oneof![2 => plain, 1 => (times(), any::<bool>()).prop_map(|(at, settled)| failed(at, settled))]
}

fn times() -> impl Strategy<Value = i64> {
    prop_oneof![NOW - 4000..NOW + 10, select(vec![0, i64::MIN, i64::MAX])]
}

fn states() -> impl Strategy<Value = NodeState> {
    select(vec![NodeState::Ready, NodeState::Unreachable, NodeState::Missing, NodeState::Gone])
}

prop_compose! {
    fn worlds()(
        flags in (prop::bool::weighted(0.9), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2), any::<bool>()),
        run_known in any::<bool>(),
        claim in select(vec![ClaimState::None, ClaimState::Alive, ClaimState::Awaited, ClaimState::Elsewhere, ClaimState::Missing, ClaimState::Gone]),
        policy in select(vec!["Delete", "Delete", "Retain", "Recycle"]),
        name in select(vec![names::pv_name(ID), names::pv_name(ID), "misnamed".to_owned()]),
        id in select(vec![Some(ID), Some("another"), None]),
        (recorded, marked) in (any::<bool>(), prop::bool::weighted(0.7)),
        reserved in select(vec![None, Some(("", ID)), Some(("", "data")), Some(("claim", "data"))]),
        phase in select(vec!["Available", "Bound", "Released"]),
        known in prop::bool::weighted(0.8),
        attempt in prop_oneof![0u32..20, Just(u32::MAX)],
        at in times(),
        last in select(vec![None, Some(Operation::Delete), Some(Operation::Provision)]),
        run in runs(),
        nodes in subsequence(vec!["a".to_owned(), "b".into(), "c".into()], 0..=3),
        places in prop::collection::btree_map(select(names_of(&["a", "b", "c"])), states(), 0..3),
        home in select(vec!["", "a", "c"]),
        node_gone in select(vec![NodeGone::Hold, NodeGone::Forget, NodeGone::RunElsewhere]),
        growing in prop::option::weighted(0.2, any::<bool>()),
        modifying in prop::option::weighted(0.2, any::<bool>()),
    ) -> World {
        let (ours, held, deleting, abandoned, pods_alive) = flags;
        let job = |deleting| Job { deleting, ..Job::default() };
        let (growing, modifying) = (growing.map(job), modifying.map(job));
        let mut volume = if held { volume(policy) } else { unheld(policy) };
        volume.name = name;
        volume.volume_id = id.map(str::to_owned);
        volume.provenance = recorded.then(|| "x".to_owned());
        volume.adoption_mark = volume.adoption_mark.filter(|_| marked);
        volume.claim_ref = reserved.map(|(uid, name)| reference(uid, name));
        volume.phase = phase.to_owned();
        volume.deleting = deleting;
        volume.abandoned = abandoned;
        volume.last_failure = last.map(|operation| failure(operation, attempt, at));
        volume.nodes = nodes;
        let recipe = if known { Ok(recipe()) } else { Err("lost".into()) };
        World { volume, ours, claim, recipe, run_known, has_running_pods: pods_alive, node_states: NodeStates(places), home_node: home, node_gone, run, growing, modifying }
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
        let alive = matches!(world.claim, ClaimState::Alive | ClaimState::Awaited);
        let todo = nodes_to_clean(volume, world.claim, world.home_node);
        prop_assert!(!alive || !todo.iter().any(|node| node == world.home_node), "where a volume lives, nothing is deleted");
        prop_assert!(world.ours || decision == Decision::from(Step::Nothing));
        let restored = volume.is_restored() && !volume.abandoned && world.ours;
        let by_uid = volume.claim_ref.as_ref().is_some_and(|of| !of.uid.is_empty());
        // The claim, which is not observed here, may be adopting the volume now.
        let told = restored && world.claim != ClaimState::Alive && !(world.claim == ClaimState::Missing && by_uid);
        if told {
            prop_assert!(decision.event.is_some());
            prop_assert!(matches!(decision.step, Step::Nothing | Step::Reserve | Step::RemoveFinalizer));
            prop_assert!(decision.step != Step::Reserve || volume.claim_ref.is_none());
            prop_assert!(decision.step != Step::RemoveFinalizer || (!deletes && volume.deleting));
            return Ok(());
        }
        // While the storage is deleted, no run changes it.
        if (world.growing.is_some() || world.modifying.is_some()) && released && world.ours && !(volume.abandoned && deletes) {
            let stops = matches!(decision.step, Step::Expand(expand::Step::RemoveJob { .. }) | Step::Modify(modify::Step::RemoveJob { .. }));
            let waits = decision.step == Step::Nothing && decision.requeue_at.is_some();
            prop_assert!(stops || waits);
            return Ok(());
        }
        match &decision.step {
            Step::Nothing => {
                let goes_on = matches!(world.run, RunState::Running | RunState::Failed { pods_ended: false, .. });
                let later = alive && world.node_gone == NodeGone::RunElsewhere;
                let awaited = !world.ours || goes_on || later || todo.is_empty() || (!released && !alive)
                    || (volume.deleting && !volume.has_finalizer()) || (alive && volume.abandoned)
                    || (!deletes && volume.abandoned);
                prop_assert!(awaited || decision.event.is_some() || decision.requeue_at.is_some(), "a dead end");
                prop_assert!(decision.requeue_at.is_none_or(|at| at > NOW));
            }
            Step::AddFinalizer => prop_assert!(!volume.has_finalizer() && !volume.deleting && (deletes || !todo.is_empty())),
            Step::RemoveFinalizer => {
                let free = world.claim == ClaimState::None && volume.deleting && volume.abandoned;
                prop_assert!(volume.has_finalizer() && (todo.is_empty() || volume.abandoned) && (!deletes || free));
            }
            Step::Reserve => prop_assert!(false, "it was not restored"),
            Step::ConfirmClaimGone => prop_assert_eq!(world.claim, ClaimState::Missing),
            Step::ConfirmNode { node } => prop_assert_eq!(world.node_states.0.get(node), Some(&NodeState::Missing)),
            Step::StartDelete { attempt, node, on_any_node: elsewhere } => {
                prop_assert!((released || alive) && !volume.abandoned && *attempt > 0);
                prop_assert!(volume.is_adopted() || volume.was_made_by_known_run(world.run_known));
                prop_assert!(alive || !world.has_running_pods);
                prop_assert!(volume.has_finalizer() || volume.deleting);
                prop_assert!(world.recipe.is_ok() && world.run == RunState::Absent);
                prop_assert!(todo.contains(node) && (!alive || (node != world.home_node && !node.is_empty() && !elsewhere)));
                prop_assert!(released && deletes || node != world.home_node);
                prop_assert!(!elsewhere || world.node_gone == NodeGone::RunElsewhere);
                prop_assert_eq!(&volume.name, &names::pv_name(volume.id().unwrap()));
            }
            Step::RemoveJob { .. } => prop_assert!(false, "there is no Job"),
            Step::MarkNodeClean { nodes } => {
                let forgotten = world.node_gone == NodeGone::Forget;
                prop_assert!(world.run == RunState::Succeeded || forgotten && world.run == RunState::Absent);
                prop_assert!(nodes.len() < volume.nodes.len() && nodes.iter().all(|node| volume.nodes.contains(node)));
            }
            Step::RecordFailure(failure) => {
                prop_assert!((NOW - 60..=NOW).contains(&failure.at) && failure.attempt > 0 && !todo.is_empty());
            }
            Step::Modify(step) => prop_assert!(false, "no run is left and no claim lives, so what is {step:?} for?"),
            Step::Expand(step) => prop_assert!(false, "no run is left and no claim lives, so what is {step:?} for?"),
            Step::DeleteVolume => {
                let forgotten = world.node_gone == NodeGone::Forget && world.run == RunState::Absent;
                let done = (world.run == RunState::Succeeded || forgotten) && !world.has_running_pods && world.recipe.is_ok();
                prop_assert!(released && deletes && (volume.abandoned || done && todo.len() == 1));
                prop_assert!(volume.has_finalizer() || !volume.deleting, "it was removed before");
            }
        }
    }
}
