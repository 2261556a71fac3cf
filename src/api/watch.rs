//! The watches: each updates one part of the cache, and requeues the items that its changes concern.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_core::config::classes::{Identity, KeptScript, Revision};
use flex_core::config::effective_config::{EffectiveConfig, revision_name};
use flex_core::config::modify::{self, VolumeAttributesClass};
use flex_core::config::script;
use flex_core::model::grant::{self, ReferenceGrant};
use flex_core::model::record::{Record, is_record};
use flex_core::model::snapshot::api::{self, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use flex_core::model::stored::Stored;
use flex_core::object::ObjectName;
use flex_core::run::view::{WarningEvent, seconds};
use flex_core::status_reason::message_of;
use flex_core::text::name;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use prometheus_client::metrics::counter::Counter;
use serde::de::DeserializeOwned;

use super::claim_events::last_occurrence;
use super::pages::PAGE;
use super::trimmed::Trimmed;
use crate::metrics::Metrics;
use crate::state::ClusterState;
use crate::state::index::{Index, Listed, WatchChange, WorkItem};

/// The duration of a watch. Some load balancers cut idle connections after four minutes.
const WATCH_SECONDS: u32 = 200;
/// The longest time between two searches for a namespace or kind that does not exist.
const MAX_RECHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The parts of the process that watches report to.
#[derive(Clone, Copy)]
struct Receivers<'a> {
    cluster: &'a ClusterState,
    metrics: &'a Metrics,
}

/// Starts all watches. They continue through errors and restarts of the API server, until the process ends.
pub fn start(client: &Client, identity: &Identity, cluster: &ClusterState, metrics: &Metrics) {
    let to = Receivers { cluster, metrics };
    let ours = || ours(identity);
    let namespaces = identity.namespaces();
    // One more source are the external provisioners, which nobody can watch.
    cluster.expect_sources(14 + 3 * namespaces.len() + 2 * identity.config_namespaces.len());

    follow::<PersistentVolumeClaim, _>(to, Api::all(client.clone()), everything(), convert, Index::change_claim);
    follow::<PersistentVolume, _>(to, Api::all(client.clone()), everything(), convert, Index::change_volume);
    follow::<StorageClass, _>(to, Api::all(client.clone()), everything(), convert, Index::change_class);
    follow::<Node, _>(to, Api::all(client.clone()), everything(), convert, Index::change_node);
    follow::<Namespace, _>(to, Api::all(client.clone()), everything(), convert, Index::change_namespace);
    let capacities = Api::namespaced(client.clone(), &identity.namespace);
    follow::<CSIStorageCapacity, _>(to, capacities, ours(), convert, Index::change_capacity);
    let driver = everything().fields(&format!("metadata.name={}", identity.provisioner));
    follow::<CSIDriver, _>(to, Api::all(client.clone()), driver, convert, Index::change_driver);
    let revisions = Api::namespaced(client.clone(), &identity.namespace);
    follow::<ControllerRevision, _>(to, revisions, ours(), stored, Index::change_stored);
    // A cluster may lack these kinds.
    follow::<VolumeSnapshotClass, _>(to, Api::all(client.clone()), everything(), convert, Index::change_snapshot_class);
    follow::<VolumeAttributesClass, _>(
        to,
        Api::all(client.clone()),
        everything(),
        convert,
        Index::change_attributes_class,
    );
    follow::<VolumeSnapshot, _>(to, Api::all(client.clone()), everything(), convert, Index::change_snapshot);
    follow::<VolumeSnapshotContent, _>(to, Api::all(client.clone()), everything(), convert, Index::change_content);
    follow::<ReferenceGrant, _>(to, Api::all(client.clone()), everything(), convert, Index::change_grant);
    follow_configs(client, identity, to);
    for namespace in namespaces {
        follow::<Job, _>(to, Api::namespaced(client.clone(), namespace), ours(), convert, Index::change_job);
        follow::<Pod, _>(to, Api::namespaced(client.clone(), namespace), ours(), convert, Index::change_pod);
        let warnings = everything().fields("type=Warning");
        follow::<Event, _>(
            to,
            Api::namespaced(client.clone(), namespace),
            warnings,
            warning_event,
            change_warning_event,
        );
    }
}

/// Starts the watches of an overview: those of claims, volumes, Jobs, and what decides about classes. The external
/// provisioners are one more source, as for [`start`].
pub fn start_overview(client: &Client, identity: &Identity, cluster: &ClusterState) {
    // Nobody takes items from its queue.
    cluster.queue.pause();
    let metrics = Metrics::default();
    let to = Receivers { cluster, metrics: &metrics };
    let namespaces = identity.namespaces();
    cluster.expect_sources(6 + namespaces.len() + 2 * identity.config_namespaces.len());
    let (everything, ours) = (everything(), ours(identity));
    let all = || client.clone();
    follow::<PersistentVolumeClaim, _>(to, Api::all(all()), everything.clone(), convert, Index::change_claim);
    follow::<PersistentVolume, _>(to, Api::all(all()), everything.clone(), convert, Index::change_volume);
    follow::<StorageClass, _>(to, Api::all(all()), everything.clone(), convert, Index::change_class);
    follow::<Namespace, _>(to, Api::all(all()), everything.clone(), convert, Index::change_namespace);
    let revisions = Api::namespaced(all(), &identity.namespace);
    follow::<ControllerRevision, _>(to, revisions, ours.clone(), stored, Index::change_stored);
    follow_configs(client, identity, to);
    for namespace in namespaces {
        follow::<Job, _>(to, Api::namespaced(all(), namespace), ours.clone(), convert, Index::change_job);
    }
}

/// Starts the watches of each config namespace.
fn follow_configs(client: &Client, identity: &Identity, to: Receivers<'_>) {
    for namespace in &identity.config_namespaces {
        let selector = format!("{}={}", names::LABEL_TYPE, names::LABEL_TYPE_CONFIG);
        let configs = Api::namespaced(client.clone(), namespace);
        follow::<ConfigMap, _>(to, configs, everything().labels(&selector), convert, Index::change_config);
        let accounts = Api::namespaced(client.clone(), namespace);
        follow::<ServiceAccount, _>(to, accounts, everything(), convert, Index::change_account);
    }
}

/// Selects all objects of a kind.
fn everything() -> watcher::Config {
    watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE)
}

/// Selects the orchestrator's own objects.
fn ours(identity: &Identity) -> watcher::Config {
    everything().labels(&format!("{}={}", names::LABEL_INSTANCE, identity.instance))
}

/// Converts an object, of a kind of which all objects are kept.
fn convert<K, V: for<'a> From<&'a K>>(object: K) -> Option<V> {
    Some(V::from(&object))
}

/// Watches one kind of object. Each object is converted to its cached form as soon as it arrives.
fn follow<K, V>(
    to: Receivers<'_>,
    api: Api<Trimmed<K>>,
    config: watcher::Config,
    view: fn(K) -> Option<V>,
    change: fn(&mut Index, WatchChange<V>) -> Vec<WorkItem>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
    V: Send + 'static,
{
    let kind = K::kind(&K::DynamicType::default()).into_owned();
    let mut watch = Watch {
        cluster: to.cluster.clone(),
        restarts: to.metrics.watch_restarts(&kind),
        client: api.clone().into_client(),
        without: without(&kind),
        kind,
        namespace: api.namespace().unwrap_or_default().to_owned(),
        change,
        listed: Listed::AllCached,
        untouched: true,
        first: true,
        absent: 0,
    };
    tokio::spawn(async move {
        let mut stream = watcher(api, config).default_backoff().boxed();
        while let Some(event) = stream.next().await {
            match event {
                Ok(watcher::Event::Init) => watch.begin_list(),
                Ok(watcher::Event::InitApply(object)) => watch.list(name_of(&object), view(object.0)),
                Ok(watcher::Event::InitDone) => watch.end_list(),
                Ok(watcher::Event::Apply(object)) => {
                    view(object.0).into_iter().for_each(|view| watch.apply(WatchChange::Apply(view)))
                }
                Ok(watcher::Event::Delete(object)) => watch.apply(WatchChange::Delete(name_of(&object))),
                Err(error) => watch.fail(error).await,
            }
        }
    });
}

/// A watch of one kind of object.
struct Watch<V> {
    cluster: ClusterState,
    /// Counts how often the watch began again after an error.
    restarts: Counter,
    client: Client,
    kind: String,
    /// The feature that is off without the kind; `None` if each cluster has the kind.
    without: Option<&'static str>,
    /// The namespace of the watch; empty for all.
    namespace: String,
    /// Changes the cache, and returns the items to requeue.
    change: fn(&mut Index, WatchChange<V>) -> Vec<WorkItem>,
    /// The objects of the list in progress.
    listed: Listed,
    /// This watch has not shown anything yet, so that the cache has no object of it.
    untouched: bool,
    /// The first list has not ended.
    first: bool,
    /// The number of consecutive times that the namespace, or the kind itself, was missing.
    absent: u32,
}

impl<V> Watch<V> {
    fn apply(&self, change: WatchChange<V>) {
        self.cluster.update(|index| (self.change)(index, change));
    }

    /// Begins a list. Nothing can be missing in the first one.
    fn begin_list(&mut self) {
        self.listed = if self.untouched { Listed::AllCached } else { Listed::none() };
    }

    /// Notes an object of a list, and applies it.
    fn list(&mut self, name: ObjectName, view: Option<V>) {
        self.untouched = false;
        self.listed.add(name);
        if let Some(view) = view {
            self.cluster.update(|index| index.list(|index| (self.change)(index, WatchChange::Apply(view))));
        }
    }

    fn end_list(&mut self) {
        if self.without.is_some() && self.namespace.is_empty() && self.absent > 0 {
            let kind = &self.kind;
            tracing::info!(kind, "the cluster has this kind now, and the provisioner serves it from now on");
        }
        self.absent = 0;
        self.untouched = false;
        let listed = std::mem::replace(&mut self.listed, Listed::none());
        self.retain(listed);
        self.cluster.update(Index::end_list);
        self.note_served(true);
        self.report_first_list();
    }

    /// Notes whether the cluster serves the kind, if claims wait for it.
    fn note_served(&self, served: bool) {
        if matches!(self.kind.as_str(), "VolumeSnapshot" | "VolumeSnapshotContent") {
            self.cluster.update(|index| index.note_snapshot_kind(&self.kind, served));
        }
    }

    /// Removes all other objects from the cache. Watches of other namespaces fill the same cache.
    fn retain(&self, all: Listed) {
        self.apply(match self.namespace.is_empty() {
            true => WatchChange::Retain(all),
            false => WatchChange::RetainIn(self.namespace.clone(), all),
        });
    }

    fn report_first_list(&mut self) {
        if std::mem::take(&mut self.first) {
            self.cluster.source_ready();
        }
    }

    /// Handles an error of the watcher. If the kind or the namespace is missing, waits a while for it.
    async fn fail(&mut self, error: watcher::Error) {
        let (kind, forbidden) = (&self.kind, is_forbidden(&error));
        // With a config namespace, the orchestrator's Role in it is deleted too. The other watches continue, and so
        // does this one when the namespace returns.
        let missing = is_absent(&error, self.without.is_some());
        if !(missing || forbidden && is_gone(&self.client, &self.namespace).await) {
            self.restarts.inc();
            tracing::warn!(kind, %error, "a watch was interrupted; the provisioner resumes it");
            return;
        }
        // A lack of rights says nothing about the cluster.
        if code(&error) == Some(404) {
            self.note_served(false);
        }
        if self.absent == 0 {
            let is_gone = forbidden && is_gone(&self.client, &self.namespace).await;
            let without = self.without.filter(|_| !is_gone);
            log_absence(kind, &self.namespace, without, &error);
            self.untouched = false;
            self.retain(Listed::none());
            self.report_first_list();
        }
        // Each try begins again for the watcher, so that its own backoff stays at its first value.
        tokio::time::sleep(recheck_delay(self.absent)).await;
        self.absent += 1;
    }
}

/// Returns the delay before the next search for a namespace that was missing so often.
fn recheck_delay(absent: u32) -> Duration {
    Duration::from_secs(1 << absent.min(5)).min(MAX_RECHECK_INTERVAL)
}

/// Checks whether a namespace is really gone. A temporary lack of permission there says nothing about its objects.
async fn is_gone(client: &Client, namespace: &str) -> bool {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    !namespace.is_empty() && matches!(namespaces.get_opt(namespace).await, Ok(None))
}

/// Returns the code with which the API server refuses a list or watch.
fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    code(error) == Some(403)
}

/// Checks whether an optional kind is missing, or the installed ClusterRole is too old to allow it.
fn is_absent(error: &watcher::Error, optional: bool) -> bool {
    optional && matches!(code(error), Some(403 | 404))
}

/// Returns the feature that is off without a kind that the cluster may lack.
fn without(kind: &str) -> Option<&'static str> {
    match kind {
        modify::KIND => Some("claims cannot have one"),
        grant::KIND => Some("nothing is copied across namespaces"),
        "Namespace" => Some("no class serves a namespace by its labels"),
        "ServiceAccount" => Some("no verdict says that a config's account does not exist"),
        "VolumeSnapshot" | "VolumeSnapshotContent" | "VolumeSnapshotClass" => Some("snapshots are off"),
        _ => None,
    }
}

/// Logs once which features are off, where all kinds of a feature are missing.
fn log_absence(kind: &str, namespace: &str, without: Option<&'static str>, error: &watcher::Error) {
    match (without, is_forbidden(error), kind) {
        (None, ..) => {
            tracing::warn!(kind, namespace, "the namespace does not exist; the provisioner looks for it now and then")
        }
        (Some(off), true, _) => tracing::warn!(
            kind, %error, "the provisioner may not read this kind, so {off}; apply the rights of this version. It tries again now and then"
        ),
        (Some(_), false, "VolumeSnapshot") => tracing::info!(
            "snapshots are off: the cluster does not have the custom resources of {}; the provisioner looks for them every {} s, and serves them without a restart",
            api::API_VERSION,
            MAX_RECHECK_INTERVAL.as_secs()
        ),
        (Some(_), false, _) => tracing::debug!(kind, "the cluster does not have this kind"),
    }
}

fn name_of<K: Resource>(object: &K) -> ObjectName {
    ObjectName::new(object.namespace().unwrap_or_default(), object.name_any())
}

/// Reads what a ControllerRevision stores. Its name is the hash of its content behind a fixed prefix. An object without
/// content of that hash is not the orchestrator's. A record counts by its name, whatever it stores.
pub fn stored(object: ControllerRevision) -> Option<Stored> {
    let name = object.name_any();
    let data = object.data.map(|data| data.0).unwrap_or_default();
    if is_record(&name) {
        return Record::read(&object.metadata, &data).map(Stored::Record);
    }
    let created = seconds(object.metadata.creation_timestamp.as_ref());
    if script::kept_hash(&name).is_some() {
        let text: Arc<str> = script::kept_text(&data)?.into();
        let hash = script::hash(&text);
        let uid = object.metadata.uid.unwrap_or_default();
        return (script::kept_hash(&name) == Some(&hash)).then_some(Stored::Script(KeptScript {
            hash,
            text,
            uid,
            created,
        }));
    }
    let effective_config: EffectiveConfig = serde_json::from_value(data).ok()?;
    let hash = effective_config.hash();
    let revision = Revision { number: object.revision, effective_config, created };
    (name == revision_name(&hash)).then_some(Stored::Recipe(hash, revision))
}

/// Returns a warning that says why a run does not start.
pub fn warning_event(event: Event) -> Option<WarningEvent> {
    let at = last_occurrence(&event).map_or(0, Timestamp::as_second);
    let reason = event.reason.unwrap_or_default();
    let kind = event.involved_object.kind.as_deref();
    let relevant = match kind {
        Some("Job") => reason == "FailedCreate",
        Some("Pod") => matches!(reason.as_str(), "FailedMount" | "FailedCreatePodSandBox" | "NetworkNotReady"),
        _ => false,
    };
    relevant.then(|| WarningEvent {
        object_uid: name(event.involved_object.uid.as_deref().unwrap_or_default()),
        reason,
        message: message_of(event.message.unwrap_or_default()),
        at,
    })
}

fn change_warning_event(index: &mut Index, change: WatchChange<WarningEvent>) -> Vec<WorkItem> {
    match change {
        WatchChange::Apply(event) => index.add_warning_event(event),
        // Events expire. Their warnings stay true until the object changes.
        WatchChange::Delete(_) | WatchChange::Retain(_) | WatchChange::RetainIn(..) => Vec::new(),
    }
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
