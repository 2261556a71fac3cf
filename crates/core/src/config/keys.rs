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
    /// As it stands in a ConfigMap.
    pub name: &'static str,
    /// The part of the documentation that lists it.
    pub group: Group,
    /// What it does: lines of Markdown.
    pub doc: &'static [&'static str],
    /// Which values it takes, as Markdown.
    pub value: &'static str,
    /// What holds without it, as Markdown; in code font if it is a value that could be written.
    pub default: &'static str,
    /// A value that a config could have.
    pub example: &'static str,
    /// Values that the check refuses, each with words of its message.
    pub errors: &'static [(&'static str, &'static str)],
    /// The anchor of the section of `docs/config.md` that says more; empty for none.
    pub section: &'static str,
    /// A change of it makes other volumes, so that the pooled ones are replaced.
    pub affects_volume: bool,
    /// Later runs of a volume take it from the class as it is now, and not from the volume's record.
    pub follows_class: bool,
    /// A StorageClass may set it over its config.
    pub class_may_set: bool,
    /// With another value, the image may reach another backend.
    pub leads_to_backend: bool,
}

/// The parts of the documentation that list keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Which program runs, and with what.
    Program,
    /// On which nodes it runs, and as whom.
    Placement,
    /// Which claims a class serves, and what its volumes may be.
    Volumes,
    /// When runs begin, and how many.
    Pace,
    /// Volumes that are made before claims ask for them.
    Pools,
}

/// What people write into a config though it is a field of a StorageClass.
pub const STORAGE_CLASS_FIELDS: &[&str] = &[
    "volume-binding-mode",
    "volumeBindingMode",
    "allow-volume-expansion",
    "allowVolumeExpansion",
    "allowed-topologies",
    "allowedTopologies",
];

/// The key of this name; none for a parameter.
pub fn find(name: &str) -> Option<&'static KeySpec> {
    ALL.iter().copied().find(|key| key.name == name)
}

/// Whether a name means something to the orchestrator; every other name is a parameter.
pub fn is_key(name: &str) -> bool {
    find(name).is_some()
}
