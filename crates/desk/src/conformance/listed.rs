//! The list of the storage, where a case cannot see its files.

use flex_contract::listing::{self, Entry};
use flex_core::config::capability;

use super::bench::{Bench, Halt, Step, check};
use crate::order::Order;

/// Returns what a list run prints; `None` if the config has none.
pub(super) async fn list(bench: &Bench) -> Step<Option<Vec<Entry>>> {
    if !bench.setting.recipe.can(capability::LIST) {
        return Ok(None);
    }
    let ended = bench.succeed(&Order::List).await?;
    listing::read(&ended.log).map(Some).map_err(|error| Halt::Failed(error.to_string()))
}

/// Checks that the files or a list run show a volume that exists. Otherwise its absence after a deletion proves nothing.
pub(super) async fn shown_by_storage(bench: &Bench, id: &str) -> Step<()> {
    if bench.shows(id) {
        return Ok(());
    }
    let Some(entries) = list(bench).await? else {
        let why =
            "the storage of the volume is not on this machine, and the config does not declare the capability list";
        return Err(Halt::Skipped(why.into()));
    };
    check(entries.iter().any(|entry| entry.id == id), || {
        "a list run does not print the volume, whose storage is not on this machine".into()
    })
}

/// Checks with a list run, if the config has them, that the backend has no volume with an id.
pub(super) async fn unlisted(bench: &Bench, id: &str) -> Step<()> {
    let entries = list(bench).await?.unwrap_or_default();
    check(entries.iter().all(|entry| entry.id != id), || "a list run still prints it".into())
}
