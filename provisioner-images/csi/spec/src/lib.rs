//! The Container Storage Interface, version 1.12: its messages, its clients and, with the feature `server`, its
//! services.
//!
//! The code is generated from the `csi.proto` of the Go module `github.com/container-storage-interface/spec`. A test
//! generates it again and compares. The file `csi.proto` describes the fields and their meaning.

/// The package `csi.v1`.
#[allow(missing_docs, clippy::all, clippy::too_many_lines, deprecated)]
#[rustfmt::skip]
pub mod csi {
    include!("csi.v1.rs");
}
