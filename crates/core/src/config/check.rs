//! The check of a config, which reports all its errors at once.

mod mounts;
mod pool;
mod program;
mod reader;
mod resources;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use flex_contract::{batch, names, parameter, request};

use self::reader::Reader;
use super::capability;
use super::effective_config::EffectiveConfig;
use super::file_names::volume_problem;
use super::former_deployment;
use super::keys::{self, KeySpec};
use super::namespaces::{ServedNamespaces, selector};
use super::spelling::{misspelt, near_key};
use super::values::{backoff, duration, known_yaml, list, map, moment, number, refresh, size, source_rule, words};
use super::{Backoff, NodeGone, Placement, Problem, Quota, Recipe, Refresh, RunAsUser, SourceRule};
use crate::config::pool::Pool;
use crate::limits;
use crate::object::{is_label_key, is_provisioner_name};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5 * 60);
const DEFAULT_BACKOFF: Backoff = Backoff { initial: Duration::from_secs(2), max: Duration::from_secs(5 * 60) };
const DEFAULT_RETRIES: u32 = 15;
const DEFAULT_MAX_IN_FLIGHT: usize = 100;
/// The largest number of slots that a key may give.
const MAX_SLOTS: usize = 10_000;
const DEFAULT_BATCH_WINDOW: Duration = Duration::from_millis(50);
const DEFAULT_CAPACITY_INTERVAL: Refresh =
    Refresh { min_delay: Duration::from_secs(10), interval: Duration::from_secs(30 * 60) };

/// Checks the effective data of a class, and returns its recipe.
pub fn parse(effective_config: EffectiveConfig) -> Result<Recipe, Vec<Problem>> {
    bounded(&effective_config)?;
    let data = effective_config.data.clone();
    let mut reader = Reader { data: &data, problems: Vec::new() };
    check_replaced_provisioner(&mut reader);
    let recipe = read(&mut reader, effective_config);
    check_together(&mut reader, &recipe);
    let parameters = parameters(&mut reader, &recipe.effective_config.parameters);
    match reader.problems {
        problems if problems.is_empty() => {
            let hash = recipe.effective_config.pool_hash();
            let pool = recipe.pool.map(|pool| Pool { hash, ..pool });
            Ok(Recipe { parameters, pool, ..recipe })
        }
        mut problems => {
            problems.sort();
            Err(problems)
        }
    }
}

/// Checks the keys about an external provisioner, which concern no run and are thus not in the recipe.
fn check_replaced_provisioner(r: &mut Reader<'_>) {
    let _ = r.read(&keys::REPLACES_PROVISIONER, driver);
    let _ = r.names(&keys::REPLACES_PROVISIONER_NAMESPACE, "namespace");
    let _ = r.read(&keys::REPLACES_DEPLOYMENT, former_deployment::read);
    if r.text(&keys::REPLACES_DEPLOYMENT).is_some() && r.text(&keys::REPLACES_PROVISIONER).is_none() {
        r.fail(&keys::REPLACES_DEPLOYMENT, "says where another provisioner is, but the config replaces none; write `replaces-provisioner`, too, or remove this key");
    }
    if r.text(&keys::REPLACES_PROVISIONER_NAMESPACE).is_some() && r.text(&keys::REPLACES_PROVISIONER).is_none() {
        r.fail(&keys::REPLACES_PROVISIONER_NAMESPACE, "says where an external provisioner is, but the config replaces none; write `replaces-provisioner: DRIVER`, too, or remove this key");
    }
}

/// Reads each key by itself. Leaves the parameters out, because they have no keys.
fn read(r: &mut Reader<'_>, effective_config: EffectiveConfig) -> Recipe {
    Recipe {
        image: required_image(r, effective_config.script.is_some()),
        script: effective_config.script.clone(),
        command: r.read(&keys::COMMAND, words).unwrap_or_default(),
        args: r.read(&keys::ARGS, words).unwrap_or_default(),
        pull_policy: pull_policy(r),
        pull_secrets: r.names(&keys::IMAGE_PULL_SECRETS, "Secret"),
        service_account: r.name(&keys::SERVICE_ACCOUNT_NAME, "ServiceAccount"),
        service_token: effective_config.service_token,
        node_selector: r.read(&keys::NODE_SELECTOR, map).unwrap_or_default(),
        tolerations: r.read(&keys::TOLERATIONS, known_yaml).unwrap_or_default(),
        priority_class: r.name(&keys::PRIORITY_CLASS, "PriorityClass"),
        resources: r.read(&keys::RESOURCES, resources::resources),
        run_as_user: r.read(&keys::RUN_AS_USER, run_as_user),
        placement: placement(r),
        volume_affinity: r.read(&keys::VOLUME_AFFINITY, label_keys).unwrap_or_default(),
        node_gone: node_gone(r),
        secret_env: r.names(&keys::SECRET_ENV, "Secret"),
        secret_volume: r.names(&keys::SECRET_VOLUME, "Secret"),
        reclaim_policy: r.one_of(&keys::RECLAIM_POLICY, "Delete").as_str().into(),
        access_modes: r.some_of(&keys::ACCESS_MODES, keys::ACCESS_MODES.form.words()),
        volume_modes: r.some_of(&keys::VOLUME_MODE, &["Filesystem"]).iter().map(|mode| mode.as_str().into()).collect(),
        mount_options: r.read(&keys::MOUNT_OPTIONS, list).unwrap_or_default(),
        fs_type: r.read(&keys::FS_TYPE, fs_type).unwrap_or_default(),
        timeout: r.read(&keys::TIMEOUT, duration).unwrap_or(DEFAULT_TIMEOUT),
        retries: r.read(&keys::RETRIES, |text| number(text, 0, 1000)).map_or(DEFAULT_RETRIES, |n| n as u32),
        backoff: r.read(&keys::BACKOFF, |text| backoff(text, DEFAULT_BACKOFF.max)).unwrap_or(DEFAULT_BACKOFF),
        max_in_flight: r.count(&keys::MAX_IN_FLIGHT, MAX_SLOTS).unwrap_or(DEFAULT_MAX_IN_FLIGHT),
        max_in_flight_per_namespace: r.count(&keys::MAX_IN_FLIGHT_PER_NAMESPACE, MAX_SLOTS),
        max_in_flight_per_node: r.count(&keys::MAX_IN_FLIGHT_PER_NODE, MAX_SLOTS),
        batch_size: r.count(&keys::BATCH_SIZE, batch::MAX_MEMBERS).unwrap_or(1),
        batch_window: r.read(&keys::BATCH_WINDOW, moment).unwrap_or(DEFAULT_BATCH_WINDOW),
        quota: quota(r, &keys::MAX_VOLUMES, &keys::MAX_BYTES),
        namespace_quota: quota(r, &keys::MAX_VOLUMES_PER_NAMESPACE, &keys::MAX_BYTES_PER_NAMESPACE),
        capacity_interval: r.read(&keys::CAPACITY_INTERVAL, capacity_interval).unwrap_or(DEFAULT_CAPACITY_INTERVAL),
        min_size: r.read(&keys::MIN_SIZE, size),
        max_size: r.read(&keys::MAX_SIZE, size),
        namespaces: namespaces(r),
        volume_sources: r.read(&keys::VOLUME_SOURCES, source_rules).unwrap_or_default(),
        volume_mount_options: r.read(&keys::VOLUME_MOUNT_OPTIONS, list).unwrap_or_default(),
        volume_finalizers: r.read(&keys::VOLUME_FINALIZERS, finalizers).unwrap_or_default(),
        volume_metadata: r.read(&keys::VOLUME_METADATA, metadata_keys).unwrap_or_default(),
        secret_namespaces: r.names(&keys::SECRET_NAMESPACES, "namespace"),
        max_surplus: r.read(&keys::MAX_SURPLUS, size),
        claim_metadata: r.read(&keys::CLAIM_METADATA, metadata_keys).unwrap_or_default(),
        capabilities: r.read(&keys::CAPABILITIES, capabilities).unwrap_or_default(),
        pool: pool::pool(r),
        pod_template: r.read(&keys::POD_TEMPLATE, pod_template),
        storage_mounts: r.read(&keys::STORAGE_MOUNTS, mounts::paths).unwrap_or_default(),
        parameters: BTreeMap::new(),
        config: effective_config.config.clone(),
        class: effective_config.class.clone(),
        hash: effective_config.hash(),
        effective_config,
    }
}

/// Checks keys that must fit each other.
fn check_together(r: &mut Reader<'_>, recipe: &Recipe) {
    program::check(r, recipe);
    if let (Some(min), Some(max)) = (recipe.min_size, recipe.max_size)
        && min > max
    {
        r.fail(&keys::MIN_SIZE, "is larger than max-size, so no claim can get a volume");
    }
    if recipe.max_in_flight_per_node.is_some() && recipe.placement != Placement::SelectedNode {
        r.fail(&keys::MAX_IN_FLIGHT_PER_NODE, "counts runs that must be on one node, but the runs of this config may be on any node: set `placement: selected-node`, or remove this key");
    }
    // A template with errors has its own problem, and nothing is added here.
    if recipe.pod_template.is_some() || r.text(&keys::POD_TEMPLATE).is_none() {
        mounts::check(r, recipe);
    }
    if let Some(pool) = &recipe.pool {
        pool::check(r, recipe, pool);
    }
}

/// Refuses data that no pod or volume can carry, without any further check.
fn bounded(effective_config: &EffectiveConfig) -> Result<(), Vec<Problem>> {
    let whole = |message: String| Err(vec![Problem::new("", message)]);
    let (all, count) = (
        || effective_config.data.iter().chain(&effective_config.parameters),
        effective_config.data.len() + effective_config.parameters.len(),
    );
    if count > limits::KEYS {
        return whole(format!(
            "has {count} keys, those of the StorageClass included; at most {} are allowed",
            limits::KEYS
        ));
    }
    if let Some((key, _)) = all().find(|(_, value)| value.contains('\0')) {
        let message = "has a zero byte, which neither an environment variable nor a command can carry";
        return Err(vec![Problem::new(key.clone(), message)]);
    }
    let long = all().filter(|(_, value)| value.len() > limits::VALUE);
    let problems: Vec<_> = long
        .map(|(key, value)| {
            Problem::new(
                key.clone(),
                format!("is {} bytes long; a value may have at most {}", value.len(), limits::VALUE),
            )
        })
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let bytes = serde_json::json!(effective_config).to_string().len();
    let (most, holder) = match effective_config.script {
        None => (limits::RECIPE, "on a volume, which keeps them for its deletion"),
        Some(_) => (limits::RECIPE - limits::VALUE, "into a pod beside a script"),
    };
    if bytes > most {
        return whole(format!(
            "is {bytes} bytes long as JSON, the parameters of the StorageClass included; at most {most} fit {holder}"
        ));
    }
    Ok(())
}

/// Reads the image. Without it there is no run, unless the config has a script.
fn required_image(r: &mut Reader<'_>, has_script: bool) -> String {
    let image = r.read(&keys::IMAGE, image).unwrap_or_default();
    if r.text(&keys::IMAGE).is_none() && !has_script {
        r.fail(
            &keys::IMAGE,
            "is missing; name the image that makes the volumes, such as registry.example/team/provisioner:1.0, or write a shell program as `script`",
        );
    }
    image
}

fn pull_policy(r: &mut Reader<'_>) -> Option<String> {
    let given = r.text(&keys::IMAGE_PULL_POLICY).is_some();
    given.then(|| r.one_of(&keys::IMAGE_PULL_POLICY, ""))
}

fn placement(r: &mut Reader<'_>) -> Placement {
    match r.one_of(&keys::PLACEMENT, "selected-node").as_str() {
        "any" => Placement::Any,
        _ => Placement::SelectedNode,
    }
}

fn node_gone(r: &mut Reader<'_>) -> NodeGone {
    match r.one_of(&keys::NODE_GONE, "hold").as_str() {
        "forget" => NodeGone::Forget,
        "run-elsewhere" => NodeGone::RunElsewhere,
        _ => NodeGone::Hold,
    }
}

fn quota(r: &mut Reader<'_>, volumes: &KeySpec, bytes: &KeySpec) -> Quota {
    Quota { volumes: r.read(volumes, |text| number(text, 0, 1_000_000)), bytes: r.read(bytes, size) }
}

/// Reads whose claims the class serves. A key that names nobody is an error, because without it the class serves all.
fn namespaces(r: &mut Reader<'_>) -> ServedNamespaces {
    let names = r.names(&keys::NAMESPACES, "namespace");
    let served = ServedNamespaces { names, selector: r.read(&keys::NAMESPACE_SELECTOR, selector) };
    for key in [&keys::NAMESPACES, &keys::NAMESPACE_SELECTOR] {
        let has_effect = served.keys().iter().any(|served| served.name == key.name);
        let is_told = r.problems.iter().any(|problem| problem.key == key.name);
        if r.data.contains_key(key.name) && !has_effect && !is_told {
            r.fail(
                key,
                "is empty, so that no namespace could use the class; name one, or leave the key out to serve all",
            );
        }
    }
    served
}

/// Returns the parameters: the unknown keys of the data, overridden by `given`. Checks the names, each by itself and
/// all against each other.
fn parameters(r: &mut Reader<'_>, given: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    // Where a stored config has this key, it was a parameter: an older version knew no scripts.
    let unknown = r.data.iter().filter(|(key, _)| !keys::is_key(key) || *key == keys::SCRIPT.name);
    let parameters: BTreeMap<String, String> =
        unknown.chain(given).map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut by_env: BTreeMap<String, &str> = BTreeMap::new();
    for name in parameters.keys() {
        if let Err(error) = parameter::check_name(name, request::is_reserved) {
            // The advice of a name for a parameter misleads somebody who meant a key.
            let near = near_key(name).filter(|_| !given.contains_key(name));
            let message = near.map(|key| format!("is not a key; did you mean `{key}`?")).unwrap_or(error.to_string());
            r.problems.push(Problem::new(name.clone(), message));
        }
        if let Some(near) = misspelt(name).filter(|_| !given.contains_key(name)) {
            r.problems.push(Problem::new(
                name.clone(),
                format!(
                    "is not a key, but reads like `{near}`; give the parameter a name that nobody mistakes for a key"
                ),
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

/// Reads the name of a CSI driver or of a provisioner.
fn driver(text: &str) -> Result<String, String> {
    match is_provisioner_name(text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "`{text}` cannot be the name of a CSI driver or of a provisioner; write for example hostpath.csi.k8s.io"
        )),
    }
}

fn fs_type(text: &str) -> Result<String, String> {
    match text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && text.len() <= 16 {
        true => Ok(text.to_owned()),
        false => Err(format!("`{text}` is not a file system; write for example ext4 or xfs")),
    }
}

fn run_as_user(text: &str) -> Result<RunAsUser, String> {
    match text.parse::<i64>() {
        _ if text == "any" => Ok(RunAsUser::Any),
        Ok(user) if (0..=i64::from(i32::MAX)).contains(&user) => Ok(RunAsUser::Id(user)),
        _ => Err(format!(
            "`{text}` is not a user id; write a number, \"0\" for root, or any where the platform assigns the user"
        )),
    }
}

/// Reads a list of label keys of nodes.
fn label_keys(text: &str) -> Result<Vec<String>, String> {
    let keys = list(text)?;
    match keys.iter().find(|key| !is_label_key(key)) {
        Some(key) => Err(format!("`{key}` cannot be the key of a label, such as topology.kubernetes.io/zone")),
        None => Ok(keys),
    }
}

fn capacity_interval(text: &str) -> Result<Refresh, String> {
    refresh(text, DEFAULT_CAPACITY_INTERVAL.min_delay)
}

fn source_rules(text: &str) -> Result<Vec<SourceRule>, String> {
    list(text)?.iter().map(|rule| source_rule(rule)).collect()
}

/// Reads the operations that the image can do beside provision and delete.
fn capabilities(text: &str) -> Result<Vec<String>, String> {
    let chosen = list(text)?;
    match chosen.iter().find(|item| !capability::names().any(|name| name == *item)) {
        Some(item) => Err(format!(
            "`{item}` is not a capability; write some of {}",
            capability::names().collect::<Vec<_>>().join(", ")
        )),
        None => Ok(chosen),
    }
}

fn metadata_keys(text: &str) -> Result<Vec<String>, String> {
    keys_of(text, "the key of a label or annotation")
}

fn finalizers(text: &str) -> Result<Vec<String>, String> {
    keys_of(text, "the name of a finalizer")
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
                "has an init container called `provisioner`; only the container that runs the image may have this name"
                    .into(),
            );
        }
        if main.len() > 1 {
            return Err("has several containers called `provisioner`; write one".into());
        }
        if spec.containers.iter().any(|c| c.name.is_empty()) {
            return Err("has a container without a name; name the container that runs the image `provisioner`".into());
        }
        if spec.containers.iter().any(|c| c.name != names::CONTAINER) {
            return Err("has a second container, which would keep the pod from ending; write it under `initContainers` with `restartPolicy: Always` (a sidecar)".into());
        }
        if spec.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
            return Err("sets restartPolicy; the provisioner retries runs, so remove it".into());
        }
        if spec.node_name.is_some() {
            return Err("sets nodeName; use the key `node-selector`".into());
        }
        if spec.scheduling_gates.iter().flatten().any(|gate| gate.name == names::START_GATE) {
            return Err(format!(
                "has the scheduling gate {}, which is the provisioner's own; remove it",
                names::START_GATE
            ));
        }
        if let Some(problem) = spec.volumes.iter().flatten().find_map(volume_problem) {
            return Err(problem);
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
