//! The form in which a recipe is kept: in a revision while claims use it, and in the provenance of
//! the volumes that were made with it.
//!
//! A record holds the effective data (the ConfigMap's, with the StorageClass's over it), so that it
//! can be checked again by the same code that checked it first, and needs neither object any more.
//! The service token never enters it: it stays in the ConfigMap and is read there.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::check;
use super::keys;
use super::{Problem, Recipe};
use crate::object::{ObjectName, hash};

/// Effective data of a class, with where it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Record {
    /// The ConfigMap.
    pub config: ObjectName,
    /// The class.
    pub class: String,
    /// The ConfigMap had a service token.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub service_token: bool,
    /// The effective data, without the service token.
    pub data: BTreeMap<String, String>,
    /// The CSI driver whose name its StorageClass has as its provisioner; empty for classes of this one's own.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stands_for: String,
    /// The parameters of a StorageClass that was written for another provisioner: none of them is a key, whatever it is called.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// What comes of a check.
pub type Checked = Result<Arc<Recipe>, Vec<Problem>>;

/// So many checked records are remembered: more than a cluster has, with what its volumes were made by.
const REMEMBERED: usize = 512;

thread_local! {
    /// What came of each record that was checked. It follows from the record alone, so that nothing is lost with it.
    static CHECKED: RefCell<HashMap<Record, Checked>> = RefCell::default();
}

impl Record {
    /// A hash over everything in it.
    pub fn hash(&self) -> String {
        hash(serde_json::json!(self).to_string().as_bytes())
    }

    /// A hash over what makes a difference to the volumes that are made by it: what only says how and when, or how many, is
    /// left out.
    pub fn kind(&self) -> String {
        let data = self.data.iter().filter(|(key, _)| keys::find(key).is_none_or(|key| key.affects_volume));
        let data = data.map(|(key, value)| (key.clone(), value.clone())).collect();
        Record { data, ..self.clone() }.hash()
    }

    /// The [version](super::Recipe::version) of its recipe.
    pub fn version(&self) -> String {
        version(&self.config, &self.hash())
    }

    /// The provisioner of its class and its volumes: the driver that it stands for, or `own`.
    pub fn provisioner<'a>(&'a self, own: &'a str) -> &'a str {
        if self.stands_for.is_empty() { own } else { &self.stands_for }
    }

    /// The recipe that it records.
    pub fn recipe(&self) -> Result<Recipe, Vec<Problem>> {
        check::recipe(self.clone())
    }

    /// The same; what was checked once is not checked again.
    pub fn checked(&self) -> Checked {
        if let Some(known) = CHECKED.with_borrow(|known| known.get(self).cloned()) {
            return known;
        }
        let checked = self.recipe().map(Arc::new);
        CHECKED.with_borrow_mut(|known| {
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(self.clone(), checked.clone());
        });
        checked
    }
}

pub(super) fn version(config: &ObjectName, hash: &str) -> String {
    format!("{config}@{hash}")
}

/// The hash in a `namespace/name@hash`.
pub fn hash_of(version: &str) -> Option<&str> {
    version.rsplit_once('@').map(|(_, hash)| hash)
}

/// The name of the ControllerRevision that keeps a record, by the record's hash.
pub fn revision_name(hash: &str) -> String {
    format!("flex-config-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(image: &str) -> Record {
        let data = [("image".to_owned(), image.to_owned())].into();
        Record { class: "silver".into(), data, ..Record::default() }
    }

    #[test]
    fn what_was_checked_is_remembered_as_it_is() {
        let (one, other) = (record("one"), record("other"));
        let first = one.checked().unwrap();
        assert!(Arc::ptr_eq(&first, &one.clone().checked().unwrap()));
        assert_eq!(*first, one.recipe().unwrap());
        assert_eq!(*other.checked().unwrap(), other.recipe().unwrap());
        for _ in 0..2 {
            assert_eq!(record("").checked().unwrap_err(), record("").recipe().unwrap_err());
        }
    }

    #[test]
    fn no_more_is_remembered_than_there_is_room_for() {
        for number in 0..=REMEMBERED {
            record(&number.to_string()).checked().unwrap();
        }
        assert_eq!(CHECKED.with_borrow(HashMap::len), 1);
        assert_eq!(*record("0").checked().unwrap(), record("0").recipe().unwrap());
    }
}
