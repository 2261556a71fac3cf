//! The parts of which cases are made: a place, and runs there.

use std::rc::Rc;

use flex_contract::names::pv_name;
use flex_contract::operation::Operation;
use flex_core::model::claim::Claim;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;

use super::commands::Commands;
use super::fronted::Fronted;
use super::mounts::Mounts;
use super::on_desk::OnDesk;
use super::patience::{Repeats, patiently};
use super::place::{Ids, Place};
use super::tree::Tree;
use crate::api::Hold;
use crate::desk::{DeskError, Ended, Stop};
use crate::order::{Content, Made, Order};
use crate::setting::Setting;
use crate::verdict::{asks_scheduler, verdict};

/// The number of times at which a run is killed on a desk.
const TIMES: u32 = 8;
/// The number of times at which a run is killed on a cluster or with external storage, where each takes seconds.
const TIMES_ELSEWHERE: u32 = 4;

/// The reason for cases that need a front.
const NO_FRONT: &str =
    "nothing is between program and server: name the parameter with the server's address by --front PARAMETER";

/// The reason why a case ends before its end.
#[derive(Debug)]
pub enum Halt {
    /// The program has failed the case.
    Failed(String),
    /// The case says nothing about this program.
    Skipped(String),
    /// The case cannot be done in this place.
    NotPossible(String),
    /// The place itself failed.
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

/// A place with the setting of a case.
pub struct Bench {
    /// The setting.
    pub setting: Setting,
    /// The ids of the case.
    pub ids: Ids,
    pub(super) place: Rc<dyn Place>,
}

impl Bench {
    /// Makes the bench of a case.
    pub fn new(setting: &Setting, place: Rc<dyn Place>, ids: Ids) -> Self {
        Bench { setting: setting.clone(), ids, place }
    }

    /// Makes a fresh desk with another setting, beside this one.
    pub async fn again(&self, setting: &Setting) -> Step<Self> {
        let place = self.desk()?.again(setting).await?;
        Ok(Bench::new(setting, place, self.ids.clone()))
    }

    /// Returns the same bench, with the same storage, for runs with another setting.
    pub fn with_setting(&self, setting: &Setting) -> Self {
        Bench { setting: setting.clone(), ids: self.ids.clone(), place: self.place.clone() }
    }

    /// Returns the desk. On a cluster the case ends here.
    pub fn desk(&self) -> Step<&OnDesk> {
        self.place.desk().ok_or_else(|| Halt::NotPossible("the case needs the desk".into()))
    }

    /// Returns the pods that mount volumes; none on a desk, where the case looks at files.
    pub fn mounts(&self) -> Option<&dyn Mounts> {
        self.place.mounts()
    }

    /// Returns the commands of a person that write and read the content of volumes.
    pub fn commands(&self) -> Option<&Commands> {
        self.place.desk()?.parts.storage.commands.as_ref()
    }

    /// Returns the front before the server of the storage. Without one the case ends here.
    pub(super) fn fronted(&self) -> Step<Rc<Fronted>> {
        let front = self.desk()?.parts.front.clone();
        front.ok_or_else(|| Halt::NotPossible(NO_FRONT.into()))
    }

    /// Checks whether the case can see the files of the storage.
    pub fn sees_files(&self) -> bool {
        self.place.desk().is_some_and(|desk| desk.parts.storage.has_files())
    }

    /// Checks whether a server, a cloud, a driver or a cluster has the storage.
    pub fn is_external(&self) -> bool {
        self.place.desk().is_none_or(|desk| desk.parts.storage.is_external)
    }

    /// Checks whether others have files or volumes on the same storage.
    pub fn shares_storage(&self) -> bool {
        self.place.desk().is_none_or(|desk| desk.parts.storage.is_shared())
    }

    /// Returns the address of the API server.
    pub fn kube_api(&self) -> String {
        self.place.kube_api()
    }

    /// Returns the number of times at which a run is killed.
    pub fn times(&self) -> u32 {
        if self.sees_files() { TIMES } else { TIMES_ELSEWHERE }
    }

    /// Returns the claim of the case.
    pub fn claim(&self) -> Claim {
        self.setting.claim_with_id(&self.ids.first())
    }

    /// Returns one of many other claims.
    pub fn numbered(&self, n: u32) -> Claim {
        self.setting.claim_with_id(&self.ids.numbered(n))
    }

    /// Builds the Job of an order's attempt with this number, from 1.
    pub fn job(&self, order: &Order, attempt: u32) -> Step<Job> {
        let job = self.setting.job(order, self.place.attempt(order, attempt), &self.place.kube_api());
        job.map_err(|why| Halt::Broken(DeskError::Container(why)))
    }

    /// Runs an order once, to its end. The run may fail.
    pub async fn run(&self, order: &Order) -> Step<Ended> {
        self.attempt(order, 1, Stop::Never).await
    }

    /// Makes the attempt of an order with this number, until it ends or something stops it.
    pub async fn attempt(&self, order: &Order, attempt: u32, stop: Stop<'_>) -> Step<Ended> {
        self.run_job(self.job(order, attempt)?, std::slice::from_ref(order), stop).await
    }

    /// Repeats a run that must succeed while it asks for another attempt, as the orchestrator does.
    pub async fn patiently(&self, operation: &str, run: impl AsyncFn(u32) -> Step<Ended>) -> Step<Ended> {
        let other_node = operation == Operation::Provision.as_str() && asks_scheduler(&self.setting);
        patiently(self.place.repeats(), operation, other_node, run).await
    }

    /// Returns the notes about runs that were repeated.
    pub fn repeats(&self) -> &Repeats {
        self.place.repeats()
    }

    /// Kills a provision run when it creates the volume.
    pub async fn killed_at(&self, hold: Hold) -> Step<()> {
        let (api, order) = (&self.desk()?.desk.api, Order::Provision { claim: self.claim(), content: Content::Empty });
        let attempt = async |attempt| {
            api.hold(hold);
            let ended = self.attempt(&order, attempt, Stop::kill(api.reached())).await;
            api.hold(Hold::Never);
            ended
        };
        let ended = self.patiently(order.operation().as_str(), attempt).await?;
        check(ended.killed, || format!("the run created no volume: it {}", shown(&ended)))
    }

    /// Runs a Job that does some orders, until something stops it.
    pub async fn run_job(&self, job: Job, orders: &[Order], stop: Stop<'_>) -> Step<Ended> {
        orders.iter().for_each(|order| self.place.begins(order));
        let ended = self.place.run(&self.setting, job, stop).await?;
        if ended.is_success() {
            orders.iter().for_each(|order| self.place.succeeded(order));
            orders.iter().for_each(|order| self.setting.keep_handle(order, &ended.message));
        }
        Ok(ended)
    }

    /// Runs an order, which must exit 0, perhaps after some attempts.
    pub async fn succeed(&self, order: &Order) -> Step<Ended> {
        let attempt = async |attempt| self.attempt(order, attempt, Stop::Never).await;
        let ended = self.patiently(order.operation().as_str(), attempt).await?;
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
        let ended = self.succeed(&order).await?;
        self.fitting(claim, &ended).await
    }

    /// Checks that the storage shows a volume: if it did not, its absence would prove nothing.
    pub fn shows(&self, id: &str) -> bool {
        !self.tree().with(id).is_empty()
    }

    /// Checks that a run has made a volume that fits.
    pub async fn fitting(&self, claim: &Claim, ended: &Ended) -> Step<Made> {
        let volume = self.volume(claim).await?;
        let verdict = verdict(&self.setting, Operation::Provision, claim, volume.as_ref(), ended);
        check(ended.is_success(), || format!("the provision run {}", shown(ended)))?;
        check(verdict.is_good(), || {
            let events: Vec<_> = verdict.events.iter().map(|event| event.message.clone()).collect();
            events.join("; ")
        })?;
        let volume = volume.ok_or_else(|| Halt::Failed("there is no volume".into()))?;
        Ok(self.setting.adopted(claim, volume))
    }

    /// Returns the volume of a claim.
    pub async fn volume(&self, claim: &Claim) -> Step<Option<PersistentVolume>> {
        Ok(self.place.volume(&pv_name(&claim.volume_id())).await?)
    }

    /// Removes the volume of a claim, as the orchestrator does when its storage is deleted.
    pub async fn forget(&self, claim: &Claim) -> Step<()> {
        Ok(self.place.forget(&pv_name(&claim.volume_id())).await?)
    }

    /// Removes everything that runs have made.
    pub async fn reset(&self) -> Step<()> {
        self.place.clear().await?;
        match self.place.desk() {
            Some(_) => self.forget(&self.claim()).await,
            // A cluster keeps a volume whose storage could not be deleted.
            None => Ok(()),
        }
    }

    /// Reads everything that is stored; nothing on a cluster, whose storage cannot be seen.
    pub fn tree(&self) -> Tree {
        self.place.desk().map(OnDesk::tree).unwrap_or_default()
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

    /// Deletes what the runs for a claim have made, with the volume if there is one, as the orchestrator does.
    pub async fn remove(&self, claim: &Claim) -> Step<()> {
        let order = match self.volume(claim).await? {
            Some(volume) => Order::Delete(self.setting.adopted(claim, volume)),
            None => Order::Undo { claim: claim.clone() },
        };
        self.succeed(&order).await?;
        self.forget(claim).await
    }
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
    let said = if words.is_empty() { end } else { format!("{end}: {words}") };
    match ended.attempts {
        0 | 1 => said,
        attempts => format!("{said} (attempt {attempts}; each attempt before it asked for another one, too)"),
    }
}
