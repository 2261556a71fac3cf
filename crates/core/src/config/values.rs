//! The values of a config: each is a text that holds a list, a map, a duration, or YAML.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::quantity;
use flex_manifest::Manifest;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::settings::{Backoff, Refresh, SourceRule};

/// Returns the options for YAML: `0755` is octal, and `on` and `no` remain texts where texts are expected.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: true, with_snippet: false }
}

/// Reads YAML directly into its type.
pub fn yaml<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_saphyr::from_str_with_options(text, options()).map_err(|error| error.to_string())
}

/// Reads YAML into a type of the Kubernetes API, and reports unknown fields as errors. The types ignore such fields, so
/// that a misspelt field would be missing in the pod without an error.
pub fn known_yaml<T: Manifest + Serialize>(text: &str) -> Result<T, String> {
    let value = T::from_yaml(text, options()).map_err(|error| error.to_string())?;
    let mut unknown = Vec::new();
    if let (Ok(written), Ok(known)) = (yaml::<Value>(text), serde_json::to_value(&value)) {
        unknown_fields(&written, &known, "", &mut unknown);
    }
    match unknown.as_slice() {
        [] => Ok(value),
        [field] => Err(format!("has the field `{field}`, which Kubernetes does not know there; check its spelling")),
        fields => Err(format!(
            "has the fields `{}`, which Kubernetes does not know there; check their spelling",
            fields.join("`, `")
        )),
    }
}

/// Finds the paths of fields that were written but are not in the value that was read.
fn unknown_fields(written: &Value, known: &Value, path: &str, unknown: &mut Vec<String>) {
    match (written, known) {
        (Value::Object(written), Value::Object(known)) => {
            for (key, value) in written.iter().filter(|(_, value)| !value.is_null()) {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match known.get(key) {
                    Some(known) => unknown_fields(value, known, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(written), Value::Array(known)) => {
            for (n, (written, known)) in written.iter().zip(known).enumerate() {
                unknown_fields(written, known, &format!("{path}[{n}]"), unknown);
            }
        }
        _ => {}
    }
}

/// Refuses a zero byte, which YAML can write but no text may contain.
fn without_zero_bytes(items: Vec<String>) -> Result<Vec<String>, String> {
    match items.iter().any(|item| item.contains('\0')) {
        true => Err("has a zero byte, which neither an environment variable nor a command can carry".into()),
        false => Ok(items),
    }
}

/// Reads a list: YAML (`[a, b]`, or lines with `- a`), or items separated by commas or lines.
pub fn list(text: &str) -> Result<Vec<String>, String> {
    let trimmed = text.trim();
    if trimmed.starts_with('[') || trimmed.starts_with("- ") {
        return yaml(trimmed).and_then(without_zero_bytes);
    }
    Ok(trimmed.split([',', '\n']).map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect())
}

/// Reads a command: a YAML list, or words separated by spaces. No shell interprets it.
pub fn words(text: &str) -> Result<Vec<String>, String> {
    let trimmed = text.trim();
    if trimmed.starts_with('[') || trimmed.starts_with("- ") {
        return yaml(trimmed).and_then(without_zero_bytes);
    }
    if trimmed.contains(['"', '\'', '$', '|', '>', '<', ';', '&', '`']) {
        return Err(
            "no shell reads this, so quotes and operators mean nothing; write a YAML list, such as [sh, -c, \"echo $SIZE\"]"
                .into(),
        );
    }
    Ok(trimmed.split_whitespace().map(str::to_owned).collect())
}

/// Reads a map: YAML, or `key=value` separated by commas.
pub fn map(text: &str) -> Result<BTreeMap<String, String>, String> {
    let trimmed = text.trim();
    if trimmed.contains('=') && !trimmed.contains(": ") {
        return trimmed
            .split([',', '\n'])
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(|item| match item.split_once('=') {
                Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
                None => Err(format!("`{item}` has no `=`; write key=value")),
            })
            .collect();
    }
    yaml(trimmed)
}

/// Reads a duration such as `90s`, `5m` or `1h30m`: at least a second, at most a week.
pub fn duration(text: &str) -> Result<Duration, String> {
    let duration = any_duration(text, "90s, 5m or 1h30m")?;
    if duration < Duration::from_secs(1) || duration > Duration::from_secs(7 * 24 * 3600) {
        return Err(format!("`{text}` is out of range; at least 1s, at most 168h"));
    }
    Ok(duration)
}

/// Reads a short duration such as `50ms` or `1s`: at most 5 s.
pub fn moment(text: &str) -> Result<Duration, String> {
    let duration = any_duration(text, "50ms or 1s")?;
    if duration > Duration::from_secs(5) {
        return Err(format!("`{text}` is out of range; at most 5s"));
    }
    Ok(duration)
}

fn any_duration(text: &str, example: &str) -> Result<Duration, String> {
    let explain = || format!("`{text}` is not a length of time; write for example {example}");
    let span: jiff::SignedDuration = text.trim().parse().map_err(|_| explain())?;
    Duration::try_from(span).map_err(|_| explain())
}

/// Reads a backoff: `5s..10m`, or only the first delay.
pub fn backoff(text: &str, default_max: Duration) -> Result<Backoff, String> {
    let (initial, max) = match text.split_once("..") {
        Some((initial, max)) => (duration(initial)?, duration(max)?),
        None => {
            let initial = duration(text)?;
            (initial, initial.max(default_max))
        }
    };
    if initial > max {
        return Err(format!("`{text}` ends before it begins; write the shorter time first, such as 5s..10m"));
    }
    Ok(Backoff { initial, max })
}

/// Reads `10s..30m`, or only the longer time.
pub fn refresh(text: &str, default_min_delay: Duration) -> Result<Refresh, String> {
    let (min_delay, interval) = match text.split_once("..") {
        Some((min_delay, interval)) => (duration(min_delay)?, duration(interval)?),
        None => {
            let interval = duration(text)?;
            (interval.min(default_min_delay), interval)
        }
    };
    if min_delay > interval {
        return Err(format!("`{text}` ends before it begins; write the shorter time first, such as 10s..30m"));
    }
    Ok(Refresh { min_delay, interval })
}

/// Reads a whole number in a range.
pub fn number(text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` must be a whole number from {min} to {max}")),
    }
}

/// Reads a size in bytes, as Kubernetes writes it.
pub fn size(text: &str) -> Result<u64, String> {
    quantity::bytes(text).map_err(|error| error.to_string())
}

/// Reads a source rule: a kind alone such as `nfs`, or `hostPath:/prefix`, `local:/prefix`, `csi:driver`,
/// `flexVolume:driver` or `fc:WWN`.
pub fn source_rule(text: &str) -> Result<SourceRule, String> {
    let (kind, prefix) = match text.split_once(':') {
        Some((kind, prefix)) => (kind.trim(), Some(prefix.trim())),
        None => (text.trim(), None),
    };
    let known = flex_contract::volume::VOLUME_SOURCE_KINDS.iter().find(|known| known.eq_ignore_ascii_case(kind));
    let Some(kind) = known else {
        return Err(format!(
            "`{kind}` is not a volume source; write one of {}",
            flex_contract::volume::VOLUME_SOURCE_KINDS.join(", ")
        ));
    };
    let on_node = matches!(*kind, "hostPath" | "local");
    if let (Some(wwn), "fc") = (prefix, *kind) {
        return match wwn.len() == 16 && wwn.chars().all(|c| c.is_ascii_hexdigit()) {
            true => Ok(SourceRule { kind: (*kind).to_owned(), prefix: None, driver: Some(wwn.to_owned()) }),
            false => Err(format!("`{wwn}` cannot be a target WWN; write 16 hexadecimal digits")),
        };
    }
    if let (Some(driver), "csi" | "flexVolume") = (prefix, *kind) {
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        return match !driver.is_empty() && driver.len() <= 253 && driver.chars().all(legal) {
            true => Ok(SourceRule { kind: (*kind).to_owned(), prefix: None, driver: Some(driver.to_owned()) }),
            false => Err(format!("`{driver}` cannot be the name of a driver; write for example {kind}:driver.example")),
        };
    }
    match prefix {
        Some(prefix) if !on_node => Err(format!(
            "`{kind}:{prefix}`: only hostPath and local take a directory, csi and flexVolume a driver, and fc a WWN"
        )),
        Some(prefix) if !is_clean_absolute(prefix) => {
            Err(format!("`{prefix}` must be an absolute directory without `..`, such as /var/lib/volumes"))
        }
        Some("/") => Err(format!("`{kind}:/` would allow every path of a node; name a directory")),
        None if on_node => {
            Err(format!("`{kind}` needs the directory that volumes may use, such as {kind}:/var/lib/volumes"))
        }
        prefix => Ok(SourceRule {
            kind: (*kind).to_owned(),
            prefix: prefix.map(|prefix| prefix.trim_end_matches('/').to_owned()),
            driver: None,
        }),
    }
}

/// Checks that a path is absolute and has no part that leads elsewhere.
pub fn is_clean_absolute(path: &str) -> bool {
    path.starts_with('/') && !path.split('/').skip(1).any(|part| matches!(part, "." | "..")) && !path.contains("//")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_words_and_maps_are_parsed() {
        assert_eq!(list("a, b\nc").unwrap(), ["a", "b", "c"]);
        assert_eq!(list("[a, 'b, c']").unwrap(), ["a", "b, c"]);
        assert_eq!(list("- on\n- no\n").unwrap(), ["on", "no"]);
        for escaped in ["[\"a\\0\"]", "- \"a\\u0000\""] {
            assert!(list(escaped).unwrap_err().contains("zero byte") && words(escaped).is_err(), "{escaped}");
        }
        assert_eq!(words("/provision --fast").unwrap(), ["/provision", "--fast"]);
        assert!(words("sh -c 'echo hi'").unwrap_err().contains("YAML list"));
        assert_eq!(map("a=b,c=d").unwrap().len(), 2);
        assert_eq!(map("disk: ssd\nzone: \"1\"").unwrap()["zone"], "1");
    }

    #[test]
    fn times_are_parsed() {
        assert_eq!(duration("5m").unwrap(), Duration::from_secs(300));
        for text in ["", "5", "-5m", "0s", "500h", "soon"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(moment("50ms").unwrap(), Duration::from_millis(50));
        for text in ["", "50", "-5ms", "6s", "soon"] {
            assert!(moment(text).is_err(), "{text}");
        }
        assert!(backoff("10m..5s", Duration::from_secs(300)).is_err());
        let seconds =
            |text| refresh(text, Duration::from_secs(10)).map(|r| (r.min_delay.as_secs(), r.interval.as_secs()));
        assert_eq!(seconds("1s..1h"), Ok((1, 3600)));
        assert_eq!((seconds("30m"), seconds("5s")), (Ok((10, 1800)), Ok((5, 5))));
        assert!(seconds("30m..10s").is_err() && seconds("soon").is_err());
    }

    #[test]
    fn volume_sources_are_parsed() {
        assert!(source_rule("nfs").is_ok());
        assert_eq!(source_rule("local:/data/").unwrap().prefix.as_deref(), Some("/data"));
        assert_eq!(source_rule("csi:a.example").unwrap().driver.as_deref(), Some("a.example"));
        assert_eq!(source_rule("flexVolume:example/a").unwrap().driver.as_deref(), Some("example/a"));
        assert_eq!(source_rule("csi").unwrap().driver, None);
        for text in [
            "csi:",
            "csi:a b",
            "flexVolume:*",
            "hostPath",
            "hostPath:/",
            "hostPath:/a/../b",
            "hostPath:a",
            "nfs:/x",
            "floppy",
        ] {
            assert!(source_rule(text).is_err(), "{text}");
        }
    }
}
