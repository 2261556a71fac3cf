//! The attempts of a claim that have ended, as its annotations tell them.

use flex_contract::names;
use flex_core::claim::failed_attempts::FailedAttempts;
use flex_core::claim::timeline::{Stage, Timeline};
use flex_core::model::claim::Claim;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use uuid::Uuid;

/// A claim with attempts that have ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) claim: Claim,
    pub(super) uid: Uuid,
    /// The attempts that failed.
    pub(super) failed: FailedAttempts,
    /// The attempt by which the claim was bound.
    pub(super) bound: Option<Timeline>,
    /// The number of the last failed attempt that the collector has already.
    pub(super) sent: u32,
}

/// How far the attempts of a claim have come. A claim is sent again when this has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Progress {
    /// The number of the last attempt that failed.
    pub(super) last_failed: u32,
    is_bound: bool,
}

impl Ended {
    /// Returns the ended attempts of a claim; `None` if no attempt has ended.
    pub(super) fn of(object: &PersistentVolumeClaim) -> Option<Self> {
        let claim = Claim::from(object);
        let uid = Uuid::parse_str(&claim.uid).ok()?;
        let written = object.metadata.annotations.as_ref()?.get(names::TIMELINE).and_then(|text| Timeline::read(text));
        // A copied claim may have the timeline of its original.
        let written = written.filter(|timeline| timeline.created.div_euclid(1000) == claim.created);
        let bound = written.filter(|timeline| claim.own_stamp().is_some() && timeline.has(Stage::Bound));
        let failed = FailedAttempts::of_object(&object.metadata, &claim);
        (bound.is_some() || !failed.kept().is_empty()).then_some(Ended { claim, uid, failed, bound, sent: 0 })
    }

    /// Returns how far the attempts have come.
    pub(super) fn progress(&self) -> Progress {
        let last_failed = self.failed.kept().last().map_or(0, |last| last.number());
        Progress { last_failed, is_bound: self.bound.is_some() }
    }
}
