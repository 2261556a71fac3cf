//! The HTML of the status page: pure functions of its model.
//!
//! Texts of others are only ever text nodes and attributes, which `maud` escapes. The pages have no script and no style of
//! their own, and need none to be read.

mod bar;
pub mod claims;
pub mod lists;
pub mod overview;
pub mod runs;

use maud::{DOCTYPE, Markup, PreEscaped, Render, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::model::{Counts, Document, Head, Nothing, Rows};
use crate::age::age;

/// The characters of a path segment that are escaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The place of a page in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// The overview.
    Overview,
    /// Claims in flight, and one claim.
    Claims,
    /// Runs that make no volume.
    Runs,
    /// Failures.
    Failures,
    /// Findings.
    Findings,
    /// Configs.
    Configs,
}

/// Whether something is well. Each kind has a colour and a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Good,
    Busy,
    Warning,
    Bad,
    Quiet,
}

/// Returns a state: a word on its colour.
fn badge(tone: Tone, text: &str) -> Markup {
    let class = match tone {
        Tone::Good => "badge good",
        Tone::Busy => "badge busy",
        Tone::Warning => "badge warning",
        Tone::Bad => "badge bad",
        Tone::Quiet => "badge quiet",
    };
    html! { span class=(class) { (text) } }
}

/// Returns a whole page.
fn layout<B>(document: &Document<B>, tab: Tab, title: &str, main: &Markup) -> String {
    let head = &document.head;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · " (head.provisioner) }
                link rel="icon" type="image/svg+xml" href="/assets/icon.svg";
                link rel="stylesheet" href="/assets/style.css";
                script src="/assets/refresh.js" defer {}
            }
            body {
                a class="skip" href="#main" { "Skip to the content" }
                (header(head, tab))
                main id="main" data-live { (standby(head)) (main) }
                (footer(head))
            }
        }
    };
    page.into_string()
}

fn header(head: &Head, tab: Tab) -> Markup {
    let Counts { claims, runs, failures, findings, configs, refused } = head.counts;
    let link = |to: Tab, href: &str, text: &str, count: &Markup| {
        html! { a href=(href) aria-current=[(to == tab).then_some("page")] { (text) (count) } }
    };
    let quiet = |count: usize| html! { " " span class="count" { (count) } };
    let alarm = |count: usize| html! { " " span class={ "count" @if count > 0 { " alarm" } } { (count) } };
    let refused = html! { (quiet(configs)) @if refused > 0 { " " span class="count alarm" { (refused) " refused" } } };
    html! {
        header data-live {
            div class="brand" {
                (logo())
                div {
                    p class="name" { bdi { (head.provisioner) } }
                    p class="where" { "instance " bdi { (head.instance) } " in " bdi { (head.namespace) } }
                }
                @if head.leads { (badge(Tone::Good, "Leads")) } @else { (badge(Tone::Quiet, "Stands by")) }
            }
            nav aria-label="Pages" {
                (link(Tab::Overview, "/", "Overview", &html! {}))
                (link(Tab::Claims, "/claims", "Claims", &quiet(claims)))
                (link(Tab::Runs, "/runs", "Runs", &quiet(runs)))
                (link(Tab::Failures, "/failures", "Failures", &alarm(failures)))
                (link(Tab::Findings, "/findings", "Findings", &alarm(findings)))
                (link(Tab::Configs, "/configs", "Configs", &refused))
            }
        }
    }
}

fn logo() -> Markup {
    html! {
        svg class="logo" viewBox="0 0 32 32" aria-hidden="true" {
            rect width="32" height="32" rx="8" {}
            path d="M10 24V8h12M10 16h9" {}
        }
    }
}

/// Says that another replica does the work, if that is so.
fn standby(head: &Head) -> Markup {
    html! {
        @if !head.is_ready {
            p class="notice" { strong { "Not ready. " } "The first lists are not complete, so this page does not show all objects yet." }
        }
        @if !head.leads {
            p class="notice" {
                strong { "This replica does not lead. " }
                @match &head.leader {
                    Some(leader) => { "The Lease names " bdi { (leader) } ", whose page also has the numbers of the last hour and the findings." }
                    None => { "As far as it knows, none does: then nobody makes, binds or deletes a volume." }
                }
            }
        }
    }
}

fn footer(head: &Head) -> Markup {
    html! {
        footer {
            p data-live { "Observed at " (moment(head.at)) " by " bdi { (head.replica) } ", version " (head.version) "." }
            p { span id="refresh" role="status" {} noscript { "Reload the page to see changes." } }
            p { a href="?format=json" { "This page as JSON" } }
        }
    }
}

/// Returns a table whose rows become cards on a narrow screen. Each cell must name its column with [`cell`].
fn table(columns: &[&str], rows: &[Markup]) -> Markup {
    html! {
        div class="table" {
            table {
                thead { tr { @for column in columns { th scope="col" { (column) } } } }
                tbody { @for row in rows { tr { (row) } } }
            }
        }
    }
}

/// Returns a cell with the name of its column, which a narrow screen shows beside it.
fn cell(column: &str, content: &impl Render) -> Markup {
    html! { td data-label=(column) { div { (content.render()) } } }
}

/// Says how many rows are left out.
fn more<T>(rows: &Rows<T>) -> Markup {
    html! { @if rows.more > 0 { p class="more" { "and " (rows.more) " more" } } }
}

/// Says that a list is empty, which mostly is good.
fn nothing(text: &str) -> Markup {
    html! { p class="nothing" { (text) } }
}

/// Returns a time, in seconds since 1970, in the form of RFC 3339.
fn moment(at: i64) -> Markup {
    let text = jiff::Timestamp::from_second(at).map(|time| time.to_string()).unwrap_or_default();
    html! { time datetime=(text) { (text.replace('T', " ")) } }
}

/// Returns how long ago a time was, with the time itself as the title.
fn ago(at: i64, now: i64) -> Markup {
    let text = jiff::Timestamp::from_second(at).map(|time| time.to_string()).unwrap_or_default();
    html! { time datetime=(text) title=(text) { (age(now - at)) " ago" } }
}

/// Returns a time span in milliseconds, for people.
fn span(milliseconds: i64) -> String {
    match milliseconds {
        ..1000 => format!("{} ms", milliseconds.max(0)),
        1000..60_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => age(milliseconds / 1000),
    }
}

/// Returns the name of an object in its namespace. A volume has none.
fn object_name(namespace: &str, name: &str) -> Markup {
    html! {
        @if !namespace.is_empty() { span class="namespace" { bdi { (namespace) } "/" } }
        bdi { (name) }
    }
}

/// Returns the path of a claim's page.
fn claim_path(namespace: &str, name: &str) -> String {
    let segment = |text| utf8_percent_encode(text, SEGMENT);
    format!("/claims/{}/{}", segment(namespace), segment(name))
}

/// Returns a page that says why there is none.
pub fn problem(document: &Document<Nothing>, title: &str, why: &str) -> String {
    layout(document, Tab::Overview, title, &html! { h1 { (title) } p { (why) } p { a href="/" { "Overview" } } })
}

/// Returns a link to a claim.
fn claim_link(namespace: &str, name: &str) -> Markup {
    html! { a href=(claim_path(namespace, name)) { (object_name(namespace, name)) } }
}

/// A space that keeps two words on one line.
const NBSP: PreEscaped<&str> = PreEscaped("&nbsp;");

#[cfg(test)]
mod tests;
