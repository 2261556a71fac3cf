//! The events of a claim, from anybody.

use std::ops::ControlFlow;

use flex_core::model::claim::Claim;
use flex_core::status_reason::message_of;
use flex_core::text::name;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use super::pages;

/// An event of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimEvent {
    /// The reason, in one word.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// Somebody should look at it.
    pub warning: bool,
    /// The orchestrator emitted it.
    pub is_ours: bool,
    /// The number of occurrences.
    pub count: i32,
    /// The time of the last occurrence, in seconds since 1970.
    pub at: i64,
}

/// The largest number of events that are kept. Users create any number.
const MAX_EVENTS: usize = 200;
/// The largest number of bytes that are read. Users write events of more than a megabyte.
const MAX_BYTES: usize = 16 << 20;

/// Reads the events of a claim, the newest first. `provisioner` is the name under which the orchestrator emits events.
///
/// # Errors
/// If the events cannot be listed.
pub async fn read(client: &Client, provisioner: &str, claim: &Claim) -> kube::Result<Vec<ClaimEvent>> {
    let api: Api<Event> = Api::namespaced(client.clone(), &claim.name.namespace);
    let of_claim = ListParams::default().fields(&format!("involvedObject.uid={}", claim.uid));
    let mut read = Read::default();
    pages::each_page(&api, of_claim, |page| read.add(page, provisioner)).await?;
    Ok(read.events(&claim.name.namespace))
}

/// The newest events of those that were read.
#[derive(Default)]
struct Read {
    newest: Vec<ClaimEvent>,
    bytes: usize,
}

impl Read {
    /// Adds a page. Breaks after so many bytes that a claim with ordinary events does not reach them.
    fn add(&mut self, page: Vec<Event>, provisioner: &str) -> ControlFlow<()> {
        self.bytes += page.iter().map(bytes).sum::<usize>();
        self.newest.extend(page.iter().map(|event| seen(event, provisioner)));
        self.newest.sort_by_key(|event| std::cmp::Reverse(event.at));
        self.newest.truncate(MAX_EVENTS);
        if self.bytes > MAX_BYTES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// Returns the events. If some were not read, one more says so.
    fn events(mut self, namespace: &str) -> Vec<ClaimEvent> {
        if self.bytes > MAX_BYTES {
            let message = format!(
                "the events of this claim have more than {} MiB of text, and some are left out here: kubectl -n {namespace} get events",
                MAX_BYTES >> 20
            );
            let at = self.newest.first().map_or(0, |event| event.at);
            let says = ClaimEvent { reason: LEFT_OUT.into(), message, warning: true, is_ours: false, count: 1, at };
            self.newest.insert(0, says);
        }
        self.newest
    }
}

/// The reason of the entry that says that events are left out.
const LEFT_OUT: &str = "EventsLeftOut";

/// Returns the bytes of an event: those of its fields, and of every text in it.
fn bytes(event: &Event) -> usize {
    512 + serde_json::to_string(event).map_or(0, |text| text.len())
}

/// Returns the time of an event's last occurrence. Each of the two APIs of events has fields of its own for it.
pub fn last_occurrence(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let time = event.last_timestamp.as_ref().map(|time| time.0);
    let time = time.or_else(|| series.or(event.event_time.as_ref()).map(|time| time.0));
    time.or_else(|| event.metadata.creation_timestamp.as_ref().map(|time| time.0))
}

fn seen(event: &Event, provisioner: &str) -> ClaimEvent {
    let series = event.series.as_ref();
    ClaimEvent {
        reason: name(event.reason.as_deref().unwrap_or_default()),
        message: message_of(event.message.as_deref().unwrap_or_default()),
        warning: event.type_.as_deref() == Some("Warning"),
        is_ours: event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(provisioner),
        count: series.and_then(|series| series.count).or(event.count).unwrap_or(1).max(1),
        at: last_occurrence(event).map_or(0, Timestamp::as_second),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::filled::{LONG, filled};

    fn event(at: usize, message: &str) -> Event {
        let at = format!("2026-01-01T00:00:{at:02}Z");
        let event = json!({ "metadata": {}, "involvedObject": {}, "message": message, "lastTimestamp": at });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn of_many_and_long_events_the_newest_are_kept_and_cut() {
        let mut read = Read::default();
        for page in 0..20 {
            assert!(read.add((0..50).map(|n| event((page + n) % 60, "short")).collect(), "p").is_continue());
        }
        let events = read.events("team");
        assert!(events.len() == MAX_EVENTS && events.iter().all(|event| event.at >= events[MAX_EVENTS - 1].at));

        let long = "x".repeat(1 << 20);
        let mut read = Read::default();
        let pages = (0..1000).find(|n| read.add(vec![event(n % 60, &long)], "p").is_break());
        assert_eq!(pages, Some((MAX_BYTES >> 20) - 1), "an end, however many there are");
        let events = read.events("team");
        assert_eq!((events[0].reason.as_str(), events.len()), (LEFT_OUT, (MAX_BYTES >> 20) + 1));
        let kept: usize = events.iter().map(|event| event.message.len()).sum();
        assert!(kept < 100_000, "{kept} bytes are kept");
    }

    /// Returns the long texts of an object, each with its path.
    fn long_texts(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::String(text) if text.len() >= LONG => found.push(at.to_owned()),
            Value::Object(fields) => fields.iter().for_each(|(field, value)| {
                let field: String = field.chars().take(20).collect();
                long_texts(value, &format!("{at}/{field}"), found);
            }),
            Value::Array(items) => items.iter().for_each(|value| long_texts(value, at, found)),
            _ => {}
        }
    }

    #[test]
    fn each_text_of_an_event_counts() {
        let event: Event = filled(&"x".repeat(LONG));
        let mut texts = Vec::new();
        long_texts(&serde_json::to_value(&event).unwrap(), "", &mut texts);
        for known in ["/message", "/source/host", "/reportingInstance", "/involvedObject/fieldPath", "/related/name"] {
            assert!(texts.iter().any(|text| text == known), "{known} is not filled: {texts:?}");
        }
        assert!(bytes(&event) >= texts.len() * LONG, "{} bytes in {texts:?}", bytes(&event));
        let mut read = Read::default();
        let pages = (1..1000).find(|_| read.add(vec![event.clone()], "p").is_break()).unwrap();
        assert!(pages <= MAX_BYTES / (texts.len() * LONG) + 1, "{pages} pages of {} long texts", texts.len());
    }

    #[test]
    fn the_last_occurrence_is_known_from_each_api_of_events() {
        let created = "2026-01-01T00:00:01Z";
        let first = json!({ "eventTime": "2026-01-01T00:00:02.000000Z" });
        let series = json!({ "eventTime": "2026-01-01T00:00:02.000000Z",
            "series": { "lastObservedTime": "2026-01-01T00:00:03.000000Z" } });
        let older = json!({ "lastTimestamp": "2026-01-01T00:00:04Z" });
        for (mut event, second) in [(json!({}), 1), (first, 2), (series, 3), (older, 4)] {
            event["metadata"] = json!({ "creationTimestamp": created });
            event["involvedObject"] = json!({});
            let time = last_occurrence(&serde_json::from_value(event).unwrap()).map(|time| time.to_string());
            assert_eq!(time, Some(format!("2026-01-01T00:00:0{second}Z")));
        }
    }
}
