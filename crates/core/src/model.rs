//! Objects of Kubernetes as decisions see them: read from its types, bounded, and without any decision.

pub mod affinity;
pub mod claim;
pub mod data_source;
pub mod expand_status;
pub mod expand_update;
pub mod failed_run;
pub mod foreign_metadata;
pub mod grant;
pub mod manifest;
pub mod metadata;
pub mod modify_status;
pub mod modify_update;
pub mod moved_in;
pub mod named_secrets;
pub mod namespace;
mod node_list;
pub mod object_ref;
pub mod phase;
pub mod reach;
pub mod record;
pub mod snapshot;
pub mod stored;
pub mod volume;
pub mod volume_notes;
