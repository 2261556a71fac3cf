//! Many claims at one time, on a real node, and beside them as many bare pods.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use contract::names;
use flex_bench::objects;
use flex_bench::record::{Kind, Record, Recorder};
use flex_bench::timeline::{first, millis};
use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::Serialize;
use serde_json::{Value, json};

use crate::report::percentile;
use crate::run::bare_pod;

/// Claims with a pod each, and bare pods.
const EACH: usize = 50;
/// The class whose claims share runs.
const CLASS: &str = "bench-batches";
/// Requests of ours that are under way at one time.
const WRITERS: usize = 32;
/// How long a burst may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Many at one time.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// What it is.
    pub what: String,
    /// So many claims, or pods.
    pub count: usize,
    /// From the first creation until the last was done.
    pub seconds: f64,
    /// `count` by `seconds`.
    pub per_second: f64,
    /// The median from the creation of one until it was done, in milliseconds.
    pub p50: f64,
    /// What 99 of 100 are not above, in milliseconds.
    pub p99: f64,
    /// Volumes a second from the first deletion of a claim until the last volume was gone; pods are not measured.
    pub deleted_per_second: Option<f64>,
}

/// Measures all bursts, one after the other; `batches` are the sizes of those in batches.
pub async fn measure(client: &Client, recorder: &Recorder, root: &Path, batches: &[usize]) -> Result<Vec<Burst>> {
    batched_class(client, recorder, root).await?;
    let mut bursts = vec![pods(client).await?, claims(client, "scratch", "a pod each", EACH).await?];
    for size in batches {
        bursts.push(claims(client, CLASS, "in batches", *size).await?);
    }
    Ok(bursts)
}

/// The class `scratch` with batches; its program makes one volume, and `flex-pv each` runs it for each claim.
async fn batched_class(client: &Client, recorder: &Recorder, root: &Path) -> Result<()> {
    let mut config = objects::read(&root.join("configmaps/hostpath-pure.yaml"))?
        .into_iter()
        .find(|object| object["kind"] == "ConfigMap")
        .context("no ConfigMap in hostpath-pure.yaml")?;
    config["metadata"]["name"] = json!(CLASS);
    config["metadata"]["labels"]["storage-class"] = json!(CLASS);
    for (key, value) in [
        ("command", r#"["flex-pv", "each", "--jobs", "4", "--", "/provision.sh"]"#),
        ("batch-size", "250"),
        ("batch-window", "1s"),
        ("max-in-flight", "1000"),
        ("timeout", "10m"),
    ] {
        config["data"][key] = json!(value);
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": CLASS },
        "rules": [{
            "apiGroups": ["flex-provisioner.io"], "resources": ["classes"], "resourceNames": [CLASS], "verbs": ["provision"],
        }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": CLASS },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": CLASS },
        "subjects": [{
            "kind": "ServiceAccount", "name": "hostpath-provisioner", "namespace": config["metadata"]["namespace"],
        }],
    });
    // One that an earlier run left has its verdict already.
    objects::delete(client, &config, true).await?;
    for object in [role, binding, config] {
        objects::apply(client, &object).await?;
    }
    let accepted = |r: &Record| r.name() == CLASS && r.annotation(names::VERDICT).starts_with("ok");
    let what = format!("the verdict on ConfigMap {CLASS}");
    recorder.until(LIMIT, &what, |records| first(records, Kind::ConfigMap, accepted).map(drop)).await
}

async fn claims(client: &Client, class: &str, how: &str, count: usize) -> Result<Burst> {
    let what = format!("claims, {how}");
    eprintln!("{count} {what}");
    let api: Api<PersistentVolumeClaim> = Api::default_namespaced(client.clone());
    let bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|phase| phase == "Bound")
    };
    let claim = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
            "spec": {
                "storageClassName": class, "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Mi" } },
            },
        })
    };
    let mut watch = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let (began, each) = made(client, count, claim, &mut watch, bound).await?;

    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let mut watch = watcher(volumes, watcher::Config::default()).default_backoff().boxed();
    listed(&mut watch).await?;
    let deletion = Timestamp::now();
    removed(client, count, claim, &mut watch).await?;
    let seconds = millis(deletion, Timestamp::now()) / 1000.0;
    Ok(Burst { deleted_per_second: Some(count as f64 / seconds), ..burst(what, began, &each) })
}

/// What the machine can do without us.
async fn pods(client: &Client) -> Result<Burst> {
    eprintln!("{EACH} bare pods");
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let succeeded = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()).is_some_and(|phase| phase == "Succeeded")
    };
    let pod = |name: &str| {
        let mut pod = bare_pod("true");
        pod["metadata"]["name"] = json!(name);
        pod
    };
    let mut watch = watcher(api, watcher::Config::default()).default_backoff().boxed();
    let (began, each) = made(client, EACH, pod, &mut watch, succeeded).await?;
    removed(client, EACH, pod, &mut watch).await?;
    Ok(burst("bare pods of the same image with the command `true`, without us".into(), began, &each))
}

/// When each was created, by its name, and when it was done.
type Each = Vec<(Timestamp, Timestamp)>;

/// Creates many objects at one time and waits until each is `done`.
async fn made<K: ResourceExt>(
    client: &Client,
    count: usize,
    object: impl Fn(&str) -> Value,
    watch: &mut (impl Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin),
    done: impl Fn(&K) -> bool,
) -> Result<(Timestamp, Each)> {
    listed(watch).await?;
    let began = Timestamp::now();
    let create = async {
        futures::stream::iter((0..count).map(|n| object(&name(n))))
            .map(|object| async move {
                let (at, created) = objects::create(client, &object).await?;
                anyhow::Ok((created["metadata"]["name"].as_str().unwrap_or_default().to_owned(), at))
            })
            .buffer_unordered(WRITERS)
            .try_collect::<HashMap<String, Timestamp>>()
            .await
    };
    let see = async {
        let mut ends = HashMap::new();
        while ends.len() < count {
            match watch.try_next().await? {
                Some(watcher::Event::Apply(object)) if ours(&object) && done(&object) => {
                    ends.entry(object.name_any()).or_insert_with(Timestamp::now);
                }
                Some(_) => {}
                None => bail!("the watch ended"),
            }
        }
        Ok(ends)
    };
    let (created, ends) = limited("all of them are done", async { tokio::try_join!(create, see) }).await?;
    Ok((began, created.iter().filter_map(|(name, at)| Some((*at, *ends.get(name)?))).collect()))
}

/// Deletes all that was made, and waits until so many of what is watched are gone.
async fn removed<K: ResourceExt>(
    client: &Client,
    count: usize,
    object: impl Fn(&str) -> Value,
    watch: &mut (impl Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin),
) -> Result<()> {
    let delete = async {
        futures::stream::iter((0..count).map(|n| object(&name(n))))
            .map(|object| async move { objects::delete(client, &object, false).await.map(drop) })
            .buffer_unordered(WRITERS)
            .try_collect::<()>()
            .await
    };
    let see = async {
        let mut gone = 0;
        while gone < count {
            match watch.try_next().await? {
                Some(watcher::Event::Delete(_)) => gone += 1,
                Some(_) => {}
                None => bail!("the watch ended"),
            }
        }
        Ok(())
    };
    limited("all of them are gone", async { tokio::try_join!(delete, see) }).await.map(drop)
}

/// Waits for the end of the first list.
async fn listed<K>(watch: &mut (impl Stream<Item = watcher::Result<watcher::Event<K>>> + Unpin)) -> Result<()> {
    let list = async {
        while let Some(event) = watch.try_next().await? {
            if matches!(event, watcher::Event::InitDone) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    limited("a list", list).await
}

async fn limited<T>(what: &str, of: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LIMIT, of).await.with_context(|| format!("not seen within {} s: {what}", LIMIT.as_secs()))?
}

fn name(n: usize) -> String {
    format!("burst-{n}")
}

fn ours(object: &impl ResourceExt) -> bool {
    object.name_any().starts_with("burst-")
}

fn burst(what: String, began: Timestamp, each: &Each) -> Burst {
    let times: Vec<f64> = each.iter().map(|(from, to)| millis(*from, *to)).collect();
    let last = each.iter().map(|(_, to)| *to).max().unwrap_or(began);
    let seconds = millis(began, last) / 1000.0;
    Burst {
        what,
        count: each.len(),
        seconds,
        per_second: each.len() as f64 / seconds,
        p50: percentile(&times, 50),
        p99: percentile(&times, 99),
        deleted_per_second: None,
    }
}
