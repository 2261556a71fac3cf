//! The process of an image: its request, its runtime, its signal to stop, and its exit code with last words.

use std::future::Future;
use std::process::ExitCode;

use flex_contract::request::RunRequest;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;
use crate::termination_message;

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
