//! The check of a config, which reports all its errors at once.

mod mounts;
mod pool;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::{names, parameter, quantity, request};

use super::record::Record;
use super::sidecar;
use super::slips::{misspelt, near_key};
use super::values::{backoff, duration, known_yaml, list, map, moment, refresh, source_rule, words};
use super::{Backoff, NodeGone, Placement, Problem, Recipe, Refresh, Share};
use crate::config::pool::Pool;
use crate::limits;
use crate::object::is_dns_name;

/// The keys that the orchestrator interprets. All other keys are parameters.
pub const KEYS: &[&str] = &[
    "plugin-name",
    "stands-for",
    "stands-for-namespace",
    "image",
    "command",
    "args",
    "image-pull-policy",
    "image-pull-secrets",
    "service-account-name",
    "service-token",
    "node-selector",
    "tolerations",
    "priority-class",
    "resources",
    "run-as-user",
    "placement",
    "volume-affinity",
    "node-gone",
    "secret-env",
    "secret-volume",
    "reclaim-policy",
    "access-modes",
    "volume-mode",
    "mount-options",
    "fs-type",
    "timeout",
    "retries",
    "backoff",
    "max-in-flight",
    "max-in-flight-per-namespace",
    "max-in-flight-per-node",
    "max-volumes",
    "max-volumes-per-namespace",
    "max-bytes",
    "max-bytes-per-namespace",
    "capacity-interval",
    "min-size",
    "max-size",
    "volume-sources",
    "volume-mount-options",
    "volume-finalizers",
    "volume-metadata",
    "secret-namespaces",
    "max-surplus",
    "claim-metadata",
    "capabilities",
    "batch-size",
    "batch-window",
    "pool",
    "pool-max-bytes",
    "pool-in-flight",
    "pod-template",
    "storage-mounts",
];

/// The keys, beside parameters, with which a StorageClass may override its config.
pub const CLASS_KEYS: &[&str] = &["fs-type", "min-size", "max-size"];

const ACCESS_MODES: &[&str] = &["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
const VOLUME_MODES: &[&str] = &["Filesystem", "Block"];
const CAPABILITIES: &[&str] = &["clone", "snapshot", "expand", "modify", "capacity", "batch", "pool", "list"];

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5 * 60);
const DEFAULT_BACKOFF: Backoff = Backoff { initial: Duration::from_secs(2), max: Duration::from_secs(5 * 60) };
const DEFAULT_RETRIES: u32 = 15;
const DEFAULT_MAX_IN_FLIGHT: usize = 100;
const DEFAULT_BATCH_WINDOW: Duration = Duration::from_millis(50);
const DEFAULT_CAPACITY_INTERVAL: Refresh =
    Refresh { pause: Duration::from_secs(10), interval: Duration::from_secs(30 * 60) };

/// A reader of values. It records an error and continues.
struct Reader<'a> {
    data: &'a BTreeMap<String, String>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn text(&self, key: &str) -> Option<&str> {
        self.data.get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn fail(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(key, message));
    }

    fn read<T>(&mut self, key: &str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.text(key)?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fail(key, message);
                None
            }
        }
    }

    fn names(&mut self, key: &str, what: &str) -> Vec<String> {
        self.read(key, |text| {
            let names = list(text)?;
            match names.iter().find(|name| !is_dns_name(name)) {
                Some(name) => Err(format!("`{name}` cannot be the name of a {what}")),
                None => Ok(names),
            }
        })
        .unwrap_or_default()
    }

    fn name(&mut self, key: &str, what: &str) -> Option<String> {
        self.read(key, |text| match is_dns_name(text) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` cannot be the name of a {what}")),
        })
    }

    fn one_of(&mut self, key: &str, allowed: &[&str], default: &str) -> String {
        self.read(key, |text| match allowed.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` is not known; write one of {}", allowed.join(", "))),
        })
        .unwrap_or_else(|| default.to_owned())
    }

    fn some_of(&mut self, key: &str, allowed: &[&str], default: &[&str]) -> Vec<String> {
        self.read(key, |text| {
            let chosen = list(text)?;
            match chosen.iter().find(|item| !allowed.contains(&item.as_str())) {
                Some(item) => Err(format!("`{item}` is not known; write some of {}", allowed.join(", "))),
                None if chosen.is_empty() => Err("it is empty; leave the key out instead".into()),
                None => Ok(chosen),
            }
        })
        .unwrap_or_else(|| default.iter().map(|item| (*item).to_owned()).collect())
    }
}

/// Checks the effective data of a class.
pub fn recipe(record: Record) -> Result<Recipe, Vec<Problem>> {
    bounded(&record)?;
    let data = record.data.clone();
    let mut reader = Reader { data: &data, problems: Vec::new() };
    let r = &mut reader;

    let _ = r.read(sidecar::KEY, driver);
    let _ = r.names(sidecar::NAMESPACE_KEY, "namespace");
    if r.text(sidecar::NAMESPACE_KEY).is_some() && r.text(sidecar::KEY).is_none() {
        r.fail(sidecar::NAMESPACE_KEY, "says where an external provisioner is, and the config stands for none; write `stands-for: DRIVER`, too, or remove it");
    }
    let image = r.read("image", image).unwrap_or_default();
    if r.text("image").is_none() {
        r.fail(
            "image",
            "is missing; name the image that makes the volumes, such as registry.example/team/provisioner:1.0",
        );
    }
    let recipe = Recipe {
        image,
        command: r.read("command", words).unwrap_or_default(),
        args: r.read("args", words).unwrap_or_default(),
        pull_policy: r
            .text("image-pull-policy")
            .is_some()
            .then(|| r.one_of("image-pull-policy", &["Always", "IfNotPresent", "Never"], "")),
        pull_secrets: r.names("image-pull-secrets", "Secret"),
        service_account: r.name("service-account-name", "ServiceAccount"),
        service_token: record.service_token,
        node_selector: r.read("node-selector", map).unwrap_or_default(),
        tolerations: r.read("tolerations", known_yaml).unwrap_or_default(),
        priority_class: r.name("priority-class", "PriorityClass"),
        resources: r.read("resources", known_yaml),
        run_as_user: r.read("run-as-user", |text| match text.parse::<i64>() {
            Ok(user) if (0..=i64::from(i32::MAX)).contains(&user) => Ok(user),
            _ => Err(format!("`{text}` is not a user id; write a number, \"0\" for root")),
        }),
        placement: match r.one_of("placement", &["selected-node", "any"], "selected-node").as_str() {
            "any" => Placement::Any,
            _ => Placement::SelectedNode,
        },
        volume_affinity: r.read("volume-affinity", label_keys).unwrap_or_default(),
        node_gone: match r.one_of("node-gone", &["hold", "forget", "run-elsewhere"], "hold").as_str() {
            "forget" => NodeGone::Forget,
            "run-elsewhere" => NodeGone::RunElsewhere,
            _ => NodeGone::Hold,
        },
        secret_env: r.names("secret-env", "Secret"),
        secret_volume: r.names("secret-volume", "Secret"),
        reclaim_policy: r.one_of("reclaim-policy", &["Delete", "Retain"], "Delete"),
        access_modes: r.some_of("access-modes", ACCESS_MODES, ACCESS_MODES),
        volume_modes: r.some_of("volume-mode", VOLUME_MODES, VOLUME_MODES),
        mount_options: r.read("mount-options", list).unwrap_or_default(),
        fs_type: r.read("fs-type", fs_type).unwrap_or_default(),
        timeout: r.read("timeout", duration).unwrap_or(DEFAULT_TIMEOUT),
        retries: r.read("retries", |text| number(text, 0, 1000)).map_or(DEFAULT_RETRIES, |n| n as u32),
        backoff: r.read("backoff", |text| backoff(text, DEFAULT_BACKOFF.max)).unwrap_or(DEFAULT_BACKOFF),
        max_in_flight: r
            .read("max-in-flight", |text| number(text, 1, 10_000))
            .map_or(DEFAULT_MAX_IN_FLIGHT, |n| n as usize),
        max_in_flight_per_namespace: r
            .read("max-in-flight-per-namespace", |text| number(text, 1, 10_000))
            .map(|n| n as usize),
        max_in_flight_per_node: r.read("max-in-flight-per-node", |text| number(text, 1, 10_000)).map(|n| n as usize),
        batch_size: r
            .read("batch-size", |text| number(text, 1, contract::batch::MOST as u64))
            .map_or(1, |n| n as usize),
        batch_window: r.read("batch-window", moment).unwrap_or(DEFAULT_BATCH_WINDOW),
        share: Share {
            volumes: r.read("max-volumes", |text| number(text, 0, 1_000_000)),
            bytes: r.read("max-bytes", size),
        },
        namespace_share: Share {
            volumes: r.read("max-volumes-per-namespace", |text| number(text, 0, 1_000_000)),
            bytes: r.read("max-bytes-per-namespace", size),
        },
        capacity_interval: r
            .read("capacity-interval", |text| refresh(text, DEFAULT_CAPACITY_INTERVAL.pause))
            .unwrap_or(DEFAULT_CAPACITY_INTERVAL),
        min_size: r.read("min-size", size),
        max_size: r.read("max-size", size),
        volume_sources: r
            .read("volume-sources", |text| list(text)?.iter().map(|rule| source_rule(rule)).collect())
            .unwrap_or_default(),
        volume_mount_options: r.read("volume-mount-options", list).unwrap_or_default(),
        volume_finalizers: r
            .read("volume-finalizers", |text| keys_of(text, "the name of a finalizer"))
            .unwrap_or_default(),
        volume_metadata: r
            .read("volume-metadata", |text| keys_of(text, "the key of a label or annotation"))
            .unwrap_or_default(),
        secret_namespaces: r.names("secret-namespaces", "namespace"),
        max_surplus: r.read("max-surplus", size),
        claim_metadata: r.read("claim-metadata", claim_metadata).unwrap_or_default(),
        capabilities: capabilities(r),
        pool: pool::pool(r),
        pod_template: r.read("pod-template", pod_template),
        storage_mounts: r.read(mounts::KEY, mounts::paths).unwrap_or_default(),
        parameters: BTreeMap::new(),
        config: record.config.clone(),
        class: record.class.clone(),
        hash: record.hash(),
        record,
    };
    if let (Some(min), Some(max)) = (recipe.min_size, recipe.max_size)
        && min > max
    {
        r.fail("min-size", "is larger than max-size; no claim could be served");
    }
    if recipe.max_in_flight_per_node.is_some() && recipe.placement != Placement::SelectedNode {
        r.fail("max-in-flight-per-node", "counts runs that must be on one node, and those of this config may be on any: set `placement: selected-node`, or leave it out");
    }
    // A template with errors has its own problem, and nothing is added here.
    if recipe.pod_template.is_some() || r.text("pod-template").is_none() {
        mounts::check(r, &recipe);
    }
    if let Some(pool) = &recipe.pool {
        pool::check(r, &recipe, pool);
    }
    let parameters = parameters(r, &recipe.record.parameters);
    match reader.problems {
        problems if problems.is_empty() => {
            let kind = recipe.record.kind();
            let pool = recipe.pool.map(|pool| Pool { kind, ..pool });
            Ok(Recipe { parameters, pool, ..recipe })
        }
        mut problems => {
            problems.sort();
            Err(problems)
        }
    }
}

/// Refuses data that no pod or volume can carry, without any further check.
fn bounded(record: &Record) -> Result<(), Vec<Problem>> {
    let whole = |message: String| Err(vec![Problem::new("", message)]);
    let (all, count) = (|| record.data.iter().chain(&record.parameters), record.data.len() + record.parameters.len());
    if count > limits::KEYS {
        return whole(format!("has {count} keys, those of the StorageClass included; {} are possible", limits::KEYS));
    }
    if let Some((key, _)) = all().find(|(_, value)| value.contains('\0')) {
        let message = "has a zero byte, which neither an environment variable nor a command can carry";
        return Err(vec![Problem::new(key.clone(), message)]);
    }
    let long = all().filter(|(_, value)| value.len() > limits::VALUE);
    let problems: Vec<_> = long
        .map(|(key, value)| {
            Problem::new(key.clone(), format!("is {} bytes long; a value may have {}", value.len(), limits::VALUE))
        })
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let bytes = serde_json::json!(record).to_string().len();
    if bytes > limits::RECIPE {
        return whole(format!(
            "is {bytes} bytes long as JSON, the parameters of the StorageClass included; {} have room on a volume, which keeps them for its deletion",
            limits::RECIPE
        ));
    }
    Ok(())
}

/// Reads the operations that the image can do beside provision and delete.
fn capabilities(r: &mut Reader<'_>) -> Vec<String> {
    let declared = r.read("capabilities", |text| {
        let chosen = list(text)?;
        match chosen.iter().find(|item| !CAPABILITIES.contains(&item.as_str())) {
            Some(item) => Err(format!("`{item}` is no capability; known are {}", CAPABILITIES.join(", "))),
            None => Ok(chosen),
        }
    });
    declared.unwrap_or_default()
}

/// Returns the parameters: the unknown keys, overridden by those that stand in a place for parameters. Checks their
/// names, each by itself and all against each other.
fn parameters(r: &mut Reader<'_>, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let unknown = r.data.iter().filter(|(key, _)| !KEYS.contains(&key.as_str()));
    let parameters: BTreeMap<String, String> =
        unknown.chain(given).map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut by_env: BTreeMap<String, &str> = BTreeMap::new();
    for name in parameters.keys() {
        if let Err(error) = parameter::check_name(name, request::is_reserved) {
            // The advice of a name for a parameter misleads somebody who meant a key.
            let near = near_key(name).filter(|_| !given.contains_key(name));
            let message = near.map(|key| format!("is no key; did you mean `{key}`?")).unwrap_or(error.to_string());
            r.problems.push(Problem::new(name.clone(), message));
        }
        if let Some(near) = misspelt(name).filter(|_| !given.contains_key(name)) {
            r.problems.push(Problem::new(
                name.clone(),
                format!("is no key, but reads like `{near}`; a parameter needs a name that cannot be mistaken"),
            ));
        }
        if let Some(other) = by_env.insert(parameter::env_name(name), name) {
            let env = parameter::env_name(name);
            r.problems.push(Problem::new(
                name.clone(),
                format!("`{other}` and `{name}` would both become the environment variable {env}; rename one, such as my-{name}"),
            ));
        }
    }
    parameters
}

fn image(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/' | ':' | '@' | '+');
    match text.chars().all(legal) && text.len() <= 500 && !text.ends_with([':', '/', '@']) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` is not the name of an image; write for example registry.example/team/provisioner:1.0"
        )),
    }
}

/// Reads the name of a CSI driver, which may be as long as that of a provisioner.
fn driver(text: &str) -> Result<String, String> {
    match is_dns_name(text) && text.len() <= 63 {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` cannot be the name of a CSI driver; write for example hostpath.csi.k8s.io")),
    }
}

fn fs_type(text: &str) -> Result<String, String> {
    match text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && text.len() <= 16 {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a file system; write for example ext4 or xfs")),
    }
}

fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` must be a whole number from {min} to {max}")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    quantity::bytes(text).map_err(|error| error.to_string())
}

/// Reads a list of label keys of nodes.
fn label_keys(text: &str) -> Result<Vec<String>, String> {
    let name = |name: &str| {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        name.len() <= 63 && name.chars().all(legal) && edge(name.chars().next()) && edge(name.chars().last())
    };
    let is_key = |key: &str| match key.split_once('/') {
        Some((prefix, rest)) => is_dns_name(prefix) && name(rest),
        None => name(key),
    };
    let keys = list(text)?;
    match keys.iter().find(|key| !is_key(key)) {
        Some(key) => Err(format!("`{key}` cannot be the key of a label, such as topology.kubernetes.io/zone")),
        None => Ok(keys),
    }
}

fn claim_metadata(text: &str) -> Result<Vec<String>, String> {
    keys_of(text, "the key of a label or annotation")
}

/// Reads keys of labels or annotations, or names of finalizers, which all consist of the same characters.
fn keys_of(text: &str, what: &str) -> Result<Vec<String>, String> {
    let keys = list(text)?;
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    match keys.iter().find(|key| key.is_empty() || key.len() > 317 || !key.chars().all(legal)) {
        Some(key) => Err(format!("`{key}` cannot be {what}")),
        None => Ok(keys),
    }
}

fn pod_template(text: &str) -> Result<k8s_openapi::api::core::v1::PodTemplateSpec, String> {
    let template: k8s_openapi::api::core::v1::PodTemplateSpec = known_yaml(text)?;
    if template.spec.is_none() && template.metadata.is_none() {
        return Err(
            "has neither `spec:` nor `metadata:` at its top; it is a pod template, so begin with `spec:`".into()
        );
    }
    if let Some(spec) = &template.spec {
        let main: Vec<_> = spec.containers.iter().filter(|c| c.name == names::CONTAINER).collect();
        if main.iter().any(|container| container.image.is_some()) {
            return Err("sets the image of the container `provisioner`; use the key `image`".into());
        }
        if spec.init_containers.iter().flatten().any(|c| c.name == names::CONTAINER) {
            return Err(
                "has an init container called `provisioner`; only the one that runs the image is called so".into()
            );
        }
        if main.len() > 1 {
            return Err("has several containers called `provisioner`; write one".into());
        }
        if spec.containers.iter().any(|c| c.name.is_empty()) {
            return Err("has a container without a name; the one that runs the image is called `provisioner`".into());
        }
        if spec.containers.iter().any(|c| c.name != names::CONTAINER) {
            return Err("has a second container, which would keep the pod from ending; write it under `initContainers` with `restartPolicy: Always` (a sidecar)".into());
        }
        if spec.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
            return Err("sets restartPolicy; retries are the orchestrator's, remove it".into());
        }
        if spec.node_name.is_some() {
            return Err("sets nodeName; use the key `node-selector`".into());
        }
        each_once("volumes", "name", spec.volumes.iter().flatten().map(|volume| &volume.name))?;
        for container in main {
            each_once("env", "name", container.env.iter().flatten().map(|variable| &variable.name))?;
            each_once(
                "volumeMounts",
                "mountPath",
                container.volume_mounts.iter().flatten().map(|mount| &mount.mount_path),
            )?;
        }
    }
    Ok(template)
}

/// Checks that each entry of a list has the field by which it is known. No two entries may have the same value.
fn each_once<'a>(list: &str, field: &str, keys: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for key in keys {
        if key.is_empty() {
            return Err(format!("has an entry of `{list}` without `{field}`; write one, or remove the entry"));
        }
        if !seen.insert(key) {
            return Err(format!("has two entries of `{list}` with `{field}: {key}`; keep one"));
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
