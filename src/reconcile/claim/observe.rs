//! The observation of a claim: the cache, and the facts that this reconcile has confirmed beyond it.

use std::sync::Arc;

use flex_contract::cause;
use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::admit::{namespace_refusal, refusal};
use flex_core::claim::decide::{
    Candidate, ClassCertainty, ConfirmedFacts, Deletion, Nodes, Observed, PoolRelation, Preconditions,
    RecordedAttempts, Runs, ServedClass, SourceRelation, Volumes, known_nodes, last_node,
};
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
use flex_core::run::view::{Job, Pod, has_running_pods, nodes_with_pods};

use super::names::{delete_job_name, provision_job_name};
use super::others::others;
use super::served::{is_selected_node_forbidden, served_class};
use super::unstarted::has_never_started;
use crate::reconcile::context::{Context, RunObjects};
use crate::reconcile::data_source;
use crate::state::index::{Index, SlotRequest};

/// The parts of the observation that a decision takes, and the data that only its step needs.
pub(super) struct Observation {
    pub classes: Arc<Classes>,
    pub runs: Runs,
    pub deletion: Deletion,
    /// The Jobs of delete runs.
    pub deletes: Vec<Arc<Job>>,
    /// The pods of all runs, also of those whose Job is gone.
    pub pods: Vec<Arc<Pod>>,
    pub volumes: Volumes,
    /// The names of volumes to which the observation has added a node affinity.
    pub with_derived_affinity: Vec<String>,
    pub preconditions: Preconditions,
    pub nodes: Nodes,
    pub source: OwnedSourceRelation,
    pub pool: OwnedPoolRelation,
}

impl Observation {
    /// Returns the observation as the decision takes it.
    pub(super) fn observed<'a>(&'a self, claim: &'a Claim, confirmed: &Confirmed) -> Observed<'a> {
        Observed {
            claim,
            class: match (served_class(claim, &self.classes), self.pool.request.class()) {
                (ServedClass::Ours(_), Some(class)) => ServedClass::Ours(class),
                (served_class, _) => served_class,
            },
            confirmed: ConfirmedFacts { fresh: confirmed.fresh, no_volume: confirmed.no_volume },
            runs: &self.runs,
            deletion: &self.deletion,
            volumes: &self.volumes,
            preconditions: &self.preconditions,
            nodes: &self.nodes,
            source: SourceRelation {
                state: self.source.data_source.as_ref().map(data_source::SourceObservation::data_source),
                users: &self.source.users,
            },
            pool: PoolRelation {
                is_request: self.pool.request.is_request(),
                volume: self.pool.volume.as_ref().map(|volume| volume.name.as_str()),
            },
        }
    }
}

/// The recipes of a claim's runs.
struct Recipes {
    /// The recipe that the stamp names.
    stamped: Option<Arc<Recipe>>,
    /// The present recipe of the class.
    current: Option<Arc<Recipe>>,
    /// The recipe of a delete run: that of the stamp, with the program of the class.
    deletion: Option<Arc<Recipe>>,
}

impl Recipes {
    /// Returns the recipe of the attempt, or that of the class if the former is lost.
    fn of_attempt(&self) -> Option<&Arc<Recipe>> {
        self.stamped.as_ref().or(self.current.as_ref())
    }
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
    let jobs = index.jobs_of(&claim.uid).into_iter().filter(|job| job.is_for_claim());
    let (deletes, jobs): (Vec<_>, Vec<_>) = jobs.partition(|job| job.run_labels.operation == Operation::Delete);
    let pods = index.pods_of(&claim.uid);
    let run = RunObjects { jobs: &jobs, pods: &pods };
    let builder = ObservationBuilder { context, claim, confirmed, class, recipes: &recipes, run, index: &index };
    let recorded = builder.recorded();
    let pool = builder.pool();
    let source = builder.source();
    let nodes = builder.nodes(&pool, &source);
    let mut with_derived_affinity = Vec::new();
    let volumes = builder.volumes(&mut with_derived_affinity);
    let preconditions = builder.preconditions();
    let name = provision_job_name(claim);
    let never_started = has_never_started(claim, run, &index);
    let removed = index.removed(&claim.volume_id(), &name);
    drop(index);
    let is_known = recipes.stamped.is_some() || matches!(served_class(claim, &classes), ServedClass::Ours(_));
    let recipe = recipes.deletion.filter(|_| is_known);
    let deletion = deletion(context, claim, RunObjects { jobs: &deletes, pods: &pods }, &nodes.states, recipe);
    let state = context.run_state(&jobs, &pods, &name);
    let has_running_pods = has_running_pods(&pods, Operation::Provision);
    let recipe = recipes.stamped;
    let runs = Runs { jobs, state, recipe, has_running_pods, never_started, removed, recorded };
    Observation {
        classes,
        runs,
        deletion,
        deletes,
        pods,
        volumes,
        with_derived_affinity,
        preconditions,
        nodes,
        source,
        pool,
    }
}

/// Returns the observation of the delete run that is due. `runs` are all delete runs.
fn deletion(
    context: &Context,
    claim: &Claim,
    runs: RunObjects<'_>,
    states: &NodeStates,
    recipe: Option<Arc<Recipe>>,
) -> Deletion {
    let name = delete_job_name(claim, states);
    let job = match claim.abandoned {
        false => runs.jobs.iter().find(|job| job.name.name == name),
        true => runs.jobs.iter().filter(|job| !job.is_over).min_by_key(|job| job.terminating),
    };
    let state = context.delete_state(Operation::Delete, &claim.volume_id(), runs, &name);
    Deletion { state, job: job.cloned(), recipe }
}

/// Returns the recipes of a claim's runs.
fn recipes(claim: &Claim, class: Option<&Class>, index: &Index) -> Recipes {
    let name = claim.class.as_deref().unwrap_or_default();
    // Users can write a stamp. It may name a version of the claim's own class, and no other.
    let stamped =
        claim.own_stamp().and_then(|stamp| index.recipe(&stamp.recipe_version)).filter(|recipe| recipe.class == name);
    let current = class.and_then(|class| class.recipe.as_ref().ok().cloned());
    let served = current.as_ref().map(|recipe| &recipe.effective_config);
    let deletion = stamped.clone().or(current.clone()).map(|recipe| recipe_with_current_program(recipe, served));
    Recipes { stamped, current, deletion }
}

/// The data that all parts of the observation use.
struct ObservationBuilder<'a> {
    context: &'a Context,
    claim: &'a Claim,
    confirmed: &'a Confirmed,
    class: Option<&'a Class>,
    recipes: &'a Recipes,
    /// The provision Jobs, and the pods of all runs.
    run: RunObjects<'a>,
    index: &'a Index,
}

impl ObservationBuilder<'_> {
    fn recorded(&self) -> RecordedAttempts {
        let (claim, index) = (self.claim, self.index);
        let records = index.unsettled_records_of(&claim.uid);
        let mut recorded = index.recorded_attempts(&claim.uid);
        recorded.others = self.recipes.of_attempt().map(|own| others(claim, &records, own, index)).unwrap_or_default();
        recorded.is_missing = records.is_empty()
            && claim.is_held()
            && claim.own_stamp().is_some()
            && (index.has_lost_record(&claim.uid) || may_have_run(claim, self.run.jobs, self.run.pods));
        recorded
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

    fn nodes(&self, pool: &OwnedPoolRelation, source: &OwnedSourceRelation) -> Nodes {
        let (claim, index) = (self.claim, self.index);
        let class = pool.request.class().or(self.class);
        let with_pods = nodes_with_pods(self.run.pods);
        let source_node =
            source.data_source.as_ref().and_then(|observed| observed.data_source().node().map(str::to_owned));
        let mut states = index.node_states(
            claim.nodes_with_storage.iter().chain(&claim.selected_node).chain(&with_pods).chain(&source_node),
        );
        states.0.extend(self.confirmed.nodes.0.clone());
        Nodes {
            choice: node_choice(claim, class, self.recipes.stamped.as_deref(), index),
            states,
            with_pods,
            selected_forbidden: is_selected_node_forbidden(claim, index),
        }
    }

    fn volumes(&self, with_derived_affinity: &mut Vec<String>) -> Volumes {
        let (claim, index) = (self.claim, self.index);
        let mut volumes = index.volumes_of(&claim.uid);
        if let Some(newer) = &self.confirmed.volume {
            volumes.retain(|volume| volume.name != newer.name);
            volumes.push(Arc::new(newer.clone()));
        }
        let own = names::pv_name(&claim.uid);
        volumes.retain(|volume| volume.claim_uid.as_ref() == Some(&claim.uid) || volume.name == own);
        let mut unmarked = Vec::new();
        for volume in &mut volumes {
            if let Some(marked) = index.marked(volume) {
                unmarked.push(volume.name.clone());
                *volume = marked;
            }
        }
        let mut all = self.verified(volumes, with_derived_affinity);
        for candidate in &mut all {
            candidate.seen_by_probe = index.is_synced(&candidate.volume.name);
            candidate.lacks_mark = unmarked.contains(&candidate.volume.name);
            candidate.is_let_go = is_let_go(index, &candidate.volume, claim);
        }
        let reserved = (!claim.is_bound()).then(|| index.reserved_for(claim)).flatten();
        Volumes {
            all,
            reserved: reserved.map(|volume| volume.name.clone()),
            binding: self.context.writes.binding(),
            many_wait: index.many_wait_for_sync(),
        }
    }

    /// Checks which volumes fit the claim. Adds the node affinity that follows from the node of the run.
    fn verified(&self, volumes: Vec<Arc<Volume>>, with_derived_affinity: &mut Vec<String>) -> Vec<Candidate> {
        let (claim, index) = (self.claim, self.index);
        let Some(recipe) = self.recipes.of_attempt() else {
            let unknown = || vec!["the provisioner config of the attempt is not known any more".to_owned()];
            return volumes.into_iter().map(|volume| candidate(volume, unknown(), Vec::new())).collect();
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
        let made_on = made_on(claim, recipe, self.run.pods);
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
            candidate(volume, mismatches, reaching)
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

    fn preconditions(&self) -> Preconditions {
        let (claim, index, current) = (self.claim, self.index, self.recipes.current.as_ref());
        // No attempt follows one that is in progress, and the search for a free slot counts all runs.
        let run_in_progress = claim.own_stamp().is_some() && self.run.jobs.iter().any(|job| !job.is_over);
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
        Preconditions {
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

/// Returns a volume with the results of its check, and nothing else that is known of it.
fn candidate(volume: Arc<Volume>, mismatches: Vec<String>, reaching: Vec<String>) -> Candidate {
    Candidate { volume, mismatches, reaching, seen_by_probe: false, lacks_mark: false, is_let_go: false }
}

/// Checks whether another claim, which a volume names with its UID, is certainly gone, or has another volume for good.
fn is_let_go(index: &Index, volume: &Volume, claim: &Claim) -> bool {
    let Some(uid) = volume.claim_ref_uid().filter(|uid| *uid != claim.uid) else { return false };
    match index.claim_by_id(uid).filter(|other| !other.is_stand_in()) {
        Some(other) => other.volume_name.as_ref().is_some_and(|name| *name != volume.name),
        None => index.is_claim_gone(volume) || index.is_gone(uid),
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
