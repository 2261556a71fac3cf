//! The capabilities that a config can declare, each with its documentation.
//!
//! The table of `docs/config.md` is printed from here.

use crate::documented::documented;

documented! {
    /// For [claims that are clones](how-to/clones.md).
    CLONE = "clone";
    /// For [VolumeSnapshots](how-to/snapshots.md).
    SNAPSHOT = "snapshot";
    /// For [claims that ask for more](how-to/expansion.md).
    EXPAND = "expand";
    /// For [VolumeAttributesClasses](operations.md#volumeattributesclasses).
    MODIFY = "modify";
    /// For a scheduler that [avoids nodes without capacity](operations.md#capacity).
    CAPACITY = "capacity";
    /// No effect beyond that of `batch-size`.
    BATCH = "batch";
    /// For [volumes that are made before claims ask for them](how-to/pools.md).
    POOL = "pool";
    /// For [`doctor --backend`](operations.md#doctor), which asks what the backend has.
    LIST = "list";
    /// For [storage that others made](moving-in.md).
    MOVE_IN = "move-in";
}

/// Returns the names of all capabilities.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|capability| capability.name)
}
