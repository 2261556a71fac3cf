//! What the API has and the cache lacks: how long that lasts, and when people are told.

use std::time::Duration;

/// The shortest time between two looks at the API while the cache lacks something. Many wait, and each look reads all.
pub const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The time after which people are told. A watch that is healthy is faster.
const TELL_AFTER: Duration = Duration::from_secs(10);
/// The most objects that a message names.
const NAMED: usize = 3;

/// The objects that the cache lacks. Times are those since some moment.
#[derive(Debug, Default)]
pub struct Missing(Option<Lack>);

#[derive(Debug)]
struct Lack {
    /// The time of the first look that showed it.
    since: Duration,
    /// The time of the last look.
    looked: Duration,
    /// The names of some objects, and the number of the others.
    names: String,
    is_told: bool,
}

impl Missing {
    /// Checks whether the last look showed, a moment ago, that the cache lacks some.
    pub fn has_just_missed(&self, now: Duration) -> bool {
        self.0.as_ref().is_some_and(|lack| now.saturating_sub(lack.looked) < LOOK_AGAIN)
    }

    /// Notes which objects a look has shown. Returns their names when it is time to tell them, which is once.
    pub fn note(&mut self, names: &[String], now: Duration) -> Option<String> {
        let named = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = names.len().saturating_sub(NAMED);
        let names = if more == 0 { named } else { format!("{named} and {more} more") };
        let (since, is_told) = self.0.take().map_or((now, false), |before| (before.since, before.is_told));
        let lack = self.0.insert(Lack { since, looked: now, names, is_told });
        let told = lasting(lack).filter(|_| !is_told).map(str::to_owned);
        lack.is_told |= told.is_some();
        told
    }

    /// Returns the names of the objects, once that lasts.
    pub fn lasting(&self) -> Option<&str> {
        self.0.as_ref().and_then(lasting)
    }

    /// Forgets all, because the cache has them.
    pub fn end(&mut self) {
        self.0 = None;
    }
}

fn lasting(lack: &Lack) -> Option<&str> {
    (lack.looked.saturating_sub(lack.since) >= TELL_AFTER).then_some(lack.names.as_str())
}
