//! Where the runs of a claim are to be, if nodes matter.

use contract::exit::Failure;
use contract::names::{self, reason};
use contract::request::Operation;

use super::copying::tied;
use super::{Decision, Observed, Step, recipe};
use crate::claim::Claim;
use crate::config::classes::{BindingMode, Class};
use crate::config::{Placement, Recipe};
use crate::node::{NodeState, Places};

/// Where an attempt that begins now may leave something; last, where it is to run.
///
/// # Errors
/// No node takes it, in words for the claim.
pub(super) fn nodes_from(o: &Observed<'_>, class: &Class, recipe: &Recipe) -> Result<Vec<String>, String> {
    let mut nodes = match o.claim.own_stamp() {
        Some(_) => o.claim.nodes.clone(),
        None => Vec::new(),
    };
    if recipe.placement == Placement::SelectedNode {
        let node = next_node(o, class, recipe)?;
        nodes.retain(|noted| noted != node);
        nodes.push(node.to_owned());
    }
    Ok(nodes)
}

/// The node of an attempt that begins now: that of the original, the selected one, or one that is chosen here.
fn next_node<'a>(o: &Observed<'a>, class: &Class, recipe: &Recipe) -> Result<&'a str, String> {
    if let Some(node) = tied(o, recipe).or(selected(o, class)) {
        return Ok(node);
    }
    let last = || o.claim.nodes.last().filter(|_| o.choice.last && o.claim.own_stamp().is_some());
    let next = || o.choice.next.as_ref();
    // Where an attempt has failed something may be left, so that the next is there too, unless there is no room.
    let node = if had_no_room(o) { next().or_else(last) } else { last().or_else(next) };
    node.map(String::as_str).ok_or_else(|| {
        format!(
            "no node can take a run for this claim: class {} makes volumes on nodes (`placement: selected-node`), and no node is ready, within allowedTopologies and open to the runs (`node-selector`, `tolerations`, `pod-template`); for storage that is reached through the network, set `placement: any` in the provisioner config",
            class.name
        )
    })
}

/// The node that was selected for the claim. Where the class binds immediately no scheduler selects one: anybody may have
/// named it, and one that does not exist is passed over.
fn selected<'a>(o: &Observed<'a>, class: &Class) -> Option<&'a str> {
    let exists = |node: &&str| class.binding == BindingMode::WaitForFirstConsumer || !is_gone(o, node);
    o.claim.selected_node.as_deref().filter(exists)
}

fn is_gone(o: &Observed<'_>, node: &str) -> bool {
    o.places.state(node) == NodeState::Gone
}

/// What is told of a node that the claim names and that is passed over.
pub(super) fn passed_over(o: &Observed<'_>, class: &Class, recipe: &Recipe) -> Option<String> {
    let node = o.claim.selected_node.as_deref().filter(|_| selected(o, class).is_none())?;
    (recipe.placement == Placement::SelectedNode).then(|| {
        format!(
            "the claim names node {node} ({}), which does not exist; the provisioner chooses another node",
            names::SELECTED_NODE
        )
    })
}

/// The last attempt found no room on its node.
fn had_no_room(o: &Observed<'_>) -> bool {
    let attempt = o.claim.own_stamp().map(|stamp| stamp.attempt);
    let last = o.claim.last_failure.as_ref().filter(|last| last.operation == Operation::Provision);
    last.is_some_and(|last| Some(last.attempt) == attempt && last.kind == Failure::NoRoom)
}

/// Where the run of an attempt must be: on the last of the nodes that are noted with its stamp.
pub fn run_node<'a>(nodes: &'a [String], recipe: &Recipe) -> Option<&'a str> {
    recipe.pin(nodes.last()?)
}

/// Nobody selects a node for the claim: it is chosen here.
fn chooses(o: &Observed<'_>, class: &Class) -> bool {
    let on_node =
        recipe(o).is_some_and(|recipe| recipe.placement == Placement::SelectedNode && tied(o, recipe).is_none());
    class.binding == BindingMode::Immediate && selected(o, class).is_none() && on_node
}

/// The node that the stamp was written for is not the one where the attempt is to be now.
pub(super) fn is_misplaced(o: &Observed<'_>, class: &Class) -> bool {
    let Some(recipe) = recipe(o).filter(|recipe| recipe.placement == Placement::SelectedNode) else { return false };
    match run_node(&o.claim.nodes, recipe) {
        None => true,
        Some(_) if chooses(o, class) => !o.choice.last,
        Some(noted) => tied(o, recipe).or(selected(o, class)).is_some_and(|node| node != noted),
    }
}

/// The scheduler can find another node for the claim.
pub(super) fn is_movable(o: &Observed<'_>, class: &Class) -> bool {
    let tied = recipe(o).is_some_and(|recipe| tied(o, recipe).is_some());
    class.binding == BindingMode::WaitForFirstConsumer && !tied
}

/// The node that the scheduler selected does not exist any more, or is none that the class allows: it is asked for
/// another.
pub(super) fn selected_is_unfit(o: &Observed<'_>, class: &Class) -> Option<Decision> {
    let node = o.claim.selected_node.as_ref()?;
    if !is_movable(o, class) {
        let matters = class.binding == BindingMode::Immediate
            && recipe(o).is_some_and(|recipe| recipe.placement == Placement::SelectedNode);
        let unsure = matters && o.places.state(node) == NodeState::Missing;
        return unsure.then(|| Step::ConfirmNode { node: node.clone() }.into());
    }
    match o.places.state(node) {
        NodeState::Ready | NodeState::Unreachable if o.outside => {
            Some(Decision::from(Step::Reschedule { failure: None }).saying(
                false,
                reason::RESCHEDULING,
                format!("the selected node {node} is outside the allowedTopologies of class {}; the provisioner asks the scheduler for another", class.name),
            ))
        }
        NodeState::Ready | NodeState::Unreachable => None,
        NodeState::Missing => Some(Step::ConfirmNode { node: node.clone() }.into()),
        NodeState::Gone => Some(Decision::from(Step::Reschedule { failure: None }).saying(
            false,
            reason::RESCHEDULING,
            format!("the selected node {node} is gone; the provisioner asks the scheduler for another"),
        )),
    }
}

/// The run can be on the selected node only.
pub(super) fn is_pinned(o: &Observed<'_>, class: &Class) -> bool {
    is_movable(o, class)
        && o.claim.selected_node.is_some()
        && recipe(o).is_some_and(|recipe| recipe.placement == Placement::SelectedNode)
}

/// There is another node, for a claim for which it is chosen here.
pub(super) fn has_other_node(o: &Observed<'_>, class: &Class) -> bool {
    chooses(o, class) && o.choice.next.is_some()
}

/// There is a node where no attempt was, for a claim for which it is chosen here.
pub(super) fn has_new_node(o: &Observed<'_>, class: &Class) -> bool {
    chooses(o, class) && o.choice.is_new
}

/// Where attempts of the claim were or are to be.
pub(super) fn known_nodes(claim: &Claim) -> impl Iterator<Item = &String> {
    claim.selected_node.iter().chain(&claim.nodes)
}

/// Where the last attempt was or is to be.
pub fn last_node(claim: &Claim) -> Option<&String> {
    claim.nodes.last().or(claim.selected_node.as_ref())
}

/// The node on which the traces of a claim that goes are removed next; empty for any.
pub fn cleanup_node<'a>(claim: &'a Claim, places: &Places) -> &'a str {
    places.first(&claim.nodes).map_or("", String::as_str)
}
