//! The present state of the cluster, in the same cache as the orchestrator's.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use anyhow::Context as _;
use flex_contract::names;
use flex_core::config::classes::{Class, ClassObject, Classes, Config, Identity, KeptScript};
use flex_core::config::modify::VolumeAttributesClass;
use flex_core::config::{keys, script};
use flex_core::model::grant::ReferenceGrant;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use flex_core::model::stored::Stored;
use flex_core::object::ObjectName;
use flex_provisioner::api::watch::stored;
use flex_provisioner::api::{external_provisioner, pages, says};
use flex_provisioner::clock::Clock;
use flex_provisioner::state::index::{Index, WatchChange};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSIStorageCapacity, StorageClass};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Reads all objects that matter. Claims are last: an object that refers to a claim was made after the claim, so that
/// no claim is missed.
pub(crate) async fn index(client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<Index> {
    let mut index = with_classes(client, identity, clock).await?;
    let ours = of_instance(identity);
    for object in all::<Node>(Api::all(client.clone()), "").await? {
        index.change_node(WatchChange::Apply((&object).into()));
    }
    for namespace in identity.namespaces() {
        for object in all::<Pod>(Api::namespaced(client.clone(), namespace), &ours).await? {
            index.change_pod(WatchChange::Apply((&object).into()));
        }
        add_jobs(&mut index, client, namespace, &ours).await?;
    }
    // Contents are read after their Jobs, and before the VolumeSnapshots and claims that they keep, each for the same
    // reason.
    for object in served::<VolumeSnapshotContent>(Api::all(client.clone())).await? {
        index.change_content(WatchChange::Apply((&object).into()));
    }
    for object in served::<VolumeSnapshot>(Api::all(client.clone())).await? {
        index.change_snapshot(WatchChange::Apply((&object).into()));
    }
    add_namespaces(&mut index, client).await?;
    add_volumes_and_claims(&mut index, client).await?;
    Ok(index)
}

/// Reads all objects on which decisions rest.
pub(crate) async fn whole(client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<Index> {
    let mut index = index(client, identity, clock).await?;
    let ours = of_instance(identity);
    for object in all::<CSIStorageCapacity>(Api::namespaced(client.clone(), &identity.namespace), &ours).await? {
        index.change_capacity(WatchChange::Apply((&object).into()));
    }
    for object in served::<VolumeSnapshotClass>(Api::all(client.clone())).await? {
        index.change_snapshot_class(WatchChange::Apply((&object).into()));
    }
    for object in served::<VolumeAttributesClass>(Api::all(client.clone())).await? {
        index.change_attributes_class(WatchChange::Apply((&object).into()));
    }
    for object in served::<ReferenceGrant>(Api::all(client.clone())).await? {
        index.change_grant(WatchChange::Apply((&object).into()));
    }
    // Claims were listed last: a claim that is not among them is gone.
    let gone: Vec<_> = index
        .volumes()
        .filter_map(|volume| {
            let reference = volume.claim_ref.clone()?;
            let is_gone = index.claim_by_id(reference.uid.as_deref()?).is_none();
            is_gone.then(|| (volume.name.clone(), reference))
        })
        .collect();
    for (volume, claim) in &gone {
        index.note_claim_gone(volume, claim);
    }
    Ok(index)
}

/// Reads the objects of an overview: classes, volumes, claims, and Jobs as far as the user may list them.
///
/// Returns the reason if no Job could be listed.
pub(crate) async fn overview(
    client: &Client,
    identity: &Identity,
    clock: &Clock,
) -> anyhow::Result<(Index, Option<String>)> {
    let mut index = with_classes(client, identity, clock).await?;
    let ours = of_instance(identity);
    let mut without_jobs = None;
    for namespace in identity.namespaces() {
        let added = add_jobs(&mut index, client, namespace, &ours).await;
        without_jobs = without_jobs.or(added.err().map(|error| says::causes(&error)));
    }
    for namespace in &identity.config_namespaces {
        let Ok(found) = all::<ServiceAccount>(Api::namespaced(client.clone(), namespace), "").await else { continue };
        let names = found.iter().map(|account| ObjectName::of(&account.metadata)).collect();
        for account in &found {
            index.change_account(WatchChange::Apply(account.into()));
        }
        index.change_account(WatchChange::RetainIn(namespace.clone(), names));
    }
    add_namespaces(&mut index, client).await?;
    add_volumes_and_claims(&mut index, client).await?;
    Ok((index, without_jobs))
}

/// Returns the selector of the orchestrator's own objects.
fn of_instance(identity: &Identity) -> String {
    format!("{}={}", names::LABEL_INSTANCE, identity.instance)
}

/// Returns all StorageClasses.
pub(crate) async fn class_objects(client: &Client) -> anyhow::Result<Vec<ClassObject>> {
    let objects = all::<StorageClass>(Api::all(client.clone()), "").await?;
    Ok(objects.iter().map(ClassObject::from).collect())
}

/// Returns the classes of an orchestrator.
pub(crate) async fn classes(client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<Arc<Classes>> {
    Ok(with_classes(client, identity, clock).await?.classes())
}

/// Reads the objects that decide about classes.
async fn with_classes(client: &Client, identity: &Identity, clock: &Clock) -> anyhow::Result<Index> {
    let mut index = Index::new(identity.clone(), clock.clone());
    for object in class_objects(client).await? {
        index.change_class(WatchChange::Apply(object));
    }
    for config in configs(client, identity).await? {
        index.change_config(WatchChange::Apply(config));
    }
    let external_provisioners = external_provisioner::once(client, index.replaced_drivers(), clock).await;
    index.change_external_provisioners(external_provisioners);
    let revisions = Api::namespaced(client.clone(), &identity.namespace);
    for kept in all::<ControllerRevision>(revisions, &of_instance(identity)).await?.into_iter().filter_map(stored) {
        index.change_stored(WatchChange::Apply(kept));
    }
    Ok(index)
}

async fn add_jobs(index: &mut Index, client: &Client, namespace: &str, ours: &str) -> anyhow::Result<()> {
    for object in all::<Job>(Api::namespaced(client.clone(), namespace), ours).await? {
        index.change_job(WatchChange::Apply((&object).into()));
    }
    Ok(())
}

/// Reads the namespaces, if a class selects them by their labels.
async fn add_namespaces(index: &mut Index, client: &Client) -> anyhow::Result<()> {
    if !index.classes().iter().any(Class::selects_namespaces) {
        return Ok(());
    }
    for object in all::<Namespace>(Api::all(client.clone()), "").await? {
        index.change_namespace(WatchChange::Apply((&object).into()));
    }
    Ok(())
}

async fn add_volumes_and_claims(index: &mut Index, client: &Client) -> anyhow::Result<()> {
    for object in all::<PersistentVolume>(Api::all(client.clone()), "").await? {
        index.change_volume(WatchChange::Apply((&object).into()));
    }
    for object in all::<PersistentVolumeClaim>(Api::all(client.clone()), "").await? {
        index.change_claim(WatchChange::Apply((&object).into()));
    }
    Ok(())
}

/// Returns the configs of all config namespaces.
pub(crate) async fn configs(client: &Client, identity: &Identity) -> anyhow::Result<Vec<Config>> {
    let labels = format!("{}={}", names::LABEL_TYPE, names::LABEL_TYPE_CONFIG);
    let mut found = Vec::new();
    for namespace in &identity.config_namespaces {
        let maps = all::<ConfigMap>(Api::namespaced(client.clone(), namespace), &labels).await?;
        found.extend(maps.iter().map(Config::from));
    }
    Ok(found)
}

/// Returns the texts of all scripts, by their hashes: those that are kept, and those of the configs.
pub(crate) async fn scripts(client: &Client, identity: &Identity) -> anyhow::Result<BTreeMap<String, Arc<str>>> {
    let ours = format!("{}={}", names::LABEL_INSTANCE, identity.instance);
    let kept = all::<ControllerRevision>(Api::namespaced(client.clone(), &identity.namespace), &ours).await?;
    let kept = kept.into_iter().filter_map(stored).filter_map(|stored| match stored {
        Stored::Script(KeptScript { hash, text, .. }) => Some((hash, text)),
        Stored::Recipe(..) | Stored::Record(_) => None,
    });
    let configs = configs(client, identity).await?;
    let texts = configs.iter().filter_map(|config| config.data.get(keys::SCRIPT.name));
    let present = texts.map(|text| (script::hash(text), Arc::from(text.as_str())));
    Ok(kept.chain(present).collect())
}

/// Returns all objects of a kind that the cluster may lack.
async fn served<K>(api: Api<K>) -> anyhow::Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    K::DynamicType: Default,
{
    match all(api, "").await {
        Err(error) if is_absent(&error) => Ok(Vec::new()),
        found => found,
    }
}

fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 404)
}

/// Returns all objects of a kind, page by page.
pub(crate) async fn all<K>(api: Api<K>, labels: &str) -> anyhow::Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    K::DynamicType: Default,
{
    let what = || {
        let kind = K::plural(&K::DynamicType::default()).into_owned();
        format!("{kind} cannot be listed in {}", api.namespace().unwrap_or("the cluster"))
    };
    pages::all(&api, ListParams::default().labels(labels), |object| object).await.with_context(what)
}
