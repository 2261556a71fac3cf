//! Provisioner ConfigMaps with their StorageClass: checked, reported, and made into Jobs, with the words of users and
//! images.

use std::collections::BTreeMap;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::claim::request::{Attempt, request};
use flex_core::config::classes::{BindingMode, ClassLookup, ClassObject, Config, classes};
use flex_core::config::document::{self, Document};
use flex_core::config::external_provisioner::ExternalProvisioners;
use flex_core::config::{Recipe, keys};
use flex_core::model::claim::Claim;
use flex_core::model::volume::{Provenance, Volume};
use flex_core::object::ObjectName;
use flex_core::run::job::{RunTarget, job};
use flex_core::run::request::AttemptStart;
use flex_core::volume::request as of_volume;
use flex_provisioner::api::events::event_note;
use flex_provisioner::reconcile::config::annotation;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use crate::draw::{Draw, MARKER};
use crate::world::{UID, check_job, check_request_size, identity, reads_back};

/// The limit of a verdict on a ConfigMap.
const VERDICT: usize = 20 * 1024;
/// The limit of a provenance, which leaves space on a volume for the annotations of its image.
const PROVENANCE: usize = 164 * 1024;

/// Values that are valid for some key.
const VALUES: &[(&str, &[&str])] = &[
    ("plugin-name", &["kubernetes.io/flex-provisioner"]),
    ("image", &["registry.example/image:1", "a", "a@sha256:0"]),
    ("command", &["[sh, -c, 'echo $A']", "/provision --fast", "- a\n- b"]),
    ("args", &["[\"$(A)\", $$]", "a b"]),
    ("image-pull-policy", &["Always"]),
    ("image-pull-secrets", &["a, b", "[a]"]),
    ("service-account-name", &["account"]),
    ("service-token", &["secret"]),
    ("node-selector", &["a=b,c=d", "a: b"]),
    ("tolerations", &["[{key: a, operator: Exists}]"]),
    ("priority-class", &["high"]),
    ("resources", &["{limits: {memory: 1Gi}}"]),
    ("run-as-user", &["0", "1000", "any"]),
    ("placement", &["any", "selected-node"]),
    ("node-gone", &["forget", "hold"]),
    ("secret-env", &["a", "[a, b]"]),
    ("secret-volume", &["a, b"]),
    ("reclaim-policy", &["Retain", "Delete"]),
    ("access-modes", &["ReadWriteOnce", "[ReadWriteMany]"]),
    ("volume-mode", &["Filesystem", "Block"]),
    ("mount-options", &["noatime, nfsvers=4.1", "[a]"]),
    ("fs-type", &["ext4"]),
    ("timeout", &["90s", "1h30m"]),
    ("retries", &["0", "1000"]),
    ("backoff", &["5s..10m", "1s"]),
    ("max-in-flight", &["1"]),
    ("min-size", &["1Mi"]),
    ("max-size", &["1Ti", "1e3"]),
    ("namespaces", &["team-a, b", "[a]"]),
    ("namespace-selector", &["tier=gold, a/b in (c, d), !e"]),
    ("volume-sources", &["nfs, local:/data", "hostPath:/a/b"]),
    ("claim-metadata", &["a.example/b, c", "team"]),
    ("capabilities", &["[]", "clone"]),
    ("pool", &["1"]),
    ("pod-template", &["spec: {priority: 1}", "metadata: {annotations: {a: b}, labels: {c: d}}"]),
    ("zone", &["west", "$(HOME)", "a,b"]),
    ("use-nfs-server", &["10.10.2.4"]),
    ("a/b", &["1"]),
    ("a_b", &["2"]),
    ("size", &["1"]),
    ("path", &["/bin"]),
    ("nodeSelector", &["a"]),
];

/// Reads a file as an admin writes it, or draws keys and values of all kinds.
pub fn check(data: &[u8]) {
    match std::str::from_utf8(data) {
        Ok(text) if text.starts_with("apiVersion") => file(text),
        _ => drawn(&mut Draw::new(data)),
    }
}

fn file(text: &str) {
    let document::Documents { read: documents, unreadable } = document::read(text);
    // A carriage return ends a line of YAML, with a line feed and without.
    let lines = text.replace("\r\n", "\n").replace('\r', "\n").lines().count() as u64;
    for error in unreadable {
        assert!(!error.problem.message.is_empty());
        assert!((1..=lines + 1).contains(&error.line), "line {} of {lines}", error.line);
    }
    for document in documents {
        if let Document::Config(map, keys) = document {
            for key in map.data.iter().flat_map(BTreeMap::keys) {
                assert!((1..=lines).contains(&keys.of(key)), "{key:?} is in line {}", keys.of(key));
            }
            let config = Config::from(&*map);
            let name = ObjectName::new("admin", "silver");
            let config = Config { name, class: Some("silver".into()), ..config };
            serves(&config, None, &mut Draw::new(text.as_bytes()));
        }
    }
}

fn drawn(draw: &mut Draw<'_>) {
    let mut data = BTreeMap::new();
    for (key, value) in [VALUES[0], VALUES[1]] {
        data.insert(key.to_owned(), value[0].to_owned());
    }
    for _ in 0..draw.below(12) {
        pair(draw, &mut data);
    }
    if draw.below(8) == 7 {
        let (count, value) = (draw.pick(&[100, 300, 3000]), draw.text_or(&["a"]));
        data.extend((0..count).map(|n| (format!("key-{n}"), value.chars().take(2000).collect())));
    }
    let mut parameters = BTreeMap::new();
    for _ in 0..draw.below(4) {
        pair(draw, &mut parameters);
    }
    let object = draw.chance().then(|| ClassObject {
        allowed: Default::default(),
        name: "silver".into(),
        provisioner: identity().provisioner,
        parameters,
        uid: String::new(),
        allow_expansion: draw.chance(),
        reclaim_policy: draw.pick(&["Delete", "Retain"]).into(),
        mount_options: draw.texts(&["noatime"]),
        binding: draw.pick(&[BindingMode::Immediate, BindingMode::WaitForFirstConsumer]),
    });
    let name = ObjectName::new("admin", "silver");
    let config = Config { name, class: Some("silver".into()), data, ..Config::default() };
    serves(&config, object.as_ref(), draw);
}

fn pair(draw: &mut Draw<'_>, data: &mut BTreeMap<String, String>) {
    let (key, values) = draw.pick(VALUES);
    let key = if draw.below(10) == 9 { draw.text() } else { key.to_owned() };
    data.insert(key, draw.text_or(values));
}

/// Checks a config as the orchestrator does, and renders Jobs if the config serves its class.
fn serves(config: &Config, object: Option<&ClassObject>, draw: &mut Draw<'_>) {
    let identity = identity();
    let table = classes(&identity, [config], object, &BTreeMap::new(), &ExternalProvisioners::none());
    let Some(verdict) = table.verdicts.get(&config.name) else {
        assert_ne!(config.data.get("plugin-name").map(|name| name.trim()), Some(identity.plugin.as_str()));
        return;
    };
    for problem in &verdict.problems {
        let known = problem.key.is_empty() || config.data.contains_key(&problem.key) || keys::is_key(&problem.key);
        assert!(known && !problem.message.is_empty(), "{problem:?}");
        check_request_size(&problem.to_string(), 2048);
    }
    let message = annotation(verdict);
    check_request_size(&message, VERDICT);
    check_request_size(&event_note(&message), 1024);
    let ClassLookup::Ours(class) = table.lookup("silver") else { panic!("the class is not known") };
    match &class.recipe {
        Ok(recipe) => {
            assert!(verdict.problems.is_empty(), "{:?}", verdict.problems);
            check_record(recipe);
            renders(recipe, draw);
        }
        Err(why) => {
            assert!(!verdict.problems.is_empty() || object.is_some(), "the verdict has no reason");
            check_request_size(&event_note(why), 1024);
        }
    }
}

/// Checks that a recipe equals that of its effective config, and fits on a volume.
fn check_record(recipe: &Recipe) {
    let text = json!(recipe.effective_config).to_string();
    let effective_config: flex_core::config::effective_config::EffectiveConfig =
        serde_json::from_str(&text).expect("the effective config was written");
    assert_eq!(effective_config.recipe().as_ref(), Ok(recipe));
    assert_eq!(effective_config.version(), recipe.version());
    assert!(!text.contains("service-token"), "the token is recorded");
    let provenance = json!(Provenance {
        effective_config,
        origin_node: Some("n".repeat(253)),
        moved_in: None,
        cluster: None,
        others: Vec::new()
    })
    .to_string();
    assert!(provenance.len() <= PROVENANCE, "the provenance has {} bytes", provenance.len());
}

/// Renders the Job that makes the volume of a claim, and the Job that deletes a volume.
fn renders(recipe: &Recipe, draw: &mut Draw<'_>) {
    let long = "b".repeat(10_000);
    let claim = json!({
        "metadata": {
            "name": "data", "namespace": "team", "uid": UID,
            "annotations": {
                "a.example/b": draw.text_or(&[long.as_str()]), "c": draw.text_or(&["d"]), "team": "e",
                names::CREATED_BY: draw.text_or(&["tom"]), names::CREATED_BY_GROUPS: draw.text_or(&["a,b"]),
                names::SELECTED_NODE: draw.text_or(&["node-1"]),
            },
        },
        "spec": {
            "accessModes": recipe.access_modes, "storageClassName": "silver", "volumeMode": recipe.volume_modes[0].as_str(),
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("the value is a claim");
    let claim = Claim::from(&claim);
    let (ts, node) = ("2026-01-01T00:00:00Z".to_owned(), claim.selected_node.clone());
    let target = RunTarget { namespace: recipe.config.namespace.clone(), node: node.clone(), ..RunTarget::default() };
    let attempt = Attempt { number: 1, ts: ts.clone(), node, ..Attempt::default() };
    let provision = request(Operation::Provision, &claim, recipe, &identity(), "https://api:443", attempt);
    runs(recipe, &provision, &target);

    let name = names::pv_name(UID);
    let volume = json!({
        "metadata": { "name": name, "annotations": { names::VOLUME_ID: UID } },
        "spec": {
            "storageClassName": draw.text_or(&["silver"]),
            "claimRef": {
                "namespace": draw.text_or(&["team"]), "name": draw.text_or(&["data"]), "uid": draw.text_or(&[UID]),
            },
        },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).expect("the value is a volume");
    let (volume, start) = (Volume::from(&volume), AttemptStart { attempt: 1, ts });
    let delete = of_volume::request(&volume, None, recipe, &identity(), "https://api:443", start, String::new());
    runs(recipe, &delete, &RunTarget { scope: name.clone(), volume: Some(name), ..target });
}

/// Renders and checks the Job of a run.
fn runs(recipe: &Recipe, request: &RunRequest, target: &RunTarget) {
    let job = job(recipe, request, target);
    // Admins mean text elsewhere than in parameters to have an effect.
    let has_effect = |key: &String| keys::is_key(key) && key != "mount-options";
    match recipe.effective_config.data.iter().all(|(key, value)| !has_effect(key) || !value.contains(MARKER)) {
        true => check_job(&job, recipe, request),
        false => reads_back(&job),
    }
}
