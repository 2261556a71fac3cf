//! Failed runs, with their cause and the time of the next try.

use flex_contract::exit::Reaction;
use flex_contract::operation::Operation;
use flex_core::claim::progress::{Progress, progress};
use flex_core::config::Recipe;
use flex_core::model::claim::Claim;
use flex_core::model::failed_run::FailedRun;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::backoff::next_try_at;
use serde::Serialize;

use super::{Rows, message, name};

/// The claims and volumes whose last run failed, the latest failure first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failures {
    /// The failures.
    pub failures: Rows<FailureRow>,
}

/// The last failed run for a claim or a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailureRow {
    /// The kind of the object: `claim` or `volume`.
    pub kind: &'static str,
    /// The namespace; empty for a volume.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The class.
    pub class: String,
    /// The operation of the run.
    pub operation: &'static str,
    /// The number of the attempt.
    pub attempt: u32,
    /// The time of the failure, in seconds since 1970.
    pub at: i64,
    /// The cause, in one word.
    pub cause: String,
    /// The message for people.
    pub message: String,
    /// The next try.
    pub next: NextTry,
}

/// The next try after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "when")]
pub enum NextTry {
    /// A later attempt is in progress.
    Running,
    /// At this time, in seconds since 1970. It is due if the time is past.
    #[serde(rename_all = "camelCase")]
    At {
        /// The time.
        at: i64,
    },
    /// After a change of the config or the class, and at the latest at this time: a retry would fail, too.
    #[serde(rename_all = "camelCase")]
    AfterChange {
        /// The time.
        at: i64,
    },
    /// When the class has a config that works.
    WithConfig,
    /// Nobody asks for it any more.
    #[serde(rename = "never")]
    Never,
}

impl NextTry {
    fn after(failed: &FailedRun<'_>, is_asked: bool, recipe: Option<&Recipe>, now: i64) -> Self {
        if failed.is_repeated {
            return NextTry::Running;
        }
        let Some(recipe) = recipe else { return NextTry::WithConfig };
        let at = next_try_at(is_asked, failed.reaction, failed.at, failed.failures, recipe, now);
        if failed.reaction == Reaction::Never { NextTry::AfterChange { at } } else { NextTry::At { at } }
    }
}

impl FailureRow {
    fn of(object: (&'static str, &ObjectName), class: &str, failed: &FailedRun<'_>, next: NextTry) -> Self {
        let (kind, object) = object;
        FailureRow {
            kind,
            namespace: name(&object.namespace),
            name: name(&object.name),
            class: name(class),
            operation: failed.operation.as_str(),
            attempt: failed.attempt,
            at: failed.at,
            cause: name(failed.reason),
            message: message(failed.message),
            next,
        }
    }
}

/// Returns the failure of a claim that is not bound. `recipe` is that of its class, `now` in seconds since 1970.
pub fn of_claim(claim: &Claim, recipe: Option<&Recipe>, now: i64) -> Option<FailureRow> {
    let progress = progress(claim);
    let failure = claim.last_failure.as_ref().filter(|_| !progress.is_bound())?;
    let is_attempt = failure.operation == Operation::Provision;
    let reaction = if is_attempt { failure.reaction } else { Reaction::Retry };
    let failed = FailedRun { is_repeated: progress == Progress::Running, reaction, ..failure.into() };
    let next = match is_attempt && progress == Progress::Deleting {
        true => NextTry::Never,
        false => NextTry::after(&failed, claim.retry, recipe, now),
    };
    let class = claim.class.as_deref().unwrap_or_default();
    Some(FailureRow::of(("claim", &claim.name), class, &failed, next))
}

/// Returns the failures of a volume: those of deletion, expansion and modification.
pub fn of_volume(volume: &Volume, recipe: Option<&Recipe>, now: i64) -> Vec<FailureRow> {
    let name = ObjectName::new("", &volume.name);
    let next = |failed: &FailedRun<'_>| NextTry::after(failed, volume.retry, recipe, now);
    let row = |failed: FailedRun<'_>| FailureRow::of(("volume", &name), &volume.class, &failed, next(&failed));
    volume.failed_runs().map(row).collect()
}

/// Sorts failures, the latest first, and cuts the list.
pub fn sorted(mut failures: Vec<FailureRow>) -> Failures {
    failures.sort_by(|a, b| (b.at, &a.namespace, &a.name).cmp(&(a.at, &b.namespace, &b.name)));
    Failures { failures: Rows::cut(failures) }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::run::backoff::LONG_DELAY;
    use serde_json::json;

    use super::*;
    use crate::page::testing::{self, CREATED};

    const FAILED: i64 = CREATED + 10;

    fn next(attempt: u32, failed: u32, operation: &str, reaction: &str, recipe: Option<&Recipe>) -> NextTry {
        let annotation = testing::failure(operation, failed, reaction, "m");
        let claim = testing::claim(attempt, json!({ names::FAILURE: annotation }));
        of_claim(&claim, recipe, FAILED + 5).unwrap().next
    }

    #[test]
    fn the_next_try_follows_from_reaction_and_backoff() {
        let class = testing::class("gold", &[("backoff", "10s..40s"), ("retries", "4")]);
        let recipe = class.recipe.as_ref().ok().map(AsRef::as_ref);
        let long = i64::try_from(LONG_DELAY.as_secs()).unwrap();
        for (what, found, expected) in [
            ("the first", next(1, 1, "provision", "retry", recipe), NextTry::At { at: FAILED + 10 }),
            ("it doubles", next(2, 2, "provision", "retry", recipe), NextTry::At { at: FAILED + 20 }),
            ("all retries", next(5, 5, "provision", "retry", recipe), NextTry::At { at: FAILED + long }),
            ("in progress", next(3, 2, "provision", "retry", recipe), NextTry::Running),
            ("never", next(1, 1, "provision", "never", recipe), NextTry::AfterChange { at: FAILED + long }),
            ("no config", next(1, 1, "provision", "retry", None), NextTry::WithConfig),
        ] {
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn a_failure_has_no_markup_of_its_own() {
        let text = "<script>alert(1)</script>\u{202e}";
        let claim = testing::claim(1, json!({ names::FAILURE: testing::failure("provision", 1, "retry", text) }));
        let row = of_claim(&claim, None, CREATED).unwrap();
        assert_eq!((row.cause.as_str(), row.operation, row.kind), ("ExitCode", "provision", "claim"));
        // HTML escapes the rest.
        assert_eq!(row.message, "<script>alert(1)</script>\\u{202e}");
        assert_eq!(of_claim(&testing::claim(1, json!({})), None, CREATED), None);
    }

    #[test]
    fn a_json_document_says_when_the_next_try_is() {
        for (next, expected) in [
            (NextTry::Running, json!({ "when": "running" })),
            (NextTry::At { at: 7 }, json!({ "when": "at", "at": 7 })),
            (NextTry::AfterChange { at: 7 }, json!({ "when": "afterChange", "at": 7 })),
            (NextTry::WithConfig, json!({ "when": "withConfig" })),
            (NextTry::Never, json!({ "when": "never" })),
        ] {
            assert_eq!(json!(next), expected);
        }
    }

    #[test]
    fn the_latest_failure_is_first() {
        let row = |at: i64, name: &str| {
            let claim = testing::claim(1, json!({ names::FAILURE: testing::failure("provision", 1, "retry", "m") }));
            FailureRow { at, name: name.into(), ..of_claim(&claim, None, CREATED).unwrap() }
        };
        let sorted = sorted(vec![row(1, "old"), row(9, "b"), row(9, "a")]);
        let names: Vec<_> = sorted.failures.rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "old"]);
    }
}
