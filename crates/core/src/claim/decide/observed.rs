//! The observation on which a decision about a claim rests, in parts.

use std::sync::Arc;

use crate::claim::data_source::DataSourceState;
use crate::claim::nodes::NodeChoice;
use crate::config::Recipe;
use crate::config::classes::Class;
use crate::config::modify::Attributes;
use crate::model::claim::{Binding, Claim};
use crate::model::data_source::SourceUser;
use crate::model::phase::VolumePhase;
use crate::model::volume::{OtherAttempt, Volume};
use crate::run::node::NodeStates;
use crate::run::slot_wait::NoSlot;
use crate::run::state::RunState;
use crate::run::view::Job;

/// The observation of a claim and of all objects that concern it.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The class of the claim.
    pub class: ServedClass<'a>,
    /// Facts that this reconcile has confirmed beyond the cache.
    pub confirmed: ConfirmedFacts,
    /// The provision runs.
    pub runs: &'a Runs,
    /// The delete run for storage that attempts left.
    pub deletion: &'a Deletion,
    /// The volumes of the claim.
    pub volumes: &'a Volumes,
    /// The preconditions of an attempt.
    pub preconditions: &'a Preconditions,
    /// The nodes of the claim and of its runs.
    pub nodes: &'a Nodes,
    /// The data source of the claim, and the claim as a data source.
    pub source: SourceRelation<'a>,
    /// The relation of the claim to the pool of its class.
    pub pool: PoolRelation<'a>,
}

impl<'a> Observed<'a> {
    /// Returns the recipe of the attempt, or that of the class if the former is lost.
    pub(super) fn recipe_of_attempt(&self) -> Option<&'a Recipe> {
        self.runs.recipe.as_deref().or(match self.class {
            ServedClass::Ours(class) => class.recipe.as_deref().ok(),
            ServedClass::NotOurs => None,
        })
    }

    /// Returns the number of the stamped attempt; 0 for none.
    pub(super) fn attempt(&self) -> u32 {
        self.claim.own_stamp().map_or(0, |stamp| stamp.attempt)
    }

    /// Checks whether it is uncertain that no volume exists. The cache has no volume, and nobody has asked the API.
    pub(super) fn is_volume_unsure(&self) -> bool {
        !self.confirmed.no_volume && self.volumes.all.is_empty()
    }
}

/// The relation of the claim's class to the orchestrator.
#[derive(Clone, Copy, Debug)]
pub enum ServedClass<'a> {
    /// The class is not the orchestrator's, or does not exist.
    NotOurs,
    /// The class is the orchestrator's.
    Ours(&'a Class),
}

/// Facts that a reconcile has confirmed beyond the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConfirmedFacts {
    /// The claim was just read or written, and does not come from the cache.
    pub fresh: bool,
    /// A quorum read has found no volume.
    pub no_volume: bool,
}

/// The provision runs of a claim.
#[derive(Clone, Debug)]
pub struct Runs {
    /// All provision Jobs of the claim.
    pub jobs: Vec<Arc<Job>>,
    /// The state of the stamped attempt's run.
    pub state: RunState,
    /// The recipe that the stamp names.
    pub recipe: Option<Arc<Recipe>>,
    /// A pod of a provision run may still be running.
    pub has_running_pods: bool,
    /// No container of the stamped attempt has run, and none will run.
    pub never_started: bool,
    /// Somebody deleted the Job of the stamped attempt while the attempt was in progress.
    pub removed: Option<RemovedJob>,
    /// What records say of all attempts for the claim, also of those before somebody has removed its stamp.
    pub recorded: RecordedAttempts,
}

/// The attempts for a claim that its records name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedAttempts {
    /// An attempt for the held claim may have run, but the cache has no record that the claim needs.
    pub is_missing: bool,
    /// The highest number; 0 without records.
    pub last: u32,
    /// The nodes where they may have left storage.
    pub nodes: Vec<String>,
    /// Those that may have left what no run with the recipe of the last one deletes.
    pub others: Vec<OtherAttempt>,
}

impl Runs {
    /// Checks whether the run of the stamped attempt is in progress.
    pub(super) fn is_in_progress(&self) -> bool {
        matches!(self.state, RunState::MayBeRunning | RunState::Stuck { .. })
    }
}

/// The Job deletions by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovedJob {
    /// The number of deletions.
    pub times: u32,
    /// The time of the last deletion, in seconds since 1970.
    pub at: i64,
}

/// The delete run on the node of [`cleanup_node`](super::cleanup_node). Of an abandoned claim, any that has not ended.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// The state of the run.
    pub state: RunState,
    /// The Job of the run.
    pub job: Option<Arc<Job>>,
    /// The recipe of a delete run now: that of the stamp, with the program of the class.
    pub recipe: Option<Arc<Recipe>>,
}

/// The volumes of a claim, and their binding.
#[derive(Clone, Debug)]
pub struct Volumes {
    /// Volumes that name the claim.
    pub all: Vec<Candidate>,
    /// A volume that is reserved for the claim by name, and fits.
    pub reserved: Option<String>,
    /// The party that binds the claim.
    pub binding: Binding,
    /// Many volumes wait until the PV controller has seen them.
    pub many_wait: bool,
}

impl Volumes {
    /// Checks whether a volume is adopted, but for its mark.
    pub fn lacks_mark(&self, name: &str) -> bool {
        self.all.iter().any(|candidate| candidate.volume.name == name && candidate.lacks_mark)
    }
}

/// A volume that names the claim.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The reasons why the volume cannot be bound.
    pub mismatches: Vec<String>,
    /// The nodes of the claim's attempts that the volume's node affinity includes; of all nodes, if none is known.
    pub reaching: Vec<String>,
    /// A sync probe has shown that the PV controller has seen the volume with the claim in its claimRef.
    pub seen_by_probe: bool,
    /// The volume is adopted, but for the adoption mark. It counts as adopted for the orchestrator that adopted it.
    pub lacks_mark: bool,
    /// The claimRef names another claim with its UID, and that claim is certainly gone, or has another volume for good.
    pub is_let_go: bool,
}

impl Candidate {
    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    pub(super) fn is_known_to_pv_controller(&self) -> bool {
        self.volume.phase == VolumePhase::Bound || self.seen_by_probe
    }
}

/// The preconditions of an attempt: slot, quota, revision and attributes.
#[derive(Clone, Debug)]
pub struct Preconditions {
    /// Whether a StorageClass may say more about the class.
    pub class_certainty: ClassCertainty,
    /// The revision of the class's recipe is stored.
    pub has_revision: bool,
    /// The reason why the class has no slot for another run; `None` if it has one.
    pub no_slot: Option<NoSlot>,
    /// The reason why the class serves no claim of this namespace.
    pub namespace_refusal: Option<String>,
    /// The reason why a quota of the class allows no further volume; `None` for a claim that counts already.
    pub quota_refusal: Option<String>,
    /// A stamp whose write may have failed has reserved quota for the claim, and other claims wait for that quota.
    pub has_pending_charge: bool,
    /// What the attempts for an earlier claim of this name left is being deleted.
    pub has_namesake: bool,
    /// The reason why no first attempt may begin, because too much is left of claims of this namespace and class that are gone.
    pub left_refusal: Option<String>,
    /// The attributes that the claim requests, or the reason why it cannot have them.
    pub attributes: Result<Attributes, String>,
}

/// The certainty about the StorageClass of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassCertainty {
    /// The StorageClass is known, or the API has shown none since the claim was last written.
    Certain,
    /// Only the label of a config makes the class, and nobody has asked the API. A watch may be late.
    Unasked,
    /// Only the label of a config makes the class, since a moment. A StorageClass may follow.
    MayFollow,
}

/// The nodes of a claim and of its runs.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// The nodes for the next attempt, if nobody selects a node for the claim.
    pub choice: NodeChoice,
    /// The states of the nodes that the claim and its pods depend on.
    pub states: NodeStates,
    /// The nodes of all pods that may still be running, whatever their run.
    pub with_pods: Vec<String>,
    /// The class does not allow the selected node.
    pub selected_forbidden: bool,
}

/// The data source of a claim, and the claim as a data source.
#[derive(Clone, Debug)]
pub struct SourceRelation<'a> {
    /// The data source of the claim, if it has one.
    pub state: Option<DataSourceState<'a>>,
    /// The claims and VolumeSnapshots for which this claim is kept.
    pub users: &'a [SourceUser],
}

/// The relation of a claim to the pool of its class.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolRelation<'a> {
    /// The claim is a pool request, and gets no volume itself.
    pub is_request: bool,
    /// A pooled volume that fits the claim.
    pub volume: Option<&'a str>,
}
