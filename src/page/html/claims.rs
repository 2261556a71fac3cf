//! Claims in flight, and one claim, as HTML.

use maud::{Markup, html};

use super::bar::{Bar, legend};
use super::lists::{failure_text, next_try};
use super::{Tab, Tone, ago, badge, cell, claim_link, layout, more, nothing, object_name, span, table};
use crate::age::age;
use crate::page::model::Document;
use crate::page::model::claims::{
    AttemptRow, ClaimRow, ClaimsInFlight, EarlierAttempts, EventRow, NextStage, OneClaim, StageRow,
};

/// Returns the page of the claims in flight.
pub fn claims(document: &Document<ClaimsInFlight>) -> String {
    let Document { head, body } = document;
    let rows: Vec<_> = body.claims.rows.iter().map(|row| claim_row(row, head.at)).collect();
    let main = html! {
        h1 { "Claims in flight" }
        p class="lead" { "Claims that are not bound, the oldest first. A bar shows who worked for how long, from the creation of the claim until now." }
        @if rows.is_empty() {
            (nothing("No claim waits: all are bound."))
        } @else {
            (legend())
            (table(&["Claim", "State", "Stages", "Expected end"], &rows))
            (more(&body.claims))
        }
    };
    layout(document, Tab::Claims, "Claims in flight", &main)
}

fn claim_row(row: &ClaimRow, now: i64) -> Markup {
    html! {
        (cell("Claim", &html! {
            (claim_link(&row.namespace, &row.name))
            small { "class " bdi { (row.class) } }
            small { "created " (ago(row.created, now)) }
        }))
        (cell("State", &state(row)))
        (cell("Stages", &html! { (bar(row)) small { (waits(row)) } }))
        (cell("Expected end", &expected_end(row, now)))
    }
}

fn state(row: &ClaimRow) -> Markup {
    let tone = match row.state {
        "Running" | "Growing" | "Modifying" => Tone::Busy,
        "Failed" => Tone::Bad,
        "Bound" => Tone::Good,
        _ => Tone::Quiet,
    };
    html! { (badge(tone, row.state)) @if row.attempt > 0 { small { "attempt " (row.attempt) } } }
}

fn waits(row: &ClaimRow) -> Markup {
    html! {
        @match (&row.waits_for, &row.next) {
            (Some(why), _) => { bdi { (why) } }
            (None, Some(NextStage { stage, worker, for_ms })) => {
                "waits for " b { (stage) } " since " (span(*for_ms)) ": " (worker)
            }
            (None, None) => {
                @if let Some(last) = row.stages.last() { b { (last.stage) } " after " (span(last.after_ms)) }
            }
        }
    }
}

fn expected_end(row: &ClaimRow, now: i64) -> Markup {
    html! {
        @match row.expected_end {
            Some(end) if end >= now => { "in " (age(end - now)) }
            Some(end) => { (badge(Tone::Warning, "Late")) small { (age(now - end)) " longer than half of the claims of the last hour" } }
            None => span class="dim" { "–" }
        }
    }
}

/// Returns the bar of a claim.
fn bar(row: &ClaimRow) -> Markup {
    // Nobody works on a claim that waits for its user, or for room in a quota.
    let open = row.next.filter(|_| row.waits_for.is_none());
    Bar { stages: &row.stages, open, whole: row.age_ms }.draw()
}

/// Returns the page of one claim.
pub fn claim(document: &Document<OneClaim>) -> String {
    let Document { head, body } = document;
    let row = &body.row;
    let main = html! {
        p class="back" { a href="/claims" { "Claims in flight" } }
        h1 { (object_name(&row.namespace, &row.name)) " " (state(row)) }
        dl class="facts" {
            div { dt { "Class" } dd { bdi { (row.class) } } }
            @if let Some(size) = &body.size { div { dt { "Size" } dd { (size) } } }
            div { dt { "Created" } dd { (ago(row.created, head.at)) } }
            @if let Some(volume) = &body.volume { div { dt { "Volume" } dd { bdi { (volume) } } } }
            @if let Some(node) = &body.node { div { dt { "Node" } dd { bdi { (node) } } } }
            @if let Some(job) = &body.job { div { dt { "Job" } dd { bdi { (job) } } } }
            @if row.expected_end.is_some() { div { dt { "Expected end" } dd { (expected_end(row, head.at)) } } }
        }
        section {
            h2 { "Timeline" @if row.attempt > 0 { " of attempt " (row.attempt) } }
            @if row.stages.is_empty() { p { (waits(row)) } } @else { (timeline(row)) }
        }
        @if let Some(failure) = &body.failure {
            section {
                h2 { "Last failure" }
                (failure_text(failure))
                p { (ago(failure.at, head.at)) " in " (failure.operation) " run " (failure.attempt) ". Next try: " (next_try(failure.next, head.at)) "." }
            }
        }
        (earlier(&body.earlier, head.at))
        (events(body, head.at))
    };
    let title = format!("{}/{}", row.namespace, row.name);
    layout(document, Tab::Claims, &title, &main)
}

fn timeline(row: &ClaimRow) -> Markup {
    let reached = row.stages.iter().map(|stage| {
        let StageRow { stage, after_ms, took_ms, worker } = *stage;
        stage_row(row, stage, Some(after_ms), took_ms, worker)
    });
    let open = row.next.iter().map(|next| stage_row(row, next.stage, None, next.for_ms, next.worker));
    let rows: Vec<_> = reached.chain(open).collect();
    table(&["Stage", "When", "After", "Took", "Who worked"], &rows)
}

/// Returns the row of a stage. `after` is `None` for the stage that the claim waits for.
fn stage_row(row: &ClaimRow, stage: &'static str, after: Option<i64>, took: i64, worker: &str) -> Markup {
    let until = after.unwrap_or(row.age_ms);
    let alone = [StageRow { stage, after_ms: until, took_ms: took, worker: "" }];
    let bar = Bar { stages: &alone, open: None, whole: row.age_ms.max(1) };
    html! {
        (cell("Stage", &html! { b { (stage) } @if after.is_none() { " " (badge(Tone::Busy, "Waits")) } }))
        (cell("When", &bar.draw()))
        (cell("After", &html! { @match after { Some(after) => (span(after)), None => span class="dim" { "–" } } }))
        (cell("Took", &span(took)))
        (cell("Who worked", &worker))
    }
}

/// Returns the attempts that failed before the last one.
fn earlier(earlier: &EarlierAttempts, now: i64) -> Markup {
    let EarlierAttempts { attempts, left_out } = earlier;
    let rows: Vec<_> = attempts.iter().map(|attempt| attempt_row(attempt, now)).collect();
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Earlier attempts" }
                (table(&["Attempt", "Stages", "Failed", "Cause"], &rows))
                @if *left_out > 0 { p class="dim" { (left_out) " more attempts in the middle failed, too. The claim does not keep them." } }
            }
        }
    }
}

fn attempt_row(attempt: &AttemptRow, now: i64) -> Markup {
    let AttemptRow { attempt, stages, reason, message, ended } = attempt;
    let begin = stages.first().map_or(0, |first| first.after_ms.saturating_sub(first.took_ms));
    let since_begin = |stage: &StageRow| StageRow { after_ms: stage.after_ms.saturating_sub(begin), ..*stage };
    let stages: Vec<_> = stages.iter().map(since_begin).collect();
    let age_ms = stages.last().map_or(0, |last| last.after_ms);
    let bar = Bar { stages: &stages, open: None, whole: age_ms };
    html! {
        (cell("Attempt", attempt))
        (cell("Stages", &html! { (bar.draw()) small { (span(age_ms)) } }))
        (cell("Failed", &ago(*ended, now)))
        (cell("Cause", &html! { b { bdi { (reason) } } " " bdi { (message) } }))
    }
}

fn events(body: &OneClaim, now: i64) -> Markup {
    let rows: Vec<_> = body.events.iter().map(|event| event_row(event, now)).collect();
    html! {
        section {
            h2 { "Events" }
            @for what in &body.unseen { p class="notice" { strong { "Not seen: " } bdi { (what) } } }
            @if !rows.is_empty() {
                (table(&["Event", "Last seen", "Message"], &rows))
            } @else if body.unseen.is_empty() {
                (nothing("No events. Kubernetes forgets them after an hour."))
            }
        }
    }
}

fn event_row(event: &EventRow, now: i64) -> Markup {
    let EventRow { reason, message, warning, count, at } = event;
    html! {
        (cell("Event", &html! {
            @if *warning { (badge(Tone::Warning, "Warning")) " " }
            bdi { (reason) }
        }))
        (cell("Last seen", &html! { (ago(*at, now)) @if *count > 1 { small { (count) " times" } } }))
        (cell("Message", &html! { bdi { (message) } }))
    }
}
