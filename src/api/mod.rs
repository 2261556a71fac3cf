//! The Kubernetes API: the client, what is read and watched, what is written, and who may write.
//!
//! - Reading: [`watch`] keeps the state up to date, and `lean`, `read` and `pages` say how objects arrive.
//! - Writing: [`writes`] and [`events`], through the client of a leader ([`lease`], [`fence`]).
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
