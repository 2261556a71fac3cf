//! The decision about a VolumeSnapshotContent ([`decide`]): when its snapshot is stored and deleted. [`request`] makes the
//! request to an image that follows from it.

pub mod decide;
pub mod request;
