//! The desk: a developer's machine in place of the cluster.
//!
//! The orchestrator's own functions build the Job of a run, judge how it ended and check its volume. The desk does the
//! rest of what a cluster does: it is the kubelet of one container, and the API server of PersistentVolumes.
//!
//! - [`setting`]: the class, the claim and the Secrets of a run, read from files
//! - [`rights`]: the rights that the Roles in such a file give
//! - [`order`]: the Job of each operation, by the orchestrator's functions
//! - [`container`]: the container that a kubelet makes from a Job
//! - [`on_node`]: directories of this machine in place of paths of the node
//! - [`desk`]: runs a container, with the API beside it, and returns how it ended
//! - [`verdict`]: what the orchestrator makes of that
//! - [`conformance`]: the cases that prove that a program keeps the contract
//! - [`front`]: a proxy between a program and the server of its storage, which fails as planned
//! - [`api`]: the API server
//! - [`sandbox`]: how a process gets the mounts and the user of a container

pub mod api;
mod below;
pub mod conformance;
pub mod container;
pub mod desk;
pub mod front;
pub mod on_node;
pub mod order;
pub mod rights;
pub mod sandbox;
pub mod setting;
pub mod verdict;
