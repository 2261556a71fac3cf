//! The properties of batches.

use flex_contract::names;
use flex_core::object::ObjectName;
use serde::Deserialize;
use serde_json::Value;

use super::{Guarantee, Violation};
use crate::store::{Change, Kind, Store, annotation, document, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};
use crate::world::World;

/// A member of a Job, with the number of its attempt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Member {
    /// The volume id.
    pub id: String,
    /// The attempt of its claim.
    pub attempt: u32,
}

/// Lists the members of a Job that makes volumes.
pub fn members(job: &Value) -> Vec<Member> {
    let listed = annotation(&job["spec"]["template"], names::BATCH);
    match listed {
        "" => {
            let attempt = label(job, names::LABEL_ATTEMPT).parse().unwrap_or_default();
            vec![Member { id: label(job, names::LABEL_VOLUME_ID).to_owned(), attempt }]
        }
        listed => serde_json::from_str(listed).expect("a batch lists its members"),
    }
}

/// Returns whether a Job of the orchestrator makes volumes.
pub(super) fn provisions(job: &Value) -> bool {
    label(job, names::LABEL_OPERATION) == "provision" && label(job, names::LABEL_INSTANCE) == crate::INSTANCE
}

/// Checks that no member of a new Job is, or was, in another Job by the same stamp. Jobs that somebody else has made as
/// copies do not count.
pub fn second_job(store: &Store, world: &World, request: &Request) -> Option<Violation> {
    let Request { verb: Verb::Create, kind: Kind::Job, name, body, .. } = request else { return None };
    if !provisions(body) {
        return None;
    }
    let wanted = members(body);
    let is_copy = |job: &Value| world.copies.contains(uid(job));
    let is_other = |change: &&Change| change.name != *name && provisions(&change.object) && !is_copy(&change.object);
    let others = store.log(Kind::Job).iter().filter(is_other);
    let both = |other: &Change| members(&other.object).into_iter().find(|member| wanted.contains(member));
    let (other, member) = others.filter_map(|other| Some((&other.name, both(other)?))).next()?;
    let what = format!("attempt {} of {} is in two Jobs: {other} and {name}", member.attempt, member.id);
    Some(Violation { guarantee: Guarantee::Duplicate, what })
}

/// Checks that an ended batch had no member that should have continued: its claim exists, waits, and has the stamp of
/// the batch.
pub fn ended_for_others(store: &Store, job: &Value, id: &str) -> Option<String> {
    let (name, claim) = store.all(Kind::Claim).find(|(_, claim)| uid(claim) == id)?;
    let waits = !is_deleting(claim) && text(claim, "/spec/volumeName").is_empty();
    let in_it = annotation(claim, names::BATCH) == text(job, "/metadata/name");
    let made = store.get(Kind::Volume, &ObjectName::new("", names::pv_name(id))).is_some();
    // Its own attempt has failed, for example because its volume did not match.
    let failure = document(claim, names::FAILURE);
    let last = annotation(claim, names::ATTEMPT).parse().ok();
    let failed = last.is_some() && last == failure["attempt"].as_u64();
    (waits && in_it && !made && !failed)
        .then(|| format!("the batch of claim {name} was removed for the sake of others"))
}
