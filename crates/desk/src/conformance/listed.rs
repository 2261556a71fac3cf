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

/// Checks with a list run, if the config has them, that the backend has no volume with an id.
pub(super) async fn unlisted(bench: &Bench, id: &str) -> Step<()> {
    let entries = list(bench).await?.unwrap_or_default();
    check(entries.iter().all(|entry| entry.id != id), || "a list run still prints it".into())
}
