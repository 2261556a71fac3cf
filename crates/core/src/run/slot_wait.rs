//! The wait of a run for a slot.

use std::time::Duration;

use flex_contract::reason;

use super::backoff::seconds;
use crate::rules::{self, Rule};

/// The delay after which a waiting item is requeued. A free slot requeues it earlier, except if items before it have
/// left.
const SLOT_POLL: Duration = Duration::from_secs(30);
/// The time after which an item that waits for a slot gets an event.
const SLOT_EVENT_AFTER: Duration = Duration::from_secs(30);

/// The event of an item that waits for a slot.
pub const ALL_TAKEN: &str = "all slots for runs of its class are taken (`max-in-flight`, `max-in-flight-per-namespace` and `max-in-flight-per-node` of the provisioner config); it gets a slot when another run ends";

/// Adds the time of the next decision to the decision that an item waits for a slot, and an event after a while. In a
/// burst each item waits for a moment, and needs no event for that.
pub fn until_slot_is_free<R: Rule>(wait: rules::Decision<R>, created: i64, now: i64) -> rules::Decision<R> {
    let event_at = created + seconds(SLOT_EVENT_AFTER) + 1;
    match event_at > now {
        true => wait.requeue_at(event_at.min(now + seconds(SLOT_POLL))),
        false => wait.requeue_at(now + seconds(SLOT_POLL)).with_event(reason::LIMIT_REACHED, ALL_TAKEN),
    }
}
