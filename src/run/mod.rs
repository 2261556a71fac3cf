//! One run of an image: the Job that is started for it ([`job`]), the admin's template under it
//! ([`template`]), and what became of it ([`state`]).

pub mod job;
pub mod state;
pub mod template;
pub mod view;
