//! The commands that run a vendor's program on this machine: `try` and `conformance`.

mod again;
pub(super) mod args;
pub(super) mod attempt;
mod call;
pub(super) mod conformance;
mod on_cluster;
mod report;
