//! The command that runs for each member, and the reasons why it cannot start.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use flex_contract::exit;

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

pub(super) fn cannot_start(program: &OsStr, error: &io::Error) -> String {
    format!("{} cannot be started: {error}", program.display())
}

/// Returns the exit code that a shell uses for the same error.
pub(super) fn not_started(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        io::ErrorKind::PermissionDenied => 126,
        // A text contains a zero byte, and will still contain it next time.
        io::ErrorKind::InvalidInput => exit::DATAERR,
        _ => exit::TEMPFAIL,
    }
}
