//! The file of a support bundle: a compressed archive.

mod distrust;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flex_core::config::classes::Identity;
use flex_core::limits::{NAME, PROBLEM};
use flex_core::text::line;
use flex_provisioner::flags::{instance_id, provisioner_name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::recording::Answer;

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
/// The largest size of all files for people that are written, in bytes.
const MAX_PAGES: usize = 28 << 20;
/// The largest size of all answers that are written, in bytes. With the files for people, [`ABOUT`] and the headers they
/// are less than [`MAX_TEXT`].
const MAX_ANSWERS: usize = 226 << 20;
/// The largest size of what the archive adds to a file, in bytes: headers with its name, and the rest of the last block.
const HEADERS: usize = 2048;
const _: () = assert!(MAX_PAGES + MAX_ANSWERS + MAX_ABOUT as usize + 4 * HEADERS < MAX_TEXT as usize);
/// The largest number of answers that are read.
const MAX_COUNT: usize = 50_000;
/// The largest number of remarks in [`About::missing`]. With the longest ones, [`ABOUT`] has half of its largest size.
const MAX_MISSING: usize = 250;
/// The number of the format. A command reads its own format only.
const FORMAT: u32 = 1;

/// The circumstances of a bundle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
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

/// Writes a bundle. `pages` are further files, for people. What is too long for a reader is left out, and `about` says so.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(
    path: &Path,
    about: &mut About,
    answers: &[Answer],
    pages: &[(String, String)],
) -> anyhow::Result<()> {
    // Other users of this machine need not read it.
    let file = File::options().write(true).create_new(true).mode(0o600).open(path);
    let file = file.with_context(|| format!("{} cannot be made: name another file with --output", path.display()))?;
    let (answers, without_answers) = answers_within(answers, MAX_ANSWERS)?;
    let (pages, without_pages) = pages_within(pages, MAX_PAGES);
    let left_out = without_pages.into_iter().chain(without_answers);
    let left_out = left_out.map(|what| format!("{what}: there is too much of it for a bundle"));
    about.missing.splice(0..0, left_out);
    bound(&mut about.missing);
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
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

/// Returns the lines of the answers that fit into so many bytes, and the paths of the others. Events give way to all
/// other answers.
fn answers_within(answers: &[Answer], most: usize) -> anyhow::Result<(String, BTreeSet<&str>)> {
    let (mut text, mut left_out) = (String::new(), BTreeSet::new());
    let (events, others): (Vec<&Answer>, Vec<&Answer>) = answers.iter().partition(|answer| answer.has_events());
    for answer in others.into_iter().chain(events) {
        let row = serde_json::to_string(answer)? + "\n";
        if text.len() + row.len() <= most {
            text += &row;
        } else {
            left_out.insert(answer.path());
        }
    }
    Ok((text, left_out))
}

/// Returns the files that fit into so many bytes, and the names of the others. The first ones matter most.
fn pages_within(pages: &[(String, String)], most: usize) -> (Vec<&(String, String)>, Vec<&str>) {
    let (mut kept, mut left_out, mut room) = (Vec::new(), Vec::new(), most);
    for page in pages {
        match room.checked_sub(page.1.len() + HEADERS) {
            Some(rest) => {
                room = rest;
                kept.push(page);
            }
            None => left_out.push(page.0.as_str()),
        }
    }
    (kept, left_out)
}

/// Bounds the remarks, some of which are answers of others.
fn bound(missing: &mut Vec<String>) {
    if let Some(more) = missing.len().checked_sub(MAX_MISSING).filter(|more| *more > 0) {
        missing.truncate(MAX_MISSING);
        missing.push(format!("{more} more"));
    }
    missing.iter_mut().for_each(|missing| *missing = line(missing, PROBLEM));
}

/// Reads a bundle.
///
/// # Errors
/// If the file is no bundle, or one of another format.
pub(crate) fn read(path: &Path) -> anyhow::Result<(About, Vec<Answer>)> {
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let no_bundle = || format!("{} is no support bundle of this program", path.display());
    // A small file may unpack to any size, and each value of an answer takes more memory than its text.
    let mut archive = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(MAX_TEXT));
    let (mut about, mut answers): (Option<About>, Option<Vec<Answer>>) = (None, None);
    for entry in archive.entries().with_context(no_bundle)? {
        let mut entry = entry.with_context(no_bundle)?;
        let name = entry.path().with_context(no_bundle)?;
        match name.strip_prefix(DIRECTORY).ok().and_then(Path::to_str) {
            Some(ABOUT) => {
                check_first(about.is_none()).with_context(no_bundle)?;
                let mut text = String::new();
                entry.by_ref().take(MAX_ABOUT).read_to_string(&mut text).with_context(no_bundle)?;
                about = Some(read_about(&text).with_context(no_bundle)?);
            }
            Some(ANSWERS) => {
                check_first(answers.is_none()).with_context(no_bundle)?;
                let lines = BufReader::new(entry).lines().enumerate();
                let read = lines.map(|(number, text)| {
                    ensure!(number < MAX_COUNT, "it has more answers than any cluster gives");
                    distrust::answer(&text?)
                });
                answers = Some(read.collect::<anyhow::Result<Vec<_>>>().with_context(no_bundle)?);
            }
            _ => {}
        }
    }
    Ok((about.with_context(no_bundle)?, answers.unwrap_or_default()))
}

/// Refuses a second file of the same name. What is checked of a file must hold for all that is used.
fn check_first(is_first: bool) -> anyhow::Result<()> {
    ensure!(is_first, "it has a file twice");
    Ok(())
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
    use flex_provisioner::state::testing::default_identity;
    use serde_json::{Value, json};

    use super::*;

    fn about() -> About {
        About::new("2026-01-01T00:00:00Z".parse().unwrap(), "https://api".into(), "default".into(), default_identity())
    }

    fn answer(request: &str, body: Value) -> Answer {
        Answer { request: request.into(), status: 200, body }
    }

    /// Writes an archive with these files, whatever they are.
    fn archive(path: &Path, files: &[(&str, &str)]) {
        let mut archive = tar::Builder::new(GzEncoder::new(File::create(path).unwrap(), Compression::fast()));
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, format!("{DIRECTORY}/{name}"), content.as_bytes()).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap();
    }

    #[test]
    fn a_bundle_is_read_as_it_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let log = "/api/v1/namespaces/a/pods/p/log";
        let answers = [answer("/a", json!({ "items": [] })), answer(log, json!("a text\nwith lines"))];
        write(&path, &mut about(), &answers, &[("status.txt".into(), "ok\n".into())]).unwrap();
        let (read_about, read_answers) = read(&path).unwrap();
        assert_eq!(read_answers, [answer("/a", json!(r#"{"items":[]}"#)), answers[1].clone()]);
        assert_eq!(json!(read_about), json!(about()));
        let again = write(&path, &mut about(), &answers, &[]).unwrap_err().to_string();
        assert!(again.contains("name another file with --output"), "{again}");
    }

    #[test]
    fn what_no_reader_accepts_is_left_out_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle.tar.gz");
        let pages = [("logs/a.txt".to_owned(), "x".repeat(MAX_PAGES)), ("logs/b.txt".to_owned(), "short".to_owned())];
        let mut about = About { missing: vec!["a\nb".repeat(PROBLEM); 2 * MAX_MISSING], ..about() };
        write(&path, &mut about, &[], &pages).unwrap();
        assert_eq!(json!(read(&path).unwrap().0), json!(about), "about.json is whole");
        assert_eq!((about.missing.len(), about.missing[MAX_MISSING].as_str()), (MAX_MISSING + 1, "251 more"));
        assert!(about.missing[0].starts_with("logs/a.txt: "), "what the command itself left out comes first");
        assert!(about.missing.iter().all(|missing| missing.len() <= PROBLEM && !missing.contains('\n')));

        let (kept, left_out) = pages_within(&pages, MAX_PAGES);
        assert_eq!((kept, left_out), (vec![&pages[1]], vec!["logs/a.txt"]));
        let events = answer("/api/v1/namespaces/a/events?continue=x", json!("x".repeat(1000)));
        let answers = [events, answer("/api/v1/z?limit=5", json!("y".repeat(1000))), answer("/api/v1/b", json!({}))];
        let (text, left_out) = answers_within(&answers, 1500).unwrap();
        let kept: Vec<Answer> = text.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        assert_eq!((kept.as_slice(), Vec::from_iter(left_out)), (&answers[1..], vec!["/api/v1/namespaces/a/events"]));
    }

    #[test]
    fn a_small_file_that_unpacks_to_many_values_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bomb");
        let about = serde_json::to_string(&about()).unwrap();
        for part in ["[],", r#"{"":0},"#] {
            let body = part.repeat(distrust::MAX_VALUES / part.len() + 1) + "0";
            let answers = format!(r#"{{"request":"/a","status":200,"body":[{body}]}}"#);
            archive(&path, &[(ABOUT, about.as_str()), (ANSWERS, answers.as_str())]);
            assert!(path.metadata().unwrap().len() < 1 << 20, "the file is small");
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains("more values than any cluster needs"), "{part}: {error}");
        }
        let row = r#"{"request":"/a","status":200,"body":0}"#.to_owned() + "\n";
        archive(&path, &[(ABOUT, about.as_str()), (ANSWERS, row.repeat(MAX_COUNT + 1).as_str())]);
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.contains("more answers than any cluster gives"), "{error}");
    }

    #[test]
    fn a_second_file_of_the_same_name_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("twice");
        let about = serde_json::to_string(&about()).unwrap();
        for files in [[ABOUT, ANSWERS, ABOUT], [ABOUT, ANSWERS, ANSWERS]] {
            let files = files.map(|name| (name, if name == ABOUT { about.as_str() } else { "" }));
            archive(&path, &files);
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.contains("it has a file twice"), "{error}");
        }
    }

    #[test]
    fn a_file_of_another_kind_or_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "text").unwrap();
        assert!(format!("{:#}", read(&other).unwrap_err()).contains("is no support bundle"));
        let newer = directory.path().join("newer");
        write(&newer, &mut About { format: 2, ..about() }, &[], &[]).unwrap();
        let error = format!("{:#}", read(&newer).unwrap_err());
        assert!(error.contains("it has another format"), "{error}");
        let forged = directory.path().join("forged");
        let identity = Identity { instance: "a\u{1b}[2J".into(), ..about().identity };
        write(&forged, &mut About { identity, ..about() }, &[], &[]).unwrap();
        let error = format!("{:#}", read(&forged).unwrap_err());
        assert!(error.contains("is no support bundle") && !error.contains('\u{1b}'), "{error}");
    }
}
