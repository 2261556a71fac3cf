//! The events of a claim, from anybody.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::model::claim::Claim;

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

/// Reads the events of a claim, the newest first. `provisioner` is the name under which the orchestrator emits events.
///
/// # Errors
/// If the events cannot be listed.
pub async fn read(client: &Client, provisioner: &str, claim: &Claim) -> kube::Result<Vec<ClaimEvent>> {
    let api: Api<Event> = Api::namespaced(client.clone(), &claim.name.namespace);
    let of_claim = ListParams::default().fields(&format!("involvedObject.uid={}", claim.uid));
    let listed = api.list(&of_claim).await?;
    let mut events: Vec<_> = listed.items.iter().map(|event| seen(event, provisioner)).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    Ok(events)
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
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        warning: event.type_.as_deref() == Some("Warning"),
        is_ours: event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(provisioner),
        count: series.and_then(|series| series.count).or(event.count).unwrap_or(1).max(1),
        at: last_occurrence(event).map_or(0, Timestamp::as_second),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
