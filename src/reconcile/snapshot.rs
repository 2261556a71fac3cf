//! Reconciles VolumeSnapshots: observes, decides with [`decide`], and takes the steps.

use std::sync::Arc;

use flex_contract::policy::ReclaimPolicy;
use flex_core::config::classes::Identity;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::phase::ClaimPhase;
use flex_core::model::snapshot::{Content, Of, Snapshot};
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::rules::{Decision, NewEvent};
use flex_core::snapshot::decide::{Observed, Rule, SnapshotClassLookup, SourceClaim, Step, decide};

use crate::api::writes::{SnapshotVolume, WriteError};
use crate::reconcile::context::{Context, Requeue};
use crate::reconcile::drive::{Reconcile, ReplayedDecision, StepOutcome, decided, drive};
use crate::state::index::{Index, WorkItem};

/// Reconciles a VolumeSnapshot.
pub(super) async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let cached = context.cluster.index().snapshot(name);
    let Some(snapshot) = cached.map(|snapshot| (*snapshot).clone()) else { return Ok(Requeue::Done) };
    drive::<SnapshotReconciler>(context, snapshot, Confirmed::default()).await
}

/// Decides about each VolumeSnapshot, and takes no step.
pub(super) fn replay(context: &Context) -> Vec<ReplayedDecision> {
    let snapshots: Vec<_> = context.cluster.index().snapshots().cloned().collect();
    snapshots.iter().map(|snapshot| decided::<SnapshotReconciler>(context, snapshot)).collect()
}

/// The reconciler of VolumeSnapshots.
struct SnapshotReconciler;

/// Facts beyond the cache that a reconcile has confirmed.
#[derive(Default)]
struct Confirmed {
    no_content: bool,
    /// The content as it was last read or written.
    content: Option<Arc<Content>>,
}

impl Reconcile for SnapshotReconciler {
    type Object = Snapshot;
    type Observation = Observation;
    type Confirmed = Confirmed;
    type Rule = Rule;

    fn item(snapshot: &Snapshot) -> WorkItem {
        WorkItem::Snapshot(snapshot.name.clone())
    }

    fn reference(snapshot: &Snapshot) -> ObjectRef {
        ObjectRef::snapshot(snapshot)
    }

    fn observe(context: &Context, snapshot: &Snapshot, confirmed: &Confirmed) -> Observation {
        let observation = observe(&context.cluster.index(), &context.identity, snapshot);
        Observation { content: confirmed.content.clone().or(observation.content), ..observation }
    }

    fn decide(
        context: &Context,
        snapshot: &Snapshot,
        observation: &Observation,
        confirmed: &Confirmed,
    ) -> Decision<Self::Rule> {
        let content = &observation.content;
        let observed = Observed {
            snapshot,
            class: observation.class.of(),
            source: match &observation.source {
                Ok(Some(volume)) => SourceClaim::Ours(volume),
                Ok(None) => SourceClaim::Foreign,
                Err(why) => SourceClaim::Unbound(why.clone()),
            },
            content: content.as_deref(),
            content_ours: content.as_ref().is_some_and(|content| content.is_ours(&context.identity)),
            no_content: confirmed.no_content,
        };
        decide(&observed)
    }

    fn is_emitted_after_step(step: &Step, _: &NewEvent) -> bool {
        matches!(step, Step::Mirror(_))
    }

    async fn execute(
        context: &Context,
        snapshot: &Snapshot,
        observation: &Observation,
        step: Step,
        confirmed: &mut Confirmed,
    ) -> Result<StepOutcome<Snapshot>, WriteError> {
        let writes = &context.writes;
        let now = context.time_in_status();
        Ok(match step {
            Step::Nothing => StepOutcome::Wait,
            Step::AddFinalizer => writes.add_snapshot_finalizer(snapshot).await?.into(),
            Step::SetClass { class } => writes.set_snapshot_class(snapshot, &class).await?.into(),
            Step::CreateContent { policy } => {
                let Ok(Some(volume)) = &observation.source else { return Ok(StepOutcome::Wait) };
                let handle = volume.volume_id().unwrap_or_default();
                let source = SnapshotVolume { handle, mode: volume.volume_mode.as_str() };
                let content = writes.create_content(snapshot, &policy, &source).await?;
                confirmed.content = Some(Arc::new(content));
                StepOutcome::Again
            }
            Step::BindContent => {
                let Some(content) = &observation.content else { return Ok(StepOutcome::Wait) };
                confirmed.content = Some(Arc::new(writes.bind_content(content, snapshot).await?));
                StepOutcome::Again
            }
            Step::Mirror(status) => writes.mirror(snapshot, &status, &now).await?.into(),
            Step::Refuse { why } => writes.refuse_snapshot(snapshot, &why, &now).await?.into(),
            Step::DeleteContent => {
                let Some(content) = &observation.content else { return Ok(StepOutcome::Wait) };
                writes.delete_content(content).await?;
                StepOutcome::End(Requeue::Done)
            }
            Step::ConfirmNoContent => {
                let content = writes.read_content(&snapshot.content().unwrap_or_default()).await?;
                confirmed.no_content =
                    content.as_ref().is_none_or(|content| content.snapshot_uid.as_ref() != Some(&snapshot.uid));
                confirmed.content = content.map(Arc::new);
                StepOutcome::Again
            }
            Step::RemoveFinalizer => {
                writes.remove_snapshot_finalizer(snapshot).await?;
                StepOutcome::End(Requeue::Done)
            }
        })
    }
}

/// The data from which a decision borrows.
struct Observation {
    class: SnapshotClassObservation,
    source: Result<Option<Arc<Volume>>, String>,
    content: Option<Arc<Content>>,
}

enum SnapshotClassObservation {
    NotOurs,
    Ours(ReclaimPolicy),
    Unnamed(Result<String, String>),
}

impl SnapshotClassObservation {
    fn of(&self) -> SnapshotClassLookup<'_> {
        match self {
            SnapshotClassObservation::NotOurs => SnapshotClassLookup::NotOurs,
            SnapshotClassObservation::Ours(policy) => SnapshotClassLookup::Ours { policy },
            SnapshotClassObservation::Unnamed(default) => {
                SnapshotClassLookup::Unnamed(default.as_deref().map_err(String::clone))
            }
        }
    }
}

fn observe(index: &Index, identity: &Identity, snapshot: &Snapshot) -> Observation {
    let class = match &snapshot.class {
        Some(class) => match index.snapshot_class(class).filter(|class| class.driver == identity.provisioner) {
            Some(class) => SnapshotClassObservation::Ours(class.policy.clone()),
            None => SnapshotClassObservation::NotOurs,
        },
        None => SnapshotClassObservation::Unnamed(default(index, identity)),
    };
    let source = match &snapshot.of {
        Of::Claim(_) => source(index, identity, snapshot),
        Of::Content(_) | Of::Nothing => Ok(None),
    };
    Observation { class, source, content: snapshot.content().and_then(|name| index.content(&name)) }
}

/// Returns the default class of the orchestrator's driver.
fn default(index: &Index, identity: &Identity) -> Result<String, String> {
    let ours = index.snapshot_classes().filter(|class| class.driver == identity.provisioner && class.default);
    match ours.map(|class| class.name.clone()).collect::<Vec<_>>().as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(format!(
            "the snapshot names no VolumeSnapshotClass, and none of driver {} is the default; name one",
            identity.provisioner
        )),
        several => Err(format!(
            "the snapshot names no VolumeSnapshotClass, and several of driver {} are the default: {}; name one",
            identity.provisioner,
            several.join(", ")
        )),
    }
}

/// Returns the volume of which the snapshot is made; `None` if it is not the orchestrator's.
///
/// # Errors
/// If there is no volume. The text says why.
pub(super) fn source(index: &Index, identity: &Identity, snapshot: &Snapshot) -> Result<Option<Arc<Volume>>, String> {
    let Some(name) = snapshot.claim() else { return Err("the snapshot names no claim".into()) };
    let waits = |why: &str| Err(format!("claim {name}, the source of the snapshot, {why}"));
    let Some(claim) = index.claim(&name) else { return waits("does not exist; the provisioner waits for it") };
    if !claim.is_bound() || claim.phase != ClaimPhase::Bound {
        return waits("is not bound; the provisioner waits for it");
    }
    let Some(volume) = claim.volume_name.as_deref().and_then(|name| index.volume(name)) else {
        return waits("has a volume that the provisioner does not see yet; the provisioner waits for it");
    };
    if volume.claim_ref_uid() != Some(&claim.uid) {
        return waits("has a volume whose claimRef names another claim");
    }
    if let Err(why) = volume.verify_place() {
        return waits(&format!("has the volume {}: {why}", volume.name));
    }
    Ok(Some(volume).filter(|volume| volume.belongs_to(identity) && volume.is_adopted()))
}
