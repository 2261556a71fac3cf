//! Requests for slots.

use flex_contract::operation::Operation;
use flex_core::claim::decide::run_node;
use flex_core::config::Recipe;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;

use crate::state::work_item::WorkItem;

/// A request for a slot, for a run of a work item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotRequest {
    /// The work item: a claim, a volume, or a VolumeSnapshotContent.
    pub item: WorkItem,
    /// The operation of the run.
    pub operation: Operation,
    /// The namespace of the user.
    pub namespace: String,
    /// The node on which the run must be.
    pub node: Option<String>,
}

impl SlotRequest {
    /// Describes a provision run of a claim.
    pub fn claim(name: &ObjectName) -> Self {
        let (item, operation) = (WorkItem::Claim(name.clone()), Operation::Provision);
        SlotRequest { item, operation, namespace: name.namespace.clone(), node: None }
    }

    /// Describes the attempt of a claim whose stamp records these nodes.
    pub fn attempt(claim: &ObjectName, recipe: &Recipe, nodes: &[String]) -> Self {
        SlotRequest { node: run_node(nodes, recipe).map(str::to_owned), ..SlotRequest::claim(claim) }
    }

    /// Describes a run that deletes, expands or modifies a volume. Its namespace is that of the claim to which the
    /// volume is or was bound.
    pub fn volume(volume: &Volume, operation: Operation) -> Self {
        let (item, namespace) = (WorkItem::Volume(volume.name.clone()), volume.user_namespace().to_owned());
        SlotRequest { item, operation, namespace, node: None }
    }

    /// Describes a snapshot run of a content, for a VolumeSnapshot in this namespace.
    pub fn content(name: &str, namespace: &str) -> Self {
        let (item, operation) = (WorkItem::Content(name.to_owned()), Operation::Snapshot);
        SlotRequest { item, operation, namespace: namespace.to_owned(), node: None }
    }

    /// Changes the operation.
    pub fn to(self, operation: Operation) -> Self {
        SlotRequest { operation, ..self }
    }

    /// Changes the node.
    pub fn on(self, node: Option<&str>) -> Self {
        SlotRequest { node: node.map(str::to_owned), ..self }
    }
}
