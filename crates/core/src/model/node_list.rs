//! A list of nodes in an annotation.

use flex_contract::names;

use crate::limits;
use crate::object::is_dns_name;

/// Reads the nodes in an annotation as the orchestrator writes them, and ignores everything else.
pub fn nodes(annotation: Option<&str>) -> Vec<String> {
    let nodes = annotation.map(names::list).unwrap_or_default();
    distinct(nodes.into_iter().filter(|node| is_dns_name(node)).take(limits::NODES).collect())
}

/// Removes duplicates, and keeps the order.
pub(super) fn distinct(items: Vec<String>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    items.into_iter().filter(|item| seen.insert(item.clone())).collect()
}
