//! The segments of a class: the parts of the cluster with storage of their own. A segment is a node, a zone, or the
//! cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::names;

use super::CAPABILITY;
use crate::claim::nodes::{accepts_run, matches_config};
use crate::config::classes::{BindingMode, Class};
use crate::config::topology::Topologies;
use crate::config::{Placement, Recipe};
use crate::object::hash;
use crate::run::node::Node;

/// The nodes that reach the same storage of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The id of the segment. It differs from those of all others, also if a class of the same name existed before.
    pub id: String,
    /// The name of the class.
    pub class: String,
    /// The UID of the StorageClass.
    pub class_uid: String,
    /// The labels that all nodes of the segment have; empty for all nodes.
    pub topology: BTreeMap<String, String>,
}

impl Segment {
    fn new(instance: &str, class: &Class, topology: BTreeMap<String, String>) -> Self {
        let id = hash(serde_json::json!([instance, class.name, class.uid, topology]).to_string().as_bytes());
        Segment { id, class: class.name.clone(), class_uid: class.uid.clone(), topology }
    }

    /// Returns the name of the segment's CSIStorageCapacity object.
    pub fn object_name(&self) -> String {
        format!("flex-capacity-{}", self.id)
    }
}

impl std::fmt::Display for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.topology.is_empty() {
            return write!(f, "class {}", self.class);
        }
        let labels: Vec<_> = self.topology.iter().map(|(key, value)| format!("{key}={value}")).collect();
        write!(f, "class {} where {}", self.class, labels.join(","))
    }
}

/// The way to learn the capacity of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct CapacitySource {
    /// The recipe of the capacity run.
    pub recipe: Arc<Recipe>,
    /// The topologies that the class allows.
    pub allowed: Topologies,
    /// The node on which the run must be, where each node has its own storage.
    pub node: Option<String>,
    /// A run is possible in the segment now.
    pub can_run: bool,
}

/// A segment whose capacity the scheduler must know.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedSegment {
    /// The segment.
    pub segment: Segment,
    /// The way to learn the capacity; `None` for a class that no image reports, which counts as unlimited.
    pub source: Option<CapacitySource>,
}

/// Checks whether the scheduler uses the capacity of a class. It does so only for claims that wait for their first
/// consumer.
fn uses_capacity(class: &Class) -> bool {
    class.has_object && class.binding == BindingMode::WaitForFirstConsumer
}

fn capacity_recipe(class: &Class) -> Option<&Arc<Recipe>> {
    class.recipe.as_ref().ok().filter(|recipe| recipe.can(CAPABILITY))
}

/// Checks whether an image reports the capacity of any of these classes.
pub fn any_has_capacity<'a>(classes: impl IntoIterator<Item = &'a Class>) -> bool {
    classes.into_iter().any(|class| uses_capacity(class) && capacity_recipe(class).is_some())
}

/// Returns all segments whose capacity the scheduler must know. They are none while no image reports a class, unless a
/// CSIDriver of somebody else makes the scheduler check capacity.
pub fn wanted(instance: &str, classes: &[&Class], nodes: &[Arc<Node>], looked_for: bool) -> Vec<WantedSegment> {
    if !looked_for && !any_has_capacity(classes.iter().copied()) {
        return Vec::new();
    }
    classes
        .iter()
        .copied()
        .filter(|class| uses_capacity(class))
        .flat_map(|class| of_class(instance, class, nodes))
        .collect()
}

fn of_class(instance: &str, class: &Class, nodes: &[Arc<Node>]) -> Vec<WantedSegment> {
    let everywhere = |source| vec![WantedSegment { segment: Segment::new(instance, class, BTreeMap::new()), source }];
    let Some(recipe) = capacity_recipe(class) else { return everywhere(None) };
    let source =
        |node, can_run| Some(CapacitySource { recipe: recipe.clone(), allowed: class.allowed.clone(), node, can_run });
    let keys = keys(recipe);
    if keys.is_empty() {
        return everywhere(source(None, true));
    }
    let by_node = keys.iter().any(|key| key == names::HOSTNAME);
    let mut found: BTreeMap<BTreeMap<String, String>, (Option<String>, bool)> = BTreeMap::new();
    for node in nodes.iter().filter(|node| class.allowed.allows(&node.labels) && matches_config(node, recipe)) {
        let labels = keys.iter().map(|key| Some((key.clone(), node.labels.get(key)?.clone())));
        // Volumes that are bound to these labels cannot be on a node that lacks them.
        let Some(topology) = labels.collect::<Option<BTreeMap<_, _>>>() else { continue };
        let entry = found.entry(topology).or_insert((by_node.then(|| node.name.clone()), false));
        entry.1 |= accepts_run(node, recipe);
    }
    found
        .into_iter()
        .map(|(topology, (node, able))| WantedSegment {
            segment: Segment::new(instance, class, topology),
            source: source(node, able),
        })
        .collect()
}

/// Returns the labels whose values distinguish the segments of a class; none for storage that all nodes reach.
pub fn keys(recipe: &Recipe) -> Vec<String> {
    match recipe.placement {
        _ if !recipe.volume_affinity.is_empty() => recipe.volume_affinity.clone(),
        Placement::SelectedNode => vec![names::HOSTNAME.to_owned()],
        Placement::Any => Vec::new(),
    }
}

#[cfg(test)]
#[path = "segment_tests.rs"]
pub(in crate::capacity) mod tests;
