//! Configs, StorageClasses, ServiceAccounts and the state of external provisioners, and the table of classes that follows
//! from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use flex_core::capacity::segment::any_has_capacity;
use flex_core::claim::decide::ClassCertainty;
use flex_core::config::accounts::{Account, Accounts};
use flex_core::config::classes::{
    Class, ClassLookup, ClassObject, Classes, Config, Identity, Revision, Takeovers, classes_with,
};
use flex_core::config::external_provisioner::{Drivers, ExternalProvisioners, replaced_drivers};
use flex_core::config::{Recipe, keys, script};
use flex_core::model::claim::Claim;
use flex_core::object::ObjectName;

use crate::state::watch_change::{WatchChange, retain};

/// The time after the deletion of a StorageClass or ConfigMap for which nothing takes its place: an admin who replaces an
/// object must delete it first. In this time the label of a config alone does not serve the class of a StorageClass, no
/// other config takes the class of a ConfigMap, and the pool of a class without config is not drained.
pub const CLASS_REPLACE_GRACE: Duration = Duration::from_secs(30);

/// The time after the deletion of a ConfigMap for which its last good version is kept. Somebody may create it again, with
/// an error.
pub const VERSION_GRACE: Duration = Duration::from_secs(60 * 60);

/// The time after a label alone has made a class, for which the class serves no claim. Who applies a directory with claim,
/// config and StorageClass creates the StorageClass last.
pub const CLASS_OBJECT_GRACE: Duration = Duration::from_secs(2);

/// A class that a label alone makes.
#[derive(Clone, Copy, Debug)]
struct ByLabel {
    /// The time since when the label makes the class.
    since: Duration,
    /// The resourceVersion at which the API had no StorageClass of this name; 0 if nobody has asked.
    absent_at: u64,
}

/// All objects on which the table of classes rests, and the table.
///
/// Each change returns whether the table must be [decided](Configs::decide) again.
#[derive(Debug, Default)]
pub struct Configs {
    configs: BTreeMap<ObjectName, Config>,
    accounts: Accounts,
    storage_classes: BTreeMap<String, ClassObject>,
    /// StorageClasses that were deleted a moment ago, with the time.
    deleted_classes: BTreeMap<String, Duration>,
    /// The classes whose incumbents do not ask for them any more, with these incumbents, and the time since when.
    absent_incumbents: BTreeMap<String, (ObjectName, Duration)>,
    /// The classes that were served once and are not served now, with the time of that change.
    unserved: BTreeMap<String, Duration>,
    /// The configs that were deleted lately, with the time.
    gone: BTreeMap<ObjectName, Duration>,
    /// The time when the table was decided first.
    first_decided: Option<Duration>,
    /// The classes that a label alone makes.
    by_label: BTreeMap<String, ByLabel>,
    external_provisioners: ExternalProvisioners,
    classes: Arc<Classes>,
    /// An image reports the capacity of a class.
    has_capacity_class: bool,
    /// The present change is a part of a list.
    listing: bool,
    /// The table must be decided at the end of the list.
    stale: bool,
}

impl Configs {
    /// Returns all classes and verdicts.
    pub fn classes(&self) -> &Arc<Classes> {
        &self.classes
    }

    /// Returns the present recipe of a class.
    pub fn recipe_of(&self, class: &str) -> Option<&Arc<Recipe>> {
        match self.classes.lookup(class) {
            ClassLookup::Ours(class) => class.recipe.as_ref().ok(),
            ClassLookup::Foreign | ClassLookup::Unknown => None,
        }
    }

    /// Checks whether an image reports the capacity of a class.
    pub fn has_capacity_class(&self) -> bool {
        self.has_capacity_class
    }

    /// Returns a config by its name.
    pub fn get(&self, name: &ObjectName) -> Option<&Config> {
        self.configs.get(name)
    }

    /// Returns the text of the script with a hash, if a config has it now.
    pub fn script(&self, hash: &str) -> Option<&str> {
        let texts = self.configs.values().filter_map(|config| config.data.get(keys::SCRIPT.name));
        texts.map(String::as_str).find(|text| script::hash(text) == hash)
    }

    /// Returns all configs.
    pub fn all(&self) -> impl Iterator<Item = &Config> {
        self.configs.values()
    }

    /// Returns the drivers whose external provisioners must be known.
    pub fn replaced_drivers(&self, identity: &Identity) -> Drivers {
        replaced_drivers(identity, self.configs.values())
    }

    /// Applies a change of a provisioner ConfigMap.
    pub fn change_config(&mut self, change: WatchChange<Config>, now: Duration) -> bool {
        let before: Vec<_> = self.configs.keys().cloned().collect();
        let is_news = self.apply_config(change);
        let gone = before.into_iter().filter(|name| !self.configs.contains_key(name));
        self.gone.extend(gone.map(|name| (name, now)));
        self.gone.retain(|name, since| !self.configs.contains_key(name) && now.saturating_sub(*since) < VERSION_GRACE);
        is_news
    }

    fn apply_config(&mut self, change: WatchChange<Config>) -> bool {
        match change {
            WatchChange::Apply(config) => {
                // The orchestrator's own verdict on the config is no change.
                let before = self.configs.insert(config.name.clone(), config.clone());
                before.is_none_or(|before| Config { verdict: None, ..before } != Config { verdict: None, ..config })
            }
            WatchChange::Delete(name) => self.configs.remove(&name).is_some(),
            WatchChange::Retain(all) => retain(&mut self.configs, |name| all.contains(name)),
            WatchChange::RetainIn(namespace, all) => {
                retain(&mut self.configs, |name| name.namespace != namespace || all.contains(name))
            }
        }
    }

    /// Checks whether a config exists, or may be created again. Its last good version is kept until then.
    pub fn may_exist_again(&self, config: &ObjectName, now: Duration) -> bool {
        let began_lately = || self.first_decided.is_none_or(|first| now.saturating_sub(first) < VERSION_GRACE);
        self.configs.contains_key(config) || self.gone.contains_key(config) || began_lately()
    }

    /// Applies a change of a ServiceAccount. A config gets a warning if its account does not exist, and claims may wait
    /// for the account.
    pub fn change_account(&mut self, change: WatchChange<Account>) -> bool {
        match change {
            WatchChange::Apply(account) => self.accounts.add(account),
            WatchChange::Delete(name) => self.accounts.remove(&name),
            // ServiceAccounts are watched in single namespaces only.
            WatchChange::Retain(_) => false,
            WatchChange::RetainIn(namespace, all) => self.accounts.retain(&namespace, |name| all.contains(name)),
        }
    }

    /// Applies a change of a StorageClass.
    pub fn change_class(&mut self, change: WatchChange<ClassObject>, now: Duration) -> bool {
        match change {
            WatchChange::Apply(object) => {
                self.storage_classes.insert(object.name.clone(), object.clone()) != Some(object)
            }
            WatchChange::Delete(name) => {
                let known = self.storage_classes.remove(&name.name).is_some();
                if known {
                    self.deleted_classes.insert(name.name, now);
                }
                known
            }
            WatchChange::Retain(all) => {
                let there = |name: &String| all.contains(&ObjectName::new("", name));
                let gone: Vec<_> = self.storage_classes.keys().filter(|name| !there(name)).cloned().collect();
                for name in &gone {
                    self.storage_classes.remove(name);
                    self.deleted_classes.insert(name.clone(), now);
                }
                !gone.is_empty()
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => false,
        }
    }

    /// Notes that the API had no StorageClass of this name at a resourceVersion.
    pub fn note_absent_object(&mut self, class: &str, at: Option<&str>) {
        if let (Some(by_label), Some(at)) = (self.by_label.get_mut(class), at.and_then(|at| at.parse().ok())) {
            by_label.absent_at = by_label.absent_at.max(at);
        }
    }

    /// Notes that all StorageClasses are known, as in a file with all objects of one moment.
    pub fn note_all_objects_known(&mut self) {
        self.by_label.values_mut().for_each(|by_label| by_label.absent_at = u64::MAX);
    }

    /// Returns the certainty about the StorageClass of a class, for a claim. One answer of the API is good for all
    /// claims that are older: the storage of the API server gives all objects rising numbers.
    pub fn class_certainty(&self, class: &Class, claim: &Claim, now: Duration) -> ClassCertainty {
        let Some(by_label) = self.by_label.get(&class.name).filter(|_| !class.has_object) else {
            return ClassCertainty::Certain;
        };
        if claim.resource_version.parse().unwrap_or(u64::MAX) <= by_label.absent_at {
            return ClassCertainty::Certain;
        }
        match now.saturating_sub(by_label.since) < CLASS_OBJECT_GRACE {
            true => ClassCertainty::MayFollow,
            false => ClassCertainty::Unasked,
        }
    }

    /// Applies the state of the drivers' external provisioners.
    pub fn change_external_provisioners(&mut self, external_provisioners: ExternalProvisioners) -> bool {
        let news = self.external_provisioners != external_provisioners;
        self.external_provisioners = external_provisioners;
        news
    }

    /// Forgets the StorageClasses and ConfigMaps that were not created again in time. Their classes are served by label
    /// alone, and by other configs.
    pub fn forget_deleted(&mut self, now: Duration) -> bool {
        let before = self.deleted_classes.len();
        self.deleted_classes.retain(|_, since| remaining(*since, now) > Duration::ZERO);
        let is_over = |(_, since): (&str, Duration)| remaining(since, now) == Duration::ZERO;
        self.deleted_classes.len() < before || self.withheld().any(is_over)
    }

    /// Returns the time until the next deleted StorageClass or ConfigMap is forgotten.
    pub fn next_forgotten(&self, now: Duration) -> Option<Duration> {
        let withheld = self.withheld().map(|(_, since)| since);
        self.deleted_classes.values().copied().chain(withheld).map(|since| remaining(since, now)).min()
    }

    /// Returns the classes that are withheld because their incumbents may return, each with the time since when.
    fn withheld(&self) -> impl Iterator<Item = (&str, Duration)> {
        let withheld = self.classes.withheld.iter();
        withheld.filter_map(|class| Some((class.as_str(), self.absent_incumbents.get(class)?.1)))
    }

    /// Returns how long a class without a config must still be regarded as one that is about to be served again. `None` if
    /// another provisioner serves it at the moment, and a config asks for it.
    pub fn may_return_for(&self, class: &str, now: Duration) -> Option<Duration> {
        if self.classes.is_left_to_other(class) {
            return None;
        }
        let since = self.unserved.get(class).copied().or(self.first_decided).unwrap_or(now);
        Some(remaining(since, now))
    }

    /// Begins or ends a change that is a part of a list. The classes are not derived with each object.
    pub fn set_listing(&mut self, listing: bool) {
        self.listing = listing;
    }

    /// Checks whether a list has changed something, and the classes are not derived yet.
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Derives all classes again, unless the present change is a part of a list. Returns whether it did.
    pub fn derive_classes(
        &mut self,
        identity: &Identity,
        revisions: &BTreeMap<String, Revision>,
        now: Duration,
    ) -> bool {
        self.stale = self.listing;
        if self.listing {
            return false;
        }
        let (configs, storage_classes) = (self.configs.values(), self.storage_classes.values());
        let over = self.absent_incumbents.iter().filter(|(_, (_, since))| remaining(*since, now) == Duration::ZERO);
        let over: BTreeSet<String> = over.map(|(class, _)| class.clone()).collect();
        let external_provisioners = &self.external_provisioners;
        let takeovers = Takeovers::Of(&over);
        let mut table = classes_with(identity, configs, storage_classes, revisions, external_provisioners, takeovers);
        let known = |class: &String, incumbent: &ObjectName| {
            self.absent_incumbents.get(class).filter(|(before, _)| before == incumbent).map_or(now, |(_, since)| *since)
        };
        let absent = table.absent_incumbents.iter();
        let absent = absent.map(|(class, incumbent)| (class.clone(), (incumbent.clone(), known(class, incumbent))));
        self.absent_incumbents = absent.collect();
        self.unserved.extend(self.classes.iter().map(|class| (class.name.clone(), now)));
        self.unserved.retain(|class, _| !matches!(table.lookup(class), ClassLookup::Ours(_)));
        self.first_decided.get_or_insert(now);
        self.deleted_classes.keys().for_each(|class| table.defer_class(class));
        table.warn_of_accounts(self.configs.values(), &self.accounts);
        self.classes = Arc::new(table);
        let by_label = self.classes.iter().filter(|class| !class.has_object);
        let known =
            |class: &Class| self.by_label.get(&class.name).copied().unwrap_or(ByLabel { since: now, absent_at: 0 });
        self.by_label = by_label.map(|class| (class.name.clone(), known(class))).collect();
        self.has_capacity_class = any_has_capacity(self.classes.iter());
        true
    }
}

/// Returns how long an object that has been gone since then may still return.
fn remaining(since: Duration, now: Duration) -> Duration {
    CLASS_REPLACE_GRACE.saturating_sub(now.saturating_sub(since))
}
