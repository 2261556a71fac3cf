//! A problem of a config, for the admin who wrote it.

use std::fmt;

use crate::limits;
use crate::object::ObjectName;
use crate::text::printable;

/// The largest length of a key in a ConfigMap.
const LONGEST_KEY: usize = 253;

/// A problem of a config, for the admin who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// The key with the problem; empty if the problem concerns the whole config.
    pub key: String,
    /// The problem, and what to do.
    pub message: String,
}

impl Problem {
    /// Makes a problem of one key.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { key: key.into(), message: printable(&message.into(), limits::PROBLEM) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => f.write_str(&self.message),
            key => write!(f, "{}: {}", printable(key, LONGEST_KEY), self.message),
        }
    }
}

/// A problem of one of several configs.
#[derive(Clone, Debug)]
pub(super) struct ConfigProblem {
    /// The name of the config.
    pub config: ObjectName,
    /// The problem.
    pub problem: Problem,
}

/// Joins all problems in one line, for events and annotations. Counts those for which there is no room.
pub fn joined(problems: &[Problem]) -> String {
    let mut text = String::new();
    for (n, problem) in problems.iter().enumerate() {
        let problem = problem.to_string();
        if text.len() + problem.len() > limits::VERDICT {
            return format!("{text}; and {} more", problems.len() - n);
        }
        text.push_str(if n == 0 { "" } else { "; " });
        text.push_str(&problem);
    }
    text
}
