//! The overview as text.

use std::collections::BTreeMap;

use flex_core::capacity::Published;
use flex_core::claim::progress::Progress;
use flex_core::config::Problem;
use flex_core::policies::{self, CheckedPolicy};
use flex_core::text::printable;
use flex_provisioner::age::age;
use flex_provisioner::class_health::health::Health;
use flex_provisioner::class_health::row::Row;
use flex_provisioner::overview::{ClassRow, Overview, PoolRow, VolumeRow};

use super::surroundings::{Capacities, Policies, Shown};
use crate::bar::bar;
use crate::name::{name, told};
use crate::table::{Cell, Table, Tone};

/// How the text is drawn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drawing {
    /// Texts have colours.
    pub(super) coloured: bool,
    /// The tables have all columns.
    pub(super) wide: bool,
    /// The columns of the terminal, into which tables must fit; `None` for any width.
    pub(super) width: Option<usize>,
    /// The largest number of claims in the table of claims; `None` for all.
    pub(super) claims: Option<usize>,
}

/// The narrowest terminal that has room for bars beside numbers, the volumes of the last hour and the attempts.
const ROOM_FOR_BARS: usize = 100;

impl Drawing {
    fn is_narrow(self) -> bool {
        self.width.is_some_and(|width| width < ROOM_FOR_BARS)
    }
}

/// Returns the overview as sections with an empty line in between.
pub(super) fn text(shown: Shown<'_>, drawing: Drawing) -> String {
    let volumes = &shown.overview.volumes;
    let mut sections = vec![leader(shown), classes(shown.overview, drawing)];
    sections.extend(pool_table(&shown.overview.classes, drawing));
    sections.extend(verdicts(shown));
    sections.extend(open_claims(shown, drawing));
    sections.extend(kept(&shown.overview.kept));
    sections.extend(failed_expansions(volumes, drawing));
    sections.extend(failed_modifications(volumes, drawing));
    sections.extend(failed_deletions(volumes, drawing));
    let more = shown.overview.more_volumes;
    sections.extend((more > 0).then(|| format!("… and {more} more volumes with failed runs\n")));
    sections.extend(ignored_configs(shown));
    sections.extend(shown.without_jobs.map(|why| format!("The runs in progress are not known: {}\n", told(why))));
    sections.extend(capacities(&shown.surroundings.capacities, drawing));
    sections.push(policy_table(&shown.surroundings.policies, drawing));
    sections.join("\n")
}

pub(super) fn leader(shown: Shown<'_>) -> String {
    let identity = shown.identity;
    let state = match &shown.surroundings.leader {
        Ok(state) | Err(state) => told(state),
    };
    format!("Orchestrator {} in namespace {}: {state}.\n", identity.instance, identity.namespace)
}

pub(super) fn classes(overview: &Overview, drawing: Drawing) -> String {
    let mut headings = vec!["CLASS", "CLAIMS", "RUNS"];
    if !drawing.is_narrow() {
        headings.push("LAST HOUR");
    }
    if drawing.wide {
        headings.extend(["OBJECT", "CONFIG"]);
    }
    headings.push("STATE");
    let mut table = Table::new(headings);
    for class in &overview.classes {
        let recipe = class.recipe.as_ref().ok();
        let limit = recipe.map(|recipe| recipe.max_in_flight);
        let claims = counts(&class.claims, drawing);
        let mut row: Vec<Cell> =
            vec![class.name.as_str().into(), claims.into(), limited(class.runs, limit, drawing).into()];
        if !drawing.is_narrow() {
            row.push(class.last_hour.to_string().into());
        }
        if drawing.wide {
            row.push(if class.has_object { "yes" } else { "label only" }.into());
            row.push(recipe.map(|recipe| recipe.version.as_str()).unwrap_or_default().into());
        }
        row.push(state(class));
        table.row(row);
    }
    match table.is_empty() {
        true => format!("There are no classes: {} check says what is missing.\n", name()),
        false => table.fitted(drawing.coloured, drawing.width),
    }
}

/// Returns the number of claims in each state. On a narrow terminal, all that are not bound are open.
fn counts(claims: &BTreeMap<Progress, usize>, drawing: Drawing) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for (state, count) in claims {
        let word = if drawing.is_narrow() && *state != Progress::Bound { "open" } else { state.as_str() };
        match counts.last_mut() {
            Some((last, sum)) if *last == word => *sum += count,
            _ => counts.push((word, *count)),
        }
    }
    counts.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", ")
}

/// Returns the state of a class, with its tone.
pub(super) fn state(class: &ClassRow) -> Cell {
    let health = &class.health;
    let tone = match (class.recipe.is_err() || health.is_failing(), health) {
        (true, _) => Tone::Bad,
        (false, Health { slow: 0, warned: false, .. }) if !class.last_good => Tone::Good,
        (false, _) => Tone::Warning,
    };
    Cell::toned(class.verdict.as_str(), tone)
}

/// Returns a bar with the numbers, such as `██░░░░░░░░ 2/10`, or the numbers alone on a narrow terminal.
fn limited(used: Option<usize>, limit: Option<usize>, drawing: Drawing) -> String {
    match (used, limit) {
        (Some(used), Some(limit)) if drawing.is_narrow() => format!("{used}/{limit}"),
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

fn pool_table(classes: &[ClassRow], drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["POOL OF CLASS", "SIZE", "READY", "TO BE KEPT"]);
    for class in classes {
        for PoolRow { size: bytes, low, high, ready } in &class.pools {
            let kept = if low == high { low.to_string() } else { format!("{low}..{high}") };
            table.row([class.name.as_str().into(), size(*bytes).into(), ready.to_string().into(), kept.into()]);
        }
    }
    (!table.is_empty()).then(|| table.fitted(drawing.coloured, drawing.width))
}

/// Returns what the configs say: one section for each class that is left to others, and for each verdict with problems.
pub(super) fn verdicts(shown: Shown<'_>) -> Vec<String> {
    let Shown { overview, class, .. } = shown;
    let left = overview.left.iter().filter(|_| class.is_none());
    let left = left
        .map(|(class, why)| format!("The provisioner leaves StorageClass {} to another: {}\n", told(class), told(why)));
    let serves_shown = |classes: &[String]| {
        classes.is_empty() && class.is_none()
            || classes.iter().any(|name| overview.classes.iter().any(|class| class.name == *name))
    };
    let of_shown = || overview.configs.iter().filter(|config| serves_shown(&config.classes));
    let listed = |problems: &[Problem]| -> String {
        problems.iter().map(|problem| format!("  {}\n", printable(&problem.to_string(), usize::MAX))).collect()
    };
    let warned = of_shown()
        .filter(|config| !config.warnings.is_empty())
        .map(|config| format!("ConfigMap {} is accepted, but:\n{}", told(&config.name), listed(&config.warnings)));
    let refused = of_shown()
        .filter(|config| !config.problems.is_empty())
        .map(|config| format!("ConfigMap {} is refused:\n{}", told(&config.name), listed(&config.problems)));
    left.chain(warned).chain(refused).collect()
}

/// The column of a claim's attempt, which a narrow terminal does not have.
const ATTEMPT: usize = 3;

pub(super) fn open_claims(of: Shown<'_>, drawing: Drawing) -> Option<String> {
    let open = of.overview.open_claims();
    let shown = drawing.claims.unwrap_or(open.len());
    let mut headings = vec!["CLAIM", "CLASS", "STATE", "AGE", "NEXT TRY", "REASON"];
    if !drawing.is_narrow() {
        headings.insert(ATTEMPT, "ATTEMPT");
    }
    let mut table = Table::new(headings);
    for row in open.iter().take(shown) {
        let Row { claim, class, state, attempt, next_try, .. } = *row;
        let tone = match *state {
            Progress::Failed | Progress::Refused => Tone::Bad,
            _ if row.failure.is_some() => Tone::Warning,
            _ => Tone::Plain,
        };
        let next_try = next_try.map(|seconds| if seconds == 0 { "now".to_owned() } else { age(seconds) });
        let mut cells: Vec<Cell> = vec![
            crate::left::shown(claim).into(),
            class.as_str().into(),
            Cell::toned(state.as_str(), tone),
            age(row.age).into(),
            next_try.unwrap_or_default().into(),
            row.reason().into(),
        ];
        if !drawing.is_narrow() {
            cells.insert(ATTEMPT, attempt.to_string().into());
        }
        table.row(cells);
    }
    let rest = open.len().saturating_sub(shown).saturating_add(of.overview.more_claims);
    let mut more = if rest > 0 { format!("… and {rest} more\n") } else { String::new() };
    if open.iter().take(shown).any(|row| row.state == Progress::Waiting && row.waits_for.is_none()) {
        more += &format!("For whom a claim waits: {} trace CLAIM\n", name());
    }
    if of.elsewhere > 0 {
        more += &format!("Claims of other namespaces that are not bound: {} ({} status -A)\n", of.elsewhere, name());
    }
    let table = if table.is_empty() { String::new() } else { table.fitted(drawing.coloured, drawing.width) };
    Some(table + &more).filter(|text| !text.is_empty())
}

/// Says of which deleted claims storage may be left, which their classes keep.
fn kept(claims: &[String]) -> Option<String> {
    const NAMED: usize = 3;
    let more = claims.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named: Vec<String> = claims.iter().take(NAMED).map(|claim| told(claim)).collect();
    let named = named.join(", ");
    (!claims.is_empty()).then(|| {
        format!("Storage of deleted claims may be left, which their classes keep: {named}{more}\n  Where to look: {} doctor\n", name())
    })
}

fn failed_expansions(volumes: &[VolumeRow], drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "SIZE", "WANTED", "ATTEMPT", "LAST FAILED EXPAND RUN"]);
    for volume in volumes {
        let Some(failed) = volume.expansion.as_ref() else { continue };
        table.row([
            volume.name.as_str().into(),
            volume.size.map(size).unwrap_or_default().into(),
            size(failed.size).into(),
            failed.attempt.to_string().into(),
            format!("{}: {}", failed.reason, failed.message).into(),
        ]);
    }
    (!table.is_empty()).then(|| table.fitted(drawing.coloured, drawing.width))
}

fn failed_modifications(volumes: &[VolumeRow], drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "ATTEMPT", "LAST FAILED MODIFY RUN"]);
    for volume in volumes {
        let note = volume.modification.as_ref().filter(|note| note.failed_attempt > 0);
        let Some(note) = note else { continue };
        let why = format!("{}: {}", note.reason, note.message);
        table.row([volume.name.as_str().into(), note.failed_attempt.to_string().into(), why.into()]);
    }
    (!table.is_empty()).then(|| table.fitted(drawing.coloured, drawing.width))
}

fn failed_deletions(volumes: &[VolumeRow], drawing: Drawing) -> Option<String> {
    let mut table = Table::new(["VOLUME", "PHASE", "LAST FAILED DELETE RUN"]);
    for volume in volumes {
        let Some(failure) = volume.last_failure.as_ref() else { continue };
        let why = format!("{}: {}", failure.reason, failure.message);
        table.row([volume.name.as_str().into(), volume.phase.as_str().into(), why.into()]);
    }
    (!table.is_empty()).then(|| table.fitted(drawing.coloured, drawing.width))
}

fn ignored_configs(shown: Shown<'_>) -> Vec<String> {
    let namespaces = shown.identity.config_namespaces.join(", ");
    let unseen = shown.surroundings.unseen_configs.iter();
    unseen
        .map(|config| {
            let config = told(&config.to_string());
            format!("ConfigMap {config} is ignored: the provisioner reads configs only in {namespaces}\n")
        })
        .collect()
}

fn capacities(capacities: &Capacities, drawing: Drawing) -> Option<String> {
    let published = match capacities {
        Ok(published) => published,
        Err(why) => return Some(format!("The capacity that the scheduler sees is not known: {}\n", told(why))),
    };
    let mut table = Table::new(["CLASS", "WHERE", "FREE", "LAST FAILED CAPACITY RUN"]);
    for published in published {
        let Published { class, topology, record, .. } = published;
        let Some(record) = record else { continue };
        let at: Vec<_> = topology.iter().map(|(label, value)| format!("{label}={value}")).collect();
        let at = if at.is_empty() { "everywhere".to_owned() } else { at.join(",") };
        table.row([class.as_str().into(), at.into(), published.describe().into(), record.message.as_str().into()]);
    }
    (!table.is_empty()).then(|| table.fitted(drawing.coloured, drawing.width))
}

fn policy_table(policies: &Policies, drawing: Drawing) -> String {
    let states = match policies {
        Ok(states) => states,
        Err(why) => return format!("Whether the admission policies are installed is not known: {}\n", told(why)),
    };
    let mut table = Table::new(["POLICY", "KIND", "STATE"]);
    for CheckedPolicy { policy, state } in states {
        let tone = if state.is_installed() { Tone::Good } else { Tone::Warning };
        table.row([policy.name.into(), policy.kind.policy().into(), Cell::toned(state.describe(), tone)]);
    }
    let off: Vec<_> = states.iter().filter(|checked| !checked.state.is_installed()).collect();
    let table = table.fitted(drawing.coloured, drawing.width);
    if off.is_empty() {
        return if drawing.wide { table } else { "All admission policies are installed.\n".to_owned() };
    }
    let without: String = off.iter().map(|checked| format!("  {}\n", checked.policy.without)).collect();
    format!("{table}Off without them:\n{without}Install them: {}\n", policies::INSTALL)
}
