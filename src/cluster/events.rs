//! Events: what is told where its reader looks. Each text once, and again only after a while.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::object::{ObjectName, hash};

/// The same text on the same object is not repeated within this time.
const QUIET: Duration = Duration::from_secs(600);
/// What the API server takes as the note of an event.
const MOST: usize = 1024;

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its kind.
    pub kind: &'static str,
    /// Its name; the namespace is empty for volumes.
    pub name: ObjectName,
    /// Its UID.
    pub uid: String,
}

#[derive(Debug)]
struct Note {
    key: String,
    count: i32,
    about: About,
    warning: bool,
    reason: &'static str,
    message: String,
}

/// Tells. Never blocks: what is told is written in the background, in order.
#[derive(Debug)]
pub struct Events {
    sender: mpsc::UnboundedSender<Option<Note>>,
    told: Mutex<HashMap<String, (Duration, i32)>>,
    clock: Clock,
}

impl Events {
    /// Starts the writer. After [`Events::close`], await the handle to see all that was told
    /// written.
    pub fn start(client: Client, component: String, clock: Clock) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, mut notes) = mpsc::unbounded_channel::<Option<Note>>();
        let time = clock.clone();
        let writer = tokio::spawn(async move {
            while let Some(Some(note)) = notes.recv().await {
                if let Err(error) = write(&client, &component, &note, time.wall()).await {
                    tracing::warn!(about = %note.about.name, reason = note.reason, message = note.message, %error, "an event was not written");
                }
            }
        });
        (Events { sender, told: Mutex::default(), clock }, writer)
    }

    /// Tells something about an object.
    pub fn tell(&self, about: About, warning: bool, reason: &'static str, message: impl Into<String>) {
        let mut message = message.into();
        if message.len() > MOST {
            let cut = (0..=MOST - 4).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(cut);
            message.push('…');
        }
        let key = hash(format!("{}\0{reason}\0{message}", about.uid).as_bytes());
        let Some(count) = self.count(&key) else { return };
        match warning {
            true => tracing::warn!(kind = about.kind, name = %about.name, reason, message),
            false => tracing::info!(kind = about.kind, name = %about.name, reason, message),
        }
        let _ = self.sender.send(Some(Note { key, count, about, warning, reason, message }));
    }

    /// How often a text has been told with this time; none if it was told a moment ago.
    fn count(&self, key: &str) -> Option<i32> {
        let mut told = self.told.lock().expect("no code panics while it holds what was told");
        if told.len() > 20_000 {
            told.retain(|_, (at, _)| self.clock.since(*at) < QUIET);
        }
        let (at, count) = told.get(key).map_or((None, 0), |(at, count)| (Some(*at), *count));
        if at.is_some_and(|at| self.clock.since(at) < QUIET) {
            return None;
        }
        told.insert(key.to_owned(), (self.clock.passed(), count + 1));
        Some(count + 1)
    }

    /// Nothing more is told: the writer ends when all before is written.
    pub fn close(&self) {
        let _ = self.sender.send(None);
    }
}

async fn write(client: &Client, component: &str, note: &Note, now: jiff::Timestamp) -> Result<(), kube::Error> {
    let Note { key, count, about: About { kind, name, uid }, .. } = note;
    let namespace = if name.namespace.is_empty() { "default" } else { &name.namespace };
    let now = Time(now);
    let mut short = name.name.clone();
    short.truncate(200);
    let event_name = format!("{}.{key}", short.trim_end_matches('.'));
    let event = Event {
        metadata: ObjectMeta {
            name: Some(event_name.clone()),
            namespace: Some(namespace.into()),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some(if *kind == "StorageClass" { "storage.k8s.io/v1".into() } else { "v1".into() }),
            kind: Some((*kind).into()),
            namespace: (!name.namespace.is_empty()).then(|| name.namespace.clone()),
            name: Some(name.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(if note.warning { "Warning".into() } else { "Normal".into() }),
        reason: Some(note.reason.into()),
        message: Some(note.message.clone()),
        count: Some(*count),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        source: Some(EventSource { component: Some(component.into()), host: None }),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match api.create(&PostParams::default(), &event).await {
        Ok(_) => Ok(()),
        // The same text was told before, by this process or an earlier one.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let body = json!({ "lastTimestamp": now, "count": count.max(&2) });
            api.patch(&event_name, &PatchParams::default(), &Patch::Merge(body)).await.map(drop)
        }
        // The object's namespace is going: there is nobody left to tell.
        Err(kube::Error::Api(status))
            if status.code == 404 || status.code == 403 && status.message.contains("terminated") =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}
