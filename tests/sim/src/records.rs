//! The records of runs, and the claims that are gone while a record names them.

use std::collections::BTreeMap;
use std::rc::Rc;

use flex_contract::names;
use flex_core::model::record::is_record;
use flex_core::object::ObjectName;
use serde_json::{Value, json};

use crate::store::{Kind, Store, annotation, document, uid};

/// Lists all records, whether they count or not.
pub fn all(store: &Store) -> impl Iterator<Item = (&ObjectName, &Rc<Value>)> {
    store.all(Kind::Revision).filter(|(name, _)| is_record(&name.name))
}

/// Returns whether an attempt for a claim has begun, and its volume is neither bound nor undone.
pub fn is_held(claim: &Value) -> bool {
    !uid(claim).is_empty() && annotation(claim, names::HELD) == uid(claim)
}

/// Returns whether a record counts: it names its own UID.
pub fn is_armed(record: &Value) -> bool {
    let own = uid(record);
    !own.is_empty() && annotation(record, names::ARMED) == own
}

/// Lists the claims of a record.
pub fn claims(record: &Value) -> impl Iterator<Item = &Value> {
    record["data"]["claims"].as_array().into_iter().flatten()
}

/// Lists the claims that need a record.
pub fn unsettled(record: &Value) -> impl Iterator<Item = &Value> {
    let is_done = move |claim: &Value| is_in(record, names::SETTLED, claim) || is_in(record, names::KEPT, claim);
    let is_armed = is_armed(record);
    claims(record).filter(move |claim| is_armed && !is_done(claim))
}

/// Lists the claims of which a record says that somebody may keep what their attempts have made.
pub fn kept(record: &Value) -> impl Iterator<Item = &Value> {
    let is_kept = move |claim: &Value| is_in(record, names::KEPT, claim) && !is_in(record, names::SETTLED, claim);
    let is_armed = is_armed(record);
    claims(record).filter(move |claim| is_armed && is_kept(claim))
}

/// Returns whether an annotation of a record lists a claim.
fn is_in(record: &Value, key: &str, claim: &Value) -> bool {
    annotation(record, key).split(',').any(|listed| listed == uid(claim))
}

/// Returns the claim with this UID, if it exists.
pub fn claim<'s>(store: &'s Store, of: &str) -> Option<(&'s ObjectName, &'s Rc<Value>)> {
    store.all(Kind::Claim).find(|(_, claim)| uid(claim) == of)
}

/// Returns a claim of a record as it stands for one that is gone: with what was noted since, and in the form in which
/// users write claims.
pub fn stand_in(record: &Value, claim: &Value) -> Value {
    let mut gone = claim.clone();
    let annotations = &mut gone["metadata"]["annotations"];
    if let Some(note) = document(record, &format!("{}{}", names::GONE_CLAIM, uid(claim))).as_object() {
        annotations[names::FAILURE] = Value::Null;
        annotations[names::NODES] = Value::Null;
        note.iter().for_each(|(key, value)| annotations[key.as_str()] = value.clone());
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|_, value| !value.is_null());
        }
    }
    annotations[names::HELD] = json!(uid(claim));
    gone["spec"]["dataSource"] = claim["spec"]["dataSourceRef"].clone();
    gone
}

/// Returns the claims that are gone while a record names them, by the record of each that was armed last.
pub fn gone(store: &Store) -> Vec<Value> {
    let mut newest: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for (_, record) in all(store) {
        for recorded in unsettled(record).filter(|recorded| claim(store, uid(recorded)).is_none()) {
            let armed = annotation(record, names::JOB_REQUESTED).to_owned();
            if newest.get(uid(recorded)).is_none_or(|(other, _)| *other <= armed) {
                newest.insert(uid(recorded).to_owned(), (armed, stand_in(record, recorded)));
            }
        }
    }
    newest.into_values().map(|(_, gone)| gone).collect()
}

/// Returns the record that names a claim which is gone, if there is one.
pub fn without_claim(store: &Store) -> Option<ObjectName> {
    let names_gone = |record: &Value| unsettled(record).any(|recorded| claim(store, uid(recorded)).is_none());
    all(store).find(|(_, record)| names_gone(record)).map(|(name, _)| name.clone())
}

/// Returns the record that a claim, or what is left of it, needs.
pub fn needed_by(store: &Store, of: &str) -> Option<ObjectName> {
    all(store).find(|(_, record)| unsettled(record).any(|recorded| uid(recorded) == of)).map(|(name, _)| name.clone())
}

/// Returns a record that counts, and whose name another one had that was deleted.
pub fn armed_in_place_of_another(store: &Store) -> Option<ObjectName> {
    let gone = || store.log(Kind::Revision).iter().filter(|change| change.gone);
    let had = |name: &ObjectName, of: &str| gone().any(|change| change.name == *name && uid(&change.object) != of);
    all(store).find(|(name, record)| is_armed(record) && had(name, uid(record))).map(|(name, _)| name.clone())
}
