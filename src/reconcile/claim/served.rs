//! The relation of a claim to the classes that the orchestrator serves.

use flex_core::claim::decide::ServedClass;
use flex_core::config::classes::{ClassLookup, Classes};
use flex_core::model::claim::Claim;

use crate::state::index::Index;

/// Returns the class of a claim, if the orchestrator serves the claim.
pub(super) fn served_class<'a>(claim: &Claim, classes: &'a Classes) -> ServedClass<'a> {
    match claim.class.as_deref().map(|class| classes.lookup(class)) {
        Some(ClassLookup::Ours(class)) if !class.is_for_other_provisioner(claim.storage_provisioner.as_deref()) => {
            ServedClass::Ours(class)
        }
        _ => ServedClass::NotOurs,
    }
}

/// Checks whether the class does not allow the selected node.
pub(super) fn is_selected_node_forbidden(claim: &Claim, index: &Index) -> bool {
    let classes = index.classes();
    let ServedClass::Ours(class) = served_class(claim, &classes) else { return false };
    let node = claim.selected_node.as_deref().filter(|_| !class.allowed.is_empty());
    node.and_then(|node| index.node(node)).is_some_and(|node| !class.allowed.allows(&node.labels))
}
