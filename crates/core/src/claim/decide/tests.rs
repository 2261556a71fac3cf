//! Tests of the rules. `properties.rs` has the properties of all observations.
use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_contract::reason;

use super::rule::run;
use super::*;
use crate::claim::data_source::{ClaimSource, DataSourceState};
use crate::claim::nodes::NodeChoice;
use crate::config::classes::{BindingMode, Class};
use crate::config::effective_config::EffectiveConfig;
use crate::config::modify::Attributes;
use crate::config::{NodeGone, Recipe};
use crate::model::claim::{Binding, Claim, Had, RecordRef, Stamp};
use crate::model::data_source::{DataSource, SourceUser};
use crate::model::volume::{OtherAttempt, Provenance, Reference, Volume};
use crate::object::ObjectName;
use crate::rules::Rule as _;
use crate::run::backoff::delay;
use crate::run::failure::LastFailure;
use crate::run::node::{NodeState, NodeStates};
use crate::run::rule::{Rule as RunRule, Target};
use crate::run::slot_wait::NoSlot;
use crate::run::state::{Cause, RunState};
use crate::run::view::{Job, RunLabels};

#[path = "carry_out.rs"]
mod carry_out;
#[path = "data_source_tests.rs"]
mod of_copies;
#[path = "failed_tests.rs"]
mod of_failed;
#[path = "namespace_tests.rs"]
mod of_namespaces;
#[path = "placement_tests.rs"]
mod of_placement;
#[path = "precondition_tests.rs"]
mod of_preconditions;
#[path = "pooled_tests.rs"]
mod of_ready;
#[path = "settled_tests.rs"]
mod of_settled;
#[path = "stamped_tests.rs"]
mod of_stamped;
#[path = "taken_tests.rs"]
mod of_taken;
#[path = "undo_tests.rs"]
mod of_undo;
#[path = "properties.rs"]
mod properties;
#[path = "worlds.rs"]
mod worlds;

const NOW: i64 = 1_000_000;
const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

/// An observation that owns its data.
#[derive(Clone, Debug)]
struct World {
    claim: Claim,
    fresh: bool,
    foreign: bool,
    class: Class,
    has_revision: bool,
    stamped_recipe: Option<Recipe>,
    jobs: Vec<Job>,
    run: RunState,
    has_running_pods: bool,
    node_choice: NodeChoice,
    nodes_with_pods: Vec<String>,
    node_states: NodeStates,
    volumes: Vec<(Volume, Vec<String>)>,
    no_volume: bool,
    delete_run: RunState,
    delete_job: Option<Job>,
    never_started: bool,
    reserved_volume: Option<&'static str>,
    class_certainty: ClassCertainty,
    has_slot: bool,
    namespace_refusal: Option<&'static str>,
    quota_refusal: Option<&'static str>,
    has_pending_charge: bool,
    has_namesake: bool,
    left_refusal: Option<&'static str>,
    attributes_error: Option<&'static str>,
    binding: Binding,
    selected_node_forbidden: bool,
    data_source: Option<Source>,
    source_users: Vec<SourceUser>,
    removed: Option<RemovedJob>,
    recorded: RecordedAttempts,
    seen_by_probe: bool,
    many_wait: bool,
    lacks_mark: bool,
    is_let_go: bool,
    is_pool_request: bool,
    pooled_volume: Option<&'static str>,
}

/// A claim that is the data source of a claim, with its volume.
#[derive(Clone, Debug)]
struct Source {
    claim: Option<Claim>,
    volume: Option<Volume>,
    ours: bool,
    node: Option<&'static str>,
    granted: bool,
}

impl Source {
    fn state(&self) -> DataSourceState<'_> {
        DataSourceState::Claim(ClaimSource {
            claim: self.claim.as_ref(),
            volume: self.volume.as_ref(),
            ours: self.ours,
            node: self.node,
            granted: self.granted,
        })
    }
}

impl World {
    fn decide(&self, now: i64) -> Decision {
        self.observed(|observed| decide(observed, now))
    }

    fn recipe_of_attempt(&self) -> Option<&Recipe> {
        self.stamped_recipe.as_ref().or(self.class.recipe.as_deref().ok().filter(|_| !self.foreign))
    }

    /// Checks that this rule decides, and returns the decision.
    #[track_caller]
    fn decide_by(&self, rule: Rule, now: i64) -> Decision {
        let decision = self.decide(now);
        assert_eq!(decision.rule, rule, "{decision:?}");
        decision
    }

    fn observed<T>(&self, then: impl FnOnce(&Observed<'_>) -> T) -> T {
        let its_node = self.data_source.as_ref().and_then(|source| source.node.map(str::to_owned));
        let nodes = self
            .claim
            .nodes_with_storage
            .iter()
            .chain(&self.claim.selected_node)
            .chain(&self.nodes_with_pods)
            .chain(&its_node);
        let mut node_states = NodeStates(nodes.map(|node| (node.clone(), NodeState::Reachable)).collect());
        node_states.0.extend(self.node_states.0.clone());
        let nodes = Nodes {
            choice: self.node_choice.clone(),
            states: node_states,
            with_pods: self.nodes_with_pods.clone(),
            selected_forbidden: self.selected_node_forbidden,
        };
        let runs = Runs {
            jobs: self.jobs.iter().cloned().map(Arc::new).collect(),
            state: self.run.clone(),
            recipe: self.stamped_recipe.clone().map(Arc::new),
            has_running_pods: self.has_running_pods,
            never_started: self.never_started,
            removed: self.removed,
            recorded: self.recorded.clone(),
        };
        let deletion = Deletion {
            state: self.delete_run.clone(),
            job: self.delete_job.clone().map(Arc::new),
            recipe: self.recipe_of_attempt().cloned().map(Arc::new),
        };
        let all = self.volumes.iter().map(|(volume, mismatches)| Candidate {
            volume: Arc::new(volume.clone()),
            mismatches: mismatches.clone(),
            reaching: of_placement::reaching(&self.claim, volume),
            seen_by_probe: self.seen_by_probe,
            lacks_mark: self.lacks_mark && volume.is_adopted(),
            is_let_go: self.is_let_go && volume.claim_ref_uid().is_some_and(|uid| uid != self.claim.uid),
        });
        let volumes = Volumes {
            all: all.collect(),
            reserved: self.reserved_volume.map(str::to_owned),
            binding: self.binding,
            many_wait: self.many_wait,
        };
        let preconditions = Preconditions {
            class_certainty: self.class_certainty,
            has_revision: self.has_revision,
            no_slot: (!self.has_slot).then_some(NoSlot::Taken),
            namespace_refusal: self.namespace_refusal.map(str::to_owned),
            quota_refusal: self.quota_refusal.map(str::to_owned),
            has_pending_charge: self.has_pending_charge,
            has_namesake: self.has_namesake,
            left_refusal: self.left_refusal.map(str::to_owned),
            attributes: self.attributes_error.map_or(Ok(Attributes::default()), |why| Err(why.to_owned())),
        };
        then(&Observed {
            claim: &self.claim,
            class: if self.foreign { ServedClass::NotOurs } else { ServedClass::Ours(&self.class) },
            confirmed: ConfirmedFacts { fresh: self.fresh, no_volume: self.no_volume },
            runs: &runs,
            deletion: &deletion,
            volumes: &volumes,
            preconditions: &preconditions,
            nodes: &nodes,
            source: SourceRelation { state: self.data_source.as_ref().map(Source::state), users: &self.source_users },
            pool: PoolRelation { is_request: self.is_pool_request, volume: self.pooled_volume },
        })
    }

    /// Checks that this rule decides, and returns its step.
    #[track_caller]
    fn step(&self, rule: Rule) -> Step {
        self.decide_by(rule, NOW).step
    }

    /// Checks that the decision does nothing and emits this event.
    #[track_caller]
    fn waits(&self, rule: Rule, says: &str) {
        let decision = self.decide_by(rule, NOW);
        let said = decision.event.as_ref().map(|event| event.message.as_str()).unwrap_or_default();
        assert!(decision.step == Step::Nothing && said.contains(says), "{decision:?}");
    }

    /// Checks that the decision does and emits nothing, and waits for 30 minutes.
    #[track_caller]
    fn rests_until_slow(&self, rule: Rule) {
        let decision = self.decide_by(rule, NOW);
        assert_eq!((decision.step, decision.requeue_at), (Step::Nothing, Some(NOW + 1800)));
    }

    #[track_caller]
    fn rests(&self, rule: Rule) {
        let decision = self.decide_by(rule, NOW);
        assert_eq!((&decision.step, &decision.event), (&Step::Nothing, &None));
    }
}

fn recipe_with(keys: &[(&str, &str)]) -> Recipe {
    let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let config = ObjectName::new("admin", "silver");
    EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

/// Returns a new claim of a class that binds immediately.
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
        has_revision: true,
        stamped_recipe: None,
        jobs: vec![],
        run: RunState::NotCached,
        has_running_pods: false,
        node_choice: NodeChoice { next: Some("home".into()), is_new: true, last: true },
        nodes_with_pods: vec![],
        node_states: NodeStates::default(),
        volumes: vec![],
        no_volume: false,
        delete_run: RunState::NotCached,
        delete_job: None,
        never_started: false,
        reserved_volume: None,
        class_certainty: ClassCertainty::Certain,
        has_slot: true,
        namespace_refusal: None,
        quota_refusal: None,
        has_pending_charge: false,
        has_namesake: false,
        left_refusal: None,
        attributes_error: None,
        binding: Binding::Direct,
        selected_node_forbidden: false,
        data_source: None,
        source_users: vec![],
        removed: None,
        recorded: RecordedAttempts::default(),
        seen_by_probe: false,
        many_wait: false,
        lacks_mark: false,
        is_let_go: false,
        is_pool_request: false,
        pooled_volume: None,
    }
}

/// Returns the rule about a run that deletes what attempts left.
fn leftover(rule: RunRule) -> Rule {
    Rule::Run(Target::Leftover, rule)
}

fn begin<'a>(attempt: u32, node: impl Into<Option<&'a str>>) -> Step {
    Step::StartDelete { attempt, node: node.into().map(str::to_owned), on_any_node: false }
}

fn stamped(attempt: u32) -> World {
    let mut world = new();
    world.claim.nodes_with_storage = vec!["home".into()];
    let recipe = recipe_with(&[]);
    world.claim.stamp =
        Some(Stamp { claim_uid: UID.into(), ts: "t".into(), attempt, recipe_version: recipe.version() });
    world.claim.held = true;
    world.stamped_recipe = Some(recipe);
    world
}

/// Returns the same with an attempt that has just failed and made no volume.
fn failed_with(reaction: Reaction) -> World {
    let mut world = World { no_volume: true, ..stamped(1) };
    world.claim.last_failure = Some(failure(Operation::Provision, 1, NOW, reaction));
    world
}

/// Returns a claim that was deleted after its attempt began.
fn terminating() -> World {
    let mut world = stamped(1);
    world.claim.terminating = true;
    world
}

fn delayed(mut world: World, node: Option<&str>) -> World {
    world.class.binding = BindingMode::WaitForFirstConsumer;
    world.claim.selected_node = node.map(str::to_owned);
    world
}

/// Returns the claim, bound to a volume of this name.
fn bound(mut world: World, volume: &str) -> World {
    world.claim.volume_name = Some(volume.into());
    world.claim.phase = "Bound".into();
    world
}

fn with_volume(mut world: World, volume: Volume, mismatches: &[&str]) -> World {
    world.volumes.push((volume, mismatches.iter().map(|mismatch| (*mismatch).to_owned()).collect()));
    world
}

fn failure(operation: Operation, attempt: u32, at: i64, reaction: Reaction) -> LastFailure {
    LastFailure::new(operation, attempt, at, &Cause::new("R", "m"), reaction)
}

fn failed_run(reaction: Reaction, at: i64) -> RunState {
    RunState::Failed { cause: Cause::new("ExitCode", "disk on fire"), reaction, at, pods_ended: true }
}

fn job(attempt: u32) -> Job {
    Job {
        name: ObjectName::new("admin", format!("provision-{attempt}")),
        run_labels: RunLabels { attempt, ..RunLabels::default() },
        ..Job::default()
    }
}

fn over(attempt: u32) -> Job {
    Job { is_over: true, ..job(attempt) }
}

/// Returns a volume as an image makes it.
fn volume() -> Volume {
    let text = format!(
        "metadata: {{name: pvc-{UID}, annotations: {{'{}': {UID}}}}}\nspec: {{persistentVolumeReclaimPolicy: Delete}}\n",
        names::CLAIM_UID
    );
    Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
}

/// Returns a volume after its adoption.
fn adopted_volume() -> Volume {
    let provenance = Provenance {
        effective_config: recipe_with(&[]).effective_config,
        origin_node: Some("home".into()),
        moved_in: None,
        cluster: None,
        others: Vec::new(),
    };
    Volume {
        finalizers: vec![names::VOLUME_FINALIZER.into()],
        instance: Some("default".into()),
        provisioned_by: Some(names::DEFAULT_PROVISIONER.into()),
        volume_id_annotation: Some(UID.into()),
        adoption_mark: Some(crate::model::volume::adoption_mark(&serde_json::to_string(&provenance).unwrap(), "")),
        provenance: Some(serde_json::to_string(&provenance).unwrap()),
        claim_ref: Some(Reference { name: ObjectName::new("team", "data"), uid: Some(UID.into()) }),
        ..volume()
    }
}

/// Returns the same volume after the PV controller has shown that it has seen it.
fn known_volume() -> Volume {
    Volume { phase: "Bound".into(), ..adopted_volume() }
}

/// Returns a volume of the claim that another claim has taken.
fn taken_volume() -> Volume {
    Volume { claim_ref: Some(Reference { name: ObjectName::new("b", "thief"), uid: Some("t".into()) }), ..volume() }
}

fn vanishing_volume() -> Volume {
    Volume { terminating: true, ..volume() }
}

#[track_caller]
fn adopts(rule: Rule, world: &World) -> Provenance {
    match world.step(rule) {
        Step::Adopt { volume, provenance, .. } if volume == names::pv_name(UID) => *provenance,
        step => panic!("{step:?}"),
    }
}

#[track_caller]
fn records(rule: Rule, world: &World) -> LastFailure {
    match world.step(rule) {
        Step::RecordFailure { failure, .. } => failure,
        step => panic!("{step:?}"),
    }
}

#[test]
fn claims_of_others_are_left_alone() {
    World { foreign: true, ..new() }.rests(Rule::NotOurs);
    World { foreign: true, ..stamped(1) }
        .waits(Rule::ClassNotServed, "this provisioner does not serve the claim's class any more");
    let mut asks = new();
    asks.claim.volume_name = Some(names::pv_name(UID));
    asks.rests(Rule::VolumeNamedByUser);
}

fn with_state(node: &str, state: NodeState, world: World) -> World {
    World { node_states: NodeStates([(node.to_owned(), state)].into()), ..world }
}

/// Returns the claim with a class that waits for a pod, on node `a`.
fn selected(world: World) -> World {
    let mut world = world;
    world.class.binding = BindingMode::WaitForFirstConsumer;
    world.claim.selected_node = Some("a".into());
    if world.claim.stamp.is_some() {
        world.claim.nodes_with_storage = vec!["a".into()];
    }
    world
}
