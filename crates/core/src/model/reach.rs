//! The nodes that reach a volume by its node affinity, and the node that has its storage.
//!
//! A volume names its nodes by labels, and everything else names a node by its name. Labels may differ from names, move
//! from node to node, and be on several nodes.

use k8s_openapi::api::core::v1::NodeSelector;

use super::affinity;
use super::volume::Volume;
use crate::run::node::Node;

/// Returns the names of the nodes whose labels satisfy a node affinity.
pub fn reaching<'a>(
    selector: &'a NodeSelector,
    nodes: impl Iterator<Item = &'a Node> + 'a,
) -> impl Iterator<Item = &'a str> + 'a {
    nodes.filter(|node| affinity::matches(selector, &node.labels)).map(|node| node.name.as_str())
}

/// Returns the node to which the node affinity of a volume leads, if it excludes the node of the volume's record, which
/// is `None` if it does not exist. Several nodes, as in a zone, say nothing about storage on a node that is gone.
pub fn leads_elsewhere<'a>(
    volume: &'a Volume,
    origin: Option<&Node>,
    nodes: impl Iterator<Item = &'a Node> + 'a,
) -> Option<&'a str> {
    let selector = volume.affinity.as_deref()?;
    match origin.is_some_and(|node| affinity::matches(selector, &node.labels)) {
        true => None,
        false => {
            let mut others = reaching(selector, nodes);
            let first = others.next();
            first.filter(|_| origin.is_some() || affinity::only_host(selector).is_some() || others.next().is_none())
        }
    }
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
