//! The cluster: what is watched ([`watch`]), as it comes ([`lean`], [`read`], [`pages`]) and what is kept of it ([`index`]), what waits
//! to be decided ([`queue`]), what is written ([`writes`]), told ([`events`]) and who may write ([`lease`], [`fence`]); and
//! which admission policies and which provisioners of others stand beside it ([`policies`], [`sidecar`]).

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
