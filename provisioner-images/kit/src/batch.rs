//! The frame around a batch ([`flex_contract::batch`]): it reads the members, and reports the outcome of each.

use std::collections::BTreeMap;
use std::future::Future;
use std::process::ExitCode;

use flex_contract::batch::{self, MemberFailure, MemberVariables};
use flex_contract::exit;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tokio::task::{JoinSet, LocalSet};

use crate::mounted::Mounts;
use crate::secrets::Secrets;
use crate::{Failure, block_on, conclude, termination_message};

/// Checks whether the run is for a batch.
pub fn is_one() -> bool {
    std::env::var_os(flex_contract::variable::OPERATION.name).is_some_and(|operation| operation == batch::OPERATION)
}

/// Runs an image for a batch: reads the members and does the work. Reports why the work could not begin, if it could
/// not.
pub fn run<F>(work: impl FnOnce(Vec<MemberVariables>) -> F) -> ExitCode
where
    F: Future<Output = Result<ExitCode, Failure>>,
{
    // While members wait for their turn, their unused directories must not be removed.
    let _held = Mounts::of_run().hold();
    match members().and_then(|members| block_on(work(members))) {
        Ok(code) => code,
        Err(failure) => conclude(Err(failure)),
    }
}

fn members() -> Result<Vec<MemberVariables>, Failure> {
    let path = std::env::var_os(batch::VARIABLE)
        .filter(|path| !path.is_empty())
        .ok_or_else(|| Failure::usage(format!("OPERATION is batch, and {} is not set", batch::VARIABLE)))?;
    let list = std::fs::read_to_string(&path)
        .map_err(|error| Failure::retry(format!("the list of members {}: {error}", path.display())))?;
    batch::read(&list).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

/// The signal to stop, as the members of a run see it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

impl Stop {
    /// Waits until the run must stop. It can be awaited again.
    pub async fn told(&mut self) {
        // The sender exists until all members have ended.
        let _ = self.0.wait_for(|stopped| *stopped).await;
    }
}

/// Does the work of each member, which gets its number, from 1. At most `at_once` members run at one time, and no
/// member begins after the signal to stop. A failure is reported as soon as it is known.
///
/// The exit code is 0 if the outcomes of all members are reported.
pub async fn each<T, F>(
    members: Vec<T>,
    at_once: usize,
    mut told_to_stop: Signal,
    work: impl Fn(usize, T, Stop) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Failure>> + 'static,
{
    let (stop, stopped) = watch::channel(false);
    let mut waiting = (1..).zip(members).peekable();
    let mut at_work = JoinSet::new();
    let mut numbers = BTreeMap::new();
    let mut told = MemberOutcomes { secrets: Secrets::of_this_run(), ..MemberOutcomes::default() };
    let all = async {
        loop {
            while at_work.len() < at_once && !*stopped.borrow() {
                let Some((number, member)) = waiting.next() else { break };
                let task = at_work.spawn_local(work(number, member, Stop(stopped.clone())));
                numbers.insert(task.id(), number);
            }
            let (id, outcome) = tokio::select! {
                ended = at_work.join_next_with_id() => match ended {
                    Some(Ok(ended)) => ended,
                    Some(Err(defect)) => {
                        (defect.id(), Err(Failure::retry(format!("the image has a defect, please report it: {defect}"))))
                    }
                    None => break,
                },
                Some(()) = told_to_stop.recv() => {
                    stop.send_replace(true);
                    continue;
                }
            };
            if let (Some(member), Err(failure)) = (numbers.remove(&id), outcome) {
                told.note(member, failure);
            }
        }
    };
    LocalSet::new().run_until(all).await;
    match (waiting.peek().is_none(), told.unwritten) {
        (false, _) => ExitCode::from(128 + 15),
        // A member without a report has an unknown outcome.
        (true, true) => ExitCode::from(exit::TEMPFAIL as u8),
        (true, false) => ExitCode::SUCCESS,
    }
}

/// The reported failures.
#[derive(Default)]
struct MemberOutcomes {
    failed: Vec<MemberFailure>,
    /// The secrets that last words must not repeat.
    secrets: Secrets,
    /// A report could not be written, so that some failures are missing in it.
    unwritten: bool,
}

impl MemberOutcomes {
    /// Reports a failure at once: nobody may wait for the reports before this process is killed.
    fn note(&mut self, member: usize, Failure { code, message }: Failure) {
        self.failed.push(MemberFailure { member, code, message: self.secrets.mask(&message) });
        let written = termination_message::write(&batch::write_outcomes(&self.failed));
        self.unwritten = written.is_err();
        if let Err(error) = written {
            eprintln!("the failed members cannot be written as the termination message: {error}");
        }
    }
}
