//! VolumeAttributesClasses.

use std::collections::BTreeMap;

use flex_core::config::modify::AttributesClass;

/// All VolumeAttributesClasses.
#[derive(Debug, Default)]
pub struct AttributesClasses(BTreeMap<String, AttributesClass>);

impl AttributesClasses {
    /// Returns a class by its name.
    pub fn get(&self, name: &str) -> Option<&AttributesClass> {
        self.0.get(name)
    }

    /// Returns the names of all classes.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Adds a class, or its new state. Returns whether anything changed.
    pub fn apply(&mut self, class: AttributesClass) -> bool {
        self.0.insert(class.name.clone(), class.clone()) != Some(class)
    }

    /// Removes a class. Returns whether it existed.
    pub fn remove(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }
}
