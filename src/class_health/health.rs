//! The state of a class: what is known to be wrong with it.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::claim::progress::Progress;
use flex_core::config::classes::{Class, Classes};
use flex_core::model::phase::VolumePhase;
use flex_core::model::volume::Volume;
use flex_core::text::line;
use serde::{Deserialize, Serialize};

use super::row::{Failing, MAX_FAILURE_TEXT, Row, failing};

/// The note on a class that uses an older version of its config.
const LAST_GOOD: &str = "the config has errors; its last good version is in use";
/// The seconds after which an attempt without a result is worth a look. Most runs take less.
const LONG: i64 = 120;

/// The troubles of a class, beside errors of its config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The claims whose attempts fail.
    pub failing: Option<Failing>,
    /// The claims and volumes whose storage could not be deleted.
    pub undeleted: Option<Failing>,
    /// The operations whose last runs have all failed, so that one run begins at a time.
    #[serde(default)]
    pub outages: Vec<Operation>,
    /// The number of claims whose attempt has had no result for long.
    pub slow: usize,
    /// The number of claims that the class refuses as they are.
    #[serde(default)]
    pub refused: usize,
    /// A config of the class has warnings.
    pub warned: bool,
}

impl Health {
    pub(crate) fn of(class: &str, table: &Classes, rows: &[Row], volumes: &[Arc<Volume>]) -> Self {
        let is_slow = |row: &&Row| row.class == class && row.running.is_some_and(|seconds| seconds > LONG);
        let is_refused = |row: &&Row| row.class == class && row.state == Progress::Refused;
        let serves = |of: &[String]| of.iter().any(|name| name == class);
        Health {
            failing: failing(class, rows, volumes),
            undeleted: undeleted(class, rows, volumes),
            outages: Vec::new(),
            slow: rows.iter().filter(is_slow).count(),
            refused: rows.iter().filter(is_refused).count(),
            warned: table.verdicts.values().any(|verdict| !verdict.warnings.is_empty() && serves(&verdict.classes)),
        }
    }

    /// Returns the state of the class, for people.
    pub(crate) fn verdict(&self, class: &Class) -> String {
        let config = class.recipe.as_ref().err().cloned().or_else(|| class.last_good.then(|| LAST_GOOD.to_owned()));
        let troubles: Vec<_> = config.into_iter().chain(self.troubles()).collect();
        let state = if troubles.is_empty() { "ok".to_owned() } else { troubles.join("; ") };
        let refused = (self.refused > 0).then(|| format!("{} refused", claims(self.refused)));
        let warned = (self.warned && troubles.is_empty()).then(|| "its config has warnings".to_owned());
        [Some(state), refused, warned].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }

    /// Checks whether runs of the class fail.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some() || self.undeleted.is_some() || !self.outages.is_empty()
    }

    /// Returns what is wrong with the runs of the class, for people.
    fn troubles(&self) -> Vec<String> {
        let failing = self.failing.as_ref();
        let failing = failing.map(|failing| format!("failing: {}, last {}", claims(failing.claims), failing.last));
        let undeleted =
            self.undeleted.as_ref().map(|Failing { claims, last }| format!("cannot be deleted: {claims}, last {last}"));
        let slow = (self.slow > 0).then(|| format!("no result for {LONG} s: {}, whose events may say why", self.slow));
        let outages = self.outages.iter().map(|operation| format!("outage: one {operation} run at a time"));
        [failing, undeleted, slow].into_iter().flatten().chain(outages).collect()
    }
}

/// Returns a number of claims, for people.
fn claims(number: usize) -> String {
    if number == 1 { "1 claim".to_owned() } else { format!("{number} claims") }
}

/// Returns the deletions of a class whose last run failed, with the last words of the latest.
fn undeleted(class: &str, rows: &[Row], volumes: &[Arc<Volume>]) -> Option<Failing> {
    let rows = rows.iter().filter(|row| row.class == class && row.state == Progress::Deleting);
    let claims = rows.filter_map(|row| Some((&row.claim, row.failure.as_ref()?)));
    let volumes = volumes
        .iter()
        .filter(|volume| volume.class == class && (volume.terminating || volume.phase != VolumePhase::Bound));
    let volumes = volumes.filter_map(|volume| Some((&volume.name, volume.last_failure.as_ref()?)));
    let failed: Vec<_> = claims.chain(volumes).filter(|(_, why)| why.operation == Operation::Delete).collect();
    let (name, why) = failed.iter().max_by_key(|(_, why)| why.at)?;
    let last = line(&format!("{name}: {}: {}", why.reason, why.message), MAX_FAILURE_TEXT);
    Some(Failing { claims: failed.len(), last })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{failed, made, one_class};
    use super::*;
    use flex_contract::exit::Reaction;

    #[test]
    fn a_class_is_not_ok_while_deletions_fail_or_attempts_have_no_result() {
        let table = one_class(json!({ "service-account-name": "c" }));
        let class = table.iter().next().expect("the config names a class");
        let says = |rows: &[Row], volumes: &[Arc<Volume>]| Health::of("c", &table, rows, volumes).verdict(class);
        let attempt = |running| Row {
            state: Progress::Running,
            running,
            failure: None,
            ..failed("a", 1, Reaction::Retry, 9, "x")
        };
        assert_eq!(says(&[attempt(Some(LONG))], &[]), "ok");
        assert_eq!(says(&[attempt(Some(LONG + 1))], &[]), "no result for 120 s: 1, whose events may say why");
        let other = Row { class: "other".into(), ..attempt(Some(5000)) };
        assert_eq!(says(&[other], &[]), "ok");
        let deletes = |name: &str, at| {
            let mut row = Row { state: Progress::Deleting, ..failed(name, 1, Reaction::Retry, at, "no such pool") };
            row.failure.as_mut().unwrap().operation = Operation::Delete;
            row
        };
        assert_eq!(says(&[deletes("a", 9)], &[]), "cannot be deleted: 1, last team/a: ExitCode: no such pool");
        let volume = |phase: &str| {
            let last_failure = deletes("a", 20).failure;
            Arc::new(Volume { phase: phase.into(), last_failure, ..Volume::clone(&made("c", 1)) })
        };
        assert_eq!(
            says(&[deletes("a", 9)], &[volume("Released")]),
            "cannot be deleted: 2, last pvc-a: ExitCode: no such pool"
        );
        assert_eq!(says(&[], &[volume("Bound")]), "ok", "another claim has the volume by now");
    }

    #[test]
    fn a_class_with_an_outage_says_which_runs_begin_one_at_a_time() {
        let table = one_class(json!({ "service-account-name": "c" }));
        let class = table.iter().next().expect("the config names a class");
        let rows = [failed("a", 1, Reaction::Retry, 9, "off")];
        let health = Health { outages: vec![Operation::Provision], ..Health::of("c", &table, &rows, &[]) };
        let says = "failing: 1 claim, last team/a: ExitCode: off; outage: one provision run at a time";
        assert_eq!(health.verdict(class), says);
        let health = Health { outages: vec![Operation::DeleteSnapshot], ..Health::default() };
        assert_eq!(
            (health.verdict(class).as_str(), health.is_failing()),
            ("outage: one delete-snapshot run at a time", true)
        );
    }

    #[test]
    fn the_state_of_a_class_refers_to_the_warnings_of_its_config() {
        let mut table = one_class(json!({ "service-account-name": "c" }));
        table.verdicts.values_mut().for_each(|verdict| {
            verdict.warnings.push(flex_core::config::Problem::new("service-account-name", "does not exist"));
        });
        let class = table.iter().next().expect("the config names a class");
        assert_eq!(Health::of("c", &table, &[], &[]).verdict(class), "ok; its config has warnings");
    }
}
