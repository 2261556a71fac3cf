//! What the demo and the benchmark share: a record of all that a cluster does, and what it says about one claim.

pub mod machine;
pub mod objects;
pub mod record;
pub mod timeline;
