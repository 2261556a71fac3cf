//! `status`: shows the classes, the claims in progress, and the admission policies.

mod args;
mod class_text;
mod json;
mod live;
mod overview;
mod text;

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kube::Client;

pub(super) use self::args::StatusArgs;
use self::overview::{Overview, Sources, Surroundings};
use self::text::Drawing;
use super::doctor::collect;
use super::out::say;
use crate::api::client::Connection;
use crate::clock::Clock;
use crate::config::classes::{ClassLookup, Identity};
use crate::object::ObjectName;

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(&args))?;
    Ok(ExitCode::SUCCESS)
}

async fn work(args: &StatusArgs) -> anyhow::Result<()> {
    let (Connection { client, clock, .. }, identity) = args.cluster.open().await?;
    // Also a watch begins with lists: their errors say which right is missing.
    let (index, without_jobs) = collect::overview(&client, &identity, &clock).await?;
    if let Some(class) = &args.class
        && !matches!(index.classes().lookup(class), ClassLookup::Ours(_))
    {
        let known: Vec<_> = index.classes().iter().map(|class| class.name.clone()).collect();
        bail!("class {class} is not served by {}: its classes are {}", identity.provisioner, known.join(", "));
    }
    if args.watch {
        if let Some(why) = without_jobs {
            bail!("--watch needs the right to list Jobs: {why}");
        }
        drop(index);
        return live::watch(client, identity, args).await.context("the state cannot be watched");
    }
    let surroundings = Surroundings::read(&client, &identity, &clock).await;
    let sources = Sources { identity: &identity, surroundings: &surroundings, without_jobs: without_jobs.as_deref() };
    let class = args.class.as_deref();
    let overview = Overview::of(&index, &sources, class, clock.now());
    say!("{}", args.form.text(&overview, class, args.drawing(None))?.trim_end());
    Ok(())
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
    let sources = Sources { identity, surroundings: &surroundings, without_jobs: without_jobs.as_deref() };
    let overview = Overview::of(&index, &sources, None, clock.now());
    let open = overview.open_claims().into_iter().filter_map(|row| row.claim.parse().ok()).collect();
    Ok((text::text(&overview, Drawing { wide: true, ..Drawing::default() }), open))
}

#[cfg(test)]
#[path = "status/tests.rs"]
mod tests;
