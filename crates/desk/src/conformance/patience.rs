//! The repetition of runs that must succeed: a program may ask for another attempt, and gets it as from the orchestrator.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use flex_contract::exit::{Reaction, reaction};
use tokio::time::sleep;

use crate::desk::Ended;

/// The pauses before the second and each further attempt.
const PAUSES: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];

/// A run that was repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// The operation of the run.
    pub operation: String,
    /// The number of the attempt that asked for the next one.
    pub attempt: u32,
    /// Its exit code.
    pub code: i32,
    /// Its last words, in one line.
    pub words: String,
}

impl std::fmt::Display for Repeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Repeat { operation, attempt, code, words } = self;
        write!(f, "attempt {attempt} of the {operation} run ended with {code}")?;
        if words.is_empty() { Ok(()) } else { write!(f, ": {words}") }
    }
}

/// The runs of a place that were repeated.
#[derive(Clone, Debug, Default)]
pub struct Repeats(Rc<RefCell<Vec<Repeat>>>);

impl Repeats {
    /// Notes that an attempt is followed by another one.
    pub fn note(&self, operation: &str, attempt: u32, code: i32, words: &str) {
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.borrow_mut().push(Repeat { operation: operation.to_owned(), attempt, code, words });
    }

    /// Returns the runs since the last call.
    pub fn take(&self) -> Vec<Repeat> {
        self.0.take()
    }
}

/// Checks whether the orchestrator repeats a run because of its exit code alone. After 69, it asks the scheduler for another
/// node instead, where the class allows one; the desk has only one.
pub fn is_repeated(code: i32, asks_scheduler: bool) -> bool {
    match reaction(code) {
        Reaction::Retry => code != 0,
        Reaction::NoCapacity => !asks_scheduler,
        Reaction::Never => false,
    }
}

/// Checks whether a run has asked for another attempt. A run that was ended from outside has not.
fn asks_again(ended: &Ended, asks_scheduler: bool) -> bool {
    let has_answered = !ended.killed && !ended.timed_out && ended.not_started.is_none();
    has_answered && ended.stopped_after.is_none() && is_repeated(ended.code, asks_scheduler)
}

/// Starts a run, and repeats it after growing pauses while it asks for that. The function gets the number of the attempt.
///
/// # Errors
/// If an attempt cannot be made.
pub async fn patiently<E>(
    repeats: &Repeats,
    operation: &str,
    asks_scheduler: bool,
    run: impl AsyncFn(u32) -> Result<Ended, E>,
) -> Result<Ended, E> {
    let mut attempt = 1;
    for pause in PAUSES {
        let ended = run(attempt).await?;
        if !asks_again(&ended, asks_scheduler) {
            return Ok(Ended { attempts: attempt, ..ended });
        }
        repeats.note(operation, attempt, ended.code, &ended.last_words());
        sleep(pause).await;
        attempt += 1;
    }
    Ok(Ended { attempts: attempt, ..run(attempt).await? })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn ended(code: i32) -> Ended {
        Ended { code, message: "the array\nis busy".into(), not_started: None, ..Ended::not_started(String::new()) }
    }

    /// Runs something whose attempts end with these codes, and then with the last of them.
    async fn run(codes: &[i32], asks_scheduler: bool) -> (Ended, Vec<Repeat>) {
        let (repeats, count) = (Repeats::default(), Cell::new(0));
        let attempt = async |number| {
            count.set(count.get() + 1);
            assert_eq!(number, count.get());
            let at = usize::try_from(number).unwrap_or_default().min(codes.len()) - 1;
            Ok::<_, ()>(ended(codes[at]))
        };
        let ended = patiently(&repeats, "provision", asks_scheduler, attempt).await.unwrap();
        (ended, repeats.take())
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_is_repeated_as_often_as_it_asks_for_that_up_to_a_bound() {
        for (codes, asks_scheduler, code, attempts) in [
            (&[0][..], false, 0, 1),
            (&[75, 0], false, 0, 2),
            (&[75, 77, 1, 137, 0], false, 0, 5),
            (&[75], false, 75, 5),
            (&[69, 0], false, 0, 2),
            (&[69, 0], true, 69, 1),
            (&[75, 0], true, 0, 2),
            (&[64, 0], false, 64, 1),
            (&[65, 0], false, 65, 1),
            (&[75, 78, 0], false, 78, 2),
        ] {
            let (ended, repeats) = run(codes, asks_scheduler).await;
            assert_eq!((ended.code, ended.attempts), (code, attempts), "{codes:?}");
            assert_eq!(repeats.len(), attempts as usize - 1, "{codes:?}");
        }
        let (_, repeats) = run(&[75, 0], false).await;
        assert_eq!(repeats[0].to_string(), "attempt 1 of the provision run ended with 75: the array is busy");
    }

    #[test]
    fn a_run_that_was_ended_from_outside_has_not_asked_for_another() {
        let own = ended(137);
        assert!(asks_again(&own, false));
        for other in [
            Ended { killed: true, ..own.clone() },
            Ended { timed_out: true, ..own.clone() },
            Ended { stopped_after: Some(Duration::ZERO), ..own.clone() },
            Ended { not_started: Some("no such file".into()), ..own },
        ] {
            assert!(!asks_again(&other, false), "{other:?}");
        }
    }
}
