//! How much room there is for volumes, as the scheduler is told it by CSIStorageCapacity objects: for which parts of
//! the cluster ([`segment`]), when something has changed there ([`saw`]), and what is done about it ([`decide`]).

pub mod decide;
pub mod run;
pub mod saw;
pub mod segment;

use std::collections::BTreeMap;

use contract::capacity::MOST;
use contract::{names, quantity};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity};

use crate::limits;
use crate::text::line;

/// What an image can do that tells how much room there is.
pub const CAPABILITY: &str = crate::config::capability::CAPACITY;

/// What a published number is the answer to.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The number of the last run that ended.
    pub attempt: u32,
    /// When that was noted, in seconds since 1970.
    pub at: i64,
    /// Its recipe, as `namespace/name@hash`.
    pub config: String,
    /// What was there when it was asked.
    pub saw: String,
    /// When a run answered last, in seconds since 1970; 0 for never.
    #[serde(default)]
    pub answered: i64,
    /// How many runs have failed since then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// What the last of them said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A CSIStorageCapacity object of ours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// The class.
    pub class: String,
    /// The labels of the nodes that it speaks of; empty for all.
    pub topology: BTreeMap<String, String>,
    /// The bytes that are free.
    pub bytes: u64,
    /// The size of the largest volume, in bytes.
    pub largest: Option<u64>,
    /// What it is the answer to; none for a class that is not asked.
    pub record: Option<Record>,
    /// It is being deleted.
    pub deleting: bool,
}

impl Published {
    /// Names the room for people. The largest number means no bound: the scheduler is told it where nothing is known.
    pub fn room(&self) -> String {
        if self.is_unlimited() { "unlimited".into() } else { quantity::quantity(self.bytes).0 }
    }

    /// The scheduler is told of room without end.
    pub fn is_unlimited(&self) -> bool {
        self.bytes >= MOST
    }
}

impl From<&CSIStorageCapacity> for Published {
    fn from(object: &CSIStorageCapacity) -> Self {
        let metadata = &object.metadata;
        let bytes = |size: &Option<k8s_openapi::apimachinery::pkg::api::resource::Quantity>| {
            size.as_ref().and_then(|size| quantity::bytes(&size.0).ok())
        };
        let record = metadata.annotations.as_ref().and_then(|all| all.get(names::CAPACITY));
        let record = record.and_then(|text| serde_json::from_str::<Record>(text).ok()).map(|record| Record {
            // The text of another is bounded before it is shown. Unlike a cause, it may be empty: no run has failed.
            message: line(&record.message, limits::MESSAGE),
            ..record
        });
        Published {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            class: object.storage_class_name.clone(),
            topology: object.node_topology.clone().and_then(|selector| selector.match_labels).unwrap_or_default(),
            bytes: bytes(&object.capacity).unwrap_or_default(),
            largest: bytes(&object.maximum_volume_size),
            record,
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// The CSIDriver object of the provisioner's name: it tells the scheduler to look at capacities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The version that was seen.
    pub resource_version: String,
    /// The orchestrator instance on its label; none for a driver that is somebody else's.
    pub instance: Option<String>,
    /// The scheduler looks.
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

    fn published(bytes: &str, record: &Record) -> Published {
        let object = json!({
            "metadata": { "name": "flex-capacity-a", "annotations": { names::CAPACITY: json!(record).to_string() } },
            "storageClassName": "c",
            "capacity": bytes,
        });
        Published::from(&serde_json::from_value::<CSIStorageCapacity>(object).unwrap())
    }

    #[test]
    fn a_record_says_of_a_failed_run_what_was_written_and_nothing_where_none_has_failed() {
        let says = |message: &str| {
            let record = Record { attempt: 1, message: message.into(), ..Record::default() };
            published("1Gi", &record).record.unwrap().message
        };
        assert_eq!((says("").as_str(), says("busy\u{1b}[2J").as_str()), ("", "busy\\u{1b}[2J"));
        assert!(says(&"x".repeat(100_000)).len() <= limits::MESSAGE);
    }

    #[test]
    fn the_largest_number_is_shown_as_no_bound() {
        let room = |bytes: &str| published(bytes, &Record::default()).room();
        assert_eq!((room("9223372036854775807"), room("5368709120")), ("unlimited".to_owned(), "5Gi".to_owned()));
    }
}
