//! What a class keeps ready, as its config says it.

use std::collections::BTreeMap;

/// So many volumes of one size may be kept ready.
pub const MOST_READY: u64 = 1000;

/// How many volumes of a size are kept ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// With fewer it is filled again.
    pub low: usize,
    /// Up to so many.
    pub high: usize,
}

/// The volumes that a class keeps ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// By their sizes, in bytes.
    pub sizes: BTreeMap<u64, Marks>,
    /// All of them together have no more bytes.
    pub max_bytes: Option<u64>,
    /// Runs for them at one time; none for a quarter of the class's.
    pub in_flight: Option<usize>,
    /// What the volumes are that the class makes now: the hash of what makes a difference to them.
    pub kind: String,
}

impl Pool {
    /// Runs for it at one time, of all that the class may have.
    pub fn places(&self, max_in_flight: usize) -> usize {
        self.in_flight.unwrap_or(max_in_flight / 4).clamp(1, max_in_flight)
    }
}
