//! The parts of which cases are made: a fresh desk, and runs on it.

use std::path::{Path, PathBuf};

use flex_contract::names::pv_name;
use flex_core::model::claim::Claim;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::cuts::{Cuts, chosen};
use super::tree::Tree;
use crate::container::Container;
use crate::desk::{Desk, DeskError, Ended, Isolation, Stop, Tools};
use crate::order::{Content, Made, Order};
use crate::setting::{ID, Setting};
use crate::verdict::verdict;

/// The reason why a case ends before its end.
#[derive(Debug)]
pub enum Halt {
    /// The program has failed the case.
    Failed(String),
    /// The case says nothing about this program.
    Skipped(String),
    /// The desk itself failed.
    Broken(DeskError),
}

impl Halt {
    /// Says in the reason of a failed case what was going on.
    pub fn during(self, what: &str) -> Self {
        match self {
            Halt::Failed(why) => Halt::Failed(format!("{what}: {why}")),
            other => other,
        }
    }
}

impl From<DeskError> for Halt {
    fn from(error: DeskError) -> Self {
        Halt::Broken(error)
    }
}

impl From<std::io::Error> for Halt {
    fn from(error: std::io::Error) -> Self {
        Halt::Broken(error.into())
    }
}

/// The result of a step of a case.
pub type Step<T> = Result<T, Halt>;

/// Fails the case unless a condition holds.
pub fn check(condition: bool, why: impl FnOnce() -> String) -> Step<()> {
    if condition { Ok(()) } else { Err(Halt::Failed(why())) }
}

/// A desk with the setting of a case.
pub struct Bench {
    /// The setting.
    pub setting: Setting,
    /// The desk.
    pub desk: Desk,
    /// The stand-ins of programs.
    cuts: Cuts,
    tools: Tools,
    folder: tempfile::TempDir,
}

impl Bench {
    /// Makes a fresh desk.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub async fn new(setting: &Setting, tools: &Tools, folder: &Path, cuts: &Cuts) -> Result<Self, DeskError> {
        let folder = tempfile::Builder::new().prefix("case-").tempdir_in(folder)?;
        let desk = Desk::new(folder.path(), tools.clone()).await?;
        Ok(Bench { setting: setting.clone(), desk, cuts: cuts.clone(), tools: tools.clone(), folder })
    }

    /// Makes a fresh desk with another setting, beside this one.
    pub async fn again(&self, setting: &Setting) -> Result<Self, DeskError> {
        Bench::new(setting, &self.tools, self.folder.path(), &self.cuts).await
    }

    /// Returns the claim of the case.
    pub fn claim(&self) -> Claim {
        self.setting.claim_with_id(ID)
    }

    /// Makes the container of an order.
    pub fn container(&self, order: &Order, attempt: u32) -> Step<Container> {
        let job = self.setting.job(order, attempt, &self.desk.api.url());
        let job = job.map_err(|why| Halt::Broken(DeskError::Container(why)))?;
        Ok(self.desk.container(&self.setting, &job)?)
    }

    /// Runs an order to its end.
    pub async fn run(&self, order: &Order) -> Step<Ended> {
        self.run_until(order, Stop::Never).await
    }

    /// Runs an order until something stops it.
    pub async fn run_until(&self, order: &Order, stop: Stop<'_>) -> Step<Ended> {
        Ok(self.desk.run(&self.container(order, 1)?, stop).await?)
    }

    /// Runs an order, which must exit 0.
    pub async fn succeed(&self, order: &Order) -> Step<Ended> {
        let ended = self.run(order).await?;
        check(ended.is_success(), || format!("the {} run {}", order.operation(), shown(&ended)))?;
        Ok(ended)
    }

    /// Makes a volume for a claim, which must fit.
    pub async fn provision(&self, claim: &Claim) -> Step<Made> {
        self.provision_with(claim, Content::Empty).await
    }

    /// Makes a volume with content for a claim, which must fit.
    pub async fn provision_with(&self, claim: &Claim, content: Content) -> Step<Made> {
        let order = Order::Provision { claim: claim.clone(), content };
        let ended = self.run(&order).await?;
        self.fitting(claim, &ended)
    }

    /// Checks that a run has made a volume that fits.
    pub fn fitting(&self, claim: &Claim, ended: &Ended) -> Step<Made> {
        let volume = self.volume(claim);
        let verdict =
            verdict(&self.setting, flex_contract::operation::Operation::Provision, claim, volume.as_ref(), ended);
        check(ended.is_success(), || format!("the provision run {}", shown(ended)))?;
        check(verdict.is_good(), || {
            let events: Vec<_> = verdict.events.iter().map(|event| event.message.clone()).collect();
            events.join("; ")
        })?;
        let volume = volume.ok_or_else(|| Halt::Failed("there is no volume".into()))?;
        Ok(self.setting.adopted(claim, volume))
    }

    /// Returns the volume of a claim.
    pub fn volume(&self, claim: &Claim) -> Option<PersistentVolume> {
        self.desk.api.volume(&pv_name(&claim.volume_id()))
    }

    /// Removes the volume of a claim, as the orchestrator does when its storage is deleted.
    pub fn forget(&self, claim: &Claim) {
        self.desk.api.set(&pv_name(&claim.volume_id()), None);
    }

    /// Reads everything that is stored.
    pub fn tree(&self) -> Tree {
        let tree = Tree::read(self.desk.storage());
        if self.setting.recipe.storage_mounts.is_empty() { tree } else { tree.without_unused() }
    }

    /// Reads everything that is stored, for a case that compares it.
    pub fn stored(&self, id: &str) -> Step<Tree> {
        let tree = self.tree();
        match tree.with(id).is_empty() {
            true => Err(Halt::Skipped("the storage of the volume is not on this machine".into())),
            false => Ok(tree),
        }
    }

    /// Checks that the storage has no trace of an id.
    pub fn check_no_trace(&self, id: &str) -> Step<()> {
        let tree = self.tree();
        let left = tree.with(id);
        check(left.is_empty(), || {
            let left: Vec<_> = left.iter().map(|path| path.display().to_string()).collect();
            format!("the storage still has {}", left.join(", "))
        })
    }

    /// Returns the directory with the content of a volume, if it is on this machine.
    pub fn content(&self, id: &str) -> Option<PathBuf> {
        let tree = self.tree();
        let paths: Vec<PathBuf> = tree.with(id).into_iter().map(|path| self.desk.storage().join(path)).collect();
        paths.into_iter().find(|path| path.is_dir())
    }

    /// Kills a run of an order before each process that it starts, and calls a function after each. The function may
    /// repeat the run. `reset` makes everything as before the first run.
    pub async fn at_each_child(
        &self,
        order: &Order,
        after: impl AsyncFn(usize, &Ended) -> Step<()>,
        reset: impl AsyncFn() -> Step<()>,
    ) -> Step<usize> {
        let mut container = self.container(order, 1)?;
        self.cuts.arm(&mut container, usize::MAX >> 1)?;
        self.desk.run(&with_path(&container, &self.cuts), Stop::Never).await?;
        if let Isolation::None(why) = self.desk.isolation() {
            return Err(Halt::Skipped(format!("this machine cannot kill a run before a process: {why}")));
        }
        let calls = self.cuts.count();
        if calls == 0 {
            return Err(Halt::Skipped("the program starts no other program by its name".into()));
        }
        reset().await?;
        for cut in chosen(calls) {
            let mut container = self.container(order, 1)?;
            self.cuts.arm(&mut container, cut)?;
            let stop = Stop::kill(self.cuts.reached());
            let ended = self.desk.run(&with_path(&container, &self.cuts), stop).await?;
            let moment = format!("killed before process {} of {calls}", cut + 1);
            after(cut, &ended).await.map_err(|halt| halt.during(&moment))?;
            reset().await?;
        }
        Ok(calls)
    }
}

/// Puts the stand-ins before all other programs.
fn with_path(container: &Container, cuts: &Cuts) -> Container {
    let mut container = container.clone();
    container.programs.push(cuts.path());
    container
}

/// Says how a run ended, with the end of its words.
pub fn shown(ended: &Ended) -> String {
    let words = ended.last_words();
    let words = if words.trim().is_empty() { crate::desk::last_lines(&ended.log) } else { words };
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = match (&ended.not_started, ended.timed_out) {
        (Some(why), _) => format!("did not start: {why}"),
        (None, true) => "took too long".to_owned(),
        (None, false) => format!("ended with {}", ended.code),
    };
    if words.is_empty() { end } else { format!("{end}: {words}") }
}
