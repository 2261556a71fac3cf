//! The list of all decision tables. The metric of decisions, `docs/internals/rules.md` and the simulation follow from it.

use std::fmt;

use crate::rules::Rule;
use crate::run::{self, late_runs};
use crate::{batch, capacity, claim, content, kept_script, pool, snapshot, sync_probe, volume};

/// A decision table, without the types of its rules and steps.
#[derive(Clone, Debug)]
pub struct Table {
    /// The word for the objects of the table, as the metric names them.
    pub object: &'static str,
    /// The objects of the table, as the heading of a page names them.
    pub title: &'static str,
    /// The rules, in their order, without those of runs.
    pub rules: Vec<NamedRule>,
    runs: Vec<Series>,
}

/// What a series of the metric of decisions counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Series {
    /// The word for the objects of the table.
    pub object: &'static str,
    /// For what the run is about which the rule decides; empty for a rule of the object itself.
    pub run: &'static str,
    /// The name of the rule.
    pub rule: &'static str,
}

/// A rule of a decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// The name, as logs and metrics show it.
    pub name: &'static str,
    /// The documentation: when the rule holds, and what it does.
    pub documentation: &'static str,
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Series { object, run, rule } = self;
        f.write_str(&[*object, *run, *rule].into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" "))
    }
}

impl Table {
    fn of<R: Rule>(title: &'static str) -> Table {
        let named = |rule: R| NamedRule { name: rule.name(), documentation: rule.documentation() };
        let (own, runs): (Vec<R>, Vec<R>) = R::all().into_iter().partition(|rule| rule.target().is_none());
        let rules = own.into_iter().map(named).collect();
        Table { object: R::OBJECT, title, rules, runs: runs.into_iter().map(series_of).collect() }
    }
}

/// Returns the series that counts decisions by a rule.
pub fn series_of<R: Rule>(rule: R) -> Series {
    Series { object: R::OBJECT, run: rule.target().unwrap_or_default(), rule: rule.name() }
}

/// Returns the series of all rules. A rule of runs has one for each target.
pub fn series() -> Vec<Series> {
    let own = |table: Table| {
        let object = table.object;
        let own = table.rules.into_iter().map(move |rule| Series { object, run: "", rule: rule.name });
        own.chain(table.runs)
    };
    owners().into_iter().flat_map(own).collect()
}

/// Returns all decision tables, the last of them that of runs.
pub fn all() -> Vec<Table> {
    owners().into_iter().chain([Table::of::<run::rule::Rule>("Runs")]).collect()
}

/// Returns the tables of the objects that own runs, or have none.
fn owners() -> Vec<Table> {
    vec![
        Table::of::<claim::decide::Rule>("Claims"),
        Table::of::<volume::rule::Rule>("Volumes"),
        Table::of::<snapshot::decide::Rule>("VolumeSnapshots"),
        Table::of::<content::decide::Rule>("VolumeSnapshotContents"),
        Table::of::<run::gate::Rule>("Scheduling gates"),
        Table::of::<run::record::Rule>("Records of runs"),
        Table::of::<late_runs::Rule>("Late runs"),
        Table::of::<batch::decide::Rule>("Batches"),
        Table::of::<pool::Rule>("Pools"),
        Table::of::<sync_probe::Rule>("Sync probes"),
        Table::of::<capacity::decide::Rule>("Capacity"),
        Table::of::<kept_script::Rule>("Scripts"),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_rule_has_a_name_of_its_own_and_says_when_it_holds_and_what_it_does() {
        let tables = all();
        let objects: BTreeSet<_> = tables.iter().map(|table| table.object).collect();
        assert_eq!(objects.len(), tables.len(), "two tables have one name");
        for Table { object, rules, .. } in tables {
            let names: BTreeSet<_> = rules.iter().map(|rule| rule.name).collect();
            assert_eq!(names.len(), rules.len(), "two rules of {object} have one name");
            for NamedRule { name, documentation } in rules {
                let sentences = documentation.split_inclusive(['.', ':']).count();
                assert!(documentation.ends_with('.') && sentences >= 2, "{object} {name}: {documentation}");
            }
        }
    }

    #[test]
    fn rules_of_size_and_attributes_are_rules_of_a_volume() {
        let volume = all().into_iter().find(|table| table.object == "volume").expect("volumes have a table");
        let names: BTreeSet<_> = volume.rules.iter().map(|rule| rule.name).collect();
        for name in ["ConfirmClaimGone", "ExpandNotSupported", "ModifyNotSupported"] {
            assert!(names.contains(name), "{name} is not among {names:?}");
        }
        assert!(!names.contains("Expand") && !names.contains("Modify") && !names.contains("Run"));
        let stuck = |run| Series { object: "volume", run, rule: "RunStuck" };
        let all = series();
        assert!(["storage", "size", "attributes"].into_iter().all(|run| all.contains(&stuck(run))), "{all:?}");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "two series are the same");
    }
}
