//! Tests of the binary `flex-pv` from outside: its output, the objects that it creates, its termination messages and
//! exit codes.

#[path = "flex_pv/api.rs"]
mod api;
#[path = "flex_pv/batch.rs"]
mod batch;
#[path = "flex_pv/contract.rs"]
mod contract;
#[path = "flex_pv/create.rs"]
mod create;
#[path = "flex_pv/dry_run.rs"]
mod dry_run;
#[path = "flex_pv/each.rs"]
mod each;
#[path = "flex_pv/handover.rs"]
mod handover;
#[path = "flex_pv/parameters.rs"]
mod parameters;
#[path = "flex_pv/remove.rs"]
mod remove;
#[path = "flex_pv/termination_message.rs"]
mod termination_message;
#[path = "flex_pv/tool.rs"]
mod tool;
