//! The configs with their verdicts.

use flex_core::config::classes::{Classes, Verdict};
use flex_core::object::ObjectName;
use serde::Serialize;

use super::Rows;

/// The configs, the refused first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Configs {
    /// The configs.
    pub configs: Rows<ConfigRow>,
}

/// A config. Its texts are as others wrote them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigRow {
    /// The ConfigMap.
    #[serde(flatten)]
    pub config: ObjectName,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
}

impl Configs {
    /// Describes all configs.
    pub fn of(classes: &Classes) -> Self {
        let row =
            |(config, verdict): (&ObjectName, &Verdict)| ConfigRow { config: config.clone(), verdict: verdict.clone() };
        let mut rows: Vec<_> = classes.verdicts.iter().map(row).collect();
        rows.sort_by_key(|ConfigRow { verdict, .. }| {
            (verdict.problems.is_empty(), verdict.last_good, verdict.warnings.is_empty())
        });
        Configs { configs: Rows::cut(rows) }
    }
}

#[cfg(test)]
mod tests {
    use flex_core::config::Problem;

    use super::*;

    #[test]
    fn refused_configs_are_first() {
        let verdict = |problems: &[&str], warnings: &[&str], last_good| {
            let all = |keys: &[&str]| keys.iter().map(|key| Problem::new(*key, "is wrong")).collect();
            Verdict { problems: all(problems), warnings: all(warnings), classes: vec!["gold".into()], last_good }
        };
        let all = [
            ("a", verdict(&[], &[], false)),
            ("b", verdict(&[], &["pod-template"], false)),
            ("c", verdict(&["timeout"], &[], true)),
            ("d", verdict(&["timeout"], &["pod-template"], false)),
        ];
        let mut classes = Classes::default();
        classes.verdicts = all.into_iter().map(|(name, verdict)| (ObjectName::new("admin", name), verdict)).collect();
        let Configs { configs } = Configs::of(&classes);
        let names: Vec<_> = configs.rows.iter().map(|row| row.config.name.as_str()).collect();
        assert_eq!(names, ["d", "c", "b", "a"]);
    }
}
