//! Writes and reads of Jobs and pods.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::object::ObjectName;
use flex_core::run::view;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Result, WriteError, Writes, deleted, each_page, guarded, params, post};
use crate::api::discard_reply::DiscardReply;
use crate::api::pages;

/// The label with which Kubernetes names the UID of a pod's Job.
const JOB_UID: &str = "batch.kubernetes.io/controller-uid";

/// The answer of the API to the question whether a StorageClass exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundClassObject {
    /// The StorageClass exists.
    Exists,
    /// The StorageClass did not exist at this resourceVersion; `None` if the answer has none.
    Absent {
        /// The resourceVersion of the answer.
        at: Option<String>,
    },
}

/// Returns the selector of objects with all of these labels.
fn selector(labels: &[(&str, &str)]) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

impl Writes {
    /// Returns the UIDs of all Jobs and pods of an operation's runs for an id. Asks the API, in one namespace.
    pub async fn runs(&self, operation: Operation, namespace: &str, id: &str) -> Result<Vec<String>> {
        let mut found = self.marked::<Job>(operation, namespace, Some(id)).await?;
        found.extend(self.marked::<Pod>(operation, namespace, Some(id)).await?);
        Ok(found.into_iter().map(|(uid, _)| uid).collect())
    }

    /// Returns the UIDs and names of the Jobs of all delete runs. Asks the API, in one namespace.
    pub async fn delete_jobs(&self, namespace: &str) -> Result<Vec<(String, String)>> {
        self.marked::<Job>(Operation::Delete, namespace, None).await
    }

    /// Returns the UIDs and names of the objects of an operation's runs, for one id or for all. Reads page by page, and keeps
    /// nothing else of a page.
    async fn marked<K>(&self, operation: Operation, namespace: &str, id: Option<&str>) -> Result<Vec<(String, String)>>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        let instance = (names::LABEL_INSTANCE, self.identity.instance.as_str());
        let id = id.map(|id| (names::LABEL_VOLUME_ID, id));
        let operation = (names::LABEL_OPERATION, operation.as_str());
        let marks: Vec<(&str, &str)> = [instance].into_iter().chain(id).chain([operation]).collect();
        let selector = selector(&marks);
        let api: Api<PartialObjectMeta<K>> = Api::namespaced(self.client.clone(), namespace);
        let is = |labels: &BTreeMap<String, String>| {
            marks.iter().all(|(key, value)| labels.get(*key).is_some_and(|label| label == value))
        };
        let mut all = Vec::new();
        let look = |page: Vec<ObjectMeta>| {
            let found = page.into_iter().filter(|meta| meta.labels.as_ref().is_some_and(is));
            all.extend(found.filter_map(|meta| Some((meta.uid?, meta.name?))));
            ControlFlow::Continue(())
        };
        match each_page(&api, ListParams::default().labels(&selector), look).await {
            Ok(()) => Ok(all),
            // With the namespace, the orchestrator's permissions in it vanish. Then nothing runs there.
            Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) && self.is_gone(namespace).await? => {
                Ok(Vec::new())
            }
            Err(error) => Err(WriteError::of(format!("runs in {namespace}"))(error)),
        }
    }

    async fn is_gone(&self, namespace: &str) -> Result<bool> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let found = api.get_opt(namespace).await.map_err(WriteError::of(format!("namespace {namespace}")))?;
        Ok(found.is_none())
    }

    /// Checks by the API whether a node exists.
    pub async fn has_node(&self, name: &str) -> Result<bool> {
        let api: Api<Node> = Api::all(self.client.clone());
        let node = api.get_metadata_opt(name).await.map_err(WriteError::of(format!("node {name}")))?;
        Ok(node.is_some())
    }

    /// Asks the API whether a StorageClass exists.
    pub async fn find_class_object(&self, name: &str) -> Result<FoundClassObject> {
        let api: Api<StorageClass> = Api::all(self.client.clone());
        // A list, unlike a read of one object, also says for which moment it is.
        let only = ListParams::default().fields(&format!("metadata.name={name}")).limit(1);
        let found = api.list_metadata(&only).await.map_err(WriteError::of(format!("StorageClass {name}")))?;
        if !found.items.is_empty() {
            return Ok(FoundClassObject::Exists);
        }
        Ok(FoundClassObject::Absent { at: found.metadata.resource_version })
    }

    /// Creates a Job, and returns its UID. An existing Job of the same name is accepted if it is the orchestrator's and for the
    /// same volume, but has no UID here: it may be a copy.
    pub async fn create_job(&self, job: &Job) -> Result<Option<String>> {
        let name = ObjectName::of(&job.metadata);
        let what = || format!("Job {name}");
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        let error = match DiscardReply(jobs).create_with_uid(&post(), job).await {
            Ok(uid) => return Ok(Some(uid)),
            Err(error) => WriteError::of(what())(error),
        };
        // Admission comes first. So a Job that a quota refuses may have been created before, and not be visible yet.
        let there = match error {
            WriteError::Conflict(_) | WriteError::Refused { .. } => self.read_job(&name).await,
            error => return Err(error),
        };
        let there = match there {
            Ok(Some(there)) => there,
            Ok(None) | Err(WriteError::Refused { .. } | WriteError::NotFound { .. }) => return Err(error),
            Err(unknown) => return Err(unknown),
        };
        let label = |job: &Job, key: &str| job.metadata.labels.as_ref().and_then(|labels| labels.get(key).cloned());
        let same = [names::LABEL_INSTANCE, names::LABEL_VOLUME_ID, names::LABEL_ATTEMPT]
            .iter()
            .all(|key| label(&there, key) == label(job, key));
        // A copy of another cluster's Job does not do this cluster's work.
        let cluster = |job: &Job| job.metadata.annotations.as_ref().and_then(|all| all.get(names::CLUSTER).cloned());
        let is_copy = cluster(&there).is_some() && cluster(job).is_some() && cluster(&there) != cluster(job);
        match same && !is_copy {
            true if there.metadata.deletion_timestamp.is_some() => Err(WriteError::Conflict(what())),
            true => Ok(None),
            false => Err(WriteError::Foreign(what())),
        }
    }

    /// Reads a Job from the API; `None` if it is gone.
    pub async fn read_job(&self, name: &ObjectName) -> Result<Option<Job>> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        jobs.get_opt(&name.name).await.map_err(WriteError::of(format!("Job {name}")))
    }

    /// Reads the pods of an operation's runs for an id from the API, in one namespace.
    pub async fn pods_of_run(&self, operation: Operation, namespace: &str, id: &str) -> Result<Vec<view::Pod>> {
        let instance = (names::LABEL_INSTANCE, self.identity.instance.as_str());
        let marks = [instance, (names::LABEL_VOLUME_ID, id), (names::LABEL_OPERATION, operation.as_str())];
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let of_run = ListParams::default().labels(&selector(&marks));
        let found = pages::all(&pods, of_run, |pod: Pod| view::Pod::from(&pod)).await;
        found.map_err(WriteError::of(format!("pods in {namespace}")))
    }

    /// Reads the pods of a Job from the API.
    pub async fn pods_of_job(&self, namespace: &str, job_uid: &str) -> Result<Vec<view::Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let of_job = ListParams::default().labels(&selector(&[(JOB_UID, job_uid)]));
        let found = pages::all(&pods, of_job, |pod: Pod| view::Pod::from(&pod)).await;
        found.map_err(WriteError::of(format!("pods in {namespace}")))
    }

    /// Opens a pod: removes the orchestrator's scheduling gate, which is at this position among all gates.
    pub async fn open_pod(&self, pod: &ObjectName, uid: &str, position: usize) -> Result<()> {
        let gate = format!("/spec/schedulingGates/{position}");
        let operations = json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": format!("{gate}/name"), "value": names::START_GATE },
            { "op": "remove", "path": gate },
        ]);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
        let patched = DiscardReply(pods).patch_json(&pod.name, &params(), operations).await;
        patched.map_err(WriteError::of(format!("pod {pod}")))
    }

    /// Deletes a Job after its pods.
    pub async fn remove_job(&self, name: &ObjectName, uid: &str) -> Result<()> {
        if let Some(cluster) = &self.cluster {
            cluster.index_mut().delete_job(uid);
        }
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &name.namespace);
        let params = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..guarded(uid, "") };
        deleted(DiscardReply(jobs).delete(&name.name, &params).await, format!("Job {name}"))
    }

    /// Deletes a pod that has ended.
    pub async fn remove_pod(&self, name: &ObjectName, uid: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &name.namespace);
        deleted(DiscardReply(pods).delete(&name.name, &guarded(uid, "")).await, format!("pod {name}"))
    }
}
