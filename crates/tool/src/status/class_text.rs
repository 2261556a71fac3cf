//! One class with its settings and limits, as text.

use flex_provisioner::overview::{ClassRow, PoolRow, RecipeRow};

use super::surroundings::Shown;
use super::text::{Drawing, leader, open_claims, size, state, verdicts};
use crate::bar::bar;
use crate::name::told;
use crate::table::{Cell, Table};

/// Returns the class as sections with an empty line in between.
pub(super) fn text(shown: Shown<'_>, class: &ClassRow, drawing: Drawing) -> String {
    let mut sections = vec![leader(shown), facts(class, drawing)];
    if let Ok(recipe) = &class.recipe {
        sections.push(limits(shown.without_jobs, class, recipe, drawing));
    }
    sections.extend(verdicts(shown));
    sections.extend(open_claims(shown, drawing));
    sections.join("\n")
}

fn facts(class: &ClassRow, drawing: Drawing) -> String {
    let mut table = Table::new(["CLASS", class.name.as_str()].map(|heading| heading.to_owned()));
    table.row(["state".into(), state(class)]);
    let object = match class.has_object {
        true => format!("StorageClass of provisioner {}", class.provisioner),
        false => "none: only the label of the config makes the class".to_owned(),
    };
    table.row(["object".into(), object.into()]);
    let served = if class.waits_for_consumer { "when a pod uses the claim" } else { "at once" };
    table.row(["claims are served".into(), served.into()]);
    if let Ok(recipe) = &class.recipe {
        let image = if recipe.image.is_empty() { "the shell image" } else { &recipe.image };
        table.row(["config".into(), recipe.version.as_str().into()]);
        table.row(["image".into(), image.into()]);
        table.row(["capabilities".into(), recipe.capabilities.join(", ").into()]);
        table.row(["reclaim policy".into(), recipe.reclaim_policy.as_str().into()]);
        for (name, value) in &recipe.parameters {
            table.row([format!("parameter {name}").into(), value.as_str().into()]);
        }
    }
    let rates = format!("{} in the last minute, {} in the last hour", class.last_minute, class.last_hour);
    table.row(["volumes made".into(), rates.into()]);
    table.text(drawing.coloured)
}

/// Returns the limits of a class, with how much of each is used.
fn limits(without_jobs: Option<&str>, class: &ClassRow, recipe: &RecipeRow, drawing: Drawing) -> String {
    let mut table = Table::new(["LIMIT", "USED", "OF"].map(str::to_owned));
    let mut row = |name: &str, used: String, of: String| table.row([Cell::from(name), used.into(), of.into()]);
    let number = |number: u64| number.to_string();
    let runs = class.runs.map(|runs| drawn(runs as u64, recipe.max_in_flight as u64, &runs.to_string()));
    row("max-in-flight", runs.unwrap_or_else(|| "not known".to_owned()), recipe.max_in_flight.to_string());
    // Nobody counts the runs of each namespace and node here.
    if let Some(most) = recipe.max_in_flight_per_namespace {
        row("max-in-flight-per-namespace", String::new(), most.to_string());
    }
    if let Some(most) = recipe.max_in_flight_per_node {
        row("max-in-flight-per-node", String::new(), most.to_string());
    }
    if let Some(most) = recipe.max_volumes {
        row("max-volumes", drawn(class.used_volumes, most, &number(class.used_volumes)), number(most));
    }
    if let Some(most) = recipe.max_bytes {
        row("max-bytes", drawn(class.used_bytes, most, &size(class.used_bytes)), size(most));
    }
    if let Some(most) = recipe.max_volumes_per_namespace {
        row("max-volumes-per-namespace", fullest(class.most_volumes.as_ref(), most, number), number(most));
    }
    if let Some(most) = recipe.max_bytes_per_namespace {
        row("max-bytes-per-namespace", fullest(class.most_bytes.as_ref(), most, size), size(most));
    }
    for PoolRow { size: bytes, high, ready, .. } in &class.pools {
        let used = drawn(*ready as u64, *high as u64, &ready.to_string());
        row(&format!("pool of {}", size(*bytes)), used, high.to_string());
    }
    let mut text = table.text(drawing.coloured);
    if let Some(why) = without_jobs {
        text += &format!("The runs in progress are not known: {}\n", told(why));
    }
    text
}

/// Draws how much of a limit is used.
fn drawn(used: u64, limit: u64, text: &str) -> String {
    format!("{} {text}", bar(used.into(), limit.into()))
}

/// Draws how much of its limit that namespace uses that uses most.
fn fullest(most: Option<&(String, u64)>, limit: u64, text: impl Fn(u64) -> String) -> String {
    match most {
        Some((namespace, used)) => drawn(*used, limit, &format!("{} in {namespace}", text(*used))),
        None => drawn(0, limit, &text(0)),
    }
}
