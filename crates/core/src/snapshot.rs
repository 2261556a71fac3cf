//! The decision about a VolumeSnapshot: which content it gets, and its status.
//!
//! The division is that of Kubernetes. For CSI volumes the snapshot-controller does the work of [`decide`], and a sidecar
//! of the driver the work of [`content::decide`](crate::content::decide). So [`decide`] does nothing for CSI volumes. For
//! all others it and the snapshot-controller agree on every write: the content has the name under which the
//! snapshot-controller looks for it.

pub mod decide;
