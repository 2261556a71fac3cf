//! Tells about writes that fail again and again, where the readers look.

use std::time::Duration;

use flex_contract::reason::{self, Reason};

use crate::api::writes::WriteError;
use crate::model::object_ref::ObjectRef;
use crate::object::ObjectName;
use crate::reconcile::context::Context;
use crate::run::member::MemberObject;
use crate::state::index::WorkItem;

/// The time after which a write that the API server cannot handle is told. Most such errors are short.
const LASTING: Duration = Duration::from_secs(4);

/// Emits an event about a write that somebody must make possible: the API server refuses it, or an admission webhook or
/// the API server itself has failed it for some seconds. The write is repeated.
pub(super) fn emit(context: &Context, item: &WorkItem, error: &WriteError) {
    let message = match (error, error.fault()) {
        (_, Some(fault)) if context.failing_for(item, &fault) >= LASTING => {
            format!("Kubernetes fails a write of the provisioner, which is repeated: {fault}")
        }
        (WriteError::Refused { .. } | WriteError::Foreign(_) | WriteError::Incomplete { .. }, None) => {
            format!("Kubernetes refuses a write of the provisioner: {error}")
        }
        _ => return,
    };
    for (object, reason) in readers(context, item) {
        context.events.emit(object, true, reason, message.clone());
    }
}

/// Returns the objects of a work item, with the reason of an event there. A batch has those of its members.
fn readers(context: &Context, item: &WorkItem) -> Vec<(ObjectRef, &'static Reason)> {
    let recipe = if let WorkItem::Pool(class) = item { context.class_recipe(class) } else { None };
    let index = context.cluster.index();
    let claim =
        |name: &ObjectName| index.claim(name).map(|claim| (ObjectRef::claim(&claim), reason::PROVISIONING_FAILED));
    let volume = |name: &str| {
        let volume = index.volume(name)?;
        Some((ObjectRef::volume(&volume), reason::VOLUME_FAILED_DELETE))
    };
    match item {
        WorkItem::Claim(name) => claim(name).into_iter().collect(),
        WorkItem::Volume(name) => volume(name).into_iter().collect(),
        WorkItem::Snapshot(name) => {
            let snapshot = index.snapshot(name);
            snapshot.map(|it| (ObjectRef::snapshot(&it), reason::SNAPSHOT_CREATION_FAILED)).into_iter().collect()
        }
        WorkItem::Content(name) => {
            let content = index.content(name);
            content.map(|it| (ObjectRef::content(&it), reason::SNAPSHOT_CREATION_FAILED)).into_iter().collect()
        }
        WorkItem::Batch(name) => {
            let of = |object: MemberObject| match object {
                MemberObject::Claim(name) => claim(&name),
                MemberObject::Volume(name) => volume(&name),
            };
            index.batch_members(name).into_iter().filter_map(of).collect()
        }
        WorkItem::Pool(_) => {
            let config = recipe.as_ref().and_then(|recipe| index.config(&recipe.config));
            let object = config.map(|config| ObjectRef {
                kind: "ConfigMap",
                name: config.name.clone(),
                uid: config.uid.clone(),
            });
            object.map(|object| (object, reason::POOL_FAILED)).into_iter().collect()
        }
        WorkItem::Configs | WorkItem::SyncProbe | WorkItem::Findings | WorkItem::Capacity => Vec::new(),
    }
}
