//! Requests of the orchestrator on their way, and their possible faults.

use super::{History, StepResult};
use crate::bugs::Bug;
use crate::check::Violation;
use crate::store::{self, Kind};
use crate::trace::{count, line};
use crate::wire::{Answer, Pending, Request, Verb};
use crate::{api, check};

/// The time after which an API server cancels a request.
const MINUTE: u64 = 60 * 1000;

/// A request whose sender does not wait for the answer any more.
pub(super) struct LateRequest {
    from: usize,
    request: Request,
    since: u64,
}

impl From<&Pending> for LateRequest {
    fn from(pending: &Pending) -> Self {
        LateRequest { from: pending.from, request: pending.request.clone(), since: pending.since }
    }
}

impl History {
    /// Returns whether the fence stops the request, because its process does not lead: writes, but not events.
    fn is_fenced(&self, from: usize, request: &Request) -> bool {
        let writes = !matches!(request.verb, Verb::Get | Verb::List) && request.kind != Kind::Event;
        writes && self.term != Some(from) && self.bug != Some(Bug::NoFence)
    }

    /// Cancels requests that took too long.
    pub(super) fn cancel_late(&mut self) {
        let now = self.time.millis();
        self.late_requests.retain(|late| late.since + MINUTE >= now);
    }

    /// Begins a term. The former leader stopped writing 5 seconds earlier: its requests were carried out by then, or never
    /// are, but in histories whose API server may be slower. A restarted process may have the name of a dead one: the term
    /// then continues, and requests of the dead process may still be on their way.
    pub(super) fn hand_over(&mut self, to: usize) -> StepResult {
        if self.term == Some(to) {
            return Ok(());
        }
        let before = self.term.replace(to);
        let reborn =
            to == self.created && before.is_some_and(|before| self.replicas.iter().all(|r| r.number != before));
        if reborn {
            return Ok(());
        }
        self.term = before;
        let open = self.open();
        for number in open {
            let late = LateRequest::from(&self.wire.waiting().requests[&number]);
            if Some(late.from) == before && self.rng.permille(500) {
                line(|| format!("{} → {}", late.from, late.request));
                let answer = self.carry_out(late.from, late.request)?;
                if let Some(pending) = self.wire.waiting().requests.get_mut(&number) {
                    pending.answer = Some(answer);
                }
            } else if Some(late.from) == before && self.profile.late_over_terms {
                line(|| format!("{} → {} is late", late.from, late.request));
                if let Some(pending) = self.wire.waiting().requests.get_mut(&number) {
                    pending.answer = Some(Answer::broken());
                }
                self.late_requests.push(late);
            }
        }
        for late in std::mem::take(&mut self.late_requests) {
            if self.rng.permille(500) {
                line(|| format!("late, from {}: {}", late.from, late.request));
                self.carry_out(late.from, late.request)?;
            } else if self.profile.late_over_terms {
                self.late_requests.push(late);
            }
        }
        self.term = Some(to);
        Ok(())
    }

    /// Lists the requests that the API server has not answered.
    fn open(&self) -> Vec<u64> {
        let waiting = self.wire.waiting();
        waiting.requests.iter().filter(|(_, p)| p.answer.is_none()).map(|(number, _)| *number).collect()
    }

    /// Delivers a request to the API server, or loses it.
    pub(super) fn request(&mut self) -> StepResult {
        let open = self.open();
        let choice = self.rng.below(open.len() + self.late_requests.len());
        let Some(number) = open.get(choice).copied() else {
            let LateRequest { from, request, .. } = self.late_requests.remove(choice - open.len());
            line(|| format!("late, from {from}: {request}"));
            count("requests that were late");
            self.carry_out(from, request)?;
            return Ok(());
        };
        let late = LateRequest::from(&self.wire.waiting().requests[&number]);
        let (from, request) = (late.from, late.request.clone());
        count("requests");
        let profile = &self.profile;
        let answer = if self.is_fenced(from, &request) {
            count("writes of processes that do not lead");
            line(|| format!("{from} → {request} is not sent any more"));
            Answer::broken()
        } else if late.since + MINUTE < self.time.millis() {
            count("requests that took too long");
            line(|| format!("{from} → {request} takes too long"));
            Answer::error(504, "Timeout", "the server was unable to return a response in the time allotted")
        } else if self.rng.permille(profile.refused) {
            count("requests refused");
            line(|| format!("{from} → {request} fails"));
            match self.rng.below(3) {
                0 => Answer::broken(),
                1 => Answer::error(500, "InternalError", "etcdserver: leader changed"),
                _ if request.kind == Kind::Job && request.verb == Verb::Create => {
                    Answer::error(403, "Forbidden", "exceeded quota: jobs")
                }
                _ => Answer::error(429, "TooManyRequests", "too many requests"),
            }
        } else if self.rng.permille(profile.late) {
            line(|| format!("{from} → {request} is lost on its way"));
            self.late_requests.push(late);
            Answer::broken()
        } else {
            line(|| format!("{from} → {request}"));
            let answer = self.carry_out(from, request)?;
            match self.rng.permille(self.profile.lost_answer) {
                true => {
                    count("answers lost");
                    line(|| "    and its answer is lost".to_owned());
                    Answer::broken()
                }
                false => answer,
            }
        };
        let mut waiting = self.wire.waiting();
        if let Some(pending) = waiting.requests.get_mut(&number) {
            pending.answer = Some(answer);
        }
        Ok(())
    }

    fn carry_out(&mut self, from: usize, mut request: Request) -> Result<Answer, Vec<Violation>> {
        if let Some(bug) = self.bug {
            bug.distort(&mut self.store, &mut request);
            let replica = self.replicas.iter().find(|replica| replica.number == from);
            let observed = replica.map_or(0, |replica| replica.cache(request.kind));
            let job = self.store.get(Kind::Job, &request.name).filter(|_| request.kind == Kind::Job);
            let is_own = job.is_some_and(|job| self.answered.contains(&(from, store::uid(job).to_owned())));
            if let Some(answer) = bug.answer(&self.store, &request, observed, is_own) {
                return Ok(answer);
            }
        }
        // Removing a Job removes the record of its attempt: the next attempt may have its number.
        if !self.profile.manual_removals
            && let Some(wrong) = check::gates::second_run(&self.store, &request)
        {
            return Err(vec![wrong]);
        }
        let opens = check::gates::request(&self.store, &self.answered, from, &request)
            .or_else(|| check::gates::retained(&self.store, &self.world, &request));
        let wrong = check::request(&self.store, &self.world, &request).or(opens);
        if let Some(wrong) = wrong.or_else(|| check::gates::failure(&self.store, &request)) {
            return Err(vec![wrong]);
        }
        if let Some(wrong) = check::outages::request(&self.store, &mut self.world, &request) {
            return Err(vec![wrong]);
        }
        let answer = api::handle(&mut self.store, &request);
        if answer.code >= 400 {
            line(|| format!("    {}: {}", answer.code, answer.message()));
        }
        Ok(answer)
    }

    /// Delivers an answer to the orchestrator.
    pub(super) fn answer(&mut self) {
        let is_given = |pending: &Pending| pending.answer.is_some() && !self.is_stalled(pending.from, None);
        let mut waiting = self.wire.waiting();
        let given: Vec<u64> = waiting.requests.iter().filter(|(_, p)| is_given(p)).map(|(number, _)| *number).collect();
        let number = *self.rng.pick(&given);
        if let Some(pending) = waiting.requests.remove(&number)
            && let (Some(back), Some(answer)) = (pending.back, pending.answer)
        {
            let Request { verb, kind, .. } = pending.request;
            let created = (verb == Verb::Create && kind == Kind::Job && answer.code == 201).then(|| answer.uid());
            if back.send(answer).is_ok() {
                self.answered.extend(created.map(|uid| (pending.from, uid)));
            }
        }
    }
}
