//! The properties of the records of runs, which stand for claims that are gone.

use std::collections::BTreeSet;
use std::rc::Rc;

use flex_contract::names;
use flex_core::object::ObjectName;
use serde_json::Value;

use super::{Guarantee, is_bound, is_with_other, pools};
use crate::actors::KEPT;
use crate::records::{self, is_held};
use crate::store::{Change, Kind, Store, annotation, document, is_deleting, text, uid};
use crate::world::{StorageKey, World};

/// Returns whether a live claim is held, or a claim is gone that a record names, for which this holds.
pub fn any_held(store: &Store, of: impl Fn(&Value) -> bool) -> bool {
    any_live(store, &of) || records::gone(store).iter().any(of)
}

/// Checks whether a claim is there and held, and this holds for it.
pub fn any_live(store: &Store, of: impl Fn(&Value) -> bool) -> bool {
    store.all(Kind::Claim).any(|(_, claim)| is_held(claim) && of(claim))
}

/// Checks the end: each record is needed by a claim that waits, as it may.
pub fn check_end(store: &Store) -> Vec<(Guarantee, String)> {
    let mut wrong = Vec::new();
    for (name, record) in records::all(store) {
        if !records::is_armed(record) {
            wrong.push((Guarantee::Leaked, format!("record {name} is left, and no run could begin under it")));
            continue;
        }
        let is_needed = |recorded: &Value| match records::claim(store, uid(recorded)) {
            Some((_, claim)) => is_held(claim) || !is_bound(claim),
            None => is_with_other(store, recorded),
        };
        let says_more = records::unsettled(record).next().is_some() || records::kept(record).next().is_none();
        if says_more && !records::unsettled(record).any(is_needed) {
            let whom: Vec<&str> = records::unsettled(record).map(uid).collect();
            wrong.push((Guarantee::Stuck, format!("record {name} is left, for {whom:?}, which do not need it")));
        }
    }
    wrong
}

/// Returns whether a claim is held that still needs its source, and for which this holds: the claim is there, or its first delete
/// run has not failed, and waits for no node that is gone.
pub fn any_copy(store: &Store, of: impl Fn(&Value) -> bool) -> bool {
    let is_there = |node: &str| node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some();
    let needs_it = |copy: &Value| {
        records::claim(store, uid(copy)).is_some()
            || document(copy, names::FAILURE)["operation"] != "delete"
                && annotation(copy, names::NODES).split(',').all(is_there)
    };
    any_held(store, |copy| of(copy) && needs_it(copy))
}

/// Counts what is left of claims of the same namespace and class that are gone. What waits for a node that is gone does not count.
pub fn left_beside(store: &Store, claim: &Value) -> usize {
    let place = |claim: &Value| {
        (text(claim, "/metadata/namespace").to_owned(), text(claim, "/spec/storageClassName").to_owned())
    };
    let is_there = |node: &str| node.is_empty() || store.get(Kind::Node, &ObjectName::new("", node)).is_some();
    let counts = |gone: &&Value| place(gone) == place(claim) && annotation(gone, names::NODES).split(',').all(is_there);
    records::gone(store).iter().filter(counts).count()
}

/// Checks the end of a process whose watches have shown everything: it knows of no claim that is gone, unless a record
/// names it. `stand_ins` are the UIDs of those that it knows.
pub fn stand_ins(store: &Store, replica: usize, stand_ins: &[String]) -> Option<String> {
    let gone = records::gone(store);
    let left = stand_ins.iter().find(|of| gone.iter().all(|gone| uid(gone) != of.as_str()))?;
    Some(format!("orchestrator {replica} still knows of claim {left}, which is gone and named by no record"))
}

/// Checks after a step that no storage is gone which somebody keeps: its claim was bound and is gone, and its volume had the policy
/// Retain all the time, or an admin has set it while the claim was there.
pub fn check_step(world: &World) -> Option<String> {
    let (volume, location) = world.kept.iter().find(|(_, location)| !world.backend.contains(*location))?;
    Some(format!("the storage {location:?} of the retained volume {volume} is gone"))
}

/// Notes the claims whose end a process has not seen, because it lists the claims after this part of their log: nothing shows it
/// that they were never bound.
pub fn note_missed(store: &Store, world: &mut World, from: usize) {
    let gone = records::gone(store);
    let ended = store.log(Kind::Claim)[from..].iter().filter(|change| change.gone).map(|change| uid(&change.object));
    let recorded = ended.filter(|of| gone.iter().any(|gone| uid(gone) == *of));
    world.missed.extend(recorded.map(str::to_owned));
}

/// Returns the storage that stays on purpose: the class of its claim keeps storage, and a process has not seen the claim to its end,
/// or it was the request of a pool, whose volume another claim may get. So somebody may have had the volume, and a record must say so.
pub fn kept<'s>(store: &'s Store, world: &'s World) -> impl Iterator<Item = StorageKey> + use<'s> {
    let claims = store.log(Kind::Claim).iter().map(|change| &change.object);
    let may_be_had = |claim: &&Rc<Value>| pools::is_pool_request(claim) || world.missed.contains(uid(claim));
    let retained = claims.filter(|claim| text(claim, "/spec/storageClassName") == KEPT).filter(may_be_had);
    let told: BTreeSet<&str> = records::all(store).flat_map(|(_, record)| records::kept(record)).map(uid).collect();
    let ids: BTreeSet<&str> = retained.map(|claim| uid(claim)).filter(|of| told.contains(of)).collect();
    world.backend.iter().filter(move |(id, _)| ids.iter().any(|of| id.starts_with(of))).cloned()
}

/// Keeps account of retained volumes, at a change of a volume: the last of these.
pub fn note_kept(store: &Store, world: &mut World, changes: &[Change]) {
    let Some(Change { object: volume, .. }) = changes.last() else { return };
    let retains = |volume: &Value| text(volume, "/spec/persistentVolumeReclaimPolicy") == "Retain";
    let id = uid(volume);
    if !retains(volume) {
        world.kept.remove(id);
        return;
    }
    let owner = text(volume, "/spec/claimRef/uid");
    let is_adopted = |volume: &Value| {
        !annotation(volume, names::PROVENANCE).is_empty() && annotation(volume, names::CLAIM_UID) == owner
    };
    if text(volume, "/status/phase") != "Released" || owner.is_empty() || !is_adopted(volume) {
        return;
    }
    let states: Vec<&Value> = changes.iter().map(|change| &*change.object).filter(|state| uid(state) == id).collect();
    let last_other = states.iter().rposition(|state| !retains(state));
    let since = last_other.and_then(|at| states.get(at + 1)).copied();
    let was_retained_in_use = since.is_none_or(|since| is_adopted(since) && was_there(store, owner, since));
    let name = ObjectName::new("", text(volume, "/metadata/name"));
    let was_bound = || {
        let mut states = store.log(Kind::Claim).iter().map(|change| &change.object);
        states.any(|claim| uid(claim) == owner && is_bound(claim) && text(claim, "/spec/volumeName") == name.name)
    };
    let location = world.made.get(id).filter(|location| world.backend.contains(*location)).cloned();
    if let Some(location) = location.filter(|_| was_retained_in_use && was_bound()) {
        world.kept.insert(id.to_owned(), location);
    }
}

/// Returns whether a claim had never been deleted when an object of another kind got a state.
fn was_there(store: &Store, owner: &str, state: &Value) -> bool {
    let version = |object: &Value| text(object, "/metadata/resourceVersion").parse::<u64>().unwrap_or_default();
    let is_before = |change: &&Change| uid(&change.object) == owner && version(&change.object) <= version(state);
    let mut before = store.log(Kind::Claim).iter().filter(is_before).peekable();
    before.peek().is_some() && before.all(|change| !change.gone && !is_deleting(&change.object))
}
