//! A real Kubernetes for tests and demo, on this machine: etcd, the API server and, if pods are needed, a node.
//!
//! - [`Cluster::control_plane`]: etcd and an API server for one test, which end with the test. About 4 s.
//! - [`Cluster::lent`], [`Cluster::lent_with_snapshots`], [`Cluster::lent_with`]: the same for tests that change only
//!   objects, one after another. About 0.2 s.
//! - [`Cluster::shared`]: a whole cluster by name. It is started if necessary, and left running for the next test
//!   binary.
//! - [`Cluster::attach`]: a whole cluster that `flex-cluster up` started.
//!
//! `setup.sh` beside this crate installs what is missing. Each start runs it.

mod authority;
mod cgroup;
mod cluster;
mod cluster_node;
mod component;
mod components;
mod control_plane;
mod helm;
mod kubeconfig;
mod lent;
mod network;
mod node;
mod nodes;
mod port_forward;
mod process;
mod readiness;
mod setup;
mod simulated;
mod snapshotter;
mod state;
mod teardown;
mod volumes;
mod whole;

pub use cluster::Cluster;
pub use cluster_node::ClusterNode;
pub use component::{ClientLimits, Component};
pub use control_plane::ControlPlane;
pub use helm::helm;
pub use lent::Contents;
pub use port_forward::PortForward;
pub use simulated::SimulatedNode;
pub use snapshotter::Snapshotter;
pub use volumes::volumes_in;
pub use whole::{Health, Whole, down, health, tests_name};
