//! Claims in flight, and one claim.

use std::sync::Arc;
use std::time::Duration;

use flex_contract::quantity::quantity;
use flex_core::claim::failed_attempts::{FailedAttempt, FailedAttempts};
use flex_core::claim::progress::{Progress, progress};
use flex_core::claim::standing::Standing;
use flex_core::claim::timeline::{Basis, Reached, Stage, Timeline};
use flex_core::config::classes::Class;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::namespace::Namespaces;
use flex_core::model::volume::Volume;
use flex_core::run::view::{Job, Pod};
use serde::Serialize;

use super::failures::FailureRow;
use super::{Rows, message, name};
use crate::api::claim_events::ClaimEvent;

/// The largest number of events of a claim.
const MAX_EVENTS: usize = 50;

/// The claims that are not bound, the oldest first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimsInFlight {
    /// The claims.
    pub claims: Rows<ClaimRow>,
}

/// A claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimRow {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The class.
    pub class: String,
    /// The state in one word.
    pub state: &'static str,
    /// The number of the attempt; 0 before the first.
    pub attempt: u32,
    /// The time of the creation, in seconds since 1970.
    pub created: i64,
    /// The milliseconds from the creation until the observation, or until a bound claim was bound.
    pub age_ms: i64,
    /// The stages that the attempt has reached.
    pub stages: Vec<StageRow>,
    /// The stage that the claim waits for; `None` at the end of an attempt, and for a claim that is being deleted.
    pub next: Option<NextStage>,
    /// What keeps the next attempt from beginning, if the page knows.
    pub waits_for: Option<String>,
    /// The time at which half of the claims of the last hour would be bound, in seconds since 1970. It may be past.
    pub expected_end: Option<i64>,
}

/// A stage that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StageRow {
    /// The name.
    pub stage: &'static str,
    /// The milliseconds from the creation of the claim.
    pub after_ms: i64,
    /// The milliseconds since the stage before.
    pub took_ms: i64,
    /// Who worked until the stage was reached.
    pub worker: &'static str,
}

/// The stage that a claim waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextStage {
    /// The name.
    pub stage: &'static str,
    /// Who works until the claim reaches the stage.
    pub worker: &'static str,
    /// The milliseconds since the last stage.
    pub for_ms: i64,
}

/// What the page knows of a claim.
#[derive(Clone, Debug)]
pub struct ClaimFacts {
    /// The claim.
    pub claim: Arc<Claim>,
    /// The Jobs of its provision runs.
    pub jobs: Vec<Arc<Job>>,
    /// The pods of these runs.
    pub pods: Vec<Arc<Pod>>,
    /// Its volume.
    pub volume: Option<Arc<Volume>>,
    /// The timeline that is written on a bound claim.
    pub written: Option<Timeline>,
    /// The attempts that failed.
    pub failed: FailedAttempts,
    /// The namespaces of the cluster.
    pub namespaces: Arc<Namespaces>,
    /// What the decision about a claim without an attempt says.
    pub message: Option<String>,
}

impl ClaimFacts {
    fn timeline(&self) -> Timeline {
        let ClaimFacts { claim, jobs, pods, volume, written, .. } = self;
        if let Some(written) = written.as_ref().filter(|_| claim.is_bound()) {
            return written.clone();
        }
        let mut timeline = Timeline::of(Basis { claim, jobs, pods, volume: volume.as_deref() });
        let failure = claim.last_failure.as_ref().filter(|failure| failure.attempt == timeline.attempt);
        if let (Some(failure), Progress::Failed) = (failure, progress(claim)) {
            timeline.reach(Stage::Failed, failure.at.saturating_mul(1000));
        }
        timeline
    }
}

/// The time of an observation, and what the class of a claim tells about its end.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The time, in milliseconds since 1970.
    pub now_ms: i64,
    /// The class of the claim.
    pub class: Option<&'a Class>,
    /// The time that half of the claims of the last hour needed at most.
    pub p50: Option<Duration>,
}

impl ClaimRow {
    /// Describes a claim.
    pub fn of(facts: &ClaimFacts, moment: Moment<'_>) -> Self {
        let (claim, timeline) = (&facts.claim, facts.timeline());
        let Moment { now_ms, class, p50 } = moment;
        let unknown = || Standing { progress: progress(claim), obstacle: None, next_try: None };
        let standing = class.map_or_else(unknown, |class| {
            Standing::of(claim, class, Some(&facts.namespaces), claim.for_pool, now_ms.div_euclid(1000))
        });
        let progress = standing.progress;
        let reached = timeline.stages();
        let last = reached.last().map_or(0, |last| last.after);
        // The way of a bound claim is over.
        let now_ms = if claim.is_bound() { timeline.created } else { now_ms };
        let age_ms = now_ms.saturating_sub(timeline.created).max(last).max(0);
        let is_open = matches!(progress, Progress::Waiting | Progress::Running);
        let next = timeline.next().filter(|_| is_open).map(|stage| NextStage {
            stage: stage.name(),
            worker: timeline.next_worker(),
            for_ms: age_ms - last,
        });
        let began = claim.own_stamp().and_then(Stamp::began).filter(|_| progress == Progress::Running);
        let expected_end = began.zip(p50).map(|(began, p50)| began.as_second().saturating_add_unsigned(p50.as_secs()));
        let waits_for = standing.obstacle.map(|obstacle| obstacle.why).or_else(|| facts.message.clone());
        ClaimRow {
            namespace: name(&claim.name.namespace),
            name: name(&claim.name.name),
            class: name(claim.class.as_deref().unwrap_or_default()),
            state: progress.as_str(),
            attempt: timeline.attempt,
            created: claim.created,
            age_ms,
            stages: reached.iter().map(StageRow::of).collect(),
            next,
            waits_for: waits_for.as_deref().map(message),
            expected_end,
        }
    }
}

impl StageRow {
    fn of(reached: &Reached) -> Self {
        let Reached { stage, after, took } = *reached;
        StageRow { stage: stage.name(), after_ms: after, took_ms: took, worker: stage.worker() }
    }
}

/// The page of one claim.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OneClaim {
    /// The claim with its stages.
    #[serde(flatten)]
    pub row: ClaimRow,
    /// The requested size.
    pub size: Option<String>,
    /// The volume that the claim is bound to or requests.
    pub volume: Option<String>,
    /// The node that the scheduler selected.
    pub node: Option<String>,
    /// The Job of the last attempt, `namespace/name`.
    pub job: Option<String>,
    /// The last failed run.
    pub failure: Option<FailureRow>,
    /// The attempts that failed before the last attempt.
    pub earlier: EarlierAttempts,
    /// The events, the newest first.
    pub events: Vec<EventRow>,
    /// What could not be read, and why.
    pub unseen: Vec<String>,
}

/// The attempts of a claim that failed before its last attempt, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EarlierAttempts {
    /// The attempts.
    pub attempts: Vec<AttemptRow>,
    /// The number of attempts in the middle that are not known any more.
    pub left_out: u32,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptRow {
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// The stages that it reached. The times are from the creation of the claim.
    pub stages: Vec<StageRow>,
    /// The reason of the failure, in one word.
    pub reason: String,
    /// The message for people, or its beginning.
    pub message: String,
    /// The time of the failure, in seconds since 1970.
    pub ended: i64,
}

impl EarlierAttempts {
    fn of(failed: &FailedAttempts, shown: &Timeline) -> Self {
        let is_earlier = |(attempt, _): &(&FailedAttempt, _)| shown.attempt == 0 || attempt.number() < shown.attempt;
        let row = |(attempt, since): (&FailedAttempt, Option<i64>)| {
            let begin = since.or(attempt.timeline.began()).unwrap_or(shown.created);
            AttemptRow {
                attempt: attempt.number(),
                stages: attempt.timeline.stages_since(begin).iter().map(StageRow::of).collect(),
                reason: name(&attempt.reason),
                message: message(&attempt.message),
                ended: attempt.ended().div_euclid(1000),
            }
        };
        EarlierAttempts {
            attempts: failed.since(shown.created).filter(is_earlier).map(row).collect(),
            left_out: failed.left_out(),
        }
    }
}

/// An event of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventRow {
    /// The reason, in one word.
    pub reason: String,
    /// The message for people.
    pub message: String,
    /// Somebody should look at it.
    pub warning: bool,
    /// The number of occurrences.
    pub count: i32,
    /// The time of the last occurrence, in seconds since 1970.
    pub at: i64,
}

impl OneClaim {
    /// Describes a claim with its last failure and its events, or the reason why they are not known.
    pub fn of(
        facts: &ClaimFacts,
        moment: Moment<'_>,
        failure: Option<FailureRow>,
        events: Result<Vec<ClaimEvent>, String>,
    ) -> Self {
        let claim = &facts.claim;
        let mut unseen = Vec::new();
        let events = events.unwrap_or_else(|why| {
            unseen.push(message(&format!("its events: {why}")));
            Vec::new()
        });
        let job = facts.jobs.iter().max_by_key(|job| job.run_labels.attempt);
        OneClaim {
            row: ClaimRow::of(facts, moment),
            size: claim.size.as_ref().ok().map(|bytes| quantity(*bytes).0),
            volume: claim.volume_name.as_deref().map(name),
            node: claim.selected_node.as_deref().map(name),
            job: job.map(|job| name(&job.name.to_string())),
            failure,
            earlier: EarlierAttempts::of(&facts.failed, &facts.timeline()),
            events: events.iter().take(MAX_EVENTS).map(EventRow::of).collect(),
            unseen,
        }
    }
}

impl EventRow {
    fn of(event: &ClaimEvent) -> Self {
        let ClaimEvent { reason, message: text, warning, count, at, .. } = event;
        EventRow { reason: name(reason), message: message(text), warning: *warning, count: *count, at: *at }
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use flex_contract::names;
    use flex_contract::operation::Operation;
    use flex_core::config::classes::BindingMode;
    use flex_core::run::failure::LastFailure;
    use flex_core::run::view::RunLabels;
    use serde_json::json;

    use super::*;
    use crate::page::testing::{self, CREATED};

    fn facts(claim: Claim) -> ClaimFacts {
        ClaimFacts {
            claim: claim.into(),
            jobs: Vec::new(),
            pods: Vec::new(),
            volume: None,
            written: None,
            failed: FailedAttempts::default(),
            namespaces: Arc::default(),
            message: None,
        }
    }

    fn job(created: i64) -> Arc<Job> {
        let run_labels = RunLabels { attempt: 1, ..RunLabels::default() };
        Arc::new(Job { created, run_labels, ..Job::default() })
    }

    fn row(facts: &ClaimFacts, class: &Class, p50: Option<u64>) -> ClaimRow {
        let p50 = p50.map(Duration::from_secs);
        ClaimRow::of(facts, Moment { now_ms: (CREATED + 60) * 1000, class: Some(class), p50 })
    }

    #[test]
    fn a_running_claim_shows_its_stages_and_when_it_usually_ends() {
        let gold = testing::class("gold", &[]);
        let running = ClaimFacts { jobs: vec![job(CREATED + 20)], ..facts(testing::claim(1, json!({}))) };
        let row = row(&running, &gold, Some(30));
        assert_eq!((row.state, row.attempt), ("Running", 1));
        let stages: Vec<_> = row.stages.iter().map(|stage| (stage.stage, stage.took_ms)).collect();
        // The claim counts as created when its first stage was reached, within the same second.
        assert_eq!(stages, [("stamped", 0), ("job-created", 19_500)]);
        let next = row.next.unwrap();
        assert_eq!((next.stage, next.worker, next.for_ms), ("scheduled", "the scheduler", 40_000));
        assert_eq!((row.age_ms, row.expected_end), (59_500, Some(CREATED + 30)));
        assert_eq!(self::row(&running, &gold, None).expected_end, None, "no claim was bound within the hour");
    }

    #[test]
    fn a_waiting_claim_says_for_what() {
        let gold = testing::class("gold", &[]);
        let delayed = Class { binding: BindingMode::WaitForFirstConsumer, ..gold.clone() };
        let small = testing::class("gold", &[("max-size", "1Mi")]);
        let free = facts(testing::claim(0, json!({})));
        let full = ClaimFacts { message: Some("9 of 9 volumes".into()), ..free.clone() };
        for (facts, class, state, next, expected) in [
            (&free, &gold, "Waiting", Some("stamped"), None),
            (&full, &gold, "Waiting", Some("stamped"), Some("9 of 9 volumes")),
            (&full, &delayed, "Waiting", Some("stamped"), Some("waits for a pod that uses it")),
            (&full, &small, "Refused", None, Some("ask for less")),
        ] {
            let row = row(facts, class, Some(9));
            assert_eq!((row.state, row.next.map(|next| next.stage), row.expected_end), (state, next, None));
            let says = row.waits_for.as_deref();
            assert!(
                says.is_some() == expected.is_some()
                    && says.unwrap_or_default().ends_with(expected.unwrap_or_default())
            );
        }
    }

    #[test]
    fn a_failed_claim_waits_for_no_stage() {
        let failed =
            facts(testing::claim(2, json!({ names::FAILURE: testing::failure("provision", 2, "retry", "m") })));
        let row = row(&failed, &testing::class("gold", &[]), Some(1));
        assert_eq!((row.state, row.attempt, row.next, row.expected_end), ("Failed", 2, None, None));
        assert_eq!(row.stages.last().map(|stage| (stage.stage, stage.after_ms)), Some(("failed", 9_500)));
    }

    #[test]
    fn the_failed_attempts_before_the_last_one_are_kept_with_their_causes() {
        let attempt = |number: u32, from: i64, until: i64| {
            let mut timeline = Timeline::new(number, CREATED * 1000);
            timeline.reach(Stage::Stamped, (CREATED + from) * 1000);
            timeline.reach(Stage::Failed, (CREATED + until) * 1000);
            timeline
        };
        let failure = |number| {
            let cause = flex_core::run::state::Cause::new("ExitCode", "no space");
            LastFailure::new(Operation::Provision, number, CREATED, &cause, Reaction::Retry)
        };
        let times = [(1, 0, 10), (2, 20, 30), (3, 50, 60)];
        let failed = times.iter().fold(FailedAttempts::default(), |failed, (number, from, until)| {
            failed.with(attempt(*number, *from, *until), &failure(*number))
        });
        let earlier = EarlierAttempts::of(&failed, &attempt(3, 50, 60));
        let took: Vec<_> = earlier.attempts.iter().map(|row| (row.attempt, row.stages[0].took_ms, row.ended)).collect();
        assert_eq!(took, [(1, 0, CREATED + 10), (2, 10_000, CREATED + 30)], "the third is the last attempt");
        assert_eq!(
            (earlier.attempts[0].reason.as_str(), earlier.attempts[0].message.as_str()),
            ("ExitCode", "no space")
        );
        let many = (1..=9).fold(FailedAttempts::default(), |failed, number| {
            let from = i64::from(number) * 100;
            failed.with(attempt(number, from, from + 10), &failure(number))
        });
        let earlier = EarlierAttempts::of(&many, &Timeline::new(10, CREATED * 1000));
        let took: Vec<_> = earlier.attempts.iter().map(|row| (row.attempt, row.stages[0].took_ms)).collect();
        assert_eq!((earlier.left_out, took[2..4].to_vec()), (3, vec![(6, 0), (7, 90_000)]));
    }

    #[test]
    fn a_bound_claim_has_the_stages_that_are_written_on_it() {
        let mut written = Timeline::new(1, CREATED * 1000);
        written.reach(Stage::Stamped, CREATED * 1000 + 500);
        written.reach(Stage::Bound, CREATED * 1000 + 2500);
        let claim = testing::claim(1, json!({ names::BIND_COMPLETED: "yes" }));
        let claim = Claim { volume_name: Some("pvc-u".into()), ..claim };
        let row = row(&ClaimFacts { written: Some(written), ..facts(claim) }, &testing::class("gold", &[]), Some(9));
        assert_eq!((row.state, row.age_ms, row.expected_end, row.next), ("Bound", 2000, None, None));
    }

    #[test]
    fn events_that_cannot_be_read_are_no_error_of_the_page() {
        let (facts, class) = (facts(testing::claim(0, json!({}))), testing::class("gold", &[]));
        let moment = Moment { now_ms: CREATED * 1000, class: Some(&class), p50: None };
        let refused = OneClaim::of(&facts, moment, None, Err("events is forbidden\u{202e}".into()));
        assert_eq!(refused.unseen, ["its events: events is forbidden\\u{202e}"]);
        assert_eq!((refused.size.as_deref(), refused.volume), (Some("1Gi"), None));
        let event = ClaimEvent {
            reason: "Provisioning".into(),
            message: "a\nb".into(),
            warning: false,
            is_ours: true,
            count: 1,
            at: CREATED,
        };
        let seen = OneClaim::of(&facts, moment, None, Ok(vec![event; MAX_EVENTS + 1]));
        assert_eq!((seen.events.len(), seen.events[0].message.as_str()), (MAX_EVENTS, "a\\nb"));
    }
}
