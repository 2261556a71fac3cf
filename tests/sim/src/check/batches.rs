//! The properties of runs for several claims.

use flex_contract::names;
use flex_provisioner::object::ObjectName;
use serde::Deserialize;
use serde_json::Value;

use super::{Guarantee, Violation};
use crate::store::{Change, Kind, Store, annotation, is_deleting, label, text, uid};
use crate::wire::{Request, Verb};

/// Who is in a Job, with the number of the attempt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Member {
    /// The volume id.
    pub id: String,
    /// Of the claim's attempts.
    pub attempt: u32,
}

/// All that are in a Job that makes volumes.
pub fn members(job: &Value) -> Vec<Member> {
    let listed = annotation(&job["spec"]["template"], names::BATCH);
    match listed {
        "" => {
            let attempt = label(job, names::LABEL_ATTEMPT).parse().unwrap_or_default();
            vec![Member { id: label(job, names::LABEL_CLAIM_UUID).to_owned(), attempt }]
        }
        listed => serde_json::from_str(listed).expect("a batch lists its members"),
    }
}

fn provisions(job: &Value) -> bool {
    label(job, names::LABEL_OPERATION) == "provision" && label(job, names::LABEL_INSTANCE) == crate::INSTANCE
}

/// A Job is to be created, and somebody in it is, or was, in another by the same stamp.
pub fn second_job(store: &Store, request: &Request) -> Option<Violation> {
    let Request { verb: Verb::Create, kind: Kind::Job, name, body, .. } = request else { return None };
    if !provisions(body) {
        return None;
    }
    let wanted = members(body);
    let others = store.log(Kind::Job).iter().filter(|change| change.name != *name && provisions(&change.object));
    let both = |other: &Change| members(&other.object).into_iter().find(|member| wanted.contains(member));
    let (other, member) = others.filter_map(|other| Some((&other.name, both(other)?))).next()?;
    let what = format!("attempt {} of {} is in two Jobs: {other} and {name}", member.attempt, member.id);
    Some(Violation { guarantee: Guarantee::Duplicate, what })
}

/// A batch was ended, and a claim that one of its processes was for had nothing to do with that: it is there, waits, and has
/// the stamp by which it is in it.
pub fn ended_for_others(store: &Store, job: &Value, id: &str) -> Option<String> {
    let (name, claim) = store.all(Kind::Claim).find(|(_, claim)| uid(claim) == id)?;
    let waits = !is_deleting(claim) && text(claim, "/spec/volumeName").is_empty();
    let in_it = annotation(claim, names::BATCH) == text(job, "/metadata/name");
    let made = store.get(Kind::Volume, &ObjectName::new("", names::pv_name(id))).is_some();
    // Its own attempt has failed, as by a volume that it was given and that does not fit.
    let failure: Value = serde_json::from_str(annotation(claim, names::FAILURE)).unwrap_or_default();
    let last = annotation(claim, names::ATTEMPT).parse().ok();
    let failed = last.is_some() && last == failure["attempt"].as_u64();
    (waits && in_it && !made && !failed)
        .then(|| format!("the batch of claim {name} was removed for the sake of others"))
}
