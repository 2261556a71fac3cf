//! `status --watch`: the overview again and again. The orchestrator that leads has it already, so the command asks that one.
//! Users who may not ask get the same from watches.

use std::io::{IsTerminal, Write as _, stdout};
use std::time::Duration;

use anyhow::{Context as _, bail};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, size,
};
use crossterm::{execute, queue};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::args::StatusArgs;
use super::asked::Asked;
use super::surroundings::{Shown, Surroundings};
use super::text::Drawing;
use crate::api::{external_provisioner, watch};
use crate::cli::out::say;
use crate::clock::Clock;
use crate::config::classes::Identity;
use crate::overview::Overview;
use crate::overview::collect::{self, Scope};
use crate::state::ClusterState;

/// The time between two pictures.
const REDRAW: Duration = Duration::from_secs(1);
/// The time between two reads of what no watch shows: the leader, the admission policies and the capacities.
const REREAD: Duration = Duration::from_secs(15);
/// The longest time for the first lists of the watches.
const FIRST_LISTS: Duration = Duration::from_secs(60);
/// The claims in a picture that no terminal limits.
const CLAIMS: usize = 20;
/// The lines of a terminal that are kept free of claims, at least.
const OTHER_LINES: usize = 12;

/// Shows the overview until the process is ended.
pub(super) async fn watch(client: Client, identity: Identity, args: &StatusArgs) -> anyhow::Result<()> {
    // The terminal is left as it was, however the command ends, and also while the API server does not answer.
    let (mut terminate, mut hang_up) = (signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
        _ = hang_up.recv() => Ok(()),
        failed = show(client, identity, args) => failed,
    }
}

/// Shows the overview again and again. Ends only with an error.
async fn show(client: Client, identity: Identity, args: &StatusArgs) -> anyhow::Result<()> {
    let clock = Clock::default();
    let mut source = Source::open(&client, &identity, &clock, args).await?;
    let mut surroundings = Surroundings::read(&client, &identity, &clock).await;
    let mut read = clock.passed();
    let mut screen = Screen::open(args)?;
    loop {
        if clock.since(read) >= REREAD {
            surroundings = Surroundings::read(&client, &identity, &clock).await;
            source.reread(args).await?;
            read = clock.passed();
        }
        let drawing = screen.drawing();
        let picture = {
            let overview = source.overview(args, args.form.scope(drawing.claims.unwrap_or(usize::MAX))).await?;
            let (class, without_jobs) = (args.class.as_deref(), None);
            let shown =
                Shown { identity: &identity, surroundings: &surroundings, overview: &overview, without_jobs, class };
            args.form.text(shown, drawing)?
        };
        screen.show(&picture)?;
        tokio::time::sleep(REDRAW).await;
    }
}

/// Where the overview comes from.
enum Source {
    /// The orchestrator that leads. This costs the API server next to nothing.
    Asked(Box<Asked>),
    /// Watches, for users who may not ask, and for scripts, which want every object.
    Watched { cluster: ClusterState, identity: Identity, clock: Clock },
}

impl Source {
    async fn open(client: &Client, identity: &Identity, clock: &Clock, args: &StatusArgs) -> anyhow::Result<Self> {
        if args.form.is_for_people() {
            match Asked::open(client, identity, clock, args).await {
                Ok(asked) => return Ok(Source::Asked(Box::new(asked))),
                Err(why) => eprintln!("Watches claims and volumes, because the orchestrator does not answer: {why:#}"),
            }
        }
        Source::watched(client, identity, clock, args).await
    }

    async fn watched(client: &Client, identity: &Identity, clock: &Clock, args: &StatusArgs) -> anyhow::Result<Self> {
        // Watches begin with lists: the errors of these say which right is missing.
        if let Some(why) = super::listed(client, identity, clock, args).await?.1 {
            bail!("--watch needs the right to list Jobs: {why}");
        }
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        watch::start_overview(client, identity, &cluster);
        tokio::spawn(external_provisioner::follow(client.clone(), cluster.clone(), clock.clone()));
        let ready = tokio::time::timeout(FIRST_LISTS, cluster.until_ready()).await;
        ready.context("not all kinds could be listed: flex check says which rights are missing")?;
        Ok(Source::Watched { cluster, identity: identity.clone(), clock: clock.clone() })
    }

    /// Reads again what the source does not learn by itself.
    async fn reread(&mut self, args: &StatusArgs) -> anyhow::Result<()> {
        match self {
            Source::Asked(asked) => asked.reread(args).await,
            Source::Watched { .. } => Ok(()),
        }
    }

    /// Returns the overview of now. If the orchestrator answers no more, the source becomes the watches.
    async fn overview(&mut self, args: &StatusArgs, scope: Scope) -> anyhow::Result<Overview> {
        if let Source::Asked(asked) = self {
            let Err(why) = asked.overview().await else { return Ok(asked.last.clone()) };
            tracing::debug!("{why:#}");
            let (client, identity, clock) = asked.connection();
            *self = Source::watched(&client, &identity, &clock, args).await?;
        }
        Ok(match self {
            Source::Asked(asked) => asked.last.clone(),
            Source::Watched { cluster, identity, clock } => {
                let names = (identity.instance.as_str(), args.class.as_deref());
                collect::overview_in_parts(cluster, names, scope, clock.now())
            }
        })
    }
}

/// Where the pictures are shown.
enum Screen {
    /// A terminal, which shows one picture at a time.
    Terminal(Drawing),
    /// A file or a pipe, which gets each picture that differs from the last.
    Stream { drawing: Drawing, last: String },
}

impl Screen {
    fn open(args: &StatusArgs) -> anyhow::Result<Self> {
        let drawing = args.drawing(Some(CLAIMS));
        if !(stdout().is_terminal() && args.form.is_for_people()) {
            return Ok(Screen::Stream { drawing, last: String::new() });
        }
        execute!(stdout(), EnterAlternateScreen, DisableLineWrap, Hide)?;
        Ok(Screen::Terminal(drawing))
    }

    fn drawing(&self) -> Drawing {
        match self {
            Screen::Terminal(drawing) => {
                let (_, lines) = size().unwrap_or_default();
                let claims = usize::from(lines).saturating_sub(OTHER_LINES).max(1);
                Drawing { claims: Some(claims), ..*drawing }
            }
            Screen::Stream { drawing, .. } => *drawing,
        }
    }

    fn show(&mut self, picture: &str) -> anyhow::Result<()> {
        match self {
            Screen::Terminal(_) => {
                let (_, lines) = size()?;
                let mut out = stdout().lock();
                queue!(out, MoveTo(0, 0))?;
                for line in picture.lines().take(usize::from(lines).saturating_sub(1)) {
                    write!(out, "{line}")?;
                    queue!(out, Clear(ClearType::UntilNewLine))?;
                    write!(out, "\r\n")?;
                }
                queue!(out, Clear(ClearType::FromCursorDown))?;
                out.flush()?;
            }
            Screen::Stream { last, .. } if last == picture => {}
            Screen::Stream { last, .. } => {
                let gap = if last.is_empty() { "" } else { "\n" };
                say!("{gap}{}", picture.trim_end());
                picture.clone_into(last);
            }
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Screen::Terminal(_) = self {
            // The terminal is left as it was, if it still answers.
            let _ = execute!(stdout(), Show, EnableLineWrap, LeaveAlternateScreen);
        }
    }
}
