//! Fuzz targets: the properties that hold whatever admins, users, images and nodes write.
//!
//! Each target is a function of any bytes that panics if a property does not hold. `scripts/fuzz.sh` runs the targets
//! under libFuzzer, which looks for bytes that reach new code. The tests run them over the corpus, which contains each
//! input that has ever failed.

pub mod config;
pub mod draw;
pub mod flex_pv;
pub mod quantity;
pub mod run;
pub mod template;
pub mod world;

/// A check, which panics if a property does not hold.
pub type Check = fn(&[u8]);

/// All targets, by the names of their programs and of the folders of their corpora.
pub const TARGETS: &[(&str, Check)] = &[
    ("config", config::check),
    ("flex_pv", flex_pv::check),
    ("quantity", quantity::check),
    ("run", run::check),
    ("template", template::check),
];
