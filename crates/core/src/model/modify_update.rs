//! The part of a claim's status about the attributes of its volume, in the form that the API prescribes.
//!
//! | | `currentVolumeAttributesClassName` | `modifyVolumeStatus` | `conditions` |
//! |---|---|---|---|
//! | [`ModifyUpdate::Pending`] | | `Pending`, the requested class | |
//! | [`ModifyUpdate::Modifying`] | | `InProgress`, the requested class | `ModifyingVolume`, after a failure `ModifyVolumeError` too |
//! | [`ModifyUpdate::Infeasible`] | | `Infeasible`, the requested class | `ModifyVolumeError` |
//! | [`ModifyUpdate::Finished`] | the class | none | none of these |

use serde_json::{Value, json};

use super::claim::Claim;
use super::modify_status::{ERROR, MODIFYING, ModifyStatus, ModifyTarget};
use crate::status_reason::StatusReason;

/// A report for the status of a claim. The class `None` means that the claim names no class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModifyUpdate {
    /// The claim cannot get this class now, and no run has begun.
    Pending {
        /// The requested class.
        class: Option<String>,
    },
    /// The volume must get the attributes of this class. The last run may have failed.
    Modifying {
        /// The requested class.
        class: Option<String>,
        /// The reason why the last run failed.
        error: Option<String>,
    },
    /// The volume cannot have the attributes of this class.
    Infeasible {
        /// The requested class.
        class: Option<String>,
        /// The reason.
        error: String,
    },
    /// The volume has the attributes of this class.
    Finished {
        /// The name of the class.
        class: Option<String>,
    },
}

impl ModifyUpdate {
    fn target(&self) -> Option<ModifyTarget> {
        let (class, state) = match self {
            ModifyUpdate::Pending { class } => (class, "Pending"),
            ModifyUpdate::Modifying { class, .. } => (class, "InProgress"),
            ModifyUpdate::Infeasible { class, .. } => (class, "Infeasible"),
            ModifyUpdate::Finished { .. } => return None,
        };
        Some(ModifyTarget { class: class.clone(), state: state.to_owned() })
    }

    fn error(&self) -> Option<StatusReason> {
        match self {
            ModifyUpdate::Modifying { error: Some(error), .. } => Some(StatusReason::new("Repeated", error)),
            ModifyUpdate::Infeasible { error, .. } => Some(StatusReason::new("Infeasible", error)),
            _ => None,
        }
    }

    fn is_modifying(&self) -> bool {
        matches!(self, ModifyUpdate::Modifying { .. })
    }

    /// Checks whether the claim's status says this already.
    pub fn is_written(&self, claim: &Claim) -> bool {
        let default = ModifyStatus::default();
        let says = claim.modify_status.as_deref().unwrap_or(&default);
        let current = match self {
            ModifyUpdate::Finished { class } => says.current() == class.as_deref(),
            _ => true,
        };
        current && says.target == self.target() && says.error == self.error() && says.modifying == self.is_modifying()
    }

    /// Returns the strategic merge patch of the status. It leaves the conditions of others unchanged.
    pub fn status(&self, now: &str) -> Value {
        let holds = |kind: &str, reason: &str, message: &str| {
            json!({
                "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
            })
        };
        let off = |kind: &str| json!({ "type": kind, "$patch": "delete" });
        let target = self.target();
        let modifying = match self {
            ModifyUpdate::Modifying { class, .. } => {
                let class = class.as_deref().unwrap_or_default();
                holds(MODIFYING, "", &format!("the volume should get the attributes of class `{class}`"))
            }
            _ => off(MODIFYING),
        };
        let error = self.error().map_or_else(|| off(ERROR), |error| holds(ERROR, &error.reason, &error.message));
        let mut status = json!({
            "conditions": [modifying, error],
            "modifyVolumeStatus": target.map(|target| {
                json!({ "targetVolumeAttributesClassName": target.class, "status": target.state })
            }),
        });
        if let ModifyUpdate::Finished { class } = self {
            status["currentVolumeAttributesClassName"] = json!(class);
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

    fn reports() -> Vec<ModifyUpdate> {
        let classes = || [Some("gold".to_owned()), None].into_iter();
        classes()
            .flat_map(|class| {
                [
                    ModifyUpdate::Pending { class: class.clone() },
                    ModifyUpdate::Modifying { class: class.clone(), error: None },
                    ModifyUpdate::Modifying { class: class.clone(), error: Some("later".into()) },
                    ModifyUpdate::Infeasible { class: class.clone(), error: "later".into() },
                    ModifyUpdate::Finished { class },
                ]
            })
            .collect()
    }

    fn claim(report: &ModifyUpdate) -> Claim {
        let mut status = report.status("2026-01-01T00:00:00Z");
        status["conditions"].as_array_mut().unwrap().retain(|condition| condition.get("$patch").is_none());
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "status": status })).unwrap();
        Claim::from(&claim)
    }

    #[test]
    fn each_report_is_read_back_and_is_no_other() {
        for written in reports() {
            for asked in reports() {
                assert_eq!(asked.is_written(&claim(&written)), written == asked, "{asked:?} on {written:?}");
            }
        }
        let untouched = Claim::from(&PersistentVolumeClaim::default());
        let stand: Vec<_> = reports().into_iter().filter(|report| report.is_written(&untouched)).collect();
        assert_eq!(stand, [ModifyUpdate::Finished { class: None }]);
    }

    #[test]
    fn the_fields_have_the_names_of_kubernetes() {
        let state = |report: &ModifyUpdate| report.status("t")["modifyVolumeStatus"]["status"].clone();
        let states: Vec<_> = reports().iter().take(5).map(state).collect();
        assert_eq!(json!(states), json!(["Pending", "InProgress", "InProgress", "Infeasible", null]));
        assert_eq!(claim(&reports()[4]).modify_status.unwrap().current(), Some("gold"));
    }
}
