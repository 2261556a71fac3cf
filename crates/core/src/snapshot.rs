//! The decisions about snapshots. [`bind`] decides which content a VolumeSnapshot gets, and its status. [`decide`]
//! decides when the snapshot of a content is stored and deleted.
//!
//! The division is that of Kubernetes. For CSI volumes the snapshot-controller does the work of [`bind`], and a sidecar
//! of the driver the work of [`decide`]. So [`bind`] does nothing for CSI volumes. For all others it and the
//! snapshot-controller agree on every write: the content has the name under which the snapshot-controller looks for it.

pub mod bind;
pub mod decide;
pub mod request;
pub mod restore;
