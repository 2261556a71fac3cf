//! Decisions about claims that have a data source, and about claims that are a data source.

use flex_contract::reason;

use super::observed::Observed;
use super::rule::{Decision, Rule};
use super::step::Step;
use crate::claim::data_source::{DataSourceState, left_to_populator};
use crate::config::Recipe;
use crate::model::data_source::SourceUser;
use crate::rules::Rule as _;
use crate::run::node::NodeState;

/// Leaves a claim to others if they fill it and bring its volume.
pub(super) fn leave_to_populator(o: &Observed<'_>) -> Option<Decision> {
    let who = left_to_populator(o.claim)?;
    Some(
        Rule::LeftToPopulator
            .nothing()
            .with_event(reason::LEFT_TO_POPULATOR, format!("{who}; this provisioner makes none")),
    )
}

/// Waits if the cluster lacks the kind of the data source. No pod that uses the claim changes that.
pub(super) fn wait_for_source_kind(o: &Observed<'_>) -> Option<Decision> {
    match &o.source.state {
        Some(DataSourceState::Snapshot(stored)) if !stored.served => {
            let why = stored.check(o.claim).err()?;
            Some(Rule::SourceNotReady.warn(reason::WAITING_FOR_PROVISIONER, why))
        }
        _ => None,
    }
}

/// Waits if the data source is not ready, so that no attempt can begin.
pub(super) fn wait_for_data_source(o: &Observed<'_>) -> Option<Decision> {
    let source = o.source.state.as_ref()?;
    if let Err(why) = source.check(o.claim) {
        return Some(Rule::SourceNotReady.warn(reason::WAITING_FOR_PROVISIONER, why));
    }
    let node = required_node(o, o.recipe_of_attempt()?)?;
    match o.nodes.states.state(node) {
        NodeState::Reachable | NodeState::Unreachable => None,
        NodeState::NotCached => Some(Rule::ConfirmSourceNode.step(Step::ConfirmNode { node: node.to_owned() })),
        NodeState::NotFound => {
            let source = o.claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
            let why = format!(
                "{source}, the data source of this claim, has its storage on node {node}, which is gone; the provisioner waits for the node. If the node does not come back, delete this claim"
            );
            Some(Rule::SourceNodeGone.warn(reason::WAITING_FOR_PROVISIONER, why))
        }
    }
}

/// Returns the node of the data source, where an attempt must be, whatever node the scheduler selects.
pub(super) fn required_node<'a>(o: &Observed<'a>, recipe: &Recipe) -> Option<&'a str> {
    o.source.state.as_ref().and_then(|source| source.required_node(recipe))
}

/// Protects the data source before a run reads it.
pub(super) fn protect_data_source(o: &Observed<'_>) -> Option<Decision> {
    o.source
        .state
        .as_ref()
        .filter(|source| source.is_to_be_kept(o.claim))
        .map(|_| Rule::ProtectSource.step(Step::ProtectSource))
}

/// Ends the protection of a claim for its copies, when nothing else is to be done.
pub(super) fn copied(o: &Observed<'_>, decision: Decision) -> Decision {
    if decision.step != Step::Nothing || o.source.users.is_empty() {
        return decision;
    }
    let done: Vec<String> =
        o.source.users.iter().filter(|copy| copy.in_progress.is_none()).map(|c| c.uid.clone()).collect();
    if !done.is_empty() {
        return Decision { rule: Rule::UnprotectSource, step: Step::UnprotectSource { copies: done }, ..decision };
    }
    if !o.claim.terminating || decision.event.is_some() {
        return decision;
    }
    let name = |copy: &SourceUser| copy.in_progress.as_ref().map(ToString::to_string);
    let names: Vec<String> = o.source.users.iter().filter_map(name).collect();
    let names = match names.as_slice() {
        [first, rest @ ..] if rest.len() > 3 => format!("{first} and {} more", rest.len()),
        all => all.join(", "),
    };
    Decision { rule: Rule::BeingCloned, ..decision }.with_event(
        reason::BEING_CLONED,
        format!("the claim stays until its clones and snapshots are made: {names}; to free it before, delete those"),
    )
}
