//! `flex-pv each`: an ordinary program for one claim, over all claims of a batch ([`contract::batch`]).
//!
//! Each member has a process of its own, so that whatever one of them does or dies of is its own affair.

mod member;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use contract::exit;

use crate::{Failure, batch, conclude, told_to_stop};

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
    if !batch::is_one() {
        return conclude(Err(alone(&each.command)));
    }
    batch::run(async |members| {
        let (jobs, each) = (each.jobs, Arc::new(each));
        let work = |number, member, stop| {
            let each = each.clone();
            async move { member::run(&each, number, &member, stop).await }
        };
        Ok(batch::each(members, jobs, told_to_stop()?, work).await)
    })
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
