//! A record of the events on a cluster, from its watches, each with the time of its arrival.
//!
//! The times of containers are containerd's own. All clocks belong to this machine, so that they can be compared.

use std::collections::HashMap;
use std::fmt::Debug;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

/// The object of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A PersistentVolumeClaim.
    Claim,
    /// A PersistentVolume.
    Volume,
    /// A Job.
    Job,
    /// A Pod.
    Pod,
    /// An Event.
    Event,
    /// A ConfigMap.
    ConfigMap,
    /// A container: `topic`, `id`, and `pod`, the UID of the pod, for sandboxes.
    Container,
}

/// A recorded event.
#[derive(Clone, Debug)]
pub struct Record {
    /// The time at which the watch showed it; for containers, the time at which it happened.
    pub at: Timestamp,
    /// Its kind.
    pub kind: Kind,
    /// Whether it was deleted.
    pub gone: bool,
    /// Its state at that time.
    pub object: Value,
}

impl Record {
    /// Returns the text at a JSON pointer; empty if there is none.
    pub fn text(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the object's name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Returns the object's UID.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Returns the value of an annotation; empty if there is none.
    pub fn annotation(&self, key: &str) -> &str {
        self.object["metadata"]["annotations"][key].as_str().unwrap_or_default()
    }

    /// Returns the value of a label; empty if there is none.
    pub fn label(&self, key: &str) -> &str {
        self.object["metadata"]["labels"][key].as_str().unwrap_or_default()
    }
}

/// Records events until it is dropped.
pub struct Recorder {
    records: Arc<Mutex<Vec<Record>>>,
    news: watch::Sender<()>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl Recorder {
    /// Starts recording; existing objects are recorded first. `socket` is containerd's.
    ///
    /// # Errors
    /// If a first list does not arrive, or containerd's events are not available.
    pub async fn start(client: &Client, socket: &str) -> Result<Self> {
        let mut recorder = Recorder { records: Arc::default(), news: watch::Sender::new(()), tasks: Vec::new() };
        recorder.containers(socket)?;
        recorder.follow::<PersistentVolumeClaim>(Api::all(client.clone()), Kind::Claim).await?;
        recorder.follow::<PersistentVolume>(Api::all(client.clone()), Kind::Volume).await?;
        recorder.follow::<Job>(Api::all(client.clone()), Kind::Job).await?;
        recorder.follow::<Pod>(Api::all(client.clone()), Kind::Pod).await?;
        recorder.follow::<Event>(Api::all(client.clone()), Kind::Event).await?;
        recorder.follow::<ConfigMap>(Api::all(client.clone()), Kind::ConfigMap).await?;
        Ok(recorder)
    }

    /// Returns all records so far, in the order of their arrival. The guard must not live across an `await`.
    pub fn records(&self) -> MutexGuard<'_, Vec<Record>> {
        self.records.lock().expect("nothing panics while it holds the records")
    }

    /// Forgets all records so far.
    pub fn forget(&self) {
        self.records().clear();
    }

    /// Waits until `check` finds its event.
    ///
    /// # Errors
    /// If that takes longer than `limit`; the message names `what`.
    pub async fn until<T>(
        &self,
        limit: Duration,
        what: &str,
        mut check: impl FnMut(&[Record]) -> Option<T>,
    ) -> Result<T> {
        let mut news = self.news.subscribe();
        let found = async {
            loop {
                news.borrow_and_update();
                if let Some(found) = check(&self.records()) {
                    return found;
                }
                let _ = news.changed().await;
            }
        };
        match tokio::time::timeout(limit, found).await {
            Ok(found) => Ok(found),
            Err(_) => bail!("not observed within {} s: {what}", limit.as_secs()),
        }
    }

    async fn follow<K>(&mut self, api: Api<K>, kind: Kind) -> Result<()>
    where
        K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
    {
        let (records, news) = (self.records.clone(), self.news.clone());
        let (listed, mut first) = watch::channel(false);
        self.tasks.push(tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).default_backoff().boxed();
            loop {
                let (gone, object) = match events.try_next().await {
                    Ok(Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object))) => (false, object),
                    Ok(Some(watcher::Event::Delete(object))) => (true, object),
                    Ok(Some(watcher::Event::InitDone)) => {
                        listed.send_replace(true);
                        continue;
                    }
                    Ok(Some(watcher::Event::Init)) => continue,
                    Ok(None) => return,
                    Err(error) => {
                        eprintln!("a watch is interrupted: {error}");
                        continue;
                    }
                };
                let record = Record { at: Timestamp::now(), kind, gone, object: json!(object) };
                records.lock().expect("nothing panics while it holds the records").push(record);
                news.send_replace(());
            }
        }));
        tokio::time::timeout(Duration::from_secs(20), first.wait_for(|listed| *listed))
            .await
            .with_context(|| format!("no list of {kind:?} within 20 s"))??;
        Ok(())
    }

    fn containers(&mut self, socket: &str) -> Result<()> {
        let mut process = Command::new("ctr")
            .args(["--address", socket, "--namespace", "k8s.io", "events"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("run ctr, of Debian's package containerd")?;
        let output = process.stdout.take().context("the output of ctr")?;
        let (records, news) = (self.records.clone(), self.news.clone());
        self.tasks.push(tokio::spawn(async move {
            let _process = process;
            let mut lines = BufReader::new(output).lines();
            let mut pods = HashMap::new();
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(record) = container_event(&line, &mut pods) {
                    records.lock().expect("nothing panics while it holds the records").push(record);
                    news.send_replace(());
                }
            }
        }));
        Ok(())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

/// Parses a line of `ctr events`: `2026-01-02 03:04:05.678 +0000 UTC k8s.io /tasks/start {"container_id": …}`. One of
/// the first events of a sandbox has the pod's UID as a label.
fn container_event(line: &str, pods: &mut HashMap<String, String>) -> Option<Record> {
    let mut texts = line.splitn(7, ' ');
    let (day, time) = (texts.next()?, texts.next()?);
    let mut texts = texts.skip(3);
    let (topic, body) = (texts.next()?, texts.next()?);
    let body: Value = serde_json::from_str(body).ok()?;
    let id = body["container_id"].as_str().or(body["id"].as_str())?;
    if let Some(pod) = body["labels"]["io.kubernetes.pod.uid"].as_str() {
        pods.insert(id.to_owned(), pod.to_owned());
    }
    let at = format!("{day}T{time}Z").parse().ok()?;
    let object = json!({ "topic": topic, "id": id, "pod": pods.get(id) });
    Some(Record { at, kind: Kind::Container, gone: topic == "/tasks/exit", object })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_belongs_to_the_pod_that_its_events_name() {
        let mut pods = HashMap::new();
        let message = "2026-11-21 03:23:37.996193923 +0000 UTC k8s.io /containers/update {\"id\":\"9d\",\"image\":\"localhost/a b:1\",\"labels\":{\"io.kubernetes.pod.uid\":\"a6\"}}";
        container_event(message, &mut pods).unwrap();
        let started = "2026-11-21 03:23:38.13 +0000 UTC k8s.io /tasks/start {\"container_id\":\"9d\",\"pid\":16050}";
        let record = container_event(started, &mut pods).unwrap();
        assert_eq!(record.at, "2026-11-21T03:23:38.13Z".parse().unwrap());
        assert_eq!((record.text("/topic"), record.text("/id"), record.text("/pod")), ("/tasks/start", "9d", "a6"));
        assert!(container_event("2026-11-21", &mut pods).is_none());
    }
}
