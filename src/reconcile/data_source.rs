//! The data sources of claims, other claims and snapshots: the observation, and the steps about them.

use std::sync::Arc;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::request::{CloneSource, Snapshot as SnapshotProperties};
use flex_core::claim::data_source::{ClaimSource, DataSourceState};
use flex_core::claim::restore::RestoreSource;
use flex_core::config::classes::{ClassLookup, Identity};
use flex_core::config::input;
use flex_core::model::claim::Claim;
use flex_core::model::data_source::{DataSource, SourceUser, snapshots_using, source_users_of};
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::volume::{Provenance, Volume};
use flex_core::run::job;
use flex_core::run::view::{Job, has_running_pods};

use crate::api::writes::WriteError;
use crate::reconcile::context::{Context, RunObjects};
use crate::state::index::{Index, WorkItem};

/// The observed state of a data source.
pub(super) enum SourceObservation {
    /// A claim.
    Claim(SourceClaimObservation),
    /// A VolumeSnapshot.
    Snapshot(SourceSnapshotObservation),
}

/// The data source as this reconcile has written it.
#[derive(Default)]
pub(super) struct ConfirmedSource {
    claim: Option<Claim>,
    content: Option<Content>,
}

/// The part of a request that describes the data source.
#[derive(Default)]
pub(super) struct SourceRequest {
    /// The volume to copy.
    pub clone_of: Option<CloneSource>,
    /// The snapshot to restore.
    pub snapshot: Option<SnapshotProperties>,
}

impl SourceObservation {
    /// Observes the data source of a claim, if it has one.
    pub(super) fn of(copy: &Claim, index: &Index, identity: &Identity, newer: &ConfirmedSource) -> Option<Self> {
        match copy.data_source.as_ref()? {
            DataSource::Claim(_) => {
                SourceClaimObservation::of(copy, index, identity, newer.claim.as_ref()).map(SourceObservation::Claim)
            }
            DataSource::Snapshot(_) => SourceSnapshotObservation::of(copy, index, identity, newer.content.as_ref())
                .map(SourceObservation::Snapshot),
            DataSource::Unknown(_) | DataSource::Populated(_) | DataSource::Dropped => None,
        }
    }

    /// Returns the observation for the decision.
    pub(super) fn data_source(&self) -> DataSourceState<'_> {
        match self {
            SourceObservation::Claim(observed) => DataSourceState::Claim(observed.claim_source()),
            SourceObservation::Snapshot(observed) => DataSourceState::Snapshot(observed.snapshot_source()),
        }
    }

    /// Adds the finalizer to the data source.
    pub(super) async fn keep(&self, context: &Context, copy: &Claim) -> Result<ConfirmedSource, WriteError> {
        let mut newer = ConfirmedSource::default();
        match self {
            SourceObservation::Claim(SourceClaimObservation { claim: Some(source), .. }) => {
                newer.claim = Some(context.writes.protect_clone_source(source, &copy.uid).await?);
            }
            SourceObservation::Snapshot(SourceSnapshotObservation { content: Some(content), .. }) => {
                newer.content = Some(context.writes.protect_content(content, &copy.uid).await?);
            }
            SourceObservation::Claim(_) | SourceObservation::Snapshot(_) => {}
        }
        Ok(newer)
    }

    /// Returns the part of a request that describes the data source. All objects are read from the API: they must
    /// exist, and be protected.
    pub(super) async fn request(&self, context: &Context, copy: &Claim) -> Result<SourceRequest, WriteError> {
        match self {
            SourceObservation::Claim(observed) => {
                Ok(SourceRequest { clone_of: Some(observed.request(context, copy).await?), ..SourceRequest::default() })
            }
            SourceObservation::Snapshot(observed) => {
                Ok(SourceRequest { snapshot: Some(observed.request(context, copy).await?), ..SourceRequest::default() })
            }
        }
    }
}

/// The observed state of a VolumeSnapshot that is a data source.
pub(super) struct SourceSnapshotObservation {
    served: bool,
    snapshot: Option<Arc<Snapshot>>,
    content: Option<Arc<Content>>,
    ours: bool,
    made_by: Option<flex_core::model::snapshot::SnapshotProvenance>,
    granted: bool,
}

/// Returns the driver that the config of a claim's class replaces. Its volumes can be restored from snapshots of its
/// own snapshotter.
fn replaced_driver(claim: &Claim, index: &Index) -> Option<String> {
    let classes = index.classes();
    let ClassLookup::Ours(class) = classes.lookup(claim.class.as_deref()?) else { return None };
    input::replaced_driver(&class.recipe.as_ref().ok()?.effective_config.data).map(str::to_owned)
}

impl SourceSnapshotObservation {
    fn of(copy: &Claim, index: &Index, identity: &Identity, newer: Option<&Content>) -> Option<Self> {
        let name = copy.data_source.as_ref()?.named()?;
        let snapshot = index.snapshot(name);
        let bound = snapshot.as_ref().and_then(|snapshot| {
            let content = index.content(snapshot.content()?.as_str())?;
            (content.snapshot_uid.as_ref() == Some(&snapshot.uid) && content.snapshot == *name).then_some(content)
        });
        // The content that is protected for the claim stays its source, whatever object has the VolumeSnapshot's name
        // now.
        let content = newer.cloned().map(Arc::new).or_else(|| index.content_kept_for(&copy.uid)).or(bound);
        let made_by = content.as_ref().and_then(|content| content.made_by());
        let replaced_driver = replaced_driver(copy, index);
        let ours = content
            .as_ref()
            .is_some_and(|content| content.is_ours(identity) || replaced_driver.as_ref() == Some(&content.driver));
        let (served, granted) = (index.serves_snapshots(), index.is_granted(copy));
        Some(SourceSnapshotObservation { served, snapshot, content, ours, made_by, granted })
    }

    fn snapshot_source(&self) -> RestoreSource<'_> {
        RestoreSource {
            served: self.served,
            snapshot: self.snapshot.as_deref(),
            content: self.content.as_deref(),
            ours: self.ours,
            made_by: self.made_by.as_ref(),
            node: self.made_by.as_ref().and_then(|made_by| made_by.origin_node.as_deref()),
            granted: self.granted,
        }
    }

    async fn request(&self, context: &Context, copy: &Claim) -> Result<SnapshotProperties, WriteError> {
        let changed = || WriteError::Conflict(format!("the snapshot of claim {}", copy.name));
        let content = self.content.as_ref().ok_or_else(changed)?;
        let fresh = context.writes.read_content(&content.name).await?.ok_or_else(changed)?;
        let fresh_is = RestoreSource { content: Some(&fresh), ..self.snapshot_source() };
        if fresh.uid != content.uid || !fresh_is.is_kept_for(copy) || fresh_is.check(copy).is_err() {
            return Err(changed());
        }
        Ok(flex_core::content::request::snapshot_properties(&fresh))
    }
}

/// Checks whether a claim still needs its data source, as the cache has its runs and nodes.
fn needs_source(copy: &Claim, index: &Index) -> bool {
    let is_open = |job: &Arc<Job>| job.run_labels.operation == Operation::Provision && !job.is_over;
    let has_runs = copy.is_stand_in()
        && (index.jobs_of(&copy.uid).iter().any(is_open)
            || has_running_pods(&index.pods_of(&copy.uid), Operation::Provision)
            || index.has_expectation(&job::prefix(Operation::Provision, &copy.uid)));
    let has_node = |node: &String| index.node(node).is_some_and(|node| node.reachable);
    flex_core::claim::data_source::needs_source(copy, has_runs, has_node)
}

/// Checks the same by the API, too: a watch may be late.
async fn certainly_needs_source(context: &Context, copy: &Claim) -> Result<bool, WriteError> {
    let (needs, jobs, pods) = {
        let index = context.cluster.index();
        (needs_source(copy, &index), index.jobs_of(&copy.uid), index.pods_of(&copy.uid))
    };
    if needs || !copy.is_stand_in() {
        return Ok(needs);
    }
    // A copy is in no batch.
    let known = RunObjects { jobs: &jobs, pods: &pods };
    context.is_run_unseen(Operation::Provision, &copy.volume_id(), None, known).await
}

/// Requeues the data source of a claim that is gone and does not need it any more.
pub(super) fn requeue_source(context: &Context, copy: &Claim) {
    let index = context.cluster.index();
    let source = match &copy.data_source {
        Some(DataSource::Claim(name)) => {
            let of = names::clone_finalizer(&copy.uid);
            index.claim(name).filter(|source| source.finalizers.contains(&of)).map(|_| WorkItem::Claim(name.clone()))
        }
        Some(DataSource::Snapshot(_)) => {
            index.content_kept_for(&copy.uid).map(|content| WorkItem::Content(content.name.clone()))
        }
        _ => None,
    };
    let source = source.filter(|_| !needs_source(copy, &index));
    drop(index);
    context.cluster.queue.add_all(source);
}

/// Returns the claims for which a content is kept.
pub(super) fn source_users_of_content(content: &Content, index: &Index) -> Vec<SourceUser> {
    let in_progress = |uid: &str| {
        let claim = index.claim_by_id(uid)?;
        let from_it = claim.data_source.as_ref() == Some(&DataSource::Snapshot(content.snapshot.clone()));
        (claim.uid == uid && needs_source(&claim, index) && from_it).then(|| claim.name.clone())
    };
    source_users_of(&content.finalizers)
        .map(|uid| SourceUser { uid: uid.to_owned(), in_progress: in_progress(uid) })
        .collect()
}

/// The observed state of a claim that is a data source.
pub(super) struct SourceClaimObservation {
    claim: Option<Arc<Claim>>,
    volume: Option<Arc<Volume>>,
    /// The provenance of its volume.
    provenance: Option<Provenance>,
    granted: bool,
}

impl SourceClaimObservation {
    /// Observes the claim to copy, if there is one. `newer` is that claim as it was last written.
    fn of(copy: &Claim, index: &Index, identity: &Identity, newer: Option<&Claim>) -> Option<Self> {
        let claim = newer.cloned().map(Arc::new).or_else(|| index.claim(copy.source_claim()?));
        copy.source_claim()?;
        let volume = claim.as_ref().and_then(|claim| index.volume(claim.volume_name.as_deref()?));
        let ours = volume.as_ref().filter(|volume| volume.belongs_to(identity) && volume.is_adopted());
        let provenance = ours.and_then(|volume| serde_json::from_str(volume.provenance.as_deref()?).ok());
        Some(SourceClaimObservation { claim, volume, provenance, granted: index.is_granted(copy) })
    }

    fn claim_source(&self) -> ClaimSource<'_> {
        ClaimSource {
            claim: self.claim.as_deref(),
            volume: self.volume.as_deref(),
            ours: self.provenance.is_some(),
            node: self.provenance.as_ref().and_then(|provenance| provenance.origin_node.as_deref()),
            granted: self.granted,
        }
    }

    async fn request(&self, context: &Context, copy: &Claim) -> Result<CloneSource, WriteError> {
        let changed = || WriteError::Conflict(format!("the data source of claim {}", copy.name));
        let (Some(claim), Some(volume)) = (&self.claim, &self.volume) else { return Err(changed()) };
        let fresh = context.writes.read_claim(&claim.name).await?.ok_or_else(changed)?;
        let fresh_is = ClaimSource { claim: Some(&fresh), ..self.claim_source() };
        if fresh.uid != claim.uid || !fresh_is.is_kept_for(copy) || fresh_is.check(copy).is_err() {
            return Err(changed());
        }
        Ok(CloneSource {
            id: volume.volume_id().unwrap_or_default().to_owned(),
            pv_name: volume.name.clone(),
            source: context.writes.volume_source(volume).await?,
            size_bytes: volume.size.as_ref().copied().unwrap_or_default(),
            node: self.claim_source().node.unwrap_or_default().to_owned(),
            moved_in_path: volume.moved_in_path(),
        })
    }
}

/// Returns the claims and VolumeSnapshots for which a claim is kept.
pub(super) fn source_users_of_claim(claim: &Claim, index: &Index) -> Vec<SourceUser> {
    let in_progress = |uid: &str| {
        let copy = index.claim_by_id(uid)?;
        let from_it = copy.source_claim() == Some(&claim.name);
        (copy.uid == uid && from_it && needs_source(&copy, index)).then(|| copy.name.clone())
    };
    let copies =
        source_users_of(&claim.finalizers).map(|uid| SourceUser { uid: uid.to_owned(), in_progress: in_progress(uid) });
    let being_made = |uid: &str| {
        let content = index.content(&names::content_name(uid))?;
        content.reads_source().then(|| content.snapshot.clone())
    };
    let snapshots =
        snapshots_using(&claim.finalizers).map(|uid| SourceUser { uid: uid.to_owned(), in_progress: being_made(uid) });
    copies.chain(snapshots).collect()
}

/// Confirms by the API, not by the cache, that none of these claims needs its source.
pub(super) async fn confirm_done(context: &Context, copies: &[String], of: &str) -> Result<(), WriteError> {
    for uid in copies {
        let known = context.cluster.index().claim_by_id(uid).filter(|copy| copy.uid == *uid);
        let in_progress = match known {
            Some(copy) => match context.writes.read_claim(&copy.name).await? {
                Some(copy) if copy.uid == *uid => certainly_needs_source(context, &copy).await?,
                _ => false,
            },
            None => context.writes.has_claim(uid).await?,
        };
        if in_progress {
            return Err(WriteError::Conflict(format!("the claim {uid} that is made from {of}")));
        }
    }
    Ok(())
}

/// Removes the finalizers of copies and snapshots that are not in progress.
pub(super) async fn unprotect_source(context: &Context, claim: &Claim, copies: &[String]) -> Result<Claim, WriteError> {
    let (snapshots, claims): (Vec<_>, Vec<_>) =
        copies.iter().cloned().partition(|uid| snapshots_using(&claim.finalizers).any(|of| of == uid));
    let of = claim.name.to_string();
    confirm_done(context, &claims, &of).await?;
    for uid in &snapshots {
        let content = context.writes.read_content(&names::content_name(uid)).await?;
        if content.is_some_and(|content| content.reads_source()) {
            return Err(WriteError::Conflict(format!("the snapshot {uid} of claim {of}")));
        }
    }
    context.writes.unprotect_source(claim, copies).await
}
