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
/// The largest size of all answers that is read, in bytes. 50,000 claims with their volumes need a twentieth of it.
const MAX_ANSWERS: u64 = 4 << 30;
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
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)));
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
                let lines = BufReader::new(entry.take(MAX_ANSWERS)).lines();
                let answers_read = lines.map(|line| anyhow::Ok(serde_json::from_str::<Answer>(&line?)?));
                answers = answers_read.collect::<anyhow::Result<_>>().with_context(no_bundle)?;
            }
            _ => {}
        }
    }
    Ok((about.with_context(no_bundle)?, answers))
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
