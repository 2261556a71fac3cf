//! The events of a claim, from anybody.

use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::model::claim::Claim;
use crate::run::view;

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

fn seen(event: &Event, provisioner: &str) -> ClaimEvent {
    let series = event.series.as_ref();
    let last = series.and_then(|series| series.last_observed_time.as_ref()).or(event.event_time.as_ref());
    let at = match (&event.last_timestamp, last) {
        (Some(last), _) => last.0.as_second(),
        (None, Some(last)) => last.0.as_second(),
        (None, None) => view::seconds(event.metadata.creation_timestamp.as_ref()),
    };
    ClaimEvent {
        reason: event.reason.clone().unwrap_or_default(),
        message: event.message.clone().unwrap_or_default(),
        warning: event.type_.as_deref() == Some("Warning"),
        is_ours: event.source.as_ref().and_then(|source| source.component.as_deref()) == Some(provisioner),
        count: series.and_then(|series| series.count).or(event.count).unwrap_or(1).max(1),
        at,
    }
}
