//! The observation of a claim: the cache, and the facts that this reconcile has confirmed beyond it.

use std::sync::Arc;

use flex_contract::cause;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::admit::{namespace_refusal, refusal};
use flex_core::claim::decide::{ClassCertainty, RecordedAttempts, known_nodes, last_node};
use flex_core::claim::nodes::{NodeChoice, choose_node};
use flex_core::claim::verify::{self, MadeOn};
use flex_core::config::classes::{BindingMode, Class, ClassLookup, Classes};
use flex_core::config::current_program::recipe_with_current_program;
use flex_core::config::modify::{Attributes, requested_attributes};
use flex_core::config::{Placement, Recipe};
use flex_core::model::claim::Claim;
use flex_core::model::data_source::SourceUser;
use flex_core::model::reach::reaching;
use flex_core::model::volume::Volume;
use flex_core::run::node::{Node, NodeLabels, NodeStates};
use flex_core::run::slot_wait::NoSlot;
use flex_core::run::view::{Job, Pod, nodes_with_pods};

use crate::reconcile::context::Context;
use crate::reconcile::data_source;
use crate::state::index::{Index, SlotRequest};

/// The data from which a decision borrows, in the parts of [`Observed`](flex_core::claim::decide::Observed):
/// `OwnedRuns` has what the `Runs` of the decision borrow.
pub(super) struct Observation {
    pub classes: Arc<Classes>,
    pub recipes: OwnedRecipes,
    pub runs: OwnedRuns,
    pub volumes: OwnedVolumes,
    pub preconditions: OwnedPreconditions,
    pub nodes: OwnedNodes,
    pub source: OwnedSourceRelation,
    pub pool: OwnedPoolRelation,
}

/// The recipes of a claim's runs.
pub(super) struct OwnedRecipes {
    /// The recipe that the stamp names.
    pub stamped: Option<Arc<Recipe>>,
    /// The present recipe of the class.
    current: Option<Arc<Recipe>>,
    /// The recipe of a delete run: that of the stamp, with the program of the class.
    pub deletion: Option<Arc<Recipe>>,
}

impl OwnedRecipes {
    /// Returns the recipe of the attempt, or that of the class if the former is lost.
    fn of_attempt(&self) -> Option<&Arc<Recipe>> {
        self.stamped.as_ref().or(self.current.as_ref())
    }
}

/// The runs of a claim.
pub(super) struct OwnedRuns {
    /// The Jobs of provision runs.
    pub jobs: Vec<Arc<Job>>,
    /// The Jobs of delete runs.
    pub deletes: Vec<Arc<Job>>,
    /// The pods of all these runs, also of those whose Job is gone.
    pub pods: Vec<Arc<Pod>>,
    /// What records say of all attempts.
    pub recorded: RecordedAttempts,
}

/// A volume that names a claim, with the result of its check.
pub(super) struct VerifiedVolume {
    /// The volume.
    pub volume: Arc<Volume>,
    /// The reasons why it cannot be bound.
    pub mismatches: Vec<String>,
    /// The nodes of the claim's attempts that its node affinity includes; of all nodes, if none is known.
    pub reaching: Vec<String>,
}

/// The volumes that name a claim.
pub(super) struct OwnedVolumes {
    /// The volumes, with the results of their check.
    pub all: Vec<VerifiedVolume>,
    /// Volumes that lack only their adoption mark.
    pub unmarked: Vec<String>,
    /// Volumes to which the observation has added a node affinity.
    pub with_derived_affinity: Vec<String>,
    /// A volume that is reserved for the claim by name.
    pub reserved: Option<Arc<Volume>>,
}

impl OwnedVolumes {
    /// Checks whether a volume lacks only its adoption mark.
    pub(super) fn lacks_mark(&self, name: &str) -> bool {
        self.unmarked.iter().any(|unmarked| unmarked == name)
    }
}

/// The preconditions of an attempt.
pub(super) struct OwnedPreconditions {
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
    /// The quota counts the claim, though the cache does not show its stamp yet.
    pub has_pending_charge: bool,
    /// What the attempts for an earlier claim of this name left is being deleted.
    pub has_namesake: bool,
    /// The reason why no first attempt may begin, because too much is left of claims that are gone.
    pub left_refusal: Option<String>,
    /// The attributes that the claim requests, or the reason why it cannot have them.
    pub attributes: Result<Attributes, String>,
}

/// The nodes of a claim and of its runs.
pub(super) struct OwnedNodes {
    /// The nodes from which the next attempt can choose.
    pub choice: NodeChoice,
    /// The nodes that have a pod of a run.
    pub with_pods: Vec<String>,
    /// The states of all nodes on which the claim depends.
    pub states: NodeStates,
}

/// The data source of a claim, and the claim as a data source.
pub(super) struct OwnedSourceRelation {
    /// The data source of the claim, with what concerns it.
    pub data_source: Option<data_source::SourceObservation>,
    /// The claims and VolumeSnapshots that have a finalizer on the claim.
    pub users: Vec<SourceUser>,
}

/// The relation of a claim to the pool of its class.
pub(super) struct OwnedPoolRelation {
    /// The class has a pool.
    pub exists: bool,
    /// The claim as a pool request.
    pub request: PoolRequest,
    /// A pooled volume that fits the claim.
    pub volume: Option<Arc<Volume>>,
}

/// The claim as a pool request.
pub(super) enum PoolRequest {
    /// A user made the claim.
    No,
    /// The claim is a pool request, and the orchestrator does not serve its class.
    ClassNotServed,
    /// The claim is a pool request of this class. Nobody selects a node for it, so that the class binds immediately.
    OfClass(Class),
}

impl PoolRequest {
    /// Checks whether the claim is a pool request.
    pub(super) fn is_request(&self) -> bool {
        !matches!(self, PoolRequest::No)
    }

    /// Returns the class as it serves pool requests.
    pub(super) fn class(&self) -> Option<&Class> {
        match self {
            PoolRequest::OfClass(class) => Some(class),
            PoolRequest::No | PoolRequest::ClassNotServed => None,
        }
    }
}

/// Facts beyond the cache that this reconcile has confirmed.
#[derive(Default)]
pub(super) struct Confirmed {
    /// The API has just shown the claim as it is.
    pub fresh: bool,
    /// The API has no volume of the claim.
    pub no_volume: bool,
    /// The API has no StorageClass of the claim's class.
    pub no_class_object: bool,
    /// The volume as the API has just shown it.
    pub volume: Option<Volume>,
    /// The nodes for which the API was asked, with the answers.
    pub nodes: NodeStates,
    /// The data source as it was last written.
    pub data_source: data_source::ConfirmedSource,
}

/// Observes a claim and all objects that concern it.
pub(super) fn observe(context: &Context, claim: &Claim, confirmed: &Confirmed) -> Observation {
    let index = context.cluster.index();
    let classes = index.classes();
    let name = claim.class.as_deref().unwrap_or_default();
    let class = match classes.lookup(name) {
        ClassLookup::Ours(class) => Some(class),
        _ => None,
    };
    let recipes = recipes(claim, class, &index);
    let builder = ObservationBuilder { context, claim, confirmed, class, recipes: &recipes, index: &index };
    let runs = builder.runs();
    let pool = builder.pool();
    let source = builder.source();
    let nodes = builder.nodes(&runs, &pool, &source);
    let volumes = builder.volumes(&runs);
    let preconditions = builder.preconditions(&runs);
    drop(index);
    Observation { classes, recipes, runs, volumes, preconditions, nodes, source, pool }
}

/// Returns the recipes of a claim's runs.
fn recipes(claim: &Claim, class: Option<&Class>, index: &Index) -> OwnedRecipes {
    let name = claim.class.as_deref().unwrap_or_default();
    // Users can write a stamp. It may name a version of the claim's own class, and no other.
    let stamped =
        claim.own_stamp().and_then(|stamp| index.recipe(&stamp.recipe_version)).filter(|recipe| recipe.class == name);
    let current = class.and_then(|class| class.recipe.as_ref().ok().cloned());
    let served = current.as_ref().map(|recipe| &recipe.effective_config);
    let deletion = stamped.clone().or(current.clone()).map(|recipe| recipe_with_current_program(recipe, served));
    OwnedRecipes { stamped, current, deletion }
}

/// The data that all parts of the observation use.
struct ObservationBuilder<'a> {
    context: &'a Context,
    claim: &'a Claim,
    confirmed: &'a Confirmed,
    class: Option<&'a Class>,
    recipes: &'a OwnedRecipes,
    index: &'a Index,
}

impl ObservationBuilder<'_> {
    fn runs(&self) -> OwnedRuns {
        let (claim, index) = (self.claim, self.index);
        let (deletes, jobs): (Vec<_>, Vec<_>) = claim
            .volume_ids()
            .flat_map(|id| index.jobs_of(&id))
            .filter(|job| job.is_for_claim())
            .partition(|job| job.run_labels.operation == Operation::Delete);
        let pods: Vec<_> = claim.volume_ids().flat_map(|id| index.pods_of(&id)).collect();
        let mut recorded = index.recorded_attempts(&claim.uid);
        recorded.is_missing = index.unsettled_records_of(&claim.uid).is_empty()
            && claim.is_held()
            && claim.own_stamp().is_some()
            && (index.has_lost_record(&claim.uid) || may_have_run(claim, &jobs, &pods));
        OwnedRuns { jobs, deletes, pods, recorded }
    }

    fn pool(&self) -> OwnedPoolRelation {
        let (claim, index) = (self.claim, self.index);
        let request = match self.class {
            _ if !index.is_pool_request(claim) => PoolRequest::No,
            None => PoolRequest::ClassNotServed,
            Some(class) => PoolRequest::OfClass(Class { binding: BindingMode::Immediate, ..class.clone() }),
        };
        let volume = match (self.class, &self.recipes.current) {
            (Some(class), Some(recipe)) => index.pooled_volume_for(claim, class, recipe),
            _ => None,
        };
        OwnedPoolRelation {
            exists: self.recipes.current.as_ref().is_some_and(|recipe| recipe.pool.is_some()),
            request,
            volume,
        }
    }

    fn source(&self) -> OwnedSourceRelation {
        let (claim, index) = (self.claim, self.index);
        let data_source =
            data_source::SourceObservation::of(claim, index, &self.context.identity, &self.confirmed.data_source);
        OwnedSourceRelation { data_source, users: data_source::source_users_of_claim(claim, index) }
    }

    fn nodes(&self, runs: &OwnedRuns, pool: &OwnedPoolRelation, source: &OwnedSourceRelation) -> OwnedNodes {
        let (claim, index) = (self.claim, self.index);
        let class = pool.request.class().or(self.class);
        let with_pods = nodes_with_pods(&runs.pods);
        let source_node =
            source.data_source.as_ref().and_then(|observed| observed.data_source().node().map(str::to_owned));
        let mut states = index.node_states(
            claim.nodes_with_storage.iter().chain(&claim.selected_node).chain(&with_pods).chain(&source_node),
        );
        states.0.extend(self.confirmed.nodes.0.clone());
        OwnedNodes { choice: node_choice(claim, class, self.recipes.stamped.as_deref(), index), with_pods, states }
    }

    fn volumes(&self, runs: &OwnedRuns) -> OwnedVolumes {
        let (claim, index) = (self.claim, self.index);
        let id = claim.volume_id();
        let mut volumes = index.volumes_of(&claim.uid);
        if id != claim.uid {
            volumes.extend(index.volumes_of(&id));
            volumes.sort_by(|a, b| a.name.cmp(&b.name));
            volumes.dedup_by(|a, b| a.name == b.name);
        }
        if let Some(newer) = &self.confirmed.volume {
            volumes.retain(|volume| volume.name != newer.name);
            volumes.push(Arc::new(newer.clone()));
        }
        let names_it = |uid: &String| *uid == claim.uid || *uid == id;
        volumes.retain(|volume| volume.claim_uid.as_ref().is_some_and(names_it) || volume.name == names::pv_name(&id));
        let mut unmarked = Vec::new();
        for volume in &mut volumes {
            if let Some(marked) = index.marked(volume) {
                unmarked.push(volume.name.clone());
                *volume = marked;
            }
        }
        let mut with_derived_affinity = Vec::new();
        let all = self.verified(volumes, runs, &mut with_derived_affinity);
        let reserved = (!claim.is_bound()).then(|| index.reserved_for(claim)).flatten();
        OwnedVolumes { all, unmarked, with_derived_affinity, reserved }
    }

    /// Checks which volumes fit the claim. Adds the node affinity that follows from the node of the run.
    fn verified(
        &self,
        volumes: Vec<Arc<Volume>>,
        runs: &OwnedRuns,
        with_derived_affinity: &mut Vec<String>,
    ) -> Vec<VerifiedVolume> {
        let (claim, index) = (self.claim, self.index);
        let Some(recipe) = self.recipes.of_attempt() else {
            let unknown = || vec!["the provisioner config of the attempt is not known any more".to_owned()];
            let unverified = |volume| VerifiedVolume { volume, mismatches: unknown(), reaching: Vec::new() };
            return volumes.into_iter().map(unverified).collect();
        };
        // A copy may have to be on the node of its data source, which is recorded last.
        let node = claim.data_source.as_ref().and(claim.nodes_with_storage.last()).or(claim.selected_node.as_ref());
        let is_selected = node.is_some();
        // Where the orchestrator chooses the node, any attempt may have made the volume.
        let is_attempt_known = || claim.nodes_with_storage.iter().all(|node| index.node(node).is_some());
        let of_attempts =
            || last_node(claim).filter(|_| recipe.placement == Placement::SelectedNode && is_attempt_known());
        let node = node.or_else(of_attempts).and_then(|node| index.node(node));
        let node = node.as_ref().map(|node| NodeLabels { node: &node.name, labels: &node.labels });
        let made_on = made_on(claim, recipe, &runs.pods);
        let node_of_run = made_on.and_then(|name| index.node(name));
        let labels = node_of_run.as_ref().map(|node| &node.labels);
        let made_on = made_on.map(|node| MadeOn { node, labels });
        let verify = |volume: Arc<Volume>| {
            let (volume, unknown) = match verify::derived_affinity(&volume, recipe, made_on) {
                Ok(None) => (volume, None),
                Ok(Some(affinity)) => {
                    with_derived_affinity.push(volume.name.clone());
                    (Arc::new(Volume { affinity: Some(Box::new(affinity)), ..(*volume).clone() }), None)
                }
                Err(unknown) => (volume, Some(unknown)),
            };
            let reaching = self.reaching(&volume, recipe);
            let mut mismatches =
                verify::mismatches(&volume, claim, recipe, node.filter(|_| is_selected || reaching.is_empty()));
            mismatches.extend(unknown);
            VerifiedVolume { reaching, volume, mismatches }
        };
        volumes.into_iter().map(verify).collect()
    }

    /// Returns the nodes of the claim's attempts that a volume's node affinity includes; of all nodes, if none is known.
    fn reaching(&self, volume: &Volume, recipe: &Recipe) -> Vec<String> {
        let selector = volume.affinity.as_deref().filter(|_| recipe.placement == Placement::SelectedNode);
        let Some(selector) = selector else { return Vec::new() };
        let mut known: Vec<_> = known_nodes(self.claim).collect();
        known.sort();
        known.dedup();
        let of_attempts = known.iter().filter_map(|name| self.index.node(name));
        let nodes: Vec<Arc<Node>> =
            if known.is_empty() { self.index.nodes().cloned().collect() } else { of_attempts.collect() };
        reaching(selector, nodes.iter().map(Arc::as_ref)).map(str::to_owned).collect()
    }

    fn preconditions(&self, runs: &OwnedRuns) -> OwnedPreconditions {
        let (claim, index, current) = (self.claim, self.index, self.recipes.current.as_ref());
        // No attempt follows one that is in progress, and the search for a free slot counts all runs.
        let run_in_progress = claim.own_stamp().is_some() && runs.jobs.iter().any(|job| !job.is_over);
        let may_start_attempt = !claim.is_bound() && !claim.terminating && !run_in_progress;
        let slot_request = SlotRequest::claim(&claim.name);
        let (namespaces, is_request) = (index.namespaces(), index.is_pool_request(claim));
        // A class without a config serves the namespaces that it served when the attempt began.
        let known = current.or(self.recipes.stamped.as_ref()).filter(|_| !claim.is_bound() && !claim.terminating);
        // No pool gives way to a claim that the class refuses.
        let asks =
            |recipe: &&Arc<Recipe>| !claim.terminating && refusal(claim, recipe, namespaces, is_request).is_none();
        let class = claim.attributes_class.as_deref();
        let attributes = match self.recipes.of_attempt() {
            Some(recipe) => {
                let provisioner = recipe.effective_config.provisioner(&self.context.identity.provisioner);
                requested_attributes(class, class.and_then(|class| index.attributes_class(class)), recipe, provisioner)
            }
            None => Ok(Attributes::default()),
        };
        OwnedPreconditions {
            class_certainty: match self.class {
                Some(class) if !self.confirmed.no_class_object => index.class_certainty(class, claim),
                _ => ClassCertainty::Certain,
            },
            has_revision: current.is_some_and(|recipe| index.has_revision(&recipe.hash)),
            no_slot: current.filter(|_| may_start_attempt).and_then(|recipe| index.no_slot(&slot_request, recipe)),
            namespace_refusal: known.and_then(|recipe| namespace_refusal(claim, recipe, namespaces, is_request)),
            quota_refusal: current.filter(asks).and_then(|recipe| index.quota_refusal(claim, recipe)),
            has_pending_charge: index.has_pending_charge(&claim.uid),
            has_namesake: claim.own_stamp().is_none() && index.has_namesake(claim),
            left_refusal: claim.own_stamp().is_none().then(|| index.left_refusal(claim)).flatten(),
            attributes,
        }
    }
}

/// Returns the node where the claim's volume is made: that of its run, or the selected one.
fn made_on<'a>(claim: &'a Claim, recipe: &Recipe, pods: &'a [Arc<Pod>]) -> Option<&'a String> {
    let provision = || pods.iter().filter(|pod| pod.run_labels.operation == Operation::Provision && pod.node.is_some());
    let last_pod = || provision().max_by_key(|pod| (pod.run_labels.attempt, pod.created))?.node.as_ref();
    match recipe.placement {
        Placement::SelectedNode => last_node(claim),
        Placement::Any => claim.selected_node.as_ref().or_else(last_pod),
    }
}

/// Returns the nodes for the next attempt of a claim that has no node and needs one.
fn node_choice(claim: &Claim, class: Option<&Class>, stamped: Option<&Recipe>, index: &Index) -> NodeChoice {
    let current = class.and_then(|class| class.recipe.as_deref().ok());
    let exists = claim.selected_node.as_deref().is_some_and(|node| index.node(node).is_some());
    let asks = !claim.is_bound() && !claim.terminating && !exists;
    let on_node = |recipe: &&Recipe| recipe.placement == Placement::SelectedNode;
    match (class, current.filter(on_node).or(stamped.filter(on_node))) {
        (Some(class), Some(recipe)) if asks && class.binding == BindingMode::Immediate => {
            choose_node(index.nodes().map(Arc::as_ref), claim, recipe, &class.allowed)
        }
        _ => NodeChoice::default(),
    }
}

/// Checks whether an attempt for a held claim may have run: a pod was opened, a Job has ended, or an attempt has failed that was
/// not refused.
fn may_have_run(claim: &Claim, jobs: &[Arc<Job>], pods: &[Arc<Pod>]) -> bool {
    let has_failed = claim.last_failure.as_ref().is_some_and(|last| {
        let refused = [cause::NAMESPACE_GONE, cause::JOB_REFUSED, cause::CONFIG_LOST, cause::NEVER_STARTED];
        last.unstarted_attempts < last.attempt && !refused.contains(&last.reason.as_str())
    });
    let opened =
        |pod: &Arc<Pod>| pod.run_labels.operation == Operation::Provision && pod.gate.is_none() && !pod.never_started;
    has_failed || pods.iter().any(opened) || pods.is_empty() && jobs.iter().any(|job| job.is_over)
}
