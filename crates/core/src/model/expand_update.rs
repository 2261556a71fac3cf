//! The part of a claim's status about a resize, in the form that the API prescribes.
//!
//! | | `conditions` | `allocatedResources` | `allocatedResourceStatuses` | `capacity` |
//! |---|---|---|---|---|
//! | [`ExpandUpdate::InProgress`] | `Resizing`, after a failure `ControllerResizeError` too | the new size | `ControllerResizeInProgress` | |
//! | [`ExpandUpdate::Infeasible`] | `Resizing`, `ControllerResizeError` | the new size | `ControllerResizeInfeasible` | |
//! | [`ExpandUpdate::FileSystemPending`] | `FileSystemResizePending` | the new size | `NodeResizePending` | the kubelet's |
//! | [`ExpandUpdate::Finished`] | none of these | the new size | none | the new size |
//!
//! The conditions show whether a report is already written, because every version of Kubernetes keeps them.

use flex_contract::quantity::quantity;
use serde_json::{Value, json};

use super::claim::Claim;
use super::expand_status::{ERROR, FILE_SYSTEM_PENDING, RESIZING};
use crate::status_reason::StatusReason;

const INFEASIBLE: &str = "Infeasible";
const REPEATED: &str = "Repeated";

/// A report for the status of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpandUpdate {
    /// The storage must be expanded to this size. The last run may have failed.
    InProgress {
        /// The new size, in bytes.
        size: u64,
        /// The reason why the last run failed.
        error: Option<String>,
    },
    /// The storage cannot be expanded to this size.
    Infeasible {
        /// The requested size, in bytes.
        size: u64,
        /// The reason.
        error: String,
    },
    /// The storage has this size. The kubelet must resize its file system.
    FileSystemPending {
        /// The new size, in bytes.
        size: u64,
    },
    /// The volume has this size.
    Finished {
        /// The size, in bytes.
        size: u64,
    },
}

impl ExpandUpdate {
    fn resizing(&self) -> Option<String> {
        match self {
            ExpandUpdate::InProgress { size, .. } | ExpandUpdate::Infeasible { size, .. } => {
                Some(format!("the storage should grow to {}", quantity(*size).0))
            }
            ExpandUpdate::FileSystemPending { .. } | ExpandUpdate::Finished { .. } => None,
        }
    }

    fn error(&self) -> Option<StatusReason> {
        match self {
            ExpandUpdate::InProgress { error: Some(error), .. } => Some(StatusReason::new(REPEATED, error)),
            ExpandUpdate::Infeasible { error, .. } => Some(StatusReason::new(INFEASIBLE, error)),
            _ => None,
        }
    }

    /// Checks whether the claim's status says this already.
    pub fn is_written(&self, claim: &Claim) -> bool {
        let says = claim.expand_status.as_deref().cloned().unwrap_or_default();
        let storage = says.resizing == self.resizing() && says.error == self.error();
        match self {
            ExpandUpdate::InProgress { .. } | ExpandUpdate::Infeasible { .. } => storage,
            ExpandUpdate::FileSystemPending { size } => {
                storage && (says.file_system_pending || claim.capacity.is_some_and(|reported| reported >= *size))
            }
            ExpandUpdate::Finished { size } => {
                storage && !says.file_system_pending && claim.capacity.is_some_and(|reported| reported >= *size)
            }
        }
    }

    /// Returns the strategic merge patch of the status. It leaves the conditions of others unchanged.
    pub fn status(&self, now: &str) -> Value {
        let holds = |kind: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
            })
        };
        let off = |kind: &str| json!({ "type": kind, "$patch": "delete" });
        let resizing = self.resizing().map_or_else(|| off(RESIZING), |text| holds(RESIZING, "", &text));
        let error = self.error().map_or_else(|| off(ERROR), |error| holds(ERROR, &error.reason, &error.message));
        let (size, state) = match self {
            ExpandUpdate::InProgress { size, .. } => (size, Some("ControllerResizeInProgress")),
            ExpandUpdate::Infeasible { size, .. } => (size, Some("ControllerResizeInfeasible")),
            ExpandUpdate::FileSystemPending { size } => (size, Some("NodeResizePending")),
            ExpandUpdate::Finished { size } => (size, None),
        };
        let mut conditions = vec![resizing, error];
        match self {
            ExpandUpdate::FileSystemPending { .. } => {
                let text = "the storage has grown; the kubelet grows the file system when a pod uses the volume";
                conditions.push(holds(FILE_SYSTEM_PENDING, "", text));
            }
            _ => conditions.push(off(FILE_SYSTEM_PENDING)),
        }
        let mut status = json!({
            "conditions": conditions,
            "allocatedResources": { "storage": quantity(*size) },
            "allocatedResourceStatuses": { "storage": state },
        });
        if let ExpandUpdate::Finished { size } = self {
            status["capacity"] = json!({ "storage": quantity(*size) });
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

    const GI: u64 = 1 << 30;

    fn reports() -> [ExpandUpdate; 5] {
        [
            ExpandUpdate::InProgress { size: 3 * GI, error: None },
            ExpandUpdate::InProgress { size: 3 * GI, error: Some("later".into()) },
            ExpandUpdate::Infeasible { size: 3 * GI, error: "later".into() },
            ExpandUpdate::FileSystemPending { size: 3 * GI },
            ExpandUpdate::Finished { size: 3 * GI },
        ]
    }

    /// Returns a bound claim of 1 GiB with the status of a report.
    fn claim(report: Option<&ExpandUpdate>) -> Claim {
        let mut status = json!({ "phase": "Bound", "capacity": { "storage": "1Gi" } });
        for (key, value) in
            report.iter().flat_map(|report| report.status("2026-01-01T00:00:00Z").as_object().cloned().unwrap())
        {
            status[key] = value;
        }
        if let Some(conditions) = status.get_mut("conditions") {
            conditions.as_array_mut().unwrap().retain(|condition| condition.get("$patch").is_none());
        }
        if status["allocatedResourceStatuses"]["storage"].is_null() {
            status["allocatedResourceStatuses"] = json!({});
        }
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "status": status })).unwrap();
        Claim::from(&claim)
    }

    #[test]
    fn each_report_is_read_back_and_is_no_other() {
        for written in reports() {
            for asked in reports() {
                // A finished resize asks no kubelet any more.
                let over = written == reports()[4] && asked == reports()[3];
                assert_eq!(
                    asked.is_written(&claim(Some(&written))),
                    written == asked || over,
                    "{asked:?} on {written:?}"
                );
            }
        }
        assert!(reports().iter().all(|report| !report.is_written(&claim(None))));
        assert!(
            !ExpandUpdate::InProgress { size: 4 * GI, error: None }.is_written(&claim(Some(&reports()[0]))),
            "another size"
        );
    }

    #[test]
    fn the_fields_have_the_names_of_kubernetes() {
        let states: Vec<_> =
            reports().iter().map(|report| report.status("t")["allocatedResourceStatuses"]["storage"].clone()).collect();
        let expected = json!([
            "ControllerResizeInProgress",
            "ControllerResizeInProgress",
            "ControllerResizeInfeasible",
            "NodeResizePending",
            null
        ]);
        assert_eq!(json!(states), expected);
        let claim = claim(Some(&reports()[4]));
        assert_eq!((claim.capacity, claim.expand_status), (Some(3 * GI), None));
    }
}
