//! The overview as HTML.

use maud::{Markup, html};

use super::{NBSP, Tab, Tone, badge, cell, layout, nothing, table};
use crate::age::age;
use crate::page::model::overview::{ClaimCounts, ClassRow, ClassState, Hour, Limits, Overview, Policies, PoolRow};
use crate::page::model::{Counts, Document, Head};

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
        .map(|class| {
            html! {
                (cell("Class", &html! {
                    strong { bdi { (class.name) } }
                    @if let Some(config) = &class.config { small { bdi { (config) } } }
                    @if class.waits_for_pod { small { "waits for the first pod" } }
                }))
                (cell("State", &state(class)))
                (cell("Runs", &runs(class.runs, &class.limits)))
                (cell("Volumes", &volumes(class)))
                (cell("Pool", &pools(&class.pools)))
                (cell("In flight", &in_flight(class.claims)))
                (cell("Last hour", &html! { (class.hour.bound) (NBSP) "bound" }))
                (cell("p95", &p95(class.hour)))
            }
        })
        .collect()
}

fn state(class: &ClassRow) -> Markup {
    let (tone, text) = match class.state {
        ClassState::Served => (Tone::Good, "Served"),
        ClassState::Failing => (Tone::Bad, "Failing"),
        ClassState::LastGood => (Tone::Warning, "Old version"),
        ClassState::NotServed => (Tone::Bad, "Not served"),
    };
    html! { (badge(tone, text)) @if let Some(why) = &class.why { small { bdi { (why) } } } }
}

fn runs(runs: usize, limits: &Limits) -> Markup {
    html! {
        (of(runs, limits.runs))
        @if let Some(most) = limits.runs_per_namespace { small { (most) (NBSP) "per namespace" } }
        @if let Some(most) = limits.runs_per_node { small { (most) (NBSP) "per node" } }
    }
}

fn volumes(class: &ClassRow) -> Markup {
    let limits = &class.limits;
    html! {
        (of(class.volumes, limits.volumes))
        small { (class.bytes) @if let Some(most) = &limits.bytes { " of " (most) } }
        @if let Some(most) = limits.namespace_volumes { small { (most) (NBSP) "per namespace" } }
        @if let Some(most) = &limits.namespace_bytes { small { (most) (NBSP) "per namespace" } }
    }
}

fn of<N: maud::Render>(number: N, most: Option<N>) -> Markup {
    html! { span class="number-of" { (number) @if let Some(most) = most { span class="dim" { " of " (most) } } } }
}

fn pools(pools: &[PoolRow]) -> Markup {
    html! {
        @if pools.is_empty() { span class="dim" { "none" } }
        @for PoolRow { size, ready, low, high } in pools {
            div class="line" {
                (size) ": " (ready) " ready"
                span class="dim" { ", keeps " (low) @if low != high { "–" (high) } }
            }
        }
    }
}

fn in_flight(claims: ClaimCounts) -> Markup {
    let ClaimCounts { waiting, running, failed, deleting } = claims;
    let parts = [(running, "running"), (waiting, "waiting"), (failed, "failed"), (deleting, "deleting")];
    html! {
        @if claims.all() == 0 { span class="dim" { "none" } }
        @for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
            div class={ "line" @if what == "failed" { " failed" } } { (count) (NBSP) (what) }
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
