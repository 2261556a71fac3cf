//! Runs for volumes and snapshots that exist, as HTML.

use maud::{Markup, html};

use super::bar::{Bar, legend};
use super::{Tab, ago, cell, layout, more, nothing, span, table};
use crate::page::model::Document;
use crate::page::model::runs::{RunRow, Runs};

/// Returns the page of the runs.
pub fn runs(document: &Document<Runs>) -> String {
    let Document { head, body } = document;
    let rows: Vec<_> = body.runs.rows.iter().map(|row| run_row(row, head.at)).collect();
    let main = html! {
        h1 { "Runs" }
        p class="lead" { "Runs in progress for volumes and snapshots that exist: deletions, growth, other attributes, snapshots, and capacities. The oldest are first." }
        @if rows.is_empty() {
            (nothing("No such run is in progress."))
        } @else {
            (legend())
            (table(&["Run", "For", "Stages", "Job"], &rows))
            (more(&body.runs))
        }
    };
    layout(document, Tab::Runs, "Runs", &main)
}

fn run_row(row: &RunRow, now: i64) -> Markup {
    html! {
        (cell("Run", &html! {
            b { (row.operation) }
            small { "attempt " (row.attempt) ", wanted " (ago(row.began, now)) }
        }))
        (cell("For", &html! {
            @match &row.object {
                Some(object) => bdi { (object) },
                None if row.members > 1 => { (row.members) " volumes in one batch" }
                None => span class="dim" { "–" }
            }
            small { "class " bdi { (row.class) } }
        }))
        (cell("Stages", &html! {
            (Bar { stages: &row.stages, open: row.next, whole: row.age_ms }.draw())
            small { (waits(row)) }
        }))
        (cell("Job", &html! {
            bdi { (row.job) }
            @if let Some(node) = &row.node { small { "on " bdi { (node) } } }
        }))
    }
}

fn waits(row: &RunRow) -> Markup {
    html! {
        @match &row.next {
            Some(next) => { "waits for " b { (next.stage) } " since " (span(next.for_ms)) ": " (next.worker) }
            None => "the image has ended"
        }
    }
}
