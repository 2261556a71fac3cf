//! The nodes that reach a volume by its node affinity, and the node that has its storage.
//!
//! A volume names its nodes by labels, and everything else names a node by its name. Labels may differ from names, move
//! from node to node, and be on several nodes.

use std::collections::BTreeSet;

use flex_contract::names;
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

/// Returns the node that has the storage of a volume that was never adopted. `runs` are the nodes of its provision runs. A
/// label says which of several is right. A label alone proves nothing, because another node may have had it when the
/// volume was made, unless the node has the same name.
///
/// # Errors
/// If the node cannot be known. The text is for the admin.
pub fn origin_of_unadopted<'a>(
    volume: &'a Volume,
    runs: &BTreeSet<&str>,
    nodes: impl Iterator<Item = &'a Node> + 'a,
) -> Result<String, String> {
    let reaching: Vec<&str> =
        volume.affinity.as_deref().map(|selector| reaching(selector, nodes).collect()).unwrap_or_default();
    let of_runs: Vec<&&str> = runs.iter().filter(|node| runs.len() == 1 || reaching.contains(*node)).collect();
    let host = volume.affinity.as_deref().and_then(affinity::only_host).filter(|host| !host.is_empty());
    match (of_runs.as_slice(), host) {
        ([node], _) => return Ok((**node).to_owned()),
        ([], Some(host)) if runs.is_empty() && reaching == [host] => return Ok(host.to_owned()),
        _ => {}
    }
    let list = |nodes: &[&str], none: &str| match nodes {
        [] => none.to_owned(),
        nodes => nodes.join(", "),
    };
    let ran = list(&runs.iter().copied().collect::<Vec<_>>(), "no known node");
    let label = host.map_or_else(|| "its node affinity".to_owned(), |host| format!("{}={host}", names::HOSTNAME));
    let has = list(&reaching, "no node");
    Err(format!(
        "the node that has it is not known: the volume was never adopted, its runs were on {ran}, and {label} now leads to {has}"
    ))
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
