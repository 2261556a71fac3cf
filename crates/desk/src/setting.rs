//! The setting of a run: class, claim and Secrets, from the files of an admin or from the command line.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flex_contract::names;
use flex_contract::volume::{VOLUME_SOURCE_KINDS, migrated_to};
use flex_core::config::Recipe;
use flex_core::config::classes::{Class, ClassLookup, ClassObject, Config, Identity, classes};
use flex_core::config::document::{self, Document, Documents};
use flex_core::config::external_provisioner::ExternalProvisioners;
use flex_core::config::modify::Attributes;
use flex_core::config::topology::Topologies;
use flex_core::config::{joined, keys};
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret};
use serde_json::{Value, json};

use crate::rights::Rights;

/// The name of the config and of the class if no file has them.
pub const NAME: &str = "desk";
/// The node of the desk.
pub const NODE: &str = "desk";
/// The volume id of the first volume.
pub const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
/// The size of a claim for which nobody wrote one, in bytes.
const SIZE: u64 = 1 << 30;
/// The user of the claim.
const USER: &str = "desk";
/// The name of the Secret that [`Setting::with_secret`] adds.
const PLANTED: &str = "flex-desk-planted";
/// Words in the names of secrets.
const SECRET_NAMES: [&str; 6] = ["pass", "secret", "token", "credential", "key", "pwd"];
/// The bytes of the shortest text that is known as a secret where it occurs.
const SHORTEST_SECRET: usize = 6;
/// The bytes from which a text without a digit is no usual word.
const LONG: usize = 12;

/// Data by key.
pub type Data = BTreeMap<String, String>;

/// The inputs of a setting.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    /// The text of the file with the config, and perhaps StorageClass, claim and Secrets; `None` without a config.
    pub config: Option<String>,
    /// The text of the file with the claim.
    pub claim: Option<String>,
    /// The class, where the file has several.
    pub class: Option<String>,
    /// Keys of the config with their values, which win over those in the file.
    pub changes: Vec<(String, String)>,
    /// Directories that the config mounts from the node, beside those of its own.
    pub storage: Vec<String>,
    /// A secret that each run gets as a variable.
    pub secret: Option<String>,
    /// The namespace of the runs, in place of that of the config.
    pub namespace: Option<String>,
}

/// The reason why there is no setting.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SettingError(String);

/// The node where runs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The name of the node.
    pub node: String,
    /// The labels of the node. That of the desk has those of `volume-affinity`, with its name as the value, and those of the
    /// first of `allowedTopologies`.
    pub labels: BTreeMap<String, String>,
}

impl Default for Site {
    fn default() -> Self {
        Site { node: NODE.into(), labels: [(names::HOSTNAME.to_owned(), NODE.to_owned())].into() }
    }
}

impl Site {
    /// Returns the node of the desk for a class: in the first topology that the class allows.
    fn of_desk(recipe: &Recipe, allowed: &Topologies) -> Self {
        let mut site = Site::default();
        let term = allowed.node_terms().into_iter().next().and_then(|term| term.match_expressions);
        let values = term.into_iter().flatten().map(|label| (label.key, label.values.into_iter().flatten().next()));
        let wanted = recipe.volume_affinity.iter().map(|label| (label.clone(), None));
        for (label, value) in values.chain(wanted) {
            site.labels.entry(label).or_insert_with(|| value.unwrap_or_else(|| NODE.into()));
        }
        site
    }

    /// Returns the value of a label.
    pub fn label(&self, label: &str) -> String {
        self.labels.get(label).unwrap_or(&self.node).clone()
    }
}

/// The class, the claim and the Secrets of a run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The names of the orchestrator.
    pub identity: Identity,
    /// The class.
    pub class: Class,
    /// The recipe of the class.
    pub recipe: Arc<Recipe>,
    /// The text of the config's script.
    pub script: Option<String>,
    /// The claim.
    pub claim: Claim,
    /// The node of the runs.
    pub site: Site,
    /// The Secrets, by name.
    pub secrets: BTreeMap<String, Data>,
    /// The ConfigMaps, by name.
    pub configs: BTreeMap<String, Data>,
    /// The rights that the Roles of the files give.
    pub rights: Rights,
    /// The handles that snapshot runs have handed back, by snapshot id.
    pub handles: Arc<Mutex<BTreeMap<String, String>>>,
    /// The inputs.
    inputs: Inputs,
}

impl Setting {
    /// Reads a setting.
    ///
    /// # Errors
    /// If a file cannot be read, or the orchestrator would refuse the config.
    pub fn read(identity: &Identity, inputs: Inputs) -> Result<Self, SettingError> {
        if let Some(path) = inputs.storage.iter().find(|path| path.split('/').any(|part| part == "..")) {
            return Err(SettingError(format!(
                "--storage {path} leads out of its directory: write a path without `..`"
            )));
        }
        let Objects { mut configs, objects, mut claims, mut secrets, rights } = Objects::read(identity, &inputs)?;
        let chosen = chosen(&mut configs, &inputs)?;
        for (key, value) in &inputs.changes {
            chosen.data.insert(key.clone(), value.clone());
        }
        if !inputs.storage.is_empty() {
            let template = chosen.data.get(keys::POD_TEMPLATE.name).map(String::as_str);
            let template = with_storage(template, &inputs.storage)?;
            chosen.data.insert(keys::POD_TEMPLATE.name.into(), template);
        }
        if let Some(namespace) = &inputs.namespace {
            chosen.name.namespace.clone_from(namespace);
        }
        let name = chosen.name.clone();
        let namespaces = configs.iter().map(|config| config.name.namespace.clone()).collect();
        let identity = Identity { config_namespaces: namespaces, ..identity.clone() };
        let table = classes(&identity, &configs, &objects, &BTreeMap::new(), &ExternalProvisioners::none());
        let config = configs.iter().find(|config| config.name == name).expect("it was chosen from these");
        let verdict = table.verdicts.get(&name);
        if let Some(verdict) = verdict.filter(|verdict| !verdict.problems.is_empty()) {
            return Err(SettingError(format!("the config {name} is refused: {}", joined(&verdict.problems))));
        }
        let wanted = inputs.class.clone().or_else(|| claims.first().and_then(class_of));
        let served = verdict.map(|verdict| verdict.classes.clone()).unwrap_or_default();
        let wanted = wanted.or_else(|| served.first().cloned()).or_else(|| config.class.clone());
        let Some(wanted) = wanted else {
            return Err(SettingError(format!("the config {name} serves no class: give it the label `storage-class`")));
        };
        let ClassLookup::Ours(class) = table.lookup(&wanted) else {
            return Err(SettingError(format!("no config in the file serves the class {wanted}")));
        };
        let recipe = class.recipe.clone().map_err(SettingError)?;
        let planted =
            |value: &String| (PLANTED.to_owned(), Data::from([("FLEX_DESK_SECRET".to_owned(), value.clone())]));
        secrets.extend(inputs.secret.as_ref().map(planted));
        let script = config.data.get(keys::SCRIPT.name).cloned();
        let claim = if claims.is_empty() { sample_claim(&recipe) } else { claims.remove(0) };
        let all = configs.iter().map(|config| (config.name.name.clone(), config.data.clone())).collect();
        Ok(Setting {
            claim: Claim::from(&completed(claim)),
            site: Site::of_desk(&recipe, &class.allowed),
            class: class.clone(),
            identity,
            recipe,
            script,
            secrets,
            configs: all,
            rights,
            handles: Arc::default(),
            inputs,
        })
    }

    /// Returns the same setting with a Secret more, whose keys become variables of each run.
    ///
    /// # Errors
    /// If the config cannot have the Secret.
    pub fn with_secret(&self, value: &str) -> Result<Self, SettingError> {
        let own = self.recipe.secret_env.iter().map(String::as_str).chain([PLANTED]);
        let list = own.collect::<Vec<_>>().join(", ");
        let secret = Some(value.to_owned());
        let setting = Setting { inputs: Inputs { secret, ..self.inputs.clone() }, ..self.clone() };
        setting.changed(&[(keys::SECRET_ENV.name, &list)])
    }

    /// Returns the same setting with another directory of the node in place of one, and with a parameter that names it.
    ///
    /// # Errors
    /// If the config is refused then.
    pub fn moved(&self, from: &str, to: &str, parameter: &str) -> Result<Self, SettingError> {
        let elsewhere = |text: &String| text.replace(from, to);
        let changes = self.inputs.changes.iter().map(|(key, value)| (key.clone(), elsewhere(value)));
        let inputs = Inputs {
            config: self.inputs.config.as_ref().map(elsewhere),
            storage: self.inputs.storage.iter().map(elsewhere).collect(),
            changes: changes.collect(),
            ..self.inputs.clone()
        };
        Setting { inputs, ..self.clone() }.changed(&[(parameter, to)])
    }

    /// Returns the VolumeAttributesClasses of the files.
    pub fn attribute_classes(&self) -> Vec<Attributes> {
        let mut classes = Vec::new();
        for text in self.inputs.claim.iter().chain(&self.inputs.config) {
            let all: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_default();
            let found = all.into_iter().filter(|object| object["kind"] == "VolumeAttributesClass");
            classes.extend(found.map(|object| Attributes {
                class: object["metadata"]["name"].as_str().map(str::to_owned),
                parameters: serde_json::from_value(object["parameters"].clone()).unwrap_or_default(),
            }));
        }
        classes
    }

    /// Returns the parameters of the config with this value.
    pub fn parameters_with(&self, value: &str) -> Vec<String> {
        let data = self.configs.get(&self.recipe.config.name).into_iter().flatten();
        let named = data.filter(|(key, text)| text.trim() == value && !keys::is_key(key));
        named.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the values that the runs get as secrets, with their names: passwords, tokens and keys, not the user names
    /// and addresses beside them.
    pub fn own_secrets(&self) -> Vec<(String, String)> {
        let named = self.recipe.secret_env.iter().chain(&self.recipe.secret_volume).filter(|name| *name != PLANTED);
        let of_secrets = named.filter_map(|name| self.secrets.get(name)).flatten();
        let token =
            self.configs.get(&self.recipe.config.name).and_then(|data| data.get_key_value(keys::SERVICE_TOKEN.name));
        let is_secret = |key: &str| {
            let key = key.to_ascii_lowercase();
            SECRET_NAMES.iter().any(|word| key.contains(word)) && !key.ends_with("id")
        };
        // An address or a path is no secret, and a short word occurs in other texts.
        let is_place = |text: &str| text.starts_with('/') || text.contains("://");
        let has = |text: &str, kind: fn(&char) -> bool| text.chars().any(|one| kind(&one));
        let is_word = |text: &str| {
            text.len() < LONG && !(has(text, char::is_ascii_digit) && has(text, char::is_ascii_alphabetic))
        };
        let is_short = |text: &str| text.len() < SHORTEST_SECRET || is_word(text);
        let is_plain = |text: &str| is_place(text) || text.contains('\n') || is_short(text);
        let all = of_secrets.chain(token).map(|(key, value)| (key, value.trim()));
        let secret = all.filter(|(key, value)| is_secret(key) && !is_plain(value));
        secret.map(|(key, value)| (key.clone(), value.to_owned())).collect()
    }

    /// Returns the same setting with other values of the config.
    ///
    /// # Errors
    /// If the config is refused with these values.
    pub fn changed(&self, changes: &[(&str, &str)]) -> Result<Self, SettingError> {
        let mut inputs = self.inputs.clone();
        inputs.changes.extend(changes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let (claim, site) = (self.claim.clone(), self.site.clone());
        Ok(Setting { claim, site, ..Setting::read(&self.identity, inputs)? })
    }
}

/// The objects of the files.
#[derive(Default)]
struct Objects {
    configs: Vec<Config>,
    objects: Vec<ClassObject>,
    claims: Vec<PersistentVolumeClaim>,
    secrets: BTreeMap<String, Data>,
    rights: Rights,
}

impl Objects {
    fn read(identity: &Identity, inputs: &Inputs) -> Result<Self, SettingError> {
        let mut objects = Objects::default();
        let texts = [(&inputs.claim, "claim"), (&inputs.config, "config")];
        for (text, what) in texts.into_iter().filter_map(|(text, what)| Some((text.as_ref()?, what))) {
            objects.add(text, what)?;
        }
        if inputs.config.is_none() {
            objects.configs.push(sample_config(identity, &inputs.storage));
        }
        Ok(objects)
    }

    fn add(&mut self, text: &str, what: &str) -> Result<(), SettingError> {
        let Documents { read: documents, unreadable } = document::read(text);
        if let Some(error) = unreadable.first() {
            return Err(SettingError(format!("line {} of the {what}: {}", error.line, error.problem)));
        }
        let (mut has_secrets, mut has_roles) = (false, false);
        for document in documents {
            match document {
                Document::Config(map, _) => {
                    let mut config = Config::from(&*map);
                    if config.name.namespace.is_empty() {
                        config.name.namespace = names::FIELD_MANAGER.into();
                    }
                    self.configs.push(config);
                }
                Document::Class(class, _) => self.objects.push(ClassObject::from(&*class)),
                Document::Claim(claim) => self.claims.push(*claim),
                Document::Other(kind, _) => {
                    has_secrets |= kind == "Secret";
                    has_roles |= kind == "ClusterRole" || kind == "Role";
                }
                Document::Account(_) => {}
            }
        }
        if has_secrets {
            self.secrets.extend(secrets(text)?);
        }
        if has_roles {
            let all = serde_saphyr::from_multiple(text);
            let all: Vec<Value> = all.map_err(|error| SettingError(format!("a Role cannot be read: {error}")))?;
            self.rights.add(Rights::read(&all));
        }
        Ok(())
    }
}

/// Reads the Secrets of a file.
fn secrets(text: &str) -> Result<BTreeMap<String, Data>, SettingError> {
    let unreadable = |error: &dyn std::fmt::Display| SettingError(format!("a Secret cannot be read: {error}"));
    let all: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| unreadable(&error))?;
    let mut secrets = BTreeMap::new();
    for object in all.into_iter().filter(|object| object["kind"] == "Secret") {
        let secret: Secret = serde_json::from_value(object).map_err(|error| unreadable(&error))?;
        let encoded = secret.data.unwrap_or_default().into_iter();
        let data = encoded.map(|(key, value)| (key, String::from_utf8_lossy(&value.0).into_owned()));
        let data = data.chain(secret.string_data.unwrap_or_default()).collect();
        secrets.insert(secret.metadata.name.unwrap_or_default(), data);
    }
    Ok(secrets)
}

/// Chooses the config whose program runs.
fn chosen<'a>(configs: &'a mut [Config], inputs: &Inputs) -> Result<&'a mut Config, SettingError> {
    // ConfigMaps that are no configs of a provisioner have neither an image nor a script.
    let has_program =
        |config: &Config| [keys::IMAGE.name, keys::SCRIPT.name].iter().any(|key| config.data.contains_key(*key));
    let mut found: Vec<&mut Config> = configs.iter_mut().filter(|config| has_program(config)).collect();
    if let (Some(class), true) = (&inputs.class, found.len() > 1) {
        found.retain(|config| config.class.as_ref() == Some(class));
    }
    match found.len() {
        0 => Err(SettingError("the file has no provisioner ConfigMap with a `script` or an `image`".into())),
        1 => Ok(found.remove(0)),
        _ => {
            let classes: Vec<_> = found.iter().filter_map(|config| config.class.clone()).collect();
            Err(SettingError(format!("the file has several configs: choose a class, one of {}", classes.join(", "))))
        }
    }
}

/// Makes the config of a program for which there is none. It allows every kind of volume, and paths in these directories.
fn sample_config(identity: &Identity, storage: &[String]) -> Config {
    let on_node = |kind: &&&str| matches!(**kind, "hostPath" | "local");
    // The rule `csi` allows the drivers of the kinds that Kubernetes hands to a driver.
    let kinds = VOLUME_SOURCE_KINDS.iter().filter(|kind| migrated_to(kind).is_none());
    let (local, others): (Vec<&str>, Vec<&str>) = kinds.partition(|kind| on_node(kind));
    let local = storage.iter().flat_map(|path| local.iter().map(move |kind| format!("{kind}:{path}")));
    let sources: Vec<String> = local.chain(others.into_iter().map(str::to_owned)).collect();
    let data = [
        (keys::PLUGIN_NAME.name, identity.plugin.clone()),
        (keys::IMAGE.name, NAME.to_owned()),
        (keys::SERVICE_ACCOUNT_NAME.name, NAME.to_owned()),
        (keys::VOLUME_SOURCES.name, sources.join(", ")),
    ];
    Config {
        name: ObjectName::new(names::FIELD_MANAGER, NAME),
        class: Some(NAME.into()),
        data: data.map(|(key, value)| (key.to_owned(), value)).into(),
        ..Config::default()
    }
}

/// Adds directories of the node to a pod template.
fn with_storage(template: Option<&str>, paths: &[String]) -> Result<String, SettingError> {
    let template = template.map(serde_saphyr::from_str::<Value>).transpose();
    let mut template = template.map_err(|error| SettingError(format!("pod-template: {error}")))?.unwrap_or(json!({}));
    let mut add = |pointer: &[&str], item: Value| {
        let mut at = &mut template;
        for key in pointer {
            if !at.is_object() {
                *at = json!({});
            }
            at = &mut at[*key];
        }
        match at.as_array_mut() {
            Some(list) => list.push(item),
            None => *at = json!([item]),
        }
    };
    let mounts: Vec<Value> = paths
        .iter()
        .enumerate()
        .map(|(n, path)| {
            add(
                &["spec", "volumes"],
                json!({ "name": format!("desk-{n}"), "hostPath": { "path": path, "type": "DirectoryOrCreate" } }),
            );
            json!({ "name": format!("desk-{n}"), "mountPath": path })
        })
        .collect();
    let containers = template["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let mut containers = containers;
    if containers.is_empty() {
        containers.push(json!({ "name": names::CONTAINER }));
    }
    let own = containers[0]["volumeMounts"].as_array().cloned().unwrap_or_default();
    containers[0]["volumeMounts"] = own.into_iter().chain(mounts).collect();
    template["spec"]["containers"] = containers.into();
    Ok(template.to_string())
}

fn class_of(claim: &PersistentVolumeClaim) -> Option<String> {
    claim.spec.as_ref()?.storage_class_name.clone()
}

/// Makes a claim that the class serves.
fn sample_claim(recipe: &Recipe) -> PersistentVolumeClaim {
    let size = SIZE.max(recipe.min_size.unwrap_or(0)).min(recipe.max_size.unwrap_or(u64::MAX));
    let mode = recipe.access_modes.first().map_or("ReadWriteOnce", String::as_str);
    let volume_mode = recipe.volume_modes.first().map_or("Filesystem", |mode| mode.as_str());
    let claim = json!({
        "metadata": { "name": "data", "namespace": "team" },
        "spec": {
            "storageClassName": recipe.class,
            "accessModes": [mode],
            "volumeMode": volume_mode,
            "resources": { "requests": { "storage": flex_contract::quantity::quantity(size).0 } },
        },
    });
    serde_json::from_value(claim).expect("it has the fields of a claim")
}

/// Adds to a claim what the API server and the admission policies write.
fn completed(mut claim: PersistentVolumeClaim) -> PersistentVolumeClaim {
    let metadata = &mut claim.metadata;
    metadata.namespace.get_or_insert_with(|| "team".into());
    metadata.name.get_or_insert_with(|| "data".into());
    metadata.uid.get_or_insert_with(|| ID.into());
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.entry(names::CREATED_BY.into()).or_insert_with(|| USER.into());
    let spec = claim.spec.get_or_insert_default();
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    claim
}

#[cfg(test)]
#[path = "setting_tests.rs"]
pub(crate) mod tests;
