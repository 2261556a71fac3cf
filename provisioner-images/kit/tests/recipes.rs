//! Tests of the recipes in `configmaps/recipes/`. Their scripts run in busybox, as in the images, with the real `flex-pv`
//! and the programs of the storage. All recipes pass the same cases; each has a real backend or scripted tools.

#[path = "flex_pv/api.rs"]
#[allow(dead_code)]
mod api;
#[path = "recipes/btrfs.rs"]
mod btrfs;
#[path = "recipes/cases.rs"]
mod cases;
#[path = "recipes/ceph_rbd.rs"]
mod ceph_rbd;
#[path = "recipes/conformance.rs"]
mod conformance;
#[path = "recipes/desk.rs"]
mod desk;
#[path = "recipes/host.rs"]
mod host;
#[path = "recipes/iscsi.rs"]
mod iscsi;
#[path = "recipes/loopfile.rs"]
mod loopfile;
#[path = "recipes/lvm_thin.rs"]
mod lvm_thin;
#[path = "recipes/nfs_kernel.rs"]
mod nfs_kernel;
#[path = "recipes/on_host.rs"]
mod on_host;
#[path = "recipes/parameters.rs"]
mod parameters;
#[path = "../../../testing/ganesha/src/port.rs"]
mod port;
#[path = "recipes/s3_bucket.rs"]
mod s3_bucket;
#[path = "recipes/smb.rs"]
mod smb;
#[path = "recipes/zfs.rs"]
mod zfs;
