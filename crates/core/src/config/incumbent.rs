//! The configs that have served the classes until now.
//!
//! The newest stored revision of a class names this config, its *incumbent*. Another config does not take the class,
//! whatever its age: an admin may have set a label by mistake, or may delete a ConfigMap only to create it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::input::{CONFIG_PARAMETER, ClassObject, Config, Revision};
use super::recipe::Recipe;
use crate::object::ObjectName;

/// The classes that another config may serve now, because their incumbents have not returned in time.
#[derive(Clone, Copy, Debug)]
pub enum Takeovers<'a> {
    /// All classes, as in a command that decides nothing.
    All,
    /// These classes.
    Of(&'a BTreeSet<String>),
}

impl Takeovers<'_> {
    /// Checks whether another config may serve the class now.
    pub(super) fn allow(self, class: &str) -> bool {
        match self {
            Takeovers::All => true,
            Takeovers::Of(classes) => classes.contains(class),
        }
    }
}

/// The newest revision of each class, whatever its config.
pub(super) struct Incumbents<'a>(BTreeMap<&'a str, &'a Revision>);

impl<'a> Incumbents<'a> {
    /// Finds the newest revisions.
    pub(super) fn of(revisions: &'a BTreeMap<String, Revision>) -> Self {
        let mut newest: BTreeMap<&str, &Revision> = BTreeMap::new();
        for revision in revisions.values() {
            let before = newest.entry(&revision.effective_config.class).or_insert(revision);
            if before.number < revision.number {
                *before = revision;
            }
        }
        Incumbents(newest)
    }

    /// Returns the newest revision of a class.
    pub(super) fn newest(&self, class: &str) -> Option<&'a Revision> {
        self.0.get(class).copied()
    }

    /// Returns the config that has served a class until now.
    pub(super) fn of_class(&self, class: &str) -> Option<&'a ObjectName> {
        self.newest(class).map(|revision| &revision.effective_config.config)
    }

    /// Checks whether a config has served a class of this driver until now.
    pub(super) fn has_served(&self, config: &Config, driver: &str) -> bool {
        self.0.values().any(|revision| {
            revision.effective_config.config == config.name && revision.effective_config.replaces == driver
        })
    }

    /// Returns the classes whose incumbents do not ask for them any more, with these incumbents.
    pub(super) fn absent(
        &self,
        configs: &BTreeMap<&ObjectName, &Config>,
        objects: &[&ClassObject],
    ) -> BTreeMap<String, ObjectName> {
        let objects: BTreeMap<&str, &ClassObject> =
            objects.iter().map(|object| (object.name.as_str(), *object)).collect();
        let absent = self.0.iter().filter_map(|(class, revision)| {
            let name = &revision.effective_config.config;
            let asks = configs.get(name).is_some_and(|config| asks(config, class, objects.get(class).copied()));
            (!asks).then(|| ((*class).to_owned(), name.clone()))
        });
        absent.collect()
    }
}

/// Checks whether a config asks for a class: by its label, by the driver that it replaces, or in the StorageClass.
fn asks(config: &Config, class: &str, object: Option<&ClassObject>) -> bool {
    let names = |object: &ClassObject| {
        let named = object.parameters.get(CONFIG_PARAMETER).and_then(|text| text.parse::<ObjectName>().ok());
        named.is_some_and(|named| named == config.name)
    };
    let replaces = |object: &ClassObject| config.replaces() == Some(object.provisioner.as_str());
    match &config.class {
        Some(label) if label == class => true,
        label => object.is_some_and(|object| names(object) || (label.is_none() && replaces(object))),
    }
}

/// Returns the newest revision that is valid for a class of a config.
pub(super) fn last_good(
    revisions: &BTreeMap<String, Revision>,
    config: &ObjectName,
    class: &str,
) -> Option<Arc<Recipe>> {
    let is_its =
        |revision: &&Revision| revision.effective_config.config == *config && revision.effective_config.class == class;
    let newest = revisions.values().filter(is_its).max_by_key(|revision| revision.number)?;
    newest.effective_config.checked().ok()
}
