//! The observation of a claim: the cache, and the facts that this reconcile has confirmed beyond it.

use std::sync::Arc;

use flex_contract::names;

use crate::attributes::{Attributes, requested_attributes};
use crate::claim::decide::last_node;
use crate::claim::nodes::{NodeChoice, choose_node};
use crate::claim::verify;
use crate::config::classes::{BindingMode, Class, ClassLookup, Classes};
use crate::config::{Placement, Recipe};
use crate::model::claim::Claim;
use crate::model::data_source::SourceUser;
use crate::model::volume::Volume;
use crate::node::{NodeState, NodeStates};
use crate::reconcile::context::Context;
use crate::reconcile::data_source;
use crate::run::view::nodes_with_pods;
use crate::run::view::{Job, Pod};
use crate::state::index::{Index, SlotRequest};
use crate::volume::expand::with_program_of;

/// The data from which a decision borrows.
pub(super) struct Observation {
    pub classes: Arc<Classes>,
    pub stamped: Option<Arc<Recipe>>,
    pub jobs: Vec<Arc<Job>>,
    pub deletes: Vec<Arc<Job>>,
    pub pods: Vec<Arc<Pod>>,
    pub volumes: Vec<(Arc<Volume>, Vec<String>)>,
    /// Volumes to which the observation has added a node affinity.
    pub unbound_to_nodes: Vec<String>,
    pub node_choice: NodeChoice,
    pub nodes_with_pods: Vec<String>,
    pub node_states: NodeStates,
    pub has_revision: bool,
    /// The recipe of a delete run: that of the stamp, with the program of the class.
    pub delete_recipe: Option<Arc<Recipe>>,
    pub has_slot: bool,
    pub quota_error: Option<String>,
    pub has_pending_charge: bool,
    /// The attributes that the claim requests, or the reason why it cannot have them.
    pub attributes: Result<Attributes, String>,
    pub original: Option<data_source::SourceObservation>,
    pub source_users: Vec<SourceUser>,
    pub missed_batch: bool,
    /// The claim is a pool request of this class, for which nobody selects a node.
    pub is_pool_request: Option<Option<Class>>,
    /// A pooled volume that fits the claim.
    pub pooled_volume: Option<Arc<Volume>>,
    /// A volume that is reserved for the claim by name.
    pub reserved_volume: Option<Arc<Volume>>,
    /// The class has a pool.
    pub has_pool: bool,
}

/// Facts beyond the cache that this reconcile has confirmed.
#[derive(Default)]
pub(super) struct Confirmed {
    pub fresh: bool,
    pub no_volume: bool,
    pub volume: Option<Volume>,
    pub nodes: Vec<(String, NodeState)>,
    pub original: data_source::ConfirmedSource,
    pub missed_batch: bool,
}

/// Observes a claim and all objects that concern it.
pub(super) fn observe(context: &Context, claim: &Claim, confirmed: &Confirmed) -> Observation {
    let index = context.shared.index();
    let classes = index.classes();
    let class = claim.class.as_deref().unwrap_or_default();
    // Users can write a stamp. It may name a version of the claim's own class, and no other.
    let stamped =
        claim.own_stamp().and_then(|stamp| index.recipe(&stamp.config)).filter(|recipe| recipe.class == class);
    let ours = match classes.lookup(class) {
        ClassLookup::Ours(class) => Some(class),
        _ => None,
    };
    let current = ours.and_then(|class| class.recipe.as_ref().ok().cloned());
    let served = current.as_ref().map(|recipe| &recipe.record);
    let delete_recipe = stamped.clone().or(current.clone()).map(|recipe| with_program_of(recipe, served));
    let is_pool_request = index
        .is_pool_request(claim)
        .then(|| ours.map(|class| Class { binding: BindingMode::Immediate, ..class.clone() }));
    let pooled_volume = match (ours, &current) {
        (Some(class), Some(recipe)) => index.pooled_volume_for(claim, class, recipe),
        _ => None,
    };
    let node_choice =
        node_choice(claim, is_pool_request.as_ref().and_then(Option::as_ref).or(ours), stamped.as_deref(), &index);
    let has_revision = current.as_ref().is_some_and(|recipe| index.has_revision(&recipe.hash));
    let begins = current.as_ref().filter(|_| !claim.deleting);
    let quota_error = begins.and_then(|recipe| index.quota_error(claim, recipe));
    let (deletes, jobs): (Vec<_>, Vec<_>) = claim
        .ids()
        .flat_map(|id| index.jobs_of(&id))
        .filter(|job| job.is_for_claim())
        .partition(|job| job.run_labels.operation == "delete");
    // No attempt follows one that is in progress, and the search for a free slot counts all runs.
    let goes_on = claim.own_stamp().is_some() && jobs.iter().any(|job| !job.is_over);
    let begins = !claim.is_bound() && !claim.deleting && !goes_on;
    let has_slot =
        current.as_ref().is_none_or(|recipe| !begins || index.has_slot(&SlotRequest::claim(&claim.name), recipe));
    // A copy may have to be on the node of its data source, which is recorded last.
    let node = claim.data_source.as_ref().and(claim.nodes.last()).or(claim.selected_node.as_ref());
    let node = node.and_then(|node| Some((node.as_str(), index.node(node)?)));
    let id = claim.id();
    let mut volumes = index.volumes_of(&claim.uid);
    if id != claim.uid {
        volumes.extend(index.volumes_of(&id));
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        volumes.dedup_by(|a, b| a.name == b.name);
    }
    if let Some(newer) = &confirmed.volume {
        volumes.retain(|volume| volume.name != newer.name);
        volumes.push(Arc::new(newer.clone()));
    }
    let recipe = stamped.as_ref().or(current.as_ref());
    let asked = claim.attributes_class.as_deref().unwrap_or_default();
    let attributes = match recipe {
        Some(recipe) => {
            let provisioner = recipe.record.provisioner(&context.identity.provisioner);
            requested_attributes(asked, index.attributes_class(asked), recipe, provisioner)
        }
        None => Ok(Attributes::default()),
    };
    let pods: Vec<_> = claim.ids().flat_map(|id| index.pods_of(&id)).collect();
    let made_on = recipe.and_then(|recipe| made_on(claim, recipe, &pods)).map(|name| (name, index.node(name)));
    let mut unbound_to_nodes = Vec::new();
    let volumes = volumes
        .into_iter()
        .filter(|volume| {
            let names_it = |uuid: &String| *uuid == claim.uid || *uuid == id;
            volume.claim_uuid.as_ref().is_some_and(names_it) || volume.name == names::pv_name(&id)
        })
        .map(|volume| {
            let Some(recipe) = recipe else {
                return (volume, vec!["the provisioner config of the attempt is not known any more".to_owned()]);
            };
            let made_on = made_on.as_ref().map(|(name, node)| (name.as_str(), node.as_ref().map(|node| &node.labels)));
            let node = node.as_ref().map(|(name, node)| (*name, &node.labels));
            let (volume, unknown) = match verify::derived_affinity(&volume, recipe, made_on) {
                Ok(None) => (volume, None),
                Ok(Some(affinity)) => {
                    unbound_to_nodes.push(volume.name.clone());
                    (Arc::new(Volume { affinity: Some(Box::new(affinity)), ..(*volume).clone() }), None)
                }
                Err(unknown) => (volume, Some(unknown)),
            };
            let mut misfits = verify::mismatches(&volume, claim, recipe, node);
            misfits.extend(unknown);
            (volume, misfits)
        })
        .collect();
    let nodes_with_pods = nodes_with_pods(&pods);
    let original = data_source::SourceObservation::of(claim, &index, &context.identity, &confirmed.original);
    let its_node = original.as_ref().map(|original| original.data_source().node().to_owned());
    let mut node_states =
        index.node_states(claim.nodes.iter().chain(&claim.selected_node).chain(&nodes_with_pods).chain(&its_node));
    node_states.0.extend(confirmed.nodes.iter().cloned());
    let source_users = data_source::source_users_of_claim(claim, &index);
    let missed_batch =
        confirmed.missed_batch || stamped.as_ref().is_some_and(|recipe| index.has_missed_batch(claim, recipe));
    Observation {
        classes,
        stamped,
        jobs,
        deletes,
        pods,
        volumes,
        unbound_to_nodes,
        node_choice,
        nodes_with_pods,
        node_states,
        has_revision,
        delete_recipe,
        has_slot,
        quota_error,
        has_pending_charge: index.has_pending_charge(&claim.uid),
        attributes,
        original,
        source_users,
        missed_batch,
        is_pool_request,
        pooled_volume,
        reserved_volume: (!claim.is_bound()).then(|| index.reserved_for(claim)).flatten(),
        has_pool: current.is_some_and(|recipe| recipe.pool.is_some()),
    }
}

/// Returns the node where the claim's volume is made: that of its run, or the selected one.
fn made_on<'a>(claim: &'a Claim, recipe: &Recipe, pods: &'a [Arc<Pod>]) -> Option<&'a String> {
    let provision = || pods.iter().filter(|pod| pod.run_labels.operation == "provision" && pod.node.is_some());
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
    let asks = !claim.is_bound() && !claim.deleting && !exists;
    let on_node = |recipe: &&Recipe| recipe.placement == Placement::SelectedNode;
    match (class, current.filter(on_node).or(stamped.filter(on_node))) {
        (Some(class), Some(recipe)) if asks && class.binding == BindingMode::Immediate => {
            choose_node(index.nodes().map(Arc::as_ref), claim, recipe, &class.allowed)
        }
        _ => NodeChoice::default(),
    }
}
