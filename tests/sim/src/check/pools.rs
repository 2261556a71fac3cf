//! The properties of pooled volumes.

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::Value;

use super::{Guarantee, is_with_other};
use crate::store::{Kind, Store, annotation, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::{World, wanted_node};

/// Returns whether a volume is pooled: adopted, and without a claim.
pub fn is_ready(volume: &Value) -> bool {
    let is_adopted = !label(volume, names::LABEL_POOL).is_empty() && !annotation(volume, names::PROVENANCE).is_empty();
    is_adopted && text(volume, "/spec/claimRef/uid").is_empty()
}

/// Returns whether a claim is a pool request.
pub fn is_pool_request(claim: &Value) -> bool {
    label(claim, names::LABEL_POOL) == names::POOL_REQUEST
}

/// Counts the pooled volumes of a class that a claim could have: their nodes exist.
pub fn ready(store: &Store, world: &World, class: &str) -> usize {
    let of_class = |volume: &Value| text(volume, "/spec/storageClassName") == class && !is_deleting(volume);
    let there = |volume: &Value| {
        let node = world.made.get(uid(volume)).map_or("", |(_, node)| node);
        node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some()
    };
    let volumes = store.all(Kind::Volume).map(|(_, volume)| volume);
    volumes.filter(|volume| is_ready(volume) && of_class(volume) && there(volume)).count()
}

/// Checks the end: each pool is full, and no pool request is left. A quota may leave nothing for the pool.
pub fn check_end(store: &Store, world: &World) -> Vec<(Guarantee, String)> {
    let mut wrong = Vec::new();
    // Another claim uses the volume that was made for it; the request is deleted with that claim.
    let waits = |claim: &Value| is_with_other(store, claim);
    for (class, wanted) in &world.pools {
        // A pool request that is deleted gets no volume any more; another request replaces it.
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
        wrong.push((Guarantee::Stuck, format!("{name} still asks for a pooled volume")));
    }
    let lost = |volume: &Value| world.made.get(uid(volume)).is_some_and(|(_, node)| world.lost.contains(node));
    let unwanted = |volume: &Value| !world.pools.contains_key(text(volume, "/spec/storageClassName"));
    for (name, _) in store.all(Kind::Volume).filter(|(_, volume)| is_ready(volume) && unwanted(volume) && !lost(volume))
    {
        wrong.push((Guarantee::Leaked, format!("volume {} is pooled, and no pool wants it", name.name)));
    }
    wrong
}

/// Checks a request before it is carried out: it does not delete a volume that a claim has, or could get.
pub fn request(store: &Store, world: &World, request: &Request) -> Option<String> {
    let Request { verb: Verb::Create, kind: Kind::Job, body, .. } = request else { return None };
    if label(body, names::LABEL_OPERATION) != "delete" {
        return None;
    }
    let name = ObjectName::new("", names::pv_name(label(body, names::LABEL_VOLUME_ID)));
    let volume = store.get(Kind::Volume, &name)?;
    let settled =
        || store.all(Kind::Claim).all(|(_, claim)| !is_pool_request(claim) || names::pv_name(uid(claim)) != name.name);
    // Leftovers on other nodes belong to no claim.
    let on = wanted_node(body);
    let elsewhere =
        world.made.get(uid(volume)).is_some_and(|(_, node)| !node.is_empty() && !on.is_empty() && on != node);
    (is_ready(volume) && settled() && !elsewhere)
        .then(|| format!("a delete run for volume {}, which is pooled", name.name))
}
