//! PersistentVolumes that images create: only a volume that fits is bound, and a delete run is only for an adopted
//! volume.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use flex_contract::names;
use flex_core::claim::decide::{
    self, Candidate, ClassCertainty, ConfirmedFacts, Deletion, Nodes, Observed, PoolRelation, Preconditions,
    ServedClass, SourceRelation, Step, Volumes,
};
use flex_core::claim::nodes::NodeChoice;
use flex_core::claim::verify::mismatches;
use flex_core::config::classes::{BindingMode, Class};
use flex_core::config::{NodeGone, Recipe};
use flex_core::model::claim::{Binding, Claim, Stamp};
use flex_core::model::volume::{Provenance, Volume};
use flex_core::run::job::{RunTarget, job};
use flex_core::run::node::{NodeLabels, NodeState, NodeStates};
use flex_core::run::request::AttemptStart;
use flex_core::run::state::RunState;
use flex_core::volume::in_place_run::InPlaceRuns;
use flex_core::volume::observed::{self, ClaimState};
use flex_core::volume::request::request;
use flex_core::volume::{decide as of_volume, expand, modify, rule};
use flex_provisioner::api::events::event_note;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::draw::Draw;
use crate::world::{ANNOTATIONS, UID, check_job, check_request_size, identity, recipe};

const NOW: i64 = 1_800_000_000;

static RECIPES: LazyLock<Vec<Arc<Recipe>>> = LazyLock::new(|| {
    let large = "\u{1}".repeat(12_000);
    let keys: [&[(&str, &str)]; 4] = [
        &[],
        &[("volume-sources", "nfs, local:/data, hostPath:/a/b")],
        &[("placement", "any"), ("reclaim-policy", "Retain")],
        &[("a", &large), ("b", &large)],
    ];
    keys.iter().map(|keys| Arc::new(recipe(keys))).collect()
});

/// Reads a volume from JSON, or draws one.
pub fn check(data: &[u8]) {
    let draw = &mut Draw::new(data);
    let volume: PersistentVolume = match serde_json::from_slice(data) {
        Ok(volume) => volume,
        Err(_) => serde_json::from_value(drawn(draw)).expect("the value is a volume"),
    };
    let recipe = draw.pick(&[0, 1, 2, 3]);
    let recipe = RECIPES[recipe].clone();
    with_claim(&volume, &recipe, draw);
    without_claim(&volume, &recipe, draw);
}

fn source(draw: &mut Draw<'_>) -> (&'static str, Value) {
    let path = draw.text_or(&["/data/a", "/data", "/a/b/c", "/a/b/../c", "/database/a", "/data//a", "/a/b/"]);
    match draw.below(5) {
        0 => ("nfs", json!({ "server": draw.text_or(&["nas"]), "path": path })),
        1 => ("local", json!({ "path": path })),
        2 => ("hostPath", json!({ "path": path })),
        3 => (
            "csi",
            json!({ "driver": draw.text_or(&["csi.example"]), "volumeHandle": draw.text_or(&["h"]),
            "volumeAttributes": { "a": draw.text() } }),
        ),
        _ => ("iscsi", json!({ "targetPortal": draw.text(), "iqn": draw.text(), "lun": 0 })),
    }
}

fn drawn(draw: &mut Draw<'_>) -> Value {
    let right = format!("pvc-{UID}");
    let id: &[&str] = &[UID, UID, "other"];
    let mut volume = json!({
        "metadata": {
            "name": draw.pick(&[right.as_str(), right.as_str(), "vol-1"]), "uid": "v", "resourceVersion": "1",
            "annotations": { names::CLAIM_UID: draw.text_or(id) },
            "labels": { names::LABEL_INSTANCE: draw.text_or(&["default", "default"]) },
        },
        "spec": {
            "storageClassName": draw.text_or(&["silver"]),
            "capacity": { "storage": draw.text_or(&["1Gi", "2Gi", "1"]) },
            "accessModes": draw.texts(&["ReadWriteOnce"]),
            "persistentVolumeReclaimPolicy": draw.text_or(&["Delete", "Retain"]),
        },
        "status": { "phase": draw.text_or(&["Available", "Released", "Failed"]) },
    });
    for _ in 0..draw.pick(&[1, 1, 1, 0, 2]) {
        let (kind, source) = source(draw);
        volume["spec"][kind] = source;
    }
    for _ in 0..draw.below(6) {
        match draw.below(9) {
            0 => volume["metadata"]["annotations"][names::VOLUME_ID] = json!(draw.text_or(id)),
            1 => volume["metadata"]["annotations"][names::PROVENANCE] = json!(draw.text()),
            2 => volume["metadata"]["annotations"][draw.text()] = json!(draw.text()),
            3 => volume["metadata"]["annotations"][names::QUARANTINE] = json!(draw.text()),
            4 => volume["metadata"]["finalizers"] = json!([names::VOLUME_FINALIZER]),
            5 => volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            6 => {
                volume["spec"]["claimRef"] = json!({ "namespace": draw.text_or(&["team"]), "name": draw.text_or(&["data"]), "uid": draw.text_or(id) });
            }
            7 => {
                volume["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": draw.text_or(&["zone"]), "operator": draw.text_or(&["In", "Gt", "Exists"]), "values": draw.texts(&["a", "1"]) }
                ]}]}});
            }
            _ => {
                let id = draw.text_or(id);
                volume["metadata"]["name"] = json!(format!("pvc-{id}"));
                volume["metadata"]["annotations"][names::VOLUME_ID] = json!(id);
            }
        }
    }
    volume
}

fn claim(recipe: &Recipe) -> Claim {
    let claim = json!({
        "metadata": { "name": "data", "namespace": "team", "uid": UID, "resourceVersion": "1" },
        "spec": { "storageClassName": "silver", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } },
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("the value is a claim");
    let mut claim = Claim::from(&claim);
    let ts = "2026-01-01T00:00:00Z".into();
    claim.stamp = Some(Stamp { claim_uid: UID.into(), ts, attempt: 1, recipe_version: recipe.version(), batch: None });
    claim.held = true;
    claim
}

/// Decides about the volume with a claim that waits for it.
fn with_claim(object: &PersistentVolume, recipe: &Arc<Recipe>, draw: &mut Draw<'_>) {
    let volume = Volume::from(object);
    let claim = claim(recipe);
    let labels: BTreeMap<String, String> = [("zone".to_owned(), draw.text_or(&["a", "1"]))].into();
    let mismatches = mismatches(&volume, &claim, recipe, Some(NodeLabels { node: "node-1", labels: &labels }));
    if mismatches.is_empty() {
        fits(object, recipe);
    }
    let class = Class {
        name: "silver".into(),
        has_object: true,
        binding: BindingMode::Immediate,
        recipe: Ok(recipe.clone()),
        uid: String::new(),
        last_good: false,
        allowed: Default::default(),
        provisioner: identity().provisioner,
    };
    let observed = Observed {
        claim: &claim,
        class: ServedClass::Ours(&class),
        confirmed: ConfirmedFacts { fresh: true, no_volume: false },
        runs: decide::Runs {
            jobs: &[],
            state: RunState::MayBeRunning,
            recipe: Some(recipe),
            has_running_pods: true,
            never_started: false,
            removed: None,
            missed_batch: false,
            recorded: &decide::RecordedAttempts::default(),
        },
        deletion: Deletion { state: RunState::NotCached, job: None, recipe: Some(recipe) },
        volumes: Volumes {
            all: &[Candidate {
                volume: &volume,
                mismatches: &mismatches,
                reaching: &[],
                seen_by_probe: false,
                lacks_mark: false,
                other: volume.claim_ref_uid().filter(|uid| *uid != UID).map(|_| decide::OtherClaim::Has),
            }],
            reserved: None,
            binding: Binding::Direct,
            many_wait: false,
        },
        preconditions: Preconditions {
            class_certainty: ClassCertainty::Certain,
            has_revision: true,
            no_slot: None,
            quota_refusal: None,
            has_pending_charge: false,
            has_namesake: false,
            left_refusal: None,
            attributes_error: None,
        },
        nodes: Nodes {
            choice: &NodeChoice::default(),
            states: &NodeStates::default(),
            with_pods: &[],
            selected_forbidden: false,
        },
        source: SourceRelation { state: None, users: &[] },
        pool: PoolRelation::default(),
    };
    let decision = decide::decide(&observed, NOW);
    if let Some(note) = &decision.event {
        check_request_size(&event_note(&note.message), 1024);
    }
    match &decision.step {
        Step::Adopt { provenance, .. } => {
            assert!(mismatches.is_empty(), "{mismatches:?}");
            assert_eq!(
                provenance.effective_config, recipe.effective_config,
                "the provenance is not that of the attempt"
            );
            // The volume still fits after the adoption.
            let theirs = object.metadata.annotations.iter().flatten().filter(|(key, _)| !OWN.contains(&key.as_str()));
            let theirs: usize = theirs.map(|(key, value)| key.len() + value.len()).sum();
            let own = json!(provenance).to_string().len() + OWN.iter().map(|key| key.len() + 64).sum::<usize>();
            assert!(theirs + own <= ANNOTATIONS, "{theirs} and {own} bytes of annotations");
        }
        Step::Bind { .. } => {
            assert!(mismatches.is_empty(), "{mismatches:?}");
            assert!(volume.is_adopted(), "the volume was not adopted");
        }
        Step::Quarantine { why, .. } => {
            assert!(!mismatches.is_empty());
            check_request_size(why, 8 * 1024);
        }
        Step::RecordFailure { failure, .. } => check_request_size(&failure.message, 4096),
        _ => {}
    }
}

/// The orchestrator's annotations on a volume, which its adoption writes again.
const OWN: &[&str] = &[
    names::CLAIM_UID,
    names::VOLUME_ID,
    names::PROVENANCE,
    names::PROVISIONED_BY,
    names::BOUND_BY_CONTROLLER,
    names::QUARANTINE,
];

/// Checks again that a volume may be bound, independently of the product's code.
fn fits(object: &PersistentVolume, recipe: &Recipe) {
    let json = json!(object);
    let spec = &json["spec"];
    let name = format!("pvc-{UID}");
    assert_eq!(json["metadata"]["name"], json!(name));
    assert_eq!(spec["storageClassName"], json!("silver"));
    let size = spec["capacity"]["storage"].as_str().unwrap_or_default();
    assert!(flex_contract::quantity::bytes(size).is_ok_and(|size| size >= 1 << 30), "{size}");
    assert!(spec["accessModes"].as_array().is_some_and(|modes| modes.contains(&json!("ReadWriteOnce"))));
    let sources: Vec<&str> =
        ["nfs", "local", "hostPath", "csi", "iscsi"].into_iter().filter(|kind| !spec[kind].is_null()).collect();
    for (kind, prefix) in [("local", "/data/"), ("hostPath", "/a/b/")] {
        if let Some(path) = spec[kind]["path"].as_str() {
            assert!(!recipe.volume_sources.is_empty(), "{kind} is not allowed");
            assert!(path.starts_with(prefix) && path.len() > prefix.len(), "{path:?}");
            assert!(!path.split('/').any(|part| part == ".."), "{path:?}");
        }
    }
    assert!(sources.len() <= 1, "{sources:?}");
    if let Some(uid) = spec["claimRef"]["uid"].as_str() {
        assert!(uid.is_empty() || uid == UID, "{uid}");
    }
    assert!(json["metadata"]["annotations"][names::CLAIM_UID].as_str().is_none_or(|uid| uid == UID));
}

/// Returns runs without a Job, and maybe with a pod.
fn no_runs<'a>(has_running_pods: bool) -> InPlaceRuns<'a> {
    InPlaceRuns {
        all: &[],
        is_starting: false,
        has_running_pods,
        node_not_reachable: None,
        has_other_running_pods: false,
    }
}

/// Decides about the volume after its claim is gone.
fn without_claim(object: &PersistentVolume, recipe: &Arc<Recipe>, draw: &mut Draw<'_>) {
    let mut volume = Volume::from(object);
    let provenance = Provenance {
        effective_config: recipe.effective_config.clone(),
        origin_node: draw.pick(&[None, Some("node-1")]).map(str::to_owned),
        moved_in: None,
        cluster: None,
    };
    let forged = draw.chance();
    if !forged {
        let text = json!(provenance).to_string();
        volume.adoption_mark = Some(flex_core::model::volume::adoption_mark(&text, &volume.uid));
        volume.provenance = Some(text);
    }
    let known =
        if volume.is_adopted() { Ok(&**recipe) } else { Err("how the volume was made is not known".to_owned()) };
    assert!(!forged || !volume.is_adopted(), "an image wrote a provenance that counts");
    let node_states = NodeStates([("node-1".to_owned(), NodeState::Reachable)].into());
    let expand =
        expand::Observed { claim: None, recipe: known.clone(), runs: no_runs(draw.chance()), quota_refusal: None };
    let modify = modify::Observed {
        claim: None,
        recipe: known.clone(),
        requested_attributes: Err("the class does not exist".to_owned()),
        runs: no_runs(draw.chance()),
    };
    let observed = observed::Observed {
        volume: &volume,
        claim_state: draw.pick(&[
            ClaimState::NotFound,
            ClaimState::BoundToOtherVolume,
            ClaimState::NotCached,
            ClaimState::Alive,
            ClaimState::NoReference,
        ]),
        claim_was_bound: draw.below(8) == 7,
        recipe: known,
        has_running_provision_pods: draw.chance(),
        nodes_with_pods: &[],
        node_states: &node_states,
        origin_node: provenance.origin_node.as_deref(),
        other_node: None,
        node_gone_policy: NodeGone::Hold,
        delete_run_state: RunState::NotCached,
        delete_job: None,
        unwanted_job: None,
        expand,
        modify,
    };
    let decision = of_volume::decide(&observed, NOW);
    if let Some(note) = &decision.event {
        check_request_size(&event_note(&note.message), 1024);
    }
    if let rule::Step::StartDelete { attempt, node, .. } = decision.step {
        assert!(volume.is_adopted(), "an image decides which storage is deleted");
        assert_eq!(Some(volume.name.clone()), volume.volume_id().map(names::pv_name));
        let start = AttemptStart { attempt, ts: "2026-01-01T00:00:00.000000Z".to_owned() };
        let request = request(&volume, node.as_deref(), recipe, &identity(), "https://api:443", start, String::new());
        let location = RunTarget {
            namespace: "admin".into(),
            node,
            scope: volume.name.clone(),
            volume: Some(volume.name.clone()),
            allowed: Default::default(),
            content: None,
            attributes: None,
            without_account: false,
            is_first: false,
        };
        check_job(&job(recipe, &request, &location), recipe, &request);
    }
}
