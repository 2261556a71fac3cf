//! What the demo and the benchmarks share: a record of all that a cluster does, what it says about one claim, what many
//! cost, and how that is shown.

pub mod audit;
pub mod machine;
pub mod many;
pub mod objects;
pub mod peers;
pub mod plot;
pub mod profile;
pub mod record;
pub mod show;
pub mod statistics;
pub mod timeline;
