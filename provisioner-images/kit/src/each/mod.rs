//! `flex-pv each`: runs an ordinary program for one claim, over all claims of a batch ([`flex_contract::batch`]).
//!
//! Each member has a process of its own, so that its failure or death concerns no other member.

mod member;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use flex_contract::exit;

use crate::{Failure, batch, conclude, terminated};

/// The command to run for each member.
#[derive(Clone, Debug)]
pub struct Each {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// The number of commands that run at one time.
    pub jobs: usize,
    /// The time limit of one command; `None` for no limit.
    pub limit: Option<Duration>,
}

/// Runs the command for each member. If the run is for a single claim, the command replaces this process.
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
        Ok(batch::each(members, jobs, terminated()?, work).await)
    })
}

/// Becomes the command. Returns a failure if that is not possible.
fn alone(command: &[OsString]) -> Failure {
    let [program, arguments @ ..] = command else { return Failure::usage("no command was given") };
    let error = std::process::Command::new(program).args(arguments).exec();
    Failure { code: not_started(&error), message: cannot_start(program, &error) }
}

fn cannot_start(program: &OsStr, error: &io::Error) -> String {
    format!("{} cannot be started: {error}", program.display())
}

/// Returns the exit code that a shell uses for the same error.
fn not_started(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        // A text contains a zero byte, and will still contain it next time.
        io::ErrorKind::InvalidInput => exit::DATAERR,
        _ => exit::TEMPFAIL,
    }
}
