//! Nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_core::run::node::{Node, NodeState, NodeStates};

/// All nodes.
#[derive(Debug, Default)]
pub struct NodeCache(BTreeMap<String, Arc<Node>>);

impl NodeCache {
    /// Returns a node by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Node>> {
        self.0.get(name)
    }

    /// Returns all nodes.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.0.values()
    }

    /// Returns the names of all nodes.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Returns the states of nodes.
    pub fn states<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> NodeStates {
        let state = |name: &String| match self.get(name) {
            Some(node) if node.reachable => NodeState::Reachable,
            Some(_) => NodeState::Unreachable,
            None => NodeState::NotCached,
        };
        NodeStates(nodes.map(|name| (name.clone(), state(name))).collect())
    }

    /// Adds a node, or its new state. Returns whether anything changed in its existence, its labels, or its ability to
    /// answer and to take pods.
    pub fn apply(&mut self, node: Node) -> bool {
        let node = Arc::new(node);
        self.0.insert(node.name.clone(), node.clone()) != Some(node)
    }

    /// Removes a node.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}
