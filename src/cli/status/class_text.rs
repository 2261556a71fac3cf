//! One class with its settings and limits, as text.

use super::overview::{Overview, PoolRow, pools};
use super::text::{Drawing, leader, one, open_claims, size, state, verdicts};
use crate::cli::bar::bar;
use crate::cli::table::{Cell, Table};
use crate::config::Recipe;
use crate::config::classes::{BindingMode, Class};

/// Returns the class as sections with an empty line in between.
pub(super) fn text(overview: &Overview<'_>, class: &Class, drawing: Drawing) -> String {
    let mut sections = vec![leader(overview), facts(overview, class, drawing)];
    if let Ok(recipe) = &class.recipe {
        sections.push(limits(overview, class, recipe, drawing));
    }
    sections.extend(verdicts(overview));
    sections.extend(open_claims(overview, drawing));
    sections.join("\n")
}

fn facts(overview: &Overview<'_>, class: &Class, drawing: Drawing) -> String {
    let mut table = Table::new(["CLASS", class.name.as_str()].map(|heading| heading.to_owned()));
    table.row(["state".into(), state(overview, class)]);
    let object = match class.has_object {
        true => format!("StorageClass of provisioner {}", class.provisioner),
        false => "none: only the label of the config makes the class".to_owned(),
    };
    table.row(["object".into(), object.into()]);
    let binding = match class.binding {
        BindingMode::Immediate => "at once",
        BindingMode::WaitForFirstConsumer => "when a pod uses the claim",
    };
    table.row(["claims are served".into(), binding.into()]);
    if let Ok(recipe) = &class.recipe {
        let image = if recipe.image.is_empty() { "the shell image" } else { &recipe.image };
        table.row(["config".into(), recipe.version().into()]);
        table.row(["image".into(), image.into()]);
        table.row(["capabilities".into(), recipe.capabilities.join(", ").into()]);
        table.row(["reclaim policy".into(), recipe.reclaim_policy.as_str().into()]);
        for (name, value) in &recipe.parameters {
            table.row([format!("parameter {name}").into(), value.as_str().into()]);
        }
    }
    let made = overview.use_of(&class.name);
    let rates = format!("{} in the last minute, {} in the last hour", made.last_minute, made.last_hour);
    table.row(["volumes made".into(), rates.into()]);
    table.text(drawing.coloured)
}

/// Returns the limits of a class, with how much of each is used.
fn limits(overview: &Overview<'_>, class: &Class, recipe: &Recipe, drawing: Drawing) -> String {
    let used = overview.use_of(&class.name);
    let mut table = Table::new(["LIMIT", "USED", "OF"].map(str::to_owned));
    let mut row = |name: &str, used: Option<u128>, limit: u128, text: &dyn Fn(u128) -> String| {
        let drawn = match used {
            Some(used) => format!("{} {}", bar(used, limit), text(used)),
            None => "not known".to_owned(),
        };
        table.row([Cell::from(name), drawn.into(), text(limit).into()]);
    };
    let number = |number: u128| number.to_string();
    row("max-in-flight", used.runs.map(|runs| runs as u128), recipe.max_in_flight as u128, &number);
    if let Some(volumes) = recipe.quota.volumes {
        row("max-volumes", Some(used.quota.volumes.into()), volumes.into(), &number);
    }
    if let Some(bytes) = recipe.quota.bytes {
        row("max-bytes", Some(used.quota.bytes), bytes.into(), &|bytes| size(u64::try_from(bytes).unwrap_or(u64::MAX)));
    }
    for PoolRow { size: bytes, watermarks, ready, .. } in pools(&overview.classes, &overview.volumes) {
        let name = format!("pool of {}", size(bytes));
        row(&name, Some(ready as u128), watermarks.high as u128, &number);
    }
    let mut text = table.text(drawing.coloured);
    if let Some(why) = overview.without_jobs {
        text += &format!("The runs in progress are not known: {}\n", one(why));
    }
    text
}
