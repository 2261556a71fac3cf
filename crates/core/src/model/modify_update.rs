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
use super::modify_status::{ERROR, MODIFYING, ModifyStatus};

/// A report for the status of a claim. An empty class means none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModifyUpdate {
    /// The claim cannot get this class now, and no run has begun.
    Pending {
        /// The requested class.
        class: String,
    },
    /// The volume must get the attributes of this class. The last run may have failed.
    Modifying {
        /// The requested class.
        class: String,
        /// The reason why the last run failed.
        error: Option<String>,
    },
    /// The volume cannot have the attributes of this class.
    Infeasible {
        /// The requested class.
        class: String,
        /// The reason.
        error: String,
    },
    /// The volume has the attributes of this class.
    Finished {
        /// The name of the class.
        class: String,
    },
}

impl ModifyUpdate {
    fn target(&self) -> Option<(&str, &'static str)> {
        match self {
            ModifyUpdate::Pending { class } => Some((class, "Pending")),
            ModifyUpdate::Modifying { class, .. } => Some((class, "InProgress")),
            ModifyUpdate::Infeasible { class, .. } => Some((class, "Infeasible")),
            ModifyUpdate::Finished { .. } => None,
        }
    }

    fn error(&self) -> Option<(&'static str, &str)> {
        match self {
            ModifyUpdate::Modifying { error: Some(error), .. } => Some(("Repeated", error)),
            ModifyUpdate::Infeasible { error, .. } => Some(("Infeasible", error)),
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
        let target = says.target.as_ref().map(|(class, state)| (class.as_str(), state.as_str()));
        let error = says.error.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
        let current = match self {
            ModifyUpdate::Finished { class } => {
                says.current() == Some(class.as_str()).filter(|class| !class.is_empty())
            }
            _ => true,
        };
        current && target == self.target() && error == self.error() && says.modifying == self.is_modifying()
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
        let named = |class: &str| Some(class.to_owned()).filter(|class| !class.is_empty());
        let modifying = match (self.is_modifying(), target) {
            (true, Some((class, _))) => {
                holds(MODIFYING, "", &format!("the volume should get the attributes of class `{class}`"))
            }
            _ => off(MODIFYING),
        };
        let error = self.error().map_or_else(|| off(ERROR), |(reason, text)| holds(ERROR, reason, text));
        let mut status = json!({
            "conditions": [modifying, error],
            "modifyVolumeStatus": target.map(|(class, state)| {
                json!({ "targetVolumeAttributesClassName": named(class), "status": state })
            }),
        });
        if let ModifyUpdate::Finished { class } = self {
            status["currentVolumeAttributesClassName"] = json!(named(class));
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

    fn reports() -> Vec<ModifyUpdate> {
        let classes = || ["gold".to_owned(), String::new()].into_iter();
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
        assert_eq!(stand, [ModifyUpdate::Finished { class: String::new() }]);
    }

    #[test]
    fn the_fields_have_the_names_of_kubernetes() {
        let state = |report: &ModifyUpdate| report.status("t")["modifyVolumeStatus"]["status"].clone();
        let states: Vec<_> = reports().iter().take(5).map(state).collect();
        assert_eq!(json!(states), json!(["Pending", "InProgress", "InProgress", "Infeasible", null]));
        assert_eq!(claim(&reports()[4]).modify_status.unwrap().current(), Some("gold"));
    }
}
