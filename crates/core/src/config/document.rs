//! Files of provisioner configs, as `validate` and `render` read them. Each problem has its file and line, and a hint
//! for frequent mistakes.

use std::collections::BTreeMap;

use flex_manifest::Manifest;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Deserialize;
use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::Problem;
use super::file_names::key_problem;
use crate::object::ObjectName;

/// One object of a file that matters here.
#[derive(Debug)]
pub enum Document {
    /// A ConfigMap, with the lines of its keys.
    Config(Box<ConfigMap>, Lines),
    /// A StorageClass, with the lines of its parameters.
    Class(Box<StorageClass>, Lines),
    /// A claim.
    Claim(Box<PersistentVolumeClaim>),
    /// A ServiceAccount.
    Account(ObjectName),
    /// An object of another kind, with its name and its first line.
    Other(String, u64),
}

/// The line numbers of an object's keys.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    first: u64,
    keys: BTreeMap<String, u64>,
}

impl Lines {
    fn of_keys(offset: u64, texts: &Texts) -> Self {
        let keys = texts.iter().flatten();
        let keys = keys.map(|(key, value)| (key.clone(), offset + value.referenced.line())).collect();
        Lines { first: offset + 1, keys }
    }

    /// Returns the line of the file with this line of a key's text, from 1. Returns `None` unless the text is a literal
    /// block, in which each line of the text is one of the file.
    pub fn within(&self, key: &str, file: &str, line: u64) -> Option<u64> {
        let at = *self.keys.get(key)?;
        let source = |line: u64| file.lines().nth(usize::try_from(line.checked_sub(1)?).ok()?);
        let is_header = |text: &str| {
            let text = text.trim_start().trim_start_matches(['"', '\'']).strip_prefix(key);
            let text =
                text.map(|rest| rest.trim_start_matches(['"', '\'']).trim_start().trim_start_matches(':').trim());
            text.is_some_and(|rest| rest.starts_with('|'))
        };
        // The place of a block is that of its indicator, or that of its first line.
        let header = [at, at.checked_sub(1)?].into_iter().find(|at| source(*at).is_some_and(is_header))?;
        Some(header + line)
    }

    /// Returns the line of a key of `data` or of a parameter. For other keys returns the first line of the document.
    pub fn of(&self, key: &str) -> u64 {
        self.keys.get(key).copied().unwrap_or(self.first)
    }
}

/// A part of a file that is not YAML, or an object of the wrong form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line number, from 1.
    pub line: u64,
    /// The problem.
    pub problem: Problem,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: Option<String>,
}

/// Values that must be texts, by their keys.
type Texts = Option<BTreeMap<String, Spanned<Value>>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: Metadata,
    data: Texts,
    #[serde(rename = "stringData")]
    string_data: Texts,
    #[serde(rename = "binaryData")]
    binary_data: Texts,
    parameters: Texts,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Texts,
    annotations: Texts,
}

/// The documents of a file.
#[derive(Debug, Default)]
pub struct Documents {
    /// The documents that could be read.
    pub read: Vec<Document>,
    /// The parts that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// A part of a file that is one document.
struct Part<'a> {
    /// The number of lines before it.
    offset: u64,
    text: &'a str,
}

/// A document that could be read, perhaps with problems.
struct ReadDocument {
    document: Document,
    /// The problems that did not prevent its reading.
    problems: Vec<Unreadable>,
}

impl From<Document> for ReadDocument {
    fn from(document: Document) -> Self {
        ReadDocument { document, problems: Vec::new() }
    }
}

/// Divides a file into its documents and reads each. An unreadable document does not hide the others.
pub fn read(text: &str) -> Documents {
    let mut documents = Documents::default();
    for Part { offset, text: part } in parts(text) {
        let blank = part.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if blank {
            continue;
        }
        match read_one(part, offset) {
            Ok(ReadDocument { document, problems }) => {
                documents.read.push(document);
                documents.unreadable.extend(problems);
            }
            Err(errors) => documents.unreadable.extend(errors),
        }
    }
    documents
}

/// Divides a stream into documents.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut position) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            parts.push(Part { offset: start_line, text: &text[start..position] });
            start = position + line.len();
            start_line = number as u64 + 1;
        }
        position += line.len();
    }
    parts.push(Part { offset: start_line, text: &text[start..] });
    parts
}

/// Reads a document.
fn read_one(text: &str, offset: u64) -> Result<ReadDocument, Vec<Unreadable>> {
    let at = |error: serde_saphyr::Error| {
        let line = error.location().map_or(1, |location| location.line());
        let message = error.without_snippet().to_string();
        match missing_spaces(text, line, offset) {
            missing if missing.is_empty() => {
                vec![Unreadable { line: offset + line, problem: Problem::new("", message) }]
            }
            missing => missing,
        }
    };
    let options = || serde_saphyr::options! { with_snippet: false };
    let kind: Kind = serde_saphyr::from_str_with_options(text, options()).map_err(at)?;
    let object_ref = || serde_saphyr::from_str_with_options::<Object>(text, options()).map_err(at);
    match kind.kind.as_deref() {
        Some("ConfigMap") => {
            let object_ref = object_ref()?;
            let (lines, mut odd) = (Lines::of_keys(offset, &object_ref.data), object_ref.no_texts(text, offset));
            odd.extend(object_ref.no_keys(offset));
            let map = ConfigMap::from_yaml(text, options()).map_err(|error| or_else(&odd, || at(error)))?;
            Ok(ReadDocument { document: Document::Config(Box::new(map), lines), problems: odd })
        }
        Some("StorageClass") => {
            let object_ref = object_ref()?;
            let (lines, odd) = (Lines::of_keys(offset, &object_ref.parameters), object_ref.no_texts(text, offset));
            let class = StorageClass::from_yaml(text, options()).map_err(|error| or_else(&odd, || at(error)))?;
            Ok(ReadDocument { document: Document::Class(Box::new(class), lines), problems: odd })
        }
        Some("PersistentVolumeClaim") => {
            let claim = PersistentVolumeClaim::from_yaml(text, options()).map_err(at)?;
            Ok(Document::Claim(Box::new(claim)).into())
        }
        Some("ServiceAccount") => {
            let Metadata { name, namespace, .. } = object_ref()?.metadata;
            let name = ObjectName::new(namespace.unwrap_or_default(), name.unwrap_or_default());
            Ok(Document::Account(name).into())
        }
        Some("Secret") => {
            // Its reader reports a Secret of the wrong form.
            let problems = object_ref().map(|object_ref| object_ref.no_keys(offset)).unwrap_or_default();
            Ok(ReadDocument { document: Document::Other("Secret".into(), offset + 1), problems })
        }
        Some(other) => Ok(Document::Other(other.to_owned(), offset + 1).into()),
        None => Err(vec![Unreadable {
            line: offset + 1,
            problem: Problem::new("", "has no `kind`; is this a Kubernetes object?"),
        }]),
    }
}

/// Returns the known problems, or else those that the parser reports.
fn or_else(known: &[Unreadable], parser: impl FnOnce() -> Vec<Unreadable>) -> Vec<Unreadable> {
    if known.is_empty() { parser() } else { known.to_vec() }
}

impl Object {
    /// Finds values that Kubernetes refuses because they are not texts. The parser here would accept each as the text
    /// it is made of.
    fn no_texts(&self, text: &str, offset: u64) -> Vec<Unreadable> {
        let Metadata { labels, annotations, .. } = &self.metadata;
        let all = [("", &self.data), ("", &self.parameters), ("metadata.labels.", labels)];
        let all = all.into_iter().chain([("metadata.annotations.", annotations)]);
        let each = all.flat_map(|(path, texts)| texts.iter().flatten().map(move |(key, value)| (path, key, value)));
        each.filter_map(|(path, key, value)| {
            let at = value.referenced;
            let message = no_text(key, &value.value, source(text, &at))?;
            Some(Unreadable { line: offset + at.line(), problem: Problem::new(format!("{path}{key}"), message) })
        })
        .collect()
    }

    /// Finds keys of data that Kubernetes refuses.
    fn no_keys(&self, offset: u64) -> Vec<Unreadable> {
        let all = [&self.data, &self.string_data, &self.binary_data].into_iter().flatten().flatten();
        let wrong = all.filter_map(|(key, value)| Some((key, value.referenced.line(), key_problem(key)?)));
        wrong.map(|(key, line, why)| Unreadable { line: offset + line, problem: Problem::new(key, why) }).collect()
    }
}

/// Returns the source text of a value.
fn source<'a>(text: &'a str, at: &Location) -> &'a str {
    let (start, length) = (at.span().byte_offset(), at.span().byte_len());
    let range = start.zip(length).and_then(|(start, length)| {
        let start = usize::try_from(start).ok()?;
        Some(start..start.checked_add(usize::try_from(length).ok()?)?)
    });
    range.and_then(|range| text.get(range)).unwrap_or_default()
}

/// Returns the reason why a value is no text for Kubernetes.
fn no_text(key: &str, value: &Value, source: &str) -> Option<String> {
    let block = |what: &str| {
        format!("is a {what}, but only a text is allowed here; write `{key}: |`, and the {what} indented below")
    };
    match value {
        Value::Object(_) => Some(block("map")),
        Value::Array(_) => Some(block("list")),
        Value::Null => Some(format!("has no value; write one, `{key}: \"\"` for an empty text, or remove the key")),
        _ => {
            let what = plain(source)?;
            Some(format!(
                "is {what} in YAML, but only a text is allowed here, so Kubernetes refuses it; write `{key}: \"{source}\"`"
            ))
        }
    }
}

/// Returns the type that kubectl's YAML gives to a plain scalar, if it is not a text.
fn plain(source: &str) -> Option<&'static str> {
    const SWITCHES: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    let lower = source.to_ascii_lowercase();
    let is_cased = source.get(1..) == lower.get(1..) || source == source.to_ascii_uppercase();
    if SWITCHES.contains(&lower.as_str()) && is_cased {
        return Some("true or false");
    }
    is_number(source).then_some("a number")
}

/// Checks for a number. The parser rejects infinite numbers itself, as kubectl does.
fn is_number(source: &str) -> bool {
    let digits = source.strip_prefix(['-', '+']).unwrap_or(source);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let digits = digits.replace('_', "").to_ascii_lowercase();
    let based = |prefix: &str, base: u32| {
        let rest = digits.strip_prefix(prefix);
        rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(base)))
    };
    based("0x", 16) || based("0o", 8) || based("0b", 2) || digits.parse::<f64>().is_ok()
}

/// Finds lines like `key:value`, without a space after the colon, which YAML reads as one word. The parser reports such
/// a line itself or a later one, never an earlier one. The next lines may have the same mistake.
fn missing_spaces(text: &str, near: u64, offset: u64) -> Vec<Unreadable> {
    let upto = usize::try_from(near).unwrap_or(usize::MAX).saturating_add(1);
    let lines = || text.lines().enumerate();
    let Some((first, _)) = lines().take(upto).find(|(_, line)| missing_space(line).is_some()) else {
        return Vec::new();
    };
    let found = lines().skip(first).map_while(|(number, line)| Some((number, missing_space(line)?)));
    found
        .map(|(number, (key, value))| Unreadable {
            line: offset + number as u64 + 1,
            problem: Problem::new(
                key,
                format!("has no space after the colon, so YAML does not see a key here; write `{key}: {value}`"),
            ),
        })
        .collect()
}

/// Returns key and value of a line with that mistake.
fn missing_space(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.trim_start().split_once(':')?;
    let keyish =
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/'));
    let glued = value.starts_with(|c: char| !c.is_whitespace());
    (keyish && glued && !value.starts_with("//")).then(|| (key, value.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: &str = "kind: ConfigMap\nmetadata:\n  name: custom-isci-provisioner\n  namespace: admin\n  labels:\n    storage-class: silver\n    type: provisioner-config\ndata:\n  plugin-name: kubernetes.io/flex-provisioner\n  image: custom/iscsi-provision\n  service-account-name: foo\n  service-token:23092390532lksf90kwelklfw\n  use-nfs-server:10.10.2.4\n  zone:west\n";

    #[test]
    fn a_missing_space_is_reported_with_its_line() {
        let Documents { read: documents, unreadable } = read(SEED);
        assert!(documents.is_empty());
        assert_eq!(unreadable[0].line, 12);
        assert!(
            unreadable[0].problem.to_string().contains("write `service-token: 23092390532lksf90kwelklfw`"),
            "{unreadable:?}"
        );
        let lines: Vec<_> = unreadable.iter().map(|error| (error.line, error.problem.key.as_str())).collect();
        assert_eq!(lines, [(12, "service-token"), (13, "use-nfs-server"), (14, "zone")], "all errors at once");
        let last_only = SEED.replace("token:2", "token: 2").replace("server:1", "server: 1");
        let Documents { unreadable, .. } = read(&last_only);
        assert_eq!(unreadable[0].line, 14);
        assert!(unreadable[0].problem.to_string().contains("write `zone: west`"), "{unreadable:?}");
    }

    #[test]
    fn keys_have_their_lines_in_a_stream() {
        let text = format!(
            "# first\n---\nkind: StorageClass\nmetadata: {{name: a}}\nprovisioner: x\n---\n{}",
            SEED.replace("token:2", "token: 2").replace("server:1", "server: 1").replace("zone:w", "zone: w")
        );
        let Documents { read: documents, unreadable } = read(&text);
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let Document::Config(map, lines) = &documents[1] else { panic!("{documents:?}") };
        assert_eq!(map.data.as_ref().unwrap()["zone"], "west");
        assert_eq!(lines.of("zone"), 20);
        assert_eq!(lines.of("absent"), 7);
    }

    /// Returns a config with one more line of data.
    fn with(line: &str) -> String {
        format!("kind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  image: x\n  {line}\n  last: z\n")
    }

    /// The test expects the behaviour of `kubectl` and the API server.
    #[test]
    fn a_value_that_is_no_text_is_reported_with_its_line_and_its_right_form() {
        for value in [
            "5", "0777", "0o17", "0x1F", "0b11", "08", "1_000", "1e3", "1.5", ".5", "1.", "+5", "-5", "true", "True",
            "FALSE", "on", "Off", "yes", "NO", "y", "N",
        ] {
            let Documents { read: documents, unreadable } = read(&with(&format!("retries: {value}  # a comment")));
            let problems: Vec<_> = unreadable.iter().map(|error| (error.line, error.problem.key.as_str())).collect();
            assert_eq!(problems, [(5, "retries")], "{value}");
            let message = &unreadable[0].problem.message;
            assert!(message.contains(&format!("write `retries: \"{value}\"`")), "{message}");
            assert!(matches!(documents[..], [Document::Config(..)]), "the rest is checked nevertheless");
        }
        for value in [
            "5m",
            "10Gi",
            "1.0.0",
            "2001-01-01",
            "12:30:45",
            "1e",
            "=",
            "tRue",
            "onn",
            "_1",
            "0x",
            "\"5\"",
            "'true'",
            "|\n    5",
            ">-\n    true",
            ".",
            "west",
            "inf",
            "nan",
            "infinity",
        ] {
            let Documents { read: documents, unreadable } = read(&with(&format!("retries: {value}")));
            assert_eq!(unreadable, [], "{value}");
            assert_eq!(documents.len(), 1, "{value}");
        }
        for (line, key, says) in [
            (
                "pod-template:\n    spec: {}",
                "pod-template",
                "is a map, but only a text is allowed here; write `pod-template: |`",
            ),
            ("zone:", "zone", "has no value"),
            ("zone: ~", "zone", "has no value"),
            ("zone: null", "zone", "has no value"),
            ("command: [a, b]", "command", "is a list"),
        ] {
            let Documents { unreadable, .. } = read(&with(line));
            assert_eq!((unreadable.len(), unreadable[0].problem.key.as_str()), (1, key), "{unreadable:?}");
            assert!(
                unreadable[0].problem.message.contains(says) && (5..=6).contains(&unreadable[0].line),
                "{unreadable:?}"
            );
        }
    }

    #[test]
    fn a_key_that_kubernetes_refuses_is_reported_with_its_line() {
        for (kind, field) in
            [("ConfigMap", "data"), ("ConfigMap", "binaryData"), ("Secret", "data"), ("Secret", "stringData")]
        {
            let text = format!(
                "kind: {kind}\nmetadata: {{name: a}}\n{field}:\n  good: eA==\n  ../../etc/x: eA==\n  /x: eA==\n"
            );
            let Documents { read: documents, unreadable } = read(&text);
            let found: Vec<_> = unreadable.iter().map(|error| (error.line, error.problem.key.as_str())).collect();
            assert_eq!(found, [(5, "../../etc/x"), (6, "/x")], "{kind} {field}");
            assert_eq!(documents.len(), 1, "{kind} {field}");
            assert!(unreadable[0].problem.message.contains("can become the name of a file"), "{unreadable:?}");
        }
    }

    #[test]
    fn labels_and_parameters_must_be_texts_too() {
        let map = "kind: ConfigMap\nmetadata:\n  name: a\n  labels: {storage-class: 1}\n  annotations:\n    a: on\n";
        let class = "kind: StorageClass\nmetadata: {name: a}\nprovisioner: x\nparameters:\n  size: 5\n";
        let Documents { read: documents, unreadable } = read(&format!("{map}---\n{class}"));
        let problems: Vec<_> = unreadable.iter().map(|error| (error.line, error.problem.key.as_str())).collect();
        assert_eq!(problems, [(4, "metadata.labels.storage-class"), (6, "metadata.annotations.a"), (12, "size")]);
        let Document::Class(_, lines) = &documents[1] else { panic!("{documents:?}") };
        assert_eq!((lines.of("size"), lines.of("")), (12, 8));
    }

    proptest::proptest! {
        #[test]
        fn any_text_gets_an_answer(text in "[ -~\n]{0,300}") {
            let _ = read(&text);
            let _ = read(&with(&text));
        }
    }
}
