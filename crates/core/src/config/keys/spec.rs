//! The entry of a key in the table.

use super::form::Form;

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
    /// Later runs of a volume take the value from the class as it is now, and not from the volume's provenance.
    pub follows_class: bool,
    /// A StorageClass may set the key, and wins over its config.
    pub class_may_set: bool,
    /// With another value, the image may reach another backend.
    pub leads_to_backend: bool,
    /// The form of the value.
    pub form: Form,
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
    Limits,
    /// Volumes that are made before claims ask for them.
    Pools,
}
