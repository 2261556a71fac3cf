//! The pool of a class, as its config describes it.

use std::collections::BTreeMap;

/// The largest number of pooled volumes of one size.
pub const MAX_POOLED: u64 = 1000;

/// The watermarks of a size in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// The pool is filled when it has fewer volumes.
    pub low: usize,
    /// The pool is filled up to this number.
    pub high: usize,
}

/// The pool of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The watermarks of each size, in bytes.
    pub sizes: BTreeMap<u64, Watermarks>,
    /// The largest sum of the sizes of all pooled volumes, in bytes.
    pub max_bytes: Option<u64>,
    /// The number of slots that pool requests may use; `None` for a quarter of those of the class.
    pub in_flight: Option<usize>,
    /// A hash of all settings that make a difference to the volumes. Pooled volumes with another hash are drained.
    pub hash: String,
}

impl Pool {
    /// Returns the number of slots that pool requests may use, of all slots of the class.
    pub fn slots(&self, max_in_flight: usize) -> usize {
        self.in_flight.unwrap_or(max_in_flight / 4).clamp(1, max_in_flight)
    }
}
