//! The decisions about a volume: what happens when its claim is gone ([`decide`]), when the claim asks for more bytes
//! ([`expand`]) and when it asks for other attributes ([`modify`]).

pub mod decide;
pub mod expand;
pub mod import;
pub mod in_place_run;
pub mod modify;
pub mod move_in;
pub mod move_in_refusal;
pub mod move_out;
pub mod observed;
pub mod place;
pub mod request;
pub mod reserved_paths;
pub mod restored;
pub mod rule;
#[cfg(test)]
mod test_runs;
pub mod undeletable;
pub mod vouch;
