//! Integration tests on an API server without nodes.
//!
//! Each test has a real etcd and API server with the controller manager, and the orchestrator's real binary. The test
//! plays kubelet and image, or runs an image as a process. A test waits for what it expects, with a wide time limit.
//! Times are printed, not asserted.

#![allow(clippy::too_many_lines, reason = "a test of a whole story is read from top to bottom")]

mod batches;
mod binding;
mod bundle;
mod capacity;
mod check;
mod cinder;
mod clones;
mod complete;
mod configs;
mod conformance;
mod csi;
mod deletion;
mod expand;
mod export_traces;
mod external_provisioner;
mod failures;
mod fat;
mod findings;
mod gate;
mod hostile;
mod lifecycle;
mod limits;
mod log_level;
mod metrics;
mod modify;
mod move_in;
mod namespaces;
mod node_names;
mod nodes;
mod outages;
mod page;
mod pools;
mod records;
mod restored;
mod retry;
mod scripts;
mod snapshots;
mod stamps;
mod status;
mod suspended;
mod swaps;
mod theft;
mod trace;
mod ui;
mod uninstall;
mod velero;
mod vouch;
mod webhooks;
