//! The frame around an image's work: request in, exit code and last words out.

use std::future::Future;
use std::process::ExitCode;

use contract::request::Request;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::each::{Each, each};
use crate::{Failure, batch, last_words};

/// Runs an image: reads the request, does the work, and tells how it ended.
pub fn run<F>(work: impl FnOnce(Request) -> F) -> ExitCode
where
    F: Future<Output = Result<(), Failure>>,
{
    // A defect must not end in silence: whoever waits for the claim sees where it is.
    std::panic::set_hook(Box::new(|panic| {
        let _ = last_words::leave(&format!("the image has a defect, please report it: {panic}"));
    }));
    conclude(request().and_then(|request| block_on(work(request))))
}

/// So many members of a batch are at work at one time, of an image whose members have processes of their own.
const JOBS: usize = 8;

/// The same for an image that knows one argument, `--dry-run`, which its work is told of: to make the volume, and print
/// what it would create in the cluster. In a run for a batch the program is started anew for each member.
pub fn run_or_show<F>(program: &str, work: impl FnOnce(Request, bool) -> F) -> ExitCode
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
        // Not by its path, which need not be known to the user of the image.
        let command = std::iter::once("/proc/self/exe".into()).chain(arguments.into_iter().map(Into::into)).collect();
        return each(Each { command, jobs: JOBS, limit: None });
    }
    run(|request| work(request, dry_run))
}

/// The request that stands in this process's environment.
pub fn request() -> Result<Request, Failure> {
    Request::from_env(|name| std::env::var(name).ok()).map_err(|error| Failure::usage(error.to_string()))
}

/// Runs a future on this thread alone: an image makes a handful of calls, and threads cost start-up
/// time, of which every claim pays.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    // Before anything speaks TLS. It fails only where a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::retry(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A name lookup that hangs on a thread of its own must not delay the answer.
    runtime.shutdown_background();
    outcome
}

/// What says that the run is to stop. The first process of a container dies of no signal that it does not ask for.
///
/// # Errors
/// It cannot be asked for.
pub fn told_to_stop() -> Result<Signal, Failure> {
    signal(SignalKind::terminate())
        .map_err(|error| Failure::retry(format!("the end of the run cannot be waited for: {error}")))
}

/// Leaves the last words of a failure and turns it into the exit code.
pub fn conclude(outcome: Result<(), Failure>) -> ExitCode {
    let Err(failure) = outcome else { return ExitCode::SUCCESS };
    if let Err(error) = last_words::leave(&failure.message) {
        eprintln!("the message above could not be left as the termination message: {error}");
    }
    ExitCode::from(u8::try_from(failure.code).unwrap_or(1))
}
