//! Repairs at the end of a history, and the deletion of all that users made.

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use super::{Actors, NODES, node};
use crate::SYSTEM;
use crate::profile::Profile;
use crate::records;
use crate::rng::Rng;
use crate::store::{Kind, Store, annotation, is_deleting, text, uid};
use crate::trace::{count, line};
use crate::world::World;

impl Actors {
    /// Fixes everything that only a person can fix.
    pub fn repair_all(&mut self, store: &mut Store, world: &mut World, profile: &Profile) {
        for mark in world.marked.clone() {
            Actors::unmark(store, world, &mark);
        }
        if world.is_down {
            Actors::repair_backend(world);
        }
        (0..self.configs.len()).for_each(|at| self.fix_config(store, at));
        let gone: Vec<&str> =
            NODES.iter().copied().filter(|name| store.get(Kind::Node, &ObjectName::new("", *name)).is_none()).collect();
        for (at, name) in gone.iter().enumerate() {
            match profile.lost_nodes && at + 1 < NODES.len() {
                true => {
                    world.lost.insert((*name).to_owned());
                }
                false => {
                    store.create(Kind::Node, node(name));
                }
            }
        }
        self.vouch(store, world);
        self.delete_all(store, world);
    }

    /// Deletes refused volumes, and abandons objects that wait for nodes that do not come back.
    pub fn delete_all(&self, store: &mut Store, world: &mut World) {
        self.open(store);
        self.delete_all_snapshots(store, world);
        let mut waiting: Vec<_> = Actors::claims(store).into_iter().map(|of| (Kind::Claim, of)).collect();
        waiting.retain(|(_, (_, claim))| is_deleting(claim));
        waiting.extend(Actors::volumes(store).into_iter().map(|of| (Kind::Volume, of)));
        for (kind, (name, object)) in waiting {
            // The affinity of a volume without adoption names its node.
            let noted = Some(annotation(&object, names::NODES)).filter(|nodes| !nodes.is_empty());
            let made = || world.made.get(uid(&object)).map_or("", |(_, node)| node);
            let nodes: Vec<&str> = noted.unwrap_or_else(made).split(',').filter(|node| !node.is_empty()).collect();
            let stays = kind == Kind::Volume && text(&object, "/status/phase") == "Bound";
            let hopeless = !nodes.is_empty() && nodes.iter().all(|node| world.lost.contains(*node));
            if hopeless
                && !stays
                && self.waits_for_nodes(store, &object)
                && annotation(&object, names::ABANDON).is_empty()
            {
                line(|| format!("admin: abandons {kind:?} {name}"));
                count("objects on lost nodes abandoned");
                store.update(kind, &name, |object| {
                    object["metadata"]["annotations"][names::ABANDON] = json!(names::ABANDON_YES);
                });
            }
        }
        self.abandon_records(store, world);
        for (name, volume) in Actors::volumes(store) {
            // A restored volume was vouched for. To delete it before its claim has it would leave it to the admin.
            let is_restored = world.restored.contains_key(uid(&volume));
            if !annotation(&volume, names::QUARANTINE).is_empty() && !is_deleting(&volume) && !is_restored {
                line(|| format!("admin: deletes volume {}, which was refused", name.name));
                store.delete(Kind::Volume, &name);
            }
        }
    }

    /// Abandons the records whose claims are gone and wait for nodes that do not come back.
    fn abandon_records(&self, store: &mut Store, world: &World) {
        let is_hopeless = |claim: &Value| {
            let nodes: Vec<&str> = annotation(claim, names::NODES).split(',').filter(|node| !node.is_empty()).collect();
            let lost = !nodes.is_empty() && nodes.iter().all(|node| world.lost.contains(*node));
            lost && self.waits_for_nodes(store, claim)
        };
        let is_gone = |recorded: &Value| records::claim(store, uid(recorded)).is_none();
        let waits = |record: &Value| {
            let mut all = records::unsettled(record).peekable();
            all.peek().is_some() && all.all(|of| is_gone(of) && is_hopeless(&records::stand_in(record, of)))
        };
        let new = records::all(store).filter(|(_, record)| annotation(record, names::ABANDON).is_empty());
        let waiting: Vec<ObjectName> = new.filter(|(_, record)| waits(record)).map(|(name, _)| name.clone()).collect();
        for name in waiting {
            line(|| format!("admin: abandons record {}", name.name));
            count("objects on lost nodes abandoned");
            store.update(Kind::Revision, &name, |record| {
                record["metadata"]["annotations"][names::ABANDON] = json!(names::ABANDON_YES);
            });
        }
    }

    /// Checks whether the object's class waits for deleted nodes.
    fn waits_for_nodes(&self, store: &Store, object: &Value) -> bool {
        let class = text(object, "/spec/storageClassName");
        store
            .get(Kind::Config, &ObjectName::new(SYSTEM, class))
            .is_some_and(|config| config["data"]["node-gone"] == "hold")
    }

    /// Deletes all claims, and switches all pools off.
    pub fn delete_everything(&mut self, store: &mut Store, rng: &mut Rng) {
        for at in 0..self.configs.len() {
            if self.configs[at]["data"].as_object_mut().is_some_and(|data| data.remove("pool").is_some()) {
                self.fix_config(store, at);
            }
        }
        if self.classes.contains(&"vendor") && rng.permille(500) {
            Actors::close(store);
        }
        for (name, _) in Actors::claims(store) {
            store.delete(Kind::Claim, &name);
        }
        Actors::delete_every_snapshot(store);
    }
}
