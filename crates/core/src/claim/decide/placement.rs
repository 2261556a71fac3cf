//! The node of a claim's runs, if nodes matter.

use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::reason;

use super::data_source::required_node;
use super::observed::Observed;
use super::rule::{Decision, Rule};
use super::step::Step;
use crate::config::classes::{BindingMode, Class};
use crate::config::{Placement, Recipe};
use crate::model::claim::Claim;
use crate::rules::Rule as _;
use crate::run::node::{NodeState, NodeStates};

/// Returns the nodes where an attempt that begins now may leave storage. The last is the node of its run.
///
/// # Errors
/// If no node takes the run. The text is for the claim's event.
pub(super) fn nodes_from(o: &Observed<'_>, class: &Class, recipe: &Recipe) -> Result<Vec<String>, String> {
    // An admin has given up the storage that earlier attempts of an abandoned claim left.
    let mut nodes = match o.claim.own_stamp().filter(|_| !o.claim.abandoned) {
        Some(_) => o.claim.nodes_with_storage.clone(),
        None => Vec::new(),
    };
    if recipe.placement == Placement::SelectedNode {
        let node = next_node(o, class, recipe)?;
        nodes.retain(|noted| noted != node);
        nodes.push(node.to_owned());
    }
    Ok(nodes)
}

/// Returns the node of an attempt that begins now. It is that of the data source, the selected node, or a node chosen
/// here.
fn next_node<'a>(o: &Observed<'a>, class: &Class, recipe: &Recipe) -> Result<&'a str, String> {
    if let Some(node) = required_node(o, recipe).or(selected(o, class)) {
        return Ok(node);
    }
    let last = || o.claim.nodes_with_storage.last().filter(|_| o.nodes.choice.last && o.claim.own_stamp().is_some());
    let next = || o.nodes.choice.next.as_ref();
    // A failed attempt may have left storage on its node. So the next attempt is there too, unless the node has no
    // capacity.
    let node = if had_no_capacity(o) { next().or_else(last) } else { last().or_else(next) };
    node.map(String::as_str).ok_or_else(|| {
        format!(
            "no node can take a run for this claim: class {} makes volumes on nodes (`placement: selected-node`), and no node is ready, within allowedTopologies and open to the runs (`node-selector`, `tolerations`, `pod-template`); for storage that is reached through the network, set `placement: any` in the provisioner config",
            class.name
        )
    })
}

/// Returns the node that the scheduler selected for the claim. Where the class binds immediately, anybody may have
/// named a node, and a node that does not exist is ignored.
fn selected<'a>(o: &Observed<'a>, class: &Class) -> Option<&'a str> {
    let exists = |node: &&str| class.binding == BindingMode::WaitForFirstConsumer || !is_gone(o, node);
    o.claim.selected_node.as_deref().filter(exists)
}

fn is_gone(o: &Observed<'_>, node: &str) -> bool {
    o.nodes.states.state(node) == NodeState::NotFound
}

/// Returns the text of the event if the claim names a node that is ignored.
pub(super) fn ignored_node_message(o: &Observed<'_>, class: &Class, recipe: &Recipe) -> Option<String> {
    let node = o.claim.selected_node.as_deref().filter(|_| selected(o, class).is_none())?;
    (recipe.placement == Placement::SelectedNode).then(|| {
        format!(
            "the claim names node {node} ({}), which does not exist; the provisioner chooses another node",
            names::SELECTED_NODE
        )
    })
}

/// Checks whether the last attempt found no capacity on its node.
fn had_no_capacity(o: &Observed<'_>) -> bool {
    let attempt = o.claim.own_stamp().map(|stamp| stamp.attempt);
    let last = o.claim.last_failure.as_ref().filter(|last| last.operation == Operation::Provision);
    last.is_some_and(|last| Some(last.attempt) == attempt && last.reaction == Reaction::NoCapacity)
}

/// Returns the node on which an attempt must run: the last of the nodes that its stamp records.
pub fn run_node<'a>(nodes: &'a [String], recipe: &Recipe) -> Option<&'a str> {
    recipe.required_node(nodes.last().map(String::as_str))
}

/// Checks whether the orchestrator chooses the node, because nobody else selects one.
fn chooses(o: &Observed<'_>, class: &Class) -> bool {
    let on_node = o
        .recipe_of_attempt()
        .is_some_and(|recipe| recipe.placement == Placement::SelectedNode && required_node(o, recipe).is_none());
    class.binding == BindingMode::Immediate && selected(o, class).is_none() && on_node
}

/// Checks whether the stamp was written for another node than the one where the attempt must be now.
pub(super) fn is_on_wrong_node(o: &Observed<'_>, class: &Class) -> bool {
    let Some(recipe) = o.recipe_of_attempt().filter(|recipe| recipe.placement == Placement::SelectedNode) else {
        return false;
    };
    match run_node(&o.claim.nodes_with_storage, recipe) {
        None => true,
        Some(_) if chooses(o, class) => !o.nodes.choice.last,
        Some(noted) => required_node(o, recipe).or(selected(o, class)).is_some_and(|node| node != noted),
    }
}

/// Checks whether the scheduler can find another node for the claim.
pub(super) fn can_reschedule(o: &Observed<'_>, class: &Class) -> bool {
    let has_required_node = o.recipe_of_attempt().is_some_and(|recipe| required_node(o, recipe).is_some());
    class.binding == BindingMode::WaitForFirstConsumer && !has_required_node
}

/// Asks the scheduler for another node if the selected one is gone, or if the class does not allow it.
pub(super) fn reschedule_from_unfit(o: &Observed<'_>, class: &Class) -> Option<Decision> {
    let node = o.claim.selected_node.as_ref()?;
    if !can_reschedule(o, class) {
        let matters = class.binding == BindingMode::Immediate
            && o.recipe_of_attempt().is_some_and(|recipe| recipe.placement == Placement::SelectedNode);
        let unsure = matters && o.nodes.states.state(node) == NodeState::NotCached;
        return unsure.then(|| Rule::ConfirmSelectedNode.step(Step::ConfirmNode { node: node.clone() }));
    }
    match o.nodes.states.state(node) {
        NodeState::Reachable | NodeState::Unreachable if o.nodes.selected_forbidden => {
            Some(Rule::SelectedNodeForbidden.step(Step::Reschedule { failure: None }).with_event(
                reason::RESCHEDULING,
                format!("the selected node {node} is outside the allowedTopologies of class {}; the provisioner asks the scheduler for another", class.name),
            ))
        }
        NodeState::Reachable | NodeState::Unreachable => None,
        NodeState::NotCached => Some(Rule::ConfirmSelectedNode.step(Step::ConfirmNode { node: node.clone() })),
        NodeState::NotFound => Some(Rule::SelectedNodeGone.step(Step::Reschedule { failure: None }).with_event(
            reason::RESCHEDULING,
            format!("the selected node {node} is gone; the provisioner asks the scheduler for another"),
        )),
    }
}

/// Checks whether the run can be on the selected node only.
pub(super) fn is_bound_to_selected_node(o: &Observed<'_>, class: &Class) -> bool {
    can_reschedule(o, class)
        && o.claim.selected_node.is_some()
        && o.recipe_of_attempt().is_some_and(|recipe| recipe.placement == Placement::SelectedNode)
}

/// Checks whether there is another node for a claim whose node the orchestrator chooses.
pub(super) fn has_other_node(o: &Observed<'_>, class: &Class) -> bool {
    chooses(o, class) && o.nodes.choice.next.is_some()
}

/// Checks whether there is a node without an attempt for a claim whose node the orchestrator chooses.
pub(super) fn has_new_node(o: &Observed<'_>, class: &Class) -> bool {
    chooses(o, class) && o.nodes.choice.is_new
}

/// Returns the nodes of all attempts of the claim.
pub fn known_nodes(claim: &Claim) -> impl Iterator<Item = &String> {
    claim.selected_node.iter().chain(&claim.nodes_with_storage)
}

/// Returns the node of the last attempt.
pub fn last_node(claim: &Claim) -> Option<&String> {
    claim.nodes_with_storage.last().or(claim.selected_node.as_ref())
}

/// Returns the node that the request of a delete run without a volume names. `node` is the node whose storage is deleted.
/// Where nodes do not matter, attempts named the selected node all the same, and their backend may have chosen the place of
/// the volume by it. So the delete run names that node too, as long as the node exists.
pub fn requested_node<'a>(claim: &'a Claim, node: Option<&'a str>, states: &NodeStates) -> Option<&'a str> {
    let exists = |node: &&str| matches!(states.state(node), NodeState::Reachable | NodeState::Unreachable);
    node.or(claim.selected_node.as_deref().filter(exists))
}

/// Returns the node on which the storage of a terminating claim is deleted next; `None` for any node.
pub fn cleanup_node<'a>(claim: &'a Claim, node_states: &NodeStates) -> Option<&'a str> {
    node_states.first(&claim.nodes_with_storage).map(String::as_str)
}
