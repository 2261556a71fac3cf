//! Failures, findings and configs as HTML.

use flex_core::config::Problem;
use flex_core::config::classes::Verdict;
use flex_core::findings::{Finding, Severity};
use maud::{Markup, html};

use super::{Tab, Tone, ago, badge, cell, claim_link, layout, more, nothing, object_name, table};
use crate::age::age;
use crate::page::model::configs::{ConfigRow, Configs};
use crate::page::model::failures::{FailureRow, Failures, NextTry};
use crate::page::model::findings::Findings;
use crate::page::model::{Document, message, name};

/// Returns the page of the failures.
pub fn failures(document: &Document<Failures>) -> String {
    let Document { head, body } = document;
    let rows: Vec<_> = body.failures.rows.iter().map(|row| failure_row(row, head.at)).collect();
    let main = html! {
        h1 { "Failures" }
        p class="lead" { "Claims and volumes whose last run failed, the latest first. The orchestrator gives none up." }
        @if rows.is_empty() {
            (nothing("No run has failed."))
        } @else {
            (table(&["Object", "Run", "Cause", "Next try"], &rows))
            (more(&body.failures))
        }
    };
    layout(document, Tab::Failures, "Failures", &main)
}

fn failure_row(row: &FailureRow, now: i64) -> Markup {
    html! {
        (cell("Object", &html! {
            @if row.kind == "claim" { (claim_link(&row.namespace, &row.name)) } @else { (object_name("", &row.name)) }
            small { (row.kind) " of class " bdi { (row.class) } }
        }))
        (cell("Run", &html! { (row.operation) small { "attempt " (row.attempt) } small { (ago(row.at, now)) } }))
        (cell("Cause", &failure_text(row)))
        (cell("Next try", &next_try(row.next, now)))
    }
}

/// Returns the cause of a failure, with the message of the image.
pub(super) fn failure_text(row: &FailureRow) -> Markup {
    html! { (badge(Tone::Bad, &row.cause)) " " span class="message" { bdi { (row.message) } } }
}

/// Says when the next try is.
pub(super) fn next_try(next: NextTry, now: i64) -> Markup {
    let at = |at: i64| if at > now { format!("in {}", age(at - now)) } else { "now".to_owned() };
    html! {
        @match next {
            NextTry::Running => "a new attempt is in progress",
            NextTry::At { at: time } => (at(time)),
            NextTry::AfterChange { at: time } => { "when the config or the class changes, at the latest " (at(time)) }
            NextTry::WithConfig => "when the class has a config that works",
            NextTry::Never => "none, because the claim is being deleted",
        }
    }
}

/// Returns the page of the findings.
pub fn findings(document: &Document<Findings>) -> String {
    let Document { head, body } = document;
    let rows: Vec<_> = body.findings.rows.iter().map(|row| finding_row(row, head.at)).collect();
    let main = html! {
        h1 { "Findings" }
        p class="lead" {
            "Orphaned and stuck objects. "
            @match (body.swept_at, body.interval) {
                (_, None) => "--sweep-interval is off, so nobody looks for them.",
                (None, Some(_)) => "The leader has not looked for them yet.",
                (Some(at), Some(interval)) => {
                    "The leader looked for them " (ago(at, head.at)) ", and does so every "
                    (age(i64::try_from(interval).unwrap_or(i64::MAX))) "."
                }
            }
        }
        @if rows.is_empty() {
            @if body.swept_at.is_some() { (nothing("Nothing was found.")) }
        } @else {
            (table(&["Finding", "Object", "What is wrong", "What to do"], &rows))
            (more(&body.findings))
        }
    };
    layout(document, Tab::Findings, "Findings", &main)
}

fn finding_row(row: &Finding, now: i64) -> Markup {
    let (tone, word) = match row.severity {
        Severity::Error => (Tone::Bad, "Error"),
        Severity::Warning => (Tone::Warning, "Warning"),
        Severity::Info => (Tone::Quiet, "Info"),
    };
    html! {
        (cell("Finding", &html! { (badge(tone, word)) small { (row.kind.as_str()) } }))
        (cell("Object", &html! {
            bdi { (name(&row.object.to_string())) }
            @if let Some(since) = row.since { small { "since " (ago(since, now)) } }
        }))
        (cell("What is wrong", &html! { (row.meaning) small { bdi { (message(&row.detail)) } } }))
        (cell("What to do", &html! { bdi { (message(&row.remedy)) } }))
    }
}

/// Returns the page of the configs.
pub fn configs(document: &Document<Configs>) -> String {
    let body = &document.body;
    let main = html! {
        h1 { "Configs" }
        p class="lead" { "Each ConfigMap for this orchestrator, with the verdict on it. The refused are first." }
        @if body.configs.rows.is_empty() {
            (nothing("No ConfigMap is meant for this orchestrator yet."))
        } @else {
            @for row in &body.configs.rows { (config(row)) }
            (more(&body.configs))
        }
    };
    layout(document, Tab::Configs, "Configs", &main)
}

fn config(ConfigRow { config, verdict }: &ConfigRow) -> Markup {
    let Verdict { problems, warnings, classes, last_good } = verdict;
    let (tone, word) = match (problems.is_empty(), *last_good, warnings.is_empty()) {
        (false, false, _) => (Tone::Bad, "Refused"),
        (false, true, _) => (Tone::Bad, "Refused, an old version is in use"),
        (true, _, false) => (Tone::Warning, "Accepted with warnings"),
        (true, _, true) => (Tone::Good, "Accepted"),
    };
    let lines = problems.iter().map(|problem| line(Tone::Bad, "Error", problem));
    let lines: Vec<_> = lines.chain(warnings.iter().map(|problem| line(Tone::Warning, "Warning", problem))).collect();
    html! {
        section class="config" {
            h2 { (object_name(&name(&config.namespace), &name(&config.name))) " " (badge(tone, word)) }
            p class="dim" {
                @if classes.is_empty() { "Serves no class." } @else {
                    "Serves " @for (n, class) in classes.iter().enumerate() { @if n > 0 { ", " } bdi { (name(class)) } } "."
                }
            }
            @if !lines.is_empty() { (table(&["Key", "Line", "Verdict", "Message"], &lines)) }
        }
    }
}

fn line(tone: Tone, word: &str, Problem { key, message: text }: &Problem) -> Markup {
    html! {
        (cell("Key", &html! { @if key.is_empty() { span class="dim" { "the whole config" } } @else { code { bdi { (name(key)) } } } }))
        (cell("Line", &html! { @match line_number(text) { Some(line) => (line), None => span class="dim" { "–" } } }))
        (cell("Verdict", &badge(tone, word)))
        (cell("Message", &html! { bdi { (message(text)) } }))
    }
}

/// Returns the number that a message names as a line of the value of a key.
pub(super) fn line_number(message: &str) -> Option<u32> {
    message.match_indices("line ").find_map(|(at, word)| {
        let is_word = !message[..at].ends_with(|c: char| c.is_alphanumeric());
        let rest = &message[at + word.len()..];
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok().filter(|number| is_word && *number > 0)
    })
}
