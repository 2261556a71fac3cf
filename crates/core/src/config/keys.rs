//! The keys of a provisioner config: each stands here once, with its documentation and its properties.
//!
//! Code names a key by its constant, such as [`TIMEOUT`]. All lists of keys follow from the properties, and the tables
//! of `docs/config.md` and the word list of the admission policy `configs` are printed from here.

mod table;

#[cfg(test)]
mod tests;

pub use table::*;

/// One key of a provisioner config.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// The name in a ConfigMap.
    pub name: &'static str,
    /// The part of the documentation that lists the key.
    pub group: Group,
    /// The effect, as lines of Markdown.
    pub doc: &'static [&'static str],
    /// The possible values, as Markdown.
    pub value: &'static str,
    /// The effect of a missing key, as Markdown. A value that an admin could write is in code font.
    pub default: &'static str,
    /// A value that a config could have.
    pub example: &'static str,
    /// Values that the check refuses, each with words of its message.
    pub errors: &'static [(&'static str, &'static str)],
    /// The anchor of the section of `docs/config.md` that says more; empty for none.
    pub section: &'static str,
    /// A changed value makes other volumes, so that the pooled ones are replaced.
    pub affects_volume: bool,
    /// Later runs of a volume take the value from the class as it is now, and not from the volume's record.
    pub follows_class: bool,
    /// A StorageClass may set the key, and wins over its config.
    pub class_may_set: bool,
    /// With another value, the image may reach another backend.
    pub leads_to_backend: bool,
}

/// The parts of the documentation that list keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// The program of runs, and its input.
    Program,
    /// The nodes and the user of runs.
    Placement,
    /// The claims that a class serves, and its volumes.
    Volumes,
    /// The number and the times of runs.
    Pace,
    /// Volumes that are made before claims ask for them.
    Pools,
}

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
