//! Free space for volumes, which the orchestrator publishes to the scheduler as CSIStorageCapacity objects.
//!
//! [`segment`] divides the cluster, [`fingerprint`] notices changes in a segment, [`decide`] chooses the steps, and
//! [`run`] makes the Jobs.

pub mod decide;
pub mod fingerprint;
pub mod run;
pub mod segment;

use std::collections::BTreeMap;

use flex_contract::capacity::MAX_BYTES;
use flex_contract::{names, quantity};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};

use crate::limits;
use crate::text::{cut, line, name};

/// The capability with which a config declares capacity runs.
pub const CAPABILITY: &str = crate::config::capability::CAPACITY;

/// The question that a published number answers. The object carries it as an annotation.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CapacityRecord {
    /// The number of the last run that ended.
    pub attempt: u32,
    /// The time at which this run ended, in seconds since 1970.
    pub at: i64,
    /// The recipe version of this run, `namespace/name@hash`.
    #[serde(rename = "config")]
    pub recipe_version: String,
    /// The fingerprint of the segment when the run was created.
    pub fingerprint: String,
    /// The time of the last answer, in seconds since 1970; 0 for never.
    #[serde(default)]
    pub answered: i64,
    /// The number of runs that have failed since then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// The reason of the last failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A CSIStorageCapacity object of the orchestrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The name of the class.
    pub class: String,
    /// The labels of the nodes in the segment; empty for all nodes.
    pub topology: BTreeMap<String, String>,
    /// The free bytes.
    pub bytes: u64,
    /// The size of the largest volume, in bytes.
    pub largest: Option<u64>,
    /// The question that the object answers; `None` for a class that no image reports.
    pub record: Option<CapacityRecord>,
    /// The object is terminating.
    pub terminating: bool,
}

impl Published {
    /// Describes the capacity for people. The largest number means unlimited: the orchestrator publishes it where the
    /// capacity is unknown.
    pub fn describe(&self) -> String {
        if self.is_unlimited() { "unlimited".into() } else { quantity::quantity(self.bytes).0 }
    }

    /// Checks whether the object says that the capacity is unlimited.
    pub fn is_unlimited(&self) -> bool {
        self.bytes >= MAX_BYTES
    }
}

impl From<&CSIStorageCapacity> for Published {
    fn from(object: &CSIStorageCapacity) -> Self {
        let metadata = &object.metadata;
        let bytes = |size: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
            size.as_ref().and_then(|size| quantity::bytes(&size.0).ok())
        };
        let record = metadata.annotations.as_ref().and_then(|all| all.get(names::CAPACITY));
        let record =
            record.and_then(|text| serde_json::from_str::<CapacityRecord>(text).ok()).map(|record| CapacityRecord {
                // Somebody else may have written this text: it is cut before anybody sees it. It may be empty, unlike a
                // cause, because a run need not have failed.
                message: line(&record.message, limits::MESSAGE),
                recipe_version: cut(&record.recipe_version, 2 * limits::NAME).into_owned(),
                fingerprint: name(&record.fingerprint),
                ..record
            });
        Published {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            class: name(&object.storage_class_name),
            topology: object.node_topology.clone().and_then(|selector| selector.match_labels).unwrap_or_default(),
            bytes: bytes(&object.capacity).unwrap_or_default(),
            largest: bytes(&object.maximum_volume_size),
            record,
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The CSIDriver object with the provisioner's name. It makes the scheduler check capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The name of the driver.
    pub name: String,
    /// The UID of the driver.
    pub uid: String,
    /// The resourceVersion that the watch has shown.
    pub resource_version: String,
    /// The orchestrator instance on the driver's label; `None` for a driver that belongs to somebody else.
    pub instance: Option<String>,
    /// The scheduler checks capacity for this driver.
    pub on: bool,
}

impl From<&CSIDriver> for Driver {
    fn from(driver: &CSIDriver) -> Self {
        let metadata = &driver.metadata;
        Driver {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            instance: metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE).cloned()),
            on: driver.spec.storage_capacity.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn published(bytes: &str, record: &CapacityRecord) -> Published {
        let object = json!({
            "metadata": { "name": "flex-capacity-a", "annotations": { names::CAPACITY: json!(record).to_string() } },
            "storageClassName": "c",
            "capacity": bytes,
        });
        Published::from(&serde_json::from_value::<CSIStorageCapacity>(object).unwrap())
    }

    #[test]
    fn a_record_has_the_message_of_a_failed_run_only() {
        let says = |message: &str| {
            let record = CapacityRecord { attempt: 1, message: message.into(), ..CapacityRecord::default() };
            published("1Gi", &record).record.unwrap().message
        };
        assert_eq!((says("").as_str(), says("busy\u{1b}[2J").as_str()), ("", "busy\\u{1b}[2J"));
        assert!(says(&"x".repeat(100_000)).len() <= limits::MESSAGE);
    }

    #[test]
    fn the_largest_number_is_shown_as_unlimited() {
        let described = |bytes: &str| published(bytes, &CapacityRecord::default()).describe();
        assert_eq!(
            (described("9223372036854775807"), described("5368709120")),
            ("unlimited".to_owned(), "5Gi".to_owned())
        );
    }
}
