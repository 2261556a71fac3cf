//! A test per row of the table; `properties.rs` has what holds for all that can be observed.

use std::sync::Arc;

use contract::exit::Failure;
use contract::request::Operation;

use super::*;
use crate::claim::Stamp;
use crate::claim::origin::DataSource;
use crate::claim::pace::pause;
use crate::config::NodeGone;
use crate::config::classes::BindingMode;
use crate::config::record::Record;
use crate::node::NodeState;
use crate::run::nodes::Choice;
use crate::run::state::Cause;
use crate::run::view::Marks;
use crate::volume::Reference;

#[path = "copying_tests.rs"]
mod of_copies;
#[path = "stamped_tests.rs"]
mod of_stamped;
#[path = "properties.rs"]
mod properties;

const NOW: i64 = 1_000_000;
const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

/// What is observed, owned.
#[derive(Clone, Debug)]
struct World {
    claim: Claim,
    fresh: bool,
    foreign: bool,
    class: Class,
    kept: bool,
    stamped_recipe: Option<Recipe>,
    jobs: Vec<Job>,
    run: RunState,
    pods_alive: bool,
    choice: Choice,
    alive_on: Vec<String>,
    /// The nodes that are not as they should be.
    places: Places,
    volumes: Vec<(Volume, Vec<String>)>,
    no_volume: bool,
    delete_run: RunState,
    delete_job: Option<Job>,
    room: bool,
    limit: Option<&'static str>,
    promised: bool,
    attributes: Option<&'static str>,
    binding: Binding,
    outside: bool,
    origin: Option<Original>,
    copying: Vec<Copying>,
    removed: Option<Removed>,
    left_out: bool,
    known: bool,
    request: bool,
    ready: Option<&'static str>,
}

/// What a claim is to be a copy of.
#[derive(Clone, Debug)]
struct Original {
    claim: Option<Claim>,
    volume: Option<Volume>,
    ours: bool,
    node: &'static str,
    granted: bool,
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        self.observed(|observed| decide(observed, now))
    }

    fn observed<T>(&self, then: impl FnOnce(&Observed<'_>) -> T) -> T {
        let jobs: Vec<&Job> = self.jobs.iter().collect();
        let its_node = self.origin.as_ref().map(|original| original.node.to_owned());
        let nodes = self.claim.nodes.iter().chain(&self.claim.selected_node).chain(&self.alive_on).chain(&its_node);
        let mut places = Places(nodes.map(|node| (node.clone(), NodeState::Ready)).collect());
        places.0.extend(self.places.0.clone());
        let volumes: Vec<_> =
            self.volumes.iter().map(|(volume, misfits)| Candidate { volume, misfits, known: self.known }).collect();
        then(&Observed {
            claim: &self.claim,
            fresh: self.fresh,
            request: self.request,
            ready: self.ready,
            class: if self.foreign { Serving::NotOurs } else { Serving::Ours(&self.class) },
            kept: self.kept,
            stamped_recipe: self.stamped_recipe.as_ref(),
            jobs: &jobs,
            run: self.run.clone(),
            pods_alive: self.pods_alive,
            choice: &self.choice,
            alive_on: &self.alive_on,
            places: &places,
            volumes: &volumes,
            no_volume: self.no_volume,
            delete_run: self.delete_run.clone(),
            delete_job: self.delete_job.as_ref(),
            room: self.room,
            limit: self.limit,
            promised: self.promised,
            attributes: self.attributes,
            binding: self.binding,
            outside: self.outside,
            origin: self.origin.as_ref().map(|original| {
                Origin::Claim(crate::claim::origin::Copied {
                    claim: original.claim.as_ref(),
                    volume: original.volume.as_ref(),
                    ours: original.ours,
                    node: original.node,
                    granted: original.granted,
                })
            }),
            copying: &self.copying,
            removed: self.removed,
            left_out: self.left_out,
        })
    }

    fn step(&self) -> Step {
        self.decide(NOW).step
    }

    /// Nothing is done, and this is said.
    #[track_caller]
    fn waits(&self, says: &str) {
        let decision = self.decide(NOW);
        let said = decision.tell.as_ref().map(|tell| tell.message.as_str()).unwrap_or_default();
        assert!(decision.step == Step::Nothing && said.contains(says), "{decision:?}");
    }

    /// Nothing is done, and nothing is said.
    #[track_caller]
    fn rests(&self) {
        let decision = self.decide(NOW);
        assert_eq!((&decision.step, &decision.tell), (&Step::Nothing, &None));
    }
}

fn recipe_with(keys: &[(&str, &str)]) -> Recipe {
    let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config = ObjectName::new("admin", "silver");
    Record { config, class: "silver".into(), data, ..Record::default() }.recipe().unwrap()
}

/// A new claim of a class that makes volumes at once.
fn new() -> World {
    let text = format!(
        "metadata: {{name: data, namespace: team, uid: {UID}, resourceVersion: '1'}}\nspec: {{storageClassName: silver, accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    );
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = crate::config::values::yaml(&text).unwrap();
    World {
        claim: Claim::from(&claim),
        fresh: true,
        foreign: false,
        class: Class {
            name: "silver".into(),
            has_object: true,
            binding: BindingMode::Immediate,
            recipe: Ok(Arc::new(recipe_with(&[]))),
            uid: String::new(),
            last_good: false,
            allowed: Default::default(),
            provisioner: String::new(),
        },
        kept: true,
        stamped_recipe: None,
        jobs: vec![],
        run: RunState::Absent,
        pods_alive: false,
        choice: Choice { next: Some("home".into()), is_new: true, last: true },
        alive_on: vec![],
        places: Places::default(),
        volumes: vec![],
        no_volume: false,
        delete_run: RunState::Absent,
        delete_job: None,
        room: true,
        limit: None,
        promised: false,
        attributes: None,
        binding: Binding::Direct,
        outside: false,
        origin: None,
        copying: vec![],
        removed: None,
        left_out: false,
        known: false,
        request: false,
        ready: None,
    }
}

fn begin(attempt: u32, node: &str) -> Step {
    Step::StartDelete { attempt, node: node.to_owned(), elsewhere: false }
}

/// The claim bears the stamp of an attempt, with the finalizer.
fn stamped(attempt: u32) -> World {
    let mut world = new();
    world.claim.nodes = vec!["home".into()];
    let recipe = recipe_with(&[]);
    world.claim.stamp =
        Some(Stamp { uuid: UID.into(), ts: "t".into(), attempt, config: recipe.version(), taken: 0, batch: None });
    world.claim.finalizers = vec![names::CLAIM_FINALIZER.into()];
    world.stamped_recipe = Some(recipe);
    world
}

/// Its attempt has failed a moment ago, and made no volume.
fn failed_with(kind: Failure) -> World {
    let mut world = World { no_volume: true, ..stamped(1) };
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, kind));
    world
}

/// The claim is being deleted after its attempt began.
fn going() -> World {
    let mut world = stamped(1);
    world.claim.deleting = true;
    world
}

fn delayed(mut world: World, node: Option<&str>) -> World {
    world.class.binding = BindingMode::WaitForFirstConsumer;
    world.claim.selected_node = node.map(str::to_owned);
    world
}

/// The claim is bound to a volume of this name.
fn bound(mut world: World, volume: &str) -> World {
    world.claim.volume_name = Some(volume.into());
    world.claim.phase = "Bound".into();
    world
}

fn with_volume(mut world: World, volume: Volume, misfits: &[&str]) -> World {
    world.volumes.push((volume, misfits.iter().map(|misfit| (*misfit).to_owned()).collect()));
    world
}

fn failure(operation: Operation, attempt: u32, at: i64, kind: Failure) -> LastFailure {
    LastFailure { operation, attempt, at, kind, reason: "R".into(), message: "m".into(), without_account: false }
}

fn failed_run(kind: Failure, at: i64) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), kind, at, settled: true }
}

fn job(attempt: u32) -> Job {
    Job {
        name: ObjectName::new("admin", format!("provision-{attempt}")),
        marks: Marks { attempt, ..Marks::default() },
        ..Job::default()
    }
}

fn over(attempt: u32) -> Job {
    Job { over: true, ..job(attempt) }
}

/// As an image makes it.
fn volume() -> Volume {
    let text = format!(
        "metadata: {{name: pvc-{UID}, annotations: {{'{}': {UID}}}}}\nspec: {{persistentVolumeReclaimPolicy: Delete}}\n",
        names::CLAIM_UUID
    );
    Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
}

/// As it is after its adoption.
fn adopted_volume() -> Volume {
    let provenance = Provenance { record: recipe_with(&[]).record, node: "home".into() };
    Volume {
        finalizers: vec![names::VOLUME_FINALIZER.into()],
        instance: Some("default".into()),
        provisioned_by: Some(names::DEFAULT_PROVISIONER.into()),
        volume_id: Some(UID.into()),
        mark: Some(crate::volume::mark(&serde_json::to_string(&provenance).unwrap())),
        provenance: Some(serde_json::to_string(&provenance).unwrap()),
        claim_ref: Some(Reference { name: ObjectName::new("team", "data"), uid: UID.into() }),
        ..volume()
    }
}

/// The same, and the PV controller has shown that it knows it.
fn known_volume() -> Volume {
    Volume { phase: "Bound".into(), ..adopted_volume() }
}

/// Of the claim, but another claim has it.
fn taken_volume() -> Volume {
    Volume { claim_ref: Some(Reference { name: ObjectName::new("b", "thief"), uid: "t".into() }), ..volume() }
}

fn vanishing_volume() -> Volume {
    Volume { deleting: true, ..volume() }
}

#[track_caller]
fn adopts(world: &World) -> Provenance {
    match world.step() {
        Step::Adopt { volume, provenance, .. } if volume == names::pv_name(UID) => *provenance,
        step => panic!("{step:?}"),
    }
}

#[track_caller]
fn records(world: &World) -> LastFailure {
    match world.step() {
        Step::RecordFailure { failure, .. } => failure,
        step => panic!("{step:?}"),
    }
}

#[test]
fn row_1_bound_to_a_volume_that_is_not_adopted() {
    let world = bound(with_volume(stamped(1), volume(), &[]), &names::pv_name(UID));
    assert_eq!(adopts(&world).record, recipe_with(&[]).record);
    for incomplete in [
        Volume { provenance: None, ..adopted_volume() },
        Volume { provenance: Some("{}".into()), ..adopted_volume() },
        Volume { mark: None, ..adopted_volume() },
        Volume { mark: Some("Adopted-0".into()), ..adopted_volume() },
        Volume { claim_ref: None, ..adopted_volume() },
        Volume { finalizers: vec![], ..adopted_volume() },
        Volume { provisioned_by: None, ..adopted_volume() },
        Volume { instance: None, ..adopted_volume() },
        Volume { volume_id: None, ..adopted_volume() },
        Volume { volume_id: Some("another".into()), ..adopted_volume() },
        Volume { claim_uuid: None, ..adopted_volume() },
    ] {
        adopts(&bound(with_volume(stamped(1), incomplete, &[]), &names::pv_name(UID)));
    }
}

#[test]
fn row_1_a_forged_provenance_is_replaced() {
    let provenance = Provenance { record: recipe_with(&[("image", "theirs")]).record, node: String::new() };
    let forged = Volume { provenance: serde_json::to_string(&provenance).ok(), ..adopted_volume() };
    assert_eq!(adopts(&with_volume(stamped(1), forged, &[])).record, recipe_with(&[]).record);
}

#[test]
fn row_1_without_a_recipe_it_is_told_and_an_admin_may_let_go() {
    let mut world = bound(with_volume(going(), volume(), &[]), &names::pv_name(UID));
    (world.stamped_recipe, world.foreign) = (None, true);
    world.waits("cannot be adopted: the provisioner config of the attempt is not known any more");
    world.claim.abandoned = true;
    assert_eq!(world.step(), Step::Release);
}

#[test]
fn row_1_what_another_claim_has_is_not_taken_from_it() {
    let world = bound(with_volume(stamped(1), taken_volume(), &[]), &names::pv_name(UID));
    world.waits("was made for this claim, but claim b/thief has it");
}

#[test]
fn row_1_a_volume_that_was_bound_before_it_was_checked_is_told() {
    let mut world = bound(with_volume(stamped(1), volume(), &["a hostPath of /"]), &names::pv_name(UID));
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Quarantine { volume: names::pv_name(UID), why: "a hostPath of /".into() });
    assert!(decision.tell.unwrap().message.contains("delete the claim, and see who made the volume"));
    world.volumes[0].0.quarantine = Some("a hostPath of /".into());
    world.waits("is bound to volume");
    world.claim.deleting = true;
    assert!(matches!(world.step(), Step::Adopt { .. }), "it goes with the claim");
}

#[test]
fn row_2_bound_to_an_adopted_volume() {
    let mut world = bound(with_volume(stamped(1), adopted_volume(), &[]), &names::pv_name(UID));
    assert_eq!(world.step(), Step::Release);
    world.jobs = vec![job(1)];
    world.pods_alive = true;
    assert_eq!(world.step(), Step::Release, "a bound claim owes nothing, whatever the image still does");
    let retained = Volume { reclaim_policy: "Retain".into(), finalizers: vec![], ..adopted_volume() };
    assert_eq!(bound(with_volume(stamped(1), retained, &[]), &names::pv_name(UID)).step(), Step::Release);
}

#[test]
fn row_2_a_volume_that_is_not_seen_yet_is_waited_for() {
    bound(stamped(1), &names::pv_name(UID)).rests();
}

#[test]
fn row_3_bound_to_another_volume() {
    let mut world = bound(stamped(1), "static");
    world.jobs = vec![job(1)];
    assert_eq!(world.step(), Step::RemoveJob { job: job(1).name });
    world.jobs.clear();
    assert_eq!(world.step(), Step::ConfirmNoVolume);
}

#[test]
fn row_3_going_and_its_volume_is_lost() {
    let mut world = bound(going(), &names::pv_name(UID));
    assert_eq!(world.step(), Step::ConfirmNoVolume);
    world.no_volume = true;
    assert_eq!(world.step(), begin(1, "home"));
}

#[test]
fn row_4_bound_to_a_volume_that_can_no_more_be_held() {
    let mut world = bound(with_volume(stamped(1), vanishing_volume(), &[]), &names::pv_name(UID));
    world.rests();
    world.claim.deleting = true;
    world.claim.finalizers.push("kubernetes.io/pvc-protection".into());
    world.rests();
    world.claim.finalizers.pop();
    assert_eq!(world.step(), begin(1, "home"));
    world.jobs = vec![job(1)];
    assert_eq!(world.step(), Step::RemoveJob { job: job(1).name });
    world.claim.abandoned = true;
    assert_eq!(world.step(), Step::Release);
    world.claim.abandoned = false;
    (world.stamped_recipe, world.foreign, world.jobs) = (None, true, vec![]);
    world.waits("cannot be adopted: the provisioner config of the attempt is not known any more");
}

#[test]
fn row_5_bound_and_a_job_is_over() {
    let mut world = bound(new(), &names::pv_name(UID));
    world.jobs = vec![Job { deleting: true, ..over(1) }, job(2), over(3)];
    assert_eq!(world.step(), Step::RemoveJob { job: over(3).name });
    world.jobs.pop();
    world.rests();
}

#[test]
fn row_6_going_and_nothing_is_owed() {
    let mut world = new();
    world.claim.deleting = true;
    world.rests();
    world.jobs = vec![over(1)];
    assert_eq!(world.step(), Step::RemoveJob { job: over(1).name });
}

#[test]
fn row_7_an_admin_lets_go() {
    let mut world = going();
    world.claim.abandoned = true;
    world.pods_alive = true;
    let decision = world.decide(NOW);
    assert_eq!(decision.step, Step::Release, "also from a pod on a node that is lost");
    assert!(decision.tell.unwrap().message.contains("was not deleted"));
}

#[test]
fn row_8_jobs_are_removed_first() {
    let mut world = with_volume(going(), volume(), &[]);
    world.jobs = vec![Job { deleting: true, ..job(1) }, over(2)];
    assert_eq!(world.step(), Step::RemoveJob { job: over(2).name });
}

#[test]
fn row_9_a_job_that_is_being_removed_is_waited_for() {
    World { no_volume: true, jobs: vec![Job { deleting: true, ..over(1) }], ..going() }.rests();
}

#[test]
fn row_10_a_pod_that_may_run_is_waited_for() {
    let ready = World { no_volume: true, ..going() };
    World { pods_alive: true, ..ready.clone() }.rests();
    World { run: RunState::Running, ..ready }.rests();
}

#[test]
fn row_11_a_volume_that_another_claim_has_is_not_deleted() {
    let world = with_volume(going(), Volume { name: "misnamed".into(), ..taken_volume() }, &["taken"]);
    World { no_volume: true, ..world }.waits("so that it is not deleted with this claim");
    let mut unknown = with_volume(going(), taken_volume(), &["taken"]);
    (unknown.stamped_recipe, unknown.foreign) = (None, true);
    unknown.waits("so that it is not deleted with this claim");
    let another = Volume { claim_uuid: Some("another".into()), ..volume() };
    with_volume(going(), another, &["annotation"]).waits("its annotation flex-provisioner.io/claim-uuid names another");
}

#[test]
fn row_12_a_volume_that_goes_by_itself_is_waited_for() {
    with_volume(going(), vanishing_volume(), &[]).waits("is being deleted; its end is waited for");
}

#[test]
fn row_12_a_bound_volume_does_not_go_before_its_claim() {
    let protected = Volume { phase: "Bound".into(), ..vanishing_volume() };
    let mut world = with_volume(going(), protected.clone(), &[]);
    assert_eq!(world.step(), begin(1, "home"), "its storage goes first");
    world.claim.finalizers.push("kubernetes.io/pvc-protection".into());
    world.rests();
    let mut kept = with_volume(going(), protected, &[]);
    kept.stamped_recipe = Some(recipe_with(&[("reclaim-policy", "Retain")]));
    assert_eq!(kept.step(), Step::Release, "its storage stays");
    kept.stamped_recipe = None;
    kept.class.recipe = Err("the config has errors".into());
    kept.waits("not known any more");
}

#[test]
fn row_13_a_volume_that_came_is_adopted_to_be_deleted() {
    adopts(&with_volume(going(), volume(), &["too small"]));
    adopts(&with_volume(going(), Volume { claim_uuid: None, ..volume() }, &[]));
    adopts(&bound(with_volume(stamped(1), volume(), &[]), "static"));
}

#[test]
fn row_14_the_volume_takes_over() {
    assert_eq!(with_volume(going(), adopted_volume(), &[]).step(), Step::Release);
}

#[test]
fn row_15_that_no_volume_exists_is_asked() {
    assert_eq!(going().step(), Step::ConfirmNoVolume);
    let misnamed = Volume { name: "misnamed".into(), ..volume() };
    assert_eq!(with_volume(going(), misnamed, &["name"]).step(), Step::ConfirmNoVolume, "it is no volume of the claim");
}

#[test]
fn row_16_a_delete_run_per_node() {
    let mut world = World { no_volume: true, ..going() };
    world.claim.nodes = vec!["a".into(), "b".into()];
    assert_eq!(world.step(), begin(1, "a"));
    world.delete_run = RunState::Running;
    world.rests();
    world.delete_run = RunState::Stuck { cause: Cause::new("Unschedulable", "0/1 nodes"), since: NOW };
    world.waits("deleting what an attempt left behind: 0/1 nodes");
    world.delete_run = RunState::Succeeded;
    world.delete_job = Some(over(1));
    assert_eq!(world.step(), Step::SettleNode { nodes: vec!["b".into()] });
    world.claim.nodes = vec![];
    assert_eq!(world.step(), Step::SettleNode { nodes: vec![] });
    world.delete_job = Some(Job { deleting: true, ..over(1) });
    world.rests();
}

#[test]
fn row_16_a_failed_delete_run_is_repeated_after_a_pause() {
    let mut world = World { no_volume: true, delete_run: failed_run(Failure::Never, 0), ..going() };
    let recorded = records(&world);
    assert_eq!((recorded.operation, recorded.attempt, recorded.at), (Operation::Delete, 1, NOW - 60));
    world.claim.last_failure = Some(failure(Operation::Delete, 1, NOW, Failure::Retry));
    assert_eq!(records(&world).attempt, 2);
    world.delete_run = RunState::Absent;
    assert_eq!((world.step(), world.decide(NOW).wake_at), (Step::Nothing, Some(NOW + 2)));
    assert_eq!(world.decide(NOW + 2).step, begin(2, "home"));
    world.delete_run = RunState::Failed { cause: Cause::new("R", "m"), kind: Failure::Retry, at: NOW, settled: false };
    world.rests();
}

#[test]
fn row_16_without_a_recipe_it_is_told() {
    World { no_volume: true, stamped_recipe: None, foreign: true, ..going() }
        .waits("annotate the claim with flex-provisioner.io/abandon=i-have-cleaned-up-by-hand");
}

#[test]
fn row_17_what_is_not_ours_is_left_alone() {
    World { foreign: true, ..new() }.rests();
    World { foreign: true, ..stamped(1) }.waits("is not served by this provisioner any more");
    let mut asks = new();
    asks.claim.volume_name = Some(names::pv_name(UID));
    asks.rests();
}

#[test]
fn row_18_what_cannot_be_served_is_told() {
    let mut world = new();
    world.class.recipe = Err("no provisioner config serves the class".into());
    world.waits("no provisioner config serves the class");

    let with = |keys: &[(&str, &str)], change: fn(&mut Claim)| {
        let mut world = new();
        world.class.recipe = Ok(Arc::new(recipe_with(keys)));
        change(&mut world.claim);
        world
    };
    with(&[("min-size", "2Gi")], |_| {}).waits("asks for 1Gi, class silver begins at 2Gi; ask for more");
    with(&[("max-size", "1Mi")], |_| {}).waits("asks for 1Gi, class silver ends at 1Mi; ask for less");
    with(&[("access-modes", "ReadWriteMany")], |_| {}).waits("has no access mode ReadWriteOnce; it has ReadWriteMany");
    with(&[("volume-mode", "Block")], |_| {}).waits("has no volume mode Filesystem; it has Block");
    with(&[], |claim| claim.size = Err("no size".into())).waits("no size");
    with(&[], |claim| claim.has_selector = true).waits("remove the selector");
    with(&[], |claim| claim.data_source = Some(DataSource::Unknown("VolumeSnapshot s".into())))
        .waits("filled from VolumeSnapshot s");
    with(&[], |claim| claim.data_source = Some(DataSource::Claim(ObjectName::new("team", "a")))).waits(
        "to be a copy of claim team/a, but the provisioner config admin/silver of class silver does not declare",
    );
    let gold = with(&[], |claim| claim.attributes_class = Some("gold".into()));
    World { attributes: Some("there is no VolumeAttributesClass gold"), ..gold }
        .waits("there is no VolumeAttributesClass gold");
}

#[test]
fn row_18_what_cannot_be_served_yet_waits() {
    delayed(new(), None).rests();
    World { kept: false, ..new() }.rests();
    let full = World { room: false, ..new() };
    assert_eq!(full.step(), Step::StandInLine { nodes: vec!["home".into()] });
    assert_eq!(full.decide(NOW).wake_at, Some(NOW + 30), "others before it may leave");
    let elsewhere = World { room: false, ..selected(new()) };
    assert_eq!(elsewhere.step(), Step::StandInLine { nodes: vec!["a".into()] }, "its place is where it would run");
    let nowhere = World { choice: Choice::default(), ..full };
    assert_eq!(nowhere.step(), Step::Nothing, "a place is of no use to it");
}

fn with_state(node: &str, state: NodeState, world: World) -> World {
    World { places: Places([(node.to_owned(), state)].into()), ..world }
}

#[test]
fn row_16_a_node_that_is_gone() {
    let mut left = going();
    (left.no_volume, left.claim.nodes) = (true, vec!["a".into(), "b".into()]);
    assert_eq!(left.step(), begin(1, "a"));
    // A dead node does not keep the others from being cleaned.
    assert_eq!(with_state("a", NodeState::Unreachable, left.clone()).step(), begin(1, "b"));
    left.claim.nodes = vec!["a".into()];
    let missing = with_state("a", NodeState::Missing, left.clone());
    assert_eq!(missing.step(), Step::ConfirmNode { node: "a".into() });
    let policy = |policy: &str| {
        let mut gone = with_state("a", NodeState::Gone, left.clone());
        gone.class.recipe = Ok(Arc::new(recipe_with(&[("node-gone", policy)])));
        gone
    };
    policy("hold").waits("an attempt may have left something on node a, which is gone");
    let forgotten = policy("forget").decide(NOW);
    assert_eq!(forgotten.step, Step::SettleNode { nodes: vec![] });
    assert!(forgotten.tell.unwrap().message.contains("node-gone: forget"));
    let elsewhere = Step::StartDelete { attempt: 1, node: "a".into(), elsewhere: true };
    assert_eq!(policy("run-elsewhere").step(), elsewhere);
}

/// Of a class that waits for a pod, on node `a`.
fn selected(world: World) -> World {
    let mut world = world;
    world.class.binding = BindingMode::WaitForFirstConsumer;
    world.claim.selected_node = Some("a".into());
    if world.claim.stamp.is_some() {
        world.claim.nodes = vec!["a".into()];
    }
    world
}

#[test]
fn rows_19_26_and_30_a_selected_node_that_is_gone_is_given_back() {
    for world in [new(), stamped(1), failed_with(Failure::Retry)] {
        let missing = with_state("a", NodeState::Missing, selected(world.clone()));
        assert_eq!(missing.step(), Step::ConfirmNode { node: "a".into() });
        let gone = with_state("a", NodeState::Gone, selected(world));
        let decision = gone.decide(NOW);
        assert_eq!(decision.step, Step::Reschedule { failure: None });
        assert_eq!(decision.tell.unwrap().message, "the selected node a is gone; the scheduler is asked for another");
    }
}

#[test]
fn rows_19_26_and_30_a_selected_node_that_the_class_does_not_allow_is_given_back() {
    for world in [new(), stamped(1), failed_with(Failure::Retry)] {
        let mut outside = World { outside: true, ..selected(world) };
        let decision = outside.decide(NOW + 60);
        assert_eq!(decision.step, Step::Reschedule { failure: None });
        let said = decision.tell.unwrap().message;
        assert!(said.contains("node a is outside of the allowedTopologies of class silver"), "{said}");
        outside.class.binding = BindingMode::Immediate;
        assert!(!matches!(outside.decide(NOW + 60).step, Step::Reschedule { .. }), "nobody would select another");
    }
}

#[test]
fn row_31_a_node_that_does_not_take_the_pod_is_given_up() {
    let cause = Cause::new("Unschedulable", "0/3 nodes are available: 1 node(s) were unschedulable");
    let stuck = |world: World| World { run: RunState::Stuck { cause: cause.clone(), since: NOW - 10 }, ..world };
    let pinned = stuck(selected(stamped(1)));
    pinned.waits("1 node(s) were unschedulable");
    assert_eq!(pinned.decide(NOW).wake_at, Some(NOW + 5));
    let Step::RecordFailure { failure, .. } = pinned.decide(NOW + 5).step else { panic!("it is given up") };
    assert_eq!(failure.kind, Failure::NoRoom);
    // Where there is no other node, and where any will do, there is nothing to be gained.
    let alone = World { choice: Choice { last: true, ..Choice::default() }, ..stamped(1) };
    assert_eq!(stuck(alone).decide(NOW + 1000).step, Step::Nothing);
    let mut anywhere = selected(stamped(1));
    anywhere.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(stuck(anywhere).decide(NOW + 1000).step, Step::Nothing);
}

#[test]
fn row_34_a_pod_on_a_dead_node_is_told() {
    let lost = |world: World| with_state("a", NodeState::Unreachable, World { alive_on: vec!["a".into()], ..world });
    let running = World { run: RunState::Running, pods_alive: true, ..selected(stamped(1)) };
    running.rests();
    let says = "a pod of the provisioner is on node a, which does not answer";
    lost(running.clone()).waits(says);
    lost(World { claim: going().claim, ..running }).waits(says);
    lost(World { pods_alive: true, ..selected(failed_with(Failure::Retry)) }).waits("kubectl delete node a");
}

#[test]
fn rows_13_and_20_where_attempts_left_something_goes_on_with_the_volume() {
    let adopted_nodes = |nodes: &[&str], affinity: bool| {
        let mut world = selected(stamped(2));
        world.claim.nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
        let mut made = volume();
        if affinity {
            let text =
                "nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [b]}]}]";
            made.affinity = Some(Box::new(crate::config::values::yaml(text).unwrap()));
        }
        world.volumes = vec![(made, vec![])];
        match world.step() {
            Step::Adopt { nodes, .. } => nodes,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(adopted_nodes(&["a", "b"], true), ["a", "b"]);
    // One that is not bound to a host may be what the attempts before made.
    assert!(adopted_nodes(&["a", "b"], false).is_empty());
}

#[test]
fn rows_13_and_20_a_volume_says_on_which_node_it_is() {
    let made_on = |noted: &[&str]| {
        let mut world = stamped(2);
        world.claim.nodes = noted.iter().map(|node| (*node).to_owned()).collect();
        let text =
            "nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [b]}]}]";
        let affinity = Some(Box::new(crate::config::values::yaml(text).unwrap()));
        world.volumes = vec![(Volume { affinity, ..volume() }, vec![])];
        match world.step() {
            Step::Adopt { provenance, nodes, .. } => (provenance.node, nodes.join(",")),
            step => panic!("{step:?}"),
        }
    };
    let on = |node: &str, nodes: &str| (node.to_owned(), nodes.to_owned());
    assert_eq!(made_on(&[]), on("b", "b"), "somebody has taken the note off");
    assert_eq!(made_on(&["b", "a"]), on("b", "a,b"), "the attempt before the last made it");
    assert_eq!(made_on(&["c", "a"]), on("a", "c,a"), "no attempt was where it says");
}

/// What was made for a request: ready, on its own.
fn ready_volume() -> Volume {
    let kind = recipe_with(&[]).record.kind();
    let reference = Reference { name: ObjectName::new("own", UID), uid: String::new() };
    let pool_size = new().claim.size.ok();
    Volume { pool: Some(kind), pool_size, claim_uuid: None, claim_ref: Some(reference), ..adopted_volume() }
}

fn request(mut world: World) -> World {
    world.request = true;
    world
}

#[test]
fn row_19a_a_volume_that_is_ready_is_taken_whatever_the_limits_say() {
    let mut world = World { ready: Some("pvc-ready"), limit: Some("full"), room: false, kept: false, ..new() };
    let take = Step::Take { volume: "pvc-ready".into() };
    assert_eq!(world.step(), take);
    world.attributes = Some("no such attributes");
    world.waits("no such attributes");
    let mut begun = stamped(1);
    begun.ready = Some("pvc-ready");
    assert_ne!(begun.step(), take, "what was begun goes on");
    let mut late = delayed(new(), None);
    late.ready = Some("pvc-ready");
    late.rests();
}

#[test]
fn row_19b_what_was_given_is_bound_when_the_pv_controller_knows_it() {
    let given = Volume { name: "pvc-ready".into(), volume_id: Some("ready".into()), ..adopted_volume() };
    let mut world = with_volume(new(), given.clone(), &["name"]);
    world.ready = Some("pvc-another");
    world.rests();
    world.known = true;
    assert_eq!(world.step(), Step::Bind { volume: "pvc-ready".into() });
    world.binding = Binding::Controller;
    world.rests();
    let going = Volume { deleting: true, ..given };
    let world = with_volume(World { binding: Binding::Controller, ..new() }, going, &["name"]);
    assert_eq!(world.step(), Step::Name { volume: "pvc-ready".into() });
}

#[test]
fn row_5a_who_was_bound_by_the_pv_controller_is_stamped_all_the_same() {
    let taken = Volume { name: "pvc-ready".into(), volume_id: Some("ready".into()), ..adopted_volume() };
    bound(with_volume(new(), taken.clone(), &["name"]), "pvc-ready").rests();
    let given = Volume { pool_size: Some(1), ..taken };
    let mut world = bound(with_volume(new(), given, &["name"]), "pvc-ready");
    assert_eq!(world.step(), Step::Note { volume: "pvc-ready".into() });
    world.claim.deleting = true;
    world.rests();
    let mut stamped = bound(with_volume(stamped(1), adopted_volume(), &[]), &names::pv_name(UID));
    stamped.claim.finalizers.clear();
    stamped.rests();
    bound(new(), "static").rests();
}

#[test]
fn row_34a_what_a_request_asked_for_is_adopted_without_a_claim_and_the_request_goes() {
    let mut world = request(with_volume(stamped(1), volume(), &[]));
    world.run = RunState::Running;
    adopts(&world);
    adopts(&request(with_volume(stamped(1), adopted_volume(), &[])));
    let older = Volume { pool: Some("older".into()), ..ready_volume() };
    adopts(&request(with_volume(stamped(1), older, &[])));
    world.volumes = vec![(ready_volume(), vec![])];
    assert_eq!(world.step(), Step::Finish);
    (world.jobs, world.pods_alive) = (vec![job(1)], true);
    assert_eq!(world.step(), Step::Finish, "the volume is on its own");
    world.claim.deleting = true;
    assert_eq!(world.step(), Step::Release);
    let by_controller = bound(request(with_volume(stamped(1), ready_volume(), &[])), &names::pv_name(UID));
    assert_eq!(by_controller.step(), Step::Finish);
}

#[test]
fn row_34a_a_request_whose_volume_was_given_away_is_done() {
    for uuid in [Some("another"), None] {
        let reference = Reference { name: ObjectName::new("team", "data"), uid: "another".into() };
        let claim_uuid = uuid.map(str::to_owned);
        let given = Volume { pool: None, claim_uuid, claim_ref: Some(reference), ..ready_volume() };
        let mut world = request(with_volume(stamped(1), given, &["claimRef"]));
        assert_eq!(world.step(), Step::Finish);
        world.claim.deleting = true;
        assert_eq!(world.step(), Step::Release);
    }
}

#[test]
fn a_request_that_goes_half_way_is_taken_back_as_any_claim() {
    let mut world = request(going());
    world.jobs = vec![job(1)];
    assert_eq!(world.step(), Step::RemoveJob { job: job(1).name });
    world.jobs.clear();
    assert_eq!(world.step(), Step::ConfirmNoVolume);
    let world = request(with_volume(going(), volume(), &[]));
    adopts(&world);
}
