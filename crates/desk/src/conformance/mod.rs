//! The proof that a program keeps the contract: cases that run it as the orchestrator would, and kill it where a node
//! could die.

mod bench;
mod capabilities;
pub mod case;
mod cuts;
mod deletion;
mod desk_place;
mod listed;
mod on_desk;
pub mod place;
mod provision;
mod tree;
mod variable;

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use self::bench::{Bench, Halt, Step};
pub use self::case::{Case, OnCluster};
use self::cuts::Cuts;
pub use self::on_desk::OnDesk;
use self::place::{Ids, Place};
use crate::desk::{DeskError, Isolation, Tools};
use crate::setting::Setting;

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program keeps the contract.
    Passed,
    /// The program breaks it, with what was seen.
    Failed(String),
    /// The case says nothing about this program, with the reason.
    Skipped(String),
    /// The case cannot be done on a cluster, with the reason.
    NotPossible(String),
}

/// A case that has ended.
#[derive(Clone, Debug)]
pub struct Done {
    /// The case.
    pub case: Case,
    /// The result of the case.
    pub outcome: Outcome,
    /// The time that it took.
    pub took: Duration,
}

/// The result of all cases.
#[derive(Clone, Debug)]
pub struct Report {
    /// The cases, in their order.
    pub done: Vec<Done>,
    /// How near the desk came to a container.
    pub isolation: Isolation,
}

impl Report {
    /// Checks whether no case has failed.
    pub fn is_good(&self) -> bool {
        !self.done.iter().any(|done| matches!(done.outcome, Outcome::Failed(_)))
    }

    /// Counts the cases that passed, failed, were skipped, and were not possible.
    pub fn counts(&self) -> [usize; 4] {
        let count = |is: fn(&Outcome) -> bool| self.done.iter().filter(|done| is(&done.outcome)).count();
        [
            count(|outcome| matches!(outcome, Outcome::Passed)),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Skipped(_))),
            count(|outcome| matches!(outcome, Outcome::NotPossible(_))),
        ]
    }
}

/// Runs cases on a program of this machine, and calls a function after each.
///
/// # Errors
/// If this machine cannot run them.
pub async fn run(
    setting: &Setting,
    tools: &Tools,
    cases: &[Case],
    mut after: impl FnMut(&Done),
) -> Result<Report, DeskError> {
    let folder = tempfile::Builder::new().prefix("flex-desk-").tempdir()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = tools.path.iter().cloned().chain(std::env::split_paths(&path)).collect();
    let cuts = Cuts::new(folder.path(), &programs)?;
    let mut report = Report { done: Vec::new(), isolation: Isolation::Root };
    for case in cases {
        let began = Instant::now();
        let outcome = match undeclared(setting, *case) {
            Some(outcome) => outcome,
            None => {
                let place = OnDesk::new(tools, folder.path(), &cuts).await?;
                report.isolation = place.desk.isolation();
                let bench = Bench::new(setting, Rc::new(place), Ids::of_desk());
                outcome(one(*case, &bench).await)?
            }
        };
        let done = Done { case: *case, outcome, took: began.elapsed() };
        after(&done);
        report.done.push(done);
    }
    Ok(report)
}

/// Runs cases on a cluster, and calls a function after each. `run` has eight hexadecimal digits, and differs for each call.
///
/// # Errors
/// If the cluster cannot run them.
pub async fn run_on_cluster(
    setting: &Setting,
    place: &Rc<impl Place + 'static>,
    run: &str,
    cases: &[Case],
    mut after: impl FnMut(&Done),
) -> Result<Vec<Done>, DeskError> {
    let mut all = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let began = Instant::now();
        let decided = undeclared(setting, *case).or_else(|| not_possible(setting, *case));
        let outcome = match decided {
            Some(outcome) => outcome,
            None => {
                let bench = Bench::new(setting, place.clone(), Ids::of_cluster(run, n));
                let outcome = outcome(one(*case, &bench).await)?;
                place.clear().await?;
                outcome
            }
        };
        let done = Done { case: *case, outcome, took: began.elapsed() };
        after(&done);
        all.push(done);
    }
    Ok(all)
}

/// Returns the outcome of a case for a capability that the config does not declare.
fn undeclared(setting: &Setting, case: Case) -> Option<Outcome> {
    let capability = case.needs().filter(|capability| !declares(setting, capability))?;
    Some(Outcome::Skipped(format!("the config does not declare the capability {capability}")))
}

/// Returns the outcome of a case that a cluster cannot do.
fn not_possible(setting: &Setting, case: Case) -> Option<Outcome> {
    match case.on_cluster() {
        OnCluster::Yes => None,
        OnCluster::ByList if setting.recipe.can(flex_core::config::capability::LIST) => None,
        OnCluster::ByList => Some(Outcome::NotPossible(
            "the storage cannot be seen: the config does not declare the capability list".into(),
        )),
        OnCluster::No(why) => Some(Outcome::NotPossible(why.into())),
    }
}

/// Checks whether the config declares a capability. A config with a batch size declares batches.
fn declares(setting: &Setting, capability: &str) -> bool {
    let batches = capability == flex_core::config::capability::BATCH && setting.recipe.batch_size > 1;
    setting.recipe.can(capability) || batches
}

fn outcome(step: Step<()>) -> Result<Outcome, DeskError> {
    match step {
        Ok(()) => Ok(Outcome::Passed),
        Err(Halt::Failed(why)) => Ok(Outcome::Failed(why)),
        Err(Halt::Skipped(why)) => Ok(Outcome::Skipped(why)),
        Err(Halt::NotPossible(why)) => Ok(Outcome::NotPossible(why)),
        // A container that a cluster would not start is the fault of config or program.
        Err(Halt::Broken(DeskError::Container(why))) => Ok(Outcome::Failed(why)),
        Err(Halt::Broken(error)) => Err(error),
    }
}

async fn one(case: Case, bench: &Bench) -> Step<()> {
    match case {
        Case::VolumeFits => provision::volume_fits(bench).await,
        Case::Rights => provision::rights(bench).await,
        Case::CalledAgain => provision::called_again(bench).await,
        Case::KilledAtChild => provision::killed_at_child(bench).await,
        Case::KilledAtTimes => provision::killed_at_times(bench).await,
        Case::KilledAtCreate => provision::killed_at_create(bench).await,
        Case::VolumeIsLast => provision::volume_is_last(bench).await,
        Case::EightAtOnce => provision::eight_at_once(bench).await,
        Case::UnknownOperation => provision::unknown_operation(bench).await,
        Case::Sizes => provision::sizes(bench).await,
        Case::HostileTexts => provision::hostile_texts(bench).await,
        Case::LastWords => provision::last_words(bench).await,
        Case::NoSecretInWords => provision::no_secret_in_words(bench).await,
        Case::EndsAfterSigterm => provision::ends_after_sigterm(bench).await,
        Case::PoolNames => provision::pool_names(bench).await,
        Case::DeleteGone => deletion::delete_gone(bench).await,
        Case::DeleteTwice => deletion::delete_twice(bench).await,
        Case::DeleteUnknown => deletion::delete_unknown(bench).await,
        Case::DeleteHalfMade => deletion::delete_half_made(bench).await,
        Case::DeleteById => deletion::delete_by_id(bench).await,
        Case::DeleteKilled => deletion::delete_killed(bench).await,
        Case::Expand => capabilities::expand(bench).await,
        Case::CloneContent => capabilities::clone_content(bench).await,
        Case::CloneKilled => capabilities::clone_killed(bench).await,
        Case::SnapshotRestore => capabilities::snapshot_restore(bench).await,
        Case::SnapshotAgain => capabilities::snapshot_again(bench).await,
        Case::Modify => capabilities::modify(bench).await,
        Case::Capacity => capabilities::capacity(bench).await,
        Case::ListWhole => capabilities::list_whole(bench).await,
        Case::ListOrNothing => capabilities::list_or_nothing(bench).await,
        Case::Batch => capabilities::batch(bench).await,
    }
}
