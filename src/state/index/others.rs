//! Changes of nodes, namespaces, snapshots, grants, attributes classes and capacities.

use std::sync::Arc;

use flex_core::capacity::{Driver, Published};
use flex_core::config::modify;
use flex_core::model::claim::Claim;
use flex_core::model::grant::Grant;
use flex_core::model::namespace::{Namespace, Namespaces};
use flex_core::model::snapshot::{Content, Snapshot, SnapshotClass};
use flex_core::run::node::Node;

use super::{Index, WatchChange, WorkItem, within};
use crate::state::watch_change::Changed;

impl Index {
    /// Applies a change of a node.
    pub fn change_node(&mut self, change: WatchChange<Node>) -> Vec<WorkItem> {
        let nodes = &mut self.facts.cache.nodes;
        match change {
            WatchChange::Apply(node) => {
                let name = node.name.clone();
                match nodes.apply(node) {
                    true => {
                        [self.count_on_node(&name), self.woken_by_node(&name, true), self.with_less_left()].concat()
                    }
                    false => Vec::new(),
                }
            }
            WatchChange::Delete(name) => {
                nodes.remove(&name.name);
                [self.count_on_node(&name.name), self.woken_by_node(&name.name, false), self.with_less_left()].concat()
            }
            WatchChange::Retain(all) => {
                let missing = all.missing_unscoped(nodes.names());
                self.remove_missing(missing, |index, name| index.change_node(WatchChange::Delete(name.clone())))
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    /// Counts the stand-ins again that may have left storage on a node: they use quota only while it is there. Returns the items
    /// that have quota now.
    fn count_on_node(&mut self, node: &str) -> Vec<WorkItem> {
        let on_it = |claim: &&Arc<Claim>| claim.is_stand_in() && claim.nodes_with_storage.iter().any(|on| on == node);
        let claims: Vec<_> = self.facts.cache.claims.unsettled().filter(on_it).cloned().collect();
        for claim in &claims {
            let changed = Changed { before: Some(claim.clone()), now: Some(claim.clone()) };
            self.quota.on_claim(&changed, &self.facts);
        }
        claims.iter().filter_map(|claim| claim.class.as_deref()).flat_map(|class| self.for_quota(class)).collect()
    }

    /// Applies a change of a namespace.
    pub fn change_namespace(&mut self, change: WatchChange<Namespace>) -> Vec<WorkItem> {
        let namespaces = Arc::make_mut(&mut self.facts.cache.namespaces);
        match change {
            WatchChange::Apply(namespace) => {
                let name = namespace.name.clone();
                if namespaces.apply(namespace) { self.woken_by_namespace(&name) } else { Vec::new() }
            }
            WatchChange::Delete(name) => {
                namespaces.remove(&name.name);
                Vec::new()
            }
            WatchChange::Retain(all) => {
                let missing = all.missing_unscoped(namespaces.names());
                self.remove_missing(missing, |index, name| index.change_namespace(WatchChange::Delete(name.clone())))
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    /// Returns the namespaces that watches have shown.
    pub fn namespaces(&self) -> &Arc<Namespaces> {
        &self.facts.cache.namespaces
    }

    /// Applies a change of a VolumeSnapshot.
    pub fn change_snapshot(&mut self, change: WatchChange<Snapshot>) -> Vec<WorkItem> {
        let snapshots = &mut self.facts.cache.snapshots;
        match change {
            WatchChange::Apply(snapshot) => {
                let snapshot = Arc::new(snapshot);
                snapshots.apply_snapshot(snapshot.clone());
                self.woken_by_snapshot(&snapshot)
            }
            WatchChange::Delete(name) => {
                let gone = snapshots.remove_snapshot(&name);
                self.woken_by_gone_snapshot(&name, gone.as_deref())
            }
            WatchChange::Retain(all) => {
                let missing = all.missing(snapshots.snapshots().map(|snapshot| &snapshot.name));
                self.remove_missing(missing, |index, name| index.change_snapshot(WatchChange::Delete(name.clone())))
            }
            // All namespaces are watched together.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    /// Applies a change of a content.
    pub fn change_content(&mut self, change: WatchChange<Content>) -> Vec<WorkItem> {
        let snapshots = &mut self.facts.cache.snapshots;
        match change {
            WatchChange::Apply(content) => {
                let content = Arc::new(content);
                snapshots.apply_content(content.clone());
                self.slots.outages_mut().on_content(&content.name, Some(&content));
                let needs_no_slot = content.terminating || content.ready;
                let item = WorkItem::Content(content.name.clone());
                let turn = if needs_no_slot { self.slots.stop_waiting_for_slot(&item) } else { None };
                self.woken_by_content(&content, turn.as_deref())
            }
            WatchChange::Delete(name) => {
                let Some(content) = snapshots.remove_content(&name.name) else { return Vec::new() };
                self.slots.outages_mut().on_content(&name.name, None);
                let turn = self.slots.stop_waiting_for_slot(&WorkItem::Content(name.name));
                self.woken_by_gone_content(&content, turn.as_deref())
            }
            WatchChange::Retain(all) => {
                let missing = all.missing_unscoped(snapshots.contents().map(|content| &content.name));
                self.remove_missing(missing, |index, name| index.change_content(WatchChange::Delete(name.clone())))
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    /// Applies a change of a VolumeSnapshotClass.
    pub fn change_snapshot_class(&mut self, change: WatchChange<SnapshotClass>) -> Vec<WorkItem> {
        let snapshots = &mut self.facts.cache.snapshots;
        match change {
            WatchChange::Apply(class) => snapshots.apply_class(class),
            WatchChange::Delete(name) => snapshots.remove_class(&name.name),
            WatchChange::Retain(all) => snapshots.retain_classes(&all),
            // The kind has no namespace.
            WatchChange::RetainIn(..) => {}
        }
        self.woken_by_snapshot_class()
    }

    /// Notes whether the cluster serves VolumeSnapshots, or VolumeSnapshotContents, by the name of the kind.
    pub fn note_snapshot_kind(&mut self, kind: &str, served: bool) -> Vec<WorkItem> {
        let is_news = match served {
            true => self.absent_snapshot_kinds.remove(kind),
            false => self.absent_snapshot_kinds.insert(kind.to_owned()),
        };
        if is_news { self.woken_by_snapshot_kind() } else { Vec::new() }
    }

    /// Checks whether the cluster serves VolumeSnapshots and their contents. It does until a watch has shown otherwise.
    pub fn serves_snapshots(&self) -> bool {
        self.absent_snapshot_kinds.is_empty()
    }

    /// Applies a change of a ReferenceGrant.
    pub fn change_grant(&mut self, change: WatchChange<Grant>) -> Vec<WorkItem> {
        let grants = &mut self.facts.cache.grants;
        match change {
            WatchChange::Apply(grant) => {
                let namespace = grant.name.namespace.clone();
                if grants.apply(grant) { self.woken_by_grant(&namespace) } else { Vec::new() }
            }
            WatchChange::Delete(name) => {
                if grants.remove(&name) {
                    self.woken_by_grant(&name.namespace)
                } else {
                    Vec::new()
                }
            }
            WatchChange::Retain(all) => {
                let missing = all.missing(grants.names());
                self.remove_missing(missing, |index, name| index.change_grant(WatchChange::Delete(name.clone())))
            }
            WatchChange::RetainIn(namespace, all) => {
                let missing = all.missing(within(grants.names(), &namespace));
                self.remove_missing(missing, |index, name| index.change_grant(WatchChange::Delete(name.clone())))
            }
        }
    }

    /// Applies a change of a VolumeAttributesClass.
    pub fn change_attributes_class(&mut self, change: WatchChange<modify::AttributesClass>) -> Vec<WorkItem> {
        let classes = &mut self.facts.cache.attributes_classes;
        match change {
            WatchChange::Apply(class) => {
                let name = class.name.clone();
                if classes.apply(class) { self.woken_by_attributes_class(&name) } else { Vec::new() }
            }
            WatchChange::Delete(name) => {
                if classes.remove(&name.name) {
                    self.woken_by_attributes_class(&name.name)
                } else {
                    Vec::new()
                }
            }
            WatchChange::Retain(all) => {
                let missing = all.missing_unscoped(classes.names());
                self.remove_missing(missing, |index, name| {
                    index.change_attributes_class(WatchChange::Delete(name.clone()))
                })
            }
            // The kind has no namespace.
            WatchChange::RetainIn(..) => Vec::new(),
        }
    }

    /// Applies a change of a published object.
    pub fn change_capacity(&mut self, change: WatchChange<Published>) -> Vec<WorkItem> {
        let capacities = &mut self.facts.cache.capacities;
        match change {
            WatchChange::Apply(published) => {
                if !capacities.apply(published) {
                    return Vec::new();
                }
            }
            WatchChange::Delete(name) => capacities.remove(&name.name),
            WatchChange::Retain(all) | WatchChange::RetainIn(_, all) => capacities.retain(&all),
        }
        self.woken_by_published()
    }

    /// Applies a change of the CSIDriver.
    pub fn change_driver(&mut self, change: WatchChange<Driver>) -> Vec<WorkItem> {
        let capacities = &mut self.facts.cache.capacities;
        match change {
            WatchChange::Apply(driver) => capacities.set_driver(Some(driver)),
            WatchChange::Delete(_) => capacities.set_driver(None),
            WatchChange::Retain(all) => capacities.retain_driver(&all),
            // The kind has no namespace.
            WatchChange::RetainIn(..) => return Vec::new(),
        }
        self.woken_by_published()
    }

    /// Records a published capacity that this process has just written. The reconciler of capacities, which wrote it,
    /// decides again by itself.
    pub fn record_published(&mut self, written: Published) {
        self.facts.cache.capacities.apply(written);
    }

    /// Records the CSIDriver that this process has just written.
    pub fn record_driver(&mut self, written: Driver) {
        self.facts.cache.capacities.set_driver(Some(written));
    }
}
