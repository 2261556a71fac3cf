//! The attributes of a claim's volume, as the claim's status shows them.

use k8s_openapi::api::core::v1::PersistentVolumeClaimStatus;

use crate::status_reason::StatusReason;
use crate::text::name;

pub(super) const MODIFYING: &str = "ModifyingVolume";
pub(super) const ERROR: &str = "ModifyVolumeError";

/// A change of attributes that has begun, as a claim's status shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ModifyTarget {
    /// The class whose attributes the volume must get; `None` for no class.
    pub class: Option<String>,
    /// The state of the change, in the words of Kubernetes.
    pub state: String,
}

/// The attributes in a claim's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModifyStatus {
    /// The class whose attributes the volume has.
    pub(super) current: Option<String>,
    /// The change that has begun.
    pub(super) target: Option<ModifyTarget>,
    /// A run is in progress, or due.
    pub(super) modifying: bool,
    /// The last failure.
    pub(super) error: Option<StatusReason>,
}

impl ModifyStatus {
    /// Reads the status of a claim. Returns `None` for most claims, whose status has no attributes.
    pub fn of(status: &PersistentVolumeClaimStatus) -> Option<Box<Self>> {
        let modify = status.modify_volume_status.as_ref();
        let name = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(name);
        let mut found = ModifyStatus {
            current: name(&status.current_volume_attributes_class_name),
            target: modify.map(|modify| ModifyTarget {
                class: name(&modify.target_volume_attributes_class_name),
                state: crate::text::name(&modify.status),
            }),
            ..ModifyStatus::default()
        };
        for condition in status.conditions.iter().flatten().filter(|condition| condition.status == "True") {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            match condition.type_.as_str() {
                MODIFYING => found.modifying = true,
                ERROR => found.error = Some(StatusReason::new(text(&condition.reason), text(&condition.message))),
                _ => {}
            }
        }
        (found != ModifyStatus::default()).then(|| Box::new(found))
    }

    /// Checks whether a change has begun.
    pub fn in_progress(&self) -> bool {
        self.target.is_some() || self.modifying || self.error.is_some()
    }

    /// Returns the class whose attributes the volume has.
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }
}
