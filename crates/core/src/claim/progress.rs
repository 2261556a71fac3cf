//! How far a claim is, in one word.

use strum::IntoStaticStr;

use crate::model::claim::Claim;

/// The state of a claim. The order is that of lists for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, serde::Serialize, serde::Deserialize)]
pub enum Progress {
    /// The claim has its volume, and asks for nothing more.
    Bound,
    /// The claim is bound, and asks for more space than it has.
    Growing,
    /// The claim is bound, and its attributes change.
    Modifying,
    /// An attempt is in progress.
    Running,
    /// No attempt has begun.
    Waiting,
    /// The last attempt failed, and the next has not begun.
    Failed,
    /// The class refuses the claim as it is, so that no other attempt begins.
    Refused,
    /// The claim is being deleted.
    Deleting,
}

impl Progress {
    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Checks whether the claim has its volume.
    pub fn is_bound(self) -> bool {
        matches!(self, Progress::Bound | Progress::Growing | Progress::Modifying)
    }
}

/// Returns the state of a claim, as far as the claim alone shows it. Its [standing](super::standing::Standing) also says
/// whether its class refuses it.
pub fn progress(claim: &Claim) -> Progress {
    let attempt = claim.own_stamp().map(|stamp| stamp.attempt);
    let failed = claim.last_failure.as_ref().map(|failure| failure.attempt);
    match (claim.is_bound(), claim.terminating, attempt) {
        (true, ..) if grows(claim) => Progress::Growing,
        (true, ..) if claim.modify_status.as_ref().is_some_and(|status| status.in_progress()) => Progress::Modifying,
        (true, ..) => Progress::Bound,
        (_, true, _) => Progress::Deleting,
        (.., None) => Progress::Waiting,
        (..) if failed == attempt => Progress::Failed,
        (..) => Progress::Running,
    }
}

/// Checks whether the claim requests more than it has.
fn grows(claim: &Claim) -> bool {
    let requested = claim.size.as_ref().copied().unwrap_or_default();
    claim.expand_status.is_some() || claim.capacity.is_some_and(|reported| reported < requested)
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::{Value, json};

    use super::*;

    fn of(annotations: Value, deleted: bool, bound: bool) -> Progress {
        let mut object = json!({
            "metadata": { "name": "a", "namespace": "n", "uid": "u", "annotations": annotations }, "spec": {},
        });
        if deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if bound {
            object["metadata"]["annotations"][names::BIND_COMPLETED] = json!("yes");
            object["spec"]["volumeName"] = json!("v");
        }
        progress(&Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap()))
    }

    #[test]
    fn the_state_follows_from_stamp_failure_and_deletion() {
        let failure = |attempt: u32| {
            json!({ "operation": "provision", "attempt": attempt, "at": 1, "kind": "retry", "reason": "r", "message": "m" })
                .to_string()
        };
        let stamped = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "2" });
        let mut failed = stamped.clone();
        failed[names::FAILURE] = json!(failure(2));
        let mut again = stamped.clone();
        again[names::FAILURE] = json!(failure(1));
        assert_eq!(of(json!({}), false, false), Progress::Waiting);
        assert_eq!(of(json!({ names::CLAIM_UID: "other", names::ATTEMPT: "2" }), false, false), Progress::Waiting);
        assert_eq!(of(stamped.clone(), false, false), Progress::Running);
        assert_eq!(of(failed.clone(), false, false), Progress::Failed);
        assert_eq!(of(again, false, false), Progress::Running);
        assert_eq!(of(failed, true, false), Progress::Deleting);
        assert_eq!(of(stamped, true, true), Progress::Bound);
    }
}
