//! Nodes, with the fields on which runs depend: their labels, and whether a pod can run there.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;

/// The taints with which Kubernetes marks a node whose kubelet does not answer, or is not ready.
const UNREACHABLE: &[&str] = &["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

/// The taint of a node that is cordoned.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// A node in the cache.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name of the node.
    pub name: String,
    /// The labels of the node.
    pub labels: BTreeMap<String, String>,
    /// The kubelet answers.
    pub reachable: bool,
    /// The taints that repel pods without a toleration. The taint of a cordoned node is among them.
    pub taints: Vec<core::Taint>,
}

impl From<&core::Node> for Node {
    fn from(node: &core::Node) -> Self {
        let taints = || node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        let mut repelling: Vec<_> = taints().filter(|taint| taint.effect != "PreferNoSchedule").cloned().collect();
        let cordoned = core::Taint { key: CORDONED.into(), effect: "NoSchedule".into(), ..core::Taint::default() };
        let is_cordoned = node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true));
        // Kubernetes adds the taint a moment later.
        if is_cordoned && !repelling.iter().any(|taint| taint.key == CORDONED) {
            repelling.push(cordoned);
        }
        repelling.iter_mut().for_each(|taint| taint.time_added = None);
        Node {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            reachable: !taints().any(|t| t.effect == "NoExecute" && UNREACHABLE.contains(&t.key.as_str())),
            taints: repelling,
        }
    }
}

/// The labels of a node.
#[derive(Clone, Copy, Debug)]
pub struct NodeLabels<'a> {
    /// The name of the node.
    pub node: &'a str,
    /// The labels of the node.
    pub labels: &'a BTreeMap<String, String>,
}

/// The state of a node on which a claim or volume depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeState {
    /// The node exists, and nothing says that its kubelet does not answer.
    Reachable,
    /// The node exists, but its kubelet does not answer.
    Unreachable,
    /// The cache does not have the node.
    NotCached,
    /// The API does not have the node.
    NotFound,
}

/// The nodes on which a claim or volume depends, with their states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeStates(pub BTreeMap<String, NodeState>);

impl NodeStates {
    /// Returns the state of a node.
    pub fn state(&self, node: &str) -> NodeState {
        self.0.get(node).copied().unwrap_or(NodeState::NotCached)
    }

    /// Returns the node to begin with: the first that is reachable. So a dead node does not prevent work on the others.
    pub fn first<'a>(&self, nodes: &'a [String]) -> Option<&'a String> {
        nodes.iter().min_by_key(|node| self.state(node))
    }

    /// Returns the first of these nodes that does not answer, or is not cached or not found.
    pub fn first_not_reachable<'a>(&self, nodes: &'a [String]) -> Option<&'a String> {
        nodes.iter().find(|node| self.state(node) != NodeState::Reachable)
    }

    /// Says why a run cannot start on its node, if it has one. Kubernetes gives a message. If the node does not answer, that
    /// message is only that the pod fits on no node, and the reader would look for an error in the config.
    pub fn why_stuck(&self, node: Option<&str>, message: &str) -> String {
        match node {
            Some(node) if self.state(node) == NodeState::Unreachable => run_waits_for_node(node),
            _ => message.to_owned(),
        }
    }

    /// Does the same about a run that changes a volume, and is pinned to a node. An admin may know another node that has the
    /// storage.
    pub fn why_change_is_stuck(&self, node: Option<&str>, volume: &str, message: &str) -> String {
        match node {
            Some(node) if matches!(self.state(node), NodeState::NotCached | NodeState::NotFound) => {
                run_is_for_lost_node(node, volume)
            }
            _ => self.why_stuck(node, message),
        }
    }
}

/// Says that a run that changes a volume is for a node that does not exist.
fn run_is_for_lost_node(node: &str, volume: &str) -> String {
    format!(
        "it must run on node {node}, which does not exist; if its storage is on another node: `flex-provisioner vouch {volume} --node NAME`"
    )
}

/// Says that a run waits for its node, which does not answer.
fn run_waits_for_node(node: &str) -> String {
    format!(
        "it must run on node {node}, which does not answer; the provisioner waits until the node is back, or until an admin says that it does not come back: `kubectl delete node {node}`"
    )
}

/// Returns all nodes except for one.
pub fn without(nodes: &[String], node: &str) -> Vec<String> {
    nodes.iter().filter(|other| *other != node).cloned().collect()
}

/// Says that the end of a pod cannot be known because its node does not answer.
pub fn unreachable_message(node: &str) -> String {
    format!(
        "a pod of the provisioner is on node {node}, which does not answer, so nobody knows whether the pod still runs; the provisioner waits until the node is back, or until an admin says that it does not come back: `kubectl delete node {node}`, or `kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(taint: Option<&str>) -> Node {
        let spec = taint.map(|key| core::NodeSpec {
            taints: Some(vec![core::Taint { key: key.into(), effect: "NoExecute".into(), ..core::Taint::default() }]),
            ..core::NodeSpec::default()
        });
        Node::from(&core::Node { spec, ..core::Node::default() })
    }

    #[test]
    fn a_node_is_reachable_unless_kubernetes_says_otherwise() {
        assert!(node(None).reachable);
        assert!(node(Some("example.org/gpu")).reachable);
        assert!(!node(Some("node.kubernetes.io/unreachable")).reachable);
        assert!(!node(Some("node.kubernetes.io/not-ready")).reachable);
    }

    #[test]
    fn a_dead_node_is_the_last_choice() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let states = [("a", NodeState::NotFound), ("b", NodeState::Unreachable), ("c", NodeState::Reachable)];
        let node_states = NodeStates(states.into_iter().map(|(name, state)| (name.to_owned(), state)).collect());
        assert_eq!(node_states.first(&names(&["a", "b", "c"])).unwrap(), "c");
        assert_eq!(node_states.first(&names(&["a", "b"])).unwrap(), "b");
        assert_eq!(node_states.first(&[]), None);
        assert_eq!(node_states.first_not_reachable(&names(&["c", "b"])).unwrap(), "b");
        assert_eq!(node_states.state("x"), NodeState::NotCached);
    }

    #[test]
    fn a_run_whose_node_does_not_answer_waits_for_the_node() {
        let states = [("a", NodeState::Reachable), ("b", NodeState::Unreachable)];
        let node_states = NodeStates(states.into_iter().map(|(name, state)| (name.to_owned(), state)).collect());
        let no_node_fits = "the pod fits on no node";
        assert_eq!(node_states.why_stuck(Some("a"), no_node_fits), no_node_fits);
        assert_eq!(node_states.why_stuck(None, no_node_fits), no_node_fits);
        let why = node_states.why_stuck(Some("b"), no_node_fits);
        assert!(why.starts_with("it must run on node b, which does not answer"), "{why}");
    }

    #[test]
    fn a_change_whose_node_is_lost_says_how_to_name_another() {
        let states = [
            ("a", NodeState::Reachable),
            ("b", NodeState::Unreachable),
            ("c", NodeState::NotFound),
            ("d", NodeState::NotCached),
        ];
        let node_states = NodeStates(states.into_iter().map(|(name, state)| (name.to_owned(), state)).collect());
        let no_node_fits = "the pod fits on no node";
        let why = |node: Option<&str>| node_states.why_change_is_stuck(node, "pvc-v", no_node_fits);
        assert_eq!((why(Some("a")), why(None)), (no_node_fits.to_owned(), no_node_fits.to_owned()));
        assert!(why(Some("b")).starts_with("it must run on node b, which does not answer"), "{}", why(Some("b")));
        for lost in ["c", "d"] {
            let said = why(Some(lost));
            assert!(said.starts_with(&format!("it must run on node {lost}, which does not exist")), "{said}");
            assert!(said.contains("flex-provisioner vouch pvc-v --node NAME"), "{said}");
        }
    }
}
