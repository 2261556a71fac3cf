//! A class that the orchestrator serves, and the verdict on the config that it belongs to.

use std::sync::Arc;

use super::input::BindingMode;
use super::topology::Topologies;
use super::{Problem, Recipe};

/// The recipe that serves a class.
pub(super) struct ServedRecipe {
    /// The recipe; or the reason why there is none.
    pub recipe: Result<Arc<Recipe>, String>,
    /// The recipe is that of the last valid version of the config.
    pub last_good: bool,
}

/// A class that the orchestrator serves.
#[derive(Clone, Debug)]
pub struct Class {
    /// The name of the class.
    pub name: String,
    /// The class has a StorageClass object.
    pub has_object: bool,
    /// The UID of that object; empty without one.
    pub uid: String,
    /// The time at which claims of the class are served.
    pub binding: BindingMode,
    /// The recipe of the volumes, or the reason why no volume can be made now.
    pub recipe: Result<Arc<Recipe>, String>,
    /// The config has errors now, and the recipe is its last valid version.
    pub last_good: bool,
    /// The topologies in which volumes may be.
    pub allowed: Topologies,
    /// The provisioner that the PV controller writes on the claims: the orchestrator's own, or the driver that the
    /// config replaces.
    pub provisioner: String,
}

impl Class {
    /// Checks whether a claim waits for the scheduler to select a node, which it does for the first pod that uses the claim.
    pub fn awaits_node(&self, selected_node: Option<&str>) -> bool {
        self.binding == BindingMode::WaitForFirstConsumer && selected_node.is_none()
    }

    /// Checks whether the class selects namespaces by their labels.
    pub fn selects_namespaces(&self) -> bool {
        self.recipe.as_ref().is_ok_and(|recipe| recipe.namespaces.selector.is_some())
    }

    /// Checks whether the PV controller has written another provisioner on a claim than that of the class. The class
    /// belonged to another provisioner when the PV controller first saw the claim.
    pub fn is_for_other_provisioner(&self, asked: Option<&str>) -> bool {
        asked.is_some_and(|name| name != self.provisioner)
    }
}

/// The relation of a claim's class to the orchestrator.
#[derive(Clone, Copy, Debug)]
pub enum ClassLookup<'a> {
    /// The orchestrator serves the class.
    Ours(&'a Class),
    /// Somebody else serves the class.
    Foreign,
    /// Neither a StorageClass nor a config names the class.
    Unknown,
}

/// The state of a ConfigMap, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ConfigState {
    /// The config has neither errors nor warnings.
    Accepted,
    /// The config has warnings, and no errors.
    Warnings,
    /// The config has errors, and is not in use. An older version may be.
    Refused,
}

/// The verdict on one ConfigMap.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdict {
    /// All errors of the config; empty if it is valid.
    pub problems: Vec<Problem>,
    /// Warnings, which are no errors.
    pub warnings: Vec<Problem>,
    /// The classes that the config serves, in its current or last valid version.
    pub classes: Vec<String>,
    /// An older version of the config is in use.
    pub last_good: bool,
}

impl Verdict {
    /// Returns the state of the ConfigMap.
    pub fn state(&self) -> ConfigState {
        match (self.problems.is_empty(), self.warnings.is_empty()) {
            (true, true) => ConfigState::Accepted,
            (true, false) => ConfigState::Warnings,
            (false, _) => ConfigState::Refused,
        }
    }
}
