//! The lists of `status`, and the check of its class.

use anyhow::bail;
use flex_core::config::classes::{ClassLookup, Classes, Identity};
use flex_provisioner::clock::Clock;
use flex_provisioner::state::index::Index;
use kube::Client;

use super::args::StatusArgs;
use crate::collect;

/// Lists all that the overview needs. Returns also the reason if no Job could be listed.
///
/// # Errors
/// If a list fails, or if there is no such class.
pub(super) async fn listed(
    client: &Client,
    identity: &Identity,
    clock: &Clock,
    args: &StatusArgs,
) -> anyhow::Result<(Index, Option<String>)> {
    let (index, without_jobs) = collect::overview(client, identity, clock).await?;
    known(&index.classes(), identity, args.class.as_deref())?;
    Ok((index, without_jobs))
}

/// Checks that the orchestrator serves a class.
fn known(classes: &Classes, identity: &Identity, class: Option<&str>) -> anyhow::Result<()> {
    let Some(class) = class.filter(|class| !matches!(classes.lookup(class), ClassLookup::Ours(_))) else {
        return Ok(());
    };
    let known: Vec<_> = classes.iter().map(|class| class.name.clone()).collect();
    bail!("class {class} is not served by {}: its classes are {}", identity.provisioner, known.join(", "));
}

/// Checks that the orchestrator serves the class that is to be shown.
///
/// # Errors
/// If it does not, or if the user may not read classes and configs.
pub(super) async fn check_class(
    client: &Client,
    identity: &Identity,
    clock: &Clock,
    class: Option<&str>,
) -> anyhow::Result<()> {
    match class {
        Some(_) => known(&*collect::classes(client, identity, clock).await?, identity, class),
        None => Ok(()),
    }
}
