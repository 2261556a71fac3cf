//! Many objects at one time: created, done, and deleted.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::objects;
use crate::timeline::millis;

/// The number of this program's requests at one time.
pub const WRITERS: usize = 32;

/// The events of a watch.
pub type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<K>>>;

/// Follows objects; returns when all existing objects were listed.
///
/// # Errors
/// The list does not arrive within a minute.
pub async fn watch<K>(api: Api<K>) -> Result<Events<K>>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let list = async {
        while let Some(event) = events.try_next().await? {
            if matches!(event, watcher::Event::InitDone) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    within(Duration::from_secs(60), "a list", list).await?;
    Ok(events)
}

/// The times at which many objects were created and done.
#[derive(Clone, Debug)]
pub struct Times {
    /// The time just before the first was created.
    pub began: Timestamp,
    /// The times at which each was created and done, in the order of the latter.
    pub each: Vec<(Timestamp, Timestamp)>,
}

impl Times {
    /// Returns the times from the creation of each until it was done, in milliseconds.
    pub fn millis(&self) -> Vec<f64> {
        self.each.iter().map(|(from, to)| millis(*from, *to)).collect()
    }

    /// Returns the times at which each was done, in seconds since the beginning, to the millisecond.
    pub fn done(&self) -> Vec<f64> {
        self.each.iter().map(|(_, to)| millis(self.began, *to).round() / 1000.0).collect()
    }

    /// Returns the time until the last was done, in seconds.
    pub fn seconds(&self) -> f64 {
        self.each.last().map_or(0.0, |(_, to)| millis(self.began, *to) / 1000.0)
    }
}

/// Creates objects of different names at one time, and waits until the watch has shown each as `done`.
///
/// # Errors
/// The API server refuses one, or they are not done within `limit`.
pub async fn made<K: ResourceExt>(
    client: &Client,
    objects: &[Value],
    watch: &mut Events<K>,
    done: impl Fn(&K) -> bool,
    limit: Duration,
) -> Result<Times> {
    let began = Timestamp::now();
    let names: HashSet<&str> = objects.iter().map(name).collect();
    let create = async {
        futures::stream::iter(objects)
            .map(|object| async move { anyhow::Ok((name(object), objects::create(client, object).await?.0)) })
            .buffer_unordered(WRITERS)
            .try_collect::<HashMap<&str, Timestamp>>()
            .await
    };
    let see = async {
        let mut ends = HashMap::new();
        while ends.len() < names.len() {
            match watch.try_next().await? {
                Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                    if let Some(name) = names.get(object.name_any().as_str())
                        && done(&object)
                    {
                        ends.entry(*name).or_insert_with(Timestamp::now);
                    }
                }
                Some(_) => {}
                None => bail!("the watch ended"),
            }
        }
        Ok(ends)
    };
    let all = async { tokio::try_join!(create, see) };
    let (created, ends) = within(limit, "all objects are done", all).await?;
    let mut each: Vec<_> = created.iter().filter_map(|(name, at)| Some((*at, *ends.get(name)?))).collect();
    each.sort_by_key(|(_, done)| *done);
    Ok(Times { began, each })
}

/// Deletes objects at one time, and waits until the watch has shown as many `gone`, which may be other objects.
///
/// # Errors
/// The API server refuses one, or they are not gone within `limit`.
pub async fn removed<K: ResourceExt>(
    client: &Client,
    objects: &[Value],
    watch: &mut Events<K>,
    gone: impl Fn(&K) -> bool,
    limit: Duration,
) -> Result<Times> {
    let began = Timestamp::now();
    let delete = async {
        futures::stream::iter(objects)
            .map(|object| async move { objects::delete(client, object, false).await.map(drop) })
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await
    };
    let see = async {
        let mut each = Vec::new();
        while each.len() < objects.len() {
            match watch.try_next().await? {
                Some(watcher::Event::Delete(object)) if gone(&object) => each.push((began, Timestamp::now())),
                Some(_) => {}
                None => bail!("the watch ended"),
            }
        }
        Ok(each)
    };
    let ((), each) = within(limit, "all objects are gone", async { tokio::try_join!(delete, see) }).await?;
    Ok(Times { began, each })
}

/// Builds claims of a class that are named by number.
pub fn claims(namespace: &str, class: &str, count: usize) -> Vec<Value> {
    let claim = |number| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": format!("burst-{number}"), "namespace": namespace },
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            },
        })
    };
    (0..count).map(claim).collect()
}

/// Returns whether a claim is bound.
pub fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Runs a task with a time limit.
///
/// # Errors
/// The task took too long, or failed.
pub async fn within<T>(limit: Duration, what: &str, of: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, of).await.with_context(|| format!("not done within {} s: {what}", limit.as_secs()))?
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
