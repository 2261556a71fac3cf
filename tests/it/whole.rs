//! The third ring.
