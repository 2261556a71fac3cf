//! Tests of the image's program with a scripted driver, and with the few Kubernetes objects that it reads and writes.
//! They check what each run does there, its termination message and its exit code.

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
#[path = "image/snapshot.rs"]
mod snapshot;
#[path = "image/topology.rs"]
mod topology;
