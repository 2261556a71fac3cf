//! `status`: shows the classes, the claims in progress, and the admission policies.

mod args;
mod asked;
mod class_text;
mod json;
mod listed;
mod live;
mod surroundings;
mod text;

use std::process::ExitCode;

use anyhow::Context as _;
use flex_core::claim::progress::Progress;
use flex_core::config::classes::Identity;
use flex_core::object::ObjectName;
use flex_core::text::line;
use flex_provisioner::api::claim_events;
use flex_provisioner::api::client::Connection;
use flex_provisioner::class_health::row::{MAX_FAILURE_TEXT, Row};
use flex_provisioner::clock::Clock;
use flex_provisioner::overview::Overview;
use flex_provisioner::overview::collect::{Scope, overview};
use flex_provisioner::state::index::Index;
use kube::Client;

pub(super) use self::args::StatusArgs;
use self::listed::listed;
use self::surroundings::{Shown, Surroundings};
use self::text::Drawing;
use crate::collect;
use crate::left::is_gone;
use crate::out::say;

pub(super) fn status(args: StatusArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(args))?;
    Ok(ExitCode::SUCCESS)
}

async fn work(mut args: StatusArgs) -> anyhow::Result<()> {
    let (Connection { client, namespace, has_context, clock, .. }, identity) = args.cluster.open().await?;
    args.namespaces.take_usual(has_context, &namespace);
    let args = &args;
    if args.watch {
        return live::watch(client, identity, args).await.context("the state cannot be watched");
    }
    let (index, without_jobs) = listed(&client, &identity, &clock, args).await?;
    let surroundings = Surroundings::read(&client, &identity, &clock).await;
    let (class, without_jobs) = (args.class.as_deref(), without_jobs.as_deref());
    let scope = args.scope(usize::MAX);
    let mut overview = overview(&index, (&identity.instance, class), scope, clock.now(), without_jobs.is_none());
    let elsewhere = args.limit(&mut overview);
    add_warnings(&client, &identity, &index, &mut overview, clock.now()).await;
    let (identity, surroundings, overview) = (&identity, &surroundings, &overview);
    let shown = Shown { identity, surroundings, overview, elsewhere, without_jobs, class };
    say!("{}", args.form.text(shown, args.drawing(None))?.trim_end());
    Ok(())
}

/// The number of claims whose events are read.
const MAX_WARNED: usize = 20;

/// Adds the orchestrator's last warning to claims that do not say themselves what they wait for, such as a write that a
/// webhook fails. If the events cannot be read, the claims stay without it.
async fn add_warnings(client: &Client, identity: &Identity, index: &Index, overview: &mut Overview, now: i64) {
    let waits = |row: &Row| matches!(row.state, Progress::Waiting | Progress::Running);
    let silent = |row: &&mut Row| waits(row) && row.waits_for.is_none() && row.failure.is_none();
    for row in overview.claims.iter_mut().filter(silent).take(MAX_WARNED) {
        let Some(claim) = row.claim.parse().ok().and_then(|name| index.claim(&name)) else { continue };
        let events = claim_events::read(client, &identity.provisioner, &claim).await.unwrap_or_default();
        // A warning from before the attempt is over.
        let began = row.running.map(|running| now - running);
        let newest = events.into_iter().find(|event| event.is_ours && Some(event.at) >= began);
        let warning = newest.filter(|event| event.warning);
        row.waits_for = warning.map(|event| line(&event.message, MAX_FAILURE_TEXT));
    }
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
    let open = overview.open_claims().into_iter().filter(|row| !is_gone(&row.claim));
    let open = open.filter_map(|row| row.claim.parse().ok()).collect();
    let (surroundings, overview) = (&surroundings, &overview);
    let shown = Shown { identity, surroundings, overview, elsewhere: 0, without_jobs, class: None };
    Ok((text::text(shown, Drawing { wide: true, ..Drawing::default() }), open))
}

#[cfg(test)]
#[path = "status/tests.rs"]
mod tests;
