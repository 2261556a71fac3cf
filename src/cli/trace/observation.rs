//! What the command sees of a claim.

use crate::api::claim_events::ClaimEvent;
use crate::claim::timeline::Timeline;
use crate::model::claim::Claim;
use crate::model::phase::ClaimPhase;

/// All that is known of a claim's way.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) claim: Claim,
    pub(super) timeline: Timeline,
    /// The events, the newest first.
    pub(super) events: Vec<ClaimEvent>,
    /// Why nobody works on the claim, if that is so.
    pub(super) idle: Option<String>,
    /// What could not be read, and why.
    pub(super) unseen: Vec<String>,
}

impl Trace {
    /// Checks whether the claim is bound.
    pub(super) fn is_bound(&self) -> bool {
        self.claim.is_bound() && self.claim.phase == ClaimPhase::Bound
    }
}
