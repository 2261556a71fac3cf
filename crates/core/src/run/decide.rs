//! Decides about the runs of one operation for one object: a pure function of what the owner wants, what is seen, and the time.
//!
//! The [rules](Rule) say when it decides what. What follows from an [`Outcome`] is the owner's: its records, its events, and what
//! a success or a failure means for it.

use flex_contract::exit::Reaction;

use super::backoff::clamp_to_recent;
use super::node::NodeState;
use super::rule::Rule;
use super::state::{Cause, RunState};
use super::view::Job;
use crate::config::NodeGone;

/// What an owner wants.
#[derive(Clone, Copy, Debug)]
pub enum Goal<'a> {
    /// That a run succeeds: if none is in progress, the next one.
    Run(Next<'a>),
    /// No further run. What is in progress goes on, and its end counts.
    Keep,
    /// That no run is in progress. Jobs are deleted.
    End,
}

/// The next run.
#[derive(Clone, Copy, Debug)]
pub struct Next<'a> {
    /// When it is due, in seconds since 1970.
    pub due: i64,
    /// After how many seconds to look again while another run ends, if no event tells its end.
    pub poll: Option<i64>,
    /// The class has a free slot, or asks for one when the run starts.
    pub has_slot: bool,
    /// The owner has noted that the run begins, or needs no note.
    pub is_prepared: bool,
    /// The node on which the run must be; `None` if that does not matter, or if its loss has no rule.
    pub node: Option<NodeOfRun<'a>>,
}

/// The node of a run.
#[derive(Clone, Copy, Debug)]
pub struct NodeOfRun<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its state.
    pub state: NodeState,
    /// What follows if it is gone.
    pub gone: NodeGone,
}

/// What is seen of the runs of one operation for one object.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The runs, in the order in which they are looked at.
    pub runs: &'a [SeenRun<'a>],
    /// A run was started a moment ago, and its Job is not visible.
    pub is_starting: bool,
    /// A pod of one of these runs may still be running.
    pub has_pods: bool,
    /// A pod of another run that works there may still be running.
    pub others_have_pods: bool,
    /// The node of a pod, if it is not reachable.
    pub unreachable: Option<&'a str>,
}

impl<'a> Seen<'a> {
    /// Describes these runs, where nothing else is seen but them.
    pub fn of(runs: &'a [SeenRun<'a>], unreachable: Option<&'a str>) -> Self {
        Seen { runs, is_starting: false, has_pods: false, others_have_pods: false, unreachable }
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct SeenRun<'a> {
    /// Its Job, if that is visible.
    pub job: Option<&'a Job>,
    /// Its state.
    pub state: &'a RunState,
    /// No process of it is running any more, as its owner counts.
    pub is_over: bool,
    /// Its end is noted.
    pub is_noted: bool,
    /// Its Job is needed, for its log or as evidence.
    pub is_needed: bool,
    /// It would not be started like this now: by another version of the config, for another request, or on another node.
    pub is_outdated: bool,
}

impl<'a> SeenRun<'a> {
    /// Describes a run of which the Job stays until its object is gone, such as one that deletes the object.
    pub fn of_deletion(job: Option<&'a Job>, state: &'a RunState) -> Self {
        let is_over = matches!(state, RunState::Succeeded | RunState::Failed { pods_ended: true, .. });
        SeenRun { job, state, is_over, is_noted: false, is_needed: true, is_outdated: false }
    }

    /// Checks whether its Job is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.job.is_some_and(|job| job.terminating)
    }
}

/// What is decided.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The rule that applies.
    pub rule: Rule,
    /// What it says.
    pub what: What<'a>,
    /// The time of the next decision if nothing happens, in seconds since 1970.
    pub requeue_at: Option<i64>,
}

/// What an owner has to do.
#[derive(Clone, Debug)]
pub enum What<'a> {
    /// Waits. The run for which it waits, and the node that does not answer, if any.
    Wait {
        /// The run that is in progress or ending.
        run: Option<SeenRun<'a>>,
        /// The node of a pod, if it is not reachable.
        unreachable: Option<&'a str>,
    },
    /// Waits for a slot.
    WaitForSlot,
    /// Tells the cause for which the run does not start.
    Stuck {
        /// The run.
        run: SeenRun<'a>,
        /// The cause.
        cause: &'a Cause,
    },
    /// Deletes the Job.
    Remove(&'a Job),
    /// Takes what the run has done.
    Succeeded(SeenRun<'a>),
    /// Records the failure.
    Failed {
        /// The run.
        run: SeenRun<'a>,
        /// The cause.
        cause: &'a Cause,
        /// The reaction that the image asks for.
        reaction: Reaction,
        /// When it failed, in seconds since 1970, as far as that can be believed.
        at: i64,
    },
    /// Notes that the run begins.
    Prepare,
    /// Asks the API for the node.
    ConfirmNode(&'a str),
    /// Does what the policy says about the node, which is gone.
    NodeGone(&'a str),
    /// Starts the run.
    Start {
        /// The run need not be on its node, because the node is gone.
        on_any_node: bool,
    },
}

impl<'a> Outcome<'a> {
    fn new(rule: Rule, what: What<'a>) -> Self {
        Outcome { rule, what, requeue_at: None }
    }

    fn wait(rule: Rule, run: Option<SeenRun<'a>>, seen: &Seen<'a>) -> Self {
        Outcome::new(rule, What::Wait { run, unreachable: seen.unreachable })
    }
}

/// Decides about the runs of one operation for one object; `None` if no run is wanted and all ends are noted. `now` is in seconds
/// since 1970.
pub fn decide<'a>(goal: &Goal<'a>, seen: &Seen<'a>, now: i64) -> Option<Outcome<'a>> {
    match goal {
        Goal::Run(next) => Some(decide_next(next, seen, now)),
        Goal::Keep => so_far(seen, now),
        Goal::End => ending(seen),
    }
}

/// Decides the same for an owner that wants a run ([`Goal::Run`]).
pub fn decide_next<'a>(next: &Next<'a>, seen: &Seen<'a>, now: i64) -> Outcome<'a> {
    so_far(seen, now).unwrap_or_else(|| next_run(next, seen, now))
}

/// Decides about runs that have begun.
fn so_far<'a>(seen: &Seen<'a>, now: i64) -> Option<Outcome<'a>> {
    progress(seen).or_else(|| ended(seen, now))
}

/// Ends all runs.
fn ending<'a>(seen: &Seen<'a>) -> Option<Outcome<'a>> {
    if let Some(job) = seen.runs.iter().filter_map(|run| run.job).find(|job| !job.terminating) {
        return Some(Outcome::new(Rule::RunNotWanted, What::Remove(job)));
    }
    let left = seen.runs.iter().find(|run| !run.is_over);
    (seen.is_starting || seen.has_pods || left.is_some()).then(|| Outcome::wait(Rule::RunEnding, left.copied(), seen))
}

/// Decides while a run is in progress or stuck.
fn progress<'a>(seen: &Seen<'a>) -> Option<Outcome<'a>> {
    let Some(run) = seen.runs.iter().find(|run| !run.is_over && *run.state != RunState::NotCached).copied() else {
        return seen.is_starting.then(|| Outcome::wait(Rule::RunStarting, None, seen));
    };
    Some(match (run.state, run.job) {
        (_, Some(job)) if job.terminating => Outcome::wait(Rule::RunStopping, Some(run), seen),
        (RunState::Stuck { .. }, Some(job)) if run.is_outdated => Outcome::new(Rule::RunOutdated, What::Remove(job)),
        (RunState::Stuck { cause, .. }, _) => Outcome::new(Rule::RunStuck, What::Stuck { run, cause }),
        (RunState::Failed { .. }, _) => Outcome::wait(Rule::RunEnding, Some(run), seen),
        _ if seen.unreachable.is_some() => Outcome::wait(Rule::RunUnreachable, Some(run), seen),
        _ => Outcome::wait(Rule::RunInProgress, Some(run), seen),
    })
}

/// Decides about runs that have ended.
fn ended<'a>(seen: &Seen<'a>, now: i64) -> Option<Outcome<'a>> {
    let unnoted = || seen.runs.iter().filter(|run| !run.is_noted).copied();
    if let Some(run) = unnoted().find(|run| *run.state == RunState::Succeeded) {
        return Some(Outcome::new(Rule::RunSucceeded, What::Succeeded(run)));
    }
    let unneeded = seen.runs.iter().filter(|run| !run.is_needed && !run.is_terminating());
    if let Some(job) = unneeded.filter_map(|run| run.job).next() {
        return Some(Outcome::new(Rule::JobNotNeeded, What::Remove(job)));
    }
    unnoted().find_map(|run| match run.state {
        RunState::Failed { pods_ended: false, .. } => Some(Outcome::wait(Rule::RunEnding, Some(run), seen)),
        RunState::Failed { cause, reaction, at, .. } => {
            let at = clamp_to_recent(*at, now);
            Some(Outcome::new(Rule::RunFailed, What::Failed { run, cause, reaction: *reaction, at }))
        }
        _ => None,
    })
}

/// Decides when and where the next run starts.
fn next_run<'a>(next: &Next<'a>, seen: &Seen<'a>, now: i64) -> Outcome<'a> {
    if now < next.due {
        return Outcome { requeue_at: Some(next.due), ..Outcome::wait(Rule::RunNotDue, None, seen) };
    }
    if seen.has_pods || seen.others_have_pods {
        let requeue_at = next.poll.map(|poll| now.saturating_add(poll));
        return Outcome { requeue_at, ..Outcome::wait(Rule::OtherRunEnding, None, seen) };
    }
    if !next.has_slot {
        return Outcome::new(Rule::NoFreeSlot, What::WaitForSlot);
    }
    if !next.is_prepared {
        return Outcome::new(Rule::AttemptDue, What::Prepare);
    }
    let start = |rule, on_any_node| Outcome::new(rule, What::Start { on_any_node });
    let Some(NodeOfRun { name, state, gone }) = next.node else { return start(Rule::RunDue, false) };
    match (state, gone) {
        (NodeState::Reachable | NodeState::Unreachable, _) => start(Rule::RunDue, false),
        (NodeState::NotCached, _) => Outcome::new(Rule::ConfirmNodeGone, What::ConfirmNode(name)),
        (NodeState::NotFound, NodeGone::RunElsewhere) => start(Rule::NodeGoneRunElsewhere, true),
        (NodeState::NotFound, NodeGone::Forget) => Outcome::new(Rule::NodeGoneForget, What::NodeGone(name)),
        (NodeState::NotFound, NodeGone::Hold) => Outcome::new(Rule::NodeGoneHold, What::NodeGone(name)),
    }
}
