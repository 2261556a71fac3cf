//! The content of volumes by [`Commands`].

use std::io::Write;
use std::process::{Output, Stdio};
use std::time::Duration;

use flex_contract::volume::volume_source;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::bench::{Bench, Halt, Step, check};
use super::commands::Commands;
use crate::desk::last_lines;
use crate::order::{Content, Order};

/// The lines of a content. Half of a copy lacks some of them.
const LINES: usize = 2000;
/// The longest time of a command.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the content that stands for a line.
fn content(line: &str) -> Vec<u8> {
    let line = line.trim_end();
    (0..LINES).flat_map(|n| format!("{n} {line}\n").into_bytes()).collect()
}

/// Says how a command ended.
fn said(flag: &str, output: &Output) -> String {
    let words = last_lines(&String::from_utf8_lossy(&output.stderr));
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = match output.status.code() {
        Some(code) => format!("the command of {flag} ended with {code}"),
        None => format!("the command of {flag} was killed"),
    };
    if words.is_empty() { end } else { format!("{end}: {words}") }
}

/// Says how a content differs from what it must be.
fn difference(found: &[u8], wanted: &[u8]) -> String {
    if found.is_empty() {
        return "the volume is empty".into();
    }
    let same = found.iter().zip(wanted).take_while(|(found, wanted)| found == wanted).count();
    let (found, wanted) = (found.len(), wanted.len());
    format!(
        "the volume has other content than it must have: {found} bytes, of which the first {same} are right, and {wanted} must be"
    )
}

impl Commands {
    /// Runs a command for a volume, whose id the claim had.
    async fn run(
        &self,
        bench: &Bench,
        volume: &PersistentVolume,
        id: &str,
        input: Option<&[u8]>,
    ) -> Step<(&'static str, Output)> {
        let (flag, operation, command) = match input {
            Some(_) => ("--write-with", "write", &self.write),
            None => ("--read-with", "read", &self.read),
        };
        // The command gets the parameters and Secrets as a run does.
        let order = Order::Provision { claim: bench.setting.claim_with_id(id), content: Content::Empty };
        let job = bench.setting.job(&order, 1, &bench.kube_api()).map_err(Halt::Failed)?;
        let env = bench.desk()?.desk.container(&bench.setting, &job)?.env;
        let mut file = tempfile::NamedTempFile::new()?;
        file.write_all(json!(volume).to_string().as_bytes())?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command.as_str()]).envs(env).env("OPERATION", operation).env("VOLUME_ID", id);
        shell.env("VOLUME_SOURCE", volume_source(volume)).env("PV_FILE", file.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = shell.spawn()?;
        let stdin = child.stdin.take();
        let fed = async move {
            let Some(mut stdin) = stdin else { return };
            // A command that does not read its input may still be right.
            let _ = stdin.write_all(input.unwrap_or_default()).await;
        };
        let ended = async { tokio::join!(fed, child.wait_with_output()).1 };
        match timeout(LIMIT, ended).await {
            Ok(output) => Ok((flag, output?)),
            Err(_) => Err(Halt::Failed(format!("the command of {flag} has not ended within {} s", LIMIT.as_secs()))),
        }
    }

    /// Gives a volume the content that stands for a line.
    pub(super) async fn write(&self, bench: &Bench, volume: &PersistentVolume, id: &str, line: &str) -> Step<()> {
        let (flag, output) = self.run(bench, volume, id, Some(&content(line))).await?;
        check(output.status.success(), || format!("no content can be written into the volume: {}", said(flag, &output)))
    }

    /// Checks that a volume has the content that stands for a line.
    pub(super) async fn has(&self, bench: &Bench, volume: &PersistentVolume, id: &str, line: &str) -> Step<()> {
        let (flag, output) = self.run(bench, volume, id, None).await?;
        let wanted = content(line);
        check(output.status.success(), || format!("the volume cannot be read: {}", said(flag, &output)))?;
        // A device is longer than what a user has written.
        check(output.stdout.starts_with(&wanted), || difference(&output.stdout, &wanted))
    }

    /// Checks whether a volume has a line anywhere. A volume without content may not be readable.
    pub(super) async fn shows(&self, bench: &Bench, volume: &PersistentVolume, id: &str, line: &str) -> Step<bool> {
        let (_, output) = self.run(bench, volume, id, None).await?;
        let line = line.trim_end().as_bytes();
        Ok(output.stdout.windows(line.len()).any(|part| part == line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_what_is_missing() {
        let wanted = content("the data of a user\n");
        assert!(wanted.starts_with(b"0 the data of a user\n1 the data"));
        let half = &wanted[..wanted.len() / 2];
        for (found, words) in [
            (&b""[..], "the volume is empty".to_owned()),
            (half, format!("{0} bytes, of which the first {0} are right", half.len())),
            (&b"0 other"[..], format!("7 bytes, of which the first 2 are right, and {} must be", wanted.len())),
        ] {
            let how = difference(found, &wanted);
            assert!(how.contains(&words), "{how}");
        }
    }
}
