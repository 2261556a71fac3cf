//! The Kubernetes API: the client, the watches and reads, the writes, and the right to write.
//!
//! - Connecting: [`client`] makes the client, and `measure` measures its requests.
//! - Reading: [`watch`] follows the objects, and `trimmed`, `read` and `pages` read them.
//! - Writing: [`writes`] and [`events`] use the client of a leader ([`lease`], [`fence`]).
//! - Others: [`policies`] reads the admission policies, [`external_provisioner`] the Leases of external provisioners,
//!   [`reviews`] the rights of accounts, and [`cluster_uid`] the UID that identifies a cluster.

pub mod claim_events;
pub mod client;
pub mod cluster_uid;
mod discard_reply;
pub mod events;
pub mod external_provisioner;
pub mod fence;
#[cfg(any(test, feature = "testing"))]
pub mod filled;
pub mod lease;
mod measure;
pub mod pages;
pub mod policies;
pub mod read;
pub mod reviews;
pub mod says;
pub mod trimmed;
pub mod watch;
pub mod writes;
