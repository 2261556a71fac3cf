//! The assignment of configs to classes: a pure function of the ConfigMaps, the StorageClasses and the stored
//! revisions.

use std::collections::{BTreeMap, BTreeSet};

use super::accounts::Accounts;
use super::checked::Checked;
use super::class::ServedRecipe;
pub use super::class::{Class, ClassLookup, ConfigState, Verdict};
use super::external_provisioner::{self, ExternalProvisioner, ExternalProvisioners, ReplacingConfigs};
pub use super::identity::Identity;
pub use super::incumbent::Takeovers;
use super::incumbent::{Incumbents, last_good};
pub use super::input::{
    BindingMode, CONFIG_PARAMETER, ClassObject, Config, KeptScript, NewRevision, Revision, effective_config_of,
    effective_config_with,
};
use super::named_config::{config_of_parameter, no_config};
use super::own_verdict::own_verdict;
use super::problem::ConfigProblem;
use super::topology::Topologies;
use super::{Problem, capability, common_mistakes, keys};
use crate::object::ObjectName;

/// All classes and all verdicts.
#[derive(Clone, Debug, Default)]
pub struct Classes {
    ours: BTreeMap<String, Class>,
    foreign: BTreeSet<String>,
    /// The classes that a config would serve if another provisioner did not, with the reason.
    left_to_external_provisioner: BTreeMap<String, String>,
    /// The verdict on each ConfigMap that is meant for this orchestrator.
    pub verdicts: BTreeMap<ObjectName, Verdict>,
    /// The problems of a valid config with one StorageClass. They do not affect other classes.
    pairs: Vec<ConfigProblem>,
    /// The recipes in use whose revision is not stored yet, or not as the newest.
    pub revisions_to_write: Vec<NewRevision>,
    /// The classes whose incumbents do not ask for them any more, with these incumbents.
    pub absent_incumbents: BTreeMap<String, ObjectName>,
    /// The classes that wait for their incumbents, although another config asks for them.
    pub withheld: BTreeSet<String>,
    /// All classes that a config would serve if another provisioner did not, or perhaps does not.
    left_to_others: BTreeSet<String>,
}

impl Classes {
    /// Returns the relation of a class to the orchestrator.
    pub fn lookup(&self, class: &str) -> ClassLookup<'_> {
        match self.ours.get(class) {
            Some(class) => ClassLookup::Ours(class),
            None if self.foreign.contains(class) => ClassLookup::Foreign,
            None => ClassLookup::Unknown,
        }
    }

    /// Withholds a class whose StorageClass was deleted a moment ago. To replace the object somebody must delete it
    /// first, and claims that are created in between mean the new object. So the config's label alone does not serve
    /// the class yet.
    pub fn defer_class(&mut self, class: &str) {
        if let Some(class) = self.ours.get_mut(class).filter(|class| !class.has_object) {
            class.recipe = Err(format!(
                "the StorageClass `{}` was deleted a moment ago; if nobody creates it again soon, the provisioner serves the class without it",
                class.name
            ));
        }
    }

    /// Adds warnings about configs that name a ServiceAccount that does not exist.
    pub fn warn_of_accounts<'a>(&mut self, configs: impl Iterator<Item = &'a Config>, accounts: &Accounts) {
        for config in configs {
            if let Some(verdict) = self.verdicts.get_mut(&config.name) {
                verdict.warnings.extend(accounts.missing(config));
            }
        }
    }

    /// Returns the reason why a class is left to the external provisioner of its driver, although a config replaces it.
    pub fn left_to_external_provisioner(&self, class: &str) -> Option<&str> {
        self.left_to_external_provisioner.get(class).map(String::as_str)
    }

    /// Checks whether another provisioner serves a class that a config would serve, or may serve it.
    pub fn is_left_to_other(&self, class: &str) -> bool {
        self.left_to_others.contains(class)
    }

    /// Returns all classes that are left to others, by name, with the reasons.
    pub fn all_left_to_external_provisioners(&self) -> impl Iterator<Item = (&str, &str)> {
        self.left_to_external_provisioner.iter().map(|(class, why)| (class.as_str(), why.as_str()))
    }

    /// Returns all classes that the orchestrator serves, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Class> {
        self.ours.values()
    }
}

/// Decides about all classes, as [`classes_with`] does. No class is withheld.
pub fn classes<'a>(
    identity: &Identity,
    configs: impl IntoIterator<Item = &'a Config>,
    objects: impl IntoIterator<Item = &'a ClassObject>,
    revisions: &BTreeMap<String, Revision>,
    external_provisioners: &ExternalProvisioners,
) -> Classes {
    classes_with(identity, configs, objects, revisions, external_provisioners, Takeovers::All)
}

/// Decides about all classes again. The inputs are small and change rarely.
pub fn classes_with<'a>(
    identity: &Identity,
    configs: impl IntoIterator<Item = &'a Config>,
    objects: impl IntoIterator<Item = &'a ClassObject>,
    revisions: &BTreeMap<String, Revision>,
    external_provisioners: &ExternalProvisioners,
    takeovers: Takeovers<'_>,
) -> Classes {
    let mut table = Classes::default();
    let (configs, others): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.is_for(identity));
    let configs: BTreeMap<&ObjectName, &Config> = configs.into_iter().map(|config| (&config.name, config)).collect();
    for config in configs.values() {
        table.verdicts.insert(config.name.clone(), own_verdict(identity, config));
    }
    let objects: Vec<&ClassObject> = objects.into_iter().collect();
    let incumbents = Incumbents::of(revisions);
    table.absent_incumbents = incumbents.absent(&configs, &objects);
    let Claimants { mut labelled, general } = claimants(&mut table, &configs, &incumbents);
    let inputs = Inputs {
        identity,
        configs: &configs,
        others: &others,
        revisions,
        incumbents,
        external_provisioners,
        takeovers,
    };
    let (own, foreign): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| object.provisioner == identity.provisioner);
    let mut left_to_others: Vec<_> = foreign
        .into_iter()
        .filter_map(|object| {
            foreign_class(&mut table, &inputs, object, labelled.remove(object.name.as_str()), &general)
        })
        .collect();
    for object in own {
        let class = own_class(&mut table, &inputs, object, labelled.remove(object.name.as_str()));
        table.ours.insert(object.name.clone(), class);
    }
    for (name, config) in labelled {
        // A watch may not have shown yet the StorageClass of the provisioner that the config replaces.
        if let (Some(driver), Some(class)) = (config.replaces(), &config.class)
            && *external_provisioners.of(driver) != ExternalProvisioner::Gone
        {
            table.foreign.insert(name.to_owned());
            left_to_others.push(LeftToOther { config: &config.name, driver, class });
            continue;
        }
        // The code above has removed labels that name a class whose `provisioner-config` names another config.
        let class = label_only_class(&mut table, &inputs, config, name);
        table.ours.insert(name.to_owned(), class);
    }
    warn_of_external_provisioners(&mut table, &inputs, left_to_others);
    for ConfigProblem { config, problem } in std::mem::take(&mut table.pairs) {
        refuse(&mut table, configs[&config], problem);
    }
    for verdict in table.verdicts.values_mut() {
        verdict.classes.sort();
        verdict.problems.sort();
        verdict.problems.dedup();
    }
    table
}

/// The objects that the decision about each class needs.
struct Inputs<'a, 'c> {
    identity: &'a Identity,
    configs: &'a BTreeMap<&'c ObjectName, &'c Config>,
    /// The configs that are meant for another orchestrator.
    others: &'a [&'c Config],
    revisions: &'a BTreeMap<String, Revision>,
    incumbents: Incumbents<'a>,
    external_provisioners: &'a ExternalProvisioners,
    takeovers: Takeovers<'a>,
}

/// The configs that ask for classes.
struct Claimants<'c> {
    /// The configs with a label, by the class that the label names.
    labelled: BTreeMap<&'c str, &'c Config>,
    /// The configs that replace the external provisioner of a driver, by the driver.
    general: BTreeMap<&'c str, &'c Config>,
}

/// Finds the config for each label and each driver. If several ask for the same, the incumbent gets it, else the oldest.
/// The others are refused.
fn claimants<'c>(
    table: &mut Classes,
    configs: &BTreeMap<&'c ObjectName, &'c Config>,
    incumbents: &Incumbents<'_>,
) -> Claimants<'c> {
    let mut by_age: Vec<&'c Config> = configs.values().copied().collect();
    by_age.sort_by_key(|config| (&config.created, &config.uid));
    let has_served = |config: &Config, driver: &str| incumbents.has_served(config, driver);
    let ReplacingConfigs { serving: general, refused } = external_provisioner::replacing_configs(&by_age, has_served);
    refused.into_iter().for_each(|refused| refuse(table, configs[&refused.config], refused.problem));
    let mut asking: BTreeMap<&str, Vec<&Config>> = BTreeMap::new();
    for config in by_age {
        asking.extend(config.class.as_deref().filter(|class| !asking.contains_key(class)).map(|class| (class, vec![])));
        config.class.as_deref().and_then(|class| asking.get_mut(class)).into_iter().for_each(|all| all.push(config));
    }
    let mut labelled: BTreeMap<&str, &Config> = BTreeMap::new();
    for (class, asking) in asking {
        let incumbent = incumbents.of_class(class);
        let serving = asking.iter().find(|config| Some(&config.name) == incumbent).unwrap_or(&asking[0]);
        for config in asking.iter().filter(|config| config.name != serving.name) {
            let why = format!(
                "the ConfigMap {} has class `{class}` already and stays in use; remove one of the two, or give this one another `storage-class` label",
                serving.name
            );
            refuse(table, config, Problem::new("", why));
        }
        labelled.insert(class, serving);
    }
    Claimants { labelled, general }
}

/// A class of a driver whose external provisioner is or may be running, with the config that would serve the class.
struct LeftToOther<'c> {
    config: &'c ObjectName,
    driver: &'c str,
    class: &'c String,
}

/// Decides about a StorageClass of another provisioner. A config that replaces this provisioner serves it.
fn foreign_class<'c>(
    table: &mut Classes,
    inputs: &Inputs<'_, 'c>,
    object: &'c ClassObject,
    labelled: Option<&'c Config>,
    general: &BTreeMap<&'c str, &'c Config>,
) -> Option<LeftToOther<'c>> {
    let named = labelled.filter(|config| config.replaces() == Some(object.provisioner.as_str()));
    if let (Some(config), None) = (labelled, named) {
        let why = format!(
            "the StorageClass `{}` belongs to the provisioner {}; for ours it must say `provisioner: {}`, or give this ConfigMap another `storage-class` label",
            object.name, object.provisioner, inputs.identity.provisioner
        );
        refuse(table, config, Problem::new("", why));
    }
    let config = named.or_else(|| general.get(object.provisioner.as_str()).copied());
    if let Some(config) = config
        && *inputs.external_provisioners.of(&object.provisioner) == ExternalProvisioner::Gone
    {
        let class = class_with_object(table, inputs, config, object, ChosenBy::Label);
        table.ours.insert(object.name.clone(), class);
        return None;
    }
    table.foreign.insert(object.name.clone());
    config.map(|config| LeftToOther { config: &config.name, driver: &object.provisioner, class: &object.name })
}

/// Decides about a StorageClass of this provisioner: its parameter names the config, or the config's label names it.
fn own_class(table: &mut Classes, inputs: &Inputs<'_, '_>, object: &ClassObject, labelled: Option<&Config>) -> Class {
    let (config, chosen_by) = match object.parameters.get(CONFIG_PARAMETER) {
        Some(text) => (config_of_parameter(inputs.identity, inputs.configs, text), ChosenBy::Object),
        None => (labelled.ok_or_else(|| no_config(inputs.identity, object, inputs.others)), ChosenBy::Label),
    };
    match config {
        Ok(config) => class_with_object(table, inputs, config, object, chosen_by),
        Err(why) => Class {
            name: object.name.clone(),
            has_object: true,
            uid: object.uid.clone(),
            binding: object.binding,
            recipe: Err(why),
            last_good: false,
            allowed: object.allowed.clone(),
            provisioner: object.provisioner.clone(),
        },
    }
}

/// Warns if an external provisioner keeps classes from a config, or runs in a namespace that does not count.
fn warn_of_external_provisioners(table: &mut Classes, inputs: &Inputs<'_, '_>, left_to_others: Vec<LeftToOther<'_>>) {
    let mut by_driver: BTreeMap<(&ObjectName, &str), Vec<&String>> = BTreeMap::new();
    for LeftToOther { config, driver, class } in left_to_others {
        table.left_to_others.insert(class.clone());
        by_driver.entry((config, driver)).or_default().push(class);
    }
    for ((config, driver), classes) in by_driver {
        if let Some(why) = inputs.external_provisioners.of(driver).blocking_reason(driver, &classes) {
            table.left_to_external_provisioner.extend(classes.iter().map(|class| ((*class).clone(), why.clone())));
            warn(table, inputs.configs[config], keys::REPLACES_PROVISIONER.name, why);
        }
    }
    for config in inputs.configs.values() {
        let Some(driver) = config.replaces() else { continue };
        for (key, why) in inputs.external_provisioners.doubts(driver) {
            warn(table, config, key, why);
        }
    }
}

fn refuse(table: &mut Classes, config: &Config, problem: Problem) {
    table.verdicts.entry(config.name.clone()).or_default().problems.push(problem);
}

fn warn(table: &mut Classes, config: &Config, key: &str, message: String) {
    table.verdicts.entry(config.name.clone()).or_default().warnings.push(Problem::new(key, message));
}

/// How the config of a class was chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChosenBy {
    /// The StorageClass names the config.
    Object,
    /// The config names the class, or the driver of the class.
    Label,
}

fn serve(
    table: &mut Classes,
    inputs: &Inputs<'_, '_>,
    config: &Config,
    class: &str,
    recipe: Checked,
    chosen_by: ChosenBy,
) -> ServedRecipe {
    let revisions = inputs.revisions;
    let another = inputs.incumbents.of_class(class).filter(|incumbent| **incumbent != config.name);
    let may_return = chosen_by == ChosenBy::Label && table.absent_incumbents.contains_key(class);
    if let Some(incumbent) = another.filter(|_| may_return && !inputs.takeovers.allow(class)) {
        table.withheld.insert(class.to_owned());
        let what = match inputs.configs.contains_key(incumbent) {
            true => "does not name it any more",
            false => "was deleted a moment ago",
        };
        let why = format!(
            "the ConfigMap {incumbent}, which served class `{class}`, {what}; if that does not change soon, {} serves the class",
            config.name
        );
        warn(table, config, "", why.clone());
        return ServedRecipe { recipe: Err(why), last_good: false };
    }
    let number = inputs.incumbents.newest(class).map_or(1, |newest| newest.number + 1);
    let refused = table.verdicts.get(&config.name).is_some_and(|verdict| !verdict.problems.is_empty());
    let now = |recipe| ServedRecipe { recipe, last_good: false };
    let before = |recipe| ServedRecipe { recipe: Ok(recipe), last_good: true };
    let served = match recipe {
        _ if refused => match last_good(revisions, &config.name, class) {
            Some(recipe) => before(recipe),
            None => now(Err(format!("the provisioner config {} has errors; its events name them", config.name))),
        },
        Ok(recipe) => {
            let newest = inputs.incumbents.newest(class);
            if newest.is_none_or(|newest| newest.effective_config != recipe.effective_config) {
                let effective_config = recipe.effective_config.clone();
                table.revisions_to_write.push(NewRevision { effective_config, number });
            }
            now(Ok(recipe))
        }
        // The config is valid, but not together with this StorageClass.
        Err(problems) => match last_good(revisions, &config.name, class) {
            Some(recipe) => {
                let with = |problem: &Problem| Problem {
                    message: format!("{} (with the parameters of StorageClass `{class}`)", problem.message),
                    ..problem.clone()
                };
                let of_config = |problem| ConfigProblem { config: config.name.clone(), problem };
                table.pairs.extend(problems.iter().map(|problem| of_config(with(problem))));
                before(recipe)
            }
            None => now(Err(format!(
                "the StorageClass does not fit the provisioner config {}: {}",
                config.name,
                super::joined(&problems)
            ))),
        },
    };
    // From now on the class is this config's, also with an earlier version.
    if let (Ok(recipe), true, Some(_)) = (&served.recipe, served.last_good, another) {
        let effective_config = recipe.effective_config.clone();
        table.revisions_to_write.push(NewRevision { effective_config, number });
    }
    let verdict = table.verdicts.entry(config.name.clone()).or_default();
    if served.recipe.is_ok() {
        verdict.classes.push(class.to_owned());
    }
    verdict.last_good |= served.last_good;
    served
}

fn class_with_object(
    table: &mut Classes,
    inputs: &Inputs<'_, '_>,
    config: &Config,
    object: &ClassObject,
    chosen_by: ChosenBy,
) -> Class {
    let recipe = effective_config_with(config, object).and_then(|effective_config| effective_config.checked());
    let is_ours = config.replaces() != Some(object.provisioner.as_str());
    table.verdicts.entry(config.name.clone()).or_default().warnings.extend(common_mistakes::in_class(object, is_ours));
    if object.allow_expansion && recipe.as_ref().is_ok_and(|recipe| !recipe.can(capability::EXPAND)) {
        warn(
            table,
            config,
            keys::CAPABILITIES.name,
            format!(
                "lacks `expand`, but the StorageClass {} allows expansion: its claims may ask for more, and never get it",
                object.name
            ),
        );
    }
    if object.binding == BindingMode::Immediate && recipe.as_ref().is_ok_and(|recipe| recipe.can(capability::CAPACITY))
    {
        warn(
            table,
            config,
            keys::CAPABILITIES.name,
            format!(
                "has `capacity`, but the StorageClass {} says `volumeBindingMode: Immediate`: the scheduler looks at capacity only with WaitForFirstConsumer",
                object.name
            ),
        );
    }
    let ServedRecipe { recipe, last_good } = serve(table, inputs, config, &object.name, recipe, chosen_by);
    Class {
        name: object.name.clone(),
        has_object: true,
        uid: object.uid.clone(),
        binding: object.binding,
        recipe,
        last_good,
        allowed: object.allowed.clone(),
        provisioner: object.provisioner.clone(),
    }
}

fn label_only_class(table: &mut Classes, inputs: &Inputs<'_, '_>, config: &Config, name: &str) -> Class {
    let identity = inputs.identity;
    let class_to_create = class_to_create(config.replaces().unwrap_or(&identity.provisioner), name);
    for key in keys::STORAGE_CLASS_FIELDS.iter().filter(|key| config.data.contains_key(**key)) {
        refuse(
            table,
            config,
            Problem::new(
                *key,
                format!(
                    "asks for what only a StorageClass object can do; remove the key and create the object:\n{class_to_create}"
                ),
            ),
        );
    }
    let recipe = effective_config_of(config, name).checked();
    if recipe.as_ref().is_ok_and(|recipe| recipe.can(capability::EXPAND)) {
        warn(
            table,
            config,
            keys::CAPABILITIES.name,
            format!(
                "has `expand`, but without a StorageClass object the API server lets no claim ask for more; create it:\n{class_to_create}"
            ),
        );
    }
    if recipe.as_ref().is_ok_and(|recipe| recipe.can(capability::CAPACITY)) {
        warn(
            table,
            config,
            keys::CAPABILITIES.name,
            format!(
                "has `capacity`, but without a StorageClass object the scheduler does not look at capacity; create it:\n{class_to_create}"
            ),
        );
    }
    let ServedRecipe { recipe, last_good } = serve(table, inputs, config, name, recipe, ChosenBy::Label);
    Class {
        name: name.to_owned(),
        has_object: false,
        uid: String::new(),
        binding: BindingMode::Immediate,
        recipe,
        last_good,
        allowed: Topologies::default(),
        provisioner: identity.provisioner.clone(),
    }
}

/// Writes the StorageClass that a class without an object needs for a feature.
fn class_to_create(provisioner: &str, class: &str) -> String {
    format!(
        "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata:\n  name: {class}\nprovisioner: {provisioner}\nvolumeBindingMode: WaitForFirstConsumer\nallowVolumeExpansion: true\n"
    )
}

#[cfg(test)]
#[path = "classes_tests.rs"]
mod tests;
