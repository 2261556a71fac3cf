//! Decisions about claims that have a data source, and about claims that are a data source.

use flex_contract::names::reason;

use super::{Decision, Observed, Step, recipe};
use crate::config::Recipe;
use crate::model::data_source::DataSource;
use crate::model::data_source::SourceUser;
use crate::node::NodeState;

/// Decides row 18 if others fill the claim and bring its volume.
pub(super) fn left_to_populator(o: &Observed<'_>) -> Option<Decision> {
    let Some(DataSource::Populated(source)) = &o.claim.data_source else { return None };
    Some(Decision::nothing().with_event(
        reason::LEFT_TO_POPULATOR,
        format!("the populator for {source} fills this claim and brings its volume; this provisioner makes none"),
    ))
}

/// Waits if the data source is not ready, so that no attempt can begin.
pub(super) fn waits_for_original(o: &Observed<'_>) -> Option<Decision> {
    let origin = o.data_source.as_ref()?;
    if let Err(why) = origin.check(o.claim) {
        return Some(Decision::wait(reason::WAITING, why));
    }
    let node = required_node(o, recipe(o)?)?;
    match o.node_states.state(node) {
        NodeState::Ready | NodeState::Unreachable => None,
        NodeState::Missing => Some(Step::ConfirmNode { node: node.to_owned() }.into()),
        NodeState::Gone => {
            let source = o.claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
            let why = format!(
                "{source}, the data source of this claim, has its storage on node {node}, which is gone; the provisioner waits for the node. If the node does not come back, delete this claim"
            );
            Some(Decision::wait(reason::WAITING, why))
        }
    }
}

/// Returns the node of the data source, where an attempt must be, whatever node the scheduler selects.
pub(super) fn required_node<'a>(o: &Observed<'a>, recipe: &Recipe) -> Option<&'a str> {
    o.data_source.as_ref().and_then(|origin| origin.required_node(recipe))
}

/// Protects the data source before a run reads it.
pub(super) fn keeps_original(o: &Observed<'_>) -> Option<Decision> {
    o.data_source.as_ref().filter(|origin| origin.is_to_be_kept(o.claim)).map(|_| Step::ProtectSource.into())
}

/// Decides rows 35 and 36, when nothing else is to be done. They end the protection of a claim for its copies.
pub(super) fn copied(o: &Observed<'_>, decision: Decision) -> Decision {
    if decision.step != Step::Nothing || o.source_users.is_empty() {
        return decision;
    }
    let done: Vec<String> =
        o.source_users.iter().filter(|copy| copy.in_progress.is_none()).map(|c| c.uid.clone()).collect();
    if !done.is_empty() {
        return Decision { step: Step::UnprotectSource { copies: done }, ..decision };
    }
    if !o.claim.deleting || decision.event.is_some() {
        return decision;
    }
    let name = |copy: &SourceUser| copy.in_progress.as_ref().map(ToString::to_string);
    let names: Vec<String> = o.source_users.iter().filter_map(name).collect();
    let names = match names.as_slice() {
        [first, rest @ ..] if rest.len() > 3 => format!("{first} and {} more", rest.len()),
        all => all.join(", "),
    };
    decision.with_event(
        reason::BEING_CLONED,
        format!("the claim stays until its clones and snapshots are made: {names}; to free it before, delete those"),
    )
}
