//! Volumes whose node is gone, or to whose node the node affinity does not lead.
//!
//! The record of a volume names its node. The node affinity names labels, which may change or move.

use std::sync::Arc;

use flex_contract::names;

use super::finding::Finding;
use super::kind::FindingKind;
use super::observation::Lookups;
use crate::config::NodeGone;
use crate::limits;
use crate::model::affinity::{self, only_host};
use crate::model::claim::Claim;
use crate::model::object_ref::ObjectRef;
use crate::model::reach::{leads_elsewhere, reaching};
use crate::model::volume::Volume;
use crate::run::node::Node;
use crate::text::line;
use crate::volume::undeletable::{Undeletable, set_labels};

/// The instruction for an admin whose node has another name now, or whose disk is in another node.
const RENAMED: &str =
    "if the node was renamed or replaced, and its storage is on another node now, see docs/how-to/lost-nodes.md";

/// Returns the finding about the node of a volume that a claim uses, if any.
pub(super) fn problem(w: &Lookups<'_>, volume: &Volume, claim: &Claim) -> Option<Finding> {
    let selector = volume.affinity.as_deref()?;
    let found =
        |kind, detail: String, remedy: String| Some(Finding::new(kind, ObjectRef::volume(volume), detail, remedy));
    let namespace = &claim.name.namespace;
    let delete = format!(
        "only if the storage is lost, delete pod and claim: kubectl -n {namespace} delete pvc {}",
        claim.name.name
    );
    let used = format!("and claim {} is bound to it", claim.name);
    let Some(origin) = volume.origin_node() else {
        let host = only_host(selector).filter(|host| !w.nodes_by_host.contains_key(host))?;
        let label = format!("{}={host}", names::HOSTNAME);
        let remedy = format!(
            "bring the node back, or set this label on the node that reaches the storage: kubectl label node NODE {label}; {delete}"
        );
        return found(
            FindingKind::NodeGone,
            format!("it needs a node with the label {label}, and none has it, {used}"),
            remedy,
        );
    };
    let others = || {
        let mut names: Vec<_> = reaching(selector, w.s.nodes.iter().map(Arc::as_ref)).collect();
        names.retain(|name| *name != origin);
        names
    };
    let carried = |node: &str| {
        format!("if its storage is on node {node} now: flex-provisioner vouch {} --node {node}", volume.name)
    };
    let Some(node) = w.nodes.get(origin.as_str()) else {
        let (also, moved) = match others().as_slice() {
            [] => (String::new(), RENAMED.to_owned()),
            [other, ..] => (format!("; its node affinity leads to node {other}"), carried(other)),
        };
        let detail = format!("it is on node {origin}, {used}{also}");
        return found(FindingKind::NodeGone, detail, format!("bring the node back; {moved}; {delete}"));
    };
    if affinity::matches(selector, &node.labels) {
        let (detail, remedy) = twin(w, volume, node)?;
        return found(FindingKind::NodeLabels, detail, remedy);
    }
    let set = set_labels(selector, &node.name);
    let (also, remedy) = match others().as_slice() {
        [] => (String::new(), set),
        [other, ..] => (
            format!("; node {other} has them now"),
            format!("{set}, and take them off node {other}; {}", carried(other)),
        ),
    };
    let detail = format!(
        "its storage is on node {origin}, which exists, but has not the labels that the volume needs ({}), so that no pod with the volume can be placed there{also}",
        line(&affinity::describe(selector), limits::NAME)
    );
    found(FindingKind::NodeLabels, detail, remedy)
}

/// Returns detail and remedy if another node has the host name of a volume's node.
fn twin(w: &Lookups<'_>, volume: &Volume, node: &Node) -> Option<(String, String)> {
    let host = only_host(volume.affinity.as_deref()?)?;
    let twin = w.nodes_by_host.get(host)?.iter().find(|name| **name != node.name)?;
    let label = names::HOSTNAME;
    let detail = format!(
        "its storage is on node {}, but node {twin} has the same label {label}={host}, and its pods may be placed there",
        node.name
    );
    Some((
        detail,
        format!("give node {twin} a host name of its own: kubectl label node {twin} {label}={twin} --overwrite"),
    ))
}

/// Returns the reason why the node of a released volume keeps its storage from being deleted. `node_gone` says what its class does
/// about a node that is gone.
pub(super) fn undeletable(w: &Lookups<'_>, volume: &Volume, node_gone: NodeGone) -> Option<Undeletable> {
    let origin = volume.origin_node()?;
    let node = w.nodes.get(origin.as_str()).copied();
    // Where any node may delete the storage of one that is gone, nothing waits.
    if node.is_none() && node_gone == NodeGone::RunElsewhere {
        return None;
    }
    let is_gone = node.is_none();
    match leads_elsewhere(volume, node, w.s.nodes.iter().map(Arc::as_ref)) {
        Some(other) => Some(Undeletable::on_other_node(volume, &origin, other, is_gone, false)),
        None => (is_gone && node_gone == NodeGone::Hold).then(|| Undeletable::on_gone_node(volume, &origin)),
    }
}
