//! Pod templates of admins, merged under the generated pod.

use flex_contract::operation::Operation;
use flex_core::claim::request::{Attempt, request};
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use flex_core::run::job::{RunTarget, job};
use serde_json::{Map, Value, json};

use crate::draw::Draw;
use crate::world::{UID, check_job, check_request_size, identity, reads_back};

/// Field names of pods, so that random trees are sometimes pods.
const FIELDS: &[&str] = &[
    "spec",
    "metadata",
    "containers",
    "name",
    "initContainers",
    "env",
    "value",
    "valueFrom",
    "fieldRef",
    "fieldPath",
    "secretKeyRef",
    "key",
    "volumes",
    "hostPath",
    "path",
    "projected",
    "sources",
    "downwardAPI",
    "items",
    "volumeMounts",
    "mountPath",
    "labels",
    "annotations",
    "securityContext",
    "runAsUser",
    "runAsNonRoot",
    "privileged",
    "capabilities",
    "add",
    "drop",
    "affinity",
    "nodeAffinity",
    "requiredDuringSchedulingIgnoredDuringExecution",
    "nodeSelectorTerms",
    "matchExpressions",
    "matchFields",
    "operator",
    "values",
    "tolerations",
    "effect",
    "restartPolicy",
    "serviceAccountName",
    "nodeName",
    "nodeSelector",
    "image",
    "command",
    "args",
    "envFrom",
    "secretRef",
    "resources",
    "limits",
    "flex-provisioner.io/claim-uuid",
    "flex-provisioner.io/p0",
    "flex-provisioner.io/instance",
    "terminationGracePeriodSeconds",
    "hostNetwork",
    "hostAliases",
    "ip",
    "hostnames",
    "topologySpreadConstraints",
    "imagePullSecrets",
    "finalizers",
    "generateName",
    "namespace",
];

/// Values of such fields.
const TEXTS: &[&str] = &[
    "provisioner",
    "flex-properties",
    "flex-secret-0",
    "/etc/flex",
    "SIZE",
    "CLAIM_UUID",
    "PATH",
    "Never",
    "Always",
    "OnFailure",
    "In",
    "Exists",
    "metadata.name",
    "ALL",
    "SYS_ADMIN",
    "other",
    "$(SIZE)",
];

/// Reads YAML as an admin writes it, or draws a tree that looks like a pod.
pub fn check(data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(text) if text.starts_with("spec") || text.starts_with("metadata") => template(text),
        _ => {
            let draw = &mut Draw::new(data);
            let mut tree = tree(draw, 0);
            if draw.chance() {
                let container = tree_of_container(draw);
                tree = json!({ "spec": { "containers": [container] }, "metadata": tree });
            }
            template(&tree.to_string());
        }
    }
}

fn tree_of_container(draw: &mut Draw<'_>) -> Value {
    let mut container = object(draw, 2);
    container.insert("name".into(), "provisioner".into());
    Value::Object(container)
}

fn object(draw: &mut Draw<'_>, depth: usize) -> Map<String, Value> {
    (0..draw.below(6)).map(|_| (draw.text_or(FIELDS), tree(draw, depth + 1))).collect()
}

fn tree(draw: &mut Draw<'_>, depth: usize) -> Value {
    match draw.below(if depth < 8 { 8 } else { 4 }) {
        0 => Value::String(draw.text_or(TEXTS)),
        1 => json!(draw.number()),
        2 => Value::Bool(draw.chance()),
        3 => Value::Null,
        4 | 5 => Value::Array((0..draw.below(4)).map(|_| tree(draw, depth + 1)).collect()),
        _ => Value::Object(object(draw, depth)),
    }
}

fn template(text: &str) {
    let data = [
        ("image", "registry.example/image:1"),
        ("command", "/provision --fast"),
        ("service-account-name", "account"),
        ("secret-volume", "a, b"),
        ("zone", "west"),
        ("pod-template", text),
    ];
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = ObjectName::new("admin", "silver");
    let recipe = match (EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }).recipe()
    {
        Ok(recipe) => recipe,
        Err(problems) => {
            for problem in problems {
                assert_eq!(problem.key, "pod-template", "{problem}");
                check_request_size(&problem.to_string(), 2048);
            }
            return;
        }
    };
    let claim = json!({
        "metadata": { "name": "data", "namespace": "team", "uid": UID },
        "spec": { "storageClassName": "silver", "resources": { "requests": { "storage": "1Gi" } } },
    });
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim =
        serde_json::from_value(claim).expect("the value is a claim");
    for node in [None, Some("node-1".to_owned())] {
        let attempt = Attempt { number: 1, ts: "2026-01-01T00:00:00Z".into(), ..Attempt::default() };
        let request =
            request(Operation::Provision, &Claim::from(&claim), &recipe, &identity(), "https://api:443", attempt);
        let location = RunTarget { namespace: "admin".into(), node: node.clone(), ..RunTarget::default() };
        let job = job(&recipe, &request, &location);
        if text.contains(crate::draw::MARKER) {
            // The admin's own text is where the admin wrote it.
            reads_back(&job);
        } else {
            check_job(&job, &recipe, &request);
        }
        keeps_own_parts(&job, &recipe, node.as_deref());
    }
}

/// Checks the parts of the pod that no template may change.
fn keeps_own_parts(job: &k8s_openapi::api::batch::v1::Job, recipe: &flex_core::config::Recipe, node: Option<&str>) {
    let spec = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("the pod has a spec");
    let volumes: Vec<_> = spec.volumes.iter().flatten().filter(|volume| volume.name.starts_with("flex-")).collect();
    assert_eq!(volumes.iter().filter(|volume| volume.name == "flex-properties").count(), 1);
    for (n, secret) in recipe.secret_volume.iter().enumerate() {
        let name = format!("flex-secret-{n}");
        let found: Vec<_> = volumes.iter().filter(|volume| volume.name == name).collect();
        let [volume] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(volume.secret.as_ref().and_then(|source| source.secret_name.as_ref()), Some(secret));
    }
    let mounts = spec.containers[0].volume_mounts.clone().unwrap_or_default();
    assert_eq!(mounts.iter().filter(|mount| mount.mount_path == "/etc/flex").count(), 1);
    assert!(mounts.iter().all(|mount| mount.mount_path != "/etc/flex" || mount.name == "flex-properties"));
    let labels = job.metadata.labels.clone().unwrap_or_default();
    assert_eq!(labels.get(flex_contract::names::LABEL_VOLUME_ID).map(String::as_str), Some(UID));
    if let Some(node) = node {
        let required = spec.affinity.as_ref().and_then(|affinity| {
            affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
        });
        let terms = &required.expect("the node is required").node_selector_terms;
        assert!(!terms.is_empty(), "no node is allowed");
        for term in terms {
            let on_node = term
                .match_fields
                .iter()
                .flatten()
                .any(|field| field.key == "metadata.name" && field.values.as_deref() == Some(&[node.to_owned()]));
            assert!(on_node, "{term:?} is for other nodes too");
        }
    }
}
