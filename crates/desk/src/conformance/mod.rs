//! The proof that a program keeps the contract: cases that run it as the orchestrator would, and kill it where a node
//! could die.

mod bench;
mod beside;
mod capabilities;
pub mod case;
pub mod clean;
mod commanded;
mod commands;
mod content;
mod copies;
mod cuts;
mod deletion;
mod desk_place;
mod fronted;
pub mod leftovers;
mod life;
mod listed;
mod moments;
pub mod mounts;
mod on_desk;
pub mod patience;
pub mod pending;
pub mod place;
mod possible;
mod provision;
mod ready;
mod rest;
mod sample;
mod server;
mod storage;
mod told;
mod tree;
mod trouble;
mod user_tree;
mod variable;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use flex_core::config::capability;

use self::bench::{Bench, Halt, Step};
pub use self::case::Case;
use self::clean::listed;
pub use self::commands::Commands;
use self::cuts::Cuts;
use self::desk_place::clean;
use self::fronted::Fronted;
pub use self::on_desk::OnDesk;
use self::on_desk::Parts;
use self::patience::{Repeat, Repeats};
use self::place::{Ids, Place};
pub use self::possible::Possible;
pub use self::storage::Storage;
use crate::desk::{DeskError, Isolation, Temporary, Tools};
use crate::front::{Front, Wanted};
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
    /// The case cannot be done in this place, with the reason.
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
    /// The runs that have asked for another attempt, and got it.
    pub repeats: Vec<Repeat>,
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

    /// Says how many cases passed, of those that say something about the program.
    pub fn summary(&self) -> String {
        let [passed, failed, ..] = self.counts();
        format!("contract {}: {passed} of {}", flex_contract::VERSION, passed + failed)
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

/// The cases that have run, and what they have left.
#[derive(Debug)]
pub struct Proof {
    /// The cases that have ended, or the reason why the others could not.
    pub done: Result<Vec<Done>, DeskError>,
    /// How near the desk came to a container.
    pub isolation: Isolation,
    /// The storage that the command could not delete.
    pub left: Vec<String>,
    /// What the cases could not do, though they ran.
    pub notes: Vec<String>,
}

/// The program that a proof is about, and its storage.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The setting of the runs.
    pub setting: &'a Setting,
    /// The programs.
    pub tools: &'a Tools,
    /// The storage.
    pub storage: &'a Storage,
    /// Eight hexadecimal digits that differ for each call of the command.
    pub call: &'a str,
    /// The parameters with the address of the storage's server, if a front is to stand before it.
    pub front: Option<&'a Wanted>,
}

/// Runs cases on a program of this machine, and calls a function after each. When `stopped` returns, the cases end and their
/// storage is deleted. When `stopped` returns again, the deletion ends, too.
pub async fn run(
    subject: Subject<'_>,
    cases: &[Case],
    mut stopped: impl AsyncFnMut(),
    mut after: impl FnMut(&Done),
) -> Proof {
    let mut proof = Proof { done: Ok(Vec::new()), isolation: Isolation::Root, left: Vec::new(), notes: Vec::new() };
    let done = run_into(&mut proof, &subject, cases, &mut stopped, &mut after).await;
    if done.is_ok() && subject.storage.is_shared() && proof.left.is_empty() {
        // A delete run may have exited 0 and deleted nothing.
        match still_listed(&subject).await {
            Ok(left) => proof.left.extend(left),
            Err(error) => proof.left.push(format!("storage of this run, perhaps: {error}")),
        }
    }
    Proof { done, ..proof }
}

async fn run_into(
    proof: &mut Proof,
    subject: &Subject<'_>,
    cases: &[Case],
    stopped: &mut impl AsyncFnMut(),
    after: &mut impl FnMut(&Done),
) -> Result<Vec<Done>, DeskError> {
    let Subject { setting, storage, call, .. } = subject;
    let folder = Temporary::new()?;
    let front = subject.front().await?;
    let parts = Parts { front: front.clone(), ..subject.parts(folder.path())? };
    let mut all = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let (began, repeats) = (Instant::now(), Repeats::default());
        let by_commands = storage.commands.is_some() && case.with_commands();
        let without_files = (!storage.has_files() && !by_commands).then_some(case.with_external_storage());
        let prevented = without_files.and_then(|possible| not_possible(setting, possible));
        let outcome = match undeclared(setting, *case).or(prevented) {
            Some(outcome) => outcome,
            None => {
                let ids = match storage.is_shared() {
                    true => Ids::of_call(call, n),
                    false => Ids::of_desk().with_snapshot(RandomState::new().build_hasher().finish()),
                };
                let parts = Parts { prefix: ids.prefix().to_owned(), ..parts.clone() };
                let place = Rc::new(OnDesk::new(parts, folder.path(), repeats.clone()).await?);
                proof.isolation = place.desk.isolation();
                let bench = Bench::new(setting, place.clone(), ids);
                let ended = tokio::select! {
                    ended = one(*case, &bench) => outcome(ended),
                    () = stopped() => Err(DeskError::Machine("stopped by a signal".into())),
                };
                proof.left.extend(tokio::select! {
                    left = clean(&place) => left,
                    () = stopped() => vec![format!(
                        "a second signal stopped the deletion: look for storage whose ids begin with {call}-"
                    )],
                });
                ended?
            }
        };
        let done = Done { case: *case, outcome, took: began.elapsed(), repeats: repeats.take() };
        after(&done);
        all.push(done);
    }
    proof.notes.extend(front.and_then(|front| front.front.limits()).map(str::to_owned));
    Ok(all)
}

/// Returns the volumes of a call that a list run shows after the last case.
async fn still_listed(subject: &Subject<'_>) -> Result<Vec<String>, DeskError> {
    let folder = tempfile::Builder::new().prefix("flex-desk-").tempdir()?;
    let place = OnDesk::new(subject.parts(folder.path())?, folder.path(), Repeats::default()).await?;
    listed(&place, subject.setting, &format!("{}-", subject.call)).await
}

impl Subject<'_> {
    /// Returns the parts of desks with their files in a directory.
    fn parts(&self, folder: &Path) -> Result<Parts, DeskError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = self.tools.path.iter().cloned();
        let programs: Vec<PathBuf> = own.chain(std::env::split_paths(&path)).collect();
        Ok(Parts {
            setting: self.setting.clone(),
            tools: self.tools.clone(),
            storage: self.storage.clone(),
            cuts: Cuts::new(folder, &programs)?,
            prefix: self.call.to_owned(),
            front: None,
        })
    }

    /// Starts the front before the server of the storage, if there is to be one.
    async fn front(&self) -> Result<Option<Rc<Fronted>>, DeskError> {
        let Some(wanted) = self.front else { return Ok(None) };
        let front = Front::start(wanted, self.setting, self.tools).await.map_err(DeskError::Machine)?;
        Ok(Some(Rc::new(Fronted::new(front))))
    }
}

/// Runs cases on a cluster, and calls a function after each. `call` has eight hexadecimal digits, and differs for each call.
///
/// # Errors
/// If the cluster cannot run them.
pub async fn run_on_cluster(
    setting: &Setting,
    place: &Rc<impl Place + 'static>,
    call: &str,
    cases: &[Case],
    mut after: impl FnMut(&Done),
) -> Result<Vec<Done>, DeskError> {
    let mut all = Vec::new();
    for (n, case) in cases.iter().enumerate() {
        let began = Instant::now();
        let without_mounts = case.mounts_on_cluster() && place.mounts().is_none();
        let decided = undeclared(setting, *case)
            .or_else(|| not_possible(setting, case.on_cluster()))
            .or_else(|| without_mounts.then(|| Outcome::NotPossible(NO_MOUNT_IMAGE.into())));
        let outcome = match decided {
            Some(outcome) => outcome,
            None => {
                let bench = Bench::new(setting, place.clone(), Ids::of_call(call, n));
                let outcome = outcome(one(*case, &bench).await)?;
                place.clear().await?;
                outcome
            }
        };
        let done = Done { case: *case, outcome, took: began.elapsed(), repeats: place.repeats().take() };
        after(&done);
        all.push(done);
    }
    Ok(all)
}

/// Checks whether pods mount volumes when these cases run on a cluster.
pub fn mount_on_cluster(setting: &Setting, cases: &[Case]) -> bool {
    cases.iter().any(|case| case.mounts_on_cluster() && undeclared(setting, *case).is_none())
}

/// Returns the outcome of a case for a capability that the config does not declare.
fn undeclared(setting: &Setting, case: Case) -> Option<Outcome> {
    let capability = case.needs().filter(|capability| !declares(setting, capability))?;
    Some(Outcome::Skipped(format!("the config does not declare the capability {capability}")))
}

/// The reason for cases whose pods have no image.
const NO_MOUNT_IMAGE: &str = "the pods that compare the content of volumes need an image with a shell, and the orchestrator has no \
     image for scripts: name an image with --mount-image";

/// Returns the outcome of a case that cannot be done.
fn not_possible(setting: &Setting, possible: Possible) -> Option<Outcome> {
    possible.prevented(setting.recipe.can(capability::LIST)).map(|why| Outcome::NotPossible(why.into()))
}

/// Checks whether the config declares a capability. A config with a batch size declares batches.
fn declares(setting: &Setting, capability: &str) -> bool {
    let batches = capability == capability::BATCH && setting.recipe.batch_size > 1;
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
        Case::VolumeIsLast if bench.commands().is_some() => ready::volume_is_ready(bench).await,
        Case::VolumeIsLast => provision::volume_is_last(bench).await,
        Case::EightAtOnce => provision::eight_at_once(bench).await,
        Case::Interleaved => beside::interleaved(bench).await,
        Case::UnknownOperation => provision::unknown_operation(bench).await,
        Case::Sizes => provision::sizes(bench).await,
        Case::HostileTexts => {
            provision::hostile_texts(bench).await?;
            copies::hostile_ids(bench).await
        }
        Case::UnknownParameter => trouble::unknown_parameter(bench).await,
        Case::OtherPath => trouble::other_path(bench).await,
        Case::StorageFails => trouble::storage_fails(bench).await,
        Case::AnswerLost => server::answer_lost(bench).await,
        Case::ServerFails => server::server_fails(bench).await,
        Case::LineCut => server::line_cut(bench).await,
        Case::KilledAtAnswer => server::killed_at_answer(bench).await,
        Case::ServerSlow => server::server_slow(bench).await,
        Case::LastWords => provision::last_words(bench).await,
        Case::NoSecretInWords => provision::no_secret_in_words(bench).await,
        Case::EndsAfterSigterm => provision::ends_after_sigterm(bench).await,
        Case::PoolNames => provision::pool_names(bench).await,
        Case::DeleteGone => deletion::delete_gone(bench).await,
        Case::NextVolumeEmpty => deletion::next_volume_empty(bench).await,
        Case::DeleteTwice => deletion::delete_twice(bench).await,
        Case::DeleteUnknown => deletion::delete_unknown(bench).await,
        Case::DeleteHalfMade => deletion::delete_half_made(bench).await,
        Case::DeleteById => deletion::delete_by_id(bench).await,
        Case::DeleteAlone => deletion::delete_alone(bench).await,
        Case::HostileContent => beside::hostile_content(bench).await,
        Case::DeleteKilled => deletion::delete_killed(bench).await,
        Case::Expand => capabilities::expand(bench).await,
        Case::CloneContent => copies::clone_content(bench).await,
        Case::CloneKilled => copies::clone_killed(bench).await,
        Case::SnapshotRestore => copies::snapshot_restore(bench).await,
        Case::SnapshotAgain => copies::snapshot_again(bench).await,
        Case::SnapshotKilled => copies::snapshot_killed(bench).await,
        Case::SnapshotOutlives => copies::snapshot_outlives(bench).await,
        Case::Modify => capabilities::modify(bench).await,
        Case::Capacity => capabilities::capacity(bench).await,
        Case::ListWhole => capabilities::list_whole(bench).await,
        Case::ListOrNothing => capabilities::list_or_nothing(bench).await,
        Case::Batch => capabilities::batch_of_three(bench).await,
    }
}
