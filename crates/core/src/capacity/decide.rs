//! What is done so that the scheduler knows how much room there is: a pure function of what was observed and of the
//! time.
//!
//! For each segment of a class that can be asked, the first row that holds is taken:
//!
//! | # | the segment's run | and | step |
//! |---|---|---|---|
//! | 1 | goes on | | wait |
//! | 2 | has answered | | [`Step::Publish`] its answer |
//! | 3 | has failed | | [`Step::Publish`] that, with the last answer; without one that is of use, room without end; told |
//! | 4 | is none | no run can take place there | nothing: what is published stays |
//! | 5 | is none | there was never one | [`Step::Start`] |
//! | 6 | is none | the last failed | [`Step::Start`], after a pause that doubles |
//! | 7 | is none | the config is another, or [what is there](super::saw) | [`Step::Start`], after the config's pause |
//! | 8 | is none | | [`Step::Start`], after the config's interval |
//!
//! A run does not start while too many of its class go on. For all of them together:
//!
//! | # | the classes | and | step |
//! |---|---|---|---|
//! | 9 | one cannot be asked, but the scheduler looks | there is no object of room without end for it | [`Step::Publish`] it |
//! | 10 | one can be asked | there are objects for all segments that can be asked, and for all classes that cannot | [`Step::Switch`] on |
//! | 11 | one can be asked | the CSIDriver is somebody else's, and the scheduler does not look | told |
//! | 12 | none can be asked | the scheduler looks, by our CSIDriver | [`Step::Switch`] off |
//! | 13 | none can be asked | it does not | [`Step::Withdraw`] all objects, then [`Step::RemoveDriver`] |
//! | 14 | | an object is for no segment of today, and those of its class have theirs | [`Step::Withdraw`] |
//! | 15 | | a Job has its answer published, or has failed and a later one has answered, or is for no segment of today | [`Step::RemoveJob`] |
//!
//! The steps are taken in the order of the plan, up to the first that fails: the scheduler is made to look after the
//! objects are there, and they go after it has ceased to.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use contract::capacity::{Answer, MOST};
use contract::names::reason;

use super::segment::{Segment, Source, Wanted};
use super::{Driver, Published, Record};
use crate::decision::Tell;
use crate::object::ObjectName;
use crate::run::capacity::Ask;
use crate::run::state::RunState;
use crate::run::view::{Job, Pod};

/// Runs of a class at one time.
pub const AT_ONCE: usize = 10;
/// An answer counts for so many intervals while no later run succeeds.
const STALE: u32 = 4;

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    GoesOn,
    /// It has told how much room there is.
    Answered(Answer),
    /// It has not, for this reason.
    Failed(String),
}

/// What became of a run, by its Job and pods.
pub fn outcome(state: RunState, job: &Job, pods: &[Arc<Pod>]) -> Outcome {
    match state {
        RunState::Absent | RunState::Running | RunState::Stuck { .. } => Outcome::GoesOn,
        RunState::Failed { cause, .. } => Outcome::Failed(cause.message),
        RunState::Succeeded => {
            let own = pods.iter().filter(|pod| pod.job_uid == job.uid).filter_map(|pod| pod.terminated.as_ref());
            match own.into_iter().find(|end| end.code == 0) {
                Some(end) => match Answer::read(&end.message) {
                    Ok(answer) => Outcome::Answered(answer),
                    Err(error) => Outcome::Failed(format!("the image ended well, but {error}")),
                },
                // The watch of pods may be behind that of Jobs.
                None if !job.over => Outcome::GoesOn,
                None => Outcome::Failed("its pod is gone, and with it what it said".to_owned()),
            }
        }
    }
}

/// A capacity run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its Job.
    pub job: Arc<Job>,
    /// What became of it.
    pub outcome: Outcome,
}

/// All that the decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// What the scheduler must know of.
    pub wanted: &'a [Wanted],
    /// What it is told, by name.
    pub published: &'a BTreeMap<String, Arc<Published>>,
    /// Whether it looks.
    pub driver: Option<&'a Driver>,
    /// The orchestrator's instance.
    pub instance: &'a str,
    /// All capacity runs.
    pub runs: &'a [Run],
    /// What is there, by segment.
    pub saw: &'a HashMap<String, String>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Tell the scheduler how much room there is.
    Publish {
        /// Where.
        segment: Segment,
        /// How much.
        answer: Answer,
        /// What it is the answer to; none for a class that cannot be asked.
        record: Option<Box<Record>>,
    },
    /// Create the Job of a run.
    Start {
        /// Of which segment.
        segment: Segment,
        /// How it is asked.
        source: Box<Source>,
        /// What it is asked.
        ask: Ask,
    },
    /// Make the scheduler look for room, or not look for it any more, by a CSIDriver of ours.
    Switch {
        /// It looks.
        on: bool,
    },
    /// Remove our CSIDriver.
    RemoveDriver,
    /// Remove an object.
    Withdraw {
        /// Its name.
        name: String,
    },
    /// Remove a Job.
    RemoveJob {
        /// The Job.
        job: ObjectName,
        /// Its UID.
        uid: String,
    },
}

/// What is done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// What is said about which config.
    pub tells: Vec<(ObjectName, Tell)>,
    /// When to decide again if nothing happens, in seconds since 1970.
    pub wake_at: Option<i64>,
}

impl Plan {
    fn wake(&mut self, at: i64) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// What is to be done. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Plan {
    let mut plan = Plan::default();
    let mut runs: HashMap<&str, Vec<&Run>> = HashMap::new();
    for run in o.runs.iter().filter(|run| !run.job.deleting) {
        runs.entry(run.job.marks.id.as_str()).or_default().push(run);
    }
    let mut in_flight = in_flight(o, &runs);
    let mut starts = Vec::new();
    let mut there: HashSet<String> = o.published.values().filter(|p| !p.deleting).map(|p| p.name.clone()).collect();
    for wanted in o.wanted {
        let segment = &wanted.segment;
        let own = runs.remove(segment.id.as_str()).unwrap_or_default();
        let published = o.published.get(&segment.object_name()).map(Arc::as_ref).filter(|p| !p.deleting);
        let publish = match &wanted.source {
            None => published
                .is_none_or(|p| (p.bytes, p.largest) != (MOST, None) || p.record.is_some())
                .then_some((Answer { bytes: MOST, largest: None }, None)),
            Some(source) => {
                let record = published.and_then(|p| p.record.as_ref());
                let done = record.map_or(0, |record| record.attempt);
                // The log of one that failed is of use until one succeeds.
                let succeeded = record.is_some_and(|record| record.failures == 0);
                let is_done =
                    |run: &&&Run| run.job.marks.attempt <= done && run.job.over && (succeeded || run.job.complete);
                plan.steps.extend(own.iter().filter(is_done).map(|run| remove(run)));
                match own.iter().filter(|run| run.job.marks.attempt > done).max_by_key(|run| run.job.marks.attempt) {
                    Some(run) => ended(&mut plan, segment, source, run, published, now),
                    None => {
                        let saw = o.saw.get(&segment.id).cloned().unwrap_or_default();
                        let due = due(source, record, &saw, now);
                        let room = in_flight.entry(segment.class.as_str()).or_default();
                        if source.able && due > now {
                            plan.wake(due);
                        } else if source.able && *room < AT_ONCE {
                            *room += 1;
                            let ask = Ask { attempt: done.saturating_add(1), node: source.node.clone(), saw };
                            let (segment, source) = (segment.clone(), Box::new(source.clone()));
                            starts.push(Step::Start { segment, source, ask });
                        }
                        None
                    }
                }
            }
        };
        // Nobody else makes objects of that name: what is published in this plan is there when the next step is taken.
        if let Some((answer, record)) = publish {
            there.insert(segment.object_name());
            plan.steps.push(Step::Publish { segment: segment.clone(), answer, record: record.map(Box::new) });
        }
    }
    let unwanted = runs.into_values().flatten();
    plan.steps.extend(unwanted.map(remove));
    switch(&mut plan, o, &there);
    plan.steps.extend(starts);
    plan
}

fn remove(run: &Run) -> Step {
    Step::RemoveJob { job: run.job.name.clone(), uid: run.job.uid.clone() }
}

/// Runs that go on, by class.
fn in_flight<'a>(o: &Observed<'a>, runs: &HashMap<&str, Vec<&Run>>) -> HashMap<&'a str, usize> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    for wanted in o.wanted {
        let own = runs.get(wanted.segment.id.as_str()).into_iter().flatten();
        *count.entry(wanted.segment.class.as_str()).or_default() +=
            own.filter(|run| run.outcome == Outcome::GoesOn).count();
    }
    count
}

/// Rows 1 to 3.
fn ended(
    plan: &mut Plan,
    segment: &Segment,
    source: &Source,
    run: &Run,
    published: Option<&Published>,
    now: i64,
) -> Option<(Answer, Option<Record>)> {
    let record = record(&run.job, now);
    match &run.outcome {
        Outcome::GoesOn => None,
        Outcome::Answered(answer) => Some((*answer, Some(record))),
        Outcome::Failed(why) => {
            let (answer, record, tell) = failed(segment, source, record, why, published, now);
            plan.tells.push((source.recipe.config.clone(), tell));
            Some((answer, Some(record)))
        }
    }
}

/// Of a run that ends now, and well.
fn record(job: &Job, now: i64) -> Record {
    let (attempt, config, saw) = (job.marks.attempt, job.config.clone(), job.saw.clone());
    Record { attempt, at: now, config, saw, answered: now, ..Record::default() }
}

/// What is published of a run that has failed, and told.
fn failed(
    segment: &Segment,
    source: &Source,
    record: Record,
    why: &str,
    published: Option<&Published>,
    now: i64,
) -> (Answer, Record, Tell) {
    let before = published.and_then(|p| p.record.clone()).unwrap_or_default();
    let age = Duration::from_secs(now.saturating_sub(before.answered).max(0) as u64);
    let is_of_use = before.answered > 0 && age <= source.recipe.capacity_interval.interval * STALE;
    let last = published.filter(|_| is_of_use).map(|p| Answer { bytes: p.bytes, largest: p.largest });
    let meanwhile = match last {
        Some(_) => "until a run succeeds its last answer counts",
        None => "until a run succeeds the scheduler takes it to have room",
    };
    let message = format!("how much room {segment} has is not known: {why}; {meanwhile}, and it is asked again");
    let tell = Tell { warning: true, reason: reason::CAPACITY_FAILED, message };
    let answered = if last.is_some() { before.answered } else { 0 };
    let failures = before.failures.saturating_add(1);
    let record = Record { answered, failures, message: why.to_owned(), ..record };
    (last.unwrap_or(Answer { bytes: MOST, largest: None }), record, tell)
}

/// Row 3 for a run whose Job Kubernetes refuses.
pub fn refused(
    segment: &Segment,
    source: &Source,
    ask: &Ask,
    why: &str,
    published: Option<&Published>,
    now: i64,
) -> (Step, Tell) {
    let config = source.recipe.version();
    let mut job = Job { config, saw: ask.saw.clone(), ..Job::default() };
    job.marks.attempt = ask.attempt;
    let record = record(&job, now);
    let (answer, record, tell) = failed(segment, source, record, why, published, now);
    (Step::Publish { segment: segment.clone(), answer, record: Some(Box::new(record)) }, tell)
}

/// Rows 5 to 8: when a segment is to be asked.
fn due(source: &Source, record: Option<&Record>, saw: &str, now: i64) -> i64 {
    let Some(record) = record else { return now };
    let refresh = source.recipe.capacity_interval;
    let changed = record.config != source.recipe.version();
    let wait = match record.failures {
        _ if changed => refresh.pause,
        0 if record.saw != saw => refresh.pause,
        0 => refresh.interval,
        failures => refresh.pause.saturating_mul(1 << failures.min(16)).min(refresh.interval),
    };
    // A clock that was set back must not keep anything from being asked.
    record.at.min(now).saturating_add(wait.as_secs() as i64)
}

/// Rows 10 to 14: whether the scheduler looks, and what it finds.
fn switch(plan: &mut Plan, o: &Observed<'_>, there: &HashSet<String>) {
    let ours = o.driver.filter(|driver| driver.instance.as_deref() == Some(o.instance));
    let reports = o.wanted.iter().any(|wanted| wanted.source.is_some());
    let missing: BTreeSet<&str> = o
        .wanted
        .iter()
        .filter(|wanted| wanted.source.as_ref().is_none_or(|source| source.able))
        .filter(|wanted| !there.contains(&wanted.segment.object_name()))
        .map(|wanted| wanted.segment.class.as_str())
        .collect();
    match (o.driver, ours) {
        (None, _) if reports && missing.is_empty() => plan.steps.push(Step::Switch { on: true }),
        (_, Some(driver)) if reports && !driver.on && missing.is_empty() => plan.steps.push(Step::Switch { on: true }),
        (Some(driver), None) if reports && !driver.on => {
            let configs: BTreeSet<_> =
                o.wanted.iter().filter_map(|wanted| Some(&wanted.source.as_ref()?.recipe.config)).collect();
            let message = format!(
                "the scheduler does not look how much room there is: the CSIDriver {} is somebody else's and does not say `storageCapacity: true`; let its owner say so, or run the provisioner under a name of its own",
                driver.name
            );
            let tell = |config: &ObjectName| {
                let (reason, message) = (reason::CAPACITY_UNUSED, message.clone());
                (config.clone(), Tell { warning: true, reason, message })
            };
            plan.tells.extend(configs.into_iter().map(tell));
        }
        (_, Some(driver)) if !reports && driver.on => {
            plan.steps.push(Step::Switch { on: false });
            return;
        }
        _ => {}
    }
    let of_today: HashSet<String> = o.wanted.iter().map(|wanted| wanted.segment.object_name()).collect();
    let gone = o.published.values().filter(|p| !p.deleting && !of_today.contains(&p.name));
    let gone = gone.filter(|p| !missing.contains(p.class.as_str()));
    plan.steps.extend(gone.map(|p| Step::Withdraw { name: p.name.clone() }));
    if ours.is_some() && !reports {
        plan.steps.push(Step::RemoveDriver);
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
