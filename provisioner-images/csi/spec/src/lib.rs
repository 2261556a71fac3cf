//! The Container Storage Interface, version 1.12: its messages, its clients and, with the feature `server`, its services.
//!
//! All of it is generated from the `csi.proto` of the Go module `github.com/container-storage-interface/spec`; a test
//! makes it anew and compares. Fields and what they mean are described there, not here.

/// What stands in the package `csi.v1`.
#[allow(missing_docs, clippy::all, deprecated)]
#[rustfmt::skip]
pub mod csi {
    include!("csi.v1.rs");
}
