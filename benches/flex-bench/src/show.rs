//! Tables that the benchmarks share.

use std::fmt::Write;

use anyhow::Result;
use serde_json::Value;

use crate::audit::{self, Each, Who};
use crate::profile::Profile;

/// Returns a number with its thousands separated.
pub fn number(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns JSON for people and for programs: each list of numbers is on one line.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn json(value: &Value) -> Result<String> {
    let mut text = String::new();
    lines(value, 0, &mut text)?;
    Ok(text + "\n")
}

fn lines(value: &Value, depth: usize, text: &mut String) -> Result<()> {
    let flat = |items: &Vec<Value>| items.iter().all(|item| !item.is_object() && !item.is_array());
    let begin = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    match value {
        Value::Object(members) if !members.is_empty() => {
            text.push_str("{\n");
            for (n, (name, member)) in members.iter().enumerate() {
                let _ = write!(text, "{begin}{}: ", serde_json::to_string(name)?);
                lines(member, depth + 1, text)?;
                text.push_str(if n + 1 < members.len() { ",\n" } else { "\n" });
            }
            let _ = write!(text, "{end}}}");
        }
        Value::Array(items) if !flat(items) => {
            text.push_str("[\n");
            for (n, item) in items.iter().enumerate() {
                text.push_str(&begin);
                lines(item, depth + 1, text)?;
                text.push_str(if n + 1 < items.len() { ",\n" } else { "\n" });
            }
            let _ = write!(text, "{end}]");
        }
        other => text.push_str(&serde_json::to_string(other)?),
    }
    Ok(())
}

/// Prints the requests for one claim by client, a row for each burst.
pub fn requests<'a>(bursts: impl Iterator<Item = (String, &'a [Each])>) -> String {
    let mut text = String::from("| requests for each |");
    for who in Who::ALL {
        let _ = write!(text, " {} |", who.describe());
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(Who::ALL.len()));
    for (name, each) in bursts {
        let _ = write!(text, "| {name} |");
        for who in Who::ALL {
            let _ = write!(text, " {:.2} |", audit::of(each, who));
        }
        text.push('\n');
    }
    text
}

/// Prints the kinds of these requests of one burst.
pub fn each_request(name: &str, each: &[Each]) -> String {
    let mut text = format!("| {name} | for each |\n|---|---|\n");
    for each in each.iter().filter(|each| each.who != Who::Other) {
        for (what, number) in each.of.iter().filter(|(_, number)| *number >= 0.05) {
            let _ = writeln!(text, "| {}: {what} | {number:.2} |", each.who.describe());
        }
    }
    text
}

/// Prints the use of the processors, a column for each burst.
pub fn profiles<'a>(bursts: impl Iterator<Item = (String, &'a Profile)>) -> String {
    let bursts: Vec<_> = bursts.collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in bursts.iter().flat_map(|(_, profile)| &profile.used) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut text = String::from("| share of the machine |");
    for (name, _) in &bursts {
        let _ = write!(text, " {name} |");
    }
    let _ = writeln!(text, "\n|---|{}", "---|".repeat(bursts.len()));
    for name in names {
        let _ = write!(text, "| {name} |");
        for (_, profile) in &bursts {
            let _ = match profile.of(name) {
                Some(time) => write!(text, " {:.0} % |", profile.percent(time)),
                None => write!(text, " |"),
            };
        }
        text.push('\n');
    }
    text.push_str("| idle |");
    for (_, profile) in &bursts {
        let _ = write!(text, " {:.0} % |", profile.percent(profile.idle));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn people_can_read_numbers_and_json() {
        assert_eq!([7, 1_000, 50_000, 1_234_567].map(number), ["7", "1,000", "50,000", "1,234,567"]);
        let value = json!({ "a": [1, 2.5], "b": [{ "c": "\"" }], "d": {} });
        let text = json(&value).unwrap();
        assert_eq!(
            text,
            "{\n  \"a\": [1,2.5],\n  \"b\": [\n    {\n      \"c\": \"\\\"\"\n    }\n  ],\n  \"d\": {}\n}\n"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn each_profile_is_a_column() {
        let profile = Profile { seconds: 10.0, cores: 2, used: vec![("etcd".into(), 5.0)], idle: 15.0 };
        let text = profiles([("50".to_owned(), &profile)].into_iter());
        assert_eq!(text, "| share of the machine | 50 |\n|---|---|\n| etcd | 25 % |\n| idle | 75 % |\n");
    }
}
