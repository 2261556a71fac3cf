//! Claims with anything that a user can write on them, step by step to the Job.

use std::sync::{Arc, LazyLock};

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::admit::admit;
use flex_core::claim::decide::{
    ClassCertainty, ConfirmedFacts, Decision, Deletion, Nodes, Observed, PoolRelation, Preconditions, RecordedAttempts,
    Runs, ServedClass, SourceRelation, Step, Volumes, decide,
};
use flex_core::claim::nodes::NodeChoice;
use flex_core::claim::request::{Attempt, request};
use flex_core::config::classes::{BindingMode, Class};
use flex_core::config::{Placement, Recipe};
use flex_core::model::claim::{Binding, Claim, Stamp};
use flex_core::object::is_dns_name;
use flex_core::run::job::{RunTarget, job};
use flex_core::run::node::{NodeState, NodeStates};
use flex_core::run::slot_wait::NoSlot;
use flex_core::run::state::{Cause, RunState};
use flex_provisioner::api::events::event_note;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Map, Value, json};

use crate::draw::Draw;
use crate::world::{UID, check_job, check_request_size, identity, recipe};

/// One node more than a claim notes at most.
static ANNOTATION_BYTES: LazyLock<String> =
    LazyLock::new(|| (0..=100).map(|n| format!("n{n}.{}", "x".repeat(240))).collect::<Vec<_>>().join(","));

const NOW: i64 = 1_800_000_000;
/// The limit of one annotation that the orchestrator writes on a claim.
const ANNOTATION: usize = 32 * 1024;

/// Recipes with different limits.
static RECIPES: LazyLock<Vec<Arc<Recipe>>> = LazyLock::new(|| {
    let large = "a".repeat(60_000);
    let keys: [&[(&str, &str)]; 4] = [
        &[("claim-metadata", "team, a.example/b, b.example/c, d")],
        &[("placement", "any"), ("service-account-name", "account")],
        &[("claim-metadata", "team, a.example/b"), ("one", &large), ("two", &large)],
        &[("access-modes", "ReadWriteOnce"), ("volume-mode", "Filesystem"), ("max-size", "1Ti")],
    ];
    keys.iter().map(|keys| Arc::new(recipe(keys))).collect()
});

/// Reads a claim from JSON, or draws one; then draws the state around it.
pub fn check(data: &[u8]) {
    let draw = &mut Draw::new(data);
    let claim = match serde_json::from_slice(data) {
        Ok(claim) => claim,
        Err(_) => serde_json::from_value(drawn(draw)).expect("the value is a claim"),
    };
    lives(claim, draw);
}

fn annotations(draw: &mut Draw<'_>) -> Value {
    let mut annotations = Map::new();
    for _ in 0..draw.below(8) {
        let (key, values): (&str, &[&str]) = draw.pick(&[
            ("a.example/b", &["c"]),
            ("b.example/c", &["d"]),
            (names::SELECTED_NODE, &["node-1", "node-2.example"]),
            (names::NODES, &["node-1,node-2", ",,node-1,,", "many"]),
            (names::CREATED_BY, &["tom", "system:serviceaccount:a:b"]),
            (names::CREATED_BY_GROUPS, &["a,b", "system:authenticated"]),
            (names::CLAIM_UID, &[UID, "other"]),
            (names::ATTEMPT, &["1", "4294967295", "-1", "1000000000"]),
            (names::RECIPE_VERSION, &["admin/silver@0"]),
            (names::PROVISION_TS, &["2026-01-01T00:00:00Z"]),
            (names::FAILURE, &["{\"operation\":\"provision\",\"attempt\":1,\"at\":1,\"kind\":\"no-capacity\",\"reason\":\"R\",\"message\":\"m\"}"]),
            (names::ABANDON, &[names::ABANDON_YES]),
            (names::STORAGE_PROVISIONER, &[names::DEFAULT_PROVISIONER]),
            ("volume.beta.kubernetes.io/storage-class", &["silver"]),
        ]);
        let value = draw.text_or(values);
        annotations.insert(key.to_owned(), json!(if value == "many" { &*ANNOTATION_BYTES } else { &value }));
    }
    Value::Object(annotations)
}

fn drawn(draw: &mut Draw<'_>) -> Value {
    let mut claim = json!({
        "metadata": {
            "name": draw.pick(&["data", "x.y"]), "namespace": "team", "uid": UID, "resourceVersion": "1",
            "annotations": annotations(draw), "labels": { "team": draw.text_or(&["blue"]), "d": draw.text_or(&["e"]) },
        },
        "spec": {
            "storageClassName": draw.pick(&["silver", "", "gold"]),
            "accessModes": draw.texts(&["ReadWriteOnce", "ReadWriteMany"]),
            "resources": { "requests": { "storage": draw.text_or(&["1Gi", "0", "7Ei", "1m"]) } },
        },
        "status": { "phase": draw.text_or(&["Pending", "Bound"]) },
    });
    let spec = &mut claim["spec"];
    for field in 0..7 {
        if draw.below(8) != 7 {
            continue;
        }
        match field {
            0 => spec["volumeMode"] = json!(draw.text_or(&["Block", "Filesystem"])),
            1 => spec["dataSource"] = json!({ "kind": draw.text_or(&["PersistentVolumeClaim"]), "name": draw.text() }),
            2 => spec["volumeName"] = json!(draw.text_or(&["pvc-1"])),
            3 => spec["volumeAttributesClassName"] = json!(draw.text_or(&["gold"])),
            4 => spec["selector"] = json!({ "matchLabels": { "a": draw.text() } }),
            5 => claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            _ => claim["metadata"]["annotations"][names::HELD] = claim["metadata"]["uid"].clone(),
        }
        return claim;
    }
    claim
}

fn run(draw: &mut Draw<'_>) -> RunState {
    match draw.below(5) {
        0 => RunState::NotCached,
        1 => RunState::MayBeRunning,
        2 => RunState::Stuck { cause: Cause::new(draw.text(), draw.text()), since: draw.number() },
        3 => RunState::Succeeded,
        _ => RunState::Failed {
            cause: Cause::new(draw.text(), draw.text()),
            reaction: draw.pick(&[Reaction::Retry, Reaction::Never, Reaction::NoCapacity]),
            at: draw.number(),
            pods_ended: draw.chance(),
        },
    }
}

/// Plays a few steps of a claim's life, each as decided.
fn lives(claim: PersistentVolumeClaim, draw: &mut Draw<'_>) {
    let mut claim = Claim::from(&claim);
    // The API server makes and checks these.
    claim.uid = UID.into();
    claim.name = flex_core::object::ObjectName::new("team", "data");
    let recipe = draw.pick(&[0, 1, 2, 3]);
    let recipe = RECIPES[recipe].clone();
    for node in claim.nodes_with_storage.iter().chain(&claim.selected_node) {
        assert!(is_dns_name(node), "{node:?} is no node");
    }
    if let Err(why) = admit(&claim, &recipe, false) {
        assert!(!why.is_empty());
        check_request_size(&event_note(&why), 1024);
    }
    let class = Class {
        name: "silver".into(),
        has_object: draw.chance(),
        binding: draw.pick(&[BindingMode::Immediate, BindingMode::WaitForFirstConsumer]),
        recipe: Ok(recipe.clone()),
        uid: String::new(),
        last_good: false,
        allowed: Default::default(),
        provisioner: identity().provisioner,
    };
    if draw.chance() {
        let ts = claim.stamp.as_ref().map(|stamp| stamp.ts.clone()).unwrap_or_default();
        claim.stamp =
            Some(Stamp { claim_uid: UID.into(), ts, attempt: 1, recipe_version: recipe.version(), batch: None });
        claim.held = true;
    }
    let tried: Vec<String> = (0..draw.below(3)).map(|n| format!("node-{n}.{}", "x".repeat(60))).collect();
    let states = [NodeState::Reachable, NodeState::Unreachable, NodeState::NotCached, NodeState::NotFound];
    let nodes = tried.iter().chain(&claim.nodes_with_storage).chain(&claim.selected_node).cloned();
    let node_states = NodeStates(nodes.map(|node| (node, draw.pick(&states))).collect());
    let node_choice = NodeChoice { next: tried.first().cloned(), is_new: draw.chance(), last: draw.chance() };
    for _ in 0..5 {
        let state = run(draw);
        let confirmed = ConfirmedFacts { fresh: draw.chance(), no_volume: draw.chance() };
        let likely = |draw: &mut Draw<'_>| draw.below(8) != 7;
        let observed = Observed {
            claim: &claim,
            class: ServedClass::Ours(&class),
            confirmed,
            runs: Runs {
                jobs: &[],
                state: state.clone(),
                recipe: likely(draw).then_some(&*recipe),
                has_running_pods: !likely(draw),
                never_started: !likely(draw),
                removed: None,
                missed_batch: !likely(draw),
                recorded: &RecordedAttempts { is_missing: !likely(draw), ..RecordedAttempts::default() },
            },
            deletion: Deletion { state, job: None, recipe: likely(draw).then_some(&*recipe) },
            volumes: Volumes {
                all: &[],
                reserved: (draw.below(16) == 15).then_some("pvc-reserved"),
                binding: Binding::Direct,
                many_wait: likely(draw),
            },
            preconditions: Preconditions {
                class_certainty: match (likely(draw), likely(draw)) {
                    (true, _) => ClassCertainty::Certain,
                    (false, true) => ClassCertainty::Unasked,
                    (false, false) => ClassCertainty::MayFollow,
                },
                has_revision: likely(draw),
                no_slot: (!likely(draw)).then_some(NoSlot::Taken),
                quota_refusal: None,
                has_pending_charge: false,
                has_namesake: false,
                left_refusal: None,
                attributes_error: None,
            },
            nodes: Nodes {
                choice: &node_choice,
                states: &node_states,
                with_pods: &[],
                selected_forbidden: !likely(draw),
            },
            source: SourceRelation { state: None, users: &[] },
            pool: PoolRelation::default(),
        };
        let decision = decide(&observed, NOW);
        check_event(&decision);
        apply(&mut claim, &recipe, decision.step);
    }
}

fn check_event(decision: &Decision) {
    if let Some(note) = &decision.event {
        assert!(!note.message.is_empty() && note.reason.allows(note.warning), "the event is not allowed: {decision:?}");
        check_request_size(&event_note(&note.message), 1024);
    }
}

fn noted(nodes: &[String]) {
    let bytes = nodes.join(",").len();
    assert!(bytes <= ANNOTATION, "{} nodes are noted in {bytes} bytes", nodes.len());
}

/// Writes as the orchestrator would.
fn apply(claim: &mut Claim, recipe: &Recipe, step: Step) {
    match step {
        Step::Stamp { attempt, nodes } => {
            noted(&nodes);
            assert!(admit(claim, recipe, false).is_ok(), "an attempt begins for what cannot be served");
            let ts = "2026-01-01T00:00:00.000000Z".into();
            claim.stamp =
                Some(Stamp { claim_uid: UID.into(), ts, attempt, recipe_version: recipe.version(), batch: None });
            claim.held = true;
            claim.nodes_with_storage = nodes;
        }
        Step::StartRun => {
            let stamp = claim.own_stamp().expect("the claim is stamped").clone();
            runs(claim, recipe, Operation::Provision, stamp.attempt, stamp.ts, claim.selected_node.clone(), "");
        }
        Step::StartDelete { attempt, node, .. } => {
            let scope = claim.nodes_with_storage.first().map_or("anywhere", String::as_str);
            let ts = "2026-01-01T00:00:00.000000Z".to_owned();
            runs(claim, recipe, Operation::Delete, attempt, ts, node, scope);
        }
        Step::RecordFailure { failure } => {
            let text = json!(failure).to_string();
            assert!(text.len() <= ANNOTATION, "a failure is noted in {} bytes", text.len());
            assert_eq!(flex_core::run::failure::LastFailure::read(&text).as_ref(), Some(&failure));
            claim.last_failure = Some(failure);
        }
        Step::MarkNodeClean { nodes_left } => {
            noted(&nodes_left);
            claim.nodes_with_storage = nodes_left;
        }
        Step::Reschedule { failure } => {
            claim.selected_node = None;
            claim.last_failure = failure.or(claim.last_failure.take());
        }
        _ => {}
    }
}

fn runs(
    claim: &Claim,
    recipe: &Recipe,
    operation: Operation,
    number: u32,
    ts: String,
    node: Option<String>,
    scope: &str,
) {
    let attempt = Attempt { number, ts, node: node.clone(), ..Attempt::default() };
    let request = request(operation, claim, recipe, &identity(), "https://api:443", attempt);
    let location = RunTarget {
        namespace: recipe.config.namespace.clone(),
        node: node.filter(|_| recipe.placement == Placement::SelectedNode),
        scope: scope.to_owned(),
        ..RunTarget::default()
    };
    check_job(&job(recipe, &request, &location), recipe, &request);
}
