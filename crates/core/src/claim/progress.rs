//! How far a claim is, in one word.

use strum::{EnumIter, IntoStaticStr};

use crate::model::claim::Claim;

/// The state of a claim that is not bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter, IntoStaticStr)]
pub enum Progress {
    /// No attempt has begun.
    Waiting,
    /// An attempt is in progress.
    Running,
    /// The last attempt failed, and the next has not begun.
    Failed,
    /// The claim is being deleted.
    Deleting,
}

impl Progress {
    /// Returns the word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Returns the state of a claim; `None` if it is bound.
pub fn progress(claim: &Claim) -> Option<Progress> {
    let attempt = claim.own_stamp().map(|stamp| stamp.attempt);
    let failed = claim.last_failure.as_ref().map(|failure| failure.attempt);
    match (claim.is_bound(), claim.terminating, attempt) {
        (true, ..) => None,
        (_, true, _) => Some(Progress::Deleting),
        (.., None) => Some(Progress::Waiting),
        (..) if failed == attempt => Some(Progress::Failed),
        (..) => Some(Progress::Running),
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::{Value, json};

    use super::*;

    fn of(annotations: Value, deleted: bool, bound: bool) -> Option<Progress> {
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
        assert_eq!(of(json!({}), false, false), Some(Progress::Waiting));
        assert_eq!(
            of(json!({ names::CLAIM_UID: "other", names::ATTEMPT: "2" }), false, false),
            Some(Progress::Waiting)
        );
        assert_eq!(of(stamped.clone(), false, false), Some(Progress::Running));
        assert_eq!(of(failed.clone(), false, false), Some(Progress::Failed));
        assert_eq!(of(again, false, false), Some(Progress::Running));
        assert_eq!(of(failed, true, false), Some(Progress::Deleting));
        assert_eq!(of(stamped, true, true), None);
    }
}
