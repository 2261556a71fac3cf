//! VolumeAttributesClasses, and the claims that request them.

use super::{Change, Index, WorkItem};
use crate::attributes::Class;
use crate::model::claim::Claim;
use crate::object::ObjectName;

impl Index {
    /// Returns a VolumeAttributesClass by its name.
    pub fn attributes_class(&self, name: &str) -> Option<&Class> {
        self.attributes.get(name)
    }

    /// Applies a change of a VolumeAttributesClass. Claims may have waited for it.
    pub fn change_attributes_class(&mut self, change: Change<Class>) -> Vec<WorkItem> {
        match change {
            Change::Apply(class) => {
                let name = class.name.clone();
                if self.attributes.insert(name.clone(), class.clone()) == Some(class) {
                    return Vec::new();
                }
                self.attributes_keys(&name)
            }
            Change::Delete(name) => match self.attributes.remove(&name.name) {
                Some(class) => self.attributes_keys(&class.name),
                None => Vec::new(),
            },
            Change::Retain(all) => self.retain(
                all,
                |index| index.attributes.keys().map(|name| ObjectName::new("", name)).collect(),
                Index::change_attributes_class,
            ),
            // The kind has no namespace.
            Change::RetainIn(..) => Vec::new(),
        }
    }

    /// Returns the claims that request a VolumeAttributesClass, with their volumes. Such objects seldom change.
    fn attributes_keys(&self, name: &str) -> Vec<WorkItem> {
        let asks = |claim: &&Claim| claim.attributes_class.as_deref() == Some(name);
        let keys = |claim: &Claim| {
            let volume = claim.volume_name.clone().map(WorkItem::Volume);
            [WorkItem::Claim(claim.name.clone())].into_iter().chain(volume).collect::<Vec<_>>()
        };
        self.claims.values().map(AsRef::as_ref).filter(asks).flat_map(keys).collect()
    }
}
