//! Reconciles VolumeSnapshots: observes, decides with [`bind`], and takes the steps.

pub(super) mod content;

use std::sync::Arc;
use std::time::Duration;

use crate::api::writes::WriteError;
use crate::config::classes::Identity;
use crate::model::object_ref::ObjectRef;
use crate::model::snapshot::Content;
use crate::model::snapshot::Of;
use crate::model::snapshot::Snapshot;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::reconcile::context::{Context, MAX_STEPS, Requeue};
use crate::snapshot::bind::{Decision, Observed, SnapshotClassLookup, Source, Step, decide};
use crate::state::index::Index;

/// Reconciles a VolumeSnapshot.
pub(super) async fn reconcile(context: &Context, name: &ObjectName) -> Result<Requeue, WriteError> {
    let cached = context.shared.index().snapshot(name);
    let Some(mut snapshot) = cached.map(|snapshot| (*snapshot).clone()) else { return Ok(Requeue::Done) };
    let mut no_content = false;
    let mut newer: Option<Content> = None;
    for _ in 0..MAX_STEPS {
        let seen = observe(&context.shared.index(), &context.identity, &snapshot);
        let content = newer.clone().map(Arc::new).or(seen.content);
        let observed = Observed {
            snapshot: &snapshot,
            class: seen.class.of(),
            source: match &seen.source {
                Ok(Some(volume)) => Source::Ours(volume),
                Ok(None) => Source::Foreign,
                Err(why) => Source::Unbound(why.clone()),
            },
            content: content.as_deref(),
            content_ours: content.as_ref().is_some_and(|content| content.is_ours(&context.identity)),
            no_content,
        };
        let Decision { step, event, .. } = decide(&observed);
        tracing::debug!(snapshot = %snapshot.name, ?step, "decided");
        let (before, after) = match matches!(step, Step::Mirror(_)) {
            true => (None, event),
            false => (event, None),
        };
        before.into_iter().for_each(|event| context.emit(ObjectRef::snapshot(&snapshot), event));
        let now = context.time_in_status();
        match step {
            Step::Nothing => return Ok(Requeue::Done),
            Step::AddFinalizer => snapshot = context.writes.add_snapshot_finalizer(&snapshot).await?,
            Step::SetClass { class } => snapshot = context.writes.set_snapshot_class(&snapshot, &class).await?,
            Step::CreateContent { policy } => {
                let Ok(Some(volume)) = &seen.source else { return Ok(Requeue::Done) };
                let handle = volume.id().unwrap_or_default();
                newer = Some(context.writes.create_content(&snapshot, &policy, (handle, &volume.volume_mode)).await?);
            }
            Step::BindContent => {
                let Some(content) = &content else { return Ok(Requeue::Done) };
                newer = Some(context.writes.bind_content(content, &snapshot).await?);
            }
            Step::Mirror(status) => snapshot = context.writes.mirror(&snapshot, &status, &now).await?,
            Step::Refuse { why } => snapshot = context.writes.refuse_snapshot(&snapshot, &why, &now).await?,
            Step::DeleteContent => {
                let Some(content) = &content else { return Ok(Requeue::Done) };
                context.writes.delete_content(content).await?;
                return Ok(Requeue::Done);
            }
            Step::ConfirmNoContent => {
                let name = snapshot.content().unwrap_or_default();
                newer = context.writes.read_content(&name).await?;
                no_content = newer.as_ref().is_none_or(|content| content.snapshot_uid != snapshot.uid);
            }
            Step::RemoveFinalizer => {
                context.writes.remove_snapshot_finalizer(&snapshot).await?;
                return Ok(Requeue::Done);
            }
        }
        after.into_iter().for_each(|event| context.emit(ObjectRef::snapshot(&snapshot), event));
    }
    Ok(Requeue::After(Duration::from_secs(1)))
}

/// The data from which a decision borrows.
struct Observation {
    class: SnapshotClassObservation,
    source: Result<Option<Arc<Volume>>, String>,
    content: Option<Arc<Content>>,
}

enum SnapshotClassObservation {
    NotOurs,
    Ours(String),
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
    if !claim.is_bound() || claim.phase != "Bound" {
        return waits("is not bound; the provisioner waits for it");
    }
    let Some(volume) = claim.volume_name.as_deref().and_then(|name| index.volume(name)) else {
        return waits("has a volume that the provisioner does not see yet, and waits for");
    };
    if volume.claim_ref.as_ref().is_none_or(|reference| reference.uid != claim.uid) {
        return waits("has a volume whose claimRef names another claim");
    }
    Ok(Some(volume).filter(|volume| volume.belongs_to(identity) && volume.is_adopted()))
}
