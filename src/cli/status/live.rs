//! `status --watch`: the overview again and again, from watches in place of lists.

use std::io::{IsTerminal, Write as _, stdout};
use std::time::Duration;

use anyhow::Context as _;
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, size,
};
use crossterm::{execute, queue};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

use super::args::StatusArgs;
use super::overview::{Overview, Sources, Surroundings};
use super::text::Drawing;
use crate::api::{external_provisioner, watch};
use crate::cli::out::say;
use crate::clock::Clock;
use crate::config::classes::Identity;
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
    let cluster = ClusterState::new(identity.clone(), clock.clone());
    watch::start_overview(&client, &identity, &cluster);
    tokio::spawn(external_provisioner::follow(client.clone(), cluster.clone(), clock.clone()));
    let listed = tokio::time::timeout(FIRST_LISTS, cluster.until_ready()).await;
    listed.context("not all kinds could be listed: flex check says which rights are missing")?;
    let mut surroundings = Surroundings::read(&client, &identity, &clock).await;
    let mut read = clock.passed();
    let mut screen = Screen::open(args)?;
    loop {
        if clock.since(read) >= REREAD {
            surroundings = Surroundings::read(&client, &identity, &clock).await;
            read = clock.passed();
        }
        let picture = {
            let sources = Sources { identity: &identity, surroundings: &surroundings, without_jobs: None };
            let overview = Overview::of(&cluster.index(), &sources, args.class.as_deref(), clock.now());
            args.form.text(&overview, args.class.as_deref(), screen.drawing())?
        };
        screen.show(&picture)?;
        tokio::time::sleep(REDRAW).await;
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
