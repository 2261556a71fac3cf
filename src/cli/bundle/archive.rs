//! The file of a support bundle: a compressed archive.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::bundle::Answer;
use crate::cli::flags::{instance_id, provisioner_name};
use crate::config::classes::Identity;
use crate::limits::NAME;
use crate::text::line;

/// The directory in the archive.
const DIRECTORY: &str = "flex-bundle";
/// The file with [`About`].
const ABOUT: &str = "about.json";
/// The file with the answers of the API server, one in a line.
const ANSWERS: &str = "answers.jsonl";
/// The largest size of [`ABOUT`] that is read, in bytes.
const MAX_ABOUT: u64 = 1 << 20;
/// The largest size of a whole bundle that is read, in bytes of its text. 50,000 claims with their volumes need 200 MiB.
const MAX_TEXT: u64 = 256 << 20;
/// The largest number of values in all answers. Each takes some 50 bytes of memory.
const MAX_VALUES: usize = 20_000_000;
/// The number of the format. A command reads its own format only.
const FORMAT: u32 = 1;

/// The circumstances of a bundle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::cli) struct About {
    /// The number of the format.
    pub format: u32,
    /// The version of the command that wrote the bundle.
    pub version: String,
    /// The time of the bundle.
    pub recorded: Timestamp,
    /// The address of the API server.
    pub address: String,
    /// The namespace of the context.
    pub namespace: String,
    /// The names of the orchestrator.
    pub identity: Identity,
    /// What could not be read, and why.
    pub missing: Vec<String>,
}

impl About {
    pub(super) fn new(recorded: Timestamp, address: String, namespace: String, identity: Identity) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        About { format: FORMAT, version, recorded, address, namespace, identity, missing: Vec::new() }
    }
}

/// Writes a bundle. `pages` are further files, for people.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, about: &About, answers: &[Answer], pages: &[(String, String)]) -> anyhow::Result<()> {
    // Other users of this machine need not read it.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("{} cannot be made: name another file with --output", path.display()))?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let answers: String =
        answers.iter().map(|answer| Ok(serde_json::to_string(answer)? + "\n")).collect::<anyhow::Result<_>>()?;
    let own = [(ABOUT.to_owned(), serde_json::to_string_pretty(about)?), (ANSWERS.to_owned(), answers)];
    for (name, content) in own.iter().chain(pages) {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(about.recorded.as_second()).unwrap_or_default());
        archive.append_data(&mut header, format!("{DIRECTORY}/{name}"), content.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()?;
    Ok(())
}

/// Reads a bundle.
///
/// # Errors
/// If the file is no bundle, or one of another format.
pub(in crate::cli) fn read(path: &Path) -> anyhow::Result<(About, Vec<Answer>)> {
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let no_bundle = || format!("{} is no support bundle of this program", path.display());
    // A small file may unpack to any size, and each value of an answer takes more memory than its text.
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(MAX_TEXT));
    let (mut about, mut answers) = (None, Vec::new());
    for entry in archive.entries().with_context(no_bundle)? {
        let mut entry = entry.with_context(no_bundle)?;
        let name = entry.path().with_context(no_bundle)?;
        match name.strip_prefix(DIRECTORY).ok().and_then(Path::to_str) {
            Some(ABOUT) => {
                let mut text = String::new();
                entry.by_ref().take(MAX_ABOUT).read_to_string(&mut text).with_context(no_bundle)?;
                about = Some(read_about(&text).with_context(no_bundle)?);
            }
            Some(ANSWERS) => {
                let mut values = 0;
                let lines = BufReader::new(entry).lines();
                let answers_read = lines.map(|text| {
                    let text = text?;
                    values += values_in(&text);
                    anyhow::ensure!(values <= MAX_VALUES, "it has more values than any cluster needs");
                    let mut answer: Answer = serde_json::from_str(&text)?;
                    in_one_line(&mut answer.body);
                    anyhow::Ok(answer)
                });
                answers = answers_read.collect::<anyhow::Result<_>>().with_context(no_bundle)?;
            }
            _ => {}
        }
    }
    Ok((about.with_context(no_bundle)?, answers))
}

/// The fields whose texts have no line ends in an answer of the API server. Somebody may have edited the file.
const NAMES: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "kind",
    "nodeName",
    "storageClassName",
    "volumeName",
    "holderIdentity",
    "provisioner",
];

/// Escapes the acting characters in the names of an answer, so that no name forges lines.
fn in_one_line(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(field, value)| match value {
            Value::String(text) if NAMES.contains(&field.as_str()) => *text = line(text, usize::MAX),
            value => in_one_line(value),
        }),
        Value::Array(items) => items.iter_mut().for_each(in_one_line),
        _ => {}
    }
}

/// Returns at least the number of values in a text of JSON.
fn values_in(text: &str) -> usize {
    1 + text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

fn read_about(text: &str) -> anyhow::Result<About> {
    let format = serde_json::from_str::<serde_json::Value>(text)?["format"].as_u64();
    if format != Some(FORMAT.into()) {
        bail!("it has another format: use the command of the version that wrote it");
    }
    let about: About = serde_json::from_str(text)?;
    // The names come from a file, and are printed.
    instance_id(&about.identity.instance).map_err(anyhow::Error::msg)?;
    provisioner_name(&about.identity.provisioner).map_err(anyhow::Error::msg)?;
    for namespace in about.identity.namespaces() {
        instance_id(namespace).map_err(|_| anyhow::anyhow!("`{}` is no namespace", line(namespace, NAME)))?;
    }
    Ok(about)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::state::testing::default_identity;

    fn about() -> About {
        About::new("2026-01-01T00:00:00Z".parse().unwrap(), "https://api".into(), "default".into(), default_identity())
    }

    #[test]
    fn a_bundle_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let answer = |request: &str, body| Answer { request: request.into(), status: 200, body };
        let answers = [answer("/a", json!({ "items": [] })), answer("/log", json!("a text\nwith lines"))];
        write(&path, &about(), &answers, &[("status.txt".into(), "ok\n".into())]).unwrap();
        let (read_about, read_answers) = read(&path).unwrap();
        assert_eq!(read_answers, answers);
        assert_eq!(json!(read_about), json!(about()));
        let again = write(&path, &about(), &answers, &[]).unwrap_err().to_string();
        assert!(again.contains("name another file with --output"), "{again}");
    }

    #[test]
    fn no_name_in_a_bundle_forges_a_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let body = json!({ "items": [{ "metadata": { "name": "a\nok: all is well", "labels": { "x": "a\nb" } } }] });
        write(&path, &about(), &[Answer { request: "/a".into(), status: 200, body }], &[]).unwrap();
        let (_, answers) = read(&path).unwrap();
        assert_eq!(answers[0].body["items"][0]["metadata"]["name"], "a\\nok: all is well");
        assert_eq!(answers[0].body["items"][0]["metadata"]["labels"]["x"], "a\nb", "other texts stay as they are");
    }

    #[test]
    fn a_small_file_that_unpacks_to_many_values_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bomb");
        let file = File::create(&path).unwrap();
        let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::fast()));
        let body = "[],".repeat(MAX_VALUES / 2) + "[]";
        let answers = format!(r#"{{"request":"/a","status":200,"body":[{body}]}}"#);
        let text = serde_json::to_string(&about()).unwrap();
        for (name, content) in [(ABOUT, &text), (ANSWERS, &answers)] {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{DIRECTORY}/{name}"), content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
        assert!(path.metadata().unwrap().len() < 1 << 20, "the file is small");
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("more values than any cluster needs"), "{error}");
    }

    #[test]
    fn a_file_of_another_kind_or_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "text").unwrap();
        assert!(format!("{:#}", read(&other).unwrap_err()).contains("is no support bundle"));
        let newer = directory.path().join("newer");
        write(&newer, &About { format: 2, ..about() }, &[], &[]).unwrap();
        let error = format!("{:#}", read(&newer).unwrap_err());
        assert!(error.contains("it has another format"), "{error}");
        let forged = directory.path().join("forged");
        let identity = Identity { instance: "a\u{1b}[2J".into(), ..about().identity };
        write(&forged, &About { identity, ..about() }, &[], &[]).unwrap();
        let error = format!("{:#}", read(&forged).unwrap_err());
        assert!(error.contains("is no support bundle") && !error.contains('\u{1b}'), "{error}");
    }
}
