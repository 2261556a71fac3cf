//! `support-bundle` and `replay`: the state of a cluster in a file, and what would be decided about it.

mod decisions;
mod record;

pub(super) use self::decisions::{ReplayArgs, replay};
pub(super) use self::record::{SupportBundleArgs, support_bundle};
