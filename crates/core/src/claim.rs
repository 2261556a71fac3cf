//! The decision about a claim ([`decide`]), the facts for it, and the request to an image that follows ([`request`]).

pub mod admit;
#[cfg(test)]
mod bounds_tests;
pub mod data_source;
pub mod decide;
pub mod failed_attempts;
pub mod left;
pub mod nodes;
pub mod progress;
pub mod quota;
pub mod request;
pub mod restore;
pub mod standing;
pub mod timeline;
pub mod verify;
mod verify_secrets;
mod verify_source;
