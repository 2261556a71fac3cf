//! The properties of batches.

use flex_contract::names;
use flex_core::object::ObjectName;
use serde::Deserialize;
use serde_json::Value;

use crate::store::{Kind, Store, annotation, document, is_deleting, label, text, uid};

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

/// Checks whether a run for a claim was in a batch.
pub(super) fn was_batched(store: &Store, claim: &Value) -> bool {
    let is_batch = |job: &Value| !annotation(&job["spec"]["template"], names::BATCH).is_empty();
    let is_in = |job: &Value| members(job).iter().any(|member| member.id == uid(claim));
    store.log(Kind::Job).iter().any(|change| is_batch(&change.object) && is_in(&change.object))
}

/// Checks that an ended batch had no member that should have continued: its claim exists, waits, and has the stamp of
/// the attempt.
pub fn ended_for_others(store: &Store, job: &Value, id: &str) -> Option<String> {
    let (name, claim) = store.all(Kind::Claim).find(|(_, claim)| uid(claim) == id)?;
    let waits = !is_deleting(claim) && text(claim, "/spec/volumeName").is_empty();
    let attempt = annotation(claim, names::ATTEMPT);
    let in_it = members(job).iter().any(|member| member.id == id && member.attempt.to_string() == attempt);
    let made = store.get(Kind::Volume, &ObjectName::new("", names::pv_name(id))).is_some();
    // Its own attempt has failed, for example because its volume did not match.
    let failure = document(claim, names::FAILURE);
    let last = attempt.parse().ok();
    let failed = last.is_some() && last == failure["attempt"].as_u64();
    (waits && in_it && !made && !failed)
        .then(|| format!("the batch of claim {name} was removed for the sake of others"))
}
