//! The log of the process, and its filter, which an admin can change for a time.
//!
//! The request is an annotation on the Lease of the orchestrator. Who may change the Lease may stop the orchestrator
//! already, so that no other right is needed. Each replica reads the Lease every two seconds anyway.

use std::time::Duration;

use clap::ValueEnum;
use flex_core::text::{Escape, Lines, line};
use jiff::Timestamp;
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;

use crate::clock::Clock;

/// The longest time for which a request changes the filter.
pub const LONGEST: Duration = Duration::from_hours(24);
/// The words between the filter and the time of a request.
const UNTIL: &str = " until ";
/// The longest part of a request that is logged.
const MAX_TEXT: usize = 200;

/// The form of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A request for another filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRequest {
    /// The filter, such as `debug` or `flex_provisioner=debug,info`.
    pub filter: String,
    /// The end of the request.
    pub until: Timestamp,
}

impl FilterRequest {
    /// Writes the request as the annotation holds it.
    pub fn annotation(&self) -> String {
        format!("{}{UNTIL}{}", self.filter, self.until)
    }

    /// Reads a request from its annotation.
    ///
    /// # Errors
    /// If it has no time, or no valid filter.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = || format!("`{}` is not FILTER{UNTIL}TIME", line(text, MAX_TEXT));
        let (filter, until) = text.rsplit_once(UNTIL).ok_or_else(expected)?;
        let until = until.trim().parse().map_err(|_| expected())?;
        EnvFilter::try_new(filter).map_err(|error| format!("the filter `{}`: {error}", line(filter, MAX_TEXT)))?;
        Ok(FilterRequest { filter: filter.to_owned(), until })
    }

    /// Returns how long the request holds from now on; `None` if it has ended.
    fn remaining(&self, now: Timestamp) -> Option<Duration> {
        let remaining = self.until.duration_since(now);
        Duration::try_from(remaining)
            .ok()
            .filter(|remaining| !remaining.is_zero())
            .map(|remaining| remaining.min(LONGEST))
    }
}

/// The log of this process.
pub struct Log {
    /// The filter of the command line.
    filter: String,
    set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync>,
}

impl Log {
    /// Starts the log on standard error.
    ///
    /// # Errors
    /// If the filter is not valid. The message names the flag.
    pub fn start(filter: &str, format: LogFormat) -> anyhow::Result<Self> {
        let parsed = EnvFilter::try_new(filter).map_err(|error| anyhow::anyhow!("--log `{filter}`: {error}"))?;
        // Colours are control characters. The texts of images and users contain no control characters either.
        let log = tracing_subscriber::fmt().with_env_filter(parsed).with_ansi(false);
        let set: Box<dyn Fn(EnvFilter) -> Result<(), String> + Send + Sync> = match format {
            LogFormat::Text => {
                let log = log.with_writer(|| Lines(std::io::stderr(), Escape::Text)).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
            }
            LogFormat::Json => {
                let log = log.json().with_writer(|| Lines(std::io::stderr(), Escape::Json)).with_filter_reloading();
                let handle = log.reload_handle();
                log.init();
                Box::new(move |filter| handle.reload(filter).map_err(|error| error.to_string()))
            }
        };
        Ok(Log { filter: filter.to_owned(), set })
    }

    /// Follows the requests until their sender is gone. `requests` has the annotation, if there is one.
    pub async fn follow(self, mut requests: watch::Receiver<Option<String>>, clock: Clock) {
        loop {
            let wanted = requests.borrow_and_update().clone();
            let holds = self.apply(wanted.as_deref(), clock.wall());
            tokio::select! {
                changed = requests.changed() => if changed.is_err() { return },
                () = clock.sleep(holds.unwrap_or_default()), if holds.is_some() => {
                    self.reset();
                    if requests.changed().await.is_err() { return }
                }
            }
        }
    }

    /// Applies a request. Returns how long it holds; `None` if there is none to end.
    fn apply(&self, wanted: Option<&str>, now: Timestamp) -> Option<Duration> {
        let Some(wanted) = wanted else {
            self.reset();
            return None;
        };
        let request = match FilterRequest::read(wanted) {
            Ok(request) => request,
            Err(error) => {
                self.reset();
                tracing::warn!(error, "the request for another log filter is ignored");
                return None;
            }
        };
        let Some(remaining) = request.remaining(now) else {
            self.reset();
            return None;
        };
        let seconds = remaining.as_secs();
        // The new filter may hide the line.
        tracing::info!(filter = request.filter, seconds, "the log gets another filter for a time");
        self.set(&request.filter);
        Some(remaining)
    }

    /// Sets the filter of the command line again.
    fn reset(&self) {
        self.set(&self.filter);
    }

    fn set(&self, filter: &str) {
        let set = EnvFilter::try_new(filter).map_err(|error| error.to_string()).and_then(|filter| (self.set)(filter));
        if let Err(error) = set {
            tracing::warn!(filter, error, "the log filter could not be changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let request = FilterRequest { filter: "flex_provisioner=debug,info".into(), until: now() };
        assert_eq!(FilterRequest::read(&request.annotation()), Ok(request));
        for (wrong, says) in [
            ("debug", "is not FILTER until TIME"),
            ("debug until tomorrow", "is not FILTER until TIME"),
            ("a=b=c until 2026-01-01T00:00:00Z", "the filter `a=b=c`"),
        ] {
            assert!(FilterRequest::read(wrong).is_err_and(|error| error.contains(says)), "{wrong}");
        }
    }

    #[test]
    fn a_request_ends_at_its_time_and_after_a_day_at_the_latest() {
        let until = |text: &str| FilterRequest { filter: "debug".into(), until: text.parse().unwrap() };
        for (time, seconds) in [
            ("2025-12-31T23:59:59Z", None),
            (NOW, None),
            ("2026-01-01T00:10:00Z", Some(600)),
            ("2027-01-01T00:00:00Z", Some(24 * 3600)),
        ] {
            assert_eq!(until(time).remaining(now()).map(|time| time.as_secs()), seconds, "{time}");
        }
    }

    #[test]
    fn the_filter_of_the_command_line_returns_when_a_request_is_gone() {
        let filters = Arc::new(Mutex::new(Vec::new()));
        let seen = filters.clone();
        let set = move |filter: EnvFilter| {
            seen.lock().unwrap().push(filter.to_string());
            Ok(())
        };
        let log = Log { filter: "info".into(), set: Box::new(set) };
        assert_eq!(log.apply(Some("debug until 2026-01-01T00:10:00Z"), now()), Some(Duration::from_secs(600)));
        assert_eq!(log.apply(Some("nonsense"), now()), None, "what nobody can read ends the request before");
        assert_eq!(log.apply(Some("debug until 2025-01-01T00:00:00Z"), now()), None);
        assert_eq!(log.apply(None, now()), None);
        assert_eq!(*filters.lock().unwrap(), ["debug", "info", "info", "info"]);
    }
}
