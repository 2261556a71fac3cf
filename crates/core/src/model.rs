//! Objects of Kubernetes as decisions see them: read from its types, bounded, and without any decision.

pub mod affinity;
pub mod claim;
pub mod data_source;
pub mod grant;
pub mod keep;
pub mod manifest;
pub mod modification;
pub mod resize;
pub mod snapshot;
pub mod volume;
pub mod volume_notes;
pub mod written;
