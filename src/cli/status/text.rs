//! The overview as text.

use super::overview::{Capacities, Overview, Policies, PoolRow, pools, states};
use crate::capacity::Published;
use crate::class_health::health::Health;
use crate::class_health::row::Row;
use crate::cli::age::age;
use crate::cli::bar::bar;
use crate::cli::table::{Cell, Table, Tone};
use crate::config::classes::Class;
use crate::config::pool::Watermarks;
use crate::policies::{self, CheckedPolicy};
use crate::text::line;

/// How the text is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawing {
    /// Texts have colours.
    pub(super) coloured: bool,
    /// The tables have all columns.
    pub(super) wide: bool,
    /// The largest number of claims in the table of claims; `None` for all.
    pub(super) claims: Option<usize>,
}

/// Returns the overview as sections with an empty line in between.
pub(super) fn text(overview: &Overview<'_>, drawing: Drawing) -> String {
    let mut sections = vec![leader(overview), classes(overview, drawing)];
    sections.extend(pool_table(overview, drawing));
    sections.extend(verdicts(overview));
    sections.extend(open_claims(overview, drawing));
    sections.extend(failed_expansions(overview, drawing));
    sections.extend(failed_modifications(overview, drawing));
    sections.extend(failed_deletions(overview, drawing));
    sections.extend(ignored_configs(overview));
    sections.extend(overview.without_jobs.map(|why| format!("The runs in progress are not known: {}\n", one(why))));
    sections.extend(capacities(&overview.surroundings.capacities, drawing));
    sections.push(policy_table(&overview.surroundings.policies, drawing));
    sections.join("\n")
}

/// Makes one line of a text of somebody else.
pub(super) fn one(text: &str) -> String {
    line(text, usize::MAX)
}

pub(super) fn leader(overview: &Overview<'_>) -> String {
    let identity = overview.identity;
    let state = match &overview.surroundings.leader {
        Ok(state) | Err(state) => one(state),
    };
    format!("Orchestrator {} in namespace {}: {state}.\n", identity.instance, identity.namespace)
}

pub(super) fn classes(overview: &Overview<'_>, drawing: Drawing) -> String {
    let mut headings = vec!["CLASS", "CLAIMS", "RUNS", "LAST HOUR"];
    if drawing.wide {
        headings.extend(["OBJECT", "CONFIG"]);
    }
    headings.push("STATE");
    let mut table = Table::new(headings);
    for class in &overview.classes {
        let recipe = class.recipe.as_ref().ok();
        let class_use = overview.use_of(&class.name);
        let limit = recipe.map(|recipe| recipe.max_in_flight);
        let claims = states(&overview.rows, &class.name);
        let claims: Vec<_> = claims.iter().map(|(state, count)| format!("{state} {count}")).collect();
        let mut row: Vec<Cell> = vec![
            class.name.as_str().into(),
            claims.join(", ").into(),
            limited(class_use.runs, limit).into(),
            class_use.last_hour.to_string().into(),
        ];
        if drawing.wide {
            row.push(if class.has_object { "yes" } else { "label only" }.into());
            row.push(recipe.map(|recipe| recipe.version()).unwrap_or_default().into());
        }
        row.push(state(overview, class));
        table.row(row);
    }
    match table.is_empty() {
        true => "There are no classes: kubectl flex check says what is missing.\n".to_owned(),
        false => table.text(drawing.coloured),
    }
}

/// Returns the state of a class, with its tone.
pub(super) fn state(overview: &Overview<'_>, class: &Class) -> Cell {
    let health = Health::of(&class.name, &overview.table, &overview.rows, &overview.volumes);
    let tone = match (class.recipe.is_err() || health.failing.is_some() || health.undeleted.is_some(), &health) {
        (true, _) => Tone::Bad,
        (false, Health { slow: 0, warned: false, .. }) if !class.last_good => Tone::Good,
        (false, _) => Tone::Warning,
    };
    Cell::toned(health.verdict(class), tone)
}

/// Returns a bar with the numbers, such as `██░░░░░░░░ 2/10`.
fn limited(used: Option<usize>, limit: Option<usize>) -> String {
    match (used, limit) {
        (Some(used), Some(limit)) => format!("{} {used}/{limit}", bar(used as u128, limit as u128)),
        (Some(used), None) => used.to_string(),
        (None, Some(limit)) => format!("?/{limit}"),
        (None, None) => String::new(),
    }
}

/// Returns a size as Kubernetes writes it.
pub(super) fn size(bytes: u64) -> String {
    flex_contract::quantity::quantity(bytes).0
}

fn pool_table(overview: &Overview<'_>, drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["POOL OF CLASS", "SIZE", "READY", "TO BE KEPT"]);
    for PoolRow { class, size: bytes, watermarks: Watermarks { low, high }, ready } in
        pools(&overview.classes, &overview.volumes)
    {
        let kept = if low == high { low.to_string() } else { format!("{low}..{high}") };
        table.row([class.into(), size(bytes).into(), ready.to_string().into(), kept.into()]);
    }
    (!table.is_empty()).then(|| table.text(drawing.coloured))
}

/// Returns what the configs say: one section for each class that is left to others, and for each verdict with problems.
pub(super) fn verdicts(overview: &Overview<'_>) -> Vec<String> {
    let table = &overview.table;
    let left = table.all_left_to_external_provisioners().filter(|_| !overview.of_one);
    let left = left.map(|(class, why)| format!("The provisioner leaves StorageClass {class} to another: {why}\n"));
    let serves_shown = |classes: &[String]| {
        classes.is_empty() && !overview.of_one
            || classes.iter().any(|name| overview.classes.iter().any(|class| class.name == *name))
    };
    let shown = || table.verdicts.iter().filter(|(_, verdict)| serves_shown(&verdict.classes));
    let warned = shown().filter(|(_, verdict)| !verdict.warnings.is_empty()).map(|(name, verdict)| {
        let warnings: String = verdict.warnings.iter().map(|warning| format!("  {warning}\n")).collect();
        format!("ConfigMap {} is accepted, but:\n{warnings}", one(&name.to_string()))
    });
    let refused = shown().filter(|(_, verdict)| !verdict.problems.is_empty()).map(|(name, verdict)| {
        let problems: String = verdict.problems.iter().map(|problem| format!("  {problem}\n")).collect();
        format!("ConfigMap {} is refused:\n{problems}", one(&name.to_string()))
    });
    left.chain(warned).chain(refused).collect()
}

pub(super) fn open_claims(overview: &Overview<'_>, drawing: Drawing) -> Option<String> {
    let open = overview.open_claims();
    let shown = drawing.claims.unwrap_or(open.len());
    let mut table = Table::new(["CLAIM", "CLASS", "STATE", "ATTEMPT", "AGE", "NEXT TRY", "REASON"]);
    for row in open.iter().take(shown) {
        let Row { claim, class, state, attempt, next_try, .. } = *row;
        let tone = match *state {
            "Failed" => Tone::Bad,
            _ if row.failure.is_some() => Tone::Warning,
            _ => Tone::Plain,
        };
        let next_try = next_try.map(|seconds| if seconds == 0 { "now".to_owned() } else { age(seconds) });
        table.row([
            claim.as_str().into(),
            class.as_str().into(),
            Cell::toned(*state, tone),
            attempt.to_string().into(),
            age(row.age).into(),
            next_try.unwrap_or_default().into(),
            row.reason().into(),
        ]);
    }
    let rest = open.len().saturating_sub(shown);
    let more = if rest > 0 { format!("… and {rest} more\n") } else { String::new() };
    (!table.is_empty()).then(|| table.text(drawing.coloured) + &more)
}

fn failed_expansions(overview: &Overview<'_>, drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "SIZE", "WANTED", "ATTEMPT", "LAST FAILED EXPAND RUN"]);
    for volume in &overview.volumes {
        let Some(failed) = volume.last_failed_expansion.as_ref() else { continue };
        table.row([
            volume.name.as_str().into(),
            volume.size.clone().map(size).unwrap_or_default().into(),
            size(failed.size).into(),
            failed.attempt.to_string().into(),
            format!("{}: {}", failed.reason, failed.message).into(),
        ]);
    }
    (!table.is_empty()).then(|| table.text(drawing.coloured))
}

fn failed_modifications(overview: &Overview<'_>, drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "ATTEMPT", "LAST FAILED MODIFY RUN"]);
    for volume in &overview.volumes {
        let note = volume.pending_modification.as_ref().filter(|note| note.failed_attempt > 0);
        let Some(note) = note else { continue };
        let why = format!("{}: {}", note.reason, note.message);
        table.row([volume.name.as_str().into(), note.failed_attempt.to_string().into(), why.into()]);
    }
    (!table.is_empty()).then(|| table.text(drawing.coloured))
}

fn failed_deletions(overview: &Overview<'_>, drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "PHASE", "LAST FAILED DELETE RUN"]);
    for volume in &overview.volumes {
        let Some(failure) = volume.last_failure.as_ref() else { continue };
        let why = format!("{}: {}", failure.reason, failure.message);
        table.row([volume.name.as_str().into(), volume.phase.as_str().into(), why.into()]);
    }
    (!table.is_empty()).then(|| table.text(drawing.coloured))
}

fn ignored_configs(overview: &Overview<'_>) -> Vec<String> {
    let namespaces = overview.identity.config_namespaces.join(", ");
    let unseen = overview.surroundings.unseen_configs.iter();
    unseen
        .map(|config| {
            let config = one(&config.to_string());
            format!("ConfigMap {config} is ignored: the provisioner reads configs only in {namespaces}\n")
        })
        .collect()
}

fn capacities(capacities: &Capacities, drawing: Drawing) -> Option<String> {
    let published = match capacities {
        Ok(published) => published,
        Err(why) => return Some(format!("The capacity that the scheduler sees is not known: {}\n", one(why))),
    };
    let mut table = Table::new(["CLASS", "WHERE", "FREE", "LAST FAILED CAPACITY RUN"]);
    for published in published {
        let Published { class, topology, record, .. } = published;
        let Some(record) = record else { continue };
        let at: Vec<_> = topology.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let at = if at.is_empty() { "everywhere".to_owned() } else { at.join(",") };
        table.row([class.as_str().into(), at.into(), published.describe().into(), record.message.as_str().into()]);
    }
    (!table.is_empty()).then(|| table.text(drawing.coloured))
}

fn policy_table(policies: &Policies, drawing: Drawing) -> String {
    let states = match policies {
        Ok(states) => states,
        Err(why) => return format!("Whether the admission policies are installed is not known: {}\n", one(why)),
    };
    let mut table = Table::new(["POLICY", "KIND", "STATE"]);
    for CheckedPolicy { policy, state } in states {
        let tone = if state.is_installed() { Tone::Good } else { Tone::Warning };
        table.row([policy.name.into(), policy.kind.policy().into(), Cell::toned(state.describe(), tone)]);
    }
    let off: Vec<_> = states.iter().filter(|checked| !checked.state.is_installed()).collect();
    let table = table.text(drawing.coloured);
    if off.is_empty() {
        return if drawing.wide { table } else { "All admission policies are installed.\n".to_owned() };
    }
    let without: String = off.iter().map(|checked| format!("  {}\n", checked.policy.without)).collect();
    format!("{table}Off without them:\n{without}Install them: {}\n", policies::INSTALL)
}
