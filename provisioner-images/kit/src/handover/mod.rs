//! Volumes that the members of a batch hand over to the process of the batch, which creates them over one connection.
//!
//! `flex-pv each` listens on a socket and gives each program its address with a key ([`VARIABLE`]). `flex-pv create`
//! sends the volume there ([`create`]). The key says which member it is, and a member can only create its own volume.

mod ask;
mod check;
mod desk;
mod wire;

pub use ask::create;
pub(crate) use desk::{Desk, Seat};
pub use wire::VARIABLE;
