//! Tells about writes that fail again and again, where the readers look.

use std::collections::BTreeSet;
use std::time::Duration;

use flex_contract::reason::{self, Reason};
use flex_core::capacity::CAPABILITY;
use flex_core::config::classes::Classes;
use flex_core::model::claim::Claim;
use flex_core::model::object_ref::ObjectRef;
use flex_core::model::snapshot::Content;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::rules::NewEvent;
use flex_core::volume::{expand, modify};

use crate::api::writes::WriteError;
use crate::reconcile::context::Context;
use crate::state::index::WorkItem;

/// The time after which a write that the API server cannot handle is told. Most such errors are short.
const LASTING: Duration = Duration::from_secs(4);

/// The words about a reconcile that timed out.
const NO_ANSWER: &str = "the API server, or an admission webhook that it asks, did not answer in time";

/// An object, and the reason of an event there.
type Reader = (ObjectRef, &'static Reason);

/// Emits an event about a write that somebody must make possible: the API server refuses it, or an admission webhook or
/// the API server itself has failed it for some seconds. The write is repeated. Without an error, the reconcile timed out,
/// because the API server did not answer.
pub(super) fn emit(context: &Context, item: &WorkItem, error: Option<&WriteError>) {
    let Some(message) = message(error, |words| context.failing_for(item, words)) else { return };
    for (object, reason) in readers(context, item) {
        context.emit(object, NewEvent { warning: true, reason, message: message.clone() });
    }
}

/// Returns the message about an error, or about a timeout; `None` if nobody must know. `failing_for` records the words of
/// a fault, and returns the time since when it lasts.
fn message(error: Option<&WriteError>, failing_for: impl FnOnce(&str) -> Duration) -> Option<String> {
    let lasting = |words: &str| {
        let what = if error.is_some() { "a write" } else { "a request" };
        let text = || format!("Kubernetes fails {what} of the provisioner, which is repeated: {words}");
        (failing_for(words) >= LASTING).then(text)
    };
    let Some(error) = error else { return lasting(NO_ANSWER) };
    match (error, error.fault()) {
        (_, Some(fault)) => lasting(&fault),
        (WriteError::Refused { .. } | WriteError::Foreign(_) | WriteError::Incomplete { .. }, None) => {
            Some(format!("Kubernetes refuses a write of the provisioner: {error}"))
        }
        _ => None,
    }
}

/// Returns the objects of a work item, with the reason of an event there. A gate has those of its run, and a batch none: its
/// members are told one by one.
fn readers(context: &Context, item: &WorkItem) -> Vec<Reader> {
    if let WorkItem::Gate(job) = item {
        let items = context.cluster.index().items_of_job(job);
        return items.iter().flat_map(|item| readers(context, item)).collect();
    }
    let recipe = if let WorkItem::Pool(class) = item { context.class_recipe(class) } else { None };
    let index = context.cluster.index();
    let claim =
        |name: &ObjectName| index.claim(name).map(|claim| (ObjectRef::claim(&claim), reason::PROVISIONING_FAILED));
    let volume = |name: &str| {
        let Some(volume) = index.volume(name) else { return Vec::new() };
        let claim = volume.claim_ref_uid().and_then(|uid| index.claim_by_id(uid));
        readers_of_volume(&volume, claim.as_deref())
    };
    let config = |name: &ObjectName, reason: &'static Reason| {
        let config = index.config(name)?;
        Some((ObjectRef { kind: "ConfigMap", name: config.name.clone(), uid: config.uid.clone() }, reason))
    };
    match item {
        WorkItem::Claim(name) => claim(name).into_iter().collect(),
        WorkItem::Volume(name) => volume(name),
        WorkItem::Snapshot(name) => {
            let snapshot = index.snapshot(name);
            snapshot.map(|it| (ObjectRef::snapshot(&it), reason::SNAPSHOT_CREATION_FAILED)).into_iter().collect()
        }
        WorkItem::Content(name) => index.content(name).map(|content| reader_of_content(&content)).into_iter().collect(),
        WorkItem::Pool(_) => {
            recipe.and_then(|recipe| config(&recipe.config, reason::POOL_FAILED)).into_iter().collect()
        }
        WorkItem::Capacity => {
            let configs = configs_with_capacity(&index.classes());
            configs.iter().filter_map(|name| config(name, reason::CAPACITY_FAILED)).collect()
        }
        WorkItem::Record(name) => {
            let record = index.record(name);
            let uids = record.iter().flat_map(|record| record.unsettled());
            let claims = uids.filter_map(|uid| index.claim_by_id(uid));
            claims.map(|claim| (ObjectRef::claim(&claim), reason::PROVISIONING_FAILED)).collect()
        }
        WorkItem::Configs | WorkItem::Batch(_) | WorkItem::Gate(_) | WorkItem::SyncProbe | WorkItem::Findings => {
            Vec::new()
        }
    }
}

/// Returns the readers of a volume with this claim. While the claim is bound, nobody deletes the volume: its user waits for
/// another size or other attributes.
fn readers_of_volume(volume: &Volume, claim: Option<&Claim>) -> Vec<Reader> {
    let is_bound = |claim: &&Claim| claim.is_bound() && claim.volume_name.as_deref() == Some(&volume.name);
    let Some(claim) = claim.filter(is_bound) else {
        return vec![(ObjectRef::volume(volume), reason::VOLUME_FAILED_DELETE)];
    };
    let grows = expand::needs_status_update(volume, claim).then_some(reason::VOLUME_RESIZE_FAILED);
    let changes = modify::needs_status_update(volume, claim).then_some(reason::VOLUME_MODIFY_FAILED);
    let told: Vec<_> = grows.into_iter().chain(changes).map(|reason| (ObjectRef::claim(claim), reason)).collect();
    match told.is_empty() {
        // Storage on other nodes is deleted, or the volume is protected for its deletion.
        true => vec![(ObjectRef::volume(volume), reason::VOLUME_FAILED_DELETE)],
        false => told,
    }
}

/// Returns the reader of a content.
fn reader_of_content(content: &Content) -> Reader {
    let reason = match content.terminating {
        true => reason::SNAPSHOT_DELETION_FAILED,
        false => reason::SNAPSHOT_CREATION_FAILED,
    };
    (ObjectRef::content(content), reason)
}

/// Returns the configs whose images report a capacity.
fn configs_with_capacity(classes: &Classes) -> BTreeSet<ObjectName> {
    let recipes = classes.iter().filter_map(|class| class.recipe.as_ref().ok());
    recipes.filter(|recipe| recipe.can(CAPABILITY)).map(|recipe| recipe.config.clone()).collect()
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use flex_core::config::classes::Config;
    use flex_core::model::snapshot::api::VolumeSnapshotContent;
    use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
    use serde_json::{Value, json};

    use super::*;
    use crate::state::index::{Index, WatchChange};
    use crate::state::testing::default_identity;

    const SHORT: Duration = Duration::from_secs(1);

    #[test]
    fn a_fault_and_a_timeout_are_told_when_they_last() {
        let status = kube::core::Status::failure("webhook is down", "").with_code(500);
        let fault = WriteError::Failed { what: "Job a".into(), source: Box::new(kube::Error::Api(status.boxed())) };
        let refused = WriteError::Refused { what: "Job a".into(), message: "quota".into(), invalid: false };
        for (error, words) in [(Some(&fault), "Job a: webhook is down"), (None, NO_ANSWER)] {
            assert_eq!(message(error, |_| SHORT), None);
            let told = message(error, |recorded| {
                assert_eq!(recorded, words, "the words are the same each time");
                LASTING
            });
            let told = told.unwrap();
            assert!(told.starts_with("Kubernetes fails a ") && told.ends_with(words), "{told}");
        }
        let told = message(Some(&refused), |_| unreachable!("a refusal is told at once")).unwrap();
        assert_eq!(told, "Kubernetes refuses a write of the provisioner: Job a: quota");
        assert_eq!(message(Some(&WriteError::Conflict("volume a".into())), |_| LASTING), None);
    }

    fn claim(requested: &str, class: Option<&str>, volume: &str) -> Claim {
        let object = json!({
            "metadata": { "namespace": "team", "name": "a", "uid": "c", "annotations": { names::BIND_COMPLETED: "yes" } },
            "spec": {
                "volumeName": volume, "resources": { "requests": { "storage": requested } },
                "volumeAttributesClassName": class,
            },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        });
        Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
    }

    /// The claim of a volume in use gets the event, and no reader of the volume fears for its storage.
    #[test]
    fn a_claim_that_grows_or_changes_gets_the_event_and_not_its_volume() {
        let object = json!({ "metadata": { "name": "pvc-v" }, "spec": { "capacity": { "storage": "1Gi" } } });
        let volume = Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap());
        let of = |claim: Option<&Claim>| {
            let readers = readers_of_volume(&volume, claim);
            readers.iter().map(|(object, reason)| format!("{} {}", object.kind, reason.name)).collect::<Vec<_>>()
        };
        let (resize, modify, delete) = (
            "PersistentVolumeClaim VolumeResizeFailed",
            "PersistentVolumeClaim VolumeModifyFailed",
            "PersistentVolume VolumeFailedDelete",
        );
        assert_eq!(of(Some(&claim("3Gi", None, "pvc-v"))), [resize]);
        assert_eq!(of(Some(&claim("1Gi", Some("gold"), "pvc-v"))), [modify]);
        assert_eq!(of(Some(&claim("3Gi", Some("gold"), "pvc-v"))), [resize, modify]);
        assert_eq!(of(Some(&claim("1Gi", None, "pvc-v"))), [delete], "storage on other nodes");
        assert_eq!(of(Some(&claim("3Gi", None, "pvc-other"))), [delete]);
        assert_eq!(of(None), [delete]);
    }

    #[test]
    fn a_content_that_is_deleted_says_so() {
        let of = |metadata: Value| {
            let spec = json!({
                "deletionPolicy": "Delete", "driver": "d", "source": { "volumeHandle": "v" },
                "volumeSnapshotRef": { "namespace": "team", "name": "monday" },
            });
            let object = json!({ "metadata": metadata, "spec": spec });
            let object: VolumeSnapshotContent = serde_json::from_value(object).unwrap();
            reader_of_content(&Content::from(&object)).1.name
        };
        assert_eq!(of(json!({ "name": "s" })), reason::SNAPSHOT_CREATION_FAILED.name);
        let terminating = json!({ "name": "s", "deletionTimestamp": "2026-01-01T00:00:00Z" });
        assert_eq!(of(terminating), reason::SNAPSHOT_DELETION_FAILED.name);
    }

    #[test]
    fn a_failing_capacity_is_told_on_the_configs_that_report_one() {
        let identity = default_identity();
        let mut index = Index::new(identity.clone(), crate::clock::Clock::default());
        for (name, capabilities) in [("with", "capacity"), ("without", "expand")] {
            let data = [("plugin-name", identity.plugin.as_str()), ("image", "x"), ("capabilities", capabilities)];
            index.change_config(WatchChange::Apply(Config {
                name: ObjectName::new("admin", name),
                class: Some(name.into()),
                data: data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
                ..Config::default()
            }));
        }
        let found: Vec<_> = configs_with_capacity(&index.classes()).into_iter().map(|config| config.name).collect();
        assert_eq!(found, ["with"]);
    }
}
