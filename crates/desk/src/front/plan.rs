//! What becomes of each request: decisions without a network.

use std::time::{Duration, Instant};

use super::ledger::{Exchange, Ledger};

/// The number of answers of a run that are late.
const LATE: usize = 3;

/// The fault of a front.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None. The requests are counted.
    None,
    /// The server acts, and its answer is lost with the line.
    AnswerLost,
    /// The server does not get the request. A client that speaks HTTP gets this status, any other loses the line.
    Status(u16),
    /// The same, from that request on for this time, with the status 500.
    Outage(Duration),
    /// The line ends in the middle of the answer.
    Cut,
    /// The server acts, and its answer waits until the run is killed.
    Held,
    /// The first answers are late by this time.
    Late(Duration),
}

/// A fault for the request with a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The fault.
    pub fault: Fault,
    /// The number of the request, from 1. A request to read that repeats the last one does not count.
    pub at: usize,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The server gets it, and the client gets the answer.
    Pass,
    /// The server gets it, and the line ends in place of the answer.
    Lose,
    /// The client gets this status.
    Refuse(u16),
    /// The client gets a part of the answer.
    Cut,
    /// The client gets no answer as long as the plan is armed.
    Hold,
    /// The client gets the answer after this time.
    Wait(Duration),
}

/// The plan of a front, and what it has seen.
#[derive(Debug, Default)]
pub(super) struct State {
    plan: Option<Plan>,
    requests: usize,
    last: String,
    struck: Option<String>,
    since: Option<Instant>,
    step: usize,
    is_held: bool,
    ledger: Ledger,
    has_http: bool,
    has_others: bool,
}

impl State {
    /// Begins another step of a case, with a plan.
    pub(super) fn arm(&mut self, plan: Plan) {
        *self = State {
            plan: Some(plan),
            step: self.step + 1,
            ledger: std::mem::take(&mut self.ledger),
            has_http: self.has_http,
            has_others: self.has_others,
            ..State::default()
        };
    }

    /// Ends the plan. Its counts stay until the next one.
    pub(super) fn disarm(&mut self) {
        self.plan = None;
    }

    /// Decides about a request. `what` is the request as a message names it, and `whole` with all that tells it from others.
    pub(super) fn fate(&mut self, what: &str, whole: &str) -> Fate {
        let Some(Plan { fault, at }) = self.plan.clone() else { return Fate::Pass };
        if let (Fault::Outage(time), Some(since)) = (&fault, self.since) {
            return if since.elapsed() < *time { Fate::Refuse(500) } else { Fate::Pass };
        }
        // A client that waits for something asks the same again and again.
        let is_repeated = what.starts_with("GET ") && self.last == whole;
        whole.clone_into(&mut self.last);
        if is_repeated {
            return Fate::Pass;
        }
        self.requests += 1;
        let fate = match fault {
            Fault::Late(time) if self.requests <= LATE => Fate::Wait(time),
            Fault::None | Fault::Late(_) => Fate::Pass,
            _ if self.requests != at => Fate::Pass,
            Fault::AnswerLost => Fate::Lose,
            Fault::Status(status) => Fate::Refuse(status),
            Fault::Outage(_) => {
                self.since = Some(Instant::now());
                Fate::Refuse(500)
            }
            Fault::Cut => Fate::Cut,
            Fault::Held => Fate::Hold,
        };
        if fate != Fate::Pass && self.struck.is_none() {
            self.struck = Some(what.to_owned());
        }
        fate
    }

    /// Returns the request that the fault has met, if it has met one.
    pub(super) fn struck(&self) -> Option<String> {
        self.struck.clone()
    }

    /// Returns the number of requests since the plan was armed.
    pub(super) fn requests(&self) -> usize {
        self.requests
    }

    /// Notes that an answer is held.
    pub(super) fn held(&mut self) {
        self.is_held = true;
    }

    /// Checks whether an answer is held.
    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }

    /// Notes a connection.
    pub(super) fn connected(&mut self, speaks_http: bool) {
        self.has_http |= speaks_http;
        self.has_others |= !speaks_http;
    }

    /// Checks whether a client has spoken something else than HTTP.
    pub(super) fn has_others(&self) -> bool {
        self.has_others
    }

    /// Notes what the server has made of a request.
    pub(super) fn note(&mut self, exchange: &Exchange<'_>) {
        self.ledger.note(self.step, exchange);
    }

    /// Returns what the server has made and deleted since the last call.
    pub(super) fn take_ledger(&mut self) -> Ledger {
        std::mem::take(&mut self.ledger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the fates of these requests under a plan.
    fn fates(fault: Fault, at: usize, requests: &[&str]) -> (Vec<Fate>, State) {
        let mut state = State::default();
        state.arm(Plan { fault, at });
        let fates = requests.iter().map(|what| state.fate(what, what)).collect();
        (fates, state)
    }

    #[test]
    fn a_fault_meets_one_request_and_polls_count_once() {
        let requests = ["GET /v", "GET /v", "GET /v", "POST /v", "POST /v", "GET /w"];
        for (fault, at, expected) in [
            (Fault::AnswerLost, 1, [Fate::Lose, Fate::Pass, Fate::Pass, Fate::Pass, Fate::Pass, Fate::Pass]),
            (Fault::Status(503), 2, [Fate::Pass, Fate::Pass, Fate::Pass, Fate::Refuse(503), Fate::Pass, Fate::Pass]),
            (Fault::Cut, 3, [Fate::Pass, Fate::Pass, Fate::Pass, Fate::Pass, Fate::Cut, Fate::Pass]),
            (Fault::Held, 4, [Fate::Pass, Fate::Pass, Fate::Pass, Fate::Pass, Fate::Pass, Fate::Hold]),
            (Fault::None, 1, [Fate::Pass; 6]),
            (Fault::AnswerLost, 5, [Fate::Pass; 6]),
        ] {
            let (found, state) = fates(fault.clone(), at, &requests);
            assert_eq!(found, expected, "{fault:?}");
            assert_eq!(state.requests(), 4);
            assert_eq!(state.struck().is_some(), expected != [Fate::Pass; 6], "{fault:?}");
        }
        let (_, state) = fates(Fault::Status(500), 2, &requests);
        assert_eq!(state.struck().as_deref(), Some("POST /v"));
    }

    #[test]
    fn an_outage_meets_all_that_follows_and_late_answers_end() {
        let hour = Duration::from_secs(3600);
        let (found, _) = fates(Fault::Outage(hour), 2, &["GET /a", "GET /b", "GET /b", "POST /c"]);
        assert_eq!(found, [Fate::Pass, Fate::Refuse(500), Fate::Refuse(500), Fate::Refuse(500)]);
        let (found, _) = fates(Fault::Outage(Duration::ZERO), 1, &["GET /a", "GET /b"]);
        assert_eq!(found, [Fate::Refuse(500), Fate::Pass]);
        let (found, _) = fates(Fault::Late(hour), 1, &["POST /a", "POST /a", "GET /b", "GET /b", "GET /c"]);
        assert_eq!(found, [Fate::Wait(hour), Fate::Wait(hour), Fate::Wait(hour), Fate::Pass, Fate::Pass]);
    }

    #[test]
    fn without_a_plan_all_passes_and_nothing_is_counted() {
        let mut state = State::default();
        assert_eq!(state.fate("POST /v", "POST /v"), Fate::Pass);
        state.arm(Plan { fault: Fault::Held, at: 1 });
        assert_eq!(state.fate("POST /v", "POST /v"), Fate::Hold);
        state.disarm();
        assert_eq!((state.fate("POST /v", "POST /v"), state.requests()), (Fate::Pass, 1));
    }
}
