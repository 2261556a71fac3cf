//! The outcome of a step for a claim.

use std::time::Duration;

use flex_core::model::claim::Claim;

use crate::reconcile::drive;

/// The delay for an event that does not arrive. Normally an event requeues a claim that waits for a slot or for its own
/// write.
pub(super) const RETRY_SOON: Duration = Duration::from_secs(5);

/// The outcome of a step.
pub(super) type StepOutcome = drive::StepOutcome<Claim>;
