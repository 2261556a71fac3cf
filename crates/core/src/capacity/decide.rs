//! Decides how the scheduler learns the capacity of each segment: a pure function of the observation and the time.
//!
//! The [rules](Rule) say when which step is taken. For each segment, the first rule up to [`Rule::IntervalPassed`] that
//! holds applies; the other rules are for all segments together.
//!
//! The reconciler takes the steps in the order of the plan, up to the first that fails. So the scheduler starts to
//! check capacity after the objects exist, and stops before they are deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::capacity::{Answer, MAX_BYTES};
use flex_contract::reason;
use strum::{EnumMessage, IntoStaticStr, VariantArray};

use super::segment::{CapacitySource, Segment, WantedSegment};
use super::{CapacityRecord, Driver, Published};
use crate::capacity::run::CapacityRun;
use crate::object::ObjectName;
use crate::rules::NewEvent;
use crate::rules::{self, Rule as _};
use crate::run::backoff::{doubled, due_after, seconds};
use crate::run::state::RunState;
use crate::run::view::{Job, Pod};

/// The largest number of capacity runs of a class at one time.
pub const MAX_CONCURRENT_RUNS: usize = 10;
/// The number of intervals for which an answer stays valid while later runs fail.
const ANSWER_VALID_INTERVALS: u32 = 4;

/// The outcome of a capacity run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The run is in progress.
    Running,
    /// The run has answered.
    Answered(Answer),
    /// The run has failed, for this reason.
    Failed(String),
}

/// Derives the outcome of a run from its Job and pods.
pub fn outcome(state: RunState, job: &Job, pods: &[Arc<Pod>]) -> Outcome {
    match state {
        RunState::NotCached | RunState::MayBeRunning | RunState::Stuck { .. } => Outcome::Running,
        RunState::Failed { cause, .. } => Outcome::Failed(cause.message),
        RunState::Succeeded => {
            let own = pods.iter().filter(|pod| pod.job_uid == job.uid).filter_map(|pod| pod.terminated.as_ref());
            match own.into_iter().find(|end| end.code == 0) {
                Some(end) => match Answer::read(&end.message) {
                    Ok(answer) => Outcome::Answered(answer),
                    Err(error) => Outcome::Failed(format!("the image succeeded, but {error}")),
                },
                // The watch of pods may lag behind the watch of Jobs.
                None if !job.is_over => Outcome::Running,
                None => Outcome::Failed("its pod is gone, and with it the answer".to_owned()),
            }
        }
    }
}

/// A capacity run.
#[derive(Clone, Debug)]
pub struct ObservedRun {
    /// The Job of the run.
    pub job: Arc<Job>,
    /// The outcome of the run.
    pub outcome: Outcome,
}

/// The observation on which the decision rests.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The segments whose capacity the scheduler must know.
    pub wanted: &'a [WantedSegment],
    /// The published objects, by name.
    pub published: &'a BTreeMap<String, Arc<Published>>,
    /// The CSIDriver, by which the scheduler checks capacity.
    pub driver: Option<&'a Driver>,
    /// The instance id of the orchestrator.
    pub instance: &'a str,
    /// All capacity runs.
    pub runs: &'a [ObservedRun],
    /// The ids of segments with a Job that was created a moment ago and is not visible yet.
    pub starting: &'a BTreeSet<String>,
    /// The fingerprint of each segment, by the segment's id.
    pub fingerprint: &'a HashMap<String, String>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Publishes the capacity of a segment.
    Publish {
        /// The segment.
        segment: Segment,
        /// Its capacity.
        answer: Answer,
        /// The question that the answer belongs to; `None` for a class that no image reports.
        record: Option<Box<CapacityRecord>>,
    },
    /// Creates the Job of a run.
    Start {
        /// The segment that the run reports.
        segment: Segment,
        /// The source of the answer.
        source: Box<CapacitySource>,
        /// The question to the run.
        run: CapacityRun,
    },
    /// Makes the scheduler start or stop to check capacity, by the orchestrator's own CSIDriver.
    Switch {
        /// Whether the scheduler checks capacity afterwards.
        on: bool,
    },
    /// Deletes the orchestrator's own CSIDriver.
    RemoveDriver,
    /// Deletes a CSIStorageCapacity object.
    DeleteObject {
        /// The name of the object.
        name: String,
    },
    /// Deletes a Job.
    RemoveJob {
        /// The namespace and name of the Job.
        job: ObjectName,
        /// The UID of the Job.
        uid: String,
    },
}

/// The rules of capacity, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// No image reports the class, but the scheduler checks capacity. Publishes that the class is unlimited.
    ClassUnlimited,
    /// The run of the segment is in progress, or a Job with its name is terminating. Waits.
    RunInProgress,
    /// The run of the segment has answered. Publishes its answer.
    RunAnswered,
    /// The run of the segment has failed. Publishes the last answer, or that the segment is unlimited if no answer is
    /// recent enough. Emits an event.
    RunFailed,
    /// No run is possible in the segment. Does nothing: the published answer stays.
    RunNotPossible,
    /// A run of the segment is not due. Waits.
    RunNotDue,
    /// A run of the segment is due, and the class has 10 runs in progress. Waits.
    ManyRunsInProgress,
    /// There was never a run of the segment. Starts one.
    FirstRun,
    /// The last run of the segment failed. Starts another, after a delay that doubles.
    RetryAfterFailure,
    /// The config or the fingerprint of the segment has changed. Starts a run, after the config's minimum delay.
    ConfigOrUsageChanged,
    /// The config's interval has passed since the last run. Starts a run.
    IntervalPassed,
    /// An image reports a class, and all segments of all classes have objects. Makes the scheduler check capacity.
    AllKnown,
    /// An image reports a class, the CSIDriver belongs to somebody else, and the scheduler does not check capacity.
    /// Emits an event.
    DriverOfOther,
    /// No image reports any class, and the orchestrator's CSIDriver makes the scheduler check capacity. Stops that.
    NoneReported,
    /// An object is for a segment that no longer exists, or that the scheduler need not know. Deletes it.
    ObjectNotNeeded,
    /// No image reports any class, and the scheduler does not check capacity. Deletes the orchestrator's CSIDriver.
    DriverNotNeeded,
    /// The answer of a Job is published, a later Job has answered, or its segment no longer exists. Deletes the Job.
    JobNotNeeded,
}

rules::table!(Rule, Step, "capacity");

/// A decision about capacity.
pub type Decision = rules::Decision<Rule>;

/// An event on a config.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigEvent {
    /// The config.
    pub config: ObjectName,
    /// The event.
    pub event: NewEvent,
}

/// The result of a decision.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The steps, in the order in which they are taken.
    pub steps: Vec<Decision>,
    /// The rules that hold and have no step.
    pub waits: Vec<Rule>,
    /// The events.
    pub events: Vec<ConfigEvent>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub requeue_at: Option<i64>,
}

impl Plan {
    fn wake(&mut self, at: i64) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |earlier| earlier.min(at)));
    }
}

/// Decides the next steps. `now` is in seconds since 1970.
pub fn decide(o: &Observed<'_>, now: i64) -> Plan {
    let mut plan = Plan::default();
    let mut runs: BTreeMap<&str, Vec<&ObservedRun>> = BTreeMap::new();
    let (ending, others): (Vec<_>, Vec<_>) = o.runs.iter().partition(|run| run.job.terminating);
    for run in others {
        runs.entry(run.job.run_labels.id.as_str()).or_default().push(run);
    }
    let ending: HashSet<_> = ending.iter().map(|run| (&run.job.run_labels.id, run.job.run_labels.attempt)).collect();
    let (mut in_flight, mut starts) = (in_flight(o, &runs), Vec::new());
    let mut there: HashSet<String> = o.published.values().filter(|p| !p.terminating).map(|p| p.name.clone()).collect();
    for wanted in o.wanted {
        let segment = &wanted.segment;
        let own = runs.remove(segment.id.as_str()).unwrap_or_default();
        let published = o.published.get(&segment.object_name()).map(Arc::as_ref).filter(|p| !p.terminating);
        let publish = match &wanted.source {
            None => published
                .is_none_or(|p| (p.bytes, p.largest) != (MAX_BYTES, None) || p.record.is_some())
                .then_some(Publication { rule: Rule::ClassUnlimited, answer: UNLIMITED, record: None }),
            Some(source) => {
                let record = published.and_then(|p| p.record.as_ref());
                let done = record.map_or(0, |record| record.attempt);
                // People need the log of a failed run until another run succeeds.
                let succeeded = record.is_some_and(|record| record.failures == 0);
                let is_done = |run: &&&ObservedRun| {
                    run.job.run_labels.attempt <= done && run.job.is_over && (succeeded || run.job.complete)
                };
                plan.steps.extend(own.iter().filter(is_done).map(|run| remove(run)));
                let latest = own.iter().filter(|run| run.job.run_labels.attempt > done);
                let next = (&segment.id, done.saturating_add(1));
                match latest.max_by_key(|run| run.job.run_labels.attempt) {
                    Some(run) => ended(&mut plan, segment, source, run, published, now),
                    None if o.starting.contains(&segment.id) || ending.contains(&next) => {
                        plan.waits.push(Rule::RunInProgress);
                        None
                    }
                    None => {
                        let fingerprint = o.fingerprint.get(&segment.id).cloned().unwrap_or_default();
                        let in_flight = in_flight.entry(segment.class.as_str()).or_default();
                        match start(segment, source, record, fingerprint, *in_flight, now) {
                            Ok(start) => {
                                *in_flight += 1;
                                starts.push(start);
                            }
                            Err(NotNow { rule, due }) => {
                                plan.waits.push(rule);
                                due.into_iter().for_each(|due| plan.wake(due));
                            }
                        }
                        None
                    }
                }
            }
        };
        // Nobody else makes objects of that name, so the object exists when the next step is taken.
        if let Some(Publication { rule, answer, record }) = publish {
            there.insert(segment.object_name());
            let step = Step::Publish { segment: segment.clone(), answer, record: record.map(Box::new) };
            plan.steps.push(rule.step(step));
        }
    }
    plan.steps.extend(runs.into_values().flatten().map(remove));
    switch(&mut plan, o, &there);
    plan.steps.extend(starts);
    plan
}

fn remove(run: &ObservedRun) -> Decision {
    Rule::JobNotNeeded.step(Step::RemoveJob { job: run.job.name.clone(), uid: run.job.uid.clone() })
}

/// The reason why no run of a segment starts now.
struct NotNow {
    /// The rule that says why.
    rule: Rule,
    /// The time at which the run is due, if that is later.
    due: Option<i64>,
}

/// Starts the next run of a segment.
///
/// # Errors
/// If no run starts now.
fn start(
    segment: &Segment,
    source: &CapacitySource,
    record: Option<&CapacityRecord>,
    fingerprint: String,
    in_flight: usize,
    now: i64,
) -> Result<Decision, NotNow> {
    if !source.can_run {
        return Err(NotNow { rule: Rule::RunNotPossible, due: None });
    }
    let NextRun { rule, due } = next_run(source, record, &fingerprint, now);
    if due > now {
        return Err(NotNow { rule: Rule::RunNotDue, due: Some(due) });
    }
    if in_flight >= MAX_CONCURRENT_RUNS {
        return Err(NotNow { rule: Rule::ManyRunsInProgress, due: None });
    }
    let attempt = record.map_or(0, |record| record.attempt).saturating_add(1);
    let run = CapacityRun { attempt, node: source.node.clone(), fingerprint };
    Ok(rule.step(Step::Start { segment: segment.clone(), source: Box::new(source.clone()), run }))
}

/// Counts the runs in progress, by class.
fn in_flight<'a>(o: &Observed<'a>, runs: &BTreeMap<&str, Vec<&ObservedRun>>) -> HashMap<&'a str, usize> {
    let mut count: HashMap<&str, usize> = HashMap::new();
    for wanted in o.wanted {
        let own = runs.get(wanted.segment.id.as_str()).into_iter().flatten();
        *count.entry(wanted.segment.class.as_str()).or_default() +=
            own.filter(|run| run.outcome == Outcome::Running).count()
                + usize::from(o.starting.contains(&wanted.segment.id));
    }
    count
}

/// The answer to publish for a segment.
struct Publication {
    rule: Rule,
    answer: Answer,
    /// The question that the answer belongs to.
    record: Option<CapacityRecord>,
}

/// The answer for a segment whose capacity is not known.
const UNLIMITED: Answer = Answer { bytes: MAX_BYTES, largest: None };

/// Returns the answer of a run to publish, and adds the event.
fn ended(
    plan: &mut Plan,
    segment: &Segment,
    source: &CapacitySource,
    run: &ObservedRun,
    published: Option<&Published>,
    now: i64,
) -> Option<Publication> {
    let record = record(&run.job, now);
    match &run.outcome {
        Outcome::Running => {
            plan.waits.push(Rule::RunInProgress);
            let event = |message| NewEvent { warning: true, reason: reason::CAPACITY_FAILED, message };
            let told = run.job.suspension_text().map(event);
            plan.events.extend(told.map(|event| ConfigEvent { config: source.recipe.config.clone(), event }));
            None
        }
        Outcome::Answered(answer) => {
            Some(Publication { rule: Rule::RunAnswered, answer: *answer, record: Some(record) })
        }
        Outcome::Failed(why) => {
            let FailedRun { answer, record, event } = failed(segment, source, record, why, published, now);
            plan.events.push(ConfigEvent { config: source.recipe.config.clone(), event });
            Some(Publication { rule: Rule::RunFailed, answer, record: Some(record) })
        }
    }
}

/// Returns the record of a run that succeeds now.
fn record(job: &Job, now: i64) -> CapacityRecord {
    let (attempt, recipe_version, fingerprint) =
        (job.run_labels.attempt, job.recipe_version.clone(), job.fingerprint.clone());
    CapacityRecord { attempt, at: now, recipe_version, fingerprint, answered: now, ..CapacityRecord::default() }
}

/// A run that has failed.
struct FailedRun {
    /// The answer that counts meanwhile.
    answer: Answer,
    record: CapacityRecord,
    event: NewEvent,
}

/// Returns the answer, the record and the event for a run that has failed.
fn failed(
    segment: &Segment,
    source: &CapacitySource,
    record: CapacityRecord,
    why: &str,
    published: Option<&Published>,
    now: i64,
) -> FailedRun {
    let before = published.and_then(|p| p.record.clone()).unwrap_or_default();
    let age = Duration::from_secs(now.saturating_sub(before.answered).max(0) as u64);
    let is_of_use = before.answered > 0 && age <= source.recipe.capacity_interval.interval * ANSWER_VALID_INTERVALS;
    let last = published.filter(|_| is_of_use).map(|p| Answer { bytes: p.bytes, largest: p.largest });
    let meanwhile = match last {
        Some(_) => "until a run succeeds, the last answer counts",
        None => "until a run succeeds, the scheduler assumes that there is capacity",
    };
    let message = format!("the capacity of {segment} is not known: {why}; {meanwhile}, and the provisioner asks again");
    let event = NewEvent { warning: true, reason: reason::CAPACITY_FAILED, message };
    let answered = if last.is_some() { before.answered } else { 0 };
    let failures = before.failures.saturating_add(1);
    let record = CapacityRecord { answered, failures, message: why.to_owned(), ..record };
    FailedRun { answer: last.unwrap_or(UNLIMITED), record, event }
}

/// A run whose Job Kubernetes rejects.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedRun {
    /// The answer to publish until a run succeeds.
    pub decision: Decision,
    /// The event on the config.
    pub event: NewEvent,
}

/// Decides about a run whose Job Kubernetes rejects: it has failed.
pub fn refused(
    segment: &Segment,
    source: &CapacitySource,
    ask: &CapacityRun,
    why: &str,
    published: Option<&Published>,
    now: i64,
) -> RefusedRun {
    let recipe_version = source.recipe.version();
    let mut job = Job { recipe_version, fingerprint: ask.fingerprint.clone(), ..Job::default() };
    job.run_labels.attempt = ask.attempt;
    let record = record(&job, now);
    let FailedRun { answer, record, event } = failed(segment, source, record, why, published, now);
    let publish = Step::Publish { segment: segment.clone(), answer, record: Some(Box::new(record)) };
    RefusedRun { decision: Rule::RunFailed.step(publish), event }
}

/// The next run of a segment.
struct NextRun {
    rule: Rule,
    due: i64,
}

/// Returns the time at which the segment's next run is due, and the rule that says so.
fn next_run(source: &CapacitySource, record: Option<&CapacityRecord>, fingerprint: &str, now: i64) -> NextRun {
    let Some(record) = record else { return NextRun { rule: Rule::FirstRun, due: now } };
    let refresh = source.recipe.capacity_interval;
    let changed = record.recipe_version != source.recipe.version();
    let (rule, wait) = match record.failures {
        _ if changed => (Rule::ConfigOrUsageChanged, refresh.min_delay),
        0 if record.fingerprint != fingerprint => (Rule::ConfigOrUsageChanged, refresh.min_delay),
        0 => (Rule::IntervalPassed, refresh.interval),
        failures => (Rule::RetryAfterFailure, doubled(refresh.min_delay, failures, refresh.interval)),
    };
    NextRun { rule, due: due_after(record.at, seconds(wait), now) }
}

/// Decides whether the scheduler checks capacity, and which objects it finds.
fn switch(plan: &mut Plan, o: &Observed<'_>, there: &HashSet<String>) {
    let ours = o.driver.filter(|driver| driver.instance.as_deref() == Some(o.instance));
    let reports = o.wanted.iter().any(|wanted| wanted.source.is_some());
    let missing: BTreeSet<&str> = o
        .wanted
        .iter()
        .filter(|wanted| wanted.source.as_ref().is_none_or(|source| source.can_run))
        .filter(|wanted| !there.contains(&wanted.segment.object_name()))
        .map(|wanted| wanted.segment.class.as_str())
        .collect();
    match (o.driver, ours) {
        (None, _) if reports && missing.is_empty() => plan.steps.push(Rule::AllKnown.step(Step::Switch { on: true })),
        (_, Some(driver)) if reports && !driver.on && missing.is_empty() => {
            plan.steps.push(Rule::AllKnown.step(Step::Switch { on: true }));
        }
        (Some(driver), None) if reports && !driver.on => {
            let configs: BTreeSet<_> =
                o.wanted.iter().filter_map(|wanted| Some(&wanted.source.as_ref()?.recipe.config)).collect();
            let message = format!(
                "the scheduler does not look at capacity: the CSIDriver {} belongs to somebody else and does not say `storageCapacity: true`; ask its owner to set that, or run the provisioner under a name of its own",
                driver.name
            );
            let event = |config: &ObjectName| {
                let (reason, message) = (reason::CAPACITY_UNUSED, message.clone());
                ConfigEvent { config: config.clone(), event: NewEvent { warning: true, reason, message } }
            };
            plan.events.extend(configs.into_iter().map(event));
            plan.waits.push(Rule::DriverOfOther);
        }
        (_, Some(driver)) if !reports && driver.on => {
            plan.steps.push(Rule::NoneReported.step(Step::Switch { on: false }));
            return;
        }
        _ => {}
    }
    let of_today: HashSet<String> = o.wanted.iter().map(|wanted| wanted.segment.object_name()).collect();
    let gone = o.published.values().filter(|p| !p.terminating && !of_today.contains(&p.name));
    let gone = gone.filter(|p| !missing.contains(p.class.as_str()));
    let delete = |p: &Arc<Published>| Rule::ObjectNotNeeded.step(Step::DeleteObject { name: p.name.clone() });
    plan.steps.extend(gone.map(delete));
    if ours.is_some() && !reports {
        plan.steps.push(Rule::DriverNotNeeded.step(Step::RemoveDriver));
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
