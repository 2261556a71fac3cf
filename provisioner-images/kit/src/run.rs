//! The frame around an image's work: it reads the request, and writes the exit code and last words.

use std::future::Future;
use std::process::ExitCode;

use flex_contract::request::RunRequest;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::each::{Each, each};
use crate::{Failure, batch, termination_message};

/// Runs an image: reads the request, does the work, and reports the outcome.
pub fn run<F>(work: impl FnOnce(RunRequest) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    // A panic must not end silently, so that the claim's owner sees where the defect is.
    std::panic::set_hook(Box::new(|panic| {
        let _ = termination_message::leave(&format!("the image has a defect, please report it: {panic}"));
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

/// Reads the request from this process's environment.
pub fn request() -> Result<RunRequest, Failure> {
    RunRequest::from_env(|name| std::env::var(name).ok()).map_err(|error| Failure::usage(error.to_string()))
}

/// Runs a future on this thread only. An image makes a handful of calls, and threads would cost start-up time for each
/// claim.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // This comes before any TLS. It fails only if a provider is already installed, which is just as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::retry(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A hanging name lookup on a thread of its own must not delay the answer.
    runtime.shutdown_background();
    outcome
}

/// Returns the signal by which the run is stopped. The first process of a container dies only of signals that it
/// handles.
///
/// # Errors
/// If the signal cannot be handled.
pub fn terminated() -> Result<Signal, Failure> {
    signal(SignalKind::terminate()).map_err(|error| Failure::retry(format!("the run cannot be waited for: {error}")))
}

/// Writes the last words of a failure and returns its exit code.
pub fn conclude(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if let Err(error) = termination_message::leave(&failure.message) {
        eprintln!("the message above could not be left as the termination message: {error}");
    }
    ExitCode::from(u8::try_from(failure.code).unwrap_or(1))
}
