//! The attempts of a claim that failed: when each reached which stage, and why it failed.
//!
//! The orchestrator keeps them as the annotation [`FAILED_ATTEMPTS`](flex_contract::names::FAILED_ATTEMPTS) of the claim,
//! also when the claim is bound. It adds an attempt in the write that records the failure. The annotation is bounded: it
//! has the first attempts and the last ones.

use flex_contract::cause;
use flex_contract::exit::Reaction;
use flex_contract::names;
use flex_contract::operation::Operation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::timeline::{Stage, Timeline};
use crate::limits;
use crate::model::claim::Claim;
use crate::run::failure::{LastFailure, MAX_ATTEMPTS};
use crate::run::state::Cause;
use crate::text::cut;

/// The number of attempts that stay, from the first.
const FIRST: usize = 2;
/// The number of attempts that stay, up to the last.
const LAST: usize = 4;
/// The message of each cause, in bytes.
const MESSAGE: usize = 240;
/// The hash of a request, in bytes.
const HASH: usize = 16;

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The stages that the attempt reached.
    #[serde(flatten)]
    pub timeline: Timeline,
    /// The reason of the failure, in one word.
    pub reason: String,
    /// The message for people, or its beginning.
    pub message: String,
}

impl FailedAttempt {
    /// Returns the number of the attempt, from 1.
    pub fn number(&self) -> u32 {
        self.timeline.attempt
    }

    /// Returns the time of the failure, in milliseconds since 1970.
    pub fn ended(&self) -> i64 {
        self.timeline.ended()
    }

    fn new(timeline: Timeline, failure: &LastFailure) -> Self {
        FailedAttempt { timeline, reason: failure.reason.clone(), message: cut(&failure.message, MESSAGE).into_owned() }
    }

    /// Bounds the texts, which anybody may have written.
    fn bounded(self) -> Self {
        let Cause { reason, message } = Cause::new(self.reason, self.message);
        FailedAttempt { timeline: self.timeline, reason, message: cut(&message, MESSAGE).into_owned() }
    }
}

/// The attempts of a claim that failed, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempts {
    /// The number of attempts that are left out after the first ones.
    #[serde(rename = "leftOut", default, skip_serializing_if = "is_zero")]
    left_out: u32,
    #[serde(rename = "attempts")]
    kept: Vec<FailedAttempt>,
    /// The request of the first attempts.
    #[serde(default, skip_serializing_if = "Requests::is_unknown")]
    requests: Requests,
}

/// The request of the first attempts of a claim, as long as they asked alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Requests {
    /// The number of the last attempt up to which all asked alike, or left nothing.
    #[serde(rename = "upTo")]
    up_to: u32,
    /// The hash of the request of these attempts; `None` if no attempt can have left storage.
    #[serde(rename = "hash", default, skip_serializing_if = "Option::is_none")]
    request: Option<String>,
}

impl Requests {
    /// Forgets the request of attempts of which it has become known that no container has run.
    fn without_unstarted(self, unstarted: u32) -> Self {
        match unstarted >= self.up_to {
            true => Requests { up_to: unstarted, request: None },
            false => self,
        }
    }

    fn is_unknown(&self) -> bool {
        self.up_to == 0
    }

    /// Checks whether the orchestrator can have written it.
    fn is_valid(&self) -> bool {
        self.up_to < MAX_ATTEMPTS && self.request.as_ref().is_none_or(|hash| hash.len() <= HASH)
    }
}

/// Checks whether the image refused the attempt: the image says by its exit code that it cannot make the volume, and so
/// left nothing that it knows of. A refusal of the Job, of the volume or of the node says nothing about storage.
fn is_refusal(failure: &LastFailure) -> bool {
    failure.reaction != Reaction::Retry && failure.reason == cause::EXIT_CODE
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl FailedAttempts {
    /// Returns the failed attempts of a claim that is not bound. A program that kept no attempts recorded the last
    /// failure alone.
    pub fn of(claim: &Claim) -> Self {
        let attempts = claim.failed_attempts.as_deref().and_then(FailedAttempts::read).unwrap_or_default();
        let last = claim.last_failure.as_ref().filter(|failure| failure.operation == Operation::Provision);
        let known = attempts.kept.last().map_or(0, |last| last.timeline.attempt);
        match last.filter(|last| claim.own_stamp().is_some() && last.attempt > known) {
            Some(failure) => {
                let mut timeline = Timeline::new(failure.attempt, claim.created.saturating_mul(1000));
                timeline.reach(Stage::Failed, failure.at.saturating_mul(1000));
                attempts.with(timeline, failure)
            }
            None => attempts,
        }
    }

    /// Returns the failed attempts by the annotation of a claim, whatever the claim's phase.
    pub fn of_object(metadata: &ObjectMeta, claim: &Claim) -> Self {
        let text = metadata.annotations.as_ref().and_then(|all| all.get(names::FAILED_ATTEMPTS));
        let text = text.filter(|text| claim.own_stamp().is_some() && text.len() <= limits::FAILED_ATTEMPTS);
        FailedAttempts::of(&Claim { failed_attempts: text.map(|text| text.as_str().into()), ..claim.clone() })
    }

    /// Adds an attempt that failed. If the attempt is recorded again, it keeps the stages of the first record: its Job
    /// and its pod may be gone since.
    #[must_use]
    pub fn with(mut self, timeline: Timeline, failure: &LastFailure) -> Self {
        let known = self.kept.iter().find(|kept| kept.timeline.attempt == timeline.attempt);
        let timeline = known.map_or(timeline, |known| known.timeline.clone());
        self.kept.retain(|kept| kept.timeline.attempt < timeline.attempt);
        self.kept.push(FailedAttempt::new(timeline, failure));
        if self.kept.len() > FIRST + LAST {
            self.kept.remove(FIRST);
            self.left_out = self.left_out.saturating_add(1);
        }
        self
    }

    /// Adds the request of an attempt that failed. Attempts that the image refused, or of which no container has run, do
    /// not count. Nothing is added after an attempt whose request is not known, or was another.
    #[must_use]
    pub fn with_request(mut self, failure: &LastFailure, request: &str) -> Self {
        self.requests = self.requests.without_unstarted(failure.unstarted_attempts);
        let Requests { up_to, request: before } = &self.requests;
        let counts = !is_refusal(failure);
        let follows = failure.attempt == *up_to + 1;
        if follows && (!counts || before.as_ref().is_none_or(|before| before == request)) {
            self.requests.up_to = failure.attempt;
            if counts {
                self.requests.request = Some(request.to_owned());
            }
        }
        self
    }

    /// Checks whether all attempts of a claim that may have left storage asked for the same as a delete run. `request` is
    /// the hash of its request; `None` if the run cannot ask for what the last attempt asked for.
    pub fn are_alike(&self, claim: &Claim, request: Option<&str>) -> bool {
        let Some(stamp) = claim.own_stamp() else { return false };
        let unstarted = claim.last_failure.as_ref().map_or(0, |failure| failure.unstarted_attempts);
        let Requests { up_to, request: before } = self.requests.clone().without_unstarted(unstarted);
        match (before, request) {
            (None, _) if up_to >= stamp.attempt => true,
            (_, None) => false,
            (before, Some(request)) => up_to + 1 >= stamp.attempt && before.is_none_or(|before| before == request),
        }
    }

    /// Returns the attempts that are kept.
    pub fn kept(&self) -> &[FailedAttempt] {
        &self.kept
    }

    /// Returns the number of attempts that are left out after the first ones.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// Returns the attempts before those that are left out, and the attempts after them.
    pub fn parts(&self) -> (&[FailedAttempt], &[FailedAttempt]) {
        self.kept.split_at(if self.left_out == 0 { self.kept.len() } else { FIRST.min(self.kept.len()) })
    }

    /// Returns the attempts, each with the time since when the claim waited for it, in milliseconds since 1970: the end of
    /// the attempt before, or for the first attempt `created`. The time is not known after attempts that are left out.
    pub fn since(&self, created: i64) -> impl Iterator<Item = (&FailedAttempt, Option<i64>)> {
        let (first, last) = self.parts();
        let before = [Some(created)].into_iter().chain(first.iter().map(|attempt| Some(attempt.ended())));
        let left_out = [None].into_iter().chain(last.iter().map(|attempt| Some(attempt.ended())));
        first.iter().zip(before).chain(last.iter().zip(left_out))
    }

    /// Reads the attempts from their annotation; `None` if the orchestrator cannot have written it.
    pub fn read(text: &str) -> Option<Self> {
        let FailedAttempts { left_out, kept, requests } = serde_json::from_str(text).ok()?;
        let numbers: Vec<_> = kept.iter().map(|attempt| attempt.timeline.attempt).collect();
        let is_valid = text.len() <= limits::FAILED_ATTEMPTS
            && numbers.len() <= FIRST + LAST
            && requests.is_valid()
            && numbers.is_sorted_by(|one, next| one < next)
            && numbers.iter().all(|number| (1..MAX_ATTEMPTS).contains(number));
        is_valid.then(|| FailedAttempts {
            left_out,
            kept: kept.into_iter().map(FailedAttempt::bounded).collect(),
            requests,
        })
    }
}

impl std::fmt::Display for FailedAttempts {
    /// Writes the text of the annotation.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&serde_json::json!(self).to_string())
    }
}

#[cfg(test)]
#[path = "failed_attempts_tests.rs"]
mod tests;
