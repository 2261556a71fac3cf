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
use flex_core::config::classes::Identity;
use flex_core::text::line;
use flex_provisioner::api::{external_provisioner, says, watch};
use flex_provisioner::clock::Clock;
use flex_provisioner::overview::Overview;
use flex_provisioner::overview::collect::{self, Scope};
use flex_provisioner::state::ClusterState;
use kube::Client;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::args::StatusArgs;
use super::asked::{Asked, MAX_MESSAGE};
use super::listed::{check_class, listed};
use super::surroundings::{Shown, Surroundings};
use super::text::Drawing;
use crate::name::name;
use crate::out::{remark, say, width};

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
            source.reread(args).await;
            read = clock.passed();
        }
        let drawing = screen.drawing();
        let picture = {
            let mut overview = source.overview(args, args.scope(drawing.claims.unwrap_or(usize::MAX))).await;
            let elsewhere = args.limit(&mut overview);
            let (identity, surroundings, overview) = (&identity, &surroundings, &overview);
            let (class, without_jobs) = (args.class.as_deref(), None);
            let shown = Shown { identity, surroundings, overview, elsewhere, without_jobs, class };
            args.form.text(shown, drawing)?
        };
        screen.show(&picture)?;
        tokio::time::sleep(REDRAW).await;
    }
}

/// Where the overview comes from.
enum Source {
    /// The orchestrator that leads. The API server only forwards bytes.
    Asked(Box<Asked>),
    /// Watches, for users who may not ask, and for scripts, which want every object.
    Watched(Box<Watched>),
}

/// A cache that watches fill.
struct Watched {
    client: Client,
    identity: Identity,
    clock: Clock,
    cluster: ClusterState,
    /// The watches end with this value.
    _end: oneshot::Sender<()>,
}

impl Watched {
    async fn start(client: &Client, identity: &Identity, clock: &Clock, args: &StatusArgs) -> anyhow::Result<Self> {
        // Watches begin with lists: the errors of these say which right is missing.
        if let Some(why) = listed(client, identity, clock, args).await?.1 {
            bail!("--watch needs the right to list Jobs: {why}");
        }
        let cluster = ClusterState::new(identity.clone(), clock.clone());
        let (client, identity, clock) = (client.clone(), identity.clone(), clock.clone());
        let (end, ended) = oneshot::channel();
        let watches = {
            let (client, identity, clock, cluster) = (client.clone(), identity.clone(), clock.clone(), cluster.clone());
            async move {
                watch::start_overview(&client, &identity, &cluster);
                tokio::spawn(external_provisioner::follow(client, cluster, clock));
                let _ = ended.await;
            }
        };
        // Watches go on until their runtime ends, so that they have one of their own.
        let runtime = Builder::new_current_thread().enable_all().build()?;
        std::thread::spawn(move || runtime.block_on(watches));
        let ready = tokio::time::timeout(FIRST_LISTS, cluster.until_ready()).await;
        ready.with_context(|| {
            format!("not all kinds could be listed: {} check says which rights are missing", name())
        })?;
        Ok(Watched { client, identity, clock, cluster, _end: end })
    }
}

impl Source {
    async fn open(client: &Client, identity: &Identity, clock: &Clock, args: &StatusArgs) -> anyhow::Result<Self> {
        if args.asks_orchestrator() {
            check_class(client, identity, clock, args.class.as_deref()).await?;
            match Asked::open(client, identity, clock, args).await {
                Ok(asked) => return Ok(Source::Asked(Box::new(asked))),
                Err(why) => {
                    let why = line(&says::causes(&why), MAX_MESSAGE);
                    remark!("Watches claims and volumes, because the orchestrator does not answer: {why}");
                }
            }
        }
        Ok(Source::Watched(Box::new(Watched::start(client, identity, clock, args).await?)))
    }

    /// Reads again what the source does not learn by itself. A source of watches gives way to an orchestrator that
    /// answers.
    async fn reread(&mut self, args: &StatusArgs) {
        match self {
            Source::Asked(asked) => asked.reread().await,
            Source::Watched(watched) if args.asks_orchestrator() => {
                match Asked::open(&watched.client, &watched.identity, &watched.clock, args).await {
                    Ok(asked) => *self = Source::Asked(Box::new(asked)),
                    Err(why) => tracing::debug!("{why:#}"),
                }
            }
            Source::Watched(_) => {}
        }
    }

    /// Returns the overview of now. If the orchestrator answers no more, the source becomes the watches.
    async fn overview(&mut self, args: &StatusArgs, scope: Scope) -> Overview {
        if let Source::Asked(asked) = self {
            let Err(why) = asked.overview().await else { return asked.last.clone() };
            tracing::debug!("{why:#}");
            let (client, identity, clock) = asked.connection();
            match Watched::start(&client, &identity, &clock, args).await {
                Ok(watched) => *self = Source::Watched(Box::new(watched)),
                Err(why) => {
                    tracing::debug!("{why:#}");
                    asked.go_on();
                }
            }
        }
        match self {
            Source::Asked(asked) => asked.last.clone(),
            Source::Watched(watched) => {
                let names = (watched.identity.instance.as_str(), args.class.as_deref());
                collect::overview_in_parts(&watched.cluster, names, scope, watched.clock.now())
            }
        }
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
                // A person may change the size of the window.
                let width = width().filter(|_| !drawing.wide);
                Drawing { claims: Some(claims), width, ..*drawing }
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
