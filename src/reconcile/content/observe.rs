//! The observation of a content: the cache, and the facts that this reconcile has confirmed beyond it.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_contract::volume_mode::VolumeMode;
use flex_core::config::classes::ClassLookup;
use flex_core::config::current_program::with_current_program;
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::config::{NodeGone, Recipe, joined};
use flex_core::content::decide::SnapshotState;
use flex_core::content::request::SnapshotBasis;
use flex_core::model::claim::Claim;
use flex_core::model::data_source::SourceUser;
use flex_core::model::snapshot::{Content, SnapshotProvenance};
use flex_core::model::volume::Volume;
use flex_core::run::node::NodeStates;
use flex_core::run::view::{Job, Pod, nodes_with_pods};

use crate::reconcile::context::Context;
use crate::reconcile::data_source;
use crate::state::index::Index;

/// Facts beyond the cache that a reconcile has confirmed.
#[derive(Default)]
pub(super) struct Confirmed {
    pub fresh: bool,
    pub snapshot: Option<SnapshotState>,
    pub source: Option<Claim>,
    pub nodes: NodeStates,
}

/// The data from which a decision borrows.
pub(super) struct Observation {
    pub snapshot: SnapshotState,
    pub claim: Option<Arc<Claim>>,
    pub volume: Option<Arc<Volume>>,
    pub source: Result<SnapshotBasis, String>,
    pub made_by: Result<SnapshotBasis, String>,
    pub jobs: Vec<Arc<Job>>,
    pub deletes: Vec<Arc<Job>>,
    pub pods: Vec<Arc<Pod>>,
    pub nodes_with_pods: Vec<String>,
    pub node_states: NodeStates,
    pub node_gone: NodeGone,
    pub source_users: Vec<SourceUser>,
}

/// Observes a content and all objects that concern it.
pub(super) fn observe(context: &Context, content: &Content, confirmed: &Confirmed) -> Observation {
    let index = context.cluster.index();
    let snapshot =
        index.snapshot(&content.snapshot).filter(|snapshot| content.snapshot_uid.as_ref() == Some(&snapshot.uid));
    let state = match &snapshot {
        _ if content.snapshot_uid.is_none() => SnapshotState::Unbound,
        Some(snapshot) if snapshot.terminating => SnapshotState::Terminating,
        Some(_) => SnapshotState::Alive,
        None => confirmed.snapshot.unwrap_or(SnapshotState::NotCached),
    };
    let newer = confirmed.source.clone().map(Arc::new);
    let claim = snapshot.as_ref().and_then(|snapshot| newer.or_else(|| index.claim(&snapshot.claim()?)));
    let volume =
        snapshot.as_ref().map_or(Err("the provisioner does not see its VolumeSnapshot".to_owned()), |snapshot| {
            let volume = crate::reconcile::snapshot::source(&index, &context.identity, snapshot)?;
            volume.ok_or_else(|| "the driver of the snapshot's class did not make the claim's volume".to_owned())
        });
    let source =
        volume.as_ref().map_err(String::clone).and_then(|volume| provenance_of_source(&index, content, volume));
    let made_by = provenance_of_content(&index, content);
    let (deletes, jobs) = index
        .jobs_of_content(&content.name)
        .into_iter()
        .partition(|job| job.run_labels.operation == Operation::DeleteSnapshot);
    let pods = index.pods_of(content.run_id());
    let nodes_with_pods = nodes_with_pods(&pods);
    let node = made_by.as_ref().ok().and_then(|basis| basis.provenance.origin_node.clone());
    let mut node_states = index.node_states(nodes_with_pods.iter().chain(&node));
    node_states.0.extend(confirmed.nodes.0.clone());
    let recorded = made_by.as_ref().ok().map(|basis| &basis.recipe);
    let of_class = recorded.and_then(|recipe| class_recipe(&index, &recipe.class)).map(|recipe| recipe.node_gone);
    Observation {
        snapshot: state,
        claim,
        volume: volume.ok(),
        source,
        node_gone: of_class.or(recorded.map(|recipe| recipe.node_gone)).unwrap_or_default(),
        made_by,
        jobs,
        deletes,
        pods,
        nodes_with_pods,
        node_states,
        source_users: data_source::source_users_of_content(content, &index),
    }
}

/// Returns the present recipe of a class, if the orchestrator serves the class.
fn class_recipe(index: &Index, class: &str) -> Option<Arc<Recipe>> {
    match index.classes().lookup(class) {
        ClassLookup::Ours(class) => class.recipe.as_ref().ok().cloned(),
        _ => None,
    }
}

/// Returns a recorded recipe, with the keys that follow the class.
fn current_recipe(index: &Index, recorded: &EffectiveConfig) -> Result<Recipe, String> {
    let class_recipe = class_recipe(index, &recorded.class);
    let effective_config = with_current_program(recorded, class_recipe.as_ref().map(|recipe| &recipe.effective_config));
    effective_config.recipe().map_err(|problems| joined(&problems))
}

/// Returns the provenance that the content gets for a snapshot of this volume, with the recipe of its runs.
fn provenance_of_source(index: &Index, content: &Content, volume: &Volume) -> Result<SnapshotBasis, String> {
    let text = volume.provenance.as_deref().unwrap_or_default();
    let made = serde_json::from_str::<flex_core::model::volume::Provenance>(text)
        .map_err(|error| format!("the provenance of its volume cannot be read: {error}"))?;
    let recipe = current_recipe(index, &made.effective_config)
        .map_err(|why| format!("the provenance of its volume cannot be used: {why}"))?;
    let provenance = SnapshotProvenance {
        effective_config: recipe.effective_config.clone(),
        origin_node: made.origin_node,
        volume_id: volume.volume_id().unwrap_or_default().to_owned(),
        pv_name: volume.name.clone(),
        size: volume.size.clone()?,
        volume_mode: volume.volume_mode.to_string(),
        content_uid: Some(content.uid.clone()),
    };
    Ok(SnapshotBasis { provenance, recipe })
}

/// Returns the provenance of a content, with the recipe of its runs. A snapshot that somebody else has stored has the
/// provenance of the StorageClass that its VolumeSnapshotClass names.
fn provenance_of_content(index: &Index, content: &Content) -> Result<SnapshotBasis, String> {
    match (&content.provenance, &content.handle) {
        (Some(text), _) => {
            let provenance = serde_json::from_str::<SnapshotProvenance>(text)
                .map_err(|error| format!("its record (annotation provenance) cannot be read: {error}"))?;
            let recipe = current_recipe(index, &provenance.effective_config)
                .map_err(|why| format!("its record (annotation provenance) cannot be used: {why}"))?;
            Ok(SnapshotBasis { provenance, recipe })
        }
        (None, Some(_)) => {
            let of = content.class.as_deref().and_then(|class| index.snapshot_class(class)?.storage_class.clone());
            let recipe = of.and_then(|of| class_recipe(index, &of)).ok_or_else(|| {
                format!(
                    "the provisioner did not make it, and its VolumeSnapshotClass does not name a StorageClass of this driver (parameter `{}`)",
                    flex_core::model::snapshot::STORAGE_CLASS
                )
            })?;
            let provenance = provenance_of_class(&recipe, content);
            Ok(SnapshotBasis { provenance, recipe: (*recipe).clone() })
        }
        (None, None) => Err("no run was started for it".into()),
    }
}

/// Returns the provenance of a snapshot that this orchestrator did not make.
fn provenance_of_class(recipe: &Recipe, content: &Content) -> SnapshotProvenance {
    SnapshotProvenance {
        effective_config: recipe.effective_config.clone(),
        origin_node: None,
        volume_id: String::new(),
        pv_name: String::new(),
        size: content.size.unwrap_or_default(),
        volume_mode: content.volume_mode.as_ref().map(VolumeMode::to_string).unwrap_or_default(),
        content_uid: None,
    }
}
