//! The capacity that the orchestrator publishes for the scheduler.

use std::collections::BTreeMap;

use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::Api;
use kube::api::ListParams;

use crate::ring::{OWN, Ring};
use crate::wait::{unexpected, until};

impl Ring {
    pub fn capacities(&self) -> Api<CSIStorageCapacity> {
        self.api(OWN)
    }

    /// Returns the published capacity by class and label, in bytes.
    pub async fn shown_bytes(&self) -> BTreeMap<String, String> {
        let all = self.capacities().list(&ListParams::default()).await.unwrap().items;
        let one = |object: CSIStorageCapacity| {
            let labels = object.node_topology.and_then(|selector| selector.match_labels).unwrap_or_default();
            let labels: Vec<_> = labels.into_values().collect();
            let bytes = object.capacity.map(|bytes| bytes.0).unwrap_or_default();
            let largest = object.maximum_volume_size.map(|bytes| format!("/{}", bytes.0)).unwrap_or_default();
            (format!("{}@{}", object.storage_class_name, labels.join(",")), format!("{bytes}{largest}"))
        };
        all.into_iter().map(one).collect()
    }

    pub async fn publishes(&self, expected: &[(&str, &str)]) {
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        until(format!("the scheduler gets {expected:?}"), || async {
            let shown_bytes = self.shown_bytes().await;
            if shown_bytes == expected { Ok(()) } else { unexpected(shown_bytes) }
        })
        .await;
    }
}
