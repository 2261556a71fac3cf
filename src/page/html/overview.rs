//! The overview as HTML.

use std::collections::BTreeMap;

use flex_contract::quantity::quantity;
use flex_core::claim::progress::Progress;
use maud::{Markup, html};

use super::{NBSP, Tab, Tone, badge, cell, layout, nothing, table};
use crate::age::age;
use crate::overview::{self, PoolRow};
use crate::page::model::overview::{ClassRow, Hour, Overview, Policies};
use crate::page::model::{Counts, Document, Head, message, name};

/// Returns the overview.
pub fn overview(document: &Document<Overview>) -> String {
    let Document { head, body } = document;
    let main = html! {
        h1 { "Overview" }
        (tiles(&head.counts))
        (facts(head, body))
        section {
            h2 { "Classes" }
            @if body.classes.is_empty() {
                (nothing("No class yet. A ConfigMap with the label type: provisioner-config makes one."))
            } @else {
                (table(&["Class", "State", "Runs", "Volumes", "Pool", "In flight", "Last hour", "p95"], &class_rows(&body.classes)))
            }
        }
        (policies(&body.policies))
    };
    layout(document, Tab::Overview, "Overview", &main)
}

fn tiles(counts: &Counts) -> Markup {
    let Counts { claims, failures, findings, refused, .. } = *counts;
    let tile = |href: &str, count: usize, text: &str, says: &str, tone: &str| {
        html! { a class={ "tile " (tone) } href=(href) { span class="number" { (count) } span class="what" { (text) } span class="says" { (says) } } }
    };
    let when = |count: usize, tone| if count > 0 { tone } else { "calm" };
    html! {
        div class="tiles" {
            (tile("/claims", claims, "Claims in flight", if claims > 0 { "not bound yet" } else { "all are bound" }, "calm"))
            (tile("/failures", failures, "Failures", if failures > 0 { "tried again" } else { "none" }, when(failures, "bad")))
            (tile("/findings", findings, "Findings", if findings > 0 { "need a look" } else { "none" }, when(findings, "warning")))
            (tile("/configs", refused, "Refused configs", if refused > 0 { "have errors" } else { "none" }, when(refused, "bad")))
        }
    }
}

fn facts(head: &Head, body: &Overview) -> Markup {
    let leader = head.leader.as_deref().unwrap_or("nobody");
    html! {
        dl class="facts" {
            div { dt { "Leader" } dd { bdi { (leader) } @if head.leads { " (this replica)" } } }
            div { dt { "Version" } dd { (head.version) } }
            div { dt { "Running for" } dd { (age(head.uptime)) } }
            div { dt { "Runs in progress" } dd { (body.runs) } }
            div { dt { "Work items that wait" } dd { (body.queue) } }
        }
    }
}

fn class_rows(classes: &[ClassRow]) -> Vec<Markup> {
    classes
        .iter()
        .map(|ClassRow { row, hour }| {
            html! {
                (cell("Class", &html! {
                    strong { bdi { (name(&row.name)) } }
                    @if let Ok(recipe) = &row.recipe { small { bdi { (name(&recipe.version)) } } }
                    @if row.waits_for_consumer { small { "waits for the first pod" } }
                }))
                (cell("State", &state(row)))
                (cell("Runs", &runs(row)))
                (cell("Volumes", &volumes(row)))
                (cell("Pool", &pools(&row.pools)))
                (cell("In flight", &in_flight(&row.claims)))
                (cell("Last hour", &html! { (hour.bound) (NBSP) "bound" }))
                (cell("p95", &p95(*hour)))
            }
        })
        .collect()
}

fn state(row: &overview::ClassRow) -> Markup {
    let (tone, text) = match (&row.recipe, row.last_good, row.health.is_failing()) {
        (Err(_), ..) => (Tone::Bad, "Not served"),
        (Ok(_), true, _) => (Tone::Warning, "Old version"),
        (Ok(_), false, true) => (Tone::Bad, "Failing"),
        (Ok(_), false, false) => (Tone::Good, "Served"),
    };
    html! { (badge(tone, text)) @if row.verdict != "ok" { small { bdi { (message(&row.verdict)) } } } }
}

fn runs(row: &overview::ClassRow) -> Markup {
    let recipe = row.recipe.as_ref().ok();
    html! {
        (of(row.runs.unwrap_or_default(), recipe.map(|recipe| recipe.max_in_flight)))
        @if let Some(most) = recipe.and_then(|recipe| recipe.max_in_flight_per_namespace) { small { (most) (NBSP) "per namespace" } }
        @if let Some(most) = recipe.and_then(|recipe| recipe.max_in_flight_per_node) { small { (most) (NBSP) "per node" } }
    }
}

fn volumes(row: &overview::ClassRow) -> Markup {
    let recipe = row.recipe.as_ref().ok();
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| quantity(bytes).0);
    html! {
        (of(row.used_volumes, recipe.and_then(|recipe| recipe.max_volumes)))
        small { (size(row.used_bytes)) @if let Some(most) = bytes(recipe.and_then(|recipe| recipe.max_bytes)) { " of " (most) } }
        @if let Some(most) = recipe.and_then(|recipe| recipe.max_volumes_per_namespace) { small { (most) (NBSP) "per namespace" } }
        @if let Some(most) = bytes(recipe.and_then(|recipe| recipe.max_bytes_per_namespace)) { small { (most) (NBSP) "per namespace" } }
    }
}

fn of<N: maud::Render>(number: N, most: Option<N>) -> Markup {
    html! { span class="number-of" { (number) @if let Some(most) = most { span class="dim" { " of " (most) } } } }
}

/// Returns a size with one digit behind the point, such as `1.5 GiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

fn pools(pools: &[PoolRow]) -> Markup {
    html! {
        @if pools.is_empty() { span class="dim" { "none" } }
        @for PoolRow { size: bytes, ready, low, high } in pools {
            div class="line" {
                (quantity(*bytes).0) ": " (ready) " ready"
                span class="dim" { ", keeps " (low) @if low != high { "–" (high) } }
            }
        }
    }
}

fn in_flight(claims: &BTreeMap<Progress, usize>) -> Markup {
    html! {
        @if claims.is_empty() { span class="dim" { "none" } }
        @for (state, count) in claims {
            div class={ "line" @if matches!(state, Progress::Failed | Progress::Refused) { " failed" } } {
                (count) (NBSP) (state.as_str().to_lowercase())
            }
        }
    }
}

fn p95(hour: Hour) -> Markup {
    html! {
        @match hour.p95 {
            Some(p95) => {
                (seconds(p95))
                @if let Some(p50) = hour.p50 { small { "half within " (seconds(p50)) } }
            }
            None => span class="dim" { "–" }
        }
    }
}

fn seconds(seconds: f64) -> String {
    match seconds {
        ..10.0 => format!("{seconds:.1}\u{a0}s"),
        ..120.0 => format!("{seconds:.0}\u{a0}s"),
        _ => age(seconds as i64),
    }
}

fn policies(policies: &Policies) -> Markup {
    let off: Vec<_> = policies.policies.iter().filter(|policy| !policy.is_installed).collect();
    let installed = policies.policies.len() - off.len();
    html! {
        section {
            h2 { "Admission policies" }
            @if let Some(why) = &policies.unknown {
                p { (badge(Tone::Quiet, "Not known")) " " bdi { (why) } }
            } @else if off.is_empty() {
                p { (badge(Tone::Good, "Installed")) " All " (installed) " work as shipped." }
            } @else {
                p { (badge(Tone::Warning, "Incomplete")) " " (installed) " of " (policies.policies.len()) " work as shipped. Without the others:" }
                ul class="policies" {
                    @for policy in off { li { strong { (policy.name) } " is " (policy.state) ": " @if let Some(without) = policy.without { (without) } } }
                }
            }
            p class="dim" { "As they were when this process began." }
        }
    }
}
