//! Volumes that came back without the orchestrator's mark, as from a backup.
//!
//! An adopted volume bears its provenance in an annotation and a mark in its status. A backup tool restores the annotation;
//! the API server drops the status. Such a volume holds somebody's data, so that its storage is never deleted, and never
//! changed, before an admin has vouched for it ([`vouch`](super::vouch)). Until then it is reserved for its claim.

use contract::names::{self, reason};

use super::Volume;
use super::decide::{ClaimState, Decision, Observed, Step};
use crate::claim::Claim;
use crate::object::ObjectName;

impl Volume {
    /// It was adopted once, and its mark is lost.
    pub fn is_restored(&self) -> bool {
        self.provenance.is_some() && !self.is_adopted()
    }

    /// The orchestrator knows that a run of its own made the volume, though it was never adopted: a provision run of its id
    /// is known, it bears the placeholder of a run, or the PV controller says that it is released by its claim.
    pub fn is_half_made(&self, run_known: bool) -> bool {
        let reserved = self.claim_ref.as_ref();
        let placeholder = || reserved.is_some_and(|of| of.uid.is_empty() && Some(of.name.name.as_str()) == self.id());
        let released =
            || matches!(self.phase.as_str(), "Released" | "Failed") && reserved.is_some_and(|of| !of.uid.is_empty());
        self.provenance.is_none() && (run_known || placeholder() || released())
    }

    /// Whom a restored volume without a claimRef is to be reserved for: the claim that it had, else a claim that there
    /// cannot be, so that no other claim of its class gets it. `namespace` is the orchestrator's own.
    pub fn reservation(&self, namespace: &str) -> ObjectName {
        let nobody = || ObjectName::new(namespace, self.id().unwrap_or(&self.name));
        self.had_claim.clone().unwrap_or_else(nobody)
    }
}

/// What follows for a restored volume. None for all others, and for one that its claim is just adopting.
pub(super) fn decide(o: &Observed<'_>) -> Option<Decision> {
    let volume = o.volume;
    let reserved = volume.claim_ref.as_ref();
    let has_uid = reserved.is_some_and(|reference| !reference.uid.is_empty());
    let being_adopted = match o.claim {
        ClaimState::Alive => o.expansion.claim.is_none_or(adopts),
        ClaimState::Missing => has_uid,
        _ => false,
    };
    if !volume.is_restored() || being_adopted || volume.abandoned {
        return None;
    }
    let wish = |claim: &Claim| super::expand::wish(volume, claim).is_some();
    if o.claim == ClaimState::Alive && o.expansion.claim.is_some_and(wish) {
        let step = Step::Expand(super::expand::Step::Nothing);
        return Some(Decision::from(step).saying(true, reason::RESIZE_FAILED, unchanged(volume)));
    }
    if reserved.is_none() && !volume.deleting {
        return Some(told(volume, Step::Reserve));
    }
    let deletes = volume.reclaim_policy == "Delete";
    // Bound, it would vanish under its claim.
    let goes = volume.deleting && volume.is_held() && !deletes && o.claim != ClaimState::Alive;
    Some(told(volume, if goes { Step::Unhold } else { Step::Nothing }))
}

/// A claim that is there may be adopting the volume just now: it is not bound yet, or not let go of.
pub fn adopts(claim: &Claim) -> bool {
    claim.is_held() || !claim.is_bound()
}

fn told(volume: &Volume, step: Step) -> Decision {
    let message = format!(
        "the volume has the record of its adoption but not the orchestrator's mark, as after a restore from a backup; the orchestrator neither deletes nor changes its storage until an admin confirms the record: `flex-provisioner vouch {}`. To drop the volume and keep its storage, annotate it with {}={}",
        volume.name,
        names::ABANDON,
        names::ABANDON_YES
    );
    Decision::from(step).saying(true, reason::VOLUME_RESTORED, message)
}

/// Why the volume of a bound claim does not grow or change, for the claim.
fn unchanged(volume: &Volume) -> String {
    format!(
        "volume {} was restored without the orchestrator's mark; an admin must first confirm its record with `flex-provisioner vouch {}`",
        volume.name, volume.name
    )
}
