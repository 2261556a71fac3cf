//! The config that has served a class until now.
//!
//! The newest stored revision of a class names this config, its *incumbent*. Another config with the same label does not
//! take the class, whatever its age: an admin may have set the label by mistake, or may delete a ConfigMap only to create
//! it again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::input::Revision;
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

/// Returns the newest revision of a class, whatever its config. Its config is the incumbent.
pub(super) fn newest_of_class<'a>(revisions: &'a BTreeMap<String, Revision>, class: &str) -> Option<&'a Revision> {
    revisions
        .values()
        .filter(|revision| revision.effective_config.class == class)
        .max_by_key(|revision| revision.number)
}

/// Returns the config that has served a class until now.
pub(super) fn incumbent<'a>(revisions: &'a BTreeMap<String, Revision>, class: &str) -> Option<&'a ObjectName> {
    newest_of_class(revisions, class).map(|revision| &revision.effective_config.config)
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
