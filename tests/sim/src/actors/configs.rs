//! The actions of admins on configs, classes, and the namespace of a vendor.

use flex_core::object::ObjectName;
use serde_json::json;

use super::{Actors, class, namespace, second};
use crate::VENDOR;
use crate::profile::Profile;
use crate::rng::Rng;
use crate::store::{Kind, Store};
use crate::trace::{count, line};

impl Actors {
    /// Creates the namespace of the vendor with its configs, once it is gone.
    pub(super) fn open(&self, store: &mut Store) {
        let name = ObjectName::new("", VENDOR);
        if self.classes.contains(&"vendor") && store.get(Kind::Namespace, &name).is_none() {
            line(|| format!("admin: creates namespace {VENDOR}"));
            store.create(Kind::Namespace, json!({ "metadata": { "name": VENDOR, "finalizers": ["kubernetes"] } }));
            (0..self.configs.len()).for_each(|at| self.fix_config(store, at));
        }
    }

    /// Deletes the namespace of the vendor.
    pub(super) fn close(store: &mut Store) {
        line(|| format!("admin: deletes namespace {VENDOR}"));
        count("namespaces deleted");
        store.delete(Kind::Namespace, &ObjectName::new("", VENDOR));
    }

    /// Deletes a class, and creates another of its name with another config.
    pub(super) fn swap(&self, store: &mut Store, rng: &mut Rng) {
        let name = *rng.pick(&self.classes);
        if name == "pure" {
            return;
        }
        let at = ObjectName::new("", name);
        let swapped = store.get(Kind::Class, &at).is_some_and(|class| class["parameters"].is_object());
        line(|| format!("admin: replaces class {name}"));
        count("classes replaced");
        store.remove(Kind::Class, &at);
        let mut new = class(name);
        if !swapped {
            new["parameters"] = json!({ flex_core::config::classes::CONFIG_PARAMETER: format!("{}/{}", namespace(name), second(name)) });
        }
        store.create(Kind::Class, new);
    }

    /// Changes, breaks, deletes or restores a config.
    pub(super) fn touch_config(&mut self, store: &mut Store, rng: &mut Rng, profile: &Profile) {
        let at = rng.below(self.configs.len());
        let name = crate::store::name_of(&self.configs[at]);
        count("configs changed");
        match rng.below(4) {
            0 => {
                let version = format!("registry.example/images/maker:{}", 1 + rng.below(3));
                line(|| format!("admin: config {name} gets image {version}"));
                self.configs[at]["data"]["image"] = json!(version);
                self.fix_config(store, at);
            }
            1 if profile.typos => {
                line(|| format!("admin: config {name} names a missing image"));
                store.update(Kind::Config, &name, |config| {
                    config["data"]["image"] = json!("registry.example/images/maker:typo");
                });
            }
            1 => {
                line(|| format!("admin: breaks config {name}"));
                store.update(Kind::Config, &name, |config| config["data"]["timeout"] = json!("soon"));
            }
            2 => {
                line(|| format!("admin: deletes config {name}"));
                store.remove(Kind::Config, &name);
            }
            _ => self.fix_config(store, at),
        }
    }

    /// Restores the correct form of a config.
    pub(super) fn fix_config(&self, store: &mut Store, at: usize) {
        let right = &self.configs[at];
        let name = crate::store::name_of(right);
        if store.is_closed(&name.namespace) {
            return;
        }
        if store.update(Kind::Config, &name, |config| config["data"] = right["data"].clone()).is_none() {
            line(|| format!("admin: creates config {name}"));
            store.create(Kind::Config, right.clone());
        }
    }
}
