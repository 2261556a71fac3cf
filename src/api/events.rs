//! Events on the objects where their readers look. Each text is emitted once, and again only after a while. Events that
//! cannot be written while the API server is away are written later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use flex_contract::reason::Reason;
use flex_core::model::object_ref::ObjectRef;
use flex_core::object::hash;
use flex_core::text;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::mpsc;

use super::discard_reply::DiscardReply;
use super::says;
use crate::clock::Clock;

/// The time within which the same text on the same object is not repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(600);
/// The time between two clean-ups of old entries.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(60);
const MAX_REMEMBERED: usize = 20_000;
/// The largest note of an event that the API server accepts, in bytes.
const MAX_NOTE: usize = 1024;
/// The number of events that are written at one time. Events on one object are written one after another.
const WRITERS: usize = 8;
/// The longest time for an answer. Then the connection counts as dead, and another is tried.
const EVENT_WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The delays between tries to write one event, in seconds: two and a half minutes in all.
const RETRY_DELAYS: [u64; 9] = [1, 1, 2, 5, 10, 30, 30, 30, 40];

/// Prepares a message: cuts it to the API's limit, and escapes everything on which a terminal would act.
pub fn event_note(message: &str) -> String {
    text::printable(message, MAX_NOTE)
}

/// The program that emits events.
#[derive(Clone, Debug)]
pub struct Reporter {
    controller: String,
    instance: String,
}

impl Reporter {
    /// Names the orchestrator by its provisioner, and the replica.
    pub fn new(provisioner: &str, replica: &str) -> Self {
        Reporter { controller: provisioner.to_owned(), instance: replica.to_owned() }
    }
}

#[derive(Debug)]
struct QueuedEvent {
    key: String,
    count: i32,
    at: jiff::Timestamp,
    object: ObjectRef,
    warning: bool,
    reason: &'static Reason,
    message: String,
}

/// The events that were emitted lately.
#[derive(Debug, Default)]
struct Dedup {
    /// The hash of each object, and of each text with its object. The values are the time of the last event and the
    /// number of events.
    hashes: HashMap<u64, (Duration, i32)>,
    /// The time of the last clean-up.
    swept: Duration,
}

impl Dedup {
    /// Records a text on an object. Returns how often it was emitted, this time included; `None` if it was emitted a
    /// moment ago.
    fn record(&mut self, text: u64, object: u64, now: Duration) -> Option<i32> {
        let is_new = |at: Duration| now.saturating_sub(at) < REPEAT_AFTER;
        if now.saturating_sub(self.swept) >= CLEAN_UP_INTERVAL && self.hashes.len() > MAX_REMEMBERED {
            self.swept = now;
            self.hashes.retain(|_, (at, _)| is_new(*at));
        }
        let before = self.hashes.get(&text);
        if before.is_some_and(|(at, _)| is_new(*at)) {
            return None;
        }
        let count = before.map_or(0, |(_, count)| *count) + 1;
        self.hashes.extend([(text, (now, count)), (object, (now, 1))]);
        Some(count)
    }

    /// Checks whether an event was emitted on an object lately.
    fn has(&self, object: u64) -> bool {
        self.hashes.contains_key(&object)
    }

    /// Forgets a text on an object that could not be written.
    fn forget(&mut self, text: u64, object: u64) {
        self.hashes.remove(&text);
        self.hashes.remove(&object);
    }
}

fn locked(dedup: &Mutex<Dedup>) -> MutexGuard<'_, Dedup> {
    dedup.lock().expect("no code panics while it holds what was told")
}

/// The recorder of events. It never blocks: events are written in the background, in order for each object.
#[derive(Debug)]
pub struct EventRecorder {
    writers: Vec<mpsc::UnboundedSender<Option<QueuedEvent>>>,
    dedup: Arc<Mutex<Dedup>>,
    clock: Clock,
}

impl EventRecorder {
    /// Starts the writers. After [`EventRecorder::close`], await the handle until all events are written.
    pub fn start(client: Client, reporter: Reporter, clock: Clock) -> (Self, tokio::task::JoinHandle<()>) {
        let dedup = Arc::<Mutex<Dedup>>::default();
        let (lanes, receivers): (Vec<_>, Vec<_>) = (0..WRITERS).map(|_| mpsc::unbounded_channel()).unzip();
        let writers = receivers
            .into_iter()
            .map(|notes| drain(notes, client.clone(), reporter.clone(), dedup.clone(), clock.clone()));
        let writers = futures::future::join_all(writers.collect::<Vec<_>>());
        (EventRecorder { writers: lanes, dedup, clock }, tokio::spawn(async move { drop(writers.await) }))
    }

    /// Emits an event on an object.
    pub fn emit(&self, about: ObjectRef, warning: bool, reason: &'static Reason, message: impl Into<String>) {
        debug_assert!(reason.allows(warning), "an event {reason} is no warning, or always one");
        debug_assert!(reason.is_on(about.kind), "no event {reason} is on a {}", about.kind);
        let message = event_note(&message.into());
        let key = hash(format!("{}\0{reason}\0{message}", about.uid).as_bytes());
        let object = short(&hash(about.uid.as_bytes()));
        let Some(count) = locked(&self.dedup).record(short(&key), object, self.clock.passed()) else { return };
        match warning {
            true => tracing::warn!(kind = about.kind, name = %about.name, reason = reason.name, message),
            false => tracing::info!(kind = about.kind, name = %about.name, reason = reason.name, message),
        }
        let writer = object as usize % WRITERS;
        let at = self.clock.wall();
        let _ =
            self.writers[writer].send(Some(QueuedEvent { key, count, at, object: about, warning, reason, message }));
    }

    /// Checks whether this process has emitted an event on an object lately.
    pub fn has_emitted(&self, uid: &str) -> bool {
        locked(&self.dedup).has(short(&hash(uid.as_bytes())))
    }

    /// Stops the recorder: the writers end when all earlier events are written.
    pub fn close(&self) {
        self.writers.iter().for_each(|writer| drop(writer.send(None)));
    }
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "StorageClass" => "storage.k8s.io/v1",
        "Job" => "batch/v1",
        "ControllerRevision" => "apps/v1",
        "VolumeSnapshot" | "VolumeSnapshotContent" => flex_core::model::snapshot::api::API_VERSION,
        _ => "v1",
    }
}

/// Returns the beginning of the hash as a number.
fn short(hash: &str) -> u64 {
    u64::from_str_radix(hash, 16).unwrap_or_default()
}

/// Writes events one after another, and waits while the API server does not answer.
async fn drain(
    mut notes: mpsc::UnboundedReceiver<Option<QueuedEvent>>,
    client: Client,
    reporter: Reporter,
    dedup: Arc<Mutex<Dedup>>,
    clock: Clock,
) {
    while let Some(Some(event_note)) = notes.recv().await {
        let mut pauses = RETRY_DELAYS.iter();
        loop {
            let written = clock.within(EVENT_WRITE_TIMEOUT, write(&client, &reporter, &event_note)).await;
            let error = match written {
                Some(Ok(())) => break,
                Some(Err(error)) if !passes(&error) => says::error(&error),
                Some(Err(error)) => match pauses.next() {
                    Some(pause) => {
                        clock.sleep(Duration::from_secs(*pause)).await;
                        continue;
                    }
                    None => says::error(&error),
                },
                None => match pauses.next() {
                    Some(_) => continue,
                    None => format!("no answer within {EVENT_WRITE_TIMEOUT:?}"),
                },
            };
            tracing::warn!(about = %event_note.object.name, reason = event_note.reason.name, message = event_note.message, error, "an event was not written");
            // Forgotten, the event is emitted again when the object is reconciled.
            locked(&dedup).forget(short(&event_note.key), short(&hash(event_note.object.uid.as_bytes())));
            break;
        }
    }
}

/// Checks whether the same request may succeed later.
fn passes(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

async fn write(client: &Client, reporter: &Reporter, event_note: &QueuedEvent) -> Result<(), kube::Error> {
    let QueuedEvent { key, count, object: ObjectRef { kind, name, uid }, .. } = event_note;
    let namespace = if name.namespace.is_empty() { "default" } else { &name.namespace };
    let now = Time(event_note.at);
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
            api_version: Some(api_version(kind).into()),
            kind: Some((*kind).into()),
            namespace: (!name.namespace.is_empty()).then(|| name.namespace.clone()),
            name: Some(name.name.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        },
        type_: Some(if event_note.warning { "Warning".into() } else { "Normal".into() }),
        reason: Some(event_note.reason.name.into()),
        message: Some(event_note.message.clone()),
        count: Some(*count),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now.clone()),
        action: Some(event_note.reason.action.into()),
        reporting_component: Some(reporter.controller.clone()),
        reporting_instance: Some(reporter.instance.clone()),
        source: Some(EventSource { component: Some(reporter.controller.clone()), host: None }),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client.clone(), namespace);
    match DiscardReply(api.clone()).create(&PostParams::default(), &event).await {
        Ok(()) => Ok(()),
        // This process or an earlier one has emitted the same text before.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let body = json!({ "lastTimestamp": now, "count": count.max(&2) });
            DiscardReply(api).patch(&event_name, &PatchParams::default(), body).await
        }
        // The namespace of the object is terminating, and nobody will read the event.
        Err(kube::Error::Api(status))
            if status.code == 404 || status.code == 403 && status.message.contains("terminated") =>
        {
            Ok(())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::Bytes;
    use axum::http::{StatusCode, header};
    use axum::{Router, routing};
    use flex_contract::reason;
    use serde_json::Value;

    use super::*;

    /// Runs an API server that refuses some writes before it accepts the next.
    async fn api_server(refusals: usize, code: StatusCode) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let (written, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let kept = written.clone();
        let take = routing::post(move |event: Bytes| async move {
            let json_type = [(header::CONTENT_TYPE, "application/json")];
            if asked.fetch_add(1, Ordering::SeqCst) < refusals {
                let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "No", "message": "no", "code": code.as_u16() });
                return (code, json_type, status.to_string());
            }
            let event: Value = serde_json::from_slice(&event).unwrap();
            kept.lock().unwrap().push(event.clone());
            (StatusCode::CREATED, json_type, event.to_string())
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(take)).await });
        let _ = rustls::crypto::ring::default_provider().install_default();
        (Client::try_from(kube::Config::new(format!("http://{address}").parse().unwrap())).unwrap(), written)
    }

    #[test]
    fn an_old_event_is_emitted_again_and_many_are_forgotten() {
        let (text, object) = (1, 2);
        let mut dedup = Dedup::default();
        assert_eq!(dedup.record(text, object, REPEAT_AFTER), Some(1));
        assert_eq!((dedup.record(text, object, REPEAT_AFTER * 2 - CLEAN_UP_INTERVAL), dedup.has(object)), (None, true));
        assert_eq!(dedup.record(text, object, REPEAT_AFTER * 2), Some(2));
        for many in 0..MAX_REMEMBERED as u64 {
            dedup.record(3 + many, object, REPEAT_AFTER * 3);
        }
        assert_eq!(dedup.record(text, object, REPEAT_AFTER * 3), Some(1), "the texts before are forgotten");
        dedup.forget(text, object);
        assert_eq!((dedup.record(text, object, REPEAT_AFTER * 3), dedup.has(text)), (Some(1), true));
    }

    fn claim() -> ObjectRef {
        ObjectRef {
            kind: "PersistentVolumeClaim",
            name: flex_core::object::ObjectName::new("team", "c"),
            uid: "u".into(),
        }
    }

    #[tokio::test]
    async fn events_that_cannot_be_written_now_are_written_later_in_order() {
        let (client, written) = api_server(2, StatusCode::INTERNAL_SERVER_ERROR).await;
        let (events, end) = EventRecorder::start(client, Reporter::new("test", "replica"), Clock::default());
        events.emit(claim(), true, reason::WAITING_FOR_PROVISIONER, "one");
        events.emit(claim(), true, reason::PROVISIONING_FAILED, "two");
        events.close();
        end.await.unwrap();
        let written = written.lock().unwrap();
        let reasons: Vec<_> = written.iter().map(|event| event["reason"].clone()).collect();
        assert_eq!(reasons, ["WaitingForProvisioner", "ProvisioningFailed"]);
        let event = &written[0];
        let says = ["action", "reportingComponent", "reportingInstance"].map(|field| event[field].clone());
        assert_eq!(says, ["Provision", "test", "replica"]);
        assert_eq!((&event["source"]["component"], &event["eventTime"]), (&says[1], &Value::Null));
    }

    #[tokio::test]
    async fn a_refused_event_is_emitted_again_and_a_written_one_is_not() {
        let (client, written) = api_server(1, StatusCode::UNPROCESSABLE_ENTITY).await;
        let (events, end) = EventRecorder::start(client, Reporter::new("test", "replica"), Clock::default());
        events.emit(claim(), true, reason::PROVISIONING_FAILED, "one");
        while !events.dedup.lock().unwrap().hashes.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        events.emit(claim(), true, reason::PROVISIONING_FAILED, "one");
        events.emit(claim(), true, reason::PROVISIONING_FAILED, "one");
        events.close();
        end.await.unwrap();
        assert_eq!(written.lock().unwrap().len(), 1);
    }
}
