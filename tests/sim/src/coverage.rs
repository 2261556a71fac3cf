//! The check whether the histories have led the orchestrator through each rule of its decisions.

use std::collections::BTreeMap;

use flex_provisioner::metrics::Metrics;
use flex_provisioner::tables;

/// The number of decisions by each rule, by the names of its table's objects and of the rule.
#[derive(Clone, Debug, Default)]
pub struct Coverage(BTreeMap<(&'static str, &'static str), u64>);

impl Coverage {
    /// Reads the counts of all rules.
    pub fn of(metrics: &Metrics) -> Coverage {
        let rules = rules().map(|rule| (rule, metrics.decisions(rule.0, rule.1)));
        Coverage(rules.collect())
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Coverage) {
        other.0.iter().for_each(|(rule, count)| *self.0.entry(*rule).or_default() += count);
    }

    /// Returns what these counts say about the rules.
    pub fn report(&self) -> Report {
        let count = |rule| self.0.get(&rule).copied().unwrap_or_default();
        let unreached = |rule: (&str, &str)| UNREACHED.iter().find(|known| known.is(rule));
        let (mut unknown, mut reached) = (Vec::new(), Vec::new());
        for rule in rules() {
            match (count(rule), unreached(rule)) {
                (0, None) => unknown.push(rule),
                (1.., Some(Unreached { why: Why::Impossible(why), .. })) => reached.push((rule, *why)),
                _ => {}
            }
        }
        let all = rules().count();
        let decided = rules().filter(|rule| count(*rule) > 0).count();
        Report { all, decided, unknown, reached }
    }
}

/// The rules that some histories have reached, and the others.
#[derive(Debug)]
pub struct Report {
    /// The number of rules.
    pub all: usize,
    /// The number of rules that were reached.
    pub decided: usize,
    /// The rules that no history has reached, although [`UNREACHED`] does not say why.
    pub unknown: Vec<(&'static str, &'static str)>,
    /// The rules that a history has reached, although [`UNREACHED`] says that none can, with its reason.
    pub reached: Vec<((&'static str, &'static str), &'static str)>,
}

/// The reason why histories do not reach a rule.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// The simulated world cannot lead to the rule.
    Impossible(&'static str),
    /// The simulated world leads to the rule so rarely that a long run may not reach it.
    Rare(&'static str),
}

/// A rule that histories need not reach.
#[derive(Clone, Copy, Debug)]
pub struct Unreached {
    /// The objects of its table.
    pub object: &'static str,
    /// The name of the rule; `*` for all rules of the table.
    pub rule: &'static str,
    /// The reason.
    pub why: Why,
}

impl Unreached {
    fn is(&self, (object, rule): (&str, &str)) -> bool {
        self.object == object && [rule, ANY].contains(&self.rule)
    }
}

/// The name that stands for all rules of a table.
const ANY: &str = "*";

const fn impossible(object: &'static str, rule: &'static str, why: &'static str) -> Unreached {
    Unreached { object, rule, why: Why::Impossible(why) }
}

const fn rare(object: &'static str, rule: &'static str, why: &'static str) -> Unreached {
    Unreached { object, rule, why: Why::Rare(why) }
}

/// The rules that the simulated world cannot reach, or reaches too rarely. Tests of the tables cover them.
pub const UNREACHED: &[Unreached] = &[
    // Volumes.
    impossible("volume", "NotOurs", "the reconciler leaves out volumes of others before it decides"),
    rare("volume", "ModifyFailureOutdated", "a user takes back the request for other attributes at the right moment"),
    // Capacity.
    impossible("capacity", ANY, "the simulated world has no scheduler that checks capacity"),
];

/// Returns all rules, by the names of their table's objects and of the rule.
fn rules() -> impl Iterator<Item = (&'static str, &'static str)> {
    tables::all().into_iter().flat_map(|table| table.rules.into_iter().map(move |rule| (table.object, rule.name)))
}

#[cfg(test)]
mod tests {
    use flex_provisioner::volume::rule::Rule;

    use super::*;

    #[test]
    fn each_rule_that_need_not_be_reached_exists_and_is_listed_once() {
        for rule in rules() {
            let times = UNREACHED.iter().filter(|listed| listed.is(rule)).count();
            assert!(times <= 1, "{rule:?} is listed {times} times");
        }
        let is_unknown = |listed: &&Unreached| !rules().any(|rule| listed.is(rule));
        let unknown: Vec<_> = UNREACHED.iter().filter(is_unknown).collect();
        assert!(unknown.is_empty(), "there are no such rules: {unknown:?}");
    }

    #[test]
    fn a_report_names_what_was_missed_and_what_was_reached_against_expectation() {
        let metrics = Metrics::default();
        metrics.decided(Rule::DeleteRunDue);
        metrics.decided(Rule::NotOurs);
        let mut coverage = Coverage::of(&Metrics::default());
        coverage.add(&Coverage::of(&metrics));
        let report = coverage.report();
        assert_eq!((report.decided, report.all), (2, rules().count()));
        assert!(!report.unknown.contains(&("volume", "DeleteRunDue")));
        assert!(report.unknown.contains(&("volume", "StorageDeleted")));
        assert!(!report.unknown.contains(&("volume", "ModifyFailureOutdated")), "it is too rare to be missed");
        let reached: Vec<_> = report.reached.iter().map(|(rule, _)| *rule).collect();
        assert_eq!(reached, [("volume", "NotOurs")]);
    }
}
