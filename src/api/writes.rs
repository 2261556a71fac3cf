//! Writes to the cluster. Each write is idempotent by its name, or guarded by the resourceVersion that the decision
//! used. After *AlreadyExists* the object is read, to check that it is the orchestrator's.

mod capacity;
mod claim;
mod kept_script;
mod move_in;
mod pool;
mod record;
mod run;
mod snapshot;
mod volume;
mod vouch;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::config::effective_config::{EffectiveConfig, revision_name};
pub use flex_core::model::claim::Binding;
use flex_core::object::{ObjectName, hash};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, PatchParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use self::record::Armed;
pub use self::run::FoundClassObject;
pub use self::snapshot::SnapshotVolume;
use crate::api::discard_reply::DiscardReply;
use crate::api::pages;
use crate::api::says;
use crate::api::trimmed::Trimmed;
use crate::metrics::ErrorCategory;
use crate::state::ClusterState;
use crate::state::index::WorkItem;

/// The reason why a write failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object has changed meanwhile, and its event brings a new decision.
    #[error("{0} changed meanwhile")]
    Conflict(String),
    /// The object or its namespace does not exist.
    #[error("{what}: {message}")]
    NotFound {
        /// The object.
        what: String,
        /// The message of the API server.
        message: String,
    },
    /// The API server refuses the write: because of a quota, admission, or a missing permission.
    #[error("{what}: {message}")]
    Refused {
        /// The object.
        what: String,
        /// The message of the API server.
        message: String,
        /// The object is invalid, and would be refused again.
        invalid: bool,
    },
    /// An object with that name belongs to somebody else.
    #[error("{0} exists already and belongs to somebody else; remove it")]
    Foreign(String),
    /// The Job cannot be built now, because something that it must contain is lost.
    #[error("{what}: {message}")]
    Incomplete {
        /// The object.
        what: String,
        /// The lost part, and what to do.
        message: String,
    },
    /// Any other error. The write is tried again.
    #[error("{what}: {}", says::error(.source))]
    Failed {
        /// The object.
        what: String,
        /// The error.
        source: Box<kube::Error>,
    },
}

impl WriteError {
    fn of(what: impl Into<String>) -> impl FnOnce(kube::Error) -> WriteError {
        let what = what.into();
        move |error| match &error {
            kube::Error::Api(status) => {
                let message = status.message.clone();
                match status.code {
                    409 => WriteError::Conflict(what),
                    404 => WriteError::NotFound { what, message },
                    403 => WriteError::Refused { what, message, invalid: false },
                    400 | 422 => WriteError::Refused { what, message, invalid: true },
                    _ => WriteError::Failed { what, source: Box::new(error) },
                }
            }
            _ => WriteError::Failed { what, source: Box::new(error) },
        }
    }

    /// Returns the time for which an overloaded API server asks to wait; one second if it states none.
    pub fn retry_after(&self) -> Option<Duration> {
        let WriteError::Failed { source, .. } = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        let told = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        (status.code == 429 || told > 0).then(|| Duration::from_secs(u64::from(told.max(1))))
    }

    /// Returns the words of an API server that cannot handle the write: it or an admission webhook is at fault.
    pub fn fault(&self) -> Option<String> {
        let WriteError::Failed { what, source } = self else { return None };
        let kube::Error::Api(status) = &**source else { return None };
        (status.code >= 500).then(|| format!("{what}: {}", status.message))
    }

    /// Checks that nothing was written. After any other error the write may have succeeded.
    pub fn was_not_written(&self) -> bool {
        use WriteError::{Conflict, Incomplete, NotFound, Refused};
        matches!(self, Conflict(_) | Refused { .. } | NotFound { .. } | Incomplete { .. })
    }

    /// Returns the category for metrics.
    pub fn category(&self) -> ErrorCategory {
        match self {
            WriteError::Conflict(_) => ErrorCategory::Conflict,
            WriteError::NotFound { .. } => ErrorCategory::NotFound,
            WriteError::Refused { .. } => ErrorCategory::Refused,
            WriteError::Foreign(_) => ErrorCategory::Foreign,
            WriteError::Incomplete { .. } => ErrorCategory::Incomplete,
            WriteError::Failed { .. } => ErrorCategory::Failed,
        }
    }
}

type Result<T> = std::result::Result<T, WriteError>;

/// All writes of one orchestrator.
#[derive(Clone)]
pub struct Writes {
    client: Client,
    identity: Identity,
    binding: Binding,
    /// The cache, which learns of each write before a watch shows it.
    cluster: Option<ClusterState>,
    /// The list of records at the begin of a term.
    confirming: Arc<tokio::sync::Mutex<()>>,
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn post() -> PostParams {
    PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() }
}

/// Reads the metadata of a list page by page, until `look` breaks.
async fn each_page<K>(
    api: &Api<PartialObjectMeta<K>>,
    params: ListParams,
    mut look: impl FnMut(Vec<ObjectMeta>) -> ControlFlow<()>,
) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    pages::each_page(api, params, |page| look(page.into_iter().map(|object| object.metadata).collect())).await
}

fn guarded(uid: &str, resource_version: &str) -> DeleteParams {
    DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: (!resource_version.is_empty()).then(|| resource_version.to_owned()),
        }),
        ..DeleteParams::default()
    }
}

/// Turns the result of a deletion into one that accepts a missing object.
fn deleted(deleted: kube::Result<()>, what: impl Into<String>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted.map_err(WriteError::of(what)),
    }
}

/// Adds the fields of one object to another.
fn merge(into: &mut Value, from: Value) {
    if let (Some(into), Value::Object(from)) = (into.as_object_mut(), from) {
        into.extend(from);
    }
}

/// Builds a merge patch that applies only to the observed version.
fn patch(uid: &str, resource_version: &str, metadata: Value, rest: Value) -> Value {
    let mut body = json!({ "metadata": { "uid": uid, "resourceVersion": resource_version } });
    merge(&mut body["metadata"], metadata);
    merge(&mut body, rest);
    body
}

impl Writes {
    /// Returns how claims become bound.
    pub fn binding(&self) -> Binding {
        self.binding
    }

    /// Makes the writes of one orchestrator.
    pub fn new(client: Client, identity: Identity, binding: Binding) -> Self {
        Writes { client, identity, binding, cluster: None, confirming: Arc::default() }
    }

    /// Makes reconciles of a written object wait until the watches have shown the write.
    pub fn with_cache(self, cluster: &ClusterState) -> Self {
        Writes { cluster: Some(cluster.clone()), ..self }
    }

    /// Handles the answer to a write of a claim or volume that no watch has shown yet. The removal of the last
    /// finalizer ends a terminating object.
    fn written<K, V>(&self, item: WorkItem, what: String, answer: kube::Result<Trimmed<K>>) -> Result<V>
    where
        K: Resource,
        V: for<'a> From<&'a K>,
    {
        let written = answer.map_err(WriteError::of(what))?;
        let meta = written.meta();
        let is_held = meta.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if meta.deletion_timestamp.is_some() && !is_held {
            self.ended(item);
        } else if let (Some(cluster), Some(version)) = (&self.cluster, &meta.resource_version) {
            cluster.index_mut().record_write(item, version);
        }
        Ok(V::from(&written.0))
    }

    /// Records that a write ended a claim or volume, which no watch has shown yet.
    fn ended(&self, item: WorkItem) {
        self.cluster.iter().for_each(|cluster| cluster.index_mut().ended(item.clone()));
    }

    /// Returns the objects in which the orchestrator keeps recipes and scripts.
    fn revisions(&self) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &self.identity.namespace)
    }

    /// Stores a recipe as the newest revision of its class.
    pub async fn write_revision(&self, effective_config: &EffectiveConfig, number: i64) -> Result<()> {
        let name = revision_name(&effective_config.hash());
        let what = format!("revision {name}");
        let revisions = self.revisions();
        let labels = [
            (names::LABEL_INSTANCE.to_owned(), self.identity.instance.clone()),
            (names::LABEL_REVISION.to_owned(), hash(effective_config.config.to_string().as_bytes())),
        ];
        let revision = ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(self.identity.namespace.clone()),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(json!(effective_config))),
            revision: number,
        };
        match DiscardReply(revisions.clone()).create(&post(), &revision).await {
            Ok(()) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let body = json!({ "revision": number, "metadata": { "labels": revision.metadata.labels } });
                DiscardReply(revisions).patch(&name, &params(), body).await.map_err(WriteError::of(what))
            }
            Err(error) => Err(WriteError::of(what)(error)),
        }
    }

    /// Deletes a revision to which nothing refers.
    pub async fn delete_revision(&self, hash: &str) -> Result<()> {
        let name = revision_name(hash);
        let revisions = self.revisions();
        let deleted = DiscardReply(revisions).delete(&name, &DeleteParams::default()).await;
        deleted.map_err(WriteError::of(format!("revision {name}")))
    }

    /// Writes the verdict on a ConfigMap.
    pub async fn write_verdict(&self, config: &ObjectName, verdict: &str) -> Result<()> {
        let body = json!({ "metadata": { "annotations": { names::VERDICT: verdict } } });
        let configs: Api<ConfigMap> = Api::namespaced(self.client.clone(), &config.namespace);
        DiscardReply(configs).patch(&config.name, &params(), body).await.map_err(WriteError::of(format!("{config}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_api_server_names_the_delay_of_the_next_try() {
        let answered = |code: u16, seconds: u32| {
            let details = serde_json::from_value(json!({ "retryAfterSeconds": seconds })).expect("details of a status");
            let status = kube::core::Status::failure("no", "").with_code(code).with_details(details);
            WriteError::of("claim team/a")(kube::Error::Api(status.boxed())).retry_after().map(|time| time.as_secs())
        };
        assert_eq!((answered(429, 0), answered(429, 7), answered(503, 3)), (Some(1), Some(7), Some(3)));
        assert_eq!((answered(503, 0), answered(500, 0), answered(409, 5)), (None, None, None));
    }
}
