//! The cluster: what is watched ([`watch`]) and kept of it ([`index`]), what waits to be decided
//! ([`queue`]), what is written ([`writes`]), told ([`events`]) and who may write ([`lease`]).

pub mod client;
pub mod events;
pub mod index;
pub mod lease;
pub mod queue;
pub mod watch;
pub mod writes;
