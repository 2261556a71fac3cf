//! The end of a run.

use std::time::Duration;

use flex_contract::names;

use super::log::last_lines;

/// The end of a run.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The exit code; that of a signal counts from 128.
    pub code: i32,
    /// Standard output and standard error.
    pub log: String,
    /// The termination message that the program wrote.
    pub message: String,
    /// The number of bytes that the program wrote there. The kubelet keeps [`names::TERMINATION_MESSAGE`] of them.
    pub message_bytes: usize,
    /// The run took too long, and was stopped.
    pub timed_out: bool,
    /// The desk killed the run.
    pub killed: bool,
    /// The reason why the program did not start.
    pub not_started: Option<String>,
    /// The time that the run took.
    pub took: Duration,
    /// The time from SIGTERM to the end, if the run got one.
    pub stopped_after: Option<Duration>,
    /// The end of the log counts as last words.
    pub message_from_log: bool,
    /// The number of the last attempt, from 1.
    pub attempts: u32,
}

impl Ended {
    /// Checks whether the run exited 0.
    pub fn is_success(&self) -> bool {
        self.code == 0 && !self.timed_out && !self.killed
    }

    /// Returns the last words, as the kubelet reports them.
    pub fn last_words(&self) -> String {
        match self.message.is_empty() && self.code != 0 && self.message_from_log {
            true => last_lines(&self.log),
            false => self.message.clone(),
        }
    }

    /// Returns the end of a run whose program did not start.
    pub(crate) fn not_started(why: String) -> Self {
        Ended {
            code: 128,
            log: String::new(),
            message: String::new(),
            message_bytes: 0,
            timed_out: false,
            killed: false,
            not_started: Some(why),
            took: Duration::ZERO,
            stopped_after: None,
            message_from_log: false,
            attempts: 1,
        }
    }
}

/// Cuts a termination message as the kubelet does: it keeps the end.
pub(super) fn kept(message: &[u8]) -> String {
    let from = message.len().saturating_sub(names::TERMINATION_MESSAGE);
    String::from_utf8_lossy(&message[from..]).into_owned()
}
