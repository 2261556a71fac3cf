//! The list of all decision tables. The metric of decisions, `docs/internals/rules.md` and the simulation follow from it.

use crate::rules::Rule;
use crate::run::late_runs;
use crate::{batch, capacity, claim, content, kept_script, pool, snapshot, sync_probe, volume};

/// A decision table, without the types of its rules and steps.
#[derive(Clone, Debug)]
pub struct Table {
    /// The word for the objects of the table, as the metric names them.
    pub object: &'static str,
    /// The objects of the table, as the heading of a page names them.
    pub title: &'static str,
    /// The rules, in their order.
    pub rules: Vec<NamedRule>,
}

/// A rule of a decision table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedRule {
    /// The name, as logs and metrics show it.
    pub name: &'static str,
    /// The documentation: when the rule holds, and what it does.
    pub documentation: &'static str,
}

impl Table {
    fn of<R: Rule>(title: &'static str) -> Table {
        let named = |rule: R| NamedRule { name: rule.name(), documentation: rule.documentation() };
        Table { object: R::OBJECT, title, rules: R::all().into_iter().map(named).collect() }
    }
}

/// Returns all decision tables.
pub fn all() -> Vec<Table> {
    vec![
        Table::of::<claim::decide::Rule>("Claims"),
        Table::of::<volume::rule::Rule>("Volumes"),
        Table::of::<snapshot::decide::Rule>("VolumeSnapshots"),
        Table::of::<content::decide::Rule>("VolumeSnapshotContents"),
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
        for name in ["ConfirmClaimGone", "ExpandAttemptDue", "ModifyAttemptDue"] {
            assert!(names.contains(name), "{name} is not among {names:?}");
        }
        assert!(!names.contains("Expand") && !names.contains("Modify"));
    }
}
