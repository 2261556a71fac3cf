//! The cluster: its cache, its writes, and the right to write.
//!
//! - [`watch`] follows the objects, [`lean`], [`read`] and [`pages`] read them, and [`index`] is the cache.
//! - [`queue`] holds the work items that wait.
//! - [`writes`] writes objects, and [`events`] emits events.
//! - [`lease`] and [`fence`] decide who may write.
//! - [`policies`] and [`sidecar`] look for admission policies and external provisioners.

pub mod client;
pub mod events;
pub mod fence;
pub mod index;
pub mod lean;
pub mod lease;
mod pages;
pub mod policies;
pub mod queue;
pub mod read;
pub mod sidecar;
mod unread;
pub mod watch;
pub mod writes;
