//! The common part of the demo and the benchmarks: a record of everything that a cluster does, the timeline of one
//! claim, the cost of many, and tables and plots.

pub mod audit;
pub mod histogram;
pub mod machine;
pub mod many;
pub mod objects;
pub mod paired;
pub mod peers;
pub mod plot;
pub mod profile;
pub mod record;
pub mod show;
pub mod statistics;
pub mod timeline;
