//! A resize in progress, as a claim's status shows it.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;

use crate::status_reason::{StatusReason, message_of};

pub(super) const RESIZING: &str = "Resizing";
pub(super) const ERROR: &str = "ControllerResizeError";
pub(super) const FILE_SYSTEM_PENDING: &str = "FileSystemResizePending";

/// A resize in progress, by a claim's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpandStatus {
    /// The message of its condition, while the storage must be expanded.
    pub(super) resizing: Option<String>,
    /// The last failure.
    pub(super) error: Option<StatusReason>,
    /// The kubelet must resize the file system, or does so now.
    pub file_system_pending: bool,
}

impl ExpandStatus {
    /// Reads the status of a claim. Returns `None` for most claims, which have no resize in progress.
    pub fn of(status: &PersistentVolumeClaimStatus) -> Option<Box<Self>> {
        let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
        let state = status.allocated_resource_statuses.as_ref().and_then(|states| states.get("storage"));
        let file_system_pending = state.is_some_and(|state| state.starts_with("NodeResize"));
        let mut found = ExpandStatus { file_system_pending, ..ExpandStatus::default() };
        for condition in conditions {
            let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref().unwrap_or_default());
            match condition.type_.as_str() {
                RESIZING => found.resizing = Some(message_of(message)),
                ERROR => found.error = Some(StatusReason::new(reason.unwrap_or_default(), message)),
                FILE_SYSTEM_PENDING => found.file_system_pending = true,
                _ => {}
            }
        }
        (found != ExpandStatus::default()).then(|| Box::new(found))
    }

    /// Checks whether the storage must be expanded, or could not be.
    pub fn is_of_storage(&self) -> bool {
        self.resizing.is_some() || self.error.is_some()
    }
}
