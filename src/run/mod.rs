//! One run of an image: the Job that is started for it ([`job`]), the admin's template under it
//! ([`template`]), and what became of it ([`state`]). A run that lists a backend is [`list`].

pub mod job;
pub mod late;
pub mod list;
pub mod nodes;
pub mod state;
pub mod template;
pub mod view;
