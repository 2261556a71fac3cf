//! The decisions about snapshots: which content a VolumeSnapshot gets, and what its status says ([`bind`]); and what is stored
//! for a content and taken away again ([`decide`]).
//!
//! The division is that of Kubernetes. What [`bind`] does, the snapshot-controller does for CSI volumes; what [`decide`]
//! does, a sidecar of the driver does there. So for CSI volumes [`bind`] does nothing, and for all others the two agree on
//! every write: the content bears the name under which the snapshot-controller looks for it.

pub mod bind;
pub mod decide;
pub mod request;
pub mod restore;
