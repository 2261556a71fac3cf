//! The kept scripts, each with the time since which nobody names it.

use std::collections::{BTreeMap, HashMap, HashSet};

use flex_core::config::classes::KeptScript;
use flex_core::config::script;

use crate::state::watch_change::{Listed, retain};

/// All kept scripts, by their hashes.
#[derive(Debug, Default)]
pub struct KeptScripts {
    kept: BTreeMap<String, KeptScript>,
    /// The times since when this process has seen nobody name a script, in seconds since 1970.
    unnamed_since: HashMap<String, i64>,
}

impl KeptScripts {
    /// Returns a kept script.
    pub fn get(&self, hash: &str) -> Option<&KeptScript> {
        self.kept.get(hash)
    }

    /// Returns all kept scripts, each with the time since when nobody names it.
    pub fn all(&self) -> impl Iterator<Item = (&KeptScript, Option<i64>)> {
        self.kept.values().map(|script| (script, self.unnamed_since.get(&script.hash).copied()))
    }

    /// Adds a script.
    pub fn apply(&mut self, script: KeptScript) {
        self.kept.insert(script.hash.clone(), script);
    }

    /// Removes a script whose object is gone. Returns whether it was there.
    pub fn remove(&mut self, hash: &str) -> bool {
        self.unnamed_since.remove(hash);
        self.kept.remove(hash).is_some()
    }

    /// Keeps the scripts of these objects.
    pub fn retain(&mut self, all: &Listed) {
        let Listed::Names(all) = all else { return };
        let hashes: HashSet<&str> = all.iter().filter_map(|name| script::kept_hash(&name.name)).collect();
        retain(&mut self.kept, |hash| hashes.contains(hash.as_str()));
        self.unnamed_since.retain(|hash, _| hashes.contains(hash.as_str()));
    }

    /// Records since when nobody names a script; `None` if somebody does.
    pub fn note_unnamed(&mut self, hash: &str, since: Option<i64>) {
        match since {
            Some(since) => self.unnamed_since.insert(hash.to_owned(), since),
            None => self.unnamed_since.remove(hash),
        };
    }
}
