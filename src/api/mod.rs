//! The Kubernetes API: the client, the watches and reads, the writes, and the right to write.
//!
//! - Reading: [`watch`] follows the objects, and `lean`, `read` and `pages` read them.
//! - Writing: [`writes`] and [`events`] use the client of a leader ([`lease`], [`fence`]).
//! - Others: [`policies`] reads the admission policies, and [`sidecar`] the Leases of external provisioners.

pub mod client;
pub mod events;
pub mod fence;
pub mod lean;
pub mod lease;
mod pages;
pub mod policies;
pub mod read;
pub mod sidecar;
mod unread;
pub mod watch;
pub mod writes;
