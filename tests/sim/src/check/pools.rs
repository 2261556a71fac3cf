//! The properties of pooled volumes.

use flex_contract::names;
use flex_provisioner::object::ObjectName;
use serde_json::Value;

use super::{Guarantee, waits_for_other_claim};
use crate::store::{Kind, Store, annotation, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{World, wanted_node};

/// A volume is kept ready: adopted, for nobody in particular.
pub fn is_ready(volume: &Value) -> bool {
    let ours = !label(volume, names::LABEL_POOL).is_empty() && !annotation(volume, names::PROVENANCE).is_empty();
    ours && text(volume, "/spec/claimRef/uid").is_empty()
}

/// A claim asks for such a volume.
pub fn is_pool_request(claim: &Value) -> bool {
    label(claim, names::LABEL_POOL) == names::POOL_REQUEST
}

/// The ready volumes of a class that a claim could have: their nodes are there.
pub fn ready(store: &Store, world: &World, class: &str) -> usize {
    let of_class = |volume: &Value| text(volume, "/spec/storageClassName") == class && !is_deleting(volume);
    let there = |volume: &Value| {
        let node = world.made.get(uid(volume)).map_or("", |(_, node)| node);
        node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some()
    };
    let volumes = store.all(Kind::Volume).map(|(_, volume)| volume);
    volumes.filter(|volume| is_ready(volume) && of_class(volume) && there(volume)).count()
}

/// At the end: as many are ready as should be, and nothing is asked for. A class that is shared out may have no room for them.
pub fn check_end(store: &Store, world: &World) -> Vec<(Guarantee, String)> {
    let mut wrong = Vec::new();
    // What was made for it is in use by another claim, and is to go with that.
    let waits = |claim: &Value| waits_for_other_claim(store, claim);
    for (class, wanted) in &world.pools {
        // One that somebody deletes gets no volume any more, so that another is asked for in its place.
        let of_class = |claim: &Value| {
            is_pool_request(claim) && !is_deleting(claim) && text(claim, "/spec/storageClassName") == class
        };
        let waiting = store.all(Kind::Claim).filter(|(_, claim)| of_class(claim) && waits(claim)).count();
        let there = ready(store, world, class) + waiting;
        let is_right = if world.share.is_some() { there <= *wanted } else { there == *wanted };
        if !is_right {
            wrong.push((Guarantee::Stuck, format!("class {class} keeps {wanted} volumes ready, and has {there}")));
        }
    }
    for (name, _) in store.all(Kind::Claim).filter(|(_, claim)| is_pool_request(claim) && !waits(claim)) {
        wrong.push((Guarantee::Stuck, format!("{name} still asks for a volume to be kept ready")));
    }
    let lost = |volume: &Value| world.made.get(uid(volume)).is_some_and(|(_, node)| world.lost.contains(node));
    let unwanted = |volume: &Value| !world.pools.contains_key(text(volume, "/spec/storageClassName"));
    for (name, _) in store.all(Kind::Volume).filter(|(_, volume)| is_ready(volume) && unwanted(volume) && !lost(volume))
    {
        wrong.push((Guarantee::Leaked, format!("volume {} is kept ready for nobody", name.name)));
    }
    wrong
}

/// Before a request of the orchestrator is carried out: a volume that a claim could be given, or has been, is not deleted.
pub fn request(store: &Store, world: &World, request: &Request) -> Option<String> {
    let Request { verb: Verb::Create, kind: Kind::Job, body, .. } = request else { return None };
    if label(body, names::LABEL_OPERATION) != "delete" {
        return None;
    }
    let name = ObjectName::new("", names::pv_name(label(body, names::LABEL_CLAIM_UUID)));
    let volume = store.get(Kind::Volume, &name)?;
    let settled =
        || store.all(Kind::Claim).all(|(_, claim)| !is_pool_request(claim) || names::pv_name(uid(claim)) != name.name);
    // What attempts left on other nodes is nobody's.
    let on = wanted_node(body);
    let elsewhere =
        world.made.get(uid(volume)).is_some_and(|(_, node)| !node.is_empty() && !on.is_empty() && on != node);
    (is_ready(volume) && settled() && !elsewhere)
        .then(|| format!("a delete run for volume {}, which is ready", name.name))
}
