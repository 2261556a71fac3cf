//! `status`: shows the classes, the claims in progress, and the admission policies.

mod args;
mod asked;
mod class_text;
mod json;
mod live;
mod surroundings;
mod text;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kube::Client;

pub(super) use self::args::StatusArgs;
use self::surroundings::{Shown, Surroundings};
use self::text::Drawing;
use super::doctor::collect;
use super::out::say;
use crate::api::client::Connection;
use crate::clock::Clock;
use crate::config::classes::{ClassLookup, Classes, Identity};
use crate::object::ObjectName;
use crate::overview::collect::{Scope, overview};
use crate::state::index::Index;

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&args))?;
    Ok(ExitCode::SUCCESS)
}

async fn work(args: &StatusArgs) -> anyhow::Result<()> {
    let (Connection { client, clock, .. }, identity) = args.cluster.open().await?;
    if args.watch {
        return live::watch(client, identity, args).await.context("the state cannot be watched");
    }
    let (index, without_jobs) = listed(&client, &identity, &clock, args).await?;
    let surroundings = Surroundings::read(&client, &identity, &clock).await;
    let (class, without_jobs) = (args.class.as_deref(), without_jobs.as_deref());
    let scope = args.form.scope(usize::MAX);
    let overview = overview(&index, (&identity.instance, class), scope, clock.now(), without_jobs.is_none());
    let shown = Shown { identity: &identity, surroundings: &surroundings, overview: &overview, without_jobs, class };
    say!("{}", args.form.text(shown, args.drawing(None))?.trim_end());
    Ok(())
}

/// Lists all that the overview needs. Returns also the reason if no Job could be listed.
///
/// # Errors
/// If a list fails, or if there is no such class.
async fn listed(
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

/// Returns the state of all classes as text, and the names of the claims that are not bound: first those whose attempts
/// fail, then the oldest.
///
/// # Errors
/// If the objects cannot be read.
pub(super) async fn page(
    client: &Client,
    identity: &Identity,
    clock: &Clock,
) -> anyhow::Result<(String, Vec<ObjectName>)> {
    let (index, without_jobs) = collect::overview(client, identity, clock).await?;
    let surroundings = Surroundings::read(client, identity, clock).await;
    let without_jobs = without_jobs.as_deref();
    let (all, scope) = ((identity.instance.as_str(), None), Scope::Open(usize::MAX));
    let overview = overview(&index, all, scope, clock.now(), without_jobs.is_none());
    let open = overview.open_claims().into_iter().filter_map(|row| row.claim.parse().ok()).collect();
    let shown = Shown { identity, surroundings: &surroundings, overview: &overview, without_jobs, class: None };
    Ok((text::text(shown, Drawing { wide: true, ..Drawing::default() }), open))
}

#[cfg(test)]
#[path = "status/tests.rs"]
mod tests;
