//! One run of an image.
//!
//! - [`job`] builds the Job: its name, and its pod with the admin's [`template`] under it.
//! - [`decide`] decides about a run's life, by the table [`rule`].
//! - [`state`] derives the state of a run from its Job and pods. [`stuck`] knows why a run does not start.
//! - [`gate`] decides which pod may start.
//! - [`member`] lists the members of a [`batch`](crate::batch), which is one run for several claims or volumes.
//! - [`node`] says whether a pod can run on a node.
//! - [`list`] lists a backend, for no volume. [`crate::capacity`] has runs that report free space.
//! - [`times`] says when a run reached each stage.
//! - [`outage`] decides at which pace runs begin while they fail one after another.
//! - [`late_runs`] cleans up after runs whose claim or snapshot is gone.

pub mod backoff;
pub mod decide;
pub mod failure;
pub mod gate;
pub mod job;
mod job_name;
pub mod late_runs;
pub mod list;
pub mod managers;
pub mod member;
pub(crate) mod mounts;
pub mod move_in;
pub mod node;
pub mod outage;
pub mod phase;
pub(crate) mod pod;
mod pod_view;
pub mod record;
pub mod request;
pub mod rule;
mod run_labels;
pub mod script;
pub mod slot_wait;
pub mod start_gate;
pub mod state;
pub mod stuck;
pub mod template;
pub mod times;
pub mod view;
