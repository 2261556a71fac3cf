//! Bad input: what must hold whatever admins, users, images and nodes write.
//!
//! Each target is a function of any bytes that panics where something does not hold. `scripts/fuzz.sh` runs
//! them under libFuzzer, which looks for bytes that get further; the tests run them over the corpus, where
//! every input is kept that has ever failed.

pub mod claim;
pub mod config;
pub mod draw;
pub mod flex_pv;
pub mod quantity;
pub mod run;
pub mod template;
pub mod volume;
pub mod world;

/// Panics where something does not hold.
pub type Check = fn(&[u8]);

/// All targets, by the names of their programs and of the folders of their corpora.
pub const TARGETS: &[(&str, Check)] = &[
    ("claim", claim::check),
    ("config", config::check),
    ("flex_pv", flex_pv::check),
    ("quantity", quantity::check),
    ("run", run::check),
    ("template", template::check),
    ("volume", volume::check),
];
