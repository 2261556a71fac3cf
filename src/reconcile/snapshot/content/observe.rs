//! The observation of a content: the cache, and the facts that this reconcile has confirmed beyond it.

use std::sync::Arc;

use flex_contract::request::Operation;

use crate::config::classes::ClassLookup;
use crate::config::{NodeGone, Recipe, joined};
use crate::model::claim::Claim;
use crate::model::data_source::SourceUser;
use crate::model::snapshot::Content;
use crate::model::snapshot::Provenance;
use crate::model::volume::Volume;
use crate::node::{NodeState, NodeStates};
use crate::reconcile::context::Context;
use crate::reconcile::data_source;
use crate::run::view::nodes_with_pods;
use crate::run::view::{Job, Pod};
use crate::snapshot::decide::SnapshotState;
use crate::volume::expand;

/// Facts beyond the cache that a reconcile has confirmed.
#[derive(Default)]
pub(super) struct Confirmed {
    pub fresh: bool,
    pub snapshot: Option<SnapshotState>,
    pub source: Option<Claim>,
    pub nodes: Vec<(String, NodeState)>,
}

/// The data from which a decision borrows.
pub(super) struct Observation {
    pub snapshot: SnapshotState,
    pub claim: Option<Arc<Claim>>,
    pub volume: Option<Arc<Volume>>,
    pub source: Result<(Provenance, Recipe), String>,
    pub made_by: Result<(Provenance, Recipe), String>,
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
    let index = context.shared.index();
    let identity = &context.identity;
    let snapshot = index.snapshot(&content.snapshot).filter(|snapshot| snapshot.uid == content.snapshot_uid);
    let state = match &snapshot {
        _ if content.snapshot_uid.is_empty() => SnapshotState::Unbound,
        Some(snapshot) if snapshot.deleting => SnapshotState::Terminating,
        Some(_) => SnapshotState::Alive,
        None => confirmed.snapshot.unwrap_or(SnapshotState::Missing),
    };
    let newer = confirmed.source.clone().map(Arc::new);
    let claim = snapshot.as_ref().and_then(|snapshot| newer.or_else(|| index.claim(&snapshot.claim()?)));
    let volume =
        snapshot.as_ref().map_or(Err("the orchestrator does not see its VolumeSnapshot".to_owned()), |snapshot| {
            let volume = super::super::source(&index, identity, snapshot)?;
            volume.ok_or_else(|| "the driver of the snapshot's class did not make the claim's volume".to_owned())
        });
    let classes = index.classes();
    let class = |name: &str| match classes.lookup(name) {
        ClassLookup::Ours(class) => class.recipe.as_ref().ok().cloned(),
        _ => None,
    };
    let source = volume.as_ref().map_err(String::clone).and_then(|volume| {
        let made =
            serde_json::from_str::<crate::model::volume::Provenance>(volume.provenance.as_deref().unwrap_or_default());
        let made = made.map_err(|error| format!("the provenance of its volume cannot be read: {error}"))?;
        let now = class(&volume.class);
        let record = expand::record(&made.record, now.as_ref().map(|recipe| &recipe.record));
        let recipe = record
            .recipe()
            .map_err(|problems| format!("the provenance of its volume cannot be used: {}", joined(&problems)))?;
        let provenance = Provenance {
            record,
            node: made.node,
            volume_id: volume.id().unwrap_or_default().to_owned(),
            pv_name: volume.name.clone(),
            size: volume.size.clone()?,
            volume_mode: volume.volume_mode.clone(),
        };
        Ok((provenance, recipe))
    });
    let made_by = match (&content.provenance, &content.handle) {
        (Some(text), _) => serde_json::from_str::<Provenance>(text)
            .map_err(|error| format!("its provenance cannot be read: {error}"))
            .and_then(|made_by| {
                let now = class(&made_by.record.class);
                let record = expand::record(&made_by.record, now.as_ref().map(|recipe| &recipe.record));
                let recipe = record
                    .recipe()
                    .map_err(|problems| format!("its provenance cannot be used: {}", joined(&problems)))?;
                Ok((made_by, recipe))
            }),
        (None, Some(_)) => {
            let of = content.class.as_deref().and_then(|class| index.snapshot_class(class)?.storage_class.clone());
            of.and_then(|of| class(&of)).map(|recipe| (provenance_of_class(&recipe, content), (*recipe).clone())).ok_or_else(|| {
                format!(
                    "no orchestrator made it, and its VolumeSnapshotClass does not name a StorageClass of this driver (parameter `{}`)",
                    crate::model::snapshot::STORAGE_CLASS
                )
            })
        }
        (None, None) => Err("no run was started for it".into()),
    };
    let (mut jobs, mut deletes) = (index.jobs_of_content(&content.name), Vec::new());
    jobs.retain(|job| {
        let deletes_it = job.run_labels.operation == Operation::DeleteSnapshot.as_str();
        if deletes_it {
            deletes.push(job.clone());
        }
        !deletes_it
    });
    let pods = index.pods_of(content.run_id());
    let nodes_with_pods = nodes_with_pods(&pods);
    let node = made_by.as_ref().map(|(made_by, _)| made_by.node.clone()).unwrap_or_default();
    let mut node_states = index.node_states(nodes_with_pods.iter().chain([&node]));
    node_states.0.extend(confirmed.nodes.iter().cloned());
    let recorded = made_by.as_ref().ok().map(|(_, recipe)| recipe);
    let of_class = recorded.and_then(|recipe| class(&recipe.class)).map(|recipe| recipe.node_gone);
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

/// Returns the provenance of a snapshot that this orchestrator did not make.
fn provenance_of_class(recipe: &Recipe, content: &Content) -> Provenance {
    Provenance {
        record: recipe.record.clone(),
        node: String::new(),
        volume_id: String::new(),
        pv_name: String::new(),
        size: content.size.unwrap_or_default(),
        volume_mode: content.volume_mode.clone().unwrap_or_default(),
    }
}
