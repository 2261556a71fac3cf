//! One run of an image: the Job that is started for it ([`job`]), the admin's template under it
//! ([`template`]), and what became of it ([`state`]). Runs that are for no volume
//! are [`list`], which lists a backend, and those of [`crate::capacity`]. One run for several claims or volumes is a [`batch`], which [`gather`] begins.

pub mod backoff;
pub mod batch;
pub mod failure;
pub mod gather;
pub mod job;
pub mod late;
pub mod list;
mod mounts;
pub mod request;
pub mod state;
pub mod template;
pub mod view;
