//! Restored volumes: volumes with provenance but without the adoption mark, as a backup tool restores them.
//!
//! An adopted volume has its provenance in an annotation and the adoption mark in its status. A backup tool restores
//! the annotation, and the API server drops the status. Such a volume holds somebody's data. So its storage is never
//! deleted or changed before an admin has vouched for it ([`vouch`](super::vouch)). Until then the volume is reserved
//! for its claim.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::reason;

use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::rules::Rule as _;
use crate::volume::observed::{ClaimState, Observed};
use crate::volume::rule::{Decision, Rule, Step};

impl Volume {
    /// Checks whether the volume was adopted once and has lost its mark.
    pub fn is_restored(&self) -> bool {
        self.provenance.is_some() && !self.is_adopted()
    }

    /// Returns the claim for which a restored volume without a claimRef is reserved. This is the former claim, or else
    /// a claim that cannot exist, so that no other claim of the class gets the volume. `namespace` is the
    /// orchestrator's own.
    pub fn reservation(&self, namespace: &str) -> ObjectName {
        let nobody = || ObjectName::new(namespace, self.volume_id().unwrap_or(&self.name));
        self.former_claim.clone().unwrap_or_else(nobody)
    }
}

/// Decides about a restored volume. Returns `None` for all others, and for a volume that its claim is adopting now.
pub(super) fn decide(o: &Observed<'_>) -> Option<Decision> {
    let volume = o.volume;
    let reserved = volume.claim_ref.as_ref();
    let has_uid = volume.claim_ref_uid().is_some();
    let being_adopted = match o.claim_state {
        ClaimState::Alive => o.expand.claim.is_none_or(may_adopt),
        ClaimState::NotCached => has_uid,
        _ => false,
    };
    if !volume.is_restored() || being_adopted || volume.abandoned {
        return None;
    }
    let requested = |claim: &Claim| super::expand::requested_size(volume, claim).is_some();
    if o.claim_state == ClaimState::Alive && o.expand.claim.is_some_and(requested) {
        let step = Step::Expand(super::expand::Step::Nothing);
        return Some(
            Rule::RestoredNotExpanded.step(step).with_warning(reason::VOLUME_RESIZE_FAILED, unchanged(volume)),
        );
    }
    if reserved.is_none() && !volume.terminating {
        return Some(restored_event(volume, Rule::ReserveRestored.step(Step::Reserve)));
    }
    let deletes = volume.reclaim_policy == ReclaimPolicy::Delete;
    // A Bound volume would vanish under its claim.
    let goes = volume.terminating && volume.has_finalizer() && !deletes && o.claim_state != ClaimState::Alive;
    Some(match goes {
        true => restored_event(volume, Rule::RestoredTerminating.step(Step::RemoveFinalizer)),
        false => restored_event(volume, Rule::RestoredUnvouched.nothing()),
    })
}

/// Checks whether an existing claim may be adopting the volume now: it is not bound yet, or still held.
pub fn may_adopt(claim: &Claim) -> bool {
    claim.is_held() || !claim.is_bound()
}

/// Adds the event about a restored volume.
fn restored_event(volume: &Volume, decision: Decision) -> Decision {
    let message = format!(
        "the volume has the record of its adoption but not the provisioner's mark, as after a restore from a backup; the provisioner neither deletes nor changes its storage until an admin confirms the record: `flex-provisioner vouch {}`. To drop the volume and keep its storage, annotate it with {}={}",
        volume.name,
        names::ABANDON,
        names::ABANDON_YES
    );
    decision.with_warning(reason::VOLUME_RESTORED, message)
}

/// Says in the claim's event why its volume is not expanded or modified.
fn unchanged(volume: &Volume) -> String {
    format!(
        "volume {} was restored without the provisioner's mark; an admin must first confirm its record with `flex-provisioner vouch {}`",
        volume.name, volume.name
    )
}
