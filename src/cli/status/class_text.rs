//! One class with its settings and limits, as text.

use super::surroundings::Shown;
use super::text::{Drawing, leader, one, open_claims, size, state, verdicts};
use crate::cli::bar::bar;
use crate::cli::table::{Cell, Table};
use crate::overview::{ClassRow, PoolRow, RecipeRow};

/// Returns the class as sections with an empty line in between.
pub(super) fn text(shown: Shown<'_>, class: &ClassRow, drawing: Drawing) -> String {
    let mut sections = vec![leader(shown), facts(class, drawing)];
    if let Ok(recipe) = &class.recipe {
        sections.push(limits(shown.without_jobs, class, recipe, drawing));
    }
    sections.extend(verdicts(shown));
    sections.extend(open_claims(shown.overview, drawing));
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
    let mut row = |name: &str, used: Option<u64>, limit: u64, text: &dyn Fn(u64) -> String| {
        let drawn = match used {
            Some(used) => format!("{} {}", bar(used.into(), limit.into()), text(used)),
            None => "not known".to_owned(),
        };
        table.row([Cell::from(name), drawn.into(), text(limit).into()]);
    };
    let number = |number: u64| number.to_string();
    row("max-in-flight", class.runs.map(|runs| runs as u64), recipe.max_in_flight as u64, &number);
    if let Some(volumes) = recipe.max_volumes {
        row("max-volumes", Some(class.used_volumes), volumes, &number);
    }
    if let Some(bytes) = recipe.max_bytes {
        row("max-bytes", Some(class.used_bytes), bytes, &size);
    }
    for PoolRow { size: bytes, high, ready, .. } in &class.pools {
        row(&format!("pool of {}", size(*bytes)), Some(*ready as u64), *high as u64, &number);
    }
    let mut text = table.text(drawing.coloured);
    if let Some(why) = without_jobs {
        text += &format!("The runs in progress are not known: {}\n", one(why));
    }
    text
}
