//! `flex-pv each`: an ordinary program for one claim, over all claims of a batch ([`contract::batch`]).
//!
//! Each member has a process of its own, so that whatever one of them does or dies of is its own affair.

mod member;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::batch::{self, Failed, Member};
use contract::exit;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::{Failure, block_on, conclude, last_words};

/// What runs for each member.
#[derive(Clone, Debug)]
pub struct Each {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// How many of them run at one time.
    pub jobs: usize,
    /// How long one of them may take; without end if none is given.
    pub limit: Option<Duration>,
}

/// Runs the command for each member, or where the run is for one claim alone, in place of this process.
pub fn each(each: Each) -> ExitCode {
    if std::env::var_os("OPERATION").is_none_or(|operation| operation != batch::OPERATION) {
        return conclude(Err(alone(&each.command)));
    }
    match members().and_then(|members| block_on(all(each, members))) {
        Ok(code) => code,
        Err(failure) => conclude(Err(failure)),
    }
}

/// Becomes the command. Returns why that is not possible.
fn alone(command: &[OsString]) -> Failure {
    let [program, arguments @ ..] = command else { return Failure::usage("no command was given") };
    let error = std::process::Command::new(program).args(arguments).exec();
    Failure { code: not_started(&error), message: cannot_start(program, &error) }
}

fn cannot_start(program: &OsStr, error: &io::Error) -> String {
    format!("{} cannot be started: {error}", program.display())
}

/// The exit code with which a shell says the same.
fn not_started(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        // A zero byte in a text: it stays there.
        io::ErrorKind::InvalidInput => exit::DATAERR,
        _ => exit::TEMPFAIL,
    }
}

fn members() -> Result<Vec<Member>, Failure> {
    let path = std::env::var_os(batch::VARIABLE)
        .filter(|path| !path.is_empty())
        .ok_or_else(|| Failure::usage(format!("OPERATION is batch, and {} is not set", batch::VARIABLE)))?;
    let list = std::fs::read_to_string(&path)
        .map_err(|error| Failure::retry(format!("the list of members {}: {error}", path.display())))?;
    batch::read(&list).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// What the workers share.
struct Progress {
    next: std::vec::IntoIter<(usize, Member)>,
    failed: Vec<Failed>,
    /// Who reads them will miss some.
    unwritten: bool,
}

impl Progress {
    /// Leaves what failed at once: whoever ends this process does not ask whether it has told all.
    fn note(&mut self, failed: Failed) {
        self.failed.push(failed);
        let written = last_words::write(&batch::write_outcomes(&self.failed));
        self.unwritten = written.is_err();
        if let Err(error) = written {
            eprintln!("which members have failed cannot be left as the termination message: {error}");
        }
    }
}

async fn all(each: Each, members: Vec<Member>) -> Result<ExitCode, Failure> {
    let mut term = signal(SignalKind::terminate())
        .map_err(|error| Failure::retry(format!("the end of the run cannot be waited for: {error}")))?;
    let (stop, stopped) = watch::channel(false);
    let jobs = each.jobs.min(members.len());
    let numbered: Vec<_> = members.into_iter().enumerate().map(|(n, member)| (n + 1, member)).collect();
    let progress = Progress { next: numbered.into_iter(), failed: Vec::new(), unwritten: false };
    let (each, progress) = (Arc::new(each), Arc::new(Mutex::new(progress)));
    let mut workers = JoinSet::new();
    for _ in 0..jobs {
        workers.spawn(work(each.clone(), progress.clone(), stopped.clone()));
    }
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                Some(Ok(())) => {}
                Some(Err(defect)) => return Err(Failure::retry(format!("flex-pv has a defect, please report it: {defect}"))),
                None => break,
            },
            // The kubelet asks this process alone.
            Some(()) = term.recv() => drop(stop.send(true)),
        }
    }
    let progress = progress.lock().expect("no code panics while it holds the progress");
    Ok(match (*stopped.borrow(), progress.unwritten) {
        // What is not told is not known.
        (true, _) => ExitCode::from(128 + 15),
        (false, true) => ExitCode::from(exit::TEMPFAIL as u8),
        (false, false) => ExitCode::SUCCESS,
    })
}

async fn work(each: Arc<Each>, progress: Arc<Mutex<Progress>>, stopped: watch::Receiver<bool>) {
    let lock = || progress.lock().expect("no code panics while it holds the progress");
    while !*stopped.borrow() {
        let Some((number, member)) = lock().next.next() else { return };
        if let Err((code, words)) = member::run(&each, number, &member, stopped.clone()).await {
            lock().note(Failed { member: number, code, words });
        }
    }
}
