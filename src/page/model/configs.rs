//! The configs with their verdicts.

use flex_core::config::Problem;
use flex_core::config::classes::{Classes, Verdict};
use flex_core::object::ObjectName;
use serde::Serialize;

use super::{Rows, message, name};

/// The configs, the refused first.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Configs {
    /// The configs.
    pub configs: Rows<ConfigRow>,
}

/// A config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConfigRow {
    /// The namespace of the ConfigMap.
    pub namespace: String,
    /// The name of the ConfigMap.
    pub name: String,
    /// The verdict.
    pub verdict: ConfigVerdict,
    /// The classes that the config serves.
    pub classes: Vec<String>,
    /// The problems and warnings.
    pub lines: Vec<VerdictLine>,
}

/// The verdict in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConfigVerdict {
    /// The config has errors, and serves nothing.
    Refused,
    /// The config has errors, and its last valid version stays in use.
    LastGood,
    /// The config is in use, with warnings.
    Warnings,
    /// The config is in use.
    Accepted,
}

/// A problem or a warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerdictLine {
    /// It is an error, and no warning.
    pub is_error: bool,
    /// The key; empty if it concerns the whole config.
    pub key: String,
    /// The line within the value of the key, from 1, if the message names one.
    pub line: Option<u32>,
    /// The message.
    pub message: String,
}

impl Configs {
    /// Describes all configs.
    pub fn of(classes: &Classes) -> Self {
        let mut rows: Vec<_> = classes.verdicts.iter().map(|(name, verdict)| row(name, verdict)).collect();
        rows.sort_by_key(|row| row.verdict);
        Configs { configs: Rows::cut(rows) }
    }
}

fn row(config: &ObjectName, verdict: &Verdict) -> ConfigRow {
    let Verdict { problems, warnings, classes, last_good } = verdict;
    let lines = |is_error: bool, problems: &[Problem]| -> Vec<_> {
        problems.iter().map(|problem| verdict_line(is_error, problem)).collect()
    };
    ConfigRow {
        namespace: name(&config.namespace),
        name: name(&config.name),
        verdict: match (problems.is_empty(), *last_good, warnings.is_empty()) {
            (false, true, _) => ConfigVerdict::LastGood,
            (false, false, _) => ConfigVerdict::Refused,
            (true, _, false) => ConfigVerdict::Warnings,
            (true, _, true) => ConfigVerdict::Accepted,
        },
        classes: classes.iter().map(|class| name(class)).collect(),
        lines: [lines(true, problems), lines(false, warnings)].concat(),
    }
}

fn verdict_line(is_error: bool, problem: &Problem) -> VerdictLine {
    let Problem { key, message: text } = problem;
    VerdictLine { is_error, key: name(key), line: line_number(text), message: message(text) }
}

/// Returns the number that a message names as a line.
fn line_number(message: &str) -> Option<u32> {
    message.match_indices("line ").find_map(|(at, word)| {
        let is_word = !message[..at].ends_with(|c: char| c.is_alphanumeric());
        let rest = &message[at + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|number| is_word && *number > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_where_the_message_names_one() {
        for (message, line) in [
            ("is not YAML: line 3 column 5: expected a mapping", Some(3)),
            ("at line 12, column 1", Some(12)),
            ("an online 3 check", None),
            ("line of text", None),
            ("line 0", None),
            ("line 99999999999999999999", None),
            ("", None),
        ] {
            assert_eq!(line_number(message), line, "{message}");
        }
    }

    #[test]
    fn refused_configs_are_first_and_each_problem_is_a_line() {
        let problem = |key: &str, message: &str| Problem::new(key, message);
        let verdict = |problems: &[Problem], warnings: &[Problem], last_good| Verdict {
            problems: problems.to_vec(),
            warnings: warnings.to_vec(),
            classes: vec!["gold".into()],
            last_good,
        };
        let bad = problem("timeout", "`soon` is no duration");
        let odd = problem("pod-template", "line 2: unknown field");
        let all = [
            ("a", verdict(&[], &[], false)),
            ("b", verdict(&[], std::slice::from_ref(&odd), false)),
            ("c", verdict(std::slice::from_ref(&bad), &[], true)),
            ("d", verdict(&[bad, odd], &[problem("", "no class")], false)),
        ];
        let mut classes = Classes::default();
        classes.verdicts = all.into_iter().map(|(name, verdict)| (ObjectName::new("admin", name), verdict)).collect();
        let Configs { configs } = Configs::of(&classes);
        let found: Vec<_> = configs.rows.iter().map(|row| (row.name.as_str(), row.verdict)).collect();
        let (refused, old) = (ConfigVerdict::Refused, ConfigVerdict::LastGood);
        let rest = [("b", ConfigVerdict::Warnings), ("a", ConfigVerdict::Accepted)];
        assert_eq!(found, [[("d", refused), ("c", old)], rest].concat());
        let lines = &configs.rows[0].lines;
        let keys: Vec<_> = lines.iter().map(|line| (line.is_error, line.key.as_str(), line.line)).collect();
        assert_eq!(keys, [(true, "timeout", None), (true, "pod-template", Some(2)), (false, "", None)]);
    }
}
