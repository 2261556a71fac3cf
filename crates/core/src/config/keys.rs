//! The keys of a provisioner config, each with its documentation and its properties.
//!
//! Code names a key by its constant, such as [`TIMEOUT`]. All lists of keys follow from the properties, and the tables
//! of `docs/config.md`, the JSON schema and the word list of the admission policy `configs` are printed from here.

pub mod form;
mod spec;
mod table;

#[cfg(test)]
mod tests;

pub use spec::{Group, KeySpec};
pub use table::*;

/// Fields of a StorageClass that people write into a config by mistake.
pub const STORAGE_CLASS_FIELDS: &[&str] = &[
    "volume-binding-mode",
    "volumeBindingMode",
    "allow-volume-expansion",
    "allowVolumeExpansion",
    "allowed-topologies",
    "allowedTopologies",
];

/// Returns the key with this name, or `None` for a parameter.
pub fn find(name: &str) -> Option<&'static KeySpec> {
    ALL.iter().copied().find(|key| key.name == name)
}

/// Checks whether a name is that of a key. Every other name is a parameter.
pub fn is_key(name: &str) -> bool {
    find(name).is_some()
}
