//! The image's program against a driver that answers as it is told, and against the few objects of Kubernetes that it reads
//! and writes: what each run does there, says and exits with.

#[path = "image/api.rs"]
mod api;
#[path = "image/batch.rs"]
mod batch;
#[path = "image/changes.rs"]
mod changes;
#[path = "image/delete.rs"]
mod delete;
#[path = "image/killed.rs"]
mod killed;
#[path = "image/provision.rs"]
mod provision;
#[path = "image/reach.rs"]
mod reach;
#[path = "image/run.rs"]
mod run;
#[path = "image/topology.rs"]
mod topology;
