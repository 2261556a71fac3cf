//! The frame around an image's work: it reads the request, and writes the exit code and last words.

use std::future::Future;
use std::process::ExitCode;

use flex_contract::request::RunRequest;

use crate::each::{Each, each};
use crate::failure::Failure;
use crate::process::{block_on, conclude, request};
use crate::{batch, termination_message};

/// Runs an image: reads the request, does the work, and reports the outcome.
pub fn run<F>(work: impl FnOnce(RunRequest) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    // A panic must not end silently, so that the claim's owner sees where the defect is. It ends the process in each profile.
    std::panic::set_hook(Box::new(|panic| {
        let _ = termination_message::leave(&format!("the image has a defect, please report it: {panic}"));
        std::process::abort();
    }));
    conclude(request().and_then(|request| block_on(work(request))))
}

/// The number of members of a batch at one time, for an image whose members have processes of their own.
const JOBS: usize = 8;

/// Runs an image that knows one argument, `--dry-run`. With it, the image makes the volume and prints the objects that
/// it would create in the cluster. In a batch, each member gets a new process of the program.
pub fn run_or_show<F>(program: &str, work: impl FnOnce(RunRequest, bool) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dry_run = match arguments.as_slice() {
        [] => false,
        [only] if only == "--dry-run" => true,
        _ => {
            let usage = format!("usage: {program} [--dry-run]; all else is in the environment");
            return conclude(Err(Failure::usage(usage)));
        }
    };
    if batch::is_one() {
        // The user of the image may not be able to use the program's path.
        let command = std::iter::once("/proc/self/exe".into()).chain(arguments.into_iter().map(Into::into)).collect();
        return each(Each { command, jobs: JOBS, limit: None });
    }
    run(|request| work(request, dry_run))
}
