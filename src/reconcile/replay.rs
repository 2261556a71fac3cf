//! The decisions about all objects of a cache, without any step.

use crate::reconcile::context::Context;
pub use crate::reconcile::drive::ReplayedDecision;
use crate::reconcile::{claim, content, snapshot, volume};

/// Decides about each claim, volume, VolumeSnapshot and VolumeSnapshotContent that the orchestrator would reconcile.
pub fn decisions(context: &Context) -> Vec<ReplayedDecision> {
    context.cluster.index_mut().note_all_class_objects_known();
    let mut decisions = claim::replay(context);
    decisions.extend(volume::replay(context));
    decisions.extend(snapshot::replay(context));
    decisions.extend(content::replay(context));
    decisions
}
