//! Writes of capacities: the published objects, and the CSIDriver by which the scheduler checks them.

use std::collections::BTreeMap;

use flex_contract::capacity::Answer;
use flex_contract::names;
use flex_core::capacity::segment::Segment;
use flex_core::capacity::{CapacityRecord, Driver, Published};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIDriverSpec, CSIStorageCapacity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::Patch;
use serde_json::{Value, json};

use super::{Result, WriteError, Writes, deleted, guarded, params, patch, post};
use crate::api::discard_reply::DiscardReply;

impl Writes {
    fn capacities(&self) -> Api<CSIStorageCapacity> {
        Api::namespaced(self.client.clone(), &self.identity.namespace)
    }

    fn drivers(&self) -> Api<CSIDriver> {
        Api::all(self.client.clone())
    }

    fn our_labels(&self) -> BTreeMap<String, String> {
        [
            (names::LABEL_INSTANCE.to_owned(), self.identity.instance.clone()),
            (names::LABEL_MANAGED_BY.to_owned(), names::FIELD_MANAGER.to_owned()),
        ]
        .into()
    }

    /// Reads the published object with a name from the API.
    pub async fn read_capacity(&self, name: &str) -> Result<Option<Published>> {
        let found = self.capacities().get_opt(name).await.map_err(WriteError::of(format!("capacity {name}")))?;
        Ok(found.as_ref().map(Published::from))
    }

    /// Publishes the capacity of a segment. `before` is the present object.
    pub async fn publish(
        &self,
        segment: &Segment,
        answer: Answer,
        record: Option<&CapacityRecord>,
        before: Option<&Published>,
    ) -> Result<Published> {
        let name = segment.object_name();
        let what = || format!("CSIStorageCapacity {name}");
        let capacity = Quantity(answer.bytes.to_string());
        let largest = answer.largest.map(|bytes| Quantity(bytes.to_string()));
        let record = record.map(|record| json!(record).to_string());
        let written = match before {
            Some(before) => {
                let annotations = json!({ "annotations": { names::CAPACITY: record } });
                let sizes = json!({ "capacity": capacity, "maximumVolumeSize": largest });
                let body = patch(&before.uid, &before.resource_version, annotations, sizes);
                self.capacities().patch(&name, &params(), &Patch::Merge(body)).await
            }
            None => {
                let object = CSIStorageCapacity {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        labels: Some(self.our_labels()),
                        annotations: record.map(|record| [(names::CAPACITY.to_owned(), record)].into()),
                        // Kubernetes deletes the object with its class, even if no orchestrator runs.
                        owner_references: Some(vec![OwnerReference {
                            api_version: "storage.k8s.io/v1".into(),
                            kind: "StorageClass".into(),
                            name: segment.class.clone(),
                            uid: segment.class_uid.clone(),
                            ..OwnerReference::default()
                        }]),
                        ..ObjectMeta::default()
                    },
                    storage_class_name: segment.class.clone(),
                    node_topology: Some(LabelSelector {
                        match_labels: Some(segment.topology.clone()).filter(|labels| !labels.is_empty()),
                        ..LabelSelector::default()
                    }),
                    capacity: Some(capacity),
                    maximum_volume_size: largest,
                };
                match self.capacities().create(&post(), &object).await {
                    // The watch shows the object, if it is the orchestrator's.
                    Err(kube::Error::Api(status)) if status.code == 409 => {
                        return Err(self.not_created(&name, what()).await);
                    }
                    created => created,
                }
            }
        };
        written.map(|object| Published::from(&object)).map_err(WriteError::of(what()))
    }

    async fn not_created(&self, name: &str, what: String) -> WriteError {
        match self.capacities().get_opt(name).await {
            Ok(Some(there))
                if there.metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE))
                    != Some(&self.identity.instance) =>
            {
                WriteError::Foreign(what)
            }
            Err(error) => WriteError::of(what)(error),
            Ok(_) => WriteError::Conflict(what),
        }
    }

    /// Deletes the published object of a segment.
    pub async fn delete_capacity(&self, published: &Published) -> Result<()> {
        let answer = DiscardReply(self.capacities()).delete(&published.name, &guarded(&published.uid, "")).await;
        deleted(answer, format!("CSIStorageCapacity {}", published.name))
    }

    /// Makes the scheduler start or stop to check capacity. `before` is the orchestrator's CSIDriver, if there is one.
    pub async fn switch(&self, on: bool, before: Option<&Driver>) -> Result<Driver> {
        let name = &self.identity.provisioner;
        let written = match before {
            Some(before) => {
                let spec = json!({ "spec": { "storageCapacity": on } });
                let body = patch(&before.uid, &before.resource_version, Value::Null, spec);
                self.drivers().patch(name, &params(), &Patch::Merge(body)).await
            }
            None => {
                let driver = CSIDriver {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        labels: Some(self.our_labels()),
                        ..ObjectMeta::default()
                    },
                    // The object is only for the scheduler. There is no such driver, and no volume names it.
                    spec: CSIDriverSpec {
                        attach_required: Some(false),
                        storage_capacity: Some(on),
                        ..CSIDriverSpec::default()
                    },
                };
                self.drivers().create(&post(), &driver).await
            }
        };
        written.map(|driver| Driver::from(&driver)).map_err(WriteError::of(format!("CSIDriver {name}")))
    }

    /// Deletes the orchestrator's CSIDriver.
    pub async fn remove_driver(&self, driver: &Driver) -> Result<()> {
        let answer =
            DiscardReply(self.drivers()).delete(&driver.name, &guarded(&driver.uid, &driver.resource_version)).await;
        deleted(answer, format!("CSIDriver {}", driver.name))
    }
}
