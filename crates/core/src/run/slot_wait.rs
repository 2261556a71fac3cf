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

/// The reason why a run gets no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// Other runs have all slots, or wait before it.
    Taken,
    /// The class has an outage. The next run may begin at this time, in seconds since 1970; `None` if that is another's.
    Outage(Option<i64>),
}

impl NoSlot {
    /// Returns the words of the event. They are the same all the time, so that one event is emitted.
    pub fn text(self) -> &'static str {
        match self {
            NoSlot::Taken => {
                "all slots for runs of its class are taken (`max-in-flight`, `max-in-flight-per-namespace` and `max-in-flight-per-node` of the provisioner config); it gets a slot when another run ends"
            }
            NoSlot::Outage(_) => {
                "the last runs of its class have all failed, so the provisioner starts one at a time, with pauses of up to a minute, until one succeeds; the events of failed claims say why"
            }
        }
    }
}

/// Adds the time of the next decision to the decision that an item waits for a slot, and an event after a while. In a
/// burst each item waits for a moment, and needs no event for that.
pub fn until_slot_is_free<R: Rule>(
    wait: rules::Decision<R>,
    why: NoSlot,
    created: i64,
    now: i64,
) -> rules::Decision<R> {
    let event_at = created + seconds(SLOT_EVENT_AFTER) + 1;
    let poll = now + seconds(SLOT_POLL);
    let next = match why {
        NoSlot::Outage(Some(at)) => at.clamp(now + 1, poll),
        NoSlot::Outage(None) | NoSlot::Taken => poll,
    };
    match event_at > now {
        true => wait.requeue_at(event_at.min(next)),
        false => wait.requeue_at(next).with_event(reason::LIMIT_REACHED, why.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::decide::Rule as ClaimRule;

    const NOW: i64 = 1_000_000;

    #[test]
    fn an_item_waits_for_the_next_run_of_an_outage_and_says_so_once() {
        for (what, why, created, requeue_at, says) in [
            ("a burst", NoSlot::Taken, NOW, NOW + 30, None),
            ("it has waited", NoSlot::Taken, NOW - 31, NOW + 30, Some("`max-in-flight`")),
            ("a pause", NoSlot::Outage(Some(NOW + 7)), NOW - 31, NOW + 7, Some("one at a time")),
            ("a new claim in a pause", NoSlot::Outage(Some(NOW + 7)), NOW, NOW + 7, None),
            ("a long pause", NoSlot::Outage(Some(NOW + 60)), NOW - 31, NOW + 30, Some("one at a time")),
            ("the pause is over", NoSlot::Outage(Some(NOW)), NOW - 31, NOW + 1, Some("one at a time")),
            ("another has its turn", NoSlot::Outage(None), NOW - 31, NOW + 30, Some("one at a time")),
        ] {
            let wait = until_slot_is_free(ClaimRule::RevisionNotStored.nothing(), why, created, NOW);
            assert_eq!(wait.requeue_at, Some(requeue_at), "{what}");
            let message = wait.event.map(|event| event.message);
            assert_eq!(message.is_some(), says.is_some(), "{what}: {message:?}");
            assert!(message.zip(says).is_none_or(|(message, says)| message.contains(says)), "{what}");
        }
    }
}
