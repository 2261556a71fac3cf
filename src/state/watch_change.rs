//! Changes: the messages of watches, and their effect on the cache.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use flex_core::object::ObjectName;

/// A change in a watch whose objects are stored as `V`.
#[derive(Debug)]
pub enum WatchChange<V> {
    /// An object is new, or has a new state.
    Apply(V),
    /// An object is gone.
    Delete(ObjectName),
    /// A new list: all objects that exist.
    Retain(Listed),
    /// A new list of one namespace: all objects that exist in it. Objects elsewhere are unchanged.
    RetainIn(String, Listed),
}

/// The objects of a new list.
#[derive(Debug)]
pub enum Listed {
    /// All that the cache has: the list was the first of its watch. Without names it takes no memory, however many objects
    /// there are.
    AllCached,
    /// These objects.
    Names(HashSet<ObjectName>),
}

impl Listed {
    /// Returns a list of no objects.
    pub fn none() -> Self {
        Listed::Names(HashSet::new())
    }

    /// Adds an object to the list.
    pub fn add(&mut self, name: ObjectName) {
        if let Listed::Names(names) = self {
            names.insert(name);
        }
    }

    /// Checks whether an object of the cache is in the list.
    pub fn contains(&self, name: &ObjectName) -> bool {
        match self {
            Listed::AllCached => true,
            Listed::Names(names) => names.contains(name),
        }
    }

    /// Returns those of these names of the cache that are not in the list.
    pub(super) fn missing<'a>(&self, names: impl Iterator<Item = &'a ObjectName>) -> Vec<ObjectName> {
        names.filter(|name| !self.contains(name)).cloned().collect()
    }

    /// Returns those of these names that are not in the list. Objects of their kind have no namespace.
    pub(super) fn missing_unscoped<N: AsRef<str>>(&self, names: impl Iterator<Item = N>) -> Vec<ObjectName> {
        let names = names.map(|name| ObjectName::new("", name.as_ref()));
        names.filter(|name| !self.contains(name)).collect()
    }
}

impl FromIterator<ObjectName> for Listed {
    fn from_iter<N: IntoIterator<Item = ObjectName>>(names: N) -> Self {
        Listed::Names(names.into_iter().collect())
    }
}

/// The effect of a change on one cached object. At least one of the two states exists.
#[derive(Debug)]
pub struct Changed<V> {
    /// The object before the change.
    pub before: Option<Arc<V>>,
    /// The object after the change.
    pub now: Option<Arc<V>>,
}

impl<V> Changed<V> {
    /// Describes the end of an object.
    pub fn gone(before: Arc<V>) -> Self {
        Changed { before: Some(before), now: None }
    }

    /// Returns the last known state of the object.
    pub fn last(&self) -> &Arc<V> {
        self.now.as_ref().or(self.before.as_ref()).expect("a change has an object")
    }
}

/// Removes one name from the set of a key, and the key with its last name.
pub(super) fn drop_from<K, N, Q>(map: &mut HashMap<K, BTreeSet<N>>, key: &Q, name: &N)
where
    K: Borrow<Q> + Eq + Hash,
    N: Ord,
    Q: Eq + Hash + ?Sized,
{
    if let Some(names) = map.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            map.remove(key);
        }
    }
}

/// Keeps the entries that still exist. Returns whether any was removed.
pub(super) fn retain<K: Ord, V>(all: &mut BTreeMap<K, V>, mut there: impl FnMut(&K) -> bool) -> bool {
    let before = all.len();
    all.retain(|name, _| there(name));
    all.len() < before
}
