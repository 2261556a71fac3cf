//! Nodes, and the work items that depend on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Change, Index, WorkItem};
use crate::model::claim::Claim;
use crate::node::{Node, NodeState, NodeStates};
use crate::object::ObjectName;

impl Index {
    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }

    /// Returns a node by its name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.get(name).cloned()
    }

    /// Returns the states of nodes, by the cache.
    pub fn node_states<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> NodeStates {
        let state = |name: &String| match self.nodes.get(name) {
            Some(node) if node.reachable => NodeState::Ready,
            Some(_) => NodeState::Unreachable,
            None => NodeState::Missing,
        };
        NodeStates(nodes.filter(|name| !name.is_empty()).map(|name| (name.clone(), state(name))).collect())
    }

    /// Applies a change of a node. A change of its existence, its labels, or its ability to answer and to take pods
    /// concerns the items that depend on the node.
    pub fn change_node(&mut self, change: Change<Node>) -> Vec<WorkItem> {
        match change {
            Change::Apply(node) => {
                let node = Arc::new(node);
                let before = self.nodes.insert(node.name.clone(), node.clone());
                if before.as_ref() == Some(&node) {
                    return Vec::new();
                }
                let mut keys = self.dependents(&node.name, true);
                keys.extend(self.capacity_keys());
                keys.extend(self.pool_keys());
                keys
            }
            Change::Delete(name) => {
                self.nodes.remove(&name.name);
                let mut keys = self.dependents(&name.name, false);
                keys.extend(self.capacity_keys());
                keys.extend(self.pool_keys());
                keys
            }
            Change::Retain(all) => self.retain(
                all,
                |index| index.nodes.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_node,
            ),
            // The kind has no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// Returns the items in progress that a change of a node concerns. They depend on the node, may wait for such a
    /// node, or may get the slots of runs that are lost with it. Nodes seldom appear or vanish.
    fn dependents(&self, node: &str, is_there: bool) -> Vec<WorkItem> {
        let on_it = |name: &String| name == node;
        let waits = |claim: &Claim| is_there && (claim.selected_node.is_none() || claim.data_source.is_some());
        let claims = self.claims.values().filter(|claim| match claim.is_bound() {
            true => claim.has_finalizer() && claim.nodes.iter().chain(&claim.selected_node).any(on_it),
            false => waits(claim) || claim.nodes.iter().chain(&claim.selected_node).any(on_it),
        });
        let volumes = self.volumes.values().filter(|volume| volume.nodes.iter().any(on_it));
        let contents = self.snapshots.terminating();
        let pods = self.pods.values().filter(|pod| !pod.is_over() && pod.node.iter().any(on_it));
        let mut keys: Vec<WorkItem> = claims.map(|claim| WorkItem::Claim(claim.name.clone())).collect();
        keys.extend(volumes.map(|volume| WorkItem::Volume(volume.name.clone())));
        keys.extend(contents);
        keys.extend(pods.clone().flat_map(|pod| self.pod_keys(pod)));
        let classes: BTreeSet<&String> = pods.map(|pod| &pod.run_labels.class).collect();
        keys.extend(classes.into_iter().flat_map(|class| self.wake_for_slot_of(class)));
        keys.sort();
        keys.dedup();
        keys
    }
}
