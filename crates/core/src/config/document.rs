//! Files of provisioner configs, as `validate` and `render` read them: every problem with its file
//! and line, and a hint where a slip is easy to make.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use manifest::Manifest;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;

use super::Problem;

/// One object of a file that matters here.
#[derive(Debug)]
pub enum Document {
    /// A ConfigMap, with the lines of its keys.
    Config(Box<ConfigMap>, Lines),
    /// A StorageClass.
    Class(Box<StorageClass>),
    /// A claim.
    Claim(Box<PersistentVolumeClaim>),
    /// Some other kind, named.
    Other(String),
}

/// Where things stand in a file.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    first: u64,
    keys: BTreeMap<String, u64>,
}

impl Lines {
    /// The line of a key of `data`, or where the document begins.
    pub fn of(&self, key: &str) -> u64 {
        self.keys.get(key).copied().unwrap_or(self.first)
    }
}

/// A file that cannot be read as YAML, or an object of the wrong form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1.
    pub line: u64,
    /// What is wrong.
    pub problem: Problem,
}

#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    data: Option<BTreeMap<String, Spanned<IgnoredAny>>>,
}

/// Splits a file into its documents and reads each. A document that cannot be read does not hide
/// the others.
pub fn read(text: &str) -> (Vec<Document>, Vec<Unreadable>) {
    let mut documents = Vec::new();
    let mut unreadable = Vec::new();
    for (offset, part) in parts(text) {
        let blank = part.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
        if blank {
            continue;
        }
        match read_one(part, offset) {
            Ok(document) => documents.push(document),
            Err(errors) => unreadable.extend(errors),
        }
    }
    (documents, unreadable)
}

/// The documents of a stream with the number of lines before each.
fn parts(text: &str) -> Vec<(u64, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut position) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            parts.push((start_line, &text[start..position]));
            start = position + line.len();
            start_line = number as u64 + 1;
        }
        position += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

fn read_one(text: &str, offset: u64) -> Result<Document, Vec<Unreadable>> {
    let at = |error: serde_saphyr::Error| {
        let line = error.location().map_or(1, |location| location.line());
        let message = error.without_snippet().to_string();
        match slips(text, line, offset) {
            slips if slips.is_empty() => {
                vec![Unreadable { line: offset + line, problem: Problem::new("", message) }]
            }
            slips => slips,
        }
    };
    let options = || serde_saphyr::options! { with_snippet: false };
    let kind: Kind = serde_saphyr::from_str_with_options(text, options()).map_err(at)?;
    match kind.kind.as_deref() {
        Some("ConfigMap") => {
            let data: Data = serde_saphyr::from_str_with_options(text, options()).map_err(at)?;
            let keys =
                data.data.into_iter().flatten().map(|(key, value)| (key, offset + value.referenced.line())).collect();
            let map = ConfigMap::from_yaml(text, options()).map_err(at)?;
            Ok(Document::Config(Box::new(map), Lines { first: offset + 1, keys }))
        }
        Some("StorageClass") => Ok(Document::Class(Box::new(StorageClass::from_yaml(text, options()).map_err(at)?))),
        Some("PersistentVolumeClaim") => {
            Ok(Document::Claim(Box::new(PersistentVolumeClaim::from_yaml(text, options()).map_err(at)?)))
        }
        Some(other) => Ok(Document::Other(other.to_owned())),
        None => Err(vec![Unreadable {
            line: offset + 1,
            problem: Problem::new("", "has no `kind`; is this a Kubernetes object?"),
        }]),
    }
}

/// `key:value` without a space after the colon, which YAML reads as one word. The parser complains
/// at or after that line, never before; the lines right below may have the same slip.
fn slips(text: &str, near: u64, offset: u64) -> Vec<Unreadable> {
    let upto = usize::try_from(near).unwrap_or(usize::MAX).saturating_add(1);
    let lines = || text.lines().enumerate();
    let Some((first, _)) = lines().take(upto).find(|(_, line)| slip(line).is_some()) else { return Vec::new() };
    let found = lines().skip(first).map_while(|(number, line)| Some((number, slip(line)?)));
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

/// Key and value of a line with that slip.
fn slip(line: &str) -> Option<(&str, &str)> {
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
    fn a_missing_space_is_found_at_its_line() {
        let (documents, unreadable) = read(SEED);
        assert!(documents.is_empty());
        assert_eq!(unreadable[0].line, 12);
        assert!(
            unreadable[0].problem.to_string().contains("write `service-token: 23092390532lksf90kwelklfw`"),
            "{unreadable:?}"
        );
        let lines: Vec<_> = unreadable.iter().map(|error| (error.line, error.problem.key.as_str())).collect();
        assert_eq!(lines, [(12, "service-token"), (13, "use-nfs-server"), (14, "zone")], "all at once");
        let last_only = SEED.replace("token:2", "token: 2").replace("server:1", "server: 1");
        let (_, unreadable) = read(&last_only);
        assert_eq!(unreadable[0].line, 14);
        assert!(unreadable[0].problem.to_string().contains("write `zone: west`"), "{unreadable:?}");
    }

    #[test]
    fn keys_know_their_lines_in_a_stream() {
        let text = format!(
            "# first\n---\nkind: StorageClass\nmetadata: {{name: a}}\nprovisioner: x\n---\n{}",
            SEED.replace("token:2", "token: 2").replace("server:1", "server: 1").replace("zone:w", "zone: w")
        );
        let (documents, unreadable) = read(&text);
        assert!(unreadable.is_empty(), "{unreadable:?}");
        let Document::Config(map, lines) = &documents[1] else { panic!("{documents:?}") };
        assert_eq!(map.data.as_ref().unwrap()["zone"], "west");
        assert_eq!(lines.of("zone"), 20);
        assert_eq!(lines.of("absent"), 7);
    }

    proptest::proptest! {
        #[test]
        fn any_text_gets_an_answer(text in "[ -~\n]{0,300}") {
            let _ = read(&text);
        }
    }
}
