//! The output of `try`.

use std::collections::BTreeMap;

use flex_contract::exit;
use flex_contract::operation::Operation;
use flex_core::model::claim::Claim;
use flex_desk::container::{Container, Content, Mount};
use flex_desk::desk::{Ended, Isolation};
use flex_desk::verdict::Verdict;
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, json};

use crate::out::{colours, say};
use crate::table::Tone;

/// The largest number of lines of a log that are shown.
const LINES: usize = 40;
/// The text in place of the value of a Secret.
const HIDDEN: &str = "***";

/// A run that has ended.
pub(super) struct Run {
    pub operation: Operation,
    pub claim: Claim,
    pub container: Container,
    pub ended: Ended,
    /// The volume of a provision run.
    pub volume: Option<PersistentVolume>,
    pub verdict: Verdict,
    pub isolation: Isolation,
}

/// Returns the runs as JSON.
pub(super) fn document(runs: &[Run], show_env: bool) -> Value {
    let one = |run: &Run| {
        let mut document = json!({
            "operation": run.operation,
            "claim": run.claim.name.to_string(),
            "volumeId": run.claim.volume_id(),
            "mounts": run.container.mounts.iter().map(mount).collect::<Vec<_>>(),
            "isolation": isolation(run),
            "exitCode": run.ended.code,
            "exitCodeMeaning": meaning(&run.ended),
            "milliseconds": u64::try_from(run.ended.took.as_millis()).unwrap_or(u64::MAX),
            "output": run.ended.log,
            "lastWords": run.ended.last_words(),
            "volume": run.volume,
            "mismatches": run.verdict.mismatches,
            "events": run.verdict.events,
            "good": run.verdict.is_good(),
        });
        if show_env {
            document["environment"] = json!(environment(run).collect::<BTreeMap<_, _>>());
        }
        document
    };
    json!({ "runs": runs.iter().map(one).collect::<Vec<_>>() })
}

/// Returns the variables of a run, without the values of Secrets.
fn environment(run: &Run) -> impl Iterator<Item = (&str, &str)> {
    let Container { env, secret_env, .. } = &run.container;
    env.iter().map(|(name, value)| (name.as_str(), if secret_env.contains(name) { HIDDEN } else { value }))
}

/// Prints a run for people.
pub(super) fn print(run: &Run, show_env: bool) {
    let toned = |tone: Tone, text: &str| match colours() {
        true => format!("{0}{text}{0:#}", tone.style()),
        false => text.to_owned(),
    };
    let part = |name: &str, text: &str| {
        let mut lines = text.trim_end().lines();
        say!("{name:<12}{}", lines.next().unwrap_or_default());
        lines.for_each(|line| say!("{:<12}{line}", ""));
    };
    part("run", &format!("{} for claim {}, CLAIM_UUID {}", run.operation, run.claim.name, run.claim.volume_id()));
    part("here", &isolation(run));
    if show_env {
        let env = environment(run).map(|(name, value)| format!("{name}={value}\n"));
        part("environment", &env.collect::<String>());
        part("mounts", &run.container.mounts.iter().map(|it| mount(it) + "\n").collect::<String>());
    }
    if !run.ended.log.trim().is_empty() {
        part("output", &end_of(&run.ended.log));
    }
    let tone = if run.ended.is_success() { Tone::Good } else { Tone::Bad };
    part("exit", &format!("{} after {} ms", toned(tone, &meaning(&run.ended)), run.ended.took.as_millis()));
    let words = run.ended.last_words();
    if !words.is_empty() {
        part("last words", &words);
    }
    if let Some(volume) = &run.volume {
        part("volume", &flex_manifest::to_yaml(volume).unwrap_or_default());
    }
    let verdict = match (&run.verdict.failure, run.verdict.mismatches.as_slice()) {
        (None, []) => toned(Tone::Good, "the orchestrator goes on"),
        (_, [_, ..]) => {
            toned(Tone::Bad, &format!("the volume is not bound:\n- {}", run.verdict.mismatches.join("\n- ")))
        }
        (Some(cause), _) if run.volume.is_some() => toned(
            Tone::Warning,
            &format!("the claim is bound although the run failed ({}): create the volume last", cause.reason),
        ),
        (Some(cause), _) => toned(Tone::Bad, &format!("the run has failed ({})", cause.reason)),
    };
    part("verdict", &verdict);
    for event in &run.verdict.events {
        part("event", &format!("{} {}: {}", event.kind, event.reason, event.message));
    }
    say!("");
}

/// Returns the end of a log.
fn end_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let hidden = lines.len().saturating_sub(LINES);
    let before = if hidden == 0 { String::new() } else { format!("({hidden} lines before)\n") };
    before + &lines[hidden..].join("\n")
}

/// Says what an exit code means to the orchestrator.
fn meaning(ended: &Ended) -> String {
    if let Some(why) = &ended.not_started {
        return format!("the program did not start: {why}");
    }
    let known = exit::ALL.iter().find(|known| known.code == ended.code);
    let doc = known.map(|known| known.doc.join(" ").trim().to_owned());
    let late = if ended.timed_out { "stopped after the config's timeout; " } else { "" };
    format!("{late}{}", doc.map_or_else(|| exit::explain(ended.code), |doc| format!("exit code {}: {doc}", ended.code)))
}

fn isolation(run: &Run) -> String {
    let user =
        run.container.user.map_or_else(|| "a user of the platform's choice".to_owned(), |user| format!("user {user}"));
    match &run.isolation {
        Isolation::Root => format!("{user}, with the mounts of the pod"),
        Isolation::UserNamespace => format!("{user} of a user namespace, with the mounts of the pod"),
        Isolation::None(why) => format!(
            "your own user, without the mounts of the pod, so /etc/flex is missing, and the last words are at $FLEX_TERMINATION_LOG ({why})"
        ),
    }
}

fn mount(mount: &Mount) -> String {
    let content = match &mount.content {
        Content::Files(files) => format!("{} files", files.len()),
        Content::Empty => "an empty directory".to_owned(),
        Content::OnNode { path, sub_path, .. } => format!("{path} of the node {sub_path}"),
        Content::Remote { volume, sub_path } => format!("the volume {volume} {sub_path}"),
        Content::OfDesk(path) => path.display().to_string(),
    };
    let mode = if mount.read_only { "read-only" } else { "writable" };
    format!("{}: {}, {mode}", mount.path, content.trim_end())
}
